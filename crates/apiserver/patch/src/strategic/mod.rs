// SPDX-License-Identifier: Apache-2.0
//! Strategic merge patch: a merge patch that merges lists by key where the schema says so, steered
//! by directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`).
//! For built-in kinds only; whether a kind takes it is the caller's decision.

mod lists;

use std::collections::BTreeSet;

use cobaltcore_schema::Schema;
use cobaltcore_text::go;
use serde_json::{Map, Value};

use crate::error::PatchError;

pub(crate) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Applies `patch` to `object`, guided by the kind's schema. On error the object is unchanged.
pub fn strategic_merge_patch(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Value::Object(original), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::BadRequest("invalid JSON document".to_owned()));
    };
    merge_map(original.clone(), patch.clone(), Some(schema)).map(Value::Object)
}

/// How the list or map in a field merges.
#[derive(Clone, Copy, Default)]
pub(crate) struct Strategy<'a> {
    merge: bool,
    replace: bool,
    pub(crate) merge_key: Option<&'a str>,
}

fn strategy(schema: Option<&Schema>) -> Strategy<'_> {
    schema.map_or_else(Strategy::default, |s| Strategy {
        merge: s.patch.merge,
        replace: s.patch.replace,
        merge_key: s.patch.merge_key.as_deref(),
    })
}

pub(crate) fn no_merge_key(map: &Map<String, Value>, key: &str) -> PatchError {
    PatchError::Strategic(format!(
        "map: {} does not contain declared merge key: {key}",
        go::plain(&Value::Object(map.clone()))
    ))
}

pub(crate) fn bad_type(expected: &str, actual: &Value) -> PatchError {
    PatchError::Strategic(format!(
        "expected a {expected}, but received a {}",
        go::type_name(actual)
    ))
}

/// An order for a list the type does not have.
fn no_such_field(schema: &Schema, field: &str) -> PatchError {
    let definition = schema.definition.as_deref().unwrap_or_default();
    let name = definition.rsplit('.').next().unwrap_or_default();
    PatchError::Strategic(format!(
        "unable to find api field in struct {name} for the json field {}",
        go::quote(field)
    ))
}

fn bad_format(what: &str) -> PatchError {
    PatchError::BadRequest(format!("invalid patch format of {what}"))
}

/// Merges one map. `$patch` decides first, then `$retainKeys`, then ordered lists, then the rest.
pub(crate) fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        if let Some(rest) = key.strip_prefix(DELETE_FROM) {
            let field = rest
                .strip_prefix('/')
                .ok_or_else(|| bad_format("primitive list"))?;
            delete_from_list(&mut original, field, &value)?;
        } else {
            merge_field(&mut original, key, value, schema)?;
        }
    }
    Ok(original)
}

/// A directive that means nothing, where one would have been followed.
pub(crate) fn unknown_directive(directive: Value, mut map: Map<String, Value>) -> PatchError {
    let kind = go::plain(&directive);
    map.insert(PATCH.to_owned(), directive);
    PatchError::Strategic(format!(
        "unknown patch type: {kind} in map: {}",
        go::plain(&Value::Object(map))
    ))
}

fn merge_field(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let child = schema.and_then(|s| s.child(&key));
    let how = strategy(child);
    let merged = match (original.get_mut(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            if how.replace {
                Value::Object(new)
            } else {
                Value::Object(merge_map(std::mem::take(old), new, child)?)
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            if how.merge {
                let element = child.and_then(Schema::element);
                Value::Array(lists::merge(std::mem::take(old), new, how, element)?)
            } else {
                Value::Array(new)
            }
        }
        (_, new) => {
            let Some(clean) = cleaned(new) else {
                original.remove(&key);
                return Ok(());
            };
            clean
        }
    };
    original.insert(key, merged);
    Ok(())
}

/// A value that meets nothing to merge with: nulls mean nothing there, and directives about lists and
/// keys are fields nobody knows. `None` for a map that is itself a directive.
pub(crate) fn cleaned(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(clean_map(map))),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(cleaned).collect())),
        other => Some(other),
    }
}

/// A value whose nulls, at any depth, are not there.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let present = map.into_iter().filter(|(_, value)| !value.is_null());
            present.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

pub(crate) fn clean_map(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(_, value)| !value.is_null())
        .filter_map(|(key, value)| Some((key, cleaned(value)?)))
        .collect()
}

fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = directive else {
        return Err(bad_format("retainKeys"));
    };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let unlisted = patch.iter().any(|(key, value)| {
        !value.is_null()
            && !key.starts_with(DELETE_FROM)
            && !key.starts_with(SET_ORDER)
            && !keys.contains(key.as_str())
    });
    if unlisted {
        return Err(bad_format("retainKeys"));
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

fn delete_from_list(original: &mut Map<String, Value>, field: &str, gone: &Value) -> Result<(), PatchError> {
    match (original.get_mut(field), gone) {
        (Some(Value::Array(items)), Value::Array(gone)) => {
            if !items.is_empty() || !gone.is_empty() {
                lists::check_elements(items, gone)?;
            }
            let gone: BTreeSet<String> = gone.iter().map(Value::to_string).collect();
            items.retain(|item| !gone.contains(&item.to_string()));
        }
        (_, Value::Null) => {
            original.remove(field);
        }
        _ => {}
    }
    Ok(())
}

/// Handles every `$setElementOrder/<field>` together with the list it orders.
fn merge_ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => return Err(bad_type("[]interface {}", &other)),
            None => continue,
        };
        let field = directive
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| bad_format("setElementOrder list"))?;
        let old = match original.get(field) {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        let new = match patch.remove(field) {
            None => None,
            Some(Value::Array(items)) => Some(items),
            Some(other) => return Err(bad_type("[]interface {}", &other)),
        };
        let child = schema.and_then(|s| s.child(field));
        if let (Some(schema), None) = (schema, child) {
            return Err(no_such_field(schema, field));
        }
        let how = strategy(child);
        lists::check_order(new.as_deref().unwrap_or_default(), &order, how.merge_key)?;
        let server_order = match (&old, &new, how.merge_key) {
            (Some(old), Some(new), Some(key)) if how.merge => lists::order_after_deletes(old, new, key),
            _ => old.clone().unwrap_or_default(),
        };
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(cleaned).collect(),
            (Some(old), Some(new)) if how.merge => {
                lists::merge(old, new, how, child.and_then(Schema::element))?
            }
            (Some(_), Some(new)) => new,
        };
        let ordered = lists::order(merged, &order, &server_order, how.merge_key)?;
        original.insert(field.to_owned(), Value::Array(ordered));
    }
    Ok(())
}
