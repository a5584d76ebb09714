// SPDX-License-Identifier: Apache-2.0
//! Answers found to differ from the reference when both were asked the same, case by case.

use cobaltcore_apiserver::testkit::{Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

use super::hooks::{self, World, rule};
use super::requests::{JSON_PATCH, MAPS, MERGE_PATCH, STRATEGIC_PATCH, map, map_of};
use super::words::{CRDS, WIDGETS, definition_with, widget};

/// A definition of widgets with a scale, a rule and fields that may and may not be null.
fn scaled() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "n": {"type": "integer"}, "name": {"type": "string"}, "kind": {"type": "string", "default": "x"},
            "maybe": {"type": "string", "nullable": true}}},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    let more = json!({"subresources": {"status": {}, "scale": {
        "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}});
    definition_with("widgets", "Widget", schema, more)
}

async fn with_widgets() -> TestServer {
    let server = TestServer::start().await;
    let made = server.admin().post(CRDS, &scaled()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    server
}

/// Where a null may not be it is left out of a body, but it is a value of a configuration.
#[tokio::test]
async fn nulls_of_a_configuration_are_values() {
    let server = with_widgets().await;
    let admin = server.admin();
    let path = format!("{WIDGETS}/w?fieldManager=alpha");
    for (code, spec) in [
        (422, json!({"name": null})),
        (201, json!({"kind": null, "maybe": null})),
        (422, json!({"name": null})),
        (200, json!({"name": "a"})),
    ] {
        let reply = admin.apply(&path, &widget("w", spec.clone())).await;
        assert_eq!(reply.code, code, "{spec} {}", reply.body);
        if code == 422 {
            assert_eq!(
                reply.message(),
                "Widget.example.com \"w\" is invalid: spec.name: Invalid value: \"null\": spec.name in body must be of type string: \"null\""
            );
        }
    }
    let posted = admin.post(WIDGETS, &widget("v", json!({"name": null}))).await;
    assert_eq!((posted.code, &posted.body["spec"]["name"]), (201, &Value::Null));
}

/// The status is looked at by itself, and what a scale reads must be where it is read.
#[tokio::test]
async fn a_status_is_judged_by_itself() {
    let server = with_widgets().await;
    let admin = server.admin();
    admin.post(WIDGETS, &widget("w", json!({"n": 1}))).await;
    let texts = |reply: &Reply| -> Vec<String> {
        let causes = reply.body["details"]["causes"].as_array().into_iter().flatten();
        causes
            .map(|c| c["message"].as_str().unwrap().to_owned())
            .collect()
    };
    let reply = admin
        .merge(&format!("{WIDGETS}/w/status"), &json!({"status": {"n": "x"}}))
        .await;
    assert_eq!(
        texts(&reply),
        [
            "Invalid value: \"string\": n in body must be of type integer: \"string\"",
            "Invalid value: 0: .status.n accessor error: x is of the type string, expected int64"
        ]
    );
    let reply = admin.merge(&format!("{WIDGETS}/w"), &json!({"spec": []})).await;
    assert_eq!(
        texts(&reply),
        [
            "Invalid value: \"array\": spec in body must be of type object: \"array\"",
            "Invalid value: 0: .spec.n accessor error: [] is of the type []interface {}, expected map[string]interface{}"
        ]
    );
}

/// A rule that was broken before may stay broken, and is warned of.
#[tokio::test]
async fn forgiven_rules_are_warned_of() {
    let server = with_widgets().await;
    let admin = server.admin();
    admin.post(WIDGETS, &widget("w", json!({"name": "long"}))).await;
    let mut stricter = scaled();
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"]
        ["x-kubernetes-validations"] = json!([{"rule": "self.size() < 2", "message": "is long"}]);
    let path = format!("{CRDS}/widgets.example.com");
    let changed = admin.merge(&path, &json!({"spec": stricter["spec"]})).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let path = format!("{WIDGETS}/w");
    let same = admin
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(same.code, 200, "{}", same.body);
    assert_eq!(
        same.warnings(),
        ["299 - \"spec.name: Invalid value: \\\"long\\\": is long\""]
    );
    let other = admin.merge(&path, &json!({"spec": {"name": "longer"}})).await;
    assert_eq!((other.code, other.warnings().len()), (422, 0));
}

/// Which versions were stored may be told through the status, whatever the spec says.
#[tokio::test]
async fn the_status_of_a_definition_has_rules_of_its_own() {
    let server = with_widgets().await;
    let path = format!("{CRDS}/widgets.example.com/status");
    let patch = json!({"status": {"storedVersions": ["v1", "v9"]}});
    let reply = server.admin().merge(&path, &patch).await;
    assert_eq!(reply.code, 200, "{}", reply.body);
    assert_eq!(reply.body["status"]["storedVersions"], json!(["v1", "v9"]));
}

/// Keys that stand twice are told as each reader tells them.
#[tokio::test]
async fn keys_that_stand_twice_in_yaml_are_told_by_line() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\nfoo: 1\ndata:\n  a: \"1\"\n  a: \"2\"\n";
    let typed = body.replace("foo: 1\n", "");
    let errors = |line: u8| format!("yaml: unmarshal errors:\n  line {line}: key \"a\" already set in map");
    let told = |line: u8| format!("299 - \"line {line}: key \\\"a\\\" already set in map\"");
    let unknown = "299 - \"unknown field \\\"foo\\\"\"".to_owned();
    let apply = format!("{MAPS}/m?fieldManager=alpha&");
    let create = format!("{MAPS}?");
    for (method, path, body, media, strict, warnings) in [
        (
            Method::POST,
            &create,
            body,
            "application/yaml",
            format!(
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {}, unknown field \"foo\"",
                errors(8)
            ),
            vec![told(8), unknown],
        ),
        (
            Method::PATCH,
            &apply,
            typed.as_str(),
            "application/apply-patch+yaml",
            format!(
                "error strict decoding YAML: error converting YAML to JSON: {}",
                errors(7)
            ),
            vec![told(7)],
        ),
    ] {
        let ask = |validation: &str| {
            let path = format!("{path}dryRun=All&fieldValidation={validation}");
            let (admin, method, body) = (admin.clone(), method.clone(), body.to_owned());
            async move { admin.send(method, &path, &[("content-type", media)], body).await }
        };
        let refused = ask("Strict").await;
        assert_eq!((refused.code, refused.message()), (400, strict.as_str()));
        assert_eq!(ask("Warn").await.warnings(), warnings);
        assert_eq!(ask("Ignore").await.warnings(), Vec::<String>::new());
    }
}

/// Nobody owns what nobody set, and a list that was set is owned.
#[tokio::test]
async fn what_was_never_set_is_owned_by_nobody() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let event = json!({"metadata": {"name": "e"}, "message": "m", "reason": "R", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}});
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let registration = "/apis/admissionregistration.k8s.io/v1";
    let daemons = "/apis/apps/v1/namespaces/default/daemonsets";
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let daemon = admin
        .post(daemons, &json!({"metadata": {"name": "d"}, "spec": spec}))
        .await;
    assert_eq!(
        daemon.body["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"],
        json!({"f:annotations": {".": {}, "f:deprecated.daemonset.template.generation": {}}})
    );
    for (path, body, owned) in [
        (
            "/api/v1/namespaces/default/events".to_owned(),
            event,
            json!({"f:involvedObject": {}, "f:message": {}, "f:reason": {}, "f:type": {}}),
        ),
        (
            format!("{registration}/validatingadmissionpolicybindings"),
            binding,
            json!({"f:spec": {"f:policyName": {}, "f:validationActions": {".": {}, "v:\"Deny\"": {}}}}),
        ),
    ] {
        let reply = admin.post(&path, &body).await;
        assert_eq!(reply.code, 201, "{}", reply.body);
        assert_eq!(reply.body["metadata"]["managedFields"][0]["fieldsV1"], owned);
    }
}

/// Words and codes of requests that are wrong in small ways.
#[tokio::test]
async fn small_mistakes_are_told_in_the_same_words() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let only_json = ("accept", "text/csv");
    let (plain, get) = (("x-none", ""), Method::GET);
    for (method, path, header, code, message) in [
        (
            &get,
            format!("{MAPS}/.."),
            plain,
            400,
            "Name parameter invalid: \"..\": may not be '..'",
        ),
        (
            &get,
            format!("{MAPS}/%25"),
            plain,
            400,
            "Name parameter invalid: \"%\": may not contain '%'",
        ),
        (
            &get,
            format!("{MAPS}?limit=9223372036854775808"),
            plain,
            400,
            "strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
        ),
        (
            &get,
            format!("{MAPS}?resourceVersion=18446744073709551616"),
            plain,
            400,
            "invalid resource version: resourceVersion: Invalid value: \"18446744073709551616\": strconv.ParseUint: parsing \"18446744073709551616\": value out of range",
        ),
        (&get, format!("{MAPS}?fieldSelector=a;b"), plain, 200, ""),
        (
            &get,
            "/version".to_owned(),
            only_json,
            406,
            "406: Not Acceptable\n\nAvailable representations: application/json",
        ),
        (&get, "/version".to_owned(), plain, 200, ""),
        (&get, "/healthz/".to_owned(), plain, 404, ""),
        (&get, "/readyz/ping/".to_owned(), plain, 404, ""),
        (&get, "/openapi/v3/".to_owned(), plain, 404, ""),
    ] {
        let reply = admin.send(method.clone(), &path, &[header], "").await;
        assert_eq!((reply.code, reply.message()), (code, message), "{path}");
    }
    let body = json!({"kind": "ConfigMap", "apiVersion": "v1"}).to_string();
    let headers = [("content-type", "application/json")];
    let reply = admin
        .send(Method::DELETE, &format!("{MAPS}/m"), &headers, body)
        .await;
    assert_eq!(
        (reply.code, reply.message()),
        (
            400,
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )
    );
}

