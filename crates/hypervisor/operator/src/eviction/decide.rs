// SPDX-License-Identifier: Apache-2.0
//! The judgement on one Eviction: pure, from a snapshot to steps, a report and a memory. What
//! is about to be moved is in the report before it is asked for, so a process that dies at any
//! point leaves behind what its successor needs: no server is moved twice, none is left out.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::names::ServerId;
use cobaltcore_api::reasons::EvictingReason;
use cobaltcore_api::{EvictionStatus, InFlightMigration, Maintenance, MoveKind};
use cobaltcore_kit::controller::Next;
use jiff::Timestamp;

use super::closing;
use super::gate::{self, Gate};
use super::judge::{Case, Verdict, judge};
use super::model::{Departed, Host, Incoming, Ledger, Server, ServerState, Snapshot, Step, Word, wanted};
use super::pace::{LOOK, next_look};
use super::report::{Report, report_counts, report_gate, report_moving};
use crate::look::{Says, after, age, reason, says, since, time, until};

/// Between two requests to confirm the same cold move.
const CONFIRM_AGAIN: Duration = Duration::from_secs(30);

/// What a decision comes to.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What to do; a finalizer is put on before the report is written, everything else after.
    pub steps: Vec<Step>,
    /// What to report.
    pub report: Report,
    /// What to remember.
    pub ledger: Ledger,
    /// Moves that are or will be under way.
    pub moving: u32,
    /// When to look again.
    pub next: Next,
}

/// Decides what to do about one Eviction.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision {
        steps: Vec::new(),
        report: Report::of(snapshot),
        ledger: snapshot.ledger.clone(),
        moving: 0,
        next: Next::OnChange,
    };
    let order = &snapshot.order;
    if order.deleting {
        closing::closing(snapshot, &mut decision);
        return decision;
    }
    let Some(host) = &snapshot.host else {
        if !snapshot.settings.partitioned {
            let text = format!("hypervisor {} not found", order.spec.hypervisor);
            end(snapshot, &mut decision, EvictingReason::Failed, text);
            // The Hypervisor may yet come.
            decision.next = Next::After(LOOK * 6);
        }
        return decision;
    };
    if says(&order.status.conditions, EvictionCondition::Evicting) == Says::No && !starts_over(snapshot) {
        finished(snapshot, host, &mut decision);
        return decision;
    }
    begin(snapshot, &mut decision);
    if !host.registered {
        let text = "eviction completed successfully due to expected case of no hypervisor";
        end(snapshot, &mut decision, EvictingReason::Succeeded, text);
        return decision;
    }
    if !order.controlled {
        closing::claim(snapshot, &mut decision);
    }
    work(snapshot, host, &mut decision);
    decision
}

/// Whether a finished eviction is to be tried again from the start.
pub(super) fn starts_over(snapshot: &Snapshot) -> bool {
    let order = &snapshot.order;
    let conditions = &order.status.conditions;
    if reason(conditions, EvictionCondition::Evicting) != EvictingReason::Failed.as_str() {
        return false;
    }
    order.retry || retry_at(snapshot).is_some_and(|at| at <= snapshot.now)
}

fn retry_at(snapshot: &Snapshot) -> Option<Timestamp> {
    let interval = snapshot.settings.retry_interval;
    let ended = since(&snapshot.order.status.conditions, EvictionCondition::Evicting)?;
    (!interval.is_zero()).then(|| after(ended, interval))
}

/// First sight, or a fresh start after a failure: counts and memory begin anew.
fn begin(snapshot: &Snapshot, decision: &mut Decision) {
    let order = &snapshot.order;
    let fresh = says(&order.status.conditions, EvictionCondition::Evicting) != Says::Yes;
    let status = &mut decision.report.status;
    if fresh {
        decision.ledger = Ledger::default();
        status.started_at = Some(time(snapshot.now));
        status.completed_at = None;
        status.in_flight.clear();
        status.non_migratable_instances.clear();
        status.total_instances = None;
        let conditions = &mut decision.report.conditions;
        conditions.drop(EvictionCondition::PreflightChecksSucceeded);
        conditions.drop(EvictionCondition::HypervisorReEnabled);
    } else if status.started_at.is_none() {
        // Taken over from an operator that does not keep this field.
        let began = since(&order.status.conditions, EvictionCondition::Evicting);
        status.started_at = Some(time(began.unwrap_or(snapshot.now)));
    }
    if order.retry {
        decision.steps.push(Step::TakeRetry);
    }
    // Held are those that have something to do at their end: give a host back, stop what moves.
    if !order.held && (!order.controlled || order.abort_in_flight) {
        decision.steps.push(Step::Hold);
    }
    decision.report.evicting(true, EvictingReason::Running, "Running");
}

