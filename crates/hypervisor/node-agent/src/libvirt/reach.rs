// SPDX-License-Identifier: Apache-2.0
//! How libvirt is reached: read-only wherever that suffices, because an agent that cannot change guests cannot harm
//! them. Only domain capabilities need more, and get a short connection of their own.

use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Keepalive, Options};
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::session::SessionConfig;
use cobaltcore_libvirt::uri::Uri;

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
        ReadOnly::Auto => config.uris.iter().all(Uri::has_read_only_socket),
    };
    let uris = if read_only {
        config.uris.iter().map(Uri::to_read_only).collect()
    } else {
        config.uris.clone()
    };
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
    Connection::connect_first(&context.config.libvirt.uris, &options).await
}