/// A streaming list from a revision that is not there yet has begun when that turns out.
#[tokio::test]
async fn a_streaming_list_from_the_future_fails_as_an_event() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut events = admin
        .watch(&format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999"
        ))
        .await;
    let event = events.expect().await;
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 504);
    let text = event["object"]["message"].as_str().unwrap();
    assert!(text.starts_with("Timeout: Too large resource version: 99999999, current: "));
}

/// A bookmark of a table is a row of an object that has nothing but a revision.
#[tokio::test]
async fn bookmarks_of_tables_are_rows() {
    let server = TestServer::start().await;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=none&timeoutSeconds=1"
    );
    let headers = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let reply = server.admin().send(Method::GET, &path, &headers, "").await;
    let line = reply.raw.split(|b| *b == b'\n').next().unwrap();
    let event: Value = serde_json::from_slice(line).unwrap();
    let row = &event["object"]["rows"][0];
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(row["cells"], json!(["", 0, "<unknown>"]));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(
        row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
}

/// What is only asked passes webhooks like what is stored.
#[tokio::test]
async fn reviews_pass_webhooks() {
    let world = World::new().await;
    world.serve(
        "/no",
        |_| json!({"allowed": false, "status": {"message": "not today"}}),
    );
    let reviews = rule("authorization.k8s.io", &["selfsubjectaccessreviews"], &["CREATE"]);
    world.validating("reviews", "/no", reviews, json!({})).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let question = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reply = world.admin().post(path, &question).await;
    assert_eq!(reply.code, 400, "{}", reply.body);
    assert_eq!(
        reply.message(),
        "admission webhook \"reviews.hooks.example\" denied the request: not today"
    );
    let seen = world.take();
    assert_eq!(seen[0]["object"]["kind"], "SelfSubjectAccessReview");
    assert_eq!(seen[0]["options"]["kind"], "CreateOptions");
}

