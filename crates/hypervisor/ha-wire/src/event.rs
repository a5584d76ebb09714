// SPDX-License-Identifier: Apache-2.0
//! One record of an agent's stream: what libvirt announced, or what the agent noticed itself.

use std::collections::BTreeMap;
use std::fmt;

use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::GuestEventKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The life of a guest changed.
    Lifecycle,
    /// A guest rebooted.
    Reboot,
    /// A virtual watchdog fired.
    Watchdog,
    /// A disk failed.
    IoError,
    /// The monitor of a guest is broken.
    ControlError,
    /// The guest agent came or went.
    AgentLifecycle,
    /// Memory failed.
    MemoryFailure,
    /// Something the agent noticed about itself or the host; see [`agent`].
    Agent,
}

impl Kind {
    /// The kinds libvirt announces.
    pub const LIBVIRT: [Self; 7] = [
        Self::Lifecycle,
        Self::Reboot,
        Self::Watchdog,
        Self::IoError,
        Self::ControlError,
        Self::AgentLifecycle,
        Self::MemoryFailure,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Reboot => "reboot",
            Self::Watchdog => "watchdog",
            Self::IoError => "io_error",
            Self::ControlError => "control_error",
            Self::AgentLifecycle => "agent_lifecycle",
            Self::MemoryFailure => "memory_failure",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The events of [`Kind::Agent`].
pub mod agent {
    /// The agent began to run.
    pub const STARTED: &str = "agent_started";
    /// The agent was asked to end.
    pub const STOPPING: &str = "agent_stopping";
    /// Libvirt is not reachable.
    pub const STREAM_LOST: &str = "stream_lost";
    /// Libvirt is reachable again and every difference has been reported.
    pub const STREAM_RESUMED: &str = "stream_resumed";
    /// The host is about to shut down or reboot.
    pub const HOST_SHUTDOWN: &str = "host_shutdown";
    /// The boot before this one ended in a crash.
    pub const PREVIOUS_BOOT_CRASH: &str = "previous_boot_crash";
    /// Records were dropped for want of room.
    pub const SPOOL_OVERFLOW: &str = "spool_overflow";
    /// Records were lost on disk.
    pub const SPOOL_CORRUPT: &str = "spool_corrupt";
    /// A configuration took effect.
    pub const CONFIG_APPLIED: &str = "config_applied";
    /// A configuration was refused; the old one stays.
    pub const CONFIG_REJECTED: &str = "config_rejected";
    /// A local repair was carried out, or tried.
    pub const REACTION_TAKEN: &str = "reaction_taken";
    /// A local repair was not carried out, with the guard that forbade it.
    pub const REACTION_SUPPRESSED: &str = "reaction_suppressed";
}

/// The attribute of a disk error that names the class of the disk.
pub const DEVICE_CLASS: &str = "device_class";

/// The guest a record is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainRef {
    /// Its UUID, which is also the server's in Nova.
    pub uuid: ServerId,
    /// Its name in libvirt.
    pub name: String,
    /// Its number while it runs, -1 otherwise.
    pub id: i32,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Yes or no.
    Bool(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Scalar {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Scalar {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.pad(text),
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its number: one more than the record before, per agent id; never used twice.
    pub seq: u64,
    /// The wall clock, for people.
    pub ts: Timestamp,
    /// The boot-time clock; order and durations come from this.
    pub mono_ns: u64,
    /// What it is about.
    pub kind: Kind,
    /// What happened; empty if the kind says it all.
    #[serde(default)]
    pub event: String,
    /// More precisely; may be empty.
    #[serde(default)]
    pub detail: String,
    /// The guest, if it is about one.
    #[serde(default)]
    pub domain: Option<DomainRef>,
    /// What else is known.
    #[serde(default)]
    pub attrs: BTreeMap<String, Scalar>,
    /// How many occurrences this record stands for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Derived by comparing states, not received.
    #[serde(default)]
    pub synthetic: bool,
}

impl Event {
    /// Whether the service should learn of it at once.
    pub fn urgent(&self) -> bool {
        match self.kind {
            Kind::Watchdog | Kind::MemoryFailure => true,
            Kind::Lifecycle => matches!(self.event.as_str(), "stopped" | "crashed"),
            Kind::Agent => self.event == agent::HOST_SHUTDOWN,
            _ => false,
        }
    }

    /// What it means to the engine.
    pub fn meaning(&self) -> GuestEventKind {
        let required = self.attrs.get("action_required") == Some(&Scalar::Bool(true));
        match (self.kind, self.event.as_str(), self.detail.as_str()) {
            (Kind::Lifecycle, "stopped", "failed" | "crashed") => GuestEventKind::Crashed,
            (Kind::Lifecycle, "crashed", _) => GuestEventKind::Crashed,
            (Kind::Lifecycle, "suspended", "ioerror") => GuestEventKind::IoError,
            (Kind::Watchdog, ..) => GuestEventKind::Watchdog,
            (Kind::IoError, ..) => GuestEventKind::IoError,
            (Kind::MemoryFailure, action, _) if action == "fatal" || required => {
                GuestEventKind::MemoryFailure
            }
            _ => GuestEventKind::Other,
        }
    }
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_troubles_reach_the_engine() {
        let event = |kind, event: &str, detail: &str| Event {
            seq: 1,
            ts: jiff::Timestamp::UNIX_EPOCH,
            mono_ns: 0,
            kind,
            event: event.into(),
            detail: detail.into(),
            domain: None,
            attrs: std::collections::BTreeMap::new(),
            count: 1,
            synthetic: false,
        };
        for (kind, what, detail, wanted) in [
            (Kind::Lifecycle, "stopped", "failed", GuestEventKind::Crashed),
            (Kind::Lifecycle, "stopped", "crashed", GuestEventKind::Crashed),
            (Kind::Lifecycle, "crashed", "panicked", GuestEventKind::Crashed),
            (Kind::Lifecycle, "stopped", "shutdown", GuestEventKind::Other),
            (Kind::Lifecycle, "stopped", "destroyed", GuestEventKind::Other),
            (Kind::Lifecycle, "stopped", "migrated", GuestEventKind::Other),
            (Kind::Lifecycle, "stopped", "saved", GuestEventKind::Other),
            (Kind::Lifecycle, "shutdown", "guest", GuestEventKind::Other),
            (Kind::Lifecycle, "suspended", "ioerror", GuestEventKind::IoError),
            (Kind::Lifecycle, "started", "booted", GuestEventKind::Other),
            (Kind::Watchdog, "reset", "", GuestEventKind::Watchdog),
            (Kind::IoError, "pause", "", GuestEventKind::IoError),
            (Kind::MemoryFailure, "fatal", "", GuestEventKind::MemoryFailure),
            (Kind::MemoryFailure, "ignore", "", GuestEventKind::Other),
            (Kind::Reboot, "", "", GuestEventKind::Other),
        ] {
            assert_eq!(
                event(kind, what, detail).meaning(),
                wanted,
                "{kind} {what}/{detail}"
            );
        }
        // As the agent writes it.
        for (required, wanted) in [
            (true, GuestEventKind::MemoryFailure),
            (false, GuestEventKind::Other),
        ] {
            let mut told = event(Kind::MemoryFailure, "inject", "");
            told.attrs.insert("action_required".into(), required.into());
            told.attrs.insert("flags".into(), i64::from(required).into());
            assert_eq!(told.meaning(), wanted);
        }
    }
}