/// Ends the eviction one way or the other.
fn end(snapshot: &Snapshot, decision: &mut Decision, how: EvictingReason, text: impl Into<String>) {
    let text = text.into();
    let before = &snapshot.order.status.conditions;
    let told = says(before, EvictionCondition::Evicting) == Says::No
        && reason(before, EvictionCondition::Evicting) == how.as_str();
    let status = &mut decision.report.status;
    status.in_flight.clear();
    if !told {
        status.completed_at = Some(time(snapshot.now));
        decision.steps.push(Step::Tell(match how {
            EvictingReason::Succeeded => Word::Succeeded(text.clone()),
            _ => Word::Ended(text.clone()),
        }));
    }
    if how == EvictingReason::Succeeded {
        status.outstanding_ram_mb = 0;
        status.outstanding_instances.clear();
        decision.next = Next::OnChange;
    } else if !snapshot.settings.retry_interval.is_zero() {
        decision.next = Next::After(snapshot.settings.retry_interval);
    }
    decision.report.evicting(false, how, text);
    decision.moving = 0;
}

/// What remains to be done about an eviction that has ended.
fn finished(snapshot: &Snapshot, host: &Host, decision: &mut Decision) {
    closing::give_back(snapshot, host, decision);
    let failed = reason(&snapshot.order.status.conditions, EvictionCondition::Evicting)
        == EvictingReason::Failed.as_str();
    if failed && let Some(at) = retry_at(snapshot) {
        let pause = until(snapshot.now, at).max(Duration::from_secs(1));
        decision.next = match decision.next {
            Next::After(other) => Next::After(other.min(pause)),
            Next::OnChange => Next::After(pause),
        };
    }
}

/// A verdict with what is needed to order and report it.
pub(super) struct Judged<'a> {
    pub(super) id: ServerId,
    pub(super) server: Option<&'a Server>,
    pub(super) verdict: Verdict,
}

fn work(snapshot: &Snapshot, host: &Host, decision: &mut Decision) {
    let gate = gate::gate(snapshot, host);
    let gate = report_gate(snapshot, gate, decision);
    let (mut judged, mut left) = (Vec::new(), Vec::new());
    judge_present(snapshot, host, decision, &mut judged, &mut left);
    judge_departed(snapshot, decision, &mut judged, &mut left);
    if let Gate::Refused(text) = &gate {
        report_counts(snapshot, decision, &judged, &BTreeMap::new());
        let text = text.clone();
        end(snapshot, decision, EvictingReason::Failed, text);
        return;
    }
    let started = start(snapshot, decision, &mut judged, &gate);
    report_counts(snapshot, decision, &judged, &started);
    report_moving(snapshot, decision, &judged, &left);
    let settled = matches!(decision.report.incoming, Some(Incoming::Settled));
    if judged.is_empty() {
        if settled && gate == Gate::Open {
            let text = "eviction completed successfully";
            end(snapshot, decision, EvictingReason::Succeeded, text);
            return;
        }
    } else if judged
        .iter()
        .all(|judged| matches!(judged.verdict, Verdict::GivenUp { .. }))
        && gate == Gate::Open
    {
        let total = decision.report.status.total_instances.unwrap_or_default();
        let ids: Vec<&str> = judged.iter().map(|judged| judged.id.as_str()).collect();
        let text = format!(
            "{} of {total} instances could not be moved: {}",
            ids.len(),
            ids.join(", ")
        );
        end(snapshot, decision, EvictingReason::Failed, text);
        return;
    }
    decision.next = Next::After(next_look(snapshot, decision, &judged));
}

