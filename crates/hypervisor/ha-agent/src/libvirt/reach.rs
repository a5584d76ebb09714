// SPDX-License-Identifier: Apache-2.0
//! How libvirt is reached: listening through the read-only socket where there is one; only a repair takes a short
//! connection that may change a guest.

use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Keepalive, Options};
use cobaltcore_libvirt::error::Error;
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::session::{Backoff, SessionConfig};
use cobaltcore_libvirt::uri::Uri;

use crate::args::Start;

const KEEPALIVE: Keepalive = Keepalive {
    interval: Duration::from_secs(5),
    count: 3,
};

/// The connection that listens.
pub(crate) fn session(start: &Start, events: Vec<EventId>) -> SessionConfig {
    let read_only = start.uris.iter().all(Uri::has_read_only_socket);
    SessionConfig {
        uris: if read_only {
            start.uris.iter().map(Uri::to_read_only).collect()
        } else {
            start.uris.clone()
        },
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
    Connection::connect_first(&start.uris, &Options::default()).await
}
