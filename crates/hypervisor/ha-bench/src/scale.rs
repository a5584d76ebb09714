// SPDX-License-Identifier: Apache-2.0
//! The service with fleets of several sizes: memory, what signs of life cost, and how long it takes from the death of a
//! host to the first evacuation, stage by stage.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cobaltcore_ha_wire::rest::{Host, HostState, IncidentDetail, IncidentSummary, Page, path};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::caller::Caller;
use crate::fleet::Fleet;
use crate::service::{ALONE, Place, Service, token};
use crate::speaker::{GUESTS, Speaker, encoded};
use crate::{BenchError, Row, at, floor, set_up};

/// Signs of life of a thousand hosts at three replicas.
const BEATS: u32 = 600;

/// A stretch of the way from death to the first call, and how long it took.
type Stage<'a> = (&'a str, &'a dyn Fn(&Death) -> f64);

/// What was found of one fleet.
struct Found {
    hosts: usize,
    memory: f64,
    peak: f64,
    at_rest: f64,
    /// Processor seconds per sign of life.
    beat: f64,
    deaths: Vec<Death>,
}

/// How long after its death, in seconds.
#[derive(Clone, Copy)]
struct Death {
    /// After its last sign of life.
    suspect: f64,
    confirmed: f64,
    claimed: f64,
    fenced: f64,
    forced_down: f64,
    planned: f64,
    asked: f64,
    with_power: bool,
}

pub(crate) async fn measure(
    program: &Path,
    sizes: &[usize],
    quick: bool,
    progress: fn(&str),
) -> Result<Vec<Row>, BenchError> {
    let mut all = Vec::new();
    for size in sizes {
        progress(&format!("a fleet of {size} hosts and {} guests", size * GUESTS));
        all.push(one(program, *size, quick).await?);
    }
    let echo = floor::echo_of(&Speaker::new("node001", 1)?.beat(), Duration::from_secs(1)).await?;
    Ok(report(&all, echo))
}

async fn one(program: &Path, size: usize, quick: bool) -> Result<Found, BenchError> {
    let fleet = Fleet::start(size, |settings| {
        // One host's way to its first guest is what is measured, not Nova.
        settings.evacuate = Duration::from_secs(3);
    })
    .await?;
    let config = format!("{ALONE}{}", fleet.config(true));
    let place = Place::new(&fleet.folder().join("service"), &fleet.hosts, &config, None)?;
    let (mut service, _) = place.start_ready(program).await?;
    fleet.report_to(&[service.address]);
    service
        .until_figure("kvm_ha_hosts{state=\"healthy\"}", size as f64, "knew every host")
        .await?;
    let heard = "kvm_ha_signals{group=\"A\",verdict=\"alive\"}";
    service
        .until_figure(heard, size as f64, "heard every agent")
        .await?;
    // Past the first lists of everything.
    let rest = Duration::from_secs(if quick { 2 } else { 15 });
    tokio::time::sleep(rest).await;
    let (began, cpu) = (Instant::now(), service.role.cpu_seconds());
    tokio::time::sleep(rest).await;
    let at_rest = (service.role.cpu_seconds() - cpu) / began.elapsed().as_secs_f64() * 100.0;
    let (memory, peak) = (service.role.resident_mib(), service.role.peak_mib());
    let beat = beats(
        &service,
        &fleet,
        at_rest,
        Duration::from_secs(if quick { 2 } else { 10 }),
    )
    .await?;
    let deaths = deaths(&fleet, &mut service, quick).await?;
    Ok(Found {
        hosts: size,
        memory,
        peak,
        at_rest,
        beat,
        deaths,
    })
}

