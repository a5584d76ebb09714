// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a call. Every error names the service, the call and the object; what the
//! service answered comes with its status, its words and its request id. An answer that never came
//! to a call that must not be repeated is its own kind: nobody knows whether it was done.

use std::fmt;
use std::time::Duration;

use crate::call::{Call, Repeat, Service};
use crate::version::{Microversion, Offer};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// 404 or 410: there is no such object. Of Nova only in Nova's own words.
    #[error("{0}")]
    NotFound(Box<Refusal>),
    /// 409: the object is not in a state for this.
    #[error("{0}")]
    Conflict(Box<Refusal>),
    /// 409 of Placement: somebody else wrote first; read again and repeat.
    #[error("{0}")]
    GenerationConflict(Box<Refusal>),
    /// 401: the credentials are not accepted, also not after a new token was fetched.
    #[error("{0}; check user, password or application credential")]
    Unauthorized(Box<Refusal>),
    /// 403: the user lacks a role, or a quota is used up.
    #[error("{0}")]
    Forbidden(Box<Refusal>),
    /// 429: too many calls.
    #[error("{0}")]
    RateLimited(Box<Refusal>),
    /// Any other 4xx: the request as such is refused.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// 5xx: the service or what stands before it is overloaded or broken.
    #[error("{0}")]
    Overloaded(Box<Refusal>),
    /// No connection; nothing was done.
    #[error("{of}: cannot be reached: {cause}")]
    Unreachable {
        /// The call.
        of: Box<Attempted>,
        /// What the network said.
        cause: String,
    },
    /// No answer in time; nothing was done, or doing it again does no harm.
    #[error("{of}: no answer within {} while {doing}", seconds(*.limit))]
    Deadline {
        /// The call.
        of: Box<Attempted>,
        /// The time it had.
        limit: Duration,
        /// What it was waiting for.
        doing: &'static str,
    },
    /// The answer got lost and the call must not be repeated: look before doing anything else.
    #[error("{of}: outcome unknown, look before asking again: {cause}")]
    UnknownOutcome {
        /// The call.
        of: Box<Attempted>,
        /// How the answer got lost.
        cause: String,
    },
    /// An answer that is not what the service's API promises.
    #[error("{of}: unusable answer{}: {detail}", status_words(*.status))]
    BadAnswer {
        /// The call.
        of: Box<Attempted>,
        /// The HTTP status, if it came so far.
        status: Option<u16>,
        /// What is wrong with it.
        detail: String,
    },
    /// An object of the call has an empty name; nothing was sent, because it would mean all of them.
    #[error("{0}: an empty name was given; nothing was sent")]
    Nameless(Box<Attempted>),
    /// The catalog has no endpoint of the service for this region and interface.
    #[error("{service}: {detail}")]
    NoEndpoint {
        /// The service.
        service: Service,
        /// What was looked for and what there is.
        detail: String,
    },
    /// The service does not speak a microversion that the call needs.
    #[error("{of}: needs microversion {least} or newer, the service offers {} to {}; upgrade {}",
        .offer.oldest, .offer.newest, .of.call.service)]
    TooOld {
        /// The call.
        of: Box<Attempted>,
        /// What it needs.
        least: Microversion,
        /// What there is.
        offer: Offer,
    },
}

/// What was tried on what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// The call.
    pub call: &'static Call,
    /// The object, such as `server 381239f5-...`; empty for calls on a whole service.
    pub object: String,
}

/// A refusal in the service's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The call.
    pub of: Attempted,
    /// The HTTP status.
    pub status: u16,
    /// The machine-readable code, where the service gives one (Placement does).
    pub code: Option<String>,
    /// The service's words, one line, without markup.
    pub message: String,
    /// The id under which the service logged it.
    pub request_id: Option<String>,
    /// When the service wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// The kind of an error, as metrics and decisions need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Error::NotFound`].
    NotFound,
    /// [`Error::Conflict`].
    Conflict,
    /// [`Error::GenerationConflict`].
    GenerationConflict,
    /// [`Error::Unauthorized`].
    Unauthorized,
    /// [`Error::Forbidden`].
    Forbidden,
    /// [`Error::RateLimited`].
    RateLimited,
    /// [`Error::Refused`].
    Refused,
    /// [`Error::Overloaded`].
    Overloaded,
    /// [`Error::Unreachable`].
    Unreachable,
    /// [`Error::Deadline`].
    Deadline,
    /// [`Error::UnknownOutcome`].
    UnknownOutcome,
    /// [`Error::BadAnswer`].
    BadAnswer,
    /// [`Error::Nameless`].
    Nameless,
    /// [`Error::NoEndpoint`].
    NoEndpoint,
    /// [`Error::TooOld`].
    TooOld,
}

