// SPDX-License-Identifier: Apache-2.0
//! Where objects live. One revision sequence for the whole server, one writer at a time that checks
//! expectations, commits batches and only then makes them visible; readers never wait for it.
//!
//! Promises: nothing uncommitted is ever seen; with full durability an acknowledged change survives
//! a crash at any moment; a revision is never used twice; events are published in revision order.

mod check;
mod follow;
mod layout;
mod record;
mod seal;
mod sqlite;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

pub use check::{Report, backup, check};
pub(crate) use follow::{Missed, Subscription};
pub(crate) use record::{Draft, Facts, Key, Record, Uid, serialize, without_envelope};
pub use seal::Keys;

pub(crate) use table::{Event, Op, Rendering, Since, Table, TooOld, TypeId};
use tables::Tables;
pub(crate) use writer::Statistics;
use writer::{Job, Outcome, Writer};

/// What can go wrong with the store itself (never with a client's expectation).
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file could not be created.
    #[error("cannot create {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no usable database.
    #[error("{} is damaged: {why}; restore it from a backup made with `cobaltcore apiserver backup`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file was written by a later release.
    #[error("{} was written by a newer release (layout {found}, this one knows {known}); upgrade cobaltcore", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
        /// The newest layout known here.
        known: i64,
    },
    /// A Secret is sealed and its key is not known.
    #[error("cannot read {}: {why}; start with a file that has it, or restore a copy made before", path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// What is sealed, and with which key.
        why: String,
    },
    /// The file of keys cannot be used.
    #[error("--encryption-key-file: {0}")]
    Keys(String),
    /// A database operation failed.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// A stored body does not parse.
    #[error("a stored object is not JSON: {0}")]
    Corrupt(String),
    /// The writer thread could not be started.
    #[error("cannot start the writer thread: {0}")]
    Thread(std::io::Error),
    /// The store is closing or its writer failed.
    #[error("the store is closed")]
    Closed,
}

/// When an acknowledged write is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Survives a power failure.
    #[default]
    Full,
    /// Survives a crash of the process; the last moments may be lost with the power.
    Relaxed,
    /// Memory only.
    None,
}

/// What a change expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No object of that name.
    Absent,
    /// The object at exactly this revision.
    Revision(u64),
}

/// What to do with an object.
#[derive(Debug, Clone)]
pub enum Action {
    /// Store this state.
    Put(Draft),
    /// Remove it; the draft is the last state, published with the revision of the removal.
    Delete(Draft),
}

/// One conditional change.
#[derive(Debug, Clone)]
pub struct Change {
    /// The type.
    pub table: TypeId,
    /// The object.
    pub key: Key,
    /// Precondition.
    pub expect: Expect,
    /// What to do.
    pub action: Action,
}

/// Why a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The object is not in the expected state.
    #[error("the object is not in the expected state")]
    Conflict,
    /// The commit failed; nothing of it happened.
    #[error("commit failed: {0}")]
    Failed(String),
}

/// Called by the writer for every event, after it is visible and before the client is answered.
pub(crate) type Observer = Box<dyn Fn(TypeId, &Arc<Event>) + Send + Sync>;

/// Where the data lives and how long history is kept.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Database file; `None` keeps everything in memory.
    pub path: Option<PathBuf>,
    /// When a write counts as done.
    pub durability: Durability,
    /// Least age of history before it may be dropped.
    pub history: Duration,
    /// What Secrets are sealed with in the file.
    pub keys: Arc<Keys>,
}

/// The store. Cheap to share; closes when the last handle and the writer are gone.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    jobs: Mutex<Option<std::sync::mpsc::Sender<Job>>>,
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    history: Option<Arc<sqlite::History>>,
    path: Option<PathBuf>,
}

