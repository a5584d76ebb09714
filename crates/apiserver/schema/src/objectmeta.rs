// SPDX-License-Identifier: Apache-2.0
//! The shape of `metadata`: which fields it has, of which types, and what is left of it once
//! unknown fields and empty values are gone.
//!
//! Custom resources do not describe their metadata; it follows this table instead, at the root of
//! an object and at the root of every embedded resource.

use cobaltcore_text::go;
use serde_json::{Map, Value};

use crate::node::Schema;
use crate::path::Path;
use crate::prune::Root;

/// The type of one metadata field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaType {
    /// A string.
    String,
    /// A 64-bit integer.
    Integer,
    /// A boolean.
    Boolean,
    /// An RFC 3339 time.
    Time,
    /// A map of strings.
    StringMap,
    /// A list of strings.
    StringList,
    /// A list of objects with these fields.
    Objects(&'static str, &'static [MetaField]),
    /// Anything.
    Any,
}

/// One field of `metadata`, or of an entry of one of its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaField {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetaType,
    /// Whether an empty value is left out.
    pub omit_empty: bool,
}

const fn field(name: &'static str, kind: MetaType) -> MetaField {
    MetaField {
        name,
        kind,
        omit_empty: true,
    }
}

const fn kept(name: &'static str, kind: MetaType) -> MetaField {
    MetaField {
        name,
        kind,
        omit_empty: false,
    }
}

/// The fields of an owner reference.
pub const OWNER_REFERENCE: &[MetaField] = &[
    kept("apiVersion", MetaType::String),
    kept("kind", MetaType::String),
    kept("name", MetaType::String),
    kept("uid", MetaType::String),
    kept("controller", MetaType::Boolean),
    kept("blockOwnerDeletion", MetaType::Boolean),
];

/// The fields of an entry of `managedFields`.
pub const MANAGED_FIELDS_ENTRY: &[MetaField] = &[
    field("manager", MetaType::String),
    field("operation", MetaType::String),
    field("apiVersion", MetaType::String),
    field("time", MetaType::Time),
    field("fieldsType", MetaType::String),
    kept("fieldsV1", MetaType::Any),
    field("subresource", MetaType::String),
];

/// The fields of `metadata`.
pub const OBJECT_META: &[MetaField] = &[
    field("name", MetaType::String),
    field("generateName", MetaType::String),
    field("namespace", MetaType::String),
    field("selfLink", MetaType::String),
    field("uid", MetaType::String),
    field("resourceVersion", MetaType::String),
    field("generation", MetaType::Integer),
    field("creationTimestamp", MetaType::Time),
    field("deletionTimestamp", MetaType::Time),
    kept("deletionGracePeriodSeconds", MetaType::Integer),
    field("labels", MetaType::StringMap),
    field("annotations", MetaType::StringMap),
    field(
        "ownerReferences",
        MetaType::Objects("OwnerReference", OWNER_REFERENCE),
    ),
    field("finalizers", MetaType::StringList),
    field(
        "managedFields",
        MetaType::Objects("ManagedFieldsEntry", MANAGED_FIELDS_ENTRY),
    ),
];

/// Checks the types of `apiVersion`, `kind` and `metadata` at the root (for [`Root::Resource`])
/// and in every embedded resource. The error is what the reference's decoder says; the caller
/// answers 400 with it.
pub fn check_metadata(schema: &Schema, value: &Value, root: Root) -> Result<(), String> {
    if root == Root::Resource
        && let Some(metadata) = value.get("metadata")
    {
        check_object_meta(metadata)?;
    }
    check_embedded(schema, value, &Path::Root, false)
}

fn check_embedded(schema: &Schema, value: &Value, path: &Path<'_>, embedded: bool) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if embedded {
                    check_type_meta(key, child, path)?;
                }
                if let Some(node) = schema.properties.get(key) {
                    check_embedded(node, child, &path.child(key), node.embedded_resource)?;
                } else if let Some(node) = schema.child(key) {
                    check_embedded(node, child, &path.key(key), node.embedded_resource)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = schema.element() else {
                return Ok(());
            };
            for (i, item) in items.iter().enumerate() {
                check_embedded(node, item, &path.index(i), node.embedded_resource)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_type_meta(key: &str, child: &Value, path: &Path<'_>) -> Result<(), String> {
    match key {
        "apiVersion" | "kind" if !child.is_string() => Err(format!(
            "{}: Invalid value: {}: must be a string",
            path.child(key),
            go::value(child)
        )),
        "metadata" => check_object_meta(child)
            .map_err(|e| format!("{}: Invalid value: {}: {e}", path.child(key), go::value(child))),
        _ => Ok(()),
    }
}

/// Checks one `metadata` against the table.
pub fn check_object_meta(metadata: &Value) -> Result<(), String> {
    match metadata {
        Value::Null => Ok(()),
        Value::Object(map) => check_fields(map, "ObjectMeta", OBJECT_META, ""),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            go::json_kind(other)
        )),
    }
}

fn check_fields(
    map: &Map<String, Value>,
    owner: &str,
    fields: &[MetaField],
    stack: &str,
) -> Result<(), String> {
    for (key, value) in map {
        if value.is_null() {
            continue;
        }
        if let Some(field) = fields.iter().find(|f| f.name == key) {
            let stack = if stack.is_empty() {
                key.clone()
            } else {
                format!("{stack}.{key}")
            };
            check_field(value, owner, field, &stack)?;
        }
    }
    Ok(())
}

