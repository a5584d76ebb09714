// SPDX-License-Identifier: Apache-2.0
//! What goes wrong, and a random world in which it does. Faults come for a while, then stop; what
//! is dead stays dead, a person comes on duty, and everything has to settle.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{
    Config, Decision, Entry, FenceLevel, Grade, GuestEventKind, HeldReason, IncidentId, IncidentState, Pause,
    PauseScope, VmPolicy, VmState,
};

use crate::invariants::Invariant;
use crate::world::{Event, Options, World};

/// When the faults of a random world stop, in milliseconds.
const FAULTS_END: u64 = 520_000;
/// Milliseconds from a working compute service to a host in service.
const GIVEN_BACK: u64 = 300_000;

/// Milliseconds in which every pause between two attempts to send is over, and every backlog is gone.
const SETTLED: u64 = 120_000;

/// One thing that goes wrong, or right again.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    PowerLoss(usize),
    PowerOn(usize),
    Panic(usize),
    Hang(usize),
    SelfReboot(usize),
    Agent(usize, bool),
    Compute(usize, bool),
    Kubelet(usize, bool),
    Libvirt(usize, bool),
    Mgmt(usize, bool),
    Uplink(usize, bool),
    ReplicaHosts(usize, bool),
    ReplicaKubernetes(usize, bool),
    ReplicaNova(usize, bool),
    ReplicaPeers(usize, bool),
    CrashReplica(usize),
    CrashLeader,
    Freeze(usize, u64),
    FreezeLeader(u64),
    Kubernetes(bool),
    Nova(bool),
    NovaRefusesService(bool),
    NovaRefusesMoves(bool),
    Rabbit(bool),
    Complete(bool),
    Capacity(bool),
    Request(usize),
    Bmc(usize, bool),
    BmcLies(usize, bool),
    Clock(usize, i64),
    ReplicaClock(usize, i64),
    Delete(usize),
    OwnerStops(usize),
    GuestDies(usize),
    Guest(usize, usize, GuestEventKind),
    Doubled(usize, usize),
    Maintenance(usize, Maintenance),
    Announce(usize),
    Cover(usize, bool),
    /// So many records at once.
    Chatter(usize, usize),
    SpoolFull(usize, bool),
    SpoolSqueezed(usize, bool),
    SpoolSlow(usize, bool),
    StoreFails(usize, bool),
    StoreSlow(usize, bool),
    /// A replica loses what it stored lately, or all of it.
    StoreLost(usize, bool),
    Unpark(usize),
    Healed(usize),
    BadConfig(usize),
    Pause(bool),
    OnDuty,
    Release,
    /// A person approves every incident that is held for this.
    Approve(HeldReason),
    /// A person ends the incident of a host.
    Abort(usize),
    /// Somebody decides the same about everything that is open, right or wrong.
    Meddle(Decision),
    /// The storage hears nothing of the guests of a host.
    StorageSilent(usize),
    /// A guest ends wherever it runs, and nobody is told but by lists.
    GuestEnds(usize),
    /// Nova notices that a guest does not run, and writes down that it is stopped.
    NovaNotices(usize),
    /// As soon as the journal has such a record.
    Once(fn(&Entry) -> bool, Box<Fault>),
    Heal,
}

impl Fault {
    /// What it is, whatever it strikes.
    fn kind(&self) -> String {
        let text = format!("{self:?}");
        let name = text.split('(').next().unwrap_or_default();
        name.to_owned()
    }
}

impl World {
    pub(crate) fn at(&mut self, ms: u64, fault: Fault) {
        let after = ms.saturating_sub(self.now);
        self.schedule(after, Event::Do(fault));
    }

