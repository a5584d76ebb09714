// SPDX-License-Identifier: Apache-2.0
//! When agents were last heard, in memory, and the history of it per minute, in the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_api::names::HostName;
use parking_lot::Mutex;
use rusqlite::params;
use tokio_util::sync::CancellationToken;

use crate::leadership::pause;
use crate::store::Store;

const FLUSH: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
struct Ear {
    /// Decides how long the agent has been silent; a wall clock may jump.
    heard: Instant,
    /// The same moment for people and for the database.
    last: jiff::Timestamp,
    boot: String,
    uptime_s: u64,
    minute: i64,
    count: u32,
    max_gap_ms: i64,
}

/// When agents were last heard. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<HashMap<HostName, Ear>>>);

impl Heard {
    /// An agent was heard.
    pub fn note(&self, host: &HostName, boot: &str, uptime_s: u64, at: jiff::Timestamp) {
        let minute = at.as_second().div_euclid(60);
        let now = Instant::now();
        let mut ears = self.0.lock();
        let ear = ears.entry(host.clone()).or_insert_with(|| Ear {
            heard: now,
            last: at,
            boot: boot.to_owned(),
            uptime_s,
            minute,
            count: 0,
            max_gap_ms: 0,
        });
        if ear.minute != minute {
            (ear.minute, ear.count, ear.max_gap_ms) = (minute, 0, 0);
        }
        let gap = i64::try_from(now.duration_since(ear.heard).as_millis()).unwrap_or(i64::MAX);
        ear.max_gap_ms = ear.max_gap_ms.max(gap);
        ear.count += 1;
        (ear.heard, ear.last, ear.uptime_s) = (now, at, uptime_s);
        if ear.boot != boot {
            boot.clone_into(&mut ear.boot);
        }
    }

    /// When the agent of `host` was last heard.
    pub fn last(&self, host: &HostName) -> Option<jiff::Timestamp> {
        self.0.lock().get(host).map(|ear| ear.last)
    }

    /// Whether it was heard within `time`, whatever the wall clock shows.
    pub fn fresh(&self, host: &HostName, time: Duration) -> bool {
        let ears = self.0.lock();
        ears.get(host).is_some_and(|ear| ear.heard.elapsed() < time)
    }

    /// Writes the history until `stop`.
    pub async fn keep(self, store: Store, stop: CancellationToken) {
        loop {
            let stopped = pause(&stop, FLUSH).await;
            let rows: Vec<(String, Ear)> = self
                .0
                .lock()
                .iter()
                .map(|(host, ear)| (host.to_string(), ear.clone()))
                .collect();
            store.write_later(move |transaction| {
                let mut minute = transaction.prepare_cached(
                    "insert into heartbeat_minute values(?1, ?2, ?3, ?4, ?5)
                     on conflict(host, minute) do update set count = ?3, max_gap_ms = ?4, uptime_s = ?5",
                )?;
                let mut seen = transaction
                    .prepare_cached("update hosts set last_seen = ?2, boot_id = ?3 where host = ?1")?;
                for (host, ear) in rows {
                    minute.execute(params![
                        host,
                        ear.minute,
                        ear.count,
                        ear.max_gap_ms,
                        ear.uptime_s.cast_signed()
                    ])?;
                    seen.execute(params![host, ear.last.as_millisecond(), ear.boot])?;
                }
                Ok(())
            });
            if stopped {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_jumps_makes_no_host_fresh_or_silent() {
        let (heard, hour) = (Heard::default(), jiff::SignedDuration::from_hours(1));
        let host = |name| HostName::new(name).unwrap();
        heard.note(&host("ahead"), "boot", 1, jiff::Timestamp::now() + hour);
        heard.note(&host("behind"), "boot", 1, jiff::Timestamp::now() - hour);
        assert!(
            !heard.fresh(&host("ahead"), Duration::ZERO),
            "its age is not negative"
        );
        assert!(heard.fresh(&host("behind"), Duration::from_mins(30)));
    }
}
