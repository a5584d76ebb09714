// SPDX-License-Identifier: Apache-2.0
//! What was found by sending the same requests to the reference and to this server, side by side: which
//! patches leave nothing, what pages and selectors promise, and who is told what first.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::requests::{
    DEFINITIONS, JSON_PATCH, MAPS, MERGE_PATCH, WIDGETS, call, causes, header, map, map_of, widget, widgets,
};
use super::words::{definition, definition_with};

const UNVERSIONED: &str = "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";

/// Without a resource version a custom resource is not updated, whoever took it away.
#[tokio::test]
async fn a_patch_may_not_take_the_resource_version_away() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    admin.post(WIDGETS, &widget("w", 1)).await;
    admin.post(MAPS, &map("m")).await;
    let path = format!("{WIDGETS}/w");
    let merged = json!({"metadata": {"resourceVersion": null}, "spec": {"size": 2}});
    let removed = json!([{"op": "remove", "path": "/metadata/resourceVersion"}]);
    for reply in [
        admin.merge(&path, &merged).await,
        admin.json_patch(&path, &removed).await,
    ] {
        assert_eq!((reply.code, reply.message()), (422, UNVERSIONED));
    }
    // Built-in kinds mind only what is there.
    let reply = admin.json_patch(&format!("{MAPS}/m"), &removed).await;
    assert_eq!(reply.code, 200, "{}", reply.message());
}

/// A patch of nothing changes nothing; one that leaves no object of the type is refused for it.
#[tokio::test]
async fn what_patches_leave_is_read_as_the_type() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    admin.post(WIDGETS, &widget("w", 1)).await;
    admin.post(MAPS, &map("m")).await;
    let (maps, widgets) = (format!("{MAPS}/m"), format!("{WIDGETS}/w"));
    let emptied = r#"[{"op":"replace","path":"","value":{}}]"#;
    for (path, media, body, code, text) in [
        (&maps, JSON_PATCH, "null", 200, ""),
        (&widgets, JSON_PATCH, "null", 200, ""),
        (
            &maps,
            JSON_PATCH,
            emptied,
            400,
            "the name of the object (m based on URL) was undeterminable: name must be provided",
        ),
        (
            &widgets,
            JSON_PATCH,
            emptied,
            422,
            " \"\" is invalid: patch: Invalid value: \"{}\": Object 'Kind' is missing in '{}'",
        ),
        (
            &maps,
            MERGE_PATCH,
            r#"{"metadata":"x"}"#,
            422,
            "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            &widgets,
            MERGE_PATCH,
            r#"{"metadata":"x"}"#,
            422,
            "json: cannot unmarshal string into Go value of type v1.ObjectMeta",
        ),
        // It is called by the group it claims, and this one has none.
        (
            &widgets,
            MERGE_PATCH,
            r#"{"apiVersion":"v9"}"#,
            422,
            "Widget \"w\" is invalid: apiVersion: Invalid value: \"v9\": must be example.com/v1",
        ),
    ] {
        let reply = call(&admin, "PATCH", path, media, body).await;
        assert_eq!(reply.code, code, "{body}: {}", reply.message());
        assert!(
            code == 200 || reply.message().contains(text),
            "{body}: {}",
            reply.message()
        );
    }
}

/// An empty list of owners clears those of built-in kinds; in custom resources it says nothing.
#[tokio::test]
async fn an_empty_list_of_owners_means_nothing_in_custom_resources() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    admin.post(WIDGETS, &widget("w", 1)).await;
    admin.post(MAPS, &map_of("m", json!({"a": "1"}))).await;
    let none = json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}]);
    let kept = admin.json_patch(&format!("{WIDGETS}/w"), &none).await;
    assert_eq!(
        kept.body["metadata"]["managedFields"].as_array().map(Vec::len),
        Some(1)
    );
    let cleared = admin.json_patch(&format!("{MAPS}/m"), &none).await;
    assert_eq!(cleared.body["metadata"]["managedFields"], Value::Null);
}

