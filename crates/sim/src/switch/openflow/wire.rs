// SPDX-License-Identifier: Apache-2.0
//! Reading and writing the numbers of OpenFlow, and the parts that its messages share: matches, and orders about flows.

use crate::switch::flows::{Filter, Flow, Key};
use crate::world::Moment;

/// Any port, any group.
const ANY: u32 = 0xffff_ffff;
/// All tables.
pub(super) const ALL_TABLES: u8 = 0xff;

/// What is left of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A match with its header, and what makes its length a multiple of eight.
    pub(super) fn matched(&mut self) -> Option<Vec<(u32, Vec<u8>)>> {
        let (_, length) = (self.u16()?, usize::from(self.u16()?));
        let fields = fields(self.take(length.checked_sub(4)?)?)?;
        self.take(length.next_multiple_of(8) - length)?;
        Some(fields)
    }
}

/// The fields of a match, sorted.
pub(super) fn fields(bytes: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut reader = Reader(bytes);
    let mut fields = Vec::new();
    while !reader.0.is_empty() {
        let header = reader.u32()?;
        let value = reader.take((header & 0xff) as usize)?.to_vec();
        fields.push((header, value));
    }
    fields.sort();
    Some(fields)
}

/// A message under way.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn message(version: u8, kind: u8, xid: u32) -> Self {
        let mut bytes = vec![version, kind, 0, 0];
        bytes.extend_from_slice(&xid.to_be_bytes());
        Self(bytes)
    }

    /// A part of a message whose length is known only when it is done.
    pub(super) fn part() -> Self {
        Self(Vec::new())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    pub(super) fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn pad(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// A text in a field of fixed size that ends with a zero.
    pub(super) fn name(&mut self, text: &str, size: usize) -> &mut Self {
        let text = text.as_bytes();
        let kept = text.get(..size - 1).unwrap_or(text);
        self.bytes(kept).pad(size - kept.len())
    }

    pub(super) fn mac(&mut self, text: &str) -> &mut Self {
        let mut bytes = text
            .split(':')
            .filter_map(|part| u8::from_str_radix(part, 16).ok());
        let six: [u8; 6] = std::array::from_fn(|_| bytes.next().unwrap_or_default());
        self.bytes(&six)
    }

    pub(super) fn matched(&mut self, fields: &[(u32, Vec<u8>)]) -> &mut Self {
        let length = 4 + fields.iter().map(|(_, value)| 4 + value.len()).sum::<usize>();
        self.u16(1).u16(length as u16);
        for (header, value) in fields {
            self.u32(*header).bytes(value);
        }
        self.pad(length.next_multiple_of(8) - length)
    }

    /// The bytes of a part.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The message with its length.
    pub(super) fn done(mut self) -> Vec<u8> {
        let length = (self.0.len() as u16).to_be_bytes();
        if let Some(place) = self.0.get_mut(2..4) {
            place.copy_from_slice(&length);
        }
        self.0
    }
}

/// Which flows a question is about.
pub(super) fn question(reader: &mut Reader<'_>) -> Option<Filter> {
    let table = reader.u8()?;
    reader.take(3)?;
    let (out_port, _) = (reader.u32()?, reader.u32()?);
    reader.take(4)?;
    let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
    Some(Filter {
        table: (table != ALL_TABLES).then_some(table),
        strict: None,
        fields: reader.matched()?,
        cookie,
        cookie_mask,
        out_port: (out_port != ANY).then_some(out_port),
    })
}

/// An order about flows.
pub(super) struct FlowMod {
    pub(super) cookie: u64,
    pub(super) cookie_mask: u64,
    pub(super) table: u8,
    pub(super) command: u8,
    pub(super) idle: u16,
    pub(super) hard: u16,
    pub(super) priority: u16,
    pub(super) out_port: Option<u32>,
    pub(super) flags: u16,
    pub(super) fields: Vec<(u32, Vec<u8>)>,
    pub(super) instructions: Vec<u8>,
}

impl FlowMod {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
        let (table, command) = (reader.u8()?, reader.u8()?);
        let (idle, hard, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let (_, out_port, _) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (flags, _) = (reader.u16()?, reader.u16()?);
        let fields = reader.matched()?;
        Some(Self {
            cookie,
            cookie_mask,
            table,
            command,
            idle,
            hard,
            priority,
            out_port: (out_port != ANY).then_some(out_port),
            flags,
            fields,
            instructions: reader.0.to_vec(),
        })
    }

    pub(super) fn filter(&self) -> Filter {
        let strict = matches!(self.command, 2 | 4);
        Filter {
            table: (self.table != ALL_TABLES).then_some(self.table),
            strict: strict.then_some(self.priority),
            fields: self.fields.clone(),
            cookie: self.cookie,
            cookie_mask: self.cookie_mask,
            out_port: self.out_port,
        }
    }

    pub(super) fn flow(self, now: Moment) -> Flow {
        Flow {
            key: Key {
                table: if self.table == ALL_TABLES { 0 } else { self.table },
                priority: self.priority,
                fields: self.fields,
            },
            cookie: self.cookie,
            idle: self.idle,
            hard: self.hard,
            flags: self.flags & 1,
            instructions: self.instructions,
            since: now,
            packets: 0,
            bytes: 0,
        }
    }
}
