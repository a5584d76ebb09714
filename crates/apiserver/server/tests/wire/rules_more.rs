// SPDX-License-Identifier: Apache-2.0
//! Rules at work in the corners: maps, sets, embedded objects, formats, status and defaults.

use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

/// A schema, specs it takes and specs it refuses with the given end of the message.
struct Case {
    schema: Value,
    good: Vec<Value>,
    bad: Vec<(Value, &'static str)>,
}

fn cases() -> Vec<Case> {
    let rule = |properties: Value, rule: &str| json!({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule, "message": "no"}]});
    let text = json!({"type": "string", "maxLength": 64});
    vec![
        Case {
            schema: rule(
                json!({"m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}}),
                "self.m.all(k, self.m[k] > 0)",
            ),
            good: vec![json!({"m": {"a": 1}}), json!({"m": {}})],
            bad: vec![(json!({"m": {"a": 0}}), "no")],
        },
        Case {
            schema: rule(
                json!({"a": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": text}, "b": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": text}}),
                "self.a == self.b",
            ),
            good: vec![json!({"a": ["x", "y"], "b": ["y", "x"]})],
            bad: vec![(json!({"a": ["x"], "b": ["y"]}), "no")],
        },
        Case {
            schema: rule(
                json!({"d": {"type": "string", "format": "duration", "maxLength": 20}}),
                "self.d > duration('1m')",
            ),
            good: vec![json!({"d": "90s"}), json!({"d": "1h"})],
            bad: vec![(json!({"d": "30s"}), "no")],
        },
        Case {
            schema: rule(
                json!({"p": {"x-kubernetes-int-or-string": true}}),
                "type(self.p) == int ? self.p > 0 : self.p.endsWith('%')",
            ),
            good: vec![json!({"p": 5}), json!({"p": "5%"})],
            bad: vec![(json!({"p": 0}), "no"), (json!({"p": "5"}), "no")],
        },
        Case {
            schema: rule(
                json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}),
                "self.e.kind == 'Pod' && self.e.metadata.name.startsWith('p')",
            ),
            good: vec![json!({"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pp"}}})],
            bad: vec![(
                json!({"e": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pp"}}}),
                "no",
            )],
        },
        Case {
            schema: rule(
                json!({"ip": text, "net": text}),
                "isIP(self.ip) && cidr(self.net).containsIP(ip(self.ip))",
            ),
            good: vec![json!({"ip": "10.0.0.1", "net": "10.0.0.0/8"})],
            bad: vec![
                (json!({"ip": "11.0.0.1", "net": "10.0.0.0/8"}), "no"),
                (json!({"ip": "x", "net": "10.0.0.0/8"}), "no"),
            ],
        },
        Case {
            schema: rule(
                json!({"s": text}),
                "self.s.lowerAscii() == self.s && self.s.matches('^[a-z]+$') && self.s.size() <= 5",
            ),
            good: vec![json!({"s": "abc"})],
            bad: vec![(json!({"s": "ABC"}), "no"), (json!({"s": "abcdef"}), "no")],
        },
        Case {
            schema: rule(
                json!({"l": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}}),
                "self.l.map(x, x.n).sum() <= 10 && self.l.exists_one(x, x.n == 1)",
            ),
            good: vec![json!({"l": [{"n": 1}, {"n": 9}]})],
            bad: vec![
                (json!({"l": [{"n": 1}, {"n": 10}]}), "no"),
                (json!({"l": [{"n": 1}, {"n": 1}]}), "no"),
            ],
        },
        Case {
            schema: rule(json!({"v": text}), "semver(self.v).isLessThan(semver('2.0.0'))"),
            good: vec![json!({"v": "1.9.9"})],
            bad: vec![(json!({"v": "2.0.0"}), "no")],
        },
        Case {
            schema: rule(
                json!({"u": text}),
                "url(self.u).getScheme() == 'https' && url(self.u).getHostname() != ''",
            ),
            good: vec![json!({"u": "https://example.com/x"})],
            bad: vec![(json!({"u": "http://example.com"}), "no")],
        },
        Case {
            schema: rule(json!({"a": {"type": "integer", "default": 5}}), "self.a == 5"),
            good: vec![json!({})],
            bad: vec![(json!({"a": 6}), "no")],
        },
        Case {
            schema: rule(
                json!({"n": {"type": "string", "nullable": true, "maxLength": 5}}),
                "!has(self.n) || self.n == 'x'",
            ),
            good: vec![json!({}), json!({"n": "x"})],
            bad: vec![(json!({"n": "y"}), "no")],
        },
        Case {
            schema: rule(
                json!({"l": {"type": "array", "maxItems": 5, "items": text}}),
                "self.l.all(i, v, i == 0 || self.l[i - 1] <= v)",
            ),
            good: vec![json!({"l": ["a", "b"]})],
            bad: vec![(json!({"l": ["b", "a"]}), "no")],
        },
        Case {
            schema: rule(
                json!({"f": text}),
                "!format.dns1123Label().validate(self.f).hasValue()",
            ),
            good: vec![json!({"f": "abc"})],
            bad: vec![(json!({"f": "A_b"}), "no")],
        },
        Case {
            schema: rule(json!({"x": {"type": "integer"}}), "1 / self.x > 0"),
            good: vec![json!({"x": 1})],
            bad: vec![(json!({"x": 0}), "division by zero evaluating rule: no")],
        },
    ]
}

