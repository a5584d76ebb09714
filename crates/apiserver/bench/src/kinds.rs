// SPDX-License-Identifier: Apache-2.0
//! The objects the load consists of: ConfigMaps of 1.4 kB on the wire with two labels, and a custom
//! kind shaped like a Hypervisor, with a status that many hands write.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::client::Request;

/// Namespace of the load.
pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// 900 bytes that do not compress to nothing.
static PADDING: LazyLock<String> = LazyLock::new(|| {
    (0..900u32)
        .map(|i| char::from(b'a' + (i * 7 % 26) as u8))
        .collect()
});

/// A namespace of its own for a part of the load.
pub(crate) fn namespace(name: &str) -> Request {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Request::new("POST", "/api/v1/namespaces", 201).with(JSON, body.to_string())
}

pub(crate) fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

pub(crate) fn configmap_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// The name of the n-th ConfigMap.
pub(crate) fn name(n: u64) -> String {
    format!("load-{n:07}")
}

/// A whole ConfigMap; `bucket` spreads objects over ten values of a label.
pub(crate) fn configmap(namespace: &str, n: u64, value: u64) -> String {
    let (name, bucket, padding) = (name(n), n % 10, &*PADDING);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{"app":"bench","bucket":"b{bucket}"}}}},"data":{{"padding":"{padding}","value":"v{value}"}}}}"#
    )
}

/// Group of the custom kinds.
pub(crate) const GROUP: &str = "bench.cobaltcore.dev";

/// A definition shaped like that of the Hypervisor; `plural` makes it a kind of its own.
pub(crate) fn definition(plural: &str) -> String {
    let text = json!({"type": "string"});
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": text, "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "reason": text,
        "message": text, "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "lifecycleEnabled": {"type": "boolean", "default": true},
            "maintenance": {"type": "string", "enum": ["", "manual", "auto"]},
            "customTraits": {"type": "array", "items": text}}},
        "status": {"type": "object", "properties": {
            "libVirtVersion": text, "hypervisorVersion": text, "numInstances": {"type": "integer"},
            "capacity": {"type": "object", "additionalProperties": text},
            "traits": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "conditions": {"type": "array", "items": condition,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}}}}});
    let kind = kind_of(plural);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
    .to_string()
}

/// The kind a definition of that plural name has.
pub(crate) fn kind_of(plural: &str) -> String {
    let singular = plural.trim_end_matches('s');
    let mut letters = singular.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

pub(crate) fn definitions() -> &'static str {
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
}

pub(crate) fn definition_path(plural: &str) -> String {
    format!("{}/{plural}.{GROUP}", definitions())
}

pub(crate) fn customs(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/{plural}")
}

/// A custom object; `owner` is name and uid of another one of the same kind.
pub(crate) fn custom(plural: &str, name: &str, owner: Option<(&str, &str)>) -> String {
    let kind = kind_of(plural);
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "spec": {"lifecycleEnabled": true, "customTraits": ["CUSTOM_A", "CUSTOM_B"]}});
    if let Some((owner, uid)) = owner {
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": format!("{GROUP}/v1"), "kind": kind, "name": owner, "uid": uid}]);
    }
    object.to_string()
}

/// A status as an agent reports it; `n` is what changes.
fn status(n: u64) -> Value {
    let condition = |kind: &str, message: String| {
        json!({"type": kind, "status": "True", "reason": "Reported", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"libVirtVersion": "9.0.0", "hypervisorVersion": "7.2.0", "numInstances": n,
        "capacity": {"cpu": "128", "memory": "1Ti"}, "traits": ["CUSTOM_A", "HW_CPU_X86_VMX"],
        "conditions": [condition("Ready", format!("report {n}")), condition("LibVirtConnection", "connected".into())]})
}

/// A merge patch of the status.
pub(crate) fn status_patch(n: u64) -> String {
    json!({"status": status(n)}).to_string()
}

/// The status as an apply configuration.
pub(crate) fn status_apply(plural: &str, name: &str, n: u64) -> String {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind_of(plural), "metadata": {"name": name}, "status": status(n)})
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configmap_has_the_described_size_and_shape() {
        let text = configmap("bench", 12, 3);
        let object: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            object["metadata"]["labels"],
            json!({"app": "bench", "bucket": "b2"})
        );
        assert_eq!(object["data"]["padding"].as_str().map(str::len), Some(900));
        assert!((1_000..1_200).contains(&text.len()));
    }

    #[test]
    fn a_plural_gives_its_kind() {
        assert_eq!(kind_of("benchhosts"), "Benchhost");
    }
}
