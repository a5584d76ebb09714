// SPDX-License-Identifier: Apache-2.0
//! Operators on values: arithmetic with overflow checks, ordering across number types, and
//! equality with the set and map semantics of declared lists.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::decl::ListKind;
use crate::eval::{Fail, Machine, R, no_overload};
use crate::value::{Key, List, Map, MapDecl, Value};

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
const DURATION_OVERFLOW: &str = "duration overflow";
const TIMESTAMP_OVERFLOW: &str = "timestamp overflow";

fn or<T>(value: Option<T>, message: &str) -> R<T> {
    value.ok_or_else(|| Fail::error(message))
}

/// `+` on anything but lists, which the machine handles.
pub(crate) fn add<'a>(a: &Value<'a>, b: &Value<'a>) -> R<Value<'a>> {
    Ok(match (a, b) {
        (Value::Int(x), Value::Int(y)) => Value::Int(or(x.checked_add(*y), INT_OVERFLOW)?),
        (Value::Uint(x), Value::Uint(y)) => Value::Uint(or(x.checked_add(*y), UINT_OVERFLOW)?),
        (Value::Double(x), Value::Double(y)) => Value::Double(x + y),
        (Value::Str(x), Value::Str(y)) => Value::owned([x.as_str(), y.as_str()].concat()),
        (Value::Bytes(x), Value::Bytes(y)) => Value::Bytes([&**x, &**y].concat().into()),
        (Value::Duration(x), Value::Duration(y)) => {
            Value::Duration(or(x.checked_add(*y), DURATION_OVERFLOW)?)
        }
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => {
            Value::Timestamp(or(t.add(i128::from(*d)), TIMESTAMP_OVERFLOW)?)
        }
        _ => return Err(no_overload()),
    })
}

/// `-`.
pub(crate) fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> R<Value<'a>> {
    Ok(match (a, b) {
        (Value::Int(x), Value::Int(y)) => Value::Int(or(x.checked_sub(*y), INT_OVERFLOW)?),
        (Value::Uint(x), Value::Uint(y)) => Value::Uint(or(x.checked_sub(*y), UINT_OVERFLOW)?),
        (Value::Double(x), Value::Double(y)) => Value::Double(x - y),
        (Value::Duration(x), Value::Duration(y)) => {
            Value::Duration(or(x.checked_sub(*y), DURATION_OVERFLOW)?)
        }
        (Value::Timestamp(t), Value::Duration(d)) => {
            Value::Timestamp(or(t.add(-i128::from(*d)), TIMESTAMP_OVERFLOW)?)
        }
        (Value::Timestamp(x), Value::Timestamp(y)) => Value::Duration(or(x.since(*y), DURATION_OVERFLOW)?),
        _ => return Err(no_overload()),
    })
}

/// `*`.
pub(crate) fn multiply<'a>(a: &Value<'a>, b: &Value<'a>) -> R<Value<'a>> {
    Ok(match (a, b) {
        (Value::Int(x), Value::Int(y)) => Value::Int(or(x.checked_mul(*y), INT_OVERFLOW)?),
        (Value::Uint(x), Value::Uint(y)) => Value::Uint(or(x.checked_mul(*y), UINT_OVERFLOW)?),
        (Value::Double(x), Value::Double(y)) => Value::Double(x * y),
        _ => return Err(no_overload()),
    })
}

/// `/`.
pub(crate) fn divide<'a>(a: &Value<'a>, b: &Value<'a>) -> R<Value<'a>> {
    Ok(match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Fail::error("division by zero"));
        }
        (Value::Int(x), Value::Int(y)) => Value::Int(or(x.checked_div(*y), INT_OVERFLOW)?),
        (Value::Uint(x), Value::Uint(y)) => Value::Uint(x / y),
        (Value::Double(x), Value::Double(y)) => Value::Double(x / y),
        _ => return Err(no_overload()),
    })
}

/// `%`.
pub(crate) fn modulo<'a>(a: &Value<'a>, b: &Value<'a>) -> R<Value<'a>> {
    Ok(match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Fail::error("modulus by zero"));
        }
        (Value::Int(x), Value::Int(y)) => Value::Int(or(x.checked_rem(*y), INT_OVERFLOW)?),
        (Value::Uint(x), Value::Uint(y)) => Value::Uint(x % y),
        _ => return Err(no_overload()),
    })
}

/// Unary `-`.
pub(crate) fn negate<'a>(a: &Value<'a>) -> R<Value<'a>> {
    Ok(match a {
        Value::Int(x) => Value::Int(or(x.checked_neg(), INT_OVERFLOW)?),
        Value::Double(x) => Value::Double(-x),
        _ => return Err(no_overload()),
    })
}

