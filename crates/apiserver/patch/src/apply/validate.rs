// SPDX-License-Identifier: Apache-2.0
//! The typed check of an apply configuration: every field declared, every value of its type, list
//! elements identifiable and unique. Texts are the reference's.

use std::collections::BTreeSet;

use cobaltcore_text::go;
use serde_json::Value;

use super::path::PathElement;
use super::types::{Scalar, Shape, Ty};

/// Most errors that are reported.
const MAX_ERRORS: usize = 64;

/// Checks a configuration; the error is the complete text of all findings.
pub(crate) fn validate(value: &Value, ty: Ty<'_>) -> Result<(), String> {
    let mut found = Vec::new();
    walk(value, ty, &mut String::new(), &mut found);
    match found.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

/// The paths of a configuration whose values are replaced as a whole.
pub(crate) fn atomic_paths(value: &Value, ty: Ty<'_>) -> Vec<String> {
    let mut found = Vec::new();
    gather_atomic(value, ty, &mut String::new(), &mut found);
    found
}

fn gather_atomic(value: &Value, ty: Ty<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match (value, ty.shape(value)) {
        (Value::Object(map), Shape::Map) => {
            if ty.map_is_atomic() {
                found.push(path.clone());
            }
            for (key, value) in map {
                if let Some(field) = ty.field(key) {
                    path.push('.');
                    path.push_str(key);
                    gather_atomic(value, field, path, found);
                    path.truncate(length);
                }
            }
        }
        (Value::Array(items), Shape::List) => {
            if ty.list_is_atomic() {
                found.push(path.clone());
            }
            for (i, item) in items.iter().enumerate() {
                path.push_str(&format!("[{i}]"));
                gather_atomic(item, ty.element(), path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn report(path: &str, message: &str, found: &mut Vec<String>) {
    if found.len() < MAX_ERRORS {
        found.push(if path.is_empty() {
            message.to_owned()
        } else {
            format!("{path}: {message}")
        });
    }
}

fn walk(value: &Value, ty: Ty<'_>, path: &mut String, found: &mut Vec<String>) {
    match ty.shape(value) {
        Shape::Map => match value {
            Value::Object(map) => walk_map(map, ty, path, found),
            Value::Null => {}
            other => report(
                path,
                &format!("expected map, got &{{{}}}", go::plain(other)),
                found,
            ),
        },
        Shape::List => match value {
            Value::Array(items) => walk_list(items, ty, path, found),
            Value::Null => {}
            other => report(
                path,
                &format!("expected list, got &{{{}}}", go::plain(other)),
                found,
            ),
        },
        Shape::Scalar => {
            if let Some(message) = scalar_error(value, ty.scalar()) {
                report(path, &message, found);
            }
        }
    }
}

fn scalar_error(value: &Value, scalar: Scalar) -> Option<String> {
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::Text, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, other) => Some(format!(
            "expected numeric (int or float), got {}",
            go::type_name(other)
        )),
        (Scalar::Text, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go::syntax(other)
        )),
        (Scalar::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", go::plain(other))),
        (Scalar::Untyped, other) => Some(format!("expected any scalar, got &{{{}}}", go::plain(other))),
    }
}

fn walk_map(map: &serde_json::Map<String, Value>, ty: Ty<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    for (key, value) in map {
        path.push('.');
        path.push_str(key);
        let Some(child) = ty.field(key).or_else(|| ty.map_value()) else {
            report(path, "field not declared in schema", found);
            path.truncate(length);
            return;
        };
        walk(value, child, path, found);
        path.truncate(length);
    }
}

fn walk_list(items: &[Value], ty: Ty<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    let element = ty.element();
    if ty.list_is_atomic() {
        for (i, item) in items.iter().enumerate() {
            path.push('[');
            path.push_str(&i.to_string());
            path.push(']');
            walk(item, element, path, found);
            path.truncate(length);
        }
        return;
    }
    let mut seen: BTreeSet<PathElement> = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let identity = match ty.identify(item) {
            Ok(identity) => identity,
            Err(message) => {
                report(path, &format!("element {i}: {message}"), found);
                return;
            }
        };
        let text = identity.to_string();
        if !seen.insert(identity) {
            report(path, &format!("duplicate entries for key {text}"), found);
        }
        path.push_str(&text);
        walk(item, element, path, found);
        path.truncate(length);
    }
}
