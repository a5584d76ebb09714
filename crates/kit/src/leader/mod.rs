// SPDX-License-Identifier: Apache-2.0
//! Leader election over a Lease, with the semantics that other Kubernetes programs use, so
//! that old and new versions of a role exclude each other. Work runs only while the lease is
//! held; losing it cancels the work and, after the time that is left, drops it.

mod decide;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::telemetry::Telemetry;
use decide::{Observed, Step};

/// Who wants to lead what, and how patiently.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// Who we are; unique among the candidates.
    pub identity: String,
    /// How long others wait after the last sign of life before they take over.
    pub lease_duration: Duration,
    /// How long we try to give a sign of life before we stop leading.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry_period: Duration,
    /// Give the lease back when done, so that the next one need not wait.
    pub release: bool,
    /// Wait for a whole lease from the last sign of life that was seen, also for one that was given back or is gone:
    /// what its holder began may still be under way.
    pub patient: bool,
}

impl LeaderConfig {
    /// The usual timings (15 s, 10 s, 2 s) and an identity made from host name and chance.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".into());
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: format!("{host}_{}", uuid::Uuid::new_v4()),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release: true,
            patient: false,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |reason: &str| {
            Err(Error::LeaderConfig {
                lease: self.lease(),
                reason: reason.into(),
            })
        };
        if self.identity.is_empty() || self.name.is_empty() {
            return wrong("name and identity must not be empty");
        }
        if self.lease_duration < Duration::from_secs(1) || self.retry_period.is_zero() {
            return wrong("the lease must last at least a second and the retry period must not be zero");
        }
        if self.lease_duration <= self.renew_deadline {
            return wrong("the lease must last longer than the renew deadline");
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return wrong("the renew deadline must be longer than the retry period with jitter");
        }
        Ok(())
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

const JITTER: f64 = 1.2;

/// Whether this process leads, since when, and for the how manieth time somebody does. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Leading(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    leading: AtomicBool,
    signed: parking_lot::Mutex<Option<Instant>>,
    /// What the lease says of how often it changed hands, as last written by us.
    transitions: tokio::sync::watch::Sender<Option<i32>>,
    /// What it has to say at least.
    at_least: AtomicI32,
    raised: Notify,
}

impl Leading {
    /// Whether the lease is held right now.
    pub fn get(&self) -> bool {
        self.0.leading.load(Ordering::Relaxed)
    }

    /// When the request of the latest sign of life was sent. The lease runs from then, not from its answer.
    pub fn signed_at(&self) -> Option<Instant> {
        *self.0.signed.lock()
    }

    /// The number of this term: `leaseTransitions`, which is raised to `at_least` before it is answered. Whoever counts
    /// terms elsewhere as well, and finds that count ahead of a lease that was deleted, or leads anew without having lost
    /// the lease, gets a number that nobody had.
    pub async fn term(&self, at_least: u64) -> u64 {
        let wanted = i32::try_from(at_least).unwrap_or(i32::MAX);
        self.0.at_least.fetch_max(wanted, Ordering::SeqCst);
        let mut written = self.0.transitions.subscribe();
        self.0.raised.notify_one();
        let reached = written.wait_for(|written| written.is_some_and(|number| number >= wanted));
        // The sender is ours.
        let number = reached.await.ok().and_then(|number| *number).unwrap_or(wanted);
        u64::try_from(number).unwrap_or_default()
    }
}

/// A candidate.
pub struct LeaderElector {
    leases: Api<Lease>,
    config: LeaderConfig,
    observed: Option<Observed>,
    signed: Option<Instant>,
    leading: Leading,
}

impl LeaderElector {
    /// A candidate for the lease in `config`; refuses timings that cannot work.
    pub fn new(client: kube::Client, config: LeaderConfig) -> Result<Self, Error> {
        config.check()?;
        let leases = Api::namespaced(client, &config.namespace);
        Ok(Self {
            leases,
            config,
            observed: None,
            signed: None,
            leading: Leading::default(),
        })
    }

    /// Shows in metrics whether this process leads, under the name others use for it.
    #[must_use]
    pub fn with_metrics(self, telemetry: &Telemetry) -> Self {
        let gauge = LeadingGauge {
            leading: self.leading.clone(),
            name: self.config.name.clone(),
        };
        telemetry.register(|registry| registry.register_collector(Box::new(gauge)));
        self
    }

