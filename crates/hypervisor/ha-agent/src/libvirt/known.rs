// SPDX-License-Identifier: Apache-2.0
//! What is known of the guests, and what must have happened when libvirt's list says something else. Pure: whoever
//! listens to libvirt passes in events and lists and reports what comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_ha_wire::{DomainState, Kind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::draft::{Draft, Guest};

/// A derived record and the announcement of the same thing may both come within this.
const SAME_NS: u64 = 30_000_000_000;
/// An event that nothing kept from coming has this long to tell what a look showed.
const PATIENCE_NS: u64 = 2_000_000_000;
/// libvirt's word for a guest of which it announces in a moment what became of it.
pub(super) const STARTING: &str = "starting_up";

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: i32,
    /// Its state.
    pub state: DomainState,
    /// When it was first seen to run, on the boot-time clock; nothing while it does not.
    pub since_ns: Option<u64>,
    /// How long it ran when it last stopped.
    #[serde(default)]
    pub ran_ns: Option<u64>,
    /// The derived record that brought it here, and when.
    #[serde(skip)]
    derived: Option<(String, u64)>,
}

/// A guest as libvirt lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The guest.
    pub guest: Guest,
    /// Its state.
    pub state: DomainState,
    /// Why, in libvirt's word.
    pub reason: String,
}

/// What came before a look at every guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing was ever known: nothing that it shows is news.
    Nothing,
    /// Events may be missing: what differs is told.
    Gap,
    /// Every event: one is about to tell what differs, because libvirt changes first and announces then.
    Events,
}

/// All guests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guests {
    /// By UUID.
    pub all: BTreeMap<Uuid, Known>,
    /// Guests that looks show otherwise than events told, and until when those have time to tell it.
    #[serde(skip)]
    untold: BTreeMap<Uuid, u64>,
}

impl Guests {
    /// Takes a lifecycle event. Says whether it is news: an announcement of what was derived already is not.
    pub fn heard(&mut self, guest: &Guest, event: &str, detail: &str, now_ns: u64) -> bool {
        self.untold.remove(&guest.uuid);
        let known = self.all.get(&guest.uuid);
        let derived = known.and_then(|known| known.derived.clone());
        let derived = derived.filter(|(_, at)| now_ns.saturating_sub(*at) < SAME_NS);
        let again = derived.as_ref().is_some_and(|(what, _)| what == event);
        if event == "undefined" {
            let active = known.is_some_and(|known| known.state.active());
            if !active {
                self.all.remove(&guest.uuid);
            }
            return true;
        }
        let before = known.map_or(DomainState::Shutoff, |known| known.state);
        let state = match (event, detail) {
            // It stands still until the source has let go.
            ("started", "migrated") => DomainState::Paused,
            ("started" | "resumed", _) => DomainState::Running,
            ("suspended", _) => DomainState::Paused,
            ("stopped", _) => DomainState::Shutoff,
            ("shutdown", _) => DomainState::Shutdown,
            ("pmsuspended", _) => DomainState::Pmsuspended,
            ("crashed", _) => DomainState::Crashed,
            _ => before,
        };
        let awaited = derived.filter(|(what, _)| !again && comes_still(what, event));
        self.set(guest, state, now_ns, awaited);
        !again
    }

    fn set(&mut self, guest: &Guest, state: DomainState, now_ns: u64, derived: Option<(String, u64)>) {
        let known = self.all.get(&guest.uuid);
        let (before, ran) = known.map_or((None, None), |known| (known.since_ns, known.ran_ns));
        let runs = state.active();
        let known = Known {
            name: guest.name.clone(),
            id: guest.id,
            state,
            since_ns: runs.then(|| before.unwrap_or(now_ns)),
            ran_ns: match before {
                Some(since) if !runs => Some(now_ns.saturating_sub(since)),
                _ if runs => None,
                _ => ran,
            },
            derived,
        };
        self.all.insert(guest.uuid, known);
    }