/// Processor seconds per sign of life, beyond what the fleet costs by itself.
async fn beats(service: &Service, fleet: &Fleet, at_rest: f64, time: Duration) -> Result<f64, BenchError> {
    const LINES: u32 = 20;
    let (began, cpu) = (Instant::now(), service.role.cpu_seconds());
    let each = fleet.hosts.len().div_ceil(LINES as usize);
    let lines = fleet
        .hosts
        .chunks(each)
        .enumerate()
        .map(|(line, hosts)| async move {
            let mut speakers = Vec::new();
            for (number, host) in hosts.iter().enumerate() {
                let mut speaker = Speaker::new(host, line * each + number)?;
                let seen = fleet.world.read(|state| {
                    let host = state.hosts.get(host.as_str())?;
                    Some((host.boot_id.to_string(), host.node_uuid.to_string()))
                });
                let (boot, machine) = seen.unwrap_or_default();
                speaker.boot = boot;
                speaker.machine.system_uuid = Some(machine);
                speakers.push((Caller::new(service.address, token(host)), speaker));
            }
            let mut ticks = tokio::time::interval(Duration::from_secs(1) * LINES / BEATS);
            let mut sent = 0_u32;
            while began.elapsed() < time {
                for (caller, speaker) in &mut speakers {
                    ticks.tick().await;
                    let body = Bytes::from(encoded(&speaker.beat())?);
                    let answer = caller.post(&speaker.path(), body).await;
                    match answer.map_err(|error| set_up("a sign of life")(error))? {
                        (200, _) => sent += 1,
                        (status, _) => return Err(set_up("a sign of life")(status.to_string().into())),
                    }
                    if began.elapsed() >= time {
                        break;
                    }
                }
            }
            Ok(sent)
        });
    let sent: u32 = futures::future::try_join_all(lines).await?.iter().sum();
    let used = service.role.cpu_seconds() - cpu;
    let own = at_rest / 100.0 * began.elapsed().as_secs_f64();
    Ok((used - own).max(0.0) / f64::from(sent.max(1)))
}

