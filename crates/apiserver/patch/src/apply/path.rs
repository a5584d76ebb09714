// SPDX-License-Identifier: Apache-2.0
//! One step of a path into an object, its order and its two spellings: the key of `fieldsV1`
//! (`k:{"name":"a"}`) and the text of messages (`[name="a"]`).

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use cobaltcore_text::go;

/// One step from a container to something in it.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of an object or a key of a map.
    Field(Box<str>),
    /// The element of a list that has these key fields, sorted by name.
    Key(Vec<(String, Value)>),
    /// A member of a set.
    Value(Value),
    /// A position in a list.
    Index(i64),
}

impl PathElement {
    /// A field of the given name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Appends the key used in `fieldsV1`.
    pub(crate) fn encode(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&go::json(&Value::String(name.clone())));
                    out.push(':');
                    out.push_str(&go::json(value));
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                out.push_str(&go::json(value));
            }
            Self::Index(index) => {
                out.push_str("i:");
                out.push_str(&index.to_string());
            }
        }
    }

    /// Reads a key of `fieldsV1`. `Ok(None)` is a kind of element this version does not know.
    pub(crate) fn decode(text: &str) -> Result<Option<Self>, String> {
        let mut bytes = text.bytes();
        let (Some(kind), Some(colon)) = (bytes.next(), bytes.next()) else {
            return Err("key must be 2 characters long".to_owned());
        };
        if colon != b':' {
            return Err(format!("missing colon: {text}"));
        }
        let rest = text.get(2..).unwrap_or_default();
        match kind {
            b'f' => Ok(Some(Self::field(rest))),
            b'v' => serde_json::from_str(rest)
                .map(|v| Some(Self::Value(v)))
                .map_err(|e| e.to_string()),
            b'k' => {
                let fields: serde_json::Map<String, Value> =
                    serde_json::from_str(rest).map_err(|e| e.to_string())?;
                Ok(Some(Self::Key(fields.into_iter().collect())))
            }
            b'i' => rest
                .parse()
                .map(|i| Some(Self::Index(i)))
                .map_err(|_| format!("invalid index: {rest}")),
            _ => Ok(None),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", scalar_text(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", scalar_text(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path in the words of messages: `.spec.containers[name="a"].image`.
pub(crate) fn path_text(path: &[&PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(s) => go::quote(s),
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(scalar_text).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Object(map) => {
            let parts: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{k}={}", scalar_text(v)))
                .collect();
            parts.concat()
        }
        other => go::plain(other),
    }
}

fn compare_keys(a: &[(String, Value)], b: &[(String, Value)]) -> Ordering {
    for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
        let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A total order of values in which `1` and `1.0` are equal.
pub(crate) fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => compare_numbers(x, y),
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            let unequal = x
                .iter()
                .zip(y)
                .map(|(x, y)| compare_values(x, y))
                .find(|o| o.is_ne());
            unequal.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let unequal = x
                .iter()
                .zip(y)
                .map(|((kx, vx), (ky, vy))| kx.cmp(ky).then_with(|| compare_values(vx, vy)))
                .find(|o| o.is_ne());
            unequal.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn compare_numbers(a: &serde_json::Number, b: &serde_json::Number) -> Ordering {
    if let (Some(x), Some(y)) = (a.as_i64(), b.as_i64()) {
        return x.cmp(&y);
    }
    if let (Some(x), Some(y)) = (a.as_u64(), b.as_u64()) {
        return x.cmp(&y);
    }
    let (x, y) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
    x.total_cmp(&y)
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Equality as ownership sees it: numbers by value, everything else exactly.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || ((x.is_f64() || y.is_f64()) && x.as_f64() == y.as_f64())
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len()
                && x.iter()
                    .zip(y)
                    .all(|((kx, vx), (ky, vy))| kx == ky && same(vx, vy))
        }
        _ => a == b,
    }
}
