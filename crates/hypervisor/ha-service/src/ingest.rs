// SPDX-License-Identifier: Apache-2.0
//! What becomes of an agent's report: its sign of life goes to the engine at once, whatever the
//! database does; its records are stored once and then judged once, also if it leaves meanwhile; its
//! inventory is compared with the last one, so that a fleet that does nothing writes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
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
use crate::http::{App, Place, problem};
use crate::metrics::OfKind;
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

/// Whose records are being stored and judged. Reports of one host come one after the other, because the engine goes by
/// the order of their records. All of them together have half of the places that requests have: signs of life find one,
/// however slow the disk is.
pub(crate) struct Storing {
    most: usize,
    hosts: Arc<Mutex<HashSet<HostName>>>,
}

impl Storing {
    /// For a door with so many places.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            most: (places / 2).max(1),
            hosts: Arc::default(),
        }
    }

    /// The turn of a host; nothing while its last one lasts, or while there are too many.
    fn begin(&self, host: &HostName) -> Option<Turn> {
        let mut hosts = self.hosts.lock();
        let free = hosts.len() < self.most && hosts.insert(host.clone());
        free.then(|| Turn {
            host: host.clone(),
            hosts: Arc::clone(&self.hosts),
        })
    }
}

/// Ends with the report that is stored.
struct Turn {
    host: HostName,
    hosts: Arc<Mutex<HashSet<HostName>>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.hosts.lock().remove(&self.host);
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

/// Takes a report of `host`; says up to which number its records are stored. Its place is taken for as long as that
/// lasts.
pub(crate) async fn take(
    app: &Arc<App>,
    host: &HostName,
    batch: Batch,
    place: Option<Place>,
) -> Result<u64, Problem> {
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
        heartbeat(app, host, &batch, beat, received)?;
    }
    if let Some(inventory) = &batch.inventory {
        take_inventory(app, host, &batch, inventory, received)?;
    }
    if batch.events.is_empty() && batch.dropped.is_empty() {
        return Ok(app.store.last_seq(&envelope.agent_id));
    }
    let report = Report {
        app: Arc::clone(app),
        host: host.clone(),
        batch: Arc::new(batch),
        received,
        on_its_way,
    };
    report.keep(place).await
}

/// The engine has no room. An agent that was answered would believe that the service knows what it said, and go by that.
fn unheard(app: &App, what: &str) -> Problem {
    app.count_refused(what, "busy");
    let detail = format!("too much waits to be judged, and nobody heard this {what}; send it again");
    problem(503, "Busy", detail)
}

