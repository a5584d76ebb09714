// SPDX-License-Identifier: Apache-2.0
//! Whether a host may go on, or must take itself out. Pure. The service counts on it: a host that was armed and is not
//! heard of any more has reset itself after the lease and the timeout.

use std::time::Duration;

/// What is known.
#[derive(Clone, Debug)]
pub struct Situation {
    /// How long ago each endpoint answered.
    pub contacts: Vec<Option<Duration>>,
    /// How long a contact lasts.
    pub lease: Duration,
    /// What peers said about their own contact, if they were asked: nothing from those that were not reached.
    pub peers: Option<Vec<Option<bool>>>,
    /// For how long this host has looked cut off.
    pub looked_cut_off: Duration,
    /// How long that must last.
    pub doubt: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Feed the watchdog.
    Feed,
    /// Ask the peers before deciding.
    Ask,
    /// This host looks cut off: do not feed, and look again. Leases do not end at one time when the service goes, nor do hosts
    /// reach it at one time when it is back.
    Doubt,
    /// This host is cut off: stop the guests, and do not feed any more.
    Fence,
}

/// Whether most endpoints were reached within the lease.
pub fn lease_holds(contacts: &[Option<Duration>], lease: Duration) -> bool {
    let reached = contacts
        .iter()
        .filter(|age| age.is_some_and(|age| age <= lease))
        .count();
    reached * 2 > contacts.len()
}

/// Whether the service knows that the watchdog is to be stopped, so that it may be: most endpoints have answered a heartbeat
/// that said so, and so has every endpoint that was reached within the lease. One that was not is overruled by those that
/// have heard this host since.
pub fn service_knows(contacts: &[(Option<Duration>, Option<bool>)], lease: Duration) -> bool {
    let told = |believes_armed: &Option<bool>| *believes_armed == Some(false);
    let most = contacts.iter().filter(|(_, armed)| told(armed)).count() * 2 > contacts.len();
    let in_contact = |age: &Option<Duration>| age.is_some_and(|age| age <= lease);
    most && contacts
        .iter()
        .all(|(age, armed)| told(armed) || !in_contact(age))
}

/// Whom to ask, of what each replica said and how long ago: what was known before while any of them says so, else what was
/// said last. Names of several are not mixed, because those of one are chosen to stand far apart.
pub fn named(said: impl Iterator<Item = (Duration, Vec<String>)>, before: &[String]) -> Vec<String> {
    let said: Vec<_> = said.filter(|(_, names)| !names.is_empty()).collect();
    if said.iter().any(|(_, names)| names == before) {
        return before.to_vec();
    }
    let latest = said.into_iter().min_by_key(|(age, _)| *age);
    latest.map(|(_, names)| names).unwrap_or_default()
}

/// Whether enough neighbours answer to be asked one day. Where they cannot be reached, an outage of the service would look
/// to every host as if it were cut off itself, and all would reset at once.
pub fn neighbours_answer(peers: &[Option<bool>]) -> bool {
    let reached = peers.iter().flatten().count();
    reached > 0 && reached * 2 >= peers.len()
}

