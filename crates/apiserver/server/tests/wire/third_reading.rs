// SPDX-License-Identifier: Apache-2.0
//! What a third reading beside the reference brought up: options and requests that were not read by
//! their types, methods asked of paths that are not there, and patches that say more than they may.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::hooks::{World, patch, rule};
use super::requests::{
    DEFINITIONS, DEPLOYMENTS, JOBS, JSON_PATCH, MAPS, MERGE_PATCH, PODS, STRATEGIC_PATCH, WIDGETS, call,
    deployment, made, map, pod, told, widget, widgets,
};
use super::words::install;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Options that are not of their type are refused: passing over them would delete what was to stay.
#[tokio::test]
async fn options_of_a_deletion_are_read_by_their_types() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("kept")).await;
    let path = format!("{MAPS}/kept");
    for (body, message) in [
        (
            r#"{"dryRun":"All"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string",
        ),
        (
            r#"{"dryRun":["All",1]}"#,
            "json: cannot unmarshal number into Go struct field DeleteOptions.dryRun of type string",
        ),
        (
            r#"{"preconditions":{"uid":5}}"#,
            "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID",
        ),
        (
            r#"{"preconditions":{"resourceVersion":5}}"#,
            "json: cannot unmarshal number into Go struct field Preconditions.preconditions.resourceVersion of type string",
        ),
        (
            r#"{"gracePeriodSeconds":1.0}"#,
            "json: cannot unmarshal number 1.0 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential of type bool",
        ),
        (
            r#"{"kind":1}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            r#"{"kind":"DeleteOptions","apiVersion":"a/b/c"}"#,
            "unexpected GroupVersion string: a/b/c",
        ),
    ] {
        let reply = call(&admin, "DELETE", &path, "application/json", body).await;
        assert_eq!(
            (reply.code, &reply.body["message"]),
            (400, &json!(message)),
            "{body}"
        );
    }
    assert_eq!(admin.get(&path).await.code, 200);
    let reply = call(&admin, "DELETE", &path, "application/json", r#"{"dryRun":null}"#).await;
    assert_eq!(reply.code, 200, "{}", reply.body);
}

/// What asks something of an object is read as strictly as an object.
#[tokio::test]
async fn requests_about_objects_are_read_by_their_types() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, PODS, &pod("p")).await;
    let binding = format!("{PODS}/p/binding");
    let eviction = format!("{PODS}/p/eviction");
    let token = format!("{ACCOUNTS}/default/token");
    let handled =
        |kind: &str, why: &str| format!("{kind} in version \"v1\" cannot be handled as a {kind}: {why}");
    for (path, kind, body, why) in [
        (
            &binding,
            "Binding",
            r#"{"target":"x"}"#,
            "json: cannot unmarshal string into Go struct field Binding.target of type v1.ObjectReference",
        ),
        (
            &eviction,
            "Eviction",
            r#"{"metadata":{"name":"p"},"deleteOptions":{"dryRun":"All"}}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.deleteOptions.dryRun of type []string",
        ),
        (
            &eviction,
            "Eviction",
            r#"{"metadata":{"name":"p"},"deleteOptions":"x"}"#,
            "json: cannot unmarshal string into Go struct field Eviction.deleteOptions of type v1.DeleteOptions",
        ),
        (
            &token,
            "TokenRequest",
            r#"{"spec":{"audiences":"x"}}"#,
            "json: cannot unmarshal string into Go struct field TokenRequestSpec.spec.audiences of type []string",
        ),
        (
            &token,
            "TokenRequest",
            r#"{"spec":{"expirationSeconds":1000.5}}"#,
            "json: cannot unmarshal number 1000.5 into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64",
        ),
    ] {
        let reply = call(&admin, "POST", path, "application/json", body).await;
        assert_eq!(
            (reply.code, &reply.body["message"]),
            (400, &json!(handled(kind, why))),
            "{body}"
        );
    }
    let strange = r#"{"zz":1,"spec":{"expirationSeconds":700,"expirationSeconds":800}}"#;
    let reply = call(&admin, "POST", &token, "application/json", strange).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(
        reply.warnings(),
        [
            "299 - \"unknown field \\\"zz\\\"\"",
            "299 - \"duplicate field \\\"spec.expirationSeconds\\\"\""
        ]
    );
    let strict = format!("{token}?fieldValidation=Strict");
    let reply = call(&admin, "POST", &strict, "application/json", strange).await;
    assert_eq!(
        (reply.code, &reply.body["message"]),
        (
            400,
            &json!(handled(
                "TokenRequest",
                "strict decoding error: unknown field \"zz\", duplicate field \"spec.expirationSeconds\""
            ))
        )
    );
    let reply = call(&admin, "POST", &token, "application/json", "[]").await;
    let message = reply.body["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "the object provided is unrecognized (must be of type TokenRequest): couldn't get version/kind"
        ),
        "{message}"
    );
    // What a deletion inside calls itself is nobody's concern.
    let named = r#"{"metadata":{"name":"p"},"deleteOptions":{"kind":"Foo","dryRun":["All"]}}"#;
    assert_eq!(
        call(&admin, "POST", &eviction, "application/json", named)
            .await
            .code,
        201
    );
    assert_eq!(admin.get(&format!("{PODS}/p")).await.code, 200);
}

