// SPDX-License-Identifier: Apache-2.0
//! The onboarding controller: finds a new host in Nova, has it prepared, proves it with a test
//! server that boots on exactly this host, and hands it over to production. It leaves aggregates
//! and traits to their controllers and waits for them.

mod decide;
mod model;

use std::sync::Arc;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, OnboardingProgress, annotations, labels};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::Intent;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::Error;
use crate::cloud::{Cloud, SmokeTest};
use crate::config::HaMode;
use crate::context::Context;
use crate::eviction::compute_host;
use crate::known_fields::OwnKind;
use crate::look::{Statements, age};
use crate::memory::Memories;
use crate::metrics::OfReason;
use crate::seen::LookAtHypervisor as _;

pub use decide::{Decision, asks_servers, decide};
pub use model::*;

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Onboarding> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| {
        change.differs(|hypervisor| {
            let known = hypervisor.known();
            let matters = [
                HypervisorCondition::AggregatesUpdated,
                HypervisorCondition::TraitsUpdated,
                HypervisorCondition::HaEnabled,
                HypervisorCondition::LibVirtConnection,
                HypervisorCondition::NetworkReady,
                HypervisorCondition::Offboarded,
            ];
            (
                hypervisor.metadata.generation,
                hypervisor.metadata.labels.clone(),
                hypervisor
                    .annotations()
                    .get(annotations::RESTART_ONBOARDING.as_str())
                    .cloned(),
                hypervisor.onboarding(),
                known.aggregates.clone(),
                matters.map(|type_| hypervisor.is(type_)),
                known.service_id.clone(),
            )
        })
    });
    let onboarding = Onboarding {
        context: context.clone(),
        cloud: cloud.clone(),
        memory: Memories::of(hypervisors),
    };
    SharedRunner::new("onboarding", hypervisors.store(), onboarding).on(changed)
}

/// What is remembered of one host between passes.
#[derive(Clone, Debug, Default)]
struct Memory {
    failure: Option<Failure>,
    failed_at: Option<Timestamp>,
    /// For definitions that do not hold it.
    progress: OnboardingProgress,
    identity: Identity,
}

/// Brings hosts in.
pub(crate) struct Onboarding {
    context: Context,
    cloud: Cloud,
    memory: Memories<Hypervisor, Memory>,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// One step.
    Step(Step),
    /// Write the report.
    Report(Box<(Statements, Identity, OnboardingProgress)>),
}

impl Reconciler for Onboarding {
    type Object = Hypervisor;
    type Facts = Snapshot;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Snapshot, Error> {
        let mut snapshot = self.snapshot(hypervisor);
        let wanted = snapshot.lifecycle && snapshot.mode != cobaltcore_api::Maintenance::Termination;
        if wanted && !snapshot.identity.is_known() {
            snapshot.lookup = self.look_up(hypervisor).await;
        }
        if asks_servers(&snapshot) {
            match self.cloud.test_servers(&smoke_test(hypervisor)).await {
                Ok(servers) => snapshot.servers = Some(servers),
                Err(error) => {
                    snapshot.failure.get_or_insert(Failure {
                        text: format!("could not list test servers: {error}"),
                        counts: false,
                    });
                }
            }
        }
        Ok(snapshot)
    }

    fn decide(&self, _: &Hypervisor, snapshot: &Snapshot) -> Plan<Action> {
        let Decision {
            steps,
            conditions,
            identity,
            progress,
            next,
        } = decide(snapshot);
        let report = Box::new((conditions, identity, progress));
        let action = |step| match step {
            Step::Report => Action::Report(report.clone()),
            step => Action::Step(step),
        };
        Plan {
            actions: steps.into_iter().map(action).collect(),
            next,
        }
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Report(report) => self.report(hypervisor, &report.0, &report.1, &report.2).await,
            Action::Step(step) => self.step(hypervisor, step).await,
        }
    }
}

fn smoke_test(hypervisor: &Hypervisor) -> SmokeTest {
    SmokeTest {
        hypervisor: hypervisor.name_any(),
        uid: hypervisor.uid().unwrap_or_default(),
        zone: hypervisor.label(labels::ZONE).unwrap_or_default().to_owned(),
        compute_host: compute_host(hypervisor),
    }
}