/// Decides.
pub fn decide(situation: &Situation) -> Verdict {
    if lease_holds(&situation.contacts, situation.lease) {
        return Verdict::Feed;
    }
    let Some(peers) = &situation.peers else {
        return Verdict::Ask;
    };
    let reached: Vec<bool> = peers.iter().copied().flatten().collect();
    let lost = reached.iter().filter(|has_service| !**has_service).count();
    // If the others lost it too, it is the service that is gone, not this host. A host that reaches
    // fewer than half of its neighbours knows nothing of others: it is cut off with a few that are
    // cut off as well, and the service takes all of them for dead.
    if neighbours_answer(peers) && lost * 2 >= reached.len() {
        Verdict::Feed
    } else if situation.looked_cut_off < situation.doubt {
        Verdict::Doubt
    } else {
        Verdict::Fence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(30);
    const DOUBT: Duration = Duration::from_secs(12);

    fn verdict(ages: &[Option<u64>], peers: Option<&[Option<bool>]>) -> Verdict {
        decide(&Situation {
            contacts: ages.iter().map(|age| age.map(Duration::from_secs)).collect(),
            lease: LEASE,
            peers: peers.map(<[_]>::to_vec),
            looked_cut_off: DOUBT,
            doubt: DOUBT,
        })
    }

    #[test]
    fn nobody_is_taken_out_before_it_has_looked_cut_off_for_long_enough() {
        let situation = |looked_cut_off: u64, peers: &[Option<bool>]| Situation {
            contacts: vec![None],
            lease: LEASE,
            peers: Some(peers.to_vec()),
            looked_cut_off: Duration::from_secs(looked_cut_off),
            doubt: DOUBT,
        };
        for peers in [&[Some(true)][..], &[None], &[]] {
            assert_eq!(decide(&situation(0, peers)), Verdict::Doubt, "{peers:?}");
            assert_eq!(decide(&situation(11, peers)), Verdict::Doubt, "{peers:?}");
            assert_eq!(decide(&situation(12, peers)), Verdict::Fence, "{peers:?}");
        }
        assert_eq!(
            decide(&situation(12, &[Some(false)])),
            Verdict::Feed,
            "they lost it as well"
        );
    }

    #[test]
    fn the_table() {
        let (has, lacks, away) = (Some(true), Some(false), None);
        for (ages, peers, wanted) in [
            (&[Some(1)][..], None, Verdict::Feed),
            (&[Some(31)], None, Verdict::Ask),
            (&[None], None, Verdict::Ask),
            (&[], None, Verdict::Ask),
            (&[Some(1), Some(1), None], None, Verdict::Feed),
            (&[Some(1), Some(40), None], None, Verdict::Ask),
            (&[Some(1), None], None, Verdict::Ask),
            (&[None], Some(&[][..]), Verdict::Fence),
            (&[None], Some(&[away, away]), Verdict::Fence),
            (&[None], Some(&[has, has, lacks]), Verdict::Fence),
            (&[None], Some(&[has, lacks]), Verdict::Feed),
            (&[None], Some(&[lacks, away, away]), Verdict::Fence),
            (&[None], Some(&[lacks, lacks, away]), Verdict::Feed),
            (&[None], Some(&[lacks, lacks, away, away, away]), Verdict::Fence),
            (&[None], Some(&[lacks, lacks, has, away, away]), Verdict::Feed),
            (&[Some(2)], Some(&[has]), Verdict::Feed),
        ] {
            assert_eq!(verdict(ages, peers), wanted, "{ages:?} {peers:?}");
        }
    }

    #[test]
    fn neighbours_are_those_that_one_replica_names() {
        let names = |list: &[&str]| -> Vec<String> { list.iter().map(|name| (*name).to_owned()).collect() };
        let (old, new, other) = (names(&["a", "b"]), names(&["b", "c"]), names(&["d"]));
        let found = |said: &[(u64, &Vec<String>)]| {
            let said = said
                .iter()
                .map(|(age, names)| (Duration::from_secs(*age), (*names).clone()));
            named(said, &old)
        };
        assert_eq!(found(&[(1, &new), (9, &old)]), old, "somebody says so still");
        assert_eq!(found(&[(5, &other), (1, &new)]), new);
        assert_eq!(found(&[(5, &other), (1, &names(&[]))]), other);
        assert_eq!(found(&[(1, &names(&[]))]), names(&[]));
        assert_eq!(found(&[]), names(&[]));
    }

    #[test]
    fn a_watchdog_is_stopped_only_when_the_service_knows() {
        let (armed, not, never) = (Some(true), Some(false), None);
        for (contacts, wanted) in [
            (&[][..], false),
            (&[(Some(1), not)], true),
            (&[(Some(1), armed)], false),
            (&[(None, never)], false),
            (&[(Some(1), not), (Some(1), not), (None, never)], true),
            (&[(Some(1), not), (Some(1), not), (Some(31), armed)], true),
            (&[(Some(1), not), (Some(1), not), (Some(30), armed)], false),
            (&[(Some(1), not), (None, never), (None, never)], false),
            (&[(Some(40), not), (Some(40), not), (Some(40), not)], true),
        ] {
            let seconds = |(age, armed): &(Option<u64>, _)| (age.map(Duration::from_secs), *armed);
            let contacts: Vec<_> = contacts.iter().map(seconds).collect();
            assert_eq!(service_knows(&contacts, LEASE), wanted, "{contacts:?}");
        }
    }

    #[test]
    fn whoever_cannot_ask_most_neighbours_arms_nothing() {
        let (has, lacks, away) = (Some(true), Some(false), None);
        for (peers, wanted) in [
            (&[][..], false),
            (&[away], false),
            (&[away, away, away], false),
            (&[has, away, away], false),
            (&[has, away], true),
            (&[lacks, lacks, away], true),
            (&[has, has, has, has, has], true),
        ] {
            assert_eq!(neighbours_answer(peers), wanted, "{peers:?}");
        }
    }

    proptest! {
        /// Nobody takes itself out while the lease holds, or while it reaches half of its neighbours and half of those
        /// lost it too.
        #[test]
        fn never_without_reason(
            ages in proptest::collection::vec(proptest::option::of(0_u64..60), 0..5),
            peers in proptest::collection::vec(proptest::option::of(any::<bool>()), 0..5),
        ) {
            if verdict(&ages, Some(&peers)) == Verdict::Fence {
                let fresh = ages.iter().flatten().filter(|age| **age <= 30).count();
                prop_assert!(fresh * 2 <= ages.len());
                let with = peers.iter().flatten().filter(|has| **has).count();
                let without = peers.iter().flatten().filter(|has| !**has).count();
                let away = peers.len() - with - without;
                prop_assert!(without == 0 || without < with || away > with + without);
            }
        }
    }
}
