// SPDX-License-Identifier: Apache-2.0
//! What an Eviction says about itself: its checks, its lists and figures, and what moves. It only
//! words what was decided; nothing is judged here.

use std::collections::BTreeMap;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::names::ServerId;
use cobaltcore_api::reasons::{EvictingReason, EvictionStepReason};
use cobaltcore_api::{EvictionState, EvictionStatus, InFlightMigration, NonMigratableInstance};

use super::decide::{Decision, Judged, in_ha};
use super::gate::{self, Gate};
use super::judge::Verdict;
use super::model::{Incoming, Snapshot, Step, Word};
use crate::look::{Statements, time};

/// What the Eviction shall say.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its fields; conditions are stated apart.
    pub status: EvictionStatus,
    /// Its conditions.
    pub conditions: Statements,
    /// How incoming migrations stand, for the Hypervisor; nothing when that was not asked.
    pub incoming: Option<Incoming>,
}

impl Report {
    /// Starts from what was reported before.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let status = snapshot.order.status.clone();
        Self {
            conditions: Statements::again(&status.conditions, EvictionCondition::ALL),
            status: EvictionStatus {
                conditions: Vec::new(),
                ..status
            },
            incoming: None,
        }
    }

    pub(super) fn evicting(&mut self, holds: bool, reason: EvictingReason, message: impl Into<String>) {
        self.status.eviction_state = Some(match reason {
            EvictingReason::Running => EvictionState::Running,
            EvictingReason::Succeeded => EvictionState::Succeeded,
            EvictingReason::Failed => EvictionState::Failed,
        });
        self.conditions
            .say(EvictionCondition::Evicting, holds, reason, message);
    }

    pub(super) fn step(
        &mut self,
        type_: EvictionCondition,
        holds: bool,
        reason: EvictionStepReason,
        message: impl Into<String>,
    ) {
        self.conditions.say(type_, holds, reason, message);
    }
}

/// Writes the checks into the report and says whether moves may start.
pub(super) fn report_gate(snapshot: &Snapshot, outcome: gate::Outcome, decision: &mut Decision) -> Gate {
    let before = &snapshot.order.status.conditions;
    decision.report.incoming = Some(outcome.incoming);
    decision.steps.extend(outcome.aborts);
    let preflight = EvictionCondition::PreflightChecksSucceeded;
    match &outcome.gate {
        Gate::Open => {
            decision
                .report
                .step(preflight, true, EvictionStepReason::Succeeded, outcome.message);
        }
        Gate::Shut(text) | Gate::Refused(text) => {
            if crate::look::message(before, preflight) != outcome.message {
                decision.steps.push(Step::Tell(Word::Preflight(text.clone())));
            }
            decision
                .report
                .step(preflight, false, EvictionStepReason::Failed, outcome.message);
        }
    }
    outcome.gate
}

/// The lists and figures of the report. `judged` is in the order of turns.
pub(super) fn report_counts(
    snapshot: &Snapshot,
    decision: &mut Decision,
    judged: &[Judged<'_>],
    started: &BTreeMap<ServerId, InFlightMigration>,
) {
    let before = &snapshot.order.status;
    let status = &mut decision.report.status;
    let mut given_up = Vec::new();
    let mut in_flight = Vec::new();
    for judged in judged {
        match &judged.verdict {
            Verdict::Busy(entry) | Verdict::Stuck { entry, .. } => in_flight.push(entry.clone()),
            Verdict::GivenUp { why, attempts } => {
                let known = before
                    .non_migratable_instances
                    .iter()
                    .find(|known| known.id == judged.id.as_str());
                if known.is_none() {
                    decision
                        .steps
                        .push(Step::Tell(Word::GivenUp(judged.id.clone(), why.clone())));
                }
                let track = decision.ledger.tracks.get(&judged.id);
                given_up.push(NonMigratableInstance {
                    id: judged.id.to_string(),
                    name: judged
                        .server
                        .map(|server| server.name.clone())
                        .unwrap_or_default(),
                    reason: why.clone(),
                    attempts: i64::from(*attempts),
                    last_error: track
                        .and_then(|track| track.last_error.clone())
                        .or_else(|| known.map(|known| known.last_error.clone()))
                        .unwrap_or_default(),
                    since: known
                        .and_then(|known| known.since.clone())
                        .or_else(|| Some(time(snapshot.now))),
                });
            }
            _ => {}
        }
    }
    in_flight.extend(started.values().cloned());
    // Everything ever seen on the host: what had left before, and what is there now.
    let ids: Vec<String> = judged.iter().map(|judged| judged.id.to_string()).collect();
    let known = |id: &&String| before.outstanding_instances.contains(id);
    let arrived = ids.iter().filter(|id| !known(id)).count() as i64;
    let fresh = status.total_instances.is_none();
    let seen = if fresh {
        ids.len() as i64
    } else {
        status.total_instances.unwrap_or_default() + arrived
    };
    status.total_instances = Some(seen);
    status.migrated_instances = Some(seen - ids.len() as i64);
    status.failed_instances = Some(given_up.len() as i64);
    status.outstanding_ram_mb = judged
        .iter()
        .filter_map(|judged| judged.server)
        .map(|server| i64::try_from(server.ram_mb).unwrap_or(i64::MAX))
        .fold(0, i64::saturating_add);
    status.outstanding_instances = ids.into_iter().rev().collect();
    status.non_migratable_instances = given_up;
    status.in_flight = in_flight;
    if let Some(host) = &snapshot.host {
        status.hypervisor_service_id.clone_from(&host.hypervisor_id);
    }
}

/// What the `MigratingInstance` condition says: what moves, or else why nothing does.
pub(super) fn report_moving(
    snapshot: &Snapshot,
    decision: &mut Decision,
    judged: &[Judged<'_>],
    left: &[String],
) {
    let ids: Vec<&str> = decision
        .report
        .status
        .in_flight
        .iter()
        .map(|entry| entry.id.as_str())
        .collect();
    let type_ = EvictionCondition::MigratingInstance;
    if !ids.is_empty() {
        let message = format!("Migrating {} instance(s): {}", ids.len(), ids.join(", "));
        decision
            .report
            .step(type_, true, EvictionStepReason::Running, message);
        return;
    }
    let reason = |judged: &Judged<'_>| match &judged.verdict {
        Verdict::Wait { why, .. } => Some(why.clone()),
        Verdict::GivenUp { why, .. } => Some(format!("Migration of instance {} failed: {why}", judged.id)),
        Verdict::Confirm => Some(format!("Confirming the migration of instance {}", judged.id)),
        Verdict::Ready { .. } if snapshot.host.as_ref().is_some_and(in_ha) => {
            Some("on hold while the HA service has the host".to_owned())
        }
        Verdict::Ready { .. } if snapshot.fleet_free == 0 => {
            Some("waiting: as many migrations run in the fleet as are allowed".to_owned())
        }
        _ => None,
    };
    if let Some(why) = judged.iter().find_map(reason) {
        decision
            .report
            .step(type_, false, EvictionStepReason::Failed, why);
    } else if let Some(text) = left.last() {
        decision
            .report
            .step(type_, false, EvictionStepReason::Succeeded, text.clone());
    }
}
