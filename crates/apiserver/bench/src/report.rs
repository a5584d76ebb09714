// SPDX-License-Identifier: Apache-2.0
//! The report: one row per measure with its figures, goal, verdict, and its ratio to the floor of
//! this machine and to the reference; as an aligned table or as data.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{BenchError, goals};

/// Everything that was measured in one run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// Whether this was only a look at the benchmark itself.
    pub quick: bool,
    /// Whether the reference ran beside it; its figures are documented ones otherwise.
    pub reference_measured: bool,
    /// The measures.
    pub rows: Vec<Row>,
    /// The parts that ended early, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

/// The machine and how busy it was.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Load averages before.
    pub load_before: String,
    /// Load averages after.
    pub load_after: String,
}

/// One measure.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name for programs.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What this machine allows for it at best, where that was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub floor: Vec<Figure>,
    /// What the reference needs, in the order of the figures where known.
    pub reference: Vec<Figure>,
    /// Whether every goal is met.
    pub verdict: Verdict,
    /// The figures that miss their goals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
    /// Those of them whose goal the floor of this machine misses too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out_of_reach: Vec<String>,
}

/// One figure of a measure: the median over rounds and how far rounds lay apart.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it is: rate (per second), p50, p99, time, ready (ms), cpu (µs), cpu-ms, memory (MiB), disk, size (MB), requests.
    pub label: String,
    /// Median of the rounds.
    pub median: f64,
    /// Least of the rounds.
    pub low: f64,
    /// Most of the rounds.
    pub high: f64,
}

/// Whether a measure met its goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All of them.
    Met,
    /// At least one is missed.
    Missed,
    /// It has none.
    NoGoal,
}

/// What a goal demands of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Less than this.
    Below(f64),
    /// At least this many times what the reference does.
    Times(f64),
}

