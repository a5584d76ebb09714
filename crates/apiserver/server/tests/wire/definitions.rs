// SPDX-License-Identifier: Apache-2.0
//! More about definitions and the objects they define: what may change, what is protected, and the
//! metadata of custom objects.

use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

fn plain() -> Value {
    definition(
        "widgets",
        "Widget",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    )
}

#[tokio::test]
async fn what_makes_a_definition_what_it_is_cannot_change() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &plain()).await;
    let path = format!("{CRDS}/widgets.example.com");
    let cases = [
        (
            json!({"spec": {"scope": "Cluster"}}),
            "spec.scope FieldValueInvalid: Invalid value: \"Cluster\": field is immutable",
        ),
        (
            json!({"spec": {"names": {"kind": "Gadget"}}}),
            "spec.names.kind FieldValueInvalid: Invalid value: \"Gadget\": field is immutable",
        ),
        (
            json!({"spec": {"group": "other.com"}}),
            "spec.group FieldValueInvalid: Invalid value: \"other.com\": field is immutable",
        ),
        (
            json!({"spec": {"names": {"plural": "gadgets"}}}),
            "spec.names.plural FieldValueInvalid: Invalid value: \"gadgets\": field is immutable",
        ),
    ];
    for (patch, wanted) in cases {
        let reply = admin.merge(&path, &patch).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{patch}: {}",
            reply.body
        );
        assert!(
            causes(&reply).iter().any(|c| c == wanted),
            "{patch}: {:?}",
            causes(&reply)
        );
    }
    let renamed = admin
        .merge(
            &path,
            &json!({"spec": {"names": {"shortNames": ["wi"], "singular": "wi-one", "categories": ["all"]}}}),
        )
        .await;
    assert_eq!(
        (renamed.code, &renamed.body["metadata"]["generation"]),
        (200, &json!(2)),
        "{}",
        renamed.body
    );
    assert_eq!(
        renamed.body["status"]["acceptedNames"]["shortNames"],
        json!(["wi"])
    );
    let status = admin
        .merge(
            &format!("{path}/status"),
            &json!({"status": {"storedVersions": ["v1"]}, "spec": {"scope": "Cluster"}}),
        )
        .await;
    assert_eq!(
        (status.code, &status.body["spec"]["scope"]),
        (200, &json!("Namespaced")),
        "{}",
        status.body
    );
    let labels = admin
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(labels.body["metadata"]["generation"], 2);
}

