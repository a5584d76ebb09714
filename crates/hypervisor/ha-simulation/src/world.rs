// SPDX-License-Identifier: Apache-2.0
//! Virtual time: a queue of events, a seed, and the truth. Every process of the plane is driven
//! from here; nothing waits and nothing is random that does not come from the seed.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    Action, Answer, Command, Config, Decision, Effect, Engine, Entry, HeldReason, IncidentId, IncidentState,
    Input, Ledger, Notice, Observation, Pause, Record, Request, Trouble,
};

use crate::agenda::Agenda;
use crate::agents::Voice;
use crate::boards::Boards;
use crate::cloud::Migration;
use crate::cover::Covered;
use crate::faults::Fault;
use crate::hosts::{Host, Server};
use crate::invariants::{Invariant, Violation};
use crate::journal::Moment;
use crate::replica::Replica;
use crate::servers::Servers;
use crate::streams::{Answered, Mistake, Parcel, Store, Stream};

/// Milliseconds after which an incident that does not go on must say why: longer than a guest may be on its way.
const STANDS_STILL: u64 = 1_500_000;

/// What a run is made of.
#[derive(Clone)]
pub struct Options {
    /// Everything random comes from it.
    pub seed: u64,
    /// Whether to keep the story.
    pub trace: bool,
    /// Applied to every engine as it is made. Tests break it here.
    pub prepare: Option<fn(&mut Engine)>,
    /// What an agent or a service does wrong with records. Tests break them here.
    pub mistake: Option<Mistake>,
    /// Whether to look at everything after every step, besides at what the step touched. Slow; both must find the same.
    pub audit: bool,
    /// Where a leader dies.
    pub crash: Option<Crash>,
    /// What of all that goes wrong in a random world is left out, by its place among what is planned.
    pub without: Vec<usize>,
}

impl Options {
    /// A sound engine and no story.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            trace: false,
            prepare: None,
            mistake: None,
            audit: false,
            crash: None,
            without: Vec::new(),
        }
    }
}

/// Where a leader dies: it has written down what it is about to do, and nothing of what came of it.
#[derive(Clone, Copy)]
pub struct Crash {
    /// The intent.
    pub at: fn(&Entry) -> bool,
    /// Whether what it intended was still done.
    pub done: bool,
}

/// Something that a leader did or looked at.
#[derive(Clone, Debug)]
pub struct Act {
    /// When, in virtual milliseconds.
    pub at_ms: u64,
    /// In which term.
    pub term: u64,
    /// What.
    pub effect: Effect,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// The first broken promise, if any.
    pub violation: Option<Violation>,
    /// The story, if it was kept.
    pub trace: Vec<String>,
    /// Steps of engines.
    pub steps: u64,
    /// Guests brought back.
    pub recovered: usize,
    /// Power-offs that reached a device.
    pub fences: usize,
    /// Things that happened.
    pub events: u64,
    /// The journal as it became durable, for those who compare.
    pub journal: Vec<Record>,
    /// What leaders did and looked at, if one was to die.
    pub acts: Vec<Act>,
    /// What went wrong, and how often.
    pub struck: BTreeMap<String, u64>,
    /// What was to go wrong, whether or not it was left out.
    pub planned: Vec<String>,
}

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Beat(usize),
    ComputeBeat(usize),
    KubeletBeat(usize),
    Tick(usize),
    Silence(usize, u64),
    Poll(usize),
    Lease(usize),
    Deliver(usize, u64, Box<Input>),
    /// What was said some time ago, to whoever runs there by now.
    Said(usize, Box<Observation>),
    Commit(usize, u64),
    Send(usize, u64, Box<Action>),
    Exec(usize, u64, Box<Action>),
    LateWrite(Vec<Record>),
    Outcome(
        usize,
        u64,
        Box<(cobaltcore_ha_engine::ActionId, Result<Answer, Trouble>)>,
    ),
    PowerDown(usize, u64),
    Boot(usize, u64, u8),
    NovaMessage(usize),
    /// Nova carries out a request to move a guest that nobody waits for any more, and that was made when there were so many
    /// records.
    NovaMoves(usize, usize),
    NovaRebuilt(usize),
    Restart(usize),
    Flush(usize, u64),
    Flushed(usize, u64),
    Offer(usize, usize, u64),
    Arrive(Box<Parcel>),
    Answered(Box<Answered>),
    Do(Fault),
    Operator,
    Kubernetes,
}

