// SPDX-License-Identifier: Apache-2.0
//! The protobuf wire format: tags, variable-length integers, length-delimited blocks, and how to
//! step over what is not known. Every read is checked against the end of the bytes.

use crate::DecodeError;

/// Deepest nesting of groups stepped over; Kubernetes never writes one.
const MAX_GROUPS: usize = 64;

/// Encoding of variable-length integers.
pub(crate) const VARINT: u8 = 0;
/// Encoding of eight fixed bytes.
pub(crate) const FIXED64: u8 = 1;
/// Encoding of blocks with a length in front.
pub(crate) const BLOCK: u8 = 2;
const GROUP_START: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// What stands in front of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag {
    /// Field number.
    pub(crate) number: u32,
    /// How the value is encoded.
    pub(crate) wire: u8,
}

/// Reads from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next tag, or nothing at the end.
    pub(crate) fn tag(&mut self) -> Result<Option<Tag>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let raw = self.varint()?;
        let wire = (raw & 7) as u8;
        match u32::try_from(raw >> 3) {
            Ok(number) if number > 0 && number < 1 << 29 && wire <= FIXED32 => Ok(Some(Tag { number, wire })),
            _ => Err(DecodeError::Tag(raw)),
        }
    }

    /// A variable-length integer.
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    /// Eight bytes, least significant first.
    pub(crate) fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let (first, rest) = self.rest.split_first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*first))
    }

    /// The block a tag announces.
    pub(crate) fn block(&mut self, tag: Tag, field: &str) -> Result<&'a [u8], DecodeError> {
        tag.expect(BLOCK, field)?;
        let length = self.varint()?;
        usize::try_from(length)
            .ok()
            .and_then(|n| self.take(n))
            .ok_or(DecodeError::Truncated)
    }

    /// The text a tag announces; bytes that are no UTF-8 are replaced as Go's JSON replaces them.
    pub(crate) fn text(&mut self, tag: Tag, field: &str) -> Result<String, DecodeError> {
        Ok(String::from_utf8_lossy(self.block(tag, field)?).into_owned())
    }

    /// Steps over a field.
    pub(crate) fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        let mut open = 0;
        let mut tag = tag;
        loop {
            match tag.wire {
                VARINT => {
                    self.varint()?;
                }
                FIXED64 => {
                    self.take(8).ok_or(DecodeError::Truncated)?;
                }
                FIXED32 => {
                    self.take(4).ok_or(DecodeError::Truncated)?;
                }
                BLOCK => {
                    self.block(tag, "")?;
                }
                GROUP_START if open < MAX_GROUPS => open += 1,
                GROUP_END if open > 0 => open -= 1,
                _ => return Err(DecodeError::Tag(u64::from(tag.number) << 3 | u64::from(tag.wire))),
            }
            if open == 0 {
                return Ok(());
            }
            tag = self.tag()?.ok_or(DecodeError::Truncated)?;
        }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(first)
    }
}

impl Tag {
    /// Refuses a field in an encoding its type does not have.
    pub(crate) fn expect(self, wire: u8, field: &str) -> Result<(), DecodeError> {
        if self.wire == wire {
            Ok(())
        } else {
            Err(DecodeError::WireType {
                wire: self.wire,
                field: field.to_owned(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_end_within_ten_bytes() {
        for (bytes, value) in [
            (&b"\x00"[..], Ok(0)),
            (b"\x96\x01", Ok(150)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Ok(u64::MAX)),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                Err(DecodeError::Overflow),
            ),
            (b"\xff", Err(DecodeError::Truncated)),
            (b"", Err(DecodeError::Truncated)),
        ] {
            assert_eq!(Reader::new(bytes).varint(), value, "{bytes:?}");
        }
    }

    #[test]
    fn unknown_fields_of_every_encoding_are_stepped_over() {
        for (bytes, whole) in [
            (&b"\x08\x05"[..], true),
            (b"\x09abcdefgh", true),
            (b"\x09abcdefg", false),
            (b"\x0a\x02ab", true),
            (b"\x0a\x03ab", false),
            (b"\x0b\x08\x01\x0c", true),
            (b"\x0b\x08\x01", false),
            (b"\x0c", false),
            (b"\x0dabcd", true),
            (b"\x0eabcd", false),
            (b"\x00\x01", false),
        ] {
            let mut reader = Reader::new(bytes);
            let done = reader.tag().and_then(|tag| reader.skip(tag.unwrap()));
            assert_eq!(done.is_ok() && reader.is_empty(), whole, "{bytes:?}");
        }
        let nested = [b"\x0b".repeat(100), b"\x0c".repeat(100)].concat();
        let mut reader = Reader::new(&nested);
        let tag = reader.tag().unwrap().unwrap();
        assert!(reader.skip(tag).is_err());
    }
}
