// SPDX-License-Identifier: Apache-2.0
//! Retention: what is too old goes, and when the file is too large, what matters least goes first.
//! Incidents, the journal and the audit stay whatever the size.

use std::time::Duration;

use rusqlite::{Transaction, params};

use super::read::first_since;
use super::servers::SEEN_LAG;
use super::{Store, StoreError};
use crate::config::Retention;

/// Rows of one step, so that nobody waits long behind one.
const SLICE: usize = 5000;
/// Steps of one round.
const STEPS: usize = 200;

/// How much may be kept.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long.
    pub retention: Retention,
    /// How many bytes.
    pub max_bytes: u64,
}

/// What a round removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Rows that were too old.
    pub old: usize,
    /// Rows that were too many.
    pub surplus: usize,
    /// Bytes in use afterwards.
    pub bytes: u64,
}

/// A table, the column with the time, and how many of its units a second has.
const AGED: [(&str, &str, i64); 6] = [
    ("samples", "ts", 1000),
    ("signal_history", "observed_at", 1000),
    ("streams", "last_seen", 1000),
    ("incidents", "updated_at", 1000),
    ("audit", "at", 1000),
    ("journal", "at", 1000),
];

/// Of hosts that are known the latest verdict stays, however old.
const UNHEARD: &str = "observed_at < ?1 and not exists (select 1 from hosts where hosts.host = signals.host)";

impl Store {
    /// One round of cleaning.
    pub async fn clean(&self, limits: &Limits, now_ms: i64) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let Retention {
            events,
            heartbeats,
            samples,
            signals,
            streams,
            vms,
            hosts,
            incidents,
        } = limits.retention.clone();
        let before = now_ms - whole(events.0) * 1000;
        let first = self
            .read(move |connection| first_since(connection, before))
            .await?;
        pruned.old += self.prune("events", "id < ?1".into(), first).await?;
        let ages = [
            samples.0,
            signals.0,
            streams.0,
            incidents.0,
            incidents.0,
            incidents.0,
        ];
        for ((table, column, unit), age) in AGED.into_iter().zip(ages) {
            let before = now_ms - whole(age) * unit;
            let mut condition = format!("{column} < ?1");
            // What is open is never too old.
            if table == "streams" {
                condition.push_str(" and not exists (select 1 from events where stream = streams.id)");
            }
            if table == "incidents" {
                condition.push_str(" and open = 0");
            }
            if table == "journal" {
                // They go with the incident, however long it took.
                condition.push_str(" and not exists (select 1 from incidents where id = journal.incident)");
            }
            pruned.old += self.prune(table, condition, before).await?;
        }
        let minute = (now_ms - whole(heartbeats.0) * 1000) / 60_000;
        pruned.old += self
            .prune("heartbeat_minute", "minute < ?1".into(), minute)
            .await?;
        let gone = now_ms - whole(vms.0) * 1000;
        pruned.old += self.prune("vms", gone_guests(), gone).await?;
        let gone = now_ms - whole(hosts.0) * 1000;
        pruned.old += self.prune("hosts", "known_at < ?1".into(), gone).await?;
        let unheard = now_ms - whole(limits.retention.signals.0) * 1000;
        pruned.old += self.prune("signals", UNHEARD.into(), unheard).await?;
        pruned.surplus = self.shrink(limits.max_bytes).await?;
        self.forget().await?;
        pruned.bytes = self.size().await?;
        self.tidy();
        Ok(pruned)
    }

    async fn prune(&self, table: &'static str, condition: String, before: i64) -> Result<usize, StoreError> {
        let mut total = 0;
        for _ in 0..STEPS {
            let condition = condition.clone();
            let removed = self
                .remove(move |transaction| delete(transaction, table, &condition, "", Some(before)))
                .await?;
            total += removed;
            if removed < SLICE {
                break;
            }
        }
        Ok(total)
    }

    /// Removes what matters least until the file fits.
    async fn shrink(&self, max_bytes: u64) -> Result<usize, StoreError> {
        const ORDER: [(&str, &str); 4] = [
            ("samples", "order by ts"),
            ("signal_history", "order by observed_at"),
            ("heartbeat_minute", "order by minute"),
            ("events", "order by id"),
        ];
        let mut total = 0;
        for (table, order) in ORDER {
            for _ in 0..STEPS {
                if self.size().await? <= max_bytes {
                    return Ok(total);
                }
                let removed = self
                    .remove(move |transaction| delete(transaction, table, "1", order, None))
                    .await?;
                total += removed;
                if removed < SLICE {
                    break;
                }
            }
        }
        Ok(total)
    }

    async fn remove(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<usize> + Send + 'static,
    ) -> Result<usize, StoreError> {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.write(move |transaction| {
            let removed = work(transaction)?;
            let _ = send.send(removed);
            Ok(())
        })
        .await?;
        receive.await.map_err(|_| StoreError::Closed)
    }

    /// Bytes in use.
    pub async fn size(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let figure = |name: &str| -> rusqlite::Result<i64> {
                connection.query_row(&format!("pragma {name}"), [], |row| row.get(0))
            };
            let pages = figure("page_count")? - figure("freelist_count")?;
            Ok((pages * figure("page_size")?).cast_unsigned())
        })
        .await
    }
}

/// Guests that neither Nova nor an agent has shown since `?1`. What does not change is not written again: Nova's word
/// is as old as a day longer, and a guest that its agent showed stays while that agent speaks.
fn gone_guests() -> String {
    let lag = whole(SEEN_LAG) * 1000;
    format!(
        "coalesce(nova_seen, 0) < ?1 - {lag} and coalesce(agent_seen, 0) < ?1
            and not exists (select 1 from hosts where host = vms.agent_host and coalesce(last_seen, 0) >= ?1)"
    )
}

fn whole(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX / 1_000_000)
}

fn delete(
    transaction: &Transaction<'_>,
    table: &str,
    condition: &str,
    order: &str,
    before: Option<i64>,
) -> rusqlite::Result<usize> {
    // Tables without row ids are addressed by their keys.
    let key = match table {
        "samples" => "(source, series, ts)",
        "heartbeat_minute" => "(host, minute)",
        "incidents" => "id",
        "journal" => "(incident, seq)",
        "vms" => "uuid",
        "hosts" => "host",
        "signals" => "(host, grp, name)",
        _ => "rowid",
    };
    let columns = key.trim_matches(['(', ')']);
    let sql = format!(
        "delete from {table} where {key} in (select {columns} from {table} where {condition} {order} limit {SLICE})"
    );
    let removed = match before {
        Some(before) => transaction.execute(&sql, params![before])?,
        None => transaction.execute(&sql, [])?,
    };
    Ok(removed)
}
