// SPDX-License-Identifier: Apache-2.0
//! What the engine wants people to know: one log line each, figures, and events on the Hypervisor
//! where there is a cluster.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::names::HostName;
use cobaltcore_api::reasons::HaRecoveryReason;
use cobaltcore_api::{Hypervisor, Maintenance};
use cobaltcore_ha_engine::{
    Assessment, BlockedReason, Degraded, FailedReason, HeldReason, IncidentId, IncidentState, Loss, Notice,
    Severity,
};
use cobaltcore_kit::events::{Happening, Recorder};
use cobaltcore_kit::watched::Watched;
use cobaltcore_openstack::Session;
use cobaltcore_openstack::nova::ServiceUpdate;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use rusqlite::params;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::act::kubernetes;
use crate::config::DegradedAction;
use crate::http::{App, signals_of};
use crate::metrics::{Metrics, OfDriver, OfEnd, OfGroup, OfVm};
use crate::mirror::Objects;
use crate::tasks::housekeeping::verdict_word;
use crate::tasks::told::{loss, told, trouble};

const CALL_TIME: Duration = Duration::from_secs(10);
/// How often something is tried again that could not be done about a lasting trouble.
const AGAIN: Duration = Duration::from_secs(15);
const NEEDS_PERSON: &str = "needs-person";
const GAVE_UP: &str = "gave-up";
const OTHER: &str = "other";

/// How often it is looked whether incidents have their objects, while an event waits for one, and for how long.
const LOOK: Duration = Duration::from_millis(300);
const OBJECT_TIME: Duration = Duration::from_mins(1);
/// Events that may wait at once.
const WAITING: usize = 256;

/// When an incident began, and when it began to be fenced.
struct Since {
    opened: Instant,
    fencing: Option<Instant>,
    /// Whether its guests are about to be asked for the first time, and this replica saw it from its beginning. A further
    /// attempt, or one that another leader began, says nothing of how long the first took.
    first_move: bool,
}

/// An event of an incident whose object is not there yet: it is written a moment after the incident is opened.
struct Waiting {
    id: IncidentId,
    since: Instant,
    happening: Happening,
}

/// Every word that tells why a guest needs a person. A series that begins with its first guest would not be seen to
/// grow, so each begins with none.
fn expect_guests(metrics: &Metrics) {
    use BlockedReason::{ArrivalUnknown, NotStorageFenced, Paused, Resized, Unsupported};
    use FailedReason::{AttemptsExhausted, NoValidHost, NovaError, VerifyFailed};
    let failed =
        [NoValidHost, NovaError, VerifyFailed, AttemptsExhausted].map(|reason| format!("{reason:?}"));
    let blocked =
        [Unsupported, Resized, NotStorageFenced, ArrivalUnknown, Paused].map(|reason| format!("{reason:?}"));
    for reason in failed.into_iter().chain(blocked).chain([OTHER.to_owned()]) {
        let result = NEEDS_PERSON.to_owned();
        drop(metrics.vm_recoveries.get_or_create(&OfVm { result, reason }));
    }
    let (result, reason) = (GAVE_UP.to_owned(), String::new());
    drop(metrics.vm_recoveries.get_or_create(&OfVm { result, reason }));
}

/// The word of the plan that a reason begins with. A sentence names hosts, and Nova's own words name anything: neither
/// is a label.
fn word_of(why: &str) -> &str {
    let word = why.split_once(": ").map_or(why, |(word, _)| word);
    if word.contains(' ') { OTHER } else { word }
}

fn count_guest(metrics: &Metrics, result: &str, reason: &str) {
    let label = OfVm {
        result: result.to_owned(),
        reason: reason.to_owned(),
    };
    metrics.vm_recoveries.get_or_create(&label).inc();
}

/// Tells people.
pub struct Teller {
    /// What it looks things up in.
    pub app: Arc<App>,
    /// Where events go, and whom they are about.
    pub cluster: Option<(Recorder, Watched<Hypervisor>)>,
    /// The objects of incidents, which events are about as well.
    pub(crate) objects: Objects,
    /// How a host with a lasting trouble is put into maintenance.
    pub client: Option<kube::Client>,
    /// How Nova is told to give it no new guests.
    pub openstack: Option<Session>,
}

