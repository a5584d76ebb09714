// SPDX-License-Identifier: Apache-2.0
//! Objects against schemas: one row per rule, with the text a client reads.

mod common;

use cobaltcore_cel::Budget;
use cobaltcore_schema::{Cause, parse, validate, validate_status};
use common::texts;
use serde_json::{Value, json};

fn errors_of(schema: &Value, value: &Value) -> Vec<cobaltcore_schema::FieldError> {
    let schema = parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}),
    );
    validate(
        &schema,
        &json!({"spec": {"x": value}}),
        None,
        &mut Budget::per_object(),
        &mut Vec::new(),
    )
}

#[test]
fn each_rule_has_its_reason_and_text() {
    for (schema, value, cause, text) in [
        (
            json!({"type": "integer"}),
            json!("a"),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "integer", "format": "int64"}),
            json!(true),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"\": spec.x in body must be of type int64: \"\"",
        ),
        (
            json!({"type": "string"}),
            json!({}),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"object\": spec.x in body must be of type string: \"object\"",
        ),
        (
            json!({"type": "boolean"}),
            json!("true"),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"string\": spec.x in body must be of type boolean: \"string\"",
        ),
        (
            json!({"type": "object"}),
            json!([]),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"array\": spec.x in body must be of type object: \"array\"",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", null]),
            Cause::TypeInvalid,
            "spec.x[1]: Invalid value: \"null\": spec.x[1] in body must be of type string: \"null\"",
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            json!({}),
            Cause::Required,
            "spec.x.a: Required value",
        ),
        (
            json!({"type": "string", "enum": ["Fast", "Slow"]}),
            json!("Medium"),
            Cause::NotSupported,
            "spec.x: Unsupported value: \"Medium\": supported values: \"Fast\", \"Slow\"",
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            Cause::NotSupported,
            "spec.x: Unsupported value: 3: supported values: \"1\", \"2\"",
        ),
        (
            json!({"type": "integer", "maximum": 100}),
            json!(101),
            Cause::Invalid,
            "spec.x: Invalid value: 101: spec.x in body should be less than or equal to 100",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            Cause::Invalid,
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            Cause::Invalid,
            "spec.x: Invalid value: 1: spec.x in body should be greater than 1",
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            Cause::Invalid,
            "spec.x: Invalid value: 1.5: spec.x in body should be less than 1.5",
        ),
        (
            json!({"type": "number", "multipleOf": 0.5}),
            json!(1.3),
            Cause::Invalid,
            "spec.x: Invalid value: 1.3: spec.x in body should be a multiple of 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            Cause::Invalid,
            "spec.x: Invalid value: 7: spec.x in body should be a multiple of 5",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            Cause::Invalid,
            "spec.x: Invalid value: \"a\": spec.x in body should be at least 2 chars long",
        ),
        (
            json!({"type": "string", "maxLength": 8}),
            json!("123456789"),
            Cause::TooLong,
            "spec.x: Too long: may not be more than 8 bytes",
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            Cause::Invalid,
            "spec.x: Invalid value: \"A\": spec.x in body should match '^[a-z]+$'",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}),
            json!([1, 2]),
            Cause::TooMany,
            "spec.x: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 3}),
            json!([1, 2]),
            Cause::Invalid,
            "spec.x: Invalid value: 2: spec.x in body should have at least 3 items",
        ),
        (
            json!({"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}}),
            json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}),
            Cause::TooMany,
            "spec.x: Too many: 5: must have at most 4 items",
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            Cause::Invalid,
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": "b"}),
            Cause::TypeInvalid,
            "spec.x.a: Invalid value: \"string\": spec.x.a in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"a": 1}),
            Cause::Invalid,
            "spec.x: Invalid value: \"a\": spec.x.a in body is a forbidden property",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "a"]),
            Cause::Duplicate,
            "spec.x[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("yesterday"),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"yesterday\": spec.x in body must be of type date-time: \"yesterday\"",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!(5),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"int64\": spec.x in body must be of type date-time: \"int64\"",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            Cause::Invalid,
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            Cause::TypeInvalid,
            "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "v1"}),
            Cause::Required,
            "spec.x.kind: Required value",
        ),
        (
            json!({"type": "integer", "not": {"enum": [5]}}),
            json!(5),
            Cause::Invalid,
            "<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)",
        ),
    ] {
        let errors = errors_of(&schema, &value);
        assert_eq!(texts(&errors), [text], "{schema} {value}");
        assert_eq!(errors.first().map(|e| e.cause), Some(cause), "{schema} {value}");
    }
}

