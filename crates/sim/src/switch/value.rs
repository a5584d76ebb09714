// SPDX-License-Identifier: Apache-2.0
//! Values of an OVSDB database and their form on the wire. A column holds a set or a map; a scalar is a set of one. What
//! arrives is read by the column's type, never by its shape, and refused in the words of the real server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// A refusal: the kind, the particulars, and the piece of the request it is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) error: &'static str,
    pub(crate) details: String,
    pub(crate) syntax: Option<String>,
}

impl Refusal {
    pub(crate) fn new(error: &'static str, details: impl Into<String>) -> Self {
        Self {
            error,
            details: details.into(),
            syntax: None,
        }
    }

    /// A request that is not well formed, with the piece that is not.
    pub(crate) fn syntax(piece: &Value, details: impl Into<String>) -> Self {
        Self {
            syntax: Some(piece.to_string()),
            ..Self::new("syntax error", details)
        }
    }

    pub(crate) fn constraint(details: impl Into<String>) -> Self {
        Self::new("constraint violation", details)
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut body = json!({"error": self.error, "details": self.details});
        if let (Some(syntax), Some(body)) = (&self.syntax, body.as_object_mut()) {
            body.insert("syntax".to_owned(), syntax.clone().into());
        }
        body
    }
}

/// The kinds of atoms that columns of these databases hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Boolean,
    String,
    Uuid,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Atom {
    #[serde(rename = "i")]
    Integer(i64),
    #[serde(rename = "b")]
    Boolean(bool),
    #[serde(rename = "s")]
    String(String),
    #[serde(rename = "u")]
    Uuid(Uuid),
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for Atom {
    fn from(yes: bool) -> Self {
        Self::Boolean(yes)
    }
}

impl From<Uuid> for Atom {
    fn from(id: Uuid) -> Self {
        Self::Uuid(id)
    }
}

impl std::fmt::Display for Atom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Boolean(yes) => yes.fmt(f),
            Self::String(text) => f.write_str(text),
            Self::Uuid(id) => id.fmt(f),
        }
    }
}

impl Atom {
    fn default_of(kind: Kind) -> Self {
        match kind {
            Kind::Integer => Self::Integer(0),
            Kind::Boolean => Self::Boolean(false),
            Kind::String => Self::String(String::new()),
            Kind::Uuid => Self::Uuid(Uuid::nil()),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Integer(number) => (*number).into(),
            Self::Boolean(yes) => (*yes).into(),
            Self::String(text) => text.as_str().into(),
            Self::Uuid(id) => json!(["uuid", id.to_string()]),
        }
    }
}

/// What an atom of a column may be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Base {
    pub(crate) kind: Kind,
    /// Which texts are allowed, sorted; empty for all.
    pub(crate) allowed: Vec<String>,
    pub(crate) least: Option<i64>,
    pub(crate) most: Option<i64>,
    /// The table it refers to, and whether the reference keeps the row alive.
    pub(crate) refers: Option<(String, bool)>,
}

impl Base {
    fn to_json(&self) -> Value {
        let mut body = serde_json::Map::new();
        if !self.allowed.is_empty() {
            body.insert("enum".into(), json!(["set", self.allowed]));
        }
        if let Some(least) = self.least {
            body.insert("minInteger".into(), least.into());
        }
        if let Some(most) = self.most {
            body.insert("maxInteger".into(), most.into());
        }
        if let Some((table, strong)) = &self.refers {
            body.insert("refTable".into(), table.as_str().into());
            if !strong {
                body.insert("refType".into(), "weak".into());
            }
        }
        if body.is_empty() {
            return self.kind.word().into();
        }
        body.insert("type".into(), self.kind.word().into());
        Value::Object(body)
    }

    fn read(&self, value: &Value, names: &Names) -> Result<Atom, Refusal> {
        let atom = match (self.kind, value) {
            (Kind::Integer, Value::Number(number)) => whole(number).map(Atom::Integer),
            (Kind::Boolean, Value::Bool(yes)) => Some(Atom::Boolean(*yes)),
            (Kind::String, Value::String(text)) => Some(Atom::String(text.clone())),
            (Kind::Uuid, value) => Some(Atom::Uuid(names.uuid(value)?)),
            _ => None,
        };
        let atom = atom.ok_or_else(|| Refusal::syntax(value, format!("expected {}", self.kind.word())))?;
        self.check(&atom)?;
        Ok(atom)
    }

    fn check(&self, atom: &Atom) -> Result<(), Refusal> {
        match atom {
            Atom::String(text) if !self.allowed.is_empty() && !self.allowed.contains(text) => {
                let allowed = self.allowed.join(", ");
                Err(Refusal::constraint(format!(
                    "{text} is not one of the allowed values ([{allowed}])"
                )))
            }
            Atom::Integer(number) => self.check_range(*number),
            _ => Ok(()),
        }
    }