/// Orders two values; numbers compare across their types.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> R<Ordering> {
    Ok(match (a, b) {
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Int(x), Value::Int(y)) | (Value::Duration(x), Value::Duration(y)) => x.cmp(y),
        (Value::Uint(x), Value::Uint(y)) => x.cmp(y),
        (Value::Str(x), Value::Str(y)) => x.as_str().cmp(y.as_str()),
        (Value::Bytes(x), Value::Bytes(y)) => x.cmp(y),
        (Value::Timestamp(x), Value::Timestamp(y)) => x.order(*y),
        _ => match numbers(a, b) {
            Numbers::Ordered(order) => order,
            Numbers::NotANumber => return Err(Fail::error("NaN values cannot be ordered")),
            Numbers::Other => return Err(no_overload()),
        },
    })
}

/// How two values compare as numbers.
enum Numbers {
    Ordered(Ordering),
    NotANumber,
    Other,
}

fn numbers(a: &Value<'_>, b: &Value<'_>) -> Numbers {
    let whole = |v: &Value<'_>| match v {
        Value::Int(i) => Some(i128::from(*i)),
        Value::Uint(u) => Some(i128::from(*u)),
        _ => None,
    };
    let order = match (a, b) {
        (Value::Double(x), Value::Double(y)) => x.partial_cmp(y),
        (Value::Double(x), other) => match whole(other) {
            Some(n) => double_order(*x, n),
            None => return Numbers::Other,
        },
        (other, Value::Double(y)) => match whole(other) {
            Some(n) => double_order(*y, n).map(Ordering::reverse),
            None => return Numbers::Other,
        },
        _ => match (whole(a), whole(b)) {
            (Some(x), Some(y)) => Some(x.cmp(&y)),
            _ => return Numbers::Other,
        },
    };
    order.map_or(Numbers::NotANumber, Numbers::Ordered)
}

/// Orders a double against a whole number without losing precision.
fn double_order(d: f64, n: i128) -> Option<Ordering> {
    if d.is_nan() {
        return None;
    }
    if d >= 1e30 {
        return Some(Ordering::Greater);
    }
    if d <= -1e30 {
        return Some(Ordering::Less);
    }
    let truncated = d.trunc();
    Some(match (truncated as i128).cmp(&n) {
        Ordering::Equal if d > truncated => Ordering::Greater,
        Ordering::Equal if d < truncated => Ordering::Less,
        order => order,
    })
}

