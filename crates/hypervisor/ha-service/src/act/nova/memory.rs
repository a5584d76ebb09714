// SPDX-License-Identifier: Apache-2.0
//! What is remembered of answers that hardly ever change. Each carries when it was asked for: whoever makes a plan takes
//! only young ones, whoever looks again also older ones, and what one try has read helps the next. It has an end.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers by what was asked. When there are too many, the oldest goes.
pub(super) struct Memory<K, V> {
    most: usize,
    known: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Memory<K, V> {
    pub(super) fn of_at_most(most: usize) -> Self {
        Self {
            most,
            known: Mutex::default(),
        }
    }

    /// What was answered to whoever asked no longer than `age` ago.
    pub(super) fn get(&self, key: &K, age: Duration) -> Option<V> {
        let known = self.known.lock();
        let (asked, what) = known.get(key)?;
        (asked.elapsed() < age).then(|| what.clone())
    }

    /// Keeps what was answered to whoever asked then.
    pub(super) fn keep(&self, key: K, asked: Instant, what: V) {
        let mut known = self.known.lock();
        if known.len() >= self.most && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, (asked, _))| *asked);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        known.insert(key, (asked, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_as_long_as_whoever_asks_takes_one_of_its_age() {
        let memory = Memory::of_at_most(8);
        memory.keep("a", Instant::now(), 1);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(memory.get(&"a", Duration::from_secs(60)), None);
        assert_eq!(memory.get(&"a", Duration::from_secs(600)), Some(1));
        memory.keep("a", Instant::now(), 2);
        assert_eq!(memory.get(&"a", Duration::from_secs(60)), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_answers_the_oldest_is_forgotten() {
        let memory = Memory::of_at_most(2);
        for key in ["a", "b", "b", "c"] {
            memory.keep(key, Instant::now(), ());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let known = ["a", "b", "c"].map(|key| memory.get(&key, Duration::MAX).is_some());
        assert_eq!(known, [false, true, true]);
    }
}
