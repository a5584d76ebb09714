// SPDX-License-Identifier: Apache-2.0
//! What can go wrong around a simulated world. Failures inside the simulation are answers on the wire, not errors here.

use std::path::PathBuf;

use uuid::Uuid;

use crate::world::HostName;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such host.
    #[error("there is no host {0} in the simulated world; its hosts are named when it is built")]
    NoHost(HostName),
    /// There is no such size.
    #[error("there is no flavor {0} in the simulated cloud; `openstack flavor list` shows them")]
    NoFlavor(String),
    /// The guest does not run anywhere.
    #[error("server {0} does not run on any simulated host")]
    NotRunning(Uuid),
    /// The server is not in a state in which it can be moved that way.
    #[error("server {0} cannot be moved now: it is gone, busy, or its host is not in the state this needs")]
    CannotMove(Uuid),
    /// A port could not be had.
    #[error("cannot listen for {what} on {address}: {source}")]
    Listen {
        /// For what.
        what: &'static str,
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The world could not be written.
    #[error("cannot save the simulated world to {}: {source}", path.display())]
    Save {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The world could not be read.
    #[error("cannot load the simulated world from {}: {source}; remove the file to begin anew", path.display())]
    Load {
        /// From where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The world was saved by another version.
    #[error("{} does not begin with {wanted:?}, the form this version reads; remove the file to begin anew", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// What this version reads.
        wanted: &'static str,
    },
}
