// SPDX-License-Identifier: Apache-2.0
//! A simulated fleet around services: Nova, BMCs, and an agent for every host that speaks as long as its host has power
//! and a cable. They live in this process; the services do not.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cobaltcore_ha_wire::{DomainEntry, DomainState, Job, Machine};
use cobaltcore_sim::world::{MigrationKind, Power, Settings};
use cobaltcore_sim::{Bmcs, Cloud, World, bmc};
use http::Method;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::caller::Caller;
use crate::service::token;
use crate::speaker::{GUESTS, Speaker, encoded};
use crate::{BenchError, set_up};

/// Hosts of one availability zone; a zone is a failure domain.
const ZONE: usize = 20;
/// How often an agent speaks, and how many times it speaks between two full lists.
const BEAT: Duration = Duration::from_secs(5);
const BEATS_PER_LIST: usize = 12;
/// How long ago guests last changed when the service is started, in milliseconds.
const AGE: i64 = 3_600_000;
/// How often a dead host is looked at to see whether it came back.
const DEAD: Duration = Duration::from_millis(500);

/// The fleet; it ends with this value.
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) hosts: Vec<String>,
    _cloud: Cloud,
    bmcs: Bmcs,
    folder: TempDir,
    silence: Silence,
    services: Services,
    _agents: Vec<AbortOnDropHandle<()>>,
}

/// Where agents report to.
type Services = Arc<Mutex<Vec<SocketAddr>>>;

/// An address where nobody answers: a full queue of connections, whose kernel drops whoever knocks.
struct Silence {
    port: u16,
    _socket: TcpListener,
    _kept: Vec<TcpStream>,
}

impl Silence {
    async fn new() -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| set_up("an address where nobody answers")(error.into());
        let socket = TcpSocket::new_v4().map_err(failed)?;
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .map_err(failed)?;
        let socket = socket.listen(0).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let mut kept = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await
        {
            kept.push(stream);
        }
        Ok(Self {
            port: address.port(),
            _socket: socket,
            _kept: kept,
        })
    }
}

impl Fleet {
    /// So many hosts with fifty guests each; `change` says how long things take in its cloud.
    pub(crate) async fn start(size: usize, change: impl FnOnce(&mut Settings)) -> Result<Self, BenchError> {
        let zones: Vec<String> = (0..size.div_ceil(ZONE)).map(|n| format!("zone-{n}")).collect();
        let world = World::builder()
            .hosts(size)
            .zones(zones)
            .vms_per_host(GUESTS)
            .host_size(2, 128, 1 << 20)
            .settings(change)
            .build();
        world.change(|state| {
            // Hosts are looked at only when their agents are silent, and then nobody answers.
            for host in state.hosts.values_mut() {
                host.ip = "127.0.0.1".into();
            }
            // Guests of a fleet have been there for a while; to Nova, none of them changed a moment ago.
            for server in state.servers.values_mut() {
                server.updated.0 -= AGE;
            }
        });
        let failed = |error: cobaltcore_sim::Error| set_up("a cloud")(error.into());
        let cloud = Cloud::start(world.clone()).await.map_err(failed)?;
        let bmcs = Bmcs::start(&world).await.map_err(failed)?;
        let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).map_err(|error| set_up("a file")(error.into()))
        };
        write("clouds.yaml", cloud.clouds_yaml())?;
        write(
            "bmc.yaml",
            format!("username: {}\npassword: {}\n", bmc::USER, bmc::PASSWORD),
        )?;
        let hosts: Vec<String> = world.read(|state| state.hosts.keys().map(ToString::to_string).collect());
        let services = Services::default();
        let mut agents = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let speaker = Speaker::new(host, number)?;
            let (watched, told) = (world.clone(), Arc::clone(&services));
            agents.push(tokio::spawn(live(watched, speaker, number, told)));
            agents.push(tokio::spawn(listen(host.clone(), Arc::clone(&services))));
        }
        Ok(Self {
            silence: Silence::new().await?,
            world,
            hosts,
            _cloud: cloud,
            bmcs,
            folder,
            services,
            _agents: agents.into_iter().map(AbortOnDropHandle::new).collect(),
        })
    }

    /// Where files of services may be.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What a service must be told about this fleet. Times and rules are the usual ones, except that many hosts may be
    /// recovered at once and Nova be asked accordingly, because many die in one run, and that a new leader watches for
    /// ten seconds only.
    pub(crate) fn config(&self, crowded: bool) -> String {
        let mut hosts = String::new();
        for host in &self.hosts {
            let url = self.bmcs.url(host).unwrap_or_default();
            hosts.push_str(&format!("    {host}: {{bmc: '{url}'}}\n"));
        }
        // What belongs to one host alone is measured with one host, under the usual limits.
        let (crowd, pace) = if crowded {
            ("recovery: {global_concurrency: 1024}\n", "rps: 200, ")
        } else {
            ("", "")
        };
        format!(
            "evidence: {{probe: {{tcp_ports: [{}]}}}}\n\
             self_check: {{warmup: 10s}}\n\
             storm: {{max_hosts_in_flight: 64}}\n\
             {crowd}\
             openstack: {{{pace}clouds_file: '{}', cloud: sim}}\n\
             fencing:\n  levels:\n    - - {{driver: redfish, url: '{{bmc}}', credentials_file: '{}'}}\n  hosts:\n{hosts}",
            self.silence.port,
            self.folder.path().join("clouds.yaml").display(),
            self.folder.path().join("bmc.yaml").display(),
        )
    }

    /// Agents report to these from now on.
    pub(crate) fn report_to(&self, services: &[SocketAddr]) {
        *self.services.lock() = services.to_vec();
    }

    /// When evacuations from a host were asked for, in milliseconds of the wall clock, in order.
    pub(crate) fn asked(&self, host: &str) -> Vec<i64> {
        let mut times: Vec<i64> = self.world.read(|state| {
            state
                .migrations
                .values()
                .filter(|one| one.kind == MigrationKind::Evacuation && one.source.as_str() == host)
                .map(|one| one.created.0)
                .collect()
        });
        times.sort_unstable();
        times
    }

    /// Takes the power of a host, or only its cable; the time, in milliseconds of the wall clock.
    pub(crate) fn lose(&self, host: &str, power: bool) -> Result<i64, BenchError> {
        let lost = if power {
            self.world.power_off(host)
        } else {
            self.world.cut(host)
        };
        lost.map_err(|error| set_up("a dead host")(error.into()))?;
        Ok(jiff::Timestamp::now().as_millisecond())
    }
}

