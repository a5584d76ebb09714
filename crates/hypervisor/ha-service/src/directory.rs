// SPDX-License-Identifier: Apache-2.0
//! What is known of every host, from Nova, Kubernetes and its agent, put together under one name.
//! Tasks write what they saw; the API, the loop and the executor read. It holds no judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServiceId};
use cobaltcore_ha_engine::{Domain, HostFacts, Identity, Reserved, Room};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::disks::Guests;

/// The label of a node that names its zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a node that names its building block.
pub(crate) const BUILDING_BLOCK: &str = "kubernetes.metal.cloud.sap/bb";

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
    /// What the legacy call said about HA.
    pub legacy: Option<bool>,
    /// How many guests it is known to have.
    pub instances: usize,
    /// Which, if its Hypervisor object tells.
    pub guests: Arc<[Uuid]>,
    /// The node agent could not reach libvirt.
    pub libvirt_down: bool,
    /// The machine, as the Hypervisor object or the agent told; the agent's word wins.
    pub machine: Identity,
    /// How full it is, if its Hypervisor object tells.
    pub room: Option<Room>,
    /// What is kept free on it for guests of other hosts.
    pub reserved: Vec<Reserved>,
}

impl HostEntry {
    /// Whether it is a host of this service. Nova lists those of a whole region, other zones and other hypervisors
    /// included; in a cluster, one without a Hypervisor object is nobody's to protect.
    pub fn ours(&self, in_cluster: bool) -> bool {
        self.in_kubernetes || !in_cluster
    }

    /// The zone, if its node tells.
    pub fn zone(&self) -> Option<&str> {
        self.label(ZONE)
    }

    /// The building block, if its node tells.
    pub fn building_block(&self) -> Option<&str> {
        self.label(BUILDING_BLOCK)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Takes what the legacy call said. Where a Hypervisor object says what is wanted, it can only
    /// switch off.
    pub fn switch(&mut self, enabled: Option<bool>) {
        self.legacy = enabled;
        let off = enabled == Some(false);
        if off {
            self.ha_enabled = false;
            self.ha_reason = "switched off by a call of the operator".into();
        } else if !self.in_kubernetes {
            self.ha_enabled = true;
            self.ha_reason = match enabled {
                Some(_) => "switched on by a call of the operator".into(),
                None => "every host of Nova is covered".into(),
            };
        }
    }

    /// The failure domains that its labels name. The outermost stands for the whole fleet, which has limits of its own;
    /// one that is missing is there without a name, or the one inside it would be taken for it and have no limit. So
    /// would be the only one, unless it is the zone: there is one service per zone.
    fn domains(&self, keys: &[String]) -> Vec<Domain> {
        let alone = matches!(keys, [key] if key != ZONE);
        let named = keys.iter().enumerate().filter_map(|(n, key)| {
            let missing = (n == 0 && !alone).then_some("");
            Some(Domain(format!("{key}={}", self.label(key).or(missing)?)))
        });
        let fleet = alone.then(|| Domain(format!("{ZONE}={}", self.zone().unwrap_or_default())));
        fleet.into_iter().chain(named).collect()
    }

    /// What the engine is told.
    pub fn facts(&self, host: &HostName, domains: &[String]) -> HostFacts {
        HostFacts {
            host: host.clone(),
            domains: self.domains(domains),
            ha_enabled: self.ha_enabled,
            ambiguous: self.ambiguous,
            maintenance: self.maintenance.clone(),
            instances: self.instances,
            libvirt_down: self.libvirt_down,
            machine: self.machine.clone(),
            room: self.room,
            reserved: self.reserved.clone(),
        }
    }
}

/// Every host. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    hosts: Arc<RwLock<BTreeMap<HostName, Arc<HostEntry>>>>,
    /// What the legacy call said, as last read.
    remembered: Arc<RwLock<BTreeMap<HostName, bool>>>,
    /// Guests all of whose disks are in Ceph.
    pub in_ceph: Guests,
    /// Guests whose disk, if it was made of an image, is on their host and nowhere else.
    pub outside_ceph: Guests,
}

impl Directory {
    /// One host.
    pub fn get(&self, host: &HostName) -> Option<Arc<HostEntry>> {
        self.hosts.read().get(host).cloned()
    }

