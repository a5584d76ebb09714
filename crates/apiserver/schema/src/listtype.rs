// SPDX-License-Identifier: Apache-2.0
//! Uniqueness in lists of type set and map: an element, or its keys, may occur once.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::node::{Additional, ListType, Schema};
use crate::path::Path;

/// Reports elements that occur twice, each at its second occurrence.
pub fn check_lists(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if value.is_object() {
        walk(schema, value, &Path::Root, &mut errors);
    }
    errors
}

fn walk(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if child.is_array() || child.is_object() {
                    if let Some(Additional::Schema(node)) = &schema.additional {
                        walk(node, child, &path.key(key), errors);
                    }
                    if let Some(node) = schema.properties.get(key) {
                        walk(node, child, &path.child(key), errors);
                    }
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => check_set(items, path, errors),
                ListType::Map(keys) => check_map(items, keys, path, errors),
            }
            if let Some(node) = schema.element() {
                for (i, item) in items.iter().enumerate() {
                    walk(node, item, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_set(items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for i in second_occurrences(items.iter()) {
        if let Some(item) = items.get(i) {
            errors.push(FieldError::duplicate(path.index(i).to_string(), item));
        }
    }
}

fn check_map(items: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((i, item)) = items
        .iter()
        .enumerate()
        .find(|(_, v)| !v.is_null() && !v.is_object())
    {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i).to_string(), item, detail));
        return;
    }
    if items.len() < 2 {
        return;
    }
    if let [key] = keys {
        // One key, the usual case: nothing is copied unless something is wrong.
        let absent = Value::Object(Map::new());
        let values: Vec<&Value> = items
            .iter()
            .map(|item| item.get(key).unwrap_or(&absent))
            .collect();
        for i in second_occurrences(values.iter().copied()) {
            let shown = items.get(i).map(|item| key_of(item, keys)).unwrap_or_default();
            errors.push(FieldError::duplicate(path.index(i).to_string(), &shown));
        }
        return;
    }
    let values: Vec<Value> = items.iter().map(|item| key_of(item, keys)).collect();
    for i in second_occurrences(values.iter()) {
        if let Some(value) = values.get(i) {
            errors.push(FieldError::duplicate(path.index(i).to_string(), value));
        }
    }
}

fn key_of(item: &Value, keys: &[String]) -> Value {
    Value::Object(
        keys.iter()
            .filter_map(|k| item.get(k).map(|v| (k.clone(), v.clone())))
            .collect(),
    )
}

/// The index of the second occurrence of every value that occurs more than once.
fn second_occurrences<'a>(values: impl ExactSizeIterator<Item = &'a Value> + Clone) -> Vec<usize> {
    const SMALL: usize = 16;
    if values.len() < 2 {
        return Vec::new();
    }
    let mut found = Vec::new();
    if values.len() <= SMALL {
        for (i, value) in values.clone().enumerate() {
            if values.clone().take(i).filter(|earlier| *earlier == value).count() == 1 {
                found.push(i);
            }
        }
        return found;
    }
    let mut seen: HashMap<&'a Value, usize> = HashMap::with_capacity(values.len());
    for (i, value) in values.enumerate() {
        let times = seen.entry(value).or_insert(0);
        *times += 1;
        if *times == 2 {
            found.push(i);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    #[test]
    fn second_occurrence_is_reported_once() {
        let schema = parse(&json!({"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                      "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "pairs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                      "items": {"type": "object"}}
        }}));
        let value = json!({
            "tags": ["x", "y", "x", "x"],
            "ports": [{"name": "a"}, {"name": "a"}, {}, {}],
            "pairs": [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 4}]
        });
        let errors: Vec<String> = check_lists(&schema, &value)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            errors,
            [
                r#"pairs[2]: Duplicate value: {"a":1,"b":2}"#,
                r#"ports[1]: Duplicate value: {"name":"a"}"#,
                "ports[3]: Duplicate value: {}",
                r#"tags[2]: Duplicate value: "x""#
            ]
        );
    }

    #[test]
    fn long_lists_are_checked_too() {
        let schema = parse(&json!({"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}}));
        let mut tags: Vec<i64> = (0..500).collect();
        tags.push(7);
        let errors = check_lists(&schema, &json!({"tags": tags}));
        assert_eq!(
            errors.first().map(ToString::to_string).as_deref(),
            Some("tags[500]: Duplicate value: 7")
        );
        assert_eq!(errors.len(), 1);
    }
}
