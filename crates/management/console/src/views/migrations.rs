// SPDX-License-Identifier: Apache-2.0
//! Migrations as the hosts report them, with a curve of their speed.

use askama::Template;
use cobaltcore_api::Migration;
use cobaltcore_api::MigrationPhase;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Tone, ago};
use crate::fleet::{Known, Sample};

const WIDTH: i64 = 240;
const HEIGHT: i64 = 48;

/// All migrations, those under way first.
#[derive(Debug, Template)]
#[template(path = "migrations.html")]
pub struct Migrations {
    /// One entry each.
    pub rows: Vec<Row>,
}

/// One migration.
#[derive(Debug, Clone)]
pub struct Row {
    /// The server.
    pub server: String,
    /// Where it came from.
    pub origin: String,
    /// Where it goes to.
    pub destination: String,
    /// The state in one word.
    pub phase: String,
    /// How it is doing.
    pub tone: Tone,
    /// When it started.
    pub started: String,
    /// How long it took so far.
    pub elapsed: String,
    /// Data left.
    pub remaining: String,
    /// The speed now.
    pub speed: String,
    /// How long the guest stood still.
    pub downtime: String,
    /// What went wrong.
    pub error: String,
    /// How fast it ran over time.
    pub curve: Option<Curve>,
    order: (bool, std::cmp::Reverse<Option<Timestamp>>),
}

impl Row {
    /// The row of a migration.
    pub fn of(key: &str, migration: &Migration, known: &Known, now: Timestamp) -> Self {
        let status = migration.status.clone().unwrap_or_default();
        let phase = status.phase.clone().unwrap_or(MigrationPhase::Unknown);
        let ended = !matches!(phase, MigrationPhase::Preparing | MigrationPhase::Running);
        let started = status.started.map(|time| time.0);
        Self {
            server: migration.name_any(),
            origin: if status.source_node.is_empty() {
                status.origin
            } else {
                status.source_node
            },
            destination: if status.destination_node.is_empty() {
                status.destination
            } else {
                status.destination_node
            },
            tone: match phase {
                MigrationPhase::Completed => Tone::Good,
                MigrationPhase::Failed => Tone::Bad,
                MigrationPhase::Cancelled => Tone::Off,
                MigrationPhase::Preparing | MigrationPhase::Running => Tone::Busy,
                _ => Tone::Warn,
            },
            phase: phase.to_string(),
            started: started.map(|at| ago(now, at)).unwrap_or_default(),
            elapsed: status.time_elapsed,
            remaining: status.data_remaining,
            speed: status.mem_bps,
            downtime: status.downtime,
            error: status.err_msg,
            curve: Curve::of(known.samples(key)),
            order: (ended, std::cmp::Reverse(started)),
        }
    }
}

/// How fast a migration ran and how much was left, over time, in a box of fixed size.
#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "curve.html")]
pub struct Curve {
    /// The points of the speed.
    pub speed: String,
    /// The points of what was left.
    pub left: String,
    /// The highest speed.
    pub highest: String,
    /// How long it shows.
    pub span: String,
}

impl Curve {
    /// The curve of the samples of a migration; fewer than two, or none that moved anything, make none.
    pub(crate) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        let samples: Vec<Sample> = samples.copied().collect();
        let [first, .., last] = samples.as_slice() else {
            return None;
        };
        let length = (last.elapsed_ms - first.elapsed_ms).max(1);
        let line = |value: &dyn Fn(&Sample) -> i64, highest: i64| -> String {
            let points = samples.iter().map(|sample| {
                let x = (sample.elapsed_ms - first.elapsed_ms) * WIDTH / length;
                let part = i128::from(value(sample).max(0)) * i128::from(HEIGHT) / i128::from(highest.max(1));
                format!("{x},{}", i128::from(HEIGHT) - part)
            });
            points.collect::<Vec<_>>().join(" ")
        };
        let most = |value: &dyn Fn(&Sample) -> i64| samples.iter().map(value).max().unwrap_or_default();
        let (speed, left) = (
            |sample: &Sample| sample.bytes_per_second,
            |sample: &Sample| sample.remaining,
        );
        let highest = most(&speed);
        (highest > 0).then(|| Self {
            speed: line(&speed, highest),
            left: line(&left, most(&left)),
            highest: format!("{}/s", super::bytes(i128::from(highest))),
            span: super::span(length / 1_000),
        })
    }

    /// The box below the speed, to be filled.
    fn area(&self) -> String {
        format!("0,{HEIGHT} {} {WIDTH},{HEIGHT}", self.speed)
    }
}

impl Migrations {
    /// The migrations that `wanted` lets through, those under way first, then the newest.
    pub fn of(known: &Known, now: Timestamp, wanted: impl Fn(&Row) -> bool) -> Self {
        let mut rows: Vec<Row> = known
            .migrations
            .iter()
            .map(|(key, kept)| Row::of(key, &kept.object, known, now))
            .filter(wanted)
            .collect();
        rows.sort_by_key(|row| row.order);
        Self { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_spans_its_box() {
        let sample = |elapsed_ms, bytes_per_second| Sample {
            elapsed_ms,
            bytes_per_second,
            remaining: 0,
        };
        let curve = |samples: &[Sample]| Curve::of(samples.iter());
        let found = curve(&[sample(100, 0), sample(150, 1 << 20), sample(2_100, 1 << 19)]).unwrap();
        assert_eq!(found.speed, "0,48 6,0 240,24");
        assert_eq!(found.area(), "0,48 0,48 6,0 240,24 240,48");
        assert_eq!((found.highest.as_str(), found.span.as_str()), ("1.0 MiB/s", "2s"));
        assert_eq!(curve(&[]), None);
        assert_eq!(curve(&[sample(1, 5)]), None, "one point is no curve");
        assert_eq!(curve(&[sample(1, 0), sample(2, 0)]), None, "nothing moved");
    }
}
