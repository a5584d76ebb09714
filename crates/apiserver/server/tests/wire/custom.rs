// SPDX-License-Identifier: Apache-2.0
//! Custom resources: how a definition is judged and lives, and what its schema does to instances.

use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

fn spec(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn typed() -> Value {
    definition(
        "widgets",
        "Widget",
        json!({"type": "object", "required": ["must"], "properties": {
        "must": {"type": "string"},
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "open": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 10, "exclusiveMaximum": true},
        "speed": {"type": "string", "enum": ["Fast", "Slow"]},
        "ratio": {"type": "number", "multipleOf": 0.5},
        "short": {"type": "string", "minLength": 2, "maxLength": 8},
        "low": {"type": "string", "pattern": "^[a-z]+$"},
        "list": {"type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string"}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "x": {"type": "string"}}}},
        "limits": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}},
        "when": {"type": "string", "format": "date-time"},
        "either": {"x-kubernetes-int-or-string": true},
        "ip": {"type": "string", "format": "ipv4"},
        "nothing": {"type": "string", "nullable": true},
        "filled": {"type": "string", "default": "full"}}}),
    )
}

#[tokio::test]
async fn instances_are_checked_with_the_texts_of_the_reference() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &typed()).await;
    let cases = [
        (
            json!({"size": "x"}),
            "spec.size FieldValueTypeInvalid: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1.5}),
            "spec.size FieldValueTypeInvalid: Invalid value: \"number\": spec.size in body must be of type integer: \"number\"",
        ),
        (
            json!({"must": 3}),
            "spec.must FieldValueTypeInvalid: Invalid value: \"integer\": spec.must in body must be of type string: \"integer\"",
        ),
        (
            json!({"must": null}),
            "spec.must FieldValueRequired: Required value",
        ),
        (
            json!({"list": "x"}),
            "spec.list FieldValueTypeInvalid: Invalid value: \"string\": spec.list in body must be of type array: \"string\"",
        ),
        (
            json!({"size": 101}),
            "spec.size FieldValueInvalid: Invalid value: 101: spec.size in body should be less than or equal to 100",
        ),
        (
            json!({"size": 0}),
            "spec.size FieldValueInvalid: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"open": 1}),
            "spec.open FieldValueInvalid: Invalid value: 1: spec.open in body should be greater than 1",
        ),
        (
            json!({"open": 10}),
            "spec.open FieldValueInvalid: Invalid value: 10: spec.open in body should be less than 10",
        ),
        (
            json!({"speed": "Medium"}),
            "spec.speed FieldValueNotSupported: Unsupported value: \"Medium\": supported values: \"Fast\", \"Slow\"",
        ),
        (
            json!({"ratio": 0.7}),
            "spec.ratio FieldValueInvalid: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5",
        ),
        (
            json!({"short": "a"}),
            "spec.short FieldValueInvalid: Invalid value: \"a\": spec.short in body should be at least 2 chars long",
        ),
        (
            json!({"short": "aaaaaaaaa"}),
            "spec.short FieldValueTooLong: Too long: may not be more than 8 bytes",
        ),
        (
            json!({"low": "A"}),
            "spec.low FieldValueInvalid: Invalid value: \"A\": spec.low in body should match '^[a-z]+$'",
        ),
        (
            json!({"list": []}),
            "spec.list FieldValueInvalid: Invalid value: 0: spec.list in body should have at least 1 items",
        ),
        (
            json!({"list": ["1", "2", "3", "4", "5"]}),
            "spec.list FieldValueTooMany: Too many: 5: must have at most 4 items",
        ),
        (
            json!({"tags": ["a", "a"]}),
            "spec.tags[1] FieldValueDuplicate: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [{"n": 1}, {"n": 1}]}),
            "spec.ports[1] FieldValueDuplicate: Duplicate value: {\"n\":1}",
        ),
        (
            json!({"limits": {"a": 1, "b": 2, "c": 3}}),
            "spec.limits FieldValueTooMany: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"limits": {"a": "x"}}),
            "spec.limits.a FieldValueTypeInvalid: Invalid value: \"string\": spec.limits.a in body must be of type integer: \"string\"",
        ),
        (
            json!({"when": "yesterday"}),
            "spec.when FieldValueTypeInvalid: Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
        ),
        (
            json!({"either": true}),
            "spec.either FieldValueTypeInvalid: Invalid value: \"boolean\": spec.either in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"ip": "300.1.1.1"}),
            "spec.ip FieldValueTypeInvalid: Invalid value: \"300.1.1.1\": spec.ip in body must be of type ipv4: \"300.1.1.1\"",
        ),
        (
            json!({"ports": [{"x": "y"}]}),
            "spec.ports[0].n FieldValueRequired: Required value",
        ),
    ];
    for (extra, wanted) in cases {
        let mut spec = json!({"must": "m"});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let reply = admin.post(WIDGETS, &widget("w", spec)).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{extra}: {}",
            reply.body
        );
        assert_eq!(
            causes(&reply).first().map(String::as_str),
            Some(wanted),
            "{extra}: {:#?}",
            causes(&reply)
        );
        assert!(
            reply
                .message()
                .starts_with("Widget.example.com \"w\" is invalid: "),
            "{}",
            reply.message()
        );
        assert_eq!(
            (
                &reply.body["details"]["kind"],
                &reply.body["details"]["group"],
                &reply.body["details"]["name"]
            ),
            (&json!("Widget"), &json!("example.com"), &json!("w"))
        );
    }
    let missing = admin.post(WIDGETS, &widget("w", json!({}))).await;
    assert_eq!(causes(&missing), ["spec.must FieldValueRequired: Required value"]);
    let two = admin
        .post(WIDGETS, &widget("w", json!({"size": 0, "must": "m", "low": "A"})))
        .await;
    assert_eq!(two.body["details"]["causes"].as_array().unwrap().len(), 2);
    assert!(two.message().contains("is invalid: [spec."), "{}", two.message());
    let fine = admin.post(WIDGETS, &widget("w", json!({"must": "m", "ratio": 1.5, "either": "50%", "size": 1, "when": "2020-01-01T00:00:00Z"}))).await;
    assert_eq!(fine.code, 201, "{}", fine.body);
}

