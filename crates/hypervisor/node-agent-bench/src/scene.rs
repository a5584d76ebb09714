// SPDX-License-Identifier: Apache-2.0
//! The scenes that are measured: a host where nothing happens, and hosts where every guest starts or stops once a
//! second. Changes are spread over the second, and each is timed from the event to the watch that shows it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cobaltcore_api::Hypervisor;
use futures::StreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use uuid::Uuid;

use crate::agent::{NODE, Usage, World};
use crate::baseline::{Reading, Visible};
use crate::host::FarHost;
use crate::report::{Row, percentile};
use crate::{BenchError, Options, Scale};

/// What the agent used over a scene.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    minutes: f64,
    usage: Usage,
    cpu_seconds: f64,
    calls: u64,
    writes: u64,
    changes: u64,
    /// Milliseconds from event to visible status, sorted.
    latencies: Vec<f64>,
    unseen: usize,
}

/// Nothing happens.
pub(crate) async fn idle(options: &Options, scale: Scale, guests: u32) -> Result<Measured, BenchError> {
    run(options, scale, guests, scale.idle, false).await
}

/// Every guest changes its state once a second.
pub(crate) async fn busy(options: &Options, scale: Scale, guests: u32) -> Result<Measured, BenchError> {
    run(options, scale, guests, scale.busy, true).await
}

async fn run(
    options: &Options,
    scale: Scale,
    guests: u32,
    time: Duration,
    change: bool,
) -> Result<Measured, BenchError> {
    let world = World::new().await?;
    let far = FarHost::start(world.directory.path()).map_err(BenchError::io("start the scripted host"))?;
    let servers = far.populate(guests);
    let mut agent = world.start_agent(options, &far, servers.len()).await?;
    tokio::time::sleep(scale.warm).await;

    let object = world.hypervisors().get(NODE).await;
    let object = object.map_err(BenchError::api("reading the Hypervisor"))?;
    let version = object.metadata.resource_version.unwrap_or_default();
    let watch = world.hypervisors();
    let watch = watch.watch(&WatchParams::default(), &version).await;
    let mut events = watch.map_err(BenchError::api("watching the Hypervisor"))?.boxed();

    let (before, calls, began) = (agent.usage()?, far.calls(), Instant::now());
    let mut script = Script::new(&servers, change);
    let mut measured = Measured::default();
    let end = tokio::time::Instant::now() + time;
    loop {
        let next = script.due().min(end);
        tokio::select! {
            biased;
            event = events.next() => {
                let Some(event) = event else { break };
                if let WatchEvent::Modified(object) = event.map_err(BenchError::api("watching the Hypervisor"))? {
                    measured.writes += 1;
                    script.seen(&object, &mut measured.latencies);
                }
            }
            () = tokio::time::sleep_until(next) => {
                if tokio::time::Instant::now() >= end {
                    break;
                }
                script.change(&far);
            }
        }
    }
    let after = agent.usage()?;
    agent.check()?;
    measured.minutes = began.elapsed().as_secs_f64() / 60.0;
    measured.usage = after;
    measured.cpu_seconds = after.cpu - before.cpu;
    measured.calls = far.calls() - calls;
    measured.changes = script.changes;
    measured.unseen = script.stale();
    measured.latencies.sort_by(f64::total_cmp);
    drop((events, agent, far));
    world.stop().await;
    Ok(measured)
}

/// Which guest changes when, and what is still to be seen.
struct Script {
    servers: Vec<Uuid>,
    next: usize,
    due: tokio::time::Instant,
    pause: Option<Duration>,
    running: HashMap<Uuid, bool>,
    waiting: HashMap<String, (bool, Instant)>,
    changes: u64,
}

impl Script {
    fn new(servers: &[Uuid], change: bool) -> Self {
        let count = u32::try_from(servers.len()).unwrap_or(1).max(1);
        Self {
            servers: servers.to_vec(),
            next: 0,
            due: tokio::time::Instant::now(),
            pause: change.then(|| Duration::from_secs(1) / count),
            running: servers.iter().map(|server| (*server, true)).collect(),
            waiting: HashMap::new(),
            changes: 0,
        }
    }

