// SPDX-License-Identifier: Apache-2.0
//! Rules on objects: when they run, what they say, and what they may cost.

mod common;

use cobaltcore_cel::Budget;
use cobaltcore_schema::{Schema, parse, rules::compile_rules, validate};
use common::texts;
use serde_json::{Value, json};

fn compiled(schema: &Value) -> Schema {
    let mut schema = parse(schema);
    compile_rules(&mut schema, true);
    schema
}

fn spec(properties: &Value, rules: &Value) -> Schema {
    compiled(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties, "x-kubernetes-validations": rules}}}))
}

fn run(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
    texts(&validate(
        schema,
        new,
        old,
        &mut Budget::per_object(),
        &mut Vec::new(),
    ))
}

#[test]
fn messages_reasons_and_fields() {
    let numbers = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    for (rule, text) in [
        (
            json!({"rule": "self.a < self.b"}),
            "spec: Invalid value: failed rule: self.a < self.b",
        ),
        (
            json!({"rule": "self.a < self.b", "message": " a first "}),
            "spec: Invalid value: a first",
        ),
        (
            json!({"rule": "self.a < self.b", "messageExpression": "'a is ' + string(self.a)"}),
            "spec: Invalid value: a is 5",
        ),
        (
            json!({"rule": "self.a < self.b", "messageExpression": "''", "message": "m"}),
            "spec: Invalid value: m",
        ),
        (
            json!({"rule": "self.a < self.b", "message": "m", "reason": "FieldValueForbidden"}),
            "spec: Forbidden: m",
        ),
        (
            json!({"rule": "self.a < self.b", "message": "m", "reason": "FieldValueRequired"}),
            "spec: Required value: m",
        ),
        (
            json!({"rule": "self.a < self.b", "message": "m", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value",
        ),
        (
            json!({"rule": "self.a < self.b", "message": "m", "fieldPath": ".a"}),
            "spec.a: Invalid value: m",
        ),
    ] {
        let schema = spec(&numbers, &json!([rule]));
        assert_eq!(
            run(&schema, &json!({"spec": {"a": 5, "b": 1}}), None),
            [text],
            "{rule}"
        );
        assert!(
            run(&schema, &json!({"spec": {"a": 1, "b": 5}}), None).is_empty(),
            "{rule}"
        );
    }
}

#[test]
fn scalars_are_shown() {
    let schema = compiled(&json!({"type": "object", "properties": {
        "s": {"type": "string", "x-kubernetes-validations": [{"rule": "self.startsWith('a')", "message": "m"}]}}}));
    assert_eq!(
        run(&schema, &json!({"s": "b"}), None),
        ["s: Invalid value: \"b\": m"]
    );
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema = compiled(
        &json!({"type": "object", "properties": {"mode": {"type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}}}),
    );
    assert!(run(&schema, &json!({"mode": "a"}), None).is_empty());
    assert!(run(&schema, &json!({"mode": "a"}), Some(&json!({}))).is_empty());
    assert!(run(&schema, &json!({"mode": "a"}), Some(&json!({"mode": "a"}))).is_empty());
    assert_eq!(
        run(&schema, &json!({"mode": "b"}), Some(&json!({"mode": "a"}))),
        ["mode: Invalid value: \"b\": immutable"]
    );
}

#[test]
fn optional_old_self_always_runs() {
    let schema = compiled(
        &json!({"type": "object", "properties": {"mode": {"type": "string",
        "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 'first'", "message": "m", "optionalOldSelf": true}]}}}),
    );
    assert_eq!(
        run(&schema, &json!({"mode": "a"}), None),
        ["mode: Invalid value: \"a\": m"]
    );
    assert!(run(&schema, &json!({"mode": "first"}), None).is_empty());
    assert!(run(&schema, &json!({"mode": "b"}), Some(&json!({"mode": "a"}))).is_empty());
}

#[test]
fn list_maps_correlate_and_other_lists_do_not() {
    let item = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "shrinks"}]});
    let schema = compiled(&json!({"type": "object", "properties": {
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": item}}}));
    let old = json!({"m": [{"n": "a", "v": 5}, {"n": "b", "v": 5}]});
    let new = json!({"m": [{"n": "b", "v": 6}, {"n": "c", "v": 0}, {"n": "a", "v": 4}]});
    assert_eq!(run(&schema, &new, Some(&old)), ["m[2]: Invalid value: shrinks"]);
}

#[test]
fn unchanged_parts_are_forgiven() {
    let schema = compiled(&json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'good'", "message": "m"}]},
        "b": {"type": "integer"}}}));
    assert!(
        run(
            &schema,
            &json!({"a": "bad", "b": 2}),
            Some(&json!({"a": "bad", "b": 1}))
        )
        .is_empty()
    );
    assert_eq!(
        run(
            &schema,
            &json!({"a": "worse", "b": 2}),
            Some(&json!({"a": "bad", "b": 1}))
        ),
        ["a: Invalid value: \"worse\": m"]
    );
}

#[test]
fn invalid_objects_do_not_meet_their_rules() {
    let schema = spec(
        &json!({"a": {"type": "integer"}}),
        &json!([{"rule": "self.a > 0"}]),
    );
    assert_eq!(
        run(&schema, &json!({"spec": {"a": "x"}}), None),
        [
            "spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\"",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        ]
    );
}

#[test]
fn map_values_are_named_in_brackets() {
    let schema = compiled(
        &json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties":
        {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "m"}]}}}}),
    );
    assert_eq!(
        run(&schema, &json!({"m": {"a": 0, "b": 1}}), None),
        ["m[a]: Invalid value: 0: m"]
    );
}

#[test]
fn errors_in_rules_are_told() {
    let schema = spec(
        &json!({"m": {"type": "object", "additionalProperties": {"type": "integer"}}}),
        &json!([{"rule": "self.m['none'] > 0"}]),
    );
    assert_eq!(
        run(&schema, &json!({"spec": {"m": {}}}), None),
        ["spec: Invalid value: \"object\": no such key: none evaluating rule: self.m['none'] > 0"]
    );
}

#[test]
fn runaway_rules_are_stopped() {
    let schema = compiled(
        &json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"}, {"rule": "false"}]}}}),
    );
    let list: Vec<i64> = (0..300).collect();
    let errors = run(&schema, &json!({"l": list}), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let first = errors.first().expect("an error");
    assert!(first.starts_with("l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all("), "{first}");
}

#[test]
fn roots_see_their_name() {
    let schema = compiled(
        &json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a') && self.kind == 'K'", "message": "m"}]}),
    );
    assert!(
        run(
            &schema,
            &json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "abc"}}),
            None
        )
        .is_empty()
    );
    assert_eq!(
        run(
            &schema,
            &json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "b"}}),
            None
        ),
        ["<nil>: Invalid value: m"]
    );
}
