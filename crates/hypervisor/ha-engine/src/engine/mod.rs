// SPDX-License-Identifier: Apache-2.0
//! The engine: takes one input at a time, keeps the durable ledger and the soft state beside it,
//! and lets monitors, gates and recovery say what follows. This module holds leadership and the
//! dispatch; judgement lives in the others.

mod hosts;
mod observe;
mod state;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::action::{Action, Effect};
use crate::company::Gone;
use crate::config::Config;
use crate::doubles::Doubles;
use crate::evidence::Evidence;
use crate::guests::Guests;
use crate::ids::{ActionId, DeviceClass, Epoch, IncidentId, Mono, Now, ReplicaId};
use crate::input::{Answer, Input, Observation, Pause, Trouble};
use crate::journal::{Entry, Record, VERSION};
use crate::ledger::{Incident, IncidentState, Ledger};
use crate::monitors::Distrust;
use crate::mutation::{Broken, Mutation};
use crate::status::Notice;

use hosts::Hosts;
use state::Term;
pub(crate) use state::{Host, OffReads, Run, Seen, Slot, VmRun};

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
const ASLEEP: Duration = Duration::from_secs(5);
/// The finest time there is here.
const MILLISECOND: Duration = Duration::from_millis(1);

type Key = (Option<IncidentId>, Slot);

/// The judgement of one replica.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) me: ReplicaId,
    pub(crate) broken: Broken,
    pub(crate) ledger: Ledger,
    pub(crate) hosts: Hosts,
    pub(crate) peers_heard: BTreeMap<ReplicaId, Mono>,
    pub(crate) canaries: Option<(Mono, usize, usize)>,
    pub(crate) own_host: Option<HostName>,
    /// Nothing before somebody said which there are.
    pub(crate) pauses: Option<Vec<Pause>>,
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
    /// Since when another replica has been hearing the hosts that we do not.
    pub(crate) deaf_since: Option<Mono>,
    pub(crate) guests: Guests,
    pub(crate) zombies: BTreeSet<(HostName, ServerId)>,
    pub(crate) doubles: Doubles,
    /// Classes of device of which people were told that they fail on many hosts.
    pub(crate) outages: BTreeSet<Option<DeviceClass>>,
    round_at: Option<Mono>,
    /// Since when we have been awake, and when we last were.
    pub(crate) awake: Mono,
    stepped: Option<Mono>,
    /// Until when most replicas heard too little of the fleet, and when that was last looked at.
    pub(crate) deaf_until: Option<Mono>,
    pub(crate) hearing_at: Option<Mono>,
    /// Some agent has a watchdog.
    pub(crate) watchdogs: bool,
    /// Hosts that are not ours any more, and may go on all the same.
    pub(crate) gone: Gone,
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
            hosts: Hosts::default(),
            peers_heard: BTreeMap::new(),
            canaries: None,
            own_host: None,
            pauses: None,
            term: None,
            runs: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            asked: BTreeMap::new(),
            distrust: <[Distrust; 9]>::default(),
            told_untrusted: [false; 9],
            storm_last: None,
            struck: BTreeMap::new(),
            self_isolated: false,
            deaf_since: None,
            guests: Guests::default(),
            zombies: BTreeSet::new(),
            doubles: Doubles::default(),
            outages: BTreeSet::new(),
            round_at: None,
            awake: Mono(0),
            deaf_until: None,
            hearing_at: None,
            watchdogs: false,
            gone: Gone::default(),
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
            // Whoever leads knows better than any reader.
            Input::Follow(_) if self.term.is_some() => {}
            Input::Follow(ledger) => self.follow_journal(*ledger),
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
                // What a device said counts for that device, and it may be another now.
                for run in self.runs.values_mut() {
                    (run.identity, run.off_reads, run.hold_ok) = (None, None, None);
                }
            }
            Input::Pauses(pauses) => self.pauses = Some(pauses),
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

    // --- leadership

    fn lead(&mut self, epoch: Epoch, sent_at: Mono, journal: &[Record], now: Now) {
        self.step_down();
        match Ledger::replay(journal) {
            Ok(ledger) if ledger.epoch < epoch => self.follow_journal(ledger),
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
        self.guests.resume(&self.ledger, self.config.restart_window, now);
        self.resume_storm(now);
    }

    /// Takes what others wrote. A host whose incident a person ended is theirs, whoever leads next, until it is heard.
    fn follow_journal(&mut self, ledger: Ledger) {
        let before = std::mem::replace(&mut self.ledger, ledger);
        for incident in self.ledger.incidents.values() {
            let known = before.incidents.get(&incident.id);
            let Some(host) = self.hosts.get_mut(&incident.id.host) else {
                continue;
            };
            host.ended |=
                incident.state == IncidentState::Closed && known.is_some_and(|known| known.state.open());
            // What it did before somebody signed says nothing against that signature.
            if incident.state.open() && incident.by_word() {
                host.spoke &= known.is_some_and(Incident::by_word);
            }
        }
    }

    fn step_down(&mut self) {
        self.term = None;
        self.runs.clear();
        self.outstanding.clear();
        self.asked.clear();
        self.guests.step_down();
        self.deaf_since = None;
        self.doubles = Doubles::default();
        // Only who leads judges, so what was judged grows old from now on.
        for host in self.hosts.values_mut() {
            (host.evidence, host.calm) = (Evidence::default(), false);
        }
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

    pub(crate) fn next_incident(&mut self, host: &HostName, now: Now) -> Option<IncidentId> {
        let term = self.term.as_mut()?;
        let id = IncidentId {
            epoch: term.epoch,
            n: term.next_incident,
            host: host.clone(),
            opened_ms: u64::try_from(now.wall.as_millisecond()).ok(),
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
        self.watch_hearing(now);
        if !self.may_act(now.mono) {
            return;
        }
        self.forget_lost_actions(now);
        let due = self
            .round_at
            .is_none_or(|at| now.mono.since(at) >= Duration::from_secs(1) || self.fell_silent(at, now.mono));
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

    /// The caller owes an answer within ten seconds of the start, which waits for the journal. One that never comes may have
    /// been started or not.
    fn forget_lost_actions(&mut self, now: Now) {
        let patience = |slot: &Slot| match slot {
            // Whether it left decides whether the host is let alone.
            Slot::Off => Duration::from_mins(3),
            _ => Duration::from_secs(30),
        };
        let lost: Vec<_> = self
            .outstanding
            .iter()
            .filter(|((_, slot), (_, at))| now.mono.since(*at) > patience(slot))
            .map(|(_, (id, _))| *id)
            .collect();
        for id in lost {
            self.outcome(id, Err(Trouble::Lost), now);
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
}