impl Teller {
    /// Tells until `stop`.
    pub async fn run(self, mut notices: mpsc::Receiver<Notice>, stop: CancellationToken) {
        let mut since: HashMap<IncidentId, Since> = HashMap::new();
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        // Hosts about whose lasting trouble nothing could be done yet.
        let mut undone: BTreeMap<HostName, Degraded> = BTreeMap::new();
        let mut again = tokio::time::interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        expect_guests(&self.app.metrics);
        loop {
            let notice = tokio::select! {
                () = stop.cancelled() => return,
                notice = notices.recv() => notice,
                _ = again.tick(), if !undone.is_empty() => {
                    undone = self.try_again(undone).await;
                    continue;
                }
                _ = look.tick(), if !waiting.is_empty() => {
                    self.catch_up(&mut waiting);
                    continue;
                }
            };
            let Some(notice) = notice else { return };
            let told = with_cause(&notice, self.app.preflight.suspicion());
            self.log(&told).await;
            self.count(&notice, &mut since);
            self.record(&told, &mut waiting);
            self.tell_progress(&notice).await;
            if let Notice::HostDegraded { host, what } = &notice
                && self.app.leads()
            {
                if self.relieve(host, *what).await {
                    undone.remove(host);
                } else {
                    undone.insert(host.clone(), *what);
                }
            }
        }
    }

    /// Does what is wanted about a host with a lasting trouble. Whether nothing is left to do.
    async fn relieve(&self, host: &HostName, what: Degraded) -> bool {
        match self.app.config().degraded_action {
            DegradedAction::Alert => true,
            DegradedAction::Disable => self.disable(host, what).await,
            DegradedAction::Drain => self.drain(host).await,
        }
    }

    /// Tries again what could not be done, for hosts that still have their trouble. Gives back what is left.
    async fn try_again(&self, undone: BTreeMap<HostName, Degraded>) -> BTreeMap<HostName, Degraded> {
        let mut left = BTreeMap::new();
        for (host, what) in undone {
            let asked = host.clone();
            let status = self
                .app
                .brain
                .ask(move |engine, now| engine.host_status(&asked, now))
                .await
                .flatten();
            let troubled = status.is_some_and(|status| status.degraded.contains(&what));
            if troubled && !(self.app.leads() && self.relieve(&host, what).await) {
                left.insert(host, what);
            }
        }
        left
    }

    /// Keeps the condition of the host in step with its incident; earlier states are told by whoever
    /// brings them about.
    async fn tell_progress(&self, notice: &Notice) {
        let (Some(client), Notice::State { incident, state }) = (&self.client, notice) else {
            return;
        };
        let (reason, what) = match state {
            IncidentState::Recovered => (HaRecoveryReason::Recovered, "has settled its guests"),
            IncidentState::Failed => (HaRecoveryReason::Failed, "could not move all guests"),
            IncidentState::Releasing => (HaRecoveryReason::Releasing, "gives the host back"),
            _ => return,
        };
        if self.app.leads() {
            let note = format!("incident {incident} {what}");
            let told = kubernetes::tell_progress(client, &incident.host, reason, note);
            if tokio::time::timeout(CALL_TIME, told).await.is_err() {
                tracing::warn!(host = %incident.host, "its condition cannot be written: no answer");
            }
        }
    }

    /// Asks the operator to empty a host, if nobody works on it. Whether that is settled.
    async fn drain(&self, host: &HostName) -> bool {
        // The configuration does not want this without a cluster.
        let Some(client) = &self.client else { return true };
        let hypervisors: Api<Hypervisor> = Api::all(client.clone());
        let call = async {
            let found = hypervisors.get(host.as_str()).await?;
            if !found.spec.maintenance.is_off() {
                return Ok(());
            }
            // Only if it still is what was read.
            let patch = json!({
                "metadata": {"resourceVersion": found.resource_version()},
                "spec": {"maintenance": Maintenance::Auto.to_string()},
            });
            let params = PatchParams {
                field_manager: Some(FieldManager::HaService.as_ref().to_owned()),
                ..PatchParams::default()
            };
            hypervisors
                .patch(host.as_str(), &params, &Patch::Merge(patch))
                .await
                .map(drop)
        };
        let settled = tokio::time::timeout(CALL_TIME, call).await;
        match &settled {
            Ok(Ok(())) => tracing::info!(%host, "it is to be emptied because of a lasting trouble"),
            Ok(Err(error)) => {
                tracing::warn!(%host, %error, "it cannot be put into maintenance; trying again");
            }
            Err(_) => tracing::warn!(%host, "it cannot be put into maintenance: no answer; trying again"),
        }
        matches!(settled, Ok(Ok(())))
    }