#[tokio::test]
async fn envelopes_of_custom_resources_must_fit() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &definition("widgets", "Widget", spec(json!({})))).await;
    let mut other = widget("w", json!({}));
    other["kind"] = json!("Gadget");
    let kind = admin.post(WIDGETS, &other).await;
    assert_eq!(kind.code, 422, "{}", kind.body);
    assert_eq!(
        causes(&kind),
        ["kind FieldValueInvalid: Invalid value: \"Gadget\": must be Widget"]
    );
    let mut version = widget("w", json!({}));
    version["apiVersion"] = json!("example.com/v2");
    let version = admin.post(WIDGETS, &version).await;
    assert_eq!(
        (version.code, version.message()),
        (
            400,
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
        )
    );
    let mut none = widget("w", json!({}));
    none.as_object_mut().unwrap().remove("kind");
    assert_eq!(admin.post(WIDGETS, &none).await.code, 400);
    let mut odd = widget("w", json!({}));
    odd["metadata"]["labels"] = json!("x");
    assert_eq!(admin.post(WIDGETS, &odd).await.code, 400);
    let unnamed = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}});
    let unnamed = admin.post(WIDGETS, &unnamed).await;
    assert_eq!(
        causes(&unnamed),
        ["metadata.name FieldValueRequired: Required value: name or generateName is required"]
    );
    let strategic = admin.strategic(&format!("{WIDGETS}/w"), &json!({})).await;
    assert_eq!(
        (strategic.code, strategic.reason()),
        (415, "UnsupportedMediaType")
    );
}

