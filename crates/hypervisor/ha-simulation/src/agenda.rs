// SPDX-License-Identifier: Apache-2.0
//! What will happen, in the order in which it will: by time, and at one moment in the order in which it was planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One thing that will happen.
struct Planned<E> {
    at: u64,
    n: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    /// The greatest is the next.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.n).cmp(&(self.at, self.n))
    }
}

/// All that will happen.
pub(crate) struct Agenda<E> {
    planned: BinaryHeap<Planned<E>>,
    count: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            planned: BinaryHeap::new(),
            count: 0,
        }
    }
}

impl<E> Agenda<E> {
    pub(crate) fn plan(&mut self, at: u64, event: E) {
        self.count += 1;
        self.planned.push(Planned {
            at,
            n: self.count,
            event,
        });
    }

    /// What is next, if that is not after `until`.
    pub(crate) fn next(&mut self, until: u64) -> Option<(u64, E)> {
        self.planned.peek().filter(|next| next.at <= until)?;
        self.planned.pop().map(|next| (next.at, next.event))
    }
}
