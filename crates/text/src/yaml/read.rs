// SPDX-License-Identifier: Apache-2.0
//! Reads YAML 1.1 into JSON values. Nesting and the expansion of aliases are bounded, so that a
//! small body cannot exhaust the stack or grow into a large tree.

use std::collections::HashMap;
use std::fmt::Write;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::{Decoded, MAX_DEPTH, MAX_DUPLICATES, number};

/// Aliases may expand a body to at most this many times its size (and at least `MIN_BUDGET`).
const EXPANSION: usize = 10;
const MIN_BUDGET: usize = 10_000;

/// Reads the first document of a YAML stream; further documents are refused.
pub fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    let mut documents = decode_all(bytes)?;
    match documents.len() {
        0 => Ok(Decoded::default()),
        1 => Ok(documents.remove(0)),
        n => Err(format!("yaml: expected one document, found {n}")),
    }
}

/// Reads the first document of a YAML stream and does not look at what follows it.
pub fn decode_first(bytes: &[u8]) -> Result<Decoded, String> {
    Ok(read(bytes, 1)?.pop().unwrap_or_default())
}

/// Reads all documents of a YAML stream, skipping empty ones.
pub fn decode_all(bytes: &[u8]) -> Result<Vec<Decoded>, String> {
    read(bytes, usize::MAX)
}

fn read(bytes: &[u8], most: usize) -> Result<Vec<Decoded>, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("yaml: invalid UTF-8: {e}"))?;
    let budget = (text.len() * EXPANSION).max(MIN_BUDGET);
    let mut documents = Vec::new();
    let mut builder = Builder::new(budget);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| format!("yaml: line {}: {}", e.marker().line(), e.info()))?;
        match event {
            Event::DocumentStart(_) => builder = Builder::new(budget),
            Event::DocumentEnd => {
                let done = std::mem::replace(&mut builder, Builder::new(budget));
                if let Some(value) = done.root.filter(|v| !v.is_null()) {
                    documents.push(Decoded {
                        value,
                        duplicates: done.duplicates,
                        repeated: done.repeated,
                    });
                }
                if documents.len() == most {
                    break;
                }
            }
            other => {
                builder.line = span.start.line();
                builder
                    .accept(other)
                    .map_err(|e| format!("yaml: line {}: {e}", span.start.line()))?;
            }
        }
    }
    Ok(documents)
}

struct Builder {
    stack: Vec<Open>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    duplicates: Vec<String>,
    repeated: Vec<String>,
    line: usize,
    budget: usize,
}

enum Open {
    List {
        items: Vec<Value>,
        anchor: usize,
    },
    Map {
        entries: Map<String, Value>,
        key: Option<Key>,
        anchor: usize,
    },
}

/// The key whose value comes next.
enum Key {
    Named(String),
    /// JSON has no such key, but that is told with its value.
    Null,
}

impl Builder {
    fn new(budget: usize) -> Self {
        Self {
            stack: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            duplicates: Vec::new(),
            repeated: Vec::new(),
            line: 0,
            budget,
        }
    }

