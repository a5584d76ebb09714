// SPDX-License-Identifier: Apache-2.0
//! The envelope every report travels in, its strict decoding, and the rule of numbering: which records of a batch are
//! new to a service that has stored everything up to some number.
//!
//! A batch covers numbers: those of its records, and those it says were dropped. What it covers is one unbroken range
//! as far as it reaches beyond what was announced before. A service that has stored up to `n` takes a batch that
//! covers `n + 1`, or that covers nothing new; anything else leaves records out and is answered with 409.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{AgentId, BootId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::event::{Event, Scalar};
use crate::heartbeat::Heartbeat;
use crate::inventory::Inventory;

/// The version of the records.
pub const SCHEMA: u32 = 1;

/// Why a report is refused.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Too much of it.
    #[error("the report has {found} bytes, at most {} are taken", bounds::BODY)]
    TooLarge {
        /// How many.
        found: usize,
    },
    /// Not what it should be.
    #[error("the report is not readable: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another version.
    #[error("the report has schema {found}, this service reads {SCHEMA}")]
    Schema {
        /// Which.
        found: u32,
    },
    /// A part exceeds its bound or contradicts another.
    #[error("the report is not valid: {field}: {why}")]
    Invalid {
        /// Where.
        field: &'static str,
        /// Why.
        why: String,
    },
}

fn invalid(field: &'static str, why: impl Into<String>) -> WireError {
    WireError::Invalid {
        field,
        why: why.into(),
    }
}

/// Who reports, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The host.
    pub host: HostName,
    /// The id made with the spool; a lost spool means a new id and numbers from 1.
    pub agent_id: AgentId,
    /// The kernel's id of this boot.
    pub boot_id: BootId,
    /// How often the agent was started.
    pub epoch: u64,
    /// The agent's wall clock, for people.
    pub sent_at: Timestamp,
    /// The host's boot-time clock.
    pub mono_ns: u64,
}

/// A report: records, a sign of life, an inventory; any of them may be missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Flat", into = "Flat")]
pub struct Batch {
    /// Who reports, and when.
    pub envelope: Envelope,
    /// Ranges of numbers that will never come, both ends included, in order.
    pub dropped: Vec<RangeInclusive<u64>>,
    /// The records, in order.
    pub events: Vec<Event>,
    /// A sign of life.
    pub heartbeat: Option<Heartbeat>,
    /// The guests.
    pub inventory: Option<Inventory>,
}

/// The form on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flat {
    schema: u32,
    host: HostName,
    agent_id: AgentId,
    boot_id: BootId,
    epoch: u64,
    sent_at: Timestamp,
    mono_ns: u64,
    /// Number of the first record, 0 without records.
    #[serde(default)]
    first_seq: u64,
    /// Number of the last record, 0 without records.
    #[serde(default)]
    last_seq: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<[u64; 2]>,
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heartbeat: Option<Heartbeat>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inventory: Option<Inventory>,
}

impl From<Batch> for Flat {
    fn from(batch: Batch) -> Self {
        let Batch {
            envelope,
            dropped,
            events,
            heartbeat,
            inventory,
        } = batch;
        let Envelope {
            schema,
            host,
            agent_id,
            boot_id,
            epoch,
            sent_at,
            mono_ns,
        } = envelope;
        Self {
            schema,
            host,
            agent_id,
            boot_id,
            epoch,
            sent_at,
            mono_ns,
            first_seq: events.first().map_or(0, |event| event.seq),
            last_seq: events.last().map_or(0, |event| event.seq),
            dropped: dropped
                .iter()
                .map(|range| [*range.start(), *range.end()])
                .collect(),
            events,
            heartbeat,
            inventory,
        }
    }
}

impl TryFrom<Flat> for Batch {
    type Error = WireError;

    fn try_from(flat: Flat) -> Result<Self, WireError> {
        if flat.schema != SCHEMA {
            return Err(WireError::Schema { found: flat.schema });
        }
        let ends = |events: &[Event]| {
            (
                events.first().map_or(0, |event| event.seq),
                events.last().map_or(0, |event| event.seq),
            )
        };
        if (flat.first_seq, flat.last_seq) != ends(&flat.events) {
            return Err(invalid("first_seq, last_seq", "not the numbers of the records"));
        }
        let batch = Self {
            envelope: Envelope {
                schema: flat.schema,
                host: flat.host,
                agent_id: flat.agent_id,
                boot_id: flat.boot_id,
                epoch: flat.epoch,
                sent_at: flat.sent_at,
                mono_ns: flat.mono_ns,
            },
            dropped: flat.dropped.iter().map(|[first, last]| *first..=*last).collect(),
            events: flat.events,
            heartbeat: flat.heartbeat,
            inventory: flat.inventory,
        };
        batch.check()?;
        Ok(batch)
    }
}

/// What a service does with the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Store the records from this index on, then acknowledge this number.
    Take {
        /// How many records at the beginning are known already.
        skip: usize,
        /// Everything up to this number is then stored or known to be lost.
        last: u64,
    },
    /// Records are missing: answer 409 with this number.
    Expected(u64),
}

impl Batch {
    /// A batch without content.
    pub fn empty(envelope: Envelope) -> Self {
        Self {
            envelope,
            dropped: Vec::new(),
            events: Vec::new(),
            heartbeat: None,
            inventory: None,
        }
    }

