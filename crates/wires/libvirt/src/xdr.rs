// SPDX-License-Identifier: Apache-2.0
//! The external data representation (RFC 4506) as libvirt uses it: big endian, everything padded to four bytes.
//! The decoder promises that no input makes it panic, read past the end, or reserve memory that the
//! remaining bytes could not fill; every list and string has the limit of the protocol description.

use std::ops::{Deref, DerefMut};

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::limits;

/// Why bytes could not be turned into a value, or a value into bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The payload ended in the middle of a value.
    #[error("payload ends early: {needed} more bytes needed at offset {offset}, {left} left")]
    Truncated {
        /// Where the value begins.
        offset: usize,
        /// How many bytes it takes.
        needed: usize,
        /// How many bytes there are.
        left: usize,
    },
    /// A string, list or byte array is longer than the protocol allows.
    #[error("length {length} is above the limit of {limit} at offset {offset}")]
    TooLong {
        /// Where the length stands.
        offset: usize,
        /// The length that was announced.
        length: u64,
        /// The limit of the protocol.
        limit: usize,
    },
    /// A number that may only take certain values has another one.
    #[error("{value} is not a {what} (offset {offset})")]
    Invalid {
        /// What was expected.
        what: &'static str,
        /// What was found.
        value: i64,
        /// Where it was found.
        offset: usize,
    },
    /// Bytes were left over after the last field.
    #[error("{left} bytes left over after the last field")]
    Trailing {
        /// How many.
        left: usize,
    },
}

/// A value that can be written to the wire.
pub trait Encode {
    /// Appends the value; fails only when a limit of the protocol is exceeded.
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError>;
}

/// A value that can be read from the wire.
pub trait Decode: Sized {
    /// The fewest bytes a value takes on the wire; bounds what a list reserves.
    const MIN_WIRE: usize;

    /// Reads the value.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

/// Writes values into a growing buffer.
#[derive(Debug, Default)]
pub struct Encoder {
    buffer: BytesMut,
}

impl Encoder {
    /// An empty encoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder that appends to `buffer`.
    pub fn with_buffer(buffer: BytesMut) -> Self {
        Self { buffer }
    }

    /// The bytes written so far.
    pub fn into_bytes(self) -> Bytes {
        self.buffer.freeze()
    }

    /// The buffer, for further use.
    pub fn into_buffer(self) -> BytesMut {
        self.buffer
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.buffer.put_u64(value);
    }

    /// Appends bytes of a length both sides know, padded.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
        self.buffer.put_bytes(0, padding(bytes.len()));
    }

    /// Appends a length and that many bytes, padded.
    pub fn opaque(&mut self, bytes: &[u8], limit: usize) -> Result<(), XdrError> {
        self.length(bytes.len(), limit)?;
        self.fixed(bytes);
        Ok(())
    }

    fn length(&mut self, length: usize, limit: usize) -> Result<(), XdrError> {
        match u32::try_from(length) {
            Ok(short) if length <= limit => {
                self.u32(short);
                Ok(())
            }
            _ => Err(XdrError::TooLong {
                offset: self.buffer.len(),
                length: length as u64,
                limit,
            }),
        }
    }
}

/// Reads values from a slice, front to back.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            offset: 0,
        }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails when bytes are left over.
    pub fn finish(self) -> Result<(), XdrError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(XdrError::Trailing { left }),
        }
    }

    /// Takes exactly `count` bytes, without padding.
    fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        match self.rest.split_at_checked(count) {
            Some((head, tail)) => {
                self.rest = tail;
                self.offset += count;
                Ok(head)
            }
            None => Err(XdrError::Truncated {
                offset: self.offset,
                needed: count,
                left: self.rest.len(),
            }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(XdrError::Truncated {
            offset: self.offset,
            needed: N,
            left: self.rest.len(),
        })?;
        self.rest = tail;
        self.offset += N;
        Ok(*head)
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 64 bits.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads bytes of a known length and skips the padding.
    pub fn fixed(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let bytes = self.take(count)?;
        self.take(padding(count))?;
        Ok(bytes)
    }

    /// Reads a length and that many bytes.
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8], XdrError> {
        let count = self.length(limit, 1)?;
        self.fixed(count)
    }

    /// Reads a count of things that take at least `each` bytes; a count that the rest cannot hold fails at once.
    fn length(&mut self, limit: usize, each: usize) -> Result<usize, XdrError> {
        let offset = self.offset;
        let announced = self.u32()?;
        let count = announced as usize;
        if count > limit {
            return Err(XdrError::TooLong {
                offset,
                length: u64::from(announced),
                limit,
            });
        }
        let needed = count.saturating_mul(each);
        if needed > self.rest.len() {
            return Err(XdrError::Truncated {
                offset: self.offset,
                needed,
                left: self.rest.len(),
            });
        }
        Ok(count)
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, XdrError> {
        let offset = self.offset;
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::Invalid {
                what,
                value: i64::from(value),
                offset,
            }),
        }
    }

    /// The error for a number outside its range that was just read as four bytes.
    pub fn invalid(&self, what: &'static str, value: i64) -> XdrError {
        XdrError::Invalid {
            what,
            value,
            offset: self.offset.saturating_sub(4),
        }
    }
}

