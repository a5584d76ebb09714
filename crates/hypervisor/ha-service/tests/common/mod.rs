// SPDX-License-Identifier: Apache-2.0
//! A service of one's own, over real wires: its API on a port the system chose, a simulated cloud
//! behind it, and agents that speak as agents do.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each suite uses its part; a test that unwraps says where it failed"
)]

pub(crate) mod scene;

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_service::metrics::CloudCalls;
use cobaltcore_ha_service::{Config, Error, Service, Surroundings};
use cobaltcore_ha_wire::{
    AgentId, Batch, BootId, Envelope, Event, Heartbeat, HostName, Inventory, Kind, Libvirt, Machine, SCHEMA,
    SelfFence, SpoolState, path,
};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{CloudConfig, Observer, Session, Settings};
use cobaltcore_sim::{Cloud, World};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub(crate) const OPERATOR: &str = "token-of-an-operator";
pub(crate) const VIEWER: &str = "token-of-a-viewer";
pub(crate) const SENDER: &str = "token-of-a-sender";
pub(crate) const AGENT: &str = "token-of-all-agents";

pub(crate) fn hash(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The parts of a configuration that every test has.
pub(crate) fn base(folder: &Path) -> String {
    format!(
        "server: {{listen: '127.0.0.1:0', metrics_listen: '127.0.0.1:0', legacy_listen: '127.0.0.1:0', limits: {{per_agent_rps: 1000}}}}\n\
         storage: {{path: '{}'}}\n\
         access:\n  operators: {{olga: [{}]}}\n  viewers: {{victor: [{}]}}\n  senders: {{prom: [{}]}}\n  any_agent: [{}]\n",
        folder.display(),
        hash(OPERATOR),
        hash(VIEWER),
        hash(SENDER),
        hash(AGENT),
    )
}

/// For a service that is alone and has no cluster.
pub(crate) const ALONE: &str = "kubernetes: {enabled: false}\nleader: {enabled: false}\n";

/// Writes a file that somebody follows, whole, as Kubernetes does: by renaming.
pub(crate) fn write_whole(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, file).unwrap();
}

pub(crate) fn telemetry() -> Telemetry {
    Telemetry::new(&Component {
        name: "kvm-ha-service",
        version: "0",
        commit: "none",
    })
}

pub(crate) fn session(cloud: &Cloud, folder: &Path) -> Session {
    counted_session(cloud, folder, None)
}

/// A session whose calls `telemetry` shows.
pub(crate) fn counted_session(cloud: &Cloud, folder: &Path, telemetry: Option<&Telemetry>) -> Session {
    let file = folder.join("clouds.yaml");
    std::fs::write(&file, cloud.clouds_yaml()).unwrap();
    let text = cloud.clouds_yaml();
    let name = text
        .lines()
        .nth(1)
        .unwrap()
        .trim()
        .trim_end_matches(':')
        .to_owned();
    let settings = Settings {
        deadline: Duration::from_secs(10),
        proxy_from_environment: false,
        observer: telemetry.map(|telemetry| Arc::new(CloudCalls::new(telemetry)) as Arc<dyn Observer>),
        ..Settings::default()
    };
    Session::new(CloudConfig::from_file(file, &name).unwrap(), settings).unwrap()
}