/// The truth.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: fastrand::Rng,
    /// For the way of records, so that the rest of a world does not depend on it.
    pub(crate) dice: fastrand::Rng,
    /// For what Nova does late, for the same reason.
    pub(crate) delays: fastrand::Rng,
    /// For what becomes of writes to the journal, for the same reason.
    pub(crate) ways: fastrand::Rng,
    agenda: Agenda<Event>,
    events: u64,
    pub(crate) options: Options,
    pub(crate) config: Config,
    pub(crate) hosts: Vec<Host>,
    /// The place of each host in `hosts`, in the order of their names.
    pub(crate) named: BTreeMap<HostName, usize>,
    pub(crate) voices: Vec<Option<Box<Voice>>>,
    pub(crate) boards: Boards,
    pub(crate) servers: Servers,
    pub(crate) uplinks: Vec<bool>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) migrations: Vec<Migration>,
    pub(crate) covered: Vec<Covered>,
    /// How many conditions may be wrong.
    pub(crate) uncovered: usize,
    pub(crate) streams: Vec<Stream>,
    pub(crate) stores: Vec<Store>,
    /// Whether a replica has lost what it had stored.
    pub(crate) store_lost: bool,
    /// How many things agents noticed, and how many they dropped.
    pub(crate) noticed: u64,
    pub(crate) dropped: usize,
    /// An agent notices something in one of so many signs of life.
    pub(crate) quiet: u16,
    pub(crate) journal: Vec<Record>,
    pub(crate) trouble: crate::journal::Trouble,
    /// What the journal says.
    pub(crate) durable: Ledger,
    pub(crate) lease: crate::replica::Lease,
    pub(crate) kubernetes_up: bool,
    /// It lets nobody change nodes.
    pub(crate) nodes_refused: bool,
    pub(crate) nova_up: bool,
    pub(crate) nova_flaky: u8,
    /// How long Nova takes for an answer at least, in milliseconds.
    pub(crate) nova_slow: u64,
    /// How many per cent of the requests to move a guest are carried out most of a minute after they were given up.
    pub(crate) nova_late: u8,
    pub(crate) nova_refuses_service: bool,
    /// Its credentials no longer suffice for moving guests.
    pub(crate) nova_refuses_moves: bool,
    pub(crate) nova_old: bool,
    /// Guests arrive stopped, and whoever wants them to run starts them.
    pub(crate) arrive_stopped: bool,
    pub(crate) rabbit_up: bool,
    pub(crate) list_complete: bool,
    pub(crate) capacity: bool,
    /// Whether anybody says how much room hosts have.
    pub(crate) rooms_told: bool,
    /// What Nova looks for in a host only the spare ones have.
    pub(crate) picky: bool,
    /// How often agents list their guests, if not by chance.
    pub(crate) lists_every: Option<u64>,
    /// Whether hosts reset themselves when they lose the service.
    pub(crate) armed: bool,
    /// A host that lists a guest it does not run.
    pub(crate) shown_twice: Option<(usize, usize)>,
    pub(crate) messages_lost: u8,
    pub(crate) noise: u8,
    pub(crate) slow_sends: bool,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) paused_since: u64,
    pub(crate) written_at: Vec<u64>,
    pub(crate) operator_on_duty: bool,
    /// When everything is repaired.
    pub(crate) faults_end: u64,
    pub(crate) acting_epoch: u64,
    pub(crate) terms: BTreeMap<u64, u64>,
    /// When somebody was last seen to lead.
    pub(crate) led_at: u64,
    pub(crate) notices: Vec<(u64, Notice)>,
    pub(crate) first_evacuate: BTreeMap<usize, u64>,
    pub(crate) evacuations: Vec<(u64, usize)>,
    pub(crate) power_offs: Vec<(u64, usize)>,
    pub(crate) power_reads: BTreeMap<usize, u64>,
    /// Which terms have switched off for which incidents.
    pub(crate) power_terms: BTreeSet<(IncidentId, u64)>,
    pub(crate) reboots: usize,
    /// What went wrong, or right again, and how often.
    pub(crate) struck: BTreeMap<String, u64>,
    pub(crate) planned: Vec<String>,
    pub(crate) crash_at_record: Option<(u64, Moment)>,
    /// The replica that dies as soon as it did what it intended, or heard of it.
    pub(crate) dying: Option<(usize, Moment)>,
    /// When a leader last died.
    pub(crate) leader_died: Option<u64>,
    /// Nobody has died where somebody was to.
    pub(crate) dies_once: bool,
    /// What leaders did, if somebody wants to know where one died.
    pub(crate) acts: Vec<Act>,
    pub(crate) steps: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Vec<String>,
}

