// SPDX-License-Identifier: Apache-2.0
//! Defaulting: absent fields get their defaults, nulls that may not be become defaults or go.
//!
//! Works from the top down and never creates a parent for the sake of a default below it.

use serde_json::{Map, Value};

use crate::embedded::prune_embedded;
use crate::node::Schema;

/// Fills in defaults and resolves nulls: of a nullable field a null stays, otherwise the default
/// takes its place, and without a default the field goes. List elements are never removed.
pub fn default(schema: &Schema, value: &mut Value) {
    fill(schema, value, true);
    // A default may name what metadata does not know.
    if schema.embedded_below {
        prune_embedded(schema, value);
    }
}

/// Fills in defaults, but leaves a null that may not be and has no default where it is.
pub fn default_keeping_nulls(schema: &Schema, value: &mut Value) {
    fill(schema, value, false);
}

fn fill(schema: &Schema, value: &mut Value, drop_nulls: bool) {
    match value {
        Value::Object(map) => {
            resolve_nulls(schema, map, drop_nulls);
            for (name, node) in &schema.properties {
                if let Some(default) = &node.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, child) in map.iter_mut() {
                if let Some(node) = schema.child(key) {
                    fill(node, child, drop_nulls);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = schema.element() else { return };
            for item in items {
                if item.is_null()
                    && !node.nullable
                    && let Some(default) = &node.default
                {
                    *item = default.clone();
                }
                fill(node, item, drop_nulls);
            }
        }
        _ => {}
    }
}

fn resolve_nulls(schema: &Schema, map: &mut Map<String, Value>, drop_nulls: bool) {
    if !map.values().any(Value::is_null) {
        return;
    }
    map.retain(|key, value| {
        let Some(node) = schema.child(key).filter(|node| value.is_null() && !node.nullable) else {
            return true;
        };
        match &node.default {
            Some(default) => {
                *value = default.clone();
                true
            }
            None => !drop_nulls,
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    #[test]
    fn defaults_fill_what_is_absent() {
        let schema = parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 3},
                "nested": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "x"}}},
                "absent": {"type": "object", "properties": {"b": {"type": "string", "default": "never"}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"q": {"type": "integer", "default": 0}}}}
            }}
        }}));
        let mut value = json!({"spec": {"list": [{}, {"p": "UDP"}], "map": {"k": {}}}});
        default(&schema, &mut value);
        let expected = json!({"spec": {
            "size": 3, "nested": {"a": "x"}, "list": [{"p": "TCP"}, {"p": "UDP"}], "map": {"k": {"q": 0}}
        }});
        assert_eq!(value, expected);
        default(&schema, &mut value);
        assert_eq!(value, expected);
    }

    #[test]
    fn nulls_stay_become_defaults_or_go() {
        let schema = parse(&json!({"type": "object", "properties": {
            "nullable": {"type": "string", "nullable": true},
            "nullableDefault": {"type": "string", "nullable": true, "default": "x"},
            "default": {"type": "string", "default": "x"},
            "plain": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string"}},
            "listDefault": {"type": "array", "items": {"type": "string", "default": "y"}}
        }}));
        let mut value = json!({
            "nullable": null, "nullableDefault": null, "default": null, "plain": null, "unknown": null,
            "map": {"a": null, "b": "c"}, "list": [null], "listDefault": [null]
        });
        default(&schema, &mut value);
        assert_eq!(
            value,
            json!({
                "nullable": null, "nullableDefault": null, "default": "x", "unknown": null,
                "map": {"b": "c"}, "list": [null], "listDefault": ["y"]
            })
        );
    }
}