    /// A device that says Off about a living host nobody reaches cannot be told from the truth. No
    /// engine could act on a dead host and not on that one, so the two never come together here.
    fn undecidable(&self, fault: &Fault) -> bool {
        match fault {
            Fault::Mgmt(h, false) => self.hosts[*h].bmc.lies,
            Fault::Uplink(rack, false) => self.hosts.iter().any(|host| host.rack == *rack && host.bmc.lies),
            Fault::BmcLies(h, true) => !self.hosts[*h].mgmt || !self.uplinks[self.hosts[*h].rack],
            _ => false,
        }
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        if self.undecidable(&fault) {
            return;
        }
        let fault = match fault {
            Fault::Once(wanted, then) if self.journal.iter().any(|record| wanted(&record.entry)) => *then,
            Fault::Once(..) => {
                self.schedule(50, Event::Do(fault));
                return;
            }
            fault => fault,
        };
        self.story(|| format!("*** {fault:?}"));
        self.mark(&fault.kind());
        match fault {
            Fault::PowerLoss(h) => self.lose_power(h),
            Fault::PowerOn(h) => self.gain_power(h),
            Fault::Panic(h) => self.stop_kernel(h),
            Fault::Hang(h) => self.hosts[h].user = false,
            Fault::SelfReboot(h) => self.reboot(h, 12_000, 40_000),
            Fault::Agent(h, on) => {
                self.hosts[h].agent = on;
                self.hosts[h].agent_starts += u64::from(on);
            }
            Fault::Compute(h, true) if self.hosts[h].user => self.compute_starts(h),
            Fault::Compute(h, on) => self.hosts[h].compute = on,
            Fault::Kubelet(h, on) => self.hosts[h].kubelet = on,
            Fault::Libvirt(h, on) => self.hosts[h].libvirt = on,
            Fault::Mgmt(h, on) => self.hosts[h].mgmt = on,
            Fault::Uplink(rack, on) => {
                if let Some(uplink) = self.uplinks.get_mut(rack) {
                    *uplink = on;
                }
            }
            Fault::ReplicaHosts(r, on) => {
                self.replicas[r].to_hosts = on;
                self.replicas[r].cut_since = self.now;
            }
            Fault::ReplicaKubernetes(r, on) => self.replicas[r].to_kubernetes = on,
            Fault::ReplicaNova(r, on) => self.replicas[r].to_nova = on,
            Fault::ReplicaPeers(r, on) => self.replicas[r].to_peers = on,
            Fault::CrashReplica(r) => self.crash_replica(r),
            Fault::CrashLeader => {
                if let Some(r) = self.leader() {
                    self.crash_replica(r);
                }
            }
            Fault::FreezeLeader(ms) => {
                if let Some(r) = self.leader() {
                    self.replicas[r].frozen_until = self.now + ms;
                }
            }
            Fault::Freeze(r, ms) => self.replicas[r].frozen_until = self.now + ms,
            Fault::Kubernetes(on) => self.kubernetes_up = on,
            Fault::Nova(on) => self.nova_up = on,
            Fault::NovaRefusesService(on) => self.nova_refuses_service = on,
            Fault::NovaRefusesMoves(on) => self.nova_refuses_moves = on,
            Fault::Rabbit(on) => self.rabbit_up = on,
            Fault::Complete(on) => self.list_complete = on,
            Fault::Capacity(on) => self.capacity = on,
            Fault::Request(h) => self.request(h),
            Fault::Bmc(h, on) => self.hosts[h].bmc.reachable = on,
            Fault::BmcLies(h, on) => {
                let bmc = &mut self.hosts[h].bmc;
                if bmc.lies && !on {
                    bmc.lied_until = Some(self.now);
                }
                bmc.lies = on;
            }
            Fault::Clock(h, skew) => self.hosts[h].clock_skew_ms = skew,
            Fault::ReplicaClock(r, skew) => self.replicas[r].wall_skew_ms = skew,
            Fault::Delete(n) => {
                self.servers[n].deleted = true;
                self.servers[n].runs_on.clear();
            }
            Fault::OwnerStops(n) => self.owner_stops(n),
            Fault::GuestDies(n) => {
                let host = self.servers[n].host;
                // Only what runs can crash.
                if self.servers[n].runs_on.remove(&host) {
                    self.guest_event(host, Some(n), GuestEventKind::Crashed);
                }
            }
            Fault::Guest(h, n, kind) => self.guest_event(h, Some(n), kind),
            // A copy that cannot write: what S1 is about never happens because of a list.
            Fault::Doubled(n, h) => self.shown_twice = Some((n, h)),
            Fault::Maintenance(h, value) => {
                self.hosts[h].maintenance = value;
                self.schedule(2000, Event::Kubernetes);
            }
            Fault::Announce(h) => self.hosts[h].announced = true,
            Fault::Cover(h, wanted) => self.wants_cover(h, wanted),
            Fault::Chatter(h, records) => self.storm(h, records),
            Fault::SpoolFull(h, full) => self.streams[h].disk_full = full,
            Fault::SpoolSqueezed(h, little) => self.streams[h].squeeze(little),
            Fault::SpoolSlow(h, slow) => self.streams[h].disk_slow = slow,
            Fault::StoreFails(r, fails) => self.stores[r].works = !fails,
            Fault::StoreSlow(r, slow) => self.stores[r].slow = slow,
            Fault::StoreLost(r, everything) => {
                self.crash_replica(r);
                self.lose_store(r, everything);
            }
            // Whoever looks after the machine switches it on in the next pass.
            Fault::Unpark(h) => {
                if self.hosts[h].tainted {
                    self.hosts[h].unparked = Some(self.now);
                    self.schedule(60_000, Event::Do(Fault::Healed(h)));
                }
            }
            Fault::Healed(h) => {
                if self.hosts[h].unparked.is_some() {
                    self.gain_power(h);
                }
            }
            // The old one stays, and a record says so.
            Fault::BadConfig(h) => self.guest_event(h, None, GuestEventKind::Other),
            Fault::Pause(on) => {
                let pause = Pause {
                    scope: PauseScope::Global,
                    reason: "works".to_owned(),
                };
                self.pauses = if on { vec![pause] } else { Vec::new() };
                // What passed its gates before everybody knew is under way.
                self.paused_since = self.now + 7_000;
            }
            Fault::OnDuty => self.operator_on_duty = true,
            Fault::Release => self.release_all(),
            Fault::Approve(why) => self.decide_where(Decision::Approve, |_, held| held == Some(why)),
            Fault::Abort(h) => {
                let host = self.hosts[h].name.clone();
                self.decide_where(Decision::Abort, |id, _| id.host == host);
            }
            Fault::Meddle(decision) => self.decide_where(decision, |_, _| true),
            Fault::StorageSilent(h) => self.hosts[h].storage_silent = true,
            Fault::GuestEnds(n) => self.servers[n].runs_on.clear(),
            Fault::NovaNotices(n) => {
                let server = &mut self.servers[n];
                if server.runs_on.is_empty() && server.state == VmState::Active && server.task.is_empty() {
                    server.state = VmState::Stopped;
                }
            }
            Fault::Once(..) => {}
            Fault::Heal => self.heal(),
        }
        for h in 0..self.hosts.len() {
            self.note_health(h);
        }
    }