fn check_field(value: &Value, owner: &str, field: &MetaField, stack: &str) -> Result<(), String> {
    let wrong = |value: &Value, kind: &str| {
        let text = go::json_kind(value);
        Err(format!(
            "json: cannot unmarshal {text} into Go struct field {owner}.{stack} of type {kind}"
        ))
    };
    match (field.kind, value) {
        (MetaType::String, Value::String(_)) | (MetaType::Boolean, Value::Bool(_)) | (MetaType::Any, _) => {
            Ok(())
        }
        (MetaType::String, other) => wrong(
            other,
            if field.name == "uid" {
                "types.UID"
            } else {
                "string"
            },
        ),
        (MetaType::Boolean, other) => wrong(other, "bool"),
        (MetaType::Integer, Value::Number(n)) if n.is_i64() => Ok(()),
        (MetaType::Integer, Value::Number(n)) => Err(format!(
            "json: cannot unmarshal number {n} into Go struct field {owner}.{stack} of type int64"
        )),
        (MetaType::Integer, other) => wrong(other, "int64"),
        (MetaType::Time, Value::String(text)) => check_time(text),
        (MetaType::Time, other) => Err(format!(
            "json: cannot unmarshal {} into Go value of type string",
            go::json_kind(other)
        )),
        (MetaType::StringMap, Value::Object(map)) => {
            match map.values().find(|v| !v.is_string() && !v.is_null()) {
                Some(bad) => wrong(bad, "string"),
                None => Ok(()),
            }
        }
        (MetaType::StringMap, other) => wrong(other, "map[string]string"),
        (MetaType::StringList, Value::Array(items)) => {
            match items.iter().find(|v| !v.is_string() && !v.is_null()) {
                Some(bad) => wrong(bad, "string"),
                None => Ok(()),
            }
        }
        (MetaType::StringList, other) => wrong(other, "[]string"),
        (MetaType::Objects(name, fields), Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Object(map) => check_fields(map, name, fields, stack)?,
                    Value::Null => {}
                    other => return wrong(other, &format!("v1.{name}")),
                }
            }
            Ok(())
        }
        (MetaType::Objects(name, _), other) => wrong(other, &format!("[]v1.{name}")),
    }
}

fn check_time(text: &str) -> Result<(), String> {
    if text.parse::<jiff::Timestamp>().is_ok() && text.contains(['T']) {
        return Ok(());
    }
    Err(format!(
        "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\"",
        quoted = go::quote_time(text)
    ))
}

/// Removes what is not in the table from a `metadata` of the right types, nulls and empty values
/// with it. The names of unknown fields are added to `unknown`, prefixed by `path`.
pub fn prune_object_meta(metadata: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    if let Value::Object(map) = metadata {
        prune_fields(map, OBJECT_META, path, unknown);
    }
}

fn prune_fields(
    map: &mut Map<String, Value>,
    fields: &[MetaField],
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) {
    map.retain(|key, value| {
        let Some(field) = fields.iter().find(|f| f.name == key) else {
            unknown.push(path.child(key).dotted());
            return false;
        };
        match (field.kind, &mut *value) {
            (MetaType::StringMap, Value::Object(entries)) => {
                for entry in entries.values_mut().filter(|v| v.is_null()) {
                    *entry = Value::String(String::new());
                }
            }
            (MetaType::Objects(_, fields), Value::Array(items)) => {
                let here = path.child(key);
                for (i, item) in items.iter_mut().enumerate() {
                    if let Value::Object(entry) = item {
                        prune_fields(entry, fields, &here.index(i), unknown);
                    }
                }
            }
            _ => {}
        }
        !(value.is_null() || field.omit_empty && is_empty(value))
    });
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_types_are_named_as_the_decoder_names_them() {
        for (metadata, text) in [
            (
                json!("x"),
                "json: cannot unmarshal string into Go value of type v1.ObjectMeta",
            ),
            (
                json!({"labels": "x"}),
                "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string",
            ),
            (
                json!({"labels": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                json!({"finalizers": {}}),
                "json: cannot unmarshal object into Go struct field ObjectMeta.finalizers of type []string",
            ),
            (
                json!({"ownerReferences": [{"name": 5}]}),
                "json: cannot unmarshal number into Go struct field OwnerReference.ownerReferences.name of type string",
            ),
            (
                json!({"creationTimestamp": "now"}),
                "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\"",
            ),
        ] {
            assert_eq!(check_object_meta(&metadata), Err(text.to_owned()));
        }
        let good = json!({"name": "a", "labels": null, "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 1});
        assert_eq!(check_object_meta(&good), Ok(()));
    }

    #[test]
    fn unknown_and_empty_fields_go() {
        let mut metadata = json!({
            "name": "a", "foo": 1, "labels": {"x": null}, "annotations": {}, "creationTimestamp": null,
            "ownerReferences": [{"uid": "u", "bar": true}]
        });
        let mut unknown = Vec::new();
        prune_object_meta(&mut metadata, &Path::Root.child("metadata"), &mut unknown);
        assert_eq!(
            metadata,
            json!({"name": "a", "labels": {"x": ""}, "ownerReferences": [{"uid": "u"}]})
        );
        assert_eq!(unknown, ["metadata.foo", "metadata.ownerReferences[0].bar"]);
    }
}
