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
/// clock or chance; when it was opened is in its name, so that names sort as incidents came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncidentId {
    /// The term that opened it.
    pub epoch: Epoch,
    /// Counts within the term.
    pub n: u32,
    /// The host it is about.
    pub host: HostName,
    /// When it was opened, in milliseconds since 1970 by the clock of whoever opened it. Nothing in the ids of those that
    /// were opened before names had it; they keep their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_ms: Option<u64>,
}

/// The letters of a ULID, in lower case.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl IncidentId {
    /// The ULID of its name: when it was opened, and instead of chance the term and the number within it.
    fn ulid(&self, opened_ms: u64) -> u128 {
        let time = u128::from(opened_ms & 0xffff_ffff_ffff);
        let term = u128::from(self.epoch.0 & 0xffff_ffff_ffff);
        time << 80 | term << 32 | u128::from(self.n)
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(opened_ms) = self.opened_ms else {
            return write!(f, "{}-{}-{}", self.host, self.epoch.0, self.n);
        };
        write!(f, "{}-", self.host)?;
        let ulid = self.ulid(opened_ms);
        for place in (0..26).rev() {
            let letter = LETTERS.get((ulid >> (place * 5) & 31) as usize);
            write!(f, "{}", char::from(letter.copied().unwrap_or(b'0')))?;
        }
        Ok(())
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

impl Grade {
    /// Its word in records and figures.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Storage => "storage",
            Self::SelfFence => "self-fence",
            Self::Power => "power",
            Self::Asserted => "asserted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_is_named_by_its_host_and_a_ulid_in_lower_case() {
        let id = |epoch, n, opened_ms| IncidentId {
            epoch: Epoch(epoch),
            n,
            host: "node001-bb1".parse().unwrap(),
            opened_ms,
        };
        // 01arz3ndek is the time of the well-known example of a ULID.
        let named = id(7, 1, Some(1_469_922_850_259)).to_string();
        assert_eq!(named, "node001-bb1-01arz3ndek000000000w000001");
        let names = [
            id(7, 2, Some(1_469_922_850_259)),
            id(8, 1, Some(1_469_922_850_259)),
            id(1, 1, Some(1_469_922_850_260)),
        ];
        let mut before = named;
        for name in names.map(|id| id.to_string()) {
            assert!(before < name, "{before} {name}");
            before = name;
        }
        assert_eq!(id(7, 1, None).to_string(), "node001-bb1-7-1");
        let text = serde_json::to_string(&id(7, 1, None)).unwrap();
        assert!(!text.contains("opened"), "{text}");
    }
}
