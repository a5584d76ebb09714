// SPDX-License-Identifier: Apache-2.0
//! Everything the world consists of, as one value that can be saved: plain records, the indexes that keep lookups by
//! host cheap, and the queue of what happens next. All changes go through it while one lock is held.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use cobaltcore_libvirt::EventBody;
use cobaltcore_libvirt::types::Domain as DomainRef;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::fault::Faults;
use super::host::Host;
use super::names::{HostName, Random};
use super::placement::{Consumer, Placement, Resources};
use super::records::{
    Aggregate, AppCredential, IdentityDomain, Image, Keypair, Network, Port, Project, ServerGroup, Subnet,
    User, Volume,
};
use super::server::{Action, Fault, Flavor, Migration, MigrationStatus, Server, TaskState, VmState};
use super::switch::Switch;
use super::timers::Due;

/// How long things take when nothing is wrong, and other settings of the cloud.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// Each of the four steps of making a server.
    pub build_step: Duration,
    /// From power-on of a guest to its login prompt.
    pub guest_boot: Duration,
    /// Starting, stopping, pausing and such.
    pub power_action: Duration,
    /// A graceful shutdown of a guest.
    pub shutdown: Duration,
    /// Deleting a server.
    pub delete: Duration,
    /// Choosing a host and checking it.
    pub schedule: Duration,
    /// Getting a destination ready.
    pub prepare: Duration,
    /// Cleaning up after a migration.
    pub finish: Duration,
    /// Each step of a cold migration.
    pub cold_step: Duration,
    /// Starting an evacuated server on its new host.
    pub evacuate: Duration,
    /// From power-on of a host to its operating system.
    pub host_boot: Duration,
    /// From the operating system to nova-compute's first report.
    pub compute_start: Duration,
    /// Interval of Nova's comparison of power states.
    pub power_sync: Duration,
    /// Longest pause of a live migration, milliseconds.
    pub max_downtime_ms: u64,
    /// Highest Nova microversion, the number after `2.`.
    pub nova_max: u32,
    /// How long tokens are good for.
    pub token_life: Duration,
    /// Servers, cores and memory (MiB) a project may have; -1 for no limit.
    pub quota: Quota,
}

/// Limits of a project; -1 means none.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Quota {
    /// Servers.
    pub instances: i64,
    /// Virtual CPUs.
    pub cores: i64,
    /// Memory in MiB.
    pub ram: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            build_step: Duration::from_millis(600),
            guest_boot: Duration::from_secs(8),
            power_action: Duration::from_millis(800),
            shutdown: Duration::from_secs(3),
            delete: Duration::from_millis(900),
            schedule: Duration::from_millis(400),
            prepare: Duration::from_millis(1_200),
            finish: Duration::from_millis(1_000),
            cold_step: Duration::from_millis(1_500),
            evacuate: Duration::from_secs(6),
            host_boot: Duration::from_secs(45),
            compute_start: Duration::from_secs(10),
            power_sync: Duration::from_secs(600),
            max_downtime_ms: 500,
            nova_max: 96,
            token_life: Duration::from_secs(3_600),
            quota: Quota {
                instances: -1,
                cores: -1,
                ram: -1,
            },
        }
    }
}

/// An event for the clients of one host's libvirt.
#[derive(Debug, Clone)]
pub struct HostEvent {
    /// Which host.
    pub host: HostName,
    /// Which domain, with its number at that moment.
    pub domain: DomainRef,
    /// What happened.
    pub body: EventBody,
}