    fn accept(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = match tag {
                    Some(tag) if tag.is_yaml_core_schema() => tagged(&tag.suffix, &text)?,
                    None if plain => finite(&text)?,
                    _ => Value::String(text.into_owned()),
                };
                self.place(value, anchor)
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned().ok_or("unknown alias")?;
                self.spend(weight(&value))?;
                self.place(value, 0)
            }
            Event::SequenceStart(anchor, _) => self.open(Open::List {
                items: Vec::new(),
                anchor,
            }),
            Event::MappingStart(anchor, _) => self.open(Open::Map {
                entries: Map::new(),
                key: None,
                anchor,
            }),
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List { items, anchor }) => self.place(Value::Array(items), anchor),
                Some(Open::Map { entries, anchor, .. }) => self.place(Value::Object(entries), anchor),
                None => Err("unbalanced document".into()),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, node: Open) -> Result<(), String> {
        if self.stack.len() >= MAX_DEPTH {
            return Err("exceeded max depth".into());
        }
        self.stack.push(node);
        Ok(())
    }

    fn spend(&mut self, amount: usize) -> Result<(), String> {
        self.budget = self
            .budget
            .checked_sub(amount)
            .ok_or("document contains excessive aliasing")?;
        Ok(())
    }

    fn place(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor != 0 {
            self.spend(weight(&value))?;
            self.anchors.insert(anchor, value.clone());
        }
        let path = self.path();
        match self.stack.last_mut() {
            None => self.root = Some(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                None if value.is_null() => *key = Some(Key::Null),
                None => {
                    let name = key_text(&value)?;
                    if entries.contains_key(&name) && self.repeated.len() < MAX_DUPLICATES {
                        self.repeated.push(format!(
                            "line {}: key {} already set in map",
                            self.line,
                            crate::go::quote(&name)
                        ));
                    }
                    *key = Some(Key::Named(name));
                }
                Some(Key::Null) => {
                    let shown = shown(&value);
                    return Err(format!(
                        "unsupported map key of type: %!s(<nil>), key: <nil>, value: {shown}"
                    ));
                }
                Some(Key::Named(name)) if name == "<<" => merge(entries, value)?,
                Some(Key::Named(name)) => {
                    if entries.contains_key(&name) && self.duplicates.len() < MAX_DUPLICATES {
                        self.duplicates.push(format!("{path}{name}"));
                    }
                    entries.insert(name, value);
                }
            },
        }
        Ok(())
    }

    /// The path of the innermost open map, with a trailing dot.
    fn path(&self) -> String {
        let mut path = String::new();
        for node in self.stack.iter().take(self.stack.len().saturating_sub(1)) {
            match node {
                Open::List { items, .. } => {
                    let _ = write!(path, "[{}]", items.len());
                }
                Open::Map { key, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    if let Some(Key::Named(name)) = key {
                        path.push_str(name);
                    }
                }
            }
        }
        if !path.is_empty() {
            path.push('.');
        }
        path
    }
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(weight).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(weight).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 8,
        _ => 1,
    }
}

fn key_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("map keys must be scalars".into()),
    }
}

/// A value as the reference's reader shows one that it cannot use.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::go::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(entries) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{}:{}", crate::go::quote(key), shown(value));
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// The merge key of YAML 1.1: entries already present win.
fn merge(entries: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    match value {
        Value::Object(other) => {
            for (key, value) in other {
                entries.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(list) => list.into_iter().try_for_each(|item| merge(entries, item)),
        _ => Err("map merge requires map or sequence of maps as the value".into()),
    }
}

/// What an unquoted scalar means, where that can be said in JSON.
pub(super) fn finite(text: &str) -> Result<Value, String> {
    let infinite = match text {
        ".nan" | ".NaN" | ".NAN" => "NaN",
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => "+Inf",
        "-.inf" | "-.Inf" | "-.INF" => "-Inf",
        _ => return Ok(scalar(text)),
    };
    Err(format!("json: unsupported value: {infinite}"))
}

/// What a scalar means that says of which type it is.
fn tagged(tag: &str, text: &str) -> Result<Value, String> {
    if !matches!(tag, "bool" | "int" | "float" | "null") {
        return Ok(Value::String(text.to_owned()));
    }
    let value = finite(text)?;
    let found = match &value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        _ => "str",
    };
    if found == tag || (found, tag) == ("int", "float") {
        return Ok(value);
    }
    Err(format!("cannot decode !!{found} `{text}` as a !!{tag}"))
}

/// What an unquoted scalar means in YAML 1.1.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    integer(text)
        .or_else(|| float(text))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    let (radix, body) = if let Some(hex) = plain.strip_prefix("0x") {
        (16, hex)
    } else if let Some(binary) = plain.strip_prefix("0b") {
        (2, binary)
    } else if let Some(octal) = plain.strip_prefix("0o") {
        (8, octal)
    } else if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| (b'0'..b'8').contains(&b)) {
        (8, &plain[1..])
    } else {
        (10, plain.as_str())
    };
    if body.is_empty() || !body.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    match i128::from_str_radix(body, radix) {
        Ok(value) => {
            let value = if negative { -value } else { value };
            Some(i64::try_from(value).map_or_else(
                |_| number(value as f64).map_or(Value::Null, Value::Number),
                |small| Value::Number(small.into()),
            ))
        }
        Err(_) => plain.parse::<f64>().ok().and_then(number).map(Value::Number),
    }
}

