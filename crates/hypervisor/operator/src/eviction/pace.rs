// SPDX-License-Identifier: Apache-2.0
//! When to look at a running eviction again. A slot that stands empty costs a drain more than
//! anything else, and looking costs Nova two lists: so looks are frequent around the time at
//! which moves of this host have been ending, and rare before it.

use std::time::Duration;

use cobaltcore_api::{InFlightMigration, MoveKind};
use jiff::Timestamp;

use super::decide::{Decision, Judged};
use super::judge::Verdict;
use super::model::{MigrationRecord, MigrationState, Snapshot};
use crate::look::{age, until};

/// Between two looks while moves are young, and later on.
const LOOK_EARLY: Duration = Duration::from_secs(2);
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// For how long after a start looks are frequent.
const EARLY: Duration = Duration::from_secs(30);
/// The shortest pause.
const SHORTEST: Duration = Duration::from_secs(1);
/// Moves that say how long the next one takes. Servers leave from small to large, so only the
/// last ones count.
const RECENT: usize = 5;

/// The pause until the next look.
pub(super) fn next_look(snapshot: &Snapshot, decision: &Decision, judged: &[Judged<'_>]) -> Duration {
    let confirms = judged.iter().any(|judged| judged.verdict == Verdict::Confirm);
    let mut pause = if confirms { LOOK_EARLY } else { LOOK };
    for entry in &decision.report.status.in_flight {
        pause = pause.min(of_move(snapshot, entry));
    }
    for judged in judged {
        if let Verdict::Wait { until: at, .. } = &judged.verdict {
            pause = pause.min(until(snapshot.now, *at));
        }
    }
    pause.max(SHORTEST)
}

/// The pause that suits one move under way.
fn of_move(snapshot: &Snapshot, entry: &InFlightMigration) -> Duration {
    let from = &snapshot.order.spec.hypervisor;
    let from = snapshot.host.as_ref().map_or(from, |host| &host.compute_host);
    let away = || snapshot.migrations.iter().filter(|record| record.source == *from);
    let record = away().rfind(|record| record.server.as_str() == entry.id && !record.state.is_final());
    let began = record.map_or_else(
        || entry.started_at.as_ref().map(|time| time.0),
        |r| Some(r.created),
    );
    let so_far = began.map_or(Duration::MAX, |began| age(snapshot.now, began));
    let live = entry.kind != Some(MoveKind::Cold);
    let began = snapshot.order.status.started_at.as_ref().map(|time| time.0);
    let usual = usual(away().filter(|record| record.live == live), began);
    match usual {
        // What Nova does not show yet may have been refused.
        Some(usual) if record.is_some() => around(so_far, usual),
        _ if so_far < EARLY => LOOK_EARLY,
        _ => LOOK,
    }
}

/// How long the last moves of this eviction took: the middle one.
fn usual<'a>(
    records: impl DoubleEndedIterator<Item = &'a MigrationRecord>,
    began: Option<Timestamp>,
) -> Option<Duration> {
    let ended = records
        .rev()
        .filter(|record| record.state == MigrationState::Done && began.is_none_or(|at| record.created >= at));
    let mut took: Vec<Duration> = ended
        .take(RECENT)
        .map(|record| age(record.updated, record.created))
        .collect();
    took.sort_unstable();
    took.get(took.len() / 2).copied()
}

/// Rare looks before the expected end, frequent ones around it, rare ones again when it is
/// long overdue.
fn around(so_far: Duration, usual: Duration) -> Duration {
    let step = (usual / 8).clamp(SHORTEST, LOOK);
    let early = usual.saturating_sub(step).saturating_sub(so_far);
    if !early.is_zero() {
        early.clamp(step, LOOK)
    } else if so_far < usual * 2 {
        step
    } else {
        LOOK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn looks_gather_around_the_expected_end() {
        // So far, what moves usually take, the pause.
        let table = [
            (0, 8, 7),
            (3, 8, 4),
            (6, 8, 1),
            (7, 8, 1),
            (15, 8, 1),
            (16, 8, 10),
            (0, 2, 1),
            (0, 600, 10),
            (585, 600, 10),
            (700, 600, 10),
            (10, 40, 10),
            (30, 40, 5),
            (36, 40, 5),
        ];
        for (so_far, usual, pause) in table {
            let got = around(seconds(so_far), seconds(usual));
            assert_eq!(got, seconds(pause), "{so_far} s of {usual} s");
        }
    }

    #[test]
    fn a_move_is_looked_at_a_handful_of_times_however_long_it_takes() {
        for usual in [1, 5, 8, 30, 60, 80] {
            let (mut at, mut looks) = (Duration::ZERO, 0);
            while at < seconds(usual) {
                at += around(at, seconds(usual));
                looks += 1;
            }
            assert!(looks <= 9, "{looks} looks at a move of {usual} s");
            let late = at.saturating_sub(seconds(usual));
            assert!(
                late <= seconds(usual / 8).max(SHORTEST),
                "{late:?} late at {usual} s"
            );
        }
    }
}