    /// A handle that tells whether this process leads.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }

    /// Waits for the lease, then runs `work` and keeps the lease until it returns.
    ///
    /// The token that `work` gets is cancelled when `stop` is, and when the lease is lost. The
    /// answer is nothing if `stop` came before the lease, and an error if the lease was lost;
    /// the work is then certainly over before anybody else may start.
    pub async fn run<F, Fut, T>(mut self, stop: CancellationToken, work: F) -> Result<Option<T>, Error>
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = T>,
    {
        let lease = self.config.lease();
        tracing::info!(lease, identity = self.config.identity, "waiting to lead");
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = self.acquire() => {}
        }
        tracing::info!(lease, identity = self.config.identity, "leading");
        let leading = self.leading.clone();
        leading.0.leading.store(true, Ordering::Relaxed);
        let slack = self
            .config
            .lease_duration
            .saturating_sub(self.config.renew_deadline);
        let (token, keep) = (stop.child_token(), CancellationToken::new());
        // Renewal has its own task, so that work that hogs its thread does not starve it.
        let mut renewal = Renewal(tokio::spawn(self.keep(keep.clone())));
        let work = work(token.clone());
        tokio::pin!(work);
        let outcome = tokio::select! {
            done = &mut work => {
                keep.cancel();
                renewal.ended().await.map(|()| Some(done))
            }
            lost = renewal.ended() => {
                token.cancel();
                tracing::error!(lease, "lost the lease, stopping work");
                let in_time = tokio::time::timeout(slack, &mut work).await.is_ok();
                if !in_time {
                    tracing::error!(lease, "work did not stop in time and is dropped");
                }
                lost.map(|()| None)
            }
        };
        leading.0.leading.store(false, Ordering::Relaxed);
        outcome
    }

    /// Tries until the lease is ours.
    async fn acquire(&mut self) {
        let mut told = None;
        loop {
            match tokio::time::timeout(self.config.renew_deadline, self.try_once()).await {
                Ok(Ok(Held::Us)) => return,
                Ok(Ok(Held::Other(holder))) if told.as_ref() == Some(&holder) => {}
                Ok(Ok(Held::Other(holder))) => {
                    tracing::info!(lease = self.config.lease(), holder, "somebody else leads");
                    told = Some(holder);
                }
                Ok(Ok(Held::Contested)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot take the lease"),
                Err(_) => tracing::warn!(lease = self.config.lease(), "no answer while taking the lease"),
            }
            let jitter = 1.0 + fastrand::f64() * (JITTER - 1.0);
            tokio::time::sleep(self.config.retry_period.mul_f64(jitter)).await;
        }
    }

    /// Renews until told to stop, then gives the lease back. Ends with an error when the lease
    /// could not be renewed in time or somebody else has it.
    async fn keep(mut self, stop: CancellationToken) -> Result<(), Error> {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.leading.0.raised.notified(), if self.too_low() => {}
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
            let reason = match tokio::time::timeout_at(deadline, self.try_once()).await {
                Ok(Ok(Held::Us)) => continue,
                Ok(Ok(Held::Contested)) => "somebody changed it at the same time".to_owned(),
                Ok(Ok(Held::Other(holder))) => return Err(self.lost(format!("{holder:?} leads now"))),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            tracing::warn!(lease = self.config.lease(), reason, "cannot renew the lease");
            if Instant::now() + self.config.retry_period >= deadline {
                return Err(self.lost(format!(
                    "not renewed within {:?}: {reason}",
                    self.config.renew_deadline
                )));
            }
        }
        if self.config.release {
            self.give_back().await;
        }
        Ok(())
    }

    /// Until when the last sign of life allows us to lead. Counted from before it was sent, so
    /// that no candidate can have seen it earlier than we think.
    fn deadline(&self) -> Instant {
        let sign = self.signed.unwrap_or_else(Instant::now);
        sign + self.config.renew_deadline
    }

    /// Whether the lease says less of how often it changed hands than it has to.
    fn too_low(&self) -> bool {
        let written = *self.leading.0.transitions.borrow();
        written.is_some_and(|number| number < self.at_least())
    }

    fn at_least(&self) -> i32 {
        self.leading.0.at_least.load(Ordering::SeqCst)
    }

    fn lost(&self, reason: String) -> Error {
        Error::LeadershipLost {
            lease: self.config.lease(),
            reason,
        }
    }

    /// One attempt to take or renew the lease.
    async fn try_once(&mut self) -> Result<Held, Error> {
        if let Some(held) = self.renew_known().await? {
            return Ok(held);
        }
        let what = || format!("lease {}", self.config.lease());
        let found = self
            .leases
            .get_opt(&self.config.name)
            .await
            .map_err(|e| Error::kube(what(), e))?;
        let before = Instant::now();
        self.observed = match (found, self.observed.take()) {
            (Some(lease), seen) => Some(Observed::refresh(seen, lease, before)),
            // Whoever held it may not know yet that it is gone.
            (None, Some(seen)) if decide::lasts(&self.config, &seen, before) => {
                self.observed = Some(seen);
                return Ok(Held::Other("nobody, since the lease is gone,".to_owned()));
            }
            (None, _) => None,
        };
        let seen = self.observed.as_ref();
        let written = match decide::step(&self.config, seen, self.at_least(), before, Timestamp::now()) {
            Step::Wait { holder } => return Ok(Held::Other(holder)),
            Step::Create(lease) => self.leases.create(&PostParams::default(), &lease).await,
            Step::Update(lease) => {
                self.leases
                    .replace(&self.config.name, &PostParams::default(), &lease)
                    .await
            }
        };
        match written {
            Ok(lease) => {
                self.signs_of_life(lease, before);
                Ok(Held::Us)
            }
            // Somebody was faster; the next attempt sees who.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Held::Contested),
            Err(error) => Err(Error::kube(what(), error)),
        }
    }

    /// The short way: while we lead, nobody else should have touched the lease.
    async fn renew_known(&mut self) -> Result<Option<Held>, Error> {
        let Some(observed) = self
            .observed
            .as_ref()
            .filter(|seen| seen.held_by(&self.config.identity))
        else {
            return Ok(None);
        };
        let lease = decide::renewed(&self.config, observed, self.at_least(), Timestamp::now());
        let before = Instant::now();
        match self
            .leases
            .replace(&self.config.name, &PostParams::default(), &lease)
            .await
        {
            Ok(lease) => {
                self.signs_of_life(lease, before);
                Ok(Some(Held::Us))
            }
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(None),
            Err(error) => Err(Error::kube(format!("lease {}", self.config.lease()), error)),
        }
    }

    fn signs_of_life(&mut self, lease: Lease, sent: Instant) {
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        self.observed = Some(Observed::new(lease, sent));
        self.signed = Some(sent);
        *self.leading.0.signed.lock() = Some(sent);
        let _ = self.leading.0.transitions.send_replace(transitions);
    }

    async fn give_back(&mut self) {
        let Some(observed) = self
            .observed
            .as_ref()
            .filter(|seen| seen.held_by(&self.config.identity))
        else {
            return;
        };
        let lease = decide::released(observed, Timestamp::now());
        let how = PostParams::default();
        let call = self.leases.replace(&self.config.name, &how, &lease);
        match tokio::time::timeout_at(self.deadline(), call).await {
            Ok(Ok(_)) => tracing::info!(lease = self.config.lease(), "gave the lease back"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.config.lease(), %error, "could not give the lease back");
            }
            Err(_) => tracing::warn!(
                lease = self.config.lease(),
                "no answer while giving the lease back"
            ),
        }
    }
}

enum Held {
    Us,
    Contested,
    Other(String),
}

/// Reads the state at the moment of a scrape.
#[derive(Debug)]
struct LeadingGauge {
    leading: Leading,
    name: String,
}

impl Collector for LeadingGauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Whether this process leads";
        let mut metric =
            encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
        let labels = [("name", self.name.as_str())];
        ConstGauge::new(i64::from(self.leading.get())).encode(metric.encode_family(&labels)?)
    }
}

/// The renewing task, ended together with the election.
struct Renewal(tokio::task::JoinHandle<Result<(), Error>>);

impl Renewal {
    async fn ended(&mut self) -> Result<(), Error> {
        match (&mut self.0).await {
            Ok(outcome) => outcome,
            Err(error) => Err(Error::TaskEnded {
                task: "lease renewal".into(),
                reason: error.to_string(),
            }),
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
