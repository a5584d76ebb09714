// SPDX-License-Identifier: Apache-2.0
//! What a role sees of its calls: one report per call when it is over, for counters and durations,
//! also for the calls that a session makes for itself (tokens, version documents). The library counts
//! nothing itself, because every role names its own metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::call::Call;
use crate::error::{Error, Kind};

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

/// A call that is being watched.
pub(crate) struct Watched<'a> {
    observer: Option<&'a Arc<dyn Observer>>,
    call: &'static Call,
    begin: Instant,
}

impl<'a> Watched<'a> {
    pub(crate) fn begin(observer: Option<&'a Arc<dyn Observer>>, call: &'static Call) -> Self {
        Self {
            observer,
            call,
            begin: Instant::now(),
        }
    }

    /// Tells the observer how it ended; `status` is that of a success.
    pub(crate) fn end<T>(self, outcome: &Result<T, Error>, status: Option<u16>, tries: u32) {
        let Some(observer) = self.observer else { return };
        let failure = outcome.as_ref().err();
        observer.finished(&Report {
            call: self.call,
            status: failure.map_or(status, Error::status),
            failure: failure.map(Error::kind),
            duration: self.begin.elapsed(),
            tries,
        });
    }
}
