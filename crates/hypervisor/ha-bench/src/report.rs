// SPDX-License-Identifier: Apache-2.0
//! Figures beside goals, beside what the machine allows, and how they grow.

use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// How much it was.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it should be.
    pub goal: Option<f64>,
    /// What it must be.
    pub gate: Option<f64>,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Whether it is as it should be.
    pub met: Option<bool>,
    /// What else was measured in the same run, in the same unit.
    pub beside: Vec<Beside>,
    /// The same figure for smaller ones.
    pub growth: Option<Growth>,
}

/// What stands beside a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
}

/// How a figure grows.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// With what.
    pub with: &'static str,
    /// How many of them, and the figure.
    pub points: Vec<(usize, f64)>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            goal: None,
            gate: None,
            more_is_better: false,
            met: None,
            beside: Vec::new(),
            growth: None,
        }
    }

    /// Should be at most `goal` and must be at most `gate`.
    pub(crate) fn at_most(self, goal: f64, gate: f64) -> Self {
        Self {
            goal: Some(goal),
            gate: Some(gate),
            met: Some(shown(self.value) <= goal),
            ..self
        }
    }

    /// Should be at least `goal` and must be at least `gate`.
    pub(crate) fn at_least(self, goal: f64, gate: f64) -> Self {
        Self {
            goal: Some(goal),
            gate: Some(gate),
            met: Some(shown(self.value) >= goal),
            more_is_better: true,
            ..self
        }
    }

    /// Something measured in the same run, for comparison.
    pub(crate) fn beside(mut self, what: impl Into<String>, value: f64) -> Self {
        self.beside.push(Beside {
            what: what.into(),
            value,
        });
        self
    }

    /// The same figure for several sizes.
    pub(crate) fn grown(self, with: &'static str, points: Vec<(usize, f64)>) -> Self {
        let growth = (points.len() > 1).then_some(Growth { with, points });
        Self { growth, ..self }
    }

    fn verdict(&self) -> &'static str {
        let within_gate = |gate: f64| {
            if self.more_is_better {
                shown(self.value) >= gate
            } else {
                shown(self.value) <= gate
            }
        };
        match (self.met, self.gate) {
            (Some(true), _) => "met",
            (Some(false), Some(gate)) if within_gate(gate) => "MISSED, within its gate",
            (Some(false), _) => "MISSED",
            (None, _) => "",
        }
    }

    fn notes(&self) -> String {
        let mut notes: Vec<String> = self
            .beside
            .iter()
            .map(|beside| format!("{} {}", beside.what, number(beside.value)))
            .collect();
        if let Some(Growth { with, points }) = &self.growth {
            let points: Vec<String> = points
                .iter()
                .map(|(size, value)| format!("{size}: {}", number(*value)))
                .collect();
            notes.push(format!("{with} {}", points.join(", ")));
        }
        notes.join("; ")
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The figures.
    pub rows: Vec<Row>,
}

impl Report {
    /// A table for people.
    pub fn to_text(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.what.chars().count())
            .max()
            .unwrap_or(0);
        let mut text = format!(
            "{:<width$} {:>10} {:<14} {:>9} {:<8} {}\n",
            "", "MEASURED", "", "GOAL", "", "BESIDE, AND GROWTH"
        );
        for row in &self.rows {
            let goal = row.goal.map_or_else(String::new, |goal| {
                let sign = if row.more_is_better { "≥" } else { "≤" };
                format!("{sign} {}", number(goal))
            });
            let line = format!(
                "{:<width$} {:>10} {:<14} {goal:>9} {:<8} {}",
                row.what,
                number(row.value),
                row.unit,
                row.verdict(),
                row.notes(),
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        whole if whole.fract() == 0.0 => format!("{value:.0}"),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A value as people read it. It is judged by that: what is shown as the goal has reached the goal.
fn shown(value: f64) -> f64 {
    number(value).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_in_their_direction() {
        let least = Row::new("rate", 12_345.6, "records/s").at_least(20_000.0, 10_000.0);
        assert_eq!(
            (least.met, least.verdict()),
            (Some(false), "MISSED, within its gate")
        );
        let most = Row::new("time", 5.0, "s").at_most(4.0, 4.5);
        assert_eq!((most.met, most.verdict()), (Some(false), "MISSED"));
        assert_eq!(Row::new("time", 4.0, "s").at_most(4.0, 4.0).verdict(), "met");
        assert_eq!(Row::new("a", 5.0, "x").verdict(), "");
        assert_eq!(
            Row::new("time", 15.04, "s").at_most(15.0, 16.0).verdict(),
            "met",
            "it is shown as 15.0"
        );
        let late = Row::new("time", 15.06, "s").at_most(15.0, 16.0);
        assert_eq!(late.verdict(), "MISSED, within its gate");
    }

    #[test]
    fn a_table_has_a_line_for_each_with_what_stands_beside_it() {
        let row = Row::new("rate", 12_345.6, "records/s")
            .at_least(20_000.0, 10_000.0)
            .beside("plain", 40_000.0)
            .grown("hosts", vec![(10, 0.5), (1000, 12_345.6)]);
        let text = Report { rows: vec![row] }.to_text();
        let line = text.lines().nth(1).unwrap();
        for part in [
            "12346 records/s",
            "≥ 20000",
            "MISSED",
            "plain 40000",
            "hosts 10: 0.500, 1000: 12346",
        ] {
            assert!(line.contains(part), "{part}: {text}");
        }
    }
}
