// SPDX-License-Identifier: Apache-2.0
//! The judgement on one server: whether it has left, moves, may move now, has to wait, or is
//! given up on. A failed attempt is one that Nova recorded, or one that left no record although
//! it was asked for; the count survives a restart because Nova's records do.

use std::time::Duration;

use cobaltcore_api::{InFlightMigration, MoveKind, NonMigratableInstance};
use jiff::Timestamp;

use super::model::{MigrationRecord, MigrationState, RefusalKind, Server, ServerState, Track};
use crate::look::{after, age};

/// How long a request may stay without visible effect.
pub(super) const SETTLE: Duration = Duration::from_mins(1);
/// How long a request of a process that died is given the benefit of the doubt.
pub(super) const INHERITED: Duration = Duration::from_secs(10);
/// How long a conflict has to last before it counts.
pub(super) const CONFLICT: Duration = Duration::from_mins(5);
/// How long a stopped migration may take to settle.
pub(super) const ABORT: Duration = Duration::from_mins(2);
/// Between two looks at a server in a passing state.
pub(super) const PASSING: Duration = Duration::from_secs(10);
/// Between two looks at a server in a state Nova does not move.
pub(super) const UNMOVABLE: Duration = Duration::from_mins(2);
/// How often a migration is asked to stop before it is given up on.
const ABORTS: u32 = 3;

/// One server and what is known of its moves.
pub(super) struct Case<'a> {
    pub(super) now: Timestamp,
    pub(super) server: &'a Server,
    /// The move under way as last reported.
    pub(super) entry: Option<&'a InFlightMigration>,
    /// The record of having given it up.
    pub(super) given_up: Option<&'a NonMigratableInstance>,
    /// Its migrations away from the host since the eviction began.
    pub(super) records: Vec<&'a MigrationRecord>,
    /// What is left to copy.
    pub(super) remaining: Option<u64>,
    /// Whether the host is fenced and its servers are to be rebuilt elsewhere.
    pub(super) evacuate: bool,
    /// Whether a running server may be moved cold.
    pub(super) allow_cold: bool,
    pub(super) confirm: bool,
    pub(super) timeout: Duration,
    pub(super) stall: Duration,
    pub(super) max_attempts: u32,
}

/// What to do about one server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is not on the host any more.
    Left,
    /// It moves, or was just asked to.
    Busy(InFlightMigration),
    /// It moves but gets nowhere.
    Stuck {
        entry: InFlightMigration,
        migration: u64,
        why: String,
    },
    /// It may be moved now.
    Ready { kind: MoveKind, attempt: u32 },
    /// Its finished cold move waits to be confirmed.
    Confirm,
    /// Not now.
    Wait { until: Timestamp, why: String },
    /// Not at all; `attempts` of zero means that another look may change that.
    GivenUp { why: String, attempts: u32 },
}

/// Judges a server on the host. `track` is its memory; `failed` receives the text of an attempt
/// that turns out to have failed.
pub(super) fn judge(case: &Case<'_>, track: &mut Track, failed: &mut Option<String>) -> Verdict {
    let server = case.server;
    if matches!(server.state, ServerState::Offloaded) || server.host.is_none() {
        return Verdict::Left;
    }
    if server.is_deleting() {
        let why = format!("Live migration of terminating instance {} skipped", server.id);
        return wait(case.now, PASSING, why);
    }
    let active = case.records.iter().rev().find(|record| !record.state.is_final());
    if server.is_moving() || active.is_some() {
        return moving(case, active.copied(), track);
    }
    track.running_since = None;
    track.progress = None;
    track.aborted = None;
    track.aborts = 0;
    if let Some(verdict) = settle(case, track) {
        return verdict;
    }
    let failures = failures(case, track);
    note_failure(case, track, failures, failed);
    standing(case, track, failures)
}

fn wait(now: Timestamp, pause: Duration, why: String) -> Verdict {
    Verdict::Wait {
        until: after(now, pause),
        why,
    }
}

fn recorded(case: &Case<'_>) -> u32 {
    let failed = |record: &&&MigrationRecord| record.state == MigrationState::Failed;
    case.records.iter().filter(failed).count() as u32
}

fn failures(case: &Case<'_>, track: &Track) -> u32 {
    let known = case
        .given_up
        .map_or(0, |given_up| u32::try_from(given_up.attempts).unwrap_or(0));
    (recorded(case) + track.unrecorded).max(known)
}

