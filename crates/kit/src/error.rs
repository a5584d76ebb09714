// SPDX-License-Identifier: Apache-2.0
//! What can go wrong in the kit. Each variant names what was tried on what, so that the
//! message alone tells a person where to look.

use std::path::PathBuf;

use crate::config::ConfigErrors;

/// Any error that a task may end with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What can go wrong in the kit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has mistakes; the text lists all of them.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Logging was set up before.
    #[error("logging is already set up")]
    LoggingTwice,
    /// A log filter does not parse.
    #[error("log filter {filter:?}: {reason}")]
    LogFilter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal cannot be reached.
    #[error("cannot reach the journal: {0}")]
    Journal(#[source] std::io::Error),
    /// Trace export cannot be set up.
    #[error("cannot export traces to {endpoint}: {reason}")]
    Traces {
        /// Where to.
        endpoint: String,
        /// Why not.
        reason: String,
    },
    /// A listener cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {reason}", path = path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS material does not fit together.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A leader election has impossible timings or names.
    #[error("leader election {lease}: {reason}")]
    LeaderConfig {
        /// The lease.
        lease: String,
        /// What is wrong.
        reason: String,
    },
    /// Somebody else leads, or nobody could be told that we do.
    #[error("lost the lease {lease}: {reason}")]
    LeadershipLost {
        /// The lease.
        lease: String,
        /// How it was lost.
        reason: String,
    },
    /// A condition that the API server would refuse, and with it the whole status.
    #[error("condition {type_:?} of {object}: {reason}")]
    Condition {
        /// The object.
        object: String,
        /// The type of the condition.
        type_: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A call to the Kubernetes API failed.
    #[error("{what}: {source}")]
    Kube {
        /// What was tried on what.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// An object does not have the form its type promises.
    #[error("{what}: {source}")]
    Json {
        /// What was tried on what.
        what: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A task ended that the process cannot do without.
    #[error("task {task} ended: {reason}")]
    TaskEnded {
        /// The task.
        task: String,
        /// How it ended.
        reason: String,
    },
}

impl Error {
    pub(crate) fn kube(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Kube {
            what: what.into(),
            source: Box::new(source),
        }
    }
}
