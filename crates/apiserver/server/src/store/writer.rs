// SPDX-License-Identifier: Apache-2.0
//! The one thread that changes anything. It drains whatever is queued into a batch, checks each
//! expectation against the committed state overlaid with earlier changes of the batch, commits,
//! publishes, runs the observers and answers, in that order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::sync::oneshot;

use super::record::{Key, Record};
use super::sqlite::Database;
use super::table::{Event, Op, Table, TypeId};
use super::{Action, Change, CommitError, Expect, Shared, StoreError};

/// Bounds of a batch.
const BATCH_CHANGES: usize = 512;
const BATCH_BYTES: usize = 4 << 20;
/// Housekeeping happens this often, between batches.
const HOUSEKEEPING: Duration = Duration::from_secs(30);
/// While the log is growing it is moved into the file this often.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// History always kept per type, and the most kept whatever its age.
const KEEP_MIN: u64 = 1_000;
const KEEP_MAX: u64 = 100_000;

type Reply = oneshot::Sender<Result<Vec<Arc<Record>>, CommitError>>;

/// Work for the writer.
pub(super) enum Job {
    Commit {
        changes: Vec<Change>,
        reply: Reply,
    },
    AddTypes {
        wanted: Vec<(String, String)>,
        reply: SyncSender<Result<Vec<Arc<Table>>, StoreError>>,
    },
    Harden {
        reply: SyncSender<Result<(), StoreError>>,
    },
    Retire {
        id: TypeId,
    },
}

/// Counters of the writer, for metrics and health.
#[derive(Debug)]
pub struct Statistics {
    /// Seconds each batch took to commit.
    pub seconds: Histogram,
    /// Changes in each batch.
    pub batches: Histogram,
    /// Jobs that wait for the writer.
    pub queued: AtomicU64,
    /// Whether the last commit failed.
    pub failing: AtomicBool,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            seconds: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            batches: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            queued: AtomicU64::default(),
            failing: AtomicBool::default(),
        }
    }
}

struct Prepared {
    events: Vec<(TypeId, Arc<Event>)>,
    reply: Reply,
}

struct Writer<'a> {
    shared: &'a Shared,
    database: Option<Database>,
    revision: u64,
    keep: Duration,
    last_checkpoint: Instant,
    dirty: bool,
    /// Types whose history is still to be cut, one slice at a time.
    compacting: Vec<Arc<Table>>,
}

