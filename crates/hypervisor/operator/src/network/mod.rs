// SPDX-License-Identifier: Apache-2.0
//! Mirrors the network of a host, as its agent reports it in an OVSNode, so that onboarding tests
//! nothing that could not work. In a cluster without network agents nothing is said.

mod decide;
mod resource;

use std::sync::Arc;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::status::{Intent, NewCondition};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use crate::context::{Context, same_name};
use crate::error::Error;

pub use resource::{Bridge, OVSNode, OvsNodeSpec, OvsNodeStatus};

/// The definition that the network agents bring.
pub(crate) const DEFINITION: &str = "ovsnodes.ovs.c5c3.io";
/// Where they report.
pub(crate) const NAMESPACE: &str = "ovn-system";

/// The controller.
pub(crate) fn controller(context: &Context) -> SharedRunner<Network> {
    let caches = &context.caches;
    let appeared = caches
        .hypervisors
        .own_triggers(|change| change.differs(|hypervisor| hypervisor.status.is_some()));
    let reported = caches
        .ovs_nodes
        .triggers(|change| same_name(change).filter(|_| change.differs(|node| node.status.clone())));
    // When the definition arrives, every host is looked at.
    let hypervisors = caches.hypervisors.clone();
    let installed = caches.definitions.triggers(move |change| {
        let arrived = change.before.is_none() && change.object().is_some_and(|d| d.name_any() == DEFINITION);
        let all = if arrived { hypervisors.all() } else { Vec::new() };
        all.into_iter()
            .map(|hypervisor| ObjectRef::from_obj(hypervisor.as_ref()))
            .collect::<Vec<_>>()
    });
    SharedRunner::new("network", caches.hypervisors.store(), Network(context.clone()))
        .on(appeared)
        .on(reported)
        .on(installed)
}

/// Looks at the network of hosts.
pub(crate) struct Network(Context);

/// What is known besides the Hypervisor.
pub(crate) struct Facts {
    /// Whether the cluster has network agents.
    installed: bool,
    reported: Option<Arc<OVSNode>>,
}

impl Reconciler for Network {
    type Object = Hypervisor;
    type Facts = Facts;
    /// What to say, or nothing.
    type Action = Option<NewCondition>;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Facts, Error> {
        let caches = &self.0.caches;
        // A cache that is still being filled is no cluster whose agents are silent.
        let installed = caches.has_kind(DEFINITION) && caches.ovs_nodes.filled().await.is_ok();
        let reported = caches.ovs_nodes.get_in(NAMESPACE, &hypervisor.name_any());
        Ok(Facts { installed, reported })
    }

    fn decide(&self, _: &Hypervisor, facts: &Facts) -> Plan<Self::Action> {
        let bridges = &self.0.config.test_bridges;
        let said = facts
            .installed
            .then(|| decide::network(facts.reported.as_deref(), bridges));
        Plan::of(vec![said])
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, said: Self::Action) -> Result<(), Error> {
        let intent = said.into_iter().fold(Intent::new(), Intent::condition);
        self.0
            .write_status(FieldManager::Network, hypervisor.as_ref(), &intent)
            .await
            .map(drop)
    }
}
