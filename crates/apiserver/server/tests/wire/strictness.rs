// SPDX-License-Identifier: Apache-2.0
//! What is strange about a request and does no harm is told in the order the reference tells it: first
//! what is wrong with what was sent, then what is wrong with what comes of it. And the sizes, versions
//! and parameters that are refused although they can be read.

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use serde_json::{Value, json};

use super::requests::{DEPLOYMENTS, JSON_PATCH, MAPS, MERGE_PATCH, STRATEGIC_PATCH, call, deployment, map};
use super::words::{WIDGETS, definition, install};

const APPLY: &str = "application/apply-patch+yaml";

/// A definition with something known at every level and an object of another kind inside.
async fn install_widgets(admin: &Caller) {
    let spec = json!({"type": "object", "properties": {
        "known": {"type": "string"},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"metadata": {"type": "object"}}},
        "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}}}});
    install(admin, &definition("widgets", "Widget", spec)).await;
}

/// What a strict refusal lists, without how it begins.
fn strict(reply: &Reply) -> &str {
    reply
        .message()
        .split_once("strict decoding error: ")
        .map_or("", |(_, list)| list)
}

#[tokio::test]
async fn custom_resources_tell_of_keys_then_metadata_then_fields_then_what_is_inside() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install_widgets(&admin).await;
    let body = r#"{"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "x", "name": "w", "odd": 1},
        "spec": {"twice": 1, "twice": 2, "known": "a", "known": "b", "alone": 1,
            "ports": [{"port": 1, "port": 2, "nested": 1}],
            "inner": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "strange": 1}}}}"#;
    let wanted = [
        r#"duplicate field "metadata.name""#,
        r#"duplicate field "spec.twice""#,
        r#"duplicate field "spec.known""#,
        r#"duplicate field "spec.ports[0].port""#,
        r#"unknown field "metadata.odd""#,
        r#"unknown field "spec.alone""#,
        r#"unknown field "spec.ports[0].nested""#,
        r#"unknown field "spec.twice""#,
        r#"unknown field "spec.inner.metadata.strange""#,
    ];
    let path = format!("{WIDGETS}?fieldValidation=Strict");
    let refused = call(&admin, "POST", &path, "application/json", body).await;
    assert_eq!(
        (refused.code, strict(&refused)),
        (400, wanted.join(", ").as_str())
    );
    let warned = call(&admin, "POST", WIDGETS, "application/json", body).await;
    assert_eq!(warned.code, 201, "{}", warned.body);
    assert_eq!(
        warned.warnings(),
        wanted.map(|text| format!("299 - \"{}\"", text.replace('"', "\\\"")))
    );
}

/// A patch and its result are judged together.
#[tokio::test]
async fn a_patch_and_its_result_are_refused_in_one_breath() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let object = format!("{DEPLOYMENTS}/d?fieldValidation=Strict");
    let merge = r#"{"spec": {"odd": 1, "twice": 1, "twice": 2, "paused": true, "paused": false}}"#;
    let wanted = r#"duplicate field "spec.twice", duplicate field "spec.paused", unknown field "spec.odd", unknown field "spec.twice""#;
    for media in [MERGE_PATCH, STRATEGIC_PATCH] {
        let refused = call(&admin, "PATCH", &object, media, merge).await;
        assert_eq!((refused.code, strict(&refused)), (422, wanted), "{media}");
    }
    let operations = r#"[{"op": "add", "path": "/spec/one", "value": 1, "foo": 1},
        {"op": "add", "path": "/spec/two", "path": "/spec/three", "value": 1}]"#;
    let refused = call(&admin, "PATCH", &object, JSON_PATCH, operations).await;
    assert_eq!(
        strict(&refused),
        r#"json patch unknown field "[0].foo", json patch duplicate field "[1].path", unknown field "spec.one", unknown field "spec.three""#
    );
    let scale = format!("{DEPLOYMENTS}/d/scale");
    let replicas = r#"{"spec": {"replicas": 1, "replicas": 2, "odd": 1}}"#;
    let wanted = r#"duplicate field "spec.replicas", unknown field "spec.odd""#;
    let refused = call(
        &admin,
        "PATCH",
        &format!("{scale}?fieldValidation=Strict"),
        MERGE_PATCH,
        replicas,
    )
    .await;
    assert_eq!((refused.code, strict(&refused)), (422, wanted));
    let warned = call(&admin, "PATCH", &scale, MERGE_PATCH, replicas).await;
    assert_eq!(
        (warned.code, warned.warnings().len()),
        (200, 2),
        "{}",
        warned.body
    );
}

