// SPDX-License-Identifier: Apache-2.0
//! What can end the agent: a mistake in what it was told at the start, or a spool it cannot use. Everything else it
//! outlives.

use crate::spool::SpoolError;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag or variable cannot be used.
    #[error("{flag}: {reason}")]
    Argument {
        /// Which.
        flag: &'static str,
        /// Why.
        reason: String,
    },
    /// The configuration cannot be used. While the agent runs such a file is refused and the old one stays.
    #[error("{0}")]
    Config(#[from] cobaltcore_kit::config::ConfigErrors),
    /// Something of the common ground failed, such as a listener.
    #[error(transparent)]
    Kit(#[from] cobaltcore_kit::Error),
    /// The spool cannot be used.
    #[error("the spool cannot be used: {0}")]
    Spool(#[from] SpoolError),
}

impl Error {
    pub(crate) fn argument(flag: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument {
            flag,
            reason: reason.into(),
        }
    }

    /// Whether a person must change what the agent was told.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Argument { .. } | Self::Config(_))
    }
}
