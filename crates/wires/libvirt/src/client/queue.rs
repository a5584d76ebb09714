// SPDX-License-Identifier: Apache-2.0
//! The bounded queue between the task that reads the socket and whoever wants the events. Putting something in never
//! waits; when it is full the oldest entries go and the reader finds a mark in their place that says how many.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What a queue carries.
pub(crate) trait Entry {
    /// The mark for entries that were lost.
    fn gap(missed: u64) -> Self;
    /// How many events this entry stands for when it is lost.
    fn stands_for(&self) -> u64;
}

struct Inner<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    missed: u64,
    closed: bool,
}

enum Taken<T> {
    Entry(T),
    Nothing,
    Over,
}

/// See the module.
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    ready: Notify,
    capacity: usize,
    byte_capacity: usize,
}

impl<T: Entry> Queue<T> {
    pub(crate) fn new(capacity: usize, byte_capacity: usize) -> Self {
        let inner = Inner {
            entries: VecDeque::new(),
            bytes: 0,
            missed: 0,
            closed: false,
        };
        Self {
            inner: Mutex::new(inner),
            ready: Notify::new(),
            capacity: capacity.max(1),
            byte_capacity: byte_capacity.max(1),
        }
    }

    /// Adds an entry of `bytes`, making room by dropping the oldest.
    pub(crate) fn push(&self, entry: T, bytes: usize) {
        let mut inner = self.inner.lock();
        if inner.closed {
            return;
        }
        inner.entries.push_back((entry, bytes));
        inner.bytes = inner.bytes.saturating_add(bytes);
        while inner.entries.len() > self.capacity
            || (inner.bytes > self.byte_capacity && inner.entries.len() > 1)
        {
            let Some((oldest, size)) = inner.entries.pop_front() else {
                break;
            };
            inner.bytes = inner.bytes.saturating_sub(size);
            inner.missed = inner.missed.saturating_add(oldest.stands_for());
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// No more entries will come; those that are there can still be taken.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.ready.notify_one();
    }

    /// How many entries wait.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// The next entry, or the mark for lost ones, or `None` when closed and empty. Safe to cancel. One reader only.
    pub(crate) async fn next(&self) -> Option<T> {
        loop {
            let waiting = self.ready.notified();
            match self.take() {
                Taken::Entry(entry) => return Some(entry),
                Taken::Over => return None,
                Taken::Nothing => waiting.await,
            }
        }
    }

    /// The next entry if there is one already.
    pub(crate) fn try_next(&self) -> Option<T> {
        match self.take() {
            Taken::Entry(entry) => Some(entry),
            Taken::Over | Taken::Nothing => None,
        }
    }

    fn take(&self) -> Taken<T> {
        let mut inner = self.inner.lock();
        if inner.missed > 0 {
            return Taken::Entry(T::gap(std::mem::take(&mut inner.missed)));
        }
        match inner.entries.pop_front() {
            Some((entry, size)) => {
                inner.bytes = inner.bytes.saturating_sub(size);
                if inner.entries.is_empty() {
                    // A burst is over: give its memory back.
                    inner.entries.shrink_to(64);
                }
                Taken::Entry(entry)
            }
            None if inner.closed => Taken::Over,
            None => Taken::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Item {
        Number(u32),
        Gap(u64),
    }

    impl Entry for Item {
        fn gap(missed: u64) -> Self {
            Self::Gap(missed)
        }
        fn stands_for(&self) -> u64 {
            match self {
                Self::Number(_) => 1,
                Self::Gap(missed) => *missed,
            }
        }
    }

    #[tokio::test]
    async fn a_full_queue_loses_the_oldest_and_says_how_many() {
        let queue = Queue::new(3, 1 << 20);
        for number in 0..10 {
            queue.push(Item::Number(number), 1);
        }
        queue.close();
        let mut seen = Vec::new();
        while let Some(item) = queue.next().await {
            seen.push(item);
        }
        assert_eq!(
            seen,
            [Item::Gap(7), Item::Number(7), Item::Number(8), Item::Number(9)]
        );
    }

    #[tokio::test]
    async fn large_entries_are_bounded_by_their_bytes() {
        let queue = Queue::new(1000, 100);
        for number in 0..5 {
            queue.push(Item::Number(number), 60);
        }
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.next().await, Some(Item::Gap(4)));
        assert_eq!(queue.next().await, Some(Item::Number(4)));
    }

    #[tokio::test]
    async fn a_lost_gap_counts_what_it_stood_for() {
        let queue = Queue::new(1, 100);
        queue.push(Item::Gap(5), 1);
        queue.push(Item::Number(1), 1);
        assert_eq!(queue.next().await, Some(Item::Gap(5)));
        assert_eq!(queue.next().await, Some(Item::Number(1)));
    }
}
