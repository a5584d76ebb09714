// SPDX-License-Identifier: Apache-2.0
//! The budget of an evaluation: every step costs, and a rule that costs too much is stopped.
//! One budget is shared by all rules of an object, so many small rules are bounded as well.

/// The most one expression may cost.
pub const PER_EXPRESSION: u64 = 1_000_000;
/// The most all expressions of one object may cost together.
pub const PER_OBJECT: u64 = 10_000_000;

/// What is left to spend.
#[derive(Debug, Clone)]
pub struct Budget {
    remaining: u64,
    per_expression: u64,
    evaluations: u64,
    exceeded: u64,
}

impl Budget {
    /// The budget of the rules of one object.
    pub fn per_object() -> Self {
        Self::with_limits(PER_OBJECT, PER_EXPRESSION)
    }

    /// The budget of the match conditions of one webhook for one object.
    pub fn match_conditions() -> Self {
        Self::with_limits(2_500_000, PER_EXPRESSION)
    }

    /// A budget with limits of its own.
    pub fn with_limits(total: u64, per_expression: u64) -> Self {
        Self {
            remaining: total,
            per_expression,
            evaluations: 0,
            exceeded: 0,
        }
    }

    /// Expressions evaluated on this budget.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Expressions that were stopped because they cost too much.
    pub fn exceeded(&self) -> u64 {
        self.exceeded
    }

    /// An expression was evaluated, or stopped for its cost.
    pub(crate) fn evaluated(&mut self, stopped: bool) {
        self.evaluations += 1;
        self.exceeded += u64::from(stopped);
    }

    /// What is left for all further expressions.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The limit for a single expression.
    pub(crate) fn per_expression(&self) -> u64 {
        self.per_expression
    }

    /// Takes the cost of a finished expression; false if it was more than there was.
    pub(crate) fn spend(&mut self, cost: u64) -> bool {
        let enough = cost <= self.remaining;
        self.remaining = self.remaining.saturating_sub(cost);
        enough
    }
}