    /// Has Nova give a host no new guests. The guests it has stay. Whether that is settled.
    async fn disable(&self, host: &HostName, what: Degraded) -> bool {
        let (Some(session), Some(entry)) = (&self.openstack, self.app.directory.get(host)) else {
            return true;
        };
        let Some(id) = entry.service_id.as_ref().filter(|_| !entry.ambiguous) else {
            tracing::warn!(%host, "it cannot be disabled: its compute service is not known");
            return false;
        };
        let reason = format!("cobaltcore-ha: {}", trouble(what));
        let nova = session.nova().within(self.app.config().openstack.timeout.0);
        let id = cobaltcore_openstack::ServiceId::from(id.as_str());
        match nova.update_service(&id, &ServiceUpdate::disable(reason)).await {
            Ok(_) => {
                tracing::info!(%host, "it gets no new guests because of a lasting trouble");
                true
            }
            Err(error) => {
                tracing::warn!(%host, %error, "it cannot be disabled; trying again");
                false
            }
        }
    }

    /// One line per verdict: about which host, what every group says, the rule, what follows from
    /// it, and the same in a sentence.
    async fn log(&self, notice: &Notice) {
        let host = host_of(notice).cloned();
        let groups = match &host {
            Some(host) => self.groups(host.clone()).await,
            None => String::new(),
        };
        let host = host.map(String::from).unwrap_or_default();
        let incident = incident_of(notice).map(ToString::to_string).unwrap_or_default();
        let told = told(notice);
        let (rule, result, said) = (told.rule, told.result, told.said);
        match notice.severity() {
            Severity::Critical => tracing::error!(host, groups, rule, result, incident, said, "verdict"),
            Severity::Warning => tracing::warn!(host, groups, rule, result, incident, said, "verdict"),
            Severity::Info => tracing::info!(host, groups, rule, result, incident, said, "verdict"),
        }
    }