#[tokio::test]
async fn protected_groups_need_an_approval() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = plain();
    crd["metadata"]["name"] = json!("widgets.sigs.k8s.io");
    crd["spec"]["group"] = json!("sigs.k8s.io");
    let refused = admin.post(CRDS, &crd).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(
        causes(&refused),
        [
            "metadata.annotations[api-approved.kubernetes.io] FieldValueRequired: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    crd["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"});
    create(&admin, CRDS, &crd).await;
    let read = admin.get(&format!("{CRDS}/widgets.sigs.k8s.io")).await.body;
    let approved = condition(&read, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!(
        (&approved["status"], &approved["reason"], &approved["message"]),
        (
            &json!("True"),
            &json!("ApprovedAnnotation"),
            &json!("approved in https://github.com/kubernetes/kubernetes/pull/1")
        )
    );
}

#[tokio::test]
async fn definitions_of_old_kinds_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = plain();
    crd["spec"]["preserveUnknownFields"] = json!(true);
    let reply = admin.post(CRDS, &crd).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert!(
        causes(&reply)
            .iter()
            .any(|c| c.starts_with("spec.preserveUnknownFields FieldValueInvalid: Invalid value: true: ")),
        "{:?}",
        causes(&reply)
    );
    let mut two = plain();
    let again = two["spec"]["versions"][0].clone();
    two["spec"]["versions"].as_array_mut().unwrap().push(again);
    let reply = admin.post(CRDS, &two).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    let text = causes(&reply).join("\n");
    assert!(
        text.contains("must contain unique version names") || text.contains("Duplicate"),
        "{text}"
    );
    assert!(
        text.contains("must have exactly one version marked as storage version"),
        "{text}"
    );
    let mut strict = plain();
    strict["spec"]["oddity"] = json!(1);
    let reply = admin
        .post(&format!("{CRDS}?fieldValidation=Strict"), &strict)
        .await;
    assert_eq!(reply.code, 400);
    assert!(
        reply.message().contains("unknown field \"spec.oddity\""),
        "{}",
        reply.message()
    );
    let dry = admin.post(&format!("{CRDS}?dryRun=All"), &plain()).await;
    assert_eq!(dry.code, 201);
    assert_eq!(
        admin.get(WIDGETS).await.code,
        404,
        "nothing is served by a dry run"
    );
    assert_eq!(admin.get(&format!("{CRDS}/widgets.example.com")).await.code, 404);
}

#[tokio::test]
async fn metadata_of_custom_objects_is_kept_by_the_server() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &plain()).await;
    let mut object = widget("w", json!({"a": 1}));
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["generation"] = json!(7);
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["unknown"] = json!("x");
    let made = create(&admin, WIDGETS, &object).await;
    assert_ne!(uid(&made), "mine");
    assert_eq!(made["metadata"]["generation"], 1);
    assert!(made["metadata"].get("deletionTimestamp").is_none() && made["metadata"].get("unknown").is_none());
    assert_ne!(made["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    let path = format!("{WIDGETS}/w");
    let mut unpinned = made.clone();
    unpinned["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let refused = admin.put(&path, &unpinned).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(
        refused.message(),
        "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        "{}",
        refused.message()
    );
    let absent = admin
        .put(&format!("{WIDGETS}/none"), &widget("none", json!({})))
        .await;
    assert_eq!(
        (absent.code, absent.message()),
        (404, "widgets.example.com \"none\" not found")
    );
    let mut other = made.clone();
    other["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let conflict = admin.put(&path, &other).await;
    assert_eq!(
        (conflict.code, conflict.reason()),
        (409, "Conflict"),
        "{}",
        conflict.body
    );
    let generated = admin
        .post(
            WIDGETS,
            &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"generateName": "gen-"}}),
        )
        .await
        .body;
    let name = generated["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let bad = admin.post(WIDGETS, &widget("Not_Good", json!({}))).await;
    assert_eq!(bad.code, 422);
    assert_eq!(
        causes(&bad),
        [
            "metadata.name FieldValueInvalid: Invalid value: \"Not_Good\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
    let taken = admin.post(WIDGETS, &widget("w", json!({}))).await;
    assert_eq!(
        (taken.code, taken.reason(), taken.message()),
        (409, "AlreadyExists", "widgets.example.com \"w\" already exists")
    );
    assert_eq!(
        taken.body["details"],
        json!({"name": "w", "group": "example.com", "kind": "widgets"})
    );
    let gone_now = admin.delete(&path).await;
    assert_eq!(
        gone_now.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": "w", "group": "example.com", "kind": "widgets", "uid": uid(&made)}})
    );
}

#[tokio::test]
async fn numbers_and_texts_survive() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &plain()).await;
    let text = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"big":9007199254740993,"neg":-9223372036854775808,"half":0.5,"whole":1.0,"exp":1e2,"text":"\u00e4\ud83d\ude00","empty":{},"none":null,"list":[1,"2",null]}}"#;
    let reply = admin
        .send(
            Method::POST,
            WIDGETS,
            &[("content-type", "application/json")],
            text,
        )
        .await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let spec = &reply.body["spec"];
    assert_eq!(spec["big"], json!(9_007_199_254_740_993_i64));
    assert_eq!(spec["neg"], json!(i64::MIN));
    assert_eq!(
        (&spec["half"], &spec["text"], &spec["empty"], &spec["list"]),
        (&json!(0.5), &json!("ä😀"), &json!({}), &json!([1, "2", null]))
    );
    assert!(
        String::from_utf8_lossy(&reply.raw).contains("\"exp\":100"),
        "{}",
        String::from_utf8_lossy(&reply.raw)
    );
    assert!(
        String::from_utf8_lossy(&reply.raw).contains("\"whole\":1,")
            || String::from_utf8_lossy(&reply.raw).contains("\"whole\":1}"),
        "{}",
        String::from_utf8_lossy(&reply.raw)
    );
}

