// SPDX-License-Identifier: Apache-2.0
//! Lists of a strategic merge patch: merging by key, and the order of the result. Elements of the
//! patch come in the patch's order, the others keep their order and stand before the first element
//! that followed them in the live list.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_schema::Schema;
use cobaltcore_text::go;
use serde_json::{Map, Value};

use super::{PATCH, Strategy, bad_type, merge_map, no_merge_key, unknown_directive, without_nulls};
use crate::error::PatchError;

/// What identifies an element: the merge key's value, or the element itself.
fn identity(item: &Value, merge_key: Option<&str>) -> String {
    match merge_key {
        None => item.to_string(),
        Some(key) => item.get(key).unwrap_or(&Value::Null).to_string(),
    }
}

fn positions(items: &[Value], merge_key: Option<&str>) -> BTreeMap<String, usize> {
    let mut positions = BTreeMap::new();
    for (i, item) in items.iter().enumerate() {
        positions.entry(identity(item, merge_key)).or_insert(i);
    }
    positions
}

/// Elements must all be of one type, and no lists. Says whether they are maps.
pub(super) fn check_elements(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(PatchError::Strategic(
            "no elements in any of the given slices".to_owned(),
        ));
    };
    if first.is_array() {
        return Err(PatchError::Unprocessable(
            "lists of lists are not supported".to_owned(),
        ));
    }
    let kind = go::type_name(first);
    if first.is_null() || items.any(|item| go::type_name(item) != kind) {
        let (a, b) = (Value::Array(original.to_vec()), Value::Array(patch.to_vec()));
        return Err(PatchError::Strategic(format!(
            "list element types are not identical: [{} {}]",
            go::plain(&a),
            go::plain(&b)
        )));
    }
    Ok(first.is_object())
}

/// Merges two lists whose strategy is `merge`.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    how: Strategy<'_>,
    element: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !check_elements(&original, &patch)? {
        let mut seen = BTreeSet::new();
        let both = original.iter().chain(&patch);
        let merged = both
            .filter(|item| seen.insert(item.to_string()))
            .cloned()
            .collect();
        return order(merged, &patch, &original, None);
    }
    let Some(key) = how.merge_key else {
        let name = element.and_then(|e| e.definition.as_deref()).unwrap_or_default();
        return Err(PatchError::Strategic(format!(
            "cannot merge lists without merge key for {name}"
        )));
    };
    let (original, patch) = apply_directives(original, patch, key)?;
    let patch_order: Vec<Value> = patch.iter().map(|item| only_key(item, key)).collect();
    let server_order: Vec<Value> = original.iter().map(|item| only_key(item, key)).collect();
    let merged = merge_elements(original, patch, key, element)?;
    order(merged, &patch_order, &server_order, Some(key))
}

/// An element reduced to what identifies it; enough to order by.
fn only_key(item: &Value, key: &str) -> Value {
    let mut map = Map::new();
    if let Some(value) = item.get(key) {
        map.insert(key.to_owned(), value.clone());
    }
    Value::Object(map)
}

