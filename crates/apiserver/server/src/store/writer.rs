// SPDX-License-Identifier: Apache-2.0
//! The one place where anything changes. A thread drains whatever is queued into a batch, checks each
//! expectation against the committed state overlaid with earlier changes of the batch, commits,
//! publishes, runs the observers and answers, in that order. A client that is alone does the same on
//! its own thread: handing its change over and waking up again would cost it as much as the commit.

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
/// After this long without a change the log is moved into the file.
const IDLE: Duration = Duration::from_secs(1);
/// Commits that take longer than this are left to the thread: requests do not wait for a slow disk
/// where others are served.
const QUICK: Duration = Duration::from_millis(5);
/// History always kept per type, and the most kept whatever its age.
const KEEP_MIN: u64 = 1_000;
const KEEP_MAX: u64 = 100_000;
/// The exit code of a program that found itself broken, as `sysexits.h` has it.
pub(super) const EXIT_SOFTWARE: i32 = 70;

/// What became of a client's changes.
pub(super) type Outcome = Result<Vec<Arc<Record>>, CommitError>;
type Reply = oneshot::Sender<Outcome>;
/// Changes that are made together or not at all.
type Group = Vec<(TypeId, Arc<Event>)>;

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
        until: u64,
    },
    /// Somebody else wrote: see whether there is anything to tidy up.
    Tidy,
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

/// The state of writing, held by whoever writes.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    database: Option<Database>,
    revision: u64,
    keep: Duration,
    /// Whether the last batch was one client's, with nobody waiting behind it.
    alone: bool,
    /// How long the last commit took, and when it ended.
    took: Duration,
    last: Instant,
    dirty: bool,
    closed: bool,
    /// Types whose history is still to be cut, one slice at a time.
    compacting: Vec<Arc<Table>>,
}

/// What was being written when a thread panicked is whole in the database and perhaps not in memory, so the process ends
/// and begins anew from there.
struct EndWithPanic;

impl Drop for EndWithPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the writer panicked; the process ends, and what was acknowledged is safe");
            std::process::exit(EXIT_SOFTWARE);
        }
    }
}

