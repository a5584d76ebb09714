// SPDX-License-Identifier: Apache-2.0
//! The maintenance controller: the one owner of a host's compute service after onboarding, and
//! the one that asks for an Eviction when a host goes into maintenance. It promises that Cortex
//! sees every host that is out of scheduling, and that a failed eviction never looks like an
//! empty host. It leaves the moving of servers to the eviction controller.

mod decide;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::{EvictionCondition, HypervisorCondition};
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::{EventReason, EvictingReason};
use cobaltcore_api::{Eviction, EvictionSpec, Hypervisor, Maintenance as Mode, labels};
use cobaltcore_kit::controller::{Next, Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{Intent, find};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use crate::Error;
use crate::cloud::Cloud;
use crate::config::selector_keys;
use crate::context::Context;
use crate::eviction::{Service, claim_of, compute_host, controls, disabled_reason, order};
use crate::look::{Statements, message, reason, says};
use crate::memory::Memories;
use crate::metrics::OfKind;
use crate::seen::LookAtHypervisor as _;

pub use decide::{Decision, Own, Snapshot, Step, Wanted, Wish, Word, decide, wanted};

/// Why the operator evicts, in the words of the running system.
const REASON: &str = "openstack-hypervisor-operator maintenance";
/// How often an empty host is verified to be empty.
const VERIFY: Duration = Duration::from_mins(5);

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Maintenance> {
    let caches = &context.caches;
    let own = caches.hypervisors.own_triggers(|change| {
        change.differs(|hypervisor| {
            let known = hypervisor.known();
            (
                hypervisor.metadata.generation,
                known.service_id.clone(),
                known.num_instances,
                hypervisor.onboarding(),
                hypervisor.is(HypervisorCondition::NodePressure),
                says(&known.conditions, HypervisorCondition::HypervisorDisabled),
                says(&known.conditions, HypervisorCondition::Evicting),
            )
        })
    });
    let evictions = caches.evictions.triggers(|change| {
        let relevant = change.differs(|eviction| {
            let status = eviction.status.as_ref();
            let evicting = status.and_then(|status| find(&status.conditions, EvictionCondition::Evicting));
            (
                evicting.map(|said| (said.status.clone(), said.reason.clone(), said.message.clone())),
                status.map(|status| says(&status.conditions, EvictionCondition::HypervisorReEnabled)),
                eviction.metadata.deletion_timestamp.is_some(),
                eviction.metadata.finalizers.clone(),
                eviction.metadata.owner_references.clone(),
            )
        });
        let object = change.object().filter(|_| relevant);
        object.map(|eviction| ObjectRef::new(&eviction.spec.hypervisor))
    });
    let maintenance = Maintenance {
        context: context.clone(),
        cloud: cloud.clone(),
        memory: Memories::of(&caches.hypervisors),
    };
    SharedRunner::new("HypervisorMaintenance", caches.hypervisors.store(), maintenance)
        .on(own)
        .on(evictions)
}

/// What is remembered of one host: when and for what it was last verified to be empty.
#[derive(Clone, Debug)]
struct Verified {
    at: Instant,
    mode: Mode,
    instances: i64,
}

/// Keeps services and asks for evictions.
pub(crate) struct Maintenance {
    context: Context,
    cloud: Cloud,
    memory: Memories<Hypervisor, Verified>,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// One step.
    Step(Step),
    /// Write the report.
    Report(Statements, bool),
}

impl Reconciler for Maintenance {
    type Object = Hypervisor;
    type Facts = Snapshot;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Snapshot, Error> {
        self.context
            .caches
            .evictions
            .filled()
            .await
            .map_err(|error| Error::OpenStack(format!("the cache of evictions is gone: {error}")))?;
        let mut snapshot = self.snapshot(hypervisor);
        self.ask_service(hypervisor, &mut snapshot).await;
        if self.verifies(hypervisor) {
            snapshot.servers = self.ask_servers(hypervisor).await;
        }
        Ok(snapshot)
    }

    fn decide(&self, _: &Hypervisor, snapshot: &Snapshot) -> Plan<Action> {
        let Decision {
            steps,
            conditions,
            evicted,
            next,
        } = decide(snapshot);
        let action = |step| match step {
            Step::Report => Action::Report(conditions.clone(), evicted),
            step => Action::Step(step),
        };
        let next = match next {
            // Nova is asked again soon when it did not answer.
            Next::OnChange if snapshot.registered && snapshot.service.is_none() => {
                Next::After(Duration::from_secs(30))
            }
            next => next,
        };
        Plan {
            actions: steps.into_iter().map(action).collect(),
            next,
        }
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Report(conditions, evicted) => {
                let intent = conditions.onto(Intent::new().field("evicted", evicted));
                self.context
                    .write_status(FieldManager::Maintenance, hypervisor.as_ref(), &intent)
                    .await
                    .map(drop)
            }
            Action::Step(step) => self.step(hypervisor, step).await,
        }
    }
}

