// SPDX-License-Identifier: Apache-2.0
//! Values while a rule runs. Lists, maps and strings of the object are borrowed from its JSON and
//! typed by their declaration only when they are looked at; nothing is converted up front.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_text::go;
use serde_json::Value as Json;

use crate::authorizer::{Inquiry, Verdict};
use crate::decl::{DeclType, ListKind};
use crate::net::{Cidr, Ip};
use crate::quantity::Quantity;
use crate::semver::Semver;
use crate::time::Time;
use crate::url::Url;

/// The declaration of what is not declared.
static DYN: DeclType = DeclType::Dyn;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Str<'a>),
    Bytes(Arc<[u8]>),
    Timestamp(Time),
    /// Nanoseconds.
    Duration(i64),
    List(List<'a>),
    Map(Map<'a>),
    Type(Arc<str>),
    Optional(Option<Arc<Value<'a>>>),
    Opaque(Arc<Opaque>),
}

/// A string, borrowed or made.
#[derive(Debug, Clone)]
pub(crate) enum Str<'a> {
    Borrowed(&'a str),
    Owned(Arc<str>),
}

/// A list, borrowed or made.
#[derive(Debug, Clone)]
pub(crate) enum List<'a> {
    Json {
        items: &'a [Json],
        element: &'a DeclType,
        kind: &'a ListKind,
    },
    Owned(Arc<Vec<Value<'a>>>),
    /// The result of adding to a set or map list, which still compares like one.
    Merged {
        items: Arc<Vec<Value<'a>>>,
        kind: &'a ListKind,
    },
}

/// A map or object, borrowed or made.
#[derive(Debug, Clone)]
pub(crate) enum Map<'a> {
    Json {
        entries: &'a serde_json::Map<String, Json>,
        decl: MapDecl<'a>,
    },
    Owned(Arc<BTreeMap<Key, (Value<'a>, Value<'a>)>>),
}

/// What is known of a JSON object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MapDecl<'a> {
    /// All values are of this type.
    Values(&'a DeclType),
    /// Fields by JSON name.
    Fields(&'a BTreeMap<String, Arc<DeclType>>),
}

/// A key of a made map; numbers are equal across their types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    Str(String),
}

/// Values of the Kubernetes libraries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Opaque {
    Url(Url),
    Ip(Ip),
    Cidr(Cidr),
    Quantity(Quantity),
    Semver(Semver),
    /// A named format, by its function name without `format.`.
    Format(&'static str),
    Authorizer(Inquiry),
    PathCheck(Inquiry),
    GroupCheck(Inquiry),
    ResourceCheck(Inquiry),
    Decision(Verdict),
}

impl Str<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Str::Borrowed(s) => s,
            Str::Owned(s) => s,
        }
    }
}

