// SPDX-License-Identifier: Apache-2.0
//! Nova: services, hypervisors, aggregates, servers and what is done with them. Every call names
//! the oldest microversion at which it means what its documentation here says.

mod actions;
mod aggregates;
mod flavors;
mod groups;
mod hypervisors;
mod instance_actions;
mod migrations;
mod servers;
mod services;

use std::time::Duration;

use crate::session::Session;

pub use actions::{BlockMigration, Evacuation};
pub use aggregates::Aggregate;
pub use flavors::{Flavor, NewFlavor};
pub use groups::{GroupFilter, NewServerGroup, ServerGroup};
pub use hypervisors::{Hypervisor, HypervisorServer, HypervisorService, HypervisorUsage};
pub use instance_actions::{ActionEvent, History, InstanceAction};
pub use migrations::{Migration, MigrationFilter, MigrationStatus, MigrationType, ServerMigration};
pub use servers::{
    AttachedVolume, BootDisk, Fault, NewServer, NewServerNetworks, PowerState, Server, ServerFilter,
    ServerFlavor, ServerRef, ServerStatus, VmState,
};
pub use services::{ComputeService, ServiceState, ServiceStatus, ServiceUpdate};

/// Nova as one session sees it.
#[derive(Debug, Clone)]
pub struct Nova {
    session: Session,
}

impl Session {
    /// Nova.
    pub fn nova(&self) -> Nova {
        Nova {
            session: self.clone(),
        }
    }
}

impl Nova {
    /// The same with another time limit for every call.
    pub fn within(&self, deadline: Duration) -> Self {
        self.session.within(deadline).nova()
    }
}
