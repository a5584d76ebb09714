// SPDX-License-Identifier: Apache-2.0
//! The engine: takes one input at a time, keeps the durable ledger and the soft state beside it,
//! and lets monitors, gates and recovery say what follows. This module holds the state and the
//! dispatch; judgement lives in the others.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::action::{Action, Effect};
use crate::config::Config;
use crate::doubles::Doubles;
use crate::evidence::{Evidence, Group, GroupVerdict, assess};
use crate::guests::Guests;
use crate::ids::{ActionId, Epoch, Grade, IncidentId, Mono, Now, ReplicaId};
use crate::input::{
    Answer, HostFacts, Identity, Input, Inventory, MigrationFacts, Observation, Pause, PeerHost, Power,
    ServerFacts, ServiceFacts, Trouble,
};
use crate::journal::{Entry, Record, VERSION};
use crate::ledger::{IncidentState, Ledger, VmProgress};
use crate::monitors::{Distrust, HostMonitors, Suspicion};
use crate::mutation::{Broken, Mutation};
use crate::signals::{Heard, Signals};
use crate::status::{HeldReason, HostStatus, IncidentStatus, Notice};

/// What a step asks for. Records first, made durable in order; then actions; notices any time.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// To be made durable before any of the actions starts.
    pub journal: Vec<Record>,
    /// To be carried out.
    pub actions: Vec<Action>,
    /// To be told.
    pub notices: Vec<Notice>,
}

/// Without an input for this long, we were not there.
const ASLEEP: std::time::Duration = std::time::Duration::from_secs(5);
/// The finest time there is here.
const MILLISECOND: std::time::Duration = std::time::Duration::from_millis(1);

/// One host and what is known of it. Soft: a new process learns it anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) facts: Option<HostFacts>,
    pub(crate) signals: Signals,
    pub(crate) inventory: Option<(Mono, Inventory)>,
    pub(crate) suspicion: Option<Suspicion>,
    pub(crate) blind: bool,
    pub(crate) shutdown_announced: Option<Mono>,
    pub(crate) rebooted: Option<Mono>,
    /// When an incident of it was last called off.
    pub(crate) cancelled: Option<Mono>,
    pub(crate) dead_in: [bool; 9],
    /// The verdict of the latest round.
    pub(crate) evidence: Evidence,
    /// Since when every round found it dead beyond any doubt.
    pub(crate) overwhelming: Option<Mono>,
    pub(crate) monitors: HostMonitors,
    /// The latest round found it well, and since then nothing but signs of life was heard of it: as long as they are
    /// fresh, another look would find the same.
    pub(crate) calm: bool,
}

impl Host {
    fn told(&mut self, facts: &HostFacts) {
        if self.facts.as_ref() != Some(facts) {
            self.facts = Some(facts.clone());
            self.calm = false;
        }
    }

    fn service_seen(&mut self, facts: &ServiceFacts, now: Mono) {
        self.signals.nova.see(&facts.updated_at, now);
        match &mut self.signals.service {
            Some((at, known)) if known == facts => *at = now,
            known => *known = Some((now, facts.clone())),
        }
    }

    fn metrics_seen(&mut self, up: bool, now: Mono) {
        let before = self.signals.metrics.replace((now, up));
        self.calm &= before.is_some_and(|(_, was)| was == up);
    }

    fn storage_seen(&mut self, watcher: bool, now: Mono) {
        let before = self.signals.storage.replace((now, watcher));
        self.calm &= before.is_some_and(|(_, was)| was == watcher);
    }

    /// Takes a power reading. One that says On ends a proof at once, not with the next round.
    pub(crate) fn power_read(&mut self, power: Option<Power>, asked_at: Mono) {
        self.signals.power(power, asked_at);
        self.calm = false;
        if power == Some(Power::On) {
            self.evidence.groups[Group::B as usize] = GroupVerdict::default();
        }
    }
}

/// The term of this leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) since: Mono,
    pub(crate) renewed: Mono,
    next_action: u64,
    next_incident: u32,
}

/// What at most one action may be under way for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    Investigate(HostName),
    HostPower(HostName),
    HostList(HostName),
    Guest(ServerId),
    Zombie(HostName, ServerId),
    Double(ServerId),
    Resign,
    Maintenance,
    Claim,
    Eviction,
    Identify,
    Power,
    Off,
    Hold,
    Service,
    Update,
    Condition,
    List,
    Vm(ServerId),
    Fence,
    Restore,
    Spare(HostName),
}

