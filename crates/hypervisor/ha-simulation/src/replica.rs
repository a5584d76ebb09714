// SPDX-License-Identifier: Apache-2.0
//! The replicas of the service: each with its own engine, clock and network, a lease to win and a
//! journal to write to (see `journal`). What the real service promises the engine is kept here, and nothing more:
//! records before actions, no action after its time, death at any point.

use std::collections::VecDeque;

use cobaltcore_ha_engine::{
    Action, ActionId, Answer, Engine, Epoch, Input, Mono, Now, Observation, Output, Record, ReplicaId,
    Trouble,
};

use crate::boards::Shown;
use crate::invariants::Invariant;
use crate::journal::Moment;
use crate::network::Way;
use crate::streams::Mistake;
use crate::world::{Event, World};

/// Milliseconds between two ticks of a replica.
const TICK: u64 = 1000;
/// Milliseconds that may pass without a leader.
const SUCCESSION: u64 = 35_000;

/// The lease in the Kubernetes API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    pub(crate) holder: Option<usize>,
    pub(crate) renewals: u64,
    pub(crate) transitions: u64,
}

/// One replica.
pub(crate) struct Replica {
    pub(crate) engine: Engine,
    pub(crate) up: bool,
    pub(crate) frozen_until: u64,
    pub(crate) incarnation: u64,
    /// Until when nobody starts it again.
    pub(crate) down_until: u64,
    /// When its process began.
    pub(crate) began: u64,
    /// Its monotonic clock began somewhere else than everybody's.
    clock: u64,
    pub(crate) wall_skew_ms: i64,
    pub(crate) hosts: Way,
    /// Since when it has been cut off from the hosts.
    pub(crate) cut_since: u64,
    pub(crate) kubernetes: Way,
    /// Whether its watches tell what changes.
    pub(crate) watches: bool,
    /// How much faster than the world its clock runs, in parts of a million.
    pub(crate) drift: i64,
    pub(crate) nova: Way,
    pub(crate) peers: bool,
    /// Nobody gets a connection to it.
    pub(crate) closed: bool,
    pub(crate) queue: VecDeque<(Vec<Record>, Vec<Action>)>,
    pub(crate) committing: bool,
    /// The latest of its terms that is over.
    over: u64,
    /// Requests that have left and are not answered.
    under_way: usize,
    lease_seen: (u64, u64),
    pub(crate) lease_renewed: Option<u64>,
    /// It renewed its lease, and does not know.
    renewed_unheard: bool,
    /// It gave leadership up, and lets others lead until then.
    pub(crate) stands_back: u64,
    next_tick: u64,
    /// Since when it could lead.
    pub(crate) able_since: Option<u64>,
    /// Up to which record it knows the journal that others write.
    followed: u64,
    /// What it was last shown of each host.
    pub(crate) shown: Vec<Option<Shown>>,
}

impl Replica {
    pub(crate) fn new(r: usize, world: &World) -> Self {
        let mut engine = Engine::new(world.config.clone(), ReplicaId(r as u8));
        if let Some(prepare) = world.options.prepare {
            prepare(&mut engine);
        }
        Self {
            engine,
            up: true,
            frozen_until: 0,
            down_until: 0,
            incarnation: 1,
            began: world.now,
            clock: 1_000_000 + 77_000 * r as u64,
            wall_skew_ms: 0,
            hosts: Way::OPEN,
            cut_since: 0,
            kubernetes: Way::OPEN,
            watches: true,
            drift: 0,
            nova: Way::OPEN,
            peers: true,
            closed: false,
            queue: VecDeque::new(),
            committing: false,
            over: 0,
            under_way: 0,
            lease_seen: (0, 0),
            lease_renewed: None,
            renewed_unheard: false,
            stands_back: 0,
            next_tick: 0,
            able_since: None,
            followed: 0,
            shown: Vec::new(),
        }
    }

    pub(crate) fn alive(&self) -> bool {
        self.up
    }

    /// Whether anything that hosts say arrives.
    pub(crate) fn listens(&self) -> bool {
        self.hosts.back && !self.closed
    }
}

