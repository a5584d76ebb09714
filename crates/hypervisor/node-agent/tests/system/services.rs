// SPDX-License-Identifier: Apache-2.0
//! systemd, logind and hostnamed of the simulation on the real bus of the test.

use std::time::Duration;

use cobaltcore_sim::System;
use cobaltcore_sim::system::Lock;
pub(crate) use cobaltcore_sim::system::{OnStart, Unit};
use tokio::sync::watch;
use zbus::Connection;

/// The far side of the bus.
pub(crate) struct Far {
    system: System,
    connection: Connection,
}

impl Far {
    pub(crate) async fn start(address: &str) -> Self {
        let system = System::default();
        let connection = system.join(address).await.unwrap();
        Self { system, connection }
    }

    /// Comes back on a bus that was restarted, or as services that were.
    pub(crate) async fn again(&mut self, address: &str) {
        let _ = self.connection.clone().close().await;
        self.connection = self.system.join(address).await.unwrap();
    }

    pub(crate) async fn set(&self, name: &str, unit: Unit) {
        self.system.set(name, unit).await.unwrap();
    }

    pub(crate) fn on_start(&self, unit: &str, behaviour: OnStart) {
        self.system.on_start(unit, behaviour);
    }

    pub(crate) async fn finish(&self, name: &str, result: &str) {
        self.system.finish(name, result).await.unwrap();
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.system.started()
    }

    pub(crate) fn restarted(&self) -> Vec<String> {
        self.system.restarted()
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.system.set_delay(delay);
    }

    pub(crate) async fn prepare_for_shutdown(&self, start: bool) {
        self.system.prepare_for_shutdown(start).await.unwrap();
    }

    pub(crate) fn locks(&self) -> Vec<Lock> {
        self.system.locks()
    }

    pub(crate) fn held(&self) -> watch::Receiver<u32> {
        self.system.held()
    }
}
