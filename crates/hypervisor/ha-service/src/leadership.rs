// SPDX-License-Identifier: Apache-2.0
//! How this replica comes to lead and ceases to: over a Lease among several, at once when it is
//! the only one. A term begins by reading the whole journal; one whose records could not be
//! written is over, and the next begins by reading again. The number of a term is the lease's
//! `leaseTransitions`, which is raised if the journal is ahead of it: no number is given twice. A lease is renewed by a task
//! of its own, so the loop has to show that it still thinks: one that does not answer leads no longer, and does not run again
//! before it answers.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_engine::{Epoch, Input, Record};
use cobaltcore_kit::BoxError;
use cobaltcore_kit::leader::{LeaderConfig, LeaderElector, Leading};
use cobaltcore_kit::telemetry::Telemetry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::act::Terms;
use crate::brain::BrainHandle;
use crate::clock::Clock;
use crate::journal::Journal;
use crate::metrics::Metrics;

/// How often the loop is told that the lease was renewed.
const RENEWALS: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(1);

/// The wish to give leadership up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    resign: Arc<Notify>,
}

impl Leadership {
    /// Gives leadership up; another replica takes over.
    pub fn resign(&self) {
        self.resign.notify_one();
    }

    /// Waits until somebody wants leadership given up.
    pub async fn resigned(&self) {
        self.resign.notified().await;
    }
}

/// What it takes to run for leadership.
#[derive(Clone)]
pub struct Campaign {
    /// The lease, and the cluster it is in; nothing for a replica that is alone.
    pub election: Option<(kube::Client, LeaderConfig)>,
    /// The journal.
    pub journal: Journal,
    /// The loop.
    pub brain: BrainHandle,
    /// The clock.
    pub clock: Clock,
    /// The wish to give leadership up.
    pub leadership: Leadership,
    /// Rung when a term ended because its records could not be written.
    pub failed: Arc<Notify>,
    /// What of earlier terms is under way.
    pub terms: Terms,
    /// How long a leader may act without having renewed, and the loop go without an answer.
    pub renew_deadline: Duration,
    /// What is counted.
    pub metrics: Metrics,
    /// Where the election shows its figures.
    pub telemetry: Telemetry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stopped,
    Resigned,
    /// The loop does not answer.
    Hung,
}

/// A term, until this is dropped, whatever ends it: a loop that hangs cannot be told that its term is over, and cannot say
/// that nobody leads here.
struct Running<'a> {
    campaign: &'a Campaign,
    term: Epoch,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.campaign.terms.end(self.term);
        self.campaign.metrics.leader.set(0);
    }
}

