// SPDX-License-Identifier: Apache-2.0
//! Verdicts of sources besides agents, kept for people: the latest of each, and a history.

use cobaltcore_api::names::HostName;
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::store::{Store, Work};

/// Verdicts that are written in one go.
const AT_ONCE: usize = 500;

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
    store.write_later(move |transaction| write_down(transaction, &host, &group, &said));
}

/// Writes down what was said of many hosts; nothing of it if there is no room for all. However much that is, it leaves
/// room for others.
pub(crate) fn record_all(store: &Store, group: &str, said: Vec<(HostName, Said)>) -> bool {
    let mut said = said.into_iter();
    let mut works: Vec<Work> = Vec::new();
    loop {
        let some: Vec<(HostName, Said)> = said.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return store.write_all_later(works);
        }
        let group = group.to_owned();
        works.push(Box::new(move |transaction| {
            some.iter()
                .try_for_each(|(host, said)| write_down(transaction, host.as_str(), &group, said))
        }));
    }
}

fn write_down(transaction: &Transaction<'_>, host: &str, group: &str, said: &Said) -> rusqlite::Result<()> {
    let before: Option<String> = transaction
        .prepare_cached("select verdict from signals where host = ?1 and grp = ?2 and name = ?3")?
        .query_row(params![host, group, said.name], |row| row.get(0))
        .optional()?;
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
}
