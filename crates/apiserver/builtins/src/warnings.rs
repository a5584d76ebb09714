// SPDX-License-Identifier: Apache-2.0
//! Warnings: objects that are accepted although something about them is old or surprising. The server
//! sends them as `Warning` headers.

use std::collections::BTreeMap;

use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{at, entries, int, list, map, number, same, text};
use crate::kind::Kind;
use crate::names;
use crate::quantity::Quantity;
use crate::validate::profiles;
use crate::warnings_storage;

/// Labels of nodes that have newer names.
const OLD_LABELS: [(&str, &str); 5] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];

/// Sources of volumes nobody serves any more.
pub(crate) const OLD_VOLUMES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Annotations of pods that fields have taken the place of.
const OLD_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

impl Kind {
    /// The warning every request for this kind gets, if the kind itself is on its way out.
    pub fn deprecation(&self) -> Option<&'static str> {
        (self.id() == ("", "Endpoints"))
            .then_some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }

    /// Warnings about a new object.
    pub fn warnings_create(&self, object: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        self.name_warning(object, &mut warnings);
        self.content_warnings(object, &mut warnings);
        if self.id() == ("networking.k8s.io", "Ingress") {
            const CLASS: &str = "kubernetes.io/ingress.class";
            if entries(object, "metadata.annotations").any(|(key, _)| key == CLASS) {
                warnings.push(format!(
                    "annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        warnings
    }

    /// Warnings about a changed object; templates only when they changed.
    pub fn warnings_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let unchanged_template = self.has_generation && same(at(new, "spec"), at(old, "spec"));
        if self.id() != ("", "Pod") && !unchanged_template {
            self.content_warnings(new, &mut warnings);
        }
        warnings
    }

    fn name_warning(&self, object: &Value, warnings: &mut Vec<String>) {
        let used = match self.id() {
            ("", "Pod") => "the Pod's hostname",
            ("apps", "Deployment" | "ReplicaSet") | ("batch", _) | ("", "ReplicationController") => {
                "Pod names and hostnames"
            }
            _ => return,
        };
        let problems = names::dns1123_label(text(object, "metadata.name"));
        if !problems.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: [{}]",
                problems.join(" ")
            ));
        }
    }

    fn content_warnings(&self, object: &Value, warnings: &mut Vec<String>) {
        match self.id() {
            ("", "Secret") => warnings.extend(crate::keypair::keypair_warning(object)),
            ("", "Pod") => pod(object, "", warnings),
            ("", "PodTemplate") => pod(
                at(object, "template").unwrap_or(&Value::Null),
                "template.",
                warnings,
            ),
            ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job")
            | ("", "ReplicationController") => {
                pod(
                    at(object, "spec.template").unwrap_or(&Value::Null),
                    "spec.template.",
                    warnings,
                );
            }
            ("batch", "CronJob") => {
                let template = at(object, "spec.jobTemplate.spec.template").unwrap_or(&Value::Null);
                pod(template, "spec.jobTemplate.spec.template.", warnings);
            }
            ("", "Service") => service(object, warnings),
            ("", "PersistentVolume") => warnings_storage::volume(object, warnings),
            ("", "PersistentVolumeClaim") => warnings_storage::claim(object, warnings),
            ("storage.k8s.io", "StorageClass") => warnings_storage::class(object, warnings),
            ("discovery.k8s.io", _) if text(object, "addressType") == "FQDN" => {
                warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
            }
            ("", "Node") => {
                if !text(object, "spec.externalID").is_empty() {
                    warnings.push(
                        "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
                    );
                }
                for (key, _) in entries(object, "metadata.labels") {
                    if let Some(text) =
                        old_label(key).filter(|_| key.starts_with("beta.kubernetes.io/instance"))
                    {
                        warnings.push(format!("metadata.labels[{key}]: {text}"));
                    }
                }
            }
            _ => {}
        }
    }
}

pub(crate) fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS
        .iter()
        .find(|(known, _)| *known == key)
        .map(|(_, text)| *text)
}

