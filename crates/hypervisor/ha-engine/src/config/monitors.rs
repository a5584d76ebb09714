// SPDX-License-Identifier: Apache-2.0
//! What is watched, and from which point on it matters. What keeps a recovery safe, a fence that is lost or
//! a guest that runs twice, is not among it: it is always watched.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::s;

/// Hosts that boot by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRebooted {
    /// Whether they are watched.
    pub enabled: bool,
    /// How long a compute service that is up again has to resume its guests.
    pub resume_after: Duration,
    /// A host whose compute service is not up for this long, and whose guests are missing, is as good as down.
    pub compute_after: Duration,
}

/// Agents that fall silent while their hosts live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSilent {
    /// Whether people are told.
    pub enabled: bool,
    /// For how long others must see the host alive.
    pub after: Duration,
}

/// Guests that crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceCrashed {
    /// Whether they are restarted.
    pub enabled: bool,
    /// More crashes than this within a minute over the fleet are no matter of single guests.
    pub storm_per_minute: usize,
}

/// Watchdogs that fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchdogStorm {
    /// Whether they are watched.
    pub enabled: bool,
    /// So many of one guest within `guest_window` are no accident.
    pub guest_events: usize,
    /// The window of one guest.
    pub guest_window: Duration,
    /// Share of the guests of a host that makes them the host's trouble.
    pub percent: u32,
    /// The least number of guests for that.
    pub min_guests: usize,
    /// The window of a host.
    pub window: Duration,
    /// When more other hosts than this suffer as well, it is what they share, and no host is to blame.
    pub shared_hosts: usize,
}

/// Disk errors of many guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoErrorStorm {
    /// Whether they are watched.
    pub enabled: bool,
    /// Share of the guests of a host that makes them the host's trouble.
    pub percent: u32,
    /// The least number of guests for that.
    pub min_guests: usize,
    /// Within how long.
    pub window: Duration,
    /// Share of the other hosts with this class of device that must be well for one host to be blamed.
    pub healthy_percent: u32,
    /// With a greater share of the hosts with this class of device it is the storage.
    pub outage_percent: u32,
}

/// Memory that fails beyond repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFailure {
    /// Whether it is watched.
    pub enabled: bool,
    /// So many events of agents need no other witness.
    pub events: usize,
    /// How long what was seen of it belongs together.
    pub window: Duration,
}

/// A service of a living host that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceGone {
    /// Whether it is watched.
    pub enabled: bool,
    /// After how long people are told.
    pub after: Duration,
    /// After how long it is a lasting trouble.
    pub degraded_after: Duration,
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitors {
    /// Hosts that die: whether anything is done about it.
    pub host_down: bool,
    /// Hosts that boot by themselves.
    pub host_rebooted: HostRebooted,
    /// Agents that fall silent while their hosts live.
    pub agent_silent: AgentSilent,
    /// Guests that crash.
    pub instance_crashed: InstanceCrashed,
    /// Watchdogs that fire.
    pub watchdog_storm: WatchdogStorm,
    /// Disk errors of many guests.
    pub io_error_storm: IoErrorStorm,
    /// Memory that fails.
    pub memory_failure: MemoryFailure,
    /// A libvirt that does not answer.
    pub libvirt_unreachable: ServiceGone,
    /// A compute service that is gone.
    pub nova_service_down: ServiceGone,
}

impl Default for Monitors {
    fn default() -> Self {
        Self {
            host_down: true,
            host_rebooted: HostRebooted {
                enabled: true,
                resume_after: s(60),
                compute_after: s(600),
            },
            agent_silent: AgentSilent {
                enabled: true,
                after: s(60),
            },
            instance_crashed: InstanceCrashed {
                enabled: true,
                storm_per_minute: 20,
            },
            watchdog_storm: WatchdogStorm {
                enabled: true,
                guest_events: 5,
                guest_window: s(600),
                percent: 30,
                min_guests: 3,
                window: s(300),
                shared_hosts: 3,
            },
            io_error_storm: IoErrorStorm {
                enabled: true,
                percent: 30,
                min_guests: 3,
                window: s(120),
                healthy_percent: 80,
                outage_percent: 10,
            },
            memory_failure: MemoryFailure {
                enabled: true,
                events: 2,
                window: s(86_400),
            },
            libvirt_unreachable: ServiceGone {
                enabled: true,
                after: s(60),
                degraded_after: s(300),
            },
            nova_service_down: ServiceGone {
                enabled: true,
                after: s(60),
                degraded_after: s(900),
            },
        }
    }
}
