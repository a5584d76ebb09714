// SPDX-License-Identifier: Apache-2.0
//! Mutating admission policies: what they change, in which order, for whom, and what happens when
//! they cannot.

use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

use crate::words::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

fn policy(name: &str, more: Value) -> Value {
    let mut spec = json!({"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps", "pods"]}]}});
    for (key, value) in more.as_object().cloned().unwrap_or_default() {
        spec[key] = value;
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec})
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

async fn bind(admin: &Caller, name: &str, spec: Value) {
    create(admin, POLICIES, &policy(name, spec)).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name}});
    create(admin, BINDINGS, &binding).await;
}

#[tokio::test]
async fn configurations_are_merged_and_operations_applied_in_order() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"variables": [{"name": "who", "expression": "request.userInfo.username"}],
    "mutations": [
        apply("Object{metadata: Object.metadata{labels: {'made-by': 'policy'}}, data: {'first': object.metadata.name}}"),
        patch("[JSONPatch{op: 'test', path: '/data/first', value: object.metadata.name},
                JSONPatch{op: 'add', path: '/metadata/annotations', value: {'x/who': variables.who}},
                JSONPatch{op: 'replace', path: '/data/v', value: object.data.v + '!'}]"),
        patch("[JSONPatch{op: 'test', path: '/data/first', value: 'another'},
            JSONPatch{op: 'remove', path: '/data/v'}]"),
    ]});
    bind(&admin, "p", spec).await;
    let made = admin.post(MAPS, &map("a", "hello")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["data"], json!({"first": "a", "v": "hello!"}));
    assert_eq!(made.body["metadata"]["labels"], json!({"made-by": "policy"}));
    assert!(made.body["metadata"]["annotations"]["x/who"].is_string());
    let changed = admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "bye"}}))
        .await;
    assert_eq!(changed.body["data"]["v"], "bye!");
    admin.delete(&format!("{BINDINGS}/p")).await;
    let free = admin.post(MAPS, &map("b", "hello")).await;
    assert_eq!(free.body["data"], json!({"v": "hello"}));
}

#[tokio::test]
async fn elements_of_lists_are_found_by_their_keys_and_defaulted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let sidecar = "Object{spec: Object.spec{initContainers: [
        Object.spec.initContainers{name: 'proxy', image: 'mesh:1', restartPolicy: 'Always'}]}}";
    let spec = json!({"mutations": [apply(sidecar)],
        "matchConditions": [{"name": "once", "expression": "!object.spec.?initContainers.orValue([]).exists(c, c.name == 'proxy')"}],
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}});
    bind(&admin, "p", spec).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "a", "image": "x"}], "initContainers": [{"name": "first", "image": "y"}]}});
    let made = admin.post(PODS, &pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let inits = made.body["spec"]["initContainers"].as_array().unwrap();
    let names: Vec<_> = inits.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "proxy"]);
    assert_eq!(inits[1]["terminationMessagePath"], "/dev/termination-log");
}

#[tokio::test]
async fn what_cannot_be_done_follows_the_failure_policy() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let broken = json!({"mutations": [apply("Object{data: {'x': object.data.nothing}}")]});
    bind(&admin, "p", broken).await;
    let refused = admin.post(MAPS, &map("a", "v")).await;
    let text = "policy 'p' with binding 'p' denied request: expression 'Object{data: {'x': object.data.nothing}}' resulted in error: no such key: nothing";
    assert_eq!(
        refused.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Invalid",
            "message": text, "details": {"name": "a", "kind": "configmaps", "causes": [{"message": text}]}})
    );
    let lenient = json!([{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}]);
    let changed = admin.json_patch(&format!("{POLICIES}/p"), &lenient).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    create(&admin, MAPS, &map("a", "v")).await;
}

#[tokio::test]
async fn parts_that_are_replaced_as_a_whole_are_not_touched() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"mutations": [apply("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}")]});
    bind(&admin, "p", spec).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
    let refused = admin.post(PODS, &pod).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused.message().ends_with(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector"
        ),
        "{}",
        refused.message()
    );
    let unknown = policy("q", json!({"mutations": [apply("Object{nonsense: 1}")]}));
    create(&admin, POLICIES, &unknown).await;
}