/// Encodes a whole payload.
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> Result<Bytes, XdrError> {
    let mut out = Encoder::new();
    value.encode(&mut out)?;
    Ok(out.into_bytes())
}

/// Decodes a whole payload; bytes left over are an error.
pub fn from_bytes<T: Decode>(bytes: &[u8]) -> Result<T, XdrError> {
    let mut input = Decoder::new(bytes);
    let value = T::decode(&mut input)?;
    input.finish()?;
    Ok(value)
}

const fn padding(length: usize) -> usize {
    (4 - length % 4) % 4
}

/// A list with the limit the protocol gives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> From<Vec<T>> for List<T, MAX> {
    fn from(items: Vec<T>) -> Self {
        Self(items)
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = Vec<T>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T, const MAX: usize> DerefMut for List<T, MAX> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T: Encode, const MAX: usize> Encode for List<T, MAX> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.length(self.0.len(), MAX)?;
        self.0.iter().try_for_each(|item| item.encode(out))
    }
}

impl<T: Decode, const MAX: usize> Decode for List<T, MAX> {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let count = input.length(MAX, T::MIN_WIRE)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(input)?);
        }
        Ok(Self(items))
    }
}

/// A variable number of raw bytes with the limit the protocol gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Opaque<const MAX: usize>(pub Vec<u8>);

impl<const MAX: usize> Encode for Opaque<MAX> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.opaque(&self.0, MAX)
    }
}

impl<const MAX: usize> Decode for Opaque<MAX> {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self(input.opaque(MAX)?.to_vec()))
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Encoder) -> Result<(), XdrError> {
        Ok(())
    }
}

impl Decode for () {
    const MIN_WIRE: usize = 0;
    fn decode(_: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl Encode for u32 {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u32(*self);
        Ok(())
    }
}

impl Decode for u32 {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u32()
    }
}

impl Encode for i32 {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u32(self.cast_unsigned());
        Ok(())
    }
}

impl Decode for i32 {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u32().map(u32::cast_signed)
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u64(*self);
        Ok(())
    }
}

impl Decode for u64 {
    const MIN_WIRE: usize = 8;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u64()
    }
}

impl Encode for i64 {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u64(self.cast_unsigned());
        Ok(())
    }
}

impl Decode for i64 {
    const MIN_WIRE: usize = 8;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u64().map(u64::cast_signed)
    }
}

impl Encode for f64 {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u64(self.to_bits());
        Ok(())
    }
}

impl Decode for f64 {
    const MIN_WIRE: usize = 8;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u64().map(f64::from_bits)
    }
}

/// Truth values are `int` in the protocol: zero is false, anything else is true.
impl Encode for bool {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.u32(u32::from(*self));
        Ok(())
    }
}

impl Decode for bool {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(input.u32()? != 0)
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.opaque(self.as_bytes(), limits::STRING)
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        self.as_str().encode(out)
    }
}

/// Bytes that are not UTF-8 become replacement characters: one odd guest name must not cost the whole list.
impl Decode for String {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let bytes = input.opaque(limits::STRING)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Encode for Uuid {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        out.fixed(self.as_bytes());
        Ok(())
    }
}

impl Decode for Uuid {
    const MIN_WIRE: usize = 16;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.array().map(Uuid::from_bytes)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        match self {
            None => out.u32(0),
            Some(value) => {
                out.u32(1);
                value.encode(out)?;
            }
        }
        Ok(())
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        if input.flag("presence mark (0 or 1)")? {
            T::decode(input).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        self.as_ref().encode(out)
    }
}

impl<T: Decode> Decode for Box<T> {
    const MIN_WIRE: usize = T::MIN_WIRE;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        T::decode(input).map(Box::new)
    }
}