/// The Scale of a custom resource is written, and not applied.
#[tokio::test]
async fn a_custom_scale_is_not_applied() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let scale = json!({"subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}});
    admin
        .post(DEFINITIONS, &definition_with("widgets", "Widget", schema, scale))
        .await;
    admin.post(WIDGETS, &widget("w", 1)).await;
    let path = format!("{WIDGETS}/w/scale");
    let reply = admin.merge(&path, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(reply.code, 200, "{}", reply.message());
    let found = admin.get(&format!("{WIDGETS}/w")).await;
    assert_eq!(found.body["spec"]["size"], 3);
    let applied = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 4}});
    let refused = admin.apply(&format!("{path}?fieldManager=m"), &applied).await;
    assert_eq!(refused.code, 400);
    assert!(
        refused
            .message()
            .ends_with("request to convert CR to an invalid group/version: autoscaling/v1")
    );
}

/// A full page says that it goes on when anything is left, and what it goes on with may be nothing.
#[tokio::test]
async fn pages_go_on_while_anything_is_left() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = widget(name, 1);
        object["metadata"]["labels"] = json!({"app": app});
        admin.post(WIDGETS, &object).await;
    }
    let query = format!("{WIDGETS}?labelSelector=app%3Dx&limit=2");
    let first = admin.get(&query).await;
    assert_eq!(first.body["items"].as_array().map(Vec::len), Some(2));
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let last = admin.get(&format!("{query}&continue={token}")).await;
    assert_eq!(last.body["items"], json!([]));
    assert_eq!(last.body["metadata"]["continue"].as_str().unwrap_or_default(), "");
}

/// Refusals of reads, to the letter.
#[tokio::test]
async fn reads_that_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let unreadable =
        "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    for (query, message) in [
        ("/m?resourceVersion=x", unreadable.to_owned()),
        ("?watch=true&resourceVersion=x", unreadable.to_owned()),
        ("?resourceVersion=x", format!("invalid resource version: {unreadable}")),
        (
            "?continue=foo&resourceVersion=1",
            "invalid continue token: continue key is not valid: invalid character '~' looking for beginning of value".into(),
        ),
        (
            "?fieldSelector=metadata.name%3Da%3Db",
            "invalid field selector: unescaped character in value: 61".into(),
        ),
        // Requirements are looked at by name.
        (
            "?fieldSelector=spec.b%3D1,spec.a%3D1",
            "\"spec.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".into(),
        ),
    ] {
        let reply = admin.get(&format!("{MAPS}{query}")).await;
        assert_eq!((reply.code, reply.message()), (400, message.as_str()), "{query}");
    }
    let exact = admin
        .get(&format!(
            "{MAPS}?resourceVersion=99999999&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!((exact.code, header(&exact, "retry-after")), (504, "1"));
    assert_eq!(exact.body["details"]["retryAfterSeconds"], 1);
}

/// A watch that should have ended before it began ends at once and says nothing.
#[tokio::test]
async fn a_watch_of_negative_length_is_over() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let mut events = admin.watch(&format!("{MAPS}?watch=true&timeoutSeconds=-1")).await;
    assert_eq!(events.next().await, None);
}

/// Namespaces and definitions have their own words for preconditions that fail.
#[tokio::test]
async fn deletions_of_what_is_not_meant() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    let body = json!({"preconditions": {"uid": "other"}}).to_string();
    for (path, named) in [
        (
            format!("{DEFINITIONS}/widgets.example.com"),
            "customresourcedefinitions.apiextensions.k8s.io \"widgets.example.com\"",
        ),
        (
            "/api/v1/namespaces/kube-node-lease".to_owned(),
            "namespaces \"kube-node-lease\"",
        ),
    ] {
        let reply = call(&admin, "DELETE", &path, "application/json", &body).await;
        let begin = format!(
            "Operation cannot be fulfilled on {named}: Precondition failed: UID in precondition: other, UID in object meta: "
        );
        assert_eq!(reply.code, 409);
        assert!(reply.message().starts_with(&begin), "{}", reply.message());
    }
    let untyped = call(
        &admin,
        "DELETE",
        &format!("{MAPS}/none"),
        "application/json",
        r#"{"preconditions":"x"}"#,
    )
    .await;
    assert_eq!(
        (untyped.code, untyped.message()),
        (
            400,
            "json: cannot unmarshal string into Go struct field DeleteOptions.preconditions of type v1.Preconditions"
        )
    );
}

