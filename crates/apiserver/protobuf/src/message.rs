// SPDX-License-Identifier: Apache-2.0
//! From a message to its JSON. Go writes every field that is no pointer, zero or not; such zeros are
//! left out again where the JSON of the type leaves them out, so that the tree is the one a JSON
//! client would have sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::DecodeError;
use crate::table::{Count, Field, Form, Message, Table, Type};
use crate::values;
use crate::wire::{BLOCK, FIXED64, Reader, Tag, VARINT};

/// Deepest nesting of messages. A schema level is one message and two levels of JSON.
const MAX_DEPTH: usize = 100;

/// Reads the fields of a message into an object. What is there already is merged with.
pub(crate) fn fields(
    table: &Table,
    message: &Message,
    bytes: &[u8],
    depth: usize,
    object: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        let Some(field) = message.field(tag.number) else {
            reader.skip(tag)?;
            continue;
        };
        let mut context = Context {
            table,
            field,
            depth,
            object: &mut *object,
        };
        match field.count {
            Count::One => context.one(&mut reader, tag)?,
            Count::List => context.element(&mut reader, tag)?,
            Count::Map => context.entry(&mut reader, tag)?,
        }
    }
    Ok(())
}

/// The JSON of one nested message; nothing where Go writes `null` for an unset value.
pub(crate) fn value(
    table: &Table,
    at: usize,
    bytes: &[u8],
    depth: usize,
) -> Result<Option<Value>, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let Some(message) = table.message(at) else {
        return Ok(None);
    };
    match message.form {
        Form::Struct => {
            let mut object = Map::new();
            fields(table, message, bytes, depth, &mut object)?;
            Ok(Some(Value::Object(object)))
        }
        Form::List => {
            let mut object = Map::new();
            fields(table, message, bytes, depth, &mut object)?;
            Ok(Some(
                object
                    .into_iter()
                    .next()
                    .map_or_else(|| Value::Array(Vec::new()), |(_, list)| list),
            ))
        }
        Form::Quantity => values::quantity(bytes).map(Some),
        Form::IntOrString => values::int_or_string(bytes).map(Some),
        Form::Time => values::time(bytes, false),
        Form::MicroTime => values::time(bytes, true),
        Form::Raw => values::raw(bytes),
        form => {
            let mut object = Map::new();
            fields(table, message, bytes, depth, &mut object)?;
            Ok(values::schema_or(form, object))
        }
    }
}

/// A field about to be read into its object.
struct Context<'a, 'o> {
    table: &'a Table,
    field: &'a Field,
    depth: usize,
    object: &'o mut Map<String, Value>,
}

impl Context<'_, '_> {
    fn one(&mut self, reader: &mut Reader<'_>, tag: Tag) -> Result<(), DecodeError> {
        let field = self.field;
        let value = match field.kind {
            Type::Message(at) => {
                let bytes = reader.block(tag, field.name)?;
                match self.table.message(at) {
                    Some(message) if message.form == Form::Struct => return self.nested(message, bytes),
                    _ => value(self.table, at, bytes, self.depth + 1)?,
                }
            }
            kind => Some(scalar(kind, reader, tag, field.name)?).filter(|v| field.keeps_zero || !is_zero(v)),
        };
        match value {
            Some(value) => self.object.insert(field.name.to_owned(), value),
            None => self.object.remove(field.name),
        };
        Ok(())
    }

    /// A struct: a second occurrence is merged into the first.
    fn nested(&mut self, message: &Message, bytes: &[u8]) -> Result<(), DecodeError> {
        let field = self.field;
        if field.inline {
            return fields(self.table, message, bytes, self.depth + 1, self.object);
        }
        let mut inner = match self.object.remove(field.name) {
            Some(Value::Object(earlier)) => earlier,
            _ => Map::new(),
        };
        fields(self.table, message, bytes, self.depth + 1, &mut inner)?;
        if !(field.omit_zero && inner.is_empty()) {
            self.object.insert(field.name.to_owned(), Value::Object(inner));
        }
        Ok(())
    }

    /// One element of a list, or several numbers packed into a block.
    fn element(&mut self, reader: &mut Reader<'_>, tag: Tag) -> Result<(), DecodeError> {
        let field = self.field;
        if !self.object.contains_key(field.name) {
            self.object
                .insert(field.name.to_owned(), Value::Array(Vec::new()));
        }
        let Some(Value::Array(list)) = self.object.get_mut(field.name) else {
            return reader.skip(tag);
        };
        let wire = natural_wire(field.kind);
        match field.kind {
            Type::Message(at) => {
                let bytes = reader.block(tag, field.name)?;
                list.push(value(self.table, at, bytes, self.depth + 1)?.unwrap_or(Value::Null));
            }
            kind if tag.wire == BLOCK && wire != BLOCK => {
                let mut packed = Reader::new(reader.block(tag, field.name)?);
                while !packed.is_empty() {
                    list.push(scalar(kind, &mut packed, Tag { wire, ..tag }, field.name)?);
                }
                if list.is_empty() {
                    self.object.remove(field.name);
                }
            }
            kind => list.push(scalar(kind, reader, tag, field.name)?),
        }
        Ok(())
    }

    /// One entry of a map: a message of a key and a value, both of which may be absent.
    fn entry(&mut self, reader: &mut Reader<'_>, tag: Tag) -> Result<(), DecodeError> {
        let field = self.field;
        let mut entry = Reader::new(reader.block(tag, field.name)?);
        let mut key = String::new();
        let mut found = None;
        while let Some(tag) = entry.tag()? {
            match (tag.number, field.kind) {
                (1, _) => key = entry.text(tag, field.name)?,
                (2, Type::Message(at)) => {
                    let bytes = entry.block(tag, field.name)?;
                    found = Some(value(self.table, at, bytes, self.depth + 1)?.unwrap_or(Value::Null));
                }
                (2, kind) => found = Some(scalar(kind, &mut entry, tag, field.name)?),
                _ => entry.skip(tag)?,
            }
        }
        let found = match (found, field.kind) {
            (Some(value), _) => value,
            (None, Type::Message(at)) => value(self.table, at, &[], self.depth + 1)?.unwrap_or(Value::Null),
            (None, Type::String | Type::Bytes) => Value::String(String::new()),
            (None, Type::Bool) => Value::Bool(false),
            (None, _) => Value::Number(0.into()),
        };
        if !self.object.contains_key(field.name) {
            self.object
                .insert(field.name.to_owned(), Value::Object(Map::new()));
        }
        if let Some(Value::Object(map)) = self.object.get_mut(field.name) {
            map.insert(key, found);
        }
        Ok(())
    }
}

fn natural_wire(kind: Type) -> u8 {
    match kind {
        Type::Bool | Type::Int32 | Type::Int64 => VARINT,
        Type::Double => FIXED64,
        Type::String | Type::Bytes | Type::Message(_) => BLOCK,
    }
}

fn scalar(kind: Type, reader: &mut Reader<'_>, tag: Tag, name: &str) -> Result<Value, DecodeError> {
    tag.expect(natural_wire(kind), name)?;
    Ok(match kind {
        Type::String => Value::String(reader.text(tag, name)?),
        Type::Bytes | Type::Message(_) => Value::String(STANDARD.encode(reader.block(tag, name)?)),
        Type::Bool => Value::Bool(reader.varint()? != 0),
        Type::Int32 => Value::Number((reader.varint()? as i32).into()),
        Type::Int64 => Value::Number((reader.varint()? as i64).into()),
        Type::Double => values::double(f64::from_bits(reader.fixed64()?))?,
    })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