/// Draws the conclusion from a request whose effect is not visible: refused, still settling,
/// or come to nothing.
fn settle(case: &Case<'_>, track: &mut Track) -> Option<Verdict> {
    if let Some(refused) = track.refused.take() {
        track.asked = None;
        track.last_error = Some(refused.text);
        match refused.kind {
            RefusalKind::Permanent => track.unrecorded += 1,
            RefusalKind::Trouble => track.not_before = Some(after(refused.at, PASSING)),
            RefusalKind::Conflict => {
                let since = *track.conflict_since.get_or_insert(refused.at);
                if age(refused.at, since) >= CONFLICT {
                    track.unrecorded += 1;
                } else {
                    track.not_before = Some(after(refused.at, PASSING));
                }
            }
        }
        return None;
    }
    let entry = case.entry?;
    let attempt = u32::try_from(entry.attempt).unwrap_or(0);
    if recorded(case) + track.unrecorded >= attempt {
        // The attempt ended in a failure that Nova recorded.
        track.asked = None;
        track.conflict_since = None;
        return None;
    }
    let busy = || Some(Verdict::Busy(entry.clone()));
    if let Some(asked) = track.asked {
        if age(case.now, asked) < SETTLE {
            return busy();
        }
        track.asked = None;
        track.unrecorded += 1;
        let fault = case.server.fault.clone();
        track.last_error =
            Some(fault.unwrap_or_else(|| "Nova took the request but moved nothing".to_owned()));
        return None;
    }
    // Announced by a process that died: Nova may or may not have been asked. What it was asked
    // shows within moments; what does not show was not asked.
    let announced = entry.started_at.as_ref().map(|time| time.0)?;
    if age(case.now, announced) < INHERITED {
        return busy();
    }
    None
}

/// Answers a failure that was not answered yet with a growing pause.
fn note_failure(case: &Case<'_>, track: &mut Track, failures: u32, failed: &mut Option<String>) {
    if failures <= track.answered {
        return;
    }
    track.answered = failures;
    let last = case
        .records
        .iter()
        .rev()
        .find(|record| record.state == MigrationState::Failed);
    let from_record = || last.map(|record| format!("migration {} failed", record.id));
    let text = track
        .last_error
        .take()
        .or_else(|| case.server.fault.clone())
        .or_else(from_record)
        .unwrap_or_else(|| "unknown".to_owned());
    // A pause that began before a restart is not begun again.
    let began = last
        .filter(|_| track.unrecorded == 0)
        .map_or(case.now, |record| record.updated.min(case.now));
    track.not_before = Some(after(began, pause(failures)));
    track.last_error = Some(text.clone());
    *failed = Some(text);
}

/// 30 s, doubled by every further failure, at most 10 min.
pub(super) fn pause(failures: u32) -> Duration {
    let factor = 1u32 << failures.saturating_sub(1).min(5);
    (Duration::from_secs(30) * factor).min(Duration::from_mins(10))
}

/// The verdict on a server that stands still.
fn standing(case: &Case<'_>, track: &mut Track, failures: u32) -> Verdict {
    let server = case.server;
    let give_up = |why: String, attempts: u32| Verdict::GivenUp { why, attempts };
    let last_error = |track: &Track| track.last_error.clone().unwrap_or_default();
    let spent = failures >= case.max_attempts;
    let exhausted = |track: &Track| {
        let error = last_error(track);
        let why = if error.is_empty() {
            format!("{failures} attempts failed")
        } else {
            format!("{failures} attempts failed, the last with: {error}")
        };
        Verdict::GivenUp {
            why,
            attempts: failures,
        }
    };
    if case.evacuate {
        return if spent {
            exhausted(track)
        } else {
            ready(case, track, MoveKind::Evacuate, failures)
        };
    }
    if server.state == ServerState::Error {
        let fault = server.fault.as_deref().unwrap_or("Nova names no fault");
        return give_up(format!("server is in ERROR: {fault}"), 0);
    }
    if let Some(task) = &server.task {
        let why = format!("instance {} is busy with {task}", server.id);
        return wait(case.now, PASSING, why);
    }
    match &server.state {
        ServerState::VerifyResize if case.confirm => Verdict::Confirm,
        ServerState::VerifyResize => give_up("a resize waits to be confirmed by its owner".into(), 0),
        ServerState::Passing(state) => {
            let why = format!("instance {} is in {state}", server.id);
            wait(case.now, PASSING, why)
        }
        ServerState::Active if server.pinned.is_some() && case.allow_cold && !spent => {
            ready(case, track, MoveKind::Cold, failures)
        }
        ServerState::Active | ServerState::Paused if server.pinned.is_some() => {
            let why = server.pinned.clone().unwrap_or_default();
            give_up(format!("cannot move while it runs: {why}"), failures)
        }
        // The last resort that the owner of the eviction allowed: one attempt more, cold.
        ServerState::Active if spent && case.allow_cold && failures == case.max_attempts => {
            ready(case, track, MoveKind::Cold, failures)
        }
        ServerState::Active | ServerState::Paused | ServerState::Shutoff if spent => exhausted(track),
        ServerState::Active | ServerState::Paused => ready(case, track, MoveKind::Live, failures),
        ServerState::Shutoff => ready(case, track, MoveKind::Cold, failures),
        state => unmovable(case, track, state),
    }
}

