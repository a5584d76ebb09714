// SPDX-License-Identifier: Apache-2.0
//! Defaults of everything that runs no pods: services, namespaces, nodes, volumes, policies,
//! bindings and configurations.

use serde_json::{Value, json};

use super::pod::{network_volumes, round_list};
use crate::json::{at, at_mut, default, default_text, ensure, int, list, list_mut, map, map_mut, text};

pub(super) fn service(object: &mut Value) {
    default_text(ensure(object, "spec"), "sessionAffinity", "None");
    match text(object, "spec.sessionAffinity") {
        "None" => {
            ensure(object, "spec").remove("sessionAffinityConfig");
        }
        "ClientIP" if int(object, "spec.sessionAffinityConfig.clientIP.timeoutSeconds").is_none() => {
            let config = json!({"clientIP": {"timeoutSeconds": 10800}});
            ensure(object, "spec").insert("sessionAffinityConfig".to_owned(), config);
        }
        _ => {}
    }
    default_text(ensure(object, "spec"), "type", "ClusterIP");
    for port in list_mut(object, "spec.ports") {
        let number = port.get("port").cloned().unwrap_or(json!(0));
        let fields = ensure(port, "");
        default_text(fields, "protocol", "TCP");
        let unset = fields
            .get("targetPort")
            .is_none_or(|target| target.is_null() || target == &json!(0) || target == &json!(""));
        if unset {
            fields.insert("targetPort".to_owned(), number);
        }
    }
    traffic(object);
}

fn traffic(object: &mut Value) {
    let kind = text(object, "spec.type").to_owned();
    let balanced = kind == "LoadBalancer";
    let external_ips = kind == "ClusterIP" && !list(object, "spec.externalIPs").is_empty();
    if balanced || kind == "NodePort" || external_ips {
        default_text(ensure(object, "spec"), "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default(ensure(object, "spec"), "internalTrafficPolicy", "Cluster");
    }
    if balanced {
        default(ensure(object, "spec"), "allocateLoadBalancerNodePorts", true);
        for ingress in list_mut(object, "status.loadBalancer.ingress") {
            if !text(ingress, "ip").is_empty() {
                default(ensure(ingress, ""), "ipMode", "VIP");
            }
        }
    }
}

pub(super) fn namespace(object: &mut Value) {
    let name = text(object, "metadata.name").to_owned();
    if !name.is_empty() {
        ensure(object, "metadata.labels").insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
    default_text(ensure(object, "status"), "phase", "Active");
}

pub(super) fn node(object: &mut Value) {
    if let Some(capacity) = map(object, "status.capacity").cloned() {
        default(ensure(object, "status"), "allocatable", capacity);
    }
    round_list(object, "status.capacity");
    round_list(object, "status.allocatable");
    let single = text(object, "spec.podCIDR").to_owned();
    let first = list(object, "spec.podCIDRs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if single.is_empty() && !first.is_empty() {
        ensure(object, "spec").insert("podCIDR".to_owned(), Value::from(first));
    } else if !single.is_empty() && single != first {
        ensure(object, "spec").insert("podCIDRs".to_owned(), json!([single]));
    }
}

/// stringData is written into data, wins, and is never seen again.
pub(super) fn secret(object: &mut Value) {
    use base64::Engine as _;
    default_text(ensure(object, ""), "type", "Opaque");
    let Some(Value::Object(plain)) = ensure(object, "").remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    let data = ensure(object, "data");
    for (key, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, Value::from(encoded));
    }
}

pub(super) fn endpoints(object: &mut Value) {
    for subset in list_mut(object, "subsets") {
        for port in list_mut(subset, "ports") {
            default_text(ensure(port, ""), "protocol", "TCP");
        }
    }
}

pub(super) fn limit_range(object: &mut Value) {
    for item in list_mut(object, "spec.limits") {
        if text(item, "type") == "Container" {
            for (source, target) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let Some(amounts) = map(item, source).cloned() else {
                    continue;
                };
                let target = ensure(item, target);
                for (name, amount) in amounts {
                    target.entry(name).or_insert(amount);
                }
            }
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_list(item, list);
        }
    }
}

