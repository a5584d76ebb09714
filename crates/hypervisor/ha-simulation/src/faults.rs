// SPDX-License-Identifier: Apache-2.0
//! What goes wrong, what that does to the world, and what has to be settled once nothing goes wrong any more.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{
    Decision, Entry, Grade, GuestEventKind, HeldReason, IncidentId, IncidentState, Pause, PauseScope,
    VmProgress, VmState,
};

use crate::invariants::Invariant;
use crate::network::Way;
use crate::world::{Event, World};

/// Milliseconds from a working compute service to a host in service.
const GIVEN_BACK: u64 = 300_000;

/// Milliseconds in which every pause between two attempts to send is over, and every backlog is gone.
const SETTLED: u64 = 120_000;
/// A record arrives within so many milliseconds where everything works.
const ON_ITS_WAY: u64 = 10_000;

/// One thing that goes wrong, or right again.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    PowerLoss(usize),
    PowerOn(usize),
    Panic(usize),
    Hang(usize),
    SelfReboot(usize),
    Agent(usize, bool),
    /// Its agent stops its watchdog, and says so.
    Disarm(usize),
    /// The address of its device leads to another machine.
    Rewire(usize, usize),
    NovaLate(u8),
    /// What it said last arrives once more, so many milliseconds later.
    LateWord(usize, u64),
    Compute(usize, bool),
    Kubelet(usize, bool),
    Libvirt(usize, bool),
    Mgmt(usize, bool),
    Uplink(usize, bool),
    ReplicaHosts(usize, bool),
    ReplicaKubernetes(usize, bool),
    /// The watches of a replica tell nothing new, or do again; what it reads itself is new.
    WatchStalls(usize, bool),
    ReplicaNova(usize, bool),
    ReplicaPeers(usize, bool),
    /// It gets nothing of what hosts say, and they get what it says; or the other way round.
    ReplicaDeaf(usize, bool),
    ReplicaMute(usize, bool),
    /// Nobody gets a connection to it, and it gets one to everybody.
    ReplicaClosed(usize, bool),
    /// It gets nothing of what is said to it, and everybody gets what it says; or the other way round.
    HostDeaf(usize, bool),
    HostMute(usize, bool),
    /// What it is told to do is done, and its answers are lost to one replica, or to all.
    KubernetesUnheard(usize, bool),
    NovaUnheard(usize, bool),
    BmcUnheard(usize, bool),
    /// The disk of the journal takes nothing; some of its writes fail, one way or another; its last record is cut.
    JournalFull(bool),
    JournalFlaky(u8),
    JournalCut(bool),
    CrashReplica(usize),
    /// It stays down for so long.
    Down(usize, u64),
    CrashLeader,
    Freeze(usize, u64),
    FreezeLeader(u64),
    Kubernetes(bool),
    /// Kubernetes lets somebody change nodes, or nobody.
    Nodes(bool),
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
    /// Something keeps its compute service from starting, or no more.
    Taint(usize, bool),
    /// Every host may take guests.
    Enable,
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
    /// Somebody wants one guest left alone, or no more.
    PauseGuest(usize, bool),
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
    /// A guest has arrived on another host, and Nova does not know.
    Arrives(usize, usize),
    /// Lists of its guests are lost, but for those that are asked for.
    ListsLost(usize),
    /// Nova notices that a guest does not run, and writes down that it is stopped.
    NovaNotices(usize),
    /// Each so many milliseconds from now.
    Story(Vec<(u64, Fault)>),
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
    pub(crate) fn schedule_fault(&mut self, ms: u64, fault: Fault) {
        let after = ms.saturating_sub(self.now);
        self.schedule(after, Event::Do(fault));
    }

    /// A device that says Off about a living host nobody reaches cannot be told from the truth, nor can somebody who signed
    /// that a host is off which was switched on since and spoke to nobody. No engine could act on a dead host and not on
    /// those, so they never come together here.
    fn undecidable(&self, fault: &Fault) -> bool {
        let of_rack = |rack: usize| (0..self.hosts.len()).filter(move |h| self.hosts[*h].rack == rack);
        let cuts = |h: usize| self.hosts[h].bmc.lies || self.signed_and_not_heard(h);
        match fault {
            Fault::Mgmt(h, false) => cuts(*h),
            Fault::HostMute(h, true) => cuts(*h),
            Fault::Uplink(rack, false) => of_rack(*rack).any(cuts),
            Fault::PowerOn(h) => self.signed(*h) && !(0..3).any(|r| self.hears(r, *h) && self.knows(r, *h)),
            Fault::BmcLies(h, true) => !self.hosts[*h].mgmt.back || !self.uplinks[self.hosts[*h].rack],
            _ => false,
        }
    }

    /// Whether a replica knows of a host. One that began while Kubernetes was away knows of none, and listens to none.
    fn knows(&self, r: usize, h: usize) -> bool {
        let now = cobaltcore_ha_engine::Now {
            mono: self.mono(r),
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        let status = self.replicas[r].engine.host_status(&self.hosts[h].name, now);
        status.is_some()
    }

    /// Whether somebody signed that a host is off, also if the record of it is still on its way.
    fn signed(&self, h: usize) -> bool {
        let leader = self.leader().map(|r| self.replicas[r].engine.ledger());
        let known = leader.into_iter().chain([self.ledger()]);
        let mut incidents = known.filter_map(|ledger| ledger.open_incident(&self.hosts[h].name));
        incidents.any(|i| i.asserted || i.grade == Some(Grade::Asserted))
    }

    /// The same, of one that was switched on since and has not had the time to say so.
    fn signed_and_not_heard(&self, h: usize) -> bool {
        let host = &self.hosts[h];
        host.power && self.signed(h) && self.now - host.power_since < 60_000
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
            Fault::PowerOn(h) => {
                self.hosts[h].repaired = true;
                self.gain_power(h);
            }
            Fault::Panic(h) => self.stop_kernel(h),
            Fault::Hang(h) => {
                self.hosts[h].user = false;
                self.hosts[h].died_at.get_or_insert(self.now);
            }
            Fault::SelfReboot(h) => self.reboot(h, 12_000, 40_000),
            Fault::Agent(h, on) => {
                self.hosts[h].agent = on;
                self.hosts[h].agent_starts += u64::from(on);
            }
            Fault::Disarm(h) => self.hosts[h].disarmed = true,
            Fault::Rewire(h, other) => self.hosts[h].bmc.wired_to = Some(other),
            Fault::NovaLate(percent) => self.nova_late = percent,
            Fault::LateWord(h, later) => self.repeat_later(h, later),
            Fault::Compute(h, true) if self.hosts[h].user => self.compute_starts(h),
            Fault::Compute(h, on) => self.hosts[h].compute = on,
            Fault::Kubelet(h, on) => self.hosts[h].kubelet = on,
            Fault::Libvirt(h, on) => self.hosts[h].libvirt = on,
            Fault::Mgmt(h, on) => self.hosts[h].mgmt = Way::both(on),
            Fault::Uplink(rack, on) => {
                if let Some(uplink) = self.uplinks.get_mut(rack) {
                    *uplink = on;
                }
            }
            Fault::ReplicaHosts(r, on) => {
                self.replicas[r].hosts = Way::both(on);
                self.replicas[r].cut_since = self.now;
            }
            Fault::WatchStalls(r, on) => self.replicas[r].watches = !on,
            Fault::ReplicaKubernetes(r, on) => self.replicas[r].kubernetes = Way::both(on),
            Fault::ReplicaNova(r, on) => self.replicas[r].nova = Way::both(on),
            Fault::ReplicaPeers(r, on) => self.replicas[r].peers = on,
            Fault::ReplicaDeaf(r, deaf) => {
                self.replicas[r].hosts.back = !deaf;
                self.replicas[r].cut_since = self.now;
            }
            Fault::ReplicaMute(r, mute) => self.replicas[r].hosts.there = !mute,
            Fault::ReplicaClosed(r, closed) => {
                self.replicas[r].closed = closed;
                self.replicas[r].cut_since = self.now;
            }
            Fault::HostDeaf(h, deaf) => self.hosts[h].mgmt.there = !deaf,
            Fault::HostMute(h, mute) => self.hosts[h].mgmt.back = !mute,
            Fault::KubernetesUnheard(r, lost) => self.replicas[r].kubernetes.back = !lost,
            Fault::NovaUnheard(r, lost) => self.replicas[r].nova.back = !lost,
            Fault::BmcUnheard(h, lost) => self.hosts[h].bmc.unheard = lost,
            Fault::JournalFull(full) => self.trouble.full = full,
            Fault::JournalFlaky(percent) => self.trouble.flaky = percent,
            Fault::JournalCut(cut) => self.trouble.cut = cut,
            Fault::CrashReplica(r) => self.crash_replica(r),
            Fault::Down(r, ms) => self.replicas[r].down_until = self.now + ms,
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
            Fault::Nodes(on) => self.nodes_refused = !on,
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
                self.hosts[h].maintenance_set = self.now;
                self.schedule(2000, Event::Kubernetes);
            }
            Fault::Taint(h, on) => {
                self.hosts[h].tainted = on;
                if !on && self.hosts[h].user && !self.hosts[h].compute {
                    self.compute_starts(h);
                }
            }
            Fault::Enable => {
                let claimed = |host: &crate::hosts::Host| host.maintenance != Maintenance::Off;
                for host in self.hosts.iter_mut().filter(|host| !claimed(host)) {
                    host.disabled = false;
                }
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
                self.pauses.retain(|other| other.scope != pause.scope);
                self.pauses.extend(on.then_some(pause));
                // What passed its gates before everybody knew is under way.
                self.paused_since = self.now + 7_000;
            }
            Fault::PauseGuest(n, on) => {
                let pause = Pause {
                    scope: PauseScope::Server(self.servers[n].id.clone()),
                    reason: "its owner looks at it".to_owned(),
                };
                self.pauses.retain(|other| other.scope != pause.scope);
                self.pauses.extend(on.then_some(pause));
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
            Fault::ListsLost(h) => self.hosts[h].lists_lost = true,
            Fault::Arrives(n, h) => self.servers[n].runs_on = [h].into(),
            Fault::NovaNotices(n) => {
                let server = &mut self.servers[n];
                if server.runs_on.is_empty() && server.state == VmState::Active && server.task.is_empty() {
                    server.state = VmState::Stopped;
                }
            }
            Fault::Story(faults) => {
                for (after, fault) in faults {
                    self.schedule(after, Event::Do(fault));
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
        let works = self.hosts[host].compute_works();
        let dead = !self.hosts[host].user;
        let server = &mut self.servers[n];
        let free = server.task.is_empty() && server.state == VmState::Active;
        if !free || !(works || dead && server.lock.is_none()) {
            return;
        }
        if works {
            server.state = VmState::Stopped;
            server.runs_on.remove(&host);
        } else {
            // Nova takes it, and there is nobody to do it.
            "powering-off".clone_into(&mut server.task);
        }
        server.owner_wants_it = false;
        server.user_action = Some(self.now);
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
            replica.hosts = Way::OPEN;
            replica.kubernetes = Way::OPEN;
            replica.watches = true;
            replica.nova = Way::OPEN;
            replica.peers = true;
            replica.closed = false;
        }
        self.trouble = crate::journal::Trouble::default();
        // Who was to die at a record that never came lives.
        self.crash_at_record = None;
        self.kubernetes_up = true;
        self.nodes_refused = false;
        self.nova_up = true;
        self.nova_flaky = 0;
        self.nova_slow = 0;
        self.nova_late = 0;
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
            host.mgmt = Way::OPEN;
            host.bmc.reachable = true;
            host.bmc.unheard = false;
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
    if let Some(server) = runs_unwanted(world) {
        let what = format!("{server} was stopped by its owner, and runs elsewhere");
        return Some((Invariant::S10Guests, what));
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
        let well = host.well_since.is_some_and(|since| world.now - since > 60_000);
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

/// A living agent whose records have not reached a replica that takes them, though none of them is on its way any more.
fn behind(world: &World) -> Option<String> {
    let settled = |since: u64| world.now - since > SETTLED;
    (0..world.hosts.len()).find_map(|h| {
        let host = &world.hosts[h];
        let quiet = world.now - world.streams[h].newest > ON_ITS_WAY;
        let speaks = quiet && host.agent_speaks() && settled(host.booted_at.max(world.faults_end));
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
pub(crate) fn releasing(world: &World) -> impl Iterator<Item = (usize, u64)> {
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

/// A guest that was moved and runs, though its owner had stopped it.
fn runs_unwanted(world: &World) -> Option<ServerId> {
    let incidents = world.ledger().incidents.values();
    incidents
        .flat_map(|incident| incident.vms.values())
        .filter(|vm| matches!(vm.progress, VmProgress::Recovered { .. }))
        .map(|vm| &vm.server)
        .find(|id| {
            let server = world.server_index(id).map(|n| &world.servers[n]);
            server.is_some_and(|s| {
                let known = s.overtaken.is_none() || s.overtaken != s.user_action;
                !s.owner_wants_it && known && !s.runs_on.is_empty() && !s.deleted
            })
        })
        .cloned()
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
