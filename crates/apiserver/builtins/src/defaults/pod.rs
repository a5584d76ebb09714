// SPDX-License-Identifier: Apache-2.0
//! Defaults of pods and of every pod template: containers, probes, volumes, and the few that only a
//! real pod gets.

use serde_json::{Map, Value, json};

use crate::json::{at_mut, default, default_text, ensure, flag, list_mut, map, map_mut, text};
use crate::quantity::Quantity;

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// A Pod: the template's defaults and those only pods have.
pub(super) fn pod(object: &mut Value) {
    let spec = Value::Object(std::mem::take(ensure(object, "spec")));
    let mut spec = spec;
    pod_only(&mut spec);
    pod_spec(&mut spec);
    ensure(object, "").insert("spec".to_owned(), spec);
    addresses(object);
    round_list(object, "status.allocatedResources");
}

/// A pod template at a path; absent templates stay absent.
pub(super) fn template(object: &mut Value, path: &str) {
    if at_mut(object, path).is_some() {
        ensure(object, &format!("{path}.metadata"));
        ensure(object, &format!("{path}.spec"));
        if let Some(spec) = at_mut(object, &format!("{path}.spec")) {
            pod_spec(spec);
        }
    }
}

fn pod_only(spec: &mut Value) {
    let host_network = flag(spec, "hostNetwork");
    for field in ["containers", "initContainers"] {
        for container in list_mut(spec, field) {
            requests_from_limits(container);
            if host_network {
                for port in list_mut(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or(Value::Null);
                    let port = ensure(port, "");
                    if port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0 {
                        port.insert("hostPort".to_owned(), number);
                    }
                }
            }
        }
    }
    pod_level_resources(spec);
    default(ensure(spec, ""), "enableServiceLinks", true);
}

/// Requests that are missing but limited take the limit.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = map(container, "resources.limits").cloned() else {
        return;
    };
    let requests = ensure(container, "resources.requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
    if requests.is_empty() {
        ensure(container, "resources").remove("requests");
    }
}

/// Pod-level requests take the sum of the containers' requests, then the pod-level limit.
fn pod_level_resources(spec: &mut Value) {
    let Some(limits) = map(spec, "resources.limits").cloned() else {
        return;
    };
    let mut sums: Map<String, Value> = Map::new();
    for container in crate::json::list(spec, "containers") {
        for (name, amount) in crate::json::entries(container, "resources.requests") {
            let Ok(amount) = Quantity::from_value(amount) else {
                continue;
            };
            let sum = sums.get(name).and_then(|sum| Quantity::from_value(sum).ok());
            let sum = sum.map_or(amount.clone(), |sum| sum.add(&amount));
            sums.insert(name.clone(), Value::from(sum.to_string()));
        }
    }
    let supported = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let requests = ensure(spec, "resources.requests");
    for (name, sum) in sums {
        if supported(&name) && !name.starts_with("hugepages-") {
            requests.entry(name).or_insert(sum);
        }
    }
    for (name, limit) in limits {
        if supported(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
    if requests.is_empty() {
        ensure(spec, "resources").remove("requests");
    }
}

/// podIP and podIPs, hostIP and hostIPs say the same thing twice.
fn addresses(object: &mut Value) {
    for (one, many) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let Some(status) = map_mut(object, "status") else {
            return;
        };
        let single = status
            .get(one)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let first = status
            .get(many)
            .and_then(|list| list.get(0))
            .and_then(|entry| entry.get("ip"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if one == "hostIP" {
            continue;
        }
        if single.is_empty() && !first.is_empty() {
            status.insert(one.to_owned(), Value::from(first));
        } else if !single.is_empty() && single != first {
            status.insert(many.to_owned(), json!([{"ip": single}]));
        }
    }
}

/// Defaults of a pod spec, in a pod or in a template.
fn pod_spec(spec: &mut Value) {
    let fields = ensure(spec, "");
    default_text(fields, "dnsPolicy", "ClusterFirst");
    default_text(fields, "restartPolicy", "Always");
    default(fields, "securityContext", json!({}));
    default(fields, "terminationGracePeriodSeconds", 30);
    default_text(fields, "schedulerName", "default-scheduler");
    mirror_service_account(fields);
    for field in CONTAINERS {
        for one in list_mut(spec, field) {
            container(one);
        }
    }
    for one in list_mut(spec, "volumes") {
        volume(one);
    }
    round_list(spec, "overhead");
    round_list(spec, "resources.limits");
    round_list(spec, "resources.requests");
}

/// The old name of the field always shows the same account.
fn mirror_service_account(spec: &mut Map<String, Value>) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .filter_map(|field| spec.get(*field).and_then(Value::as_str))
        .find(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(name) = name {
        spec.insert("serviceAccountName".to_owned(), Value::from(name.as_str()));
        spec.insert("serviceAccount".to_owned(), Value::from(name));
    }
}

fn container(container: &mut Value) {
    let policy = if latest_tag(text(container, "image")) {
        "Always"
    } else {
        "IfNotPresent"
    };
    let fields = ensure(container, "");
    default_text(fields, "imagePullPolicy", policy);
    default_text(fields, "terminationMessagePath", "/dev/termination-log");
    default_text(fields, "terminationMessagePolicy", "File");
    default(fields, "resources", json!({}));
    for port in list_mut(container, "ports") {
        default_text(ensure(port, ""), "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if let Some(field) = map_mut(variable, "valueFrom.fieldRef") {
            default_text(field, "apiVersion", "v1");
        }
        if let Some(file) = map_mut(variable, "valueFrom.fileKeyRef") {
            default(file, "optional", false);
        }
    }
    round_list(container, "resources.limits");
    round_list(container, "resources.requests");
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(one) = at_mut(container, name) {
            probe(one);
        }
    }
    for name in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        http_get(container, name);
    }
}

fn probe(probe: &mut Value) {
    let fields = ensure(probe, "");
    for (name, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if fields.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
            fields.insert(name.to_owned(), Value::from(value));
        }
    }
    http_get(probe, "httpGet");
    if let Some(grpc) = map_mut(probe, "grpc") {
        default(grpc, "service", "");
    }
}

