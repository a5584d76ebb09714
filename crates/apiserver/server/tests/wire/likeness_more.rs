// SPDX-License-Identifier: Apache-2.0
//! More answers found to differ from the reference when both were asked the same: definitions and
//! their versions, deletions, webhooks, policies, and bodies that are hardly readable.

use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

use super::hooks::{self, World, allow, rule};
use super::requests::{MAPS, map_of, told};
use super::words::{CRDS, RBAC, WIDGETS, definition, definition_with, install, rv, widget};

/// Two versions with the same schema, the second one stored when `second` says so.
fn two_versions(second: bool) -> Value {
    let mut crd = definition(
        "widgets",
        "Widget",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    );
    let mut other = crd["spec"]["versions"][0].clone();
    other["name"] = json!("v2");
    other["storage"] = json!(second);
    crd["spec"]["versions"][0]["storage"] = json!(!second);
    crd["spec"]["versions"].as_array_mut().unwrap().push(other);
    crd
}

/// Objects move to a new storage version by being written as they are, and only then.
#[tokio::test]
async fn writing_an_object_as_it_is_moves_it_to_the_storage_version() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &two_versions(false)).await;
    admin.post(WIDGETS, &widget("w", json!({"a": 1}))).await;
    let path = format!("{WIDGETS}/w");
    let before = admin.get(&path).await.body;
    assert_eq!(rv(&admin.put(&path, &before).await.body), rv(&before));
    let versions = json!({"spec": {"versions": two_versions(true)["spec"]["versions"]}});
    let changed = admin
        .merge(&format!("{CRDS}/widgets.example.com"), &versions)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let moved = admin.put(&path, &before).await;
    assert_eq!(moved.code, 200, "{}", moved.body);
    assert!(rv(&moved.body) > rv(&before));
    assert_eq!(
        moved.body["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    let again = admin.put(&path, &moved.body).await;
    assert_eq!(rv(&again.body), rv(&moved.body));
}

/// The name of a definition is judged once for its syntax and once for what it must be.
#[tokio::test]
async fn names_of_definitions_are_judged_once() {
    let server = TestServer::start().await;
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    crd["metadata"]["name"] = json!("widgets.Foo.com");
    let found = told(&server.admin().post(CRDS, &crd).await.body);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("a lowercase RFC 1123 subdomain must consist of"),
        "{found:?}"
    );
    assert_eq!(
        found[1],
        "metadata.name: Invalid value: \"widgets.Foo.com\": must be spec.names.plural+\".\"+spec.group"
    );
    let mut none = definition("widgets", "Widget", json!({"type": "object"}));
    none["spec"].as_object_mut().unwrap().remove("versions");
    let reply = server.admin().post(CRDS, &none).await;
    assert_eq!(
        told(&reply.body).first().unwrap(),
        "spec.versions: Invalid value: null: must have exactly one version marked as storage version"
    );
}

/// What cannot be shown as a character stands for one.
#[tokio::test]
async fn halves_of_characters_are_read() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m"},"data":{"a":"\ud800x","b":"\udc00\ud83d\ude00","c":"\\ud800"}}"#;
    let reply = admin
        .send(Method::POST, MAPS, &[("content-type", "application/json")], body)
        .await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(
        reply.body["data"],
        json!({"a": "\u{fffd}x", "b": "\u{fffd}\u{1f600}", "c": "\\ud800"})
    );
}

/// A media range is an offer only when it is of everything.
#[tokio::test]
async fn half_a_range_is_not_acceptable() {
    let server = TestServer::start().await;
    for (accept, code) in [("application/*", 406), ("text/*", 406), ("*/*", 200)] {
        let reply = server
            .admin()
            .send(Method::GET, MAPS, &[("accept", accept)], "")
            .await;
        assert_eq!(reply.code, code, "{accept}");
    }
}

/// A directive nobody knows is refused where one would have been followed.
#[tokio::test]
async fn unknown_directives_of_strategic_patches() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map_of("m", json!({"a": "b"}))).await;
    let path = format!("{MAPS}/m");
    for (patch, shown) in [
        (json!({"$patch": "foo"}), "foo in map: map[$patch:foo]"),
        (
            json!({"data": {"$patch": "merge", "x": "y"}}),
            "merge in map: map[$patch:merge x:y]",
        ),
    ] {
        let reply = admin.strategic(&path, &patch).await;
        assert_eq!(
            (reply.code, reply.message()),
            (500, format!("unknown patch type: {shown}").as_str())
        );
    }
}

