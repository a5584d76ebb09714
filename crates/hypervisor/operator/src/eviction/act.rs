// SPDX-License-Identifier: Apache-2.0
//! Carries the steps of an eviction out. A refusal by Nova is remembered and judged by the next
//! pass, so that one server never holds up the others; a request whose outcome is unknown counts
//! as asked until Nova shows otherwise.

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::names::ServerId;
use cobaltcore_api::reasons::{EventReason, IncomingMigrationsReason};
use cobaltcore_api::{Eviction, InFlightMigration, MoveKind, annotations, finalizers};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{Intent, NewCondition, Written};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;

use super::Evictor;
use super::model::{Incoming, Refusal, RefusalKind, Step, Word};
use super::report::Report;
use crate::Error;
use crate::cloud;
use crate::finalizer::{self, Finalizer};
use crate::known_fields::OwnKind;
use crate::metrics::{OfKind, OfMigration};

impl Evictor {
    /// Writes the report on the Eviction, and on its Hypervisor what concerns it.
    pub(super) async fn report(&self, eviction: &Arc<Eviction>, report: &Report) -> Result<(), Error> {
        let intent = self.intent(report)?;
        let written = self
            .context
            .write_status(FieldManager::Eviction, eviction.as_ref(), &intent);
        let written = written.await?;
        self.memory.with(eviction, |memory| {
            memory.reported = Some(report.status.clone());
            if let Written::Applied(object) = written {
                memory.written = Some(Arc::new(*object));
            }
        });
        Ok(())
    }

    fn intent(&self, report: &Report) -> Result<Intent, Error> {
        let what = "the status of an eviction";
        let fields = serde_json::to_value(&report.status).map_err(|source| Error::Json {
            what: what.to_owned(),
            source,
        })?;
        let mut intent = Intent::new();
        if let Value::Object(fields) = fields {
            for (name, value) in fields {
                intent = self.context.fields.add(OwnKind::Eviction, intent, &name, value);
            }
        }
        Ok(report.conditions.onto(intent))
    }

    /// Says on the Hypervisor how incoming migrations stand.
    pub(super) async fn report_incoming(
        &self,
        eviction: &Eviction,
        incoming: &Incoming,
    ) -> Result<(), Error> {
        let Some(hypervisor) = self.context.caches.hypervisors.get(&eviction.spec.hypervisor) else {
            return Ok(());
        };
        let type_ = HypervisorCondition::IncomingMigrationsSettled;
        let condition = match incoming {
            Incoming::Settled => NewCondition::yes(
                type_,
                IncomingMigrationsReason::Settled,
                "No migration towards this host is under way",
            ),
            Incoming::Aborting(count) => NewCondition::no(
                type_,
                IncomingMigrationsReason::Aborting,
                format!("{count} incoming migration(s) are being stopped"),
            ),
            Incoming::Waiting(count) => NewCondition::no(
                type_,
                IncomingMigrationsReason::Waiting,
                format!("{count} incoming migration(s) under way"),
            ),
        };
        let intent = Intent::new().condition(condition);
        let write = self
            .context
            .write_status(FieldManager::Eviction, hypervisor.as_ref(), &intent);
        write.await.map(drop)
    }

    pub(super) async fn step(&self, eviction: &Arc<Eviction>, step: Step) -> Result<(), Error> {
        match step {
            Step::Hold => self.finalizer(eviction, Finalizer::Hold).await,
            Step::Release => self.finalizer(eviction, Finalizer::Release).await,
            Step::TakeRetry => self.take_retry(eviction).await,
            Step::Move {
                server,
                kind,
                volume_backed,
            } => {
                self.start(eviction, &server, &kind, volume_backed).await;
                Ok(())
            }
            Step::Confirm(server) => {
                if let Err(error) = self.cloud.confirm_resize(&server).await {
                    tracing::warn!(%server, %error, "a cold move could not be confirmed");
                }
                Ok(())
            }
            Step::Abort { server, migration } => {
                if let Err(error) = self.cloud.abort_migration(&server, migration).await {
                    tracing::warn!(%server, migration, %error, "a migration could not be stopped");
                }
                Ok(())
            }
            Step::Tell(word) => {
                self.tell(eviction, &word);
                Ok(())
            }
        }
    }

    async fn start(&self, eviction: &Eviction, server: &ServerId, kind: &MoveKind, volume_backed: bool) {
        let asked = match kind {
            MoveKind::Live => self.cloud.live_migrate(server, volume_backed).await,
            MoveKind::Evacuate => self.cloud.evacuate(server).await,
            MoveKind::Cold | MoveKind::Other(_) => self.cloud.cold_migrate(server).await,
        };
        let Err(error) = asked else {
            tracing::info!(%server, %kind, "asked nova to move a server");
            return;
        };
        tracing::warn!(%server, %kind, %error, "nova did not take the request to move a server");
        let Some(refusal) = refusal(&error) else {
            return;
        };
        self.count(kind, "rejected");
        let refused = Refusal {
            at: self.context.now(),
            text: error.to_string(),
            kind: refusal,
        };
        self.memory.with(eviction, |memory| {
            memory.ledger.track(server).refused = Some(refused);
        });
    }

