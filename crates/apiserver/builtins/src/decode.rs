// SPDX-License-Identifier: Apache-2.0
//! Typed reading of built-in objects: what the reference's decoder accepts is rewritten to what its
//! encoder would print, unknown fields are taken out and reported, and values of the wrong JSON type
//! are refused in the decoder's own words. Reading twice changes nothing.

use base64::Engine as _;
use cobaltcore_text::go;
use serde_json::{Map, Number, Value};

use crate::kind::Kind;
use crate::quantity;
use crate::table::{Definition, Field, FieldType, Form, table};
use crate::times::{Precision, normalise};

/// Result of a successful reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Paths of fields the kind does not have, e.g. `spec.containers[0].foo`; already removed.
    pub unknown: Vec<String>,
}

/// A value of the wrong type, or one its own parser refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The text of the decoder (`json: cannot unmarshal ...`).
    pub message: String,
}

impl DecodeError {
    /// The message of the 400 answer.
    pub fn answer(&self, kind: &Kind) -> String {
        format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: {2}",
            kind.kind, kind.version, self.message
        )
    }
}

impl Kind {
    /// Reads an object of this kind in place.
    pub fn decode(&self, object: &mut Value) -> Result<Decoded, DecodeError> {
        decode_definition(self.definition, object)
    }
}

/// Reads a value as any definition of the table, e.g. `io.k8s.api.autoscaling.v1.Scale`.
pub fn decode_definition(definition: &str, object: &mut Value) -> Result<Decoded, DecodeError> {
    let mut reader = Reader::default();
    let Some(index) = table().index(definition) else {
        return Ok(Decoded::default());
    };
    let read = reader.definition(index, object.take())?;
    *object = read;
    Ok(Decoded {
        unknown: reader.unknown,
    })
}

#[derive(Default)]
struct Reader {
    unknown: Vec<String>,
    /// Struct of the field being read, and the names that lead to it; what messages show.
    in_struct: &'static str,
    names: Vec<&'static str>,
    /// Path with indices and map keys, for unknown fields.
    path: Vec<String>,
}

type Read = Result<Value, DecodeError>;

impl Reader {
    fn wrong(&self, found: &str, type_name: &str) -> DecodeError {
        let place = if self.in_struct.is_empty() {
            "Go value".to_owned()
        } else {
            format!("Go struct field {}.{}", self.in_struct, self.names.join("."))
        };
        DecodeError {
            message: format!("json: cannot unmarshal {found} into {place} of type {type_name}"),
        }
    }

