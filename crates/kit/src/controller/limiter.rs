// SPDX-License-Identifier: Apache-2.0
//! How long a failed object waits: its own growing pause or the next free place in an overall
//! rate, whichever is later. Also keeps one broken object from filling the log.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::retry::Backoff;

const TELL_AGAIN: Duration = Duration::from_mins(1);
const SWEEP_AT: usize = 1024;

type Key = (String, String);

struct Failing {
    failures: u32,
    told: Instant,
    text: u64,
}

/// A bucket of places that fills at a steady rate.
struct Bucket {
    places: f64,
    filled: Instant,
}

pub(super) struct Limiter {
    backoff: Backoff,
    per_second: f64,
    burst: f64,
    bucket: Mutex<Bucket>,
    failing: Mutex<HashMap<Key, Failing>>,
}

/// What to do about a failure.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) failures: u32,
    pub(super) pause: Duration,
    pub(super) tell: bool,
}

impl Limiter {
    pub(super) fn new(backoff: Backoff, per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        let bucket = Mutex::new(Bucket {
            places: burst,
            filled: Instant::now(),
        });
        Self {
            backoff,
            per_second: per_second.max(0.001),
            burst,
            bucket,
            failing: Mutex::default(),
        }
    }

    pub(super) fn succeeded(&self, key: &Key) {
        self.failing.lock().remove(key);
    }

    /// Takes note of a failure. `known` lists the objects that exist, for forgetting others.
    pub(super) fn failed(
        &self,
        key: &Key,
        text: &str,
        now: Instant,
        known: impl FnOnce() -> HashSet<Key>,
    ) -> Verdict {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let text = hasher.finish();
        let mut failing = self.failing.lock();
        if failing.len() >= SWEEP_AT && !failing.contains_key(key) {
            let known = known();
            failing.retain(|key, _| known.contains(key));
        }
        let entry = failing.entry(key.clone()).or_insert_with(|| Failing {
            failures: 0,
            told: now,
            text: !text,
        });
        entry.failures = entry.failures.saturating_add(1);
        let tell = entry.text != text || now.saturating_duration_since(entry.told) >= TELL_AGAIN;
        if tell {
            (entry.told, entry.text) = (now, text);
        }
        let own = self.backoff.random_pause(entry.failures);
        Verdict {
            failures: entry.failures,
            pause: own.max(self.reserve(now)),
            tell,
        }
    }

    /// Takes the next place and says how long until it is free.
    fn reserve(&self, now: Instant) -> Duration {
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.places = (bucket.places + passed * self.per_second).min(self.burst) - 1.0;
        bucket.filled = now;
        Duration::try_from_secs_f64(-bucket.places / self.per_second).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (String::new(), name.to_owned())
    }

    fn none() -> HashSet<Key> {
        HashSet::new()
    }

    #[tokio::test(start_paused = true)]
    async fn each_object_waits_longer_until_it_succeeds() {
        let limiter = Limiter::new(Backoff::CONTROLLER, 10.0, 100);
        let fail = || {
            limiter
                .failed(&key("a"), "x", Instant::now(), none)
                .pause
                .as_millis()
        };
        assert_eq!([fail(), fail(), fail()], [5, 10, 20]);
        assert_eq!(
            limiter
                .failed(&key("b"), "x", Instant::now(), none)
                .pause
                .as_millis(),
            5
        );
        limiter.succeeded(&key("a"));
        assert_eq!(fail(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn many_failing_objects_share_one_rate() {
        let limiter = Limiter::new(Backoff::CONTROLLER, 10.0, 3);
        let now = Instant::now();
        let pauses: Vec<u128> = (0..6)
            .map(|n| {
                limiter
                    .failed(&key(&n.to_string()), "x", now, none)
                    .pause
                    .as_millis()
            })
            .collect();
        assert_eq!(pauses, [5, 5, 5, 100, 200, 300]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(
            limiter
                .failed(&key("late"), "x", Instant::now(), none)
                .pause
                .as_millis(),
            5
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_error_is_told_once_a_minute() {
        let limiter = Limiter::new(Backoff::CONTROLLER, 1000.0, 1000);
        let tell = |text: &str| limiter.failed(&key("a"), text, Instant::now(), none).tell;
        assert_eq!(
            [tell("x"), tell("x"), tell("y"), tell("y")],
            [true, false, true, false]
        );
        tokio::time::advance(TELL_AGAIN).await;
        assert!(tell("y"));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_are_gone_are_forgotten() {
        let limiter = Limiter::new(Backoff::CONTROLLER, 1e6, 1_000_000);
        for number in 0..SWEEP_AT {
            limiter.failed(&key(&number.to_string()), "x", Instant::now(), none);
        }
        limiter.failed(&key("new"), "x", Instant::now(), || HashSet::from([key("7")]));
        assert_eq!(limiter.failing.lock().len(), 2);
    }
}
