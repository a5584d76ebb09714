// SPDX-License-Identifier: Apache-2.0
//! More small print, found by asking the reference and this server the same: who is asked before
//! whom, what is never the client's to set, and what a path with too many slashes means.

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

use super::requests::{DEPLOYMENTS, JOBS, JSON_PATCH, MAPS, PODS, call, deployment, map, pod};
use super::words::{CRDS, RBAC, definition};

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RUNTIMES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

async fn apply(admin: &Caller, path: &str, manager: &str, body: &Value) -> Reply {
    admin.apply(&format!("{path}?fieldManager={manager}"), body).await
}

fn fields(reply: &Reply) -> Vec<&str> {
    let list = reply.body["details"]["causes"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|cause| cause["field"].as_str())
        .collect()
}

/// What does not exist is told before what is wrong with its patch, but only an apply could make it.
#[tokio::test]
async fn a_patch_of_nothing_finds_nothing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let reply = call(&admin, "PATCH", &format!("{MAPS}/none"), JSON_PATCH, "{}").await;
    assert_eq!(
        (reply.code, reply.message()),
        (404, "configmaps \"none\" not found")
    );
}

/// The name in the path is not enough to make an object.
#[tokio::test]
async fn an_apply_that_creates_names_its_object() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/m");
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
    let refused = apply(&admin, &path, "alpha", &nameless).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            400,
            "the name of the object (m based on URL) was undeterminable: name must be provided"
        )
    );
    assert_eq!(apply(&admin, &path, "alpha", &map("m")).await.code, 201);
    assert_eq!(apply(&admin, &path, "alpha", &nameless).await.code, 200);
}

/// The status endpoint leaves the rest alone, so nobody quarrels about the rest there.
#[tokio::test]
async fn the_status_endpoint_has_no_conflicts_about_the_spec() {
    let server = TestServer::start().await;
    let admin = server.admin();
    assert_eq!(
        apply(&admin, &format!("{DEPLOYMENTS}/d"), "alpha", &deployment("d"))
            .await
            .code,
        201
    );
    let scaled = admin
        .merge(
            &format!("{DEPLOYMENTS}/d/scale?fieldManager=scaler"),
            &json!({"spec": {"replicas": 3}}),
        )
        .await;
    assert_eq!(scaled.code, 200, "{}", scaled.body);
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"l": "1"}},
        "spec": {"replicas": 9}, "status": {"replicas": 2}});
    let reply = apply(&admin, &format!("{DEPLOYMENTS}/d/status"), "beta", &config).await;
    assert_eq!(reply.code, 200, "{}", reply.body);
    assert_eq!(
        (&reply.body["spec"]["replicas"], &reply.body["status"]["replicas"]),
        (&json!(3), &json!(2))
    );
    assert!(reply.body["metadata"]["labels"].is_null());
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 7}});
    let refused = apply(&admin, &format!("{DEPLOYMENTS}/d/scale"), "beta", &scale).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: .spec.replicas"
        )
    );
}

/// Which versions were stored is the server's to know, whatever an exported definition says.
#[tokio::test]
async fn a_new_definition_has_stored_its_storage_version() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut exported = definition("widgets", "Widget", json!({"type": "object"}));
    exported["status"] = json!({"storedVersions": ["v9"], "acceptedNames": {"plural": "a", "kind": "B"}});
    let made = admin.post(CRDS, &exported).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let status = &made.body["status"];
    assert_eq!(
        (&status["storedVersions"], &status["acceptedNames"]["plural"]),
        (&json!(["v1"]), &json!("widgets"))
    );
}

/// Only the first event of a table carries columns, and events have no YAML form.
#[tokio::test]
async fn streams_have_the_forms_of_the_reference() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("a")).await;
    admin.post(MAPS, &map("b")).await;
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let reply = admin
        .send(Method::GET, &watch, &[("accept", table)], Vec::new())
        .await;
    let columns: Vec<bool> = String::from_utf8_lossy(&reply.raw)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|event| event["object"]["columnDefinitions"].is_null())
        .collect();
    assert_eq!(columns.first(), Some(&false));
    assert!(
        columns.len() > 1 && columns[1..].iter().all(|none| *none),
        "{columns:?}"
    );
    let refused = admin
        .send(Method::GET, &watch, &[("accept", "application/yaml")], Vec::new())
        .await;
    assert_eq!(refused.code, 406);
    let second = admin
        .send(
            Method::GET,
            &watch,
            &[("accept", "application/yaml, application/json;q=0.5")],
            Vec::new(),
        )
        .await;
    assert_eq!(second.code, 406, "YAML is chosen, and then is no stream");
}