    fn definition(&mut self, index: usize, value: Value) -> Read {
        let Some(definition) = table().get(index) else {
            return Ok(value);
        };
        match definition.form {
            Form::Struct => self.structure(definition, value),
            Form::Quantity => match quantity::canonical(&value) {
                Ok(text) => Ok(Value::String(text)),
                Err(error) => Err(DecodeError {
                    message: error.to_string(),
                }),
            },
            Form::IntOrString => self.int_or_string(value),
            Form::Time => self.time(value, Precision::Seconds),
            Form::MicroTime => self.time(value, Precision::Micros),
            Form::Raw | Form::Fields | Form::Json | Form::Patch => Ok(untyped(value)),
            Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                self.schema_or(definition.form, value)
            }
        }
    }

    fn int_or_string(&mut self, value: Value) -> Read {
        match value {
            Value::String(_) => Ok(value),
            Value::Null => Ok(Value::from(0)),
            other => self.integer(other, "int32", i64::from(i32::MIN), i64::from(i32::MAX)),
        }
    }

    fn time(&mut self, value: Value, precision: Precision) -> Read {
        match value {
            Value::String(text) => normalise(&text, precision)
                .map(Value::String)
                .map_err(|message| DecodeError { message }),
            Value::Null => Ok(Value::Null),
            other => Err(self.wrong(go::json_kind(&other), "string")),
        }
    }

    fn schema_or(&mut self, form: Form, value: Value) -> Read {
        let schema =
            table().index("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        match (form, value) {
            (_, value @ Value::Object(_)) => match schema {
                Some(index) => self.definition(index, value),
                None => Ok(value),
            },
            (Form::SchemaOrBool, value @ Value::Bool(_)) => Ok(value),
            (Form::SchemaOrArray, Value::Array(items)) => {
                let element = FieldType::Definition(schema.unwrap_or(usize::MAX));
                self.items(&element, "v1.JSONSchemaProps", items)
            }
            (Form::SchemaOrStrings, Value::Array(items)) => self.items(&FieldType::String, "string", items),
            (_, Value::Null) => Ok(Value::Null),
            (Form::SchemaOrBool, _) => Err(DecodeError {
                message: "boolean or JSON schema expected".to_owned(),
            }),
            (_, other) => Err(self.wrong(go::json_kind(&other), "v1.JSONSchemaProps")),
        }
    }

    fn structure(&mut self, definition: &'static Definition, value: Value) -> Read {
        let mut given = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => return Err(self.wrong(go::json_kind(&other), &struct_name(definition))),
        };
        let outer = std::mem::replace(&mut self.in_struct, definition.short_name());
        let mut written = Map::new();
        for field in &definition.fields {
            let value = given.remove(field.name).filter(|value| !value.is_null());
            self.names.push(field.name);
            self.path.push(field.name.to_owned());
            let read = match value {
                Some(value) => self.field(field, value)?,
                None => None,
            };
            self.path.pop();
            self.names.pop();
            if let Some(value) = read.or_else(|| field.always.then(|| zero(field))) {
                written.insert(field.name.to_owned(), value);
            }
        }
        for name in given.keys() {
            self.path.push(name.clone());
            self.unknown.push(self.path_text());
            self.path.pop();
        }
        self.in_struct = outer;
        Ok(Value::Object(written))
    }

    fn path_text(&self) -> String {
        let mut text = String::new();
        for part in &self.path {
            if !text.is_empty() && !part.starts_with('[') {
                text.push('.');
            }
            text.push_str(part);
        }
        text
    }

    /// The value a field keeps, or nothing when it is left out.
    fn field(&mut self, field: &'static Field, value: Value) -> Result<Option<Value>, DecodeError> {
        let read = self.typed(&field.kind, field.type_name, value)?;
        let keep = match &field.kind {
            FieldType::List(_) if self.tells_empty_from_none(field) => !read.is_null(),
            FieldType::List(_) | FieldType::Map(_) => !is_empty(&read),
            FieldType::Definition(_) | FieldType::Object => !read.is_null(),
            _ => field.pointer || field.always || !is_zero(&read),
        };
        Ok(keep.then_some(read))
    }

    /// Lists whose being empty means something to whoever judges the object: those that are always
    /// written, and the policies of an autoscaler, which are made up when none are given.
    fn tells_empty_from_none(&self, field: &Field) -> bool {
        field.always || (self.in_struct == "HPAScalingRules" && field.name == "policies")
    }

    fn typed(&mut self, kind: &FieldType, type_name: &str, value: Value) -> Read {
        let named = |usual: &'static str| if type_name.is_empty() { usual } else { type_name }.to_owned();
        match kind {
            FieldType::String => match value {
                Value::String(_) => Ok(value),
                Value::Null => Ok(Value::from("")),
                other => Err(self.wrong(go::json_kind(&other), &named("string"))),
            },
            FieldType::Bool => match value {
                Value::Bool(_) => Ok(value),
                Value::Null => Ok(Value::from(false)),
                other => Err(self.wrong(go::json_kind(&other), &named("bool"))),
            },
            FieldType::Int32 => {
                self.integer(value, &named("int32"), i64::from(i32::MIN), i64::from(i32::MAX))
            }
            FieldType::Int64 => self.integer(value, &named("int64"), i64::MIN, i64::MAX),
            FieldType::Double => match value {
                Value::Number(number) => Ok(Value::Number(shortest(number))),
                Value::Null => Ok(Value::from(0)),
                other => Err(self.wrong(go::json_kind(&other), &named("float64"))),
            },
            FieldType::Bytes => self.bytes(value),
            FieldType::Object => Ok(untyped(value)),
            FieldType::List(inner) => match value {
                Value::Array(items) => {
                    let element = type_name.strip_prefix("[]").unwrap_or_default();
                    self.items(inner, element, items)
                }
                Value::Null => Ok(Value::Null),
                other => {
                    let name = if type_name.is_empty() {
                        type_text(kind)
                    } else {
                        type_name.to_owned()
                    };
                    Err(self.wrong(go::json_kind(&other), &name))
                }
            },
            FieldType::Map(inner) => self.map(kind, inner, type_name, value),
            FieldType::Definition(index) => self.definition(*index, value),
        }
    }

    fn items(&mut self, element: &FieldType, element_name: &str, items: Vec<Value>) -> Read {
        let mut read = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            self.path.push(format!("[{at}]"));
            read.push(self.typed(element, element_name, item)?);
            self.path.pop();
        }
        Ok(Value::Array(read))
    }

    fn map(&mut self, kind: &FieldType, inner: &FieldType, type_name: &str, value: Value) -> Read {
        let entries = match value {
            Value::Object(entries) => entries,
            Value::Null => return Ok(Value::Null),
            other => {
                let name = if type_name.is_empty() {
                    type_text(kind)
                } else {
                    type_name.to_owned()
                };
                return Err(self.wrong(go::json_kind(&other), &name));
            }
        };
        let element = type_name
            .strip_prefix("map[")
            .and_then(|rest| rest.split_once(']'))
            .map_or("", |pair| pair.1);
        let mut read = Map::new();
        for (key, entry) in entries {
            self.path.push(key.clone());
            read.insert(key, self.typed(inner, element, entry)?);
            self.path.pop();
        }
        Ok(Value::Object(read))
    }

    fn bytes(&mut self, value: Value) -> Read {
        match value {
            Value::String(text) => match decode_base64(&text) {
                Ok(bytes) => Ok(Value::String(
                    base64::engine::general_purpose::STANDARD.encode(bytes),
                )),
                Err(at) => Err(DecodeError {
                    message: format!("illegal base64 data at input byte {at}"),
                }),
            },
            Value::Null => Ok(Value::from("")),
            other => Err(self.wrong(go::json_kind(&other), "[]uint8")),
        }
    }

    fn integer(&mut self, value: Value, type_name: &str, low: i64, high: i64) -> Read {
        match value {
            Value::Number(number) => match number.as_i64() {
                Some(whole) if (low..=high).contains(&whole) => Ok(Value::from(whole)),
                _ => Err(self.wrong(&format!("number {number}"), type_name)),
            },
            Value::Null => Ok(Value::from(0)),
            other => Err(self.wrong(go::json_kind(&other), type_name)),
        }
    }
}

