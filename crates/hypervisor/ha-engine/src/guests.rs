// SPDX-License-Identifier: Apache-2.0
//! Single guests that died on a living host: restarted in place, through Nova, a few times, if
//! their owner wants it and did not stop them. Never moved: the host is alive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::config::VmPolicy;
use crate::engine::{Engine, Slot};
use crate::evidence::{Group, Verdict};
use crate::gates::CLOCKS_DIFFER;
use crate::ids::{Mono, Now};
use crate::input::{Answer, ServerFacts, Trouble, VmState};
use crate::journal::Entry;
use crate::ledger::Ledger;
use crate::monitors::Reboot;
use crate::status::Notice;

const SECOND: Duration = Duration::from_secs(1);
/// Nova handles a stop after 15 seconds of its own; earlier it would undo what we do.
const SETTLING: Duration = Duration::from_secs(20);

/// A guest that is being looked after.
#[derive(Clone, Debug)]
struct Case {
    host: HostName,
    since: Mono,
    /// How long ago it had crashed then. The clock of a new service does not reach back that far.
    age: Duration,
    not_before: Mono,
    /// When we last looked after it.
    looked: Mono,
    /// A restart of the host took it, not a crash: every guest that ran is started.
    by_reboot: bool,
    read: Option<(Mono, Option<ServerFacts>)>,
    /// When it was last restarted, while it is looked at what came of it.
    restarted: Option<Mono>,
    /// It was restarted, and that did not help.
    in_vain: bool,
}

impl Case {
    /// Whether a boot took it, and nobody has looked after it for so long that it may be down for another reason by now.
    fn lapsed(&self, now: Mono) -> bool {
        self.by_reboot && now.since(self.looked) > Reboot::LATELY
    }

    /// Whether it may be looked after: whoever crashed in a storm waits for its end.
    fn due(&self, storm: bool, now: Mono) -> bool {
        let waits = storm && !self.by_reboot && self.restarted.is_none();
        self.not_before <= now && !waits
    }
}

/// What is to be done about one.
enum Next {
    Restart(Effect),
    /// Something has to be over first, or known.
    Wait,
    /// It is nobody's case any more.
    Leave,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    cases: BTreeMap<ServerId, Case>,
    restarts: BTreeMap<ServerId, VecDeque<Mono>>,
    crashes: VecDeque<Mono>,
    storm: bool,
    /// When the watchdogs of guests fired lately.
    watchdogs: BTreeMap<ServerId, VecDeque<Mono>>,
}

/// How long a host may take to list its guests after one of them crashed.
const LISTED: Duration = Duration::from_secs(180);
/// How long a restart may take to show.
const SHOWS: Duration = Duration::from_secs(120);
/// How many guests Nova is asked for or told to restart at once: those that wait their turn there would be too late.
const AT_ONCE: usize = 8;
/// Within what time the order to restart a guest leaves, or not at all: its owner may stop it meanwhile.
const LEAVES: Duration = Duration::from_secs(3);
/// For how long whoever does not lead remembers a crash: longer than it takes to lead.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Guests {
    /// Restarts that a predecessor wrote down count from now: rather too few restarts than too many. Those of an hour
    /// that is long over do not, whatever the clock says. Nor is a boot of long ago why a guest does not run now.
    pub(crate) fn resume(&mut self, ledger: &Ledger, window: Duration, now: Now) {
        self.cases.retain(|_, case| !case.lapsed(now.mono));
        for (server, restarts) in &ledger.restarts {
            let age = Duration::try_from(now.wall.duration_since(restarts.at)).unwrap_or_default();
            if age <= window + CLOCKS_DIFFER {
                let past = (0..restarts.count).map(|_| now.mono).collect();
                self.restarts.insert(server.clone(), past);
            }
        }
    }

    /// Whoever leads next may be somebody else, or we. Crashes are remembered, and what a reboot left behind: the boot is
    /// looked into once, and nobody else may lead. What was done about them is in the journal.
    pub(crate) fn step_down(&mut self) {
        let cases = std::mem::take(&mut self.cases);
        let crashes = std::mem::take(&mut self.crashes);
        let left = |mut case: Case| {
            case.read = None;
            case.restarted = None;
            case
        };
        *self = Self {
            cases: cases
                .into_iter()
                .map(|(server, case)| (server, left(case)))
                .collect(),
            crashes,
            ..Self::default()
        };
    }
}

