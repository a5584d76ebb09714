// SPDX-License-Identifier: Apache-2.0
//! The records of agents on their way: from a notice to a spool, from there in batches to every replica, over a network
//! that loses, doubles and delays, into stores that may be broken, slow, or lose what they had. What is promised of
//! them is checked here, at each of these steps.

mod line;
mod spool;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_ha_engine::{AgentId, GuestEvent, GuestEventKind, Input, Observation};
use cobaltcore_ha_wire::{DomainRef, Event as Notice, Kind};

use crate::invariants::Invariant;
use crate::world::{Event, World};
use line::Line;
pub(crate) use line::{Answered, Parcel};
use spool::{Kept, LIMIT, LITTLE, Spool};
pub(crate) use store::Store;

/// Records of one flush.
const GROUP: usize = 500;
/// Records that wait in memory for the disk.
const QUEUE: usize = 10_000;
/// Milliseconds after which a write that failed is tried again.
const AFTER_ERROR: u64 = 1000;
/// Bytes of a record as they mostly are.
const ORDINARY: u64 = 300;

/// A mistake of an agent or a service on the way of records, made on purpose: the simulation must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A service acknowledges what it has not committed yet.
    AckBeforeCommit,
    /// A segment goes as soon as one endpoint has it.
    ForgetAfterOne,
    /// The newest segment goes as well when everybody has it.
    ForgetNewest,
    /// The same, and after a start numbers continue behind what is left on the disk, whatever was sent.
    ForgetSent,
    /// Records are given up for want of room before it is written down which numbers they had.
    DropSilently,
    /// A service stores every record it is sent.
    StoreReplays,
    /// A backlog goes at half its rate.
    SlowReplay,
    /// An agent does not go back although records are missing.
    NeverRewind,
    /// The cover of a host is written when it changes, and not again if that fails.
    CoverOnce,
    /// What a term that is over had wanted still leaves, and the next one does not wait for what is under way.
    OldTermActs,
    /// The number of a term that could write nothing is given to the next.
    TermTwice,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::AckBeforeCommit,
        Self::ForgetAfterOne,
        Self::ForgetNewest,
        Self::ForgetSent,
        Self::DropSilently,
        Self::StoreReplays,
        Self::SlowReplay,
        Self::NeverRewind,
        Self::CoverOnce,
        Self::OldTermActs,
        Self::TermTwice,
    ];
}

/// The stream of one agent.
pub(crate) struct Stream {
    spool: Spool,
    /// Which process of the agent this is; nothing while there is none.
    process: Option<u64>,
    processes: u64,
    /// The kernel under it, by how often the power of its host changed.
    kernel: u64,
    queue: Vec<Kept>,
    flushing: bool,
    lines: [Line; 3],
    /// Whether nothing can be written.
    pub(crate) disk_full: bool,
    /// Whether a flush takes seconds.
    pub(crate) disk_slow: bool,
    /// What each number stands for that was ever durable here.
    accepted: Vec<u64>,
    /// Up to which number somebody may have seen them.
    seen: u64,
    /// The latest word about itself.
    rejected: u64,
    /// When the newest record was made.
    pub(crate) newest: u64,
}

impl Stream {
    pub(crate) fn new() -> Self {
        Self {
            spool: Spool::new(),
            process: Some(0),
            processes: 0,
            kernel: 0,
            queue: Vec::new(),
            flushing: false,
            lines: Default::default(),
            disk_full: false,
            disk_slow: false,
            accepted: Vec::new(),
            seen: 0,
            rejected: 0,
            newest: 0,
        }
    }

    /// Whether an endpoint has everything that is durable here.
    pub(crate) fn drained(&self, r: usize) -> bool {
        self.queue.is_empty() && self.spool.cursor(r) >= self.spool.flushed()
    }

    pub(crate) fn mend(&mut self) {
        self.disk_full = false;
        self.disk_slow = false;
        self.squeeze(false);
    }

    /// The room on the disk becomes little, or much again.
    pub(crate) fn squeeze(&mut self, little: bool) {
        self.spool.limit = if little { LITTLE } else { LIMIT };
    }
}

impl World {
    fn wrong(&self, mistake: Mistake) -> bool {
        self.options.mistake == Some(mistake)
    }

    fn agent_runs(&self, h: usize) -> bool {
        self.hosts[h].user && self.hosts[h].agent
    }

