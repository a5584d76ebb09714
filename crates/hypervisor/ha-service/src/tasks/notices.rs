// SPDX-License-Identifier: Apache-2.0
//! What the engine wants people to know: one log line each, figures, and events on the Hypervisor
//! where there is a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::names::HostName;
use cobaltcore_api::{Hypervisor, Maintenance};
use cobaltcore_ha_engine::{HeldReason, IncidentId, IncidentState, Notice, Severity};
use cobaltcore_kit::events::{Happening, Recorder};
use cobaltcore_kit::watched::Watched;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use rusqlite::params;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::DegradedAction;
use crate::http::{App, signals_of};
use crate::metrics::{OfEnd, OfGroup, OfVm};

const CALL_TIME: Duration = Duration::from_secs(10);

/// Tells people.
pub struct Teller {
    /// What it looks things up in.
    pub app: Arc<App>,
    /// Where events go, and whom they are about.
    pub cluster: Option<(Recorder, Watched<Hypervisor>)>,
    /// How a host with a lasting trouble is put into maintenance.
    pub client: Option<kube::Client>,
}

impl Teller {
    /// Tells until `stop`.
    pub async fn run(self, mut notices: mpsc::Receiver<Notice>, stop: CancellationToken) {
        let mut opened: HashMap<IncidentId, jiff::Timestamp> = HashMap::new();
        loop {
            let notice = tokio::select! {
                () = stop.cancelled() => return,
                notice = notices.recv() => notice,
            };
            let Some(notice) = notice else { return };
            self.log(&notice).await;
            self.count(&notice, &mut opened);
            self.record(&notice);
            if let Notice::HostDegraded { host, .. } = &notice
                && self.app.config.degraded_action == DegradedAction::Drain
                && self.app.leads()
            {
                self.drain(host).await;
            }
        }
    }

    /// Asks the operator to empty a host, if nobody works on it.
    async fn drain(&self, host: &HostName) {
        let Some(client) = &self.client else { return };
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
        match tokio::time::timeout(CALL_TIME, call).await {
            Ok(Ok(())) => tracing::info!(%host, "it is to be emptied because of a lasting trouble"),
            Ok(Err(error)) => tracing::warn!(%host, %error, "it cannot be put into maintenance"),
            Err(_) => tracing::warn!(%host, "it cannot be put into maintenance: no answer"),
        }
    }

    async fn log(&self, notice: &Notice) {
        let host = host_of(notice).cloned();
        let groups = match &host {
            Some(host) => self.groups(host.clone()).await,
            None => String::new(),
        };
        let host = host.map(String::from).unwrap_or_default();
        let said = format!("{notice:?}");
        match notice.severity() {
            Severity::Critical => tracing::error!(host, groups, said, "verdict"),
            Severity::Warning => tracing::warn!(host, groups, said, "verdict"),
            Severity::Info => tracing::info!(host, groups, said, "verdict"),
        }
    }

