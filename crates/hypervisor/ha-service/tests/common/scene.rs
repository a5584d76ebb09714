// SPDX-License-Identifier: Apache-2.0
//! A simulated world around services: Nova, Redfish, and an agent for every host. No guest may run
//! twice in it, at any moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_wire::{
    BatchAnswer, Command, CommandKind, Disk, DomainEntry, DomainState, Job, Machine, ProbeOutcome,
    ProbeReport,
};
use cobaltcore_sim::bmc;
use cobaltcore_sim::world::{MigrationKind, Power};
use cobaltcore_sim::{Bmcs, Cloud, World};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::{Agent, Running, base, counted_session, telemetry, until};

pub(crate) const DEAD: &str = "node001-bb1";

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) cloud: Cloud,
    pub(crate) bmcs: Bmcs,
    pub(crate) folder: tempfile::TempDir,
    /// Where agents report to.
    pub(crate) services: Arc<Mutex<Vec<String>>>,
    _agents: Vec<AbortOnDropHandle<()>>,
    pub(crate) watch: AbortOnDropHandle<()>,
    pub(crate) silence: Silence,
    pub(crate) muted: Arc<Mutex<Vec<String>>>,
    /// Guests whose root disk is a file on their host, as their agents say; of the others they say nothing.
    pub(crate) on_their_host: Arc<Mutex<Vec<uuid::Uuid>>>,
}

/// An address where nobody answers: a full queue of connections, whose kernel drops whoever knocks.
pub(crate) struct Silence {
    pub(crate) port: u16,
    _socket: TcpListener,
    _kept: Vec<TcpStream>,
}

impl Silence {
    pub(crate) async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let socket = socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap();
        let mut kept = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await
        {
            kept.push(stream);
        }
        Self {
            port: address.port(),
            _socket: socket,
            _kept: kept,
        }
    }
}

impl Scene {
    pub(crate) async fn new(hosts: usize, guests: usize) -> Self {
        Self::in_zones(hosts, guests, &["qa-de-1a"]).await
    }

