// SPDX-License-Identifier: Apache-2.0
//! Embedded resources: objects inside objects, with an envelope of their own that is checked
//! like that of any other object.

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::meta::validate_object_meta;
use crate::names::{self, NameRule};
use crate::node::Schema;
use crate::objectmeta::{check_object_meta, prune_object_meta};
use crate::path::Path;

/// Checks the envelope of every embedded resource below the root.
pub fn check_embedded(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.embedded_below {
        walk(schema, value, false, &Path::Root, &mut errors);
    }
    errors
}

/// Checks a value that may itself be an embedded resource, at the given place.
pub(crate) fn check_embedded_at(schema: &Schema, value: &Value, base: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(
        schema,
        value,
        schema.embedded_resource,
        &Path::Base(base),
        &mut errors,
    );
    errors
}

/// Takes out of the metadata of embedded resources what metadata does not know.
pub(crate) fn prune_embedded(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let Some(node) = schema.child(key) else { continue };
                if node.embedded_resource
                    && let Some(metadata) = child.get_mut("metadata")
                {
                    prune_object_meta(metadata, &Path::Root, &mut Vec::new());
                }
                prune_embedded(node, child);
            }
        }
        Value::Array(items) => {
            let Some(node) = schema.element() else { return };
            for item in items {
                if node.embedded_resource
                    && let Some(metadata) = item.get_mut("metadata")
                {
                    prune_object_meta(metadata, &Path::Root, &mut Vec::new());
                }
                prune_embedded(node, item);
            }
        }
        _ => {}
    }
}

fn walk(schema: &Schema, value: &Value, resource: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if resource {
                check_envelope(map, path, errors);
            }
            for (key, child) in map {
                if !child.is_object() && !child.is_array() {
                    continue;
                }
                if let Some(node) = schema.properties.get(key) {
                    walk(node, child, node.embedded_resource, &path.child(key), errors);
                } else if let Some(node) = schema.child(key) {
                    walk(node, child, node.embedded_resource, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = schema.element() {
                for (i, item) in items.iter().enumerate() {
                    walk(node, item, node.embedded_resource, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_envelope(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if !map.contains_key(key) {
            errors.push(FieldError::required(path.child(key).to_string(), ""));
        }
    }
    if let Some(value) = map.get("apiVersion") {
        let field = || path.child("apiVersion").to_string();
        match value.as_str() {
            None => errors.push(FieldError::invalid(field(), value, "must be a string")),
            Some("") => errors.push(FieldError::invalid(field(), value, "must not be empty")),
            Some(text) if text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(field(), value, &detail));
            }
            Some(_) => {}
        }
    }
    if let Some(value) = map.get("kind") {
        let field = || path.child("kind").to_string();
        match value.as_str() {
            None => errors.push(FieldError::invalid(field(), value, "must be a string")),
            Some("") => errors.push(FieldError::invalid(field(), value, "must not be empty")),
            Some(text) => {
                let problems = names::dns1035_label(&text.to_lowercase());
                if !problems.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        problems.join(",")
                    );
                    errors.push(FieldError::invalid(field(), value, &detail));
                }
            }
        }
    }
    if let Some(value) = map.get("metadata") {
        let here = path.child("metadata").to_string();
        match check_object_meta(value) {
            Err(detail) => errors.push(FieldError::invalid(here, value, &detail)),
            Ok(()) => errors.extend(check_meta(value, &here)),
        }
    }
}

fn check_meta(metadata: &Value, field: &str) -> Vec<FieldError> {
    let namespaced = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .is_some_and(|n| !n.is_empty());
    let mut errors = validate_object_meta(metadata, namespaced, NameRule::PathSegment, field);
    let unnamed = metadata
        .get("name")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty);
    if unnamed {
        // A template has no name of its own.
        let name = format!("{field}.name");
        errors.retain(|e| e.field != name);
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    #[test]
    fn the_envelope_is_checked() {
        let schema = parse(&json!({"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}
        }}));
        let texts = |value: Value| -> Vec<String> {
            check_embedded(&schema, &value)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            texts(json!({"template": {}})),
            [
                "template.apiVersion: Required value",
                "template.kind: Required value"
            ]
        );
        assert!(texts(json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}})).is_empty());
        assert_eq!(
            texts(
                json!({"template": {"apiVersion": "a/b/c", "kind": "", "metadata": {"labels": {"a b": "c"}}}})
            ),
            [
                "template.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "template.kind: Invalid value: \"\": must not be empty",
                "template.metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
    }
}
