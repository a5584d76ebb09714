// SPDX-License-Identifier: Apache-2.0
//! Whether a local repair may be made. Pure: everything was looked at right before; what could not be told forbids it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{DomainState, Job};
use uuid::Uuid;

use crate::config::{Action, Reaction};

/// Nova handles a stop 15 seconds after it; from half of that on a start would race with it.
const START_WITHIN: Duration = Duration::from_secs(8);
/// A host that has not heard of the service for this long repairs nothing.
const CONTACT_WITHIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_hours(1);

/// What may call for a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A virtual watchdog fired and nothing was done about it, or the guest was paused.
    Watchdog,
    /// A guest ended without being asked.
    Crash,
    /// A guest stands still because of a disk.
    IoError,
}

impl Trigger {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watchdog => "watchdog",
            Self::Crash => "crash",
            Self::IoError => "ioerror",
        }
    }
}

/// What forbids a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The configuration only reports.
    Report,
    /// The host is in maintenance, fenced, released, or about to shut down.
    Hold,
    /// The service was not reached lately.
    Isolated,
    /// Something is being done to the guest, or nobody could tell.
    Job,
    /// The guest is no longer in the state that called for it.
    StateChanged,
    /// Too late.
    TooLate,
    /// The guest ran too short a time, or nobody could tell how long.
    Young,
    /// Not so soon again.
    Cooldown,
    /// Often enough for this guest.
    DomainLimit,
    /// Often enough for this host.
    HostLimit,
    /// The disk cannot be read, or not from here.
    DiskUnreadable,
}

impl Guard {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Hold => "hold",
            Self::Isolated => "isolated",
            Self::Job => "job",
            Self::StateChanged => "state_changed",
            Self::TooLate => "too_late",
            Self::Young => "young",
            Self::Cooldown => "cooldown",
            Self::DomainLimit => "domain_limit",
            Self::HostLimit => "host_limit",
            Self::DiskUnreadable => "disk_unreadable",
        }
    }
}

/// What was seen right before.
#[derive(Clone, Debug)]
pub struct Look {
    /// What is being done to the guest; nothing if nobody could tell.
    pub job: Option<Job>,
    /// Its state; nothing if nobody could tell.
    pub state: Option<DomainState>,
    /// Somebody asked to repair nothing.
    pub hold: bool,
    /// How long ago the service was reached.
    pub last_contact: Option<Duration>,
    /// How long ago it happened.
    pub age: Duration,
    /// How long the guest ran.
    pub uptime: Option<Duration>,
    /// Whether its disks can be read, where that matters.
    pub disk_readable: Option<bool>,
}

/// What was done in the last hour.
#[derive(Clone, Debug, Default)]
pub struct History {
    done: HashMap<Uuid, Vec<Instant>>,
}

