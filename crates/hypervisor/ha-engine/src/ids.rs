// SPDX-License-Identifier: Apache-2.0
//! Identifiers, numbers and times as types. Host names and server ids come from the vocabulary of
//! the platform; what only high availability knows is here.

use std::fmt;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use serde::{Deserialize, Serialize};

/// A moment on the monotonic clock of one process, in milliseconds. It means nothing to another
/// process and is never written to the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mono(pub u64);

impl Mono {
    /// How long ago `earlier` was; nothing if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` later.
    pub fn after(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// The moment `span` earlier, not before the beginning.
    pub fn before(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

/// The time of a step: one clock for decisions, one for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Decides. Never goes back, whatever happens to the wall clock.
    pub mono: Mono,
    /// Is written into records, and decides nothing.
    pub wall: jiff::Timestamp,
}

/// The number of a leadership term: grows with every change of the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// One replica of the HA service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u8);

/// The number of a migration record in Nova.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MigrationId(pub u64);

/// An action of one term. A new term never reuses the id of an old one, so a late answer to a
/// predecessor cannot be taken for an answer to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActionId {
    /// The term that asked.
    pub epoch: Epoch,
    /// Counts within the term.
    pub n: u64,
}

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_id! {
    /// The kernel's id of one boot of a host.
    BootId
}
text_id! {
    /// The id an agent made with its spool.
    AgentId
}
text_id! {
    /// What kind of storage a disk is on, such as `network/rbd` or `file`: what fails together.
    DeviceClass
}
text_id! {
    /// A failure domain: `label=value`, for instance a building block.
    Domain
}

/// An incident: the host, the term that opened it and a number within the term. Unique without a
/// clock or chance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncidentId {
    /// The term that opened it.
    pub epoch: Epoch,
    /// Counts within the term.
    pub n: u32,
    /// The host it is about.
    pub host: HostName,
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.host, self.epoch.0, self.n)
    }
}

/// How certain it is that a host cannot run its guests any more. Ordered by strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Nothing is certain; somebody accepted that guests may run twice.
    None,
    /// It cannot write its disks.
    Storage,
    /// Its watchdog has reset it by now.
    SelfFence,
    /// It was read to be off, twice, and is kept off.
    Power,
    /// A person says so and signs for it; satisfies any requirement.
    Asserted,
}