impl World {
    pub(crate) fn new(options: Options, hosts: usize, racks: usize, per_host: usize, config: Config) -> Self {
        let rng = fastrand::Rng::with_seed(options.seed);
        let list: Vec<Host> = (0..hosts).map(|n| Host::new(n, n % racks)).collect();
        let list_names: Vec<String> = list.iter().map(|host| host.name.to_string()).collect();
        let servers = (0..hosts * per_host)
            .map(|n| Server::new(n, n / per_host.max(1)))
            .collect();
        let mut world = Self {
            now: 0,
            rng,
            dice: fastrand::Rng::with_seed(options.seed ^ 0x0005_7EA8),
            delays: fastrand::Rng::with_seed(options.seed ^ 0x0000_1A7E),
            ways: fastrand::Rng::with_seed(options.seed ^ 0x0000_3A15),
            agenda: Agenda::default(),
            events: 0,
            config,
            named: list
                .iter()
                .enumerate()
                .map(|(n, host)| (host.name.clone(), n))
                .collect(),
            voices: list
                .iter()
                .enumerate()
                .map(|(n, host)| Some(Box::new(Voice::new(n, host))))
                .collect(),
            boards: Boards::default(),
            hosts: list,
            servers: Servers::new(servers, hosts),
            uplinks: vec![true; racks],
            replicas: Vec::new(),
            migrations: Vec::new(),
            covered: list_names.iter().map(|name| Covered::new(name)).collect(),
            uncovered: 0,
            streams: (0..hosts).map(|_| Stream::new()).collect(),
            stores: vec![Store::new(hosts); 3],
            store_lost: false,
            noticed: 0,
            dropped: 0,
            quiet: 8,
            journal: Vec::new(),
            trouble: crate::journal::Trouble::default(),
            durable: Ledger::default(),
            lease: crate::replica::Lease::default(),
            kubernetes_up: true,
            nodes_refused: false,
            nova_up: true,
            nova_flaky: 0,
            nova_slow: 0,
            nova_late: 0,
            nova_refuses_service: false,
            nova_refuses_moves: false,
            nova_old: false,
            arrive_stopped: false,
            rabbit_up: true,
            list_complete: true,
            capacity: true,
            rooms_told: true,
            picky: false,
            lists_every: None,
            armed: false,
            shown_twice: None,
            messages_lost: 0,
            noise: 0,
            slow_sends: false,
            pauses: Vec::new(),
            paused_since: 0,
            written_at: Vec::new(),
            operator_on_duty: false,
            faults_end: 0,
            acting_epoch: 0,
            terms: BTreeMap::new(),
            led_at: 0,
            notices: Vec::new(),
            first_evacuate: BTreeMap::new(),
            evacuations: Vec::new(),
            power_offs: Vec::new(),
            power_reads: BTreeMap::new(),
            power_terms: BTreeSet::new(),
            reboots: 0,
            struck: BTreeMap::new(),
            planned: Vec::new(),
            crash_at_record: None,
            dying: None,
            leader_died: None,
            dies_once: true,
            acts: Vec::new(),
            steps: 0,
            violation: None,
            trace: Vec::new(),
            options,
        };
        for n in 0..hosts {
            let (beat, compute, lease) = (
                world.rng.u64(0..5000),
                world.rng.u64(0..10_000),
                world.rng.u64(0..10_000),
            );
            world.schedule(beat, Event::Beat(n));
            world.schedule(compute, Event::ComputeBeat(n));
            world.schedule(lease, Event::KubeletBeat(n));
        }
        for r in 0..3 {
            let replica = Replica::new(r, &world);
            world.replicas.push(replica);
            let jitter = world.rng.u64(0..900);
            world.schedule(jitter, Event::Tick(r));
            world.schedule(jitter + 50, Event::Poll(r));
            world.schedule(jitter + 100 * r as u64, Event::Lease(r));
        }
        world
    }

    // --- time

    pub(crate) fn schedule(&mut self, after: u64, event: Event) {
        self.agenda.plan(self.now + after, event);
    }

