// SPDX-License-Identifier: Apache-2.0
//! How far an eviction got, in figures and as one line.

use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition::{Evicting, PreflightChecksSucceeded};
use cobaltcore_api::reasons::EvictingReason;
use cobaltcore_api::{Eviction, EvictionState, Migration, MigrationPhase, MigrationProgress};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::seen::{Seen, elapsed, eviction_condition};

/// How far an eviction got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Servers that have left.
    pub done: usize,
    /// Servers found on the host.
    pub total: usize,
    /// Servers given up on.
    pub failed: usize,
    /// Servers on the move.
    pub moving: Vec<String>,
    /// How fast memory moves, over all of them.
    pub bytes_per_second: u64,
    /// How long all of it still takes, if that can be told.
    pub left: Option<Duration>,
    /// The end, if it has come: whether it was a good one, and what is said about it.
    pub end: Option<(bool, String)>,
    /// What is waited for before anything moves.
    pub waiting_for: Option<String>,
}

impl Progress {
    /// What an eviction and the migrations of its servers say at `now`.
    pub(super) fn new(eviction: &Eviction, migrations: &[Migration], now: Timestamp) -> Self {
        let status = eviction.status.clone().unwrap_or_default();
        let count = |count: Option<i64>| usize::try_from(count.unwrap_or_default()).unwrap_or_default();
        let (done, failed) = (count(status.migrated_instances), count(status.failed_instances));
        let outstanding = status.outstanding_instances.len();
        // The object of an earlier move of the same server is kept for a while.
        let figures = || {
            migrations
                .iter()
                .filter(|migration| !is_past(migration))
                .filter_map(|migration| migration.status.as_ref()?.progress.clone())
        };
        let speed: u64 = figures()
            .filter_map(|figures| u64::try_from(figures.memory_bps?).ok())
            .sum();
        let rest: u64 = figures()
            .filter_map(|figures| u64::try_from(figures.data_remaining_bytes?).ok())
            .sum();
        let total = status.total_instances;
        let total = total.map_or(done + outstanding, |total| count(Some(total)));
        // Those under way know best about the last ones; what is done, finished or in part, tells about the many.
        let under_way =
            (figures().next().is_some() && speed > 0).then(|| Duration::from_secs(rest.div_ceil(speed)));
        let waiting = outstanding.saturating_sub(failed);
        let took = status.started_at.as_ref().map(|began| elapsed(began.0, now));
        let parts: f64 = figures().map(|figures| moved_part(&figures)).sum();
        let by_pace = took.and_then(|took| pace(took, done as f64 + parts, waiting as f64 - parts));
        let last_ones = waiting <= status.in_flight.len();
        Self {
            done,
            failed,
            total,
            moving: status.in_flight.iter().map(|moving| moving.id.clone()).collect(),
            bytes_per_second: speed,
            left: if last_ones { under_way.or(by_pace) } else { by_pace },
            end: end(eviction),
            waiting_for: waiting_for(eviction),
        }
    }

    /// Whether there is nothing more to wait for.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }
}

/// Less than this of one server is too little to tell the pace by.
const ENOUGH: f64 = 0.1;

/// How long `waiting` servers take if `done` of them took so long. Both count servers in parts, so that a slow move makes
/// the estimate better as it goes on and not longer.
fn pace(took: Duration, done: f64, waiting: f64) -> Option<Duration> {
    let whole = (done >= ENOUGH).then(|| took.as_secs_f64() * waiting.max(0.0) / done)?;
    Duration::try_from_secs_f64(whole.round()).ok()
}

/// How much of a server has moved, from nothing to one.
fn moved_part(figures: &MigrationProgress) -> f64 {
    match (figures.data_total_bytes, figures.data_remaining_bytes) {
        (Some(total), Some(left)) if total > 0 => (1.0 - left as f64 / total as f64).clamp(0.0, 1.0),
        _ => 0.0,
    }
}

fn is_past(migration: &Migration) -> bool {
    let phase = migration.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.is_some_and(|phase| !matches!(phase, MigrationPhase::Preparing | MigrationPhase::Running))
}

fn end(eviction: &Eviction) -> Option<(bool, String)> {
    let seen = eviction_condition(eviction, Evicting).filter(Seen::is_false)?;
    let state = eviction
        .status
        .as_ref()
        .and_then(|status| status.eviction_state.clone());
    let good = match state {
        Some(EvictionState::Succeeded) => true,
        Some(EvictionState::Failed) => false,
        _ => EvictingReason::parse(seen.reason) == Some(EvictingReason::Succeeded),
    };
    Some((good, format!("{}: {}", eviction.name_any(), seen.message)))
}

fn waiting_for(eviction: &Eviction) -> Option<String> {
    let seen = eviction_condition(eviction, PreflightChecksSucceeded).filter(Seen::is_false)?;
    Some(seen.message.to_owned())
}

