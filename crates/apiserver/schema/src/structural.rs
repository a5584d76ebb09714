// SPDX-License-Identifier: Apache-2.0
//! What makes a schema structural: every value has a known type, described outside of `allOf`,
//! `anyOf`, `oneOf` and `not`.
//!
//! These checks look at the JSON of the schema, because the tree only keeps what is allowed.

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::path::Path;
use crate::pattern;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

type Node = Map<String, Value>;

/// Why a schema cannot be made into a tree at all; such schemas get no further checks.
pub fn unsupported(schema: &Value) -> Option<String> {
    let node = schema.as_object()?;
    let filled = |key: &str| node.get(key).is_some_and(is_set);
    for key in ["id", "$schema", "$ref", "patternProperties", "dependencies"] {
        if filled(key) {
            let name = if key == "$schema" { "schema" } else { key };
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if node.get("additionalItems").is_some_and(|v| !v.is_null()) {
        return Some("OpenAPIV3Schema 'additionalItems' is not supported".to_owned());
    }
    if filled("definitions") {
        return Some("OpenAPIV3Schema 'definitions' is not supported".to_owned());
    }
    if node.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let text = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(text.to_owned());
    }
    subschemas(node).find_map(unsupported)
}

/// All schemas directly below a node.
pub(crate) fn subschemas(node: &Node) -> impl Iterator<Item = &Value> {
    let single = ["items", "not", "additionalProperties", "additionalItems"].into_iter();
    let named = ["properties", "patternProperties", "definitions", "dependencies"].into_iter();
    let lists = ["items", "allOf", "anyOf", "oneOf"].into_iter();
    single
        .filter_map(|key| node.get(key).filter(|v| v.is_object()))
        .chain(
            named
                .filter_map(|key| node.get(key).and_then(Value::as_object))
                .flat_map(Map::values),
        )
        .chain(
            lists
                .filter_map(|key| node.get(key).and_then(Value::as_array))
                .flatten(),
        )
}

/// Whether a keyword has a value that is not the zero of its type.
pub(crate) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(_) => true,
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
    }
}

pub(crate) fn type_of(node: &Node) -> &str {
    node.get("type").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn flag(node: &Node, key: &str) -> bool {
    node.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Checks that a schema is structural; errors are sorted.
pub fn check_structural(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let base = Path::Base(path);
    if let Some(node) = schema.as_object() {
        invariants(node, Level::Root, &base, &mut errors);
        completeness(node, node, &base, &base, &mut errors);
    }
    errors.sort_by_key(ToString::to_string);
    errors
}

fn invariants(node: &Node, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = type_of(node);
    let items = node.get("items").and_then(Value::as_object);
    if kind == "array" && items.is_none() {
        errors.push(FieldError::required(
            path.child("items").to_string(),
            "must be specified",
        ));
    }
    if let Some(items) = items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    let properties = node.get("properties").and_then(Value::as_object);
    let below = path.child("properties");
    for (name, child) in properties.into_iter().flatten() {
        if let Some(child) = child.as_object() {
            invariants(child, Level::Field, &below.key(name), errors);
        }
    }
    let additional = node.get("additionalProperties").filter(|v| !v.is_null());
    if let Some(additional) = additional {
        let here = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                here.to_string(),
                "must not be used at the root",
            ));
        }
        if let Some(child) = additional.as_object() {
            invariants(child, Level::Field, &here, errors);
        }
    }
    extensions(node, path, errors);
    let skip_any = is_int_or_string(node.get("anyOf"));
    let first_all = node
        .get("allOf")
        .and_then(Value::as_array)
        .and_then(|l| l.first());
    let skip_first = is_int_or_string(first_all.and_then(|n| n.get("anyOf")));
    value_validation(node, skip_any, skip_first, path, errors);
    required_type(node, level, path, errors);
    let embedded = flag(node, "x-kubernetes-embedded-resource");
    if embedded && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(
            path.child("additionalProperties").to_string(),
            detail,
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let value = Value::from(kind);
        errors.push(FieldError::invalid(
            path.child("type").to_string(),
            &value,
            "must be object at the root",
        ));
    }
    envelope(properties, level, embedded, path, errors);
    let preserve = flag(node, "x-kubernetes-preserve-unknown-fields");
    if embedded && !preserve && properties.is_none_or(Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(below.to_string(), detail));
    }
}