    /// Takes libvirt's list. Guests in `touched` had events since the list was asked for and are left to them. Gives
    /// back what must have happened without an event.
    pub fn listed(
        &mut self,
        list: &[Listed],
        touched: &BTreeSet<Uuid>,
        came: Before,
        now_ns: u64,
    ) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let mut seen = BTreeSet::new();
        let untold = std::mem::take(&mut self.untold);
        for listed in list {
            let uuid = listed.guest.uuid;
            seen.insert(uuid);
            if touched.contains(&uuid) || listed.reason == STARTING {
                continue;
            }
            let known = self.all.get(&uuid);
            let what = difference(known.map(|known| known.state), listed.state, &listed.reason);
            let mut told = known.and_then(|known| known.derived.clone());
            if let (Some((event, detail)), Before::Gap | Before::Events) = (what, came) {
                if self.gives_time(uuid, &untold, came, now_ns) {
                    continue;
                }
                drafts.push(derived(&listed.guest, &event, &detail, now_ns));
                told = Some((event, now_ns));
            }
            self.set(&listed.guest, listed.state, now_ns, told);
        }
        let missing: Vec<Uuid> = self
            .all
            .keys()
            .copied()
            .filter(|id| !seen.contains(id) && !touched.contains(id))
            .collect();
        for uuid in missing {
            if self.gives_time(uuid, &untold, came, now_ns) {
                continue;
            }
            let Some(known) = self.all.remove(&uuid) else {
                continue;
            };
            let guest = Guest {
                uuid,
                name: known.name,
                id: -1,
            };
            if came != Before::Nothing && known.state.active() {
                drafts.push(derived(&guest, "stopped", "unknown", now_ns));
            }
            if came != Before::Nothing {
                drafts.push(derived(&guest, "undefined", "removed", now_ns));
            }
        }
        drafts
    }

    /// Whether an event may still tell what a look showed of a guest.
    fn gives_time(&mut self, guest: Uuid, untold: &BTreeMap<Uuid, u64>, came: Before, now_ns: u64) -> bool {
        if came != Before::Events {
            return false;
        }
        let until = untold.get(&guest).copied().unwrap_or(now_ns + PATIENCE_NS);
        let waits = now_ns < until;
        if waits {
            self.untold.insert(guest, until);
        }
        waits
    }

    /// How long until the first event that is waited for is late.
    pub fn patience(&self, now_ns: u64) -> Option<Duration> {
        let until = self.untold.values().min()?;
        Some(Duration::from_nanos(until.saturating_sub(now_ns)))
    }

    /// How long a guest that does not run ran before.
    pub fn ran_before(&self, guest: Uuid) -> Option<u64> {
        self.all.get(&guest)?.ran_ns
    }

    /// How many guests are in which state.
    pub fn counts(&self) -> BTreeMap<DomainState, u32> {
        let mut counts = BTreeMap::new();
        for known in self.all.values() {
            *counts.entry(known.state).or_insert(0) += 1;
        }
        counts
    }
}

/// Whether what was derived may be announced after this event: libvirt tells of what happens on the way before it tells of
/// a start or a stop itself.
fn comes_still(derived: &str, event: &str) -> bool {
    match derived {
        "started" => !matches!(event, "stopped" | "crashed" | "pmsuspended"),
        "stopped" => event != "started",
        _ => false,
    }
}

fn derived(guest: &Guest, event: &str, detail: &str, now_ns: u64) -> Draft {
    Draft {
        mono_ns: now_ns,
        synthetic: true,
        ..Draft::now(Kind::Lifecycle, event, detail)
    }
    .about(guest.clone())
}

