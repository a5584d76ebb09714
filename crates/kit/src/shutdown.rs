// SPDX-License-Identifier: Apache-2.0
//! One orderly end for the whole process. The first SIGTERM or SIGINT cancels a tree of
//! tokens; work then has a grace period to finish; a second signal or the end of the grace
//! period ends the waiting.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything finished.
    Clean,
    /// The grace period ended first.
    GraceOver,
    /// A second signal came first.
    Forced,
}

/// The root of the token tree.
#[derive(Clone, Debug)]
pub struct Shutdown {
    begin: CancellationToken,
    force: CancellationToken,
    grace: Duration,
}

impl Shutdown {
    /// A shutdown that allows `grace` between its begin and the end of the process.
    pub fn new(grace: Duration) -> Self {
        Self {
            begin: CancellationToken::new(),
            force: CancellationToken::new(),
            grace,
        }
    }

    /// Makes SIGTERM and SIGINT begin the shutdown, and a second one force it.
    pub fn on_signals(self) -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if this.begin.is_cancelled() {
                    tracing::warn!(signal = name, "second signal, not waiting any longer");
                    this.force.cancel();
                    return;
                }
                this.begin(name);
            }
        });
        Ok(self)
    }

    /// Begins the shutdown; saying why once is enough.
    pub fn begin(&self, reason: &str) {
        if !self.begin.is_cancelled() {
            tracing::info!(reason, grace = ?self.grace, "shutting down");
            self.begin.cancel();
        }
    }

    /// Ends the waiting in [`Shutdown::drain`].
    pub fn force(&self) {
        self.begin.cancel();
        self.force.cancel();
    }

    /// A token that is cancelled when the shutdown begins. Cancelling it does not begin one.
    pub fn token(&self) -> CancellationToken {
        self.begin.child_token()
    }

    /// Whether the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        self.begin.is_cancelled()
    }

    /// Waits for `work`. Until the shutdown begins it may take as long as it likes; from then
    /// on it has the grace period.
    ///
    /// ```
    /// use cobaltcore_kit::shutdown::{Drained, Shutdown};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let shutdown = Shutdown::new(std::time::Duration::from_secs(5));
    /// let token = shutdown.token();
    /// shutdown.begin("the example is over");
    /// assert_eq!(shutdown.drain(token.cancelled()).await, Drained::Clean);
    /// # });
    /// ```
    pub async fn drain<F: Future>(&self, work: F) -> Drained {
        let grace = async {
            self.begin.cancelled().await;
            tokio::time::sleep(self.grace).await;
        };
        tokio::select! {
            biased;
            _ = work => Drained::Clean,
            () = self.force.cancelled() => Drained::Forced,
            () = grace => Drained::GraceOver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn children_follow_the_root_but_never_lead_it() {
        let shutdown = Shutdown::new(Duration::from_secs(1));
        let (one, two) = (shutdown.token(), shutdown.token());
        one.cancel();
        assert!(!shutdown.has_begun() && !two.is_cancelled());
        shutdown.begin("test");
        assert!(two.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ignores_the_token_is_left_behind_after_the_grace_period() {
        let shutdown = Shutdown::new(Duration::from_secs(30));
        shutdown.begin("test");
        assert_eq!(
            shutdown.drain(std::future::pending::<()>()).await,
            Drained::GraceOver
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_waiting() {
        let shutdown = Shutdown::new(Duration::from_secs(30));
        shutdown.begin("test");
        shutdown.force();
        assert_eq!(
            shutdown.drain(std::future::pending::<()>()).await,
            Drained::Forced
        );
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_shutdown_work_takes_as_long_as_it_needs() {
        let shutdown = Shutdown::new(Duration::from_secs(1));
        assert_eq!(
            shutdown.drain(tokio::time::sleep(Duration::from_hours(1))).await,
            Drained::Clean
        );
    }
}