    /// All hosts.
    pub fn all(&self) -> Vec<(HostName, Arc<HostEntry>)> {
        self.hosts
            .read()
            .iter()
            .map(|(host, entry)| (host.clone(), Arc::clone(entry)))
            .collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hosts.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.read().is_empty()
    }

    /// The host that Nova calls `nova_host`: one with a Hypervisor object rather than one that only Nova has told of.
    pub fn by_nova_host(&self, nova_host: &str) -> Option<HostName> {
        let hosts = self.hosts.read();
        hosts
            .iter()
            .filter(|(_, entry)| entry.nova_host.as_deref() == Some(nova_host))
            .min_by_key(|(_, entry)| !entry.in_kubernetes)
            .map(|(host, _)| host.clone())
    }

    /// Changes one host, which is made if it is new. Says whether anything changed.
    pub fn change(&self, host: &HostName, change: impl FnOnce(&mut HostEntry)) -> bool {
        let mut hosts = self.hosts.write();
        let before = hosts.get(host).cloned();
        let mut after = before.as_deref().cloned().unwrap_or_else(|| HostEntry {
            legacy: self.remembered.read().get(host).copied(),
            ..HostEntry::default()
        });
        change(&mut after);
        if before.as_deref() == Some(&after) {
            return false;
        }
        hosts.insert(host.clone(), Arc::new(after));
        true
    }

    /// Keeps in mind what the legacy call said of a host that is not listed yet.
    pub fn remember(&self, host: &HostName, enabled: bool) {
        self.remembered.write().insert(host.clone(), enabled);
    }

    /// These hosts are switched off by the legacy call, and no others.
    pub fn switched_off(&self, off: &BTreeSet<HostName>) {
        *self.remembered.write() = off.iter().map(|host| (host.clone(), false)).collect();
        for (host, entry) in self.all() {
            let said = off.contains(&host).then_some(false);
            if entry.legacy != said {
                self.change_known(&host, |entry| entry.switch(said));
            }
        }
    }

    /// Changes one host, if it is known.
    pub fn change_known(&self, host: &HostName, change: impl FnOnce(&mut HostEntry)) -> bool {
        let known = self.hosts.read().contains_key(host);
        known && self.change(host, change)
    }

    /// Forgets a host.
    pub fn remove(&self, host: &HostName) -> bool {
        self.hosts.write().remove(host).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_domain_is_always_the_fleet() {
        let told = |labels: &[(&str, &str)], keys: &[&str]| {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let entry = HostEntry {
                labels: labels.collect(),
                ..HostEntry::default()
            };
            let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            let facts = entry.facts(&HostName::new("n1").unwrap(), &keys);
            facts
                .domains
                .into_iter()
                .map(|domain| domain.0)
                .collect::<Vec<_>>()
        };
        let (zone, rack) = (
            "topology.kubernetes.io/zone=a",
            "kubernetes.metal.cloud.sap/bb=bb1",
        );
        let both = [(ZONE, "a"), (BUILDING_BLOCK, "bb1")];
        assert_eq!(told(&both, &[ZONE, BUILDING_BLOCK]), [zone, rack]);
        assert_eq!(
            told(&both[1..], &[ZONE, BUILDING_BLOCK]),
            ["topology.kubernetes.io/zone=", rack],
            "a rack without a zone is still a rack"
        );
        assert_eq!(told(&both[..1], &[ZONE, BUILDING_BLOCK]), [zone]);
        assert_eq!(
            told(&both, &[BUILDING_BLOCK]),
            [zone, rack],
            "racks alone have limits"
        );
        assert_eq!(told(&both, &[ZONE]), [zone]);
        assert_eq!(told(&both, &[]), Vec::<String>::new());
    }
    #[test]
    fn of_two_that_nova_calls_the_same_the_one_with_an_object_counts() {
        let directory = Directory::default();
        for (host, object) in [("n1", false), ("renamed", true)] {
            directory.change(&HostName::new(host).unwrap(), |entry| {
                entry.nova_host = Some("n1".into());
                entry.in_kubernetes = object;
            });
        }
        assert_eq!(directory.by_nova_host("n1"), HostName::new("renamed").ok());
        directory.remove(&HostName::new("renamed").unwrap());
        assert_eq!(directory.by_nova_host("n1"), HostName::new("n1").ok());
    }
}
