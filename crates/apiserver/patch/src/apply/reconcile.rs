// SPDX-License-Identifier: Apache-2.0
//! Entries written under an older schema: where a list or map has since become atomic, whoever
//! owned anything in it now owns the whole. The opposite change needs nothing.

use serde_json::Value;

use super::path::PathElement;
use super::set::FieldSet;
use super::types::Ty;

/// Whether an encoded set owns something inside of what is now atomic.
pub(crate) fn is_outdated(encoded: &Value, ty: Ty<'_>) -> bool {
    let Value::Object(map) = encoded else { return false };
    map.iter().any(|(key, inner)| {
        let Value::Object(fields) = inner else {
            return false;
        };
        if fields.is_empty() || (fields.len() == 1 && fields.contains_key(".")) {
            return false;
        }
        match step(key, ty) {
            Some(child) => {
                is_atomic(child, fields.keys().any(|k| k.starts_with("f:"))) || is_outdated(inner, child)
            }
            None => false,
        }
    })
}

fn step<'a>(key: &str, ty: Ty<'a>) -> Option<Ty<'a>> {
    match key.get(..2)? {
        "f:" => {
            let name = key.get(2..)?;
            ty.field(name).or_else(|| ty.map_value())
        }
        "k:" | "v:" | "i:" => Some(ty.element()),
        _ => None,
    }
}

fn is_atomic(ty: Ty<'_>, holds_fields: bool) -> bool {
    if holds_fields {
        !ty.is_untyped_map() && ty.map_is_atomic()
    } else {
        ty.is_list() && ty.list_is_atomic()
    }
}

/// The set under the present schema.
pub(crate) fn reconcile(set: &FieldSet, ty: Ty<'_>) -> FieldSet {
    let mut result = FieldSet::new();
    for node in set.nodes() {
        let child = match &node.element {
            PathElement::Field(name) => ty.field(name).or_else(|| ty.map_value()),
            _ => Some(ty.element()),
        };
        let Some(child) = child else {
            result.put(node.element.clone(), node.member, node.below.clone());
            continue;
        };
        let holds_fields = node
            .below
            .nodes()
            .iter()
            .any(|n| matches!(n.element, PathElement::Field(_)));
        if !node.below.is_empty() && is_atomic(child, holds_fields) {
            result.put(node.element.clone(), true, FieldSet::new());
        } else {
            result.put(node.element.clone(), node.member, reconcile(&node.below, child));
        }
    }
    result
}
