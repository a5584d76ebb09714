// SPDX-License-Identifier: Apache-2.0
//! All guests, and which of them a host has. Whoever may have changed one is noted, so that a step costs what it touched
//! and not what there is: the promise about copies is checked for those, and they are sorted in again.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Index, IndexMut};

use cobaltcore_api::names::ServerId;

use crate::hosts::Server;

/// The guests of a world.
pub(crate) struct Servers {
    all: Vec<Server>,
    by_id: HashMap<ServerId, usize>,
    /// Per host, the guests that Nova has there or that execute there.
    here: Vec<BTreeSet<usize>>,
    /// Per host, how many Nova has there.
    counts: Vec<usize>,
    /// Where each was sorted in.
    sorted: Vec<Place>,
    /// Those that may have changed since they were sorted in.
    touched: Vec<usize>,
    /// Per host, how often its guests changed.
    changes: Vec<u64>,
}

/// Where a guest is, as far as lists of guests depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// Where Nova has it, unless it was deleted.
    host: Option<usize>,
    runs_on: BTreeSet<usize>,
}

impl Place {
    fn of(server: &Server) -> Self {
        Self {
            host: (!server.deleted).then_some(server.host),
            runs_on: server.runs_on.clone(),
        }
    }

    fn hosts(&self) -> impl Iterator<Item = usize> {
        let elsewhere = self.runs_on.iter().copied().filter(|h| Some(*h) != self.host);
        self.host.into_iter().chain(elsewhere)
    }
}

impl Servers {
    pub(crate) fn new(all: Vec<Server>, hosts: usize) -> Self {
        let mut servers = Self {
            by_id: all
                .iter()
                .enumerate()
                .map(|(n, server)| (server.id.clone(), n))
                .collect(),
            here: vec![BTreeSet::new(); hosts],
            counts: vec![0; hosts],
            sorted: vec![Place::default(); all.len()],
            touched: (0..all.len()).collect(),
            changes: vec![0; hosts],
            all,
        };
        servers.settle();
        servers
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn index_of(&self, id: &ServerId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The guests that Nova has on a host or that execute there, in their order.
    pub(crate) fn around(&self, h: usize) -> Vec<usize> {
        let there = |n: &usize| Place::of(&self.all[*n]).hosts().any(|host| host == h);
        if self.touched.is_empty() {
            return self.here[h].iter().copied().collect();
        }
        let mut found: Vec<usize> = self.here[h].iter().chain(&self.touched).copied().collect();
        found.sort_unstable();
        found.dedup();
        found.retain(there);
        found
    }

    /// The guests that Nova has on a host, in their order.
    pub(crate) fn of_host(&self, h: usize) -> Vec<usize> {
        let mut found = self.around(h);
        found.retain(|n| self.all[*n].host == h && !self.all[*n].deleted);
        found
    }

    /// The guests that execute on a host, in their order.
    pub(crate) fn running_on(&self, h: usize) -> Vec<usize> {
        let mut found = self.around(h);
        found.retain(|n| self.all[*n].runs_on.contains(&h));
        found
    }

    /// How many guests Nova has on a host.
    pub(crate) fn count(&self, h: usize) -> usize {
        if self.touched.is_empty() {
            self.counts[h]
        } else {
            self.of_host(h).len()
        }
    }

    /// How often the guests of a host changed until the latest step ended.
    pub(crate) fn changes(&self, h: usize) -> u64 {
        self.changes[h]
    }

    /// Sorts in what was touched; says who of them executes more than once.
    pub(crate) fn settle(&mut self) -> Option<usize> {
        let mut twice = None;
        for n in std::mem::take(&mut self.touched) {
            let place = Place::of(&self.all[n]);
            if place.runs_on.len() > 1 {
                twice = Some(twice.map_or(n, |other: usize| other.min(n)));
            }
            if place == self.sorted[n] {
                continue;
            }
            let before = std::mem::replace(&mut self.sorted[n], place.clone());
            for h in before.hosts() {
                self.here[h].remove(&n);
                self.changes[h] += 1;
            }
            for h in place.hosts() {
                self.here[h].insert(n);
                self.changes[h] += 1;
            }
            if let Some(h) = before.host {
                self.counts[h] -= 1;
            }
            if let Some(h) = place.host {
                self.counts[h] += 1;
            }
        }
        twice
    }

    /// Who executes more than once, looked for among all; and whether everybody is where they were sorted in.
    pub(crate) fn audit(&self) -> (Option<usize>, bool) {
        let twice = self.all.iter().position(|server| server.runs_on.len() > 1);
        let fresh = Self::new(self.all.clone(), self.here.len());
        let sorted = fresh.here == self.here && fresh.counts == self.counts && self.touched.is_empty();
        (twice, sorted)
    }
}

impl Index<usize> for Servers {
    type Output = Server;

    fn index(&self, n: usize) -> &Server {
        &self.all[n]
    }
}

impl IndexMut<usize> for Servers {
    fn index_mut(&mut self, n: usize) -> &mut Server {
        if self.touched.last() != Some(&n) {
            self.touched.push(n);
        }
        &mut self.all[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_is_seen_before_it_is_sorted_in() {
        let mut servers = Servers::new((0..6).map(|n| Server::new(n, n / 2)).collect(), 4);
        assert_eq!((servers.of_host(1), servers.count(1)), (vec![2, 3], 2));
        servers[2].host = 3;
        servers[3].deleted = true;
        servers[0].runs_on.insert(1);
        for _ in 0..2 {
            assert_eq!(servers.of_host(1), Vec::<usize>::new());
            assert_eq!(servers.running_on(1), [0, 2, 3]);
            assert_eq!((servers.of_host(3), servers.count(3)), (vec![2], 1));
            servers.settle();
        }
        assert_eq!(servers.audit(), (Some(0), true));
    }

    #[test]
    fn a_second_copy_is_found_in_the_step_that_makes_it() {
        let mut servers = Servers::new((0..6).map(|n| Server::new(n, n / 2)).collect(), 4);
        servers[4].runs_on.insert(0);
        servers[1].runs_on.insert(3);
        assert_eq!(
            servers.settle(),
            Some(1),
            "the first of them, as a look at all would"
        );
        assert_eq!(servers.audit().0, Some(1));
        let before = servers.changes(2);
        servers[4].priority = 3;
        assert_eq!(servers.settle(), Some(4), "it still is");
        assert_eq!(servers.changes(2), before, "and nothing moved");
    }
}