    /// What every group says, in one line: `A=Dead/17s P=Dead/4s N=Unknown`.
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
            .map(|signal| match signal.age_ms {
                Some(age) => format!("{:?}={:?}/{}s", signal.group, signal.verdict, age / 1000),
                None => format!("{:?}={:?}", signal.group, signal.verdict),
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn count(&self, notice: &Notice, opened: &mut HashMap<IncidentId, jiff::Timestamp>) {
        let metrics = &self.app.metrics;
        match notice {
            Notice::State { incident, state } => {
                let now = jiff::Timestamp::now();
                let since = *opened.entry(incident.clone()).or_insert(now);
                let past = (now.as_millisecond() - since.as_millisecond()) as f64 / 1000.0;
                let silent = self
                    .app
                    .heard
                    .last(&incident.host)
                    .map(|last| (now.as_millisecond() - last.as_millisecond()).max(0) as f64 / 1000.0);
                match (state, silent) {
                    (IncidentState::Confirmed, Some(silent)) => metrics.detection.observe(silent),
                    (IncidentState::Evacuating, Some(silent)) => metrics.evacuate_call.observe(silent),
                    _ => {}
                }
                if matches!(state, IncidentState::Recovered | IncidentState::Failed) {
                    metrics.vm_recovery.observe(past);
                }
                if !state.open() || matches!(state, IncidentState::Recovered | IncidentState::Failed) {
                    let kind = self
                        .app
                        .chronicle
                        .story(&incident.to_string())
                        .map(|story| story.incident.kind);
                    let label = OfEnd {
                        r#type: kind.map(|kind| format!("{kind:?}")).unwrap_or_default(),
                        result: format!("{state:?}"),
                    };
                    metrics.incidents.get_or_create(&label).inc();
                }
                if !state.open() {
                    opened.remove(incident);
                    metrics.vms_stuck.set(0);
                }
                self.mirror(incident);
            }
            Notice::VmRecovered { incident, server } => {
                let label = OfVm {
                    result: "recovered".into(),
                    reason: String::new(),
                };
                metrics.vm_recoveries.get_or_create(&label).inc();
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
            Notice::VmNeedsPerson { .. } => {
                let label = OfVm {
                    result: "needs-person".into(),
                    reason: String::new(),
                };
                metrics.vm_recoveries.get_or_create(&label).inc();
            }
            Notice::VmStuck { .. } => {
                metrics.vms_stuck.inc();
            }
            Notice::Zombie { .. } => {
                metrics.zombies.inc();
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

    /// The mirror of an incident in the database, for whoever reads it with standard tools.
    fn mirror(&self, id: &IncidentId) {
        let Some(story) = self.app.chronicle.story(&id.to_string()) else {
            return;
        };
        self.app.store.write_later(move |transaction| {
            let incident = &story.incident;
            transaction.execute(
                "insert or replace into incidents values(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    incident.id.to_string(),
                    incident.id.host.as_str(),
                    format!("{:?}", incident.kind),
                    format!("{:?}", incident.state),
                    story.opened_at().as_millisecond(),
                    story.updated_at().as_millisecond(),
                    incident.state.open(),
                ],
            )?;
            let mut insert =
                transaction.prepare_cached("insert or ignore into journal values(?1, ?2, ?3, ?4)")?;
            for record in &story.records {
                insert.execute(params![
                    record.seq.cast_signed(),
                    incident.id.to_string(),
                    record.at.as_millisecond(),
                    serde_json::to_string(record).unwrap_or_default(),
                ])?;
            }
            Ok(())
        });
    }

    fn record(&self, notice: &Notice) {
        let (Some((recorder, hypervisors)), Some(host)) = (&self.cluster, host_of(notice)) else {
            return;
        };
        let Some(hypervisor) = hypervisors.get(host.as_str()) else {
            return;
        };
        if let Some(happening) = happening(notice) {
            recorder.record(hypervisor.as_ref(), happening);
        }
    }
}

fn host_of(notice: &Notice) -> Option<&HostName> {
    match notice {
        Notice::Suspect { host }
        | Notice::SuspicionEnded { host, .. }
        | Notice::AgentSilent { host }
        | Notice::Inconclusive { host, .. }
        | Notice::Isolated { host }
        | Notice::Hung { host }
        | Notice::HostRebooted { host }
        | Notice::HostDegraded { host, .. }
        | Notice::Zombie { host, .. } => Some(host),
        Notice::State { incident, .. }
        | Notice::Held { incident, .. }
        | Notice::Resumed { incident, .. }
        | Notice::VmRecovered { incident, .. }
        | Notice::VmNeedsPerson { incident, .. }
        | Notice::VmStuck { incident, .. }
        | Notice::CommandRefused { incident, .. } => Some(&incident.host),
        Notice::StorageOutage { .. }
        | Notice::GuestRestarted { .. }
        | Notice::GuestGaveUp { .. }
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
        Notice::Isolated { .. } => {
            Happening::warning("HostIsolated", WATCH, "it runs, but management cannot reach it")
        }
        Notice::Hung { .. } => Happening::warning("HostHung", WATCH, "its kernel answers and nothing else"),
        Notice::HostDegraded { what, .. } => Happening::warning(
            "HostDegraded",
            WATCH,
            format!("it has a lasting trouble: {what:?}"),
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
                    Happening::normal("FencingSucceeded", RECOVER, note("it is verified to be off"))
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
        Notice::VmRecovered { server, .. } => {
            Happening::normal("InstanceRecovered", RECOVER, format!("{server} runs elsewhere"))
        }
        Notice::VmNeedsPerson { server, why, .. } => Happening::warning(
            "InstanceRecoveryFailed",
            RECOVER,
            format!("{server} needs a person: {why}"),
        ),
        _ => return None,
    })
}