    fn owner_stops(&mut self, n: usize) {
        let host = self.servers[n].host;
        let server = &mut self.servers[n];
        if self.hosts[host].compute_works() && server.task.is_empty() && server.state == VmState::Active {
            server.state = VmState::Stopped;
            server.runs_on.remove(&host);
            server.owner_wants_it = false;
            server.user_action = Some(self.now);
        }
    }

    /// A person decides the same about every open incident that fits.
    fn decide_where(&mut self, decision: Decision, fits: impl Fn(&IncidentId, Option<HeldReason>) -> bool) {
        let Some(r) = self.leader() else { return };
        for incident in self.replicas[r].engine.incidents() {
            if incident.state.open() && fits(&incident.id, incident.held) {
                self.decide(r, &incident.id, decision);
            }
        }
    }

    /// A person takes every recovered host back.
    fn release_all(&mut self) {
        let Some(r) = self.leader() else { return };
        for incident in self.replicas[r].engine.incidents() {
            if matches!(incident.state, IncidentState::Recovered | IncidentState::Failed) {
                self.decide(r, &incident.id, Decision::Release);
            }
        }
    }

    /// Everything but the dead hosts works again.
    fn heal(&mut self) {
        self.uplinks.fill(true);
        for replica in &mut self.replicas {
            replica.to_hosts = true;
            replica.to_kubernetes = true;
            replica.to_nova = true;
            replica.to_peers = true;
        }
        self.kubernetes_up = true;
        self.nova_up = true;
        self.nova_flaky = 0;
        self.nova_refuses_service = false;
        self.nova_refuses_moves = false;
        self.rabbit_up = true;
        self.list_complete = true;
        self.capacity = true;
        self.messages_lost = 0;
        self.noise = 0;
        self.slow_sends = false;
        self.pauses.clear();
        for store in &mut self.stores {
            store.mend();
        }
        for stream in &mut self.streams {
            stream.mend();
        }
        for h in 0..self.hosts.len() {
            let host = &mut self.hosts[h];
            host.mgmt = true;
            host.bmc.reachable = true;
            if host.bmc.lies {
                host.bmc.lied_until = Some(self.now);
            }
            host.bmc.lies = false;
            host.agent = true;
            host.kubelet = true;
            host.libvirt = true;
            host.announced = false;
            host.storage_silent = false;
            if host.kernel && !host.user && host.power {
                self.reboot(h, 10_000, 30_000);
            } else if host.user && !host.compute && !host.tainted {
                self.compute_starts(h);
            }
        }
    }
}

