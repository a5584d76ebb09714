// SPDX-License-Identifier: Apache-2.0
//! What the engine wants done. Every action may be lost, doubled or half done; next to each stands
//! what the engine reads to find out, which is also what it does after a crash.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::ids::{ActionId, IncidentId, MigrationId, Mono};

/// One request to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Names it in its outcome.
    pub id: ActionId,
    /// The incident it belongs to, if any.
    pub incident: Option<IncidentId>,
    /// It must not be started after this moment.
    pub not_after: Mono,
    /// What.
    pub effect: Effect,
}

/// What is to be done.
///
/// Reads change nothing and may be repeated at will. For the others the comment says which read
/// settles an unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read. Probe the host from every replica and from these peers; answers come as observations.
    Investigate {
        /// The host.
        host: HostName,
        /// Hosts whose agents are to try as well.
        peers: Vec<HostName>,
    },
    /// Read. Have the agents of these hosts list their guests; the lists come as observations.
    ListGuests {
        /// The hosts.
        hosts: Vec<HostName>,
    },
    /// Read. The power state, from the device and not from a cache.
    ReadPower {
        /// The host.
        host: HostName,
        /// The level of fencing whose device is asked.
        level: usize,
    },
    /// Read. Whether a fence that is held still holds: the power, and whether whoever could switch the host on goes on
    /// standing down.
    ReadHold {
        /// The host.
        host: HostName,
        /// The level of fencing that holds it.
        level: usize,
    },
    /// Read. Whom the fencing device belongs to.
    Identify {
        /// The host.
        host: HostName,
        /// The level of fencing whose device is asked.
        level: usize,
    },
    /// Read. The maintenance of the host, from the API and not from a cache.
    ReadMaintenance {
        /// The host.
        host: HostName,
    },
    /// Read. The compute service.
    ReadService {
        /// The host.
        host: HostName,
    },
    /// Read. All servers of the host, and all migrations touching it.
    ListServers {
        /// The host.
        host: HostName,
    },
    /// Read. One server and its migrations.
    ReadServer {
        /// The server.
        server: ServerId,
    },
    /// Set maintenance to `ha`, if it still is what we saw. Settled by reading the maintenance.
    Claim {
        /// The host.
        host: HostName,
        /// What it was.
        expected: Maintenance,
    },
    /// Switch the host off by the devices of this level. Settled by reading the power twice.
    PowerOff {
        /// The host.
        host: HostName,
        /// The level.
        level: usize,
    },
    /// Mark and taint the node and let the device keep it off. Doing it twice is doing it once, so
    /// an unknown outcome is repeated.
    Hold {
        /// The host.
        host: HostName,
        /// The level of fencing that switched it off.
        level: usize,
    },
    /// Change the compute service in one call. Settled by reading the service.
    UpdateService {
        /// The host.
        host: HostName,
        /// How.
        change: ServiceChange,
    },
    /// Write the condition that the hypervisor is disabled, only while its maintenance is `ha`.
    /// Doing it twice is doing it once.
    SetDisabled {
        /// The host.
        host: HostName,
    },
    /// Stop a running eviction of the host. Doing it twice is doing it once.
    StopEviction {
        /// The host.
        host: HostName,
    },
    /// Ask Nova to rebuild the server elsewhere. Settled by its migrations: a record that is not
    /// among the `known` ones is the one this request made.
    Evacuate {
        /// The server.
        server: ServerId,
        /// Where Nova must still believe it to be.
        from: HostName,
        /// The records there were before.
        known: Vec<MigrationId>,
    },
    /// Set the server's state to `error`, so that Nova accepts an evacuation. Settled by reading it.
    ResetState {
        /// The server.
        server: ServerId,
    },
    /// Lock a server against its owner, with [`lock_reason`]. Settled by reading it.
    Lock {
        /// The server.
        server: ServerId,
    },
    /// Unlock a server that [`Effect::Lock`] locked. Settled by reading it.
    Unlock {
        /// The server.
        server: ServerId,
    },
    /// Start a server. Settled by reading it.
    Start {
        /// The server.
        server: ServerId,
    },
    /// Stop a server. Settled by reading it.
    Stop {
        /// The server.
        server: ServerId,
    },
    /// Reboot a server hard, in place. Settled by reading it; a second reboot is no second copy.
    RebootHard {
        /// The server.
        server: ServerId,
    },
    /// Let the agent pause a guest that runs elsewhere as well. Doing it twice is doing it once.
    PauseDomain {
        /// The host.
        host: HostName,
        /// The guest.
        server: ServerId,
    },
    /// Undo the fence: remove taint and mark, have every device let go of it, switch on. Done when nothing keeps the host off
    /// any more; whether it is on is settled by reading the power. Doing it twice is doing it once.
    ReleaseFence {
        /// The host.
        host: HostName,
        /// Every level that was tried: each may keep it off.
        levels: Vec<usize>,
    },
    /// Give maintenance back, if it still is `ha`. Settled by reading the maintenance.
    RestoreMaintenance {
        /// The host.
        host: HostName,
        /// What it was before.
        value: Maintenance,
    },
    /// Give up leadership; another replica is in a better place.
    Resign,
}

impl Effect {
    /// Whether it can change anything outside. Those that can are preceded by a durable record.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Investigate { .. }
                | Self::ListGuests { .. }
                | Self::ReadPower { .. }
                | Self::ReadHold { .. }
                | Self::Identify { .. }
                | Self::ReadMaintenance { .. }
                | Self::ReadService { .. }
                | Self::ListServers { .. }
                | Self::ReadServer { .. }
                | Self::Resign
        )
    }
}

/// How a compute service is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    /// Disabled only: the host is not fenced yet, Nova must not believe it is.
    Disable,
    /// Disabled and forced down in one call.
    ForceDown,
    /// Enabled and no longer forced down.
    Enable,
    /// Enabled, and whatever else was said about it stays: it was kept for a bad day.
    EnableSpare,
}

/// Why a server is locked while an incident moves it. Only a lock with this reason is ours to undo.
pub fn lock_reason(incident: &IncidentId) -> String {
    format!("{LOCK_PREFIX}{incident}")
}

/// How every such reason begins.
pub const LOCK_PREFIX: &str = "cobaltcore-ha ";
