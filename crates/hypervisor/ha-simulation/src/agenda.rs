// SPDX-License-Identifier: Apache-2.0
//! What will happen, in the order in which it will: by time, and at one moment in the order in which it was planned.
//! What is near has a place for its millisecond; what is farther off waits in a heap. A fleet plans tens of millions of
//! things a day, nearly all of them for the next seconds.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Milliseconds that count as near.
const NEAR: usize = 16_384;
const WORDS: usize = NEAR / 64;

/// One thing that will happen later.
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
    /// The moment of what happened last; nothing is planned for earlier.
    now: u64,
    count: u64,
    /// By millisecond, from `now` on and around again.
    near: Vec<VecDeque<(u64, E)>>,
    /// One bit for each of them that is not empty.
    taken: [u64; WORDS],
    far: BinaryHeap<Planned<E>>,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            now: 0,
            count: 0,
            near: std::iter::repeat_with(VecDeque::new).take(NEAR).collect(),
            taken: [0; WORDS],
            far: BinaryHeap::new(),
        }
    }
}

fn place(at: u64) -> usize {
    (at % NEAR as u64) as usize
}

impl<E> Agenda<E> {
    pub(crate) fn plan(&mut self, at: u64, event: E) {
        self.count += 1;
        let n = self.count;
        if at - self.now < NEAR as u64 {
            let slot = place(at);
            self.near[slot].push_back((n, event));
            self.taken[slot / 64] |= 1 << (slot % 64);
        } else {
            self.far.push(Planned { at, n, event });
        }
    }

    /// What is next, if that is not after `until`.
    pub(crate) fn next(&mut self, until: u64) -> Option<(u64, E)> {
        let near = self.nearest();
        let first = near.and_then(|at| Some((at, self.near[place(at)].front()?.0)));
        let far = self.far.peek().map(|planned| (planned.at, planned.n));
        let at = match (first, far) {
            (Some(first), Some(far)) => first.min(far).0,
            (first, far) => first.or(far)?.0,
        };
        if at > until {
            return None;
        }
        self.now = at;
        if far.is_some() && first.is_none_or(|first| far < Some(first)) {
            return self.far.pop().map(|planned| (planned.at, planned.event));
        }
        let slot = place(at);
        let event = self.near[slot].pop_front().map(|(_, event)| (at, event));
        if self.near[slot].is_empty() {
            self.taken[slot / 64] &= !(1 << (slot % 64));
        }
        event
    }

    /// The first millisecond from now on for which something near is planned.
    fn nearest(&self) -> Option<u64> {
        let start = place(self.now);
        let (word, ahead) = (start / 64, u64::MAX << (start % 64));
        let found = (0..=WORDS).find_map(|k| {
            let at = (word + k) % WORDS;
            let bits = match k {
                0 => self.taken[at] & ahead,
                WORDS => self.taken[at] & !ahead,
                _ => self.taken[at],
            };
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        })?;
        Some(self.now + ((found + NEAR - start) % NEAR) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a list would have it that is sorted by time and by when it was planned.
    #[test]
    fn things_happen_in_the_order_of_time_and_of_planning() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..40 {
            let (mut agenda, mut all) = (Agenda::default(), Vec::new());
            let (mut now, mut n) = (0, 0);
            while n < 600 {
                for _ in 0..rng.usize(..6) {
                    n += 1;
                    let after = match rng.u8(..4) {
                        0 => 0,
                        1 => rng.u64(..50),
                        2 => rng.u64(..NEAR as u64 * 2),
                        _ => rng.u64(..NEAR as u64 * 20),
                    };
                    agenda.plan(now + after, n);
                    all.push((now + after, n));
                }
                let until = now + rng.u64(..20_000);
                for _ in 0..rng.usize(..7) {
                    all.sort_unstable();
                    let wanted = all.first().copied().filter(|(at, _)| *at <= until);
                    assert_eq!(agenda.next(until), wanted);
                    if wanted.is_some() {
                        all.remove(0);
                    }
                    now = wanted.map_or(now, |(at, _)| at);
                }
            }
        }
    }
}
