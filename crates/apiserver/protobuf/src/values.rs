// SPDX-License-Identifier: Apache-2.0
//! Messages whose JSON is not an object: quantities, times, numbers that may be strings, JSON kept
//! as bytes, and the alternatives of JSON schemas. Each reads exactly what Go's types write.

use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use crate::DecodeError;
use crate::table::Form;
use crate::wire::{Reader, VARINT};

/// A quantity: its text as sent, zero when there is none.
pub(crate) fn quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut text = String::new();
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => text = reader.text(tag, "string")?,
            _ => reader.skip(tag)?,
        }
    }
    Ok(Value::String(if text.is_empty() { "0".into() } else { text }))
}

/// A number or a string, as its type says.
pub(crate) fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => {
                tag.expect(VARINT, "type")?;
                kind = reader.varint()?;
            }
            2 => {
                tag.expect(VARINT, "intVal")?;
                number = reader.varint()? as i32;
            }
            3 => text = reader.text(tag, "strVal")?,
            _ => reader.skip(tag)?,
        }
    }
    match kind {
        0 => Ok(Value::Number(number.into())),
        1 => Ok(Value::String(text)),
        other => Err(DecodeError::Value {
            what: "IntOrString",
            why: format!("impossible type {other}"),
        }),
    }
}

/// A time in UTC; no bytes are the zero time, which JSON has as null. Fractions only exist in
/// micro times, and there only to the microsecond.
pub(crate) fn time(bytes: &[u8], micro: bool) -> Result<Option<Value>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => {
                tag.expect(VARINT, "seconds")?;
                seconds = reader.varint()? as i64;
            }
            2 => {
                tag.expect(VARINT, "nanos")?;
                nanos = reader.varint()? as i32;
            }
            _ => reader.skip(tag)?,
        }
    }
    let wrong = |error: jiff::Error| DecodeError::Value {
        what: "time",
        why: error.to_string(),
    };
    if !micro {
        let time = Timestamp::from_second(seconds).map_err(wrong)?;
        return Ok(Some(Value::String(format!("{time:.0}"))));
    }
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let time = Timestamp::from_nanosecond(nanos - nanos.rem_euclid(1_000)).map_err(wrong)?;
    Ok(Some(Value::String(format!("{time:.6}"))))
}

/// JSON kept as bytes in field 1; nothing when there are none.
pub(crate) fn raw(bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => raw = reader.block(tag, "raw")?,
            _ => reader.skip(tag)?,
        }
    }
    if raw.is_empty() {
        return Ok(None);
    }
    let mut value = serde_json::from_slice(raw).map_err(|e| DecodeError::Value {
        what: "raw JSON",
        why: e.to_string(),
    })?;
    normalise(&mut value);
    Ok(Some(value))
}

/// A float; integral values that fit 64 bits are integers, as everywhere in the tree.
pub(crate) fn double(float: f64) -> Result<Value, DecodeError> {
    const EDGE: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if float.fract() == 0.0 && (-EDGE..EDGE).contains(&float) {
        return Ok(Value::Number((float as i64).into()));
    }
    let refused = || DecodeError::Value {
        what: "number",
        why: format!("{float} has no JSON form"),
    };
    Number::from_f64(float).map(Value::Number).ok_or_else(refused)
}

/// The alternative a schema chose. The fields of the message come under their numbers.
pub(crate) fn schema_or(form: Form, mut fields: Map<String, Value>) -> Option<Value> {
    let (first, second) = (fields.remove("1"), fields.remove("2"));
    match form {
        Form::SchemaOrBool => Some(second.or(first).unwrap_or(Value::Bool(false))),
        _ => second.or(first),
    }
}

/// Gives numbers inside raw JSON the form they have everywhere in the tree.
fn normalise(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => {
            if let Some(Ok(plain)) = number.as_f64().map(double) {
                *value = plain;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(normalise),
        Value::Object(map) => map.values_mut().for_each(normalise),
        _ => {}
    }
}