/// Base64 as the reference reads it: line breaks are ignored, the error names the offending byte.
fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    let positions: Vec<usize> = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| !matches!(b, b'\r' | b'\n'))
        .map(|(at, _)| at)
        .collect();
    let compact: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    // Trailing bits that do not matter are tolerated there too.
    let engine = base64::engine::GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let original = |at: usize| positions.get(at).copied().unwrap_or(text.len());
    engine
        .decode(&compact)
        .map_err(|_| original(corrupt_at(&compact)))
}

/// Where the reference's decoder stops: the first byte outside the alphabet, misplaced padding, or
/// the end when a group is incomplete.
fn corrupt_at(bytes: &[u8]) -> usize {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    for (group, chunk) in bytes.chunks(4).enumerate() {
        let start = group * 4;
        for (at, byte) in chunk.iter().enumerate() {
            if valid(*byte) {
                continue;
            }
            let rest = chunk.get(at + 1..).unwrap_or_default();
            let more = bytes.len() > start + 4;
            return match (byte, at) {
                (b'=', 2) if rest.is_empty() => bytes.len(),
                (b'=', 2) if rest == b"=" && more => start + 4,
                (b'=', 2) if rest != b"=" => start + 3,
                (b'=', 3) if more => start + 4,
                _ => start + at,
            };
        }
        if chunk.len() < 4 {
            return start;
        }
    }
    bytes.len()
}