fn float(text: &str) -> Option<Value> {
    let plausible = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-' | b'_'));
    if !plausible || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    plain.parse::<f64>().ok().and_then(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(text: &str) -> Value {
        decode(text.as_bytes()).unwrap().value
    }

    #[test]
    fn scalars_follow_yaml_1_1() {
        let table = [
            ("yes", json!(true)),
            ("off", json!(false)),
            ("'yes'", json!("yes")),
            ("010", json!(8)),
            ("0x1f", json!(31)),
            ("1_000", json!(1000)),
            ("1e3", json!(1000)),
            ("1.5", json!(1.5)),
            ("-7", json!(-7)),
            ("~", Value::Null),
            ("1.2.3", json!("1.2.3")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("abc", json!("abc")),
            ("!!str 5", json!("5")),
            ("!!int 5", json!(5)),
            ("!!int '5'", json!(5)),
            ("!!float 5", json!(5)),
            ("!own yes", json!("yes")),
        ];
        for (text, expected) in table {
            let got = decode(format!("a: {text}\n").as_bytes());
            assert_eq!(got.unwrap().value["a"], expected, "{text}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        for (text, why) in [
            ("a: .inf", "json: unsupported value: +Inf"),
            ("a: [-.Inf]", "json: unsupported value: -Inf"),
            ("a: .NaN", "json: unsupported value: NaN"),
            ("a: !!int x", "cannot decode !!str `x` as a !!int"),
            ("a: !!bool 1", "cannot decode !!int `1` as a !!bool"),
            (
                "a: {~: [x, 1]}",
                "unsupported map key of type: %!s(<nil>), key: <nil>, value: []interface {}{\"x\", 1}",
            ),
            (
                "null: y",
                "unsupported map key of type: %!s(<nil>), key: <nil>, value: true",
            ),
        ] {
            let said = decode(text.as_bytes()).unwrap_err();
            assert_eq!(said, format!("yaml: line 1: {why}"), "{text}");
        }
        assert_eq!(parsed("a: '.inf'"), json!({"a": ".inf"}));
    }

    #[test]
    fn anchors_and_merges_work_within_bounds() {
        let value = parsed("base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\nlist: [*b, *b]\n");
        assert_eq!(value["use"], json!({"x": 1, "z": 3}));
        assert_eq!(value["list"][1]["x"], 1);
        let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
        for (from, to) in ["ab", "bc", "cd", "de", "ef", "fg", "gh"]
            .iter()
            .map(|p| p.split_at(1))
        {
            bomb.push_str(&format!(
                "{to}: &{to} [{}]\n",
                vec![format!("*{from}"); 9].join(",")
            ));
        }
        assert!(
            decode(bomb.as_bytes())
                .unwrap_err()
                .contains("excessive aliasing")
        );
    }

    #[test]
    fn duplicates_and_documents() {
        let twice = decode(b"a: 1\nb:\n  c: 1\n  c: 2\n").unwrap();
        assert_eq!(twice.duplicates, ["b.c"]);
        assert_eq!(twice.repeated, ["line 4: key \"c\" already set in map"]);
        assert_eq!(decode_all(b"a: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
        assert!(decode(b"a: 1\n---\nb: 2\n").is_err());
        assert!(decode(b"a: [").is_err());
    }
}