/// A random fleet, random faults, and time to settle.
pub(crate) fn random_run(options: Options) -> World {
    let mut rng = fastrand::Rng::with_seed(options.seed ^ 0x00C0_BA17);
    let hosts = rng.usize(6..=12);
    let options_seed = options.seed;
    // A die of its own, so that what the others say does not depend on it.
    let mut people = fastrand::Rng::with_seed(options_seed ^ 0x0070_E091);
    let mut config = Config::default();
    if people.u8(..3) == 0 {
        config.fence_levels.push(FenceLevel {
            name: "exec".to_owned(),
            grade: Grade::Power,
        });
    }
    let mut world = World::new(options, hosts, 3, rng.usize(1..=3), config);
    world.noise = [0, 0, 2, 10][rng.usize(..4)];
    world.nova_flaky = [0, 0, 10, 40][rng.usize(..4)];
    world.messages_lost = [0, 0, 10, 30][rng.usize(..4)];
    world.nova_old = rng.bool();
    world.slow_sends = rng.bool();
    for h in 0..hosts {
        let bmc = &mut world.hosts[h].bmc;
        bmc.slow = rng.u64(50..3000);
        bmc.off_delay = rng.u64(300..6000);
        world.hosts[h].clock_skew_ms = [0, 0, 0, 3_600_000, -3_600_000][rng.usize(..5)];
    }
    for n in 0..world.servers.len() {
        dress(&mut world, n, &mut rng);
    }
    if rng.u8(..100) < 5 {
        let (a, b) = (rng.usize(..hosts), rng.usize(..hosts));
        world.hosts[a].bmc.wired_to = (a != b).then_some(b);
    }
    if rng.bool() {
        world.crash_at_record = Some((rng.u64(3..60), rng.bool()));
    }
    let end = FAULTS_END;
    world.faults_end = end;
    let faults = rng.usize(1..=7);
    for _ in 0..faults {
        let at = rng.u64(90_000..end - 60_000);
        let lasts = rng.u64(5_000..240_000);
        one_fault(&mut world, &mut rng, at, (at + lasts).min(end));
    }
    // A die of its own, so that the worlds without it stay what they were.
    let mut rare = fastrand::Rng::with_seed(options_seed ^ 0x0057_09AD);
    if rare.u8(..4) == 0 {
        let at = rare.u64(120_000..end - 60_000);
        for h in 0..hosts {
            world.at(at, Fault::Unpark(h));
        }
    }
    if rare.u8(..4) == 0 {
        let h = rare.usize(..hosts);
        let at = rare.u64(90_000..end - 90_000);
        world.at(at, Fault::Cover(h, false));
        world.at(at + rare.u64(100..60_000), Fault::Cover(h, true));
    }
    telemetry_fails(&mut world, &mut rare, end);
    people_act(&mut world, &mut people, end);
    world.at(end, Fault::Heal);
    world.at(end + 90_000, Fault::OnDuty);
    world.schedule(30_000, Event::Operator);
    // Long enough for every backoff; earlier if everything is settled.
    for slice in 3..=16 {
        world.run_until(end + slice * 100_000);
        let settled = || unsettled(&world).is_none() && releasing(&world).next().is_none();
        if world.violation.is_some() || settled() {
            return world;
        }
    }
    if let Some((invariant, what)) = unsettled(&world) {
        world.violate(invariant, what);
    }
    world
}

