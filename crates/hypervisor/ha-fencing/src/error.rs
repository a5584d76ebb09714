// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a fencing device. Every error names the device and what was tried, and
//! where a person can do something about it, what.

use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_api::names::HostName;

/// The result of a question or an order.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A device that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be used.
    #[error("{key}: {message}")]
    Config {
        /// The key below `fencing`.
        key: String,
        /// What is wrong and how it is put right.
        message: String,
    },
    /// There is no such level.
    #[error("{host} has no fencing level {level}; add one to fencing.levels")]
    NoLevel {
        /// The host.
        host: HostName,
        /// The level, from 0.
        level: usize,
    },
    /// Something a device needs to know of the host is not known.
    #[error("{host}: {what} is not known, so its {driver} device cannot be found; set {fix}")]
    Missing {
        /// The host.
        host: HostName,
        /// The driver.
        driver: &'static str,
        /// What is missing.
        what: String,
        /// Where it is given.
        fix: String,
    },
    /// Two hosts lead to one device.
    #[error(
        "{host} and {other} lead to the same device, {address}: neither can be fenced until fencing.hosts names the right one for each"
    )]
    Shared {
        /// The host.
        host: HostName,
        /// The other one.
        other: HostName,
        /// The device.
        address: String,
    },
    /// The credentials cannot be read.
    #[error("credentials in {path}: {reason}", path = path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No connection, or it broke.
    #[error("{what} at {device}: {cause}")]
    Unreachable {
        /// What was tried.
        what: &'static str,
        /// On what.
        device: String,
        /// What the network said.
        cause: String,
    },
    /// No answer in time.
    #[error("{what} at {device}: no answer within {limit:?}")]
    TimedOut {
        /// What was tried.
        what: &'static str,
        /// On what.
        device: String,
        /// The time it had.
        limit: Duration,
    },
    /// It was never asked.
    #[error("{device} was not asked: programs for other hosts took all places for {limit:?}")]
    NoTurn {
        /// Which.
        device: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The device said no.
    #[error("{what} at {device}: {status} {message}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// On what.
        device: String,
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The device answered something that is no answer.
    #[error("{what} at {device}: {detail}")]
    BadAnswer {
        /// What was tried.
        what: &'static str,
        /// On what.
        device: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The device cannot do it at all.
    #[error("{device} cannot {what}: {detail}")]
    NotOffered {
        /// What was wanted.
        what: &'static str,
        /// Of what.
        device: String,
        /// What it offers instead.
        detail: String,
    },
    /// Somebody else is at work on it.
    #[error("{device} is busy: {detail}")]
    Busy {
        /// Which.
        device: String,
        /// With what, and what to do.
        detail: String,
    },
    /// It cannot be told yet.
    #[error("{device} does not tell: {detail}")]
    Unknown {
        /// Which.
        device: String,
        /// What is missing.
        detail: String,
    },
    /// Only a person can do this.
    #[error(
        "{host} is switched off by a person: see that it is off, then `cobaltcore incidents ack-fenced` its incident"
    )]
    Person {
        /// The host.
        host: HostName,
    },
    /// The Kubernetes API did not do what was asked.
    #[error("{what}: {source}")]
    Kubernetes {
        /// What was tried on what.
        what: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
    /// A program failed.
    #[error("{command} ({action}): {detail}")]
    Command {
        /// The program.
        command: String,
        /// What it was to do.
        action: &'static str,
        /// How it failed.
        detail: String,
    },
}
