// SPDX-License-Identifier: Apache-2.0
//! Objects and patches made by expressions, as mutating policies use them.

use cobaltcore_cel::{Budget, DeclType, Env, Input, compile};
use serde_json::{Value, json};

fn env() -> Env {
    Env::new().variable("object", DeclType::Dyn).with_objects()
}

fn made(source: &str) -> Value {
    let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 2}});
    compile(source, &env())
        .unwrap_or_else(|e| panic!("{source}: {e}"))
        .evaluate_json(&[("object", Input::Json(&object))], &mut Budget::per_object())
        .unwrap_or_else(|e| panic!("{source}: {e}"))
}

#[test]
fn objects_become_json() {
    assert_eq!(made("Object{}"), json!({}));
    assert_eq!(
        made(
            r#"Object{metadata: Object.metadata{labels: {"x": object.metadata.labels.a}},
                spec: Object.spec{replicas: object.spec.replicas + 1, paused: true, ratio: 0.5,
                    template: Object.spec.template{containers: [
                        Object.spec.template.containers{name: "a", ?image: object.?image, ?other: optional.of("o")}]}}}"#
        ),
        json!({"metadata": {"labels": {"x": "b"}}, "spec": {"replicas": 3, "paused": true, "ratio": 0.5,
            "template": {"containers": [{"name": "a", "other": "o"}]}}})
    );
}

#[test]
fn patches_become_json() {
    assert_eq!(
        made(
            r#"[JSONPatch{op: "test", path: "/spec/replicas", value: 2},
                JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("k8s.io/a~b"), value: {"x": "y"}}]"#
        ),
        json!([{"op": "test", "path": "/spec/replicas", "value": 2},
            {"op": "add", "path": "/metadata/labels/k8s.io~1a~0b", "value": {"x": "y"}}])
    );
    assert_eq!(
        made("object.spec.replicas > 5 ? [JSONPatch{op: 'remove', path: '/x'}] : []"),
        json!([])
    );
}

#[test]
fn what_an_expression_makes_is_known_before_it_runs() {
    for (source, object, patch) in [
        ("Object{}", true, false),
        ("object", true, true),
        ("[JSONPatch{}]", false, true),
        ("Object.spec{}", false, false),
        ("[Object{}]", false, false),
        ("1", false, false),
    ] {
        let program = compile(source, &env()).unwrap();
        assert_eq!(
            (program.result_is_object(), program.result_is_patch()),
            (object, patch),
            "{source}"
        );
    }
}

#[test]
fn names_and_types_must_fit() {
    for (source, text) in [
        ("Thing{}", "undeclared reference to 'Thing' (in container '')"),
        (
            "JSONPatch{op: 1}",
            "expected type of field 'op' is 'string' but provided type is 'int'",
        ),
        ("JSONPatch{what: 1}", "undefined field 'what'"),
        (
            "Object{spec: Object.status{}}",
            r#"unexpected type name "Object.status", expected "Object.spec", which matches field name path from root Object type"#,
        ),
        (
            "Object{spec: Object.spec{list: [Object.spec{}]}}",
            r#"unexpected type name "Object.spec", expected "Object.spec.list", which matches field name path from root Object type"#,
        ),
    ] {
        let error = compile(source, &env()).expect_err(source).to_string();
        assert!(error.contains(text), "{source}: {error}");
    }
}

#[test]
fn other_expressions_know_nothing_of_them() {
    let plain = Env::new().variable("self", DeclType::Dyn);
    for (source, name) in [
        ("Object{}", "Object"),
        ("JSONPatch{op: 'add'}", "JSONPatch"),
        ("jsonpatch.escapeKey('a')", "jsonpatch"),
    ] {
        let error = compile(source, &plain).expect_err(source).to_string();
        assert!(
            error.contains(&format!("undeclared reference to '{name}'")),
            "{source}: {error}"
        );
    }
}