/// What people do to a fleet whatever befalls it, and what befalls single guests, clocks and rooms.
fn people_act(world: &mut World, people: &mut fastrand::Rng, end: u64) {
    let hosts = world.hosts.len();
    for _ in 0..people.usize(..4) {
        let (h, r) = (people.usize(..hosts), people.usize(..3));
        let n = people.usize(..world.servers.len());
        let at = people.u64(90_000..end - 60_000);
        let until = (at + people.u64(5_000..200_000)).min(end);
        match people.u8(..16) {
            0 | 1 => {
                world.servers[n].policy = Some(VmPolicy::Evacuate);
                world.at(at, Fault::GuestDies(n));
            }
            2 => {
                world.servers[n].policy = Some(VmPolicy::Restart);
                world.at(at, Fault::GuestDies(n));
                world.at(at + 15_000, Fault::NovaNotices(n));
            }
            3 => {
                world.at(at, Fault::Capacity(false));
                world.at(until, Fault::Capacity(true));
            }
            4 => {
                world.at(at, Fault::Complete(false));
                world.at(until, Fault::Complete(true));
            }
            5 => {
                let decisions = [
                    Decision::Approve,
                    Decision::Abort,
                    Decision::Retry,
                    Decision::Close,
                ];
                let decision = decisions[people.usize(..decisions.len())];
                for n in 0..people.u64(1..4) {
                    world.at(at + n * 45_000, Fault::Meddle(decision));
                }
            }
            6 => world.at(at, Fault::Meddle(Decision::Release)),
            7 => world.at(at, Fault::Request(h)),
            8 => {
                world.at(at, Fault::Announce(h));
                world.at(at + 15_000, Fault::PowerLoss(h));
            }
            9 => {
                world.at(at, Fault::Maintenance(h, Maintenance::Auto));
                world.at(until, Fault::Maintenance(h, Maintenance::Off));
            }
            10 => world.at(at, Fault::Maintenance(h, Maintenance::Termination)),
            11 => {
                world.at(at, Fault::ReplicaClock(r, 3_600_000));
                world.at(until, Fault::ReplicaClock(r, -3_600_000));
            }
            12 => world.at(at, Fault::Clock(h, 3_600_000)),
            13 => world.at(at, Fault::Freeze(r, people.u64(2_000..120_000))),
            // Agents are rolled out.
            14 => {
                for h in 0..hosts {
                    let at = at + 1500 * h as u64;
                    world.at(at, Fault::Agent(h, false));
                    world.at(at + 20_000, Fault::Agent(h, true));
                }
            }
            _ => {
                world.at(at, Fault::Libvirt(h, false));
                world.at(until, Fault::Libvirt(h, true));
            }
        }
    }
}

