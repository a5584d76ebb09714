// SPDX-License-Identifier: Apache-2.0
//! OpenFlow 1.0 with the extensions that `ovs-ofctl` uses when nobody tells it a version: matches and flows in Nicira's
//! form. Flows are translated from and to the form of 1.3.

use super::reply::{TABLES, description, link, measured, pack};
use super::wire::{ALL_TABLES, FlowMod, Reader, Writer, fields};
use super::{BAD_LENGTH, BAD_STAT, BAD_VENDOR, Bridge, Message, Refused};
use crate::switch::facts::Traffic;
use crate::switch::flows::{Filter, Flow, SET_FIELD, actions, apply, each_action, set_field};
use crate::switch::unixctl::Interface;

const NICIRA: u32 = 0x2320;
/// Nicira's action that gives a field a value.
const LOAD: u16 = 7;
/// No port, in two bytes.
const NONE: u16 = 0xffff;
/// Fields with the same value in both forms: the header of 1.3 and Nicira's.
const TWINS: [(u32, u32); 17] = [
    (0x8000_0606, 0x0000_0206),
    (0x8000_0806, 0x0000_0406),
    (0x8000_0a02, 0x0000_0602),
    (0x8000_1401, 0x0000_0c01),
    (0x8000_1604, 0x0000_0e04),
    (0x8000_1804, 0x0000_1004),
    (0x8000_1a02, 0x0000_1202),
    (0x8000_1c02, 0x0000_1402),
    (0x8000_1e02, 0x0000_1602),
    (0x8000_2002, 0x0000_1802),
    (0x8000_2601, 0x0000_1a01),
    (0x8000_2801, 0x0000_1c01),
    (0x8000_2a02, 0x0000_1e02),
    (0x8000_2c04, 0x0000_2004),
    (0x8000_2e04, 0x0000_2204),
    (0x8000_3006, 0x0001_2206),
    (0x8000_3206, 0x0001_2406),
];
const IN_PORT: u32 = 0x8000_0004;
const OLD_IN_PORT: u32 = 0x0000_0002;
const VLAN_VID: u32 = 0x8000_0c02;
const OLD_VLAN_TCI: u32 = 0x0000_0904;

/// A header for a value with a mask, from one for a value without.
fn with_mask(header: u32) -> u32 {
    (header & !0xff) | 0x100 | ((header & 0xff) * 2)
}

fn twin(header: u32, from: fn(&(u32, u32)) -> u32, to: fn(&(u32, u32)) -> u32) -> u32 {
    TWINS
        .iter()
        .find_map(|pair| {
            let (plain, masked) = (from(pair), with_mask(from(pair)));
            (header == plain)
                .then(|| to(pair))
                .or_else(|| (header == masked).then(|| with_mask(to(pair))))
        })
        .unwrap_or(header)
}

fn short_port(port: u32) -> u16 {
    port as u16
}

fn long_port(port: u16) -> u32 {
    if port >= 0xff00 {
        0xffff_0000 | u32::from(port)
    } else {
        u32::from(port)
    }
}

/// A match in Nicira's form.
fn to_old(fields: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut words = Writer::part();
    for (header, value) in fields {
        match (*header, value.as_slice()) {
            (IN_PORT, &[_, _, high, low]) => {
                words.u32(OLD_IN_PORT).bytes(&[high, low]);
            }
            (VLAN_VID, &[high, low]) => {
                words.u32(OLD_VLAN_TCI).bytes(&[high, low, 0x1f, 0xff]);
            }
            (header, value) => {
                words.u32(twin(header, |pair| pair.0, |pair| pair.1)).bytes(value);
            }
        }
    }
    words.into_bytes()
}

/// A match in the form of 1.3.
fn to_new(bytes: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let translate = |(header, value): (u32, Vec<u8>)| match (header, value.as_slice()) {
        (OLD_IN_PORT, &[high, low]) => {
            let port = long_port(u16::from_be_bytes([high, low]));
            (IN_PORT, port.to_be_bytes().to_vec())
        }
        (OLD_VLAN_TCI, &[high, low, 0x1f, 0xff]) => (VLAN_VID, vec![high, low]),
        _ => (twin(header, |pair| pair.1, |pair| pair.0), value),
    };
    let mut new: Vec<_> = fields(bytes)?.into_iter().map(translate).collect();
    new.sort();
    Some(new)
}