/// A job without labels has the very labels of its pods, those that select them included.
#[tokio::test]
async fn a_job_shares_its_labels_with_its_pods() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let job = |name: &str, labels: Value| {
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    let shared = made(&admin, JOBS, &job("shared", json!(null))).await;
    assert_eq!(
        shared["metadata"]["labels"],
        shared["spec"]["template"]["metadata"]["labels"]
    );
    assert_eq!(shared["metadata"]["labels"]["job-name"], "shared");
    let own = made(&admin, JOBS, &job("own", json!({"c": "d"}))).await;
    assert_eq!(own["metadata"]["labels"], json!({"c": "d"}));
}

#[tokio::test]
async fn events_bear_any_name_a_path_can_have() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    assert_eq!(admin.post(EVENTS, &event("Pod_1.Started")).await.code, 201);
    assert_eq!(admin.post(EVENTS, &event("a/b")).await.code, 422);
    let strict = "/apis/events.k8s.io/v1/namespaces/default/events";
    let newer = json!({"metadata": {"name": "Pod_2"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r"});
    assert_eq!(admin.post(strict, &newer).await.code, 422);
}

/// What is not there is not there by any method; what is told, most of it, by any.
#[tokio::test]
async fn methods_are_judged_after_paths() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    for (method, path, code) in [
        ("POST", "/", 200),
        ("DELETE", "/apis/nobody.example.com/v1", 404),
        ("POST", "/apis/apps/v9", 404),
        ("PUT", "/api/v2", 404),
        ("POST", "/api/v1", 405),
        ("POST", "/apis/apps/v1", 405),
        ("POST", "/apis/example.com/v1", 200),
        ("POST", "/openapi", 404),
        ("POST", "/openapi/v2", 200),
        ("POST", "/openapi/v3/api/v1", 200),
        ("POST", "/openapi/v3/apis/nobody.example.com/v1", 404),
        ("POST", "/openid/v1/jwks", 405),
        ("HEAD", "/.well-known/openid-configuration", 405),
        ("HEAD", MAPS, 405),
        ("HEAD", &format!("{MAPS}/x/status"), 404),
        ("HEAD", WIDGETS, 200),
        ("HEAD", &format!("{WIDGETS}/w"), 200),
        ("HEAD", &format!("{WIDGETS}/missing"), 404),
    ] {
        assert_eq!(
            call(&admin, method, path, "", "").await.code,
            code,
            "{method} {path}"
        );
    }
    // What does not exist is not deprecated either.
    let endpoints = "/api/v1/namespaces/default/endpoints";
    assert!(
        admin
            .get(&format!("{endpoints}/kubernetes/status"))
            .await
            .warnings()
            .is_empty()
    );
    assert_eq!(admin.get(endpoints).await.warnings().len(), 1);
}

/// The old paths of watches have the options of lists.
#[tokio::test]
async fn old_watches_are_asked_like_lists() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/api/v1/watch/namespaces/default/configmaps?resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    let reply = admin.get(path).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert_eq!(
        reply.body["details"]["causes"][0]["message"],
        "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    );
}

#[tokio::test]
async fn patches_say_no_more_than_they_may() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    // A number is whole when it is written so.
    let whole = r#"{"spec":{"replicas":2.0}}"#;
    let reply = call(&admin, "PATCH", &path, MERGE_PATCH, whole).await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert_eq!(
        call(&admin, "PATCH", &path, STRATEGIC_PATCH, whole).await.code,
        200
    );
    let test = r#"[{"op":"test","path":"/spec/replicas","value":2.0}]"#;
    assert_eq!(call(&admin, "PATCH", &path, JSON_PATCH, test).await.code, 422);
    // Lists that are not there have no order.
    let order = r#"{"$setElementOrder/x":[]}"#;
    let reply = call(&admin, "PATCH", &path, STRATEGIC_PATCH, order).await;
    assert_eq!(
        reply.body["message"],
        "unable to find api field in struct Deployment for the json field \"x\""
    );
    // Where nothing is merged, directives are fields.
    let retain = r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name","emptyDir"],"emptyDir":{}}]}}}}"#;
    let reply = call(&admin, "PATCH", &path, STRATEGIC_PATCH, retain).await;
    assert_eq!(reply.code, 200, "{}", reply.body);
    assert_eq!(
        reply.warnings(),
        ["299 - \"unknown field \\\"spec.template.spec.volumes[0].$retainKeys\\\"\""]
    );
    // Whoever leaves the namespace out means this one.
    made(&admin, MAPS, &map("m")).await;
    let anew = r#"[{"op":"replace","path":"","value":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"b"}}}]"#;
    let reply = call(&admin, "PATCH", &format!("{MAPS}/m"), JSON_PATCH, anew).await;
    assert_eq!(
        (reply.code, &reply.body["data"]["a"]),
        (200, &json!("b")),
        "{}",
        reply.body
    );
}