/// Rules that are to be collected are judged as they were written.
#[tokio::test]
async fn rules_of_aggregated_roles_are_judged() {
    let server = TestServer::start().await;
    let role = |selector: Value| {
        json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [selector]},
            "rules": [{"verbs": ["get"]}]})
    };
    let path = format!("{RBAC}/clusterroles");
    let rules = [
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[0].resources: Required value: resource rules must supply at least one resource",
    ];
    let reply = server
        .admin()
        .post(&path, &role(json!({"matchLabels": {"a": "b"}})))
        .await;
    assert_eq!(
        (reply.code, told(&reply.body)),
        (422, rules.map(str::to_owned).to_vec())
    );
    let wrong = json!({"matchExpressions": [{"key": "a", "operator": "Foo"}]});
    let reply = server.admin().post(&path, &role(wrong)).await;
    let told = told(&reply.body);
    assert_eq!(told[..2], rules);
    assert_eq!(
        told[3],
        "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."
    );
}

/// Whole collections of jobs leave their pods behind too.
#[tokio::test]
async fn deleting_all_jobs_is_warned_of() {
    let server = TestServer::start().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let warned = server.admin().delete(path).await;
    assert_eq!(warned.warnings().len(), 1, "{}", warned.body);
    let told = server
        .admin()
        .delete(&format!("{path}?propagationPolicy=Background"))
        .await;
    assert!(told.warnings().is_empty());
}

/// Parts of pods say where they belong when webhooks look at them, and a patch that does not apply
/// is told as the reference tells it.
#[tokio::test]
async fn webhooks_see_the_namespace_of_parts_and_their_patches_are_judged() {
    let world = World::new().await;
    let admin = world.admin();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(admin.post(hooks::PODS, &pod).await.code, 201);
    world.serve("/m", |request| {
        let wrong = json!([{"op": "remove", "path": "/metadata/labels"}]);
        if request["resource"]["resource"] == "configmaps" {
            hooks::patch(wrong)
        } else {
            allow()
        }
    });
    world
        .mutating(
            "m",
            "/m",
            rule("", &["configmaps", "pods/binding", "pods/eviction"], &["*"]),
            json!({}),
        )
        .await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(
        admin
            .post(&format!("{}/p/binding", hooks::PODS), &binding)
            .await
            .code,
        201
    );
    assert_eq!(world.take()[0]["object"]["metadata"]["namespace"], "default");
    let refused = admin.post(MAPS, &map_of("m", json!({}))).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            500,
            "Internal error occurred: error in remove for path: '/metadata/labels': Unable to remove nonexistent key: labels: missing value"
        )
    );
}

/// An expression whose type nobody knows is not taken for what it should be.
#[tokio::test]
async fn expressions_must_be_what_they_should_for_certain() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{}/validatingadmissionpolicies", hooks::REGISTRATION);
    let policy = |validation: Value| {
        json!({"metadata": {"name": "p"}, "spec": {"validations": [validation],
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]}}})
    };
    for (validation, cause) in [
        (
            json!({"expression": "object.foo"}),
            "spec.validations[0].expression: Invalid value: \"object.foo\": must evaluate to bool but got dyn",
        ),
        (
            json!({"expression": "true", "messageExpression": "object.foo"}),
            "spec.validations[0].messageExpression: Invalid value: \"object.foo\": must evaluate to string but got dyn",
        ),
    ] {
        let reply = admin.post(&path, &policy(validation)).await;
        assert_eq!((reply.code, told(&reply.body)), (422, vec![cause.to_owned()]));
    }
    let sure =
        json!({"expression": "object.foo == 1 || has(object.bar)", "messageExpression": "'a' + object.foo"});
    let reply = admin.post(&path, &policy(sure)).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"x-kubernetes-int-or-string": true}},
        "x-kubernetes-validations": [{"rule": "self.n"}]}}});
    let reply = admin
        .post(CRDS, &definition_with("widgets", "Widget", schema, json!({})))
        .await;
    assert!(
        told(&reply.body)[0].ends_with("cel expression must evaluate to a bool"),
        "{}",
        reply.body
    );
}
