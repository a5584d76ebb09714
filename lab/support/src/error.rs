// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between a test and the lab. Every variant names what was tried on what, so
//! that the message of a failed test is enough to know where to look.

use std::time::Duration;

/// The result of everything that touches the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the lab, or of what a test asked from it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command ended with an error or could not be run.
    #[error("`{command}` failed: {detail}")]
    Command {
        /// The command line.
        command: String,
        /// Exit status and standard error, or why it did not start.
        detail: String,
    },
    /// The lab's description could not be read.
    #[error("the lab's description {path} is unreadable: {detail}")]
    Description {
        /// The file.
        path: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The lab has no host with that number or name.
    #[error("the lab has no host {0}")]
    NoHost(String),
    /// The lab was started without a control plane.
    #[error("the lab has no control plane: start it without --hosts-only")]
    NoControlPlane,
    /// No answer came.
    #[error("{method} {url}: {detail}")]
    Transport {
        /// The HTTP method.
        method: String,
        /// The address.
        url: String,
        /// Why there was no answer.
        detail: String,
    },
    /// An answer came, but not the wanted one.
    #[error("{method} {url} was answered with {status}: {body}")]
    Status {
        /// The HTTP method.
        method: String,
        /// The address.
        url: String,
        /// The status of the answer.
        status: u16,
        /// The beginning of its body.
        body: String,
    },
    /// An answer did not have the expected shape.
    #[error("{url}: unexpected answer: {detail}")]
    Shape {
        /// The address.
        url: String,
        /// What was missing.
        detail: String,
    },
    /// Something did not happen in time.
    #[error("waited {waited:?} for {what}; last seen: {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// The last state or error.
        last: String,
    },
}
