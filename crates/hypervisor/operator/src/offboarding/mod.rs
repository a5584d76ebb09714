// SPDX-License-Identifier: Apache-2.0
//! The offboarding controller: takes a host that leaves out of Nova and Placement, once it is
//! empty, out of its aggregates and without agents, and makes sure that it stays away.

mod decide;

use std::sync::Arc;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, finalizers};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::Intent;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;

use crate::Error;
use crate::cloud::Cloud;
use crate::context::Context;
use crate::eviction::compute_host;
use crate::finalizer::{self, Finalizer};
use crate::look::{Statements, message, says};
use crate::memory::Memories;
use crate::seen::LookAtHypervisor as _;

pub use decide::{Decision, InNova, InPlacement, Path, Snapshot, Step, asks, decide, path};

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Offboarding> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| {
        change.differs(|hypervisor| {
            let known = hypervisor.known();
            let matters = [
                HypervisorCondition::Onboarding,
                HypervisorCondition::Evicting,
                HypervisorCondition::AgentPodsEvicted,
                HypervisorCondition::Offboarded,
            ];
            (
                hypervisor.metadata.generation,
                hypervisor.metadata.deletion_timestamp.is_some(),
                hypervisor.metadata.finalizers.clone(),
                known.aggregates.is_empty(),
                known.service_id.clone(),
                matters.map(|type_| says(&known.conditions, type_)),
                message(&known.conditions, HypervisorCondition::AgentPodsEvicted).to_owned(),
            )
        })
    });
    let offboarding = Offboarding {
        context: context.clone(),
        cloud: cloud.clone(),
        memory: Memories::of(hypervisors),
    };
    SharedRunner::new("offboarding", hypervisors.store(), offboarding).on(changed)
}

/// What is remembered of one host.
#[derive(Clone, Debug, Default)]
struct Memory {
    gone_since: Option<Timestamp>,
    trouble: Option<String>,
}

/// Takes hosts out.
pub(crate) struct Offboarding {
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
    Report(Statements),
}

impl Reconciler for Offboarding {
    type Object = Hypervisor;
    type Facts = Snapshot;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Snapshot, Error> {
        let mut snapshot = self.snapshot(hypervisor);
        if snapshot.deleting && snapshot.held {
            snapshot.node = self.has_node(hypervisor).await?;
        }
        if asks(&snapshot) {
            self.ask(hypervisor, &mut snapshot).await;
        }
        Ok(snapshot)
    }

    fn decide(&self, _: &Hypervisor, snapshot: &Snapshot) -> Plan<Action> {
        let Decision {
            steps,
            conditions,
            next,
        } = decide(snapshot);
        let action = |step| match step {
            Step::Report => Action::Report(conditions.clone()),
            step => Action::Step(step),
        };
        Plan {
            actions: steps.into_iter().map(action).collect(),
            next,
        }
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Report(conditions) => {
                let intent = conditions.onto(Intent::new());
                let written = self
                    .context
                    .write_status(FieldManager::Offboarding, hypervisor.as_ref(), &intent)
                    .await;
                match written {
                    Err(error) if error.is_not_found() => Ok(()),
                    written => written.map(drop),
                }
            }
            Action::Step(step) => self.step(hypervisor, step).await,
        }
    }
}

impl Offboarding {
    fn snapshot(&self, hypervisor: &Hypervisor) -> Snapshot {
        let (known, spec) = (hypervisor.known(), &hypervisor.spec);
        let (gone_since, trouble) = self
            .memory
            .with(hypervisor, |memory| (memory.gone_since, memory.trouble.take()));
        let held = |name: &String| name == finalizers::OFFBOARDING.as_str();
        Snapshot {
            now: self.context.now(),
            host: compute_host(hypervisor),
            lifecycle: spec.lifecycle_enabled,
            mode: spec.maintenance.clone(),
            deleting: hypervisor.metadata.deletion_timestamp.is_some(),
            held: hypervisor.finalizers().iter().any(held),
            finalizers: self.context.config.offboarding_finalizer,
            node: true,
            service_known: !known.service_id.is_empty(),
            conditions: known.conditions.clone(),
            aggregates: known.aggregates.iter().map(|one| one.name.clone()).collect(),
            nova: InNova::Unasked,
            placement: InPlacement::Unasked,
            gone_since,
            trouble,
        }
    }

