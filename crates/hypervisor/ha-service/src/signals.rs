// SPDX-License-Identifier: Apache-2.0
//! Verdicts of sources besides agents, kept for people: the latest of each, and a history.

use cobaltcore_api::names::HostName;
use rusqlite::params;

use crate::store::Store;

/// What a source said of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The signal.
    pub name: String,
    /// `dead`, `alive`, `degraded` or `info`.
    pub verdict: String,
    /// When it was observed.
    pub at: jiff::Timestamp,
    /// More about it.
    pub detail: String,
}

/// Writes it down; a change also into the history.
pub fn record(store: &Store, host: &HostName, group: &str, said: Said) {
    let (host, group) = (host.to_string(), group.to_owned());
    store.write_later(move |transaction| {
        let before: Option<String> = {
            let mut query = transaction
                .prepare_cached("select verdict from signals where host = ?1 and grp = ?2 and name = ?3")?;
            let mut rows = query.query(params![host, group, said.name])?;
            rows.next()?.map(|row| row.get(0)).transpose()?
        };
        let at = said.at.as_millisecond();
        transaction
            .prepare_cached("insert or replace into signals values(?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![host, group, said.name, said.verdict, at, said.detail])?;
        if before.as_deref() != Some(said.verdict.as_str()) {
            transaction
                .prepare_cached("insert into signal_history values(?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![host, group, said.name, said.verdict, at, said.detail])?;
        }
        Ok(())
    });
}
