// SPDX-License-Identifier: Apache-2.0
//! Reacts to the health of nodes, with brakes. It mirrors the node's readiness and pressure, and
//! moves servers off a host whose kubelet stays silent while its compute service still works. A
//! host that is down is the HA service's; many at once are somebody's network, and nothing moves.

mod decide;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::NodeCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, annotations, labels};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{ConditionStatus, Intent};
use cobaltcore_openstack::Session;
use cobaltcore_openstack::nova::ServiceState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::context::{Context, same_name};
use crate::error::Error;
use crate::metrics::OfZone;
use crate::node::maintenance_set_by;
use crate::seen::{LookAtHypervisor as _, elapsed, node_condition, node_label};

use decide::{Action, BY_NODE_HEALTH, Facts, Rules, Zone};

/// How long a reaction counts although the caches do not show it yet.
const SETTLE: Duration = Duration::from_secs(30);

/// The controller. Reactions are counted, so it works on one node after the other.
pub(crate) fn controller(context: &Context, compute: Option<&Session>) -> SharedRunner<NodeHealth> {
    let caches = &context.caches;
    let nodes = caches.nodes.own_triggers(|change| change.differs(decide::inputs));
    let hypervisors = caches
        .hypervisors
        .triggers(|change| same_name(change).filter(|_| change.differs(decide::mirrored)));
    let reconciler = NodeHealth {
        context: context.clone(),
        compute: compute.cloned(),
        rules: Rules {
            timeout: context.config.node_unhealthy_timeout.0,
            most: context.config.node_unhealthy_max,
        },
        reacted: Mutex::default(),
    };
    SharedRunner::new("node-health", caches.nodes.store(), reconciler)
        .on(nodes)
        .on(hypervisors)
}

/// Reacts to the health of Nodes.
pub(crate) struct NodeHealth {
    context: Context,
    compute: Option<Session>,
    rules: Rules,
    /// Hosts put into maintenance a moment ago.
    reacted: Mutex<BTreeMap<String, Timestamp>>,
}

impl Reconciler for NodeHealth {
    type Object = Node;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, node: &Arc<Node>) -> Result<Facts, Error> {
        let now = self.context.now();
        let hypervisor = self.context.caches.hypervisors.get(&node.name_any());
        let zone = self.zone_of(node, now);
        let mut facts = Facts {
            hypervisor,
            zone,
            compute_up: None,
            now,
        };
        // Nova is asked only when its answer decides.
        if decide::depends_on_compute(node, &facts, &self.rules) {
            facts.compute_up = self.compute_up(facts.hypervisor.as_deref()).await;
        }
        Ok(facts)
    }

    fn decide(&self, node: &Node, facts: &Facts) -> Plan<Action> {
        if node_label(node, labels::VIRT_DRIVER).is_none() {
            return Plan::rest();
        }
        decide::decide(node, facts, &self.rules)
    }

    async fn act(&self, node: &Arc<Node>, action: Action) -> Result<(), Error> {
        let name = node.name_any();
        let Some(hypervisor) = self.context.caches.hypervisors.get(&name) else {
            return Ok(());
        };
        match action {
            Action::Report(conditions) => {
                let intent = conditions.into_iter().fold(Intent::new(), Intent::condition);
                let manager = FieldManager::NodeHealth;
                self.context
                    .write_status(manager, hypervisor.as_ref(), &intent)
                    .await
                    .map(drop)
            }
            Action::Tell(reason, note) => {
                let happening = Happening::warning(reason, "NodeHealth", note);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                Ok(())
            }
            Action::Maintain => {
                self.set(&hypervisor, "auto", Some(BY_NODE_HEALTH)).await?;
                self.reacted.lock().insert(name, self.context.now());
                let note = "The node is unhealthy and its compute service works: servers are moved away";
                let happening = Happening::warning(EventReason::MaintenanceSet, "NodeHealth", note);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                Ok(())
            }
            Action::Recover => {
                self.set(&hypervisor, "", None).await?;
                let note = "The node is healthy again: maintenance ends";
                let happening = Happening::normal(EventReason::MaintenanceCleared, "NodeHealth", note);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                Ok(())
            }
        }
    }
}

impl NodeHealth {
    /// Changes the mode, unless somebody changed the object meanwhile.
    async fn set(&self, hypervisor: &Hypervisor, mode: &str, by: Option<&str>) -> Result<(), Error> {
        let name = hypervisor.name_any();
        let api: Api<Hypervisor> = Api::all(self.context.client.clone());
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": hypervisor.resource_version(),
                "annotations": {annotations::MAINTENANCE_SET_BY.as_str(): by},
            },
            "spec": {"maintenance": mode},
        }));
        let params = PatchParams {
            field_manager: Some(FieldManager::NodeHealth.into()),
            ..PatchParams::default()
        };
        let what = format!("changing the maintenance of Hypervisor {name}");
        self.context
            .call(what, api.patch(&name, &params, &patch))
            .await
            .map(drop)
    }

    /// How the zone of a node is. Counted only where somebody is unhealthy or was.
    fn zone_of(&self, node: &Node, now: Timestamp) -> Zone {
        let name = node_label(node, labels::ZONE).unwrap_or_default().to_owned();
        let gauge = self
            .context
            .metrics
            .node_health_brake
            .get_or_create(&OfZone { zone: name.clone() })
            .clone();
        if decide::is_healthy(node) && gauge.get() == 0 {
            return Zone::default();
        }
        let caches = &self.context.caches;
        let mut zone = Zone::default();
        let mut reacted = self.reacted.lock();
        reacted.retain(|_, at| elapsed(*at, now) < SETTLE);
        for other in caches.nodes.all() {
            let ours = node_label(&other, labels::VIRT_DRIVER).is_some();
            if !ours || node_label(&other, labels::ZONE).unwrap_or_default() != name {
                continue;
            }
            zone.all += 1;
            zone.unhealthy += usize::from(!decide::is_healthy(&other));
            let host = other.name_any();
            let under_way = caches.hypervisors.get(&host).is_some_and(|hypervisor| {
                maintenance_set_by(&hypervisor) == Some(BY_NODE_HEALTH)
                    && !hypervisor.spec.maintenance.is_off()
            });
            zone.reacting += usize::from(under_way || reacted.contains_key(&host));
        }
        gauge.set(i64::from(zone.brakes()));
        zone
    }

    /// Whether the compute service of a host is up; nothing when that cannot be told.
    async fn compute_up(&self, hypervisor: Option<&Hypervisor>) -> Option<bool> {
        let id = hypervisor.map(|hypervisor| hypervisor.known().service_id.clone())?;
        let services = self.compute.as_ref()?.nova().compute_services().await;
        match services {
            Ok(services) => {
                let own = services.iter().find(|service| service.id.as_str() == id)?;
                Some(own.state == ServiceState::Up)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether a compute service is up");
                None
            }
        }
    }
}

/// Whether a condition of a node holds.
pub(crate) fn holds(node: &Node, condition: NodeCondition) -> bool {
    matches!(node_condition(node, condition), Some((ConditionStatus::True, _)))
}
