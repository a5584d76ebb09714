// SPDX-License-Identifier: Apache-2.0
//! Ranges of sizes and costs; arithmetic on them saturates instead of overflowing.

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    pub(crate) const ZERO: Range = Range::fixed(0);
    pub(crate) const ONE: Range = Range::fixed(1);
    pub(crate) const UNKNOWN: Range = Range {
        min: 0,
        max: u64::MAX,
    };
    /// The empty union.
    pub(crate) const NOTHING: Range = Range {
        min: u64::MAX,
        max: 0,
    };

    pub(crate) const fn fixed(value: u64) -> Range {
        Range {
            min: value,
            max: value,
        }
    }

    pub(crate) fn plus(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Multiplies by a factor and rounds up.
    pub(crate) fn scaled(self, factor: f64) -> Range {
        let scale = |x: u64| {
            let product = (x as f64 * factor).ceil();
            if product >= 18_446_744_073_709_551_616.0 {
                u64::MAX
            } else {
                product as u64
            }
        };
        Range {
            min: scale(self.min),
            max: scale(self.max),
        }
    }

    /// A tenth, rounded up: the cost of walking over a string.
    pub(crate) fn tenth(self) -> Range {
        self.scaled(0.1)
    }

    /// Both ranges and what lies between.
    pub(crate) fn union(self, other: Range) -> Range {
        Range {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}