fn judge_present<'a>(
    snapshot: &'a Snapshot,
    host: &Host,
    decision: &mut Decision,
    judged: &mut Vec<Judged<'a>>,
    left: &mut Vec<String>,
) {
    let evacuate = gate::evacuates(snapshot);
    for server in wanted(&snapshot.order.spec, &snapshot.servers) {
        let case = case(snapshot, host, decision, server, evacuate);
        let mut track = decision.ledger.track(&server.id).clone();
        let mut failed = None;
        let verdict = judge(&case, &mut track, &mut failed);
        drop(case);
        *decision.ledger.track(&server.id) = track;
        if let Some(text) = failed {
            decision
                .steps
                .push(Step::Tell(Word::Failed(server.id.clone(), text)));
        }
        let id = server.id.clone();
        match verdict {
            Verdict::Left => {
                decision.steps.push(moved(snapshot, &id));
                left.push(format!("Migration of instance {id} finished"));
            }
            verdict => judged.push(Judged {
                id,
                server: Some(server),
                verdict,
            }),
        }
    }
    let known: Vec<&ServerId> = snapshot
        .servers
        .iter()
        .map(|server| &server.id)
        .chain(snapshot.departed.keys())
        .collect();
    decision.ledger.tracks.retain(|id, _| known.contains(&id));
}

fn case<'a>(
    snapshot: &'a Snapshot,
    host: &Host,
    decision: &Decision,
    server: &'a Server,
    evacuate: bool,
) -> Case<'a> {
    let spec = &snapshot.order.spec;
    let began = decision.report.status.started_at.as_ref().map(|time| time.0);
    let status = &snapshot.order.status;
    let fresh = says(&status.conditions, EvictionCondition::Evicting) != Says::Yes;
    let records = snapshot.migrations.iter().filter(|record| {
        let ours = record.server == server.id && record.source == host.compute_host;
        // What runs counts whenever it began; what failed counts if it failed under this eviction.
        ours && (!record.state.is_final() || began.is_none_or(|began| record.created >= began))
    });
    let seconds = |given: Option<i64>| given.and_then(|given| u64::try_from(given).ok());
    Case {
        now: snapshot.now,
        server,
        entry: (!fresh).then(|| entry_of(status, &server.id)).flatten(),
        given_up: (!fresh)
            .then(|| {
                let mut given_up = status.non_migratable_instances.iter();
                given_up.find(|given_up| given_up.id == server.id.as_str())
            })
            .flatten(),
        records: records.collect(),
        remaining: snapshot.remaining.get(&server.id).copied(),
        evacuate,
        allow_cold: spec.allow_cold_for_running.unwrap_or(false),
        confirm: snapshot.settings.confirm_resize,
        timeout: seconds(spec.migration_timeout_seconds)
            .map_or(snapshot.settings.timeout, Duration::from_secs),
        stall: snapshot.settings.stall,
        max_attempts: spec
            .max_attempts
            .and_then(|given| u32::try_from(given).ok())
            .unwrap_or(snapshot.settings.max_attempts),
    }
}

fn entry_of<'a>(status: &'a EvictionStatus, id: &ServerId) -> Option<&'a InFlightMigration> {
    status.in_flight.iter().find(|entry| entry.id == id.as_str())
}

fn moved(snapshot: &Snapshot, id: &ServerId) -> Step {
    let by = entry_of(&snapshot.order.status, id).cloned();
    Step::Tell(Word::Moved(id.clone(), by))
}

