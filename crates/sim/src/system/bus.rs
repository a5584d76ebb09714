// SPDX-License-Identifier: Apache-2.0
//! A message bus with one service provider and nobody else. Each client gets a connection of its own on which the
//! bus and the services answer; clients cannot see or call each other. Enough for an agent that wants a system bus
//! where there is none.

use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;
use zbus::{Guid, connection::Builder, fdo, interface};

use super::{System, services};
use crate::error::Error;

const BUS_PATH: &str = "/org/freedesktop/DBus";
/// The client's name on its connection.
const THEIRS: &str = ":1.1";

/// A bus on a socket; it goes away with this value.
#[derive(Debug)]
pub struct Bus {
    socket: PathBuf,
    _task: AbortOnDropHandle<()>,
}

impl Bus {
    pub(super) fn listen(system: &System, socket: &Path) -> Result<Self, Error> {
        let listener = UnixListener::bind(socket).map_err(|source| Error::Listen {
            what: "a simulated system bus",
            address: socket.display().to_string(),
            source,
        })?;
        let system = system.clone();
        let task = tokio::spawn(async move {
            let guid = Guid::generate();
            while let Ok((stream, _)) = listener.accept().await {
                let (system, guid) = (system.clone(), guid.clone());
                tokio::spawn(async move {
                    if let Err(error) = serve(&system, stream, guid).await {
                        tracing::warn!(%error, "a client of the simulated system bus was sent away");
                    }
                });
            }
        });
        Ok(Self {
            socket: socket.to_owned(),
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// What clients connect to.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }
}

async fn serve(system: &System, stream: tokio::net::UnixStream, guid: Guid<'static>) -> zbus::Result<()> {
    let stream = stream.into_std()?;
    let builder = Builder::unix_stream(stream).server(guid).p2p();
    let connection = services::serve(builder, system)
        .serve_at(BUS_PATH, Driver)
        .build()
        .await?;
    system.0.state.lock().listeners.push(connection);
    Ok(())
}

/// The bus itself, as far as a client needs it before it can call anybody.
struct Driver;

#[interface(name = "org.freedesktop.DBus")]
impl Driver {
    fn hello(&self) -> &'static str {
        THEIRS
    }

    /// Everything is sent to everybody, so there is nothing to remember.
    fn add_match(&self, rule: &str) {
        tracing::trace!(rule, "a client wants signals");
    }

    fn remove_match(&self, rule: &str) {
        tracing::trace!(rule, "a client wants signals no more");
    }

    /// Messages from peer to peer name no sender, so no name has an owner: a client that was told of one would wait for
    /// messages in its name.
    fn get_name_owner(&self, name: &str) -> fdo::Result<&'static str> {
        Err(fdo::Error::NameHasNoOwner(format!(
            "Could not get owner of name '{name}': no such name"
        )))
    }

    #[zbus(signal)]
    async fn name_owner_changed(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        name: &str,
        old: &str,
        new: &str,
    ) -> zbus::Result<()>;
}