struct Look {
    boot: String,
    machine: String,
    speaks: bool,
    domains: Vec<DomainEntry>,
}

fn look(world: &World, name: &str, list: bool) -> Option<Look> {
    world.read(|state| {
        let host = state.hosts.get(name)?;
        let entry = |domain: &cobaltcore_sim::world::Domain| {
            Some(DomainEntry {
                uuid: domain.uuid.to_string().parse().ok()?,
                name: format!("instance-{}", domain.uuid.simple()),
                state: if domain.executes() {
                    DomainState::Running
                } else {
                    DomainState::Shutoff
                },
                reason: "booted".into(),
                vcpus: 2,
                mem_kib: 4 << 20,
                persistent: true,
                autostart: false,
                job: Job::None,
                disks: Vec::new(),
            })
        };
        Some(Look {
            boot: host.boot_id.to_string(),
            machine: host.node_uuid.to_string(),
            speaks: host.power == Power::On && !host.cut,
            domains: if list {
                host.domains.values().filter_map(entry).collect()
            } else {
                Vec::new()
            },
        })
    })
}

/// An agent: signs of life, and every minute all guests.
async fn live(world: World, mut speaker: Speaker, number: usize, services: Services) {
    let name = speaker.host.to_string();
    let mut callers: Vec<(SocketAddr, Caller)> = Vec::new();
    let mut beats = 0;
    // Each at its own moment, as agents that were started one by one.
    tokio::time::sleep(BEAT.mul_f64((number as f64 * 0.618).fract())).await;
    loop {
        let wanted = services.lock().clone();
        let fresh = wanted
            .iter()
            .any(|one| callers.iter().all(|(known, _)| known != one));
        callers.retain(|(known, _)| wanted.contains(known));
        for one in wanted {
            if callers.iter().all(|(known, _)| *known != one) {
                callers.push((one, Caller::new(one, token(&name))));
            }
        }
        let list = fresh || (beats + number).is_multiple_of(BEATS_PER_LIST);
        let Some(seen) = look(&world, &name, list).filter(|seen| seen.speaks) else {
            tokio::time::sleep(DEAD).await;
            continue;
        };
        speaker.boot = seen.boot;
        speaker.machine = Machine {
            system_uuid: Some(seen.machine.clone()),
            serial: Some(seen.machine),
        };
        let batch = if list {
            speaker.full(seen.domains)
        } else {
            speaker.beat()
        };
        if let Ok(body) = encoded(&batch) {
            let body = Bytes::from(body);
            let path = speaker.path();
            let all = callers.iter_mut().map(|(_, caller)| {
                // A service that is gone is no concern of an agent.
                tokio::time::timeout(BEAT, caller.post(&path, body.clone()))
            });
            futures::future::join_all(all).await;
        }
        beats += 1;
        tokio::time::sleep(BEAT).await;
    }
}

/// The other half of an agent: it waits for commands, and carries none out.
async fn listen(host: String, services: Services) {
    let path = format!("/api/v1/agents/{host}/commands?wait=30");
    let mut caller: Option<(SocketAddr, Caller)> = None;
    loop {
        let wanted = services.lock().first().copied();
        let Some(address) = wanted else {
            tokio::time::sleep(DEAD).await;
            continue;
        };
        let (_, caller) = match &mut caller {
            Some(kept) if kept.0 == address => kept,
            other => other.insert((address, Caller::new(address, token(&host)))),
        };
        if caller.call(Method::GET, &path, Bytes::new()).await.is_err() {
            tokio::time::sleep(BEAT).await;
        }
    }
}
