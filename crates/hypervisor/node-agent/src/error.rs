// SPDX-License-Identifier: Apache-2.0
//! What can go wrong in the agent, each with what was tried on what. Little of it ends the process: only a mistake in
//! the configuration or a listener that cannot be opened does.

use std::time::Duration;

/// What can go wrong in the agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag or variable has a value that cannot be used.
    #[error("{flag}: {reason}")]
    Config {
        /// The flag.
        flag: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// Something of the common ground failed, such as a listener or a status write.
    #[error(transparent)]
    Kit(#[from] cobaltcore_kit::Error),
    /// A call to the Kubernetes API failed.
    #[error("{what}: {source}")]
    Kube {
        /// What was tried on what.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The Kubernetes API did not answer in time.
    #[error("{what}: no answer within {limit:?}")]
    Deadline {
        /// What was tried on what.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// An XML document of libvirt cannot be read.
    #[error("{document}: {reason}")]
    Xml {
        /// Which one.
        document: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Makes a call to the Kubernetes API that must be answered within `limit`.
pub(crate) async fn in_time<T>(
    what: &str,
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| Error::kube(what, error)),
        Err(_) => Err(Error::Deadline {
            what: what.to_owned(),
            limit,
        }),
    }
}

impl Error {
    pub(crate) fn config(flag: &'static str, reason: impl Into<String>) -> Self {
        Self::Config {
            flag,
            reason: reason.into(),
        }
    }

    pub(crate) fn kube(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Kube {
            what: what.into(),
            source: Box::new(source),
        }
    }
}