/// A pod or template; `prefix` leads to it.
fn pod(pod: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some(text) = old_label(key) {
            warnings.push(format!("{prefix}spec.nodeSelector[{key}]: {text}"));
        }
    }
    for (position, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{prefix}spec.topologySpreadConstraints[{position}]");
        let key = text(constraint, "topologyKey");
        if let Some(text) = old_label(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {text}"));
        }
        if at(constraint, "labelSelector").is_none() {
            warnings.push(format!(
                "{path}.labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
    for (key, text) in OLD_ANNOTATIONS {
        if entries(pod, "metadata.annotations").any(|(name, _)| name == key) {
            warnings.push(format!("{prefix}metadata.annotations[{key}]: {text}"));
        }
    }
    for (position, volume) in list(spec, "volumes").iter().enumerate() {
        for (source, text) in OLD_VOLUMES
            .iter()
            .filter(|(source, _)| at(volume, source).is_some())
        {
            let shown = if *source == "storageos" {
                "storageOS"
            } else {
                source
            };
            warnings.push(format!("{prefix}spec.volumes[{position}].{shown}: {text}"));
        }
    }
    duplicates(spec, "hostAliases", "ip", prefix, warnings);
    duplicates(spec, "imagePullSecrets", "name", prefix, warnings);
    for (position, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            warnings.push(format!(
                "{prefix}spec.imagePullSecrets[{position}].name: invalid empty name \"\""
            ));
        }
    }
    fractions(spec, "overhead", &format!("{prefix}spec"), warnings);
    profiles::warnings(pod, prefix, warnings);
    containers(spec, prefix, warnings);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{prefix}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    affinity(spec, prefix, warnings);
}

fn duplicates(spec: &Value, field: &str, key: &str, prefix: &str, warnings: &mut Vec<String>) {
    let mut seen = Vec::new();
    for (position, item) in list(spec, field).iter().enumerate() {
        let value = text(item, key);
        if seen.contains(&value) {
            warnings.push(format!(
                "{prefix}spec.{field}[{position}].{key}: duplicate {key} {value}",
                value = go::quote(value)
            ));
        }
        seen.push(value);
    }
}

/// Memory and storage are counted in whole bytes.
fn fractions(parent: &Value, path: &str, field: &str, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let amount = map(parent, path).and_then(|amounts| amounts.get(name));
        let amount = amount.and_then(|amount| Quantity::from_value(amount).ok());
        if let Some(amount) = amount.filter(Quantity::is_fractional) {
            warnings.push(format!(
                "{field}.{path}[{name}]: fractional byte value {} is invalid, must be an integer",
                go::quote(&amount.to_string())
            ));
        }
    }
}

fn containers(spec: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    let mut ports: Vec<(&Value, String)> = Vec::new();
    let (mut about_ports, mut about_names) = (Vec::new(), Vec::new());
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (position, container) in list(spec, field).iter().enumerate() {
            let path = format!("{prefix}spec.{field}[{position}]");
            for part in ["limits", "requests"] {
                fractions(container, &format!("resources.{part}"), &path, warnings);
            }
            environment(container, &path, warnings);
            for (index, port) in list(container, "ports").iter().enumerate() {
                let at_path = format!("{path}.ports[{index}]");
                about_ports.extend(
                    ports
                        .iter()
                        .filter_map(|(other, place)| clash(port, other, &at_path, place)),
                );
                ports.push((port, at_path.clone()));
                let name = text(port, "name");
                if name.is_empty() {
                    continue;
                }
                match named.get(name) {
                    Some(other) => about_names.push(format!(
                        "{at_path}: duplicate port name {name} with {other}, services and probes that select ports by name will use {other}", name = go::quote(name))),
                    None => {
                        named.insert(name, at_path);
                    }
                }
            }
        }
    }
    warnings.extend(about_ports);
    warnings.extend(about_names);
}

fn environment(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen = Vec::new();
    for (position, variable) in list(container, "env").iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        let reference = format!("$({name})");
        let extends = at(variable, "valueFrom").is_none() && value != reference && value.contains(&reference);
        if seen.contains(&name) && !extends {
            warnings.push(format!(
                "{path}.env[{position}]: hides previous definition of {name}, which may be dropped when using apply", name = go::quote(name)));
        }
        seen.push(name);
    }
}

fn clash(port: &Value, other: &Value, path: &str, place: &str) -> Option<String> {
    let same_port = number(port, "containerPort") == number(other, "containerPort")
        && text(port, "protocol") == text(other, "protocol");
    if !same_port {
        return None;
    }
    let (host, other_host) = (number(port, "hostPort"), number(other, "hostPort"));
    let (ip, other_ip) = (text(port, "hostIP"), text(other, "hostIP"));
    if ip == other_ip && host == other_host {
        Some(format!("{path}: duplicate port definition with {place}"))
    } else if host == 0 || other_host == 0 {
        Some(format!("{path}: overlapping port definition with {place}"))
    } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
        Some(format!(
            "{path}: dangerously ambiguous port definition with {place}"
        ))
    } else {
        None
    }
}

fn affinity(spec: &Value, prefix: &str, warnings: &mut Vec<String>) {
    const NULL: &str = "labelSelector: a null labelSelector results in matching no pod";
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (position, term) in list(spec, &format!("affinity.{kind}.{REQUIRED}"))
            .iter()
            .enumerate()
        {
            if at(term, "labelSelector").is_none() {
                warnings.push(format!(
                    "{prefix}spec.affinity.{kind}.{REQUIRED}[{position}].{NULL}"
                ));
            }
        }
        for (position, term) in list(spec, &format!("affinity.{kind}.{PREFERRED}"))
            .iter()
            .enumerate()
        {
            if at(term, "podAffinityTerm.labelSelector").is_none() {
                warnings.push(format!(
                    "{prefix}spec.affinity.{kind}.{PREFERRED}[{position}].podAffinityTerm.{NULL}"
                ));
            }
        }
    }
}

fn service(object: &Value, warnings: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if entries(object, "metadata.annotations").any(|(key, _)| key == HINTS) {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = text(object, "spec.type");
    let headless = text(object, "spec.clusterIP") == "None";
    let external = !list(object, "spec.externalIPs").is_empty();
    if headless {
        if !text(object, "spec.loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(object, "spec.sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    if external && !headless && kind != "ExternalName" {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    if external && kind == "ExternalName" {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(object, "spec.externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(object, "spec.trafficDistribution") == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
}
