// SPDX-License-Identifier: Apache-2.0
//! How many migrations the fleet runs at once. Every eviction reserves what it may start before
//! it decides, and gives back what it did not use; what other evictions announced in their status
//! counts from the first moment of a new process.

use std::collections::HashMap;
use std::sync::Arc;

use cobaltcore_api::Eviction;
use kube::ResourceExt as _;
use parking_lot::Mutex;

/// The migrations of the fleet, by the UID of their eviction.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet(Arc<Mutex<HashMap<String, u32>>>);

impl Fleet {
    /// Reserves up to `most` migrations for `uid` beyond the `busy` ones it has, given all
    /// evictions that exist; returns how many more it may start.
    pub(super) fn reserve(&self, uid: &str, busy: u32, most: u32, cap: u32, all: &[Arc<Eviction>]) -> u32 {
        let mut held = self.0.lock();
        held.retain(|uid, _| all.iter().any(|one| one.uid().as_deref() == Some(uid)));
        let others: u32 = all
            .iter()
            .filter_map(|one| {
                let other = one.uid()?;
                let announced = one
                    .status
                    .as_ref()
                    .map_or(0, |status| status.in_flight.len() as u32);
                (other != uid).then(|| held.get(&other).copied().unwrap_or(announced))
            })
            .sum();
        let free = cap.saturating_sub(others.saturating_add(busy)).min(most);
        held.insert(uid.to_owned(), busy.saturating_add(free));
        free
    }

    /// Says how many migrations of `uid` are under way after a decision.
    pub(super) fn settle(&self, uid: &str, moving: u32) {
        self.0.lock().insert(uid.to_owned(), moving);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn eviction(uid: &str, in_flight: usize) -> Arc<Eviction> {
        let entries: Vec<_> = (0..in_flight).map(|n| json!({"id": n.to_string()})).collect();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": uid, "uid": uid},
                "spec": {"hypervisor": uid, "reason": "r"},
                "status": {"inFlight": entries},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn all_evictions_together_keep_within_the_cap() {
        let fleet = Fleet::default();
        let all = [eviction("a", 0), eviction("b", 0), eviction("c", 0)];
        assert_eq!(fleet.reserve("a", 0, 2, 5, &all), 2);
        assert_eq!(fleet.reserve("b", 0, 2, 5, &all), 2);
        assert_eq!(fleet.reserve("c", 0, 2, 5, &all), 1);
        fleet.settle("a", 0);
        assert_eq!(fleet.reserve("c", 1, 2, 5, &all), 2, "what is given back is free");
        assert_eq!(
            fleet.reserve("a", 0, 2, 5, &all[..1]),
            2,
            "the vanished hold nothing"
        );
    }

    #[test]
    fn a_new_process_counts_what_others_announced() {
        let all = [eviction("a", 0), eviction("b", 4)];
        assert_eq!(Fleet::default().reserve("a", 0, 2, 5, &all), 1);
    }
}
