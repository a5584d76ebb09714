// SPDX-License-Identifier: Apache-2.0
//! Virtual time: a queue of events, a seed, and the truth. Every process of the plane is driven
//! from here; nothing waits and nothing is random that does not come from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    Action, AgentId, Answer, BootId, Command, Config, Decision, DomainState, Engine, GuestEvent,
    GuestEventKind, Heartbeat, IncidentState, Input, Inventory, Notice, Observation, Pause, Record, Request,
    Trouble,
};

use crate::cloud::Migration;
use crate::faults::Fault;
use crate::hosts::{Host, Server};
use crate::invariants::{Invariant, Violation};
use crate::replica::Replica;

/// What a run is made of.
#[derive(Clone)]
pub struct Options {
    /// Everything random comes from it.
    pub seed: u64,
    /// Whether to keep the story.
    pub trace: bool,
    /// Applied to every engine as it is made. Tests break it here.
    pub prepare: Option<fn(&mut Engine)>,
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
    Commit(usize, u64),
    Send(usize, u64, Box<Action>),
    Exec(usize, u64, Box<Action>),
    Outcome(
        usize,
        u64,
        Box<(cobaltcore_ha_engine::ActionId, Result<Answer, Trouble>)>,
    ),
    PowerDown(usize, u64),
    Boot(usize, u64, u8),
    NovaMessage(usize),
    NovaRebuilt(usize),
    Restart(usize),
    Do(Fault),
    Operator,
    Kubernetes,
}

/// The truth.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: fastrand::Rng,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pending: BTreeMap<usize, Event>,
    scheduled: u64,
    pub(crate) options: Options,
    pub(crate) config: Config,
    pub(crate) hosts: Vec<Host>,
    pub(crate) servers: Vec<Server>,
    pub(crate) uplinks: Vec<bool>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) migrations: Vec<Migration>,
    pub(crate) journal: Vec<Record>,
    pub(crate) lease: crate::replica::Lease,
    pub(crate) kubernetes_up: bool,
    pub(crate) nova_up: bool,
    pub(crate) nova_flaky: u8,
    pub(crate) nova_refuses_service: bool,
    pub(crate) nova_old: bool,
    pub(crate) rabbit_up: bool,
    pub(crate) list_complete: bool,
    pub(crate) capacity: bool,
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
    pub(crate) acting_epoch: u64,
    pub(crate) terms: BTreeMap<u64, u64>,
    /// When somebody was last seen to lead.
    pub(crate) led_at: u64,
    pub(crate) notices: Vec<(u64, Notice)>,
    pub(crate) first_evacuate: BTreeMap<usize, u64>,
    pub(crate) evacuations: Vec<(u64, usize)>,
    pub(crate) power_offs: Vec<(u64, usize)>,
    pub(crate) power_reads: BTreeMap<usize, u64>,
    pub(crate) reboots: usize,
    pub(crate) crash_at_record: Option<(u64, bool)>,
    pub(crate) steps: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Vec<String>,
}

impl World {
    pub(crate) fn new(options: Options, hosts: usize, racks: usize, per_host: usize, config: Config) -> Self {
        let rng = fastrand::Rng::with_seed(options.seed);
        let list: Vec<Host> = (0..hosts).map(|n| Host::new(n, n % racks)).collect();
        let servers = (0..hosts * per_host)
            .map(|n| Server::new(n, n / per_host.max(1)))
            .collect();
        let mut world = Self {
            now: 0,
            rng,
            queue: BinaryHeap::new(),
            pending: BTreeMap::new(),
            scheduled: 0,
            config,
            hosts: list,
            servers,
            uplinks: vec![true; racks],
            replicas: Vec::new(),
            migrations: Vec::new(),
            journal: Vec::new(),
            lease: crate::replica::Lease::default(),
            kubernetes_up: true,
            nova_up: true,
            nova_flaky: 0,
            nova_refuses_service: false,
            nova_old: false,
            rabbit_up: true,
            list_complete: true,
            capacity: true,
            armed: false,
            shown_twice: None,
            messages_lost: 0,
            noise: 0,
            slow_sends: false,
            pauses: Vec::new(),
            paused_since: 0,
            written_at: Vec::new(),
            operator_on_duty: false,
            acting_epoch: 0,
            terms: BTreeMap::new(),
            led_at: 0,
            notices: Vec::new(),
            first_evacuate: BTreeMap::new(),
            evacuations: Vec::new(),
            power_offs: Vec::new(),
            power_reads: BTreeMap::new(),
            reboots: 0,
            crash_at_record: None,
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
        self.scheduled += 1;
        let key = self.scheduled as usize;
        self.queue.push(Reverse((self.now + after, self.scheduled, key)));
        self.pending.insert(key, event);
    }

    /// Runs until `until` or the first broken promise.
    pub(crate) fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            let Some(Reverse((at, _, key))) = self.queue.peek().copied() else {
                break;
            };
            if at > until {
                break;
            }
            self.queue.pop();
            self.now = at;
            if let Some(event) = self.pending.remove(&key) {
                self.handle(event);
                self.check_copies();
            }
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
        self.hosts.iter().position(|host| host.name == *name)
    }

