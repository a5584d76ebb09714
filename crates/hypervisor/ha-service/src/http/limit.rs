// SPDX-License-Identifier: Apache-2.0
//! How many requests one credential may make: a bucket that fills with time and holds two seconds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Credentials that are kept in mind.
const MOST: usize = 16_384;

pub(crate) struct Limiter {
    per_second: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Limiter {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            buckets: Mutex::default(),
        }
    }

    /// Whether `who` may make a request now.
    pub(crate) fn take(&self, who: &str, now: Instant) -> bool {
        let most = 2.0 * self.per_second;
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MOST && !buckets.contains_key(who) {
            buckets.retain(|_, (_, at)| now.saturating_duration_since(*at) < Duration::from_secs(10));
        }
        let (left, at) = buckets.entry(who.to_owned()).or_insert((most, now));
        let past = now.saturating_duration_since(*at).as_secs_f64();
        *left = (*left + past * self.per_second).min(most);
        *at = now;
        let may = *left >= 1.0;
        if may {
            *left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_a_flood_is_not() {
        let limiter = Limiter::new(10);
        let now = Instant::now();
        let taken = |who: &str, at: Instant| (0..100).filter(|_| limiter.take(who, at)).count();
        assert_eq!(taken("a", now), 20);
        assert_eq!(taken("b", now), 20, "one's flood is not another's");
        assert_eq!(taken("a", now + Duration::from_secs(1)), 10);
    }
}
