// SPDX-License-Identifier: Apache-2.0
//! Turns a Node with a virt driver into a Hypervisor of the same name and keeps the two in
//! step. What it once set it also takes back; what somebody else set it leaves alone. What
//! happens to the host in OpenStack is left to the other controllers.

mod decide;
pub(crate) mod pods;
mod wanted;

use std::sync::Arc;

use cobaltcore_api::conditions::HypervisorCondition as On;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, annotations, labels};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::Intent;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::config::selector_keys;
use crate::context::{Context, same_name};
use crate::error::Error;
use crate::seen::{LookAtHypervisor as _, node_label};

use decide::{Action, Facts, Rules};

const PAGE: u32 = 100;

/// The controller.
pub(crate) fn controller(context: &Context) -> SharedRunner<Nodes> {
    let (nodes, hypervisors) = (&context.caches.nodes, &context.caches.hypervisors);
    let changed = nodes.own_triggers(|change| {
        let driven = |node: &Node| node_label(node, labels::VIRT_DRIVER).is_some();
        change.object().is_some_and(|node| driven(node)) && change.differs(decide::inputs)
    });
    let touched =
        hypervisors.triggers(|change| same_name(change).filter(|_| change.differs(decide::mirrored)));
    let rules = Rules {
        inherited: labels::INHERITED
            .iter()
            .map(|key| key.as_str().to_owned())
            .chain(selector_keys(&context.config.label_selector).unwrap_or_default())
            .collect(),
        manage_termination: context.config.manage_termination,
        keep_decommissioned: context.config.keep_decommissioned,
    };
    let reconciler = Nodes {
        context: context.clone(),
        rules,
    };
    SharedRunner::new("hypervisor", nodes.store(), reconciler)
        .on(changed)
        .on(touched)
}

/// Looks after the Hypervisors of Nodes.
pub(crate) struct Nodes {
    context: Context,
    rules: Rules,
}

impl Reconciler for Nodes {
    type Object = Node;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, node: &Arc<Node>) -> Result<Facts, Error> {
        let hypervisor = self.context.caches.hypervisors.get(&node.name_any());
        let leaving = hypervisor
            .as_ref()
            .is_some_and(|hypervisor| pods::are_asked_for(node, hypervisor));
        let agent_pods = if leaving {
            Some(self.blocking_pods(&node.name_any()).await?)
        } else {
            None
        };
        Ok(Facts {
            hypervisor,
            agent_pods,
        })
    }

    fn decide(&self, node: &Node, facts: &Facts) -> Plan<Action> {
        if node_label(node, labels::VIRT_DRIVER).is_none() {
            return Plan::rest();
        }
        decide::decide(node, facts, &self.rules)
    }

    async fn act(&self, node: &Arc<Node>, action: Action) -> Result<(), Error> {
        let name = node.name_any();
        match action {
            Action::Apply { wanted, created } => {
                let object = wanted.to_object(&name);
                self.apply(&name, &object).await?;
                if created {
                    let note = format!("Hypervisor {name} created");
                    self.tell(node.as_ref(), EventReason::HypervisorCreated, note);
                }
                Ok(())
            }
            Action::DropLabels(keys) => {
                let labels: Value = keys.into_iter().map(|key| (key, Value::Null)).collect();
                self.merge(&name, &json!({"metadata": {"labels": labels}})).await
            }
            Action::Release => {
                self.merge(&name, &json!({"metadata": {"ownerReferences": null}}))
                    .await
            }
            Action::Maintain(change) => {
                self.merge(&name, &change.to_patch()).await?;
                let note = change.to_string();
                let reason = if change.mode.is_off() {
                    EventReason::MaintenanceCleared
                } else {
                    EventReason::MaintenanceSet
                };
                self.tell(node.as_ref(), reason, note);
                Ok(())
            }
            Action::Report(report) => {
                let Some(hypervisor) = self.context.caches.hypervisors.get(&name) else {
                    return Ok(());
                };
                let intent = report
                    .conditions
                    .into_iter()
                    .fold(Intent::new(), Intent::condition);
                let intent = intent.field("internalIp", report.internal_ip);
                let manager = FieldManager::Hypervisor;
                self.context
                    .write_status(manager, hypervisor.as_ref(), &intent)
                    .await
                    .map(drop)
            }
        }
    }
}

impl Nodes {
    fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.context.client.clone())
    }

    async fn apply(&self, name: &str, object: &Value) -> Result<(), Error> {
        let params = PatchParams::apply(FieldManager::Hypervisor.as_str()).force();
        let (api, patch) = (self.hypervisors(), Patch::Apply(object));
        let call = api.patch(name, &params, &patch);
        self.context
            .call(format!("applying Hypervisor {name}"), call)
            .await
            .map(drop)
    }

    async fn merge(&self, name: &str, patch: &Value) -> Result<(), Error> {
        let params = PatchParams {
            field_manager: Some(FieldManager::Hypervisor.into()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.hypervisors(), Patch::Merge(patch));
        let call = api.patch(name, &params, &patch);
        self.context
            .call(format!("changing Hypervisor {name}"), call)
            .await
            .map(drop)
    }

    /// On the Hypervisor if there is one already, else on the Node.
    fn tell(&self, node: &Node, reason: EventReason, note: String) {
        let happening = Happening::normal(reason, "NodeSync", note);
        match self.context.caches.hypervisors.get(&node.name_any()) {
            Some(hypervisor) => self.context.recorder.record(hypervisor.as_ref(), happening),
            None => self.context.recorder.record(node, happening),
        }
    }

    /// The pods of agents that are still on a node, as `namespace/name`.
    async fn blocking_pods(&self, node: &str) -> Result<Vec<String>, Error> {
        let mut blocking = Vec::new();
        for namespace in self.context.config.agent_namespaces() {
            let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &namespace);
            let mut page = ListParams::default()
                .fields(&format!("spec.nodeName={node}"))
                .limit(PAGE);
            loop {
                let what = format!("listing the pods of {namespace} on node {node}");
                let pods = self.context.call(what, api.list(&page)).await?;
                let names = pods.items.iter().filter(|pod| pods::blocks(pod));
                blocking.extend(names.map(|pod| format!("{namespace}/{}", pod.name_any())));
                match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => break,
                }
            }
        }
        blocking.sort();
        Ok(blocking)
    }
}

/// Who set the maintenance mode of a Hypervisor, if it was one of ours.
pub(crate) fn maintenance_set_by(hypervisor: &Hypervisor) -> Option<&str> {
    let all = hypervisor.metadata.annotations.as_ref()?;
    all.get(annotations::MAINTENANCE_SET_BY.as_str())
        .map(String::as_str)
}

/// Whether offboarding has begun, after which a termination is no longer taken back.
pub(crate) fn is_offboarding(hypervisor: &Hypervisor) -> bool {
    hypervisor.seen(On::Offboarded).is_some()
}