/// Keys of a configuration that stand twice are looked at when it could be applied at all.
#[tokio::test]
async fn a_configuration_is_applied_before_its_letters_are_judged() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install_widgets(&admin).await;
    let config = |spec: &str| {
        format!(
            r#"{{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w"}}, "spec": {spec}}}"#
        )
    };
    let path = |manager: &str| format!("{WIDGETS}/w?fieldManager={manager}&fieldValidation=Strict");
    let twice = r#"{"known": "a", "known": "b"}"#;
    let unknown = config(r#"{"known": "a", "known": "b", "odd": 1}"#);
    let refused = call(&admin, "PATCH", &path("me"), APPLY, &unknown).await;
    assert!(
        refused
            .message()
            .ends_with(".spec.odd: field not declared in schema"),
        "{}",
        refused.body
    );
    let refused = call(&admin, "PATCH", &path("me"), APPLY, &config(twice)).await;
    let wanted = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"known\" already set in map";
    assert_eq!((refused.code, refused.message()), (400, wanted));
    let made = call(&admin, "PATCH", &path("me"), APPLY, &config(r#"{"known": "a"}"#)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let refused = call(&admin, "PATCH", &path("other"), APPLY, &config(twice)).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
}

/// Applying tells nothing about what the schema prunes, whether or not the object was there.
#[tokio::test]
async fn what_an_apply_leaves_behind_is_not_told() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}}}});
    install(&admin, &definition("widgets", "Widget", spec)).await;
    let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"ports": [{"port": 1, "odd": 1}]}});
    for (code, validation) in [(201, "Strict"), (200, "Warn")] {
        let path = format!("{WIDGETS}/w?fieldManager=me&fieldValidation={validation}");
        let applied = admin.apply(&path, &config).await;
        assert_eq!(
            (applied.code, applied.warnings()),
            (code, vec![]),
            "{}",
            applied.body
        );
    }
}

#[tokio::test]
async fn only_a_number_is_a_version_that_a_new_object_may_not_have() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (name, version, code) in [
        ("a", "5", 400),
        ("b", "0", 201),
        ("c", "abc", 201),
        ("d", "-1", 201),
    ] {
        let mut object = map(name);
        object["metadata"]["resourceVersion"] = json!(version);
        let made = admin.post(MAPS, &object).await;
        assert_eq!(made.code, code, "{version}: {}", made.body);
        if code == 201 {
            let given = made.body["metadata"]["resourceVersion"].as_str();
            assert!(
                given.is_some_and(|v| v.parse::<u64>().is_ok_and(|v| v > 0)),
                "{}",
                made.body
            );
        }
    }
}

#[tokio::test]
async fn the_group_without_a_name_may_be_named() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut object = map("m");
    object["apiVersion"] = json!("/v1");
    let made = admin.post(MAPS, &object).await;
    assert_eq!((made.code, &made.body["apiVersion"]), (201, &json!("v1")));
    let path = format!("{MAPS}/m");
    assert_eq!(admin.put(&path, &object).await.code, 200);
    let applied = admin.apply(&format!("{path}?fieldManager=me"), &object).await;
    assert_eq!(applied.code, 200, "{}", applied.body);
    object["apiVersion"] = json!("//v1");
    let refused = admin.post(MAPS, &object).await;
    assert!(
        refused.message().starts_with(
            "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: //v1 ("
        ),
        "{}",
        refused.body
    );
}

#[tokio::test]
async fn nothing_is_exported_any_more() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (value, code) in [("true", 400), ("1", 400), ("false", 200), ("0", 200)] {
        let path = format!("/api/v1/namespaces/default?export={value}");
        assert_eq!(admin.get(&path).await.code, code, "{value}");
    }
    let refused = admin.get("/api/v1/namespaces/default?export=true").await;
    assert_eq!(
        refused.message(),
        "the export parameter, deprecated since v1.14, is no longer supported"
    );
}