impl<'a> Machine<'a> {
    /// `==`.
    pub(crate) fn equal(&mut self, a: &Value<'a>, b: &Value<'a>) -> R<bool> {
        self.work(1)?;
        Ok(match (a, b) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(x), Value::Bool(y)) => x == y,
            (Value::Int(x), Value::Int(y)) | (Value::Duration(x), Value::Duration(y)) => x == y,
            (Value::Str(x), Value::Str(y)) => {
                self.work((x.as_str().len() / 64) as u64)?;
                x.as_str() == y.as_str()
            }
            (Value::Bytes(x), Value::Bytes(y)) => x == y,
            (Value::Timestamp(x), Value::Timestamp(y)) => x == y,
            (Value::Type(x), Value::Type(y)) => x == y,
            (Value::Opaque(x), Value::Opaque(y)) => x == y,
            (Value::Optional(x), Value::Optional(y)) => match (x, y) {
                (None, None) => true,
                (Some(x), Some(y)) => self.equal(x, y)?,
                _ => false,
            },
            (Value::List(x), Value::List(y)) => self.equal_lists(x, y)?,
            (Value::Map(x), Value::Map(y)) => self.equal_maps(x, y)?,
            _ => matches!(numbers(a, b), Numbers::Ordered(Ordering::Equal)),
        })
    }

    fn equal_lists(&mut self, a: &List<'a>, b: &List<'a>) -> R<bool> {
        if a.len() != b.len() {
            return Ok(false);
        }
        match a.kind() {
            ListKind::Atomic => {
                for (x, y) in a.iter().zip(b.iter()) {
                    if !self.equal(&x?, &y?)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListKind::Set => self.contains_all(b, a),
            ListKind::Map(keys) => self.equal_by_key(a, b, keys),
        }
    }

    /// Whether every element of `needles` is in `hay`.
    pub(crate) fn contains_all(&mut self, needles: &List<'a>, hay: &List<'a>) -> R<bool> {
        let hay = hay.items()?;
        let index = self.keys_of(&hay)?;
        for needle in needles.iter() {
            let needle = needle?;
            if !self.among(&needle, &hay, &index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Scalars by key, so that large sets are not compared pair by pair.
    pub(crate) fn keys_of(&mut self, items: &[Value<'a>]) -> R<std::collections::BTreeSet<Key>> {
        self.work(items.len() as u64)?;
        Ok(items.iter().filter_map(Value::key).collect())
    }

    /// Whether a value is one of the indexed ones.
    pub(crate) fn among(
        &mut self,
        needle: &Value<'a>,
        items: &[Value<'a>],
        index: &std::collections::BTreeSet<Key>,
    ) -> R<bool> {
        if let Some(key) = needle.key() {
            self.work(1)?;
            return Ok(index.contains(&key));
        }
        for item in items {
            if self.equal(item, needle)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn equal_by_key(&mut self, a: &List<'a>, b: &List<'a>, keys: &[String]) -> R<bool> {
        let mut by_key = BTreeMap::new();
        for x in a.iter() {
            let x = x?;
            by_key.insert(list_key(&x, keys)?, x);
        }
        let mut seen = 0_usize;
        for y in b.iter() {
            let y = y?;
            let Some(x) = by_key.remove(&list_key(&y, keys)?) else {
                return Ok(false);
            };
            seen += 1;
            if !self.equal(&x, &y)? {
                return Ok(false);
            }
        }
        Ok(by_key.is_empty() && seen == b.len())
    }

    fn equal_maps(&mut self, a: &Map<'a>, b: &Map<'a>) -> R<bool> {
        if a.len() != b.len() {
            return Ok(false);
        }
        if let (
            Map::Json {
                entries: x,
                decl: MapDecl::Fields(fields),
            },
            Map::Json {
                entries: y,
                decl: MapDecl::Fields(_),
            },
        ) = (a, b)
        {
            return self.equal_objects(x, y, fields);
        }
        for key in a.keys() {
            let (Some(x), Some(y)) = (a.get(&key), b.get(&key)) else {
                return Ok(false);
            };
            if !self.equal(&x?, &y?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Declared fields by their type; what is preserved without a type, as JSON.
    fn equal_objects(
        &mut self,
        x: &'a serde_json::Map<String, serde_json::Value>,
        y: &'a serde_json::Map<String, serde_json::Value>,
        fields: &'a BTreeMap<String, std::sync::Arc<crate::decl::DeclType>>,
    ) -> R<bool> {
        for (name, xv) in x {
            let Some(yv) = y.get(name) else { return Ok(false) };
            let same = match fields.get(name) {
                Some(decl) => {
                    let (a, b) = (Value::from_json(xv, decl)?, Value::from_json(yv, decl)?);
                    self.equal(&a, &b)?
                }
                None => xv == yv,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `+` on lists; sets and maps are merged.
    pub(crate) fn concat(&mut self, a: &List<'a>, b: &List<'a>) -> R<Value<'a>> {
        let mut items = a.items()?;
        self.work((a.len() + b.len()) as u64)?;
        match a.kind() {
            ListKind::Atomic => items.extend(b.items()?),
            ListKind::Set => {
                let mut index = self.keys_of(&items)?;
                for y in b.iter() {
                    let y = y?;
                    if !self.among(&y, &items, &index)? {
                        index.extend(y.key());
                        items.push(y);
                    }
                }
            }
            ListKind::Map(keys) => {
                let mut places = BTreeMap::new();
                for (i, x) in items.iter().enumerate() {
                    places.insert(list_key(x, keys)?, i);
                }
                for y in b.iter() {
                    let y = y?;
                    let key = list_key(&y, keys)?;
                    if let Some(place) = places.get(&key).and_then(|i| items.get_mut(*i)) {
                        *place = y;
                    } else {
                        places.insert(key, items.len());
                        items.push(y);
                    }
                }
            }
        }
        Ok(match a.kind() {
            ListKind::Atomic => Value::list(items),
            kind => Value::List(List::Merged {
                items: std::sync::Arc::new(items),
                kind,
            }),
        })
    }
}

/// The key fields of an element of a map list.
fn list_key(element: &Value<'_>, keys: &[String]) -> R<Vec<Option<Key>>> {
    let Value::Map(map) = element else {
        return Err(Fail::error(
            "unexpected data format for element of array with x-kubernetes-list-type=map",
        ));
    };
    keys.iter()
        .map(|k| match map.get_field(k, Some(k)) {
            Some(value) => Ok(value?.key()),
            None => Ok(None),
        })
        .collect()
}