    /// Reads and checks a report that has been decompressed.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        if body.len() > bounds::BODY {
            return Err(WireError::TooLarge { found: body.len() });
        }
        // Not as a batch at once: what contradicts itself is told as such, and not as what cannot be read.
        Self::try_from(serde_json::from_slice::<Flat>(body)?)
    }

    /// The body to send.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// What a service that has stored everything up to `last` does with this batch.
    pub fn admit(&self, last: u64) -> Admission {
        let mut next = last.saturating_add(1);
        let mut dropped = self.dropped.iter().peekable();
        let mut skip = 0;
        for event in &self.events {
            while let Some(range) = dropped.next_if(|range| *range.start() <= event.seq) {
                if *range.start() > next {
                    return Admission::Expected(next);
                }
                next = next.max(range.end().saturating_add(1));
            }
            match event.seq.cmp(&next) {
                Ordering::Less => skip += 1,
                Ordering::Equal => next = next.saturating_add(1),
                Ordering::Greater => return Admission::Expected(next),
            }
        }
        for range in dropped {
            if *range.start() > next {
                return Admission::Expected(next);
            }
            next = next.max(range.end().saturating_add(1));
        }
        Admission::Take { skip, last: next - 1 }
    }

    /// Everything that decoding cannot see by itself.
    fn check(&self) -> Result<(), WireError> {
        id("agent_id", &self.envelope.agent_id.0)?;
        id("boot_id", &self.envelope.boot_id.0)?;
        self.check_numbers()?;
        self.events.iter().try_for_each(check_event)?;
        self.heartbeat.as_ref().map_or(Ok(()), check_heartbeat)?;
        self.inventory.as_ref().map_or(Ok(()), check_inventory)
    }

    fn check_numbers(&self) -> Result<(), WireError> {
        at_most("events", self.events.len(), bounds::EVENTS)?;
        at_most("dropped", self.dropped.len(), bounds::DROPPED)?;
        let mut before = 0;
        for range in &self.dropped {
            if *range.start() <= before || range.end() < range.start() {
                return Err(invalid("dropped", "ranges are not in order"));
            }
            before = *range.end();
        }
        let mut before = 0;
        for event in &self.events {
            if event.seq <= before {
                return Err(invalid("events", format!("record {} is not in order", event.seq)));
            }
            before = event.seq;
        }
        // Records and dropped ranges together leave nothing out between the first record and the last.
        if let Some(first) = self.events.first()
            && !matches!(self.admit(first.seq - 1), Admission::Take { skip: 0, .. })
        {
            return Err(invalid(
                "events",
                "numbers are left out without being dropped, or dropped and sent",
            ));
        }
        Ok(())
    }
}

fn at_most(field: &'static str, found: usize, bound: usize) -> Result<(), WireError> {
    if found > bound {
        return Err(invalid(field, format!("{found} are more than {bound}")));
    }
    Ok(())
}

fn text(field: &'static str, text: &str, bound: usize) -> Result<(), WireError> {
    if text.len() > bound {
        return Err(invalid(
            field,
            format!("{} bytes are more than {bound}", text.len()),
        ));
    }
    Ok(())
}

fn id(field: &'static str, text: &str) -> Result<(), WireError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > bounds::ID || !text.bytes().all(plain) {
        return Err(invalid(field, "is not an identifier"));
    }
    Ok(())
}

fn check_event(event: &Event) -> Result<(), WireError> {
    text("events.event", &event.event, bounds::NAME)?;
    text("events.detail", &event.detail, bounds::NAME)?;
    at_most("events.attrs", event.attrs.len(), bounds::ATTRS)?;
    for (key, value) in &event.attrs {
        text("events.attrs", key, bounds::NAME)?;
        if let Scalar::Text(value) = value {
            text("events.attrs", value, bounds::TEXT)?;
        }
    }
    if event.count == 0 {
        return Err(invalid("events.count", "is zero"));
    }
    event.domain.as_ref().map_or(Ok(()), |domain| {
        text("events.domain.name", &domain.name, bounds::NAME)
    })
}

fn check_heartbeat(heartbeat: &Heartbeat) -> Result<(), WireError> {
    id("heartbeat.boot_id", &heartbeat.boot_id.0)?;
    text("heartbeat.agent_version", &heartbeat.agent_version, bounds::NAME)?;
    text("heartbeat.config_hash", &heartbeat.config_hash, bounds::NAME)?;
    text(
        "heartbeat.libvirt.version",
        &heartbeat.libvirt.version,
        bounds::NAME,
    )?;
    at_most(
        "heartbeat.libvirt.unsupported",
        heartbeat.libvirt.unsupported.len(),
        bounds::UNSUPPORTED,
    )?;
    let machine = [&heartbeat.machine.system_uuid, &heartbeat.machine.serial];
    for word in machine.into_iter().flatten() {
        text("heartbeat.machine", word, bounds::NAME)?;
    }
    at_most(
        "heartbeat.probes",
        heartbeat.probes.len(),
        bounds::RESULTS * bounds::TARGETS,
    )?;
    for probe in &heartbeat.probes {
        id("heartbeat.probes.command", &probe.command.0)?;
    }
    at_most("heartbeat.results", heartbeat.results.len(), bounds::RESULTS)?;
    for result in &heartbeat.results {
        id("heartbeat.results.id", &result.id.0)?;
        text("heartbeat.results.message", &result.message, bounds::TEXT)?;
    }
    Ok(())
}

fn check_inventory(inventory: &Inventory) -> Result<(), WireError> {
    at_most("inventory.domains", inventory.domains.len(), bounds::DOMAINS)?;
    for domain in &inventory.domains {
        text("inventory.domains.name", &domain.name, bounds::NAME)?;
        text("inventory.domains.reason", &domain.reason, bounds::NAME)?;
        at_most("inventory.domains.disks", domain.disks.len(), bounds::DISKS)?;
        for disk in &domain.disks {
            text("inventory.domains.disks.type", &disk.kind, bounds::NAME)?;
            text("inventory.domains.disks.source", &disk.source, bounds::TEXT)?;
        }
    }
    Ok(())
}