impl World {
    fn time(&self, r: usize) -> Now {
        let replica = &self.replicas[r];
        let wall = self.now as i64 + replica.wall_skew_ms;
        Now {
            mono: Mono(
                (self.now + replica.clock).saturating_add_signed(self.now as i64 * replica.drift / 1_000_000),
            ),
            wall: jiff::Timestamp::from_millisecond(wall).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    pub(crate) fn mono(&self, r: usize) -> Mono {
        self.time(r).mono
    }

    pub(crate) fn runs(&mut self, r: usize, incarnation: u64) -> bool {
        let replica = &self.replicas[r];
        replica.up && replica.incarnation == incarnation
    }

    /// Passes something to an engine. A frozen process gets it when it thaws.
    pub(crate) fn deliver(&mut self, r: usize, incarnation: u64, input: Input) {
        if !self.runs(r, incarnation) {
            return;
        }
        let frozen = self.replicas[r].frozen_until.saturating_sub(self.now);
        if frozen > 0 {
            self.schedule(frozen + 1, Event::Deliver(r, incarnation, Box::new(input)));
            return;
        }
        self.steps += 1;
        let now = self.time(r);
        let replica = &mut self.replicas[r];
        let led = replica.engine.leads();
        let output = replica.engine.step(input, now);
        if let Some(term) = led.filter(|_| replica.engine.leads() != led) {
            replica.over = replica.over.max(term.0);
        }
        self.take(r, output);
    }

    /// As [`Self::deliver`], of something that is shown to others as well.
    pub(crate) fn show(&mut self, r: usize, seen: &Observation) {
        let replica = &self.replicas[r];
        if replica.frozen_until > self.now {
            let incarnation = replica.incarnation;
            self.deliver(r, incarnation, Input::Saw(seen.clone()));
        } else if replica.up {
            self.steps += 1;
            let now = self.time(r);
            let output = self.replicas[r].engine.see(seen, now);
            self.take(r, output);
        }
    }

    fn take(&mut self, r: usize, output: Output) {
        let Output {
            journal,
            actions,
            notices,
        } = output;
        for notice in notices {
            self.story(|| format!("replica {r}: {notice:?}"));
            self.notices.push((self.now, notice));
        }
        if journal.is_empty() && actions.is_empty() {
            return;
        }
        let direct = journal.is_empty() && self.replicas[r].queue.is_empty();
        if direct {
            self.start(r, actions);
        } else {
            self.replicas[r].queue.push_back((journal, actions));
            self.pump(r);
        }
    }

    /// Starts actions whose records are durable. A busy executor takes a while to come to it.
    pub(crate) fn start(&mut self, r: usize, actions: Vec<Action>) {
        let incarnation = self.replicas[r].incarnation;
        for action in actions {
            if self.slow_sends && self.rng.u8(..3) == 0 {
                self.mark("a request leaves late");
                let late = self.rng.u64(10..9_000);
                self.schedule(late, Event::Send(r, incarnation, Box::new(action)));
            } else {
                self.send_action(r, incarnation, action);
            }
        }
    }

    /// Looks at the clock and lets the request leave.
    pub(crate) fn send_action(&mut self, r: usize, incarnation: u64, action: Action) {
        if !self.runs(r, incarnation) {
            return;
        }
        let frozen = self.replicas[r].frozen_until.saturating_sub(self.now);
        if frozen > 0 {
            self.schedule(frozen + 1, Event::Send(r, incarnation, Box::new(action)));
            return;
        }
        self.replicas[r].under_way += 1;
        // What a term that is over wanted is for the next to look at.
        let careless = self.options.mistake == Some(Mistake::OldTermActs);
        let over = action.id.epoch.0 <= self.replicas[r].over && !careless;
        if over || self.mono(r) > action.not_after {
            let outcome = Box::new((action.id, Err(Trouble::NotStarted)));
            self.schedule(1, Event::Outcome(r, incarnation, outcome));
            return;
        }
        if action.effect.changes() {
            self.check_term(r, &action);
        }
        let latency = self.rng.u64(1..30);
        self.schedule(latency, Event::Exec(r, incarnation, Box::new(action)));
    }

    /// An answer comes in, unless its replica dies first.
    pub(crate) fn answered_by(
        &mut self,
        r: usize,
        incarnation: u64,
        id: ActionId,
        result: Result<Answer, Trouble>,
    ) {
        if !self.runs(r, incarnation) {
            return;
        }
        if self.dying == Some((r, Moment::Told)) {
            self.dying = None;
            self.crash_replica(r);
            return;
        }
        self.replicas[r].under_way = self.replicas[r].under_way.saturating_sub(1);
        self.deliver(r, incarnation, Input::Outcome { id, result });
    }

    fn check_term(&mut self, r: usize, action: &Action) {
        let epoch = action.id.epoch.0;
        if epoch < self.acting_epoch {
            let what = format!(
                "replica {r} starts {:?} of term {epoch} after term {}",
                action.effect, self.acting_epoch
            );
            self.violate(Invariant::S7Terms, what);
        }
        self.acting_epoch = self.acting_epoch.max(epoch);
    }

    pub(crate) fn replica_tick(&mut self, r: usize) {
        self.schedule(TICK, Event::Tick(r));
        self.replicas[r].next_tick = self.now + TICK;
        let incarnation = self.replicas[r].incarnation;
        self.replica_wakes(r, incarnation);
        let replica = &self.replicas[r];
        if replica.up && replica.frozen_until <= self.now && replica.engine.leads().is_some() {
            self.keep_cover(r);
        }
    }

    /// One tick, and another if an agent will have been silent for too long before the next is due.
    pub(crate) fn replica_wakes(&mut self, r: usize, incarnation: u64) {
        if self.replicas[r].engine.leads().is_none() {
            return;
        }
        self.deliver(r, incarnation, Input::Tick);
        let now = self.mono(r);
        let replica = &self.replicas[r];
        let silence = replica.engine.next_silence(now).map(|at| at.0 - now.0);
        if let Some(after) = silence.filter(|after| self.now + after < replica.next_tick) {
            self.schedule(after, Event::Silence(r, incarnation));
        }
    }

    /// Asks Nova, Kubernetes, the canaries and the other replicas.
    pub(crate) fn replica_poll(&mut self, r: usize) {
        let leads = self.replicas[r].engine.leads().is_some();
        self.schedule(if leads { 3000 } else { 6000 }, Event::Poll(r));
        let replica = &self.replicas[r];
        if !replica.up || replica.frozen_until > self.now {
            return;
        }
        let incarnation = replica.incarnation;
        let (nova, kubernetes) = (self.nova(r).answers(), self.kubernetes(r).answers());
        if kubernetes {
            if self.replicas[r].watches {
                self.show_hosts(r);
                self.show_leases(r);
            }
            let pauses = self.pauses.clone();
            self.deliver(r, incarnation, Input::Pauses(pauses));
            self.follow(r, leads);
        }
        if nova {
            self.show_services(r);
        }
        if self.config.storage_watched {
            for h in 0..self.hosts.len() {
                let host = &self.hosts[h];
                let watcher = host.kernel && !host.storage_silent && !self.servers.running_on(h).is_empty();
                let host = self.hosts[h].name.clone();
                self.deliver(r, incarnation, Input::Saw(Observation::Storage { host, watcher }));
            }
        }
        let gateway = self.replicas[r].hosts.answers();
        let keystone = self.replicas[r].nova.answers();
        let ok = [kubernetes, nova, keystone, gateway]
            .into_iter()
            .filter(|up| *up)
            .count();
        self.deliver(r, incarnation, Input::Saw(Observation::Canaries { ok, total: 4 }));
        for other in 0..self.replicas.len() {
            let up = self.replicas[other].up && self.replicas[other].frozen_until <= self.now;
            if other == r || !up || !self.asks_peer(r, other) {
                continue;
            }
            self.show_peer(r, other);
        }
    }

    /// Whoever does not lead reads what was written since it last looked.
    fn follow(&mut self, r: usize, leads: bool) {
        let news = self.durable.seq > self.replicas[r].followed;
        if leads || !news || self.trouble.cut {
            return;
        }
        self.replicas[r].followed = self.durable.seq;
        let incarnation = self.replicas[r].incarnation;
        let ledger = Box::new(self.durable.clone());
        self.deliver(r, incarnation, Input::Follow(ledger));
    }

    /// Renews the lease, or takes one that was not renewed for its whole duration as seen here. Whoever gave it back may
    /// have something under way, and is waited for as well.
    pub(crate) fn replica_lease(&mut self, r: usize) {
        self.schedule(2000, Event::Lease(r));
        self.check_succession(r);
        let replica = &self.replicas[r];
        let incarnation = replica.incarnation;
        if !replica.up || replica.frozen_until > self.now {
            return;
        }
        let leads = replica.engine.leads().is_some();
        let renewed = replica.lease_renewed;
        let way = self.kubernetes(r);
        if !way.answers() {
            // The next renewal would need to know what became of this one.
            let holds = self.lease.holder == Some(r) && renewed.is_some();
            if way.there && holds && !std::mem::replace(&mut self.replicas[r].renewed_unheard, true) {
                self.mark("a lease is renewed, and its holder does not know");
                self.lease.renewals += 1;
            }
            if renewed.is_some_and(|at| self.now - at >= 10_000) {
                self.replicas[r].lease_renewed = None;
                self.deliver(r, incarnation, Input::LeaseLost);
            }
            return;
        }
        self.replicas[r].renewed_unheard = false;
        if self.lease.holder == Some(r) && renewed.is_some() {
            self.lease.renewals += 1;
            self.replicas[r].lease_renewed = Some(self.now);
            let sent_at = self.mono(r);
            self.deliver(r, incarnation, Input::LeaseRenewed { sent_at });
            if !leads {
                self.load_and_lead(r, self.lease.transitions);
            }
            return;
        }
        if leads {
            self.replicas[r].lease_renewed = None;
            self.deliver(r, incarnation, Input::LeaseLost);
        }
        let seen = (self.lease.renewals, self.now);
        if self.replicas[r].lease_seen.0 != seen.0 {
            self.replicas[r].lease_seen = seen;
            return;
        }
        if self.now < self.replicas[r].stands_back {
            return;
        }
        let expired = self.now - self.replicas[r].lease_seen.1 >= 15_000;
        let never_held = self.lease.transitions == 0;
        if expired || never_held {
            self.lease.holder = Some(r);
            self.lease.renewals += 1;
            self.lease.transitions += 1;
            self.replicas[r].lease_renewed = Some(self.now);
            self.replicas[r].lease_seen = (self.lease.renewals, self.now);
            self.load_and_lead(r, self.lease.transitions);
        }
    }

    /// Somebody must lead, unless nobody could for long enough to take over.
    fn check_succession(&mut self, r: usize) {
        let now = self.now;
        let awake = |replica: &Replica| replica.up && replica.frozen_until <= now;
        let sound = !self.trouble.cut && !self.trouble.full && self.trouble.flaky == 0;
        let able = awake(&self.replicas[r]) && self.kubernetes(r).answers() && sound;
        let replica = &mut self.replicas[r];
        replica.able_since = able.then(|| replica.able_since.unwrap_or(now));
        let leads = |replica: &Replica| awake(replica) && replica.engine.leads().is_some();
        if self.replicas.iter().any(leads) {
            self.led_at = now;
        }
        let could = |replica: &Replica| {
            let able = replica.able_since.map(|since| since.max(replica.stands_back));
            awake(replica) && able.is_some_and(|since| now.saturating_sub(since) > SUCCESSION)
        };
        if now - self.led_at > SUCCESSION && self.replicas.iter().any(could) {
            let silence = (now - self.led_at) / 1000;
            let what = format!("nobody has led for {silence} seconds, and somebody could");
            self.violate(Invariant::L3Succession, what);
        }
    }

    /// Begins a term by reading the journal, if it can be read and nothing of the last term is under way any more.
    fn load_and_lead(&mut self, r: usize, epoch: u64) {
        if self.trouble.cut {
            self.mark("a journal cannot be read");
            return;
        }
        if self.replicas[r].under_way > 0 && self.options.mistake != Some(Mistake::OldTermActs) {
            return;
        }
        // A term is never begun twice: coming back takes a new number, also after one that could write nothing.
        let written = self.journal.last().map_or(0, |record| record.epoch.0);
        let over = match self.options.mistake {
            Some(Mistake::TermTwice) => 0,
            _ => self.replicas[r].over,
        };
        let epoch = epoch.max(written.max(over) + 1);
        self.lease.transitions = epoch;
        self.terms.insert(epoch, self.now);
        self.story(|| format!("replica {r} leads term {epoch}"));
        self.replicas[r].queue.clear();
        let sent_at = self.mono(r);
        let incarnation = self.replicas[r].incarnation;
        let input = Input::Lead {
            epoch: Epoch(epoch),
            sent_at,
            journal: self.journal.clone(),
        };
        self.deliver(r, incarnation, input);
    }

    pub(crate) fn crash_replica(&mut self, r: usize) {
        if !self.replicas[r].up {
            return;
        }
        self.story(|| format!("replica {r} crashes"));
        if self.replicas[r].engine.leads().is_some() {
            self.leader_died = Some(self.now);
        }
        self.replicas[r].up = false;
        let back = self.rng.u64(3_000..40_000);
        self.schedule(back, Event::Restart(r));
    }

    pub(crate) fn restart_replica(&mut self, r: usize) {
        let rest = self.replicas[r].down_until.saturating_sub(self.now);
        if rest > 0 {
            self.schedule(rest, Event::Restart(r));
            return;
        }
        let fresh = Replica::new(r, self);
        let old = std::mem::replace(&mut self.replicas[r], fresh);
        let replica = &mut self.replicas[r];
        replica.incarnation = old.incarnation + 1;
        replica.next_tick = old.next_tick;
        // Another process, another clock.
        replica.clock = old.clock.wrapping_mul(3) % 9_000_000 + 500_000;
        replica.hosts = old.hosts;
        replica.kubernetes = old.kubernetes;
        replica.watches = old.watches;
        replica.drift = old.drift;
        replica.nova = old.nova;
        replica.peers = old.peers;
        replica.closed = old.closed;
        replica.wall_skew_ms = old.wall_skew_ms;
    }
}