/// Actions as 1.0 has them: only those that send somewhere and that handle VLANs look different.
fn old_actions(instructions: &[u8]) -> Vec<u8> {
    let mut words = Writer::part();
    for action in each_action(actions(instructions)) {
        match *action {
            [0, 0, _, _, a, b, c, d, m1, m2, ..] => {
                let port = short_port(u32::from_be_bytes([a, b, c, d]));
                words.u16(0).u16(8).u16(port).bytes(&[m1, m2]);
            }
            [0, 18, ..] => {
                words.u16(3).u16(8).pad(4);
            }
            [0, SET_FIELD, _, _, ..] => {
                load(&mut words, action);
            }
            _ => {
                words.bytes(action);
            }
        }
    }
    words.into_bytes()
}

/// Gives a field a value in Nicira's form, which names the bits.
fn load(words: &mut Writer, action: &[u8]) -> Option<()> {
    let mut reader = Reader(action.get(4..)?);
    let header = reader.u32()?;
    let value = reader.take((header & 0xff) as usize)?;
    let bits = (value.len() * 8) as u16;
    words
        .u16(0xffff)
        .u16(24)
        .u32(NICIRA)
        .u16(LOAD)
        .u16(bits.saturating_sub(1));
    words
        .u32(header)
        .pad(8_usize.checked_sub(value.len())?)
        .bytes(value);
    Some(())
}

/// The other way round, where it is about a whole field.
fn loaded(action: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(action.get(4..)?);
    let (vendor, subtype, bits, header) = (reader.u32()?, reader.u16()?, reader.u16()?, reader.u32()?);
    let size = (header & 0xff) as usize;
    let whole = vendor == NICIRA && subtype == LOAD && usize::from(bits) + 1 == size * 8;
    let value = reader.take(8)?;
    whole.then(|| set_field(header, value.get(8 - size..).unwrap_or_default()))
}

fn new_instructions(old: &[u8]) -> Vec<u8> {
    let mut words = Writer::part();
    for action in each_action(old) {
        match *action {
            [0, 0, _, _, p1, p2, m1, m2] => {
                let port = long_port(u16::from_be_bytes([p1, p2]));
                words.u16(0).u16(16).u32(port).bytes(&[m1, m2]).pad(6);
            }
            [0, 3, ..] => {
                words.u16(18).u16(8).pad(4);
            }
            _ => {
                let same = || action.to_vec();
                words.bytes(&loaded(action).unwrap_or_else(same));
            }
        }
    }
    apply(&words.into_bytes())
}

/// The forty bytes of a match of 1.0.
fn plain_match(reader: &mut Reader<'_>) -> Option<Vec<(u32, Vec<u8>)>> {
    let wildcards = reader.u32()?;
    let in_port = reader.u16()?;
    let (source, dest) = (reader.take(6)?, reader.take(6)?);
    let vlan = reader.u16()?;
    reader.take(2)?;
    let kind = reader.u16()?;
    let (_, protocol) = (reader.u8()?, reader.u8()?);
    reader.take(2)?;
    let (from, to) = (reader.u32()?, reader.u32()?);
    let (from_port, to_port) = (reader.u16()?, reader.u16()?);
    let exact = |bit: u32| wildcards & (1 << bit) == 0;
    let mut all = Vec::new();
    let mut add = |so: bool, header: u32, value: Vec<u8>| {
        if so {
            all.push((header, value));
        }
    };
    add(exact(0), IN_PORT, long_port(in_port).to_be_bytes().to_vec());
    add(exact(1), VLAN_VID, (0x1000 | vlan).to_be_bytes().to_vec());
    add(exact(2), 0x8000_0806, source.to_vec());
    add(exact(3), 0x8000_0606, dest.to_vec());
    add(exact(4), 0x8000_0a02, kind.to_be_bytes().to_vec());
    add(exact(5), 0x8000_1401, vec![protocol]);
    let tcp = protocol == 6;
    let ports = if tcp {
        (0x8000_1a02, 0x8000_1c02)
    } else {
        (0x8000_1e02, 0x8000_2002)
    };
    add(exact(6), ports.0, from_port.to_be_bytes().to_vec());
    add(exact(7), ports.1, to_port.to_be_bytes().to_vec());
    for (shift, header, address) in [(8, 0x8000_1604, from), (14, 0x8000_1804, to)] {
        let wild = wildcards >> shift & 0x3f;
        let mask = u32::MAX.checked_shl(wild).unwrap_or(0);
        let mut value = address.to_be_bytes().to_vec();
        if wild > 0 {
            value.extend_from_slice(&mask.to_be_bytes());
            add(wild < 32, with_mask(header), value);
        } else {
            add(true, header, value);
        }
    }
    all.sort();
    Some(all)
}

