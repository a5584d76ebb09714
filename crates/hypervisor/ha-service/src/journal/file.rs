// SPDX-License-Identifier: Apache-2.0
//! The journal of a replica that is alone: a SQLite file, flushed to the disk with every append.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cobaltcore_ha_engine::{Entry, Record, forgotten};
use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::{Connection, params};

use super::cut::cut;
use super::{AppendError, continues, incomplete};
use crate::error::Error;

/// The layout this program writes.
const LAYOUT: i64 = 1;

/// A journal in a file.
#[derive(Clone)]
pub struct FileJournal(Arc<Mutex<Connection>>);

impl FileJournal {
    /// Opens or makes the journal in a folder.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path: PathBuf = folder.join("journal.db");
        let failed = |source| Error::Store {
            path: path.clone(),
            source,
        };
        let connection = Connection::open(&path).map_err(failed)?;
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .map_err(failed)?;
        connection
            .execute_batch(&format!(
                "pragma journal_mode = wal; pragma synchronous = full;
                 create table if not exists meta(key text primary key, value) without rowid;
                 insert or ignore into meta values('layout', {LAYOUT});
                 create table if not exists journal(seq integer primary key, epoch integer not null,
                    record text not null);"
            ))
            .map_err(failed)?;
        // A damaged journal is nobody's to continue by guessing: this is an error, not a new beginning.
        let verdict: String = connection
            .query_row("pragma quick_check(1)", [], |row| row.get(0))
            .map_err(failed)?;
        if verdict != "ok" {
            return Err(Error::Journal(format!(
                "{} is damaged ({verdict}): restore it from a backup, or move it away after every open incident was settled by hand",
                path.display()
            )));
        }
        let found: i64 = connection
            .query_row("select value from meta where key = 'layout'", [], |row| {
                row.get(0)
            })
            .map_err(failed)?;
        if found > LAYOUT {
            return Err(Error::Newer {
                path,
                found,
                known: LAYOUT,
            });
        }
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, AppendError> + Send + 'static,
    ) -> Result<T, AppendError> {
        let connection = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&mut connection.lock()))
            .await
            .map_err(|error| AppendError::Unavailable(error.to_string()))?
    }

    pub(super) async fn load(&self) -> Result<Vec<Record>, AppendError> {
        self.with(|connection| all(connection)).await
    }

    /// Removes what is forgotten; says how many records left. The last record stays: the next follows on it.
    pub(super) async fn cut(&self, before: Timestamp) -> Result<usize, AppendError> {
        self.with(move |connection| {
            let transaction = connection.transaction().map_err(unavailable)?;
            let mut records = all(&transaction)?;
            let gone = forgotten(&records);
            records.pop();
            let after = cut(records, &gone, before);
            if after.left == 0 {
                return Ok(0);
            }
            for mark in &after.records {
                let Entry::Left { until } = mark.entry else {
                    continue;
                };
                let range = params![mark.seq.cast_signed(), until.cast_signed()];
                transaction
                    .execute("delete from journal where seq between ?1 and ?2", range)
                    .map_err(unavailable)?;
                insert(&transaction, mark)?;
            }
            transaction.commit().map_err(unavailable)?;
            Ok(after.left)
        })
        .await
    }

    pub(super) async fn append(&self, records: Vec<Record>) -> Result<(), AppendError> {
        self.with(move |connection| {
            let transaction = connection.transaction().map_err(unavailable)?;
            let last: (i64, i64) = transaction
                .query_row(
                    "select coalesce(max(seq), 0), coalesce(max(epoch), 0) from journal",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .map_err(unavailable)?;
            continues((last.0.cast_unsigned(), last.1.cast_unsigned()), &records)?;
            for record in &records {
                insert(&transaction, record)?;
            }
            transaction.commit().map_err(unavailable)
        })
        .await
    }
}

/// Every record, in order. One that is cut or missing is nobody's to guess.
fn all(connection: &Connection) -> Result<Vec<Record>, AppendError> {
    let read = || -> rusqlite::Result<Vec<(i64, String)>> {
        let mut all = connection.prepare("select seq, record from journal order by seq")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    let mut records: Vec<Record> = Vec::new();
    for (seq, line) in read().map_err(unavailable)? {
        let record: Record = serde_json::from_str(&line)
            .map_err(|error| incomplete(format!("record {seq} in journal.db: {error}")))?;
        let after = records.last().map_or(0, Record::until);
        if record.seq != after + 1 {
            let found = record.seq;
            return Err(incomplete(format!(
                "record {found} follows record {after} in journal.db"
            )));
        }
        records.push(record);
    }
    Ok(records)
}

fn insert(connection: &Connection, record: &Record) -> Result<(), AppendError> {
    let line = serde_json::to_string(record).map_err(|error| AppendError::Unavailable(error.to_string()))?;
    let row = params![record.seq.cast_signed(), record.epoch.0.cast_signed(), line];
    connection
        .execute("insert into journal values(?1, ?2, ?3)", row)
        .map(drop)
        .map_err(unavailable)
}

fn unavailable(error: rusqlite::Error) -> AppendError {
    AppendError::Unavailable(error.to_string())
}
