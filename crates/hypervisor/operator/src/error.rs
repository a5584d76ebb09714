// SPDX-License-Identifier: Apache-2.0
//! What can go wrong in the operator. Each variant names what was tried on what.

use std::time::Duration;

use cobaltcore_kit::retry::{Classify as _, RetryClass};

/// What can go wrong in the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kit could not do its part; the text names it.
    #[error(transparent)]
    Kit(#[from] cobaltcore_kit::Error),
    /// A call to the Kubernetes API failed.
    #[error("{what}: {}", said(source))]
    Kube {
        /// What was tried on what.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// A call did not come back.
    #[error("{what}: no answer within {limit:?}")]
    Late {
        /// What was tried on what.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// OpenStack did not do as asked; the text names the call and the answer.
    #[error("{0}")]
    OpenStack(String),
    /// The HA service did not do as asked.
    #[error("{0}")]
    HaService(String),
    /// An object cannot be expressed as JSON.
    #[error("{what}: {source}")]
    Json {
        /// What was tried on what.
        what: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// What the API said, in its own sentence; the rest of its answer is for programs.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

impl Error {
    /// Whether the object that was meant does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404))
    }

    /// Whether somebody changed the object meanwhile; the next pass sees how.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if source.retry_class() == RetryClass::Conflict)
    }
}