fn old_out_port(port: u16) -> Option<u32> {
    (port != NONE).then(|| long_port(port))
}

fn everything(table: u8, out_port: u16, fields: Vec<(u32, Vec<u8>)>) -> Filter {
    Filter {
        table: (table != ALL_TABLES).then_some(table),
        strict: None,
        fields,
        cookie: 0,
        cookie_mask: 0,
        out_port: old_out_port(out_port),
    }
}

fn sums(flows: &[Flow]) -> Writer {
    let mut words = Writer::part();
    words.u64(flows.iter().map(|flow| flow.packets).sum());
    words.u64(flows.iter().map(|flow| flow.bytes).sum());
    words.u32(flows.len() as u32).pad(4);
    words
}

/// A port as 1.0 describes it.
pub(super) fn port_10(words: &mut Writer, port: &Interface) {
    let (features, _) = link(port);
    words
        .u16(short_port(port.number))
        .mac(&port.mac)
        .name(&port.name, 16);
    // The older form counts its features differently below ten gigabits and has no more above.
    let features = if features & 0x40 == 0 { 0 } else { 0x40 | 0x80 };
    words.u32(0).u32(0).u32(features).u32(0).u32(features).u32(0);
}

impl Bridge<'_> {
    pub(super) fn stats_10(&self, message: &Message) -> Result<Vec<Vec<u8>>, Refused> {
        let mut reader = Reader(&message.body);
        let kind = reader.u16().ok_or(BAD_LENGTH)?;
        reader.u16().ok_or(BAD_LENGTH)?;
        let parts = match kind {
            0 => vec![description()],
            2 => {
                let fields = plain_match(&mut reader).ok_or(BAD_LENGTH)?;
                let (table, _) = (reader.u8().ok_or(BAD_LENGTH)?, reader.u8());
                let filter = everything(table, reader.u16().ok_or(BAD_LENGTH)?, fields);
                vec![sums(&self.chosen(&filter)).into_bytes()]
            }
            3 => self.tables_10(),
            4 => {
                let wanted = reader.u16().ok_or(BAD_LENGTH)?;
                let mut ports = self.ports();
                ports.retain(|port| wanted == NONE || short_port(port.number) == wanted);
                ports.iter().map(|port| self.port_figures_10(port)).collect()
            }
            13 => {
                let part = |port: &Interface| {
                    let mut words = Writer::part();
                    port_10(&mut words, port);
                    words.into_bytes()
                };
                self.ports().iter().map(part).collect()
            }
            0xffff => return self.nicira(message, &mut reader),
            _ => return Err(BAD_STAT),
        };
        Ok(pack(message, 17, kind, &[], parts))
    }

    fn chosen(&self, filter: &Filter) -> Vec<Flow> {
        self.flows()
            .into_iter()
            .filter(|flow| filter.takes(flow))
            .collect()
    }

    /// Questions about flows in Nicira's form.
    fn nicira(&self, message: &Message, reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Refused> {
        let (vendor, subtype) = (reader.u32().ok_or(BAD_LENGTH)?, reader.u32().ok_or(BAD_LENGTH)?);
        if vendor != NICIRA || subtype > 1 {
            return Err(BAD_VENDOR);
        }
        reader.take(4).ok_or(BAD_LENGTH)?;
        let out_port = reader.u16().ok_or(BAD_LENGTH)?;
        let length = reader.u16().ok_or(BAD_LENGTH)?;
        let table = reader.u8().ok_or(BAD_LENGTH)?;
        reader.take(3).ok_or(BAD_LENGTH)?;
        let fields = reader
            .take(usize::from(length))
            .and_then(to_new)
            .ok_or(BAD_LENGTH)?;
        let (mut fields, mut filter) = (fields, everything(table, out_port, Vec::new()));
        // A cookie is asked for as if it were a field.
        fields.retain(|(header, value)| {
            let cookie = matches!(*header, 0x0001_3c08 | 0x0001_3d10);
            if cookie {
                let mut value = Reader(value);
                filter.cookie = value.u64().unwrap_or_default();
                filter.cookie_mask = value.u64().unwrap_or(u64::MAX);
            }
            !cookie
        });
        filter.fields = fields;
        let flows = self.chosen(&filter);
        let parts = match subtype {
            0 => flows.iter().map(|flow| self.flow_10(flow)).collect(),
            _ => vec![sums(&flows).into_bytes()],
        };
        let mut after = Writer::part();
        after.u32(NICIRA).u32(subtype).pad(4);
        Ok(pack(message, 17, 0xffff, &after.into_bytes(), parts))
    }

    fn flow_10(&self, flow: &Flow) -> Vec<u8> {
        let age = self.state.now.since(flow.since);
        let matched = to_old(&flow.key.fields);
        let mut words = Writer::part();
        words.u16(0).u8(flow.key.table).pad(1);
        words
            .u32(age.as_secs() as u32)
            .u32(age.subsec_nanos())
            .u16(flow.key.priority);
        words
            .u16(flow.idle)
            .u16(flow.hard)
            .u16(matched.len() as u16)
            .u16(0)
            .u16(0);
        words
            .u64(flow.cookie)
            .u64(flow.packets)
            .u64(flow.bytes)
            .bytes(&matched);
        words.pad(matched.len().next_multiple_of(8) - matched.len());
        words.bytes(&old_actions(&flow.instructions));
        measured(words)
    }

    fn tables_10(&self) -> Vec<Vec<u8>> {
        let entry = |((active, lookups, hits), table): ((u32, u64, u64), u8)| {
            let mut words = Writer::part();
            words.u8(table).pad(3).pad(32).u32(0x003f_ffff).u32(1_000_000);
            words.u32(active).u64(lookups).u64(hits);
            words.into_bytes()
        };
        self.table_counts()
            .into_iter()
            .zip(0..TABLES)
            .map(entry)
            .collect()
    }

    fn port_figures_10(&self, port: &Interface) -> Vec<u8> {
        let Traffic {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            dropped,
        } = self.figures(port);
        let mut words = Writer::part();
        words.u16(short_port(port.number)).pad(6);
        words.u64(rx_packets).u64(tx_packets).u64(rx_bytes).u64(tx_bytes);
        words.u64(dropped).pad(7 * 8);
        words.into_bytes()
    }

    /// Nicira's orders: the form of flows, which is always the same here, and flows in that form.
    pub(super) fn vendor(&mut self, body: &[u8]) -> Result<(), Refused> {
        let mut reader = Reader(body);
        let (vendor, subtype) = (reader.u32().ok_or(BAD_LENGTH)?, reader.u32().ok_or(BAD_LENGTH)?);
        match (vendor, subtype) {
            (NICIRA, 12 | 15) => Ok(()),
            (NICIRA, 13) => {
                let wanted = nicira_flow_mod(&mut reader).ok_or(BAD_LENGTH)?;
                self.carry_out(wanted)
            }
            _ => Err(BAD_VENDOR),
        }
    }

    pub(super) fn flow_mod_10(&mut self, body: &[u8]) -> Result<(), Refused> {
        let wanted = plain_flow_mod(&mut Reader(body)).ok_or(BAD_LENGTH)?;
        self.carry_out(wanted)
    }
}