    fn count(&self, kind: &MoveKind, result: &'static str) {
        let kind = label(kind);
        let labels = OfMigration { kind, result };
        self.context.metrics.migrations.get_or_create(&labels).inc();
    }

    /// Counts a move that succeeded, and how long it took if it was seen to begin.
    fn count_moved(&self, by: Option<&InFlightMigration>) {
        let kind = by.and_then(|by| by.kind.clone()).unwrap_or(MoveKind::Live);
        self.count(&kind, "succeeded");
        if let Some(began) = by.and_then(|by| by.started_at.as_ref()) {
            let took = crate::look::age(self.context.now(), began.0);
            let durations = &self.context.metrics.migration_seconds;
            let kind = OfKind { kind: label(&kind) };
            durations.get_or_create(&kind).observe(took.as_secs_f64());
        }
    }

    fn tell(&self, eviction: &Arc<Eviction>, word: &Word) {
        let kind = |server: &ServerId| {
            let status = eviction.status.as_ref();
            let mut entries = status.into_iter().flat_map(|status| &status.in_flight);
            let entry = entries.find(|entry| entry.id == server.as_str());
            entry
                .and_then(|entry| entry.kind.clone())
                .unwrap_or(MoveKind::Live)
        };
        let happening = match word {
            Word::Stuck(server, why) => {
                self.count(&kind(server), "aborted");
                let note = format!("migration of instance {server} {why}, stopping it");
                Happening::warning(EventReason::MigrationStuck, "Evicting", note)
            }
            Word::Moved(_, by) => {
                self.count_moved(by.as_ref());
                return;
            }
            Word::Failed(server, why) => {
                self.count(&kind(server), "failed");
                let note = format!("migration of instance {server} failed: {why}");
                Happening::warning(EventReason::MigrationFailed, "Evicting", note)
            }
            Word::GivenUp(server, why) => {
                let note = format!("instance {server} cannot be moved: {why}");
                Happening::warning(EventReason::InstanceNotMigratable, "Evicting", note)
            }
            Word::Succeeded(text) => {
                let began = eviction
                    .status
                    .as_ref()
                    .and_then(|status| status.started_at.as_ref());
                if let Some(began) = began {
                    let took = crate::look::age(self.context.now(), began.0);
                    self.context.metrics.eviction_seconds.observe(took.as_secs_f64());
                }
                Happening::normal(EventReason::EvictionSucceeded, "Evicting", text)
            }
            Word::Ended(text) => Happening::warning(EventReason::EvictionFailed, "Evicting", text),
            Word::Preflight(text) => Happening::normal(EventReason::PreflightWaiting, "Preflight", text),
        };
        self.context.recorder.record(eviction.as_ref(), happening);
    }

    async fn finalizer(&self, eviction: &Eviction, how: fn(&'static str) -> Finalizer) -> Result<(), Error> {
        let change = how(finalizers::EVICTION.as_str());
        finalizer::set(&self.context, FieldManager::Eviction, eviction, change).await
    }

    async fn take_retry(&self, eviction: &Eviction) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {annotations::RETRY.as_str(): null}}});
        let name = eviction.name_any();
        let api: Api<Eviction> = Api::all(self.context.client.clone());
        let params = PatchParams {
            field_manager: Some(FieldManager::Eviction.as_str().to_owned()),
            ..PatchParams::default()
        };
        let outcome = self
            .context
            .call(
                format!("answering the retry of Eviction {name}"),
                api.patch_metadata(&name, &params, &Patch::Merge(&patch)),
            )
            .await;
        match outcome {
            Err(error) if error.is_not_found() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

/// A kind of move as metrics name it.
fn label(kind: &MoveKind) -> &'static str {
    match kind {
        MoveKind::Live => "live",
        MoveKind::Evacuate => "evacuate",
        MoveKind::Cold | MoveKind::Other(_) => "cold",
    }
}

/// How lasting a failed request is; nothing if it may have been done all the same, or if the
/// server is gone, which the next list shows.
fn refusal(error: &cloud::Error) -> Option<RefusalKind> {
    if error.is_not_found() || error.outcome_unknown() {
        None
    } else if error.is_conflict() {
        Some(RefusalKind::Conflict)
    } else if error.is_permanent() {
        Some(RefusalKind::Permanent)
    } else {
        Some(RefusalKind::Trouble)
    }
}