type Key = (Option<IncidentId>, Slot);

/// A fact read for an incident: when it was asked for, and what it said.
pub(crate) type Read<T> = Option<(Mono, T)>;

/// What a leader knows of one guest it moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct VmRun {
    pub(crate) read: Read<(Option<ServerFacts>, Vec<MigrationFacts>)>,
    /// Nothing is sent before this moment.
    pub(crate) not_before: Mono,
    /// When the latest request was answered, or this term learnt that there was one.
    pub(crate) answered: Option<Mono>,
    /// When the first request left in this term.
    pub(crate) asked: Option<Mono>,
    pub(crate) since: Mono,
    pub(crate) stuck: bool,
    pub(crate) needs_reset: bool,
    pub(crate) live_seen: Option<Mono>,
}

/// Readings of Off in a row. Those too soon after the one before them count with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffReads {
    /// How many, far enough apart.
    pub(crate) count: u32,
    /// When the latest of those that count was asked for.
    counted: Mono,
    /// When the latest of all was asked for.
    pub(crate) last: Mono,
}

impl OffReads {
    /// One more, asked for at a moment.
    pub(crate) fn with(before: Option<Self>, asked: Mono, gap: std::time::Duration) -> Self {
        match before {
            None => Self {
                count: 1,
                counted: asked,
                last: asked,
            },
            Some(reads) if asked.since(reads.counted) >= gap => Self {
                count: reads.count.saturating_add(1),
                counted: asked,
                last: asked,
            },
            Some(reads) => Self { last: asked, ..reads },
        }
    }
}

/// What a leader knows of one incident besides the ledger. Every time in it began in this term.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) state: IncidentState,
    pub(crate) state_since: Mono,
    pub(crate) held: Option<HeldReason>,
    /// When people were last told why.
    pub(crate) held_told: Mono,
    pub(crate) maintenance: Read<Maintenance>,
    pub(crate) identity: Read<Identity>,
    pub(crate) service: Read<ServiceFacts>,
    /// When each slot may be used again, and how often it failed in a row.
    pub(crate) retry: BTreeMap<Slot, (Mono, u32)>,
    pub(crate) fence_since: Mono,
    pub(crate) level_since: Mono,
    /// When the latest power-off ended; readings asked for before it verify nothing.
    pub(crate) off_done: Option<Mono>,
    /// Off readings in a row.
    pub(crate) off_reads: Option<OffReads>,
    pub(crate) power_asked: Option<Mono>,
    pub(crate) power_on_seen: bool,
    pub(crate) power_answered: Mono,
    /// What the latest reading is worth, if it was not read from a device.
    pub(crate) presumed: Option<Grade>,
    /// When the fence was last seen to hold.
    pub(crate) hold_ok: Option<Mono>,
    pub(crate) eviction_stopped: bool,
    pub(crate) vms: BTreeMap<ServerId, VmRun>,
    pub(crate) group_since: BTreeMap<String, Mono>,
    pub(crate) healthy_since: Option<Mono>,
    /// Since when Nova has been seen to keep evacuations from the host on record.
    pub(crate) records_open: Option<Mono>,
    /// Maintenance is being given back because the host lived before its power was touched.
    pub(crate) restoring: bool,
    /// When everybody was last asked about the host of an incident that waits.
    pub(crate) investigated: Option<Mono>,
    /// People were told that there may be no room for its guests.
    pub(crate) told_room: bool,
    /// Nova found no place for one of its guests since spare hosts were last thought of.
    pub(crate) no_place: bool,
}

impl Run {
    fn new(state: IncidentState, now: Mono) -> Self {
        Self {
            state,
            state_since: now,
            held: None,
            held_told: now,
            maintenance: None,
            identity: None,
            service: None,
            retry: BTreeMap::new(),
            fence_since: now,
            level_since: now,
            off_done: None,
            off_reads: None,
            power_asked: None,
            power_on_seen: false,
            power_answered: now,
            presumed: None,
            hold_ok: None,
            eviction_stopped: false,
            vms: BTreeMap::new(),
            group_since: BTreeMap::new(),
            healthy_since: None,
            records_open: None,
            restoring: false,
            investigated: None,
            told_room: false,
            no_place: false,
        }
    }
}

