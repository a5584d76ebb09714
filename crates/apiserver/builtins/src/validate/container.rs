// SPDX-License-Identifier: Apache-2.0
//! Rules of containers: names, images, ports, environment, mounts, resources, probes and hooks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::errors::Errors;
use crate::json::{at, flag, int, list, number, text};
use crate::names;

/// What a container's rules need to know about its pod.
pub(super) struct PodFacts<'a> {
    /// Volume names, and whether a volume can be a block device.
    pub(super) volumes: BTreeMap<&'a str, bool>,
    pub(super) claims: BTreeSet<&'a str>,
    pub(super) grace: i64,
}

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const SIDECAR_ONLY: &str = "may not be set for init containers without restartPolicy=Always";

/// Regular containers: at least one, names unique, probes and hooks allowed.
pub(super) fn containers(errors: &mut Errors, containers: &[Value], field: &str, pod: &PodFacts<'_>) {
    if containers.is_empty() {
        errors.required(field, "");
        return;
    }
    let mut seen = BTreeSet::new();
    for (position, container) in containers.iter().enumerate() {
        let path = format!("{field}[{position}]");
        common(errors, container, &path, pod);
        let name = text(container, "name");
        if !seen.insert(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        running(errors, container, &path, pod);
        restart_policy(errors, container, &path);
    }
    host_ports(errors, containers, field);
}

/// Init containers: like others, but probes and hooks only for sidecars.
pub(super) fn init_containers(
    errors: &mut Errors,
    init: &[Value],
    regular: &[Value],
    field: &str,
    pod: &PodFacts<'_>,
) {
    let mut seen: BTreeSet<&str> = regular.iter().map(|container| text(container, "name")).collect();
    for (position, container) in init.iter().enumerate() {
        let path = format!("{field}[{position}]");
        common(errors, container, &path, pod);
        let always = text(container, "restartPolicy") == "Always";
        if !always {
            restart_policy(errors, container, &path);
        }
        let name = text(container, "name");
        if seen.contains(name) {
            errors.duplicate(format!("{path}.name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        host_ports(errors, std::slice::from_ref(container), field);
        if always {
            running(errors, container, &path, pod);
            continue;
        }
        for forbidden in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if at(container, forbidden).is_some() {
                errors.forbidden(format!("{path}.{forbidden}"), SIDECAR_ONLY);
            }
        }
    }
}

fn restart_policy(errors: &mut Errors, container: &Value, path: &str) {
    let rules = list(container, "restartPolicyRules");
    match at(container, "restartPolicy").and_then(Value::as_str) {
        None if !rules.is_empty() => errors.required(
            format!("{path}.restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        ),
        None => {}
        Some(policy) => {
            let supported = ["Always", "Never", "OnFailure"];
            if !supported.contains(&policy) {
                errors.not_supported(format!("{path}.restartPolicy"), policy, &supported);
            }
            if rules.len() > 20 {
                errors.too_many(format!("{path}.restartPolicyRules"), rules.len(), 20);
            }
        }
    }
}

/// Rules every container shares.
pub(super) fn common(errors: &mut Errors, container: &Value, path: &str, pod: &PodFacts<'_>) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(format!("{path}.name"), "");
    } else {
        errors.all(&format!("{path}.name"), name, names::dns1123_label(name));
    }
    if text(container, "image").is_empty() {
        errors.required(format!("{path}.image"), "");
    }
    errors.choice(
        text(container, "terminationMessagePolicy"),
        &format!("{path}.terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, container, &format!("{path}.ports"));
    environment(errors, container, path);
    mounts(errors, container, path, pod);
    devices(errors, container, path, pod);
    errors.choice(
        text(container, "imagePullPolicy"),
        &format!("{path}.imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    let resources = at(container, "resources").unwrap_or(&Value::Null);
    super::resources::resources(errors, resources, &format!("{path}.resources"), false);
    resize_policy(errors, container, &format!("{path}.resizePolicy"));
    for (position, claim) in list(resources, "claims").iter().enumerate() {
        let name = text(claim, "name");
        if !pod.claims.contains(name) {
            let field = format!("{path}.resources.claims[{position}]");
            errors.claim_not_found(field, name, pod.claims.is_empty());
        }
    }
    super::resources::security(
        errors,
        at(container, "securityContext"),
        &format!("{path}.securityContext"),
    );
}

fn ports(errors: &mut Errors, container: &Value, field: &str) {
    let mut seen = BTreeSet::new();
    for (position, port) in list(container, "ports").iter().enumerate() {
        let path = format!("{field}[{position}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = names::port_name(name);
            if problems.is_empty() && !seen.insert(name) {
                errors.duplicate(format!("{path}.name"), name);
            }
            errors.all(&format!("{path}.name"), name, problems);
        }
        match number(port, "containerPort") {
            0 => errors.required(format!("{path}.containerPort"), ""),
            number => errors.port(number, &format!("{path}.containerPort")),
        }
        if number(port, "hostPort") != 0 {
            errors.port(number(port, "hostPort"), &format!("{path}.hostPort"));
        }
        errors.choice(text(port, "protocol"), &format!("{path}.protocol"), &PROTOCOLS);
    }
}

fn host_ports(errors: &mut Errors, containers: &[Value], field: &str) {
    let mut seen = BTreeSet::new();
    for (position, container) in containers.iter().enumerate() {
        for (index, port) in list(container, "ports").iter().enumerate() {
            let host = number(port, "hostPort");
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert(key.clone()) {
                errors.duplicate(format!("{field}[{position}].ports[{index}].hostPort"), key);
            }
        }
    }
}

fn environment(errors: &mut Errors, container: &Value, path: &str) {
    for (position, variable) in list(container, "env").iter().enumerate() {
        let field = format!("{path}.env[{position}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(format!("{field}.name"), "");
        } else {
            errors.all(&format!("{field}.name"), name, names::env_name(name));
        }
        if let Some(source) = at(variable, "valueFrom") {
            value_source(
                errors,
                source,
                !text(variable, "value").is_empty(),
                &format!("{field}.valueFrom"),
            );
        }
    }
    for (position, source) in list(container, "envFrom").iter().enumerate() {
        let field = format!("{path}.envFrom[{position}]");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.all(&format!("{field}.prefix"), prefix, names::env_name(prefix));
        }
        let sources = ["configMapRef", "secretRef"];
        let given: Vec<&str> = sources
            .into_iter()
            .filter(|name| at(source, name).is_some())
            .collect();
        for name in &given {
            let target = text(source, &format!("{name}.name"));
            if target.is_empty() {
                errors.required(format!("{field}.{name}.name"), "");
            } else {
                errors.all(
                    &format!("{field}.{name}.name"),
                    target,
                    names::dns1123_subdomain(target),
                );
            }
        }
        match given.len() {
            0 => errors.invalid(
                format!("{path}.envFrom"),
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                format!("{path}.envFrom"),
                "",
                "may not have more than one field specified at a time",
            ),
        }
    }
}

fn value_source(errors: &mut Errors, source: &Value, has_value: bool, field: &str) {
    let sources = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let given: Vec<&str> = sources
        .into_iter()
        .filter(|name| at(source, name).is_some())
        .collect();
    for name in &given {
        let reference = at(source, name).unwrap_or(&Value::Null);
        let path = format!("{field}.{name}");
        match *name {
            "fieldRef" => field_reference(errors, reference, &path, &ENV_FIELDS),
            "configMapKeyRef" | "secretKeyRef" => key_reference(errors, reference, &path),
            "resourceFieldRef" => super::resources::resource_field(errors, reference, &path),
            _ => {}
        }
    }
    match given.len() {
        0 => errors.invalid(
            field,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        _ if has_value => errors.invalid(field, "", "may not be specified when `value` is not empty"),
        1 => {}
        _ => errors.invalid(field, "", "may not have more than one field specified at a time"),
    }
}

fn key_reference(errors: &mut Errors, reference: &Value, path: &str) {
    let name = text(reference, "name");
    errors.all(&format!("{path}.name"), name, names::dns1123_subdomain(name));
    let key = text(reference, "key");
    if key.is_empty() {
        errors.required(format!("{path}.key"), "");
    } else {
        errors.all(&format!("{path}.key"), key, names::config_key(key));
    }
}

/// Fields environment variables may be taken from.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields files may be filled from.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn field_reference(errors: &mut Errors, reference: &Value, path: &str, known: &[&str]) {
    let wanted = text(reference, "fieldPath");
    if wanted.is_empty() {
        errors.required(format!("{path}.fieldPath"), "");
        return;
    }
    if let Some((map, key)) = wanted.strip_suffix("']").and_then(|rest| rest.split_once("['")) {
        match map {
            "metadata.annotations" => errors.all(path, key, names::qualified_name(&key.to_lowercase())),
            "metadata.labels" => errors.all(path, key, names::qualified_name(key)),
            other => errors.invalid(path, other, "does not support subscript"),
        }
        return;
    }
    let convertible = known.contains(&wanted)
        || ENV_FIELDS.contains(&wanted)
        || FILE_FIELDS.contains(&wanted)
        || matches!(
            wanted,
            "spec.host" | "spec.restartPolicy" | "spec.schedulerName" | "status.phase"
        );
    if !convertible {
        errors.invalid(
            format!("{path}.fieldPath"),
            wanted,
            &format!("error converting fieldPath: field label not supported: {wanted}"),
        );
    } else if !known.contains(&wanted) && wanted != "spec.host" {
        errors.not_supported(format!("{path}.fieldPath"), wanted, known);
    }
}

fn mounts(errors: &mut Errors, container: &Value, path: &str, pod: &PodFacts<'_>) {
    let devices = list(container, "volumeDevices");
    let mut seen = BTreeSet::new();
    let all = format!("{path}.volumeMounts");
    for (position, mount) in list(container, "volumeMounts").iter().enumerate() {
        let field = format!("{all}[{position}]");
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(format!("{field}.name"), "");
        }
        if !pod.volumes.contains_key(name) {
            errors.not_found(format!("{field}.name"), name);
        }
        if target.is_empty() {
            errors.required(format!("{field}.mountPath"), "");
        }
        if !seen.insert(target) {
            errors.invalid(format!("{field}.mountPath"), target, "must be unique");
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            errors.invalid(
                format!("{field}.name"),
                name,
                "must not already exist in volumeDevices",
            );
        }
        if devices.iter().any(|device| text(device, "devicePath") == target) {
            errors.invalid(
                format!("{field}.mountPath"),
                target,
                "must not already exist as a path in volumeDevices",
            );
        }
        sub_paths(errors, mount, &all, &field);
        if let Some(mode) = at(mount, "mountPropagation").and_then(Value::as_str) {
            let known = ["Bidirectional", "HostToContainer", "None"];
            if mode == "Bidirectional" && !flag(container, "securityContext.privileged") {
                errors.forbidden(
                    format!("{all}.mountPropagation"),
                    "Bidirectional mount propagation is available only to privileged containers",
                );
            }
            if !known.contains(&mode) {
                errors.not_supported(format!("{all}.mountPropagation"), mode, &known);
            }
        }
    }
}

fn sub_paths(errors: &mut Errors, mount: &Value, all: &str, field: &str) {
    let (path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !path.is_empty() {
        relative_path(errors, path, &format!("{all}.subPath"));
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            errors.invalid(
                format!("{field}.subPathExpr"),
                expression,
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        relative_path(errors, expression, &format!("{all}.subPathExpr"));
    }
}

/// A path below something, that may not climb out.
pub(super) fn relative_path(errors: &mut Errors, path: &str, field: &str) {
    if path.starts_with('/') {
        errors.invalid(field, path, "must be a relative path");
    }
    no_backsteps(errors, path, field);
}

pub(super) fn no_backsteps(errors: &mut Errors, path: &str, field: &str) {
    if path.split('/').any(|part| part == "..") {
        errors.invalid(field, path, "must not contain '..'");
    }
}

fn devices(errors: &mut Errors, container: &Value, path: &str, pod: &PodFacts<'_>) {
    let (mut names_seen, mut paths_seen) = (BTreeSet::new(), BTreeSet::new());
    for (position, device) in list(container, "volumeDevices").iter().enumerate() {
        let field = format!("{path}.volumeDevices[{position}]");
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(format!("{field}.name"), "");
        }
        if !name.is_empty() && !names_seen.insert(name) {
            errors.invalid(format!("{field}.name"), name, "must be unique");
        }
        match pod.volumes.get(name) {
            Some(true) => {}
            Some(false) => errors.invalid(
                format!("{field}.name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            None => errors.not_found(format!("{field}.name"), name),
        }
        if target.is_empty() {
            errors.required(format!("{field}.devicePath"), "");
        }
        if !paths_seen.insert(target) {
            errors.invalid(format!("{field}.devicePath"), target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(
                format!("{field}.devicePath"),
                target,
                "can not contain backsteps ('..')",
            );
        }
    }
}

/// Probes and hooks.
fn running(errors: &mut Errors, container: &Value, path: &str, pod: &PodFacts<'_>) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = at(container, &format!("lifecycle.{hook}")) {
            self::handler(errors, handler, &format!("{path}.lifecycle.{hook}"), pod.grace);
        }
    }
    for (name, only_one) in [
        ("livenessProbe", true),
        ("readinessProbe", false),
        ("startupProbe", true),
    ] {
        let Some(probe) = at(container, name) else {
            continue;
        };
        let field = format!("{path}.{name}");
        self::probe(errors, probe, &field, pod.grace);
        if only_one && number(probe, "successThreshold") != 1 {
            errors.invalid(
                format!("{field}.successThreshold"),
                number(probe, "successThreshold"),
                "must be 1",
            );
        }
        if name == "readinessProbe"
            && let Some(grace) = int(probe, "terminationGracePeriodSeconds")
        {
            errors.invalid(
                format!("{field}.terminationGracePeriodSeconds"),
                grace,
                "must not be set for readinessProbes",
            );
        }
    }
}

fn probe(errors: &mut Errors, probe: &Value, field: &str, grace: i64) {
    handler(errors, probe, field, grace);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.non_negative(probe, name, &format!("{field}.{name}"));
    }
    if let Some(grace) = int(probe, "terminationGracePeriodSeconds").filter(|grace| *grace <= 0) {
        errors.invalid(
            format!("{field}.terminationGracePeriodSeconds"),
            grace,
            "must be greater than 0",
        );
    }
}

fn handler(errors: &mut Errors, handler: &Value, field: &str, grace: i64) {
    let mut found = false;
    for name in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = at(handler, name) else { continue };
        let path = format!("{field}.{name}");
        if std::mem::replace(&mut found, true) {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match name {
            "exec" if list(action, "command").is_empty() => errors.required(format!("{path}.command"), ""),
            "httpGet" => http_get(errors, action, &path),
            "tcpSocket" | "grpc" => errors.port_or_name(at(action, "port"), &format!("{path}.port")),
            "sleep" => {
                let seconds = number(action, "seconds");
                if seconds < 0 || seconds > grace {
                    errors.invalid(
                        path,
                        seconds,
                        &format!(
                            "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                        ),
                    );
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.required(field, "must specify a handler type");
    }
}

fn http_get(errors: &mut Errors, action: &Value, path: &str) {
    if text(action, "path").is_empty() {
        errors.required(format!("{path}.path"), "");
    }
    errors.port_or_name(at(action, "port"), &format!("{path}.port"));
    let scheme = text(action, "scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(format!("{path}.scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        errors.all(&format!("{path}.httpHeaders"), name, names::header_name(name));
    }
}

/// What happens to a container whose resources change: once for each resource, in known words.
fn resize_policy(errors: &mut Errors, container: &Value, path: &str) {
    let mut seen = BTreeSet::new();
    for (position, policy) in list(container, "resizePolicy").iter().enumerate() {
        let resource = text(policy, "resourceName");
        if !seen.insert(resource) {
            errors.duplicate(format!("{path}[{position}]"), resource);
        }
        errors.choice(resource, path, &["cpu", "memory"]);
        errors.choice(
            text(policy, "restartPolicy"),
            path,
            &["NotRequired", "RestartContainer"],
        );
    }
}
