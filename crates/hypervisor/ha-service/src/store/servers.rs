// SPDX-License-Identifier: Apache-2.0
//! What is kept of the servers that Nova lists. A list of fifty thousand of which nothing changed writes nothing; that a
//! server is still there is written down once a day.

use std::time::Duration;

use rusqlite::{Transaction, params};

use super::Store;

/// How far the time at which Nova last listed a server may be behind.
pub(super) const SEEN_LAG: Duration = Duration::from_hours(24);

/// What is kept of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptServer {
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// Our name of its host, or Nova's if we have none.
    pub(crate) host: Option<String>,
    pub(crate) vm_state: Option<String>,
    pub(crate) task_state: Option<String>,
    pub(crate) project: Option<String>,
    pub(crate) flavor: String,
    pub(crate) policy: String,
    pub(crate) priority: u16,
    pub(crate) group: String,
}

impl Store {
    /// Keeps what Nova listed, some time; lost if too much waits.
    pub(crate) fn keep_servers(&self, servers: Vec<KeptServer>, now_ms: i64) -> bool {
        self.write_later(move |transaction| keep(transaction, &servers, now_ms))
    }
}

/// Writes the rows that differ from what is there, and those not confirmed for a day.
fn keep(transaction: &Transaction<'_>, servers: &[KeptServer], now_ms: i64) -> rusqlite::Result<()> {
    let confirmed = now_ms - i64::try_from(SEEN_LAG.as_millis()).unwrap_or(i64::MAX);
    let mut upsert = transaction.prepare_cached(
        "insert into vms(uuid, name, nova_host, vm_state, task_state, project, flavor, policy, priority, grp, nova_seen)
         values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         on conflict(uuid) do update set name = ?2, nova_host = ?3, vm_state = ?4, task_state = ?5, project = ?6,
            flavor = ?7, policy = ?8, priority = ?9, grp = ?10, nova_seen = ?11
         where coalesce(nova_seen, 0) < ?12
            or (name, nova_host, vm_state, task_state, project, flavor, policy, priority, grp)
                is not (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for server in servers {
        upsert.execute(params![
            server.uuid,
            server.name,
            server.host,
            server.vm_state,
            server.task_state,
            server.project,
            server.flavor,
            server.policy,
            server.priority,
            server.group,
            now_ms,
            confirmed,
        ])?;
    }
    Ok(())
}