/// One line: a bar, figures, and what moves right now. What matters most stands first, because
/// a narrow terminal shows the beginning.
///
/// ```
/// use cobaltcore_operator::people::{Progress, bar};
/// let progress = Progress { done: 3, total: 4, moving: vec!["a1".into()], ..Progress::default() };
/// assert_eq!(bar(&progress, 8), "[######..] 3/4 moved, moving a1");
/// ```
pub fn bar(progress: &Progress, width: usize) -> String {
    let Progress {
        done,
        total,
        failed,
        moving,
        bytes_per_second,
        left,
        end,
        waiting_for,
    } = progress;
    let filled = (done * width)
        .checked_div(*total)
        .unwrap_or(if end.is_some() { width } else { 0 });
    let filled = filled.min(width);
    let drawn = format!("[{}{}]", "#".repeat(filled), ".".repeat(width - filled));
    let mut line = match (total, end) {
        (0, None) => format!("{drawn} looking at the host"),
        (0, Some(_)) => format!("{drawn} nothing to move"),
        _ => format!("{drawn} {done}/{total} moved"),
    };
    if *failed > 0 {
        line += &format!(", {failed} stay");
    }
    if let Some((_, text)) = end {
        return format!("{line}; {text}");
    }
    if let Some(left) = left {
        line += &format!(", about {} left", clock(*left));
    }
    if *bytes_per_second > 0 {
        line += &format!(", {:.0} MiB/s", *bytes_per_second as f64 / 1_048_576.0);
    }
    match moving.as_slice() {
        [] => {}
        [one] => line += &format!(", moving {}", short(one)),
        [first, rest @ ..] => line += &format!(", moving {} and {} more", short(first), rest.len()),
    }
    if let Some(text) = waiting_for.as_ref().filter(|_| moving.is_empty()) {
        line += &format!(", waiting: {}", text.lines().next().unwrap_or_default());
    }
    line
}

/// The part of an id that people tell servers apart by.
fn short(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => "a moment".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn eviction(status: serde_json::Value) -> Eviction {
        serde_json::from_value(
            json!({"metadata": {"name": "e"}, "spec": {"hypervisor": "n", "reason": "r"}, "status": status}),
        )
        .unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:30Z".parse().unwrap()
    }

    #[test]
    fn figures_come_from_the_eviction_and_its_migrations() {
        let eviction = eviction(json!({
            "outstandingRamMb": 0, "outstandingInstances": ["b", "a"], "totalInstances": 5, "migratedInstances": 2,
            "failedInstances": 1, "inFlight": [{"id": "a-1-2", "attempt": 1}],
            "startedAt": "2026-01-01T00:00:00Z",
        }));
        let migration: Migration = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "x"}, "spec": {},
            "status": {"progress": {"memoryBps": 104_857_600, "dataRemainingBytes": 7_340_032_000i64}},
        }))
        .unwrap();
        let progress = Progress::new(&eviction, &[migration], now());
        assert_eq!(
            bar(&progress, 10),
            "[####......] 2/5 moved, 1 stay, about 1 min 10 s left, 100 MiB/s, moving a"
        );
        assert!(!progress.is_over());
    }

    #[test]
    fn while_many_wait_the_pace_so_far_tells_how_long_it_takes() {
        let mut status = json!({
            "outstandingRamMb": 0, "outstandingInstances": ["d", "c", "b", "a"], "totalInstances": 6,
            "migratedInstances": 2, "inFlight": [{"id": "a", "attempt": 1}], "startedAt": "2026-01-01T00:00:00Z",
        });
        let line = |status: &serde_json::Value| bar(&Progress::new(&eviction(status.clone()), &[], now()), 6);
        assert_eq!(
            line(&status),
            "[##....] 2/6 moved, about 1 min 0 s left, moving a"
        );
        status["migratedInstances"] = json!(0);
        assert_eq!(line(&status), "[......] 0/6 moved, moving a", "nobody knows yet");
    }

    #[test]
    fn a_slow_move_does_not_make_the_rest_look_longer() {
        let status = json!({
            "outstandingRamMb": 0, "outstandingInstances": ["c", "b", "a"], "totalInstances": 4, "migratedInstances": 1,
            "inFlight": [{"id": "a", "attempt": 1}], "startedAt": "2026-01-01T00:00:00Z",
        });
        let left = |phase: &str, seconds: i64, remaining: i64| {
            let migration: Migration = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "x"}, "spec": {},
                "status": {"phase": phase, "progress": {"memoryBps": 1, "dataTotalBytes": 1000, "dataRemainingBytes": remaining}},
            }))
            .unwrap();
            let at = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()
                + jiff::SignedDuration::from_secs(seconds);
            Progress::new(&eviction(status.clone()), &[migration], at)
                .left
                .map(|left| left.as_secs())
        };
        // One server took ten seconds; the next one moves at the same pace, and the estimate falls as it goes.
        assert_eq!(left("Running", 10, 1000), Some(30));
        assert_eq!(left("Running", 15, 500), Some(25));
        assert_eq!(left("Running", 19, 100), Some(21));
        // What an earlier move says does not count.
        assert_eq!(left("Failed", 15, 500), Some(45));
    }

    #[test]
    fn the_end_is_told_as_it_was() {
        let ended = |reason: &str| {
            eviction(json!({"outstandingRamMb": 0, "conditions": [
                {"type": "Evicting", "status": "False", "reason": reason, "message": "done", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]}))
        };
        assert_eq!(
            Progress::new(&ended("Succeeded"), &[], now()).end,
            Some((true, "e: done".into()))
        );
        assert_eq!(
            Progress::new(&ended("Failed"), &[], now()).end,
            Some((false, "e: done".into()))
        );
        assert_eq!(
            bar(&Progress::new(&ended("Succeeded"), &[], now()), 4),
            "[####] nothing to move; e: done"
        );
    }

    #[test]
    fn waiting_is_explained() {
        let waiting = eviction(json!({"outstandingRamMb": 0, "conditions": [
            {"type": "PreflightChecksSucceeded", "status": "False", "reason": "Failed", "message": "hypervisor not disabled\nmore", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}));
        assert_eq!(
            bar(&Progress::new(&waiting, &[], now()), 4),
            "[....] looking at the host, waiting: hypervisor not disabled"
        );
    }
}
