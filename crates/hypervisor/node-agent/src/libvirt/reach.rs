// SPDX-License-Identifier: Apache-2.0
//! How libvirt is reached: read-only wherever that suffices, because an agent that cannot change guests cannot harm
//! them. Only domain capabilities need more, and get a short connection of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Keepalive, Options};
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::session::SessionConfig;
use cobaltcore_libvirt::uri::{Transport, Uri};

use crate::config::ReadOnly;
use crate::context::Context;

/// What changes guests, what changes their definitions, and what tells of migrations.
const EVENTS: [EventId; 8] = [
    EventId::LIFECYCLE,
    EventId::DEVICE_ADDED,
    EventId::DEVICE_REMOVED,
    EventId::TUNABLE,
    EventId::MEMORY_DEVICE_SIZE_CHANGE,
    EventId::VCPU_REMOVED,
    EventId::MIGRATION_ITERATION,
    EventId::JOB_COMPLETED,
];

/// A libvirt that stopped is known after 16 s: the status has to say so within 20.
const KEEPALIVE: Keepalive = Keepalive {
    interval: Duration::from_secs(4),
    count: 3,
};

/// The long-lived connection.
pub(super) fn session(context: &Context) -> SessionConfig {
    let config = &context.config.libvirt;
    let read_only = match config.readonly {
        ReadOnly::Never => false,
        ReadOnly::Always => true,
        ReadOnly::Auto => config.uris.iter().all(has_read_only_socket),
    };
    let uris = config
        .uris
        .iter()
        .cloned()
        .map(|uri| if read_only { to_read_only(uri) } else { uri })
        .collect();
    SessionConfig {
        uris,
        options: Options {
            read_only,
            keepalive: KEEPALIVE,
            observer: Some(context.metrics.observer()),
            ..Options::default()
        },
        events: EVENTS.to_vec(),
        backoff: cobaltcore_libvirt::session::Backoff::default(),
    }
}

/// A short connection that may ask for domain capabilities.
pub(super) async fn read_write(context: &Context) -> Result<Connection, cobaltcore_libvirt::Error> {
    let options = Options {
        observer: Some(context.metrics.observer()),
        ..Options::default()
    };
    let mut last = None;
    for uri in &context.config.libvirt.uris {
        match Connection::connect(uri, options.clone()).await {
            Err(error) if error.is_driver_unavailable() => last = Some(error),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| cobaltcore_libvirt::Error::Uri {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_read_only_socket_lies_beside_the_other() {
        let uri = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock";
        let read_only = to_read_only(uri.parse().unwrap()).to_string();
        assert_eq!(read_only, format!("{uri}-ro"));
        let tcp = "qemu+tcp://host:1/system";
        assert_eq!(to_read_only(tcp.parse().unwrap()).to_string(), tcp);
        assert!(!has_read_only_socket(&tcp.parse().unwrap()));
    }
}