impl Onboarding {
    fn settings(&self) -> Settings {
        let config = &self.context.config;
        Settings {
            max_attempts: config.onboarding_max_attempts,
            retry_interval: config.onboarding_retry_interval.0,
            register_timeout: config.onboarding_register_timeout.0,
            build_limit: config.test_build_timeout.0,
            boot_limit: config.test_boot_timeout.0,
            test_aggregate: config.test_aggregate.clone(),
            min_libvirt: config.min_libvirt_version.clone(),
            ha: config.ha_mode != HaMode::Off,
            ha_timeout: config.ha_enable_timeout.0,
        }
    }

    fn snapshot(&self, hypervisor: &Hypervisor) -> Snapshot {
        let (known, spec) = (hypervisor.known(), &hypervisor.spec);
        // A failure is judged once.
        let memory = self.memory.with(hypervisor, |memory| Memory {
            failure: memory.failure.take(),
            ..memory.clone()
        });
        let created = hypervisor.metadata.creation_timestamp.as_ref();
        let stored = self.context.fields.has(OwnKind::Hypervisor, "onboarding");
        Snapshot {
            now: self.context.now(),
            settings: self.settings(),
            created: created.map_or(self.context.now(), |created| created.0),
            lifecycle: spec.lifecycle_enabled,
            mode: spec.maintenance.clone(),
            zone: hypervisor.label(labels::ZONE).map(str::to_owned),
            skip_tests: spec.skip_tests,
            high_availability: spec.high_availability,
            identity: Identity {
                hypervisor_id: known.hypervisor_id.clone(),
                service_id: known.service_id.clone(),
                compute_host: or(&known.compute_host, &memory.identity.compute_host),
                hypervisor_hostname: or(&known.hypervisor_hostname, &memory.identity.hypervisor_hostname),
            },
            lookup: Lookup::Unasked,
            conditions: known.conditions.clone(),
            aggregates: known.aggregates.iter().map(|one| one.name.clone()).collect(),
            libvirt: known.lib_virt_version.clone(),
            network_agents: self.context.caches.has_kind(crate::network::DEFINITION),
            progress: if stored {
                known.onboarding.clone().unwrap_or_default()
            } else {
                memory.progress
            },
            restart: hypervisor
                .annotations()
                .get(annotations::RESTART_ONBOARDING.as_str())
                .is_some_and(|value| !value.is_empty()),
            token: smoke_test(hypervisor).token(),
            servers: None,
            failure: memory.failure,
            failed_at: memory.failed_at,
        }
    }

    /// Finds the host in Nova by what Kubernetes calls it.
    async fn look_up(&self, hypervisor: &Hypervisor) -> Lookup {
        let name = hypervisor.name_any();
        let hostname = hypervisor.label(labels::HOSTNAME).unwrap_or_default();
        let names: Vec<&str> = [hostname, &name]
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect();
        let short = names
            .first()
            .and_then(|name| name.split('.').next())
            .unwrap_or_default();
        match self.cloud.hypervisors_matching(short).await {
            Ok(candidates) => choose(&names, &candidates),
            Err(error) => Lookup::Trouble(error.to_string()),
        }
    }

    async fn report(
        &self,
        hypervisor: &Arc<Hypervisor>,
        conditions: &Statements,
        identity: &Identity,
        progress: &OnboardingProgress,
    ) -> Result<(), Error> {
        self.remember(hypervisor, |memory| {
            memory.progress = progress.clone();
            memory.identity = identity.clone();
        });
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let progress = serde_json::to_value(progress).map_err(|source| Error::Json {
            what: "the progress of an onboarding".to_owned(),
            source,
        })?;
        let mut intent = Intent::new()
            .field("hypervisorId", text(&identity.hypervisor_id))
            .field("serviceId", text(&identity.service_id));
        let additional = [
            ("computeHost", json!(text(&identity.compute_host))),
            ("hypervisorHostname", json!(text(&identity.hypervisor_hostname))),
            ("onboarding", progress),
        ];
        for (name, value) in additional {
            intent = self.context.fields.add(OwnKind::Hypervisor, intent, name, value);
        }
        let intent = conditions.onto(intent);
        self.context
            .write_status(FieldManager::Onboarding, hypervisor.as_ref(), &intent)
            .await
            .map(drop)
    }