    /// The process of an agent begins and ends with its host, or by itself.
    pub(crate) fn watch_agent(&mut self, h: usize) {
        let (runs, kernel) = (self.agent_runs(h), self.hosts[h].power_generation);
        let alive = self.hosts[h].kernel;
        let stream = &self.streams[h];
        let same = stream.process.is_some() && stream.kernel == kernel;
        if runs == same {
            return;
        }
        let wrong = self.options.mistake;
        let stream = &mut self.streams[h];
        if stream.process.take().is_some() || stream.kernel != kernel {
            stream.queue.clear();
            stream.flushing = false;
            for line in &mut stream.lines {
                line.hang_up();
            }
            if stream.kernel != kernel || !alive {
                stream.spool.lose_power(&mut self.dice);
            }
        }
        if runs {
            stream.processes += 1;
            stream.process = Some(stream.processes);
            stream.kernel = kernel;
            stream.spool.open(wrong);
            for r in 0..3 {
                self.offer_later(h, r, 1000);
            }
        }
    }

    /// An agent notices something every now and then.
    pub(crate) fn chatter(&mut self, h: usize) {
        if self.dice.u16(..self.quiet) == 0 {
            self.record(h, notice(Kind::AgentLifecycle, "connected", ""), ORDINARY);
        }
    }

    /// Much happens at once.
    pub(crate) fn storm(&mut self, h: usize, records: usize) {
        let bytes = self.dice.u64(500..4000);
        for _ in 0..records {
            self.record(h, notice(Kind::AgentLifecycle, "disconnected", ""), bytes);
        }
    }

    /// Something befell a guest, or the host.
    pub(crate) fn guest_event(&mut self, h: usize, server: Option<usize>, kind: GuestEventKind) {
        let (kind, event, detail) = match kind {
            GuestEventKind::Crashed => (Kind::Lifecycle, "stopped", "failed"),
            GuestEventKind::Watchdog => (Kind::Watchdog, "reset", ""),
            GuestEventKind::IoError => (Kind::IoError, "pause", ""),
            GuestEventKind::MemoryFailure => (Kind::MemoryFailure, "fatal", ""),
            GuestEventKind::Other => (Kind::Agent, cobaltcore_ha_wire::agent::CONFIG_REJECTED, ""),
        };
        let domain = server.map(|n| DomainRef {
            uuid: self.servers[n].id.clone(),
            name: String::new(),
            id: -1,
        });
        let event = Notice {
            domain,
            ..notice(kind, event, detail)
        };
        let own = event.kind == Kind::Agent;
        self.record(h, event, ORDINARY);
        if own {
            self.streams[h].rejected = self.noticed;
        }
    }

    fn record(&mut self, h: usize, mut event: Notice, bytes: u64) {
        if !self.agent_runs(h) {
            return;
        }
        self.watch_agent(h);
        self.noticed += 1;
        // The boot-time clock tells records apart.
        event.mono_ns = self.noticed;
        event.ts = moment(self.now);
        let stream = &mut self.streams[h];
        stream.newest = self.now;
        if stream.queue.len() < QUEUE {
            stream.queue.push(Kept { event, bytes });
        }
        if !std::mem::replace(&mut stream.flushing, true) {
            let process = stream.processes;
            let soon = self.dice.u64(1..8);
            self.schedule(soon, Event::Flush(h, process));
        }
    }

    fn is_process(&self, h: usize, process: u64) -> bool {
        let stream = &self.streams[h];
        stream.process == Some(process)
            && self.agent_runs(h)
            && stream.kernel == self.hosts[h].power_generation
    }

    /// The group that has gathered is written.
    pub(crate) fn flush(&mut self, h: usize, process: u64) {
        if !self.is_process(h, process) {
            return;
        }
        let wrong = self.options.mistake;
        let stream = &mut self.streams[h];
        if stream.disk_full {
            self.schedule(AFTER_ERROR, Event::Flush(h, process));
            return;
        }
        let group = stream.queue.drain(..stream.queue.len().min(GROUP)).collect();
        let dropped = stream.spool.write(group, wrong);
        let takes = if stream.disk_slow {
            self.dice.u64(500..3000)
        } else {
            self.dice.u64(1..20)
        };
        self.schedule(takes, Event::Flushed(h, process));
        if !dropped.is_empty() {
            self.story(|| format!("n{h:02} drops {} records for want of room", dropped.len()));
            let mut told = notice(Kind::Agent, cobaltcore_ha_wire::agent::SPOOL_OVERFLOW, "");
            told.attrs
                .insert("dropped".to_owned(), (dropped.len() as i64).into());
            self.dropped += dropped.len();
            self.record(h, told, ORDINARY);
        }
    }