/// What the writer thread and the readers share.
pub(super) struct Shared {
    tables: RwLock<Tables>,
    published: AtomicU64,
    announced: watch::Sender<u64>,
    observers: RwLock<Vec<Observer>>,
    statistics: Statistics,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store and starts its writer.
    pub fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            tables: RwLock::default(),
            published: AtomicU64::new(1),
            announced: watch::Sender::new(1),
            observers: RwLock::default(),
            statistics: Statistics::default(),
        });
        let mut database = None;
        let mut history = None;
        if let (Some(path), true) = (&options.path, options.durability != Durability::None) {
            let mut db = sqlite::Database::open(path, options.durability, options.keys.clone())?;
            let last = db.last_revision()?;
            shared.published.store(last, Ordering::Release);
            shared.announced.send_replace(last);
            let mut tables = Tables::default();
            for stored in db.types()? {
                let table = Table::new(stored.id, &stored.group, &stored.plural, stored.floor, last);
                tables.add(Arc::new(table));
            }
            for (id, objects) in db.load()? {
                if let Some(table) = tables.get(id) {
                    table.load(objects);
                }
            }
            *shared.tables.write() = tables;
            history = Some(Arc::new(db.history()?));
            database = Some(db);
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let writer = Writer::new(shared.clone(), database, options.history);
        let writer = Arc::new(Mutex::new(writer));
        let for_thread = writer.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer::run(&for_thread, &receiver))
            .map_err(StoreError::Thread)?;
        Ok(Self {
            shared,
            jobs: Mutex::new(Some(sender)),
            writer,
            thread: Mutex::new(Some(thread)),
            history,
            path: options.path.clone(),
        })
    }

    /// The tables of types (group, plural), registered where they are new.
    pub fn register(&self, wanted: Vec<(String, String)>) -> Result<Vec<Arc<Table>>, StoreError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.send(Job::AddTypes { wanted, reply })?;
        answer.recv().map_err(|_| StoreError::Closed)?
    }

    /// The table of a type that was registered before.
    pub fn find(&self, group: &str, plural: &str) -> Option<Arc<Table>> {
        self.shared.tables.read().find(group, plural).cloned()
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.shared.tables.read().all().cloned().collect()
    }

    /// A table by id.
    pub fn by_id(&self, id: TypeId) -> Option<Arc<Table>> {
        self.shared.tables.read().get(id).cloned()
    }

    /// The newest revision that is complete over all types.
    pub fn revision(&self) -> u64 {
        self.shared.published.load(Ordering::Acquire)
    }

    /// The newest revision before which the history of some type is gone.
    pub fn compacted(&self) -> u64 {
        self.shared
            .tables
            .read()
            .all()
            .map(|table| table.floor())
            .max()
            .unwrap_or(0)
    }

    /// Waits until `revision` is published; `false` when `timeout` passed first.
    pub async fn reached(&self, revision: u64, timeout: Duration) -> bool {
        let mut announced = self.shared.announced.subscribe();
        tokio::time::timeout(timeout, announced.wait_for(|now| *now >= revision))
            .await
            .is_ok_and(|r| r.is_ok())
    }

    /// Makes all changes or none.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Arc<Record>>, CommitError> {
        let changes = match self.at_once(changes) {
            Ok(outcome) => return outcome,
            Err(changes) => changes,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Job::Commit { changes, reply })
            .map_err(|e| CommitError::Failed(e.to_string()))?;
        answer
            .await
            .map_err(|_| CommitError::Failed("the store is closed".into()))?
    }

    /// Makes the changes on this thread if nobody else is writing.
    fn at_once(&self, changes: Vec<Change>) -> Result<Outcome, Vec<Change>> {
        let Some(mut writer) = self.writer.try_lock() else {
            return Err(changes);
        };
        let (outcome, tidy) = writer.at_once(changes)?;
        drop(writer);
        if tidy {
            // A store that closes tidies up anyway.
            let _ = self.send(Job::Tidy);
        }
        Ok(outcome)
    }

    /// Registers an observer. Observers must be quick and must not call back into `commit`.
    pub fn observe(&self, observer: Observer) {
        self.shared.observers.write().push(observer);
    }

    /// Begins to keep the promise of durability: what was written so far and everything later
    /// survives as the store was opened to make it.
    pub fn harden(&self) -> Result<(), StoreError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.send(Job::Harden { reply })?;
        answer.recv().map_err(|_| StoreError::Closed)?
    }

    /// A type's definition is gone: its history up to `until` must not be offered to a later type of that name.
    pub fn retire(&self, id: TypeId, until: u64) -> Result<(), StoreError> {
        self.send(Job::Retire { id, until })
    }

    /// The events of `table` after `revision`, from the ring or the database.
    pub async fn events_since(&self, table: &Arc<Table>, revision: u64) -> Result<Vec<Arc<Event>>, TooOld> {
        let ring_floor = match table.since(revision) {
            Since::Events(events) => return Ok(events),
            Since::TooOld(gone) => return Err(gone),
            Since::InDatabase { ring_floor } => ring_floor,
        };
        let gone = TooOld { oldest: ring_floor };
        let history = self.history.clone().ok_or(gone)?;
        let id = table.id;
        let mut events = tokio::task::spawn_blocking(move || history.events(id, revision, ring_floor))
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or(gone)?;
        // Compaction may have passed by while the database was read; then the answer has a hole.
        match table.since(ring_floor) {
            Since::Events(newer) if table.floor() <= revision => {
                events.extend(newer);
                Ok(events)
            }
            _ => Err(TooOld {
                oldest: table.floor(),
            }),
        }
    }

    /// The state of a type (or of one namespace of it) as it was at `revision`.
    pub async fn at(
        &self,
        table: &Arc<Table>,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<(Key, Arc<Record>)>, TooOld> {
        let snapshot = table.snapshot(namespace, || self.revision());
        if snapshot.revision == revision {
            return Ok(snapshot.items);
        }
        let events = self.events_since(table, revision).await?;
        let mut state: BTreeMap<Key, Arc<Record>> = snapshot.items.into_iter().collect();
        let oldest = table.floor();
        for event in events.iter().rev().filter(|e| e.revision <= snapshot.revision) {
            if namespace.is_some_and(|ns| *event.key.namespace != *ns) {
                continue;
            }
            match (&event.old, event.op) {
                (Some(old), _) => state.insert(event.key.clone(), old.clone()),
                (None, Op::Added) => state.remove(&event.key),
                (None, _) => return Err(TooOld { oldest }),
            };
        }
        Ok(state.into_iter().collect())
    }

    /// Counters of the writer.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Sizes of the database file and its log in bytes.
    pub fn sizes(&self) -> (u64, u64) {
        self.path.as_deref().map_or((0, 0), sqlite::Database::sizes)
    }

    /// Finishes queued work and closes the database. Later commits fail.
    pub fn close(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    fn send(&self, job: Job) -> Result<(), StoreError> {
        let jobs = self.jobs.lock();
        let sender = jobs.as_ref().ok_or(StoreError::Closed)?;
        self.shared.statistics.queued.fetch_add(1, Ordering::Relaxed);
        sender.send(job).map_err(|_| StoreError::Closed)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}
