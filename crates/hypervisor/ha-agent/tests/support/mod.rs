// SPDX-License-Identifier: Apache-2.0
//! A service that speaks the wire and fails on demand, an agent as the binary starts it, and ways to wait.
#![allow(dead_code)]

pub(crate) mod scene;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use cobaltcore_ha_agent::{Args, Error, Start};
use cobaltcore_ha_wire::{
    Admission, Batch, BatchAnswer, Command, CommandList, Event, Heartbeat, Inventory, Packing, Problem,
    bounds, path,
};
use cobaltcore_kit::shutdown::Shutdown;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Longer than anything here takes; what it waits for is what matters.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What the service knows and how it behaves.
#[derive(Default)]
pub(crate) struct Known {
    /// The last number per agent id.
    pub(crate) last: BTreeMap<String, u64>,
    /// Every record that was stored, in the order of storing.
    pub(crate) events: Vec<Event>,
    pub(crate) dropped: Vec<(u64, u64)>,
    pub(crate) heartbeats: Vec<Heartbeat>,
    pub(crate) inventories: Vec<Inventory>,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) peers: Vec<String>,
    pub(crate) hold: bool,
    /// Batches with records are answered with this.
    pub(crate) refuse: Option<u16>,
    /// The first heartbeat that says that the watchdog is armed is believed, and its answer and all later ones are lost.
    pub(crate) deaf_once_armed: bool,
    /// Everything is answered with this.
    pub(crate) away: Option<u16>,
    /// A batch with such a record is not readable.
    pub(crate) poison: Option<String>,
    /// More records at once are too many.
    pub(crate) most: Option<usize>,
    /// Bodies packed with zstd are not understood.
    pub(crate) no_zstd: bool,
    /// How bodies came that were understood.
    pub(crate) packings: Vec<Option<Packing>>,
    pub(crate) batches: usize,
}

pub(crate) type Shared = Arc<Mutex<Known>>;

