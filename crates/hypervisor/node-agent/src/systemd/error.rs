// SPDX-License-Identifier: Apache-2.0
//! What can go wrong on the bus. The difference that matters to callers: an answer that says no is final, a missing
//! answer leaves open whether the call took effect.

use std::time::Duration;

/// What went wrong on the bus.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// The bus cannot be reached.
    #[error("cannot reach the system bus at {address}: {source}")]
    Connect {
        /// Its address.
        address: String,
        /// Why not.
        source: zbus::Error,
    },
    /// There is no connection at the moment.
    #[error("{what}: not connected to the system bus ({why})")]
    Down {
        /// What was to be done.
        what: String,
        /// Why there is no connection.
        why: String,
    },
    /// The other side answered that it will not.
    #[error("{what}: {source}")]
    Refused {
        /// What was tried on what.
        what: String,
        /// The answer.
        source: zbus::Error,
    },
    /// No answer came, so it is open whether the call took effect.
    #[error("{what}: {why}")]
    NoAnswer {
        /// What was tried on what.
        what: String,
        /// What happened instead.
        why: String,
    },
}

impl BusError {
    pub(crate) fn timeout(what: impl Into<String>, limit: Duration) -> Self {
        Self::NoAnswer {
            what: what.into(),
            why: format!("no answer within {limit:?}"),
        }
    }

    pub(crate) fn from_call(what: impl Into<String>, source: zbus::Error) -> Self {
        let what = what.into();
        let unanswered = match &source {
            zbus::Error::MethodError(..) => false,
            // The bus answers in the name of a service that does not answer itself.
            zbus::Error::FDO(error) => matches!(
                **error,
                zbus::fdo::Error::NoReply(_)
                    | zbus::fdo::Error::Timeout(_)
                    | zbus::fdo::Error::TimedOut(_)
                    | zbus::fdo::Error::Disconnected(_)
            ),
            _ => true,
        };
        if unanswered {
            Self::NoAnswer {
                what,
                why: source.to_string(),
            }
        } else {
            Self::Refused { what, source }
        }
    }

    /// Whether the other side said no, so that the call certainly had no effect.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Down { .. })
    }
}