/// Runs until every sender is gone.
pub(super) fn run(writer: &Mutex<Writer>, jobs: &Receiver<Job>) {
    let _guard = EndWithPanic;
    let mut next_housekeeping = Instant::now() + HOUSEKEEPING;
    let mut wait = HOUSEKEEPING;
    loop {
        let job = jobs.recv_timeout(wait);
        let mut writer = writer.lock();
        match job {
            Ok(job) => writer.serve(job, jobs),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        writer.tidy();
        if Instant::now() >= next_housekeeping {
            let tables = writer.shared.tables.read().all().cloned().collect();
            writer.compacting = tables;
            next_housekeeping = Instant::now() + HOUSEKEEPING;
        }
        wait = if !writer.compacting.is_empty() {
            Duration::ZERO
        } else if writer.dirty {
            IDLE.saturating_sub(writer.last.elapsed())
        } else {
            next_housekeeping.saturating_duration_since(Instant::now())
        };
    }
    writer.lock().close();
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, database: Option<Database>, keep: Duration) -> Self {
        Self {
            revision: shared.published.load(Ordering::Acquire),
            shared,
            database,
            keep,
            alone: true,
            took: Duration::ZERO,
            last: Instant::now(),
            dirty: false,
            closed: false,
            compacting: Vec::new(),
        }
    }

    /// Makes the changes of a client that is alone here and now; gives them back if it is not, or if
    /// the disk is slow. With the outcome comes whether there is something to tidy up.
    pub(super) fn at_once(&mut self, changes: Vec<Change>) -> Result<(Outcome, bool), Vec<Change>> {
        if self.closed || !self.alone || self.took > QUICK || self.waiting() {
            return Err(changes);
        }
        let _guard = EndWithPanic;
        let clean = !self.dirty;
        let outcome = self.prepare(changes, &mut HashMap::new()).and_then(|group| {
            self.commit(&group)?;
            Ok(records(&group))
        });
        self.alone = !self.waiting();
        let tidy = self.dirty && clean || self.log_is_full();
        Ok((outcome, tidy))
    }

    fn waiting(&self) -> bool {
        self.shared.statistics.queued.load(Ordering::Relaxed) > 0
    }

    fn serve(&mut self, first: Job, jobs: &Receiver<Job>) {
        let mut batch = Vec::new();
        let mut overlay = HashMap::new();
        let (mut changes, mut bytes, mut clients) = (0, 0, 0);
        let mut next = Some(first);
        while let Some(job) = next.take() {
            self.shared.statistics.queued.fetch_sub(1, Ordering::Relaxed);
            match job {
                Job::Commit {
                    changes: wanted,
                    reply,
                } => {
                    clients += 1;
                    changes += wanted.len();
                    bytes += wanted.iter().map(size).sum::<usize>();
                    match self.prepare(wanted, &mut overlay) {
                        Ok(group) => batch.push((group, reply)),
                        Err(refused) => drop(reply.send(Err(refused))),
                    }
                }
                other => {
                    // Types are rare: finish what is prepared, then see to them alone.
                    self.finish(std::mem::take(&mut batch));
                    overlay.clear();
                    self.manage(other);
                }
            }
            if changes < BATCH_CHANGES && bytes < BATCH_BYTES {
                next = jobs.try_recv().ok();
            }
        }
        self.finish(batch);
        self.alone = clients < 2 && !self.waiting();
    }

    /// Checks one atomic group and gives it revisions; refuses it as a whole otherwise.
    fn prepare(
        &mut self,
        wanted: Vec<Change>,
        overlay: &mut HashMap<(TypeId, Key), Option<Arc<Record>>>,
    ) -> Result<Group, CommitError> {
        let tables = self.shared.tables.read();
        let current = |overlay: &HashMap<(TypeId, Key), Option<Arc<Record>>>, change: &Change| match overlay
            .get(&(change.table, change.key.clone()))
        {
            Some(state) => state.clone(),
            None => tables.get(change.table).and_then(|t| t.get(&change.key)),
        };
        for change in &wanted {
            let found = current(overlay, change);
            let holds = match (change.expect, &found) {
                (Expect::Absent, None) => true,
                (Expect::Revision(revision), Some(record)) => record.revision == revision,
                _ => false,
            };
            if !holds || tables.get(change.table).is_none() {
                return Err(CommitError::Conflict);
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
        Ok(events)
    }

    /// Commits groups together and answers whom they belong to.
    fn finish(&mut self, batch: Vec<(Group, Reply)>) {
        if batch.is_empty() {
            return;
        }
        let all: Group = batch
            .iter()
            .flat_map(|(group, _)| group.iter().cloned())
            .collect();
        let committed = self.commit(&all);
        for (group, reply) in batch {
            let _ = reply.send(committed.clone().map(|()| records(&group)));
        }
    }

    fn commit(&mut self, all: &Group) -> Result<(), CommitError> {
        let began = Instant::now();
        if let Some(database) = &mut self.database {
            if let Err(error) = database.write(all) {
                self.shared.statistics.failing.store(true, Ordering::Relaxed);
                tracing::error!(%error, changes = all.len(), "commit failed");
                return Err(CommitError::Failed(error.to_string()));
            }
            self.dirty = true;
        }
        self.last = Instant::now();
        self.took = self.last - began;
        let statistics = &self.shared.statistics;
        statistics.failing.store(false, Ordering::Relaxed);
        statistics.seconds.observe(self.took.as_secs_f64());
        statistics.batches.observe(all.len() as f64);
        self.publish(all);
        Ok(())
    }

    fn publish(&self, all: &[(TypeId, Arc<Event>)]) {
        let now = Instant::now();
        let mut by_table: BTreeMap<TypeId, Vec<Arc<Event>>> = BTreeMap::new();
        for (id, event) in all {
            by_table.entry(*id).or_default().push(event.clone());
        }
        for (id, events) in &by_table {
            let table = self.shared.tables.read().get(*id).cloned();
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
            Job::Retire { id, until } => {
                let table = self.shared.tables.read().get(id).cloned();
                if let Some(table) = table {
                    table.raise_floor(until);
                    if let Some(Err(error)) = self.database.as_ref().map(|db| db.raise_floor(id, until)) {
                        tracing::warn!(%error, "retiring a type");
                    }
                }
            }
            Job::Commit { .. } | Job::Tidy => {}
        }
    }

    fn add_types(&mut self, wanted: &[(String, String)]) -> Result<Vec<Arc<Table>>, StoreError> {
        let mut tables = self.shared.tables.write();
        // A collection that did not exist yet has no history to offer.
        let floor = if self.revision > 1 { self.revision } else { 0 };
        let mut found = Vec::with_capacity(wanted.len());
        let mut added = Vec::new();
        for (group, plural) in wanted {
            let known = tables.find(group, plural).cloned();
            let table = known.unwrap_or_else(|| {
                let table = Arc::new(Table::new(tables.next_id(), group, plural, floor, floor));
                tables.add(table.clone());
                added.push(table.clone());
                table
            });
            found.push(table);
        }
        if let Some(database) = &mut self.database
            && let Err(error) = database.add_types(&added, floor)
        {
            for table in added {
                tables.remove(&table);
            }
            return Err(error);
        }
        Ok(found)
    }

    /// Moves a full log into the file, any log while nobody writes, and old history out of it.
    fn tidy(&mut self) {
        let idle = self.last.elapsed() >= IDLE && self.compacting.is_empty();
        if self.dirty && (idle || self.log_is_full()) {
            if let Some(database) = &mut self.database
                && let Err(error) = database.checkpoint(idle)
            {
                tracing::warn!(%error, "checkpoint");
            }
            self.dirty = !idle;
        }
        self.compact_slice();
    }

    fn log_is_full(&self) -> bool {
        self.database.as_ref().is_some_and(Database::log_is_full)
    }

    fn close(&mut self) {
        self.closed = true;
        if let Some(database) = self.database.take()
            && let Err(error) = database.close()
        {
            tracing::warn!(%error, "closing the database");
        }
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

fn records(group: &Group) -> Vec<Arc<Record>> {
    group.iter().map(|(_, event)| event.new.clone()).collect()
}

fn size(change: &Change) -> usize {
    match &change.action {
        Action::Put(draft) | Action::Delete(draft) => draft.len(),
    }
}
