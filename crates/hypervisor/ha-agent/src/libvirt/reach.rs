// SPDX-License-Identifier: Apache-2.0
//! How libvirt is reached: listening through the read-only socket where there is one; only a repair takes a short
//! connection that may change a guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Keepalive, Options};
use cobaltcore_libvirt::error::Error;
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::session::{Backoff, SessionConfig};
use cobaltcore_libvirt::uri::{Transport, Uri};

use crate::args::Start;

const KEEPALIVE: Keepalive = Keepalive {
    interval: Duration::from_secs(5),
    count: 3,
};

/// The connection that listens.
pub(crate) fn session(start: &Start, events: Vec<EventId>) -> SessionConfig {
    let read_only = start.uris.iter().all(has_read_only_socket);
    let to = |uri: &Uri| {
        if read_only {
            to_read_only(uri.clone())
        } else {
            uri.clone()
        }
    };
    SessionConfig {
        uris: start.uris.iter().map(to).collect(),
        options: Options {
            read_only,
            keepalive: KEEPALIVE,
            ..Options::default()
        },
        events,
        backoff: Backoff::default(),
    }
}

/// A short connection that may change a guest.
pub(crate) async fn read_write(start: &Start) -> Result<Connection, Error> {
    let mut last = None;
    for uri in &start.uris {
        match Connection::connect(uri, Options::default()).await {
            Err(error) if error.is_driver_unavailable() => last = Some(error),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Error::Uri {
        uri: String::new(),
        why: "no URI was given".to_owned(),
    }))
}

fn has_read_only_socket(uri: &Uri) -> bool {
    match uri.transport() {
        Transport::Unix { socket: Some(path) } => beside(path).exists(),
        Transport::Unix { socket: None } => uri.sockets(true).iter().any(|path| path.exists()),
        Transport::Tcp { .. } | Transport::Tls { .. } => false,
    }
}

fn to_read_only(uri: Uri) -> Uri {
    match uri.transport() {
        Transport::Unix { socket: Some(path) } => {
            let socket = Some(beside(path));
            uri.with_transport(Transport::Unix { socket })
        }
        _ => uri,
    }
}

/// libvirt names the read-only socket after the other one.
fn beside(path: &Path) -> PathBuf {
    let text = path.as_os_str().to_string_lossy();
    if text.ends_with("-ro") {
        return path.to_owned();
    }
    PathBuf::from(format!("{text}-ro"))
}
