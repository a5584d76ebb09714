// SPDX-License-Identifier: Apache-2.0
//! The judgement about updates: from what is wanted, what runs, what the unit says and what is remembered to one
//! action, the status and the condition. Pure: the journal it returns must be on disk before its action is taken.

use cobaltcore_api::HypervisorUpdateStatus;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::{EventReason, OperatingSystemUpdateReason as Reason};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::NewCondition;
use jiff::{SignedDuration, Timestamp};

use super::journal::{Journal, Phase, Target};
use crate::host::BootId;
use crate::systemd::{JobResult, UnitDetails};

/// What is started to reboot into an installed version.
pub(super) const REBOOT_UNIT: &str = "systemd-sysupdate-reboot.target";
/// Attempts of a freshly armed update.
const ATTEMPTS: u32 = 3;
/// Pauses after the first, second and any later failure.
const PAUSES: [SignedDuration; 3] = [
    SignedDuration::from_secs(30),
    SignedDuration::from_mins(2),
    SignedDuration::from_mins(10),
];
const REBOOT_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const TYPE: HypervisorCondition = HypervisorCondition::OperatingSystemUpdate;

/// What the Hypervisor asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The version; empty for none.
    pub version: String,
    /// Whether to reboot into it.
    pub reboot: bool,
    /// The value of the retry annotation.
    pub arm: String,
}

/// What is known of the job of our own start.
#[derive(Clone, Debug, PartialEq)]
pub enum JobView {
    /// This process did not start one, or lost sight of it.
    Unknown,
    /// It has not ended.
    Pending,
    /// It ended.
    Ended(JobResult),
}

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What the Hypervisor asks for.
    pub wanted: Wanted,
    /// The running version, when known.
    pub running: Option<String>,
    /// This boot, when known.
    pub boot: Option<BootId>,
    /// The update unit, or why it cannot be asked about.
    pub unit: Result<UnitDetails, String>,
    /// The job of our own start.
    pub job: JobView,
    /// The version that the status says is installed.
    pub installed_before: String,
    /// What is remembered.
    pub journal: Journal,
    /// The time.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing until something changes.
    None,
    /// Nothing until then.
    WaitUntil(Timestamp),
    /// Start the update unit.
    Start,
    /// Ask for the reboot.
    Reboot,
}

/// Where an update is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wanted or everything is done.
    Idle,
    /// About to be started.
    Starting,
    /// The unit runs.
    Running,
    /// On disk, not running yet.
    Installed,
    /// Waiting for the next attempt, or given up.
    Failed,
    /// A reboot was asked for.
    Rebooting,
}

impl State {
    /// Every word.
    pub const NAMES: &'static [&'static str] =
        &["Idle", "Starting", "Running", "Installed", "Failed", "Rebooting"];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Installed => "Installed",
            Self::Failed => "Failed",
            Self::Rebooting => "Rebooting",
        }
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// To be remembered before acting.
    pub journal: Journal,
    /// What to do.
    pub action: Action,
    /// The status; `None` leaves it as it is.
    pub status: Option<HypervisorUpdateStatus>,
    /// The condition; `None` when there is nothing to say.
    pub condition: Option<NewCondition>,
    /// Where the update is.
    pub state: State,
    /// What people should be told.
    pub event: Option<Happening>,
}

/// The unit that installs `version`, or `None` for a version that must not reach a command line.
///
/// ```
/// use cobaltcore_node_agent::update::unit_of;
/// assert_eq!(unit_of("1877.3").as_deref(), Some("systemd-sysupdate@1877.3.service"));
/// assert_eq!(unit_of("latest").as_deref(), Some("systemd-sysupdate.service"));
/// assert_eq!(unit_of("../etc"), None);
/// ```
pub fn unit_of(version: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '~' | '-');
    let fits = version.len() <= 63
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(allowed);
    fits.then(|| match version {
        "latest" => "systemd-sysupdate.service".to_owned(),
        // Unit names know neither of the two; systemd writes them as escapes.
        version => format!(
            "systemd-sysupdate@{}.service",
            version.replace('~', "\\x7e").replace('+', "\\x2b")
        ),
    })
}