impl Engine {
    /// A guest crashed. Everybody remembers it: whoever leads may be gone before it did anything about it. Of a crash
    /// that is heard of late, nobody knows what its owner and others did since.
    pub(crate) fn guest_crashed(&mut self, host: &HostName, server: &ServerId, age: Duration, now: Now) {
        if age > REMEMBERED {
            return;
        }
        let leads = self.term.is_some();
        let crashes = &mut self.guests.crashes;
        crashes.push_back(now.mono);
        while crashes
            .front()
            .is_some_and(|at| now.mono.since(*at) > SECOND * 60)
        {
            crashes.pop_front();
        }
        if !leads {
            let lately = |case: &Case| now.mono.since(case.since) + case.age <= REMEMBERED;
            let kept = |case: &Case| {
                if case.by_reboot {
                    !case.lapsed(now.mono)
                } else {
                    lately(case)
                }
            };
            self.guests.cases.retain(|_, case| kept(case));
        }
        let most = self.config.monitors.instance_crashed.storm_per_minute;
        let count = self.guests.crashes.len();
        let storm = count > most;
        if storm && !self.guests.storm && leads {
            self.tell(Notice::GuestStorm { crashes: count });
        }
        self.guests.storm = storm;
        self.open_case(host, server, Some(age), now);
    }

    /// The watchdog of a guest fired at a moment that still counts. One that fires again and again is told of, once, and
    /// the guest is not restarted before it has been calm for a while: that is no crash that a restart could mend.
    pub(crate) fn guest_watchdog(&mut self, host: &HostName, server: &ServerId, at: Mono, now: Now) {
        let watched = self.config.monitors.watchdog_storm;
        let watchdogs = &mut self.guests.watchdogs;
        let lately = |at: &Mono| now.mono.since(*at) <= watched.guest_window;
        watchdogs.retain(|_, fired| fired.back().is_some_and(lately));
        let fired = watchdogs.entry(server.clone()).or_default();
        let before = fired.iter().filter(|at| lately(at)).count();
        fired.push_back(at);
        while fired.len() > watched.guest_events {
            fired.pop_front();
        }
        let after = fired.iter().filter(|at| lately(at)).count();
        if before < watched.guest_events && after == watched.guest_events {
            self.tell(Notice::GuestWatchdogs {
                host: host.clone(),
                server: server.clone(),
            });
        }
    }

    fn watchdog_storm(&self, server: &ServerId, now: Mono) -> bool {
        let watched = self.config.monitors.watchdog_storm;
        let fired = self.guests.watchdogs.get(server);
        let lately = |at: &&Mono| now.since(**at) <= watched.guest_window;
        fired.is_some_and(|fired| fired.iter().filter(lately).count() >= watched.guest_events)
    }

    /// A guest its rebooted host did not bring back.
    pub(crate) fn guest_missing(&mut self, host: &HostName, server: &ServerId, now: Now) {
        self.open_case(host, server, None, now);
    }

    /// One that crashed so long ago, or else was not brought back by a reboot.
    fn open_case(&mut self, host: &HostName, server: &ServerId, crashed: Option<Duration>, now: Now) {
        let by_reboot = crashed.is_none();
        let case = Case {
            host: host.clone(),
            since: now.mono,
            age: crashed.unwrap_or_default(),
            not_before: now.mono.after(if by_reboot { Duration::ZERO } else { SETTLING }),
            looked: now.mono,
            by_reboot,
            read: None,
            restarted: None,
            in_vain: false,
        };
        let known = self
            .guests
            .cases
            .entry(server.clone())
            .or_insert_with(|| case.clone());
        // It crashed again while it was looked at whether a restart had helped.
        if known.restarted.is_some() && !by_reboot {
            *known = Case {
                in_vain: true,
                ..case
            };
        }
    }

    /// Whether so many guests crashed within the last minute that it is no matter of single guests.
    fn guest_storm(&self, now: Mono) -> bool {
        let lately = |at: &&Mono| now.since(**at) <= SECOND * 60;
        let crashes = self.guests.crashes.iter().filter(lately).count();
        crashes > self.config.monitors.instance_crashed.storm_per_minute
    }

