// SPDX-License-Identifier: Apache-2.0
//! The one thread that writes. It takes what waits, up to 2000 rows or 20 milliseconds of work, into
//! one transaction, and answers after the commit. If the commit fails, nothing of it happened.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{Admission, AgentId, Batch, Event};
use parking_lot::RwLock;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use tokio::sync::{mpsc, oneshot};

use super::names::{self, Names};
use super::{StoreError, Write, schema};

const GROUP_ROWS: usize = 2000;
const GROUP_TIME: Duration = Duration::from_millis(20);
/// Pages that are given back at once, so that nobody waits long behind it.
const TIDY_PAGES: u32 = 2000;

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Stored up to `last`; the first `skip` records were known, and `lost` more are known to be lost.
    Taken {
        /// How many were known.
        skip: usize,
        /// Up to where everything is stored or known to be lost.
        last: u64,
        /// How many of those that were dropped should have come here. Of a stream that is new here, what was dropped may
        /// have been collected long ago by others, or by this replica under another address: that is no loss.
        lost: u64,
    },
    /// Records are missing; this one must come next.
    Expected(u64),
    /// The stream is another host's; nothing of it was stored.
    Foreign,
}

/// Up to which number each agent's records are committed. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Cursors(Arc<RwLock<HashMap<AgentId, u64>>>);

impl Cursors {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut all = connection.prepare("select agent_id, last_seq from streams")?;
        let rows = all.query_map([], |row| Ok((AgentId(row.get(0)?), row.get::<_, i64>(1)?)))?;
        let mut map = HashMap::new();
        for row in rows {
            let (agent, last) = row?;
            map.insert(agent, last.cast_unsigned());
        }
        Ok(Self(Arc::new(RwLock::new(map))))
    }

    pub(super) fn get(&self, agent: &AgentId) -> u64 {
        self.0.read().get(agent).copied().unwrap_or(0)
    }
}

type BatchReply = (oneshot::Sender<Result<Stored, StoreError>>, Stored);

/// Starts the thread; it ends when nobody can send any more.
pub(super) fn start(
    connection: Connection,
    queue: mpsc::Receiver<Write>,
    cursors: Cursors,
    untidy: Arc<AtomicBool>,
    path: PathBuf,
) -> std::io::Result<()> {
    let writer = Writer {
        connection,
        queue,
        cursors,
        untidy,
        path,
        names: Names::default(),
    };
    std::thread::Builder::new()
        .name("telemetry-writer".into())
        .spawn(move || writer.run())
        .map(drop)
}

struct Writer {
    connection: Connection,
    queue: mpsc::Receiver<Write>,
    cursors: Cursors,
    untidy: Arc<AtomicBool>,
    path: PathBuf,
    names: Names,
}

impl Writer {
    fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            self.group(first);
            if self.queue.is_empty() && self.untidy.swap(false, Ordering::Relaxed) {
                self.tidy();
            }
        }
        let _ = self.connection.execute_batch("pragma wal_checkpoint(truncate);");
    }

    /// Gives pages back that nothing is on any more, and writes the log into the file. Both may wait for a calmer moment.
    fn tidy(&self) {
        let give_back = || -> rusqlite::Result<()> {
            let mut vacuum = self
                .connection
                .prepare(&format!("pragma incremental_vacuum({TIDY_PAGES})"))?;
            // Each step gives one page back.
            let mut pages = vacuum.query([])?;
            while pages.next()?.is_some() {}
            drop(pages);
            self.connection.execute_batch("pragma wal_checkpoint(passive);")
        };
        if let Err(error) = give_back() {
            schema::note_damage(&self.path, &error);
            tracing::debug!(%error, "the telemetry database is not tidied");
        }
    }

    /// One transaction.
    fn group(&mut self, first: Write) {
        let begun = Instant::now();
        let mut batches: Vec<BatchReply> = Vec::new();
        let mut others: Vec<oneshot::Sender<Result<(), StoreError>>> = Vec::new();
        let mut ahead: HashMap<AgentId, u64> = HashMap::new();
        let mut rows = 0;
        let mut next = Some(first);
        let result = (|| -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            while let Some(write) = next.take() {
                match write {
                    Write::Batch {
                        batch,
                        received_ms,
                        reply,
                    } => {
                        let agent = &batch.envelope.agent_id;
                        let known = ahead
                            .get(agent)
                            .copied()
                            .unwrap_or_else(|| self.cursors.get(agent));
                        let outcome = take_batch(&transaction, &mut self.names, &batch, known, received_ms);
                        // Kept even on failure, so that everybody in the group is answered.
                        let stored = match &outcome {
                            Ok(stored) => *stored,
                            Err(_) => Stored::Expected(known + 1),
                        };
                        batches.push((reply, stored));
                        outcome?;
                        if let Stored::Taken { last, .. } = stored {
                            ahead.insert(agent.clone(), last);
                        }
                        rows += batch.events.len() + 1;
                    }
                    Write::Forget { reply } => {
                        self.names = Names::default();
                        transaction.execute_batch(names::FORGET)?;
                        others.push(reply);
                        rows += 1;
                    }
                    Write::Other { work, reply } => {
                        // One wish that fails must not take the others with it.
                        transaction.execute_batch("savepoint wish")?;
                        match work(&transaction) {
                            Ok(()) => {
                                transaction.execute_batch("release wish")?;
                                others.extend(reply);
                            }
                            Err(error) => {
                                transaction.execute_batch("rollback to wish; release wish")?;
                                if let Some(reply) = reply {
                                    let _ = reply.send(Err(error.into()));
                                } else {
                                    tracing::warn!(%error, "something could not be stored");
                                }
                            }
                        }
                        rows += 1;
                    }
                }
                if rows < GROUP_ROWS && begun.elapsed() < GROUP_TIME {
                    next = self.queue.try_recv().ok();
                }
            }
            transaction.commit()
        })();
        let result = result.map_err(|error| {
            // Numbers that were given in this group are not in the file.
            self.names = Names::default();
            schema::note_damage(&self.path, &error);
            StoreError::from(error)
        });
        match &result {
            Ok(()) => self.cursors.0.write().extend(ahead),
            Err(error) => tracing::error!(%error, "telemetry could not be committed"),
        }
        for (reply, stored) in batches {
            let _ = reply.send(result.clone().map(|()| stored));
        }
        for reply in others {
            let _ = reply.send(result.clone());
        }
    }
}

