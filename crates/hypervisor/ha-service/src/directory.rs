// SPDX-License-Identifier: Apache-2.0
//! What is known of every host, from Nova, Kubernetes and its agent, put together under one name.
//! Tasks write what they saw; the API, the loop and the executor read. It holds no judgement.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServiceId};
use cobaltcore_ha_engine::{HostFacts, Identity};
use parking_lot::RwLock;

/// What is known of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostEntry {
    /// What Nova calls it; nothing before Nova listed it.
    pub nova_host: Option<String>,
    /// Its compute service.
    pub service_id: Option<ServiceId>,
    /// Its hypervisor in Nova.
    pub hypervisor_id: Option<String>,
    /// Two services of Nova fit it; nothing may be done to it.
    pub ambiguous: bool,
    /// There is a Hypervisor object.
    pub in_kubernetes: bool,
    /// The labels of its node.
    pub labels: BTreeMap<String, String>,
    /// Its address.
    pub internal_ip: Option<String>,
    /// Its maintenance, as last seen.
    pub maintenance: Maintenance,
    /// Whether HA is on for it.
    pub ha_enabled: bool,
    /// Why, or why not.
    pub ha_reason: String,
    /// How many guests it is known to have.
    pub instances: usize,
    /// The node agent could not reach libvirt.
    pub libvirt_down: bool,
    /// The machine, as the Hypervisor object or the agent told; the agent's word wins.
    pub machine: Identity,
}

impl HostEntry {
    /// The zone, if its node tells.
    pub fn zone(&self) -> Option<&str> {
        self.label("topology.kubernetes.io/zone")
    }

    /// The building block, if its node tells.
    pub fn building_block(&self) -> Option<&str> {
        self.label("kubernetes.metal.cloud.sap/bb")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// What the engine is told.
    pub fn facts(&self, host: &HostName, domains: &[String]) -> HostFacts {
        let domains = domains
            .iter()
            .filter_map(|key| {
                Some(cobaltcore_ha_engine::Domain(format!(
                    "{key}={}",
                    self.label(key)?
                )))
            })
            .collect();
        HostFacts {
            host: host.clone(),
            domains,
            ha_enabled: self.ha_enabled,
            ambiguous: self.ambiguous,
            maintenance: self.maintenance.clone(),
            instances: self.instances,
            libvirt_down: self.libvirt_down,
            machine: self.machine.clone(),
        }
    }
}

/// Every host. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Directory(Arc<RwLock<BTreeMap<HostName, Arc<HostEntry>>>>);

impl Directory {
    /// One host.
    pub fn get(&self, host: &HostName) -> Option<Arc<HostEntry>> {
        self.0.read().get(host).cloned()
    }

    /// All hosts.
    pub fn all(&self) -> Vec<(HostName, Arc<HostEntry>)> {
        self.0
            .read()
            .iter()
            .map(|(host, entry)| (host.clone(), Arc::clone(entry)))
            .collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// The host that Nova calls `nova_host`: by its full name, else by the part before the first dot.
    pub fn by_nova_host(&self, nova_host: &str) -> Option<HostName> {
        let hosts = self.0.read();
        hosts
            .iter()
            .find(|(_, entry)| entry.nova_host.as_deref() == Some(nova_host))
            .map(|(host, _)| host.clone())
    }

    /// Changes one host, which is made if it is new. Says whether anything changed.
    pub fn change(&self, host: &HostName, change: impl FnOnce(&mut HostEntry)) -> bool {
        let mut hosts = self.0.write();
        let before = hosts.get(host).cloned();
        let mut after = before.as_deref().cloned().unwrap_or_default();
        change(&mut after);
        if before.as_deref() == Some(&after) {
            return false;
        }
        hosts.insert(host.clone(), Arc::new(after));
        true
    }

    /// Forgets a host.
    pub fn remove(&self, host: &HostName) -> bool {
        self.0.write().remove(host).is_some()
    }
}
