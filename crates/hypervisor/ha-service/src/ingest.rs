// SPDX-License-Identifier: Apache-2.0
//! What becomes of an agent's report: its sign of life goes to the engine at once, whatever the
//! database does; its records are stored once and then judged once; its inventory is compared with
//! the last one, so that a fleet that does nothing writes nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    DeviceClass, DomainState as Seen, GuestEvent, GuestEventKind, Input, Inventory as EngineInventory,
    Observation, ProbeResult, Prober,
};
use cobaltcore_ha_wire::{
    AgentId, Batch, Command, CommandId, CommandKind, DEVICE_CLASS, Disk, DomainEntry, DomainState, Event,
    Heartbeat, Inventory, Job, ProbeMethod, ProbeOutcome, ProbeTarget, Problem, bounds,
};
use parking_lot::Mutex;
use rusqlite::params;
use uuid::Uuid;

use crate::ages::age;
use crate::commands::{Order, Waiting};
use crate::config::{Config, Driver};
use crate::directory::HostEntry;
use crate::disks::{in_ceph, root_outside_ceph};
use crate::http::{App, problem};
use crate::store::Stored;

/// A clock that runs ahead by more than this is counted.
const SKEW_MS: i64 = 60_000;

/// What was last heard and written of each host's guests, as numbers: a fleet has many. Cheap to clone; clones
/// share.
#[derive(Clone, Default)]
pub(crate) struct Inventories {
    written: Arc<Mutex<HashMap<HostName, Written>>>,
    newest: Arc<Mutex<HashMap<HostName, Version>>>,
}

/// Which list this is of all that an agent ever made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    agent: AgentId,
    /// The start of the agent, and the version within it.
    place: (u64, u64),
}

impl Inventories {
    /// Whether a list is not older than what was heard; another agent counts for itself. It is remembered.
    fn is_news(&self, host: &HostName, version: Version) -> bool {
        let mut newest = self.newest.lock();
        let old = newest
            .get(host)
            .is_some_and(|known| known.agent == version.agent && known.place > version.place);
        if !old {
            newest.insert(host.clone(), version);
        }
        !old
    }
}

/// What was written of a guest: its state, and whether the disk of its image is on its host alone.
type Facts = (DomainState, bool);
/// What was written of the guests of one host, ordered by their numbers.
type Written = Box<[(Uuid, Facts)]>;

fn facts_of(written: &[(Uuid, Facts)], uuid: Uuid) -> Option<Facts> {
    let found = written.binary_search_by_key(&uuid, |(known, _)| *known).ok()?;
    written.get(found).map(|(_, facts)| *facts)
}

/// The number of a guest. Its id is known to be a UUID; one that is none is never remembered.
fn number(server: &ServerId) -> Option<Uuid> {
    Uuid::try_parse(server.as_str()).ok()
}

/// Takes a report of `host`; says up to which number its records are stored.
pub(crate) async fn take(app: &App, host: &HostName, batch: Batch) -> Result<u64, Problem> {
    let received = jiff::Timestamp::now();
    let envelope = &batch.envelope;
    if envelope.host != *host {
        app.count_refused("report", "forged");
        return Err(problem(
            403,
            "Forbidden",
            format!("a report about {} was sent to {host}", envelope.host),
        ));
    }
    if let Some(beat) = &batch.heartbeat
        && beat.boot_id != envelope.boot_id
    {
        app.count_refused("report", "contradiction");
        return Err(problem(
            422,
            "Not valid",
            "heartbeat.boot_id differs from boot_id: one report speaks for one boot",
        ));
    }
    if envelope.sent_at.as_millisecond() - received.as_millisecond() > SKEW_MS {
        // Nothing is decided by it; people may want to know.
        app.count_refused("sent_at", "ahead");
    }
    let on_its_way = app.door.ages.arrived(envelope, Instant::now());
    if let Some(beat) = &batch.heartbeat {
        heartbeat(app, host, &batch, beat, received);
    }
    if let Some(inventory) = &batch.inventory {
        take_inventory(app, host, &batch, inventory, received);
    }
    if batch.events.is_empty() && batch.dropped.is_empty() {
        return Ok(app.store.last_seq(&envelope.agent_id));
    }
    store(app, host, Arc::new(batch), received, on_its_way).await
}

