// SPDX-License-Identifier: Apache-2.0
//! Answers in OpenFlow 1.3 and later: features, and the kinds of multipart messages that look at a bridge.

use super::legacy::port_10;
use super::wire::{Reader, Writer, question};
use super::{BAD_LENGTH, BAD_STAT, Bridge, Message, Refused, V10, V13, V14, V15};
use crate::switch::facts::{self, LOCAL, Traffic};
use crate::switch::flows::Flow;
use crate::switch::unixctl::Interface;

/// Tables of a bridge.
pub(super) const TABLES: u8 = 254;
/// The number of a bridge's own port, on the wire.
const LOCAL_WIRE: u32 = 0xffff_fffe;
/// Replies are cut before they get longer.
pub(super) const FULL: usize = 60_000;
const LIVE: u32 = 4;

/// Texts about the switch: maker, hardware, software, serial number, datapath.
const DESCRIPTION: [(&str, usize); 5] = [
    ("Nicira, Inc.", 256),
    ("Open vSwitch", 256),
    (facts::OVS_VERSION, 256),
    ("None", 32),
    ("None", 256),
];

/// What the switch says of itself, alike in all versions.
pub(super) fn description() -> Vec<u8> {
    let mut words = Writer::part();
    for (text, size) in DESCRIPTION {
        words.name(text, size);
    }
    words.into_bytes()
}

/// The number of a port on the wire.
pub(super) fn wire_port(number: u32) -> u32 {
    if number == LOCAL { LOCAL_WIRE } else { number }
}

/// Features in use, as 1.3 counts them, and the speed in kbit/s. There is no bit for twenty-five gigabits.
pub(super) fn link(port: &Interface) -> (u32, u32) {
    let features = match port.speed {
        0 => 0,
        10_000_000_000 => 0x40 | 0x800,
        _ => 0x400 | 0x800,
    };
    (features, (port.speed / 1000) as u32)
}

impl Bridge<'_> {
    pub(super) fn figures(&self, port: &Interface) -> Traffic {
        facts::traffic(self.state, &self.host, &self.switch, &port.name)
    }

    pub(super) fn features(&self, words: &mut Writer, version: u8) {
        words.u64(self.datapath_id()).u32(0).u8(TABLES);
        if version == V10 {
            words.pad(3).u32(0xc7).u32(0xfff);
            for port in self.ports() {
                port_10(words, &port);
            }
            return;
        }
        let bundles = if version >= V14 { 0x200 } else { 0 };
        words.u8(0).pad(2).u32(0x4f | bundles).u32(0);
    }

    pub(super) fn multipart(&self, message: &Message) -> Result<Vec<Vec<u8>>, Refused> {
        let mut reader = Reader(&message.body);
        let kind = reader.u16().ok_or(BAD_LENGTH)?;
        reader.take(6).ok_or(BAD_LENGTH)?;
        let version = message.version;
        let parts: Vec<Vec<u8>> = match kind {
            0 => vec![description()],
            1 => {
                let filter = question(&mut reader).ok_or(BAD_LENGTH)?;
                let flows = self.flows().into_iter().filter(|flow| filter.takes(flow));
                flows.map(|flow| self.flow(&flow, version)).collect()
            }
            2 => {
                let filter = question(&mut reader).ok_or(BAD_LENGTH)?;
                let flows: Vec<Flow> = self
                    .flows()
                    .into_iter()
                    .filter(|flow| filter.takes(flow))
                    .collect();
                vec![aggregate(&flows, version)]
            }
            3 => self.tables(),
            4 => {
                let wanted = reader.u32().ok_or(BAD_LENGTH)?;
                let mut ports = self.ports();
                ports.retain(|port| wanted == 0xffff_ffff || wire_port(port.number) == wanted);
                ports
                    .iter()
                    .map(|port| self.port_figures(port, version))
                    .collect()
            }
            12 => (0..TABLES).map(table_features).collect(),
            13 => self.ports().iter().map(|port| describe(port, version)).collect(),
            _ => return Err(BAD_STAT),
        };
        Ok(pack(message, 19, kind, &[0; 4], parts))
    }

    fn port_figures(&self, port: &Interface, version: u8) -> Vec<u8> {
        let Traffic {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            dropped,
        } = self.figures(port);
        let up = self.state.now.since(self.host.booted_at);
        let number = wire_port(port.number);
        let mut words = Writer::part();
        if version == V13 {
            words.u32(number).pad(4);
        } else {
            words
                .u16(120)
                .pad(2)
                .u32(number)
                .u32(up.as_secs() as u32)
                .u32(up.subsec_nanos());
        }
        words.u64(rx_packets).u64(tx_packets).u64(rx_bytes).u64(tx_bytes);
        words.u64(dropped).u64(0).u64(0).u64(0);
        if version != V13 {
            words.u16(0).u16(40).pad(4);
        }
        words.u64(0).u64(0).u64(0).u64(0);
        if version == V13 {
            words.u32(up.as_secs() as u32).u32(up.subsec_nanos());
        }
        words.into_bytes()
    }

    /// Flows, lookups and hits of each table.
    pub(super) fn table_counts(&self) -> Vec<(u32, u64, u64)> {
        let mut counts = vec![(0, 0, 0); usize::from(TABLES)];
        for flow in self.flows() {
            if let Some((active, lookups, hits)) = counts.get_mut(usize::from(flow.key.table)) {
                *active += 1;
                *lookups += flow.packets;
                *hits += flow.packets;
            }
        }
        counts
    }

    fn tables(&self) -> Vec<Vec<u8>> {
        let counts = self.table_counts().into_iter().zip(0..);
        let entry = |((active, lookups, hits), table): ((u32, u64, u64), u8)| {
            let mut words = Writer::part();
            words.u8(table).pad(3).u32(active).u64(lookups).u64(hits);
            words.into_bytes()
        };
        counts.map(entry).collect()
    }

    fn flow(&self, flow: &Flow, version: u8) -> Vec<u8> {
        let age = self.state.now.since(flow.since);
        let (seconds, nanos) = (age.as_secs() as u32, age.subsec_nanos());
        let mut words = Writer::part();
        words.u16(0);
        if version == V15 {
            words.pad(2).u8(flow.key.table).pad(1).u16(flow.key.priority);
            words
                .u16(flow.idle)
                .u16(flow.hard)
                .u16(flow.flags)
                .u16(0)
                .u64(flow.cookie);
            words.matched(&flow.key.fields);
            words.u16(0).u16(52);
            words.u32(0x8002_0008).u32(seconds).u32(nanos);
            words.u32(0x8002_0208).u32(0).u32(0);
            words.u32(0x8002_0808).u64(flow.packets);
            words.u32(0x8002_0a08).u64(flow.bytes).pad(4);
        } else {
            words
                .u8(flow.key.table)
                .pad(1)
                .u32(seconds)
                .u32(nanos)
                .u16(flow.key.priority);
            words
                .u16(flow.idle)
                .u16(flow.hard)
                .u16(flow.flags)
                .pad(4)
                .u64(flow.cookie);
            words.u64(flow.packets).u64(flow.bytes).matched(&flow.key.fields);
        }
        words.bytes(&flow.instructions);
        measured(words)
    }
}

