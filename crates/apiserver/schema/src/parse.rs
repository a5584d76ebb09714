// SPDX-License-Identifier: Apache-2.0
//! From the JSON of an OpenAPI v3 schema to the tree of [`Schema`] nodes.
//!
//! Reading never fails: what a definition may not contain is refused by [`crate::structural`] and
//! [`crate::keywords`], which look at the same JSON. Keywords this build does not know are listed
//! by [`unknown_keywords`] for strict field validation.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::node::{Additional, ListType, MapType, Rule, Schema, Type, Validation};
use crate::pattern;

/// Keywords of a schema with one schema below them.
const ONE: [&str; 3] = ["not", "items", "additionalProperties"];
/// Keywords of a schema with a list of schemas below them.
const MANY: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords of a schema with named schemas below them.
const NAMED: [&str; 4] = ["properties", "patternProperties", "definitions", "dependencies"];
/// All other keywords.
const PLAIN: [&str; 34] = [
    "id",
    "$schema",
    "$ref",
    "description",
    "type",
    "format",
    "title",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "additionalItems",
    "externalDocs",
    "example",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];
const RULE: [&str; 6] = [
    "rule",
    "message",
    "messageExpression",
    "reason",
    "fieldPath",
    "optionalOldSelf",
];
/// Deeper schemas are not looked at; requests that deep do not parse anyway.
const MAX_DEPTH: usize = 200;

/// Reads a schema. Parts that are malformed or forbidden are left out of the tree.
pub fn parse(schema: &Value) -> Schema {
    parse_node(schema, 0)
}

fn parse_node(value: &Value, depth: usize) -> Schema {
    let mut node = Schema::default();
    let Some(map) = value.as_object() else { return node };
    if depth > MAX_DEPTH {
        return node;
    }
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|s| !s.is_empty());
    node.kind = text("type").and_then(parse_type);
    node.int_or_string = flag("x-kubernetes-int-or-string");
    node.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
    node.embedded_resource = flag("x-kubernetes-embedded-resource");
    node.nullable = flag("nullable");
    node.default = map.get("default").filter(|v| !v.is_null()).cloned();
    node.format = text("format").map(str::to_owned);
    node.description = text("description").map(Arc::from);
    node.title = text("title").map(Arc::from);
    node.required = strings(map.get("required"));
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        node.properties = properties
            .iter()
            .map(|(k, v)| (k.clone(), Arc::new(parse_node(v, depth + 1))))
            .collect();
    }
    node.additional = match map.get("additionalProperties") {
        Some(Value::Bool(true)) => Some(Additional::Schema(Arc::new(opaque()))),
        Some(schema @ Value::Object(_)) => Some(Additional::Schema(Arc::new(parse_node(schema, depth + 1)))),
        _ => None,
    };
    node.items = map
        .get("items")
        .filter(|v| v.is_object())
        .map(|items| Arc::new(parse_node(items, depth + 1)));
    node.list_type = match text("x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    };
    if text("x-kubernetes-map-type") == Some("atomic") {
        node.map_type = MapType::Atomic;
    }
    node.validation = parse_validation(map, depth);
    node.rules = parse_rules(map.get("x-kubernetes-validations"));
    let below = |pred: fn(&Schema) -> bool| {
        node.items.as_deref().is_some_and(pred)
            || matches!(&node.additional, Some(Additional::Schema(s)) if pred(s))
            || node.properties.values().any(|s| pred(s))
    };
    (node.rules_below, node.embedded_below) = (
        below(Schema::has_rules),
        below(|s| s.embedded_resource || s.embedded_below),
    );
    node
}

/// The schema of values nothing is known about: everything below them is unknown.
fn opaque() -> Schema {
    Schema {
        nullable: true,
        ..Schema::default()
    }
}

/// The JSON type a `type` keyword names.
pub fn parse_type(name: &str) -> Option<Type> {
    Some(match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => return None,
    })
}

pub(crate) fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

