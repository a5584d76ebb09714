// SPDX-License-Identifier: Apache-2.0
//! How fast the disk makes data safe, alone and under SQLite with data of the server's shape.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::load::quantile;
use crate::{BenchError, kinds};

/// Median and 99th percentile of making 8 KiB safe, in milliseconds.
pub(super) fn fdatasync(path: &Path, time: Duration) -> Result<(f64, f64), BenchError> {
    let failed = || path.display().to_string();
    let mut file = std::fs::File::create(path).map_err(BenchError::io("create", failed()))?;
    let (block, began) = (vec![0x5a; 8192], Instant::now());
    let mut times = Vec::new();
    while began.elapsed() < time {
        let one = Instant::now();
        file.write_all(&block)
            .and_then(|()| file.sync_data())
            .map_err(BenchError::io("write", failed()))?;
        times.push(one.elapsed());
    }
    times.sort_unstable();
    Ok((quantile(&times, 0.5), quantile(&times, 0.99)))
}

/// Changes per second in commits of `batch`.
pub(super) fn commits(path: &Path, time: Duration, batch: u64) -> Result<f64, BenchError> {
    let mut journal = Journal::open(path)?;
    let (mut changes, began) = (0, Instant::now());
    while began.elapsed() < time {
        let body = |n| (kinds::name(n), kinds::configmap(kinds::NAMESPACE, n, n));
        journal.commit((changes..changes + batch).map(body))?;
        changes += batch;
    }
    Ok(changes as f64 / began.elapsed().as_secs_f64())
}

/// A bare database that keeps the current state and the history of objects, as the server's does.
pub(super) struct Journal {
    database: rusqlite::Connection,
    revision: i64,
}

impl Journal {
    pub(super) fn open(path: &Path) -> Result<Self, BenchError> {
        let database = rusqlite::Connection::open(path)?;
        database.pragma_update(None, "page_size", 8192)?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        database.pragma_update(None, "wal_autocheckpoint", 0)?;
        database.execute_batch(
            "create table objects(name text primary key, value blob not null) without rowid;
             create table events(rev integer primary key, value blob not null);",
        )?;
        Ok(Self {
            database,
            revision: 0,
        })
    }

    /// Makes new states of objects safe, all in one commit.
    pub(super) fn commit(
        &mut self,
        objects: impl IntoIterator<Item = (String, String)>,
    ) -> rusqlite::Result<()> {
        let transaction = self.database.transaction()?;
        for (name, body) in objects {
            self.revision += 1;
            transaction
                .prepare_cached("insert or replace into objects values(?1, ?2)")?
                .execute(rusqlite::params![name, body.as_bytes()])?;
            transaction
                .prepare_cached("insert into events values(?1, ?2)")?
                .execute(rusqlite::params![self.revision, body.as_bytes()])?;
        }
        transaction.commit()
    }
}
