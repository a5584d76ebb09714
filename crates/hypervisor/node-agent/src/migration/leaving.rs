// SPDX-License-Identifier: Apache-2.0
//! Follows one migration away from this host, from its first sign to its end. One task per migration: it samples once a
//! second, writes what changed, and may be slow without holding up anything else.

use std::time::Duration;

use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{JobOperation, MigrationPhase, MigrationStatus};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::retry::Backoff;
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::error::code;
use cobaltcore_libvirt::types::Domain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::elsewhere::Elsewhere;
use super::figures::JobParams;
use super::object::{Object, Side, is_final};
use super::track::{Outcome, Seen, Track, Verdict};
use crate::context::Context;
use crate::metrics::{Metrics, PhaseLabel, ServerLabel};
use crate::run::whole_second;

const SAMPLE: Duration = Duration::from_secs(1);
/// Between two looks at a job that may have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long the final figures may take after the guest has left.
const FINAL_FIGURES: Duration = Duration::from_secs(2);
/// How long an unknown outcome is looked for.
const RESOLVE: Duration = Duration::from_mins(10);
const RESOLVE_PAUSE: Duration = Duration::from_secs(10);
/// How long a final state is tried to be written before it is given up.
const FINAL_WRITE: Duration = Duration::from_mins(30);

/// What a follower is told.
#[derive(Debug, Clone)]
pub(super) enum Signal {
    JobCompleted(JobParams),
    Iteration(u64),
    Life {
        event: i32,
        detail: i32,
    },
    Lost,
    /// Connected again; whether the guest runs here.
    Back {
        connection: Connection,
        active: bool,
    },
}

/// How a follower begins.
#[derive(Debug, Clone)]
pub(super) enum Opening {
    /// Something was noticed.
    Noticed(Option<Signal>),
    /// An object says that a migration runs, libvirt knows of none.
    Unfinished {
        /// Whether the guest runs here.
        active: bool,
    },
}

struct Leaving {
    context: Context,
    server: Uuid,
    connection: Option<Connection>,
    track: Track,
    object: Object,
    started: Timestamp,
    attempt: Option<i64>,
    origin: String,
    counted: Counted,
    /// Whether its beginning has still to be told.
    news: bool,
}

/// A migration among those under way, for as long as it is followed.
struct Counted {
    metrics: Metrics,
    server: ServerLabel,
    phase: Option<PhaseLabel>,
}

impl Counted {
    fn new(metrics: Metrics, server: Uuid) -> Self {
        Self {
            metrics,
            server: ServerLabel {
                server: server.to_string(),
            },
            phase: None,
        }
    }