/// What befalls records on their way: much at once, agents that die in the middle of it, disks and stores.
fn telemetry_fails(world: &mut World, rare: &mut fastrand::Rng, end: u64) {
    for _ in 0..rare.usize(..3) {
        let (h, r) = (rare.usize(..world.hosts.len()), rare.usize(..3));
        let at = rare.u64(60_000..end - 60_000);
        let until = at + rare.u64(1_000..120_000);
        world.at(at + rare.u64(..1000), Fault::Chatter(h, rare.usize(1..600)));
        match rare.u8(..8) {
            0 => {
                world.at(at, Fault::SpoolFull(h, true));
                world.at(until, Fault::SpoolFull(h, false));
            }
            1 => {
                world.at(at, Fault::SpoolSqueezed(h, true));
                world.at(until, Fault::SpoolSqueezed(h, false));
            }
            2 => {
                world.at(at, Fault::SpoolSlow(h, true));
                world.at(until, Fault::SpoolSlow(h, false));
            }
            3 => {
                world.at(at, Fault::StoreFails(r, true));
                world.at(until, Fault::StoreFails(r, false));
            }
            4 => {
                world.at(at, Fault::StoreSlow(r, true));
                world.at(until, Fault::StoreSlow(r, false));
            }
            5 => world.at(until, Fault::StoreLost(r, rare.bool())),
            // Between writing and sending, or right after it.
            _ => {
                let dies = at + rare.u64(..1500);
                world.at(dies, Fault::Agent(h, false));
                world.at(dies + 2000, Fault::Agent(h, true));
            }
        }
    }
}

/// What kind of guest it is.
pub(crate) fn dress(world: &mut World, n: usize, rng: &mut fastrand::Rng) {
    let server = world.servers[n].clone();
    world.servers[n] = match rng.u8(..20) {
        0 | 1 => server.stopped(),
        2 => {
            let mut server = server;
            server.local_disk = true;
            server
        }
        3 => {
            let mut server = server;
            server.excluded = true;
            server
        }
        4 => {
            let mut server = server;
            server.unsupported = true;
            server
        }
        5 => {
            let mut server = server;
            server.anti_affinity = Some("together".to_owned());
            server
        }
        6 => {
            // A live migration that had switched over when Nova last looked.
            let mut server = server;
            let elsewhere = (server.host + 1) % world.hosts.len();
            server.runs_on = std::collections::BTreeSet::from([elsewhere]);
            "migrating".clone_into(&mut server.task);
            world
                .migrations
                .push(crate::cloud::Migration::live(n, server.host, elsewhere));
            server
        }
        _ => server,
    };
    world.servers[n].priority = rng.u16(0..1000);
}

