// SPDX-License-Identifier: Apache-2.0
//! Words the wire tests share: definitions, small objects, and ways to look into answers.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::time::Duration;

use cobaltcore_apiserver::testkit::{Caller, Reply};
use serde_json::{Value, json};

/// The namespace most tests live in.
pub(crate) const NS: &str = "/api/v1/namespaces/default";
/// Where definitions are.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where widgets of the namespace `default` are.
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Where roles and bindings are.
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A ConfigMap with one value.
pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}})
}

/// A ConfigMap with labels.
pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A definition of `plural.example.com` with one version and the given schema of `spec`.
pub(crate) fn definition(plural: &str, kind: &str, spec: Value) -> Value {
    definition_with(
        plural,
        kind,
        json!({"type": "object", "properties": {"spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}),
        json!({}),
    )
}

/// A definition with a whole schema and further members of its only version.
pub(crate) fn definition_with(plural: &str, kind: &str, schema: Value, more: Value) -> Value {
    let mut version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    if let Value::Object(more) = more {
        for (key, value) in more {
            version[key] = value;
        }
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [version]}})
}

/// A widget with a spec.
pub(crate) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Installs a definition; panics when it is refused.
pub(crate) async fn install(caller: &Caller, definition: &Value) {
    let reply = caller.post(CRDS, definition).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
}

/// Creates an object; panics when it is refused.
pub(crate) async fn create(caller: &Caller, path: &str, object: &Value) -> Value {
    let reply = caller.post(path, object).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    reply.body
}

/// The resource version of an object or list.
pub(crate) fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .unwrap_or_else(|_| panic!("no version in {object}"))
}

/// The uid of an object.
pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"]
        .as_str()
        .unwrap_or_else(|| panic!("no uid in {object}"))
        .to_owned()
}

/// `TYPE name` of a watch event.
pub(crate) fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
    format!("{} {name}", event["type"].as_str().unwrap_or("?"))
}

/// The names of a list, in order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|i| i["metadata"]["name"].as_str())
        .collect()
}

/// `field reason: message` of every cause of a refusal.
pub(crate) fn causes(reply: &Reply) -> Vec<String> {
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    reply.body["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            format!(
                "{} {}: {}",
                text(c, "field"),
                text(c, "reason"),
                text(c, "message")
            )
        })
        .collect()
}

/// A condition of an object's status.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"]
        .as_array()
        .unwrap_or_else(|| panic!("no conditions in {object}"));
    all.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

/// Asks until `done` says so; panics with the last answer after a minute.
pub(crate) async fn until(caller: &Caller, path: &str, done: impl Fn(&Reply) -> bool) -> Reply {
    for _ in 0..6_000 {
        let reply = caller.get(path).await;
        if done(&reply) {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reply = caller.get(path).await;
    panic!("{path} did not get there: {} {}", reply.code, reply.body)
}

/// Waits until an object is gone.
pub(crate) async fn gone(caller: &Caller, path: &str) {
    until(caller, path, |reply| reply.code == 404).await;
}

/// A reference to an owner.
pub(crate) fn owner(object: &Value, blocking: bool) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": blocking})
}

/// The entry of a manager in an object's managedFields.
pub(crate) fn managed<'a>(object: &'a Value, manager: &str, subresource: Option<&str>) -> &'a Value {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|e| e["manager"] == manager && e["subresource"].as_str() == subresource)
        .unwrap_or(&Value::Null)
}

/// Lets a user do something in the namespace `default`.
pub(crate) async fn grant(admin: &Caller, name: &str, user: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    create(admin, &format!("{RBAC}/namespaces/default/roles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": [{"kind": "User", "name": user}]});
    create(
        admin,
        &format!("{RBAC}/namespaces/default/rolebindings"),
        &binding,
    )
    .await;
}

/// Lets a user do something everywhere.
pub(crate) async fn grant_cluster(admin: &Caller, name: &str, user: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    create(admin, &format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": user}]});
    create(admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
}

/// A rule of a role.
pub(crate) fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}
