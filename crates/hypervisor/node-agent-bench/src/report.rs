// SPDX-License-Identifier: Apache-2.0
//! The report: one row per measure with its figures, its goal, and its ratio to the baseline of the same run; as an
//! aligned table or as data.

use std::fmt::Write as _;

use serde::Serialize;

/// Everything that was measured in one run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Processor, cores, memory and kernel.
    pub machine: String,
    /// Load averages before and after.
    pub load: Vec<String>,
    /// Whether this was only a look at the benchmark itself.
    pub quick: bool,
    /// The measures.
    pub rows: Vec<Row>,
}

/// One measure.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name for people.
    pub title: String,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// The figure that must not exceed this, if there is a goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Figure>,
    /// How many times the baseline it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_baseline: Option<f64>,
    /// Whether the goal is met.
    pub verdict: Verdict,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it is, where the measure has several.
    pub label: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
}

/// Whether a measure met its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It did.
    Met,
    /// It did not.
    Missed,
    /// It has none.
    NoGoal,
}

impl Row {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            figures: Vec::new(),
            goal: None,
            of_baseline: None,
            verdict: Verdict::NoGoal,
        }
    }

    pub(crate) fn figure(mut self, label: &str, value: f64, unit: &str) -> Self {
        self.figures.push(Figure {
            label: label.to_owned(),
            value,
            unit: unit.to_owned(),
        });
        self
    }

    /// The figure of this label must not be above `most`.
    pub(crate) fn goal(mut self, label: &str, most: f64) -> Self {
        let Some(figure) = self.figures.iter().find(|figure| figure.label == label) else {
            return self;
        };
        self.verdict = if figure.value <= most {
            Verdict::Met
        } else {
            Verdict::Missed
        };
        self.goal = Some(Figure {
            value: most,
            ..figure.clone()
        });
        self
    }

    pub(crate) fn baseline(mut self, value: f64, baseline: f64) -> Self {
        let ratio = value / baseline;
        self.of_baseline = ratio.is_finite().then_some(ratio);
        self
    }
}

impl Figure {
    fn text(&self) -> String {
        let Self { label, value, unit } = self;
        format!("{label} {} {unit}", number(*value)).trim().to_owned()
    }
}

/// The value below which so many percent of sorted values lie.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "none".to_owned(),
        0.0 => "0".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

impl Report {
    pub(crate) fn begin(quick: bool) -> Self {
        Self {
            machine: machine(),
            load: vec![load()],
            quick,
            rows: Vec::new(),
        }
    }

    pub(crate) fn finish(&mut self) {
        self.load.push(load());
    }

    /// The report as an aligned table.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "{}; load {}\n",
            self.machine,
            self.load.join(" before, ") + " after"
        );
        if self.quick {
            out.push_str("Quick: too short for conclusions; shows that the benchmark works.\n");
        }
        out.push('\n');
        let mut lines = vec![["MEASURE", "MEASURED", "GOAL", "OF BASELINE", "VERDICT"].map(str::to_owned)];
        for row in &self.rows {
            let figures: Vec<String> = row.figures.iter().map(Figure::text).collect();
            let verdict = match row.verdict {
                Verdict::Met => "met",
                Verdict::Missed => "missed",
                Verdict::NoGoal => "",
            };
            lines.push([
                row.title.clone(),
                figures.join(", "),
                row.goal
                    .as_ref()
                    .map(|goal| format!("<= {}", goal.text()))
                    .unwrap_or_default(),
                row.of_baseline
                    .map(|ratio| format!("{} x", number(ratio)))
                    .unwrap_or_default(),
                verdict.to_owned(),
            ]);
        }
        align(&lines, &mut out);
        let judged = self
            .rows
            .iter()
            .filter(|row| row.verdict != Verdict::NoGoal)
            .count();
        let met = self.rows.iter().filter(|row| row.verdict == Verdict::Met).count();
        let _ = writeln!(out, "\n{met} of {judged} goals met");
        out
    }
}

fn align(lines: &[[String; 5]], out: &mut String) {
    let mut widths = [0; 5];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for line in lines {
        let cells = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let text = cells.collect::<Vec<_>>().join("  ");
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_default();
        let value = line.split_once(':').map(|(_, value)| value.trim().to_owned());
        value.unwrap_or_default()
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    format!(
        "{}, {} cores, {} GiB, Linux {}",
        field(&read("/proc/cpuinfo"), "model name"),
        std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        kib >> 20,
        read("/proc/sys/kernel/osrelease").trim()
    )
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_their_figure() {
        let row = Row::new("x").figure("p50", 1.0, "ms").figure("p99", 120.0, "ms");
        assert_eq!(row.clone().goal("p99", 100.0).verdict, Verdict::Missed);
        assert_eq!(row.clone().goal("p50", 1.0).verdict, Verdict::Met);
        assert_eq!(row.verdict, Verdict::NoGoal);
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (percentile(&values, 50.0), percentile(&values, 99.0)),
            (50.0, 99.0)
        );
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn the_table_shows_figures_goal_ratio_and_verdict() {
        let mut report = Report::begin(true);
        let row = Row::new("calls")
            .figure("", 2.0, "calls/min")
            .goal("", 3.0)
            .baseline(2.0, 200.0);
        report.rows.push(row);
        report.finish();
        let text = report.to_text();
        for part in [
            "2.00 calls/min",
            "<= 3.00 calls/min",
            "0.01 x",
            "met",
            "1 of 1 goals met",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