fn heartbeat(app: &App, host: &HostName, batch: &Batch, beat: &Heartbeat, received: jiff::Timestamp) {
    let observed = beat.observed(host.clone(), &batch.envelope);
    let machine = observed.machine.clone();
    if !app.brain.offer(Input::Saw(Observation::Heartbeat(observed))) {
        app.count_refused("heartbeat", "busy");
        return;
    }
    let named = machine.system_uuid.is_some() || machine.serial.is_some();
    let news = |entry: Arc<HostEntry>| entry.machine != machine;
    if named && app.directory.get(host).is_some_and(news) {
        app.directory.change_known(host, |entry| entry.machine = machine);
    }
    // After its machine is known: what was found out of another one says nothing about whom we hear.
    app.heard
        .note(host, &batch.envelope.boot_id.0, beat.uptime_s, received);
    probes(app, host, beat);
}

/// Several attempts of one command are one answer: the best sign of life among them.
fn probes(app: &App, by: &HostName, beat: &Heartbeat) {
    let mut best: HashMap<&CommandId, ProbeResult> = HashMap::new();
    for report in &beat.probes {
        let found = match report.outcome {
            ProbeOutcome::App => ProbeResult::App,
            ProbeOutcome::Kernel => ProbeResult::Kernel,
            ProbeOutcome::Timeout => ProbeResult::Timeout,
            ProbeOutcome::Failed => continue,
        };
        let better = |new: ProbeResult, old: ProbeResult| {
            matches!(
                (new, old),
                (ProbeResult::App, _) | (ProbeResult::Kernel, ProbeResult::Timeout)
            )
        };
        best.entry(&report.command)
            .and_modify(|old| {
                if better(found, *old) {
                    *old = found;
                }
            })
            .or_insert(found);
    }
    for (command, result) in best {
        // Only what this agent was asked counts, and only once.
        let Some((about, asked)) = app.commands.settle(&command.0, by) else {
            continue;
        };
        app.brain.offer(Input::Saw(Observation::Probe {
            host: about,
            by: Prober::Peer(by.clone()),
            asked_at: app.clock.mono_at(asked.into_std()),
            result,
        }));
    }
}

fn take_inventory(
    app: &App,
    host: &HostName,
    batch: &Batch,
    inventory: &Inventory,
    received: jiff::Timestamp,
) {
    let version = Version {
        agent: batch.envelope.agent_id.clone(),
        place: (batch.envelope.epoch, inventory.inventory_version),
    };
    if !app.door.inventories.is_news(host, version) {
        app.count_refused("inventory", "old");
        return;
    }
    let seen = |state: DomainState, job: Job| match (state, job) {
        (_, Job::MigrationIn) => Seen::Incoming,
        (DomainState::Paused, _) => Seen::Paused,
        (state, _) if state.active() => Seen::Running,
        _ => Seen::Off,
    };
    let observed = EngineInventory {
        host: host.clone(),
        agent: batch.envelope.agent_id.clone(),
        starts: batch.envelope.epoch,
        boot: batch.envelope.boot_id.clone(),
        version: inventory.inventory_version,
        domains: inventory
            .domains
            .iter()
            .map(|domain| (domain.uuid.clone(), seen(domain.state, domain.job)))
            .collect(),
        devices: devices(inventory),
    };
    if !app.brain.offer(Input::Saw(Observation::Inventory(observed))) {
        app.count_refused("inventory", "busy");
        return;
    }
    app.directory
        .change_known(host, |entry| entry.instances = inventory.domains.len());
    if fences_storage(&app.config()) {
        let config = app.config();
        let fenced = |pool: &str| config.fencing.cuts_off(host.as_str(), pool);
        let listed = inventory.domains.iter().filter(|domain| in_ceph(domain, fenced));
        app.directory.in_ceph.note(host, listed);
    }
    let outside = inventory
        .domains
        .iter()
        .filter(|domain| root_outside_ceph(domain));
    app.directory.outside_ceph.note(host, outside);
    keep_inventory(app, host, inventory, received);
}