#[tokio::test]
async fn pruning_nulls_and_defaults() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let crd = definition(
        "widgets",
        "Widget",
        spec(json!({
            "a": {"type": "string", "default": "A"},
            "b": {"type": "string"},
            "n": {"type": "string", "nullable": true},
            "nd": {"type": "string", "nullable": true, "default": "D"},
            "inner": {"type": "object", "properties": {"x": {"type": "integer", "default": 7}}},
            "made": {"type": "object", "default": {}, "properties": {"y": {"type": "integer", "default": 8}}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"z": {"type": "integer", "default": 9}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"w": {"type": "integer", "default": 10}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"k": {"type": "string"}}}}},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        })),
    );
    install(&admin, &crd).await;
    let mut object = widget(
        "w",
        json!({"a": null, "b": null, "n": null, "nd": null, "unknown": 1, "inner": {"u": 1}, "items": [{}, {"z": 1}], "map": {"k": {}},
        "free": {"any": {"thing": [1, null]}, "known": {"k": "v", "u": 1}}}),
    );
    object["extra"] = json!("root");
    let reply = admin.post(WIDGETS, &object).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(
        reply.body["spec"],
        json!({"a": "A", "n": null, "nd": null, "inner": {"x": 7}, "made": {"y": 8}, "items": [{"z": 9}, {"z": 1}], "map": {"k": {"w": 10}},
        "free": {"any": {"thing": [1, null]}, "known": {"k": "v"}}})
    );
    assert!(reply.body.get("extra").is_none());
    let warned: Vec<String> = reply.warnings();
    assert!(
        warned
            .iter()
            .any(|w| w == "299 - \"unknown field \\\"spec.unknown\\\"\""),
        "{warned:?}"
    );
    assert!(
        warned
            .iter()
            .any(|w| w == "299 - \"unknown field \\\"extra\\\"\""),
        "{warned:?}"
    );
    assert!(
        warned
            .iter()
            .any(|w| w == "299 - \"unknown field \\\"spec.free.known.u\\\"\""),
        "{warned:?}"
    );
    let strict = admin
        .post(
            &format!("{WIDGETS}?fieldValidation=Strict"),
            &widget("s", json!({"unknown": 1, "inner": {"u": 1}})),
        )
        .await;
    assert_eq!(strict.code, 400);
    assert!(
        strict.message().ends_with(
            "strict decoding error: unknown field \"spec.inner.u\", unknown field \"spec.unknown\""
        ),
        "{}",
        strict.message()
    );
    let ignored = admin
        .post(
            &format!("{WIDGETS}?fieldValidation=Ignore"),
            &widget("i", json!({"unknown": 1})),
        )
        .await;
    assert_eq!((ignored.code, ignored.warnings().len()), (201, 0));
    let embedded = admin
        .post(WIDGETS, &widget("e", json!({"embedded": {"x": 1}})))
        .await;
    assert_eq!(
        causes(&embedded),
        [
            "spec.embedded.apiVersion FieldValueRequired: Required value",
            "spec.embedded.kind FieldValueRequired: Required value"
        ]
    );
}