#[tokio::test]
async fn rules_judge_as_the_reference_does() {
    for case in cases() {
        let server = TestServer::start().await;
        let admin = server.admin();
        install(&admin, &definition("widgets", "Widget", case.schema.clone())).await;
        for good in &case.good {
            let reply = admin
                .post(&format!("{WIDGETS}?dryRun=All"), &widget("w", good.clone()))
                .await;
            assert_eq!(reply.code, 201, "{}\n{good}: {}", case.schema, reply.body);
        }
        for (bad, end) in &case.bad {
            let reply = admin.post(WIDGETS, &widget("w", bad.clone())).await;
            assert_eq!(reply.code, 422, "{}\n{bad}: {}", case.schema, reply.body);
            assert!(reply.message().ends_with(end), "{bad}: {}", reply.message());
        }
    }
}

#[tokio::test]
async fn rules_of_the_status_run_at_its_endpoint_only() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.a > 0", "message": "spec rule"}]},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "status rule"}, {"rule": "!has(oldSelf.n) || self.n >= oldSelf.n", "message": "only up"}]}}});
    install(
        &admin,
        &definition_with(
            "widgets",
            "Widget",
            schema,
            json!({"subresources": {"status": {}}}),
        ),
    )
    .await;
    create(&admin, WIDGETS, &widget("w", json!({"a": 1}))).await;
    let path = format!("{WIDGETS}/w/status");
    let bad = admin.merge(&path, &json!({"status": {"n": 0}})).await;
    assert_eq!(bad.code, 422, "{}", bad.body);
    assert!(bad.message().contains("status rule"), "{}", bad.message());
    assert_eq!(bad.body["details"]["causes"][0]["field"], "status");
    assert_eq!(admin.merge(&path, &json!({"status": {"n": 3}})).await.code, 200);
    let down = admin.merge(&path, &json!({"status": {"n": 2}})).await;
    assert!(down.message().ends_with("only up"), "{}", down.message());
}

#[tokio::test]
async fn a_rule_on_an_array_item_names_its_index_and_on_a_map_its_key() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "maxItems": 5, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "item"}]}},
        "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "value"}]}}}});
    install(&admin, &definition("widgets", "Widget", schema)).await;
    let reply = admin
        .post(WIDGETS, &widget("w", json!({"l": [1, 0], "m": {"k": 0}})))
        .await;
    let mut found = causes(&reply);
    found.sort();
    assert_eq!(
        found,
        [
            "spec.l[1] FieldValueInvalid: Invalid value: 0: item",
            "spec.m[k] FieldValueInvalid: Invalid value: 0: value"
        ]
    );
}
