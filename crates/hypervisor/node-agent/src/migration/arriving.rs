// SPDX-License-Identifier: Apache-2.0
//! Follows one guest that arrives at this host. The source tells the story of a migration; the destination only adds
//! where it went to, and its end when the source does not.

use std::time::Duration;

use cobaltcore_api::{JobOperation, MigrationStatus};
use cobaltcore_kit::retry::Backoff;
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::types::Domain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::figures::{Figures, MIGRATION_IN, operation};
use super::leaving::{Signal, rest};
use super::object::{Object, Side, is_final};
use super::track::Outcome;
use crate::context::Context;
use crate::libvirt::life;
use crate::run::whole_second;

/// libvirt needs a moment to put the final figures where they can be read.
const FIRST_LOOK: Duration = Duration::from_millis(200);
const LOOKS: u32 = 5;
/// How often a write is tried, over about half a minute.
const WRITES: u32 = 10;
/// How long the source has to write the end itself.
const LEAVE_TO_SOURCE: Duration = Duration::from_secs(5);
/// A guest that neither came nor went in this time is not being migrated any more.
const LONGEST: Duration = Duration::from_hours(24);

struct Arriving {
    context: Context,
    server: Uuid,
    connection: Option<Connection>,
    object: Object,
    /// The number of the last migration that had ended before this one.
    ended_before: Option<i64>,
    /// Whether the object says where the guest goes to.
    announced: bool,
}

/// Follows one arrival to its end. What it was told after that belongs to the next one and is given back.
pub(super) async fn follow(
    context: Context,
    server: Uuid,
    connection: Connection,
    quiet_driver: bool,
    mut signals: mpsc::Receiver<Signal>,
) -> Vec<Signal> {
    let object = Object::new(&context, server, Side::Destination);
    let mut arriving = Arriving {
        context,
        server,
        connection: Some(connection),
        object,
        ended_before: None,
        announced: false,
    };
    arriving.announce().await;
    // A driver that announces nothing starts a guest when it has arrived.
    let outcome = if quiet_driver {
        Some(Outcome::completed())
    } else {
        arriving.wait(&mut signals).await
    };
    let mut next = Vec::new();
    if let Some(outcome) = outcome {
        next.extend(arriving.finish(outcome, &mut signals).await);
    }
    next.extend(rest(signals));
    next
}

impl Arriving {
    /// Says where the guest goes to.
    async fn announce(&mut self) {
        if let Ok(Some(status)) = self.object.read().await
            && is_final(&status)
        {
            self.ended_before = status.attempt.or(Some(0));
        }
        self.announced = self.write_patiently(&self.destination()).await;
    }

    /// Writes, and tries again for a while: both sides may create the object at the same moment, and the API may be
    /// away. Returns whether it worked.
    async fn write_patiently(&mut self, status: &MigrationStatus) -> bool {
        for failures in 1..=WRITES {
            match self.object.write(status).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(server = %self.server, %error, failures, "arrival of a guest not written");
                    sleep(Backoff::CONNECT.random_pause(failures)).await;
                }
            }
        }
        false
    }

    fn destination(&self) -> MigrationStatus {
        MigrationStatus {
            destination: self.context.node_label(),
            destination_node: self.context.config.host.to_string(),
            ..MigrationStatus::default()
        }
    }

    /// Until the guest runs here, or is given up.
    async fn wait(&mut self, signals: &mut mpsc::Receiver<Signal>) -> Option<Outcome> {
        let limit = Instant::now() + LONGEST;
        loop {
            match timeout_at(limit, signals.recv()).await.ok()?? {
                Signal::Life {
                    event: life::RESUMED,
                    detail: 1,
                } => return Some(Outcome::completed()),
                Signal::Life {
                    event: life::RESUMED,
                    detail: 4,
                } => return Some(Outcome::failed("post-copy failed")),
                Signal::Life {
                    event: life::STOPPED, ..
                } => return Some(Outcome::failed(super::track::ENDED_SILENTLY)),
                Signal::Lost => self.connection = None,
                Signal::Back { connection, active } => {
                    let running = self.is_running(&connection).await;
                    self.connection = Some(connection);
                    match (active, running) {
                        (false, _) => return Some(Outcome::failed(super::track::ENDED_SILENTLY)),
                        (true, true) => return Some(Outcome::completed()),
                        (true, false) => {}
                    }
                }
                _ => {}
            }
        }
    }

    async fn is_running(&self, connection: &Connection) -> bool {
        const RUNNING: i32 = 1;
        let state = connection.state(&Domain::by_uuid(self.server)).await;
        state.is_ok_and(|state| state.state == RUNNING)
    }

    /// Leaves the end to the source for a while, then writes it. Returns the sign of the next arrival, if it came.
    async fn finish(&mut self, outcome: Outcome, signals: &mut mpsc::Receiver<Signal>) -> Option<Signal> {
        let until = Instant::now() + LEAVE_TO_SOURCE;
        let figures = if outcome.error.is_empty() {
            self.final_figures().await
        } else {
            None
        };
        let mut next = None;
        while let Ok(Some(signal)) = timeout_at(until, signals.recv()).await {
            if matches!(
                signal,
                Signal::Life {
                    event: life::STARTED,
                    ..
                }
            ) {
                next = Some(signal);
                break;
            }
        }
        match self.object.read().await {
            // The guest is leaving again: the object tells of that migration now.
            Ok(Some(status)) if status.source_node == self.context.config.host.as_str() => return next,
            Ok(Some(status)) if is_final(&status) && status.attempt.or(Some(0)) != self.ended_before => {
                if !self.announced {
                    self.write_patiently(&self.destination()).await;
                }
                return next;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "cannot see whether the source wrote the end of a migration");
            }
        }
        let mut status = self.destination();
        if let Some(figures) = figures {
            figures.show(&mut status);
        }
        status.operation = Some(JobOperation::MigrationIn);
        status.type_ = Some(outcome.type_);
        status.phase = Some(outcome.phase);
        status.err_msg = outcome.error;
        status.finished = Some(Time(whole_second(Timestamp::now())));
        status.updated.clone_from(&status.finished);
        self.write_patiently(&status).await;
        next
    }

    /// The figures of the job that brought the guest here, read without taking them away from others.
    async fn final_figures(&self) -> Option<Figures> {
        let connection = self.connection.as_ref()?;
        for _ in 0..LOOKS {
            sleep(FIRST_LOOK).await;
            match connection
                .completed_job_stats(&Domain::by_uuid(self.server))
                .await
            {
                Ok(stats) if stats.kind == 3 && operation(&stats.params) == Some(MIGRATION_IN) => {
                    return Some(Figures::new(stats.params));
                }
                Err(error) if error.is_unsupported() || error.is_closed() => return None,
                _ => {}
            }
        }
        None
    }
}

/// Whether another host says that it is moving this server away. Asked where starting does not say why.
pub(super) async fn expected(context: &Context, server: Uuid) -> bool {
    let status = Object::new(context, server, Side::Destination).read().await;
    status.ok().flatten().is_some_and(|status| {
        !is_final(&status)
            && !status.source_node.is_empty()
            && status.source_node != context.config.host.as_str()
    })
}