#[tokio::test]
async fn reading_follows_the_present_schema() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition(
            "widgets",
            "Widget",
            spec(json!({"a": {"type": "string"}, "b": {"type": "string"}})),
        ),
    )
    .await;
    let made = create(&admin, WIDGETS, &widget("w", json!({"a": "1", "b": "2"}))).await;
    let changed = admin.json_patch(&format!("{CRDS}/widgets.example.com"), &json!([
        {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties", "value": {"a": {"type": "string"}, "c": {"type": "integer", "default": 5}}}])).await;
    assert_eq!(
        (changed.code, &changed.body["metadata"]["generation"]),
        (200, &json!(2)),
        "{}",
        changed.body
    );
    let read = admin.get(&format!("{WIDGETS}/w")).await.body;
    assert_eq!(read["spec"], json!({"a": "1", "c": 5}));
    assert_eq!(rv(&read), rv(&made), "reading changes nothing");
    let list = admin.get(WIDGETS).await.body;
    assert_eq!(list["items"][0]["spec"], json!({"a": "1", "c": 5}));
    let touched = admin
        .merge(
            &format!("{WIDGETS}/w"),
            &json!({"metadata": {"labels": {"x": "y"}}}),
        )
        .await
        .body;
    assert_eq!(touched["spec"], json!({"a": "1", "c": 5}));
}

#[tokio::test]
async fn unchanged_values_are_not_judged_again() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &definition("widgets", "Widget", spec(json!({"a": {"type": "string"}, "b": {"type": "string"}, "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}}})))).await;
    create(
        &admin,
        WIDGETS,
        &widget(
            "w",
            json!({"a": "LOUD", "b": "x", "l": [{"k": "1", "v": "LOUD"}]}),
        ),
    )
    .await;
    let stricter = json!([
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/pattern", "value": "^[a-z]+$"},
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/l/items/properties/v/pattern", "value": "^[a-z]+$"}]);
    assert_eq!(
        admin
            .json_patch(&format!("{CRDS}/widgets.example.com"), &stricter)
            .await
            .code,
        200
    );
    let other = admin
        .merge(
            &format!("{WIDGETS}/w"),
            &json!({"spec": {"b": "y", "l": [{"k": "0", "v": "new"}, {"k": "1", "v": "LOUD"}]}}),
        )
        .await;
    assert_eq!(other.code, 200, "{}", other.body);
    let worse = admin
        .merge(&format!("{WIDGETS}/w"), &json!({"spec": {"a": "LOUDER"}}))
        .await;
    assert_eq!(
        causes(&worse),
        ["spec.a FieldValueInvalid: Invalid value: \"LOUDER\": spec.a in body should match '^[a-z]+$'"]
    );
    let element = admin
        .merge(
            &format!("{WIDGETS}/w"),
            &json!({"spec": {"l": [{"k": "1", "v": "LOUDER"}]}}),
        )
        .await;
    assert_eq!(
        causes(&element),
        [
            "spec.l[0].v FieldValueInvalid: Invalid value: \"LOUDER\": spec.l[0].v in body should match '^[a-z]+$'"
        ]
    );
}

#[tokio::test]
async fn status_is_a_world_of_its_own() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition("widgets", "Widget", spec(json!({"a": {"type": "string"}})));
    crd["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    install(&admin, &crd).await;
    let mut object = widget("w", json!({"a": "1"}));
    object["status"] = json!({"phase": "Mine"});
    let made = create(&admin, WIDGETS, &object).await;
    assert!(made.get("status").is_none(), "{made}");
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{WIDGETS}/w");
    let set = admin
        .merge(
            &format!("{path}/status"),
            &json!({"status": {"phase": "Set"}, "spec": {"a": "9"}, "metadata": {"labels": {"l": "1"}}}),
        )
        .await
        .body;
    assert_eq!(
        (
            &set["status"]["phase"],
            &set["spec"]["a"],
            &set["metadata"]["generation"]
        ),
        (&json!("Set"), &json!("1"), &json!(1))
    );
    assert!(set["metadata"].get("labels").is_none(), "{set}");
    let main = admin
        .merge(&path, &json!({"spec": {"a": "2"}, "status": {"phase": "Wrong"}}))
        .await
        .body;
    assert_eq!(
        (
            &main["status"]["phase"],
            &main["spec"]["a"],
            &main["metadata"]["generation"]
        ),
        (&json!("Set"), &json!("2"), &json!(2))
    );
    let mut put = main.clone();
    put["status"] = json!({"phase": "Put"});
    put["spec"] = json!({});
    let put = admin.put(&format!("{path}/status"), &put).await;
    assert_eq!(
        (put.code, &put.body["status"]["phase"], &put.body["spec"]["a"]),
        (200, &json!("Put"), &json!("2"))
    );
    let labels = admin
        .merge(&path, &json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .body;
    assert_eq!(labels["metadata"]["generation"], 2, "metadata does not count");
    assert_eq!(
        admin.get(&format!("{path}/status")).await.body["status"]["phase"],
        "Put"
    );
    assert_eq!(admin.get(&format!("{path}/scale")).await.code, 404);
}

#[tokio::test]
async fn without_the_subresource_status_is_a_field() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &definition("widgets", "Widget", spec(json!({})))).await;
    let mut object = widget("w", json!({}));
    object["status"] = json!({"phase": "Mine"});
    let made = create(&admin, WIDGETS, &object).await;
    assert_eq!(made["status"]["phase"], "Mine");
    let changed = admin
        .merge(&format!("{WIDGETS}/w"), &json!({"status": {"phase": "Other"}}))
        .await
        .body;
    assert_eq!(
        changed["metadata"]["generation"], 2,
        "it counts like everything else"
    );
    assert_eq!(
        admin.merge(&format!("{WIDGETS}/w/status"), &json!({})).await.code,
        404
    );
}

#[tokio::test]
async fn custom_resources_scale() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let sub = json!({"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}});
    install(&admin, &definition_with("widgets", "Widget", schema, sub)).await;
    let made = create(&admin, WIDGETS, &widget("w", json!({"replicas": 2}))).await;
    admin
        .merge(
            &format!("{WIDGETS}/w/status"),
            &json!({"status": {"replicas": 1, "selector": "a=b"}}),
        )
        .await;
    let path = format!("{WIDGETS}/w/scale");
    let scale = admin.get(&path).await;
    assert_eq!(scale.code, 200);
    assert_eq!(
        (&scale.body["kind"], &scale.body["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(
        (&scale.body["spec"], &scale.body["status"]),
        (
            &json!({"replicas": 2}),
            &json!({"replicas": 1, "selector": "a=b"})
        )
    );
    assert_eq!(
        (uid(&scale.body), &scale.body["metadata"]["name"]),
        (uid(&made), &json!("w"))
    );
    let mut up = scale.body.clone();
    up["spec"]["replicas"] = json!(5);
    let up = admin.put(&path, &up).await;
    assert_eq!(
        (up.code, &up.body["spec"]["replicas"]),
        (200, &json!(5)),
        "{}",
        up.body
    );
    let parent = admin.get(&format!("{WIDGETS}/w")).await.body;
    assert_eq!(
        (&parent["spec"]["replicas"], &parent["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    let stale = admin.put(&path, &scale.body).await;
    assert_eq!((stale.code, stale.reason()), (409, "Conflict"));
    let patched = admin.merge(&path, &json!({"spec": {"replicas": 0}})).await;
    assert_eq!(
        (patched.code, &patched.body["spec"]),
        (200, &json!({})),
        "zero is left out: {}",
        patched.body
    );
    let negative = admin.merge(&path, &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.code, 422, "{}", negative.body);
    assert_eq!(
        causes(&negative),
        [".spec.replicas FieldValueInvalid: Invalid value: -1: should be a non-negative integer"]
    );
}

#[tokio::test]
async fn columns_are_printed() {
    let server = TestServer::start().await;
    // Ages do not depend on how fast the machine is.
    server.clock().freeze(server.clock().now());
    let admin = server.admin();
    let columns = json!({"additionalPrinterColumns": [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Names", "type": "string", "jsonPath": ".spec.list[*].n", "priority": 1},
        {"name": "Old", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Obj", "type": "string", "jsonPath": ".spec.obj"}]});
    install(&admin, &definition_with("widgets", "Widget", json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}), columns)).await;
    create(
        &admin,
        WIDGETS,
        &widget(
            "a",
            json!({"size": 3, "list": [{"n": "x"}, {"n": "y"}], "obj": {"k": 1}}),
        ),
    )
    .await;
    create(&admin, WIDGETS, &widget("b", json!({}))).await;
    let table = admin
        .send(
            Method::GET,
            WIDGETS,
            &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")],
            "",
        )
        .await
        .body;
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "Size", "Names", "Old", "Obj"]);
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["a", 3, "x", "0s", "{\"k\":1}"]),
        "{}",
        table["rows"][0]
    );
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, "0s", null]));
}