macro_rules! tuples {
    ($(($($name:ident . $index:tt),+)),+) => {$(
        impl<$($name: Encode),+> Encode for ($($name,)+) {
            fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
                $(self.$index.encode(out)?;)+
                Ok(())
            }
        }
        impl<$($name: Decode),+> Decode for ($($name,)+) {
            const MIN_WIRE: usize = 0 $(+ $name::MIN_WIRE)+;
            fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok(($($name::decode(input)?,)+))
            }
        }
    )+};
}

tuples!(
    (A.0),
    (A.0, B.1),
    (A.0, B.1, C.2),
    (A.0, B.1, C.2, D.3),
    (A.0, B.1, C.2, D.3, E.4),
    (A.0, B.1, C.2, D.3, E.4, F.5)
);

/// Declares a structure whose wire form is its fields in order.
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $type:ty,)* }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::Encoder) -> Result<(), $crate::xdr::XdrError> {
                $(self.$field.encode(out)?;)*
                Ok(())
            }
        }

        impl $crate::xdr::Decode for $name {
            const MIN_WIRE: usize = 0 $(+ <$type as $crate::xdr::Decode>::MIN_WIRE)*;
            fn decode(input: &mut $crate::xdr::Decoder<'_>) -> Result<Self, $crate::xdr::XdrError> {
                Ok(Self { $($field: <$type as $crate::xdr::Decode>::decode(input)?,)* })
            }
        }
    };
}
pub(crate) use wire_struct;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_padded_to_four_bytes() {
        for (text, wire) in [
            ("", &[0, 0, 0, 0][..]),
            ("a", &[0, 0, 0, 1, b'a', 0, 0, 0][..]),
            ("abcd", &[0, 0, 0, 4, b'a', b'b', b'c', b'd'][..]),
            ("abcde", &[0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0][..]),
        ] {
            assert_eq!(to_bytes(text).as_deref(), Ok(wire), "{text}");
            assert_eq!(from_bytes::<String>(wire).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_string_cut_inside_its_padding_is_refused() {
        let result = from_bytes::<String>(&[0, 0, 0, 1, b'a', 0]);
        assert!(
            matches!(result, Err(XdrError::Truncated { needed: 3, .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_list_that_announces_more_than_the_rest_can_hold_reserves_nothing() {
        let announced = 16384_u32.to_be_bytes();
        let result = from_bytes::<List<u64, 16384>>(&announced);
        assert_eq!(
            result,
            Err(XdrError::Truncated {
                offset: 4,
                needed: 131_072,
                left: 0
            })
        );
    }

    #[test]
    fn a_list_above_its_limit_is_refused_in_both_directions() {
        let long = List::<u32, 2>(vec![1, 2, 3]);
        assert!(matches!(
            to_bytes(&long),
            Err(XdrError::TooLong {
                length: 3,
                limit: 2,
                ..
            })
        ));
        let wire = [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        assert!(matches!(
            from_bytes::<List<u32, 2>>(&wire),
            Err(XdrError::TooLong {
                length: 3,
                limit: 2,
                ..
            })
        ));
    }

    #[test]
    fn an_optional_value_is_marked_by_zero_or_one_only() {
        assert_eq!(from_bytes::<Option<u32>>(&[0, 0, 0, 0]), Ok(None));
        assert_eq!(from_bytes::<Option<u32>>(&[0, 0, 0, 1, 0, 0, 0, 9]), Ok(Some(9)));
        assert!(matches!(
            from_bytes::<Option<u32>>(&[0, 0, 0, 2, 0, 0, 0, 9]),
            Err(XdrError::Invalid {
                value: 2,
                offset: 0,
                ..
            })
        ));
    }

    #[test]
    fn bytes_left_over_are_an_error() {
        assert_eq!(from_bytes::<u32>(&[0; 8]), Err(XdrError::Trailing { left: 4 }));
    }

    #[test]
    fn a_name_that_is_not_utf8_is_kept_readable() {
        let wire = [0, 0, 0, 3, b'a', 0xff, b'b', 0];
        assert_eq!(from_bytes::<String>(&wire).as_deref(), Ok("a\u{fffd}b"));
    }

    #[test]
    fn a_string_longer_than_the_protocol_allows_is_refused() {
        let mut wire = (limits::STRING as u32 + 1).to_be_bytes().to_vec();
        wire.resize(limits::STRING + 16, b'x');
        assert!(matches!(
            from_bytes::<String>(&wire),
            Err(XdrError::TooLong { .. })
        ));
    }
}
