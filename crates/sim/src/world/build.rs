// SPDX-License-Identifier: Apache-2.0
//! How a world begins: hosts in zones, the projects, sizes, images and networks the roles expect to find, and servers
//! that already run. Everything is drawn from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::World;
use super::clock::{Clock, Moment};
use super::host::{Cell, Driver, Host, Libvirt, Power};
use super::names::{HostName, named_uuid};
use super::records::{Aggregate, IdentityDomain, Image, Network, Port, Project, Subnet, User};
use super::server::{Flavor, Server, VmState, power};
use super::state::{Settings, State};

/// Password of the administrator of every simulated cloud.
pub const ADMIN_PASSWORD: &str = "simulated";
/// The aggregate that is only for the test project.
pub const TEST_AGGREGATE: &str = "tenant_filter_tests";

/// Describes a world; see [`World::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    names: Vec<String>,
    zones: Vec<String>,
    suffix: String,
    seed: u64,
    vms_per_host: usize,
    fresh: bool,
    registered: bool,
    manual: Option<Moment>,
    scale: f64,
    settings: Settings,
    sockets: u32,
    cores: u32,
    memory_mb: u64,
    driver: Driver,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            zones: vec!["qa-de-1a".to_owned()],
            suffix: String::new(),
            seed: 0,
            vms_per_host: 0,
            fresh: false,
            registered: true,
            manual: None,
            scale: 1.0,
            settings: Settings::default(),
            sockets: 2,
            cores: 16,
            memory_mb: 256 * 1024,
            driver: Driver::Qemu,
        }
    }
}

impl Builder {
    /// This many hosts, named `node001-bb1` and so on; eight make a building block.
    pub fn hosts(mut self, count: usize) -> Self {
        self.names = (0..count)
            .map(|index| format!("node{:03}-bb{}", index + 1, index / 8 + 1))
            .collect();
        self
    }