    fn check_range(&self, number: i64) -> Result<(), Refusal> {
        let low = self.least.is_some_and(|least| number < least);
        let high = self.most.is_some_and(|most| number > most);
        if !low && !high {
            return Ok(());
        }
        Err(Refusal::constraint(match (self.least, self.most) {
            (Some(least), Some(most)) => {
                format!("{number} is not in the valid range {least} to {most} (inclusive)")
            }
            (Some(least), None) => format!("{number} is less than minimum allowed value {least}"),
            (None, most) => format!(
                "{number} is greater than maximum allowed value {}",
                most.unwrap_or_default()
            ),
        }))
    }
}

/// Numbers without a fraction are whole, however they are written.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let real = number.as_f64()?;
        (real.fract() == 0.0 && real.abs() < 9e15).then_some(real as i64)
    })
}

/// The names that a transaction gave to rows it makes.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) BTreeMap<String, Uuid>);

impl Names {
    fn uuid(&self, value: &Value) -> Result<Uuid, Refusal> {
        match value.as_array().map(Vec::as_slice) {
            Some([Value::String(tag), Value::String(text)]) if tag == "uuid" => text
                .parse()
                .map_err(|_| Refusal::syntax(value, format!("\"{text}\" is not a valid UUID"))),
            Some([Value::String(tag), Value::String(name)]) if tag == "named-uuid" => self
                .0
                .get(name)
                .copied()
                .ok_or_else(|| Refusal::syntax(value, "No symbol found.")),
            _ => Err(Refusal::syntax(
                value,
                "expected [\"uuid\", <string>] or [\"named-uuid\", <string>]",
            )),
        }
    }
}

/// The type of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Type {
    pub(crate) key: Base,
    /// Of maps.
    pub(crate) value: Option<Base>,
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl Type {
    /// Whether it holds at most one atom, so that a change replaces it.
    pub(crate) fn is_single(&self) -> bool {
        self.max == 1 && self.value.is_none()
    }

    pub(crate) fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// What a row holds that nobody gave a value.
    pub(crate) fn default(&self) -> Datum {
        if self.min == 0 {
            return Datum::default();
        }
        let value = self.value.as_ref().map(|base| Atom::default_of(base.kind));
        Datum(BTreeMap::from([(Atom::default_of(self.key.kind), value)]))
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut body = serde_json::Map::new();
        if let Some(value) = &self.value {
            body.insert("value".into(), value.to_json());
        }
        if self.min != 1 {
            body.insert("min".into(), self.min.into());
        }
        match self.max {
            1 => {}
            usize::MAX => {
                body.insert("max".into(), "unlimited".into());
            }
            most => {
                body.insert("max".into(), most.into());
            }
        }
        let key = self.key.to_json();
        if body.is_empty() && key.is_string() {
            return key;
        }
        body.insert("key".into(), key);
        Value::Object(body)
    }

    /// As the real server names it in refusals.
    pub(crate) fn words(&self) -> String {
        let key = self.key.kind.word();
        if let Some(value) = &self.value {
            return format!("map of {key}-{} pairs", value.kind.word());
        }
        match (self.min, self.max) {
            (1, 1) => key.to_owned(),
            (0, usize::MAX) => format!("set of {key}s"),
            (0, most) => format!("set of up to {most} {key}s"),
            (least, _) => format!("set of {least} or more {key}s"),
        }
    }

    /// Reads a value of this type.
    pub(crate) fn read(&self, value: &Value, names: &Names) -> Result<Datum, Refusal> {
        let datum = self.read_loosely(value, names)?;
        self.check_size(&datum, value)?;
        Ok(datum)
    }

    fn check_size(&self, datum: &Datum, value: &Value) -> Result<(), Refusal> {
        let size = datum.0.len();
        if size >= self.min && size <= self.max {
            return Ok(());
        }
        let most = if self.max == usize::MAX {
            "unlimited".to_owned()
        } else {
            self.max.to_string()
        };
        let details = format!(
            "set must have {} to {most} members but {size} are present",
            self.min
        );
        Err(Refusal::syntax(value, details))
    }

    /// Reads a value of this type with any number of elements, for conditions and mutations.
    pub(crate) fn read_loosely(&self, value: &Value, names: &Names) -> Result<Datum, Refusal> {
        let tagged = match value.as_array().map(Vec::as_slice) {
            Some([Value::String(tag), Value::Array(items)]) => Some((tag.as_str(), items)),
            _ => None,
        };
        let mut datum = Datum::default();
        match (tagged, &self.value) {
            (Some(("map", pairs)), Some(base)) => {
                for pair in pairs {
                    let Some([key, item]) = pair.as_array().map(Vec::as_slice) else {
                        return Err(Refusal::syntax(pair, "expected 2-element array"));
                    };
                    let (key, item) = (self.key.read(key, names)?, base.read(item, names)?);
                    if datum.0.insert(key, Some(item)).is_some() {
                        return Err(Refusal::syntax(value, "map contains duplicate key"));
                    }
                }
            }
            (Some(("set", items)), None) => {
                for item in items {
                    if datum.0.insert(self.key.read(item, names)?, None).is_some() {
                        return Err(Refusal::syntax(value, "set contains duplicate"));
                    }
                }
            }
            (_, Some(_)) => return Err(Refusal::syntax(value, "expected [\"map\", <array>]")),
            (_, None) => {
                datum.0.insert(self.key.read(value, names)?, None);
            }
        }
        Ok(datum)
    }

    /// Reads what a mutation takes away: keys are enough for a map.
    pub(crate) fn read_removed(&self, value: &Value, names: &Names) -> Result<Datum, Refusal> {
        let keys = Self {
            value: None,
            min: 0,
            max: usize::MAX,
            ..self.clone()
        };
        let is_map = value.get(0).and_then(Value::as_str) == Some("map");
        if self.is_map() && !is_map {
            return keys.read_loosely(value, names);
        }
        self.read_loosely(value, names)
    }

    /// As it goes over the wire.
    pub(crate) fn write(&self, datum: &Datum) -> Value {
        if self.is_map() {
            let pairs = datum.0.iter().map(|(key, value)| {
                let value = value.as_ref().map_or(Value::Null, Atom::to_json);
                json!([key.to_json(), value])
            });
            return json!(["map", pairs.collect::<Vec<_>>()]);
        }
        match datum.0.len() {
            1 => datum.0.keys().next().map_or(Value::Null, Atom::to_json),
            _ => json!(["set", datum.0.keys().map(Atom::to_json).collect::<Vec<_>>()]),
        }
    }
}