/// Runs until every sender is gone.
pub(super) fn run(shared: &Arc<Shared>, database: Option<Database>, jobs: &Receiver<Job>, keep: Duration) {
    let mut writer = Writer {
        shared,
        database,
        revision: shared.published.load(Ordering::Acquire),
        keep,
        last_checkpoint: Instant::now(),
        dirty: false,
        compacting: Vec::new(),
    };
    let mut next_housekeeping = Instant::now() + HOUSEKEEPING;
    loop {
        let wait = if !writer.compacting.is_empty() {
            Duration::ZERO
        } else if writer.dirty {
            CHECKPOINT
        } else {
            next_housekeeping.saturating_duration_since(Instant::now())
        };
        match jobs.recv_timeout(wait) {
            Ok(job) => writer.serve(job, jobs),
            Err(RecvTimeoutError::Timeout) if writer.compacting.is_empty() => writer.checkpoint(true),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if writer.dirty && writer.last_checkpoint.elapsed() > CHECKPOINT * 2 {
            writer.checkpoint(false);
        }
        writer.compact_slice();
        if Instant::now() >= next_housekeeping {
            writer.compacting = writer.shared.tables.read().values().cloned().collect();
            next_housekeeping = Instant::now() + HOUSEKEEPING;
        }
    }
    if let Some(database) = writer.database.take()
        && let Err(error) = database.close()
    {
        tracing::warn!(%error, "closing the database");
    }
}

impl Writer<'_> {
    fn serve(&mut self, first: Job, jobs: &Receiver<Job>) {
        let mut batch = Vec::new();
        let mut overlay = HashMap::new();
        let (mut changes, mut bytes) = (0, 0);
        let mut next = Some(first);
        while let Some(job) = next.take() {
            self.shared.statistics.queued.fetch_sub(1, Ordering::Relaxed);
            match job {
                Job::Commit {
                    changes: wanted,
                    reply,
                } => {
                    changes += wanted.len();
                    bytes += wanted.iter().map(size).sum::<usize>();
                    self.prepare(wanted, reply, &mut overlay, &mut batch);
                }
                other => {
                    // Types are rare: finish what is prepared, then see to them alone.
                    self.commit(std::mem::take(&mut batch));
                    overlay.clear();
                    self.manage(other);
                }
            }
            if changes < BATCH_CHANGES && bytes < BATCH_BYTES {
                next = jobs.try_recv().ok();
            }
        }
        self.commit(batch);
    }

    /// Checks one atomic group and gives it revisions; refuses it as a whole otherwise.
    fn prepare(
        &mut self,
        wanted: Vec<Change>,
        reply: Reply,
        overlay: &mut HashMap<(TypeId, Key), Option<Arc<Record>>>,
        batch: &mut Vec<Prepared>,
    ) {
        let tables = self.shared.tables.read();
        let current = |overlay: &HashMap<(TypeId, Key), Option<Arc<Record>>>, change: &Change| match overlay
            .get(&(change.table, change.key.clone()))
        {
            Some(state) => state.clone(),
            None => tables.get(&change.table).and_then(|t| t.get(&change.key)),
        };
        for change in &wanted {
            let found = current(overlay, change);
            let holds = match (change.expect, &found) {
                (Expect::Absent, None) => true,
                (Expect::Revision(revision), Some(record)) => record.revision == revision,
                _ => false,
            };
            if !holds || !tables.contains_key(&change.table) {
                let _ = reply.send(Err(CommitError::Conflict));
                return;
            }
        }
        let mut events = Vec::with_capacity(wanted.len());
        for change in wanted {
            let old = current(overlay, &change);
            self.revision += 1;
            let (op, draft) = match (change.action, &old) {
                (Action::Put(draft), None) => (Op::Added, draft),
                (Action::Put(draft), Some(_)) => (Op::Modified, draft),
                (Action::Delete(draft), _) => (Op::Deleted, draft),
            };
            let new = Arc::new(draft.settle(self.revision));
            let state = (op != Op::Deleted).then(|| new.clone());
            overlay.insert((change.table, change.key.clone()), state);
            let event = Event {
                revision: self.revision,
                key: change.key,
                op,
                old,
                new,
                rendered: Mutex::default(),
            };
            events.push((change.table, Arc::new(event)));
        }
        batch.push(Prepared { events, reply });
    }

    fn commit(&mut self, batch: Vec<Prepared>) {
        if batch.is_empty() {
            return;
        }
        let all: Vec<_> = batch.iter().flat_map(|p| p.events.iter().cloned()).collect();
        let began = Instant::now();
        let statistics = &self.shared.statistics;
        if let Some(database) = &mut self.database {
            if let Err(error) = database.write(&all) {
                statistics.failing.store(true, Ordering::Relaxed);
                tracing::error!(%error, changes = all.len(), "commit failed");
                for prepared in batch {
                    let _ = prepared.reply.send(Err(CommitError::Failed(error.to_string())));
                }
                return;
            }
            self.dirty = true;
        }
        statistics.failing.store(false, Ordering::Relaxed);
        statistics.seconds.observe(began.elapsed().as_secs_f64());
        statistics.batches.observe(all.len() as f64);
        self.publish(&all);
        for prepared in batch {
            let records = prepared
                .events
                .iter()
                .map(|(_, event)| event.new.clone())
                .collect();
            let _ = prepared.reply.send(Ok(records));
        }
    }

    fn publish(&self, all: &[(TypeId, Arc<Event>)]) {
        let now = Instant::now();
        let mut by_table: BTreeMap<TypeId, Vec<Arc<Event>>> = BTreeMap::new();
        for (id, event) in all {
            by_table.entry(*id).or_default().push(event.clone());
        }
        for (id, events) in &by_table {
            let table = self.shared.tables.read().get(id).cloned();
            if let Some(table) = table {
                table.publish(events, now);
                if self.database.is_none() {
                    table.follow_ring();
                }
            }
        }
        for observer in self.shared.observers.read().iter() {
            for (id, event) in all {
                observer(*id, event);
            }
        }
        self.shared.published.store(self.revision, Ordering::Release);
        self.shared.announced.send_replace(self.revision);
    }

    fn manage(&mut self, job: Job) {
        match job {
            Job::AddTypes { wanted, reply } => {
                let _ = reply.send(self.add_types(&wanted));
            }
            Job::Harden { reply } => {
                let _ = reply.send(self.database.as_ref().map_or(Ok(()), Database::harden));
            }
            Job::Retire { id } => {
                let table = self.shared.tables.read().get(&id).cloned();
                if let Some(table) = table {
                    table.raise_floor(self.revision);
                    if let Some(Err(error)) =
                        self.database.as_ref().map(|db| db.raise_floor(id, self.revision))
                    {
                        tracing::warn!(%error, "retiring a type");
                    }
                }
            }
            Job::Commit { .. } => {}
        }
    }

    fn add_types(&mut self, wanted: &[(String, String)]) -> Result<Vec<Arc<Table>>, StoreError> {
        let mut tables = self.shared.tables.write();
        // A collection that did not exist yet has no history to offer.
        let floor = if self.revision > 1 { self.revision } else { 0 };
        let mut found = Vec::with_capacity(wanted.len());
        let mut added = Vec::new();
        for (group, plural) in wanted {
            let known = tables
                .values()
                .find(|t| *t.group == **group && *t.plural == **plural)
                .cloned();
            let table = known.unwrap_or_else(|| {
                let id = TypeId(tables.keys().next_back().map_or(1, |last| last.0 + 1));
                let table = Arc::new(Table::new(id, group, plural, floor, floor));
                tables.insert(id, table.clone());
                added.push(table.clone());
                table
            });
            found.push(table);
        }
        if let Some(database) = &mut self.database
            && let Err(error) = database.add_types(&added, floor)
        {
            for table in added {
                tables.remove(&table.id);
            }
            return Err(error);
        }
        Ok(found)
    }

    fn checkpoint(&mut self, idle: bool) {
        if let Some(database) = &self.database
            && self.dirty
            && let Err(error) = database.checkpoint(idle)
        {
            tracing::warn!(%error, "checkpoint");
        }
        self.dirty = false;
        self.last_checkpoint = Instant::now();
    }

    /// Cuts one slice of old history, so that clients wait at most for that.
    fn compact_slice(&mut self) {
        let Some(table) = self.compacting.pop() else {
            return;
        };
        table.trim(Instant::now());
        let Some(database) = &mut self.database else {
            table.follow_ring();
            return;
        };
        match database.compact(table.id, self.keep, KEEP_MIN, KEEP_MAX) {
            Ok(Some(floor)) => {
                table.raise_floor(floor);
                self.dirty = true;
                self.compacting.push(table);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, plural = %table.plural, "compaction"),
        }
    }
}

fn size(change: &Change) -> usize {
    match &change.action {
        Action::Put(draft) | Action::Delete(draft) => draft.len(),
    }
}
