// SPDX-License-Identifier: Apache-2.0
//! How many requests one credential may make: a bucket that fills with time and holds two seconds. And how many
//! connections one address may have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
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

/// Who is connected, by address. One address has half of all connections: enough for a fleet behind one load balancer, and
/// not enough to keep everybody else out.
pub(super) struct Crowd {
    most: usize,
    connected: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Crowd {
    /// Of so many connections.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            most: (connections / 2).max(1),
            connected: Arc::default(),
        }
    }

    /// One more connection of an address, unless it has all it may have.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Admitted> {
        // The same address, whichever kind of socket it came to.
        let address = address.to_canonical();
        let mut connected = self.connected.lock();
        let count = connected.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Admitted {
            address,
            connected: Arc::clone(&self.connected),
        })
    }
}

/// A connection that counts until it ends.
pub(super) struct Admitted {
    address: IpAddr,
    connected: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut connected = self.connected.lock();
        if let Some(count) = connected.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connected.remove(&self.address);
            }
        }
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

    #[test]
    fn one_address_has_half_of_the_connections_and_gets_back_what_it_gives_up() {
        let crowd = Crowd::new(4);
        let [one, mapped, other] =
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let first = crowd.admit(one);
        let second = crowd.admit(mapped);
        assert!(first.is_some() && second.is_some());
        assert!(crowd.admit(one).is_none());
        assert!(crowd.admit(other).is_some());
        drop(second);
        assert!(crowd.admit(one).is_some());
        drop(first);
        assert!(crowd.connected.lock().is_empty(), "who left is forgotten");
        assert!(Crowd::new(1).admit(one).is_some());
    }
}