pub(super) fn claim(object: &mut Value) {
    default_text(ensure(object, "status"), "phase", "Pending");
    default(ensure(object, "spec"), "volumeMode", "Filesystem");
    for path in [
        "spec.resources.limits",
        "spec.resources.requests",
        "status.capacity",
        "status.allocatedResources",
    ] {
        round_list(object, path);
    }
}

pub(super) fn volume(object: &mut Value) {
    default_text(ensure(object, "status"), "phase", "Pending");
    let spec = ensure(object, "spec");
    default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    if let Some(path) = map_mut(object, "spec.hostPath") {
        default(path, "type", "");
    }
    if let Some(spec) = at_mut(object, "spec") {
        network_volumes(spec);
        round_list(spec, "capacity");
    }
}

pub(super) fn network_policy(object: &mut Value) {
    let egress = !list(object, "spec.egress").is_empty();
    if list(object, "spec.policyTypes").is_empty() {
        let types = if egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
        ensure(object, "spec").insert("policyTypes".to_owned(), types);
    }
    for direction in ["spec.ingress", "spec.egress"] {
        for rule in list_mut(object, direction) {
            for port in list_mut(rule, "ports") {
                default(ensure(port, ""), "protocol", "TCP");
            }
        }
    }
}

pub(super) fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    default_text(ensure(object, "roleRef"), "apiGroup", GROUP);
    for subject in list_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_text(ensure(subject, ""), "apiGroup", GROUP);
        }
    }
}

pub(super) fn csi_driver(object: &mut Value) {
    let spec = ensure(object, "spec");
    default(spec, "attachRequired", true);
    default(spec, "podInfoOnMount", false);
    default(spec, "storageCapacity", false);
    default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default(spec, "requiresRepublish", false);
    default(spec, "seLinuxMount", false);
    if list(object, "spec.volumeLifecycleModes").is_empty() {
        ensure(object, "spec").insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

pub(super) fn admission(object: &mut Value, kind: &str) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in list_mut(object, "webhooks") {
                self::webhook(webhook, kind.starts_with("Mutating"));
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            default(ensure(object, "spec"), "failurePolicy", "Fail");
            match_resources(object, "spec.matchConstraints");
        }
        _ => match_resources(object, "spec.matchResources"),
    }
}

fn webhook(webhook: &mut Value, mutating: bool) {
    let fields = ensure(webhook, "");
    default(fields, "failurePolicy", "Fail");
    default(fields, "matchPolicy", "Equivalent");
    default(fields, "namespaceSelector", json!({}));
    default(fields, "objectSelector", json!({}));
    default(fields, "timeoutSeconds", 10);
    if mutating {
        default(fields, "reinvocationPolicy", "Never");
    }
    if let Some(service) = map_mut(webhook, "clientConfig.service") {
        default(service, "port", 443);
    }
    for rule in list_mut(webhook, "rules") {
        default(ensure(rule, ""), "scope", "*");
    }
}

fn match_resources(object: &mut Value, path: &str) {
    let Some(fields) = map_mut(object, path) else {
        return;
    };
    default(fields, "matchPolicy", "Equivalent");
    default(fields, "namespaceSelector", json!({}));
    default(fields, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in list_mut(object, &format!("{path}.{list}")) {
            default(ensure(rule, ""), "scope", "*");
        }
    }
}

pub(super) fn crd(object: &mut Value) {
    let kind = text(object, "spec.names.kind").to_owned();
    let names = ensure(object, "spec.names");
    default_text(names, "singular", &kind.to_lowercase());
    if !kind.is_empty() {
        default_text(names, "listKind", &format!("{kind}List"));
    }
    default(ensure(object, "spec"), "conversion", json!({"strategy": "None"}));
    if let Some(service) = map_mut(object, "spec.conversion.webhook.clientConfig.service") {
        default(service, "port", 443);
    }
    if list(object, "status.storedVersions").is_empty() {
        let storage = list(object, "spec.versions")
            .iter()
            .find(|version| at(version, "storage") == Some(&Value::Bool(true)))
            .map(|version| text(version, "name").to_owned());
        if let Some(name) = storage {
            ensure(object, "status").insert("storedVersions".to_owned(), json!([name]));
        }
    }
}