#[tokio::test]
async fn an_earlier_policy_is_asked_again_when_it_wants_to_be() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let count = |policy: &str| {
        json!({"reinvocationPolicy": policy,
            "mutations": [patch("[JSONPatch{op: 'add', path: '/data/count', value: object.data.?count.orValue('') + 'x'}]")]})
    };
    bind(&admin, "a-eager", count("IfNeeded")).await;
    bind(
        &admin,
        "b-once",
        json!({"mutations": [apply("Object{data: {'late': 'y'}}")]}),
    )
    .await;
    let made = admin.post(MAPS, &map("a", "v")).await;
    assert_eq!(
        made.body["data"],
        json!({"count": "xx", "late": "y", "v": "v"}),
        "{}",
        made.body
    );
    admin.delete(&format!("{BINDINGS}/a-eager")).await;
    bind(&admin, "a-modest", count("Never")).await;
    let made = admin.post(MAPS, &map("b", "v")).await;
    assert_eq!(made.body["data"]["count"], "x");
}

#[tokio::test]
async fn what_policies_made_is_validated_and_not_stored_by_a_dry_run() {
    let server = TestServer::start().await;
    let admin = server.admin();
    bind(
        &admin,
        "p",
        json!({"mutations": [apply("Object{data: {'bad key': 'x'}}")]}),
    )
    .await;
    let refused = admin.post(MAPS, &map("a", "v")).await;
    assert_eq!(
        (
            refused.code,
            refused.body["details"]["causes"][0]["field"].as_str()
        ),
        (422, Some("data[bad key]"))
    );
    admin.delete(&format!("{BINDINGS}/p")).await;
    bind(
        &admin,
        "q",
        json!({"mutations": [apply("Object{data: {'good': 'x'}}")]}),
    )
    .await;
    let dry = admin.post(&format!("{MAPS}?dryRun=All"), &map("a", "v")).await;
    assert_eq!(dry.body["data"]["good"], "x");
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn policies_are_checked_when_they_are_made() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (spec, field, text) in [
        (json!({}), "spec.mutations", "Required value"),
        (
            json!({"mutations": [{"patchType": "Other"}]}),
            "spec.mutations[0].patchType",
            "Unsupported value",
        ),
        (
            json!({"mutations": [{"patchType": "JSONPatch"}]}),
            "spec.mutations[0].jsonPatch",
            "Required value",
        ),
        (
            json!({"mutations": [apply("1")]}),
            "spec.mutations[0].applyConfiguration.expression",
            "must evaluate to Object",
        ),
        (
            json!({"mutations": [patch("Object{}")]}),
            "spec.mutations[0].jsonPatch.expression",
            "must evaluate to list(JSONPatch)",
        ),
        (
            json!({"mutations": [apply("Object{")]}),
            "spec.mutations[0].applyConfiguration.expression",
            "compilation failed",
        ),
        (
            json!({"mutations": [apply("Object{}")], "reinvocationPolicy": "Often"}),
            "spec.reinvocationPolicy",
            "Unsupported value",
        ),
    ] {
        let refused = admin.post(POLICIES, &policy("p", spec)).await;
        assert_eq!(refused.code, 422, "{field}: {}", refused.body);
        let cause = &refused.body["details"]["causes"][0];
        assert_eq!(cause["field"], field);
        assert!(cause["message"].as_str().unwrap().contains(text), "{cause}");
    }
}

/// A test that fails says that there is nothing to do; one that finds nothing to look at is a mistake.
#[tokio::test]
async fn a_test_of_what_is_not_there_is_a_mistake() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let test = "[JSONPatch{op: 'test', path: '/data/v', value: 'another'}]";
    bind(&admin, "p", json!({"mutations": [patch(test)]})).await;
    assert_eq!(admin.post(MAPS, &map("a", "hello")).await.code, 201);
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}});
    let refused = admin.post(MAPS, &empty).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "policy 'p' with binding 'p' denied request: JSON Patch: test operation does not apply: is missing path: /data/v: missing value"
        )
    );
}
