// SPDX-License-Identifier: Apache-2.0
//! What happens to domains on a host, with the events libvirt sends in the order it sends them. Nothing here changes what
//! Nova believes.

use cobaltcore_libvirt::EventBody;
use cobaltcore_libvirt::types::Domain as DomainRef;
use uuid::Uuid;

use super::clock::Moment;
use super::domain::{Domain, Paused, Phase, Running, ShutOff};
use super::host::{Libvirt, Power};
use super::names::HostName;
use super::server::Server;
use super::state::State;
use super::timers::Due;

/// Nova waits this long before it believes that a guest stopped.
const STOP_SETTLE: std::time::Duration = std::time::Duration::from_secs(15);

fn lifecycle(event: i32, detail: i32) -> EventBody {
    EventBody::Lifecycle { event, detail }
}

impl Domain {
    /// How libvirt names it right now.
    pub fn reference(&self) -> DomainRef {
        DomainRef::new(self.name.clone(), self.uuid, self.id)
    }

    pub(crate) fn of(server: &Server, cell: Option<u32>, now: Moment) -> Self {
        Self {
            uuid: server.id,
            name: server.domain_name(),
            id: -1,
            phase: Phase::ShutOff(ShutOff::Unknown),
            since: now,
            vcpus: server.flavor.vcpus,
            memory_kib: server.flavor.ram_mb * 1024,
            cpu_time_ns: 0,
            hung: false,
            cell,
            job: None,
            finished: None,
            xml: None,
        }
    }
}

impl State {
    /// A domain of a host.
    pub fn domain(&self, host: &str, id: Uuid) -> Option<&Domain> {
        self.hosts.get(host)?.domains.get(&id)
    }

    pub(crate) fn domain_mut(&mut self, host: &HostName, id: Uuid) -> Option<&mut Domain> {
        self.hosts.get_mut(host)?.domains.get_mut(&id)
    }

    /// Changes a domain and announces what `change` says happened.
    pub(crate) fn with_domain(
        &mut self,
        host: &HostName,
        id: Uuid,
        change: impl FnOnce(&mut Domain, Moment) -> Vec<(DomainRef, EventBody)>,
    ) -> bool {
        let now = self.now;
        let Some(domain) = self.domain_mut(host, id) else {
            return false;
        };
        for (reference, body) in change(domain, now) {
            self.announce(host, reference, body);
        }
        true
    }

    /// Defines the domain of a server on a host, unless it is there.
    pub(crate) fn define(&mut self, host: &HostName, id: Uuid) {
        let now = self.now;
        let (Some(server), Some(place)) = (self.servers.get(&id), self.hosts.get_mut(host)) else {
            return;
        };
        if place.domains.contains_key(&id) {
            return;
        }
        // Spread over the cells by number, as NUMA-aware guests would be.
        let cells = place.cells.len() as u64;
        let cell = (cells > 1 && server.flavor.extra_specs.contains_key("hw:numa_nodes"))
            .then(|| (server.number % cells) as u32);
        let domain = Domain::of(server, cell, now);
        let reference = domain.reference();
        place.domains.insert(id, domain);
        self.announce(host, reference, lifecycle(0, 0));
    }

    /// Starts a domain that is off.
    pub(crate) fn boot(&mut self, host: &HostName, id: Uuid) {
        let now = self.now;
        let Some(place) = self.hosts.get_mut(host) else {
            return;
        };
        let number = place.next_domain_id;
        let Some(domain) = place.domains.get_mut(&id).filter(|domain| !domain.is_active()) else {
            return;
        };
        place.next_domain_id += 1;
        domain.id = number;
        domain.finished = None;
        domain.enter(Phase::Running(Running::Booted), now);
        let reference = domain.reference();
        // libvirt resumes the CPUs before it says that it started the guest.
        self.announce(host, reference.clone(), lifecycle(4, 0));
        self.announce(host, reference, lifecycle(2, 0));
        if let Some(server) = self.servers.get_mut(&id) {
            server.boot_began = Some(now);
        }
    }

    /// Ends a domain's process.
    pub(crate) fn destroy(&mut self, host: &HostName, id: Uuid) {
        self.with_domain(host, id, |domain, now| {
            if !domain.is_active() {
                return Vec::new();
            }
            let before = domain.reference();
            domain.enter(Phase::ShutOff(ShutOff::Destroyed), now);
            domain.job = None;
            vec![(before, lifecycle(6, 2)), (domain.reference(), lifecycle(5, 1))]
        });
    }