impl Row {
    pub(crate) fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            figures: Vec::new(),
            floor: Vec::new(),
            reference: Vec::new(),
            verdict: Verdict::NoGoal,
            missed: Vec::new(),
            out_of_reach: Vec::new(),
        }
    }

    /// Adds a figure from the values of the rounds.
    pub(crate) fn figure(mut self, label: &str, rounds: &[f64]) -> Self {
        self.figures.extend(Figure::of(label, rounds));
        self
    }

    /// Puts the most requests per second this machine allows beside it.
    pub(crate) fn over_rate(mut self, best: f64) -> Self {
        self.floor.extend(Figure::of("rate", &[best]));
        self
    }

    /// Puts the floor that was measured as a row of its own beside it.
    pub(crate) fn over(mut self, floor: &Self) -> Self {
        self.floor.clone_from(&floor.figures);
        self
    }

    fn get(figures: &[Figure], label: &str) -> Option<f64> {
        figures.iter().find(|f| f.label == label).map(|f| f.median)
    }

    /// Fills in documented figures of the reference and judges.
    fn judge(&mut self) {
        let Some(goal) = goals::of(&self.id) else { return };
        if self.reference.is_empty() {
            self.reference.extend(
                goal.reference
                    .iter()
                    .filter_map(|(label, value)| Figure::of(label, &[*value])),
            );
        }
        let misses = |figures: &[Figure], (label, limit): &(&str, Limit)| {
            let Some(value) = Self::get(figures, label) else {
                return false;
            };
            match limit {
                Limit::Below(most) => value >= *most,
                Limit::Times(factor) => {
                    Self::get(&self.reference, label).is_some_and(|reference| value < reference * factor)
                }
            }
        };
        let missed_by = |figures: &[Figure]| -> Vec<String> {
            let missed = goal.limits.iter().filter(|goal| misses(figures, goal));
            missed.map(|(label, _)| (*label).to_owned()).collect()
        };
        let (missed, beyond) = (missed_by(&self.figures), missed_by(&self.floor));
        self.out_of_reach = beyond
            .into_iter()
            .filter(|label| missed.contains(label))
            .collect();
        self.missed = missed;
        self.verdict = if self.missed.is_empty() {
            Verdict::Met
        } else {
            Verdict::Missed
        };
    }

    fn goal_text(&self) -> String {
        let Some(goal) = goals::of(&self.id) else {
            return String::new();
        };
        let parts = goal.limits.iter().map(|(label, limit)| match limit {
            Limit::Below(most) => format!("{} < {}", name(label), with_unit(label, *most))
                .trim_start()
                .to_owned(),
            Limit::Times(factor) => match Self::get(&self.reference, label) {
                Some(reference) => format!(">= {}", with_unit(label, reference * factor)),
                None => format!(">= {factor} x reference"),
            },
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The first figure beside that of the reference, as "how many times better".
    fn times_better(&self) -> Option<f64> {
        let first = self.figures.first()?;
        let reference = Self::get(&self.reference, &first.label)?;
        let ratio = if first.label == "rate" {
            first.median / reference
        } else {
            reference / first.median
        };
        ratio.is_finite().then_some(ratio)
    }

    /// What is missed, and what of it no server could reach here.
    fn misses(&self) -> String {
        let words = |labels: &[String]| labels.iter().map(|l| word(l)).collect::<Vec<_>>().join(", ");
        let missed = format!("missed: {}", words(&self.missed));
        if self.out_of_reach.is_empty() {
            return missed;
        }
        format!("{missed} (the floor misses {})", words(&self.out_of_reach))
    }

    /// How much of what the machine allows the first figure reaches.
    fn of_floor(&self) -> Option<f64> {
        let first = self.figures.first()?;
        let floor = Self::get(&self.floor, &first.label).filter(|floor| *floor > 0.0)?;
        Some(if first.label == "rate" {
            first.median / floor
        } else {
            floor / first.median
        })
    }
}

impl Figure {
    fn of(label: &str, rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = *sorted.get(sorted.len() / 2)?;
        Some(Self {
            label: label.to_owned(),
            median,
            low: *sorted.first()?,
            high: *sorted.last()?,
        })
    }
}

impl Report {
    pub(crate) fn begin(quick: bool) -> Self {
        Self {
            machine: Machine::here(),
            quick,
            reference_measured: false,
            rows: Vec::new(),
            failed: Vec::new(),
        }
    }

    pub(crate) fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    /// Puts what the reference did beside the row of that id.
    pub(crate) fn beside(&mut self, reference: Row) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == reference.id) {
            row.reference = reference.figures;
        }
    }

    /// Remembers that a part ended early, so that the others are measured and told all the same.
    pub(crate) fn part(&mut self, name: &str, done: Result<(), BenchError>) {
        if let Err(error) = done {
            self.failed.push(format!("{name}: {error}"));
        }
    }

    pub(crate) fn finish(&mut self) {
        self.machine.load_after = load();
        for row in &mut self.rows {
            row.judge();
        }
    }

    /// The report as an aligned table.
    pub fn to_text(&self) -> String {
        let Machine {
            cores,
            memory_gib,
            kernel,
            processor,
            load_before,
            load_after,
        } = &self.machine;
        let mut out = format!(
            "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}; load {load_before} before, {load_after} after\n"
        );
        out.push_str(if self.reference_measured {
            "Reference: etcd and kube-apiserver, measured in this run.\n"
        } else {
            "Reference: kube-apiserver v1.36.4 with etcd 3.6.8, documented, not measured here.\n"
        });
        if self.quick {
            out.push_str("Quick: too short for conclusions; shows that the benchmark works.\n");
        }
        out.push('\n');
        out.push_str(&align(&self.cells()));
        let judged = self.rows.iter().filter(|r| r.verdict != Verdict::NoGoal).count();
        let met = self.rows.iter().filter(|r| r.verdict == Verdict::Met).count();
        let _ = writeln!(out, "\n{met} of {judged} goals met");
        for failure in &self.failed {
            let _ = writeln!(out, "not measured to the end: {failure}");
        }
        out
    }

    fn cells(&self) -> Vec<Vec<String>> {
        let heading = [
            "MEASURE",
            "MEASURED",
            "SPREAD",
            "GOAL",
            "OF FLOOR",
            "REFERENCE",
            "BETTER",
            "VERDICT",
        ];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        for row in &self.rows {
            let verdict = match row.verdict {
                Verdict::Met => "met".to_owned(),
                Verdict::Missed => row.misses(),
                Verdict::NoGoal => String::new(),
            };
            lines.push(vec![
                row.title.clone(),
                figures(&row.figures),
                row.figures.first().map(spread).unwrap_or_default(),
                row.goal_text(),
                row.of_floor()
                    .map(|part| format!("{:.0} %", part * 100.0))
                    .unwrap_or_default(),
                figures(&row.reference),
                row.times_better()
                    .map(|times| format!("{times:.1} x"))
                    .unwrap_or_default(),
                verdict,
            ]);
        }
        lines
    }
}

fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn figures(all: &[Figure]) -> String {
    let each = all.iter().map(|f| {
        format!("{} {}", name(&f.label), with_unit(&f.label, f.median))
            .trim()
            .to_owned()
    });
    each.collect::<Vec<_>>().join(", ")
}

fn spread(figure: &Figure) -> String {
    if figure.low == figure.high {
        return String::new();
    }
    format!(
        "{}..{}",
        number(figure.low),
        with_unit(&figure.label, figure.high)
    )
}

/// What a figure is called where its unit does not say it.
fn name(label: &str) -> &str {
    match label {
        "p50" | "p99" | "ready" | "max" => label,
        "cpu" | "cpu-ms" => "CPU",
        _ => "",
    }
}

fn word(label: &str) -> &str {
    if name(label).is_empty() {
        label
    } else {
        name(label)
    }
}

fn with_unit(label: &str, value: f64) -> String {
    let unit = match label {
        "rate" => "/s",
        "cpu" => " µs",
        "memory" => " MiB",
        "disk" | "size" => " MB",
        "requests" => " requests",
        "deliveries" => " deliveries/s",
        "object" => " B/object",
        _ => " ms",
    };
    format!("{}{unit}", number(value))
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(key))
                .unwrap_or_default();
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = kib
            .split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_gib: kib >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            load_before: load(),
            load_after: String::new(),
        }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(mut row: Row) -> Row {
        row.judge();
        row
    }

    #[test]
    fn goals_are_judged_figure_by_figure() {
        let good = judged(
            Row::new("get-8", "get")
                .figure("rate", &[7_100.0])
                .figure("cpu", &[90.0]),
        );
        assert_eq!(good.verdict, Verdict::Met);
        let slow = judged(
            Row::new("get-8", "get")
                .figure("rate", &[7_000.0])
                .figure("cpu", &[90.0]),
        );
        assert_eq!(
            (slow.verdict, slow.missed),
            (Verdict::Missed, vec!["rate".to_owned()])
        );
        let other = judged(Row::new("get-1", "get").figure("rate", &[1.0]));
        assert_eq!(other.verdict, Verdict::NoGoal);
    }

    #[test]
    fn a_goal_that_the_floor_misses_is_out_of_reach() {
        let floor = Row::new("floor-watch-50", "floor")
            .figure("p50", &[1.6])
            .figure("cpu", &[20.0]);
        let watch = Row::new("watch-50", "watch")
            .figure("p50", &[2.0])
            .figure("cpu", &[40.0]);
        let judged = judged(watch.over(&floor));
        assert_eq!(judged.misses(), "missed: p50, CPU (the floor misses p50)");
        assert_eq!(judged.of_floor(), Some(0.8));
    }

    #[test]
    fn a_measured_reference_replaces_the_documented_one() {
        let mut report = Report::begin(true);
        report.extend([Row::new("get-8", "get").figure("rate", &[5_000.0])]);
        report.beside(Row::new("get-8", "get").figure("rate", &[1_000.0]));
        report.finish();
        assert_eq!(report.rows[0].verdict, Verdict::Met);
        assert_eq!(report.rows[0].times_better(), Some(5.0));
    }

    #[test]
    fn the_table_shows_median_spread_goal_and_verdict() {
        let mut report = Report::begin(false);
        report.extend([Row::new("create-1", "create, 1 client")
            .figure("rate", &[900.0, 1_100.0, 1_000.0])
            .over_rate(2_000.0)]);
        report.finish();
        let text = report.to_text();
        for part in [
            "1000/s",
            "900..1100/s",
            ">= 1052/s, p50 < 1.00 ms",
            "50 %",
            "missed: rate",
            "0 of 1 goals met",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