impl Campaign {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let Some((client, config)) = self.election.clone() else {
            self.alone(&stop).await;
            return Ok(());
        };
        let mut counted = false;
        while self.thinks(&stop).await {
            let mut elector = LeaderElector::new(client.clone(), config.clone())?;
            if !counted {
                elector = elector.with_metrics(&self.telemetry);
                counted = true;
            }
            let leading = elector.leading();
            let this = &self;
            let work = |token: CancellationToken| async move { this.term(Some(leading), &token).await };
            let end = elector.run(stop.clone(), work).await;
            let wait = match end {
                Ok(Some(End::Resigned)) => {
                    tracing::warn!("leadership was given up; others may take it");
                    2 * config.lease_duration
                }
                Ok(Some(End::Hung)) => 2 * config.lease_duration,
                Ok(_) => RETRY,
                Err(error) => {
                    tracing::warn!(%error, "no longer leading");
                    RETRY
                }
            };
            if !self.lost(&stop).await || pause(&stop, wait).await {
                break;
            }
        }
        Ok(())
    }

    /// Leads without a lease: there is nobody to resign to.
    async fn alone(&self, stop: &CancellationToken) {
        while self.thinks(stop).await {
            if self.term(None, stop).await == End::Stopped {
                return;
            }
            tracing::warn!("leadership was given up, and there is nobody else; waiting a moment");
            if !self.lost(stop).await || pause(stop, 10 * RETRY).await {
                return;
            }
        }
    }

    /// Waits until the loop answers, however long that takes; says whether it does, and nobody wants all of this to end.
    async fn thinks(&self, stop: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            answer = self.brain.ask(|_, _| ()) => answer.is_some(),
        }
    }

    /// Tells the loop that it does not lead any more; says whether nobody wants all of this to end.
    async fn lost(&self, stop: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = self.brain.tell(Input::LeaseLost) => !stop.is_cancelled(),
            () = stop.cancelled() => false,
        }
    }

    /// Leads until `stop`: one term after the other while records cannot be written.
    async fn term(&self, leading: Option<Leading>, stop: &CancellationToken) -> End {
        loop {
            // Whatever an earlier term had sent has had its effect before anything is looked at.
            tokio::select! {
                () = stop.cancelled() => return End::Stopped,
                () = self.terms.settled() => {}
            }
            let Some(records) = self.load(stop).await else {
                return End::Stopped;
            };
            // What failed before this term is no concern of it.
            let _ = tokio::time::timeout(Duration::ZERO, self.failed.notified()).await;
            let written = records.last().map_or(0, |record| record.epoch.0);
            let next = self.terms.next(written + 1);
            let number = match &leading {
                None => next,
                Some(leading) => tokio::select! {
                    () = stop.cancelled() => return End::Stopped,
                    number = leading.term(next) => number,
                },
            };
            let running = Running {
                campaign: self,
                term: Epoch(number),
            };
            let lead = Input::Lead {
                epoch: running.term,
                sent_at: self.signed(leading.as_ref()),
                journal: records,
            };
            let kept = tokio::select! {
                () = stop.cancelled() => Some(End::Stopped),
                answered = self.answered(lead) => if answered {
                    self.keep(leading.as_ref(), stop).await
                } else {
                    Some(End::Hung)
                },
            };
            drop(running);
            if kept == Some(End::Hung) {
                tracing::error!(
                    term = number,
                    "the loop has not answered for {:?}; this replica gives leadership up",
                    self.renew_deadline
                );
            }
            if let Some(end) = kept {
                return end;
            }
            if pause(stop, RETRY).await {
                return End::Stopped;
            }
        }
    }

    /// Tells the loop of renewals; answers nothing when the term failed.
    async fn keep(&self, leading: Option<&Leading>, stop: &CancellationToken) -> Option<End> {
        let mut ticks = tokio::time::interval(RENEWALS);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Some(End::Stopped),
                () = self.leadership.resigned() => return Some(End::Resigned),
                () = self.failed.notified() => return None,
                _ = ticks.tick() => {}
            }
            let sent_at = self.signed(leading);
            tokio::select! {
                () = stop.cancelled() => return Some(End::Stopped),
                answered = self.answered(Input::LeaseRenewed { sent_at }) => if !answered {
                    return Some(End::Hung);
                },
            }
        }
    }

    /// Tells the loop something that it has to answer; says whether it did while a renewal lasts. It holds the term by
    /// what it is told here: once that is too old, it starts nothing when it wakes up.
    async fn answered(&self, input: Input) -> bool {
        let answer = async {
            self.brain.tell(input).await;
            self.brain.ask(|_, _| ()).await
        };
        let answer = tokio::time::timeout(self.renew_deadline, answer).await;
        answer.is_ok_and(|answer| answer.is_some())
    }

    /// When the latest sign of life was sent; now, for a replica that is alone.
    fn signed(&self, leading: Option<&Leading>) -> cobaltcore_ha_engine::Mono {
        match leading {
            None => self.clock.mono(),
            Some(leading) => leading.signed_at().map_or(cobaltcore_ha_engine::Mono(0), |at| {
                self.clock.mono_at(at.into_std())
            }),
        }
    }

    async fn load(&self, stop: &CancellationToken) -> Option<Vec<Record>> {
        loop {
            let error = tokio::select! {
                () = stop.cancelled() => return None,
                loaded = self.journal.load() => match loaded {
                    Ok(records) => return Some(records),
                    Err(error) => error,
                },
            };
            tracing::error!(%error, "the journal cannot be read; nothing can be decided before it is");
            if pause(stop, RETRY).await {
                return None;
            }
        }
    }
}

/// Waits; says whether it was told to stop.
pub(crate) async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(time) => false,
    }
}
