// SPDX-License-Identifier: Apache-2.0
//! What holds for every schema and every value, checked on random ones.

mod common;

use cobaltcore_cel::Budget;
use cobaltcore_schema::{
    JsonPath, Root, check_metadata, compile, default, default_crd, parse, prune, rules::compile_rules,
    validate, validate_crd, validate_object_meta,
};
use common::widget_crd;
use proptest::prelude::*;
use serde_json::{Value, json};

const KEYS: [&str; 8] = ["a", "b", "spec", "metadata", "name", "items", "kind", "x"];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c.]{0,4}".prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(proptest::sample::select(KEYS.to_vec()), inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// A schema that makes sense, with defaults of the right type.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "d", "maxLength": 3})),
        Just(json!({"type": "integer", "default": 1, "nullable": true})),
        Just(json!({"type": "number", "minimum": 0.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "object", "additionalProperties": true})),
        Just(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        ),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|s| json!({"type": "array", "items": s})),
            inner
                .clone()
                .prop_map(|s| json!({"type": "array", "x-kubernetes-list-type": "set", "items": s})),
            inner
                .clone()
                .prop_map(|s| json!({"type": "object", "additionalProperties": s})),
            (
                proptest::collection::btree_map(proptest::sample::select(KEYS.to_vec()), inner, 0..4),
                any::<bool>()
            )
                .prop_map(|(properties, preserve)| {
                    let mut schema =
                        json!({"type": "object", "default": {}, "properties": properties, "required": ["a"]});
                    if preserve {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    schema
                }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_twice_is_pruning_once(schema in any_schema(), value in any_json()) {
        let schema = parse(&json!({"type": "object", "properties": {"spec": schema}}));
        let mut once = json!({"apiVersion": "v1", "kind": "K", "spec": value});
        prune(&schema, &mut once, Root::Resource);
        let mut twice = once.clone();
        prop_assert_eq!(prune(&schema, &mut twice, Root::Resource), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in any_schema(), value in any_json()) {
        let schema = parse(&json!({"type": "object", "properties": {"spec": schema}}));
        let mut once = json!({"spec": value});
        default(&schema, &mut once);
        let mut twice = once.clone();
        default(&schema, &mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn nothing_panics_on_any_value(schema in any_schema(), mut value in any_json(), old in any_json()) {
        let mut schema = parse(&schema);
        compile_rules(&mut schema, true);
        let _ = check_metadata(&schema, &value, Root::Resource);
        let _ = validate(&schema, &value, Some(&old), &mut Budget::per_object(), &mut Vec::new());
        let _ = validate_object_meta(&value, true, cobaltcore_schema::NameRule::Subdomain, "metadata");
        prune(&schema, &mut value, Root::Resource);
        default(&schema, &mut value);
    }

    #[test]
    fn unchanged_objects_stay_acceptable(schema in any_schema(), value in any_json()) {
        let schema = parse(&json!({"type": "object", "properties": {"spec": schema}}));
        let mut value = json!({"spec": value});
        prune(&schema, &mut value, Root::Value);
        default(&schema, &mut value);
        let create = validate(&schema, &value, None, &mut Budget::per_object(), &mut Vec::new());
        let update = validate(&schema, &value, Some(&value), &mut Budget::per_object(), &mut Vec::new());
        prop_assert!(update.len() <= create.len());
    }

    #[test]
    fn nothing_panics_on_any_definition(schema in any_json(), spec in any_json()) {
        let mut crd = widget_crd(schema);
        let _ = validate_crd(&crd);
        let _ = compile(&crd);
        crd["spec"] = spec;
        default_crd(&mut crd);
        let _ = validate_crd(&crd);
        let _ = compile(&crd);
    }

    #[test]
    fn nothing_panics_on_any_path(path in "[.a\\[\\]?@()='\"*:0-9, {}$\\\\-]{0,24}", value in any_json()) {
        if let Ok(path) = JsonPath::compile(&path) {
            let _ = path.text(&value);
        }
    }

    #[test]
    fn nothing_panics_on_any_pattern(pattern in "[a\\[\\]^$(){}?*+|.\\\\dpQE&~<:0-9,é-]{0,16}", text in "\\PC{0,8}") {
        if let Ok(pattern) = cobaltcore_schema::pattern::compile(&pattern) {
            let _ = pattern.is_match(&text);
        }
    }
}
