// SPDX-License-Identifier: Apache-2.0
//! How this replica comes to lead and ceases to: over a Lease among several, at once when it is
//! the only one. A term begins by reading the whole journal; one whose records could not be
//! written is over, and the next begins by reading again. The number of a term is the lease's
//! `leaseTransitions`, which is raised if the journal is ahead of it: no number is given twice.

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
    /// Where the election shows its figures.
    pub telemetry: Telemetry,
}

enum End {
    Stopped,
    Resigned,
}

impl Campaign {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let Some((client, config)) = self.election.clone() else {
            // Alone: there is nobody to resign to.
            while matches!(self.term(None, &stop).await, End::Resigned) {
                tracing::warn!("leadership was given up, and there is nobody else; waiting a moment");
                self.brain.tell(Input::LeaseLost).await;
                if pause(&stop, 10 * RETRY).await {
                    break;
                }
            }
            return Ok(());
        };
        let mut counted = false;
        while !stop.is_cancelled() {
            let mut elector = LeaderElector::new(client.clone(), config.clone())?;
            if !counted {
                elector = elector.with_metrics(&self.telemetry);
                counted = true;
            }
            let leading = elector.leading();
            let this = &self;
            let work = |token: CancellationToken| async move { this.term(Some(leading), &token).await };
            let end = elector.run(stop.clone(), work).await;
            self.brain.tell(Input::LeaseLost).await;
            let wait = match end {
                Ok(Some(End::Resigned)) => {
                    tracing::warn!("leadership was given up; others may take it");
                    2 * config.lease_duration
                }
                Ok(_) => RETRY,
                Err(error) => {
                    tracing::warn!(%error, "no longer leading");
                    RETRY
                }
            };
            if pause(&stop, wait).await {
                break;
            }
        }
        Ok(())
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
            self.brain
                .tell(Input::Lead {
                    epoch: Epoch(number),
                    sent_at: self.signed(leading.as_ref()),
                    journal: records,
                })
                .await;
            if let Some(end) = self.keep(leading.as_ref(), stop).await {
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
                _ = ticks.tick() => {
                    let sent_at = self.signed(leading);
                    self.brain.tell(Input::LeaseRenewed { sent_at }).await;
                }
            }
        }
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