#[tokio::test]
async fn cluster_scoped_definitions_have_no_namespaces() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = plain();
    crd["spec"]["scope"] = json!("Cluster");
    install(&admin, &crd).await;
    let made = create(&admin, "/apis/example.com/v1/widgets", &widget("w", json!({}))).await;
    assert!(made["metadata"].get("namespace").is_none());
    assert_eq!(admin.get("/apis/example.com/v1/widgets/w").await.code, 200);
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    let list = admin.get("/apis/example.com/v1").await.body;
    assert_eq!(list["resources"][0]["namespaced"], false);
}

#[tokio::test]
async fn duplicate_and_unknown_fields_warn() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition(
            "widgets",
            "Widget",
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
    )
    .await;
    let text = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"a":"1","a":"2","b":1}}"#;
    let reply = admin
        .send(
            Method::POST,
            WIDGETS,
            &[("content-type", "application/json")],
            text,
        )
        .await;
    assert_eq!((reply.code, &reply.body["spec"]), (201, &json!({"a": "2"})));
    let warnings = reply.warnings();
    assert!(
        warnings.contains(&"299 - \"duplicate field \\\"spec.a\\\"\"".to_owned()),
        "{warnings:?}"
    );
    assert!(
        warnings.contains(&"299 - \"unknown field \\\"spec.b\\\"\"".to_owned()),
        "{warnings:?}"
    );
    let strict = admin
        .send(
            Method::POST,
            &format!("{WIDGETS}?fieldValidation=Strict"),
            &[("content-type", "application/json")],
            text.replace("\"w\"", "\"s\""),
        )
        .await;
    assert_eq!(strict.code, 400);
    assert!(
        strict.message().contains("strict decoding error: "),
        "{}",
        strict.message()
    );
    assert!(
        strict.message().contains("duplicate field \"spec.a\"")
            && strict.message().contains("unknown field \"spec.b\""),
        "{}",
        strict.message()
    );
    let merge = admin
        .send(
            Method::PATCH,
            &format!("{WIDGETS}/w?fieldValidation=Strict"),
            &[("content-type", "application/merge-patch+json")],
            r#"{"spec":{"zz":1}}"#,
        )
        .await;
    assert!(matches!(merge.code, 400 | 422), "{}", merge.body);
    assert!(
        merge.message().contains("unknown field \"spec.zz\""),
        "{}",
        merge.message()
    );
}

fn told(definition: &Value, kind: &str) -> String {
    let found = condition(definition, kind);
    format!("{} {}: {}", found["status"], found["reason"], found["message"]).replace('"', "")
}

