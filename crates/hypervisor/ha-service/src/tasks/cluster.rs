// SPDX-License-Identifier: Apache-2.0
//! What the cluster knows of hosts: their Hypervisor objects, their nodes, the leases of their
//! kubelets. Only a change of a lease is a sign of life; what is written in it is never compared
//! with our clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::names::{HostName, ServiceId};
use cobaltcore_api::{Hypervisor, HypervisorStatus, ResourceMap};
use cobaltcore_ha_engine::{Input, Observation, Room};
use cobaltcore_kit::watched::Watched;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::brain::BrainHandle;
use crate::directory::Directory;
use crate::leadership::pause;

const LEASES_EVERY: Duration = Duration::from_secs(1);

/// The caches.
#[derive(Clone)]
pub struct Caches {
    /// Hypervisors of our partition.
    pub hypervisors: Watched<Hypervisor>,
    /// Nodes.
    pub nodes: Watched<Node>,
    /// The leases of kubelets, if they are a signal.
    pub leases: Option<Watched<Lease>>,
}

/// Fills the directory from the caches, until `stop`.
pub async fn fill(caches: Caches, directory: Directory, stop: CancellationToken) {
    let mut hypervisors = caches.hypervisors.changes();
    let mut nodes = caches.nodes.changes();
    loop {
        let name = tokio::select! {
            () = stop.cancelled() => return,
            Some(change) = hypervisors.next() => change.object().map(|object| object.name_any()),
            Some(change) = nodes.next() => change.object().map(|object| object.name_any()),
            else => return,
        };
        if let Some(name) = name.and_then(|name| HostName::new(name).ok()) {
            refresh(&caches, &directory, &name);
        }
    }
}

fn refresh(caches: &Caches, directory: &Directory, host: &HostName) {
    let Some(hypervisor) = caches.hypervisors.get(host.as_str()) else {
        if directory.get(host).is_some_and(|entry| entry.in_kubernetes) {
            directory.remove(host);
        }
        return;
    };
    let node = caches.nodes.get(host.as_str());
    let status = hypervisor.status.clone().unwrap_or_default();
    directory.change(host, |entry| {
        entry.in_kubernetes = true;
        entry.maintenance = hypervisor.spec.maintenance.clone();
        // The node's labels, and what only the object has.
        entry.labels = hypervisor.labels().clone();
        if let Some(node) = &node {
            entry.labels.extend(node.labels().clone());
        }
        entry.internal_ip = Some(status.internal_ip.clone())
            .filter(|address| !address.is_empty())
            .or_else(|| node.as_deref().and_then(internal_ip));
        if let Ok(id) = ServiceId::new(status.service_id.clone()) {
            entry.service_id = Some(id);
        }
        if !status.compute_host.is_empty() && entry.nova_host.is_none() {
            entry.nova_host = Some(status.compute_host.clone());
        }
        entry.instances = usize::try_from(status.num_instances)
            .unwrap_or(0)
            .max(status.instances.len());
        let guests = status.instances.iter();
        entry.guests = guests
            .filter_map(|guest| Uuid::try_parse(&guest.id).ok())
            .collect();
        entry.libvirt_down = status
            .conditions
            .iter()
            .any(|c| c.type_ == HypervisorCondition::LibVirtConnection.as_ref() && c.status == "False");
        entry.room = room(&status);
        let serial = status
            .operating_system
            .as_ref()
            .map(|system| system.hardware_serial.clone())
            .filter(|serial| !serial.is_empty());
        if entry.machine.serial.is_none() {
            entry.machine.serial = serial;
        }
    });
}

/// How full a host is, by what it may give and what its guests take; nothing if it does not say.
fn room(status: &HypervisorStatus) -> Option<Room> {
    let amount = |map: &ResourceMap, name: &str| {
        let value = map.get(name)?.value()?;
        u64::try_from(value).ok()
    };
    let offered = |name| amount(&status.effective_capacity, name).or_else(|| amount(&status.capacity, name));
    let used = |name| amount(&status.allocation, name).unwrap_or(0);
    let (memory, vcpus) = (offered("memory")?, offered("cpu")?);
    Some(Room {
        used_mib: used("memory") >> 20,
        free_mib: memory.saturating_sub(used("memory")) >> 20,
        used_vcpus: used("cpu"),
        free_vcpus: vcpus.saturating_sub(used("cpu")),
    })
}

fn internal_ip(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses
        .iter()
        .find(|address| address.type_ == "InternalIP")
        .map(|address| address.address.clone())
}

/// Tells the engine of the leases, until `stop`.
pub async fn leases(watched: Watched<Lease>, brain: BrainHandle, stop: CancellationToken) {
    let mut seen = Leases::default();
    while !pause(&stop, LEASES_EVERY).await {
        let now = watched.all().iter().filter_map(token).collect();
        if let Some(all) = seen.look(now) {
            brain.tell(Input::Saw(Observation::NodeLeases(all))).await;
        }
    }
}

/// The leases as they were last seen.
#[derive(Default)]
struct Leases(BTreeSet<(HostName, String)>);

impl Leases {
    /// All leases, if any of them was renewed: then the watch works, and whoever did not renew theirs is known not to
    /// have. If none was, it may be the watch that stands still, and nothing is known.
    fn look(&mut self, now: BTreeSet<(HostName, String)>) -> Option<Vec<(HostName, String)>> {
        let news = now.difference(&self.0).next().is_some();
        self.0 = now;
        news.then(|| self.0.iter().cloned().collect())
    }
}

/// A text that changes with every renewal.
fn token(lease: &Arc<Lease>) -> Option<(HostName, String)> {
    let host = HostName::new(lease.name_any()).ok()?;
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?;
    Some((host, renewed.0.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_not_renewed_is_told_of_as_long_as_others_are() {
        let leases = |tokens: [&str; 2]| {
            let names = ["n1", "n2"].map(|name| HostName::new(name).unwrap());
            let all = names.into_iter().zip(tokens.map(str::to_owned));
            all.collect::<BTreeSet<_>>()
        };
        let mut seen = Leases::default();
        for (tokens, told) in [
            (["1", "1"], true),
            (["1", "1"], false),
            (["2", "1"], true),
            (["3", "1"], true),
            (["3", "1"], false),
        ] {
            let all = seen.look(leases(tokens));
            let wanted = told.then(|| leases(tokens).into_iter().collect());
            assert_eq!(all, wanted, "{tokens:?}");
        }
    }
}