/// Lets hosts die one after the other, each in a zone of its own, and follows each to its first evacuation.
async fn deaths(fleet: &Fleet, service: &mut Service, quick: bool) -> Result<Vec<Death>, BenchError> {
    let size = fleet.hosts.len();
    let count = (size / 25).max(1);
    let apart = Duration::from_millis(if quick { 100 } else { 1700 });
    let onlooker = Onlooker::new()?;
    let mut dead = Vec::new();
    for n in 0..count {
        let host = fleet
            .hosts
            .get(n * size / count)
            .ok_or_else(|| set_up("a dead host")("there is none".into()))?;
        let power = n % 2 == 0;
        let at = fleet.lose(host, power)?;
        let watcher = onlooker.watch(service.watcher(), host);
        dead.push((host.clone(), at, power, watcher));
        tokio::time::sleep(apart).await;
    }
    let began = Instant::now();
    let mut found = Vec::new();
    for (host, at, with_power, watcher) in dead {
        // Nova has heard of it; when, is told by the same clock as everything before it.
        while fleet.asked(&host).is_empty() {
            service.gives_up(began, "asked for the guests of a dead host")?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let entries = story(service, &host).await;
        let after = |name: &str| {
            let entry = entries.iter().find(|(entry, _)| entry == name);
            entry.map_or(0.0, |(_, time)| (time - at) as f64 / 1000.0)
        };
        found.push(Death {
            suspect: watcher.await.ok().flatten().unwrap_or(f64::NAN),
            confirmed: after("opened"),
            claimed: after("claimed"),
            fenced: after("fenced"),
            forced_down: after("forced-down"),
            planned: after("planned"),
            asked: after("evacuate-intended"),
            with_power: !with_power,
        });
    }
    Ok(found)
}

/// Looks on from a thread of its own: what keeps the simulated fleet busy does not keep it from looking.
struct Onlooker {
    thread: Handle,
    runtime: Option<Runtime>,
}

impl Onlooker {
    fn new() -> Result<Self, BenchError> {
        let built = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = built.map_err(|error| set_up("an onlooker")(error.into()))?;
        Ok(Self {
            thread: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Begins to look at a host that has just died.
    fn watch(&self, service: Caller, host: &str) -> JoinHandle<Option<f64>> {
        self.thread.spawn(suspected(service, host.to_owned()))
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        // A runtime must not be waited for within another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// How long after its last sign of life a host is suspected, in seconds: looked at every 20 ms.
async fn suspected(mut caller: Caller, host: String) -> Option<f64> {
    // Nothing happens before; a host that is looked at all the time costs the service something.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let path = path::host(&host);
    loop {
        let seen: Host = caller.get(&path).await?;
        if matches!(seen.state, HostState::Suspect | HostState::Incident) {
            let silent = jiff::Timestamp::now().duration_since(seen.last_seen?);
            return Some(silent.as_secs_f64());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The names of the records of a host's incident, with their times.
async fn story(service: &mut Service, host: &str) -> Vec<(String, i64)> {
    let path = format!("/api/v1/incidents?host={host}&limit=1000");
    let page: Option<Page<IncidentSummary>> = service.operator.get(&path).await;
    let id = page.and_then(|page| page.items.into_iter().find(|one| one.host.as_str() == host));
    let Some(id) = id.map(|one| one.id) else {
        return Vec::new();
    };
    let detail: Option<IncidentDetail> = service.operator.get(&format!("/api/v1/incidents/{id}")).await;
    let journal = detail.map(|detail| detail.journal).unwrap_or_default();
    let named = journal.iter().filter_map(|record| {
        let value = serde_json::to_value(&record.entry).ok()?;
        Some((
            value.get("entry")?.as_str()?.to_owned(),
            record.at.as_millisecond(),
        ))
    });
    named.collect()
}

fn report(all: &[Found], echo: f64) -> Vec<Row> {
    let Some(largest) = all.last() else {
        return Vec::new();
    };
    let title = |what: &str| format!("{} hosts: {what}", largest.hosts);
    let growth = |figure: &dyn Fn(&Found) -> f64| -> Vec<(usize, f64)> {
        all.iter().map(|found| (found.hosts, figure(found))).collect()
    };
    let row = |what: &str, unit: &'static str, figure: &dyn Fn(&Found) -> f64| {
        Row::new(title(what), figure(largest), unit).grown("hosts", growth(figure))
    };
    let mut rows = vec![
        row("memory of the service", "MiB", &|found| found.memory).at_most(128.0, 200.0),
        row("the most it ever had", "MiB", &|found| found.peak),
    ];
    if let Some(smallest) = all.first().filter(|first| first.hosts < largest.hosts) {
        let guests = ((largest.hosts - smallest.hosts) * GUESTS) as f64;
        let each = (largest.memory - smallest.memory) / guests * 10_000.0;
        rows.push(Row::new("memory per 10,000 guests", each, "MiB").at_most(6.0, 12.0));
    }
    rows.push(row(
        "processor at rest, all agents speaking",
        "% of a core",
        &|found| found.at_rest,
    ));
    rows.push(
        row("600 heartbeats/s", "% of a core", &|found| {
            found.beat * f64::from(BEATS) * 100.0
        })
        .at_most(5.0, 10.0)
        .beside("plain HTTP echo", echo * f64::from(BEATS) * 100.0),
    );
    let times = |found: &Found, figure: &dyn Fn(&Death) -> f64, share: f64| {
        let mut all: Vec<f64> = found.deaths.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        at(&all, share)
    };
    let of_deaths = |what: &str, share: f64, figure: &dyn Fn(&Death) -> f64| {
        row(what, "s", &|found| times(found, figure, share))
    };
    let worst = times(largest, &|death| death.suspect, 1.0);
    rows.push(
        of_deaths("last sign of life to suspected, 99 %", 0.99, &|death| {
            death.suspect
        })
        .at_most(15.0, 16.0)
        .beside("median", times(largest, &|death| death.suspect, 0.5))
        .beside("worst", worst),
    );
    rows.push(of_deaths("death to confirmed, median", 0.5, &|death| death.confirmed).at_most(22.0, 35.0));
    rows.push(of_deaths("death to confirmed, 99 %", 0.99, &|death| death.confirmed).at_most(30.0, 35.0));
    rows.push(
        of_deaths("death to first evacuate call, median", 0.5, &|death| death.asked).at_most(35.0, 75.0),
    );
    rows.push(
        of_deaths("death to first evacuate call, 99 %", 0.99, &|death| death.asked).at_most(60.0, 75.0),
    );
    let stages: [Stage<'_>; 5] = [
        ("  confirmed to claimed", &|death| death.claimed - death.confirmed),
        ("  claimed to fenced", &|death| death.fenced - death.claimed),
        ("  fenced to forced down", &|death| {
            death.forced_down - death.fenced
        }),
        ("  forced down to planned", &|death| {
            death.planned - death.forced_down
        }),
        ("  planned to first call", &|death| death.asked - death.planned),
    ];
    for (name, figure) in stages {
        let worst = times(largest, figure, 0.99);
        rows.push(of_deaths(&format!("{name}, median"), 0.5, figure).beside("99 %", worst));
    }
    for (what, with_power) in [("power lost", false), ("cable lost, power on", true)] {
        let mut some: Vec<f64> = largest
            .deaths
            .iter()
            .filter(|death| death.with_power == with_power)
            .map(|death| death.asked)
            .collect();
        some.sort_by(f64::total_cmp);
        if !some.is_empty() {
            let name = title(&format!("  {what}: death to first call, median"));
            rows.push(Row::new(name, at(&some, 0.5), "s").beside("99 %", at(&some, 0.99)));
        }
    }
    rows
}