    pub(crate) fn drive_guests(&mut self, now: Now) {
        let storm = self.guest_storm(now.mono);
        let due = self.guests.cases.iter();
        let due = due.filter(|(_, case)| case.due(storm, now.mono));
        let mut due: Vec<(Option<Mono>, ServerId)> = due
            .map(|(server, case)| (case.read.as_ref().map(|(asked, _)| *asked), server.clone()))
            .collect();
        due.sort();
        let busy = |engine: &Self, server: &ServerId| engine.busy(None, &Slot::Guest(server.clone()));
        let mut asked = due.iter().filter(|(_, server)| busy(self, server)).count();
        for (_, server) in due {
            if asked >= AT_ONCE {
                return;
            }
            let before = busy(self, &server);
            self.drive_guest(&server, false, now);
            asked += usize::from(!before && busy(self, &server));
        }
    }

    /// Moves one case on. A guest is restarted only by an answer of Nova that has just come: its owner may have stopped it
    /// since an older one.
    fn drive_guest(&mut self, server: &ServerId, answered: bool, now: Now) {
        let Some(case) = self.guests.cases.get_mut(server) else {
            return;
        };
        case.looked = now.mono;
        let case = case.clone();
        let fresh = case.read.as_ref().filter(|(asked, _)| {
            now.mono.since(*asked) <= SECOND * 10 && case.restarted.is_none_or(|at| *asked > at)
        });
        let Some((_, facts)) = fresh else {
            self.ask_for_guest(server, now);
            return;
        };
        let shown = self.guest_runs(server, &case, now);
        if let Some(restarted) = case.restarted {
            if shown == Some(true) {
                self.guests.cases.remove(server);
                self.tell(Notice::GuestRestarted {
                    host: case.host,
                    server: server.clone(),
                });
            } else if now.mono.since(restarted) > SHOWS
                && let Some(case) = self.guests.cases.get_mut(server)
            {
                // It is decided anew, and perhaps tried once more.
                (case.restarted, case.read, case.in_vain) = (None, None, true);
                case.not_before = now.mono;
            }
            return;
        }
        match self.decide_guest(facts.as_ref(), &case, shown, now) {
            Next::Restart(effect) if answered => self.restart_guest(server, &case.host, effect, now),
            Next::Restart(_) => self.ask_for_guest(server, now),
            Next::Wait => {}
            Next::Leave => {
                self.guests.cases.remove(server);
                if case.in_vain && shown != Some(true) && facts.is_some() {
                    self.tell(Notice::GuestGaveUp {
                        host: case.host,
                        server: server.clone(),
                    });
                }
            }
        }
    }

    fn ask_for_guest(&mut self, server: &ServerId, now: Now) {
        let (slot, server) = (Slot::Guest(server.clone()), server.clone());
        self.act(None, slot, Effect::ReadServer { server }, now);
    }

    /// Whether its host shows the guest, if it listed its guests lately, and after what happened to it.
    fn guest_runs(&self, server: &ServerId, case: &Case, now: Now) -> Option<bool> {
        let (at, inventory) = self.hosts.get(&case.host)?.inventory.as_ref()?;
        let happened = match case.restarted {
            Some(restarted) => restarted,
            // The list of the new boot is what opened the case.
            None if case.by_reboot => Mono(0),
            None => case.since,
        };
        // A predecessor may have restarted it just before we began to lead.
        let restarted = self.guests.restarts.get(server).and_then(|past| past.back());
        let after = happened.max(restarted.copied().unwrap_or(Mono(0)));
        let fresh = now.mono.since(*at) <= self.config.inventory_fresh;
        (*at >= after && fresh).then(|| inventory.domains.active(server))
    }

    /// What is to be done about a guest that its host does not run, as Nova has it.
    fn decide_guest(&self, facts: Option<&ServerFacts>, case: &Case, shown: Option<bool>, now: Now) -> Next {
        let Some(facts) = facts.filter(|facts| self.wants_restart(facts, case, now)) else {
            return Next::Leave;
        };
        match shown {
            Some(true) => return Next::Leave,
            // Its host has not listed its guests since; what it said before is no answer.
            None if now.mono.since(case.not_before) <= LISTED => return Next::Wait,
            None => return Next::Leave,
            Some(false) => {}
        }
        let Some(host) = self.hosts.get(&case.host) else {
            return Next::Leave;
        };
        let heard = self.evidence(host, now).of(Group::A).verdict == Verdict::Alive;
        // Pauses that nobody could read yet may be about this guest.
        let paused = self.pauses.is_none() || self.paused(&case.host) || self.paused_server(&facts.id);
        if !heard || host.suspicion.is_some() || paused {
            return Next::Wait;
        }
        let server = facts.id.clone();
        Next::Restart(match facts.state {
            VmState::Stopped => Effect::Start { server },
            _ => Effect::RebootHard { server },
        })
    }

