// SPDX-License-Identifier: Apache-2.0
//! Figures beside goals.

use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// How much it was.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it should be.
    pub goal: Option<f64>,
    /// Whether more is better.
    pub more_is_better: bool,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            goal: None,
            more_is_better: false,
        }
    }

    pub(crate) fn at_most(self, goal: f64) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    pub(crate) fn at_least(self, goal: f64) -> Self {
        Self {
            goal: Some(goal),
            more_is_better: true,
            ..self
        }
    }

    /// Whether the goal is met, if there is one.
    pub fn met(&self) -> Option<bool> {
        let goal = self.goal?;
        Some(if self.more_is_better {
            self.value >= goal
        } else {
            self.value <= goal
        })
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
        let mut text = format!("{:<58} {:>14} {:<12} {:>14}\n", "", "MEASURED", "", "GOAL");
        for row in &self.rows {
            let goal = row.goal.map_or_else(String::new, |goal| {
                let sign = if row.more_is_better { "≥" } else { "≤" };
                format!("{sign} {}", number(goal))
            });
            let verdict = match row.met() {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "",
            };
            let line = format!(
                "{:<58} {:>14} {:<12} {goal:>14} {verdict}",
                row.what,
                number(row.value),
                row.unit
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_in_their_direction() {
        assert_eq!(Row::new("a", 5.0, "x").at_most(4.0).met(), Some(false));
        assert_eq!(Row::new("a", 5.0, "x").at_least(4.0).met(), Some(true));
        assert_eq!(Row::new("a", 5.0, "x").met(), None);
        let report = Report {
            rows: vec![Row::new("rate", 12345.6, "records/s").at_least(20_000.0)],
        };
        assert!(
            report.to_text().contains("12346 records/s"),
            "{}",
            report.to_text()
        );
        assert!(report.to_text().contains("NOT MET"));
    }
}
