// SPDX-License-Identifier: Apache-2.0
//! An agent as far as the service can tell: its reports are those of a host with fifty guests that start, stop, reboot
//! and now and then have a trouble.

use std::collections::BTreeMap;

use cobaltcore_ha_wire::{
    AgentId, Batch, BootId, DomainEntry, DomainRef, DomainState, Envelope, Event, Heartbeat, HostName,
    Inventory, Kind, Libvirt, Machine, SCHEMA, SelfFence, SpoolState,
};
use uuid::Uuid;

use crate::{BenchError, set_up};

/// Guests of a host.
pub(crate) const GUESTS: usize = 50;

/// Who speaks.
#[derive(Clone)]
pub(crate) struct Speaker {
    pub(crate) host: HostName,
    pub(crate) agent: AgentId,
    pub(crate) boot: String,
    pub(crate) machine: Machine,
    number: u64,
    next: u64,
    version: u64,
}

impl Speaker {
    /// The agent of a host; `number` makes its ids differ from those of others.
    pub(crate) fn new(host: &str, number: usize) -> Result<Self, BenchError> {
        let number = number as u64;
        let id = Uuid::from_u128(0x5c2c_0000_0000_4000_8000_0000_0000_0000 + u128::from(number));
        Ok(Self {
            host: HostName::new(host).map_err(|error| set_up("a name")(error.into()))?,
            agent: AgentId(id.to_string()),
            boot: Uuid::from_u128(0x9b1e_0000_0000_4000_8000_0000_0000_0000 + u128::from(number)).to_string(),
            machine: Machine::default(),
            number,
            next: 1,
            version: 0,
        })
    }

    pub(crate) fn path(&self) -> String {
        cobaltcore_ha_wire::path::batches(&self.host)
    }

    fn envelope(&self) -> Envelope {
        let now = jiff::Timestamp::now();
        Envelope {
            schema: SCHEMA,
            host: self.host.clone(),
            agent_id: self.agent.clone(),
            boot_id: BootId(self.boot.clone()),
            epoch: 1,
            sent_at: now,
            mono_ns: now.as_nanosecond().unsigned_abs() as u64,
        }
    }

    /// The next `count` records.
    pub(crate) fn records(&mut self, count: u64) -> Batch {
        let first = self.next;
        self.next += count;
        Batch {
            events: (first..self.next).map(|seq| self.record(seq)).collect(),
            ..Batch::empty(self.envelope())
        }
    }

    fn record(&self, seq: u64) -> Event {
        let (kind, event, detail) = match seq % 20 {
            0..=7 => (Kind::Lifecycle, "started", "booted"),
            8..=14 => (Kind::Lifecycle, "stopped", "shutdown"),
            15 | 16 => (Kind::Lifecycle, "resumed", "unpaused"),
            17 | 18 => (Kind::Reboot, "", ""),
            _ => (Kind::IoError, "report", ""),
        };
        let attrs = if kind == Kind::IoError {
            BTreeMap::from([
                ("src_path".to_owned(), "/var/lib/nova/instances/disk".into()),
                ("dev".to_owned(), "virtio-disk0".into()),
            ])
        } else {
            BTreeMap::new()
        };
        let guest = self.number * GUESTS as u64 + seq % GUESTS as u64;
        let uuid = Uuid::from_u128(0xa100_0000_0000_4000_8000_0000_0000_0000 + u128::from(guest));
        let domain = uuid.to_string().parse().ok().map(|uuid| DomainRef {
            uuid,
            name: format!("instance-{guest:08x}"),
            id: 7,
        });
        Event {
            seq,
            ts: jiff::Timestamp::now(),
            mono_ns: seq,
            kind,
            event: event.into(),
            detail: detail.into(),
            domain,
            attrs,
            count: 1,
            synthetic: false,
        }
    }

    /// A sign of life.
    pub(crate) fn beat(&self) -> Batch {
        let beat = Heartbeat {
            uptime_s: 86_400,
            boot_id: BootId(self.boot.clone()),
            agent_version: "0.1.0".into(),
            config_hash: "0123456789abcdef".into(),
            libvirt: Libvirt {
                connected: true,
                version: "11.3.0".into(),
                last_ok_ms: Some(12),
                unsupported: Vec::new(),
            },
            domains: BTreeMap::from([(DomainState::Running, GUESTS as u32)]),
            spool: SpoolState::default(),
            machine: self.machine.clone(),
            self_fence: SelfFence::default(),
            planned_shutdown: false,
            pressure: None,
            probes: Vec::new(),
            results: Vec::new(),
        };
        Batch {
            heartbeat: Some(beat),
            ..Batch::empty(self.envelope())
        }
    }

    /// A sign of life with every guest.
    pub(crate) fn full(&mut self, domains: Vec<DomainEntry>) -> Batch {
        self.version += 1;
        Batch {
            inventory: Some(Inventory {
                inventory_version: self.version,
                domains,
            }),
            ..self.beat()
        }
    }
}

/// A report as it is sent.
pub(crate) fn encoded(batch: &Batch) -> Result<Vec<u8>, BenchError> {
    batch.encode().map_err(|error| set_up("a report")(error.into()))
}