fn heartbeat(
    app: &App,
    host: &HostName,
    batch: &Batch,
    beat: &Heartbeat,
    received: jiff::Timestamp,
) -> Result<(), Problem> {
    let observed = beat.observed(host.clone(), &batch.envelope);
    let machine = observed.machine.clone();
    if !app.brain.offer(Input::Saw(Observation::Heartbeat(observed))) {
        return Err(unheard(app, "heartbeat"));
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
    Ok(())
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
) -> Result<(), Problem> {
    let version = Version {
        agent: batch.envelope.agent_id.clone(),
        place: (batch.envelope.epoch, inventory.inventory_version),
    };
    if !app.door.inventories.is_news(host, version) {
        app.count_refused("inventory", "old");
        return Ok(());
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
        return Err(unheard(app, "inventory"));
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
    Ok(())
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

/// A report whose records are to be stored and judged.
struct Report {
    app: Arc<App>,
    host: HostName,
    batch: Arc<Batch>,
    received: jiff::Timestamp,
    on_its_way: Duration,
}

impl Report {
    /// Stores and judges in a task of its own. An agent that does not wait for the answer would tear the two apart
    /// otherwise: what is stored by then is known when it comes again, and nobody would ever judge it.
    async fn keep(self, place: Option<Place>) -> Result<u64, Problem> {
        let Some(turn) = self.app.door.storing.begin(&self.host) else {
            self.app.count_refused("report", "busy");
            return Err(problem(
                503,
                "Busy",
                "too many reports are being stored, or an earlier one of this host is; keep the records and send them \
                 again",
            ));
        };
        let task = tokio::spawn(async move {
            let kept = self.store().await;
            drop((turn, place));
            kept
        });
        // It ends early only with the process.
        task.await.unwrap_or_else(|error| Err(not_stored(&error)))
    }

    async fn store(&self) -> Result<u64, Problem> {
        let (app, host, batch) = (&self.app, &self.host, &self.batch);
        let begun = Instant::now();
        let stored = app
            .store
            .ingest(Arc::clone(batch), self.received.as_millisecond())
            .await;
        app.metrics.db_commit.observe(begun.elapsed().as_secs_f64());
        app.metrics.db_up.set(i64::from(stored.is_ok()));
        match stored {
            Err(error) => {
                app.count_refused("report", "storage");
                Err(not_stored(&error))
            }
            Ok(Stored::Expected(seq)) => Err(Problem::expected(seq)),
            Ok(Stored::Foreign) => {
                app.count_refused("report", "forged");
                Err(foreign(host, batch))
            }
            Ok(Stored::Taken { skip, last, lost }) => {
                self.count(skip, lost);
                self.judge(skip).await;
                Ok(last)
            }
        }
    }

    fn count(&self, skip: usize, lost: u64) {
        if skip > 0 {
            self.app.count_known(skip);
        }
        if lost > 0 {
            tracing::warn!(host = %self.host, dropped = lost, "records were dropped before they were sent: the spool of its agent is full");
        }
        self.app.metrics.spool_dropped.inc_by(lost);
    }

    /// Has the engine judge the records that were not known before.
    async fn judge(&self, skip: usize) {
        for event in self.batch.events.iter().skip(skip) {
            let kind = event.kind.as_str().to_owned();
            let metrics = &self.app.metrics;
            metrics.ingest_events.get_or_create(&OfKind { kind }).inc();
            let lag = self.received.as_millisecond() - event.ts.as_millisecond();
            metrics.ingest_lag.observe(lag.max(0) as f64 / 1000.0);
            self.judge_one(event).await;
        }
    }

    async fn judge_one(&self, event: &Event) {
        let kind = event.meaning();
        if kind == GuestEventKind::Other {
            return;
        }
        let seen = GuestEvent {
            host: self.host.clone(),
            agent: self.batch.envelope.agent_id.clone(),
            seq: event.seq,
            age: age(&self.batch.envelope, event, self.on_its_way),
            server: event.domain.as_ref().map(|domain| domain.uuid.clone()),
            kind,
            device: event
                .attrs
                .get(DEVICE_CLASS)
                .map(|class| DeviceClass(class.to_string())),
        };
        self.app.brain.tell(Input::Saw(Observation::Guest(seen))).await;
    }
}

fn not_stored(why: &dyn std::error::Error) -> Problem {
    problem(
        503,
        "Not stored",
        format!("{why}; keep the records and send them again"),
    )
}

fn foreign(host: &HostName, batch: &Batch) -> Problem {
    problem(
        403,
        "Forbidden",
        format!(
            "agent_id {} is the stream of another host; if the spool of {host} was copied from there, or the host got \
             another name, remove identity.json from it",
            batch.envelope.agent_id.0
        ),
    )
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
    use std::collections::BTreeMap;

    use cobaltcore_ha_wire::{BootId, Envelope, Kind, SCHEMA};
    use tokio::sync::Semaphore;

    use crate::metrics::OfRefusal;
    use crate::run::Service;

    fn batch() -> Batch {
        Batch::empty(Envelope {
            schema: SCHEMA,
            host: HostName::new("n1").unwrap(),
            agent_id: AgentId("a".into()),
            boot_id: BootId("b1".into()),
            epoch: 1,
            sent_at: jiff::Timestamp::now(),
            mono_ns: 1_000,
        })
    }

    fn crashes(seqs: std::ops::RangeInclusive<u64>) -> Batch {
        let crash = |seq| Event {
            seq,
            ts: jiff::Timestamp::now(),
            mono_ns: seq,
            kind: Kind::Lifecycle,
            event: "stopped".into(),
            detail: "failed".into(),
            domain: None,
            attrs: BTreeMap::new(),
            count: 1,
            synthetic: false,
        };
        let mut batch = batch();
        batch.events = seqs.map(crash).collect();
        batch
    }

    /// How many inputs wait for the engine.
    fn told(app: &App) -> usize {
        app.brain.inputs().max_capacity() - app.brain.inputs().capacity()
    }

    fn refused(app: &App, what: &str, why: &str) -> u64 {
        let label = OfRefusal {
            what: what.into(),
            why: why.into(),
        };
        app.metrics.refused.get_or_create(&label).get()
    }

    #[tokio::test]
    async fn what_is_stored_is_judged_once_though_its_agent_left_and_holds_its_place_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::still(folder.path(), "").await;
        let (app, host) = (service.app(), HostName::new("n1").unwrap());
        // The disk is slow.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        assert!(app.store.write_later(move |_| {
            let _ = held.recv();
            Ok(())
        }));
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::new(Arc::clone(&places).try_acquire_owned().unwrap());
        let mut call = Box::pin(take(app, &host, crashes(1..=3), Some(place)));
        assert!(futures::poll!(call.as_mut()).is_pending());
        drop(call);
        tokio::task::yield_now().await;
        assert_eq!(places.available_permits(), 0, "it is still under way");
        let again = take(app, &host, crashes(1..=3), None).await.unwrap_err();
        assert_eq!((again.status, refused(app, "report", "busy")), (503, 1));
        drop(hold);
        let _over = places.acquire().await.unwrap();
        assert_eq!(told(app), 3, "nobody waited for it");
        assert_eq!(take(app, &host, crashes(1..=5), None).await.unwrap(), 5);
        assert_eq!(told(app), 5, "what was judged is not judged again");
        assert_eq!(refused(app, "record", "replayed"), 3);
    }

    #[tokio::test]
    async fn an_agent_that_nobody_heard_is_not_told_that_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::still(folder.path(), "").await;
        let (app, host) = (service.app(), HostName::new("n1").unwrap());
        let heartbeat = serde_json::json!({
            "uptime_s": 1, "boot_id": "b1", "agent_version": "0", "config_hash": "0",
            "libvirt": {"connected": true, "version": "11.0.0", "last_ok_ms": 5, "unsupported": []},
            "domains": {}, "spool": {"depth": 0, "bytes": 0, "oldest_s": 0, "dropped_total": 0},
            "machine": {}, "self_fence": {"armed": false, "timeout_s": 0}, "planned_shutdown": false,
        });
        let inventory = serde_json::json!({"inventory_version": 1, "domains": []});
        let (mut beat, mut list) = (crashes(1..=1), batch());
        beat.heartbeat = Some(serde_json::from_value(heartbeat).unwrap());
        list.inventory = Some(serde_json::from_value(inventory).unwrap());
        while app.brain.offer(Input::Tick) {}
        for (report, what) in [(&beat, "heartbeat"), (&list, "inventory")] {
            let unheard = take(app, &host, report.clone(), None).await.unwrap_err();
            assert_eq!((unheard.status, refused(app, what, "busy")), (503, 1), "{what}");
        }
        assert_eq!(
            app.store.last_seq(&beat.envelope.agent_id),
            0,
            "it comes again as a whole"
        );
        assert!(!app.heard.fresh(&host, Duration::from_secs(3600)));
    }

    #[test]
    fn one_report_of_a_host_is_stored_at_a_time_and_half_of_the_places_are_left_to_others() {
        let storing = Storing::new(4);
        let [one, two, three] = ["n1", "n2", "n3"].map(|name| HostName::new(name).unwrap());
        let turn = storing.begin(&one);
        assert!(turn.is_some() && storing.begin(&one).is_none());
        let other = storing.begin(&two);
        assert!(other.is_some() && storing.begin(&three).is_none());
        drop(turn);
        assert!(storing.begin(&three).is_some());
        assert!(storing.begin(&one).is_some());
        assert!(Storing::new(1).begin(&one).is_some());
    }

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
