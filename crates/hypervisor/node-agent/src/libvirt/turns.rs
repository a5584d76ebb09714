// SPDX-License-Identifier: Apache-2.0
//! What is read again although nothing says that it changed. One thing per comparison with libvirt's list, the most
//! important that is due: an idle host is asked three things a minute, however many guests it has.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

/// Definitions read at once. The daemon stops listening to a client with five calls under way.
const AT_ONCE: usize = 3;

/// Something to read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Capabilities of the host.
    Host,
    /// Free huge pages.
    Pages,
    /// What guests may have.
    DomainCapabilities,
    /// The definition of a guest.
    Definition(Uuid),
}

/// When things were read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    host: Option<Instant>,
    pages: Option<Instant>,
    domain_capabilities: Option<Instant>,
}

impl Turns {
    /// Something of the host is being read now.
    pub(super) fn taken(&mut self, turn: Turn) {
        let now = Some(Instant::now());
        match turn {
            Turn::Host => self.host = now,
            Turn::Pages => self.pages = now,
            Turn::DomainCapabilities => self.domain_capabilities = now,
            Turn::Definition(_) => {}
        }
    }

    /// What to read again now, if anything is older than `refresh`.
    pub(super) fn next(&self, refresh: Duration, has_pages: bool, reads: &Reads) -> Option<Turn> {
        let due = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= refresh);
        if due(self.host) {
            return Some(Turn::Host);
        }
        if has_pages && due(self.pages) {
            return Some(Turn::Pages);
        }
        if due(self.domain_capabilities) {
            return Some(Turn::DomainCapabilities);
        }
        let (guest, at) = reads.read_at.iter().min_by_key(|(_, at)| **at)?;
        due(Some(*at)).then_some(Turn::Definition(*guest))
    }
}

/// Definitions that wait to be read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    waiting: VecDeque<Uuid>,
    queued: HashSet<Uuid>,
    running: HashSet<Uuid>,
    read_at: HashMap<Uuid, Instant>,
}

impl Reads {
    /// A definition is wanted.
    pub(super) fn add(&mut self, guest: Uuid) {
        if self.queued.insert(guest) {
            self.waiting.push_back(guest);
        }
    }

    /// The next guest to read. One that is being read has to wait: its answer may be older than the wish.
    pub(super) fn next(&mut self) -> Option<Uuid> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let at = self
            .waiting
            .iter()
            .position(|guest| !self.running.contains(guest))?;
        let guest = self.waiting.remove(at)?;
        self.queued.remove(&guest);
        self.running.insert(guest);
        Some(guest)
    }

    /// A guest was read, or found gone. Says whether another event overtook the answer.
    pub(super) fn done(&mut self, guest: Uuid, there: Option<bool>) -> bool {
        self.running.remove(&guest);
        match there {
            Some(true) => {
                self.read_at.insert(guest, Instant::now());
            }
            Some(false) => {
                self.read_at.remove(&guest);
            }
            // No answer says nothing about the guest.
            None => {}
        }
        self.queued.contains(&guest)
    }

    /// Forgets when guests were read that are not there any more.
    pub(super) fn keep(&mut self, there: &HashSet<Uuid>) {
        self.read_at.retain(|guest, _| there.contains(guest));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_mins(10);

    #[test]
    fn a_guest_is_read_once_at_a_time_and_again_when_it_changed_meanwhile() {
        let guest = Uuid::from_u128;
        let mut reads = Reads::default();
        for number in [1, 2, 1, 3, 4] {
            reads.add(guest(number));
        }
        let first: Vec<Uuid> = std::iter::from_fn(|| reads.next()).collect();
        assert_eq!(first, [guest(1), guest(2), guest(3)], "never more than three");
        reads.add(guest(1));
        assert!(!reads.done(guest(2), Some(true)));
        assert_eq!(reads.next(), Some(guest(4)), "1 is still being read");
        assert!(reads.done(guest(1), Some(true)), "the answer was overtaken");
        assert_eq!(reads.next(), Some(guest(1)));
        for number in [1, 3, 4] {
            reads.done(guest(number), None);
        }
        assert!(reads.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn everything_has_its_turn_and_nothing_is_read_twice_in_ten_minutes() {
        let guests: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
        let (mut turns, mut reads) = (Turns::default(), Reads::default());
        for guest in &guests {
            reads.done(*guest, Some(true));
        }
        let mut seen = Vec::new();
        for _ in 0..30 {
            tokio::time::advance(Duration::from_mins(1)).await;
            let Some(turn) = turns.next(REFRESH, true, &reads) else {
                continue;
            };
            turns.taken(turn);
            if let Turn::Definition(guest) = turn {
                reads.done(guest, Some(true));
            }
            seen.push(turn);
        }
        let count = |wanted: Turn| seen.iter().filter(|turn| **turn == wanted).count();
        for turn in [Turn::Host, Turn::Pages, Turn::DomainCapabilities] {
            assert_eq!(count(turn), 3, "{turn:?} in {seen:?}");
        }
        for guest in guests {
            assert!((1..=3).contains(&count(Turn::Definition(guest))), "{seen:?}");
        }
    }
}