    /// Runs until `until` or the first broken promise.
    pub(crate) fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            let Some((at, event)) = self.agenda.next(until) else {
                break;
            };
            self.now = at;
            self.events += 1;
            self.handle(event);
            self.check_copies();
        }
        self.now = self.now.max(until);
    }

    pub(crate) fn story(&mut self, line: impl FnOnce() -> String) {
        if self.options.trace {
            let (s, ms) = (self.now / 1000, self.now % 1000);
            self.trace
                .push(format!("{:>4}:{:02}.{ms:03}  {}", s / 60, s % 60, line()));
        }
    }

    /// Counts something that goes wrong.
    pub(crate) fn mark(&mut self, what: &str) {
        match self.struck.get_mut(what) {
            Some(times) => *times += 1,
            None => {
                self.struck.insert(what.to_owned(), 1);
            }
        }
    }

    pub(crate) fn violate(&mut self, invariant: Invariant, what: String) {
        if self.violation.is_none() {
            let violation = Violation {
                invariant,
                at_ms: self.now,
                what,
            };
            self.story(|| format!("VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }

    pub(crate) fn host_index(&self, name: &HostName) -> Option<usize> {
        self.named.get(name).copied()
    }

    pub(crate) fn server_index(&self, id: &ServerId) -> Option<usize> {
        self.servers.index_of(id)
    }

    /// Among the guests that the step touched; the others are as they were.
    fn check_copies(&mut self) {
        let twice = self.servers.settle();
        if self.options.audit {
            let (found, sorted) = self.servers.audit();
            assert_eq!(
                (found, sorted),
                (twice, true),
                "a look at all guests finds what the step touched"
            );
            let replayed = Ledger::replay(&self.journal).unwrap_or_default();
            assert_eq!(replayed, self.durable, "the journal says what was kept of it");
        }
        if let Some(n) = twice {
            let on: Vec<_> = self.servers[n]
                .runs_on
                .iter()
                .map(|h| self.hosts[*h].name.to_string())
                .collect();
            self.violate(
                Invariant::S1OneCopy,
                format!("guest {n} executes on {}", on.join(" and ")),
            );
        }
    }

    // --- events

    fn handle(&mut self, event: Event) {
        match event {
            Event::Beat(h) => self.beat(h),
            Event::ComputeBeat(h) => {
                if self.hosts[h].compute_speaks() && self.rabbit_up {
                    self.hosts[h].service_seen = self.now;
                    self.hosts[h].service_updated = self.now;
                }
                self.schedule(10_000, Event::ComputeBeat(h));
            }
            Event::KubeletBeat(h) => {
                let host = &mut self.hosts[h];
                if host.user && host.kubelet && host.mgmt.back && self.kubernetes_up {
                    host.node_lease = self.now;
                }
                self.schedule(10_000, Event::KubeletBeat(h));
            }
            Event::Tick(r) => self.replica_tick(r),
            Event::Silence(r, incarnation) => self.replica_wakes(r, incarnation),
            Event::Poll(r) => self.replica_poll(r),
            Event::Lease(r) => self.replica_lease(r),
            Event::Deliver(r, incarnation, input) => self.deliver(r, incarnation, *input),
            Event::Said(r, seen) => self.show(r, &seen),
            Event::Commit(r, incarnation) => self.commit(r, incarnation),
            Event::LateWrite(records) => self.late_write(&records),
            Event::Send(r, incarnation, action) => self.send_action(r, incarnation, *action),
            Event::Exec(r, incarnation, action) => self.exec(r, incarnation, *action),
            Event::Outcome(r, incarnation, outcome) => {
                let (id, result) = *outcome;
                self.answered_by(r, incarnation, id, result);
            }
            Event::PowerDown(h, generation) => {
                if self.hosts[h].power_generation == generation {
                    self.lose_power(h);
                }
            }
            Event::Boot(h, generation, stage) => self.boot_stage(h, generation, stage),
            Event::NovaMessage(m) => self.nova_message(m),
            Event::NovaMoves(n, known) => {
                let _ = self.evacuate(n, known);
            }
            Event::NovaRebuilt(m) => self.nova_rebuilt(m),
            Event::Restart(r) => self.restart_replica(r),
            Event::Flush(h, process) => self.flush(h, process),
            Event::Flushed(h, process) => self.flushed(h, process),
            Event::Offer(h, r, process) => self.offer(h, r, process),
            Event::Arrive(parcel) => self.arrive(*parcel),
            Event::Answered(answered) => self.answered(*answered),
            Event::Do(fault) => self.inject(fault),
            Event::Operator => self.operator(),
            Event::Kubernetes => self.operator_enables(),
        }
    }

    pub(crate) fn note_health(&mut self, h: usize) {
        let well = self.hosts[h].well() && self.uplinks[self.hosts[h].rack];
        let now = self.now;
        let host = &self.hosts[h];
        let answers = host.kernel && host.user && host.kubelet && (0..3).any(|r| self.reaches(r, h));
        let speaks = host.agent_speaks() && self.uplinks[host.rack];
        let host = &mut self.hosts[h];
        host.speaks_since = speaks.then(|| host.speaks_since.unwrap_or(now));
        host.well_since = well.then(|| host.well_since.unwrap_or(now));
        host.answers_since = answers.then(|| host.answers_since.unwrap_or(now));
        self.watch_agent(h);
    }

    // --- power

    /// Everything on the host ends.
    pub(crate) fn lose_power(&mut self, h: usize) {
        self.story(|| format!("{} is off", format_args!("n{h:02}")));
        self.stop_kernel(h);
        let host = &mut self.hosts[h];
        host.power = false;
        host.power_generation += 1;
    }

    pub(crate) fn stop_kernel(&mut self, h: usize) {
        let now = self.now;
        let host = &mut self.hosts[h];
        host.kernel = false;
        host.user = false;
        host.well_since = None;
        host.died_at.get_or_insert(now);
        for n in self.servers.running_on(h) {
            self.servers[n].runs_on.remove(&h);
        }
    }

    pub(crate) fn gain_power(&mut self, h: usize) {
        if self.hosts[h].power {
            return;
        }
        self.story(|| format!("n{h:02} is switched on"));
        let now = self.now;
        let host = &mut self.hosts[h];
        host.power = true;
        host.power_since = now;
        host.heard_since_on = false;
        host.bmc.says_off_from = None;
        self.reboot(h, 15_000, 35_000);
    }

    pub(crate) fn reboot(&mut self, h: usize, kernel_after: u64, user_after: u64) {
        // A machine on its way down does not come up again by itself.
        if self.hosts[h].bmc.says_off_from.is_some() {
            return;
        }
        self.stop_kernel(h);
        let host = &mut self.hosts[h];
        host.power_generation += 1;
        let generation = host.power_generation;
        self.schedule(kernel_after, Event::Boot(h, generation, 0));
        self.schedule(user_after, Event::Boot(h, generation, 1));
        self.schedule(user_after + 8_000, Event::Boot(h, generation, 2));
    }

    fn boot_stage(&mut self, h: usize, generation: u64, stage: u8) {
        let now = self.now;
        let host = &mut self.hosts[h];
        if host.power_generation != generation || !host.power {
            return;
        }
        match stage {
            0 => {
                host.kernel = true;
                host.boot += 1;
                host.booted_at = now;
            }
            1 => {
                host.user = true;
                host.agent = true;
                host.agent_starts += 1;
                host.libvirt = true;
                host.kubelet = true;
                host.announced = false;
                host.compute = false;
                host.died_at = None;
            }
            // The taint keeps the compute service from starting on a host that is to stay off.
            _ if !host.tainted => self.compute_starts(h),
            _ => {}
        }
    }

    // --- people

    /// Once called, a person looks at what is held, every minute, and decides rightly.
    fn operator(&mut self) {
        self.schedule(60_000, Event::Operator);
        let Some(r) = self.leader() else { return };
        self.check_told(r);
        if !self.operator_on_duty {
            return;
        }
        for incident in self.replicas[r].engine.incidents() {
            let Some(h) = self.host_index(&incident.id.host) else {
                continue;
            };
            let off = !self.hosts[h].power;
            let decision = match (incident.state, incident.held) {
                (_, Some(HeldReason::FenceFailed)) if off => Decision::AckFenced,
                // Its guests are settled, and somebody took it back: this is over.
                (IncidentState::Recovered | IncidentState::Failed, Some(HeldReason::OperatorCleared)) => {
                    Decision::Abort
                }
                // A rack without power: nobody else can tell, so one signature does for all of it.
                (_, Some(HeldReason::Storm | HeldReason::DomainLimit))
                    if off && !self.hosts[h].bmc.reachable =>
                {
                    Decision::AckFenced
                }
                (
                    _,
                    Some(
                        HeldReason::Storm
                        | HeldReason::DomainLimit
                        | HeldReason::PlannedMaintenance
                        | HeldReason::AwaitingApproval
                        | HeldReason::OperatorCleared,
                    ),
                ) if !self.hosts[h].shows_life() || self.stranded(h, Some(&incident.id)) => Decision::Approve,
                // Somebody took it back and it lives: this is over.
                (_, Some(HeldReason::OperatorCleared)) => Decision::Abort,
                // It was repaired: take it back.
                (IncidentState::Recovered | IncidentState::Failed, _)
                    if self.hosts[h].user || self.hosts[h].repaired =>
                {
                    Decision::Release
                }
                _ => continue,
            };
            self.decide(r, &incident.id, decision);
        }
    }

    /// Whoever is to decide must have heard of it, and nothing waits without a reason.
    fn check_told(&mut self, r: usize) {
        for incident in self.replicas[r].engine.incidents() {
            let Some(why) = incident.held else {
                let settled = matches!(incident.state, IncidentState::Recovered | IncidentState::Failed);
                // Of guests that are stuck people were told by name.
                let waits = incident.state.open() && !settled && incident.stuck == 0;
                if waits && self.stands_still(r, &incident.id) {
                    let what = format!("{} stays {:?}, and nobody knows why", incident.id, incident.state);
                    self.violate(Invariant::L5Told, what);
                }
                continue;
            };
            let told = self.notices.iter().any(|(_, notice)| {
                matches!(notice, Notice::Held { incident: about, reason }
                    if *about == incident.id && *reason == why)
            });
            if !told {
                let what = format!("{} waits for {why:?}, and nobody was told", incident.id);
                self.violate(Invariant::L5Told, what);
            }
        }
    }

    /// Whether the journal has told nothing of an incident for long, under whoever leads.
    fn stands_still(&self, r: usize, id: &IncidentId) -> bool {
        let mut records = self.journal.iter().zip(&self.written_at).rev();
        let last = records.find(|(record, _)| record.entry.incident() == Some(id));
        let term = self.replicas[r].engine.leads();
        let began = term.and_then(|term| self.terms.get(&term.0)).copied();
        let last = last.map(|(_, at)| *at).max(began);
        last.is_some_and(|at| self.now - at > STANDS_STILL)
    }

    pub(crate) fn decide(&mut self, r: usize, id: &cobaltcore_ha_engine::IncidentId, decision: Decision) {
        self.story(|| format!("a person decides {decision:?} about {id}"));
        let command = Command {
            incident: id.clone(),
            actor: "operator".to_owned(),
            reason: "looked at it".to_owned(),
            confirm: id.host.to_string(),
            decision,
        };
        let incarnation = self.replicas[r].incarnation;
        self.deliver(r, incarnation, Input::Command(command));
    }

    /// A person wants a host recovered.
    pub(crate) fn request(&mut self, h: usize) {
        let Some(r) = self.leader() else { return };
        let request = Request {
            host: self.hosts[h].name.clone(),
            actor: "operator".to_owned(),
            reason: "its guests do not work".to_owned(),
            confirm: self.hosts[h].name.to_string(),
        };
        let incarnation = self.replicas[r].incarnation;
        self.deliver(r, incarnation, Input::Request(request));
    }

    /// The replica that leads, if exactly one believes so.
    pub(crate) fn leader(&self) -> Option<usize> {
        let lead = |r: &usize| self.replicas[*r].alive() && self.replicas[*r].engine.leads().is_some();
        (0..self.replicas.len())
            .filter(lead)
            .max_by_key(|r| self.replicas[*r].engine.leads())
    }

    pub(crate) fn into_run(self) -> Run {
        let recovered = self.migrations.iter().filter(|m| m.done()).count();
        Run {
            seed: self.options.seed,
            violation: self.violation,
            trace: self.trace,
            steps: self.steps,
            recovered,
            fences: self.power_offs.len(),
            events: self.events,
            journal: self.journal,
            acts: self.acts,
            struck: self.struck,
            planned: self.planned,
        }
    }
}

/// One random world with random faults.
pub fn run_seed(options: Options) -> Run {
    crate::random::random_run(options).into_run()
}
