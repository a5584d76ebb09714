// SPDX-License-Identifier: Apache-2.0
//! How lists and events change the guests on the board. Pure: the same list and events in the same order give the same
//! guests, whatever the timing was.

use std::collections::{BTreeMap, HashMap, HashSet};

use cobaltcore_libvirt::types::Domain;
use uuid::Uuid;

use crate::board::{Guest, GuestState, Reading};

/// Guests by UUID.
pub(super) type Guests = BTreeMap<Uuid, Guest>;

/// Numbers of lifecycle events.
pub(crate) mod life {
    pub(crate) const DEFINED: i32 = 0;
    pub(crate) const UNDEFINED: i32 = 1;
    pub(crate) const STARTED: i32 = 2;
    pub(crate) const SUSPENDED: i32 = 3;
    pub(crate) const RESUMED: i32 = 4;
    pub(crate) const STOPPED: i32 = 5;
    pub(crate) const SHUTDOWN: i32 = 6;
    pub(crate) const PM_SUSPENDED: i32 = 7;
    pub(crate) const CRASHED: i32 = 8;
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Whether the guests differ now.
    pub(super) visible: bool,
    /// Whether its definition must be read, be it to learn that it is gone.
    pub(super) read: bool,
}

/// Applies a lifecycle event.
pub(super) fn apply_event(guests: &mut Guests, domain: &Domain, event: i32, detail: i32) -> Change {
    let known = guests.contains_key(&domain.uuid);
    let before = guests.get(&domain.uuid).map(|guest| (guest.active, guest.state));
    if event == life::UNDEFINED && before.is_none_or(|(active, _)| !active) {
        let visible = guests.remove(&domain.uuid).is_some();
        return Change { visible, read: false };
    }
    let guest = guests.entry(domain.uuid).or_insert_with(|| Guest {
        name: domain.name.clone(),
        active: domain.is_active(),
        state: None,
        claim: Reading::Pending,
    });
    let renamed = guest.name != domain.name && !domain.name.is_empty();
    if renamed {
        guest.name.clone_from(&domain.name);
    }
    let (active, state) = match event {
        // A guest that arrives by migration stands still until the source has let go.
        life::STARTED if detail == 1 => (true, Some(GuestState::Paused)),
        life::STARTED | life::RESUMED => (true, Some(GuestState::Running)),
        life::SUSPENDED => (true, Some(GuestState::Paused)),
        life::STOPPED => (false, Some(GuestState::Shutoff)),
        life::SHUTDOWN => (guest.active, Some(GuestState::ShuttingDown)),
        life::PM_SUSPENDED => (true, Some(GuestState::PmSuspended)),
        life::CRASHED => (true, Some(GuestState::Crashed)),
        _ if !known && !domain.is_active() => (false, Some(GuestState::Shutoff)),
        _ => (guest.active, guest.state),
    };
    guest.active = active;
    guest.state = state;
    Change {
        visible: renamed || before != Some((active, state)),
        read: matches!(
            event,
            life::DEFINED | life::UNDEFINED | life::STARTED | life::STOPPED
        ) || !known,
    }
}

/// Applies libvirt's list. Guests that had an event since the list was asked for are left to their events. Returns
/// whether something differs, and which guests are new.
pub(super) fn apply_list(
    guests: &mut Guests,
    list: &[Domain],
    states: &HashMap<Uuid, GuestState>,
    touched: &HashSet<Uuid>,
) -> (bool, Vec<Uuid>) {
    let mut changed = false;
    let mut new = Vec::new();
    for domain in list.iter().filter(|domain| !touched.contains(&domain.uuid)) {
        let active = domain.is_active();
        let state = states.get(&domain.uuid).copied();
        let guest = guests.entry(domain.uuid).or_insert_with(|| {
            changed = true;
            new.push(domain.uuid);
            Guest {
                name: domain.name.clone(),
                active,
                state,
                claim: Reading::Pending,
            }
        });
        // A driver that does not tell states still tells whether a guest runs.
        let state = state.or(if guest.active == active { guest.state } else { None });
        if (guest.active, guest.state, &guest.name) != (active, state, &domain.name) {
            changed = true;
            guest.active = active;
            guest.state = state;
            guest.name.clone_from(&domain.name);
        }
    }
    let listed: HashSet<Uuid> = list.iter().map(|domain| domain.uuid).collect();
    let before = guests.len();
    guests.retain(|id, _| listed.contains(id) || touched.contains(id));
    (changed || guests.len() != before, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(id: u128, live: i32) -> Domain {
        Domain::new(format!("guest-{id}"), Uuid::from_u128(id), live)
    }

    fn guest(guests: &Guests, id: u128) -> Option<(bool, Option<GuestState>)> {
        let guest = guests.get(&Uuid::from_u128(id))?;
        Some((guest.active, guest.state))
    }

    #[test]
    fn the_life_of_a_guest() {
        use GuestState::{Crashed, Paused, Running, Shutoff, ShuttingDown};
        let mut guests = Guests::new();
        let table = [
            (-1, life::DEFINED, 0, Some((false, Some(Shutoff))), true),
            (3, life::RESUMED, 0, Some((true, Some(Running))), false),
            (3, life::STARTED, 0, Some((true, Some(Running))), true),
            (3, life::SUSPENDED, 0, Some((true, Some(Paused))), false),
            (3, life::RESUMED, 0, Some((true, Some(Running))), false),
            (3, life::CRASHED, 0, Some((true, Some(Crashed))), false),
            (3, life::SHUTDOWN, 2, Some((true, Some(ShuttingDown))), false),
            (-1, life::STOPPED, 1, Some((false, Some(Shutoff))), true),
            (-1, life::UNDEFINED, 0, None, false),
        ];
        for (live, event, detail, wanted, read) in table {
            let change = apply_event(&mut guests, &domain(1, live), event, detail);
            assert_eq!(guest(&guests, 1), wanted, "event {event}/{detail}");
            assert_eq!(change.read, read, "event {event}/{detail}");
        }
    }

    #[test]
    fn a_running_guest_that_is_undefined_stays_until_it_stops() {
        let mut guests = Guests::new();
        apply_event(&mut guests, &domain(1, 2), life::STARTED, 0);
        let change = apply_event(&mut guests, &domain(1, 2), life::UNDEFINED, 0);
        assert_eq!((change.visible, change.read), (false, true));
        assert!(guest(&guests, 1).is_some());
    }

    #[test]
    fn the_list_corrects_what_events_missed_but_never_newer_events() {
        let mut guests = Guests::new();
        for id in 1..=3 {
            apply_event(&mut guests, &domain(id, 5), life::STARTED, 0);
        }
        let touched = [Uuid::from_u128(2)].into();
        let states = [(Uuid::from_u128(4), GuestState::Paused)].into();
        let (changed, new) = apply_list(
            &mut guests,
            &[domain(1, -1), domain(2, -1), domain(4, 9)],
            &states,
            &touched,
        );
        assert!(changed);
        assert_eq!(new, [Uuid::from_u128(4)]);
        assert_eq!(guest(&guests, 1), Some((false, None)));
        assert_eq!(guest(&guests, 2), Some((true, Some(GuestState::Running))));
        assert_eq!(guest(&guests, 3), None);
        assert_eq!(guest(&guests, 4), Some((true, Some(GuestState::Paused))));
        let again = apply_list(
            &mut guests,
            &[domain(1, -1), domain(2, 5), domain(4, 9)],
            &HashMap::new(),
            &HashSet::new(),
        );
        assert_eq!(again, (false, vec![]));
    }
}