/// The whole world.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// Up to when everything has happened.
    pub now: Moment,
    /// How long things take.
    pub settings: Settings,
    /// Hosts by name.
    pub hosts: BTreeMap<HostName, Host>,
    /// Servers by id.
    pub servers: BTreeMap<Uuid, Server>,
    /// Moves by number.
    pub migrations: BTreeMap<u64, Migration>,
    /// Placement's records.
    pub placement: Placement,
    /// Nova's aggregates by number.
    pub aggregates: BTreeMap<u64, Aggregate>,
    /// Sizes by id.
    pub flavors: BTreeMap<String, Flavor>,
    /// Images by id.
    pub images: BTreeMap<Uuid, Image>,
    /// Networks by id.
    pub networks: BTreeMap<Uuid, Network>,
    /// Subnets by id.
    pub subnets: BTreeMap<Uuid, Subnet>,
    /// Ports by id.
    pub ports: BTreeMap<Uuid, Port>,
    /// Volumes by id.
    pub volumes: BTreeMap<Uuid, Volume>,
    /// Server groups by id.
    pub groups: BTreeMap<Uuid, ServerGroup>,
    /// Keys by user and name.
    pub keypairs: Vec<Keypair>,
    /// Identity domains by id.
    pub domains: BTreeMap<String, IdentityDomain>,
    /// Projects by id.
    pub projects: BTreeMap<Uuid, Project>,
    /// Users by id.
    pub users: BTreeMap<Uuid, User>,
    /// Application credentials.
    pub app_credentials: Vec<AppCredential>,
    /// What is broken on purpose.
    pub faults: Faults,
    /// The virtual switches of hosts, as far as they are not as they come.
    #[serde(default)]
    pub switches: BTreeMap<HostName, Switch>,
    pub(crate) random: Random,
    pub(crate) timers: BTreeMap<Moment, Vec<Due>>,
    next_number: u64,
    #[serde(skip)]
    by_host: HashMap<HostName, BTreeSet<Uuid>>,
    #[serde(skip)]
    by_node: HashMap<Uuid, HostName>,
    #[serde(skip)]
    by_service: HashMap<Uuid, HostName>,
    #[serde(skip)]
    migrations_of: HashMap<Uuid, Vec<u64>>,
    #[serde(skip)]
    open: BTreeSet<u64>,
    #[serde(skip)]
    open_from: HashMap<HostName, BTreeSet<u64>>,
    #[serde(skip)]
    used: HashMap<Uuid, (i64, i64, i64)>,
    #[serde(skip)]
    by_project: HashMap<Uuid, BTreeSet<Uuid>>,
    #[serde(skip)]
    pub(crate) outbox: Vec<HostEvent>,
    /// Hosts whose power, network or daemons changed since somebody was told.
    #[serde(skip)]
    pub(crate) changed: Vec<HostName>,
}