/// The classes of device that the guests of a host have their disks on.
fn devices(inventory: &Inventory) -> Vec<DeviceClass> {
    let disks = inventory.domains.iter().flat_map(|domain| &domain.disks);
    let classes: BTreeSet<String> = disks.filter_map(Disk::class).collect();
    classes.into_iter().map(DeviceClass).collect()
}

/// Whether anybody will ask where the disks of guests are.
fn fences_storage(config: &Config) -> bool {
    let own = config.fencing.hosts.values().flat_map(|host| &host.levels);
    let mut devices = config.fencing.levels.iter().chain(own).flatten();
    devices.any(|device| device.driver == Driver::CephFence)
}

/// Writes what changed since the last inventory of this host.
fn keep_inventory(app: &App, host: &HostName, inventory: &Inventory, received: jiff::Timestamp) {
    let facts = |domain: &DomainEntry| (domain.state, root_outside_ceph(domain));
    let numbered = |domain: &DomainEntry| Some((number(&domain.uuid)?, facts(domain)));
    let mut now: Vec<(Uuid, Facts)> = inventory.domains.iter().filter_map(numbered).collect();
    now.sort_unstable_by_key(|(uuid, _)| *uuid);
    let now: Written = now.into_boxed_slice();
    let mut known = app.door.inventories.written.lock();
    let before = known.get(host).map(|written| &**written).unwrap_or_default();
    let changed: Vec<(String, String, &'static str, bool)> = inventory
        .domains
        .iter()
        .filter(|domain| number(&domain.uuid).and_then(|uuid| facts_of(before, uuid)) != Some(facts(domain)))
        .map(|domain| {
            (
                domain.uuid.to_string(),
                domain.name.clone(),
                domain.state.as_str(),
                root_outside_ceph(domain),
            )
        })
        .collect();
    let gone: Vec<String> = before
        .iter()
        .filter(|(uuid, _)| facts_of(&now, *uuid).is_none())
        .map(|(uuid, _)| uuid.to_string())
        .collect();
    if changed.is_empty() && gone.is_empty() {
        return;
    }
    let (host_name, version, at) = (
        host.to_string(),
        inventory.inventory_version.cast_signed(),
        received.as_millisecond(),
    );
    let queued = app.store.write_later(move |transaction| {
        let mut upsert = transaction.prepare_cached(
            "insert into vms(uuid, name, agent_host, agent_state, inv_version, agent_seen, outside_ceph)
                values(?1, ?2, ?3, ?4, ?5, ?6, ?7)
             on conflict(uuid) do update set name = case when name = '' then ?2 else name end, agent_host = ?3,
                agent_state = ?4, inv_version = ?5, agent_seen = ?6, outside_ceph = ?7",
        )?;
        for (uuid, name, state, outside_ceph) in changed {
            upsert.execute(params![uuid, name, host_name, state, version, at, outside_ceph])?;
        }
        let mut left = transaction.prepare_cached(
            "update vms set agent_host = null, agent_state = null where uuid = ?1 and agent_host = ?2",
        )?;
        for uuid in gone {
            left.execute(params![uuid, host_name])?;
        }
        Ok(())
    });
    if queued {
        known.insert(host.clone(), now);
    }
}

async fn store(
    app: &App,
    host: &HostName,
    batch: Arc<Batch>,
    received: jiff::Timestamp,
    on_its_way: Duration,
) -> Result<u64, Problem> {
    let begun = std::time::Instant::now();
    let stored = app
        .store
        .ingest(Arc::clone(&batch), received.as_millisecond())
        .await;
    app.metrics.db_commit.observe(begun.elapsed().as_secs_f64());
    app.metrics.db_up.set(i64::from(stored.is_ok()));
    let (skip, last) = match stored {
        Err(error) => {
            app.count_refused("report", "storage");
            return Err(problem(
                503,
                "Not stored",
                format!("{error}; keep the records and send them again"),
            ));
        }
        Ok(Stored::Expected(seq)) => return Err(Problem::expected(seq)),
        Ok(Stored::Foreign) => {
            app.count_refused("report", "forged");
            return Err(problem(
                403,
                "Forbidden",
                format!(
                    "agent_id {} is the stream of another host; if the spool of {host} was copied from there, or the \
                     host got another name, remove identity.json from it",
                    batch.envelope.agent_id.0
                ),
            ));
        }
        Ok(Stored::Taken { skip, last }) => (skip, last),
    };
    if skip > 0 {
        app.count_known(skip);
    }
    let dropped: u64 = batch
        .dropped
        .iter()
        .map(|range| range.end() - range.start() + 1)
        .sum();
    if dropped > 0 {
        tracing::warn!(%host, dropped, "records were dropped before they were sent: the spool of its agent is full");
    }
    app.metrics.spool_dropped.inc_by(dropped);
    for event in batch.events.iter().skip(skip) {
        app.metrics
            .ingest_events
            .get_or_create(&crate::metrics::OfKind {
                kind: event.kind.as_str().to_owned(),
            })
            .inc();
        let lag = received.as_millisecond() - event.ts.as_millisecond();
        app.metrics.ingest_lag.observe(lag.max(0) as f64 / 1000.0);
        judge(app, host, &batch, event, on_its_way).await;
    }
    Ok(last)
}

async fn judge(app: &App, host: &HostName, batch: &Batch, event: &Event, on_its_way: Duration) {
    let kind = event.meaning();
    if kind == GuestEventKind::Other {
        return;
    }
    let seen = GuestEvent {
        host: host.clone(),
        agent: batch.envelope.agent_id.clone(),
        seq: event.seq,
        age: age(&batch.envelope, event, on_its_way),
        server: event.domain.as_ref().map(|domain| domain.uuid.clone()),
        kind,
        device: event
            .attrs
            .get(DEVICE_CLASS)
            .map(|class| DeviceClass(class.to_string())),
    };
    app.brain.tell(Input::Saw(Observation::Guest(seen))).await;
}

/// A command as agents read it.
pub(crate) fn on_the_wire(waiting: Waiting, now: tokio::time::Instant) -> Command {
    let left = waiting.expires.saturating_duration_since(now);
    let kind = match waiting.order {
        Order::Probe {
            address,
            ports,
            timeout,
            ..
        } => CommandKind::Probe {
            targets: ports
                .into_iter()
                .take(bounds::TARGETS)
                .map(|port| ProbeTarget {
                    address,
                    method: ProbeMethod::Tcp,
                    port,
                })
                .collect(),
            timeout_ms: u64::try_from(timeout.as_millis())
                .unwrap_or(bounds::PROBE_MS)
                .min(bounds::PROBE_MS),
        },
        Order::Resync => CommandKind::Resync,
        Order::PauseDomain(uuid) => CommandKind::PauseDomain {
            uuid,
            incident: String::new(),
        },
    };
    Command {
        id: CommandId(waiting.id.to_string()),
        expires_in_ms: u64::try_from(left.as_millis()).unwrap_or(0),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_list_of_the_same_agent_is_not_heard() {
        let inventories = Inventories::default();
        let (one, other) = (HostName::new("n1").unwrap(), HostName::new("n2").unwrap());
        let news = |host: &HostName, agent: &str, start, version| {
            let agent = AgentId(agent.to_owned());
            inventories.is_news(
                host,
                Version {
                    agent,
                    place: (start, version),
                },
            )
        };
        assert!(news(&one, "a", 1, 7));
        assert!(news(&one, "a", 1, 7), "the same again is fresh");
        assert!(!news(&one, "a", 1, 6));
        assert!(news(&one, "a", 2, 1), "the agent began anew");
        assert!(
            !news(&one, "a", 1, 8),
            "what an earlier start said comes too late"
        );
        assert!(news(&one, "b", 1, 1), "another spool");
        assert!(news(&other, "a", 1, 1));
    }

    #[test]
    fn classes_of_devices_are_told_once_each() {
        let inventory = serde_json::json!({"inventory_version": 1, "domains": [
            {"uuid": "12e479eb-6bef-4fdb-bfdc-0388df68bed9", "name": "i", "state": "running", "disks": [
                {"type": "network", "source": "rbd:vms/a"}, {"type": "network", "source": "rbd:vms/b"},
                {"type": "file", "source": ""}, {"type": "block", "source": "/dev/sdb"}]}]});
        let inventory: Inventory = serde_json::from_value(inventory).unwrap();
        let told: Vec<String> = devices(&inventory).into_iter().map(|class| class.0).collect();
        assert_eq!(told, ["block", "network/rbd"]);
    }
}
