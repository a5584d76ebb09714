// SPDX-License-Identifier: Apache-2.0
//! A record before it has a number. Only the spool gives numbers, in the order in which it makes records durable.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_ha_wire::{DomainRef, Event, Kind, Scalar, ServerId, bounds};
use jiff::Timestamp;
use uuid::Uuid;

use crate::clock;

/// The guest a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its number, -1 if it does not run.
    pub id: i32,
}

/// A record without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The wall clock.
    pub ts: Timestamp,
    /// The boot-time clock.
    pub mono_ns: u64,
    /// What it is about.
    pub kind: Kind,
    /// What happened.
    pub event: String,
    /// More precisely.
    pub detail: String,
    /// The guest.
    pub domain: Option<Guest>,
    /// What else is known.
    pub attrs: BTreeMap<String, Scalar>,
    /// How many occurrences it stands for.
    pub count: u32,
    /// Derived, not received.
    pub synthetic: bool,
}

impl Draft {
    /// A record of this moment.
    pub fn now(kind: Kind, event: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            ts: Timestamp::now(),
            mono_ns: clock::boot_ns(),
            kind,
            event: event.into(),
            detail: detail.into(),
            domain: None,
            attrs: BTreeMap::new(),
            count: 1,
            synthetic: false,
        }
    }

    /// Something the agent says of itself.
    pub fn agent(event: &str) -> Self {
        Self {
            synthetic: true,
            ..Self::now(Kind::Agent, event, "")
        }
    }

    /// It happened at this moment of the boot-time clock; the record is made only now.
    pub fn at(mut self, mono_ns: u64) -> Self {
        let late = Duration::from_nanos(self.mono_ns.saturating_sub(mono_ns));
        self.ts = self.ts.checked_sub(late).unwrap_or(self.ts);
        self.mono_ns = mono_ns;
        self
    }

    /// About this guest.
    pub fn about(mut self, guest: Guest) -> Self {
        self.domain = Some(guest);
        self
    }

    /// With an attribute; texts are cut to what the wire takes.
    pub fn with(mut self, key: &str, value: impl Into<Scalar>) -> Self {
        let value = match value.into() {
            Scalar::Text(text) => Scalar::Text(bounds::clip(&text, bounds::TEXT).to_owned()),
            other => other,
        };
        if self.attrs.len() < bounds::ATTRS {
            self.attrs.insert(key.to_owned(), value);
        }
        self
    }

    /// The record, cut to what the wire takes.
    pub fn numbered(self, seq: u64) -> Event {
        let domain = self.domain.and_then(|guest| {
            Some(DomainRef {
                uuid: ServerId::new(guest.uuid.hyphenated().to_string()).ok()?,
                name: bounds::clip(&guest.name, bounds::NAME).to_owned(),
                id: guest.id,
            })
        });
        Event {
            seq,
            ts: self.ts,
            mono_ns: self.mono_ns,
            kind: self.kind,
            event: bounds::clip(&self.event, bounds::NAME).to_owned(),
            detail: bounds::clip(&self.detail, bounds::NAME).to_owned(),
            domain,
            attrs: self.attrs,
            count: self.count.max(1),
            synthetic: self.synthetic,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn draft(kind: Kind, event: &str) -> Draft {
        Draft {
            ts: Timestamp::UNIX_EPOCH,
            mono_ns: 0,
            ..Draft::now(kind, event, "")
        }
    }

    #[test]
    fn whatever_libvirt_sends_fits_the_wire() {
        let long = "ä".repeat(100_000);
        let mut wild = Draft::now(Kind::IoError, long.clone(), long.clone()).about(Guest {
            uuid: Uuid::from_u128(1),
            name: long.clone(),
            id: 1,
        });
        for key in 0..100 {
            wild = wild.with(&key.to_string(), long.as_str());
        }
        let envelope = cobaltcore_ha_wire::Envelope {
            schema: cobaltcore_ha_wire::SCHEMA,
            host: cobaltcore_ha_wire::HostName::new("n").unwrap(),
            agent_id: cobaltcore_ha_wire::AgentId("a".into()),
            boot_id: cobaltcore_ha_wire::BootId("b".into()),
            epoch: 1,
            sent_at: Timestamp::UNIX_EPOCH,
            mono_ns: 0,
        };
        let batch = cobaltcore_ha_wire::Batch {
            events: vec![wild.numbered(1)],
            ..cobaltcore_ha_wire::Batch::empty(envelope)
        };
        assert!(cobaltcore_ha_wire::Batch::decode(&batch.encode().unwrap()).is_ok());
    }
}