fn one_fault(world: &mut World, rng: &mut fastrand::Rng, at: u64, until: u64) {
    let h = rng.usize(..world.hosts.len());
    let r = rng.usize(..3);
    let rack = rng.usize(..3);
    let n = rng.usize(..world.servers.len());
    let (first, last) = match rng.u8(..30) {
        0..=4 => (Fault::PowerLoss(h), None),
        5..=8 => (Fault::Panic(h), None),
        9 => (Fault::Hang(h), None),
        10 => (Fault::SelfReboot(h), None),
        11 => (Fault::Agent(h, false), Some(Fault::Agent(h, true))),
        12 => (Fault::Compute(h, false), Some(Fault::Compute(h, true))),
        13 => (Fault::Kubelet(h, false), Some(Fault::Kubelet(h, true))),
        14 => (Fault::Mgmt(h, false), Some(Fault::Mgmt(h, true))),
        15 => (Fault::Uplink(rack, false), Some(Fault::Uplink(rack, true))),
        16 => (Fault::ReplicaHosts(r, false), Some(Fault::ReplicaHosts(r, true))),
        17 => (
            Fault::ReplicaKubernetes(r, false),
            Some(Fault::ReplicaKubernetes(r, true)),
        ),
        18 => (Fault::ReplicaPeers(r, false), Some(Fault::ReplicaPeers(r, true))),
        19 => (Fault::CrashReplica(r), Some(Fault::CrashLeader)),
        20 => {
            // Best in the middle of an incident.
            world.at(
                at + rng.u64(18_000..40_000),
                Fault::FreezeLeader(rng.u64(17_000..40_000)),
            );
            (Fault::Panic(h), None)
        }
        21 => (Fault::Kubernetes(false), Some(Fault::Kubernetes(true))),
        22 if rng.bool() => (Fault::ReplicaNova(r, false), Some(Fault::ReplicaNova(r, true))),
        22 => (Fault::Nova(false), Some(Fault::Nova(true))),
        23 if h.is_multiple_of(2) => (
            Fault::NovaRefusesMoves(true),
            Some(Fault::NovaRefusesMoves(false)),
        ),
        23 => (
            Fault::NovaRefusesService(true),
            Some(Fault::NovaRefusesService(false)),
        ),
        24 => (Fault::Rabbit(false), Some(Fault::Rabbit(true))),
        25 => (Fault::Bmc(h, false), Some(Fault::Bmc(h, true))),
        26 => (Fault::BmcLies(h, true), Some(Fault::BmcLies(h, false))),
        27 => (
            Fault::Maintenance(h, Maintenance::Manual),
            Some(Fault::Maintenance(h, Maintenance::Off)),
        ),
        28 => (Fault::Pause(true), Some(Fault::Pause(false))),
        _ => (
            Fault::Delete(n),
            Some(Fault::OwnerStops((n + 1) % world.servers.len())),
        ),
    };
    let dies = matches!(first, Fault::PowerLoss(_) | Fault::Panic(_));
    // Whoever lies about power must not be alone with a host nobody reaches: nothing could tell.
    if matches!(first, Fault::BmcLies(..)) && world.hosts[h].bmc.wired_to.is_some() {
        return;
    }
    // Two faults on one host at a time make the interesting ones.
    let lying = matches!(first, Fault::BmcLies(..));
    world.at(at, first);
    if let Some(last) = last {
        world.at(until, last);
    }
    if dies && rng.u8(..4) == 0 {
        // Somebody switches it on again in the middle of it.
        world.at(at + rng.u64(20_000..120_000), Fault::PowerOn(h));
    }
    if dies && rng.u8(..5) == 0 {
        world.at(at + rng.u64(1_000..60_000), Fault::Bmc(h, false));
    }
    if lying && rng.bool() {
        world.at(at + 1000, Fault::Agent(h, false));
    }
}

