// SPDX-License-Identifier: Apache-2.0
//! Rules in schemas: what is refused at registration, what each rule says when it fails, and that
//! none of them can hold the server up.

use std::time::Duration;

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

fn ruled(spec: Value) -> Value {
    definition("widgets", "Widget", spec)
}

fn rules(rules: Value) -> Value {
    ruled(
        json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string", "maxLength": 20},
        "fixed": {"type": "string", "maxLength": 20}, "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}}}}),
    )
}

async fn replace_rules(admin: &Caller, value: Value) {
    let patch = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations", "value": value}]);
    let reply = admin
        .json_patch(&format!("{CRDS}/widgets.example.com"), &patch)
        .await;
    assert_eq!(reply.code, 200, "{}", reply.body);
}

#[tokio::test]
async fn failing_rules_say_what_they_were_told_to() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &rules(json!([{"rule": "true"}]))).await;
    let cases = [
        (
            json!({"rule": "self.min <= self.max"}),
            json!({"min": 2, "max": 1}),
            "spec FieldValueInvalid: Invalid value: failed rule: self.min <= self.max",
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "min above max"}),
            json!({"min": 2, "max": 1}),
            "spec FieldValueInvalid: Invalid value: min above max",
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "plain", "messageExpression": "'min is above max in ' + self.name"}),
            json!({"min": 2, "max": 1, "name": "n"}),
            "spec FieldValueInvalid: Invalid value: min is above max in n",
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "plain", "messageExpression": "self.list[5]"}),
            json!({"min": 2, "max": 1, "list": []}),
            "spec FieldValueInvalid: Invalid value: plain",
        ),
        (
            json!({"rule": "has(self.name)", "message": "say a name", "reason": "FieldValueRequired", "fieldPath": ".name"}),
            json!({}),
            "spec.name FieldValueRequired: Required value: say a name",
        ),
        (
            json!({"rule": "!has(self.name)", "message": "no names", "reason": "FieldValueForbidden", "fieldPath": ".name"}),
            json!({"name": "x"}),
            "spec.name FieldValueForbidden: Forbidden: no names",
        ),
        (
            json!({"rule": "self.name != 'twin'", "reason": "FieldValueDuplicate", "fieldPath": ".name", "message": "m"}),
            json!({"name": "twin"}),
            "spec.name FieldValueDuplicate: Duplicate value",
        ),
        (
            json!({"rule": "self.list.all(x, x.startsWith('a'))"}),
            json!({"list": ["a", "b"]}),
            "spec FieldValueInvalid: Invalid value: failed rule: self.list.all(x, x.startsWith('a'))",
        ),
        (
            json!({"rule": "timestamp('2020-01-01T00:00:00Z') < self.when", "message": "old"}),
            json!({"when": "2019-01-01T00:00:00Z"}),
            "spec FieldValueInvalid: Invalid value: old",
        ),
        (
            json!({"rule": "self.list.isSorted()", "message": "sort it"}),
            json!({"list": ["b", "a"]}),
            "spec FieldValueInvalid: Invalid value: sort it",
        ),
        (
            json!({"rule": "!has(self.name) || quantity(self.name).isGreaterThan(quantity('1Gi'))", "message": "small"}),
            json!({"name": "1Mi"}),
            "spec FieldValueInvalid: Invalid value: small",
        ),
        (
            json!({"rule": "isURL(self.name)", "message": "no url"}),
            json!({"name": "::"}),
            "spec FieldValueInvalid: Invalid value: no url",
        ),
        (
            json!({"rule": "self.?name.orValue('') == 'x'", "message": "not x"}),
            json!({}),
            "spec FieldValueInvalid: Invalid value: not x",
        ),
    ];
    for (rule, spec, wanted) in cases {
        replace_rules(&admin, json!([rule])).await;
        let reply = admin.post(WIDGETS, &widget("w", spec.clone())).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{rule}: {}",
            reply.body
        );
        let found = causes(&reply);
        // The reference prints the value between "Invalid value" and the message.
        let matches = found.iter().any(|c| {
            c == wanted
                || (c.starts_with("spec FieldValueInvalid: Invalid value: ")
                    && c.ends_with(wanted.rsplit("Invalid value: ").next().unwrap()))
        });
        assert!(matches, "{rule}\n wanted {wanted}\n found {found:?}");
    }
}