    pub(crate) fn server_index(&self, id: &ServerId) -> Option<usize> {
        self.servers.iter().position(|server| server.id == *id)
    }

    fn check_copies(&mut self) {
        let twice = self.servers.iter().position(|server| server.runs_on.len() > 1);
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
                if self.hosts[h].compute_works() && self.rabbit_up {
                    self.hosts[h].service_seen = self.now;
                    self.hosts[h].service_updated = self.now;
                }
                self.schedule(10_000, Event::ComputeBeat(h));
            }
            Event::KubeletBeat(h) => {
                let host = &mut self.hosts[h];
                if host.user && host.kubelet && host.mgmt && self.kubernetes_up {
                    host.node_lease = self.now;
                }
                self.schedule(10_000, Event::KubeletBeat(h));
            }
            Event::Tick(r) => self.replica_tick(r),
            Event::Silence(r, incarnation) => self.replica_wakes(r, incarnation),
            Event::Poll(r) => self.replica_poll(r),
            Event::Lease(r) => self.replica_lease(r),
            Event::Deliver(r, incarnation, input) => self.deliver(r, incarnation, *input),
            Event::Commit(r, incarnation) => self.commit(r, incarnation),
            Event::Send(r, incarnation, action) => self.send_action(r, incarnation, *action),
            Event::Exec(r, incarnation, action) => self.exec(r, incarnation, *action),
            Event::Outcome(r, incarnation, outcome) => {
                let (id, result) = *outcome;
                self.deliver(r, incarnation, Input::Outcome { id, result });
            }
            Event::PowerDown(h, generation) => {
                if self.hosts[h].power_generation == generation {
                    self.lose_power(h);
                }
            }
            Event::Boot(h, generation, stage) => self.boot_stage(h, generation, stage),
            Event::NovaMessage(m) => self.nova_message(m),
            Event::NovaRebuilt(m) => self.nova_rebuilt(m),
            Event::Restart(r) => self.restart_replica(r),
            Event::Do(fault) => self.inject(fault),
            Event::Operator => self.operator(),
            Event::Kubernetes => self.operator_enables(),
        }
    }

    /// An agent reports to every replica it reaches.
    fn beat(&mut self, h: usize) {
        let jitter = self.rng.u64(4500..5500);
        self.schedule(jitter, Event::Beat(h));
        self.note_health(h);
        let host = &self.hosts[h];
        if !host.agent_speaks() {
            return;
        }
        let beat = Heartbeat {
            host: host.name.clone(),
            agent: AgentId(format!("agent-{h}")),
            starts: host.agent_starts,
            boot: BootId(host.boot_id()),
            mono_ns: (self.now - host.booted_at) * 1_000_000 + 1,
            sent_at_ms: self.now as i64 + host.clock_skew_ms,
            libvirt: host.libvirt,
            machine: host.identity(),
            resets_after: self.armed.then(|| Duration::from_secs(105)),
            planned_shutdown: host.announced,
        };
        let listed = host.libvirt && (self.rng.u8(..3) == 0 || self.now < 20_000);
        let inventory = listed.then(|| self.take_inventory(h));
        for r in 0..self.replicas.len() {
            if !self.reaches(r, h) {
                continue;
            }
            self.send(r, Input::Saw(Observation::Heartbeat(beat.clone())));
            if let Some(inventory) = &inventory {
                self.send(r, Input::Saw(Observation::Inventory(inventory.clone())));
            }
        }
    }

    /// Over a network that may drop, double and delay.
    fn send(&mut self, r: usize, input: Input) {
        let incarnation = self.replicas[r].incarnation;
        if self.noise > 0 && self.rng.u8(..100) < self.noise {
            match self.rng.u8(..3) {
                0 => return,
                1 => {
                    let late = self.rng.u64(100..90_000);
                    self.schedule(late, Event::Deliver(r, incarnation, Box::new(input.clone())));
                }
                _ => {
                    let late = self.rng.u64(100..4_000);
                    self.schedule(late, Event::Deliver(r, incarnation, Box::new(input)));
                    return;
                }
            }
        }
        self.deliver(r, incarnation, input);
    }

    fn take_inventory(&mut self, h: usize) -> Inventory {
        let host = &mut self.hosts[h];
        host.inventory_version += 1;
        let domains = self
            .servers
            .iter()
            .enumerate()
            .filter(|(n, server)| {
                let shown = self.shown_twice == Some((*n, h));
                server.runs_on.contains(&h) || shown || (server.host == h && !server.deleted)
            })
            .map(|(n, server)| {
                let state = if server.runs_on.contains(&h) || self.shown_twice == Some((n, h)) {
                    DomainState::Running
                } else {
                    DomainState::Off
                };
                (server.id.clone(), state)
            })
            .collect();
        Inventory {
            host: host.name.clone(),
            agent: AgentId(format!("agent-{h}")),
            starts: host.agent_starts,
            boot: BootId(host.boot_id()),
            version: host.inventory_version,
            domains,
        }
    }

    pub(crate) fn guest_event(&mut self, h: usize, server: Option<usize>, kind: GuestEventKind) {
        let host = &mut self.hosts[h];
        host.event_seq += 1;
        let event = GuestEvent {
            host: host.name.clone(),
            agent: AgentId(format!("agent-{h}")),
            seq: host.event_seq,
            server: server.map(|n| self.servers[n].id.clone()),
            kind,
        };
        if !self.hosts[h].agent_speaks() {
            return;
        }
        for r in 0..self.replicas.len() {
            if self.reaches(r, h) {
                self.send(r, Input::Saw(Observation::Guest(event.clone())));
            }
        }
    }

    pub(crate) fn note_health(&mut self, h: usize) {
        let well = self.hosts[h].well() && self.uplinks[self.hosts[h].rack];
        let now = self.now;
        let host = &self.hosts[h];
        let answers = host.kernel && host.user && host.kubelet && (0..3).any(|r| self.reaches(r, h));
        let host = &mut self.hosts[h];
        host.well_since = well.then(|| host.well_since.unwrap_or(now));
        host.answers_since = answers.then(|| host.answers_since.unwrap_or(now));
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
        for server in &mut self.servers {
            server.runs_on.remove(&h);
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

    // --- reach

    pub(crate) fn reaches(&self, r: usize, h: usize) -> bool {
        let host = &self.hosts[h];
        self.replicas[r].alive() && self.replicas[r].to_hosts && self.uplinks[host.rack] && host.mgmt
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
                (_, Some(cobaltcore_ha_engine::HeldReason::FenceFailed)) if off => Decision::AckFenced,
                (
                    _,
                    Some(
                        cobaltcore_ha_engine::HeldReason::Storm
                        | cobaltcore_ha_engine::HeldReason::DomainLimit
                        | cobaltcore_ha_engine::HeldReason::PlannedMaintenance
                        | cobaltcore_ha_engine::HeldReason::AwaitingApproval
                        | cobaltcore_ha_engine::HeldReason::OperatorCleared,
                    ),
                ) if !self.hosts[h].shows_life() => Decision::Approve,
                // It was repaired: take it back.
                (IncidentState::Recovered | IncidentState::Failed, None) if self.hosts[h].user => {
                    Decision::Release
                }
                // Somebody took it back and it lives: this is over.
                (_, Some(cobaltcore_ha_engine::HeldReason::OperatorCleared)) => Decision::Abort,
                _ => continue,
            };
            self.decide(r, &incident.id, decision);
        }
    }

    /// Whoever is to decide must have heard of it.
    fn check_told(&mut self, r: usize) {
        for incident in self.replicas[r].engine.incidents() {
            let Some(why) = incident.held else { continue };
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
        }
    }
}

/// One random world with random faults.
pub fn run_seed(options: Options) -> Run {
    crate::faults::random_run(options).into_run()
}