impl<'a> Value<'a> {
    pub(crate) fn owned(text: impl Into<String>) -> Value<'a> {
        Value::Str(Str::Owned(Arc::from(text.into())))
    }

    pub(crate) fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Owned(Arc::new(items)))
    }

    pub(crate) fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn none() -> Value<'a> {
        Value::Optional(None)
    }

    pub(crate) fn opaque(value: Opaque) -> Value<'a> {
        Value::Opaque(Arc::new(value))
    }

    /// A JSON value seen through its declaration.
    pub(crate) fn from_json(json: &'a Json, decl: &'a DeclType) -> Result<Value<'a>, String> {
        match (decl, json) {
            (_, Json::Null) => Ok(Value::Null),
            (DeclType::Dyn, _) => Ok(Self::from_plain(json)),
            (DeclType::Null, _) => Err("invalid data, expected null".into()),
            (DeclType::Authorizer | DeclType::ResourceCheck, _) => {
                Err("invalid data, expected an authority".into())
            }
            (DeclType::Bool, Json::Bool(b)) => Ok(Value::Bool(*b)),
            (DeclType::Bool, _) => Err(format!(
                "invalid data, expected bool, got {}",
                go::type_name(json)
            )),
            (DeclType::Int, Json::Number(n)) => match n.as_i64() {
                Some(i) => Ok(Value::Int(i)),
                None => Err("invalid data, expected int, got float64".into()),
            },
            (DeclType::Int, _) => Err(format!("invalid data, expected int, got {}", go::type_name(json))),
            (DeclType::Uint, Json::Number(n)) => n
                .as_u64()
                .map(Value::Uint)
                .ok_or_else(|| "invalid data, expected uint".into()),
            (DeclType::Double, Json::Number(n)) => Ok(Value::Double(n.as_f64().unwrap_or(f64::NAN))),
            (DeclType::Uint | DeclType::Double, _) => Err(format!(
                "invalid data, expected float, got {}",
                go::type_name(json)
            )),
            (
                DeclType::String { .. } | DeclType::Bytes { .. } | DeclType::Timestamp | DeclType::Duration,
                Json::String(s),
            ) => Self::from_text(s, decl),
            (
                DeclType::String { .. } | DeclType::Bytes { .. } | DeclType::Timestamp | DeclType::Duration,
                _,
            ) => Err(format!(
                "invalid data, expected string, got {}",
                go::type_name(json)
            )),
            (DeclType::List { element, kind, .. }, Json::Array(items)) => {
                Ok(Value::List(List::Json { items, element, kind }))
            }
            (DeclType::List { .. }, _) => {
                Err("invalid data, expected an array for the provided schema with type=array".into())
            }
            (DeclType::Map { value, .. }, Json::Object(entries)) => Ok(Value::Map(Map::Json {
                entries,
                decl: MapDecl::Values(value),
            })),
            (DeclType::Object { fields, .. }, Json::Object(entries)) => Ok(Value::Map(Map::Json {
                entries,
                decl: MapDecl::Fields(fields),
            })),
            (DeclType::Map { .. } | DeclType::Object { .. }, _) => {
                Err("invalid data, expected a map for the provided schema with type=object".into())
            }
        }
    }

    fn from_text(text: &'a str, decl: &DeclType) -> Result<Value<'a>, String> {
        match decl {
            DeclType::Bytes { .. } => crate::base64::decode(text)
                .map(|b| Value::Bytes(Arc::from(b)))
                .ok_or_else(|| format!("Invalid byte formatted string {text}: illegal base64 data")),
            DeclType::Timestamp => Time::parse_schema(text)
                .map(Value::Timestamp)
                .ok_or_else(|| format!("Invalid date-time formatted string {text}")),
            DeclType::Duration => crate::time::parse_schema_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| format!("Invalid duration {text}")),
            _ => Ok(Value::Str(Str::Borrowed(text))),
        }
    }

    /// A JSON value without declaration.
    pub(crate) fn from_plain(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match n.as_i64() {
                Some(i) => Value::Int(i),
                None => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) => Value::Str(Str::Borrowed(s)),
            Json::Array(items) => Value::List(List::Json {
                items,
                element: &DYN,
                kind: &ListKind::Atomic,
            }),
            Json::Object(entries) => Value::Map(Map::Json {
                entries,
                decl: MapDecl::Values(&DYN),
            }),
        }
    }

    /// The name of the type, as `type()` and messages show it.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::Str(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Opaque(o) => o.type_name(),
        }
    }

    /// The size that costs are counted by.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Value::Str(s) => s.as_str().chars().count() as u64,
            Value::Bytes(b) => b.len() as u64,
            Value::List(l) => l.len() as u64,
            Value::Map(m) => m.len() as u64,
            Value::Optional(Some(v)) => v.cost_size(),
            Value::Opaque(o) => match &**o {
                Opaque::Ip(ip) => ip.bits() / 8,
                Opaque::Cidr(cidr) => u64::from(cidr.prefix).div_ceil(8),
                _ => 1,
            },
            _ => 1,
        }
    }

    /// The value as a map key.
    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Value::Bool(b) => Key::Bool(*b),
            Value::Int(i) => Key::Number(i128::from(*i)),
            Value::Uint(u) => Key::Number(i128::from(*u)),
            Value::Double(d) if d.trunc() == *d && d.abs() < 1e19 => Key::Number(*d as i128),
            Value::Str(s) => Key::Str(s.as_str().to_owned()),
            _ => return None,
        })
    }

    /// Whether this is what `optional.ofNonZeroValue` treats as nothing.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(b) => !b,
            Value::Int(i) => *i == 0,
            Value::Uint(u) => *u == 0,
            Value::Double(d) => *d == 0.0,
            Value::Str(s) => s.as_str().is_empty(),
            Value::Bytes(b) => b.is_empty(),
            Value::Duration(d) => *d == 0,
            Value::Timestamp(t) => t.is_zero(),
            Value::List(l) => l.len() == 0,
            Value::Map(m) => m.len() == 0,
            Value::Optional(o) => o.is_none(),
            _ => false,
        }
    }
}