/// What a column of a row holds: the elements of a set, or the pairs of a map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Atom, Option<Atom>)>", into = "Vec<(Atom, Option<Atom>)>")]
pub(crate) struct Datum(pub(crate) BTreeMap<Atom, Option<Atom>>);

impl From<Vec<(Atom, Option<Atom>)>> for Datum {
    fn from(pairs: Vec<(Atom, Option<Atom>)>) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl From<Datum> for Vec<(Atom, Option<Atom>)> {
    fn from(datum: Datum) -> Self {
        datum.0.into_iter().collect()
    }
}

impl Datum {
    /// One atom.
    pub(crate) fn one(atom: impl Into<Atom>) -> Self {
        Self(BTreeMap::from([(atom.into(), None)]))
    }

    /// A set.
    pub(crate) fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        Self(atoms.into_iter().map(|atom| (atom.into(), None)).collect())
    }

    /// A map.
    pub(crate) fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let pair = |(key, value): (K, V)| (key.into(), Some(value.into()));
        Self(pairs.into_iter().map(pair).collect())
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.keys().find_map(|atom| match atom {
            Atom::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The number of a scalar.
    pub(crate) fn number(&self) -> Option<i64> {
        self.0.keys().find_map(|atom| match atom {
            Atom::Integer(number) => Some(*number),
            _ => None,
        })
    }

    /// The text under a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        match self.0.get(&Atom::from(key)) {
            Some(Some(Atom::String(text))) => Some(text),
            _ => None,
        }
    }

    /// The rows it refers to.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = Uuid> {
        let ends = self.0.iter().flat_map(|(key, value)| [Some(key), value.as_ref()]);
        ends.flatten().filter_map(|atom| match atom {
            Atom::Uuid(id) => Some(*id),
            _ => None,
        })
    }

    /// What turns this into `new` when a client applies it as `update2` prescribes.
    pub(crate) fn difference(&self, new: &Self, kind: &Type) -> Self {
        if kind.is_single() {
            return new.clone();
        }
        let mut difference = BTreeMap::new();
        for (key, value) in &self.0 {
            match new.0.get(key) {
                Some(now) if now == value => {}
                Some(now) => drop(difference.insert(key.clone(), now.clone())),
                None => drop(difference.insert(key.clone(), value.clone())),
            }
        }
        for (key, value) in &new.0 {
            if !self.0.contains_key(key) {
                difference.insert(key.clone(), value.clone());
            }
        }
        Self(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_map() -> Type {
        let base = Base {
            kind: Kind::String,
            allowed: Vec::new(),
            least: None,
            most: None,
            refers: None,
        };
        Type {
            key: base.clone(),
            value: Some(base),
            min: 0,
            max: usize::MAX,
        }
    }

    #[test]
    fn a_key_that_comes_and_one_that_goes_look_the_same() {
        let (none, some) = (Datum::default(), Datum::map([("foo", "bar")]));
        let kind = text_map();
        assert_eq!(none.difference(&some, &kind), some);
        assert_eq!(some.difference(&none, &kind), some);
        let other = Datum::map([("foo", "baz")]);
        assert_eq!(some.difference(&other, &kind), other);
    }

    #[test]
    fn a_set_of_one_goes_bare_and_is_read_bare() {
        let names = Names::default();
        let kind = Type {
            value: None,
            ..text_map()
        };
        let one = Datum::one("x");
        assert_eq!(kind.write(&one), json!("x"));
        assert_eq!(kind.read(&json!("x"), &names), Ok(one));
        assert_eq!(kind.write(&Datum::default()), json!(["set", []]));
        let refused = kind.read(&json!(5), &names).unwrap_err();
        assert_eq!(
            (refused.error, refused.details.as_str()),
            ("syntax error", "expected string")
        );
    }
}
