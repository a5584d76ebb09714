// SPDX-License-Identifier: Apache-2.0
//! How far an eviction got, in figures and as one line.

use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition::{Evicting, PreflightChecksSucceeded};
use cobaltcore_api::reasons::EvictingReason;
use cobaltcore_api::{Eviction, EvictionState, Migration};
use kube::ResourceExt as _;

use crate::seen::{Seen, eviction_condition};

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
    /// How long the moves under way still take, if somebody knows.
    pub left: Option<Duration>,
    /// The end, if it has come: whether it was a good one, and what is said about it.
    pub end: Option<(bool, String)>,
    /// What is waited for before anything moves.
    pub waiting_for: Option<String>,
}

impl Progress {
    /// What an eviction and the migrations of its servers say.
    pub(super) fn new(eviction: &Eviction, migrations: &[Migration]) -> Self {
        let status = eviction.status.clone().unwrap_or_default();
        let count = |count: Option<i64>| usize::try_from(count.unwrap_or_default()).unwrap_or_default();
        let (done, failed) = (count(status.migrated_instances), count(status.failed_instances));
        let outstanding = status.outstanding_instances.len();
        let figures = || {
            migrations
                .iter()
                .filter_map(|migration| migration.status.as_ref()?.progress.clone())
        };
        let speed: u64 = figures()
            .filter_map(|figures| u64::try_from(figures.memory_bps?).ok())
            .sum();
        let rest: u64 = figures()
            .filter_map(|figures| u64::try_from(figures.data_remaining_bytes?).ok())
            .sum();
        let known = figures().next().is_some() && speed > 0;
        Self {
            done,
            failed,
            total: status
                .total_instances
                .map_or(done + outstanding, |total| count(Some(total))),
            moving: status.in_flight.iter().map(|moving| moving.id.clone()).collect(),
            bytes_per_second: speed,
            left: known.then(|| Duration::from_secs(rest.div_ceil(speed))),
            end: end(eviction),
            waiting_for: waiting_for(eviction),
        }
    }

    /// Whether there is nothing more to wait for.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }
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

/// One line: a bar, figures, and what moves right now.
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
    let mut line = format!(
        "[{}{}] {done}/{total} moved",
        "#".repeat(filled),
        ".".repeat(width - filled)
    );
    if *failed > 0 {
        line += &format!(", {failed} stay");
    }
    if let Some((_, text)) = end {
        return format!("{line}; {text}");
    }
    match moving.as_slice() {
        [] => {}
        [one] => line += &format!(", moving {one}"),
        [first, rest @ ..] => line += &format!(", moving {first} and {} more", rest.len()),
    }
    if *bytes_per_second > 0 {
        line += &format!(" at {:.1} MiB/s", *bytes_per_second as f64 / 1_048_576.0);
    }
    if let Some(left) = left {
        line += &format!(", about {} left", clock(*left));
    }
    if let Some(text) = waiting_for.as_ref().filter(|_| moving.is_empty()) {
        line += &format!(", waiting: {}", text.lines().next().unwrap_or_default());
    }
    line
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
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

    #[test]
    fn figures_come_from_the_eviction_and_its_migrations() {
        let eviction = eviction(json!({
            "outstandingRamMb": 0, "outstandingInstances": ["b", "a"], "totalInstances": 5, "migratedInstances": 2,
            "failedInstances": 1, "inFlight": [{"id": "a", "attempt": 1}],
        }));
        let migration: Migration = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "x"}, "spec": {},
            "status": {"progress": {"memoryBps": 104_857_600, "dataRemainingBytes": 7_340_032_000i64}},
        }))
        .unwrap();
        let progress = Progress::new(&eviction, &[migration]);
        assert_eq!(
            bar(&progress, 10),
            "[####......] 2/5 moved, 1 stay, moving a at 100.0 MiB/s, about 1 min 10 s left"
        );
        assert!(!progress.is_over());
    }

    #[test]
    fn the_end_is_told_as_it_was() {
        let ended = |reason: &str| {
            eviction(json!({"outstandingRamMb": 0, "conditions": [
                {"type": "Evicting", "status": "False", "reason": reason, "message": "done", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]}))
        };
        assert_eq!(
            Progress::new(&ended("Succeeded"), &[]).end,
            Some((true, "e: done".into()))
        );
        assert_eq!(
            Progress::new(&ended("Failed"), &[]).end,
            Some((false, "e: done".into()))
        );
        assert_eq!(
            bar(&Progress::new(&ended("Succeeded"), &[]), 4),
            "[####] 0/0 moved; e: done"
        );
    }

    #[test]
    fn waiting_is_explained() {
        let waiting = eviction(json!({"outstandingRamMb": 0, "conditions": [
            {"type": "PreflightChecksSucceeded", "status": "False", "reason": "Failed", "message": "hypervisor not disabled\nmore", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}));
        assert_eq!(
            bar(&Progress::new(&waiting, &[]), 4),
            "[....] 0/0 moved, waiting: hypervisor not disabled"
        );
    }
}