/// Servers on the list that the host no longer has.
fn judge_departed<'a>(
    snapshot: &'a Snapshot,
    decision: &mut Decision,
    judged: &mut Vec<Judged<'a>>,
    left: &mut Vec<String>,
) {
    for (id, departed) in &snapshot.departed {
        let again = |why: String| Verdict::Wait {
            until: after(snapshot.now, LOOK),
            why,
        };
        let verdict = match departed {
            Departed::Gone => {
                left.push(format!("Instance {id} is gone"));
                continue;
            }
            Departed::Unknown => again(format!("Nova does not say where instance {id} is")),
            Departed::Elsewhere(server) if server.is_moving() => match entry_of(&snapshot.order.status, id) {
                Some(entry) => Verdict::Busy(entry.clone()),
                None => again(format!("instance {id} is still moving")),
            },
            Departed::Elsewhere(server)
                if server.state == ServerState::VerifyResize && snapshot.settings.confirm_resize =>
            {
                Verdict::Confirm
            }
            Departed::Left | Departed::Elsewhere(_) => {
                decision.steps.push(moved(snapshot, id));
                left.push(format!("Migration of instance {id} finished"));
                continue;
            }
        };
        judged.push(Judged {
            id: id.clone(),
            server: None,
            verdict,
        });
    }
    for judged in judged.iter_mut() {
        if judged.verdict != Verdict::Confirm {
            continue;
        }
        let track = decision.ledger.track(&judged.id);
        if track
            .confirmed
            .is_none_or(|at| age(snapshot.now, at) >= CONFIRM_AGAIN)
        {
            track.confirmed = Some(snapshot.now);
            decision.steps.push(Step::Confirm(judged.id.clone()));
        }
    }
}

/// How many more moves may begin.
fn free(snapshot: &Snapshot, judged: &[Judged<'_>]) -> (usize, usize) {
    let given = snapshot.order.spec.max_parallel;
    let limit = given
        .and_then(|given| usize::try_from(given).ok())
        .unwrap_or(snapshot.settings.concurrency as usize)
        .max(1);
    let moves = |judged: &&Judged<'_>| matches!(judged.verdict, Verdict::Busy(_) | Verdict::Stuck { .. });
    let busy = judged.iter().filter(moves).count();
    (limit.saturating_sub(busy), busy)
}

/// Starts what may start and stops what is stuck; returns the moves that begin.
fn start(
    snapshot: &Snapshot,
    decision: &mut Decision,
    judged: &mut [Judged<'_>],
    gate: &Gate,
) -> BTreeMap<ServerId, InFlightMigration> {
    judged.sort_by(|a, b| turn(a).cmp(&turn(b)).then_with(|| a.id.cmp(&b.id)));
    for stuck in judged.iter() {
        if let Verdict::Stuck { migration, why, .. } = &stuck.verdict {
            decision.steps.push(Step::Abort {
                server: stuck.id.clone(),
                migration: *migration,
            });
            decision
                .steps
                .push(Step::Tell(Word::Stuck(stuck.id.clone(), why.clone())));
        }
    }
    let (free, busy) = free(snapshot, judged);
    let free = free.min(snapshot.fleet_free as usize);
    let held = *gate != Gate::Open || snapshot.host.as_ref().is_some_and(in_ha);
    let mut started = BTreeMap::new();
    for next in judged.iter().take_while(|_| !held) {
        let (Verdict::Ready { kind, attempt }, Some(server)) = (&next.verdict, next.server) else {
            continue;
        };
        if started.len() >= free {
            break;
        }
        decision.steps.push(Step::Move {
            server: next.id.clone(),
            kind: kind.clone(),
            volume_backed: server.volume_backed,
        });
        let track = decision.ledger.track(&next.id);
        track.asked = Some(snapshot.now);
        let entry = InFlightMigration {
            id: next.id.to_string(),
            attempt: i64::from(*attempt),
            kind: Some(kind.clone()),
            migration_id: String::new(),
            started_at: Some(time(snapshot.now)),
        };
        started.insert(next.id.clone(), entry);
    }
    decision.moving = (busy + started.len()) as u32;
    started
}

pub(super) fn in_ha(host: &Host) -> bool {
    host.maintenance == Maintenance::Ha
}

/// Whose turn it is: what moves, then what may move (shut off first, small before large,
/// untried before tried), then what waits, then what was given up on.
fn turn(judged: &Judged<'_>) -> (u8, u32, bool, u64) {
    let ram = judged.server.map_or(0, |server| server.ram_mb);
    match &judged.verdict {
        Verdict::Busy(_) | Verdict::Stuck { .. } | Verdict::Confirm | Verdict::Left => (0, 0, false, ram),
        Verdict::Ready { kind, attempt } => (1, *attempt, *kind != MoveKind::Cold, ram),
        Verdict::Wait { .. } => (2, 0, false, ram),
        Verdict::GivenUp { .. } => (3, 0, false, ram),
    }
}
