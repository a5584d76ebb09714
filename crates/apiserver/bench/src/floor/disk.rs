// SPDX-License-Identifier: Apache-2.0
//! How fast the disk makes data safe, alone and under SQLite with data of the server's shape.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::load::quantile;
use crate::{BenchError, kinds};

/// A log of this size is written over from its beginning, as the server does it: blocks that a file has already are made
/// safe in half the time that new ones take.
const LOG: u64 = 8 << 20;
const PAGE: u64 = 8192;

/// Median and 99th percentile of making 8 KiB safe, in milliseconds.
pub(super) fn fdatasync(path: &Path, time: Duration) -> Result<(f64, f64), BenchError> {
    let failed = || path.display().to_string();
    let file = std::fs::File::create(path).map_err(BenchError::io("create", failed()))?;
    let write = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).and_then(|()| file.sync_data());
    write(&vec![0; LOG as usize], 0).map_err(BenchError::io("write", failed()))?;
    let (block, began) = (vec![0x5a; 8192], Instant::now());
    let mut times = Vec::new();
    let mut at = 0;
    while began.elapsed() < time {
        let one = Instant::now();
        write(&block, at).map_err(BenchError::io("write", failed()))?;
        times.push(one.elapsed());
        at = (at + block.len() as u64) % LOG;
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
        database.pragma_update(None, "page_size", PAGE as i64)?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        database.pragma_update(None, "wal_autocheckpoint", (LOG / PAGE) as i64)?;
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
