// SPDX-License-Identifier: Apache-2.0
//! Small reads and writes of object metadata, so that handlers say what they mean.

use serde_json::{Map, Value, json};

/// A string field of `metadata`, empty when absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The object's name.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The object's namespace.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// Whether deletion has begun.
pub(crate) fn deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// `metadata` for writing; created when absent. A non-object is replaced.
pub(crate) fn entry(object: &mut Value) -> &mut Map<String, Value> {
    fields(field(fields(object), "metadata"))
}

/// Sets a metadata field, or removes it when `value` is null.
pub(crate) fn set(object: &mut Value, key: &str, value: Value) {
    let meta = entry(object);
    if value.is_null() {
        meta.remove(key);
    } else {
        meta.insert(key.to_owned(), value);
    }
}

/// Copies metadata fields from one object to another; absent ones are removed.
pub(crate) fn copy(to: &mut Value, from: &Value, keys: &[&str]) {
    for key in keys {
        let value = from["metadata"].get(*key).cloned().unwrap_or(Value::Null);
        set(to, key, value);
    }
}

/// Replaces the finalizers; an empty list leaves none.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let value = if finalizers.is_empty() {
        Value::Null
    } else {
        json!(finalizers)
    };
    set(object, "finalizers", value);
}

/// A value as an object for writing; anything else is replaced by an empty one.
pub(crate) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// A field of a map for writing, created as null when absent.
pub(crate) fn field<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Value {
    map.entry(key).or_insert(Value::Null)
}

/// Moves `key` from one object to the other; absent on the one side means absent on the other.
pub(crate) fn take_field(to: &mut Value, from: &Value, key: &str) {
    let map = fields(to);
    match from.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// `group/version` of an apiVersion.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// apiVersion of a group and version.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}
