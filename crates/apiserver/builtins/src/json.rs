// SPDX-License-Identifier: Apache-2.0
//! Short ways into JSON trees by dotted paths of field names. Reading never fails, it just finds
//! nothing; writing creates the objects in between only where the name says so.

use serde_json::{Map, Value};

/// The value at a dotted path; an empty path is the value itself. `null` counts as absent.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut current = value;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        current = current.as_object()?.get(name)?;
    }
    if current.is_null() { None } else { Some(current) }
}

/// The string at a path, empty when absent.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path.
pub(crate) fn int(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The integer at a path, zero when absent.
pub(crate) fn number(value: &Value, path: &str) -> i64 {
    int(value, path).unwrap_or(0)
}

/// The boolean at a path, false when absent.
pub(crate) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a path, empty when absent.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The object at a path.
pub(crate) fn map<'a>(value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    at(value, path).and_then(Value::as_object)
}

/// Entries of the object at a path.
pub(crate) fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map(value, path).into_iter().flatten()
}

/// The strings of the list at a path.
pub(crate) fn strings<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    list(value, path).iter().filter_map(Value::as_str).collect()
}

/// The value at a path for writing, if it is there.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut current = value;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        current = current.as_object_mut()?.get_mut(name)?;
    }
    if current.is_null() { None } else { Some(current) }
}

/// The object at a path for writing, if it is there.
pub(crate) fn map_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    at_mut(value, path).and_then(Value::as_object_mut)
}

/// The list at a path for writing, empty when absent.
pub(crate) fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    match at_mut(value, path).and_then(Value::as_array_mut) {
        Some(items) => items.as_mut_slice(),
        None => &mut [],
    }
}

/// The object at a path for writing, created together with its parents. What is in the way and no
/// object is replaced.
pub(crate) fn ensure<'a>(value: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let mut current = as_map(value);
    for name in path.split('.').filter(|name| !name.is_empty()) {
        current = as_map(current.entry(name).or_insert(Value::Null));
    }
    current
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Puts a value in when the field is absent.
pub(crate) fn default(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value.into());
    }
}

/// Puts a string in when the field is absent or empty (strings that are no pointers).
pub(crate) fn default_text(map: &mut Map<String, Value>, name: &str, value: &str) {
    if map
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty()
    {
        map.insert(name.to_owned(), Value::from(value));
    }
}

/// Whether two values are the same, taking absent, `null`, empty lists and empty objects for equal.
pub(crate) fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left.filter(|v| !is_nothing(v)), right.filter(|v| !is_nothing(v))) {
        (None, None) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(key, value)| same(Some(value), b.get(key)))
                && b.iter()
                    .all(|(key, value)| a.contains_key(key) || is_nothing(value))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(Some(x), Some(y)))
        }
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Takes a top-level field over from another object: copied, or removed when it is not there.
pub(crate) fn take_over(target: &mut Value, source: &Value, name: &str) {
    if let Some(map) = target.as_object_mut() {
        match source.get(name) {
            Some(value) => map.insert(name.to_owned(), value.clone()),
            None => map.remove(name),
        };
    }
}

/// Same for a field of metadata.
pub(crate) fn take_over_metadata(target: &mut Value, source: &Value, name: &str) {
    let value = at(source, "metadata")
        .and_then(|metadata| metadata.get(name))
        .cloned();
    let metadata = ensure(target, "metadata");
    match value {
        Some(value) => metadata.insert(name.to_owned(), value),
        None => metadata.remove(name),
    };
}
