// SPDX-License-Identifier: Apache-2.0
//! The agent as a process of its own: memory, processor time, and how long an event takes from libvirt to the service.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cobaltcore_libvirt::event::EventBody;
use cobaltcore_sim::hosts::Place;
use cobaltcore_sim::{Hosts, World};
use tokio::process::{Child, Command};

use crate::sink::Sink;
use crate::{BenchError, Row, set_up};

/// Kernel ticks per second in `/proc`, fixed on Linux.
const TICKS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn measure(program: &Path, guests: usize, quick: bool) -> Result<Vec<Row>, BenchError> {
    let (idle, events) = if quick { (3, 20) } else { (60, 300) };
    let world = World::builder()
        .hosts(1)
        .vms_per_host(guests)
        .host_size(2, 2048, 1 << 24)
        .build();
    let hosts = Hosts::start(&world, Place::Tcp)
        .await
        .map_err(|error| set_up("a host")(error.into()))?;
    let (host, first) = world.read(|state| {
        let host = state
            .hosts
            .keys()
            .next()
            .map(ToString::to_string)
            .unwrap_or_default();
        let first = state.servers_on(&host).map(|server| server.id).min();
        (host, first)
    });
    let first = first.ok_or_else(|| set_up("guests")("the world has none".into()))?;
    let uri = hosts
        .uri(&host)
        .ok_or_else(|| set_up("a host")("it has no address".into()))?;
    let sink = Sink::start().await?;
    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let (agent, log) = start(program, folder.path(), &uri, &sink)?;
    let tail = || {
        std::fs::read_to_string(&log)
            .map(|text| last_lines(&text))
            .unwrap_or_default()
    };
    let wait = async |what: &'static str, ready: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !ready() {
            if Instant::now() > deadline {
                return Err(BenchError::Agent { what, log: tail() });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    wait("listed its guests", &|| sink.came.lock().guests == guests).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (began, cpu) = (Instant::now(), cpu_seconds(&agent));
    tokio::time::sleep(Duration::from_secs(idle)).await;
    let share = (cpu_seconds(&agent) - cpu) / began.elapsed().as_secs_f64() * 100.0;
    let memory = resident_mib(&agent);
    let mut times = Vec::new();
    for count in 1..=events {
        let told = Instant::now();
        let announced = world.announce(first, EventBody::Watchdog { action: 5 });
        announced.map_err(|error| set_up("an event")(error.into()))?;
        wait("told of a watchdog", &|| {
            sink.came.lock().watchdogs.len() >= count
        })
        .await?;
        let arrived = sink.came.lock().watchdogs.last().copied().unwrap_or(told);
        times.push(arrived.saturating_duration_since(told).as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        times
            .get((times.len() as f64 * share) as usize)
            .or(times.last())
            .copied()
            .unwrap_or(0.0)
    };
    let title = |what: &str| format!("agent, {guests} guests: {what}");
    let goal = guests == 100;
    let with = |row: Row, most: f64| if goal { row.at_most(most) } else { row };
    Ok(vec![
        with(Row::new(title("resident memory"), memory, "MiB"), 12.0),
        with(
            Row::new(
                title("processor at rest, heartbeats included"),
                share,
                "% of a core",
            ),
            0.3,
        ),
        Row::new(title("libvirt event to service, median"), at(0.5), "ms"),
        with(
            Row::new(title("libvirt event to service, 99 %"), at(0.99), "ms"),
            500.0,
        ),
    ])
}

fn start(
    program: &Path,
    folder: &Path,
    uri: &str,
    sink: &Sink,
) -> Result<(Child, std::path::PathBuf), BenchError> {
    let failed = |error: std::io::Error| set_up("the agent")(error.into());
    let (config, log) = (folder.join("config.yaml"), folder.join("agent.log"));
    let text = format!(
        "service: {{endpoints: [\"http://{}\"]}}\nspool: {{dir: {}}}\nmetrics: {{listen: \"\"}}\n",
        sink.address,
        folder.join("spool").display()
    );
    std::fs::write(&config, text).map_err(failed)?;
    let out = std::fs::File::create(&log).map_err(failed)?;
    let child = Command::new(program)
        .args([
            "--log=warn",
            "ha-agent",
            "--node-name=node001",
            "--system-bus=unix:path=/nonexistent",
        ])
        .arg(format!("--config={}", config.display()))
        .arg(format!("--libvirt-uri={uri}"))
        .arg(format!("--host-root={}", folder.display()))
        .env_remove("LIBVIRT_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(out)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    Ok((child, log))
}

fn read(agent: &Child, file: &str) -> String {
    let id = agent.id().unwrap_or(0);
    std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
}

fn cpu_seconds(agent: &Child) -> f64 {
    let stat = read(agent, "stat");
    // The name in parentheses may hold anything; what follows are numbers.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |place: usize| {
        fields
            .get(place)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / TICKS
}

fn resident_mib(agent: &Child) -> f64 {
    let status = read(agent, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(15)..)
        .unwrap_or_default()
        .join("\n")
}