#[test]
fn fractions_are_no_integers() {
    assert_eq!(
        texts(&errors_of(&json!({"type": "integer"}), &json!(1.5))),
        [
            "spec.x: Invalid value: \"number\": spec.x in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.x"
        ]
    );
}

#[test]
fn valid_values_pass() {
    for (schema, value) in [
        (json!({"type": "integer"}), json!(9_007_199_254_740_993_i64)),
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("5%"),
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"a": [1, {"b": null}]}),
        ),
        (json!({"type": "string", "format": "made-up"}), json!("x")),
        (json!({"type": "string", "maxLength": 3}), json!("äöü")),
        (json!({"type": "string", "pattern": "b"}), json!("abc")),
        (json!({"type": "number", "format": "double"}), json!(1e300)),
    ] {
        assert_eq!(texts(&errors_of(&schema, &value)), [""; 0], "{schema} {value}");
    }
}

#[test]
fn alternatives_report_what_came_closest() {
    let one = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        texts(&errors_of(&one, &json!({}))),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
            "spec.x.a: Required value"
        ]
    );
    assert_eq!(
        texts(&errors_of(&one, &json!({"a": "1", "b": "2"}))),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    let any = json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"minLength": 5}]});
    assert_eq!(
        texts(&errors_of(&any, &json!("b"))),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
            "spec.x: Invalid value: \"b\": spec.x in body should match '^a'"
        ]
    );
    let all = json!({"type": "string", "allOf": [{"pattern": "^a"}, {"minLength": 5}]});
    assert_eq!(
        texts(&errors_of(&all, &json!("abc"))),
        [
            "spec.x: Invalid value: \"abc\": spec.x in body should be at least 5 chars long",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)"
        ]
    );
    assert!(
        texts(&errors_of(&all, &json!("b")))
            .iter()
            .any(|t| t.ends_with("(allOf). None validated"))
    );
}

#[test]
fn updates_forgive_what_did_not_change() {
    let schema = parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "maxLength": 1},
            "b": {"type": "integer"},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                     "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
            "plain": {"type": "array", "items": {"type": "integer", "maximum": 1}}
        }}}}),
    );
    let old = json!({"spec": {"a": "long", "b": 1, "list": [{"n": "x", "v": 5}], "plain": [5]}});
    let check = |new: Value| {
        texts(&validate(
            &schema,
            &new,
            Some(&old),
            &mut Budget::per_object(),
            &mut Vec::new(),
        ))
    };
    assert!(check(json!({"spec": {"a": "long", "b": 2, "list": [{"n": "y", "v": 0}, {"n": "x", "v": 5}], "plain": [5]}})).is_empty());
    assert_eq!(
        check(json!({"spec": {"a": "longer", "b": 1, "list": [{"n": "x", "v": 6}], "plain": [5, 0]}})),
        [
            "spec.a: Too long: may not be more than 1 byte",
            "spec.list[0].v: Invalid value: 6: spec.list[0].v in body should be less than or equal to 1",
            "spec.plain[0]: Invalid value: 5: spec.plain[0] in body should be less than or equal to 1"
        ]
    );
}

#[test]
fn duplicates_are_forgiven_if_there_were_some() {
    let schema = parse(&json!({"type": "object", "properties": {
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}, "n": {"type": "integer"}}}));
    let twice = json!({"s": ["a", "a"], "n": 1});
    assert_eq!(
        validate(
            &schema,
            &twice,
            Some(&json!({"s": ["a"]})),
            &mut Budget::per_object(),
            &mut Vec::new(),
        )
        .len(),
        1
    );
    assert!(
        validate(
            &schema,
            &twice,
            Some(&json!({"s": ["b", "b"]})),
            &mut Budget::per_object(),
            &mut Vec::new(),
        )
        .is_empty()
    );
}

#[test]
fn status_errors_name_the_status() {
    let schema = parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["a"]},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "enum": ["On"]}, "n": {"type": "integer"}}}}}));
    let new = json!({"spec": {}, "status": {"phase": "Off", "n": "x"}});
    assert_eq!(
        texts(&validate_status(
            &schema,
            &new,
            &json!({"spec": {}}),
            &mut Budget::per_object(),
            &mut Vec::new(),
        )),
        [
            "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"",
            "status.phase: Unsupported value: \"Off\": supported values: \"On\""
        ]
    );
}