fn take_batch(
    transaction: &Transaction<'_>,
    names: &mut Names,
    batch: &Batch,
    known: u64,
    received_ms: i64,
) -> rusqlite::Result<Stored> {
    let (skip, last) = match batch.admit(known) {
        Admission::Expected(seq) => return Ok(Stored::Expected(seq)),
        Admission::Take { skip, last } => (skip, last),
    };
    let missing = missing(batch, known);
    let Some(stream) = take_stream(transaction, batch, last, missing, received_ms)? else {
        return Ok(Stored::Foreign);
    };
    let mut insert = transaction.prepare_cached(
        "insert or ignore into events(stream, seq, recv_at, lag, word, guest, attrs, count, synthetic)
            values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for event in batch.events.iter().skip(skip) {
        let word = names.word(transaction, event)?;
        let guest = match &event.domain {
            Some(domain) => Some(names.guest(transaction, &domain.uuid)?),
            None => None,
        };
        insert.execute(params![
            stream,
            event.seq.cast_signed(),
            received_ms,
            (received_ms * 1000).saturating_sub(event.ts.as_microsecond()),
            word,
            guest,
            attrs(event),
            event.count,
            event.synthetic,
        ])?;
    }
    let lost = if known == 0 { 0 } else { missing };
    Ok(Stored::Taken { skip, last, lost })
}

/// How many records beyond those that are known were dropped: an agent announces the same again, and what others told it
/// to forget.
fn missing(batch: &Batch, known: u64) -> u64 {
    let beyond = |range: &RangeInclusive<u64>| {
        range
            .end()
            .saturating_sub(known.max(range.start().saturating_sub(1)))
    };
    batch.dropped.iter().map(beyond).sum()
}

/// Brings the stream of a report up to date; its number, unless it is the stream of another host: numbers of two hosts in
/// one stream would hide each other's records.
fn take_stream(
    transaction: &Transaction<'_>,
    batch: &Batch,
    last: u64,
    missing: u64,
    received_ms: i64,
) -> rusqlite::Result<Option<i64>> {
    let envelope = &batch.envelope;
    let mut stream = transaction.prepare_cached(
        "insert into streams(agent_id, host, epoch, boot_id, last_seq, first_seen, last_seen, gaps)
            values(?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7)
         on conflict(agent_id) do update set epoch = max(epoch, ?3), boot_id = ?4, last_seq = ?5,
            last_seen = ?6, gaps = gaps + ?7 where host = ?2
         returning id",
    )?;
    let row = params![
        envelope.agent_id.0,
        envelope.host.as_str(),
        envelope.epoch.cast_signed(),
        envelope.boot_id.0,
        last.cast_signed(),
        received_ms,
        missing.cast_signed(),
    ];
    stream.query_row(row, |row| row.get(0)).optional()
}

/// Most events have none, and nothing weighs least.
fn attrs(event: &Event) -> Option<String> {
    if event.attrs.is_empty() {
        None
    } else {
        serde_json::to_string(&event.attrs).ok()
    }
}