/// Where numbers have no type, those with a whole value are whole numbers.
fn untyped(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => *number = shortest(number.clone()),
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(entries) => entries.values_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

/// Floats with a whole value are printed without a fraction.
fn shortest(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        other => other.is_null(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        other => is_empty(other),
    }
}

/// What the encoder prints for a field that was never set.
fn zero(field: &Field) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match &field.kind {
        FieldType::String => Value::from(""),
        FieldType::Bool => Value::from(false),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => Value::from(0),
        FieldType::Bytes | FieldType::List(_) | FieldType::Map(_) | FieldType::Object => Value::Null,
        FieldType::Definition(index) => zero_definition(*index),
    }
}

fn zero_definition(index: usize) -> Value {
    let Some(definition) = table().get(index) else {
        return Value::Null;
    };
    match definition.form {
        Form::Struct => zero_struct(definition),
        Form::Quantity => Value::from("0"),
        Form::IntOrString => Value::from(0),
        _ => Value::Null,
    }
}

fn zero_struct(definition: &Definition) -> Value {
    let always = definition.fields.iter().filter(|field| field.always);
    Value::Object(always.map(|field| (field.name.to_owned(), zero(field))).collect())
}

fn struct_name(definition: &Definition) -> String {
    let mut parts = definition.name.rsplit('.');
    let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{name}")
}

fn type_text(kind: &FieldType) -> String {
    match kind {
        FieldType::String => "string".to_owned(),
        FieldType::Bool => "bool".to_owned(),
        FieldType::Int32 => "int32".to_owned(),
        FieldType::Int64 => "int64".to_owned(),
        FieldType::Double => "float64".to_owned(),
        FieldType::Bytes => "[]uint8".to_owned(),
        FieldType::Object => "map[string]interface {}".to_owned(),
        FieldType::List(inner) => format!("[]{}", type_text(inner)),
        FieldType::Map(inner) => format!("map[string]{}", type_text(inner)),
        FieldType::Definition(index) => table().get(*index).map(struct_name).unwrap_or_default(),
    }
}

impl crate::kind::Kind {
    /// Forgets what no stored object tells: that lists were given empty rather than not at all, and how
    /// traffic inside the cluster reaches a service that is only a name.
    pub fn forget_unstored(&self, object: &mut Value) {
        if self.id() == ("", "Service")
            && object["spec"]["type"] == "ExternalName"
            && let Some(Value::Object(spec)) = object.get_mut("spec")
        {
            spec.remove("internalTrafficPolicy");
        }
        if let Some(definition) = table().find(self.definition) {
            forget_in_struct(definition, object);
        }
    }

    /// What an object of this kind says before anything of it is set.
    pub fn blank(&self) -> Value {
        let found = table().find(self.definition);
        found.map_or(Value::Null, zero_struct)
    }
}

fn forget_in_struct(definition: &Definition, value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (name, value) in map.iter_mut() {
        let Some(field) = definition.field(name) else {
            continue;
        };
        if field.always && matches!(&field.kind, FieldType::List(_)) && is_empty(value) {
            *value = Value::Null;
        } else {
            forget_in(&field.kind, value);
        }
    }
}

fn forget_in(kind: &FieldType, value: &mut Value) {
    match (kind, value) {
        (FieldType::List(inner), Value::Array(items)) => {
            for item in items {
                forget_in(inner, item);
            }
        }
        (FieldType::Map(inner), Value::Object(map)) => {
            for item in map.values_mut() {
                forget_in(inner, item);
            }
        }
        (FieldType::Definition(index), value) => {
            if let Some(definition) = table().get(*index).filter(|d| matches!(d.form, Form::Struct)) {
                forget_in_struct(definition, value);
            }
        }
        _ => {}
    }
}

/// What the encoder prints for a field of a definition that was never set.
pub(crate) fn zero_field(definition: &str, field: &str) -> Value {
    table()
        .find(definition)
        .and_then(|found| found.field(field))
        .map(zero)
        .unwrap_or_default()
}
