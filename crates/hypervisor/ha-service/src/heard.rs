// SPDX-License-Identifier: Apache-2.0
//! When agents were last heard, in memory, and the history of it per minute, in the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use parking_lot::Mutex;
use rusqlite::params;
use tokio_util::sync::CancellationToken;

use crate::leadership::pause;
use crate::store::Store;

const FLUSH: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
struct Ear {
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
        let mut ears = self.0.lock();
        let ear = ears.entry(host.clone()).or_insert_with(|| Ear {
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
        let gap = (at.as_millisecond() - ear.last.as_millisecond()).max(0);
        ear.max_gap_ms = ear.max_gap_ms.max(gap);
        ear.count += 1;
        (ear.last, ear.uptime_s) = (at, uptime_s);
        if ear.boot != boot {
            boot.clone_into(&mut ear.boot);
        }
    }

    /// When the agent of `host` was last heard.
    pub fn last(&self, host: &HostName) -> Option<jiff::Timestamp> {
        self.0.lock().get(host).map(|ear| ear.last)
    }

    /// Whether it was heard within `time`.
    pub fn fresh(&self, host: &HostName, time: Duration) -> bool {
        let limit = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.last(host)
            .is_some_and(|last| jiff::Timestamp::now().as_millisecond() - last.as_millisecond() <= limit)
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
