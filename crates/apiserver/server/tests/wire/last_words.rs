// SPDX-License-Identifier: Apache-2.0
//! Last words compared with the reference: scopes of quotas, ratios of limits, structs as they are
//! printed, zero values nobody owns, names in paths of what is only asked.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::requests::{
    BUDGETS, DEFINITIONS, DEPLOYMENTS, MAPS, SERVICES, WIDGETS, call, deployment, told, widget, widgets,
};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn object(kind: &str, api_version: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
}

#[tokio::test]
async fn quotas_and_limits() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (path, kind, spec, expected) in [
        (
            QUOTAS,
            "ResourceQuota",
            json!({"hard": {"services": "1"}, "scopes": ["BestEffort"]}),
            "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
        ),
        (
            QUOTAS,
            "ResourceQuota",
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
            "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        (
            QUOTAS,
            "ResourceQuota",
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Is"}]}}),
            "spec.scopeSelector.matchExpressions.operator: Invalid value: \"Is\": not a valid selector operator",
        ),
        (
            RANGES,
            "LimitRange",
            json!({"limits": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "0.5"}}]}),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
        ),
        (
            RANGES,
            "LimitRange",
            json!({"limits": [{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]}),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
        ),
    ] {
        let reply = admin.post(path, &object(kind, "v1", spec)).await;
        assert_eq!((reply.code, told(&reply.body)), (422, vec![expected.to_owned()]));
    }
}

/// Structs are shown with the names and the order of the reference's own.
#[tokio::test]
async fn refused_structs_are_shown_in_order() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut strategy = deployment("d");
    strategy["spec"]["strategy"] = json!({"type": "Foo"});
    let reply = admin.post(DEPLOYMENTS, &strategy).await;
    assert_eq!(
        told(&reply.body),
        [
            "spec.strategy: Unsupported value: {\"Type\":\"Foo\",\"RollingUpdate\":null}: supported values: \"Recreate\", \"RollingUpdate\""
        ]
    );
    let spec = json!({"minAvailable": 1, "maxUnavailable": 1});
    let reply = admin
        .post(BUDGETS, &object("PodDisruptionBudget", "policy/v1", spec))
        .await;
    assert_eq!(
        told(&reply.body),
        [
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":1,\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"
        ]
    );
}

/// What every new object says is nobody's.
#[tokio::test]
async fn zero_values_are_nobodys() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let class =
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}});
    let made = admin
        .post("/apis/scheduling.k8s.io/v1/priorityclasses", &class)
        .await;
    assert_eq!(made.body["value"], 0);
    assert_eq!(
        made.body["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:preemptionPolicy": {}})
    );
}

/// An event of the core group says who reported it, if only that nobody did; the other leaves it out.
#[tokio::test]
async fn events_that_nobody_reported() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "r"});
    admin.post("/api/v1/namespaces/default/events", &event).await;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    assert_eq!(admin.get(path).await.body.get("reportingController"), None);
    let reply = admin.merge(path, &json!({"reason": "s"})).await;
    assert_eq!(
        told(&reply.body),
        ["reason: Invalid value: \"s\": field is immutable"]
    );
}

#[tokio::test]
async fn addresses_without_the_address() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"clusterIPs": ["10.96.7.7"], "ports": [{"port": 80}]});
    let reply = admin.post(SERVICES, &object("Service", "v1", spec)).await;
    assert_eq!(
        told(&reply.body),
        ["spec.clusterIPs: Invalid value: [\"10.96.7.7\"]: must be empty when `clusterIP` is not specified"]
    );
}

/// A field nobody knows is told of once, however often it stands there.
#[tokio::test]
async fn unknown_fields_are_not_counted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body = r#"{"metadata": {"name": "m"}, "bar": 1, "bar": 2, "data": {"k": "1", "k": "2"}}"#;
    let path = format!("{MAPS}?fieldValidation=Strict");
    let reply = call(&admin, "POST", &path, "application/json", body).await;
    assert_eq!(
        reply.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bar\", duplicate field \"data.k\""
    );
}

/// What is only asked has no name, and what a custom resource is called its body says.
#[tokio::test]
async fn names_in_paths_of_creations() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x";
    let reply = admin.post(path, &json!({})).await;
    assert_eq!((reply.code, reply.reason()), (404, "NotFound"));
    admin.post(DEFINITIONS, &widgets()).await;
    let made = admin.post(&format!("{WIDGETS}/other"), &widget("w", 1)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["metadata"]["name"], "w");
}

/// What is no patch is refused before what it is for is looked for.
#[tokio::test]
async fn scales_are_not_patched_with_anything() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/none/scale");
    let reply = call(&admin, "PATCH", &path, "application/json", "{}").await;
    assert_eq!((reply.code, reply.reason()), (415, "UnsupportedMediaType"));
    let reply = call(&admin, "PATCH", &path, "application/merge-patch+json", "{}").await;
    assert_eq!((reply.code, reply.reason()), (404, "NotFound"));
}

/// A configuration is turned into JSON before it is read.
#[tokio::test]
async fn configurations_that_are_no_yaml() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body = "metadata:\n name: x\n  labels: y";
    let path = format!("{MAPS}/x?fieldManager=m");
    let reply = call(&admin, "PATCH", &path, "application/apply-patch+yaml", body).await;
    assert_eq!(
        (reply.code, reply.message()),
        (
            400,
            "error decoding YAML: error converting YAML to JSON: yaml: line 3: mapping values are not allowed in this context"
        )
    );
}

/// A literal that cannot be converted is found when the program is made.
#[tokio::test]
async fn programs_that_cannot_be_made() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{"rule": "int('x') == 1"}]);
    let reply = admin.post(DEFINITIONS, &definition).await;
    let expected = "program instantiation failed: type conversion error from 'string' to 'int'";
    assert!(reply.message().contains(expected), "{}", reply.message());
}
