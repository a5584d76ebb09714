// SPDX-License-Identifier: Apache-2.0
//! How a record lies in a segment: its length, the CRC-32C of its text, and its text, which is JSON. Reading finds
//! every whole record of a segment, also those behind a damaged one.

use cobaltcore_ha_wire::Event;

use super::crc::crc32c;

/// Bytes before the text.
pub(crate) const HEADER: usize = 8;
/// The largest text. A record cut to the bounds of the wire stays well below.
pub(crate) const LARGEST: usize = 256 * 1024;

/// Appends a record.
pub(crate) fn write(event: &Event, out: &mut Vec<u8>) -> Result<usize, serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    serde_json::to_writer(&mut *out, event)?;
    let text = out.get(start + HEADER..).unwrap_or_default();
    let (length, crc) = (text.len() as u32, crc32c(text));
    if let Some(header) = out.get_mut(start..start + HEADER) {
        let (first, second) = header.split_at_mut(4);
        first.copy_from_slice(&length.to_le_bytes());
        second.copy_from_slice(&crc.to_le_bytes());
    }
    Ok(out.len() - start)
}

/// What lies at one place of a segment.
pub(crate) enum Found {
    /// A record, and how many bytes it takes.
    Record(Box<Event>, usize),
    /// Nothing more.
    End,
    /// No record.
    Damaged,
}

/// What begins at `offset`.
pub(crate) fn read(bytes: &[u8], offset: usize) -> Found {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.is_empty() {
        return Found::End;
    }
    let Some((header, rest)) = rest.split_at_checked(HEADER) else {
        return Found::Damaged;
    };
    let number = |range: std::ops::Range<usize>| {
        let four = header.get(range).and_then(|four| four.try_into().ok());
        u32::from_le_bytes(four.unwrap_or_default())
    };
    let length = number(0..4) as usize;
    if length == 0 || length > LARGEST {
        return Found::Damaged;
    }
    match rest.get(..length) {
        Some(text) if crc32c(text) == number(4..8) => match serde_json::from_slice::<Event>(text) {
            Ok(event) => Found::Record(Box::new(event), HEADER + length),
            Err(_) => Found::Damaged,
        },
        _ => Found::Damaged,
    }
}

/// What a whole segment holds.
#[derive(Default)]
pub(crate) struct Scan {
    /// The records in order, with place and length.
    pub(crate) records: Vec<(Event, usize, usize)>,
    /// Bytes that belong to no record but have records behind them.
    pub(crate) holes: usize,
    /// Where the last record ends; what lies behind is a torn write.
    pub(crate) end: usize,
}

/// Finds every whole record. Numbers only ever rise: what does not is no record of this segment.
pub(crate) fn scan(bytes: &[u8]) -> Scan {
    let mut scan = Scan::default();
    let mut offset = 0;
    let mut skipped = 0;
    let mut last = 0;
    loop {
        match read(bytes, offset) {
            Found::Record(event, length) if event.seq > last => {
                last = event.seq;
                scan.records.push((*event, offset, length));
                scan.holes += std::mem::take(&mut skipped);
                offset += length;
                scan.end = offset;
            }
            Found::End => return scan,
            Found::Record(..) | Found::Damaged => {
                offset += 1;
                skipped += 1;
            }
        }
    }
}