/// The judgement of one replica.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) me: ReplicaId,
    pub(crate) broken: Broken,
    pub(crate) ledger: Ledger,
    pub(crate) hosts: BTreeMap<HostName, Host>,
    pub(crate) peers_heard: BTreeMap<ReplicaId, Mono>,
    pub(crate) canaries: Option<(Mono, usize, usize)>,
    pub(crate) own_host: Option<HostName>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) term: Option<Term>,
    pub(crate) runs: BTreeMap<IncidentId, Run>,
    outstanding: BTreeMap<Key, (ActionId, Mono)>,
    asked: BTreeMap<ActionId, Key>,
    pub(crate) distrust: [Distrust; 9],
    /// Of which groups people were told that they are not believed.
    pub(crate) told_untrusted: [bool; 9],
    pub(crate) storm_last: Option<Mono>,
    /// When each host was last in trouble, as far as that was within the storm's window.
    pub(crate) struck: BTreeMap<HostName, Mono>,
    pub(crate) self_isolated: bool,
    pub(crate) guests: Guests,
    pub(crate) zombies: BTreeSet<(HostName, ServerId)>,
    pub(crate) doubles: Doubles,
    round_at: Option<Mono>,
    /// Since when we have been awake, and when we last were.
    pub(crate) awake: Mono,
    stepped: Option<Mono>,
    out: Output,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config, me: ReplicaId) -> Self {
        Self {
            config,
            me,
            broken: Broken::default(),
            ledger: Ledger::default(),
            hosts: BTreeMap::new(),
            peers_heard: BTreeMap::new(),
            canaries: None,
            own_host: None,
            pauses: Vec::new(),
            term: None,
            runs: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            asked: BTreeMap::new(),
            distrust: <[Distrust; 9]>::default(),
            told_untrusted: [false; 9],
            storm_last: None,
            struck: BTreeMap::new(),
            self_isolated: false,
            guests: Guests::default(),
            zombies: BTreeSet::new(),
            doubles: Doubles::default(),
            round_at: None,
            awake: Mono(0),
            stepped: None,
            out: Output::default(),
        }
    }

    /// Makes the engine commit one mistake from now on.
    #[cfg(feature = "mutants")]
    pub fn break_on_purpose(&mut self, mutation: Mutation) {
        self.broken = Broken::by(mutation);
    }

    /// Makes the engine look at every host in every round, also at those of which it knows that they are well.
    #[cfg(feature = "mutants")]
    pub fn judge_everybody(&mut self) {
        self.broken = Broken::thorough();
    }

    /// Takes one input and says what follows.
    pub fn step(&mut self, input: Input, now: Now) -> Output {
        self.wake(now.mono);
        match input {
            Input::Tick => self.tick(now),
            Input::Saw(observation) => self.observe(&observation, now),
            Input::Outcome { id, result } => self.outcome(id, result, now),
            Input::Lead {
                epoch,
                sent_at,
                journal,
            } => self.lead(epoch, sent_at, &journal, now),
            Input::LeaseRenewed { sent_at } => {
                if let Some(term) = &mut self.term {
                    term.renewed = term.renewed.max(sent_at);
                }
            }
            Input::LeaseLost if self.broken.is(Mutation::IgnoreLease) => {}
            Input::LeaseLost | Input::JournalFailed => self.step_down(),
            Input::Command(command) => {
                if self.may_act(now.mono) {
                    self.command(command, now);
                    self.drive_all(now);
                }
            }
            Input::Request(request) => {
                if self.may_act(now.mono) {
                    self.request_recovery(&request, now);
                    self.drive_all(now);
                }
            }
            Input::Configure(config) => {
                self.config = *config;
                for host in self.hosts.values_mut() {
                    host.calm = false;
                }
            }
            Input::Pauses(pauses) => self.pauses = pauses,
        }
        std::mem::take(&mut self.out)
    }

    /// As a step with something that was seen, for those who want to keep it.
    pub fn see(&mut self, observation: &Observation, now: Now) -> Output {
        self.wake(now.mono);
        self.observe(observation, now);
        std::mem::take(&mut self.out)
    }

    /// A process that was frozen heard nothing meanwhile, and must not take that for silence.
    fn wake(&mut self, now: Mono) {
        let slept = self.stepped.is_none_or(|last| now.since(last) > ASLEEP);
        self.stepped = Some(now);
        if slept {
            self.awake = now;
        }
    }

    /// The durable half, for status and tests.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether this replica leads, and in which term.
    pub fn leads(&self) -> Option<Epoch> {
        self.term.map(|term| term.epoch)
    }

    /// What this replica hears of every host, for its peers.
    pub fn peer_view(&self, now: Mono) -> Vec<(HostName, PeerHost)> {
        let mut view = Vec::with_capacity(self.hosts.len());
        self.peer_view_into(now, &mut view);
        view
    }

    /// The same, into an earlier view: what is as it was is not written again.
    pub fn peer_view_into(&self, now: Mono, view: &mut Vec<(HostName, PeerHost)>) {
        view.truncate(self.hosts.len());
        for (n, (name, host)) in self.hosts.iter().enumerate() {
            let agent = &host.signals.agent;
            let age_ms = agent
                .last
                .map(|last| u64::try_from(now.since(last).as_millis()).unwrap_or(u64::MAX));
            match view.get_mut(n) {
                Some((known, seen)) if known == name && seen.boot == agent.boot => seen.age_ms = age_ms,
                known => {
                    let seen = PeerHost {
                        age_ms,
                        boot: agent.boot.clone(),
                    };
                    match known {
                        Some(entry) => *entry = (name.clone(), seen),
                        None => view.push((name.clone(), seen)),
                    }
                }
            }
        }
    }

    /// Whether an agent should do nothing by itself now: its host is being handled.
    pub fn hold_reactions(&self, host: &HostName) -> bool {
        let maintained = |facts: &HostFacts| !facts.maintenance.is_off();
        self.ledger.open_incident(host).is_some()
            || self
                .hosts
                .get(host)
                .and_then(|h| h.facts.as_ref())
                .is_some_and(maintained)
    }

    /// The next moment at which an agent will have been silent for too long, if it says nothing until
    /// then. A leader that is given a tick at that moment suspects its host without delay.
    pub fn next_silence(&self, now: Mono) -> Option<Mono> {
        self.term?;
        self.silences().filter(|at| *at > now).min()
    }

    /// One host as it is judged now.
    pub fn host_status(&self, host: &HostName, now: Now) -> Option<HostStatus> {
        let known = self.hosts.get(host)?;
        let evidence = self.evidence(known, now);
        Some(HostStatus {
            host: host.clone(),
            assessment: assess(&evidence, &self.config, self.broken),
            evidence,
            suspect: known.suspicion.is_some(),
            blind: known.blind,
            degraded: known.monitors.degraded.keys().copied().collect(),
            overwhelming_for: known.overwhelming.map(|since| now.mono.since(since)),
            incident: self
                .ledger
                .open_incident(host)
                .map(|incident| incident.id.clone()),
        })
    }

    /// Whether any host is suspected or in an open incident.
    pub fn watchful(&self) -> bool {
        self.hosts.values().any(|host| host.suspicion.is_some())
            || self
                .ledger
                .incidents
                .values()
                .any(|incident| incident.state.open())
    }

    /// All incidents.
    pub fn incidents(&self) -> Vec<IncidentStatus> {
        let count = |incident: &crate::ledger::Incident, wanted: fn(&VmProgress) -> bool| {
            incident.vms.values().filter(|vm| wanted(&vm.progress)).count()
        };
        self.ledger
            .incidents
            .values()
            .map(|incident| IncidentStatus {
                id: incident.id.clone(),
                state: incident.state,
                held: self.runs.get(&incident.id).and_then(|run| run.held),
                hold_checked: self.runs.get(&incident.id).and_then(|run| run.hold_ok),
                guests: [
                    incident.vms.len(),
                    count(incident, |p| matches!(p, VmProgress::Recovered { .. })),
                    count(incident, |p| matches!(p, VmProgress::Failed { .. })),
                    count(incident, |p| matches!(p, VmProgress::Skipped { .. })),
                    count(incident, |p| {
                        matches!(p, VmProgress::Blocked { .. } | VmProgress::Conflict { .. })
                    }),
                ],
            })
            .collect()
    }

    pub(crate) fn evidence(&self, host: &Host, now: Now) -> Evidence {
        let mut evidence = host
            .signals
            .evidence(now, self.awake, &self.config, host.blind, self.broken);
        self.distrust_in(&mut evidence, now.mono);
        evidence
    }

    /// Marks the groups that are not believed now.
    pub(crate) fn distrust_in(&self, evidence: &mut Evidence, now: Mono) {
        for group in Group::ALL {
            evidence.groups[group as usize].untrusted =
                self.distrust[group as usize].active(now, &self.config);
        }
    }

    // --- leadership

    fn lead(&mut self, epoch: Epoch, sent_at: Mono, journal: &[Record], now: Now) {
        self.step_down();
        match Ledger::replay(journal) {
            Ok(ledger) if ledger.epoch < epoch => self.ledger = ledger,
            // A journal that is ahead of us or damaged is nobody's to continue by guessing.
            Ok(_) | Err(_) => {
                let id = ActionId { epoch, n: 0 };
                let not_after = now.mono.after(self.config.renew_deadline);
                self.out.actions.push(Action {
                    id,
                    incident: None,
                    not_after,
                    effect: Effect::Resign,
                });
                return;
            }
        }
        self.term = Some(Term {
            epoch,
            since: now.mono,
            renewed: sent_at,
            next_action: 1,
            next_incident: 1,
        });
        for host in self.hosts.values_mut() {
            host.signals.heard_in_term = false;
            host.signals.forget_probes();
            host.suspicion = None;
            host.calm = false;
        }
        self.write(Entry::Led, now);
        for (id, incident) in &self.ledger.incidents {
            self.runs.insert(id.clone(), Run::new(incident.state, now.mono));
        }
        self.guests.resume(&self.ledger, now.mono);
    }

    fn step_down(&mut self) {
        self.term = None;
        self.runs.clear();
        self.outstanding.clear();
        self.asked.clear();
        self.guests = Guests::default();
        self.doubles = Doubles::default();
    }

    /// Whether effects may start now.
    pub(crate) fn may_act(&self, now: Mono) -> bool {
        self.term.is_some_and(|term| {
            now.since(term.renewed) < self.config.renew_deadline || self.broken.is(Mutation::IgnoreLease)
        })
    }

    // --- output

    pub(crate) fn write(&mut self, entry: Entry, now: Now) {
        let Some(term) = self.term else { return };
        let record = Record {
            version: VERSION,
            seq: self.ledger.seq + 1,
            epoch: term.epoch,
            at: now.wall,
            entry,
        };
        // Our own record is in sequence and about an incident we know.
        let _ = self.ledger.apply(&record);
        self.out.journal.push(record);
    }

    /// As [`Self::write`], but without the record: what a mutant forgets.
    pub(crate) fn pretend(&mut self, entry: Entry, now: Now) {
        self.write(entry, now);
        self.out.journal.pop();
        self.ledger.seq -= 1;
    }

    pub(crate) fn tell(&mut self, notice: Notice) {
        self.out.notices.push(notice);
    }

    pub(crate) fn busy(&self, incident: Option<&IncidentId>, slot: &Slot) -> bool {
        self.outstanding.contains_key(&(incident.cloned(), slot.clone()))
    }

    pub(crate) fn act(&mut self, incident: Option<&IncidentId>, slot: Slot, effect: Effect, now: Now) {
        self.act_until(incident, slot, effect, Mono(u64::MAX), now);
    }

    pub(crate) fn act_until(
        &mut self,
        incident: Option<&IncidentId>,
        slot: Slot,
        effect: Effect,
        until: Mono,
        now: Now,
    ) {
        let key = (incident.cloned(), slot);
        let Some(term) = &mut self.term else { return };
        if self.outstanding.contains_key(&key) {
            return;
        }
        let id = ActionId {
            epoch: term.epoch,
            n: term.next_action,
        };
        term.next_action += 1;
        let lease = if self.broken.is(Mutation::IgnoreLease) {
            Mono(u64::MAX)
        } else {
            term.renewed.after(self.config.renew_deadline)
        };
        self.outstanding.insert(key.clone(), (id, now.mono));
        self.asked.insert(id, key);
        let action = Action {
            id,
            incident: incident.cloned(),
            not_after: lease.min(until),
            effect,
        };
        self.out.actions.push(action);
    }

    pub(crate) fn next_incident(&mut self, host: &HostName) -> Option<IncidentId> {
        let term = self.term.as_mut()?;
        let id = IncidentId {
            epoch: term.epoch,
            n: term.next_incident,
            host: host.clone(),
        };
        term.next_incident += 1;
        Some(id)
    }

    pub(crate) fn run(&mut self, id: &IncidentId, now: Now) -> &mut Run {
        let state = self
            .ledger
            .incidents
            .get(id)
            .map_or(IncidentState::Closed, |i| i.state);
        self.runs
            .entry(id.clone())
            .or_insert_with(|| Run::new(state, now.mono))
    }

    // --- input

    fn tick(&mut self, now: Now) {
        if !self.may_act(now.mono) {
            return;
        }
        self.forget_lost_actions(now);
        let due = self.round_at.is_none_or(|at| {
            now.mono.since(at) >= std::time::Duration::from_secs(1) || self.fell_silent(at, now.mono)
        });
        if due {
            self.round_at = Some(now.mono);
            self.round(now);
        }
        self.drive_all(now);
    }

    /// Whether the silence of some agent became too long since `then`: worth a round of its own.
    fn fell_silent(&self, then: Mono, now: Mono) -> bool {
        self.silences().any(|at| then < at && at <= now)
    }

    /// When the silence of each agent is or was too long, if it says nothing more.
    fn silences(&self) -> impl Iterator<Item = Mono> {
        let too_long = self.config.silent_after + MILLISECOND;
        let heard = self.hosts.values().filter_map(|host| host.signals.last_heard());
        heard.map(move |last| last.after(too_long))
    }

    /// The caller owes an answer within ten seconds. One that never comes is an unknown outcome.
    fn forget_lost_actions(&mut self, now: Now) {
        let lost: Vec<_> = self
            .outstanding
            .values()
            .filter(|(_, at)| now.mono.since(*at) > std::time::Duration::from_secs(30))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.outcome(id, Err(Trouble::Unknown), now);
        }
    }

    fn outcome(&mut self, id: ActionId, result: Result<Answer, Trouble>, now: Now) {
        let Some(key) = self.asked.remove(&id) else {
            return;
        };
        let Some((_, asked_at)) = self.outstanding.remove(&key) else {
            return;
        };
        match key {
            (Some(incident), slot) => {
                self.recovery_outcome(&incident, slot, asked_at, result, now);
                if self.may_act(now.mono) {
                    self.drive(&incident, now);
                }
            }
            (None, Slot::HostPower(host)) => {
                if let Some(host) = self.hosts.get_mut(&host) {
                    let power = match result {
                        Ok(Answer::Power(power)) => Some(power),
                        _ => None,
                    };
                    host.power_read(power, asked_at);
                }
            }
            (None, Slot::Guest(server)) => self.guest_outcome(&server, asked_at, result, now),
            (None, Slot::Double(server)) => self.double_outcome(&server, result, now),
            (None, Slot::HostList(host)) => self.host_list_outcome(&host, result, now),
            (None, _) => {}
        }
    }

    /// Keeps of an observation what is news: a fleet that does nothing costs next to nothing.
    fn observe(&mut self, observation: &Observation, now: Now) {
        match observation {
            Observation::Host(facts) => {
                let host = self.hosts.entry(facts.host.clone()).or_default();
                host.told(facts);
            }
            Observation::HostGone(host) => {
                self.hosts.remove(host);
            }
            Observation::Heartbeat(beat) => self.heartbeat(beat, now),
            Observation::Inventory(inventory) => self.inventory(inventory, now),
            Observation::Guest(event) => self.guest_event(event, now),
            Observation::Services(services) => {
                for_each_known(&mut self.hosts, services, |host, facts| {
                    host.service_seen(facts, now.mono);
                });
            }
            Observation::NodeLeases(leases) => {
                for_each_known(&mut self.hosts, leases, |host, token| {
                    host.signals.lease.see(token, now.mono);
                });
            }
            Observation::Probe {
                host,
                by,
                asked_at,
                result,
            } => {
                let rack = match by {
                    crate::input::Prober::Peer(peer) => self.rack_of(peer),
                    crate::input::Prober::Replica(_) => None,
                };
                if let Some(host) = self.hosts.get_mut(host) {
                    host.signals.probe(by.clone(), rack, *asked_at, *result);
                    host.calm = false;
                }
            }
            Observation::Metrics { host, up } => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.metrics_seen(*up, now.mono);
                }
            }
            Observation::Storage { host, watcher } => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.storage_seen(*watcher, now.mono);
                }
            }
            Observation::Trouble { host, what, holds } => self.metrics_told(host, *what, *holds, now),
            Observation::Peer { replica, hosts } => {
                if *replica == self.me {
                    return;
                }
                self.peers_heard.insert(*replica, now.mono);
                for_each_known(&mut self.hosts, hosts, |host, seen| {
                    host.signals.peer(*replica, seen, now.mono);
                });
            }
            Observation::Canaries { ok, total } => self.canaries = Some((now.mono, *ok, *total)),
            Observation::OwnHost(host) => self.own_host = Some(host.clone()),
        }
    }

    pub(crate) fn rack_of(&self, host: &HostName) -> Option<crate::ids::Domain> {
        self.hosts.get(host)?.facts.as_ref()?.domains.last().cloned()
    }

    fn heartbeat(&mut self, beat: &crate::input::Heartbeat, now: Now) {
        let Some(host) = self.hosts.get_mut(&beat.host) else {
            return;
        };
        let libvirt = host.signals.agent.libvirt;
        let heard = host.signals.agent.hear(beat, now.mono);
        if heard == Heard::Nothing {
            return;
        }
        host.calm &= heard == Heard::Life && beat.libvirt == libvirt;
        host.signals.heard_in_term = true;
        host.shutdown_announced = match (beat.planned_shutdown, host.shutdown_announced) {
            (true, None) => Some(now.mono),
            (true, since) => since,
            (false, _) => None,
        };
        if heard == Heard::NewBoot {
            host.rebooted = Some(now.mono);
            host.inventory = None;
        }
        if !self.may_act(now.mono) {
            return;
        }
        let incident = self.ledger.open_incident(&beat.host);
        if let Some(incident) = incident.map(|incident| incident.id.clone()) {
            self.drive(&incident, now);
        }
    }

    fn inventory(&mut self, inventory: &Inventory, now: Now) {
        let Some(host) = self.hosts.get_mut(&inventory.host) else {
            return;
        };
        // Only the boot that speaks now, and only what is newer than what is known.
        if host
            .signals
            .agent
            .boot
            .as_ref()
            .is_some_and(|boot| *boot != inventory.boot)
        {
            return;
        }
        let old = host.inventory.as_ref().is_some_and(|(_, known)| {
            known.agent == inventory.agent
                && (inventory.starts, inventory.version) < (known.starts, known.version)
        });
        if old {
            return;
        }
        match &mut host.inventory {
            Some((at, known)) if known.lists_as(inventory) => {
                *at = now.mono;
                known.version = inventory.version;
            }
            known => {
                *known = Some((now.mono, inventory.clone()));
                self.doubles.compare_again();
            }
        }
        if self.may_act(now.mono) {
            self.find_zombies(&inventory.host, now);
        }
    }
}

