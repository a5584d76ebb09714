// SPDX-License-Identifier: Apache-2.0
//! The agent as a process of its own: memory, processor time, and how long an event takes from libvirt to the service,
//! and to the service's disk.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use cobaltcore_libvirt::event::EventBody;
use cobaltcore_sim::hosts::Place;
use cobaltcore_sim::{Hosts, World};
use uuid::Uuid;

use crate::process::Role;
use crate::service::{DEAF, Place as ServicePlace, token};
use crate::sink::Sink;
use crate::{BenchError, Row, at, set_up};

const PATIENCE: Duration = Duration::from_secs(120);
const HOST: &str = "node001";

/// A host, its guests and its agent.
struct Scene {
    world: World,
    guest: Uuid,
    agent: Role,
    _hosts: Hosts,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn start(program: &Path, guests: usize, service: SocketAddr) -> Result<Self, BenchError> {
        let world = World::builder()
            .hosts(1)
            .vms_per_host(guests)
            .host_size(2, 2048, 1 << 24)
            .build();
        let hosts = Hosts::start(&world, Place::Tcp)
            .await
            .map_err(|error| set_up("a host")(error.into()))?;
        let (host, guest) = world.read(|state| {
            let host = state.hosts.keys().next().map(ToString::to_string);
            let host = host.unwrap_or_default();
            let first = state.servers_on(&host).map(|server| server.id).min();
            (host, first)
        });
        let guest = guest.ok_or_else(|| set_up("guests")("the world has none".into()))?;
        let uri = hosts
            .uri(&host)
            .ok_or_else(|| set_up("a host")("it has no address".into()))?;
        let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
        let agent = start(program, folder.path(), &uri, service)?;
        Ok(Self {
            world,
            guest,
            agent,
            _hosts: hosts,
            _folder: folder,
        })
    }

    /// Lets the watchdog of a guest fire.
    fn announce(&self) -> Result<(), BenchError> {
        let announced = self.world.announce(self.guest, EventBody::Watchdog { action: 5 });
        announced.map_err(|error| set_up("an event")(error.into()))
    }

    fn gives_up(&self, began: Instant, what: &'static str) -> Result<(), BenchError> {
        if began.elapsed() < PATIENCE {
            return Ok(());
        }
        Err(BenchError::Never {
            who: "agent",
            what,
            log: self.agent.log(),
        })
    }
}

pub(crate) async fn measure(program: &Path, guests: usize, quick: bool) -> Result<Vec<Row>, BenchError> {
    let (idle, events) = if quick { (3, 20) } else { (20, 100) };
    let sink = Sink::start().await?;
    let scene = Scene::start(program, guests, sink.address).await?;
    let wait = async |what: &'static str, ready: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !ready() {
            scene.gives_up(began, what)?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, BenchError>(())
    };
    wait("listed its guests", &|| sink.came.lock().guests == guests).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (began, cpu) = (Instant::now(), scene.agent.cpu_seconds());
    tokio::time::sleep(Duration::from_secs(idle)).await;
    let share = (scene.agent.cpu_seconds() - cpu) / began.elapsed().as_secs_f64() * 100.0;
    let memory = scene.agent.resident_mib();
    let mut times = Vec::new();
    for count in 1..=events {
        let told = Instant::now();
        scene.announce()?;
        wait("told of a watchdog", &|| {
            sink.came.lock().watchdogs.len() >= count
        })
        .await?;
        let arrived = sink.came.lock().watchdogs.last().copied().unwrap_or(told);
        times.push(arrived.saturating_duration_since(told).as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let title = |what: &str| format!("agent, {guests} guests: {what}");
    let goal = guests == 100;
    let with = |row: Row, most: f64, gate: f64| if goal { row.at_most(most, gate) } else { row };
    Ok(vec![
        with(Row::new(title("resident memory"), memory, "MiB"), 12.0, 20.0),
        with(
            Row::new(
                title("processor at rest, heartbeats included"),
                share,
                "% of a core",
            ),
            0.3,
            1.0,
        ),
        Row::new(title("libvirt event to service, 99 %"), at(&times, 0.99), "ms")
            .beside("median", at(&times, 0.5)),
    ])
}

/// From libvirt through agent and service to the service's disk.
pub(crate) async fn stored(program: &Path, agent: &Path, quick: bool) -> Result<Vec<Row>, BenchError> {
    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let place = ServicePlace::new(folder.path(), &[HOST.to_owned()], DEAF, None)?;
    let (mut service, _) = place.start_ready(program).await?;
    let scene = Scene::start(agent, 100, service.address).await?;
    // Counted after the commit.
    let counted = "kvm_ha_ingest_events_total{kind=\"watchdog\"}";
    let began = Instant::now();
    let mut before = 0.0;
    // Nobody listens before the agent is connected.
    while before == 0.0 {
        scene.announce()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        scene.gives_up(began, "had a watchdog stored")?;
        before = service.figure(counted).await.unwrap_or(0.0);
    }
    let mut times = Vec::new();
    for count in 1..=if quick { 8 } else { 100 } {
        let told = Instant::now();
        scene.announce()?;
        while service.figure(counted).await.unwrap_or(0.0) < before + f64::from(count) {
            scene.gives_up(told, "had a watchdog stored")?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(told.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(vec![
        Row::new("libvirt event to stored centrally, 99 %", at(&times, 0.99), "ms")
            .at_most(500.0, 1000.0)
            .beside("median", at(&times, 0.5)),
    ])
}

fn start(program: &Path, folder: &Path, uri: &str, service: SocketAddr) -> Result<Role, BenchError> {
    let failed = |error: std::io::Error| set_up("the agent")(error.into());
    let (config, key) = (folder.join("config.yaml"), folder.join("token"));
    std::fs::write(&key, token(HOST)).map_err(failed)?;
    let text = format!(
        "service: {{endpoints: [\"http://{service}\"], token_file: {}}}\nspool: {{dir: {}}}\nmetrics: {{listen: \"\"}}\n",
        key.display(),
        folder.join("spool").display()
    );
    std::fs::write(&config, text).map_err(failed)?;
    let args = [
        "ha-agent".to_owned(),
        format!("--node-name={HOST}"),
        "--system-bus=unix:path=/nonexistent".to_owned(),
        format!("--config={}", config.display()),
        format!("--libvirt-uri={uri}"),
        format!("--host-root={}", folder.display()),
    ];
    Role::start(program, folder, "agent", &args, &[])
}
