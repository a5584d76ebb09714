// SPDX-License-Identifier: Apache-2.0
//! What people do with a database beside the server: copy it, and have it verified. Neither changes it.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::StoreError;
use super::seal::{Closed, Keys, Place};
use super::sqlite::open;

/// Copies a database, also while a server has it open.
pub fn backup(source: &Path, target: &Path) -> Result<(), StoreError> {
    let from = Connection::open_with_flags(source, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| {
        StoreError::Open {
            path: source.to_owned(),
            source: error,
        }
    })?;
    from.busy_timeout(Duration::from_secs(5))?;
    let mut to = open(target)?;
    rusqlite::backup::Backup::new(&from, &mut to)?.run_to_completion(256, Duration::ZERO, None)?;
    Ok(())
}

/// What `check` found in a database.
#[derive(Debug, Default)]
pub struct Report {
    /// Objects found.
    pub objects: u64,
    /// Of these, Secrets that nobody here can open.
    pub sealed: u64,
    /// Events found.
    pub events: u64,
    /// Everything that is wrong, one sentence each.
    pub problems: Vec<String>,
}

/// Verifies a database as it is at one moment; a server may go on writing meanwhile. Sealed Secrets are read where
/// `keys` has theirs.
pub fn check(path: &Path, keys: &Keys) -> Result<Report, StoreError> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|source| {
            StoreError::Open {
                path: path.to_owned(),
                source,
            }
        })?;
    let snapshot = connection.unchecked_transaction()?;
    let connection = &snapshot;
    let mut report = Report::default();
    let integrity: String = connection.query_row("pragma integrity_check(1)", [], |row| row.get(0))?;
    if integrity != "ok" {
        report.problems.push(format!("the file is damaged: {integrity}"));
    }
    let last = connection.query_row(
        "select max(value, (select coalesce(max(rev), 0) from events)) from meta where key = 'revision'",
        [],
        |row| row.get::<_, i64>(0),
    )?;
    report.events =
        connection.query_row("select count(*) from events", [], |row| row.get::<_, i64>(0))? as u64;
    let mut uids = std::collections::HashSet::new();
    let mut statement = connection.prepare("select ns, name, uid, mod_rev, tag, value from objects")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        report.objects += 1;
        let (ns, name, uid): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (rev, tag, body): (i64, i64, Vec<u8>) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let what = format!("{ns}/{name}");
        if !uids.insert(uid) {
            report
                .problems
                .push(format!("{what}: its uid belongs to another object too"));
        }
        let place = Place {
            namespace: &ns,
            name: &name,
            revision: rev as u64,
        };
        let body = match keys.open(place, tag, body) {
            Ok(body) => body,
            Err(Closed::UnknownKey(_)) => {
                report.sealed += 1;
                continue;
            }
            Err(why) => {
                report.problems.push(format!("{what}: {why}"));
                continue;
            }
        };
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Err(error) => report.problems.push(format!("{what}: not JSON: {error}")),
            Ok(object) if object["metadata"]["resourceVersion"].as_str() != Some(&rev.to_string()) => {
                report.problems.push(format!(
                    "{what}: stored under revision {rev} but says {}",
                    object["metadata"]["resourceVersion"]
                ));
            }
            Ok(_) if rev > last => report
                .problems
                .push(format!("{what}: revision {rev} lies beyond the last one {last}")),
            Ok(_) => {}
        }
    }
    Ok(report)
}