impl State {
    pub(crate) fn new(now: Moment, seed: u64) -> Self {
        Self {
            now,
            settings: Settings::default(),
            hosts: BTreeMap::new(),
            servers: BTreeMap::new(),
            migrations: BTreeMap::new(),
            placement: Placement::default(),
            aggregates: BTreeMap::new(),
            flavors: BTreeMap::new(),
            images: BTreeMap::new(),
            networks: BTreeMap::new(),
            subnets: BTreeMap::new(),
            ports: BTreeMap::new(),
            volumes: BTreeMap::new(),
            groups: BTreeMap::new(),
            keypairs: Vec::new(),
            domains: BTreeMap::new(),
            projects: BTreeMap::new(),
            users: BTreeMap::new(),
            app_credentials: Vec::new(),
            faults: Faults::default(),
            switches: BTreeMap::new(),
            random: Random::new(seed),
            timers: BTreeMap::new(),
            next_number: 1,
            by_host: HashMap::new(),
            by_node: HashMap::new(),
            by_service: HashMap::new(),
            migrations_of: HashMap::new(),
            open: BTreeSet::new(),
            open_from: HashMap::new(),
            used: HashMap::new(),
            by_project: HashMap::new(),
            outbox: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Fills what is not saved.
    pub(crate) fn index(&mut self) {
        self.placement.index();
        for host in self.hosts.values() {
            self.by_node.insert(host.node_uuid, host.name.clone());
            if let Some(service) = &host.service {
                self.by_service.insert(service.uuid, host.name.clone());
            }
        }
        for server in self.servers.values() {
            if let Some(host) = &server.host {
                self.by_host.entry(host.clone()).or_default().insert(server.id);
            }
            account(&mut self.used, server, 1);
            let own = self.by_project.entry(server.project).or_default();
            own.insert(server.id);
        }
        for migration in self.migrations.values() {
            self.migrations_of
                .entry(migration.server)
                .or_default()
                .push(migration.id);
            if migration.is_open() {
                self.open.insert(migration.id);
                let from = self.open_from.entry(migration.source.clone()).or_default();
                from.insert(migration.id);
            }
        }
    }

    /// A fresh identifier.
    pub fn fresh(&mut self) -> Uuid {
        self.random.uuid()
    }

    /// A fresh number.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// `span`, give or take a tenth: nothing in a data centre takes the same time twice.
    pub(crate) fn about(&mut self, span: Duration) -> Duration {
        span.mul_f64(0.9 + 0.2 * self.random.fraction())
    }

    /// Lets something happen after about `span`.
    pub(crate) fn after(&mut self, span: Duration, due: Due) {
        let span = self.about(span);
        self.at(self.now + span, due);
    }

    /// Lets something happen at a moment.
    pub(crate) fn at(&mut self, at: Moment, due: Due) {
        self.timers.entry(at).or_default().push(due);
    }

    pub(crate) fn add_host(&mut self, host: Host) {
        self.by_node.insert(host.node_uuid, host.name.clone());
        if let Some(service) = &host.service {
            self.by_service.insert(service.uuid, host.name.clone());
        }
        self.hosts.insert(host.name.clone(), host);
    }

    pub(crate) fn index_service(&mut self, uuid: Uuid, host: &HostName) {
        self.by_service.insert(uuid, host.clone());
    }

    pub(crate) fn forget_service(&mut self, uuid: Uuid) {
        self.by_service.remove(&uuid);
    }

    pub(crate) fn add_server(&mut self, server: Server) {
        if let Some(host) = &server.host {
            self.by_host.entry(host.clone()).or_default().insert(server.id);
        }
        account(&mut self.used, &server, 1);
        let own = self.by_project.entry(server.project).or_default();
        own.insert(server.id);
        self.servers.insert(server.id, server);
    }

    pub(crate) fn forget_server(&mut self, id: Uuid) -> Option<Server> {
        self.place(id, None);
        let server = self.servers.remove(&id)?;
        account(&mut self.used, &server, -1);
        if let Some(own) = self.by_project.get_mut(&server.project) {
            own.remove(&id);
        }
        Some(server)
    }

    /// Servers, virtual CPUs and MiB of a project.
    pub fn used_by(&self, project: Uuid) -> (i64, i64, i64) {
        self.used.get(&project).copied().unwrap_or_default()
    }

    /// Nova now believes the server to be there.
    pub(crate) fn place(&mut self, id: Uuid, host: Option<HostName>) {
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if let Some(before) = &server.host
            && let Some(set) = self.by_host.get_mut(before)
        {
            set.remove(&id);
        }
        if let Some(host) = &host {
            self.by_host.entry(host.clone()).or_default().insert(id);
        }
        server.host = host;
    }

    /// Servers Nova believes to be on a host, by id.
    pub fn servers_on(&self, host: &str) -> impl Iterator<Item = &Server> {
        self.by_host
            .get(host)
            .into_iter()
            .flatten()
            .filter_map(|id| self.servers.get(id))
    }

    /// Servers of a project, by id.
    pub fn servers_of(&self, project: Uuid) -> impl Iterator<Item = &Server> {
        let ids = self.by_project.get(&project).into_iter().flatten();
        ids.filter_map(|id| self.servers.get(id))
    }

    /// The host with this compute node.
    pub fn host_by_node(&self, uuid: Uuid) -> Option<&Host> {
        self.hosts.get(self.by_node.get(&uuid)?)
    }

    /// The host with this compute service.
    pub fn host_by_service(&self, uuid: Uuid) -> Option<&Host> {
        self.hosts.get(self.by_service.get(&uuid)?)
    }

    pub(crate) fn add_migration(&mut self, migration: Migration) {
        self.migrations_of
            .entry(migration.server)
            .or_default()
            .push(migration.id);
        self.open.insert(migration.id);
        let from = self.open_from.entry(migration.source.clone()).or_default();
        from.insert(migration.id);
        self.migrations.insert(migration.id, migration);
    }

    /// Moves of a server, oldest first.
    pub fn migrations_of(&self, server: Uuid) -> impl DoubleEndedIterator<Item = &Migration> {
        self.migrations_of
            .get(&server)
            .into_iter()
            .flatten()
            .filter_map(|id| self.migrations.get(id))
    }

    /// Moves that somebody still has something to do for.
    pub fn open_migrations(&self) -> impl Iterator<Item = &Migration> {
        self.open.iter().filter_map(|id| self.migrations.get(id))
    }

    /// The same, of one source.
    pub fn open_migrations_from(&self, host: &str) -> impl Iterator<Item = &Migration> {
        let ids = self.open_from.get(host).into_iter().flatten();
        ids.filter_map(|id| self.migrations.get(id))
    }

    /// Takes a move to another status.
    pub(crate) fn set_migration(&mut self, id: u64, status: MigrationStatus) {
        let now = self.now;
        if let Some(migration) = self.migrations.get_mut(&id) {
            migration.status = status;
            migration.updated = now;
            if !migration.is_open() {
                self.open.remove(&id);
                if let Some(from) = self.open_from.get_mut(&migration.source) {
                    from.remove(&id);
                }
            }
        }
    }

    /// The zone Nova sees a host in: that of an aggregate, `nova` without one.
    pub fn zone_of(&self, host: &str) -> String {
        self.aggregates
            .values()
            .filter(|aggregate| aggregate.has(host))
            .find_map(Aggregate::zone)
            .unwrap_or("nova")
            .to_owned()
    }

    /// Changes a server and notes when.
    pub(crate) fn touch<R>(&mut self, id: Uuid, change: impl FnOnce(&mut Server) -> R) -> Option<R> {
        let now = self.now;
        let server = self.servers.get_mut(&id)?;
        server.updated = now;
        Some(change(server))
    }

    /// Puts a server into Nova's states.
    pub(crate) fn set_states(&mut self, id: Uuid, vm: VmState, task: Option<TaskState>) {
        self.touch(id, |server| {
            server.vm_state = vm;
            server.task_state = task;
        });
    }

    /// Notes what went wrong with a server.
    pub(crate) fn set_fault(&mut self, id: Uuid, code: u16, message: impl Into<String>) {
        let created = self.now;
        let message = message.into();
        self.touch(id, |server| {
            if let Some(last) = server.actions.first_mut() {
                last.message = Some("Error".to_owned());
            }
            server.fault = Some(Fault {
                code,
                message,
                details: None,
                created,
            });
        });
    }

    /// Notes what somebody did to a server.
    pub(crate) fn note_action(&mut self, id: Uuid, action: &str, request_id: &str, user: Uuid) {
        let start = self.now;
        self.touch(id, |server| {
            let action = Action {
                action: action.to_owned(),
                request_id: request_id.to_owned(),
                user,
                start,
                message: None,
            };
            server.actions.insert(0, action);
            server.actions.truncate(50);
        });
    }

    /// What a server takes, under its own name, at a host's provider.
    pub(crate) fn hold(&mut self, id: Uuid, host: &HostName, also_keep: bool) {
        let (Some(server), Some(provider)) = (
            self.servers.get(&id),
            self.hosts.get(host).map(|host| host.node_uuid),
        ) else {
            return;
        };
        let mut held = Consumer {
            project: server.project.simple().to_string(),
            user: server.user.simple().to_string(),
            kind: "INSTANCE".to_owned(),
            ..Consumer::default()
        };
        let amounts: Resources = server.resources();
        if also_keep && let Some(before) = self.placement.consumers.get(&id) {
            held.allocations.clone_from(&before.allocations);
        }
        held.allocations.insert(provider, amounts);
        self.placement.allocate(id, held);
    }

    /// Tells the clients of a host's libvirt, if there is a daemon to do so.
    pub(crate) fn announce(&mut self, host: &HostName, domain: DomainRef, body: EventBody) {
        self.outbox.push(HostEvent {
            host: host.clone(),
            domain,
            body,
        });
    }

    /// Guests that execute on more than one host, which must never be.
    pub fn running_twice(&self) -> Vec<(Uuid, Vec<HostName>)> {
        let mut seen: BTreeMap<Uuid, Vec<HostName>> = BTreeMap::new();
        for host in self.hosts.values() {
            for domain in host.domains.values().filter(|domain| domain.executes()) {
                seen.entry(domain.uuid).or_default().push(host.name.clone());
            }
        }
        seen.retain(|_, hosts| hosts.len() > 1);
        seen.into_iter().collect()
    }
}

fn account(used: &mut HashMap<Uuid, (i64, i64, i64)>, server: &Server, sign: i64) {
    let sum = used.entry(server.project).or_default();
    sum.0 += sign;
    sum.1 += sign * i64::from(server.flavor.vcpus);
    sum.2 += sign * server.flavor.ram_mb as i64;
}