impl Kind {
    /// The word for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::GenerationConflict => "generation_conflict",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::RateLimited => "rate_limited",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::Deadline => "deadline",
            Self::UnknownOutcome => "unknown_outcome",
            Self::BadAnswer => "bad_answer",
            Self::Nameless => "nameless",
            Self::NoEndpoint => "no_endpoint",
            Self::TooOld => "too_old",
        }
    }
}

impl Error {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NotFound(_) => Kind::NotFound,
            Self::Conflict(_) => Kind::Conflict,
            Self::GenerationConflict(_) => Kind::GenerationConflict,
            Self::Unauthorized(_) => Kind::Unauthorized,
            Self::Forbidden(_) => Kind::Forbidden,
            Self::RateLimited(_) => Kind::RateLimited,
            Self::Refused(_) => Kind::Refused,
            Self::Overloaded(_) => Kind::Overloaded,
            Self::Unreachable { .. } => Kind::Unreachable,
            Self::Deadline { .. } => Kind::Deadline,
            Self::UnknownOutcome { .. } => Kind::UnknownOutcome,
            Self::BadAnswer { .. } => Kind::BadAnswer,
            Self::Nameless(_) => Kind::Nameless,
            Self::NoEndpoint { .. } => Kind::NoEndpoint,
            Self::TooOld { .. } => Kind::TooOld,
        }
    }

    /// The service's refusal, if the service answered at all.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::NotFound(refusal)
            | Self::Conflict(refusal)
            | Self::GenerationConflict(refusal)
            | Self::Unauthorized(refusal)
            | Self::Forbidden(refusal)
            | Self::RateLimited(refusal)
            | Self::Refused(refusal)
            | Self::Overloaded(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// What was tried on what; nothing when it failed before a call was made.
    pub fn attempted(&self) -> Option<&Attempted> {
        match self {
            Self::Unreachable { of, .. }
            | Self::Deadline { of, .. }
            | Self::UnknownOutcome { of, .. }
            | Self::BadAnswer { of, .. }
            | Self::TooOld { of, .. }
            | Self::Nameless(of) => Some(of),
            Self::NoEndpoint { .. } => None,
            other => other.refusal().map(|refusal| &refusal.of),
        }
    }

    /// The service that failed. For a call to Nova this is Keystone when no token could be had.
    pub fn service(&self) -> Option<Service> {
        match self {
            Self::NoEndpoint { service, .. } => Some(*service),
            other => other.attempted().map(|of| of.call.service),
        }
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::BadAnswer { status, .. } => *status,
            other => other.refusal().map(|refusal| refusal.status),
        }
    }

    /// The request id of the service, for its log.
    pub fn request_id(&self) -> Option<&str> {
        self.refusal()?.request_id.as_deref()
    }

    /// The service's own words, without call and status.
    pub fn message(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.message.as_str())
    }

    /// When the service wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal()?.retry_after
    }

    /// There is no such object.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// The object is in the wrong state, or somebody else wrote first.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::GenerationConflict(_))
    }

    /// Nobody knows whether the call was done: its answer got lost, is unusable, or says that the
    /// service broke on the way, and it is a call whose repetition may do it twice.
    pub fn outcome_unknown(&self) -> bool {
        let once = self.attempted().is_some_and(|of| of.call.repeat == Repeat::Once);
        match self {
            Self::UnknownOutcome { .. } => true,
            Self::Overloaded(_) | Self::BadAnswer { .. } => once,
            _ => false,
        }
    }

    /// The same call may succeed later without anybody changing anything, and asking again does no
    /// harm.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RateLimited(_) | Self::Unreachable { .. } | Self::Deadline { .. } => true,
            Self::GenerationConflict(_) => true,
            Self::Overloaded(_) | Self::BadAnswer { .. } => !self.outcome_unknown(),
            _ => false,
        }
    }
}

/// Turns "there is no such object" into nothing.
pub trait Optional<T> {
    /// `None` for an object that does not exist; every other error stays.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> Optional<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Attempted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if self.object.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.object)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.of, self.status, self.message)?;
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " ({id})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn status_words(status: Option<u16>) -> String {
    status
        .map(|status| format!(" (status {status})"))
        .unwrap_or_default()
}