fn ready(case: &Case<'_>, track: &Track, kind: MoveKind, failures: u32) -> Verdict {
    match track.not_before {
        Some(until) if until > case.now => Verdict::Wait {
            until,
            why: format!(
                "Migration of instance {} failed: {}",
                case.server.id,
                track.last_error.as_deref().unwrap_or("unknown")
            ),
        },
        _ => Verdict::Ready {
            kind,
            attempt: failures + 1,
        },
    }
}

/// States Nova does not move: looked at again for as long as the attempts last.
fn unmovable(case: &Case<'_>, track: &mut Track, state: &ServerState) -> Verdict {
    let name = match state {
        ServerState::Suspended => "SUSPENDED",
        ServerState::Rescue => "RESCUE",
        ServerState::Other(other) => other,
        _ => "an unmovable state",
    };
    let why = format!(
        "instance {} is in {name}, which Nova does not move",
        case.server.id
    );
    if case.given_up.is_some() {
        return Verdict::GivenUp { why, attempts: 0 };
    }
    if track.not_before.is_none_or(|until| until <= case.now) {
        track.unmovable += 1;
        track.not_before = Some(after(case.now, UNMOVABLE));
    }
    if track.unmovable > case.max_attempts {
        track.not_before = None;
        return Verdict::GivenUp { why, attempts: 0 };
    }
    Verdict::Wait {
        until: track.not_before.unwrap_or(case.now),
        why,
    }
}

/// The verdict on a server that moves.
fn moving(case: &Case<'_>, record: Option<&MigrationRecord>, track: &mut Track) -> Verdict {
    track.asked = None;
    track.refused = None;
    track.conflict_since = None;
    let mut entry = case.entry.cloned().unwrap_or_else(|| InFlightMigration {
        id: case.server.id.to_string(),
        attempt: i64::from(recorded(case) + track.unrecorded + 1),
        kind: None,
        migration_id: String::new(),
        started_at: Some(crate::look::time(case.now)),
    });
    let live = record.map_or(case.server.state == ServerState::Migrating, |record| record.live);
    if entry.kind.is_none() {
        entry.kind = Some(if live { MoveKind::Live } else { MoveKind::Cold });
    }
    if record.is_none_or(|record| record.state == MigrationState::Queued) {
        return Verdict::Busy(entry);
    }
    // Once it is seen running, the reported time is the time it began to run.
    let inherited = (!entry.migration_id.is_empty())
        .then(|| entry.started_at.as_ref().map(|time| time.0))
        .flatten();
    let since = *track.running_since.get_or_insert(inherited.unwrap_or(case.now));
    entry.started_at = Some(crate::look::time(since));
    let Some(record) = record else {
        return Verdict::Busy(entry);
    };
    entry.migration_id = record.id.to_string();
    if let Some(remaining) = case.remaining
        && track.progress.is_none_or(|(best, _)| remaining < best)
    {
        track.progress = Some((remaining, case.now));
    }
    let moved_on = track.progress.map_or(since, |(_, at)| at.max(since));
    let why = if age(case.now, since) > case.timeout {
        format!("runs longer than {} s", case.timeout.as_secs())
    } else if record.live && age(case.now, moved_on) > case.stall {
        format!("made no progress for {} s", case.stall.as_secs())
    } else {
        return Verdict::Busy(entry);
    };
    if track.aborted.is_some_and(|at| age(case.now, at) < ABORT) {
        return Verdict::Busy(entry);
    }
    if !record.live || record.state != MigrationState::Abortable || track.aborts >= ABORTS {
        let why = format!("migration {} {why} and cannot be stopped", record.id);
        return Verdict::GivenUp { why, attempts: 0 };
    }
    track.aborted = Some(case.now);
    track.aborts += 1;
    track.last_error = Some(format!("migration {} {why} and was stopped", record.id));
    Verdict::Stuck {
        entry,
        migration: record.id,
        why,
    }
}
