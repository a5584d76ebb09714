// SPDX-License-Identifier: Apache-2.0
//! The guests of a host, all of them, as libvirt lists them. Not numbered like events: a newer version replaces an
//! older one within the same agent id and start.

use std::fmt;

use cobaltcore_api::names::ServerId;
use serde::{Deserialize, Serialize};

/// Every guest of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Grows with each change; an older one than known is ignored.
    pub inventory_version: u64,
    /// The guests.
    pub domains: Vec<DomainEntry>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainEntry {
    /// Its UUID.
    pub uuid: ServerId,
    /// Its name in libvirt.
    pub name: String,
    /// Its state.
    pub state: DomainState,
    /// Why it is in that state.
    #[serde(default)]
    pub reason: String,
    /// Virtual CPUs.
    #[serde(default)]
    pub vcpus: u32,
    /// Memory.
    #[serde(default)]
    pub mem_kib: u64,
    /// Whether it is defined, not only running.
    #[serde(default)]
    pub persistent: bool,
    /// Whether libvirt starts it by itself.
    #[serde(default)]
    pub autostart: bool,
    /// What is being done to it.
    #[serde(default)]
    pub job: Job,
    /// Its disks, unless configured away.
    #[serde(default)]
    pub disks: Vec<Disk>,
}

/// A disk of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// How it is attached: `file`, `block`, `network`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Where its data is; empty for an empty drive.
    #[serde(default)]
    pub source: String,
}

impl Disk {
    /// What kind of storage it is on: its type and, for a network, the protocol. Disks of one class fail
    /// together. Nothing for an empty drive.
    pub fn class(&self) -> Option<String> {
        if self.source.is_empty() {
            return None;
        }
        let protocol = self.source.split_once(':').map(|(protocol, _)| protocol);
        Some(match protocol.filter(|_| self.kind == "network") {
            Some(protocol) => format!("network/{protocol}"),
            None => self.kind.clone(),
        })
    }
}

/// The states of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DomainState {
    Nostate,
    Running,
    Blocked,
    Paused,
    Shutdown,
    Shutoff,
    Crashed,
    Pmsuspended,
}

impl DomainState {
    /// All of them, in libvirt's order.
    pub const ALL: [Self; 8] = [
        Self::Nostate,
        Self::Running,
        Self::Blocked,
        Self::Paused,
        Self::Shutdown,
        Self::Shutoff,
        Self::Crashed,
        Self::Pmsuspended,
    ];

    /// The state with this number in libvirt; a number nobody knows yet tells nothing.
    pub fn from_libvirt(number: i32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|index| Self::ALL.get(index).copied())
            .unwrap_or(Self::Nostate)
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nostate => "nostate",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Shutdown => "shutdown",
            Self::Shutoff => "shutoff",
            Self::Crashed => "crashed",
            Self::Pmsuspended => "pmsuspended",
        }
    }

    /// Whether the guest occupies its disks: it executes or could go on at once. A state nobody can tell counts,
    /// because a missing answer is no negative answer.
    pub fn active(self) -> bool {
        !matches!(self, Self::Shutoff | Self::Crashed)
    }
}

impl fmt::Display for DomainState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is being done to a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Nothing.
    #[default]
    None,
    /// It arrives from another host, which still has it.
    MigrationIn,
    /// It leaves.
    MigrationOut,
    /// Something else: a save, a dump, a backup.
    Other,
}
