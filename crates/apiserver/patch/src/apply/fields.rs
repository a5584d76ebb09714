// SPDX-License-Identifier: Apache-2.0
//! The field set of an object: every leaf it mentions, plus list elements, map keys and empty or
//! null containers themselves.

use serde_json::Value;

use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Shape, Ty};

/// The field set of a whole object.
pub(crate) fn field_set(value: &Value, ty: Ty<'_>) -> FieldSet {
    walk(value, ty).1
}

/// Whether the node itself is a leaf of the set, and what is below it.
fn walk(value: &Value, ty: Ty<'_>) -> (bool, FieldSet) {
    match (ty.shape(value), value) {
        (Shape::Scalar, _) => (true, FieldSet::new()),
        (Shape::Map, _) if ty.map_is_atomic() => (true, FieldSet::new()),
        (Shape::List, _) if ty.list_is_atomic() => (true, FieldSet::new()),
        (Shape::Map, Value::Object(map)) => {
            let mut set = FieldSet::new();
            for (key, value) in map {
                if ty.is_skipped(key) {
                    continue;
                }
                let (child, named) = ty.child(key);
                let (leaf, below) = walk(value, child);
                let hollow = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                set.put(PathElement::field(key), leaf || hollow || !named, below);
            }
            (false, set)
        }
        (Shape::List, Value::Array(items)) => (false, list(items, ty)),
        _ => (false, FieldSet::new()),
    }
}

/// Elements that occur twice are owned by their key alone: nobody can tell them apart.
fn list(items: &[Value], ty: Ty<'_>) -> FieldSet {
    let mut elements: Vec<(PathElement, &Value)> = items
        .iter()
        .filter_map(|item| Some((ty.identify(item).ok()?, item)))
        .collect();
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let element = ty.element();
    let mut set = FieldSet::new();
    let mut rest = elements.into_iter().peekable();
    while let Some((identity, item)) = rest.next() {
        let mut twice = false;
        while rest.next_if(|(next, _)| *next == identity).is_some() {
            twice = true;
        }
        let below = if twice {
            FieldSet::new()
        } else {
            walk(item, element).1
        };
        set.put(identity, true, below);
    }
    set
}
