// SPDX-License-Identifier: Apache-2.0
//! The server's clock. Tests may stop it and move it by hand; production reads the system's.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A clock, shared by clones.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Mutex<Option<Timestamp>>>);

impl Clock {
    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(Timestamp::now)
    }

    /// Stops the clock at a moment.
    pub fn freeze(&self, at: Timestamp) {
        *self.0.lock() = Some(at);
    }

    /// Moves a stopped clock; stops a running one first.
    pub fn advance(&self, by: SignedDuration) {
        let mut frozen = self.0.lock();
        let now = frozen.unwrap_or_else(Timestamp::now);
        *frozen = Some(now.saturating_add(by).unwrap_or(now));
    }

    /// The present moment as objects carry it: UTC, whole seconds.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

/// A moment as objects carry it: UTC, whole seconds.
pub(crate) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Reads a time an object carries.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
