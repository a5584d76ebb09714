// SPDX-License-Identifier: Apache-2.0
//! The time of this process: a monotonic clock that decides, and a wall clock for people.

use std::time::{Duration, Instant};

use cobaltcore_ha_engine::{Mono, Now};

/// What a clock shows first: a day, in milliseconds, so that subtracting from it is harmless.
const BEGIN: u64 = 86_400_000;

/// The clock of this process. Copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds, monotonic.
    pub fn mono(&self) -> Mono {
        let past = u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        Mono(BEGIN.saturating_add(past))
    }

    /// The same of another moment; the beginning, if it lies before that.
    pub fn mono_at(&self, at: Instant) -> Mono {
        let past = u64::try_from(at.saturating_duration_since(self.0).as_millis()).unwrap_or(u64::MAX);
        Mono(BEGIN.saturating_add(past))
    }

    /// When it shows this; nothing if that is never.
    pub fn instant_of(&self, mono: Mono) -> Option<Instant> {
        self.0
            .checked_add(Duration::from_millis(mono.0.saturating_sub(BEGIN)))
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
