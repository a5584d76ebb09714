// SPDX-License-Identifier: Apache-2.0
//! What replicas read of everybody at once: hosts in Kubernetes, node leases, compute services, and what the other
//! replicas hear. The lists are kept and brought up to date, because most of it is as it was.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{Domain, HostFacts, Observation, ReplicaId, Room, ServiceFacts};

use crate::world::World;

/// The lists.
#[derive(Default)]
pub(crate) struct Boards {
    services: Option<Observation>,
    leases: Option<Observation>,
    peers: [Option<Observation>; 3],
    /// In the order of names, the renewals that the texts of `leases` are about.
    renewed: Vec<u64>,
    /// The same of `services`.
    reported: Vec<u64>,
}

/// What a host looks like in Kubernetes, as far as it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    maintenance: Maintenance,
    ha_enabled: bool,
    instances: usize,
    libvirt_down: bool,
    free: u64,
    told: bool,
}

impl World {
    fn looks(&self, h: usize) -> Shown {
        let host = &self.hosts[h];
        Shown {
            maintenance: host.maintenance.clone(),
            ha_enabled: host.ha_enabled,
            instances: self.servers.count(h),
            libvirt_down: host.user && !host.libvirt,
            // Every host has room for a hundred guests, unless the cloud is full.
            free: if self.capacity { 100 } else { 0 },
            told: self.rooms_told,
        }
    }

    fn host_facts(&self, h: usize, shown: Shown) -> HostFacts {
        let host = &self.hosts[h];
        let guests = shown.instances as u64;
        HostFacts {
            host: host.name.clone(),
            domains: vec![Domain("zone=a".to_owned()), Domain(format!("bb=bb{}", host.rack))],
            ha_enabled: shown.ha_enabled,
            ambiguous: false,
            maintenance: shown.maintenance,
            instances: shown.instances,
            libvirt_down: shown.libvirt_down,
            machine: host.identity(),
            room: self.rooms_told.then_some(Room {
                used_mib: guests * 2048,
                free_mib: shown.free * 2048,
                used_vcpus: guests,
                free_vcpus: shown.free,
            }),
            reserved: Vec::new(),
        }
    }

    /// The hosts that look different from when this replica saw them last.
    pub(crate) fn show_hosts(&mut self, r: usize) {
        let mut before = std::mem::take(&mut self.replicas[r].shown);
        before.resize(self.hosts.len(), None);
        for (h, known) in before.iter_mut().enumerate() {
            let shown = self.looks(h);
            if known.as_ref() == Some(&shown) {
                continue;
            }
            let facts = self.host_facts(h, shown.clone());
            *known = Some(shown);
            self.show(r, &Observation::Host(facts));
        }
        self.replicas[r].shown = before;
    }

    pub(crate) fn show_leases(&mut self, r: usize) {
        let kept = self.boards.leases.take();
        let mut list = kept.unwrap_or_else(|| {
            let all = self.named.keys().map(|name| (name.clone(), String::new()));
            Observation::NodeLeases(all.collect())
        });
        self.boards.renewed.resize(self.hosts.len(), u64::MAX);
        if let Observation::NodeLeases(leases) = &mut list {
            let texts = leases.iter_mut().zip(&mut self.boards.renewed);
            for (((_, text), known), h) in texts.zip(self.named.values()) {
                let renewed = self.hosts[*h].node_lease;
                if std::mem::replace(known, renewed) != renewed {
                    *text = renewed.to_string();
                }
            }
        }
        self.show(r, &list);
        self.boards.leases = Some(list);
    }

    pub(crate) fn show_services(&mut self, r: usize) {
        let kept = self.boards.services.take();
        let mut list = kept.unwrap_or_else(|| {
            let all = self
                .named
                .iter()
                .map(|(name, h)| (name.clone(), self.service(*h)));
            Observation::Services(all.collect())
        });
        self.boards.reported.resize(self.hosts.len(), u64::MAX);
        if let Observation::Services(services) = &mut list {
            let texts = services.iter_mut().zip(&mut self.boards.reported);
            for (((_, service), known), h) in texts.zip(self.named.values()) {
                let host = &self.hosts[*h];
                if std::mem::replace(known, host.service_updated) != host.service_updated {
                    service.updated_at = host.service_updated.to_string();
                }
                service.up = host.service_up(self.now);
                service.disabled = host.disabled;
                service.forced_down = host.forced_down;
            }
        }
        self.show(r, &list);
        self.boards.services = Some(list);
    }

    /// A compute service as Nova shows it.
    pub(crate) fn service(&self, h: usize) -> ServiceFacts {
        let host = &self.hosts[h];
        ServiceFacts {
            updated_at: host.service_updated.to_string(),
            up: self.service_up(h),
            disabled: host.disabled,
            forced_down: host.forced_down,
        }
    }

    /// What another replica hears.
    pub(crate) fn show_peer(&mut self, r: usize, other: usize) {
        let now = self.mono(other);
        let kept = self.boards.peers[other].take();
        let mut seen = kept.unwrap_or_else(|| Observation::Peer {
            replica: ReplicaId(other as u8),
            hosts: Vec::new(),
        });
        if let Observation::Peer { hosts, .. } = &mut seen {
            self.replicas[other].engine.peer_view_into(now, hosts);
        }
        self.show(r, &seen);
        self.boards.peers[other] = Some(seen);
    }
}