/// The event that leads from one state to another, with its detail.
fn difference(before: Option<DomainState>, after: DomainState, reason: &str) -> Option<(String, String)> {
    use DomainState::{Blocked, Crashed, Paused, Pmsuspended, Running, Shutdown, Shutoff};
    let was_active = before.is_some_and(DomainState::active);
    // Running and waiting for something are one to whoever counts events.
    let same = |one: DomainState| if one == Blocked { Running } else { one };
    if before.map(same) == Some(same(after)) {
        return None;
    }
    let detail = |known: &[(&str, &str)], other: &str| {
        let found = known.iter().find(|(word, _)| *word == reason);
        found.map_or_else(|| other.to_owned(), |(_, detail)| (*detail).to_owned())
    };
    let own = |words: &[&str]| {
        if words.contains(&reason) {
            reason.to_owned()
        } else {
            "unknown".to_owned()
        }
    };
    Some(match after {
        Shutoff if was_active => (
            "stopped".to_owned(),
            match reason {
                // The daemon found it dead when it came back.
                "daemon" => "failed".to_owned(),
                _ => own(&[
                    "shutdown",
                    "destroyed",
                    "crashed",
                    "migrated",
                    "saved",
                    "failed",
                    "from_snapshot",
                ]),
            },
        ),
        Shutoff => ("defined".to_owned(), "added".to_owned()),
        Running | Blocked if was_active => (
            "resumed".to_owned(),
            detail(&[("migrated", "migrated"), ("postcopy", "postcopy")], "unpaused"),
        ),
        Running | Blocked => (
            "started".to_owned(),
            detail(
                &[
                    ("migrated", "migrated"),
                    ("restored", "restored"),
                    ("from_snapshot", "from_snapshot"),
                    ("wakeup", "wakeup"),
                ],
                "booted",
            ),
        ),
        Paused if was_active => (
            "suspended".to_owned(),
            detail(
                &[
                    ("migration", "migrated"),
                    ("ioerror", "ioerror"),
                    ("watchdog", "watchdog"),
                    ("from_snapshot", "from_snapshot"),
                    ("postcopy", "postcopy"),
                    ("postcopy_failed", "postcopy_failed"),
                    ("api_error", "api_error"),
                ],
                "paused",
            ),
        ),
        Paused => (
            "started".to_owned(),
            detail(&[("migration", "migrated")], "booted"),
        ),
        Crashed => ("crashed".to_owned(), "panicked".to_owned()),
        Pmsuspended => ("pmsuspended".to_owned(), "memory".to_owned()),
        Shutdown => ("shutdown".to_owned(), "guest".to_owned()),
        DomainState::Nostate => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Before::{Events, Gap, Nothing};
    use DomainState::{Crashed, Paused, Running, Shutoff};
    use proptest::prelude::*;

    fn guest(id: u128) -> Guest {
        Guest {
            uuid: Uuid::from_u128(id),
            name: format!("instance-{id}"),
            id: 1,
        }
    }

    fn entry(id: u128, state: DomainState, reason: &str) -> Listed {
        Listed {
            guest: guest(id),
            state,
            reason: reason.to_owned(),
        }
    }

    fn words(drafts: &[Draft]) -> Vec<(String, String)> {
        assert!(drafts.iter().all(|draft| draft.synthetic));
        drafts
            .iter()
            .map(|draft| (draft.event.clone(), draft.detail.clone()))
            .collect()
    }

    #[test]
    fn what_must_have_happened() {
        let table = [
            (None, Running, "booted", Some(("started", "booted"))),
            (None, Shutoff, "unknown", Some(("defined", "added"))),
            (Some(Running), Running, "booted", None),
            (Some(Running), DomainState::Blocked, "unknown", None),
            (Some(Running), Shutoff, "crashed", Some(("stopped", "crashed"))),
            (Some(Running), Shutoff, "failed", Some(("stopped", "failed"))),
            (Some(Running), Shutoff, "daemon", Some(("stopped", "failed"))),
            (Some(Running), Shutoff, "unknown:42", Some(("stopped", "unknown"))),
            (Some(Running), Paused, "ioerror", Some(("suspended", "ioerror"))),
            (Some(Running), Paused, "user", Some(("suspended", "paused"))),
            (Some(Paused), Running, "unpaused", Some(("resumed", "unpaused"))),
            (Some(Shutoff), Running, "migrated", Some(("started", "migrated"))),
            (Some(Running), Crashed, "panicked", Some(("crashed", "panicked"))),
            (Some(Shutoff), Shutoff, "destroyed", None),
        ];
        for (before, after, reason, wanted) in table {
            let told = difference(before, after, reason);
            let told = told
                .as_ref()
                .map(|(event, detail)| (event.as_str(), detail.as_str()));
            assert_eq!(told, wanted, "{before:?} {after:?} {reason}");
        }
    }

    #[test]
    fn the_first_look_is_no_news() {
        let mut guests = Guests::default();
        let list = [entry(1, Running, "booted"), entry(2, Shutoff, "")];
        assert!(guests.listed(&list, &BTreeSet::new(), Nothing, 5).is_empty());
        assert!(guests.listed(&list, &BTreeSet::new(), Gap, 6).is_empty());
        assert_eq!(guests.counts(), [(Running, 1), (Shutoff, 1)].into());
        assert_eq!(guests.all[&Uuid::from_u128(1)].since_ns, Some(5));
    }

    #[test]
    fn a_transient_guest_that_vanished_stopped_and_is_gone() {
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), Nothing, 1);
        let drafts = guests.listed(&[], &BTreeSet::new(), Gap, 2);
        assert_eq!(
            words(&drafts),
            [
                ("stopped".into(), "unknown".into()),
                ("undefined".into(), "removed".into())
            ]
        );
    }

    #[test]
    fn a_late_announcement_of_what_was_derived_is_no_news() {
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), Nothing, 1);
        let drafts = guests.listed(&[entry(1, Shutoff, "crashed")], &BTreeSet::new(), Gap, 2);
        assert_eq!(words(&drafts), [("stopped".into(), "crashed".into())]);
        assert!(!guests.heard(&guest(1), "stopped", "failed", 3), "the same thing");
        assert!(guests.heard(&guest(1), "started", "booted", 4));
        assert!(
            guests.heard(&guest(1), "stopped", "failed", 5),
            "it happened again"
        );
    }

    #[test]
    fn a_start_is_announced_after_what_happened_on_the_way() {
        let mut guests = Guests::default();
        let drafts = guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), Gap, 1);
        assert_eq!(words(&drafts), [("started".into(), "booted".into())]);
        assert!(guests.heard(&guest(1), "resumed", "unpaused", 2));
        assert!(!guests.heard(&guest(1), "started", "booted", 3), "the same start");
        assert!(guests.heard(&guest(1), "stopped", "failed", 4));
        assert!(guests.heard(&guest(1), "started", "booted", 5), "another one");
        let drafts = guests.listed(&[entry(1, Paused, "user")], &BTreeSet::new(), Gap, 6);
        assert_eq!(words(&drafts), [("suspended".into(), "paused".into())]);
        assert!(guests.heard(&guest(1), "resumed", "unpaused", 7));
        assert!(guests.heard(&guest(1), "suspended", "paused", 8), "a second time");
    }

    #[test]
    fn what_an_event_is_about_to_tell_is_left_to_it() {
        let none = BTreeSet::new();
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &none, Nothing, 1);
        // Both changed, and a third guest appeared; libvirt has yet to say so.
        let changed = [entry(1, Shutoff, "failed"), entry(3, Running, "booted")];
        assert!(guests.listed(&changed, &none, Events, 10).is_empty());
        assert_eq!(guests.patience(10), Some(Duration::from_nanos(PATIENCE_NS)));
        assert!(guests.heard(&guest(3), "started", "booted", 20));
        assert!(guests.listed(&changed, &none, Events, 30).is_empty());
        // One of them it never told.
        let late = 10 + PATIENCE_NS;
        assert_eq!(guests.patience(late), Some(Duration::ZERO));
        let drafts = guests.listed(&changed, &none, Events, late);
        assert_eq!(words(&drafts), [("stopped".into(), "failed".into())]);
        assert_eq!(guests.patience(late), None);
        assert!(
            !guests.heard(&guest(1), "stopped", "failed", late + 1),
            "the same stop"
        );
    }

    #[test]
    fn a_guest_that_is_not_listed_any_more_has_its_event_first() {
        let none = BTreeSet::new();
        let mut guests = Guests::default();
        let both = [entry(1, Running, "booted"), entry(2, Running, "booted")];
        guests.listed(&both, &none, Nothing, 1);
        assert!(guests.listed(&[], &none, Events, 10).is_empty());
        assert!(guests.heard(&guest(1), "stopped", "migrated", 11));
        // The first has its own time again, for the end of its definition.
        let drafts = guests.listed(&[], &none, Events, 10 + PATIENCE_NS);
        let told: Vec<_> = drafts
            .iter()
            .map(|draft| (draft.domain.as_ref().unwrap().name.as_str(), draft.event.as_str()))
            .collect();
        assert_eq!(told, [("instance-2", "stopped"), ("instance-2", "undefined")]);
        // And after that it may start again.
        let drafts = guests.listed(&both[..1], &none, Gap, 20 + PATIENCE_NS);
        assert_eq!(words(&drafts), [("started".into(), "booted".into())]);
        assert_eq!(guests.patience(0), None);
    }

    #[test]
    fn a_start_under_way_is_told_when_it_is_known_what_it_became() {
        let none = BTreeSet::new();
        for came in [Nothing, Gap, Events] {
            let mut guests = Guests::default();
            let under_way = [entry(1, Paused, STARTING)];
            assert!(guests.listed(&under_way, &none, came, 1).is_empty(), "{came:?}");
            assert_eq!(guests.patience(1), None);
            assert!(guests.heard(&guest(1), "resumed", "unpaused", 2));
            assert!(guests.heard(&guest(1), "started", "booted", 3), "{came:?}");
            let runs = [entry(1, Running, "booted")];
            assert!(guests.listed(&runs, &none, Gap, 4).is_empty());
        }
    }

    #[test]
    fn guests_with_events_are_left_to_them() {
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), Nothing, 1);
        assert!(guests.heard(&guest(1), "stopped", "destroyed", 2));
        let touched = BTreeSet::from([Uuid::from_u128(1)]);
        // The list was made before the event.
        assert!(
            guests
                .listed(&[entry(1, Running, "booted")], &touched, Gap, 3)
                .is_empty()
        );
        assert_eq!(guests.all[&Uuid::from_u128(1)].state, Shutoff);
    }

    proptest! {
        /// Listing the same twice is never news the second time.
        #[test]
        fn a_list_is_news_once(states in proptest::collection::vec((0_u128..5, 0_usize..8), 0..12)) {
            let mut guests = Guests::default();
            let mut list: BTreeMap<u128, Listed> = BTreeMap::new();
            for (id, state) in states {
                list.insert(id, entry(id, DomainState::ALL[state], "unknown"));
                let now: Vec<Listed> = list.values().cloned().collect();
                guests.listed(&now, &BTreeSet::new(), Gap, 1);
                prop_assert!(guests.listed(&now, &BTreeSet::new(), Gap, 2).is_empty());
            }
        }
    }
}
