// SPDX-License-Identifier: Apache-2.0
//! Reads the protobuf form in which typed clients send built-in Kubernetes kinds and gives back the
//! JSON tree everything else works on. Which fields a message has, and how each is written in JSON,
//! is a table of facts about Kubernetes 1.36; unknown fields are skipped, malformed bytes are refused.
//! Only reading is offered: every such client accepts JSON answers.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod message;
mod table;
mod values;
mod wire;

use serde_json::{Map, Value};

use crate::table::Table;
use crate::wire::Reader;

/// The media type of this encoding.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every encoded object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Larger inputs are refused; request bodies are limited to far less before they come here.
const MAX_BYTES: usize = 16 << 20;

/// Why bytes were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing was sent.
    #[error("empty data")]
    Empty,
    /// The prefix is another one.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// Nothing follows the prefix.
    #[error("empty body")]
    EmptyBody,
    /// More bytes than any object may have.
    #[error("protobuf message of {0} bytes is too large")]
    TooLarge(usize),
    /// The bytes end inside a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A variable-length integer of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number or wire type that cannot exist.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// A field in another encoding than its type has.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// The encoding found.
        wire: u8,
        /// JSON name of the field.
        field: String,
    },
    /// Messages nested deeper than anything sensible.
    #[error("exceeded max depth")]
    TooDeep,
    /// A value that its type does not allow.
    #[error("invalid {what}: {why}")]
    Value {
        /// What was read.
        what: &'static str,
        /// Why it was refused.
        why: String,
    },
    /// The object does not say what it is.
    #[error("Object 'Kind' is missing in the protobuf message")]
    MissingKind,
    /// Not a built-in kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// `apiVersion` as sent.
        api_version: String,
        /// `kind` as sent.
        kind: String,
    },
}

/// Reads one encoded object. The tree carries `apiVersion` and `kind` like any JSON body.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let body = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Prefix)?;
    if body.is_empty() {
        return Err(DecodeError::EmptyBody);
    }
    if body.len() > MAX_BYTES {
        return Err(DecodeError::TooLarge(body.len()));
    }
    let envelope = Envelope::read(body)?;
    if envelope.kind.is_empty() {
        return Err(DecodeError::MissingKind);
    }
    let table = Table::get();
    let Some(message) = table.kind(&envelope.api_version, &envelope.kind) else {
        return Err(DecodeError::UnknownKind {
            api_version: envelope.api_version,
            kind: envelope.kind,
        });
    };
    let mut object = Map::new();
    message::fields(table, message, envelope.raw, 0, &mut object)?;
    object.insert("apiVersion".into(), envelope.api_version.into());
    object.insert("kind".into(), envelope.kind.into());
    Ok(Value::Object(object))
}

/// Whether a kind of this API group can be read at all; custom resources never can.
pub fn knows_group(group: &str) -> bool {
    Table::get().has_group(group)
}

/// The wrapper around every object (`runtime.Unknown`). Its content type and encoding are not
/// looked at, as the reference does not either.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag()? {
            match tag.number {
                1 => envelope.read_type(reader.block(tag, "typeMeta")?)?,
                2 => envelope.raw = reader.block(tag, "raw")?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag()? {
            match tag.number {
                1 => self.api_version = reader.text(tag, "apiVersion")?,
                2 => self.kind = reader.text(tag, "kind")?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }
}