/// Nothing is served through a converter nobody could believe; once it is served, its authorities
/// may not become unreadable.
#[tokio::test]
async fn unreadable_authorities_keep_a_definition_from_being_established() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut widgets = plain();
    let converter = |bundle: &str| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"caBundle": bundle, "service": {"namespace": "default", "name": "c"}}}})
    };
    widgets["spec"]["conversion"] = converter("Cg==");
    let made = create(&admin, CRDS, &widgets).await;
    assert_eq!(
        told(&made, "Established"),
        "False InvalidCABundle: The conversion webhook CABundle is invalid"
    );
    assert_eq!(
        told(&made, "NamesAccepted"),
        "True NoConflicts: no conflicts found"
    );
    assert_eq!(admin.get(WIDGETS).await.code, 404);

    let path = format!("{CRDS}/widgets.example.com");
    let still = admin
        .merge(&path, &json!({"spec": {"conversion": converter("Zm9v")}}))
        .await;
    assert_eq!(still.code, 200, "{}", still.body);
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    let without = json!([{"op": "remove", "path": "/spec/conversion/webhook/clientConfig/caBundle"}]);
    let mended = admin.json_patch(&path, &without).await;
    assert_eq!(
        told(&mended.body, "Established"),
        "True InitialNamesAccepted: the initial names have been accepted"
    );
    assert_eq!(admin.get(WIDGETS).await.code, 200);

    let empty = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClptOXYKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    for (bundle, why) in [
        ("Cg==", "unable to parse bytes as PEM block"),
        (empty, "failed to parse certificate: x509: malformed certificate"),
    ] {
        let refused = admin
            .merge(&path, &json!({"spec": {"conversion": converter(bundle)}}))
            .await;
        assert_eq!(
            causes(&refused),
            [format!(
                "spec.conversion.webhookClientConfig.caBundle FieldValueInvalid: Invalid value: \"{bundle}\": unable to load root certificates: {why}"
            )]
        );
    }
}

/// The metadata of an embedded resource knows its own fields: what a default names beyond them goes.
#[tokio::test]
async fn defaults_of_embedded_resources_lose_unknown_metadata() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let whole = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "unknown": "u"}});
    let embedded = |more: Value| {
        let mut schema = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
        meta_into(&mut schema, more);
        schema
    };
    let fields = json!({"properties": {
        "apiVersion": {"type": "string", "default": "v1"}, "kind": {"type": "string", "default": "Pod"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "p"}, "unknown": {"type": "string", "default": "u"}}}}});
    let spec = json!({"type": "object", "default": {}, "properties": {
        "whole": embedded(json!({"default": whole})),
        "around": {"type": "object", "default": {"pod": whole}, "properties": {"pod": embedded(json!({}))}},
        "fields": embedded(fields)}});
    install(&admin, &definition("widgets", "Widget", spec)).await;
    let made = create(&admin, WIDGETS, &widget("w", json!({"fields": {"metadata": {}}}))).await;
    let clean = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    assert_eq!(
        made["spec"],
        json!({"whole": clean, "around": {"pod": clean}, "fields": clean})
    );
    assert_eq!(
        admin.get(&format!("{WIDGETS}/w")).await.body["spec"],
        made["spec"]
    );
}

fn meta_into(schema: &mut Value, more: Value) {
    if let (Value::Object(schema), Value::Object(more)) = (schema, more) {
        schema.extend(more);
    }
}

/// A request is completed by the version it is written in; what is not the request's stays as it is
/// stored, under the defaults of the stored version.
#[tokio::test]
async fn a_status_update_completes_the_status_alone() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let version = |name: &str, storage: bool, field: Value| {
        let part = json!({"type": "object", "properties": {"a": {"type": "string"}, "c": field}});
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": part, "status": part}}}})
    };
    let mut widgets = plain();
    widgets["spec"]["versions"] = json!([
        version("v1", false, json!({"type": "string", "default": "C"})),
        version("v2", true, json!({"type": "string"}))
    ]);
    install(&admin, &widgets).await;
    let stored = "/apis/example.com/v2/namespaces/default/widgets";
    let object = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": "1"}});
    create(&admin, stored, &object).await;
    let mut seen = admin.get(&format!("{WIDGETS}/w")).await.body;
    assert_eq!(
        seen["spec"],
        json!({"a": "1"}),
        "a read completes by the stored version"
    );
    seen["status"] = json!({"a": "2"});
    let updated = admin.put(&format!("{WIDGETS}/w/status"), &seen).await;
    assert_eq!(
        (&updated.body["spec"], &updated.body["status"]),
        (&json!({"a": "1"}), &json!({"a": "2", "c": "C"}))
    );
}
