// SPDX-License-Identifier: Apache-2.0
//! The sign of life of an agent. It is not stored on the way: only the newest matters, and it travels on its own
//! connection so that no backlog delays it.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{self as engine, BootId};
use serde::{Deserialize, Serialize};

use crate::batch::Envelope;
use crate::command::{CommandResult, ProbeReport};
use crate::event::Kind;
use crate::inventory::DomainState;

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Seconds since the host booted.
    pub uptime_s: u64,
    /// The kernel's id of this boot.
    pub boot_id: BootId,
    /// The agent's version.
    pub agent_version: String,
    /// Which configuration is in force.
    pub config_hash: String,
    /// What is known of libvirt.
    pub libvirt: Libvirt,
    /// Guests per state; states without guests are left out.
    #[serde(default)]
    pub domains: BTreeMap<DomainState, u32>,
    /// What waits to be sent.
    pub spool: SpoolState,
    /// Which machine this is.
    #[serde(default)]
    pub machine: Machine,
    /// Whether the host resets itself when it loses the service.
    #[serde(default)]
    pub self_fence: SelfFence,
    /// Whether a shutdown or reboot was announced.
    #[serde(default)]
    pub planned_shutdown: bool,
    /// Pressure, if the kernel measures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// What probes found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeReport>,
    /// What became of commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<CommandResult>,
}

/// What is known of libvirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Libvirt {
    /// Whether there is a connection.
    pub connected: bool,
    /// The daemon's version, empty before the first connection.
    #[serde(default)]
    pub version: String,
    /// Milliseconds since it last answered; nothing if it never did.
    #[serde(default)]
    pub last_ok_ms: Option<u64>,
    /// Kinds of events its driver does not have.
    #[serde(default)]
    pub unsupported: Vec<Kind>,
}

/// What waits to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpoolState {
    /// Records not yet acknowledged by this endpoint.
    pub depth: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Age of the oldest record that waits.
    pub oldest_s: u64,
    /// Records dropped since the spool was made.
    pub dropped_total: u64,
}

/// Which machine this is; what cannot be read is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The DMI system UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// The DMI serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// Whether the host resets itself when it loses the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfFence {
    /// Whether the watchdog runs.
    pub armed: bool,
    /// After how many seconds without being fed it resets the host.
    pub timeout_s: u32,
    /// For how many seconds a contact with the service allows feeding.
    #[serde(default)]
    pub lease_ttl_s: u32,
}

impl SelfFence {
    /// Between the lease and the watchdog, and for clocks that do not agree.
    const MARGIN: Duration = Duration::from_secs(15);

    /// How long after its last contact the host has reset itself for certain: the lease, the
    /// watchdog and a margin. An agent that does not say how long its lease is proves nothing.
    pub fn resets_after(&self) -> Option<Duration> {
        let told = self.armed && self.timeout_s > 0 && self.lease_ttl_s > 0;
        let seconds = u64::from(self.timeout_s) + u64::from(self.lease_ttl_s);
        told.then(|| Duration::from_secs(seconds) + Self::MARGIN)
    }
}

/// Pressure stall information: the share of the last ten seconds, in percent, in which work waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Waiting for a processor.
    pub cpu: PressureLine,
    /// Waiting for disks.
    pub io: PressureLine,
    /// Waiting for memory.
    pub memory: PressureLine,
}

/// One resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PressureLine {
    /// Some tasks waited.
    pub some: f64,
    /// All tasks waited.
    pub full: f64,
}

impl Heartbeat {
    /// The sign of life as the engine takes it.
    pub fn observed(&self, host: HostName, envelope: &Envelope) -> engine::Heartbeat {
        engine::Heartbeat {
            host,
            agent: envelope.agent_id.clone(),
            starts: envelope.epoch,
            boot: self.boot_id.clone(),
            mono_ns: envelope.mono_ns,
            up_for: Duration::from_secs(self.uptime_s),
            sent_at_ms: envelope.sent_at.as_millisecond(),
            libvirt: self.libvirt.connected,
            machine: engine::Identity {
                system_uuid: self.machine.system_uuid.clone(),
                serial: self.machine.serial.clone(),
            },
            resets_after: self.self_fence.resets_after(),
            planned_shutdown: self.planned_shutdown,
        }
    }
}