/// Decides.
pub fn decide(observed: &Observed) -> Decision {
    let Observed { wanted, running, .. } = observed;
    if let Some(target) = &observed.journal.target
        && let Phase::Started { .. } = target.phase
        && target.version != wanted.version
        && is_running(observed)
    {
        // A second update beside a running one would break both: the first one ends first.
        return running_decision(observed, target.clone());
    }
    if wanted.version.is_empty() {
        return quiet(observed);
    }
    if unit_of(&wanted.version).is_none() {
        return invalid(observed);
    }
    let Some(running) = running else {
        return unknown(observed, "the running version is not known yet");
    };
    if *running == wanted.version {
        return arrived(observed);
    }
    let target = target_for(observed);
    match target.phase.clone() {
        Phase::Waiting => waiting(observed, target),
        Phase::Started { boot, invocation } => started(observed, target, &boot, &invocation),
        Phase::Installed { ours } => installed(observed, target, ours),
        Phase::RebootRequested { boot } => reboot_requested(observed, target, &boot, running),
    }
}

/// What to remember after a reboot was refused: it has not been asked for, and is asked for again a little later.
pub(super) fn reboot_refused(mut journal: Journal, why: &str, now: Timestamp) -> Journal {
    if let Some(target) = &mut journal.target {
        target.phase = Phase::Installed { ours: true };
        why.clone_into(&mut target.error);
        target.not_before = now.checked_add(REBOOT_PAUSE).ok();
    }
    journal
}

/// The condition of an update that does not go on.
pub(super) fn stopped(why: &str) -> NewCondition {
    NewCondition::no(TYPE, Reason::Stopped, why)
}

/// The remembered update if it is the wanted one, else a freshly armed one. A version that the status already calls
/// installed is taken as such, but nobody knows who put it there, so it brings no reboot.
fn target_for(observed: &Observed) -> Target {
    let Observed {
        wanted,
        journal,
        installed_before,
        ..
    } = observed;
    let same = journal
        .target
        .as_ref()
        .filter(|target| target.version == wanted.version && target.arm == wanted.arm);
    if let Some(target) = same {
        return target.clone();
    }
    let taken_over = journal.target.is_none() && *installed_before == wanted.version;
    Target {
        version: wanted.version.clone(),
        arm: wanted.arm.clone(),
        attempts: ATTEMPTS,
        phase: if taken_over {
            Phase::Installed { ours: false }
        } else {
            Phase::Waiting
        },
        not_before: None,
        error: String::new(),
    }
}

fn waiting(observed: &Observed, mut target: Target) -> Decision {
    if target.attempts == 0 {
        let message = format!(
            "{}; no attempts are left, change spec.version or the annotation kvm.cloud.sap/retry-update to try again",
            target.error
        );
        let condition = NewCondition::no(TYPE, Reason::RetryLimit, message);
        return decision(observed, target, Action::None, condition, State::Failed);
    }
    if let Some(at) = target.not_before.filter(|at| *at > observed.now) {
        let condition = stopped(&target.error);
        return decision(observed, target, Action::WaitUntil(at), condition, State::Failed);
    }
    let unit = match &observed.unit {
        Err(why) => return unknown(observed, why),
        Ok(unit) => unit,
    };
    let Some(boot) = observed.boot.clone() else {
        return unknown(observed, "the kernel does not tell its boot id");
    };
    if unit.load == "not-found" {
        let why = "the host has no unit for it; systemd-sysupdate may not be installed";
        return failed(observed, target, why);
    }
    target.phase = Phase::Started {
        boot,
        invocation: unit.invocation.clone(),
    };
    target.error = String::new();
    if runs(unit) {
        return running_decision(observed, target);
    }
    let event = Happening::normal(
        EventReason::UpdateStarted,
        "Updating",
        format!(
            "update to {} started, {} attempts left",
            target.version, target.attempts
        ),
    );
    let condition = running_condition(&target);
    Decision {
        event: Some(event),
        ..decision(observed, target, Action::Start, condition, State::Starting)
    }
}

