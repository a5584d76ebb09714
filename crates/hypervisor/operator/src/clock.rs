// SPDX-License-Identifier: Apache-2.0
//! The time as the operator reads it, so that a test can move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// A clock that runs like the machine's, moved forward as often as told.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// The machine's clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.0.load(Ordering::Relaxed));
        let now = Timestamp::now();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Moves this clock and all its copies forward.
    pub fn advance(&self, by: std::time::Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_move_together() {
        let clock = Clock::new();
        let copy = clock.clone();
        clock.advance(std::time::Duration::from_hours(1));
        assert!(copy.now().duration_since(Timestamp::now()) > SignedDuration::from_mins(59));
    }
}
