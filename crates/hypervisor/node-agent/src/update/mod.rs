// SPDX-License-Identifier: Apache-2.0
//! Operating system updates through systemd-sysupdate. The Hypervisor names the wanted version; the update unit is
//! started, its job is really waited for, a failure is tried again a few times, and a reboot is asked for once.
//! What must survive a restart of the agent is in a journal on the host before the action; the evacuation of guests
//! before the reboot is left to the inhibitor.

mod decide;
mod journal;

use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, HypervisorUpdateStatus, OperatingSystem, annotations};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::{BoxError, CancellationToken};
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::sync::watch;

use crate::board::Board;
use crate::context::{Context, Seen, differs};
use crate::host::{BootId, HostFiles};
use crate::systemd::{BusError, Job, JobResult, Link, Manager, settled};

pub use decide::{Action, Decision, JobView, Observed, State, Wanted, decide, unit_of};
pub use journal::{Journal, JournalError, JournalFile, Phase, Target};

/// Without any signal, how often the unit is looked at.
const LOOK: Duration = Duration::from_secs(30);

/// Follows the wanted version until `stop`.
pub async fn run(
    context: Context,
    mut bus: watch::Receiver<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let files = HostFiles::below(&context.config.system.host_root);
    let mut part = Part {
        boot: files.boot_id(),
        journal: JournalFile::below(&context.config.system.state_dir),
        job: None,
        ended: None,
        told: String::new(),
        context,
    };
    let mut hypervisor = part.context.hypervisor.clone();
    let facts = part.context.board.clone();
    let mut board = facts.changes();
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = settled(&mut bus) => {}
    }
    loop {
        let wanted = wanted(&hypervisor.borrow_and_update());
        board.mark_unchanged();
        let running = running(&facts);
        let link = bus.borrow_and_update().clone();
        let pause = part.step(&link).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = differs(&mut hypervisor, &wanted, self::wanted) => changed?,
            changed = bus.changed() => changed?,
            changed = differs(&mut board, &running, |_| self::running(&facts)) => changed?,
            end = end_of(&mut part.job) => part.job_ended(end),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn end_of(job: &mut Option<Job>) -> Result<JobResult, BusError> {
    match job {
        Some(job) => job.end().await,
        None => std::future::pending().await,
    }
}

struct Part {
    context: Context,
    boot: Option<BootId>,
    journal: JournalFile,
    /// The job of a start made by this process.
    job: Option<Job>,
    /// How that job ended.
    ended: Option<JobResult>,
    /// The last event, so that it is told once.
    told: String,
}

/// What the own Hypervisor asks for, if there is one.
fn wanted(seen: &Seen) -> Option<Wanted> {
    seen.as_deref().map(wanted_of)
}

fn wanted_of(hypervisor: &Hypervisor) -> Wanted {
    let arm = hypervisor.annotations().get(annotations::RETRY_UPDATE.as_str());
    Wanted {
        version: hypervisor.spec.version.clone(),
        reboot: hypervisor.spec.reboot,
        arm: arm.cloned().unwrap_or_default(),
    }
}

/// The running version, when the host's facts were read.
fn running(board: &Board) -> Option<String> {
    let version = |system: &OperatingSystem| system.version.clone();
    board.read(|model| model.operating_system.as_ref().map(version))
}

impl Part {
    fn job_ended(&mut self, end: Result<JobResult, BusError>) {
        self.job = None;
        match end {
            Ok(result) => self.ended = Some(result),
            // The unit's own state tells how it went.
            Err(error) => tracing::info!(%error, "the end of the update job was not seen"),
        }
    }

    /// Observes, decides and acts once; returns how long nothing needs to be done.
    async fn step(&mut self, link: &Link) -> Duration {
        let Some(hypervisor) = self.context.hypervisor() else {
            return LOOK;
        };
        if running(&self.context.board).is_none() {
            // The host's facts have not been read yet; nothing is wrong.
            return LOOK;
        }
        let journal = match self.journal.read() {
            Ok(journal) => journal,
            Err(error) => {
                self.hold(&hypervisor, &error.to_string());
                return LOOK;
            }
        };
        let observed = self.observe(&hypervisor, journal, link).await;
        let decision = decide(&observed);
        if decision.journal != observed.journal {
            if let Err(error) = self.journal.write(&decision.journal) {
                self.hold(&hypervisor, &error.to_string());
                return LOOK;
            }
            self.ended = None;
        }
        self.publish(&decision);
        match decision.action {
            Action::None => {}
            Action::WaitUntil(at) => {
                let wait = at.duration_since(observed.now);
                return Duration::try_from(wait)
                    .unwrap_or_default()
                    .clamp(Duration::from_millis(100), LOOK);
            }
            Action::Start => self.start(&decision.journal, link).await,
            Action::Reboot => self.reboot(&decision.journal, link).await,
        }
        LOOK
    }

    async fn observe(&self, hypervisor: &Hypervisor, journal: Journal, link: &Link) -> Observed {
        let wanted = wanted_of(hypervisor);
        let running = running(&self.context.board);
        let before = hypervisor
            .status
            .as_ref()
            .and_then(|status| status.update_status.clone());
        let version = journal
            .target
            .as_ref()
            .filter(|target| matches!(target.phase, Phase::Started { .. }))
            .map_or(&wanted.version, |target| &target.version);
        let unit = match unit_of(version) {
            Some(unit) if !version.is_empty() && running.as_ref() != Some(version) => {
                unit_details(link, &unit).await
            }
            _ => Err("there is nothing to ask about".to_owned()),
        };
        Observed {
            wanted,
            running: running.filter(|version| !version.is_empty()),
            boot: self.boot.clone(),
            unit,
            job: match (&self.job, &self.ended) {
                (_, Some(result)) => JobView::Ended(result.clone()),
                (Some(_), None) => JobView::Pending,
                (None, None) => JobView::Unknown,
            },
            installed_before: before.map(|status| status.installed).unwrap_or_default(),
            journal,
            now: Timestamp::now(),
        }
    }

    async fn start(&mut self, journal: &Journal, link: &Link) {
        let Some((target, unit)) = target_unit(journal) else {
            return;
        };
        let started = async {
            let manager = Manager::new(link.connection("starting an update")?).await?;
            manager.start(&unit).await
        };
        self.ended = None;
        match started.await {
            Ok(job) => {
                tracing::info!(version = target.version, unit, "operating system update started");
                self.job = Some(job);
            }
            Err(error) if error.is_refusal() => {
                tracing::warn!(version = target.version, %error, "the update was refused");
                self.ended = Some(JobResult::Other(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(version = target.version, %error, "it is open whether the update started");
            }
        }
    }

    async fn reboot(&mut self, journal: &Journal, link: &Link) {
        let asked = async {
            let manager = Manager::new(link.connection("asking for a reboot")?).await?;
            manager.start(decide::REBOOT_UNIT).await
        };
        match asked.await {
            Ok(_) => tracing::warn!("reboot into the installed operating system requested"),
            // An answer that says no had no effect, so asking again later is not a second reboot.
            Err(error) if error.is_refusal() => {
                tracing::warn!(%error, "the reboot was refused and is asked for again later");
                let taken_back =
                    decide::reboot_refused(journal.clone(), &error.to_string(), Timestamp::now());
                if let Err(error) = self.journal.write(&taken_back) {
                    tracing::error!(%error, "the reboot will not be asked for again in this boot");
                }
            }
            Err(error) => tracing::warn!(%error, "it is open whether the reboot was heard; not asking twice"),
        }
    }

    fn publish(&mut self, decision: &Decision) {
        let Decision {
            status,
            condition,
            state,
            event,
            ..
        } = decision;
        self.context.metrics.show_update(State::NAMES, state.as_str());
        if let Some(status) = status {
            self.context.board.set_update_status(status.clone());
        }
        let type_ = HypervisorCondition::OperatingSystemUpdate;
        match condition {
            Some(condition) => self.context.board.set_condition(type_, condition.clone()),
            None => self.context.board.clear_condition(type_),
        }
        if let Some(event) = event
            && self.told != event.note
        {
            self.told.clone_from(&event.note);
            self.context.tell(event.clone());
        }
    }

    /// Nothing is started without a journal: a reboot must not be asked for twice.
    fn hold(&self, hypervisor: &Hypervisor, why: &str) {
        if hypervisor.spec.version.is_empty() {
            return;
        }
        let why = format!("cannot keep the journal of updates, so none is started: {why}");
        tracing::error!(why);
        let status = hypervisor
            .status
            .as_ref()
            .and_then(|status| status.update_status.clone());
        self.context.board.set_update_status(HypervisorUpdateStatus {
            in_progress: false,
            ..status.unwrap_or_default()
        });
        self.context
            .board
            .set_condition(HypervisorCondition::OperatingSystemUpdate, decide::stopped(&why));
        self.context
            .tell(Happening::warning(EventReason::UpdateFailed, "Updating", why));
    }
}

fn target_unit(journal: &Journal) -> Option<(&Target, String)> {
    let target = journal.target.as_ref()?;
    Some((target, unit_of(&target.version)?))
}

async fn unit_details(link: &Link, unit: &str) -> Result<crate::systemd::UnitDetails, String> {
    let details = async {
        let manager = Manager::new(link.connection("asking about an update")?).await?;
        manager.details(unit).await
    };
    details.await.map_err(|error| error.to_string())
}

/// Where the journal is below the state directory.
pub fn journal_path(state_dir: &std::path::Path) -> PathBuf {
    state_dir.join(journal::FILE)
}
