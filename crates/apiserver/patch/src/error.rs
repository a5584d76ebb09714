// SPDX-License-Identifier: Apache-2.0
//! Why a patch was refused. The variants are the classes a server answers differently; the texts
//! are complete messages, ready for a `Status`.

use crate::apply::Conflicts;

/// A refused patch. [`std::fmt::Display`] gives the message for the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// The patch is larger than allowed: 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// One operation of a JSON patch does not apply: 422 Invalid. The reference hides the detail
    /// behind a fixed message; ours belongs into a cause.
    #[error("operation {index} ({op} {path:?}): {reason}")]
    Operation {
        /// Position in the patch, from zero.
        index: usize,
        /// The operation as written.
        op: String,
        /// Its path as written.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The patch is well-formed but cannot be applied to this object: 422 Invalid.
    #[error("{0}")]
    Unprocessable(String),
    /// A strategic merge patch the reference answers with 500 InternalError although the patch is
    /// to blame; the message is the reference's.
    #[error("{0}")]
    Strategic(String),
    /// An apply configuration (or live object) that does not fit the schema. The reference answers
    /// 500 with this message, this project 400 or 422.
    #[error("{0}")]
    IllTyped(String),
    /// Other managers own fields the configuration changes: 409 Conflict.
    #[error("{0}")]
    Conflict(Conflicts),
}

/// The error of [`crate::apply()`].
pub type ApplyError = PatchError;