fn parse_validation(map: &Map<String, Value>, depth: usize) -> Option<Box<Validation>> {
    let number = |key: &str| map.get(key).and_then(Value::as_number).cloned();
    let count = |key: &str| {
        map.get(key)
            .and_then(Value::as_i64)
            .map(|n| n.max(0).cast_unsigned())
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let list = |key: &str| -> Vec<Arc<Schema>> {
        map.get(key)
            .and_then(Value::as_array)
            .map(|l| l.iter().map(|s| Arc::new(parse_node(s, depth + 1))).collect())
            .unwrap_or_default()
    };
    let restricts = map.keys().any(|k| {
        matches!(
            k.as_str(),
            "enum"
                | "minimum"
                | "maximum"
                | "multipleOf"
                | "minLength"
                | "maxLength"
                | "minItems"
                | "maxItems"
                | "minProperties"
                | "maxProperties"
                | "uniqueItems"
                | "pattern"
                | "allOf"
                | "anyOf"
                | "oneOf"
                | "not"
        )
    }) || map.get("additionalProperties") == Some(&Value::Bool(false));
    if !restricts {
        return None;
    }
    Some(Box::new(Validation {
        enumeration: map
            .get("enum")
            .and_then(Value::as_array)
            .filter(|l| !l.is_empty())
            .cloned(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        unique_items: flag("uniqueItems"),
        pattern: map
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|p| !p.is_empty())
            .and_then(|p| pattern::compile(p).ok().map(|r| (p.to_owned(), r))),
        all_of: list("allOf"),
        any_of: list("anyOf"),
        one_of: list("oneOf"),
        not: map
            .get("not")
            .filter(|v| v.is_object())
            .map(|s| Arc::new(parse_node(s, depth + 1))),
        closed: map.get("additionalProperties") == Some(&Value::Bool(false)),
    }))
}

/// Reads `x-kubernetes-validations`; nothing is compiled.
pub(crate) fn parse_rules(value: Option<&Value>) -> Vec<Rule> {
    let Some(list) = value.and_then(Value::as_array) else {
        return Vec::new();
    };
    list.iter()
        .map(|rule| {
            let text = |key: &str| {
                rule.get(key)
                    .and_then(Value::as_str)
                    .filter(|s| !s.is_empty())
                    .map(str::to_owned)
            };
            let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
            Rule {
                rule: text("rule").unwrap_or_default(),
                message: text("message"),
                message_expression: text("messageExpression"),
                reason: text("reason"),
                field_path: text("fieldPath"),
                optional_old_self: optional.unwrap_or(false),
                optional_old_self_given: optional.is_some(),
                ..Rule::default()
            }
        })
        .collect()
}

/// The paths of keywords a schema may not have because they do not exist, as strict field
/// validation names them. Below `items` and `additionalProperties` nothing is reported, because
/// the reference's decoder is not strict there.
pub fn unknown_keywords(schema: &Value, prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    walk_keywords(schema, prefix, &mut out, 0);
    out
}

fn walk_keywords(schema: &Value, path: &str, out: &mut Vec<String>, depth: usize) {
    let Some(map) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else {
        return;
    };
    for (key, value) in map {
        let here = crate::path::join(path, key);
        if MANY.contains(&key.as_str()) {
            for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                walk_keywords(item, &format!("{here}[{i}]"), out, depth + 1);
            }
        } else if key == "not" {
            walk_keywords(value, &here, out, depth + 1);
        } else if NAMED.contains(&key.as_str()) && key != "dependencies" {
            for (name, item) in value.as_object().into_iter().flatten() {
                walk_keywords(item, &format!("{here}.{name}"), out, depth + 1);
            }
        } else if key == "x-kubernetes-validations" {
            for (i, rule) in value.as_array().into_iter().flatten().enumerate() {
                for field in rule.as_object().into_iter().flatten().map(|(k, _)| k) {
                    if !RULE.contains(&field.as_str()) {
                        out.push(format!("{here}[{i}].{field}"));
                    }
                }
            }
        } else if key == "externalDocs" {
            for field in value.as_object().into_iter().flatten().map(|(k, _)| k) {
                if !matches!(field.as_str(), "description" | "url") {
                    out.push(format!("{here}.{field}"));
                }
            }
        } else if !PLAIN.contains(&key.as_str())
            && !ONE.contains(&key.as_str())
            && !NAMED.contains(&key.as_str())
        {
            out.push(here);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_every_keyword() {
        let node = parse(&json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "minItems": 1, "maxItems": 4, "description": "d", "title": "t",
            "items": {"type": "object", "required": ["name"], "x-kubernetes-map-type": "atomic",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8, "enum": ["a", "b"]},
                    "port": {"x-kubernetes-int-or-string": true, "default": 80},
                    "open": {"type": "object", "additionalProperties": true},
                    "shut": {"type": "object", "additionalProperties": false}
                },
                "x-kubernetes-validations": [{"rule": "self.name != ''", "reason": "FieldValueForbidden", "optionalOldSelf": false}]
            }
        }));
        assert_eq!(node.kind, Some(Type::Array));
        assert_eq!(node.list_type, ListType::Map(vec!["name".to_owned()]));
        let item = node.element().expect("items");
        assert_eq!(item.map_type, MapType::Atomic);
        assert_eq!(item.required, ["name"]);
        assert_eq!(
            item.child("port").and_then(|p| p.default.clone()),
            Some(json!(80))
        );
        assert!(item.child("shut").is_some_and(Schema::is_closed));
        assert!(
            item.child("open")
                .and_then(|o| o.child("x"))
                .is_some_and(Schema::is_opaque)
        );
        let rule = item.rules.first().expect("rule");
        assert!(rule.optional_old_self_given && !rule.optional_old_self);
        let name = item
            .child("name")
            .and_then(|n| n.validation.as_deref())
            .expect("validation");
        assert_eq!(name.max_length, Some(8));
        assert!(name.pattern.as_ref().is_some_and(|(_, r)| r.is_match("abc")));
    }

    #[test]
    fn unknown_keywords_are_listed() {
        let schema = json!({"type": "object", "foo": 1, "properties": {
            "spec": {"type": "object", "bar": 2, "anyOf": [{"baz": 1}],
                     "properties": {"list": {"type": "array", "items": {"hidden": 1}}}}
        }, "x-kubernetes-validations": [{"rule": "true", "severity": "x"}]});
        assert_eq!(
            unknown_keywords(&schema, "s"),
            [
                "s.foo",
                "s.properties.spec.anyOf[0].baz",
                "s.properties.spec.bar",
                "s.x-kubernetes-validations[0].severity"
            ]
        );
    }
}