    /// One more host, with a name.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Availability zones, given to hosts in turn.
    pub fn zones<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.zones = names.into_iter().map(Into::into).collect();
        self
    }

    /// What is appended to host names to make hypervisor host names, such as `.cc.example.com`.
    pub fn domain(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = suffix.into();
        self
    }

    /// The seed of everything random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Servers that already run on each host.
    pub fn vms_per_host(mut self, count: usize) -> Self {
        self.vms_per_host = count;
        self
    }

    /// Hosts are new: in no aggregate, their services disabled as Nova does with new ones when told to.
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// No host's nova-compute has started yet; see [`World::start_compute`].
    pub fn unregistered(mut self) -> Self {
        self.registered = false;
        self
    }

    /// Time stands until [`World::step`] moves it.
    pub fn manual_clock(mut self) -> Self {
        self.manual = Some(Moment::wall());
        self
    }

    /// Time stands at this moment until [`World::step`] moves it; the same seed then gives the same world.
    pub fn manual_clock_at(mut self, at: Moment) -> Self {
        self.manual = Some(at);
        self
    }

    /// Time goes this many times as fast as outside.
    pub fn time_scale(mut self, times: f64) -> Self {
        self.scale = times;
        self
    }

    /// Changes how long things take, quotas, microversions.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Size of every host: sockets, cores per socket (two threads each), MiB.
    pub fn host_size(mut self, sockets: u32, cores: u32, memory_mb: u64) -> Self {
        (self.sockets, self.cores, self.memory_mb) = (sockets, cores, memory_mb);
        self
    }

    /// Which hypervisor all hosts run.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// Makes the world.
    pub fn build(self) -> World {
        let start = self.manual.unwrap_or_else(Moment::wall);
        let mut state = State::new(start, self.seed);
        state.settings = self.settings.clone();
        let people = self.identities(&mut state);
        self.catalogue(&mut state, &people);
        self.aggregates(&mut state, &people);
        for index in 0..self.names.len() {
            self.add_host(&mut state, index);
        }
        self.add_servers(&mut state, &people);
        state.outbox.clear();
        let clock = match self.manual {
            Some(at) => Clock::standing(at),
            None => Clock::running(start, self.scale),
        };
        World::of(state, clock)
    }

    fn identities(&self, state: &mut State) -> People {
        let project = |state: &mut State, name: &str, domain: &str| {
            let id = state.fresh();
            let (name, domain) = (name.to_owned(), domain.to_owned());
            state.projects.insert(id, Project { id, name, domain });
            id
        };
        let test_domain = state.fresh().simple().to_string();
        for (id, name) in [("default", "Default"), (test_domain.as_str(), "cc3test")] {
            let (id, name) = (id.to_owned(), name.to_owned());
            state.domains.insert(id.clone(), IdentityDomain { id, name });
        }
        let admin = project(state, "admin", "default");
        let service = project(state, "service", "default");
        let demo = project(state, "demo", "default");
        let test = project(state, "test", &test_domain);
        let roles = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let all = roles(&["admin", "member", "reader"]);
        let user = User {
            id: state.fresh(),
            name: "admin".to_owned(),
            domain: "default".to_owned(),
            password: ADMIN_PASSWORD.to_owned(),
            roles: BTreeMap::from([
                (admin, all.clone()),
                (service, all.clone()),
                (test, roles(&["member", "reader"])),
                (demo, all.clone()),
            ]),
            system_roles: roles(&["admin"]),
        };
        let demo_user = User {
            id: state.fresh(),
            name: "demo".to_owned(),
            roles: BTreeMap::from([(demo, roles(&["member", "reader"]))]),
            system_roles: BTreeSet::new(),
            ..user.clone()
        };
        let admin_user = user.id;
        for user in [user, demo_user] {
            state.users.insert(user.id, user);
        }
        People {
            admin,
            demo,
            test,
            admin_user,
        }
    }

    fn catalogue(&self, state: &mut State, people: &People) {
        let flavors = [
            ("1", "m1.tiny", 1, 512),
            ("2", "m1.small", 1, 2048),
            ("3", "m1.medium", 2, 4096),
            ("4", "m1.large", 4, 8192),
            ("5", "m1.xlarge", 8, 16384),
        ];
        for (id, name, vcpus, ram_mb) in flavors {
            let flavor = Flavor {
                id: id.to_owned(),
                name: name.to_owned(),
                vcpus,
                ram_mb,
                disk_gb: 1,
                ephemeral_gb: 0,
                swap_mb: 0,
                extra_specs: BTreeMap::new(),
                public: true,
                description: None,
            };
            state.flavors.insert(flavor.id.clone(), flavor);
        }
        let now = state.now;
        for name in ["cirros-kvm", "debian-12"] {
            let image = Image {
                id: state.fresh(),
                name: name.to_owned(),
                status: "active".to_owned(),
                visibility: "public".to_owned(),
                owner: people.admin,
                disk_format: Some("qcow2".to_owned()),
                container_format: Some("bare".to_owned()),
                size: Some(21_430_272),
                min_disk: 0,
                min_ram: 0,
                protected: false,
                properties: BTreeMap::new(),
                tags: Vec::new(),
                created: now,
                updated: now,
            };
            state.images.insert(image.id, image);
        }
        for (index, (name, project, shared)) in [
            ("private", people.test, false),
            ("internal", people.demo, false),
            ("shared", people.admin, true),
        ]
        .into_iter()
        .enumerate()
        {
            let network = Network {
                id: state.fresh(),
                name: name.to_owned(),
                project,
                shared,
                external: false,
                kind: "vlan".to_owned(),
                segment: Some(100 + index as u32),
                mtu: 1500,
                created: now,
            };
            let subnet = Subnet {
                id: state.fresh(),
                name: format!("{name}-v4"),
                network: network.id,
                project,
                prefix: format!("10.{}", 10 + index),
                next: 10,
                created: now,
            };
            state.networks.insert(network.id, network);
            state.subnets.insert(subnet.id, subnet);
        }
    }

    fn aggregates(&self, state: &mut State, people: &People) {
        let mut wanted: Vec<(String, BTreeMap<String, String>)> = self
            .zones
            .iter()
            .map(|zone| {
                (
                    zone.clone(),
                    BTreeMap::from([("availability_zone".to_owned(), zone.clone())]),
                )
            })
            .collect();
        let tenant = people.test.simple().to_string();
        wanted.push((
            TEST_AGGREGATE.to_owned(),
            BTreeMap::from([("filter_tenant_id".to_owned(), tenant)]),
        ));
        wanted.push(("prod".to_owned(), BTreeMap::new()));
        for (index, (name, metadata)) in wanted.into_iter().enumerate() {
            let aggregate = Aggregate {
                id: index as u64 + 1,
                uuid: state.fresh(),
                name,
                hosts: BTreeSet::new(),
                metadata,
                created: state.now,
                updated: None,
            };
            state.aggregates.insert(aggregate.id, aggregate);
        }
    }

    fn add_host(&self, state: &mut State, index: usize) {
        let Some(name) = self.names.get(index) else { return };
        let zone = self
            .zones
            .get(index % self.zones.len().max(1))
            .cloned()
            .unwrap_or_default();
        let per_cell = self.cores * 2;
        let cells = (0..self.sockets)
            .map(|id| Cell {
                id,
                first_cpu: id * per_cell,
                cpus: per_cell,
                memory_kib: self.memory_mb * 1024 / u64::from(self.sockets.max(1)),
            })
            .collect();
        let host = Host {
            name: HostName::from(name.as_str()),
            hypervisor_hostname: format!("{name}{}", self.suffix),
            zone: zone.clone(),
            building_block: format!("bb{}", index / 8 + 1),
            node_id: index as u64 + 1,
            node_uuid: state.fresh(),
            service: None,
            sockets: self.sockets,
            cores: self.cores,
            threads: 2,
            memory_mb: self.memory_mb,
            disk_gb: 2_000,
            cells,
            ip: format!(
                "10.{}.{}.{}",
                100 + index / 62_500,
                index / 250 % 250,
                index % 250 + 1
            ),
            power: Power::On,
            booted_at: state.now - Duration::from_secs(86_400),
            boot_id: state.fresh(),
            compute: self.registered,
            cut: false,
            libvirt: Libvirt::Up,
            driver: self.driver,
            disk_full: false,
            domains: BTreeMap::new(),
            next_domain_id: 1,
            bandwidth: 1_000 << 20,
            max_live: 1,
        };
        let name = host.name.clone();
        state.add_host(host);
        if !self.registered {
            return;
        }
        state.register(&name);
        if self.fresh {
            let reason = "New compute service disabled due to config option.".to_owned();
            state.set_disabled(&name, true, Some(reason));
        } else {
            for aggregate in state.aggregates.values_mut() {
                if aggregate.name == zone || aggregate.name == "prod" {
                    aggregate.hosts.insert(name.clone());
                }
            }
        }
    }

    fn add_servers(&self, state: &mut State, people: &People) {
        let hosts: Vec<HostName> = state.hosts.keys().cloned().collect();
        let flavors: Vec<Flavor> = state.flavors.values().take(3).cloned().collect();
        let image = state.images.keys().next().copied();
        for host in hosts {
            for _ in 0..self.vms_per_host {
                let pick = state.random.next() as usize % flavors.len().max(1);
                let Some(flavor) = flavors.get(pick).cloned() else {
                    return;
                };
                state.add_running(&host, flavor, image, people.demo, people.admin_user);
            }
        }
    }
}

