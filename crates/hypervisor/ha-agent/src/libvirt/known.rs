// SPDX-License-Identifier: Apache-2.0
//! What is known of the guests, and what must have happened when libvirt's list says something else. Pure: whoever
//! listens to libvirt passes in events and lists and reports what comes back.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_ha_wire::{DomainState, Kind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::draft::{Draft, Guest};

/// A derived record and the announcement of the same thing may both come within this.
const SAME_NS: u64 = 30_000_000_000;

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

/// All guests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guests {
    /// By UUID.
    pub all: BTreeMap<Uuid, Known>,
}

impl Guests {
    /// Takes a lifecycle event. Says whether it is news: an announcement of what was derived already is not.
    pub fn heard(&mut self, guest: &Guest, event: &str, detail: &str, now_ns: u64) -> bool {
        let known = self.all.get(&guest.uuid);
        let told = known.and_then(|known| known.derived.as_ref());
        let again = told.is_some_and(|(what, at)| what == event && now_ns.saturating_sub(*at) < SAME_NS);
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
        self.set(guest, state, now_ns, None);
        !again
    }

    fn set(&mut self, guest: &Guest, state: DomainState, now_ns: u64, derived: Option<String>) {
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
            derived: derived.map(|what| (what, now_ns)),
        };
        self.all.insert(guest.uuid, known);
    }

    /// Takes libvirt's list. Guests in `touched` had events since the list was asked for and are left to them. Gives
    /// back what must have happened meanwhile, unless this is the very first look.
    pub fn listed(
        &mut self,
        list: &[Listed],
        touched: &BTreeSet<Uuid>,
        first: bool,
        now_ns: u64,
    ) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let mut seen = BTreeSet::new();
        for listed in list {
            seen.insert(listed.guest.uuid);
            if touched.contains(&listed.guest.uuid) {
                continue;
            }
            let before = self.all.get(&listed.guest.uuid).map(|known| known.state);
            let what = difference(before, listed.state, &listed.reason);
            if let (Some((event, detail)), false) = (what, first) {
                drafts.push(derived(&listed.guest, &event, &detail, now_ns));
                self.set(&listed.guest, listed.state, now_ns, Some(event));
                continue;
            }
            let told = self
                .all
                .get(&listed.guest.uuid)
                .and_then(|known| known.derived.clone());
            self.set(&listed.guest, listed.state, now_ns, None);
            if let Some(known) = self.all.get_mut(&listed.guest.uuid) {
                known.derived = told;
            }
        }
        let gone: Vec<Uuid> = self
            .all
            .keys()
            .copied()
            .filter(|id| !seen.contains(id) && !touched.contains(id))
            .collect();
        for uuid in gone {
            let Some(known) = self.all.remove(&uuid) else {
                continue;
            };
            let guest = Guest {
                uuid,
                name: known.name,
                id: -1,
            };
            if !first && known.state.active() {
                drafts.push(derived(&guest, "stopped", "unknown", now_ns));
            }
            if !first {
                drafts.push(derived(&guest, "undefined", "removed", now_ns));
            }
        }
        drafts
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
            detail(
                &[("migration", "migrated"), ("starting_up", "migrated")],
                "booted",
            ),
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
        assert!(guests.listed(&list, &BTreeSet::new(), true, 5).is_empty());
        assert!(guests.listed(&list, &BTreeSet::new(), false, 6).is_empty());
        assert_eq!(guests.counts(), [(Running, 1), (Shutoff, 1)].into());
        assert_eq!(guests.all[&Uuid::from_u128(1)].since_ns, Some(5));
    }

    #[test]
    fn a_transient_guest_that_vanished_stopped_and_is_gone() {
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), true, 1);
        let drafts = guests.listed(&[], &BTreeSet::new(), false, 2);
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
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), true, 1);
        let drafts = guests.listed(&[entry(1, Shutoff, "crashed")], &BTreeSet::new(), false, 2);
        assert_eq!(words(&drafts), [("stopped".into(), "crashed".into())]);
        assert!(!guests.heard(&guest(1), "stopped", "failed", 3), "the same thing");
        assert!(guests.heard(&guest(1), "started", "booted", 4));
        assert!(
            guests.heard(&guest(1), "stopped", "failed", 5),
            "it happened again"
        );
    }

    #[test]
    fn guests_with_events_are_left_to_them() {
        let mut guests = Guests::default();
        guests.listed(&[entry(1, Running, "booted")], &BTreeSet::new(), true, 1);
        assert!(guests.heard(&guest(1), "stopped", "destroyed", 2));
        let touched = BTreeSet::from([Uuid::from_u128(1)]);
        // The list was made before the event.
        assert!(
            guests
                .listed(&[entry(1, Running, "booted")], &touched, false, 3)
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
                guests.listed(&now, &BTreeSet::new(), false, 1);
                prop_assert!(guests.listed(&now, &BTreeSet::new(), false, 2).is_empty());
            }
        }
    }
}