impl History {
    /// Something is done now.
    pub fn note(&mut self, guest: Uuid, now: Instant) {
        for times in self.done.values_mut() {
            times.retain(|at| now.saturating_duration_since(*at) < HOUR);
        }
        self.done.retain(|_, times| !times.is_empty());
        self.done.entry(guest).or_default().push(now);
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = (&Uuid, &Instant)> {
        let all = self
            .done
            .iter()
            .flat_map(|(id, times)| times.iter().map(move |at| (id, at)));
        all.filter(move |(_, at)| now.saturating_duration_since(**at) < HOUR)
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This.
    Act(Action),
    /// Nothing, because of this.
    Suppress(Guard),
}

/// Decides. The first guard that forbids it is the one that is told.
pub fn decide(
    trigger: Trigger,
    reaction: &Reaction,
    look: &Look,
    history: &History,
    guest: Uuid,
    now: Instant,
) -> Verdict {
    match forbidden(trigger, reaction, look, history, guest, now) {
        Some(guard) => Verdict::Suppress(guard),
        None => Verdict::Act(reaction.action),
    }
}

fn forbidden(
    trigger: Trigger,
    reaction: &Reaction,
    look: &Look,
    history: &History,
    guest: Uuid,
    now: Instant,
) -> Option<Guard> {
    let of_guest: Vec<Instant> = history
        .recent(now)
        .filter(|(id, _)| **id == guest)
        .map(|(_, at)| *at)
        .collect();
    let state_fits = match trigger {
        Trigger::Watchdog => matches!(
            look.state,
            Some(DomainState::Running | DomainState::Blocked | DomainState::Paused)
        ),
        Trigger::Crash => look.state == Some(DomainState::Shutoff),
        Trigger::IoError => look.state == Some(DomainState::Paused),
    };
    let guards = [
        (reaction.action == Action::Report, Guard::Report),
        (look.hold, Guard::Hold),
        (
            look.last_contact.is_none_or(|age| age > CONTACT_WITHIN),
            Guard::Isolated,
        ),
        (
            trigger == Trigger::Crash && look.age > START_WITHIN,
            Guard::TooLate,
        ),
        (look.job != Some(Job::None), Guard::Job),
        (!state_fits, Guard::StateChanged),
        (
            look.uptime.is_none_or(|uptime| uptime < reaction.min_uptime.0),
            Guard::Young,
        ),
        (
            of_guest
                .iter()
                .any(|at| now.saturating_duration_since(*at) < reaction.cooldown.0),
            Guard::Cooldown,
        ),
        (
            of_guest.len() >= reaction.max_per_domain as usize,
            Guard::DomainLimit,
        ),
        (
            history.recent(now).count() >= reaction.max_per_host as usize,
            Guard::HostLimit,
        ),
        (look.disk_readable == Some(false), Guard::DiskUnreadable),
    ];
    guards
        .into_iter()
        .find_map(|(holds, guard)| holds.then_some(guard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reaction(action: Action) -> Reaction {
        Reaction {
            action,
            ..Reaction::default()
        }
    }

    fn fine(state: DomainState) -> Look {
        Look {
            job: Some(Job::None),
            state: Some(state),
            hold: false,
            last_contact: Some(Duration::from_secs(3)),
            age: Duration::from_secs(1),
            uptime: Some(Duration::from_secs(600)),
            disk_readable: Some(true),
        }
    }

    const GUEST: Uuid = Uuid::from_u128(1);

    fn verdict(trigger: Trigger, action: Action, look: &Look, history: &History, now: Instant) -> Verdict {
        decide(trigger, &reaction(action), look, history, GUEST, now)
    }

    /// Something that is not as it should be.
    type Spoil<'a> = &'a dyn Fn(&mut Look);

    #[test]
    fn each_guard_forbids_by_itself() {
        let now = Instant::now();
        let crash = |change: Spoil<'_>| {
            let mut look = fine(DomainState::Shutoff);
            change(&mut look);
            verdict(Trigger::Crash, Action::Start, &look, &History::default(), now)
        };
        assert_eq!(crash(&|_| {}), Verdict::Act(Action::Start));
        let table: [(Spoil<'_>, Guard); 10] = [
            (&|look| look.hold = true, Guard::Hold),
            (&|look| look.last_contact = None, Guard::Isolated),
            (
                &|look| look.last_contact = Some(Duration::from_secs(61)),
                Guard::Isolated,
            ),
            (&|look| look.age = Duration::from_secs(9), Guard::TooLate),
            (&|look| look.job = Some(Job::MigrationIn), Guard::Job),
            (&|look| look.job = None, Guard::Job),
            (
                &|look| look.state = Some(DomainState::Running),
                Guard::StateChanged,
            ),
            (&|look| look.uptime = Some(Duration::from_secs(119)), Guard::Young),
            (&|look| look.uptime = None, Guard::Young),
            (&|look| look.disk_readable = Some(false), Guard::DiskUnreadable),
        ];
        for (change, guard) in table {
            assert_eq!(crash(change), Verdict::Suppress(guard));
        }
        assert_eq!(
            verdict(
                Trigger::Crash,
                Action::Report,
                &fine(DomainState::Shutoff),
                &History::default(),
                now
            ),
            Verdict::Suppress(Guard::Report)
        );
    }

    #[test]
    fn a_watchdog_may_be_late_and_a_disk_must_be_readable() {
        let now = Instant::now();
        let mut late = fine(DomainState::Paused);
        late.age = Duration::from_secs(300);
        let history = History::default();
        assert_eq!(
            verdict(Trigger::Watchdog, Action::Reset, &late, &history, now),
            Verdict::Act(Action::Reset)
        );
        assert_eq!(
            verdict(Trigger::IoError, Action::Resume, &late, &history, now),
            Verdict::Act(Action::Resume)
        );
        late.disk_readable = Some(false);
        assert_eq!(
            verdict(Trigger::IoError, Action::Resume, &late, &history, now),
            Verdict::Suppress(Guard::DiskUnreadable)
        );
    }

    proptest! {
        /// However often things happen, the limits hold in every hour.
        #[test]
        fn limits_hold(steps in proptest::collection::vec((0_u128..8, 0_u64..600), 1..200)) {
            let mut now = Instant::now();
            let mut history = History::default();
            let mut acted: Vec<(u128, Instant)> = Vec::new();
            let settings = reaction(Action::Reset);
            for (guest, pause) in steps {
                now += Duration::from_secs(pause);
                let id = Uuid::from_u128(guest);
                let look = fine(DomainState::Running);
                if decide(Trigger::Watchdog, &settings, &look, &history, id, now) == Verdict::Act(Action::Reset) {
                    history.note(id, now);
                    acted.push((guest, now));
                }
                let hour: Vec<_> = acted.iter().filter(|(_, at)| now.duration_since(*at) < HOUR).collect();
                prop_assert!(hour.len() <= 10);
                let of_guest: Vec<_> = hour.iter().filter(|(id, _)| *id == guest).map(|(_, at)| *at).collect();
                prop_assert!(of_guest.len() <= 3);
                prop_assert!(of_guest.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(60)));
            }
        }
    }
}