    fn enter(&mut self, phase: &MigrationPhase, remaining: Option<u64>) {
        let phase = PhaseLabel::from(phase);
        if self.phase.as_ref() != Some(&phase) {
            self.leave();
            self.metrics.migrations.get_or_create(&phase).inc();
            self.phase = Some(phase);
        }
        if let Some(bytes) = remaining {
            let gauge = self.metrics.migration_remaining.get_or_create(&self.server);
            gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    fn leave(&mut self) {
        if let Some(phase) = self.phase.take() {
            self.metrics.migrations.get_or_create(&phase).dec();
        }
        self.metrics.migration_remaining.remove(&self.server);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Follows one migration to its end. What it was told after that belongs to the next one and is given back.
pub(super) async fn follow(
    context: Context,
    server: Uuid,
    connection: Connection,
    unnamed_jobs: bool,
    opening: Opening,
    mut signals: mpsc::Receiver<Signal>,
) -> Vec<Signal> {
    let object = Object::new(&context, server, Side::Source);
    let mut leaving = Leaving {
        counted: Counted::new(context.metrics.clone(), server),
        news: false,
        origin: context.node_label(),
        context,
        server,
        connection: Some(connection),
        track: Track::new(unnamed_jobs),
        object,
        started: whole_second(Timestamp::now()),
        attempt: None,
    };
    let outcome = match opening {
        Opening::Unfinished { active } => leaving.resolve(active, &mut signals).await,
        Opening::Noticed(first) => leaving.observe(first, &mut signals).await,
    };
    if let Some(outcome) = outcome {
        leaving.finish(outcome).await;
    }
    rest(signals)
}

/// What was told and not looked at. After this nothing more can be told.
pub(super) fn rest(mut signals: mpsc::Receiver<Signal>) -> Vec<Signal> {
    signals.close();
    std::iter::from_fn(|| signals.try_recv().ok()).collect()
}

impl Leaving {
    async fn observe(
        &mut self,
        first: Option<Signal>,
        signals: &mut mpsc::Receiver<Signal>,
    ) -> Option<Outcome> {
        let mut verdict = match first.and_then(|signal| self.seen(signal)) {
            Some(seen) => self.track.see(seen),
            None => Verdict::GoOn,
        };
        let mut next_sample = Instant::now();
        let mut overdue: Option<Instant> = None;
        loop {
            match verdict {
                Verdict::GoOn => {}
                Verdict::NoMigration => return None,
                Verdict::Ended(outcome) => return Some(outcome),
            }
            if self.track.left() {
                overdue.get_or_insert_with(|| Instant::now() + FINAL_FIGURES);
            }
            let sampling = self.connection.is_some() && !self.track.left();
            verdict = tokio::select! {
                biased;
                signal = signals.recv() => match signal {
                    None => return None,
                    Some(Signal::Back { connection, active: false }) => {
                        self.connection = Some(connection);
                        return self.resolve(false, signals).await;
                    }
                    Some(signal) => match self.seen(signal) {
                        Some(seen) => self.track.see(seen),
                        None => Verdict::GoOn,
                    },
                },
                () = sleep_until(overdue.unwrap_or(next_sample)), if overdue.is_some() => self.track.see(Seen::Overdue),
                () = sleep_until(next_sample), if sampling => {
                    let verdict = self.sample().await;
                    next_sample = Instant::now() + if self.track.doubtful() || !self.track.confirmed() { LOOK_AGAIN } else { SAMPLE };
                    verdict
                }
            };
        }
    }

    /// What a signal means for the judgement; losing and regaining libvirt means nothing.
    fn seen(&mut self, signal: Signal) -> Option<Seen> {
        match signal {
            Signal::JobCompleted(params) => Some(Seen::JobCompleted(params)),
            Signal::Iteration(iteration) => Some(Seen::Iteration(iteration)),
            Signal::Life { event, detail } => Some(Seen::Life { event, detail }),
            Signal::Lost => {
                self.connection = None;
                None
            }
            Signal::Back { connection, .. } => {
                self.connection = Some(connection);
                None
            }
        }
    }

    async fn sample(&mut self) -> Verdict {
        let Some(connection) = &self.connection else {
            return Verdict::GoOn;
        };
        let seen = match connection.job_stats(&Domain::by_uuid(self.server)).await {
            Ok(stats) if stats.kind == 0 => Seen::NoJob,
            Ok(stats) => Seen::Sample(stats),
            Err(error) if error.is_no_domain() => Seen::Gone,
            Err(error) if error.code() == Some(code::OPERATION_INVALID) => Seen::NoJob,
            Err(error) if error.is_unsupported() => return Verdict::NoMigration,
            Err(error) => {
                // Losing the connection is told by a signal; anything else may pass.
                tracing::debug!(server = %self.server, %error, "no statistics of a migration");
                return Verdict::GoOn;
            }
        };
        let verdict = self.track.see(seen);
        if verdict == Verdict::GoOn && self.track.confirmed() && !self.track.doubtful() {
            self.show_running().await;
        }
        verdict
    }

    /// Writes where the migration stands.
    async fn show_running(&mut self) {
        if self.attempt.is_none() {
            self.begin().await;
        }
        let phase = self.track.phase();
        self.counted.enter(&phase, self.track.figures().remaining());
        let mut status = self.status();
        status.type_ = Some(self.track.type_());
        status.phase = Some(phase);
        match self.object.write(&status).await {
            Ok(()) => self.tell_beginning(),
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "progress of a migration not written");
            }
        }
    }

    fn tell_beginning(&mut self) {
        if std::mem::take(&mut self.news) {
            let note = format!("the server begins to leave {}", self.origin);
            let happening = Happening::normal(EventReason::MigrationStarted, "Migrating", note);
            self.object.tell(happening);
        }
    }

    /// Finds out which migration of this server it is. One that this host already follows goes on after a restart.
    async fn begin(&mut self) {
        let before = match self.object.read().await {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "earlier migrations of a server not known");
                None
            }
        };
        let own = self.context.config.host.as_str();
        let attempts = before.as_ref().and_then(|status| status.attempt).unwrap_or(0);
        let resumed = before
            .as_ref()
            .filter(|status| status.source_node == own && !is_final(status));
        if let Some(status) = resumed {
            self.attempt = Some(attempts.max(1));
            if let Some(Time(started)) = &status.started {
                self.started = *started;
            }
        } else {
            let attempt = attempts.saturating_add(1);
            self.attempt = Some(attempt);
            self.news = true;
            tracing::info!(server = %self.server, attempt, "migration began");
        }
        let came_here = before.is_some_and(|status| status.destination_node == own);
        if came_here && let Err(error) = self.object.forget_arrival().await {
            tracing::warn!(server = %self.server, %error, "an earlier arrival is still in the object");
        }
    }

