// SPDX-License-Identifier: Apache-2.0
//! What the service hears, in one SQLite file per replica: events, hosts, guests, samples, verdicts,
//! the mirror of incidents, and what people did. It is soft state: a damaged file is put aside and
//! the service begins anew; decisions live in the journal.
//!
//! One thread writes, in groups; four connections read. What was acknowledged is committed.

mod janitor;
mod names;
mod read;
mod schema;
mod servers;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cobaltcore_ha_wire::{Admission, AgentId, Batch};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::Error;

pub use janitor::{Limits, Pruned};
pub use read::{EventFilter, Place, VmFilter};
pub(crate) use servers::KeptServer;
pub use writer::{Cursors, Stored};

/// Writes that may wait.
const QUEUE: usize = 4096;
/// Connections that read.
const READERS: usize = 4;

/// How safe a committed write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut: there is no other copy.
    Full,
    /// It survives the process: other replicas have it too.
    Normal,
}

/// Why something could not be stored or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database said no.
    #[error("the database does not take or give data: {0}")]
    Database(String),
    /// Too much waits to be written.
    #[error("too much waits to be written")]
    Busy,
    /// The writer is gone.
    #[error("the database is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}

/// Something to write, in a transaction that others share.
pub(crate) type Work = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send>;

/// Something to write.
pub(crate) enum Write {
    /// A report of an agent.
    Batch {
        batch: Arc<Batch>,
        received_ms: i64,
        reply: oneshot::Sender<Result<Stored, StoreError>>,
    },
    /// Words and guests that no event mentions any more are forgotten.
    Forget {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Anything else.
    Other {
        work: Work,
        reply: Option<oneshot::Sender<Result<(), StoreError>>>,
    },
}

/// The database. Cheap to clone; clones share. The writer ends with the last of them.
#[derive(Clone)]
pub struct Store {
    writes: mpsc::Sender<Write>,
    readers: Arc<Readers>,
    cursors: Cursors,
    untidy: Arc<AtomicBool>,
    path: PathBuf,
}

struct Readers {
    free: Mutex<Vec<Connection>>,
    places: Semaphore,
}

impl Store {
    /// Opens or makes the database in `folder`. A damaged one is put aside.
    pub fn open(folder: &Path, durability: Durability) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).map_err(|source| Error::File {
            path: folder.to_owned(),
            source,
        })?;
        let path = folder.join("telemetry.db");
        let connection = schema::open(&path, durability)?;
        let failed = |source| Error::Store {
            path: path.clone(),
            source,
        };
        let cursors = Cursors::load(&connection).map_err(failed)?;
        let mut free = Vec::new();
        for _ in 0..READERS {
            free.push(schema::open_reader(&path)?);
        }
        let (writes, queue) = mpsc::channel(QUEUE);
        let untidy = Arc::new(AtomicBool::new(false));
        let started = writer::start(
            connection,
            queue,
            cursors.clone(),
            Arc::clone(&untidy),
            path.clone(),
        );
        started.map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            writes,
            readers: Arc::new(Readers {
                free: Mutex::new(free),
                places: Semaphore::new(READERS),
            }),
            cursors,
            untidy,
            path,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Up to which number an agent's records are stored.
    pub fn last_seq(&self, agent: &AgentId) -> u64 {
        self.cursors.get(agent)
    }

    /// Stores the records of a report; committed when it returns.
    pub async fn ingest(&self, batch: Arc<Batch>, received_ms: i64) -> Result<Stored, StoreError> {
        // What cannot be taken is refused without waiting for the disk.
        if let Admission::Expected(seq) = batch.admit(self.cursors.get(&batch.envelope.agent_id)) {
            return Ok(Stored::Expected(seq));
        }
        let (reply, answer) = oneshot::channel();
        let write = Write::Batch {
            batch,
            received_ms,
            reply,
        };
        self.writes.try_send(write).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Writes something and waits until it is committed.
    pub async fn write(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let write = Write::Other {
            work: Box::new(work),
            reply: Some(reply),
        };
        self.writes.send(write).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Has the file made smaller and its log written into it as soon as nothing waits to be written.
    pub(crate) fn tidy(&self) {
        self.untidy.store(true, Ordering::Relaxed);
        // Whoever has nothing to write is woken by this.
        self.write_later(|_| Ok(()));
    }

    /// Forgets words and guests that no event mentions any more.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let write = Write::Forget { reply };
        self.writes.send(write).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Writes something some time; lost if too much waits.
    pub fn write_later(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) -> bool {
        let write = Write::Other {
            work: Box::new(work),
            reply: None,
        };
        self.writes.try_send(write).is_ok()
    }

    /// Writes all of this some time, or nothing of it if there is no room for all.
    pub(crate) fn write_all_later(&self, works: Vec<Work>) -> bool {
        let Ok(places) = self.writes.try_reserve_many(works.len()) else {
            return false;
        };
        for (place, work) in places.zip(works) {
            place.send(Write::Other { work, reply: None });
        }
        true
    }

    /// Reads something on one of the reading connections.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(&self.readers);
        let _place = readers.places.acquire().await.map_err(|_| StoreError::Closed)?;
        let Some(connection) = readers.free.lock().pop() else {
            return Err(StoreError::Busy);
        };
        let (connection, result) = tokio::task::spawn_blocking(move || {
            let result = look(&connection);
            (connection, result)
        })
        .await
        .map_err(|_| StoreError::Closed)?;
        readers.free.lock().push(connection);
        result.map_err(|error| {
            schema::note_damage(&self.path, &error);
            error.into()
        })
    }
}

#[cfg(test)]
mod tests;