/// What is applied is told of another kind before it is told of another name.
#[tokio::test]
async fn kinds_are_compared_before_names() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a?fieldManager=me");
    let other = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}"#;
    let reply = call(&admin, "PATCH", &path, "application/apply-patch+yaml", other).await;
    assert_eq!(reply.body["message"], "invalid object type: /v1, Kind=Pod");
}

/// Replicas of a custom resource are whole numbers as they are written, not only in what they mean.
#[tokio::test]
async fn replicas_of_custom_resources_are_written_whole() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut definition = widgets();
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["other"] =
        json!({"type": "integer"});
    install(&admin, &definition).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let path = format!("{WIDGETS}/w");
    let scale = format!("{path}/scale");
    let refusal = "Invalid value: 0: .spec.size accessor error: 2 is of the type float64, expected int64";
    let new =
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"n"},"spec":{"size":2.0}}"#;
    for (method, path, media, body) in [
        ("POST", WIDGETS, "application/json", new),
        ("PATCH", &path, MERGE_PATCH, r#"{"spec":{"size":2.0}}"#),
        (
            "PATCH",
            &path,
            JSON_PATCH,
            r#"[{"op":"replace","path":"/spec/size","value":2.0}]"#,
        ),
        (
            "PATCH",
            &path,
            JSON_PATCH,
            r#"[{"op":"replace","path":"/spec","value":{"size":2.0}}]"#,
        ),
    ] {
        let reply = call(&admin, method, path, media, body).await;
        assert_eq!(reply.code, 422, "{body}: {}", reply.body);
        assert_eq!(reply.body["details"]["causes"][0]["message"], refusal, "{body}");
    }
    let reply = call(
        &admin,
        "PATCH",
        &scale,
        MERGE_PATCH,
        r#"{"spec":{"replicas":2.0}}"#,
    )
    .await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    // Elsewhere, and in YAML, two is two.
    let reply = call(&admin, "PATCH", &path, MERGE_PATCH, r#"{"spec":{"other":2.0}}"#).await;
    assert_eq!(
        (reply.code, &reply.body["spec"]["other"]),
        (200, &json!(2)),
        "{}",
        reply.body
    );
    assert_eq!(
        call(&admin, "POST", WIDGETS, "application/yaml", new).await.code,
        201
    );
}

/// What is refused before it has a name is refused by what its name would begin with.
#[tokio::test]
async fn the_nameless_are_refused_too() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(
        &admin,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "leaving"}}),
    )
    .await;
    let maps = "/api/v1/namespaces/leaving/configmaps";
    made(
        &admin,
        maps,
        &json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}),
    )
    .await;
    assert_eq!(admin.delete("/api/v1/namespaces/leaving").await.code, 200);
    for (metadata, name) in [
        (json!({"generateName": "new-"}), "new-"),
        (json!({}), "Unknown"),
        (json!({"name": "late"}), "late"),
    ] {
        let reply = admin.post(maps, &json!({"metadata": metadata})).await;
        let message = format!(
            "configmaps \"{name}\" is forbidden: unable to create new content in namespace leaving because it is being terminated"
        );
        assert_eq!((reply.code, &reply.body["message"]), (403, &json!(message)));
    }
}