fn http_get(parent: &mut Value, path: &str) {
    if let Some(action) = map_mut(parent, path) {
        default_text(action, "path", "/");
        default_text(action, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let fields = ensure(volume, "");
    if fields
        .iter()
        .all(|(name, value)| name == "name" || value.is_null())
    {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(fields) = map_mut(volume, source) {
            default(fields, "defaultMode", 420);
        }
    }
    if let Some(path) = map_mut(volume, "hostPath") {
        default(path, "type", "");
    }
    for item in list_mut(volume, "downwardAPI.items") {
        if let Some(field) = map_mut(item, "fieldRef") {
            default_text(field, "apiVersion", "v1");
        }
    }
    for source in list_mut(volume, "projected.sources") {
        if let Some(token) = map_mut(source, "serviceAccountToken") {
            default(token, "expirationSeconds", 3600);
        }
        for item in list_mut(source, "downwardAPI.items") {
            if let Some(field) = map_mut(item, "fieldRef") {
                default_text(field, "apiVersion", "v1");
            }
        }
    }
    if let Some(claim) = map_mut(volume, "ephemeral.volumeClaimTemplate.spec") {
        default(claim, "volumeMode", "Filesystem");
    }
    network_volumes(volume);
    let reference = text(volume, "image.reference").to_owned();
    if let Some(image) = map_mut(volume, "image") {
        default_text(
            image,
            "pullPolicy",
            if latest_tag(&reference) {
                "Always"
            } else {
                "IfNotPresent"
            },
        );
    }
}

/// Constants of the older volume kinds; the same in pods and in persistent volumes.
pub(super) fn network_volumes(parent: &mut Value) {
    for (source, field, value) in [
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("iscsi", "iscsiInterface", "default"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ] {
        if let Some(fields) = map_mut(parent, source) {
            default_text(fields, field, value);
        }
    }
    if let Some(disk) = map_mut(parent, "azureDisk") {
        default(disk, "cachingMode", "ReadWrite");
        default(disk, "fsType", "ext4");
        default(disk, "readOnly", false);
        default(disk, "kind", "Shared");
    }
}

/// Whether an image reference means the tag `latest`: named, or neither tag nor digest given.
pub(crate) fn latest_tag(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !image.is_empty(),
    }
}

/// Resource lists are kept to thousandths, rounded up.
pub(crate) fn round_list(parent: &mut Value, path: &str) {
    let Some(list) = map_mut(parent, path) else { return };
    for amount in list.values_mut() {
        let Ok(quantity) = Quantity::from_value(amount) else {
            continue;
        };
        let rounded = quantity.round_to_milli();
        if rounded != quantity {
            *amount = Value::from(rounded.to_string());
        }
    }
}