struct People {
    admin: Uuid,
    demo: Uuid,
    test: Uuid,
    admin_user: Uuid,
}

impl State {
    /// A server record with nothing done yet.
    pub(crate) fn draft(&mut self, name: String, flavor: Flavor, project: Uuid, user: Uuid) -> Server {
        let dirty = 4 << 20;
        Server {
            id: self.fresh(),
            number: self.number(),
            hostname: hostname_of(&name),
            name,
            project,
            user,
            flavor,
            image: None,
            host: None,
            vm_state: VmState::Building,
            task_state: None,
            power_state: power::NONE,
            created: self.now,
            updated: self.now,
            launched_at: None,
            boot_began: None,
            metadata: BTreeMap::new(),
            tags: Vec::new(),
            description: None,
            key_name: None,
            zone_asked: None,
            volumes: Vec::new(),
            ports: Vec::new(),
            security_groups: vec!["default".to_owned()],
            fault: None,
            lock: None,
            group: None,
            config_drive: false,
            dirty_rate: dirty,
            actions: Vec::new(),
            mute: false,
            share: false,
            old_flavor: None,
            old_vm_state: None,
        }
    }

    /// A server that has been running on a host for a day.
    pub(crate) fn add_running(
        &mut self,
        host: &HostName,
        flavor: Flavor,
        image: Option<Uuid>,
        project: Uuid,
        user: Uuid,
    ) -> Uuid {
        let mut server = self.draft(String::new(), flavor, project, user);
        server.name = format!("vm-{:05}", server.number);
        server.hostname.clone_from(&server.name);
        server.image = image;
        server.host = Some(host.clone());
        server.vm_state = VmState::Active;
        server.power_state = power::RUNNING;
        let began = self.now - Duration::from_secs(86_400);
        server.created = began;
        server.launched_at = Some(began);
        let id = server.id;
        server.ports.extend(self.plug_running(host, id, project));
        self.add_server(server);
        self.hold(id, host, false);
        self.define(host, id);
        self.boot(host, id);
        if let Some(server) = self.servers.get_mut(&id) {
            server.boot_began = Some(began);
        }
        id
    }
}

impl State {
    /// The port of a server that has been running for a day, in a network of its project.
    fn plug_running(&mut self, host: &HostName, server: Uuid, project: Uuid) -> Option<Uuid> {
        let network = self
            .networks
            .values()
            .find(|network| network.project == project)?
            .id;
        let subnet = self
            .subnets
            .values_mut()
            .find(|subnet| subnet.network == network)?;
        let number = subnet.next;
        subnet.next += 1;
        let id = named_uuid(server, "port");
        let port = Port {
            id,
            name: String::new(),
            network,
            subnet: subnet.id,
            address: subnet.address(number),
            mac: Port::mac_of(id),
            project,
            server: Some(server),
            host: Some(host.clone()),
            created: self.now - Duration::from_secs(86_400),
        };
        self.ports.insert(id, port);
        Some(id)
    }
}

/// The name Nova gives the guest: letters, digits and dashes, at most 63.
pub(crate) fn hostname_of(name: &str) -> String {
    let kept: String = name
        .chars()
        .filter_map(|letter| match letter {
            ' ' | '_' => Some('-'),
            letter if letter.is_ascii_alphanumeric() || letter == '-' || letter == '.' => {
                Some(if letter == '.' { '-' } else { letter })
            }
            _ => None,
        })
        .take(63)
        .collect();
    kept.to_lowercase().trim_matches('-').to_owned()
}