    /// What was written is accepted: from here on it is promised.
    pub(crate) fn flushed(&mut self, h: usize, process: u64) {
        if !self.is_process(h, process) {
            return;
        }
        let stream = &mut self.streams[h];
        let mut given_again = None;
        let mut new: Vec<(u64, u64)> = stream
            .spool
            .accept()
            .map(|event| (event.seq, event.mono_ns))
            .collect();
        new.reverse();
        for (seq, what) in new {
            if seq <= stream.seen {
                given_again = Some(seq);
            }
            let place = usize::try_from(seq).unwrap_or(usize::MAX);
            stream.accepted.truncate(place - 1);
            stream.accepted.resize(place - 1, 0);
            stream.accepted.push(what);
        }
        if stream.queue.is_empty() {
            stream.flushing = false;
        } else {
            self.schedule(1, Event::Flush(h, process));
        }
        if let Some(seq) = given_again {
            let what = format!("number {seq} of n{h:02} was sent before and is given to another record");
            self.violate(Invariant::S14Numbers, what);
        }
        for r in 0..3 {
            self.offer_later(h, r, 50);
        }
    }

    /// What a replica has newly stored, it judges.
    fn judge_records(&mut self, r: usize, h: usize, events: &[Notice]) {
        for event in events {
            let kind = event.meaning();
            if kind == GuestEventKind::Other {
                continue;
            }
            let seen = Observation::Guest(GuestEvent {
                host: self.hosts[h].name.clone(),
                agent: AgentId(format!("agent-{h}")),
                seq: event.seq,
                age: Duration::from_millis(self.now - happened(event)),
                server: event.domain.as_ref().map(|domain| domain.uuid.clone()),
                kind,
                device: None,
            });
            let incarnation = self.replicas[r].incarnation;
            self.deliver(r, incarnation, Input::Saw(seen));
        }
    }

    /// How many replicas were told that an agent refused its configuration.
    pub(crate) fn rejections(&self, h: usize) -> usize {
        let told = self.streams[h].rejected;
        let newest = |store: &&Store| store.what(h, store.last(h)) == Some(told);
        self.stores.iter().filter(newest).count()
    }

    // --- promises

    /// What an agent may forget, most replicas have.
    fn check_forgotten(&mut self, h: usize, gone: &[Kept]) {
        for kept in gone {
            let (seq, what) = (kept.event.seq, kept.event.mono_ns);
            let have = self
                .stores
                .iter()
                .filter(|store| store.what(h, seq) == Some(what));
            let have = have.count() + usize::from(self.store_lost);
            if have < 2 {
                let what = format!("record {seq} of n{h:02} is forgotten, and {have} of 3 replicas have it");
                self.violate(Invariant::S9Stored, what);
                return;
            }
        }
    }

    /// What an endpoint acknowledged, it has, or was told that it will never come.
    fn check_acked(&mut self, h: usize, r: usize, acked: u64) {
        if self.stores[r].last(h) < acked && !self.store_lost {
            let last = self.stores[r].last(h);
            let what =
                format!("replica {r} acknowledged record {acked} of n{h:02} and has them up to {last}");
            self.violate(Invariant::S9Stored, what);
        }
    }

    /// A replica loses what it has stored, once in a world; what agents were allowed to forget is elsewhere.
    pub(crate) fn lose_store(&mut self, r: usize, everything: bool) {
        if std::mem::replace(&mut self.store_lost, true) {
            return;
        }
        self.stores[r].lose(everything);
        for h in 0..self.hosts.len() {
            let stream = &self.streams[h];
            let lost = (1..).zip(&stream.accepted).find(|(seq, what)| {
                let acked = (0..3).filter(|r| stream.spool.cursor(*r) >= *seq).count() >= 2;
                let stored = self
                    .stores
                    .iter()
                    .any(|store| store.what(h, *seq) == Some(**what));
                let announced = self.stores.iter().any(|store| store.last(h) >= *seq);
                **what != 0 && acked && !stored && !announced && !stream.spool.has(*seq)
            });
            if let Some((seq, _)) = lost {
                let what = format!("record {seq} of n{h:02} was acknowledged and is nowhere after one crash");
                self.violate(Invariant::S9Stored, what);
            }
        }
    }
}

/// When something happened, as a record keeps it.
fn moment(now: u64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(now.cast_signed()).unwrap_or_default()
}

fn happened(event: &Notice) -> u64 {
    event.ts.as_millisecond().cast_unsigned()
}

fn notice(kind: Kind, event: &str, detail: &str) -> Notice {
    Notice {
        seq: 0,
        ts: jiff::Timestamp::UNIX_EPOCH,
        mono_ns: 0,
        kind,
        event: event.to_owned(),
        detail: detail.to_owned(),
        domain: None,
        attrs: BTreeMap::new(),
        count: 1,
        synthetic: false,
    }
}
