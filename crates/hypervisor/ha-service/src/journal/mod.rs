// SPDX-License-Identifier: Apache-2.0
//! Where decisions are written before they are carried out. One log, appended to by one leader at
//! a time: whoever was replaced finds that the log moved on and is refused. Two places: objects in
//! the Kubernetes API, which every replica reads, or a file for a replica that is alone. What the
//! engine has forgotten leaves it some time after; the database remembers it for longer.

mod cut;
mod file;
mod objects;

use cobaltcore_ha_engine::Record;
use jiff::Timestamp;

pub use file::FileJournal;
pub use objects::{ObjectJournal, Place};

/// What is new to somebody who follows the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// All that there is; what was known before counts no more.
    All(Vec<Record>),
    /// What follows on what was known.
    More(Vec<Record>),
}

/// Why records were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Somebody else wrote meanwhile. What was decided here never happened.
    #[error("somebody else wrote to the journal: {0}")]
    Replaced(String),
    /// It may work later.
    #[error("the journal cannot be written: {0}")]
    Unavailable(String),
}

/// The journal. Cheap to clone; clones share.
#[derive(Clone)]
pub enum Journal {
    /// A file.
    File(FileJournal),
    /// Objects in the Kubernetes API.
    Objects(Box<ObjectJournal>),
}

impl Journal {
    /// Every record, in order. From here on, appending continues after the last of them.
    pub async fn load(&self) -> Result<Vec<Record>, AppendError> {
        match self {
            Self::File(file) => file.load().await,
            Self::Objects(objects) => objects.load().await,
        }
    }

    /// What was written since `place`, which moves on; everything if there is none. Appending is not concerned.
    pub async fn follow(&self, place: &mut Option<Place>) -> Result<News, AppendError> {
        match self {
            // Whoever is alone has nobody to follow.
            Self::File(_) => Ok(News::More(Vec::new())),
            Self::Objects(objects) => objects.follow(place).await,
        }
    }

    /// Removes the records of incidents that were forgotten, and those older than `before` that are about none. Says how
    /// many of incidents left.
    pub async fn cut(&self, before: Timestamp) -> Result<usize, AppendError> {
        match self {
            Self::File(file) => file.cut(before).await,
            Self::Objects(objects) => objects.cut(before).await,
        }
    }

    /// Makes records durable, in order. Of very many, a beginning may be durable when it fails.
    pub async fn append(&self, records: Vec<Record>) -> Result<(), AppendError> {
        match self {
            Self::File(file) => file.append(records).await,
            Self::Objects(objects) => objects.append(records).await,
        }
    }
}

/// Whether `records` continue a log that ends with `last` (number and term).
fn continues(last: (u64, u64), records: &[Record]) -> Result<(), AppendError> {
    let (mut seq, mut epoch) = last;
    for record in records {
        if record.seq != seq + 1 || record.epoch.0 < epoch {
            return Err(AppendError::Replaced(format!(
                "record {} of term {} does not follow record {seq} of term {epoch}",
                record.seq, record.epoch.0
            )));
        }
        (seq, epoch) = (record.seq, record.epoch.0);
    }
    Ok(())
}

/// A part of the journal is missing. Nobody decides by the rest of it.
fn incomplete(why: String) -> AppendError {
    AppendError::Unavailable(format!(
        "the journal is incomplete: {why}; restore it before going on"
    ))
}

#[cfg(test)]
mod tests;
