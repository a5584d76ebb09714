// SPDX-License-Identifier: Apache-2.0
//! What an update must remember across a restart of the agent: the version it is about, the attempts left, how far it
//! got and in which boot. One small file on the host, replaced atomically, written before the action it speaks of.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate::replace_file;
use crate::host::BootId;

/// The name of the file below the state directory.
pub(super) const FILE: &str = "os-update.json";

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// The update at hand, if one was ever wanted.
    pub target: Option<Target>,
}

/// One update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The version.
    pub version: String,
    /// The value of the retry annotation that armed it.
    pub arm: String,
    /// Attempts left.
    pub attempts: u32,
    /// How far it got.
    pub phase: Phase,
    /// Nothing is tried before this time.
    pub not_before: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: String,
}

/// How far an update got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The next attempt has not begun.
    Waiting,
    /// The unit was, or is about to be, started.
    Started {
        /// In this boot.
        boot: BootId,
        /// The unit's invocation before the start.
        invocation: String,
    },
    /// The version is on disk.
    Installed {
        /// Whether this agent put it there; only then may it ask for a reboot.
        ours: bool,
    },
    /// A reboot was, or is about to be, asked for.
    RebootRequested {
        /// In this boot.
        boot: BootId,
    },
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It does not hold a journal.
    #[error("{path} is not a journal of updates ({source}); remove it to start over", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// The journal on disk.
#[derive(Clone, Debug)]
pub struct JournalFile(PathBuf);

impl JournalFile {
    /// The journal in a directory.
    pub fn below(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// What is remembered; nothing when there is no file.
    pub fn read(&self) -> Result<Journal, JournalError> {
        let path = || self.0.clone();
        match std::fs::read(&self.0) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| JournalError::Content { path: path(), source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Journal::default()),
            Err(source) => Err(JournalError::Read { path: path(), source }),
        }
    }

    /// Remembers.
    pub fn write(&self, journal: &Journal) -> Result<(), JournalError> {
        let write = || {
            let bytes = serde_json::to_vec(journal)?;
            if let Some(directory) = self.0.parent() {
                std::fs::create_dir_all(directory)?;
            }
            replace_file(&self.0, &bytes, 0o600, None)
        };
        write().map_err(|source| JournalError::Write {
            path: self.0.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_nothing_is_read_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = JournalFile::below(&folder.path().join("state"));
        assert_eq!(file.read().unwrap(), Journal::default());
        let boot = BootId::new("1b4e28ba-2fa1-11d2-883f-0016d3cca427").unwrap();
        for phase in [
            Phase::Waiting,
            Phase::Started {
                boot: boot.clone(),
                invocation: "ab".into(),
            },
            Phase::Installed { ours: true },
            Phase::RebootRequested { boot },
        ] {
            let target = Target {
                version: "1877.3".into(),
                arm: String::new(),
                attempts: 2,
                phase,
                not_before: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                error: "x".into(),
            };
            let journal = Journal { target: Some(target) };
            file.write(&journal).unwrap();
            assert_eq!(file.read().unwrap(), journal);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_journal_or_an_error_that_names_the_file(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), &bytes).unwrap();
            if let Err(error) = JournalFile::below(folder.path()).read() {
                prop_assert!(error.to_string().contains(FILE));
            }
        }
    }
}
