// SPDX-License-Identifier: Apache-2.0
//! The version 2 document in the protobuf form kubectl asks for: it reads version 2 in no other, for
//! `explain --output=plaintext-openapiv2` and for checks on its own side. Written from the JSON
//! document, field by field; what a message has no field for goes into its extensions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A message being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn block(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u64, inner: &Message) {
        self.block(number, &inner.0);
    }

    fn text(&mut self, number: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.block(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u64, value: Option<&Value>) {
        for text in value
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            self.block(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_i64).filter(|value| *value != 0) {
            self.varint(number << 3);
            self.varint(value.cast_unsigned());
        }
    }

    fn double(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64).filter(|value| *value != 0.0) {
            self.varint(number << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Anything at all, as the YAML that JSON is.
    fn any(&mut self, number: u64, value: &Value) {
        let mut any = Message::default();
        any.block(2, format!("{value}\n").as_bytes());
        self.message(number, &any);
    }

    fn extensions(&mut self, number: u64, entry: &Map<String, Value>) {
        for (name, value) in entry.iter().filter(|(name, _)| name.starts_with("x-")) {
            let mut named = Message::default();
            named.block(1, name.as_bytes());
            named.any(2, value);
            self.message(number, &named);
        }
    }

    /// A map as a list of names and messages.
    fn map(&mut self, number: u64, value: Option<&Value>, write: fn(&Map<String, Value>) -> Message) {
        for (name, entry) in value.and_then(Value::as_object).into_iter().flatten() {
            if let Value::Object(entry) = entry {
                let mut named = Message::default();
                named.block(1, name.as_bytes());
                named.message(2, &write(entry));
                self.message(number, &named);
            }
        }
    }
}

/// Maps of written JSON, read one entry at a time: all of them at once are many megabytes.
fn named(
    entries: &BTreeMap<String, impl AsRef<[u8]>>,
    number: u64,
    write: fn(&Map<String, Value>) -> Message,
) -> Message {
    let mut out = Message::default();
    for (name, bytes) in entries {
        if let Ok(entry) = serde_json::from_slice(bytes.as_ref()) {
            let mut named = Message::default();
            named.block(1, name.as_bytes());
            named.message(2, &write(&entry));
            out.message(number, &named);
        }
    }
    out
}

/// A message that holds one other message.
fn wrapped(number: u64, inner: &Message) -> Message {
    let mut outer = Message::default();
    outer.message(number, inner);
    outer
}

/// The whole document.
pub(super) fn document(
    (title, version): (&str, &str),
    definitions: &BTreeMap<String, impl AsRef<[u8]>>,
    paths: &BTreeMap<String, impl AsRef<[u8]>>,
) -> Vec<u8> {
    let mut out = Message::default();
    out.block(1, b"2.0");
    let mut info = Message::default();
    info.block(1, title.as_bytes());
    info.block(2, version.as_bytes());
    out.message(2, &info);
    out.message(8, &named(paths, 2, path_item));
    out.message(9, &named(definitions, 1, schema));
    out.0
}

fn path_item(entry: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(Value::Object(operation)) = entry.get(method) {
            out.message(number, &self::operation(operation));
        }
    }
    parameters(&mut out, 9, entry);
    out
}

fn operation(entry: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.texts(1, entry.get("tags"));
    out.text(3, entry.get("description"));
    out.text(5, entry.get("operationId"));
    out.texts(6, entry.get("produces"));
    out.texts(7, entry.get("consumes"));
    parameters(&mut out, 8, entry);
    let mut responses = Message::default();
    responses.map(1, entry.get("responses"), response);
    out.message(9, &responses);
    out.texts(10, entry.get("schemes"));
    out.extensions(13, entry);
    out
}

fn response(entry: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.text(1, entry.get("description"));
    if let Some(Value::Object(schema)) = entry.get("schema") {
        out.message(2, &wrapped(1, &self::schema(schema)));
    }
    wrapped(1, &out)
}

fn parameters(out: &mut Message, number: u64, entry: &Map<String, Value>) {
    for parameter in entry
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
    {
        let place = parameter.get("in").and_then(Value::as_str).unwrap_or_default();
        let parameter = match place {
            "body" => wrapped(1, &body(parameter)),
            "path" => wrapped(2, &wrapped(4, &plain_parameter(parameter, 5, 19))),
            _ => wrapped(2, &wrapped(3, &plain_parameter(parameter, 6, 20))),
        };
        out.message(number, &wrapped(1, &parameter));
    }
}

fn body(entry: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.text(2, entry.get("name"));
    out.text(3, entry.get("in"));
    out.flag(4, entry.get("required"));
    if let Some(Value::Object(schema)) = entry.get("schema") {
        out.message(5, &self::schema(schema));
    }
    out
}

/// Query and path parameters differ in the numbers of the later fields.
fn plain_parameter(entry: &Map<String, Value>, kind: u64, unique: u64) -> Message {
    let mut out = Message::default();
    out.flag(1, entry.get("required"));
    out.text(2, entry.get("in"));
    out.text(3, entry.get("description"));
    out.text(4, entry.get("name"));
    out.text(kind, entry.get("type"));
    out.flag(unique, entry.get("uniqueItems"));
    out
}

fn schema(entry: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    for (number, name) in [
        (1, "$ref"),
        (2, "format"),
        (3, "title"),
        (4, "description"),
        (13, "pattern"),
    ] {
        out.text(number, entry.get(name));
    }
    for (number, name) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(number, entry.get(name));
    }
    for (number, name) in [
        (8, "exclusiveMaximum"),
        (10, "exclusiveMinimum"),
        (16, "uniqueItems"),
    ] {
        out.flag(number, entry.get(name));
    }
    for (number, name) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.integer(number, entry.get(name));
    }
    out.texts(19, entry.get("required"));
    for value in entry.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.any(20, value);
    }
    match entry.get("additionalProperties") {
        Some(Value::Object(values)) => out.message(21, &wrapped(1, &schema(values))),
        Some(Value::Bool(true)) => {
            let mut open = Message::default();
            open.flag(2, Some(&Value::Bool(true)));
            out.message(21, &open);
        }
        _ => {}
    }
    if entry.contains_key("type") {
        let mut kind = Message::default();
        kind.text(1, entry.get("type"));
        out.message(22, &kind);
    }
    if let Some(Value::Object(items)) = entry.get("items") {
        out.message(23, &wrapped(1, &schema(items)));
    }
    if entry.contains_key("properties") {
        let mut properties = Message::default();
        properties.map(1, entry.get("properties"), schema);
        out.message(25, &properties);
    }
    out.extensions(31, entry);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_numbers_of_the_published_format() {
        let written = schema(
            json!({"type": "string", "minLength": 300, "x-a": true})
                .as_object()
                .unwrap(),
        );
        let expected = [
            &[12 << 3, 0xac, 0x02][..],
            &[0xb2, 0x01, 8, 10, 6][..],
            b"string",
            &[0xfa, 0x01, 14, 10, 3][..],
            b"x-a",
            &[18, 7, 18, 5][..],
            b"true\n",
        ];
        assert_eq!(written.0, expected.concat());
    }

    #[test]
    fn documents_name_their_definitions() {
        let definitions = BTreeMap::from([("a.B".to_owned(), br##"{"$ref": "#/c"}"##)]);
        let bytes = document(("t", "v"), &definitions, &BTreeMap::<String, Vec<u8>>::new());
        let parts: [&[u8]; 4] = [
            b"\x0a\x032.0",
            b"\x12\x06\x0a\x01t\x12\x01v",
            b"\x42\x00",
            b"\x4a\x0e\x0a\x0c\x0a\x03a.B\x12\x05\x0a\x03#/c",
        ];
        assert_eq!(bytes, parts.concat());
    }
}