#[tokio::test]
async fn rules_that_do_not_compile_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let cases = [
        ("self.nothing == 1", "undefined field 'nothing'"),
        (
            "self.min == 'x'",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        ("self.min + 1", "must evaluate to a bool"),
        ("self.min ==", "Syntax error"),
        ("unknown(self)", "undeclared reference to 'unknown'"),
        (
            "self.name.reverse() == 'x'",
            "found no matching overload for 'reverse' applied to 'string.()'",
        ),
        (
            "math.greatest(self.min, 1) == 1",
            "undeclared reference to 'math'",
        ),
        ("base64.encode(b'x') == 'x'", "undeclared reference to 'base64'"),
        ("cel.bind(x, self.min, x > 1)", "undeclared reference to"),
        ("self.list.existsOne(x, x == 'a')", "undeclared reference to"),
        ("now() > self.when", "undeclared reference to 'now'"),
        (
            "authorizer.group('').resource('pods').check('get').allowed()",
            "undeclared reference to 'authorizer'",
        ),
        (
            "self.min == 1.0",
            "found no matching overload for '_==_' applied to '(int, double)'",
        ),
        ("", "rule"),
    ];
    for (rule, text) in cases {
        let reply = admin.post(CRDS, &rules(json!([{"rule": rule}]))).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{rule}: {}",
            reply.body
        );
        let found = causes(&reply);
        assert!(
            found.iter().any(|c| c.starts_with(
                "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
            )),
            "{rule}: {found:?}"
        );
        assert!(reply.message().contains(text), "{rule}: {}", reply.message());
    }
    let cases = [
        (
            json!({"rule": "true", "messageExpression": "1"}),
            "messageExpression",
            "must evaluate to a string",
        ),
        (
            json!({"rule": "true", "reason": "Odd"}),
            "reason",
            "Unsupported value: \"Odd\"",
        ),
        (
            json!({"rule": "true", "fieldPath": ".nowhere"}),
            "fieldPath",
            "nowhere",
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            "message",
            "must not contain line breaks",
        ),
    ];
    for (rule, part, text) in cases {
        let reply = admin.post(CRDS, &rules(json!([rule]))).await;
        assert_eq!(reply.code, 422, "{rule}: {}", reply.body);
        let found = causes(&reply);
        assert!(
            found
                .iter()
                .any(|c| c.contains(&format!("x-kubernetes-validations[0].{part}")) && c.contains(text)),
            "{rule}: {found:?}"
        );
    }
}

#[tokio::test]
async fn transition_rules_need_an_old_value() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let crd = ruled(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        "up": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]},
        "opt": {"type": "integer", "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 0", "optionalOldSelf": true, "message": "begin at 0"}]},
        "items": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "v is immutable"}]}}}}}}));
    install(&admin, &crd).await;
    create(
        &admin,
        WIDGETS,
        &widget("w", json!({"up": 1, "items": [{"k": "a", "v": "1"}]})),
    )
    .await;
    let path = format!("{WIDGETS}/w");
    let set = admin.merge(&path, &json!({"spec": {"fixed": "x"}})).await;
    assert_eq!(set.code, 200, "no old value, no rule: {}", set.body);
    let changed = admin.merge(&path, &json!({"spec": {"fixed": "y"}})).await;
    assert_eq!(changed.code, 422);
    assert_eq!(
        causes(&changed),
        ["spec.fixed FieldValueInvalid: Invalid value: \"y\": fixed is immutable"]
    );
    assert_eq!(
        changed.message(),
        "Widget.example.com \"w\" is invalid: spec.fixed: Invalid value: \"y\": fixed is immutable"
    );
    let down = admin.merge(&path, &json!({"spec": {"up": 0}})).await;
    assert_eq!(
        causes(&down),
        ["spec.up FieldValueInvalid: Invalid value: 0: only up"]
    );
    assert_eq!(admin.merge(&path, &json!({"spec": {"up": 2}})).await.code, 200);
    let begun = admin.merge(&path, &json!({"spec": {"opt": 3}})).await;
    assert_eq!(
        causes(&begun),
        ["spec.opt FieldValueInvalid: Invalid value: 3: begin at 0"]
    );
    assert_eq!(admin.merge(&path, &json!({"spec": {"opt": 0}})).await.code, 200);
    assert_eq!(admin.merge(&path, &json!({"spec": {"opt": 3}})).await.code, 200);
    let moved = admin
        .merge(
            &path,
            &json!({"spec": {"items": [{"k": "b", "v": "9"}, {"k": "a", "v": "1"}]}}),
        )
        .await;
    assert_eq!(moved.code, 200, "correlated by key: {}", moved.body);
    let element = admin
        .merge(
            &path,
            &json!({"spec": {"items": [{"k": "b", "v": "9"}, {"k": "a", "v": "2"}]}}),
        )
        .await;
    assert_eq!(
        causes(&element),
        ["spec.items[1].v FieldValueInvalid: Invalid value: \"2\": v is immutable"]
    );
    // Rules with oldSelf are not allowed where old values cannot be found.
    let atomic = ruled(
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}}),
    );
    let mut atomic = atomic;
    atomic["metadata"]["name"] = json!("others.example.com");
    atomic["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    let refused = admin.post(CRDS, &atomic).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(
        refused
            .message()
            .contains("oldSelf cannot be used on the uncorrelatable portion of the schema within"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn rules_of_unchanged_values_are_not_asked_again() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &rules(json!([{"rule": "true"}]))).await;
    create(&admin, WIDGETS, &widget("w", json!({"min": 2, "max": 1}))).await;
    replace_rules(
        &admin,
        json!([{"rule": "self.min <= self.max", "message": "min above max"}]),
    )
    .await;
    let label = admin
        .merge(
            &format!("{WIDGETS}/w"),
            &json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    assert_eq!(label.code, 200, "{}", label.body);
    let touched = admin
        .merge(&format!("{WIDGETS}/w"), &json!({"spec": {"name": "x"}}))
        .await;
    assert_eq!(
        touched.code, 422,
        "the node of the rule changed: {}",
        touched.body
    );
}

#[tokio::test]
async fn rules_wait_until_the_structure_is_right() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &rules(json!([{"rule": "self.min <= self.max", "message": "min above max"}])),
    )
    .await;
    let reply = admin
        .post(WIDGETS, &widget("w", json!({"min": 2, "max": "x"})))
        .await;
    let found = causes(&reply);
    assert!(found.contains(&"spec.max FieldValueTypeInvalid: Invalid value: \"string\": spec.max in body must be of type integer: \"string\"".to_owned()), "{found:?}");
    assert!(found.iter().any(|c| c.contains("some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")), "{found:?}");
    assert!(!found.iter().any(|c| c.contains("min above max")), "{found:?}");
}