impl Maintenance {
    fn snapshot(&self, hypervisor: &Hypervisor) -> Snapshot {
        let name = hypervisor.name_any();
        let known = hypervisor.known();
        let terminating = hypervisor.is(HypervisorCondition::Terminating);
        let mut wishes = Vec::new();
        for eviction in self.context.caches.evictions.all() {
            if eviction.spec.hypervisor != name || controls(hypervisor, &eviction) {
                continue;
            }
            let order = order(&eviction, Some(hypervisor));
            wishes.push(Wish {
                disabled_reason: disabled_reason(&order.name, &order.spec.reason),
                claim: claim_of(&order, &hypervisor.spec.maintenance, terminating),
            });
        }
        Snapshot {
            now: self.context.now(),
            mode: hypervisor.spec.maintenance.clone(),
            mode_reason: hypervisor.spec.maintenance_reason.clone(),
            conditions: known.conditions.clone(),
            evicted: known.evicted,
            registered: !known.service_id.is_empty(),
            service: None,
            own: self
                .context
                .caches
                .evictions
                .get(&name)
                .map(|own| self::own(hypervisor, &own)),
            wishes,
            pressure: hypervisor
                .seen(HypervisorCondition::NodePressure)
                .filter(crate::seen::Seen::is_true)
                .map(|seen| seen.reason.to_owned()),
            servers: None,
            verify: VERIFY,
            drift: self.context.config.drift_interval.0,
        }
    }

    /// The service as Nova has it: fresh where a change is due, otherwise from the list that the
    /// fleet shares between two looks for drift.
    async fn ask_service(&self, hypervisor: &Hypervisor, snapshot: &mut Snapshot) {
        if !snapshot.registered {
            return;
        }
        let wanted = wanted(&snapshot.mode, &snapshot.wishes, snapshot.pressure.as_deref());
        let said = says(&snapshot.conditions, HypervisorCondition::HypervisorDisabled);
        let settled = match wanted {
            Wanted::HandsOff => return,
            Wanted::Enabled => said == crate::look::Says::No && snapshot.wishes.is_empty(),
            Wanted::Disabled { .. } => false,
        };
        if settled {
            let max_age = self.context.config.drift_interval.0 / 2;
            let services = self.cloud.services(max_age).await;
            let service = |services: Arc<BTreeMap<String, Service>>| {
                services.get(&hypervisor.known().service_id).cloned()
            };
            snapshot.service = services.map(service).unwrap_or_default();
        }
        let changes = |step: &Step| matches!(step, Step::Enable | Step::Disable(_));
        if settled && !decide(snapshot).steps.iter().any(changes) {
            return;
        }
        // Nothing is changed, or called settled for the first time, on the word of a list that
        // somebody may have overtaken.
        match self.cloud.service(&compute_host(hypervisor)).await {
            Ok(service) => snapshot.service = service,
            Err(error) => {
                snapshot.service = None;
                tracing::warn!(hypervisor = hypervisor.name_any(), %error, "nova does not tell about the service");
            }
        }
    }

    /// Whether it is time to make sure that an empty host is empty.
    fn verifies(&self, hypervisor: &Hypervisor) -> bool {
        let known = hypervisor.known();
        let evicted = reason(&known.conditions, HypervisorCondition::Evicting)
            == EvictingReason::Succeeded.as_str()
            && hypervisor.is_not(HypervisorCondition::Evicting);
        if !evicted || known.service_id.is_empty() {
            return false;
        }
        self.memory.get(hypervisor).is_none_or(|verified| {
            verified.at.elapsed() >= VERIFY
                || verified.mode != hypervisor.spec.maintenance
                || verified.instances != known.num_instances
        })
    }

    async fn ask_servers(&self, hypervisor: &Hypervisor) -> Option<usize> {
        let servers = self.cloud.servers_on(&compute_host(hypervisor)).await.ok()?;
        let verified = Verified {
            at: Instant::now(),
            mode: hypervisor.spec.maintenance.clone(),
            instances: hypervisor.known().num_instances,
        };
        self.memory.set(hypervisor, verified);
        Some(servers.len())
    }