/// Carries out `$patch: delete` and `$patch: replace` elements and takes them out of the patch.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for mut item in patch {
        let Some(map) = item.as_object_mut() else {
            return Err(bad_type("map[string]interface {}", &item));
        };
        let Some(directive) = map.remove(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(value) = map.get(key) else {
                    map.insert(PATCH.to_owned(), Value::from("delete"));
                    return Err(no_merge_key(map, key));
                };
                gone.insert(value.to_string());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(PatchError::Strategic(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => return Err(unknown_directive(directive, std::mem::take(map))),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    if !gone.is_empty() {
        original.retain(|item| {
            !item
                .get(key)
                .is_some_and(|value| gone.contains(&value.to_string()))
        });
    }
    Ok((original, plain))
}

fn merge_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    element: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    let mut known = positions(&original, Some(key));
    for item in patch {
        let Value::Object(new) = item else {
            return Err(bad_type("map[string]interface {}", &item));
        };
        let Some(value) = new.get(key) else {
            return Err(no_merge_key(&new, key));
        };
        let value = value.to_string();
        let old = known
            .get(&value)
            .and_then(|at| original.get_mut(*at))
            .and_then(Value::as_object_mut);
        if let Some(old) = old {
            *old = merge_map(std::mem::take(old), new, element)?;
        } else {
            known.insert(value, original.len());
            // What is new among others is taken as it is, its directives too.
            original.push(without_nulls(Value::Object(new)));
        }
    }
    Ok(original)
}

/// The list in its final order: what `wanted` names in that order, the rest as in `server`.
pub(super) fn order(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = merge_key {
        for item in merged.iter().chain(wanted) {
            match item {
                Value::Object(map) if map.contains_key(key) => {}
                Value::Object(map) => return Err(no_merge_key(map, key)),
                other => return Err(bad_type("map[string]interface {}", other)),
            }
        }
    }
    let wanted = positions(wanted, merge_key);
    let server = positions(server, merge_key);
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(usize, Option<usize>, Value)> = Vec::new();
    for item in merged {
        let id = identity(&item, merge_key);
        let place = server.get(&id).copied();
        match wanted.get(&id) {
            Some(at) => named.push((*at, place, item)),
            None => others.push((place.unwrap_or(usize::MAX), place, item)),
        }
    }
    named.sort_by_key(|(at, _, _)| *at);
    others.sort_by_key(|(at, _, _)| *at);

    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return Ok(result),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((_, a, _)), Some((_, b, _))) => matches!((a, b), (Some(a), Some(b)) if a < b),
        };
        let next = if other_first { others.next() } else { named.next() };
        result.extend(next.map(|(_, _, item)| item));
    }
}

/// The live order an ordered merge goes by. Places freed by `$patch: delete` are taken by new
/// elements, in the order of the patch: the reference works on one array, and clients see the result.
pub(super) fn order_after_deletes(original: &[Value], patch: &[Value], key: &str) -> Vec<Value> {
    let is_delete = |item: &&Value| item.get(PATCH).and_then(Value::as_str) == Some("delete");
    let gone: BTreeSet<String> = patch
        .iter()
        .filter(is_delete)
        .map(|item| identity(item, Some(key)))
        .collect();
    let mut order: Vec<Value> = original
        .iter()
        .filter(|item| !gone.contains(&identity(item, Some(key))))
        .map(|item| only_key(item, key))
        .collect();
    let freed = original.len() - order.len();
    let known = positions(&order, Some(key));
    let new = patch.iter().filter(|item| {
        item.get(PATCH).is_none()
            && item.get(key).is_some()
            && !known.contains_key(&identity(item, Some(key)))
    });
    order.extend(new.take(freed).map(|item| only_key(item, key)));
    order
}

/// The patch's elements must all be in the order list, in the same order.
pub(super) fn check_order(
    patch: &[Value],
    wanted: &[Value],
    merge_key: Option<&str>,
) -> Result<(), PatchError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut pending = patch.iter().filter(|item| item.get(PATCH).is_none()).peekable();
    for entry in wanted {
        let Some(item) = pending.peek() else { break };
        if let Some(key) = merge_key {
            for map in [*item, entry] {
                match map {
                    Value::Object(map) if map.contains_key(key) => {}
                    Value::Object(map) => return Err(no_merge_key(map, key)),
                    other => return Err(bad_type("map[string]interface {}", other)),
                }
            }
        }
        if identity(item, merge_key) == identity(entry, merge_key) {
            pending.next();
        }
    }
    if pending.peek().is_none() {
        return Ok(());
    }
    Err(PatchError::Strategic(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go::plain(&Value::Array(patch.to_vec())),
        go::plain(&Value::Array(wanted.to_vec()))
    )))
}