/// The table stands in front of the order where a client asked for that; deletions without one mean all tables.
fn order(word: u16) -> (u8, u8) {
    let [table, command] = word.to_be_bytes();
    let all = table == 0 && matches!(command, 3);
    (if all { ALL_TABLES } else { table }, command)
}

fn nicira_flow_mod(reader: &mut Reader<'_>) -> Option<FlowMod> {
    let cookie = reader.u64()?;
    let (table, command) = order(reader.u16()?);
    let (idle, hard, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
    reader.u32()?;
    let (out_port, flags, length) = (reader.u16()?, reader.u16()?, usize::from(reader.u16()?));
    reader.take(6)?;
    let fields = to_new(reader.take(length)?)?;
    reader.take(length.next_multiple_of(8) - length)?;
    Some(FlowMod {
        cookie,
        cookie_mask: 0,
        table,
        command,
        idle,
        hard,
        priority,
        out_port: old_out_port(out_port),
        flags,
        fields,
        instructions: new_instructions(reader.0),
    })
}

fn plain_flow_mod(reader: &mut Reader<'_>) -> Option<FlowMod> {
    let fields = plain_match(reader)?;
    let cookie = reader.u64()?;
    let (table, command) = order(reader.u16()?);
    let (idle, hard, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
    reader.u32()?;
    let (out_port, flags) = (reader.u16()?, reader.u16()?);
    Some(FlowMod {
        cookie,
        cookie_mask: 0,
        table,
        command,
        idle,
        hard,
        priority,
        out_port: old_out_port(out_port),
        flags,
        fields,
        instructions: new_instructions(reader.0),
    })
}
