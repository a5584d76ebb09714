// SPDX-License-Identifier: Apache-2.0
//! Follows migrations from both sides.

use cobaltcore_kit::BoxError;
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::event::Event;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::context::Context;

/// Something that may belong to a migration.
#[derive(Debug)]
pub enum Sign {
    /// libvirt is connected (again), and these guests run here.
    Connected {
        /// The connection.
        connection: Connection,
        /// Its driver.
        driver: String,
        /// Guests that run here.
        active: Vec<Uuid>,
    },
    /// The connection is lost.
    Lost,
    /// An event of a guest.
    Event(Event),
}

/// Follows migrations until the signs end.
pub(crate) async fn follow(_context: Context, mut signs: mpsc::Receiver<Sign>) -> Result<(), BoxError> {
    while signs.recv().await.is_some() {}
    Ok(())
}