    /// What every group says, in one line: `A=dead/17s P=dead/4s N=unknown`.
    async fn groups(&self, host: HostName) -> String {
        let status = self
            .app
            .brain
            .ask(move |engine, now| engine.host_status(&host, now))
            .await
            .flatten();
        let Some(status) = status else {
            return String::new();
        };
        signals_of(&status.evidence)
            .into_iter()
            .map(|signal| {
                let verdict = verdict_word(signal.verdict);
                match signal.age_ms {
                    Some(age) => format!("{:?}={verdict}/{}s", signal.group, age / 1000),
                    None => format!("{:?}={verdict}", signal.group),
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn count(&self, notice: &Notice, since: &mut HashMap<IncidentId, Since>) {
        let metrics = &self.app.metrics;
        match notice {
            Notice::State { incident, state } => self.count_state(incident, *state, since),
            Notice::Held {
                incident,
                reason: HeldReason::FenceFailed,
            } => self.count_fence(incident, "failed", since),
            Notice::VmRecovered { incident, server } => {
                count_guest(metrics, "recovered", "");
                if let Some(since) = since.get(incident) {
                    metrics.vm_recovery.observe(since.opened.elapsed().as_secs_f64());
                }
                let (id, uuid) = (incident.to_string(), server.to_string());
                self.app.store.write_later(move |transaction| {
                    transaction
                        .execute(
                            "update vms set last_incident = ?1 where uuid = ?2",
                            params![id, uuid],
                        )
                        .map(drop)
                });
            }
            Notice::VmNeedsPerson { why, .. } => {
                count_guest(metrics, NEEDS_PERSON, word_of(why));
            }
            Notice::GuestRestarted { .. } => count_guest(metrics, "restarted", ""),
            Notice::GuestGaveUp { .. } => count_guest(metrics, GAVE_UP, ""),
            Notice::GuestStorm { .. } => {
                metrics.crash_storms.inc();
            }
            Notice::StorageOutage { .. } => {
                metrics.storage_outages.inc();
            }
            Notice::MemoryFailed { .. } => {
                metrics.memory_failures.inc();
            }
            Notice::GuestWatchdogs { .. } => {
                metrics.watchdog_storms.inc();
            }
            Notice::SelfIsolated { active } => {
                metrics.self_isolated.set(i64::from(*active));
            }
            Notice::GroupUntrusted { group, untrusted } => {
                let label = OfGroup {
                    group: format!("{group:?}"),
                };
                metrics
                    .group_untrusted
                    .get_or_create(&label)
                    .set(i64::from(*untrusted));
            }
            _ => {}
        }
    }

    fn count_state(
        &self,
        incident: &IncidentId,
        state: IncidentState,
        since: &mut HashMap<IncidentId, Since>,
    ) {
        let metrics = &self.app.metrics;
        let now = Instant::now();
        let known = since.entry(incident.clone()).or_insert(Since {
            opened: now,
            fencing: None,
            first_move: state == IncidentState::Confirmed,
        });
        if state == IncidentState::Fencing {
            known.fencing = Some(now);
        }
        let silent = self.app.heard.last(&incident.host).map(|last| {
            let past = jiff::Timestamp::now().as_millisecond() - last.as_millisecond();
            past.max(0) as f64 / 1000.0
        });
        match (state, silent) {
            (IncidentState::Confirmed, Some(silent)) => metrics.detection.observe(silent),
            (IncidentState::Evacuating, Some(silent)) if std::mem::take(&mut known.first_move) => {
                metrics.evacuate_call.observe(silent);
            }
            (IncidentState::Fenced, _) => self.count_fence(incident, "verified", since),
            _ => {}
        }
        if !state.open() || matches!(state, IncidentState::Recovered | IncidentState::Failed) {
            let story = self.app.chronicle.story(&incident.to_string());
            let kind = story.and_then(|story| serde_json::to_value(story.incident.kind).ok());
            let label = OfEnd {
                r#type: kind
                    .and_then(|kind| kind.as_str().map(str::to_owned))
                    .unwrap_or_default(),
                result: format!("{state:?}"),
            };
            metrics.incidents.get_or_create(&label).inc();
        }
        if !state.open() {
            since.remove(incident);
        }
    }

    /// How long it took to know that the host is off, or to give up on a level this time.
    fn count_fence(&self, incident: &IncidentId, result: &str, since: &mut HashMap<IncidentId, Since>) {
        let Some(begun) = since.get(incident).and_then(|since| since.fencing) else {
            return;
        };
        let story = self.app.chronicle.story(&incident.to_string());
        let level = story.map_or(0, |story| story.incident.level);
        let levels = self.app.config().fencing.fence_levels();
        let of = OfDriver {
            driver: levels
                .get(level)
                .map_or_else(|| "none".into(), |level| level.name.clone()),
            result: result.to_owned(),
        };
        let took = begun.elapsed().as_secs_f64();
        self.app.metrics.fence.get_or_create(&of).observe(took);
    }

    /// Tells the events that waited for their objects.
    fn catch_up(&self, waiting: &mut VecDeque<Waiting>) {
        waiting.retain(|one| {
            let told = self.tell_incident(&one.id, &one.happening);
            !told && one.since.elapsed() < OBJECT_TIME
        });
    }

    /// Whether the incident has an object that can be told.
    fn tell_incident(&self, id: &IncidentId, happening: &Happening) -> bool {
        let (Some((recorder, _)), Some(object)) = (&self.cluster, self.objects.get(id)) else {
            return false;
        };
        recorder.record(object.as_ref(), happening.clone());
        true
    }

    fn record(&self, notice: &Notice, waiting: &mut VecDeque<Waiting>) {
        let (Some((recorder, hypervisors)), Some(host)) = (&self.cluster, host_of(notice)) else {
            return;
        };
        let Some(happening) = happening(notice) else {
            return;
        };
        if let Some(id) = incident_of(notice) {
            // In their order: none overtakes one that waits.
            let first = waiting.iter().all(|one| one.id != *id);
            if !(first && self.tell_incident(id, &happening)) && waiting.len() < WAITING {
                waiting.push_back(Waiting {
                    id: id.clone(),
                    since: Instant::now(),
                    happening: happening.clone(),
                });
            }
        }
        if let Some(hypervisor) = hypervisors.get(host.as_str()) {
            recorder.record(hypervisor.as_ref(), happening);
        }
    }
}

/// A guest that Nova has running and the agent of its new host has not may be waiting for its disk. What was known
/// about that before is told with it.
fn with_cause(notice: &Notice, suspicion: Option<String>) -> Cow<'_, Notice> {
    let mut told = Cow::Borrowed(notice);
    if let Notice::VmNeedsPerson { why, .. } = notice
        && *why == format!("{:?}", FailedReason::VerifyFailed)
        && let Some(said) = suspicion
        && let Notice::VmNeedsPerson { why, .. } = told.to_mut()
    {
        why.push_str(&format!(", probably because {said}"));
    }
    told
}

fn incident_of(notice: &Notice) -> Option<&IncidentId> {
    match notice {
        Notice::State { incident, .. }
        | Notice::Held { incident, .. }
        | Notice::Resumed { incident, .. }
        | Notice::VmRecovered { incident, .. }
        | Notice::VmLost { incident, .. }
        | Notice::VmNeedsPerson { incident, .. }
        | Notice::VmStuck { incident, .. }
        | Notice::SpareCalled { incident, .. }
        | Notice::RoomShort { incident, .. } => Some(incident),
        _ => None,
    }
}

fn host_of(notice: &Notice) -> Option<&HostName> {
    match notice {
        Notice::Suspect { host }
        | Notice::SuspicionEnded { host, .. }
        | Notice::AgentSilent { host }
        | Notice::Inconclusive { host, .. }
        | Notice::DeviceAgrees { host, .. }
        | Notice::Isolated { host }
        | Notice::Hung { host }
        | Notice::HostRebooted { host }
        | Notice::HostDegraded { host, .. }
        | Notice::ServiceGone { host, .. }
        | Notice::RequestRefused { host, .. }
        | Notice::GuestWatchdogs { host, .. }
        | Notice::GuestRestarted { host, .. }
        | Notice::GuestGaveUp { host, .. }
        | Notice::MemoryFailed { host }
        | Notice::Zombie { host, .. } => Some(host),
        Notice::GuestDoubled { hosts: [one, _], .. } => Some(one),
        Notice::State { incident, .. }
        | Notice::Held { incident, .. }
        | Notice::Resumed { incident, .. }
        | Notice::VmRecovered { incident, .. }
        | Notice::VmLost { incident, .. }
        | Notice::VmNeedsPerson { incident, .. }
        | Notice::VmStuck { incident, .. }
        | Notice::SpareCalled { incident, .. }
        | Notice::RoomShort { incident, .. }
        | Notice::CommandRefused { incident, .. } => Some(&incident.host),
        Notice::StorageOutage { .. }
        | Notice::GuestStorm { .. }
        | Notice::SelfIsolated { .. }
        | Notice::GroupUntrusted { .. } => None,
    }
}

/// The event of a notice, in the words that alert rules and people know.
fn happening(notice: &Notice) -> Option<Happening> {
    const WATCH: &str = "Watching";
    const RECOVER: &str = "Recovering";
    Some(match notice {
        Notice::Suspect { .. } => {
            Happening::warning("HostSuspect", WATCH, "its agent is silent; it is looked at")
        }
        Notice::Inconclusive {
            assessment: Assessment::Contradicted,
            ..
        } => Happening::warning(
            "FenceDeviceContradicts",
            WATCH,
            "its fencing device says off while it is alive; look whether it belongs to this machine. Told once for as long as it goes on",
        ),
        Notice::DeviceAgrees { times, .. } => Happening::normal(
            "FenceDeviceAgrees",
            WATCH,
            format!("its fencing device says off no more, after {times} wrong readings"),
        ),
        Notice::Isolated { .. } => {
            Happening::warning("HostIsolated", WATCH, "it runs, but management cannot reach it")
        }
        Notice::Hung { .. } => Happening::warning("HostHung", WATCH, "its kernel answers and nothing else"),
        Notice::HostDegraded { what, .. } => Happening::warning(
            "HostDegraded",
            WATCH,
            format!("it has a lasting trouble: {}", trouble(*what)),
        ),
        Notice::ServiceGone { what, .. } => Happening::warning(
            "HostServiceGone",
            WATCH,
            format!("for a minute now: {}; its guests run on", trouble(*what)),
        ),
        Notice::GuestDoubled {
            server,
            hosts: [one, other],
        } => Happening::warning(
            "ZombieGuest",
            WATCH,
            format!("{server} runs on {one} and on {other} at once"),
        ),
        Notice::GuestWatchdogs { server, .. } => Happening::warning(
            "InstanceWatchdogStorm",
            WATCH,
            format!("the watchdog of {server} fires again and again; it is not restarted"),
        ),
        Notice::MemoryFailed { .. } => Happening::warning(
            "MemoryFailure",
            WATCH,
            "memory under a guest failed beyond repair, once; look at the machine",
        ),
        Notice::SpareCalled { incident, host } => Happening::normal(
            "SpareEnabled",
            RECOVER,
            format!("incident {incident}: the spare host {host} is enabled for its guests"),
        ),
        Notice::Zombie { server, .. } => Happening::warning(
            "ZombieGuest",
            RECOVER,
            format!("{server} runs here although it was recovered elsewhere; it is paused"),
        ),
        Notice::State { incident, state } => {
            let note = |text: &str| format!("{text} (incident {incident})");
            match state {
                IncidentState::Confirmed => Happening::warning("HostDown", WATCH, note("it is dead")),
                IncidentState::Fencing => {
                    Happening::normal("FencingStarted", RECOVER, note("it is switched off"))
                }
                IncidentState::Fenced => {
                    Happening::normal("FencingSucceeded", RECOVER, note("its fence holds"))
                }
                IncidentState::Evacuating => {
                    Happening::normal("EvacuationStarted", RECOVER, note("its guests are moved"))
                }
                IncidentState::Recovered => {
                    Happening::normal("HostRecovered", RECOVER, note("all its guests are settled"))
                }
                IncidentState::Failed => Happening::warning(
                    "HostRecoveryFailed",
                    RECOVER,
                    note("some of its guests could not be moved"),
                ),
                IncidentState::Released => Happening::normal("HostReleased", RECOVER, note("it is back")),
                _ => return None,
            }
        }
        Notice::Held { incident, reason } => {
            let word = match reason {
                HeldReason::Storm | HeldReason::DomainLimit => "StormHold",
                HeldReason::SelfIsolated => "SelfIsolated",
                HeldReason::FenceFailed | HeldReason::IdentityMismatch => "FencingFailed",
                HeldReason::FenceLost => "FenceLost",
                _ => "TakeoverHeld",
            };
            Happening::warning(word, RECOVER, format!("incident {incident} is held: {reason:?}"))
        }
        Notice::RoomShort {
            incident,
            needed_mib,
            free_mib,
        } => Happening::warning(
            "RoomShort",
            RECOVER,
            format!(
                "incident {incident}: its guests take {needed_mib} MiB and other hosts have {free_mib} MiB; the most important come first"
            ),
        ),
        Notice::VmRecovered { server, .. } => {
            Happening::normal("InstanceRecovered", RECOVER, format!("{server} runs elsewhere"))
        }
        Notice::GuestRestarted { server, .. } => Happening::normal(
            "InstanceRecovered",
            RECOVER,
            format!("{server} was down, and runs here again"),
        ),
        Notice::GuestGaveUp { server, .. } => Happening::warning(
            "InstanceRecoveryFailed",
            RECOVER,
            format!("{server} crashes again and again, or no restart mends it; it is left alone"),
        ),
        Notice::VmLost { server, what, .. } => {
            let word = match what {
                Loss::Memory => "InstanceMemoryLost",
                Loss::Disks => "InstanceDisksLost",
            };
            let note = format!("{server} is back without {}", loss(*what));
            Happening::warning(word, RECOVER, note)
        }
        Notice::VmNeedsPerson { server, why, .. } => Happening::warning(
            "InstanceRecoveryFailed",
            RECOVER,
            format!("{server} needs a person: {why}"),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_api::names::ServerId;
    use cobaltcore_ha_engine::Epoch;

    #[test]
    fn what_nova_says_is_told_and_is_no_label() {
        assert_eq!(
            word_of("Unsupported: Instances with vTPM cannot be moved"),
            "Unsupported"
        );
        assert_eq!(word_of("NoValidHost"), "NoValidHost");
        assert_eq!(word_of("it already runs on n7"), OTHER);
    }

    fn incident() -> IncidentId {
        IncidentId {
            epoch: Epoch(1),
            n: 1,
            host: HostName::new("n1").unwrap(),
            opened_ms: None,
        }
    }

    /// The events that people and their tools look for, each under its name.
    #[test]
    fn every_promised_event_has_its_notice() {
        let host = HostName::new("n1").unwrap();
        let server = ServerId::new("00000000-0000-4000-8000-000000000001").unwrap();
        let state = |state| Notice::State {
            incident: incident(),
            state,
        };
        let held = |reason| Notice::Held {
            incident: incident(),
            reason,
        };
        for (notice, wanted) in [
            (Notice::Suspect { host: host.clone() }, "HostSuspect"),
            (state(IncidentState::Confirmed), "HostDown"),
            (Notice::Isolated { host: host.clone() }, "HostIsolated"),
            (state(IncidentState::Fencing), "FencingStarted"),
            (state(IncidentState::Fenced), "FencingSucceeded"),
            (held(HeldReason::FenceFailed), "FencingFailed"),
            (held(HeldReason::IdentityMismatch), "FencingFailed"),
            (held(HeldReason::FenceLost), "FenceLost"),
            (state(IncidentState::Evacuating), "EvacuationStarted"),
            (
                Notice::VmRecovered {
                    incident: incident(),
                    server: server.clone(),
                },
                "InstanceRecovered",
            ),
            (
                Notice::VmNeedsPerson {
                    incident: incident(),
                    server: server.clone(),
                    why: "NoValidHost".to_owned(),
                },
                "InstanceRecoveryFailed",
            ),
            (state(IncidentState::Recovered), "HostRecovered"),
            (state(IncidentState::Released), "HostReleased"),
            (held(HeldReason::Storm), "StormHold"),
            (held(HeldReason::DomainLimit), "StormHold"),
            (held(HeldReason::SelfIsolated), "SelfIsolated"),
            (
                Notice::GuestDoubled {
                    server,
                    hosts: [host.clone(), HostName::new("n2").unwrap()],
                },
                "ZombieGuest",
            ),
            (held(HeldReason::PlannedMaintenance), "TakeoverHeld"),
        ] {
            assert_eq!(happening(&notice).unwrap().reason, wanted, "{notice:?}");
            assert_eq!(
                host_of(&notice),
                Some(&host),
                "it is told on its host: {notice:?}"
            );
        }
    }

    #[test]
    fn a_guest_that_does_not_run_where_it_was_moved_is_told_with_what_was_known_before() {
        let needs = |why: &str| Notice::VmNeedsPerson {
            incident: incident(),
            server: ServerId::new("00000000-0000-4000-8000-000000000001").unwrap(),
            why: why.to_owned(),
        };
        let said = "client.nova may not break locks in ceph";
        let told = |why: &str, known: Option<&str>| {
            let notice = needs(why);
            let told = with_cause(&notice, known.map(str::to_owned)).into_owned();
            happening(&told).unwrap().note
        };
        assert!(
            told("VerifyFailed", Some(said)).ends_with(&format!("VerifyFailed, probably because {said}"))
        );
        assert!(told("VerifyFailed", None).ends_with("needs a person: VerifyFailed"));
        assert!(told("NoValidHost", Some(said)).ends_with("needs a person: NoValidHost"));
    }
}