    fn wants_restart(&self, facts: &ServerFacts, case: &Case, now: Now) -> bool {
        let asked_for = match facts.policy {
            _ if facts.excluded => false,
            Some(VmPolicy::Ignore) => false,
            Some(_) => true,
            None if case.by_reboot => self.config.default_policy != VmPolicy::Ignore,
            None => self.config.restart_by_default,
        };
        let state = match facts.state {
            VmState::Active => true,
            // Nova saw the crash and wrote it down as a stop.
            VmState::Stopped => !case.by_reboot,
            _ => false,
        };
        let window = now.mono.since(case.since) + case.age + SECOND * 60;
        let by_owner = facts
            .user_action_ms
            .is_some_and(|ms| Duration::from_millis(ms) <= window);
        asked_for
            && state
            && facts.task.is_empty()
            && facts.host.as_ref() == Some(&case.host)
            && !by_owner
            && !self.watchdog_storm(&facts.id, now.mono)
            && self.ledger.open_incident(&case.host).is_none()
            && !self.being_moved(&facts.id)
    }

    /// Whether an incident brings it here or elsewhere right now. How it ends, running or stopped, is that incident's.
    fn being_moved(&self, server: &ServerId) -> bool {
        let mut open = self
            .ledger
            .incidents
            .values()
            .filter(|incident| incident.state.open());
        open.any(|incident| incident.vms.get(server).is_some_and(|vm| !vm.progress.terminal()))
    }

    fn restart_guest(&mut self, server: &ServerId, host: &HostName, effect: Effect, now: Now) {
        let window = self.config.restart_window;
        let max = self.config.max_restarts;
        self.guests
            .restarts
            .retain(|_, past| past.back().is_some_and(|at| now.mono.since(*at) <= window));
        let past = self.guests.restarts.entry(server.clone()).or_default();
        while past.front().is_some_and(|at| now.mono.since(*at) > window) {
            past.pop_front();
        }
        let n = past.len();
        if n >= max {
            self.guests.cases.remove(server);
            self.tell(Notice::GuestGaveUp {
                host: host.clone(),
                server: server.clone(),
            });
            return;
        }
        let pause = [0, 60, 300].get(n).copied().unwrap_or(300);
        let last = past.back().copied();
        if let Some(case) = self.guests.cases.get_mut(server)
            && last.is_some_and(|at| now.mono.since(at) < SECOND * pause)
        {
            case.not_before = last.unwrap_or(now.mono).after(SECOND * pause);
            return;
        }
        if let Some(past) = self.guests.restarts.get_mut(server) {
            past.push_back(now.mono);
        }
        if let Some(case) = self.guests.cases.get_mut(server) {
            case.restarted = Some(now.mono);
        }
        let n = u32::try_from(n + 1).unwrap_or(u32::MAX);
        self.write(
            Entry::RestartIntended {
                host: host.clone(),
                server: server.clone(),
                n,
            },
            now,
        );
        let until = now.mono.after(LEAVES);
        self.act_until(None, Slot::Guest(server.clone()), effect, until, now);
    }

    pub(crate) fn guest_outcome(
        &mut self,
        server: &ServerId,
        asked: Mono,
        result: Result<Answer, Trouble>,
        now: Now,
    ) {
        let (storm, acts) = (self.guest_storm(now.mono), self.may_act(now.mono));
        let Some(case) = self.guests.cases.get_mut(server) else {
            return;
        };
        if matches!(result, Err(Trouble::NotStarted)) && case.restarted.is_some() {
            // It counts as no restart, for us; whoever leads next knows only that it was intended.
            (case.restarted, case.read) = (None, None);
            case.not_before = now.mono.after(SECOND);
            if let Some(past) = self.guests.restarts.get_mut(server) {
                past.pop_back();
            }
            return;
        }
        let Ok(Answer::Server { server: facts, .. }) = result else {
            // Nova is asked what came of it.
            case.not_before = now.mono.after(SECOND * 5);
            return;
        };
        case.read = Some((asked, facts));
        if case.due(storm, now.mono) && acts {
            self.drive_guest(server, true, now);
        }
    }
}