    async fn step(&self, hypervisor: &Arc<Hypervisor>, step: Step) -> Result<(), Error> {
        let name = hypervisor.name_any();
        let service = &hypervisor.known().service_id;
        let failed = |error: crate::cloud::Error| Error::OpenStack(error.to_string());
        match step {
            Step::Enable => self.cloud.enable_service(service).await.map_err(failed),
            Step::Disable(reason) => self.cloud.disable_service(service, &reason).await.map_err(failed),
            Step::CreateEviction => self.create(hypervisor).await,
            Step::DeleteEviction => self.delete(&name).await,
            Step::AdoptEviction => self.adopt(hypervisor, &name).await,
            Step::Tell(word) => {
                self.tell(hypervisor, &word);
                Ok(())
            }
            Step::Report => Ok(()),
        }
    }

    fn evictions(&self) -> Api<Eviction> {
        Api::all(self.context.client.clone())
    }

    async fn create(&self, hypervisor: &Hypervisor) -> Result<(), Error> {
        let name = hypervisor.name_any();
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(self.inherited(hypervisor)),
                owner_references: Some(owner(hypervisor)),
                ..ObjectMeta::default()
            },
            spec: EvictionSpec {
                hypervisor: name.clone(),
                reason: REASON.to_owned(),
                ..EvictionSpec::default()
            },
            status: None,
        };
        let params = PostParams {
            field_manager: Some(FieldManager::Operator.as_str().to_owned()),
            ..PostParams::default()
        };
        let evictions = self.evictions();
        let call = evictions.create(&params, &eviction);
        match self.context.call(format!("creating Eviction {name}"), call).await {
            // Somebody was faster; the next pass sees whose it is.
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn inherited(&self, hypervisor: &Hypervisor) -> BTreeMap<String, String> {
        let selector = selector_keys(&self.context.config.label_selector).unwrap_or_default();
        hypervisor
            .labels()
            .iter()
            .filter(|(key, _)| {
                labels::INHERITED
                    .iter()
                    .any(|inherited| inherited.as_str() == *key)
                    || selector.contains(key)
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        // Only the very object that was judged, never one that took its place meanwhile.
        let Some(known) = self.context.caches.evictions.get(name) else {
            return Ok(());
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: known.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let evictions = self.evictions();
        let call = evictions.delete(name, &params);
        match self.context.call(format!("deleting Eviction {name}"), call).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn adopt(&self, hypervisor: &Hypervisor, name: &str) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner(hypervisor)}}));
        let params = PatchParams {
            field_manager: Some(FieldManager::Maintenance.as_str().to_owned()),
            ..PatchParams::default()
        };
        let evictions = self.evictions();
        let call = evictions.patch(name, &params, &patch);
        self.context
            .call(format!("adopting Eviction {name}"), call)
            .await
            .map(drop)
    }

    fn tell(&self, hypervisor: &Arc<Hypervisor>, word: &Word) {
        let happening = match word {
            Word::Entered(text) => Happening::normal(EventReason::MaintenanceEntered, "Maintenance", text),
            Word::Left => {
                Happening::normal(EventReason::MaintenanceLeft, "Maintenance", "maintenance is over")
            }
            Word::Drift(text) => {
                let drift = OfKind { kind: "service" };
                self.context.metrics.drift_corrections.get_or_create(&drift).inc();
                Happening::warning(
                    EventReason::ServiceDrift,
                    "Maintenance",
                    format!("{text}, corrected"),
                )
            }
            Word::Foreign(reason) => Happening::warning(
                EventReason::ServiceDisabledByOthers,
                "Maintenance",
                format!("somebody else disabled the compute service: {reason:?}; it is left as it is"),
            ),
            Word::Refilled(count) => Happening::warning(
                EventReason::EvictedHostRefilled,
                "Maintenance",
                format!("{count} instance(s) are on a host that was empty, evicting again"),
            ),
        };
        self.context.recorder.record(hypervisor.as_ref(), happening);
    }
}

fn owner(hypervisor: &Hypervisor) -> Vec<OwnerReference> {
    hypervisor.controller_owner_ref(&()).into_iter().collect()
}

fn own(hypervisor: &Hypervisor, eviction: &Eviction) -> Own {
    let conditions = eviction
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let created = eviction.metadata.creation_timestamp.as_ref();
    Own {
        created: created.map_or(jiff::Timestamp::UNIX_EPOCH, |created| created.0),
        controlled: controls(hypervisor, eviction),
        deleting: eviction.metadata.deletion_timestamp.is_some(),
        evicting: says(conditions, EvictionCondition::Evicting),
        reason: reason(conditions, EvictionCondition::Evicting).to_owned(),
        message: message(conditions, EvictionCondition::Evicting).to_owned(),
    }
}

#[cfg(test)]
mod tests;