/// A policy whose parameters are of no kind is a fault of the policy, not of a binding.
#[tokio::test]
async fn an_unknown_kind_of_parameters_is_the_policys_fault() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let policy = json!({"metadata": {"name": "p"}, "spec": {"paramKind": {"apiVersion": "foo.bar/v1", "kind": "Foo"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]}]}, "validations": [{"expression": "true"}]}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "x", "namespace": "default", "parameterNotFoundAction": "Deny"}}});
    for (plural, body) in [("policies", policy), ("policybindings", binding)] {
        let path = format!("{}/validatingadmission{plural}", hooks::REGISTRATION);
        assert_eq!(admin.post(&path, &body).await.code, 201);
    }
    let refused = admin.post(MAPS, &map_of("m", json!({}))).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            422,
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'foo.bar/v1, Kind=Foo'"
        )
    );
}

/// Every version of a built-in group has an API service, which is this server.
#[tokio::test]
async fn built_in_groups_have_api_services() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    for (name, minimum, version) in [
        ("v1.", 18_000, 1),
        ("v1.apps", 17_800, 15),
        ("v2.autoscaling", 17_500, 30),
        ("v1.rbac.authorization.k8s.io", 17_000, 15),
    ] {
        let reply = admin.get(&format!("{path}/{name}")).await;
        assert_eq!(reply.code, 200, "{name} {}", reply.body);
        let spec = &reply.body["spec"];
        assert_eq!(
            (&spec["groupPriorityMinimum"], &spec["versionPriority"]),
            (&json!(minimum), &json!(version))
        );
        assert_eq!(reply.body["status"]["conditions"][0]["reason"], "Local");
    }
    let listed = admin.get(path).await;
    assert!(listed.body["items"].as_array().unwrap().len() > 15);
}

/// Patches that cannot be read say so in the words of their reader.
#[tokio::test]
async fn unreadable_patches() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let path = format!("{MAPS}/m");
    let unread = "error decoding patch: json: cannot unmarshal number into Go";
    for (media, body, code, message) in [
        (
            JSON_PATCH,
            "[{\"op\":1,\"path\":\"/a\"}]",
            400,
            format!("{unread} struct field jsonPatchOp.op of type string"),
        ),
        (
            JSON_PATCH,
            "[1]",
            400,
            format!("{unread} value of type handlers.jsonPatchOp"),
        ),
        (MERGE_PATCH, "null", 400, "Invalid JSON Patch".to_owned()),
        (STRATEGIC_PATCH, "null", 200, String::new()),
        (
            STRATEGIC_PATCH,
            "",
            400,
            "unexpected end of JSON input".to_owned(),
        ),
    ] {
        let reply = admin
            .send(Method::PATCH, &path, &[("content-type", media)], body)
            .await;
        assert_eq!((reply.code, reply.message()), (code, message.as_str()), "{body}");
    }
}