#[tokio::test]
async fn root_rules_see_names_and_escaped_fields() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('w')", "message": "names begin with w"},
            {"rule": "self.kind == 'Widget' && self.apiVersion == 'example.com/v1'"}],
        "properties": {"spec": {"type": "object", "properties": {
            "a-b": {"type": "integer"}, "c.d": {"type": "integer"}, "e__f": {"type": "integer"}, "namespace": {"type": "integer"}, "my_field": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "!has(self.a__dash__b) || self.a__dash__b > 0"}, {"rule": "!has(self.c__dot__d) || self.c__dot__d > 0"},
                {"rule": "!has(self.e__underscores__f) || self.e__underscores__f > 0"}, {"rule": "!has(self.__namespace__) || self.__namespace__ > 0"}, {"rule": "!has(self.my_field) || self.my_field > 0"}]}}});
    install(&admin, &definition_with("widgets", "Widget", schema, json!({}))).await;
    let named = admin.post(WIDGETS, &widget("x", json!({}))).await;
    assert_eq!(named.code, 422);
    assert!(
        named.message().ends_with("names begin with w"),
        "{}",
        named.message()
    );
    for field in ["a-b", "c.d", "e__f", "namespace", "my_field"] {
        assert_eq!(
            admin.post(WIDGETS, &widget("w", json!({field: 0}))).await.code,
            422,
            "{field}"
        );
        assert_eq!(
            admin
                .post(&format!("{WIDGETS}?dryRun=All"), &widget("w", json!({field: 1})))
                .await
                .code,
            201,
            "{field}"
        );
    }
}

#[tokio::test]
async fn expensive_rules_are_refused_at_registration() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let crd = ruled(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b != c)))"}]}),
    );
    let reply = admin.post(CRDS, &crd).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert!(
        reply
            .message()
            .contains("estimated rule cost exceeds budget by factor of"),
        "{}",
        reply.message()
    );
    assert!(reply.message().contains("(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"), "{}", reply.message());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runaway_rule_ends_by_its_budget_and_blocks_nobody() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let crd = ruled(
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 500, "items": {"type": "integer"}}},
        "x-kubernetes-validations": [{"rule": "self.l.all(a, self.l.all(b, a + b >= 0))"}]}),
    );
    let reply = admin.post(CRDS, &crd).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let list: Vec<u32> = (0..500).collect();
    let posting = {
        let admin = admin.clone();
        tokio::spawn(async move { admin.post(WIDGETS, &widget("w", json!({"l": list}))).await })
    };
    while !posting.is_finished() {
        assert_eq!(admin.get(NS).await.code, 200, "others are served meanwhile");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reply = posting.await.unwrap();
    assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{}", reply.body);
    assert!(
        reply.message().contains("call cost exceeds limit for rule"),
        "{}",
        reply.message()
    );
}