/// Definitions: the first version's name is judged twice, labels once.
#[tokio::test]
async fn definitions_that_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut named = definition("widgets", "Widget", json!({"type": "object"}));
    named["spec"]["versions"][0]["name"] = json!("V1");
    let fields = |reply| -> Vec<String> { causes(&reply).into_iter().map(|(field, _)| field).collect() };
    assert_eq!(
        fields(admin.post(DEFINITIONS, &named).await),
        ["spec.versions[0].name", "spec.version"]
    );
    let mut labelled = definition("widgets", "Widget", json!({"type": "object"}));
    labelled["metadata"]["labels"] = json!({"a b": "c"});
    assert_eq!(
        fields(admin.post(DEFINITIONS, &labelled).await),
        ["metadata.labels"]
    );
}

/// What is wrong with metadata is said as often as it is looked at.
#[tokio::test]
async fn metadata_of_a_custom_resource_is_looked_at_three_times() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    admin.post(WIDGETS, &widget("w", 1)).await;
    let long = json!({"metadata": {"annotations": {"a": "x".repeat(270_000)}}});
    let reply = admin.merge(&format!("{WIDGETS}/w"), &long).await;
    assert_eq!(
        causes(&reply),
        vec![("metadata.annotations".to_owned(), "FieldValueTooLong".to_owned()); 3]
    );
}

/// Types of metrics nobody knows and addresses that are none are named twice.
#[tokio::test]
async fn causes_given_twice() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Foo"}]}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let kind = (
        "spec.metrics[0].type".to_owned(),
        "FieldValueNotSupported".to_owned(),
    );
    assert_eq!(causes(&admin.post(path, &autoscaler).await), vec![kind; 2]);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
        "subsets": [{"addresses": [{"ip": "bad", "nodeName": "X!"}], "ports": [{"port": 1}]}]});
    let reply = admin
        .post("/api/v1/namespaces/default/endpoints", &endpoints)
        .await;
    let fields: Vec<String> = causes(&reply).into_iter().map(|(field, _)| field).collect();
    assert_eq!(
        fields,
        [
            "subsets[0].addresses[0].ip",
            "subsets[0].addresses[0].nodeName",
            "subsets[0].addresses[0].ip"
        ]
    );
}

/// The namespace of a request has a type, so what a policy says of it is known to be text.
#[tokio::test]
async fn policies_may_speak_of_the_namespace() {
    const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
    let server = TestServer::start().await;
    let admin = server.admin();
    let policy = |message: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"], "operations": ["CREATE"]}]},
            "validations": [{"expression": "namespaceObject.metadata.labels.size() == 0", "messageExpression": message}]}})
    };
    let path = format!("{REGISTRATION}/validatingadmissionpolicies");
    let refused = admin.post(&path, &policy("namespaceObject.metadata.uid")).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains("undefined field 'uid'"),
        "{}",
        refused.message()
    );
    let unknown = admin.post(&path, &policy("variables.x")).await;
    assert!(
        unknown.message().contains("undeclared reference to 'variables'"),
        "{}",
        unknown.message()
    );
    let made = admin
        .post(&path, &policy("'not in ' + namespaceObject.metadata.name"))
        .await;
    assert_eq!(made.code, 201, "{}", made.message());
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    admin
        .post(
            &format!("{REGISTRATION}/validatingadmissionpolicybindings"),
            &binding,
        )
        .await;
    let reply = admin.post(MAPS, &map("m")).await;
    assert_eq!(
        (reply.code, reply.message()),
        (
            422,
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not in default"
        )
    );
}
