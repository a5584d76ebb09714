// SPDX-License-Identifier: Apache-2.0
//! Tells Gardener about a node with two objects: a pod that is ready once the host is onboarded,
//! and a disruption budget that forbids draining until the host has left OpenStack. It also sets
//! the taint that pushes the agents off a host that is empty. Deleting the machine is Gardener's.

mod decide;
mod signal;

use std::sync::Arc;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::labels;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::watched::Change;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::{Context, same_name};
use crate::error::Error;
use crate::run::SIGNAL_NAMESPACE;

use decide::{Action, Facts, Rules};

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context) -> SharedRunner<Gardener> {
    let caches = &context.caches;
    let nodes = caches.nodes.own_triggers(|change| change.differs(decide::inputs));
    let hypervisors = caches
        .hypervisors
        .triggers(|change| same_name(change).filter(|_| change.differs(decide::mirrored)));
    let reconciler = Gardener {
        context: context.clone(),
        rules: Rules::new(&context.config),
    };
    SharedRunner::new("maintenance", caches.nodes.store(), reconciler)
        .on(nodes)
        .on(hypervisors)
        .on(caches.deployments.triggers(of_node))
        .on(caches.budgets.triggers(of_node))
}

/// The Node that a signalling object belongs to.
fn of_node<K: Resource<DynamicType = ()>>(change: &Change<K>) -> Option<ObjectRef<Node>> {
    let labels = change.object()?.meta().labels.as_ref()?;
    let name = labels.get(labels::MAINTENANCE_CONTROLLER.as_str())?;
    Some(ObjectRef::new(name.strip_prefix(signal::PREFIX)?))
}

/// Tells Gardener about Nodes.
pub(crate) struct Gardener {
    context: Context,
    rules: Rules,
}

impl Reconciler for Gardener {
    type Object = Node;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, node: &Arc<Node>) -> Result<Facts, Error> {
        let (caches, name) = (&self.context.caches, node.name_any());
        let signal = signal::name(&name);
        Ok(Facts {
            hypervisor: caches.hypervisors.get(&name),
            deployment: caches.deployments.get_in(SIGNAL_NAMESPACE, &signal),
            budget: caches.budgets.get_in(SIGNAL_NAMESPACE, &signal),
            now: self.context.now(),
        })
    }

    fn decide(&self, node: &Node, facts: &Facts) -> Plan<Action> {
        decide::decide(node, facts, &self.rules)
    }

    async fn act(&self, node: &Arc<Node>, action: Action) -> Result<(), Error> {
        let name = node.name_any();
        match action {
            Action::Taints(taints) => self.taint(node, &taints).await,
            Action::Budget(object) => self.apply::<PodDisruptionBudget>(&name, &object).await,
            Action::Deployment(object) => self.apply::<Deployment>(&name, &object).await,
            Action::DropBudget => self.drop::<PodDisruptionBudget>(&name).await,
            Action::DropDeployment => self.drop::<Deployment>(&name).await,
            Action::Tell(reason, note) => {
                self.tell(node, reason, &note);
                Ok(())
            }
        }
    }
}

impl Gardener {
    async fn taint(&self, node: &Node, taints: &Value) -> Result<(), Error> {
        let name = node.name_any();
        let api: Api<Node> = Api::all(self.context.client.clone());
        // Pinned, because the list is replaced as a whole.
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": node.resource_version()},
            "spec": {"taints": taints},
        }));
        let params = PatchParams {
            field_manager: Some(FieldManager::NodeLifecycle.into()),
            ..PatchParams::default()
        };
        let call = api.patch(&name, &params, &patch);
        self.context
            .call(format!("changing the taints of Node {name}"), call)
            .await
            .map(drop)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.context.client.clone(), SIGNAL_NAMESPACE)
    }

    async fn apply<K>(&self, node: &str, object: &Value) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let name = signal::name(node);
        let params = PatchParams::apply(FieldManager::NodeLifecycle.as_str()).force();
        let (api, patch) = (self.api::<K>(), Patch::Apply(object));
        let what = format!("applying {} {SIGNAL_NAMESPACE}/{name}", K::kind(&()));
        self.context
            .call(what, api.patch(&name, &params, &patch))
            .await
            .map(drop)
    }

    async fn drop<K>(&self, node: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let name = signal::name(node);
        let what = format!("deleting {} {SIGNAL_NAMESPACE}/{name}", K::kind(&()));
        let (api, params) = (self.api::<K>(), DeleteParams::background());
        let call = api.delete(&name, &params);
        match self.context.call(what, call).await {
            Err(error) if error.is_not_found() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn tell(&self, node: &Node, reason: EventReason, note: &str) {
        let happening = Happening::normal(reason, "NodeLifecycle", note);
        match self.context.caches.hypervisors.get(&node.name_any()) {
            Some(hypervisor) => self.context.recorder.record(hypervisor.as_ref(), happening),
            None => self.context.recorder.record(node, happening),
        }
    }
}