/// A webhook that turns an object into another kind is not followed; one that only forgets to name
/// the kind is.
#[tokio::test]
async fn webhooks_do_not_turn_objects_into_others() {
    let world = World::new().await;
    let admin = world.admin();
    install(&admin, &widgets()).await;
    let change = |path: &'static str, operation: Value| world.serve(path, move |_| patch(json!([operation])));
    change(
        "/kind",
        json!({"op": "replace", "path": "/kind", "value": "Secret"}),
    );
    change("/nameless", json!({"op": "remove", "path": "/kind"}));
    change(
        "/version",
        json!({"op": "add", "path": "/metadata/resourceVersion", "value": "7"}),
    );
    let registration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    for (path, endpoint, group, object, code, message) in [
        (
            "/kind",
            MAPS,
            "",
            map("a"),
            500,
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            "/kind",
            WIDGETS,
            "example.com",
            widget("a", 1),
            422,
            "Secret.example.com \"a\" is invalid: kind: Invalid value: \"Secret\": must be Widget",
        ),
        (
            "/version",
            MAPS,
            "",
            map("a"),
            400,
            "resourceVersion should not be set on objects to be created",
        ),
    ] {
        let rule = rule(group, &["*"], &["CREATE"]);
        world.mutating("changes", path, rule, json!({})).await;
        let reply = admin.post(endpoint, &object).await;
        assert_eq!(
            (reply.code, &reply.body["message"]),
            (code, &json!(message)),
            "{path}"
        );
        assert_eq!(admin.delete(&format!("{registration}/changes")).await.code, 200);
    }
    let rule = rule("", &["configmaps"], &["CREATE"]);
    world.mutating("changes", "/nameless", rule, json!({})).await;
    let reply = admin.post(MAPS, &map("b")).await;
    assert_eq!(
        (reply.code, &reply.body["kind"]),
        (201, &json!("ConfigMap")),
        "{}",
        reply.body
    );
}

/// A default for a whole custom resource is an object like any other.
#[tokio::test]
async fn a_default_for_everything_names_its_kind() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut definition = widgets();
    definition["spec"]["versions"][0]["subresources"] = Value::Null;
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    definition.pointer_mut(schema).unwrap()["default"] = json!({"spec": {}});
    let reply = admin.post(DEFINITIONS, &definition).await;
    let place = "spec.validation.openAPIV3Schema.default";
    assert_eq!(
        told(&reply.body),
        [
            format!("{place}.apiVersion: Required value"),
            format!("{place}.kind: Required value")
        ]
    );
    definition.pointer_mut(schema).unwrap()["default"] = json!({"apiVersion": "v1", "kind": "Widget"});
    assert_eq!(admin.post(DEFINITIONS, &definition).await.code, 201);
}

/// What a patch leaves is read as its type before it is asked what it is called.
#[tokio::test]
async fn patched_objects_are_read_before_their_names() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("m")).await;
    let path = format!("{MAPS}/m");
    for (media, body, code) in [
        (MERGE_PATCH, r#"{"metadata":{"name":1}}"#, 422),
        (STRATEGIC_PATCH, r#"{"kind":1}"#, 422),
        (MERGE_PATCH, r#"{"metadata":{"name":"x"},"data":{"a":1}}"#, 422),
        (MERGE_PATCH, r#"{"metadata":{"name":"x"}}"#, 400),
    ] {
        let reply = call(&admin, "PATCH", &path, media, body).await;
        assert_eq!(reply.code, code, "{body}: {}", reply.body);
    }
    let elsewhere = r#"{"metadata":{"name":"x","namespace":"other"}}"#;
    let reply = call(&admin, "PATCH", &path, MERGE_PATCH, elsewhere).await;
    assert_eq!(
        reply.body["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

/// What is YAML and has no equal in JSON is refused, whatever it would be put into.
#[tokio::test]
async fn yaml_that_json_cannot_say_is_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (line, why) in [
        ("data: {x: .inf}", "json: unsupported value: +Inf"),
        (
            "data: {x: !!int five}",
            "yaml: cannot decode !!str `five` as a !!int",
        ),
        (
            "data: {~: x}",
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\"",
        ),
    ] {
        let body = format!("{head}{line}\n");
        let reply = call(&admin, "POST", MAPS, "application/yaml", &body).await;
        assert_eq!(reply.code, 400, "{line}");
        assert!(reply.message().contains(why), "{}", reply.message());
    }
}
