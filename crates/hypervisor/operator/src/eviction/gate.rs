// SPDX-License-Identifier: Apache-2.0
//! The checks that stand before every move: the host is out of scheduling, its service reports,
//! nothing is on its way in, and, before the first move, the rest of the fleet has room. Each
//! check is a line of the condition's message.

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::EvictionCondition;

use super::model::{Answer, Host, Incoming, MigrationState, Snapshot, Step};
use crate::look::{Says, says};

/// Whether moves may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// They may.
    Open,
    /// Not yet.
    Shut(String),
    /// Not at all: the eviction ends here.
    Refused(String),
}

/// What the checks came to.
pub(super) struct Outcome {
    pub(super) gate: Gate,
    /// The message of the condition, one line per check.
    pub(super) message: String,
    pub(super) incoming: Incoming,
    /// Incoming migrations to stop.
    pub(super) aborts: Vec<Step>,
}

/// Whether servers are rebuilt elsewhere because the host was fenced.
pub(super) fn evacuates(snapshot: &Snapshot) -> bool {
    let down = |service: &super::model::Service| !service.up && service.forced_down;
    snapshot.settings.evacuate_down_hosts && snapshot.service.as_ref().is_some_and(down)
}

/// Goes through the checks in order.
pub(super) fn gate(snapshot: &Snapshot, host: &Host) -> Outcome {
    let (incoming, aborts) = incoming(snapshot, host);
    let passed = says(
        &snapshot.order.status.conditions,
        EvictionCondition::PreflightChecksSucceeded,
    ) == Says::Yes;
    let mut lines = Vec::new();
    let gate = match service(snapshot).or_else(|| settled(&incoming)) {
        Some(gate) => gate,
        None if passed => Gate::Open,
        None => room(snapshot, host, &mut lines),
    };
    let first = match &gate {
        Gate::Open => "Preflight checks passed, hypervisor is disabled and ready for eviction".to_owned(),
        Gate::Shut(text) | Gate::Refused(text) => text.clone(),
    };
    let before = crate::look::message(
        &snapshot.order.status.conditions,
        EvictionCondition::PreflightChecksSucceeded,
    );
    let message = if gate == Gate::Open && passed {
        // What was found before the first move stays readable.
        before.to_owned()
    } else {
        std::iter::once(first).chain(lines).collect::<Vec<_>>().join("\n")
    };
    Outcome {
        gate,
        message,
        incoming,
        aborts,
    }
}

fn service(snapshot: &Snapshot) -> Option<Gate> {
    let Some(service) = &snapshot.service else {
        // Without a service nothing can be scheduled here, and without servers nothing is to move.
        let text = "failed to get hypervisor: Nova does not list the compute service of this host";
        return (!snapshot.servers.is_empty()).then(|| Gate::Shut(text.to_owned()));
    };
    if service.enabled {
        return Some(Gate::Shut("hypervisor not disabled".to_owned()));
    }
    if !service.up && !evacuates(snapshot) {
        let text = "compute service is down, use high availability evacuation";
        return Some(Gate::Shut(text.to_owned()));
    }
    None
}

fn settled(incoming: &Incoming) -> Option<Gate> {
    match incoming {
        Incoming::Settled => None,
        Incoming::Aborting(count) => Some(Gate::Shut(format!(
            "{count} incoming migration(s) are being stopped"
        ))),
        Incoming::Waiting(count) => Some(Gate::Shut(format!("{count} incoming migration(s) under way"))),
    }
}

/// What is on its way in: live migrations are stopped while that is possible, the rest is
/// waited for.
fn incoming(snapshot: &Snapshot, host: &Host) -> (Incoming, Vec<Step>) {
    let towards = snapshot.migrations.iter().filter(|record| {
        record.destination.as_deref() == Some(host.compute_host.as_str())
            && record.source != host.compute_host
            && !record.state.is_final()
    });
    let (mut aborts, mut waiting) = (Vec::new(), 0);
    for record in towards {
        let stoppable = matches!(record.state, MigrationState::Queued | MigrationState::Abortable);
        if record.live && stoppable {
            aborts.push(Step::Abort {
                server: record.server.clone(),
                migration: record.id,
            });
        } else {
            waiting += 1;
        }
    }
    let how = match (aborts.len(), waiting) {
        (0, 0) => Incoming::Settled,
        (0, waiting) => Incoming::Waiting(waiting),
        (aborting, waiting) => Incoming::Aborting(aborting + waiting),
    };
    (how, aborts)
}

/// Whether the rest of the fleet can take the servers. Not knowing is told, not held against.
fn room(snapshot: &Snapshot, host: &Host, lines: &mut Vec<String>) -> Gate {
    let only_told = snapshot.order.ignore_preflight || host.maintenance == Maintenance::Termination;
    let mut refused = None;
    for answer in snapshot.capacity.iter().chain(&snapshot.candidates) {
        match answer {
            Answer::Yes(text) => lines.push(format!("ok: {text}")),
            Answer::Unknown(text) => lines.push(format!("not known: {text}")),
            Answer::No(text) => {
                let word = if only_told { "ignored" } else { "failed" };
                lines.push(format!("{word}: {text}"));
                refused.get_or_insert_with(|| text.clone());
            }
        }
    }
    for server in super::model::wanted(&snapshot.order.spec, &snapshot.servers) {
        if let Some(why) = &server.pinned {
            lines.push(format!("non-migratable: {} ({why})", server.id));
        }
    }
    match refused {
        Some(text) if !only_told => Gate::Refused(format!("preflight failed: {text}")),
        _ => Gate::Open,
    }
}