/// Faults have stopped long ago: what could be settled and is not.
pub(crate) fn unsettled(world: &World) -> Option<(Invariant, String)> {
    let Some(r) = world.leader() else {
        return Some((Invariant::L2Settled, "nobody leads".to_owned()));
    };
    let engine = &world.replicas[r].engine;
    let incidents = engine.incidents();
    let miswired = incidents
        .iter()
        .any(|i| i.held == Some(HeldReason::IdentityMismatch));
    for incident in &incidents {
        // Somebody closed an incident without a release, and its host lives: that is for them to decide.
        let lives = world
            .host_index(&incident.id.host)
            .is_some_and(|h| world.hosts[h].shows_life());
        let left = incident.held == Some(HeldReason::AwaitingApproval) && lives;
        let waits = left
            || matches!(
                incident.held,
                Some(HeldReason::HaDisabled | HeldReason::IdentityMismatch)
            );
        let working = incident.state.in_flight() || incident.state == IncidentState::Confirmed;
        // A guest on its way to a host that cannot be fenced waits for that host, as it must.
        let for_another = incident.state == IncidentState::Evacuating && miswired;
        if working && !waits && !for_another {
            let what = format!(
                "{} is still {:?}, held for {:?}",
                incident.id, incident.state, incident.held
            );
            return Some((Invariant::L2Settled, what));
        }
    }
    if let Some((h, since)) = releasing(world).find(|(_, since)| world.now - since > GIVEN_BACK) {
        let minutes = (world.now - since) / 60_000;
        let what = format!("n{h:02} has had its compute service for {minutes} minutes and is not given back");
        return Some((Invariant::L8GivenBack, what));
    }
    if let Some(what) = behind(world) {
        return Some((Invariant::L7Backlog, what));
    }
    if let Some(server) = still_locked(world) {
        return Some((Invariant::L2Settled, format!("{server} is still locked")));
    }
    for (h, host) in world.hosts.iter().enumerate() {
        let known = incidents
            .iter()
            .any(|i| i.id.host == host.name && i.state != IncidentState::Cancelled);
        let dead = !host.kernel && host.died_at.is_some_and(|at| world.now - at > 120_000);
        let guests = world.servers.count(h) > 0;
        if dead && guests && !known {
            return Some((
                Invariant::L2Settled,
                format!("n{h:02} is dead and nobody noticed"),
            ));
        }
        let well = host.well_since.is_some_and(|since| world.now - since > 120_000);
        let now = cobaltcore_ha_engine::Now {
            mono: world.mono(r),
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        let suspect = engine
            .host_status(&host.name, now)
            .is_some_and(|status| status.suspect);
        // Whose device is that of another host, which is off, cannot be told to be on.
        let misled = host.bmc.wired_to.is_some_and(|other| !world.hosts[other].power);
        if well && suspect && !misled {
            return Some((Invariant::L4Calm, format!("n{h:02} is well and still suspect")));
        }
    }
    None
}

/// A living agent whose records have not reached a replica that takes them.
fn behind(world: &World) -> Option<String> {
    let settled = |since: u64| world.now - since > SETTLED;
    (0..world.hosts.len()).find_map(|h| {
        let host = &world.hosts[h];
        let speaks = host.agent_speaks() && settled(host.booted_at.max(world.faults_end));
        let r = (0..3).find(|r| {
            let replica = &world.replicas[*r];
            let there = replica.up && settled(replica.began) && world.reaches(*r, h);
            there && !world.streams[h].drained(*r)
        })?;
        speaks.then(|| format!("n{h:02} has records that replica {r} lacks"))
    })
}

/// Hosts that are being given back and whose compute service works, with since when both are so. One of which Nova
/// keeps records open has to wait, if that is told.
fn releasing(world: &World) -> impl Iterator<Item = (usize, u64)> {
    let incidents = world.leader().map(|r| world.replicas[r].engine.incidents());
    incidents
        .into_iter()
        .flatten()
        .filter(|incident| incident.state == IncidentState::Releasing)
        .filter_map(|incident| {
            let h = world.host_index(&incident.id.host)?;
            if world.records_open(h) && incident.held == Some(HeldReason::NovaUnavailable) {
                return None;
            }
            let host = &world.hosts[h];
            let decided = release_decided(world, &incident.id)?;
            let since = host.compute_since.max(decided).max(world.faults_end);
            host.compute_works().then_some((h, since))
        })
}

/// When a person last decided to give a host back.
fn release_decided(world: &World, id: &IncidentId) -> Option<u64> {
    let mut records = world.journal.iter().zip(&world.written_at).rev();
    let (_, at) = records.find(|(record, _)| {
        matches!(&record.entry, Entry::Decided { incident, decision: Decision::Release, .. } if incident == id)
    })?;
    Some(*at)
}

/// A guest that is settled and still locked by the incident that moved it.
fn still_locked(world: &World) -> Option<ServerId> {
    let ledger = world.ledger();
    let open = ledger.incidents.values().filter(|incident| incident.state.open());
    open.flat_map(|incident| incident.vms.values())
        .filter(|vm| vm.progress.terminal())
        .map(|vm| &vm.server)
        .find(|id| {
            let n = world.server_index(id);
            n.is_some_and(|n| world.servers[n].lock.is_some() && !world.servers[n].deleted)
        })
        .cloned()
}