    async fn step(&self, hypervisor: &Arc<Hypervisor>, step: Step) -> Result<(), Error> {
        match step {
            Step::Report => Ok(()),
            Step::Tell(word) => {
                self.tell(hypervisor, &word);
                Ok(())
            }
            Step::FailedAt(at) => {
                self.remember(hypervisor, |memory| memory.failed_at = Some(at));
                Ok(())
            }
            Step::TakeRestart => self.take_restart(hypervisor).await,
            Step::Enable => {
                let enabled = self.cloud.enable_service(&hypervisor.known().service_id).await;
                enabled.map_err(|error| Error::OpenStack(error.to_string()))
            }
            Step::Create => {
                let test = smoke_test(hypervisor);
                let created = self.cloud.create_test_server(&test, &self.context.config).await;
                self.note(hypervisor, created, "could not create the test server");
                Ok(())
            }
            Step::Delete(id) => {
                let deleted = self.cloud.delete_test_server(&id).await;
                self.note(hypervisor, deleted, "failed to terminate instance");
                Ok(())
            }
        }
    }

    fn remember(&self, hypervisor: &Hypervisor, change: impl FnOnce(&mut Memory)) {
        self.memory.with(hypervisor, change);
    }

    /// A failed request is told by the next pass, and counts as a test if it would fail again.
    fn note(&self, hypervisor: &Hypervisor, outcome: crate::cloud::Result<()>, what: &str) {
        if let Err(error) = outcome
            && !error.outcome_unknown()
        {
            let failure = Failure {
                text: format!("{what}: {error}"),
                counts: error.is_permanent(),
            };
            self.remember(hypervisor, |memory| memory.failure = Some(failure));
        }
    }

    async fn take_restart(&self, hypervisor: &Hypervisor) -> Result<(), Error> {
        let name = hypervisor.name_any();
        let api: Api<Hypervisor> = Api::all(self.context.client.clone());
        let patch = json!({"metadata": {"annotations": {annotations::RESTART_ONBOARDING.as_str(): null}}});
        let params = PatchParams {
            field_manager: Some(FieldManager::Onboarding.as_str().to_owned()),
            ..PatchParams::default()
        };
        self.remember(hypervisor, |memory| *memory = Memory::default());
        self.context
            .call(
                format!("answering the restart of Hypervisor {name}"),
                api.patch(&name, &params, &Patch::Merge(&patch)),
            )
            .await
            .map(drop)
    }

    fn tell(&self, hypervisor: &Arc<Hypervisor>, word: &Word) {
        let metrics = &self.context.metrics;
        let count = |reason| {
            metrics
                .onboarding_failures
                .get_or_create(&OfReason { reason })
                .inc();
        };
        let happening = match word {
            Word::Stage(text) => Happening::normal(EventReason::OnboardingStage, "Onboarding", text),
            Word::TestFailed(text) => {
                count("test");
                Happening::warning(EventReason::OnboardingTestFailed, "Onboarding", text)
            }
            Word::Aborted(text) => {
                count("aborted");
                Happening::warning(EventReason::OnboardingAborted, "Onboarding", text)
            }
            Word::Succeeded => {
                let progress = hypervisor.known().onboarding.as_ref();
                if let Some(began) = progress.and_then(|progress| progress.started_at.as_ref()) {
                    let took = age(self.context.now(), began.0);
                    metrics.onboarding_seconds.observe(took.as_secs_f64());
                }
                Happening::normal(
                    EventReason::OnboardingSucceeded,
                    "Onboarding",
                    "onboarding completed",
                )
            }
            Word::HaMissing => Happening::warning(
                EventReason::HaServiceMissing,
                "Onboarding",
                "the HA service does not enable high availability for this host",
            ),
        };
        self.context.recorder.record(hypervisor.as_ref(), happening);
    }
}

fn or(one: &str, other: &str) -> String {
    if one.is_empty() { other } else { one }.to_owned()
}

#[cfg(test)]
mod tests;
