// SPDX-License-Identifier: Apache-2.0
//! What a role sees of its calls: one report per call when it is over, for counters and durations.
//! The library counts nothing itself, because every role names its own metrics.

use std::time::Duration;

use crate::call::Call;
use crate::error::Kind;

/// One finished call.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The call: service, name, method and route.
    pub call: &'a Call,
    /// The HTTP status of the last answer, if there was one.
    pub status: Option<u16>,
    /// What went wrong; nothing on success.
    pub failure: Option<Kind>,
    /// From the call to its end, with every wait and every try.
    pub duration: Duration,
    /// How many times it was sent.
    pub tries: u32,
}

/// Somebody who wants to know about calls. It is called on the task that made the call and must
/// not block.
pub trait Observer: Send + Sync + 'static {
    /// A call is over.
    fn finished(&self, report: &Report<'_>);
}

impl<F: Fn(&Report<'_>) + Send + Sync + 'static> Observer for F {
    fn finished(&self, report: &Report<'_>) {
        self(report);
    }
}