/// The service; ends with this value.
pub(crate) struct Service {
    pub(crate) known: Shared,
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), Shared::default()).await
    }

    pub(crate) async fn start_at(address: SocketAddr, known: Shared) -> Self {
        let mut listener = None;
        for _ in 0..100 {
            listener = tokio::net::TcpListener::bind(address).await.ok();
            if listener.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let listener = listener.expect("the address");
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route(path::BATCHES, post(take))
            .route(path::COMMANDS, get(commands))
            .with_state(Arc::clone(&known));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { known, address, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until what is known is as wanted.
    pub(crate) async fn until<R>(&self, what: &str, wanted: impl Fn(&Known) -> Option<R>) -> R {
        until(&self.known, what, wanted).await
    }

    /// Waits for a record and gives it back.
    pub(crate) async fn event(&self, event: &str, detail: &str) -> Event {
        self.until(&format!("{event}/{detail}"), |known| {
            let fits = |one: &&Event| one.event == event && one.detail == detail;
            known.events.iter().find(fits).cloned()
        })
        .await
    }

    pub(crate) fn count(&self, event: &str, detail: &str) -> usize {
        let known = self.known.lock();
        known
            .events
            .iter()
            .filter(|one| one.event == event && one.detail == detail)
            .count()
    }
}

pub(crate) async fn until<R>(known: &Shared, what: &str, wanted: impl Fn(&Known) -> Option<R>) -> R {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = wanted(&known.lock()) {
            return found;
        }
        if tokio::time::Instant::now() > deadline {
            let known = known.lock();
            let words: Vec<String> = known
                .events
                .iter()
                .map(|e| format!("{} {} {}/{}", e.seq, e.kind, e.event, e.detail))
                .collect();
            panic!(
                "never {what}; records: {words:#?}, last heartbeat: {:?}",
                known.heartbeats.last()
            );
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

fn body(headers: &HeaderMap, body: &Bytes) -> Vec<u8> {
    match packing(headers) {
        Some(packing) => packing.unpack(body, bounds::BODY).unwrap(),
        None => body.to_vec(),
    }
}

fn packing(headers: &HeaderMap) -> Option<Packing> {
    Packing::named(headers.get("content-encoding")?.to_str().ok()?)
}

fn problem(status: u16) -> Response {
    let code = StatusCode::from_u16(status).unwrap();
    let text = serde_json::to_string(&Problem::new(status, "on demand", "the test wants it so")).unwrap();
    (code, text).into_response()
}

async fn take(State(known): State<Shared>, headers: HeaderMap, raw: Bytes) -> Response {
    {
        let mut known = known.lock();
        let packing = packing(&headers);
        if packing == Some(Packing::Zstd) && known.no_zstd {
            return problem(415);
        }
        known.packings.push(packing);
    }
    let batch = match Batch::decode(&body(&headers, &raw)) {
        Ok(batch) => batch,
        Err(error) => panic!("the agent sent something unreadable: {error}"),
    };
    let mut known = known.lock();
    if let Some(status) = known.away {
        return problem(status);
    }
    known.heartbeats.extend(batch.heartbeat.clone());
    let armed = batch.heartbeat.as_ref().is_some_and(|beat| beat.self_fence.armed);
    if known.deaf_once_armed && armed {
        known.away = Some(503);
        return problem(503);
    }
    known.inventories.extend(batch.inventory.clone());
    let agent = batch.envelope.agent_id.0.clone();
    let mut last = known.last.get(&agent).copied().unwrap_or(0);
    if !batch.events.is_empty() || !batch.dropped.is_empty() {
        known.batches += 1;
        if let Some(status) = known.refuse {
            return problem(status);
        }
        if known.most.is_some_and(|most| batch.events.len() > most) {
            return problem(413);
        }
        let poison = known.poison.clone();
        if poison.is_some_and(|poison| batch.events.iter().any(|event| event.event == poison)) {
            return problem(422);
        }
        match batch.admit(last) {
            Admission::Expected(seq) => {
                let text = serde_json::to_string(&Problem::expected(seq)).unwrap();
                return (StatusCode::CONFLICT, text).into_response();
            }
            Admission::Take { skip, last: now } => {
                let new = batch.events[skip..].to_vec();
                known.events.extend(new);
                known
                    .dropped
                    .extend(batch.dropped.iter().map(|range| (*range.start(), *range.end())));
                known.last.insert(agent, now);
                last = now;
            }
        }
    }
    let answer = BatchAnswer {
        acked_seq: last,
        server_time: jiff::Timestamp::now(),
        hold: known.hold,
        commands: Vec::new(),
        peers: known.peers.clone(),
    };
    axum::Json(answer).into_response()
}

async fn commands(State(known): State<Shared>) -> Response {
    for _ in 0..40 {
        let commands: Vec<Command> = known.lock().commands.drain(..).collect();
        if !commands.is_empty() {
            return axum::Json(CommandList { commands }).into_response();
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    axum::Json(CommandList::default()).into_response()
}

/// The files of an agent.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let boot = folder.path().join("root/proc/sys/kernel/random");
        std::fs::create_dir_all(&boot).unwrap();
        std::fs::write(boot.join("boot_id"), "11111111-0000-4000-8000-000000000001\n").unwrap();
        let dmi = folder.path().join("root/sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        std::fs::write(dmi.join("product_uuid"), "4C4C4544-0000-4000-8000-000000000001\n").unwrap();
        std::fs::write(dmi.join("product_serial"), "J1000001\n").unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration: the endpoints, and what else is wanted.
    pub(crate) fn configure(&self, endpoints: &[String], more: &str) {
        self.configure_on("", endpoints, more);
    }

    /// The same for an agent whose figures can be read at `listen`.
    pub(crate) fn configure_on(&self, listen: &str, endpoints: &[String], more: &str) {
        let usual = if more.contains("inventory:") {
            ""
        } else {
            "inventory: {interval: 10s}\n"
        };
        let text = format!(
            "service: {{endpoints: [{}]}}\nspool: {{dir: {}, max_bytes: 4194304, segment_bytes: 65536}}\n\
             metrics: {{listen: '{listen}'}}\nheartbeat: {{interval: 1s}}\n{usual}{more}\n",
            endpoints.join(", "),
            self.path("spool").display()
        );
        self.write_config(&text);
    }

    pub(crate) fn write_config(&self, text: &str) {
        // As Kubernetes does: whole, by renaming.
        let fresh = self.path("config.new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, self.path("config.yaml")).unwrap();
    }

    pub(crate) fn start(&self, uri: &str) -> Start {
        self.start_as("node001", uri)
    }

    pub(crate) fn start_as(&self, host: &str, uri: &str) -> Start {
        self.start_on(host, uri, "unix:path=/nonexistent")
    }

    pub(crate) fn start_with_bus(&self, uri: &str, bus: &str) -> Start {
        self.start_on("node001", uri, bus)
    }

    fn start_on(&self, host: &str, uri: &str, bus: &str) -> Start {
        Start::new(Args {
            node_name: Some(host.to_owned()),
            config: self.path("config.yaml"),
            libvirt_uri: uri.to_owned(),
            libvirt_socket: None,
            host_root: self.path("root"),
            system_bus: Some(bus.to_owned()),
        })
        .unwrap()
    }
}

/// A running agent.
pub(crate) struct Agent {
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
}

impl Agent {
    pub(crate) fn start(start: Start) -> Self {
        let shutdown = Shutdown::new(Duration::from_secs(10));
        let task = tokio::spawn(cobaltcore_ha_agent::run(start, shutdown.clone()));
        Self { shutdown, task }
    }

    pub(crate) async fn stop(self) {
        assert!(!self.task.is_finished(), "the agent ended by itself");
        self.shutdown.begin("the test is over");
        self.task.await.unwrap().unwrap();
    }
}

/// Numbers rise by one and nothing is there twice.
pub(crate) fn assert_exactly_once(events: &[Event]) {
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    let wanted: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, wanted);
}

pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}