/// Nothing between two slashes is an empty name: of a namespace it means all of them.
#[tokio::test]
async fn doubled_slashes_are_empty_names() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let all = admin.get("/api/v1/namespaces//configmaps").await;
    assert_eq!((all.code, &all.body["kind"]), (200, &json!("ConfigMapList")));
    for path in [
        "/api/v1//configmaps",
        "/api//v1",
        "//api/v1",
        "/apis//",
        "/apis//v1/x",
        "/api/v1/bindings",
        "/api/v1/namespaces/default/configmaps/a%2Fb",
    ] {
        assert_eq!(admin.get(path).await.code, 404, "{path}");
    }
    assert_eq!(admin.get("/api/v1/").await.code, 200);
}

/// Reviews tell who asked, like every other object; a refused path has details that say nothing.
#[tokio::test]
async fn reviews_and_refusals_carry_what_the_reference_does() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reply = admin
        .post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            &question,
        )
        .await;
    let entry = &reply.body["metadata"]["managedFields"][0];
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:spec": {"f:resourceAttributes": {".": {}, "f:resource": {}, "f:verb": {}}}}),
        "{}",
        reply.body
    );
    let user = server.as_user("u", &[]);
    let refused = user.get("/metrics").await;
    assert_eq!((refused.code, &refused.body["details"]), (403, &json!({})));
    let rules =
        json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["*"]}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    admin
        .post(&roles, &json!({"metadata": {"name": "r"}, "rules": rules}))
        .await;
    let bind = |role: &str| {
        json!({"metadata": {"name": role}, "subjects": [{"kind": "User", "name": "u"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
    };
    assert_eq!(admin.post(&bindings, &bind("r")).await.code, 201);
    let refused = user.post(&bindings, &bind("nope")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (404, "rolebindings.rbac.authorization.k8s.io \"nope\" not found")
    );
}

/// Pods get what the class of their runtime says, and only that.
#[tokio::test]
async fn pods_follow_the_class_of_their_runtime() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut heavy = pod("heavy");
    heavy["spec"]["overhead"] = json!({"cpu": "1"});
    let refused = admin.post(PODS, &heavy).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "pods \"heavy\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    );
    let mut sandboxed = pod("sandboxed");
    sandboxed["spec"]["runtimeClassName"] = json!("sandbox");
    let refused = admin.post(PODS, &sandboxed).await;
    assert_eq!(
        refused.message(),
        "pods \"sandboxed\" is forbidden: pod rejected: RuntimeClass \"sandbox\" not found"
    );
    let class = json!({"metadata": {"name": "sandbox"}, "handler": "h",
        "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"kind": "vm"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    assert_eq!(admin.post(RUNTIMES, &class).await.code, 201);
    let made = admin.post(PODS, &sandboxed).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let spec = &made.body["spec"];
    assert_eq!(
        (&spec["overhead"], &spec["nodeSelector"]),
        (&json!({"memory": "64Mi"}), &json!({"kind": "vm"}))
    );
    assert!(
        spec["tolerations"]
            .as_array()
            .is_some_and(|all| all.iter().any(|t| t["key"] == "vm"))
    );
}

/// Rules of single fields that were missing.
#[tokio::test]
async fn rules_of_single_fields() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let with = |more: Value| {
        let mut object = pod("p");
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            object["spec"][key] = value;
        }
        object
    };
    let container = |more: Value| {
        let mut object = pod("p");
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            object["spec"]["containers"][0][key] = value;
        }
        object
    };
    let target = |version: &str| {
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": version, "kind": "Deployment", "name": "d"}}})
    };
    let cases = [
        (
            PODS,
            with(json!({"securityContext": {"sysctls": [{"name": "A b", "value": "1"}]}})),
            "spec.securityContext.sysctls[0].name",
        ),
        (
            PODS,
            with(json!({"dnsConfig": {"searches": ["_ok.b", "a b"]}})),
            "spec.dnsConfig.searches[1]",
        ),
        (
            PODS,
            container(json!({"securityContext": {"procMount": "x"}})),
            "spec.containers[0].securityContext.procMount",
        ),
        (
            PODS,
            container(
                json!({"env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "foo"}}}]}),
            ),
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource",
        ),
        (AUTOSCALERS, target("v1"), "spec.scaleTargetRef.apiVersion"),
        (
            QUOTAS,
            json!({"metadata": {"name": "q"}, "spec": {"hard": {"storage": "1"}}}),
            "spec.hard[storage]",
        ),
    ];
    for (path, object, field) in cases {
        let refused = admin.post(path, &object).await;
        assert_eq!(
            (refused.code, fields(&refused)),
            (422, vec![field]),
            "{}",
            refused.body
        );
    }
    assert_eq!(admin.post(AUTOSCALERS, &target("apps/v1")).await.code, 201);
}

/// Whoever follows a pod hears of its end before it is gone, also where it is given no time.
#[tokio::test]
async fn pods_end_before_they_go() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let made = admin.post(PODS, &pod("p")).await;
    let revision = made.body["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = admin
        .watch(&format!("{PODS}?watch=true&resourceVersion={revision}"))
        .await;
    let gone = admin.delete(&format!("{PODS}/p")).await;
    assert_eq!(gone.code, 200, "{}", gone.body);
    for kind in ["MODIFIED", "DELETED"] {
        let event = events.expect().await;
        let meta = &event["object"]["metadata"];
        assert_eq!(
            (
                &event["type"],
                &meta["deletionGracePeriodSeconds"],
                &meta["generation"]
            ),
            (&json!(kind), &json!(0), &json!(2)),
            "{event}"
        );
    }
}

/// Members of an operation that mean nothing are told of, or refused.
#[tokio::test]
async fn operations_have_no_members_of_their_own() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let path = format!("{MAPS}/m");
    let patch = json!([{"op": "add", "path": "/data", "value": {"a": "1"}, "extra": 1}]);
    let strict = admin
        .json_patch(&format!("{path}?fieldValidation=Strict"), &patch)
        .await;
    assert_eq!(strict.code, 422);
    assert!(
        strict
            .message()
            .ends_with("strict decoding error: json patch unknown field \"[0].extra\""),
        "{}",
        strict.message()
    );
    let told = admin.json_patch(&path, &patch).await;
    assert_eq!(
        (told.code, told.warnings()),
        (
            200,
            vec!["299 - \"json patch unknown field \\\"[0].extra\\\"\"".to_owned()]
        )
    );
}

/// What a job makes of failed pods is well formed, and its manager is named with a domain.
#[tokio::test]
async fn jobs_know_what_failures_mean() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let job = |more: Value| {
        let mut object = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            object["spec"][key] = value;
        }
        object
    };
    let rules = |rules: Value| job(json!({"podFailurePolicy": {"rules": rules}}));
    let rule = "spec.podFailurePolicy.rules[0]";
    let cases = [
        (
            rules(json!([{"action": "Foo"}])),
            vec![format!("{rule}.action"), rule.to_owned()],
        ),
        (
            rules(json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3, 0, 3]}}])),
            vec![
                format!("{rule}.onExitCodes.values[1]"),
                format!("{rule}.onExitCodes.values[2]"),
                format!("{rule}.onExitCodes.values"),
            ],
        ),
        (
            rules(json!([{"action": "FailIndex", "onPodConditions": [{"type": "A", "status": "X"}]}])),
            vec![
                format!("{rule}.action"),
                format!("{rule}.onPodConditions[0].status"),
            ],
        ),
        (
            rules(json!([{"action": "Ignore", "onExitCodes": {"containerName": "d", "operator": "In"}}])),
            vec![
                format!("{rule}.onExitCodes.containerName"),
                format!("{rule}.onExitCodes.values"),
            ],
        ),
        (job(json!({"managedBy": "x"})), vec!["spec.managedBy".to_owned()]),
        (
            job(json!({"manualSelector": true})),
            vec![
                "spec.selector".to_owned(),
                "spec.template.metadata.labels".to_owned(),
            ],
        ),
    ];
    for (object, wrong) in cases {
        let refused = admin.post(JOBS, &object).await;
        assert_eq!(
            (refused.code, fields(&refused)),
            (422, wrong.iter().map(String::as_str).collect()),
            "{}",
            refused.body
        );
    }
    let fine = rules(
        json!([{"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0]}},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]),
    );
    assert_eq!(admin.post(JOBS, &fine).await.code, 201);
}