    fn status(&self) -> MigrationStatus {
        let mut status = MigrationStatus::default();
        self.track.figures().show(&mut status);
        status.origin.clone_from(&self.origin);
        self.context
            .config
            .host
            .as_str()
            .clone_into(&mut status.source_node);
        status.operation.get_or_insert(JobOperation::MigrationOut);
        status.started = Some(Time(self.started));
        status.updated = Some(Time(whole_second(Timestamp::now())));
        status.attempt = self.attempt;
        status
    }

    async fn finish(&mut self, outcome: Outcome) {
        if self.attempt.is_none() {
            self.begin().await;
        }
        let mut status = self.status();
        status.finished = status.updated.clone();
        status.type_ = Some(outcome.type_.clone());
        status.phase = Some(outcome.phase.clone());
        if !outcome.error.is_empty() && status.err_msg.is_empty() {
            status.err_msg.clone_from(&outcome.error);
        }
        self.count(&outcome.phase);
        let began = Instant::now();
        let mut failures = 0;
        while let Err(error) = self.object.write(&status).await {
            failures += 1;
            tracing::warn!(server = %self.server, %error, failures, "end of a migration not written, will be tried again");
            if began.elapsed() > FINAL_WRITE {
                tracing::error!(server = %self.server, "end of a migration given up");
                return;
            }
            sleep(Backoff::CONNECT.random_pause(failures)).await;
        }
        // A migration that was over before it could be sampled began as well.
        self.tell_beginning();
        self.tell(&outcome);
    }

    fn count(&mut self, phase: &MigrationPhase) {
        self.counted.leave();
        let metrics = &self.context.metrics;
        metrics.migrations_ended.get_or_create(&phase.into()).inc();
        let downtime = self.track.figures().downtime_ms();
        if let Some(downtime) = downtime.filter(|_| *phase == MigrationPhase::Completed) {
            metrics.migration_downtime.observe(downtime as f64 / 1000.0);
        }
    }

    fn tell(&self, outcome: &Outcome) {
        tracing::info!(server = %self.server, phase = outcome.phase.as_str(), error = outcome.error, "migration ended");
        let happening = match outcome.phase {
            MigrationPhase::Completed => Happening::normal(
                EventReason::MigrationCompleted,
                "Migrating",
                "the server has left this host",
            ),
            _ => Happening::warning(EventReason::MigrationFailed, "Migrating", outcome.error.clone()),
        };
        self.object.tell(happening);
    }

    /// Finds out how a migration ended that nobody watched. On doubt it says so and keeps looking for a while.
    async fn resolve(&mut self, mut active: bool, signals: &mut mpsc::Receiver<Signal>) -> Option<Outcome> {
        let began = Instant::now();
        let mut said = false;
        let mut elsewhere = Elsewhere::new(&self.context, self.server);
        loop {
            match self.object.read().await {
                // No answer is not the answer that there is nothing to find out.
                Err(error) => {
                    tracing::warn!(server = %self.server, %error, "a migration whose end nobody saw is not known");
                }
                Ok(before) => {
                    let status = before?;
                    if is_final(&status) || status.source_node != self.context.config.host.as_str() {
                        return None;
                    }
                    self.attempt = status.attempt.or(Some(1));
                    if let Some(Time(started)) = &status.started {
                        self.started = *started;
                    }
                    if active {
                        return Some(Outcome::failed(super::track::ENDED_SILENTLY));
                    }
                    if elsewhere.has(&status.destination_node).await {
                        return Some(Outcome::completed());
                    }
                    if !said {
                        said = true;
                        self.show_unknown().await;
                    }
                }
            }
            if began.elapsed() > RESOLVE {
                return None;
            }
            tokio::select! {
                () = sleep(RESOLVE_PAUSE) => {}
                signal = signals.recv() => if let Signal::Back { active: now, .. } = signal? { active = now },
            }
        }
    }

    async fn show_unknown(&mut self) {
        let mut status = self.status();
        status.phase = Some(MigrationPhase::Unknown);
        "outcome unknown".clone_into(&mut status.err_msg);
        if let Err(error) = self.object.write(&status).await {
            tracing::warn!(server = %self.server, %error, "a migration of unknown outcome not written");
        }
    }
}
