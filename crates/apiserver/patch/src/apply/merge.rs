// SPDX-License-Identifier: Apache-2.0
//! Merging a configuration into the live object, and taking owned paths out of one. Merging never
//! removes anything; elements of lists come in the configuration's order, the others keep their
//! place between their neighbours.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Shape, Ty};

/// Merges `config` into `live`, in place.
pub(crate) fn merge(live: &mut Value, config: &Value, ty: Ty<'_>) -> Result<(), String> {
    match ty.shape(config) {
        Shape::Map if !ty.map_is_atomic() => merge_map(live, config, ty),
        Shape::List if !ty.list_is_atomic() => merge_list(live, config, ty),
        _ => {
            live.clone_from(config);
            Ok(())
        }
    }
}

fn merge_map(live: &mut Value, config: &Value, ty: Ty<'_>) -> Result<(), String> {
    let empty = Map::new();
    let fields = config.as_object().unwrap_or(&empty);
    let target = match live {
        Value::Object(map) if !map.is_empty() || !fields.is_empty() => map,
        // Both sides empty, null or of another shape: a leaf, and the configuration's word counts.
        _ if fields.is_empty() => {
            live.clone_from(config);
            return Ok(());
        }
        _ => {
            *live = Value::Object(Map::new());
            match live {
                Value::Object(map) => map,
                _ => return Ok(()),
            }
        }
    };
    for (key, value) in fields {
        match target.get_mut(key) {
            Some(old) => merge(old, value, ty.child(key).0)?,
            None => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
    Ok(())
}

/// The elements of a list: their identities in order, and where each identity stands.
struct Index {
    identities: Vec<PathElement>,
    places: BTreeMap<PathElement, Vec<usize>>,
}

fn index(items: &[Value], ty: Ty<'_>) -> Result<Index, String> {
    let mut identities = Vec::with_capacity(items.len());
    let mut places: BTreeMap<PathElement, Vec<usize>> = BTreeMap::new();
    for (i, item) in items.iter().enumerate() {
        let identity = ty.identify(item).map_err(|e| format!("element {i}: {e}"))?;
        places.entry(identity.clone()).or_default().push(i);
        identities.push(identity);
    }
    Ok(Index { identities, places })
}

fn merge_list(live: &mut Value, config: &Value, ty: Ty<'_>) -> Result<(), String> {
    let right: &[Value] = config.as_array().map_or(&[], Vec::as_slice);
    let left = match live {
        Value::Array(items) if !items.is_empty() => items,
        _ => {
            live.clone_from(config);
            return Ok(());
        }
    };
    if right.is_empty() {
        return Ok(());
    }
    let Index {
        identities: right_ids,
        places: in_right,
    } = index(right, ty)?;
    let Index {
        identities: left_ids,
        places: in_left,
    } = index(left, ty)?;
    let mut source: Vec<Option<Value>> = std::mem::take(left).into_iter().map(Some).collect();
    let mut out: Vec<Value> = Vec::with_capacity(source.len().max(right.len()));
    let element = ty.element();

    // An element of the configuration merged with its live counterpart. Live duplicates cannot be
    // told apart, so none of them is merged with.
    let combined = |source: &mut Vec<Option<Value>>, at: usize| -> Result<Option<Value>, String> {
        let (Some(item), Some(identity)) = (right.get(at), right_ids.get(at)) else {
            return Ok(None);
        };
        let counterpart = match in_left.get(identity).map(Vec::as_slice) {
            Some([only]) => source.get_mut(*only).and_then(Option::take),
            _ => None,
        };
        match counterpart {
            Some(mut old) => {
                merge(&mut old, item, element)?;
                Ok(Some(old))
            }
            None => Ok(Some(item.clone())),
        }
    };

    let mut shared = right_ids.iter().filter(|id| in_left.contains_key(id));
    let mut next_shared = shared.next();
    let mut merged = vec![false; right_ids.len()];
    let (mut l, mut r) = (0, 0);
    while l < left_ids.len() || r < right_ids.len() {
        if let Some(identity) = left_ids.get(l) {
            let places = in_right.get(identity);
            if let Some(other) = right_ids.get(r) {
                if identity == other {
                    if let Some(flag) = merged.get_mut(r) {
                        *flag = true;
                    }
                    out.extend(combined(&mut source, r)?);
                    l += 1;
                    r += 1;
                    next_shared = shared.next();
                    continue;
                }
                if places.is_some() && next_shared.is_some_and(|next| next != identity) {
                    l += 1;
                    continue;
                }
            }
            match places {
                None => {
                    out.extend(source.get_mut(l).and_then(Option::take));
                    l += 1;
                    continue;
                }
                Some(places) if places.iter().any(|p| merged.get(*p) == Some(&true)) => l += 1,
                Some(_) => {}
            }
        }
        if let Some(identity) = right_ids.get(r) {
            if let Some(flag) = merged.get_mut(r) {
                *flag = true;
            }
            out.extend(combined(&mut source, r)?);
            r += 1;
            if next_shared == Some(identity) {
                next_shared = shared.next();
            }
        }
    }
    *left = out;
    Ok(())
}

/// Takes every path of `set` out of `value`. A container of which nothing is left is null: whether
/// that may be is for the schema to say.
pub(crate) fn remove(value: &mut Value, set: &FieldSet, ty: Ty<'_>) {
    let left = match (ty.shape(value), &mut *value) {
        (Shape::Map, Value::Object(map)) => {
            if ty.map_is_atomic() {
                map.clear();
            }
            map.retain(|key, inner| match set.field(key) {
                None => true,
                Some(node) if node.member => false,
                Some(node) => {
                    remove(inner, &node.below, ty.child(key).0);
                    true
                }
            });
            !map.is_empty()
        }
        (Shape::List, Value::Array(items)) => {
            if ty.list_is_atomic() {
                items.clear();
            }
            items.retain_mut(|item| {
                let Ok(identity) = ty.identify(item) else {
                    return true;
                };
                match set.node(&identity) {
                    None => true,
                    Some(node) if node.member => false,
                    Some(node) => {
                        remove(item, &node.below, ty.element());
                        true
                    }
                }
            });
            !items.is_empty()
        }
        _ => true,
    };
    if !left {
        *value = Value::Null;
    }
}
