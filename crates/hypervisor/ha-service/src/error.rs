// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, each with what was tried on what.

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database.
    #[error("database {}: {source}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A database that a newer program wrote.
    #[error(
        "database {} has layout {found}, this program knows up to {known}: run the newer program, or move the file away",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The journal.
    #[error("the journal: {0}")]
    Journal(String),
    /// The rest of the platform.
    #[error(transparent)]
    Kit(#[from] cobaltcore_kit::Error),
    /// The cloud's configuration.
    #[error("the cloud: {0}")]
    Cloud(#[from] cobaltcore_openstack::ConfigError),
    /// Something else that must be right before the service can run.
    #[error("{0}")]
    Setup(String),
}
