// SPDX-License-Identifier: Apache-2.0
//! Whoever owns a ServerClaim may revert what was written into it. So a claim that says Off is believed only
//! after it has been saying so for a while, unchanged. A process that begins anew watches anew.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a claim must have been saying Off.
pub(crate) const VIGIL: Duration = Duration::from_secs(30);

/// What is watched, by server. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vigil(Arc<Mutex<BTreeMap<String, Watched>>>);

/// Since when a claim has been saying Off, and in which generation of it.
#[derive(Debug)]
struct Watched {
    generation: Option<i64>,
    since: Instant,
}

impl Vigil {
    /// The claim of a server says Off. For how much longer it must say so.
    pub(crate) fn off(&self, server: &str, generation: Option<i64>) -> Duration {
        let now = Instant::now();
        let begun = Watched {
            generation,
            since: now,
        };
        let mut claims = self.0.lock();
        let watched = match claims.entry(server.to_owned()) {
            Entry::Vacant(new) => new.insert(begun),
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.generation != generation {
                    // Somebody changed it and back between two looks.
                    *known = begun;
                }
                known
            }
        };
        VIGIL.saturating_sub(now.duration_since(watched.since))
    }

    /// It does not.
    pub(crate) fn ended(&self, server: &str) {
        self.0.lock().remove(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_a_minute_without_a_change_is_what_it_takes() {
        let vigil = Vigil::default();
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        assert_eq!(vigil.off("a", Some(2)), VIGIL);
        wait(29).await;
        assert_eq!(vigil.off("a", Some(2)), Duration::from_secs(1));
        assert_eq!(vigil.off("b", Some(1)), VIGIL, "each claim by itself");
        wait(1).await;
        assert_eq!(vigil.off("a", Some(2)), Duration::ZERO);
        assert_eq!(vigil.off("a", Some(4)), VIGIL, "reverted and set again unseen");
        wait(40).await;
        assert_eq!(vigil.off("a", Some(4)), Duration::ZERO);
        vigil.ended("a");
        assert_eq!(vigil.off("a", Some(4)), VIGIL);
    }
}