fn required_type(node: &Node, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = type_of(node);
    let here = || path.child("type").to_string();
    if flag(node, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(here(), detail)
        } else {
            FieldError::invalid(here(), &Value::from(kind), detail)
        });
        return;
    }
    let typeless =
        flag(node, "x-kubernetes-int-or-string") || flag(node, "x-kubernetes-preserve-unknown-fields");
    if kind.is_empty() && !typeless {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(here(), detail));
    }
}

/// apiVersion, kind and metadata of whole objects can hardly be restricted.
fn envelope(
    properties: Option<&Node>,
    level: Level,
    embedded: bool,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(properties) = properties else { return };
    let below = path.child("properties");
    let resource = level == Level::Root || embedded;
    let found = |key: &str| properties.get(key).and_then(Value::as_object);
    for (key, wanted) in [
        ("kind", "string"),
        ("apiVersion", "string"),
        ("metadata", "object"),
    ] {
        if let Some(node) = found(key).filter(|node| resource && type_of(node) != wanted) {
            let field = below.key(key).child("type").to_string();
            let value = Value::from(type_of(node));
            errors.push(FieldError::invalid(field, &value, &format!("must be {wanted}")));
        }
    }
    if let Some(metadata) = found("metadata").filter(|_| level == Level::Root) {
        let names_only = |value: &Value| {
            value
                .as_object()
                .is_some_and(|p| p.keys().all(|k| k == "name" || k == "generateName"))
        };
        let more = metadata.iter().any(|(key, value)| match key.as_str() {
            "type" | "default" => false,
            "properties" => !names_only(value),
            _ => is_set(value),
        });
        if more {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(below.key("metadata").to_string(), detail));
        }
    }
}

fn extensions(node: &Node, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !flag(node, "x-kubernetes-int-or-string") {
        return;
    }
    for key in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if flag(node, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(
                path.child(key).to_string(),
                &Value::Bool(true),
                detail,
            ));
        }
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, the one structure allowed in value validations.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    let only = |node: &Value, kind: &str| {
        node.as_object().is_some_and(|n| {
            type_of(n) == kind && n.iter().all(|(key, value)| key == "type" || !is_set(value))
        })
    };
    match any_of.and_then(Value::as_array).map(Vec::as_slice) {
        Some([a, b]) => only(a, "integer") && only(b, "string"),
        _ => false,
    }
}

fn value_validation(
    node: &Node,
    skip_any: bool,
    skip_first_all: bool,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any {
            continue;
        }
        let below = path.child(key);
        for (i, clause) in node
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            if let Some(clause) = clause.as_object() {
                nested(
                    clause,
                    key == "allOf" && i == 0 && skip_first_all,
                    &below.index(i),
                    errors,
                );
            }
        }
    }
    if let Some(clause) = node.get("not").and_then(Value::as_object) {
        nested(clause, false, &path.child("not"), errors);
    }
    if let Some(text) = node
        .get("pattern")
        .and_then(Value::as_str)
        .filter(|p| !p.is_empty())
        && let Err(error) = pattern::compile(text)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            path.child("pattern").to_string(),
            &Value::from(text),
            &detail,
        ));
    }
}

/// What value validations may not contain.
const FORBIDDEN: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "must be false to be structural",
    ),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

fn nested(node: &Node, skip_any: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    value_validation(node, skip_any, false, path, errors);
    if let Some(items) = node.get("items").and_then(Value::as_object) {
        nested(items, false, &path.child("items"), errors);
    }
    let below = path.child("properties");
    for (name, child) in node
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(child) = child.as_object() {
            nested(child, false, &below.key(name), errors);
        }
    }
    for (key, detail) in FORBIDDEN {
        let present = node.get(key).is_some_and(|value| match key {
            "default" => !value.is_null(),
            "additionalProperties" => value.is_object() || value == &Value::Bool(true),
            _ => is_set(value),
        });
        if present {
            errors.push(FieldError::forbidden(path.child(key).to_string(), detail));
        }
    }
    if node.get("x-kubernetes-validations").is_some_and(is_set) {
        let field = path.child("x-kubernetes-validations").to_string();
        errors.push(FieldError::forbidden(field, "must be empty to be structural"));
    }
    if node.get("properties").and_then(|p| p.get("metadata")).is_some() {
        let field = below.key("metadata").to_string();
        errors.push(FieldError::forbidden(
            field,
            "must not be specified in a nested context",
        ));
    }
}