/// Who asked the old way for dependents to go learns whether they are gone.
#[tokio::test]
async fn dependents_that_still_go_are_only_accepted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (name, finalizers, query, code) in [
        ("a", json!(["example.com/x"]), "?orphanDependents=false", 202),
        ("b", json!(["example.com/x"]), "?orphanDependents=true", 200),
        (
            "c",
            json!(["example.com/x"]),
            "?propagationPolicy=Background",
            200,
        ),
        ("d", json!([]), "?orphanDependents=false", 200),
    ] {
        let mut object = map(name);
        object["metadata"]["finalizers"] = finalizers;
        admin.post(MAPS, &object).await;
        let deleted = admin.delete(&format!("{MAPS}/{name}{query}")).await;
        assert_eq!(deleted.code, code, "{name}: {}", deleted.body);
    }
}

/// The status endpoint of newer kinds leaves metadata alone, and nobody owns it through there.
#[tokio::test]
async fn a_status_does_not_change_metadata_of_newer_kinds() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let cidr = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/24"]}});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"validations": [{"expression": "true"}],
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]}]}}});
    for (collection, object, version, kind) in [
        (
            "/apis/networking.k8s.io/v1/servicecidrs",
            cidr,
            "networking.k8s.io/v1",
            "ServiceCIDR",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            policy,
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
        ),
    ] {
        let made = admin.post(collection, &object).await;
        assert_eq!(made.code, 201, "{}", made.body);
        let name = object["metadata"]["name"].as_str().expect("a name");
        let status = format!("{collection}/{name}/status");
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let patched = admin.merge(&status, &labels).await;
        assert_eq!(
            (patched.code, &patched.body["metadata"]["labels"]),
            (200, &Value::Null)
        );
        let config = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"a": "b"}},
            "status": {"conditions": [{"type": "T", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let applied = admin.apply(&format!("{status}?fieldManager=me"), &config).await;
        assert_eq!(applied.code, 200, "{}", applied.body);
        let owned = super::words::managed(&applied.body, "me", Some("status"))["fieldsV1"].to_string();
        assert!(
            owned.contains("f:status") && !owned.contains("f:labels"),
            "{owned}"
        );
    }
}

/// What etcd would not take is not stored here either; who owns what is forgotten before that.
#[tokio::test]
async fn objects_beyond_the_size_of_a_request_to_etcd_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    install(&admin, &definition("widgets", "Widget", spec)).await;
    let widget = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    let made = admin
        .post(WIDGETS, &widget("fits", json!({"v": "x".repeat(1_500_000)})))
        .await;
    assert_eq!(made.code, 201);
    for (size, message) in [
        (1_600_000, "etcdserver: request is too large"),
        (
            2_200_000,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (",
        ),
    ] {
        let large = widget("large", json!({"v": "x".repeat(size)}));
        let refused = admin.post(WIDGETS, &large).await;
        assert_eq!((refused.code, &refused.body["reason"]), (500, &Value::Null));
        assert!(refused.message().starts_with(message), "{}", refused.message());
        let dry = admin.post(&format!("{WIDGETS}?dryRun=All"), &large).await;
        assert_eq!(dry.code, 201);
    }
    let more = json!({"spec": {"more": "x".repeat(100_000)}});
    let grown = admin.merge(&format!("{WIDGETS}/fits"), &more).await;
    assert_eq!(
        (grown.code, grown.message()),
        (500, "etcdserver: request is too large")
    );
    // Keys count twice while somebody owns them.
    let long: serde_json::Map<String, Value> = (0..9_999)
        .map(|n| {
            (
                format!("a-key-that-is-long-enough-to-make-much-of-what-is-owned-by-somebody-{n}"),
                json!("A"),
            )
        })
        .collect();
    for (path, mut object) in [(MAPS, map("keys")), (WIDGETS, widget("keys", json!({})))] {
        let field = if path == MAPS { "data" } else { "spec" };
        object[field] = Value::Object(long.clone());
        let made = admin.post(path, &object).await;
        assert_eq!(
            (made.code, &made.body["metadata"]["managedFields"]),
            (201, &Value::Null)
        );
        let config =
            json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": "keys"}});
        let applied = admin
            .apply(&format!("{path}/keys?fieldManager=me"), &config)
            .await;
        assert_eq!(
            (applied.code, applied.message()),
            (500, "etcdserver: request is too large"),
            "{path}"
        );
    }
}