fn started(observed: &Observed, target: Target, boot: &BootId, invocation: &str) -> Decision {
    if observed.boot.as_ref().is_some_and(|now| now != boot) {
        return failed(observed, target, "the host was rebooted while it ran");
    }
    if let JobView::Ended(JobResult::Other(result)) = &observed.job {
        return failed(observed, target, &format!("systemd ended its job with: {result}"));
    }
    let Ok(unit) = &observed.unit else {
        // Its state is not known: it was started, so it may run.
        return running_decision(observed, target);
    };
    let fresh = !unit.invocation.is_empty() && unit.invocation != invocation;
    let job_done = observed.job == JobView::Ended(JobResult::Done);
    match unit.active.as_str() {
        "failed" if fresh || job_done => {
            failed(observed, target, &format!("the unit failed: {}", unit.result))
        }
        "active" if unit.sub == "exited" && (fresh || job_done) => finished(observed, target),
        _ if runs(unit) || observed.job == JobView::Pending => running_decision(observed, target),
        "inactive" if (fresh || job_done) && unit.result == "success" => finished(observed, target),
        "inactive" if fresh || job_done => {
            failed(observed, target, &format!("the unit ended with: {}", unit.result))
        }
        // It did not run since it was to be started, or systemd forgot that it did. Installing what is installed
        // already is harmless, guessing is not.
        _ => {
            let condition = running_condition(&target);
            decision(observed, target, Action::Start, condition, State::Starting)
        }
    }
}

fn finished(observed: &Observed, mut target: Target) -> Decision {
    target.phase = Phase::Installed { ours: true };
    target.not_before = None;
    target.error = String::new();
    let note = format!("update {} is installed", target.version);
    let event = Happening::normal(EventReason::UpdateInstalled, "Updating", note);
    Decision {
        event: Some(event),
        ..installed(observed, target, true)
    }
}

fn installed(observed: &Observed, mut target: Target, ours: bool) -> Decision {
    let text = installed_text(&target.version);
    let done = NewCondition::yes(TYPE, Reason::Completed, text.clone());
    let Some(boot) = observed.boot.clone().filter(|_| ours && observed.wanted.reboot) else {
        return decision(observed, target, Action::None, done, State::Installed);
    };
    if let Some(at) = target.not_before.filter(|at| *at > observed.now) {
        let message = format!("{text}; the reboot was refused: {}", target.error);
        let condition = NewCondition::yes(TYPE, Reason::Completed, message);
        return decision(
            observed,
            target,
            Action::WaitUntil(at),
            condition,
            State::Installed,
        );
    }
    target.phase = Phase::RebootRequested { boot };
    decision(observed, target, Action::Reboot, done, State::Rebooting)
}

fn reboot_requested(observed: &Observed, target: Target, boot: &BootId, running: &str) -> Decision {
    if observed.boot.as_ref() == Some(boot) {
        let message = format!("{}; reboot requested", installed_text(&target.version));
        let condition = NewCondition::yes(TYPE, Reason::Completed, message);
        return decision(observed, target, Action::None, condition, State::Rebooting);
    }
    // Rebooting again would most likely end here again.
    let why = format!(
        "the host was rebooted for {} but runs {running}; change the annotation kvm.cloud.sap/retry-update to try again",
        target.version
    );
    decision(observed, target, Action::None, stopped(&why), State::Failed)
}

fn failed(observed: &Observed, mut target: Target, why: &str) -> Decision {
    let failures = ATTEMPTS.saturating_sub(target.attempts) as usize;
    let pause = PAUSES.get(failures).copied().unwrap_or(PAUSES[PAUSES.len() - 1]);
    target.attempts = target.attempts.saturating_sub(1);
    target.phase = Phase::Waiting;
    target.not_before = observed.now.checked_add(pause).ok();
    target.error = format!("{} update has failed: {why}", target.version);
    let event = Happening::warning(EventReason::UpdateFailed, "Updating", target.error.clone());
    Decision {
        event: Some(event),
        ..waiting(observed, target)
    }
}