    /// The guest shuts itself down.
    pub(crate) fn guest_shuts_down(&mut self, host: &HostName, id: Uuid) {
        self.with_domain(host, id, |domain, now| {
            if !domain.is_active() {
                return Vec::new();
            }
            let before = domain.reference();
            domain.enter(Phase::ShutOff(ShutOff::Shutdown), now);
            domain.job = None;
            vec![(before, lifecycle(6, 1)), (domain.reference(), lifecycle(5, 0))]
        });
    }

    /// Removes a domain.
    pub(crate) fn undefine(&mut self, host: &HostName, id: Uuid) {
        let Some(place) = self.hosts.get_mut(host) else {
            return;
        };
        if let Some(domain) = place.domains.remove(&id) {
            self.announce(host, domain.reference(), lifecycle(1, 0));
        }
    }

    /// Stops a domain's CPUs.
    pub(crate) fn pause(&mut self, host: &HostName, id: Uuid, why: Paused) {
        let detail = match why {
            Paused::User => 0,
            Paused::Migration => 1,
            Paused::IoError => 2,
            Paused::Watchdog => 3,
        };
        self.with_domain(host, id, |domain, now| {
            if !domain.executes() {
                return Vec::new();
            }
            domain.enter(Phase::Paused(why), now);
            vec![(domain.reference(), lifecycle(3, detail))]
        });
    }

    /// Lets a domain's CPUs run again.
    pub(crate) fn unpause(&mut self, host: &HostName, id: Uuid, why: Running) {
        let detail = i32::from(why == Running::Migrated);
        self.with_domain(host, id, |domain, now| {
            if !matches!(domain.phase, Phase::Paused(_)) {
                return Vec::new();
            }
            domain.enter(Phase::Running(why), now);
            vec![(domain.reference(), lifecycle(4, detail))]
        });
    }

    /// Resets a domain's hardware: the guest boots again under the same number.
    pub(crate) fn reset(&mut self, host: &HostName, id: Uuid) {
        let done = self.with_domain(host, id, |domain, now| {
            if !domain.is_active() {
                return Vec::new();
            }
            domain.enter(Phase::Running(Running::Booted), now);
            domain.hung = false;
            vec![(domain.reference(), EventBody::Reboot {})]
        });
        let now = self.now;
        if done && let Some(server) = self.servers.get_mut(&id) {
            server.boot_began = Some(now);
        }
    }

    /// A guest's process dies.
    pub(crate) fn crash(&mut self, host: &HostName, id: Uuid) -> bool {
        let mut crashed = false;
        self.with_domain(host, id, |domain, now| {
            if !domain.is_active() {
                return Vec::new();
            }
            crashed = true;
            domain.enter(Phase::ShutOff(ShutOff::Crashed), now);
            domain.job = None;
            vec![(domain.reference(), lifecycle(5, 2))]
        });
        if crashed {
            self.after(STOP_SETTLE, Due::SyncServer(id));
        }
        crashed
    }

    /// Nova hears that a guest stopped, and believes it after a while.
    pub(crate) fn sync_soon(&mut self, id: Uuid) {
        self.after(STOP_SETTLE, Due::SyncServer(id));
    }

    /// A domain that Nova knows nothing of; one with the same identity is replaced.
    pub(crate) fn define_foreign(&mut self, host: &HostName, domain: Domain) -> DomainRef {
        let (id, reference) = (domain.uuid, domain.reference());
        let known = self.domain(host.as_str(), id).is_some();
        if let Some(place) = self.hosts.get_mut(host) {
            match place.domains.get_mut(&id) {
                Some(there) => there.xml = domain.xml,
                None => {
                    place.domains.insert(id, domain);
                }
            }
        }
        self.announce(host, reference.clone(), lifecycle(0, i32::from(known)));
        reference
    }

    /// Whether a guest can be driven there at all.
    pub(crate) fn drivable(&self, host: &HostName) -> bool {
        self.hosts
            .get(host)
            .is_some_and(|host| host.power == Power::On && host.libvirt == Libvirt::Up && host.compute)
    }
}
