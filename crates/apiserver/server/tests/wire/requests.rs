// SPDX-License-Identifier: Apache-2.0
//! What the black-box tests share: objects to send, requests as rows of a table, and refusals to
//! compare to the letter. Nothing here knows how the server works.

#![allow(dead_code)] // each test file uses its own part

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A ConfigMap without content.
pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A ConfigMap with content.
pub(crate) fn map_of(name: &str, data: Value) -> Value {
    let mut object = map(name);
    object["data"] = data;
    object
}

/// A pod with one container.
pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}})
}

/// A Deployment whose selector matches its template.
pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}],
             "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}]}]}}}})
}

/// A Lease.
pub(crate) fn lease(name: &str, holder: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": holder}})
}

/// The definition of widgets.example.com with status and scale.
pub(crate) fn widgets() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}}}]}})
}

/// A widget.
pub(crate) fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// A refusal as it must be, whole.
pub(crate) fn failure(code: u16, reason: &str, message: &str, details: Option<Value>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    if let Some(details) = details {
        status["details"] = details;
    }
    status
}

/// A cause of a refusal.
pub(crate) fn cause(reason: &str, field: &str, message: &str) -> Value {
    json!({"reason": reason, "message": message, "field": field})
}

/// The fields and reasons of a refusal's causes.
pub(crate) fn causes(reply: &Reply) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let all = reply.body["details"]["causes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.iter()
        .map(|c| (text(&c["field"]), text(&c["reason"])))
        .collect()
}

/// The fields and messages of a refusal's causes.
pub(crate) fn told(body: &Value) -> Vec<String> {
    let list = body["details"]["causes"].as_array().into_iter().flatten();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    list.map(|c| format!("{}: {}", text(&c["field"]), text(&c["message"])))
        .collect()
}

/// The names in a list.
pub(crate) fn names(reply: &Reply) -> Vec<&str> {
    let items = reply.body["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    items
        .iter()
        .filter_map(|i| i["metadata"]["name"].as_str())
        .collect()
}

/// A header as text.
pub(crate) fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply
        .headers
        .get(name)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
}

/// One request by its method's name.
pub(crate) async fn call(caller: &Caller, method: &str, path: &str, media: &str, body: &str) -> Reply {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let path = path
        .replace(' ', "%20")
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('\\', "%5C");
    let headers: &[(&str, &str)] = if media.is_empty() {
        &[]
    } else {
        &[("content-type", media)]
    };
    caller.send(method, &path, headers, body.to_owned()).await
}

/// Creates an object that must be accepted.
pub(crate) async fn made(caller: &Caller, path: &str, object: &Value) -> Value {
    let reply = caller.post(path, object).await;
    assert_eq!(reply.code, 201, "{path}: {}", reply.body);
    reply.body
}

/// The resource version of an object.
pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Sends each object and compares (field, reason) of the causes.
pub(crate) async fn refused(path: &str, cases: Vec<(Value, &[(&str, &str)])>) {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (object, expected) in cases {
        let reply = admin.post(path, &object).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{object}: {}",
            reply.body
        );
        let found = causes(&reply);
        let found: Vec<(&str, &str)> = found.iter().map(|(f, r)| (f.as_str(), r.as_str())).collect();
        let long: Vec<(&str, String)> = expected
            .iter()
            .map(|(f, r)| (*f, format!("FieldValue{r}")))
            .collect();
        let long: Vec<(&str, &str)> = long.iter().map(|(f, r)| (*f, r.as_str())).collect();
        assert_eq!(found, long, "{object}: {}", reply.message());
    }
}
