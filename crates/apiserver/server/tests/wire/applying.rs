// SPDX-License-Identifier: Apache-2.0
//! What the tests of server-side apply share: two kinds of objects, an apply under a name, and who
//! owns something afterwards.

use cobaltcore_apiserver::testkit::{Caller, Reply};
use serde_json::{Value, json};

/// Where ConfigMaps are.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Where Deployments are.
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A configuration of the ConfigMap `a`.
pub(crate) fn cm(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// Applies under a manager's name.
pub(crate) async fn apply_as(caller: &Caller, manager: &str, path: &str, body: &Value) -> Reply {
    let sign = if path.contains('?') { '&' } else { '?' };
    caller
        .apply(&format!("{path}{sign}fieldManager={manager}"), body)
        .await
}

/// A configuration of the Deployment `d`.
pub(crate) fn deployment(containers: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}}})
}

/// The entries of managedFields: operation, manager, subresource.
pub(crate) fn entries(object: &Value) -> Vec<String> {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| {
            let sub = e["subresource"]
                .as_str()
                .map(|s| format!("/{s}"))
                .unwrap_or_default();
            format!(
                "{} {}{sub}",
                e["operation"].as_str().unwrap(),
                e["manager"].as_str().unwrap()
            )
        })
        .collect()
}