/// A port.
fn describe(port: &Interface, version: u8) -> Vec<u8> {
    let (features, speed) = link(port);
    let mut words = Writer::part();
    words.u32(wire_port(port.number));
    if version == V13 {
        words.pad(4);
    } else {
        words.u16(72).pad(2);
    }
    words.mac(&port.mac).pad(2).name(&port.name, 16).u32(0).u32(LIVE);
    if version != V13 {
        words.u16(0).u16(32).pad(4);
    }
    words
        .u32(features)
        .u32(0)
        .u32(features)
        .u32(0)
        .u32(speed)
        .u32(speed);
    words.into_bytes()
}

/// A table and its size. What it can do is named as briefly as the protocol allows: every property, and nothing in it.
fn table_features(table: u8) -> Vec<u8> {
    let mut words = Writer::part();
    words.u16(0).u8(table).pad(5 + 32);
    words.u64(u64::MAX).u64(u64::MAX).u32(3).u32(1_000_000);
    for property in [0, 2, 4, 6, 8, 10, 12, 14] {
        words.u16(property).u16(4).pad(4);
    }
    measured(words)
}

/// An entry that begins with its length.
pub(super) fn measured(words: Writer) -> Vec<u8> {
    let mut bytes = words.into_bytes();
    let length = (bytes.len() as u16).to_be_bytes();
    if let Some(place) = bytes.get_mut(..2) {
        place.copy_from_slice(&length);
    }
    bytes
}

fn aggregate(flows: &[Flow], version: u8) -> Vec<u8> {
    let packets = flows.iter().map(|flow| flow.packets).sum();
    let bytes = flows.iter().map(|flow| flow.bytes).sum();
    let count = flows.len() as u32;
    let mut words = Writer::part();
    if version == V15 {
        words.u16(0).u16(36);
        words.u32(0x8002_0808).u64(packets);
        words.u32(0x8002_0a08).u64(bytes);
        words.u32(0x8002_0604).u32(count).pad(4);
    } else {
        words.u64(packets).u64(bytes).u32(count).pad(4);
    }
    words.into_bytes()
}

/// One reply, or several when it does not fit into one.
pub(super) fn pack(
    message: &Message,
    reply: u8,
    kind: u16,
    after: &[u8],
    parts: Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let begin = |more: bool| {
        let mut words = Writer::message(message.version, reply, message.xid);
        words.u16(kind).u16(u16::from(more)).bytes(after);
        words
    };
    let mut groups: Vec<Vec<u8>> = vec![Vec::new()];
    for part in parts {
        if let Some(last) = groups.last_mut()
            && last.len() + part.len() <= FULL
        {
            last.extend(part);
        } else {
            groups.push(part);
        }
    }
    let last = groups.len() - 1;
    let reply = |(index, group): (usize, Vec<u8>)| {
        let mut words = begin(index < last);
        words.bytes(&group);
        words.done()
    };
    groups.into_iter().enumerate().map(reply).collect()
}