impl Opaque {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Opaque::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Opaque::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Opaque::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Opaque::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            List::Json { items, .. } => items.len(),
            List::Owned(items) | List::Merged { items, .. } => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Result<Value<'a>, String>> {
        match self {
            List::Json { items, element, .. } => items.get(index).map(|j| Value::from_json(j, element)),
            List::Owned(items) | List::Merged { items, .. } => items.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, String>> + '_ {
        (0..self.len()).map_while(|i| self.get(i))
    }

    /// All elements.
    pub(crate) fn items(&self) -> Result<Vec<Value<'a>>, String> {
        self.iter().collect()
    }

    pub(crate) fn kind(&self) -> &'a ListKind {
        match self {
            List::Json { kind, .. } | List::Merged { kind, .. } => kind,
            List::Owned(_) => &ListKind::Atomic,
        }
    }
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Map::Json { entries, .. } => entries.len(),
            Map::Owned(entries) => entries.len(),
        }
    }

    /// Looks a key up; null fields of declared objects count as absent. `Err` is a failed conversion.
    pub(crate) fn get(&self, key: &Value<'_>) -> Option<Result<Value<'a>, String>> {
        match self {
            Map::Json { .. } => match key {
                Value::Str(s) => self.get_field(s.as_str(), None),
                _ => None,
            },
            Map::Owned(entries) => key
                .key()
                .and_then(|k| entries.get(&k))
                .map(|(_, v)| Ok(v.clone())),
        }
    }

    /// The same for a field; `json` is its JSON name where it is known.
    pub(crate) fn get_field(&self, field: &str, json: Option<&str>) -> Option<Result<Value<'a>, String>> {
        match self {
            Map::Json {
                entries,
                decl: MapDecl::Values(value),
            } => entries.get(field).map(|v| Value::from_json(v, value)),
            Map::Json {
                entries,
                decl: MapDecl::Fields(fields),
            } => {
                let found = match json {
                    Some(json) => fields.get_key_value(json),
                    None => fields.iter().find(|(n, _)| crate::escape::spells(field, n)),
                };
                let (name, decl) = found?;
                match entries.get(name)? {
                    Json::Null => None,
                    value => Some(Value::from_json(value, decl)),
                }
            }
            Map::Owned(entries) => entries
                .get(&Key::Str(field.to_owned()))
                .map(|(_, v)| Ok(v.clone())),
        }
    }

    /// All keys, as rules see them.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Json {
                entries,
                decl: MapDecl::Values(_),
            } => entries.keys().map(|k| Value::Str(Str::Borrowed(k))).collect(),
            Map::Json {
                entries,
                decl: MapDecl::Fields(fields),
            } => entries
                .iter()
                .filter(|(k, v)| !v.is_null() && fields.contains_key(*k))
                .map(|(k, _)| match crate::escape::escape(k) {
                    Some(escaped) if escaped != *k => Value::owned(escaped),
                    _ => Value::Str(Str::Borrowed(k)),
                })
                .collect(),
            Map::Owned(entries) => entries.values().map(|(k, _)| k.clone()).collect(),
        }
    }
}