    fn due(&self) -> tokio::time::Instant {
        match self.pause {
            Some(_) => self.due,
            None => tokio::time::Instant::now() + Duration::from_hours(1),
        }
    }

    fn change(&mut self, far: &FarHost) {
        let Some(pause) = self.pause else { return };
        // A machine that was busy elsewhere does not get a flood afterwards.
        self.due = (self.due + pause).max(tokio::time::Instant::now());
        let Some(server) = self.servers.get(self.next).copied() else {
            return;
        };
        self.next = (self.next + 1) % self.servers.len();
        let running = self.running.entry(server).or_insert(true);
        *running = !*running;
        self.waiting
            .insert(server.to_string(), (*running, Instant::now()));
        self.changes += 1;
        if *running {
            far.start_guest(server);
        } else {
            far.stop_guest(server, 1);
        }
    }

    fn seen(&mut self, object: &Hypervisor, latencies: &mut Vec<f64>) {
        for instance in object.status.iter().flat_map(|status| &status.instances) {
            let Some((wanted, since)) = self.waiting.get(&instance.id) else {
                continue;
            };
            if instance.active == *wanted {
                latencies.push(since.elapsed().as_secs_f64() * 1000.0);
                self.waiting.remove(&instance.id);
            }
        }
    }

    /// Changes that should have been seen by now.
    fn stale(&self) -> usize {
        let waiting = self.waiting.values();
        waiting
            .filter(|(_, since)| since.elapsed() > Duration::from_secs(2))
            .count()
    }
}

impl Measured {
    fn per_minute(&self, count: f64) -> f64 {
        count / self.minutes.max(f64::EPSILON)
    }
}

pub(crate) fn idle_rows(idle: &Measured, reading: &Reading) -> Vec<Row> {
    let calls = idle.per_minute(idle.calls as f64);
    vec![
        Row::new("idle, 50 guests: memory")
            .figure("", idle.usage.resident, "MiB")
            .figure("private", idle.usage.private, "MiB")
            .goal("", 12.0),
        Row::new("idle, 50 guests: CPU per minute").figure(
            "",
            idle.per_minute(idle.cpu_seconds) * 1000.0,
            "ms",
        ),
        Row::new("idle, 50 guests: calls to libvirt")
            .figure("", calls, "calls/min")
            .goal("", 3.0)
            .baseline(calls, reading.calls_per_minute),
        Row::new("idle, 50 guests: status writes")
            .figure("", idle.per_minute(idle.writes as f64), "writes/min")
            .goal("", 0.0),
    ]
}

pub(crate) fn busy_rows(guests: u32, busy: &Measured, visible: &Visible) -> Vec<Row> {
    let (p50, p99) = (
        percentile(&busy.latencies, 50.0),
        percentile(&busy.latencies, 99.0),
    );
    let title = |what: &str| format!("{guests} guests changing: {what}");
    let seconds = busy.minutes * 60.0;
    let memory = Row::new(title("memory"))
        .figure("", busy.usage.resident, "MiB")
        .figure("private", busy.usage.private, "MiB");
    let most = if guests <= 50 { 12.0 } else { 20.0 };
    vec![
        Row::new(title("event to visible status"))
            .figure("p50", p50, "ms")
            .figure("p99", p99, "ms")
            .figure("unseen", busy.unseen as f64, "changes")
            .goal("p99", 100.0)
            .baseline(p50, percentile(&visible.0, 50.0)),
        memory.goal("", most),
        Row::new(title("CPU per minute")).figure("", busy.per_minute(busy.cpu_seconds) * 1000.0, "ms"),
        Row::new(title("calls to libvirt"))
            .figure("", busy.per_minute(busy.calls as f64), "calls/min")
            .figure(
                "per change",
                busy.calls as f64 / (busy.changes.max(1)) as f64,
                "calls",
            ),
        Row::new(title("status writes"))
            .figure("", busy.writes as f64 / seconds, "/s")
            .figure(
                "per change",
                busy.writes as f64 / (busy.changes.max(1)) as f64,
                "writes",
            ),
    ]
}
