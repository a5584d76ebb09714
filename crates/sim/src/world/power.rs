// SPDX-License-Identifier: Apache-2.0
//! Hosts that lose power, boot, are cut off and mended, and their nova-compute and libvirt that stop and start. What Nova
//! notices of it, and when, follows from whether reports still arrive.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::domain::{Phase, ShutOff};
use super::host::{Libvirt, Power, Service};
use super::names::HostName;
use super::placement::{HOST_TRAITS, Inventory, Provider, STATUS_DISABLED};
use super::state::State;
use super::switch::Vswitchd;
use super::timers::Due;

impl State {
    /// Keeps what Nova hears in step with what the host does.
    fn note_reports(&mut self, name: &HostName) {
        let now = self.now;
        self.changed.push(name.clone());
        if let Some(host) = self.hosts.get_mut(name) {
            let reports = host.reports();
            if let Some(service) = &mut host.service {
                service.silent_since = match (reports, service.silent_since) {
                    (true, _) => None,
                    (false, Some(since)) => Some(since),
                    (false, None) => Some(now),
                };
            }
        }
    }

    /// Takes the power away: every guest on the host is gone at once, and no event says so.
    pub(crate) fn power_off(&mut self, name: &HostName) {
        let now = self.now;
        if let Some(host) = self.hosts.get_mut(name) {
            host.power = Power::Off;
            host.domains.retain(|_, domain| {
                // A guest that was still arriving has no definition here.
                let arriving =
                    domain.phase == Phase::Paused(super::domain::Paused::Migration) && domain.job.is_none();
                domain.job = None;
                domain.finished = None;
                domain.enter(Phase::ShutOff(ShutOff::Unknown), now);
                !arriving
            });
        }
        self.note_reports(name);
    }

    /// Gives power: after a while the operating system is up, then libvirt, then nova-compute.
    pub(crate) fn power_on(&mut self, name: &HostName) {
        let boot = self.fresh();
        let span = self.settings.host_boot;
        let Some(host) = self.hosts.get_mut(name).filter(|host| host.power == Power::Off) else {
            return;
        };
        host.power = Power::Booting;
        host.boot_id = boot;
        self.after(span, Due::HostUp(name.clone(), boot));
    }

    pub(crate) fn host_up(&mut self, name: &HostName, boot: Uuid) {
        let now = self.now;
        let current = |host: &&mut super::host::Host| host.boot_id == boot && host.power == Power::Booting;
        let Some(host) = self.hosts.get_mut(name).filter(current) else {
            return;
        };
        host.power = Power::On;
        host.booted_at = now;
        host.libvirt = Libvirt::Up;
        host.next_domain_id = 1;
        if let Some(switch) = self.switches.get_mut(name) {
            (switch.vswitchd, switch.ovsdb) = (Vswitchd::Up, true);
        }
        let span = self.settings.compute_start;
        let starts = std::mem::replace(&mut host.compute, false);
        self.changed.push(name.clone());
        if starts {
            self.after(span, Due::ComputeUp(name.clone(), boot));
        }
    }

    pub(crate) fn compute_up(&mut self, name: &HostName, boot: Uuid) {
        if self.hosts.get(name).is_some_and(|host| host.boot_id == boot) {
            self.start_compute(name);
        }
    }

    /// nova-compute starts: it registers if Nova does not know it, cleans up what happened without it, and reports.
    pub(crate) fn start_compute(&mut self, name: &HostName) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        host.compute = true;
        if host.power != Power::On {
            return;
        }
        if host.service.is_none() {
            self.register(name);
        }
        self.note_reports(name);
        if !self.hosts.get(name).is_some_and(super::host::Host::reports) {
            return;
        }
        self.clean_evacuated(name);
        self.clean_migrations(name);
        let span = self.settings.power_sync;
        self.after(span, Due::SyncHost(name.clone()));
    }

    /// nova-compute stops; the guests go on.
    pub(crate) fn stop_compute(&mut self, name: &HostName) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.compute = false;
        }
        self.note_reports(name);
    }

    /// Cuts a host off from everything but its own disks, or mends that.
    pub(crate) fn set_cut(&mut self, name: &HostName, cut: bool) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.cut = cut;
        }
        self.note_reports(name);
    }

    /// Makes Nova and Placement know the host: an enabled service, a compute node, a provider.
    pub(crate) fn register(&mut self, name: &HostName) {
        let (id, uuid) = (self.number(), self.fresh());
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        host.service = Some(Service {
            id,
            uuid,
            disabled: false,
            disabled_reason: None,
            forced_down: false,
            silent_since: None,
            cell_down: false,
        });
        let node = host.node_uuid;
        let provider = self
            .placement
            .providers
            .entry(node)
            .or_insert_with(|| Provider::new(node, host.hypervisor_hostname.clone()));
        provider.inventories = BTreeMap::from([
            ("VCPU".to_owned(), Inventory::of(u64::from(host.cpus()), 0, 4.0)),
            ("MEMORY_MB".to_owned(), Inventory::of(host.memory_mb, 512, 1.0)),
            ("DISK_GB".to_owned(), Inventory::of(host.disk_gb, 0, 1.0)),
        ]);
        provider
            .traits
            .extend(HOST_TRAITS.iter().map(|name| (*name).to_owned()));
        provider.traits.remove(STATUS_DISABLED);
        provider.generation += 2;
        self.index_service(uuid, name);
        self.note_reports(name);
    }

    /// Deletes Nova's record of a host's service, and its provider when nobody holds anything there.
    pub(crate) fn unregister(&mut self, name: &HostName) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let Some(service) = host.service.take() else {
            return;
        };
        let node = host.node_uuid;
        for aggregate in self.aggregates.values_mut() {
            aggregate.hosts.remove(name);
        }
        let empty = self
            .placement
            .providers
            .get(&node)
            .is_some_and(|provider| provider.consumers.is_empty());
        if empty {
            self.placement.remove_provider(node);
        }
        self.forget_service(service.uuid);
    }

    /// Enables or disables a service, with the trait that tells Placement.
    pub(crate) fn set_disabled(&mut self, name: &HostName, disabled: bool, reason: Option<String>) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let node = host.node_uuid;
        let reachable = host.reports();
        if let Some(service) = &mut host.service {
            service.disabled = disabled;
            service.disabled_reason = reason;
        }
        // nova-compute itself sets the trait; a dead one cannot.
        if reachable {
            self.placement.mark(node, STATUS_DISABLED, disabled);
        }
    }
}