/// Does something with every host that is named. Lists mostly come in the order of names, as hosts are kept; then nobody
/// need be searched for.
fn for_each_known<T>(
    hosts: &mut BTreeMap<HostName, Host>,
    named: &[(HostName, T)],
    mut with: impl FnMut(&mut Host, &T),
) {
    let mut strays = Vec::new();
    let mut known = hosts.iter_mut();
    let mut here = known.next();
    for (name, what) in named {
        while here.as_ref().is_some_and(|(at, _)| *at < name) {
            here = known.next();
        }
        match &mut here {
            Some((at, host)) if *at == name => with(host, what),
            _ => strays.push((name, what)),
        }
    }
    for (name, what) in strays {
        if let Some(host) = hosts.get_mut(name) {
            with(host, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_off_count_when_they_are_far_enough_apart() {
        let gap = std::time::Duration::from_secs(2);
        let mut reads = None;
        let mut counts = Vec::new();
        for ms in [0, 1000, 1999, 2000, 3000, 4500, 5000, 9000] {
            let now = OffReads::with(reads, Mono(ms), gap);
            assert_eq!(now.last, Mono(ms));
            counts.push(now.count);
            reads = Some(now);
        }
        assert_eq!(counts, [1, 1, 1, 2, 2, 3, 3, 4]);
    }
}