    /// The same with hosts in several zones, in turn.
    pub(crate) async fn in_zones(hosts: usize, guests: usize, zones: &[&str]) -> Self {
        let world = World::builder()
            .hosts(hosts)
            .zones(zones.iter().copied())
            .vms_per_host(guests)
            .settings(|settings| {
                settings.evacuate = Duration::from_secs(3);
                settings.schedule = Duration::from_millis(500);
            })
            .build();
        // Hosts are looked at only when their agents are silent, and then nobody answers.
        let silence = Silence::new().await;
        world.change(|state| {
            for host in state.hosts.values_mut() {
                host.ip = "127.0.0.1".into();
            }
        });
        let cloud = Cloud::start(world.clone()).await.unwrap();
        let bmcs = Bmcs::start(&world).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("bmc.yaml"),
            format!("username: {}\npassword: {}\n", bmc::USER, bmc::PASSWORD),
        )
        .unwrap();
        let services: Arc<Mutex<Vec<String>>> = Arc::default();
        let muted: Arc<Mutex<Vec<String>>> = Arc::default();
        let on_their_host: Arc<Mutex<Vec<uuid::Uuid>>> = Arc::default();
        let names: Vec<String> = world.read(|state| state.hosts.keys().map(ToString::to_string).collect());
        let agents = names
            .iter()
            .map(|name| {
                AbortOnDropHandle::new(tokio::spawn(live(
                    world.clone(),
                    name.clone(),
                    Arc::clone(&services),
                    Arc::clone(&muted),
                    Arc::clone(&on_their_host),
                )))
            })
            .collect();
        let watched = world.clone();
        let watch = AbortOnDropHandle::new(tokio::spawn(async move {
            // No guest may run twice, at any moment.
            loop {
                let twice = watched.running_twice();
                assert!(twice.is_empty(), "these guests run twice: {twice:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
        Self {
            world,
            cloud,
            bmcs,
            folder,
            services,
            _agents: agents,
            watch,
            silence,
            muted,
            on_their_host,
        }
    }

    /// The agent of a host says nothing any more; the host itself is well.
    pub(crate) fn mute(&self, host: &str) {
        self.muted.lock().push(host.to_owned());
    }

    /// Quick, because nobody wants to wait; every rule is in force.
    pub(crate) fn config(&self, more: &str) -> String {
        let mut hosts = String::new();
        for name in self
            .world
            .read(|state| state.hosts.keys().map(ToString::to_string).collect::<Vec<_>>())
        {
            let url = self.bmcs.url(&name).unwrap();
            hosts.push_str(&format!("    {name}: {{bmc: '{url}'}}\n"));
        }
        format!(
            "{}{more}\
             agents: {{heartbeat_interval: 1s, silent_after: 4s}}\n\
             evidence: {{round_interval: 1s, probe: {{timeout: 500ms, tcp_ports: [{}]}}}}\n\
             self_check: {{warmup: 3s}}\n\
             openstack: {{services_interval: 1s, suspect_interval: 1s, hypervisors_interval: 2s, servers_interval: 2s}}\n\
             fencing:\n  levels:\n    - - {{driver: redfish, url: '{{bmc}}', credentials_file: '{}'}}\n  hosts:\n{hosts}",
            base(self.folder.path()),
            self.silence.port,
            self.folder.path().join("bmc.yaml").display(),
        )
    }

    pub(crate) async fn start(&self, config: &str, client: Option<kube::Client>) -> Running {
        let telemetry = telemetry();
        let session = counted_session(&self.cloud, self.folder.path(), Some(&telemetry));
        let service = Running::start_with(config, Some(session), client, telemetry, None).await;
        self.services.lock().push(format!("http://{}", service.address));
        service
    }

    pub(crate) fn forget(&self, service: &Running) {
        let url = format!("http://{}", service.address);
        self.services.lock().retain(|known| *known != url);
    }

    /// Waits until the service hears every host.
    pub(crate) async fn heard(&self, service: &Running) {
        let hosts = self.world.read(|state| state.hosts.len());
        until("every host is heard and healthy", async || {
            let (_, page) = service.get("/api/v1/hosts?state=healthy").await;
            let items = page["items"].as_array()?;
            let fresh = items.iter().filter(|host| {
                // Its agent, and its compute service.
                let alive = |n: usize| host["signals"][n]["verdict"] == "alive";
                alive(0) && alive(1)
            });
            (fresh.count() == hosts).then_some(())
        })
        .await;
    }

    pub(crate) fn evacuations(&self) -> BTreeMap<String, usize> {
        self.world.read(|state| {
            let mut out = BTreeMap::new();
            for migration in state.migrations.values() {
                if migration.kind == MigrationKind::Evacuation {
                    *out.entry(migration.server.to_string()).or_insert(0) += 1;
                }
            }
            out
        })
    }

    /// How often each word was said to Nova about servers.
    pub(crate) fn asked(&self, word: &str) -> usize {
        let calls = self.cloud.calls();
        calls
            .writes()
            .iter()
            .filter(|call| call.body.contains(word))
            .count()
    }

    pub(crate) fn locked(&self) -> usize {
        self.world.read(|state| {
            state
                .servers
                .values()
                .filter(|server| server.lock.is_some())
                .count()
        })
    }

    pub(crate) fn guests_of_the_dead(&self) -> Vec<uuid::Uuid> {
        self.world
            .read(|state| state.servers_on(DEAD).map(|server| server.id).collect())
    }

    pub(crate) fn settled(&self, guests: &[uuid::Uuid]) -> bool {
        self.world.read(|state| {
            guests.iter().all(|id| {
                state.servers.get(id).is_some_and(|server| {
                    let elsewhere = server.host.as_ref().filter(|host| host.as_str() != DEAD);
                    let runs = elsewhere
                        .and_then(|host| state.hosts.get(host))
                        .is_some_and(|host| host.running().any(|domain| domain.uuid == *id));
                    runs && server.status() == "ACTIVE"
                })
            })
        })
    }

    /// Nothing ran twice while the scene lasted.
    pub(crate) fn check(&self) {
        assert!(!self.watch.is_finished(), "a guest ran twice");
        assert!(self.world.running_twice().is_empty());
    }
}

/// An agent on a host of the world: it speaks while the host has power and is not cut off.
async fn live(
    world: World,
    name: String,
    services: Arc<Mutex<Vec<String>>>,
    muted: Arc<Mutex<Vec<String>>>,
    on_their_host: Arc<Mutex<Vec<uuid::Uuid>>>,
) {
    let mut agent = Agent::new(&name);
    let client = super::client();
    let mut version = 0;
    let mut probes: Vec<ProbeReport> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let seen = world.read(|state| {
            let host = state
                .hosts
                .iter()
                .find(|(host, _)| host.as_str() == name)
                .map(|(_, host)| host)?;
            let domains: Vec<DomainEntry> = host
                .domains
                .values()
                .filter_map(|domain| {
                    Some(DomainEntry {
                        uuid: domain.uuid.to_string().parse().ok()?,
                        name: format!("instance-{}", domain.uuid),
                        state: if domain.executes() {
                            DomainState::Running
                        } else if domain.is_active() {
                            DomainState::Paused
                        } else {
                            DomainState::Shutoff
                        },
                        reason: String::new(),
                        vcpus: 1,
                        mem_kib: 1024,
                        persistent: true,
                        autostart: false,
                        job: Job::None,
                        disks: on_their_host
                            .lock()
                            .iter()
                            .filter(|guest| **guest == domain.uuid)
                            .map(|guest| Disk {
                                kind: "file".to_owned(),
                                source: format!("/var/lib/nova/instances/{guest}/disk"),
                            })
                            .collect(),
                    })
                })
                .collect();
            Some((
                host.power == Power::On && !host.cut,
                host.boot_id.to_string(),
                host.node_uuid.to_string(),
                domains,
            ))
        });
        let Some((true, boot, machine, domains)) = seen else {
            continue;
        };
        if muted.lock().contains(&name) {
            continue;
        }
        agent.boot.0 = boot;
        agent.machine = Machine {
            system_uuid: Some(machine.clone()),
            serial: Some(machine),
        };
        version += 1;
        let mut batch = agent.beat();
        if let Some(beat) = &mut batch.heartbeat {
            beat.probes = std::mem::take(&mut probes);
        }
        batch.inventory = agent.inventory(version, domains).inventory;
        let body = batch.encode().unwrap();
        let targets = services.lock().clone();
        for target in targets {
            let sent = client
                .post(format!("{target}{}", agent.path()))
                .bearer_auth(super::AGENT)
                .timeout(Duration::from_secs(5))
                .body(body.clone());
            // A service that is gone is no concern of an agent.
            if let Ok(answer) = sent.send().await
                && let Ok(answer) = answer.json::<BatchAnswer>().await
            {
                for command in answer.commands {
                    probes.extend(knock(command).await);
                }
            }
        }
    }
}

/// Does what a service wants to know of another host.
async fn knock(command: Command) -> Vec<ProbeReport> {
    let CommandKind::Probe { targets, .. } = command.kind else {
        return Vec::new();
    };
    let mut reports = Vec::new();
    for target in targets {
        let connect = TcpStream::connect((target.address, target.port));
        let outcome = match tokio::time::timeout(Duration::from_millis(200), connect).await {
            Ok(_) => ProbeOutcome::Kernel,
            Err(_) => ProbeOutcome::Timeout,
        };
        reports.push(ProbeReport {
            command: command.id.clone(),
            target,
            outcome,
            took_ms: 200,
        });
    }
    reports
}

/// Every host of the world as an object in a cluster, onboarded.
pub(crate) async fn in_a_cluster(scene: &Scene) -> TestServer {
    let server = TestServer::start().await;
    server.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-node-lease}\n";
    server.apply_yaml(text).await.unwrap();
    let hosts = scene.world.read(|state| {
        state
            .hosts
            .iter()
            .map(|(name, host)| (name.to_string(), host.ip.clone()))
            .collect::<Vec<_>>()
    });
    let objects: Api<Hypervisor> = Api::all(server.client());
    let nodes: Api<Node> = Api::all(server.client());
    for (name, ip) in hosts {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let object = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name},
            "spec": {"highAvailability": true},
        });
        let object: Hypervisor = serde_json::from_value(object).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
        let status = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "status": {"internalIp": ip, "conditions": [{
                "type": "Onboarding", "status": "False", "reason": "Succeeded", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        objects
            .patch_status(
                &name,
                &PatchParams::apply("operator").force(),
                &Patch::Apply(status),
            )
            .await
            .unwrap();
    }
    server
}

pub(crate) async fn incident(service: &Running) -> Option<Value> {
    let (_, page) = service.get(&format!("/api/v1/incidents?host={DEAD}")).await;
    page["items"].as_array()?.first().cloned()
}

pub(crate) async fn until_state(service: &Running, wanted: &[&str]) -> Value {
    let what = format!("the incident is {wanted:?}");
    until(&what, async || {
        let found = incident(service).await?;
        wanted.contains(&found["state"].as_str()?).then_some(found)
    })
    .await
}
