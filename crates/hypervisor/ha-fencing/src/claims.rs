// SPDX-License-Identifier: Apache-2.0
//! Which hosts lead to which devices and machines, as each of them was last seen to. Where two hosts lead to one, nobody
//! knows which of them would go off, and neither is fenced.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::names::HostName;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// What a host claims at one level of fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// The devices it is led to.
    Devices,
    /// The machine that they say they belong to.
    Machine,
}

/// What one host claims, by level.
type Claimed = BTreeMap<(usize, What), BTreeSet<String>>;

/// The claims of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeMap<HostName, Claimed>>);

impl Claims {
    /// Notes what a host claims instead of what it claimed there before. An error if another host claims any of it.
    pub(crate) fn note(
        &self,
        host: &HostName,
        level: usize,
        what: What,
        things: BTreeSet<String>,
    ) -> Result<()> {
        let mut all = self.0.lock();
        let own = all.entry(host.clone()).or_default();
        own.insert((level, what), things.clone());
        for (other, claimed) in all.iter().filter(|(other, _)| *other != host) {
            let shared = claimed
                .values()
                .find_map(|theirs| theirs.intersection(&things).next());
            if let Some(shared) = shared {
                return Err(Error::Shared {
                    host: host.clone(),
                    other: other.clone(),
                    address: shared.clone(),
                });
            }
        }
        Ok(())
    }

    /// Forgets those who left for good; their devices may become another's.
    pub(crate) fn retain(&self, known: impl Fn(&HostName) -> bool) {
        self.0.lock().retain(|host, _| known(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_host_is_what_it_claims() {
        let claims = Claims::default();
        let note = |host: &str, level, what, thing: &str| {
            let host = HostName::new(host).unwrap();
            claims.note(&host, level, what, BTreeSet::from([thing.to_owned()]))
        };
        note("n1", 0, What::Devices, "a").unwrap();
        note("n1", 1, What::Devices, "b").unwrap();
        assert!(note("n2", 0, What::Devices, "b").is_err());
        assert!(note("n1", 1, What::Devices, "b").is_err(), "neither of the two");
        note("n1", 1, What::Devices, "c").unwrap();
        note("n2", 0, What::Devices, "b").expect("n1 is led elsewhere by now");
        note("n1", 0, What::Machine, "m1").unwrap();
        assert!(note("n3", 0, What::Machine, "m1").is_err());
        claims.retain(|host| host.as_str() != "n1");
        note("n3", 0, What::Machine, "m1").expect("the machine has another name now");
    }
}