/// What value validations at the root speak about must be described outside of them, too.
fn completeness(
    clause: &Node,
    node: &Node,
    node_path: &Path<'_>,
    clause_path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = clause.get("not").and_then(Value::as_object) {
        nested_completeness(not, node, node_path, &clause_path.child("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let below = clause_path.child(key);
        for (i, inner) in clause
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            if let Some(inner) = inner.as_object() {
                nested_completeness(inner, node, node_path, &below.index(i), errors);
            }
        }
    }
}

fn nested_completeness(
    clause: &Node,
    node: &Node,
    node_path: &Path<'_>,
    clause_path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    completeness(clause, node, node_path, clause_path, errors);
    if let Some(items) = clause.get("items").and_then(Value::as_object) {
        let (here, there) = (node_path.child("items"), clause_path.child("items"));
        if let Some(known) = node.get("items").and_then(Value::as_object) {
            nested_completeness(items, known, &here, &there, errors);
        } else {
            let detail = format!("because it is defined in {there}");
            errors.push(FieldError::required(here.to_string(), &detail));
        }
    }
    let (nodes, clauses) = (node_path.child("properties"), clause_path.child("properties"));
    for (name, inner) in clause
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let Some(inner) = inner.as_object() else { continue };
        let (here, there) = (nodes.key(name), clauses.key(name));
        if let Some(known) = node
            .get("properties")
            .and_then(|p| p.get(name))
            .and_then(Value::as_object)
        {
            nested_completeness(inner, known, &here, &there, errors);
        } else {
            let detail = format!("because it is defined in {there}");
            errors.push(FieldError::required(here.to_string(), &detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(schema: &Value) -> Vec<String> {
        check_structural(schema, "s")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn each_rule_of_structure() {
        for (schema, expected) in [
            (json!({"type": "object"}), vec![]),
            (
                json!({}),
                vec!["s.type: Required value: must not be empty at the root"],
            ),
            (
                json!({"type": "string"}),
                vec!["s.type: Invalid value: \"string\": must be object at the root"],
            ),
            (
                json!({"type": "object", "properties": {"a": {}}}),
                vec!["s.properties[a].type: Required value: must not be empty for specified object fields"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array"}}}),
                vec!["s.properties[a].items: Required value: must be specified"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                vec![
                    "s.properties[a].items.type: Required value: must not be empty for specified array items",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}]}}}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}}}),
                vec![
                    "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
                ],
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                vec!["s.additionalProperties: Forbidden: must not be used at the root"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string", "default": "x", "description": "y", "nullable": true}]}}}),
                vec![
                    "s.properties[a].anyOf[0].default: Forbidden: must be undefined to be structural",
                    "s.properties[a].anyOf[0].description: Forbidden: must be empty to be structural",
                    "s.properties[a].anyOf[0].nullable: Forbidden: must be false to be structural",
                    "s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
                ],
            ),
            (
                json!({"type": "object", "oneOf": [{"required": ["a"]}, {"properties": {"b": {"pattern": "x"}}}]}),
                vec!["s.properties[b]: Required value: because it is defined in s.oneOf[1].properties[b]"],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                vec![
                    "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
                ],
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
                vec!["s.properties[kind].type: Invalid value: \"integer\": must be string"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}),
                vec![
                    "s.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": true}}}),
                vec![
                    "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "a("}}}),
                vec![
                    "s.properties[a].pattern: Invalid value: \"a(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(`",
                ],
            ),
        ] {
            assert_eq!(texts(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn unsupported_parts_are_found_anywhere() {
        assert_eq!(unsupported(&json!({"type": "object"})), None);
        let deep = json!({"properties": {"a": {"items": {"$ref": "#/x"}}}});
        assert_eq!(
            unsupported(&deep).as_deref(),
            Some("OpenAPIV3Schema '$ref' is not supported")
        );
    }
}