/// A service at work.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) legacy: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) telemetry: Telemetry,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Running {
    pub(crate) async fn start(text: &str, openstack: Option<Session>, client: Option<kube::Client>) -> Self {
        Self::start_with(text, openstack, client, telemetry(), None).await
    }

    /// Starts one that shows its figures in `telemetry` and follows a file.
    pub(crate) async fn start_with(
        text: &str,
        openstack: Option<Session>,
        client: Option<kube::Client>,
        telemetry: Telemetry,
        file: Option<PathBuf>,
    ) -> Self {
        let config = Config::parse("test.yaml", text).unwrap_or_else(|error| panic!("{error}"));
        let surroundings = Surroundings {
            client,
            openstack,
            telemetry,
            health: Health::new(),
            shutdown: Shutdown::new(Duration::from_secs(5)),
            own_host: None,
            namespace: "default".into(),
        };
        let (telemetry, shutdown) = (surroundings.telemetry.clone(), surroundings.shutdown.clone());
        // Threads of its own, so that it can die as a process does.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let service = runtime
            .spawn(Service::prepare(config, surroundings))
            .await
            .unwrap()
            .unwrap();
        let service = match file {
            Some(file) => service.following(file),
            None => service,
        };
        let (address, legacy, metrics) = (
            service.address(),
            service.legacy_address().unwrap(),
            service.metrics_address().unwrap(),
        );
        Self {
            address,
            legacy,
            metrics,
            telemetry,
            shutdown,
            task: runtime.spawn(service.run()),
            runtime: Some(runtime),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> (u16, Value) {
        let body = body.map(|body| serde_json::to_vec(&body).unwrap());
        self.raw(method, path, token, body.unwrap_or_default(), &[]).await
    }

    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut request = client()
            .request(method.parse().unwrap(), self.url(path))
            .body(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// What a monitoring system reads.
    pub(crate) async fn figures(&self) -> Figures {
        let url = format!("http://{}/metrics", self.metrics);
        Figures(client().get(url).send().await.unwrap().text().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, Some(VIEWER), None).await
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.shutdown.begin("the test is over");
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Ends it as a crash does: nothing is finished, nothing is said.
    pub(crate) async fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = (&mut self.task).await;
    }
}

/// A service alone with a cloud, all of whose hosts are known to it.
pub(crate) struct Fixture {
    pub(crate) service: Running,
    _cloud: Cloud,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) async fn fixture(more: &str) -> Fixture {
    fixture_with(|text| format!("{text}{more}")).await
}

/// One whose configuration is made from the usual.
pub(crate) async fn fixture_with(change: impl Fn(String) -> String) -> Fixture {
    let world = World::builder().hosts(3).vms_per_host(2).build();
    fixture_of(world, change).await
}

/// One in front of a world.
pub(crate) async fn fixture_of(world: World, change: impl Fn(String) -> String) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let hosts = world.read(|state| state.hosts.len());
    let cloud = Cloud::start(world).await.unwrap();
    let session = session(&cloud, folder.path());
    let text = change(format!("{}{ALONE}", base(folder.path())));
    let service = Running::start(&text, Some(session), None).await;
    until("the hosts of Nova are known", async || {
        let (_, page) = service.get("/api/v1/hosts").await;
        (page["items"].as_array()?.len() == hosts).then_some(())
    })
    .await;
    Fixture {
        service,
        _cloud: cloud,
        folder,
    }
}

/// Addresses for replicas that must know each other before they start. They are on an address of the loopback interface
/// that nobody else uses, so that nobody takes them before the replicas do.
pub(crate) async fn addresses<const N: usize>() -> [String; N] {
    let [high, low, ..] = std::process::id().to_le_bytes();
    let own = std::net::Ipv4Addr::new(127, 77, high, low);
    let mut sockets = Vec::new();
    for _ in 0..N {
        sockets.push(TcpListener::bind((own, 0)).await.unwrap());
    }
    std::array::from_fn(|n| sockets[n].local_addr().unwrap().to_string())
}

/// The first of its hosts.
pub(crate) const N1: &str = "node001-bb1";

/// The text of `/metrics`.
pub(crate) struct Figures(pub(crate) String);

impl Figures {
    /// The sum of all series of a name whose labels contain `label`.
    pub(crate) fn of(&self, name: &str, label: &str) -> f64 {
        self.0
            .lines()
            .filter(|line| {
                let series = line.split([' ', '{']).next().unwrap_or_default();
                series == name && line.contains(label)
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Whether it is described at all.
    pub(crate) fn describes(&self, name: &str) -> bool {
        self.0.contains(&format!("# TYPE {name} "))
    }
}

pub(crate) fn client() -> reqwest::Client {
    cobaltcore_kit::startup::install_tls_provider();
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap()
}

/// Waits for something to come true. The limit only keeps a failing test from hanging.
pub(crate) async fn until<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    // The limit only keeps a failing test from hanging.
    for _ in 0..3000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

/// An agent, as far as the service can tell.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) host: HostName,
    pub(crate) id: AgentId,
    pub(crate) boot: BootId,
    pub(crate) starts: u64,
    pub(crate) machine: Machine,
    pub(crate) mono_ns: u64,
}

impl Agent {
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: HostName::new(host).unwrap(),
            id: AgentId(format!("agent-of-{host}")),
            boot: BootId("boot-1".into()),
            starts: 1,
            machine: Machine::default(),
            mono_ns: 1_000,
        }
    }

    pub(crate) fn empty(&mut self) -> Batch {
        self.mono_ns += 1_000_000;
        Batch::empty(Envelope {
            schema: SCHEMA,
            host: self.host.clone(),
            agent_id: self.id.clone(),
            boot_id: self.boot.clone(),
            epoch: self.starts,
            sent_at: jiff::Timestamp::now(),
            mono_ns: self.mono_ns,
        })
    }

    pub(crate) fn beat(&mut self) -> Batch {
        let mut batch = self.empty();
        batch.heartbeat = Some(Heartbeat {
            uptime_s: 86_400 + self.mono_ns / 1_000_000_000,
            boot_id: self.boot.clone(),
            agent_version: "0".into(),
            config_hash: "0".into(),
            libvirt: Libvirt {
                connected: true,
                version: "11.0.0".into(),
                last_ok_ms: Some(5),
                unsupported: Vec::new(),
            },
            domains: std::collections::BTreeMap::new(),
            spool: SpoolState::default(),
            machine: self.machine.clone(),
            self_fence: SelfFence::default(),
            planned_shutdown: false,
            pressure: None,
            probes: Vec::new(),
            results: Vec::new(),
        });
        batch
    }

    pub(crate) fn events(&mut self, seqs: std::ops::RangeInclusive<u64>) -> Batch {
        let mut batch = self.empty();
        batch.events = seqs
            .map(|seq| Event {
                seq,
                ts: jiff::Timestamp::now(),
                mono_ns: seq,
                kind: Kind::Lifecycle,
                event: "started".into(),
                detail: "booted".into(),
                domain: None,
                attrs: std::collections::BTreeMap::new(),
                count: 1,
                synthetic: false,
            })
            .collect();
        batch
    }

    pub(crate) fn inventory(&mut self, version: u64, domains: Vec<cobaltcore_ha_wire::DomainEntry>) -> Batch {
        let mut batch = self.empty();
        batch.inventory = Some(Inventory {
            inventory_version: version,
            domains,
        });
        batch
    }

    pub(crate) fn path(&self) -> String {
        path::batches(&self.host)
    }

    pub(crate) async fn report(&self, service: &Running, batch: &Batch) -> (u16, Value) {
        service
            .raw("POST", &self.path(), Some(AGENT), batch.encode().unwrap(), &[])
            .await
    }
}