    /// Whether the Node is there; asked of the API itself, because a cache that is behind must not
    /// take a host out of Nova.
    async fn has_node(&self, hypervisor: &Hypervisor) -> Result<bool, Error> {
        let name = hypervisor.name_any();
        let nodes: Api<Node> = Api::all(self.context.client.clone());
        let node = self
            .context
            .call(format!("reading Node {name}"), nodes.get_metadata_opt(&name))
            .await?;
        Ok(node.is_some())
    }

    async fn ask(&self, hypervisor: &Hypervisor, snapshot: &mut Snapshot) {
        snapshot.nova = self.ask_nova(hypervisor).await;
        if snapshot.nova != InNova::Absent {
            return;
        }
        let id = &hypervisor.known().hypervisor_id;
        if id.is_empty() {
            snapshot.placement = InPlacement::Absent;
            return;
        }
        snapshot.placement = match self.cloud.has_provider(id).await {
            Ok(true) => InPlacement::Present,
            Ok(false) => InPlacement::Absent,
            Err(error) => InPlacement::Trouble(error.to_string()),
        };
    }

    /// The host in Nova, by its id first and by its exact name second.
    async fn ask_nova(&self, hypervisor: &Hypervisor) -> InNova {
        let known = hypervisor.known();
        let present = |(identity, servers): (crate::onboarding::Identity, usize)| InNova::Present {
            service: identity.service_id,
            servers,
        };
        if !known.hypervisor_id.is_empty() {
            match self.cloud.hypervisor(&known.hypervisor_id).await {
                Ok(Some(found)) => return present(found),
                Ok(None) => {}
                Err(error) => return InNova::Trouble(error.to_string()),
            }
        }
        let hostname = &known.hypervisor_hostname;
        let name = if hostname.is_empty() {
            hypervisor.name_any()
        } else {
            hostname.clone()
        };
        match self.cloud.hypervisors_named(&name).await {
            Ok(mut found) => match (found.pop(), found.len()) {
                (None, _) => InNova::Absent,
                (Some(one), 0) => present(one),
                (Some(_), others) => InNova::Trouble(format!("{} hypervisors have that name", others + 1)),
            },
            Err(error) => InNova::Trouble(error.to_string()),
        }
    }

    async fn step(&self, hypervisor: &Arc<Hypervisor>, step: Step) -> Result<(), Error> {
        match step {
            Step::Report => Ok(()),
            Step::Hold => self.finalizer(hypervisor, Finalizer::Hold).await,
            Step::Release => self.finalizer(hypervisor, Finalizer::Release).await,
            Step::GoneSince(at) => {
                self.remember(hypervisor, |memory| memory.gone_since = at);
                Ok(())
            }
            Step::DeleteService(service) => {
                if let Err(error) = self.cloud.delete_service(&service).await {
                    let text = format!("cannot delete service {service} due to {error}");
                    self.remember(hypervisor, |memory| memory.trouble = Some(text));
                }
                Ok(())
            }
            Step::CleanProvider => {
                let id = &hypervisor.known().hypervisor_id;
                if let Err(error) = self.cloud.clean_provider(id).await {
                    let text = format!("cannot clean up resource provider: {error}");
                    self.remember(hypervisor, |memory| memory.trouble = Some(text));
                }
                Ok(())
            }
            Step::Tell(text) => {
                let happening = Happening::normal(EventReason::Offboarding, "Offboarding", text);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                Ok(())
            }
        }
    }

    fn remember(&self, hypervisor: &Hypervisor, change: impl FnOnce(&mut Memory)) {
        self.memory.with(hypervisor, change);
    }

    async fn finalizer(
        &self,
        hypervisor: &Hypervisor,
        how: fn(&'static str) -> Finalizer,
    ) -> Result<(), Error> {
        let change = how(finalizers::OFFBOARDING.as_str());
        finalizer::set(&self.context, FieldManager::Offboarding, hypervisor, change).await
    }
}

#[cfg(test)]
mod tests;