/// The wanted version runs.
fn arrived(observed: &Observed) -> Decision {
    let version = &observed.wanted.version;
    Decision {
        journal: Journal::default(),
        action: Action::None,
        status: Some(HypervisorUpdateStatus {
            in_progress: false,
            installed: version.clone(),
            retry: ATTEMPTS.into(),
        }),
        condition: Some(NewCondition::yes(
            TYPE,
            Reason::Completed,
            installed_text(version),
        )),
        state: State::Idle,
        event: None,
    }
}

/// Nothing is wanted: what was going on is forgotten, what is installed stays said.
fn quiet(observed: &Observed) -> Decision {
    let nothing = observed.journal.target.is_none() && observed.installed_before.is_empty();
    Decision {
        journal: Journal::default(),
        action: Action::None,
        status: (!nothing).then(|| HypervisorUpdateStatus {
            in_progress: false,
            installed: known(&observed.installed_before),
            retry: ATTEMPTS.into(),
        }),
        condition: None,
        state: State::Idle,
        event: None,
    }
}

fn invalid(observed: &Observed) -> Decision {
    let message = format!(
        "{:?} is not a version: letters, digits and . _ + ~ - are allowed, at most 63, beginning with a letter or digit",
        observed.wanted.version.chars().take(100).collect::<String>()
    );
    Decision {
        journal: observed.journal.clone(),
        action: Action::None,
        status: Some(HypervisorUpdateStatus {
            in_progress: false,
            installed: known(&observed.installed_before),
            retry: ATTEMPTS.into(),
        }),
        condition: Some(NewCondition::no(TYPE, Reason::InvalidVersion, message)),
        state: State::Failed,
        event: None,
    }
}

/// Something needed cannot be known now: nothing is started, and the reason is said.
fn unknown(observed: &Observed, why: &str) -> Decision {
    let target = target_for(observed);
    let condition = stopped(&format!("update to {} waits: {why}", target.version));
    Decision {
        journal: observed.journal.clone(),
        ..decision(observed, target, Action::None, condition, State::Failed)
    }
}

fn running_decision(observed: &Observed, target: Target) -> Decision {
    let condition = running_condition(&target);
    decision(observed, target, Action::None, condition, State::Running)
}

fn running_condition(target: &Target) -> NewCondition {
    let message = format!("Operating system update to {} is running", target.version);
    NewCondition::yes(TYPE, Reason::Running, message)
}

fn installed_text(version: &str) -> String {
    format!("Operating system update {version} is installed")
}

fn decision(
    observed: &Observed,
    target: Target,
    action: Action,
    condition: NewCondition,
    state: State,
) -> Decision {
    let on_disk = matches!(
        target.phase,
        Phase::Installed { .. } | Phase::RebootRequested { .. }
    );
    Decision {
        status: Some(HypervisorUpdateStatus {
            in_progress: matches!(target.phase, Phase::Started { .. }),
            installed: if on_disk {
                target.version.clone()
            } else {
                known(&observed.installed_before)
            },
            retry: target.attempts.into(),
        }),
        journal: Journal { target: Some(target) },
        action,
        condition: Some(condition),
        state,
        event: None,
    }
}

/// The schema's word for a version that nobody knows.
fn known(installed: &str) -> String {
    if installed.is_empty() {
        "unknown".to_owned()
    } else {
        installed.to_owned()
    }
}

fn is_running(observed: &Observed) -> bool {
    observed.job == JobView::Pending || observed.unit.as_ref().is_ok_and(runs)
}

fn runs(unit: &UnitDetails) -> bool {
    match unit.active.as_str() {
        "activating" | "reloading" | "deactivating" => true,
        // A oneshot that remains after its exit is done.
        "active" => unit.sub != "exited",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
