// SPDX-License-Identifier: Apache-2.0
//! Migrations as the hosts report them, with a curve of their speed.

use std::fmt::Write as _;

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
    /// The curve of the speed as the points of a line, and its highest value.
    pub curve: Option<(String, String)>,
    order: (bool, std::cmp::Reverse<Option<Timestamp>>),
}

impl Row {
    /// The row of a migration.
    pub fn of(key: &str, migration: &Migration, known: &Known, now: Timestamp) -> Self {
        let status = migration.status.clone().unwrap_or_default();
        let phase = status.phase.clone().unwrap_or(MigrationPhase::Unknown);
        let samples: Vec<Sample> = known.samples(key).copied().collect();
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
            curve: curve(&samples),
            order: (ended, std::cmp::Reverse(started)),
        }
    }
}

/// The line of a curve in a box of fixed size, and the label of its highest point.
fn curve(samples: &[Sample]) -> Option<(String, String)> {
    let (first, last) = (samples.first()?, samples.last()?);
    let highest = samples
        .iter()
        .map(|sample| sample.bytes_per_second)
        .max()
        .filter(|speed| *speed > 0)?;
    let length = (last.elapsed_ms - first.elapsed_ms).max(1);
    if samples.len() < 2 {
        return None;
    }
    let mut line = String::new();
    for sample in samples {
        let x = (sample.elapsed_ms - first.elapsed_ms) * WIDTH / length;
        let y = i128::from(HEIGHT)
            - i128::from(sample.bytes_per_second.max(0)) * i128::from(HEIGHT) / i128::from(highest);
        let _ = write!(line, "{x},{y} ");
    }
    Some((
        line.trim_end().to_owned(),
        format!("{}/s", super::bytes(i128::from(highest))),
    ))
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
        let (line, highest) = curve(&[sample(100, 0), sample(150, 1 << 20), sample(300, 1 << 19)]).unwrap();
        assert_eq!(line, "0,48 60,0 240,24");
        assert_eq!(highest, "1.0 MiB/s");
        assert_eq!(curve(&[]), None);
        assert_eq!(curve(&[sample(1, 5)]), None, "one point is no curve");
        assert_eq!(curve(&[sample(1, 0), sample(2, 0)]), None, "nothing moved");
    }
}
