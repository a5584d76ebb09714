// SPDX-License-Identifier: Apache-2.0
//! The time of this process: a monotonic clock that decides, and a wall clock for people.

use std::time::Instant;

use cobaltcore_ha_engine::{Mono, Now};

/// The clock of this process. Copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now. It begins a day in, so that subtracting from it is harmless.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds, monotonic.
    pub fn mono(&self) -> Mono {
        let past = u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        Mono(86_400_000_u64.saturating_add(past))
    }

    /// The same of another moment; the beginning, if it lies before that.
    pub fn mono_at(&self, at: Instant) -> Mono {
        let past = u64::try_from(at.saturating_duration_since(self.0).as_millis()).unwrap_or(u64::MAX);
        Mono(86_400_000_u64.saturating_add(past))
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        Now {
            mono: self.mono(),
            wall: jiff::Timestamp::now(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
