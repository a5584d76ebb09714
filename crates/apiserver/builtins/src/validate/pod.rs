// SPDX-License-Identifier: Apache-2.0
//! Rules of pods and pod templates, and what may change in a pod that exists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::container::{self, PodFacts};
use super::errors::Errors;
use super::pod_host;
use super::profiles;
use super::resources::{self, user_id};
use super::volume::volumes;
use crate::json::{at, ensure, flag, int, list, list_mut, map, number, same, strings, text};
use crate::names;

/// A new pod.
pub(super) fn create(errors: &mut Errors, object: &Value) {
    metadata_and_spec(errors, object);
    if !list(object, "spec.ephemeralContainers").is_empty() {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !text(object, "spec.nodeName").is_empty() && !list(object, "spec.schedulingGates").is_empty() {
        errors.forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    profiles::agreement(errors, object, "spec");
}

pub(super) fn metadata_and_spec(errors: &mut Errors, object: &Value) {
    profiles::annotations(errors, object, "metadata.annotations");
    let spec = at(object, "spec").unwrap_or(&Value::Null);
    pod_spec(errors, spec, "spec", true);
    for field in ["containers", "initContainers"] {
        for (position, container) in list(spec, field).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                errors.invalid(
                    format!("spec.{field}[{position}].image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
}

/// A pod template at a path.
pub(super) fn template(errors: &mut Errors, object: &Value, path: &str) {
    let template = at(object, path).unwrap_or(&Value::Null);
    errors.labels(template, "metadata.labels", &format!("{path}.labels"));
    errors.annotations(template, "metadata.annotations", &format!("{path}.annotations"));
    profiles::annotations(errors, template, &format!("{path}.annotations"));
    let spec = at(template, "spec").unwrap_or(&Value::Null);
    pod_spec(errors, spec, &format!("{path}.spec"), false);
    profiles::agreement(errors, template, &format!("{path}.spec"));
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            format!("{path}.spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn pod_spec(errors: &mut Errors, spec: &Value, field: &str, is_pod: bool) {
    let facts = PodFacts {
        volumes: volumes(errors, list(spec, "volumes"), &format!("{field}.volumes")),
        claims: list(spec, "resourceClaims")
            .iter()
            .map(|claim| text(claim, "name"))
            .collect(),
        grace: int(spec, "terminationGracePeriodSeconds").unwrap_or(30),
    };
    let regular = list(spec, "containers");
    container::containers(errors, regular, &format!("{field}.containers"), &facts);
    let init = list(spec, "initContainers");
    container::init_containers(errors, init, regular, &format!("{field}.initContainers"), &facts);
    super::pod_parts::containers(errors, spec, &format!("{field}.ephemeralContainers"), &facts);
    if let Some(resources) = at(spec, "resources") {
        resources::resources(errors, resources, &format!("{field}.resources"), true);
    }
    // What running a pod costs in addition is limited like a container.
    if let Some(overhead) = at(spec, "overhead") {
        let limits = json!({"limits": overhead});
        resources::resources(errors, &limits, &format!("{field}.overhead"), false);
    }
    resources::claims(
        errors,
        list(spec, "resourceClaims"),
        &format!("{field}.resourceClaims"),
    );
    host_network(errors, spec, field, is_pod);
    pod_host::host_users(errors, spec, field);
    let policies = ["Always", "OnFailure", "Never"];
    errors.choice(
        text(spec, "restartPolicy"),
        &format!("{field}.restartPolicy"),
        &policies,
    );
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.choice(text(spec, "dnsPolicy"), &format!("{field}.dnsPolicy"), &dns);
    errors.labels(spec, "nodeSelector", &format!("{field}.nodeSelector"));
    security(errors, spec, &format!("{field}.securityContext"));
    super::scheduling::affinity(errors, spec, &format!("{field}.affinity"));
    dns_config(errors, spec, &format!("{field}.dnsConfig"));
    gates(errors, spec, field);
    super::scheduling::spread(errors, spec, &format!("{field}.topologySpreadConstraints"));
    names_in_spec(errors, spec, field);
    super::scheduling::tolerations(errors, list(spec, "tolerations"), &format!("{field}.tolerations"));
    host_aliases(errors, spec, field);
    let preemption = ["PreemptLowerPriority", "Never"];
    errors.optional_choice(
        at(spec, "preemptionPolicy"),
        &format!("{field}.preemptionPolicy"),
        &preemption,
    );
    if let Some(os) = at(spec, "os") {
        errors.choice(text(os, "name"), &format!("{field}.os"), &["linux", "windows"]);
        if text(os, "name") == "windows" {
            pod_host::windows(errors, spec, field);
        }
    }
}

fn host_network(errors: &mut Errors, spec: &Value, field: &str, is_pod: bool) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (position, container) in list(spec, "containers").iter().enumerate() {
        for (index, port) in list(container, "ports").iter().enumerate() {
            let (host, own) = (number(port, "hostPort"), number(port, "containerPort"));
            if (is_pod || host != 0) && host != own {
                errors.invalid(
                    format!("{field}.containers[{position}].ports[{index}].hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn security(errors: &mut Errors, spec: &Value, field: &str) {
    let Some(context) = at(spec, "securityContext") else {
        return;
    };
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        user_id(errors, context, id, &format!("{field}.{id}"));
    }
    for (position, group) in list(context, "supplementalGroups").iter().enumerate() {
        user_id(
            errors,
            group,
            "",
            &format!("{field}.supplementalGroups[{position}]"),
        );
    }
    sysctls(errors, context, field);
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        errors.invalid(
            format!("{field}.shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    errors.optional_choice(
        at(context, "fsGroupChangePolicy"),
        &format!("{field}.fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
    errors.optional_choice(
        at(context, "supplementalGroupsPolicy"),
        &format!("{field}.supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    profiles::seccomp(
        errors,
        at(context, "seccompProfile"),
        &format!("{field}.seccompProfile"),
    );
    profiles::app_armor(
        errors,
        at(context, "appArmorProfile"),
        &format!("{field}.appArmorProfile"),
    );
}

fn sysctls(errors: &mut Errors, context: &Value, field: &str) {
    let mut seen = BTreeSet::new();
    for (position, sysctl) in list(context, "sysctls").iter().enumerate() {
        let name = text(sysctl, "name");
        let path = format!("{field}.sysctls[{position}].name");
        if name.is_empty() {
            errors.required(path, "");
        } else if !names::is_sysctl(name) {
            errors.invalid(path, name, names::SYSCTL_RULE);
        } else if !seen.insert(name) {
            errors.duplicate(path, name);
        }
    }
}

fn dns_config(errors: &mut Errors, spec: &Value, field: &str) {
    let config = at(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        let Some(config) = config else {
            errors.required(field, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        };
        if list(config, "nameservers").is_empty() {
            errors.required(
                format!("{field}.nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let Some(config) = config else { return };
    let servers = list(config, "nameservers");
    if servers.len() > 3 {
        errors.invalid(
            format!("{field}.nameservers"),
            json!(servers),
            "must not have more than 3 nameservers",
        );
    }
    for (position, server) in servers.iter().enumerate() {
        errors.ip(
            server.as_str().unwrap_or_default(),
            &format!("{field}.nameservers[{position}]"),
            &[],
        );
    }
    for (position, search) in strings(config, "searches").into_iter().enumerate() {
        let name = search.strip_suffix('.').unwrap_or(search);
        if search != "." {
            errors.all(
                &format!("{field}.searches[{position}]"),
                name,
                names::underscored_subdomain(name),
            );
        }
    }
    if list(config, "searches").len() > 32 {
        errors.invalid(
            format!("{field}.searches"),
            json!(list(config, "searches")),
            "must not have more than 32 search paths",
        );
    }
    for (position, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(format!("{field}.options[{position}]"), "must not be empty");
        }
    }
}

fn gates(errors: &mut Errors, spec: &Value, field: &str) {
    for (position, gate) in list(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        let path = format!("{field}.readinessGates[{position}].conditionType");
        errors.all(&path, kind, names::qualified_name(kind));
    }
    let mut seen = BTreeSet::new();
    for (position, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        let path = format!("{field}.schedulingGates[{position}]");
        errors.all(&path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(path, name);
        }
    }
}

fn names_in_spec(errors: &mut Errors, spec: &Value, field: &str) {
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&str, Rule); 7] = [
        ("serviceAccountName", names::dns1123_subdomain),
        ("nodeName", names::dns1123_subdomain),
        ("hostname", names::dns1123_label),
        ("subdomain", names::dns1123_label),
        ("priorityClassName", names::dns1123_subdomain),
        ("runtimeClassName", names::dns1123_subdomain),
        ("hostnameOverride", names::dns1123_subdomain),
    ];
    for (name, rule) in rules {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.all(&format!("{field}.{name}"), value, rule(value));
        }
    }
    if let Some(seconds) =
        int(spec, "activeDeadlineSeconds").filter(|s| !(1..=i64::from(i32::MAX)).contains(s))
    {
        errors.invalid(
            format!("{field}.activeDeadlineSeconds"),
            seconds,
            &names::range_error(1, i64::from(i32::MAX)),
        );
    }
}

fn host_aliases(errors: &mut Errors, spec: &Value, field: &str) {
    for (position, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = format!("{field}.hostAliases[{position}]");
        errors.ip(text(alias, "ip"), &format!("{path}.ip"), &[]);
        for (index, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.all(
                &format!("{path}.hostnames[{index}]"),
                name,
                names::dns1123_subdomain(name),
            );
        }
    }
}

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A changed pod: images, deadline, tolerations and gates may move, nothing else.
pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    metadata_and_spec(errors, new);
    profiles::annotation_updates(errors, new, old, "metadata.annotations");
    for field in ["containers", "initContainers"] {
        let path = format!("spec.{field}");
        if list(new, &path).len() != list(old, &path).len() {
            errors.forbidden(path, "pod updates may not add or remove containers");
            return;
        }
        for (position, container) in list(new, &path).iter().enumerate() {
            let image = text(container, "image");
            if image.is_empty() {
                errors.required(format!("{path}[{position}].image"), "");
            }
            if image.trim() != image {
                errors.invalid(
                    format!("{path}[{position}].image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
    if !deadline(errors, new, old) {
        return;
    }
    added_tolerations(errors, new, old);
    deleted_gates(errors, new, old);
    if same(at(new, "spec"), at(old, "spec")) {
        return;
    }
    let munged = munge(new, old);
    if !same(Some(&munged), at(old, "spec")) {
        let difference = difference(at(old, "spec").unwrap_or(&Value::Null), &munged);
        errors.forbidden(
            "spec",
            &format!("pod updates may not change fields other than {UPDATABLE}\n{difference}"),
        );
    }
}

/// Answers whether checking goes on.
fn deadline(errors: &mut Errors, new: &Value, old: &Value) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (int(new, PATH), int(old, PATH)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(PATH, seconds, &names::range_error(0, i64::from(i32::MAX)));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(PATH, seconds, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(
                PATH,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
            true
        }
        _ => true,
    }
}

fn added_tolerations(errors: &mut Errors, new: &Value, old: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut copy = toleration.clone();
        ensure(&mut copy, "").remove("tolerationSeconds");
        copy
    };
    let given: Vec<Value> = list(new, "spec.tolerations")
        .iter()
        .map(without_seconds)
        .collect();
    let kept = list(old, "spec.tolerations")
        .iter()
        .all(|toleration| given.contains(&without_seconds(toleration)));
    if kept {
        super::scheduling::tolerations(errors, list(new, "spec.tolerations"), "spec.tolerations");
    } else {
        errors.forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

fn deleted_gates(errors: &mut Errors, new: &Value, old: &Value) {
    let known: Vec<&str> = list(old, "spec.schedulingGates")
        .iter()
        .map(|gate| text(gate, "name"))
        .collect();
    for (position, gate) in list(new, "spec.schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(&name) {
            errors.forbidden(
                format!("spec.schedulingGates[{position}].name"),
                &format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            );
        }
    }
}

/// The new spec with everything that may change put back.
fn munge(new: &Value, old: &Value) -> Value {
    let mut spec = at(new, "spec").cloned().unwrap_or_default();
    for field in ["containers", "initContainers"] {
        let before = list(old, &format!("spec.{field}"));
        for (container, before) in list_mut(&mut spec, field).iter_mut().zip(before) {
            ensure(container, "").insert("image".to_owned(), json!(text(before, "image")));
        }
    }
    let gated = !list(old, "spec.schedulingGates").is_empty();
    let mut restored = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if gated {
        restored.push("nodeSelector");
    }
    if number(old, "spec.terminationGracePeriodSeconds") < 0
        && number(&spec, "terminationGracePeriodSeconds") == 1
    {
        restored.push("terminationGracePeriodSeconds");
    }
    let before = map(old, "spec");
    let fields = ensure(&mut spec, "");
    for name in restored {
        match before.and_then(|spec| spec.get(name)) {
            Some(value) => fields.insert(name.to_owned(), value.clone()),
            None => fields.remove(name),
        };
    }
    if gated {
        let affinity = at(old, "spec.affinity.nodeAffinity").cloned();
        match affinity {
            Some(affinity) => {
                ensure(&mut spec, "affinity").insert("nodeAffinity".to_owned(), affinity);
            }
            None => {
                if at(&spec, "affinity").is_some() {
                    ensure(&mut spec, "affinity").remove("nodeAffinity");
                }
            }
        }
    }
    spec
}

/// The fields two specs differ in, one line each.
pub(super) fn difference(old: &Value, new: &Value) -> String {
    let (before, after) = (old.as_object(), new.as_object());
    let keys: BTreeSet<&String> = before
        .into_iter()
        .flatten()
        .chain(after.into_iter().flatten())
        .map(|(k, _)| k)
        .collect();
    let mut lines = Vec::new();
    for key in keys {
        let (left, right) = (at(old, key), at(new, key));
        if !same(left, right) {
            let show = |value: Option<&Value>| value.map_or("null".to_owned(), Value::to_string);
            lines.push(format!("- {key}: {}\n+ {key}: {}", show(left), show(right)));
        }
    }
    lines.join("\n")
}

/// A changed status.
pub(super) fn status(errors: &mut Errors, new: &Value, old: &Value) {
    for (position, condition) in list(new, "status.conditions").iter().enumerate() {
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.all(
                &format!("status.conditions[{position}].Type"),
                kind,
                names::qualified_name(kind),
            );
        }
    }
    let nominated = text(new, "status.nominatedNodeName");
    if nominated != text(old, "status.nominatedNodeName") && !nominated.is_empty() {
        errors.all(
            "status.nominatedNodeName",
            nominated,
            names::dns1123_subdomain(nominated),
        );
    }
    if let Some(generation) = int(new, "status.observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(
            "status.observedGeneration",
            generation,
            "must be a non-negative integer",
        );
    }
    if !text(old, "status.qosClass").is_empty() {
        errors.immutable("status.qosClass", new, old, "status.qosClass");
    }
    restarts(errors, new, old);
    for (field, many) in [("podIPs", "status.podIPs"), ("hostIPs", "status.hostIPs")] {
        let first = list(new, many).first().map(|entry| text(entry, "ip"));
        if let Some(first) = first.filter(|first| field == "hostIPs" && *first != text(new, "status.hostIP"))
        {
            errors.invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`");
        }
        let known: Vec<&str> = list(old, many).iter().map(|entry| text(entry, "ip")).collect();
        for (position, entry) in list(new, many).iter().enumerate() {
            errors.ip(text(entry, "ip"), &format!("status.{field}[{position}]"), &known);
        }
        let all: Vec<bool> = list(new, many)
            .iter()
            .map(|entry| text(entry, "ip").contains(':'))
            .collect();
        if all.len() > 2 || (all.len() == 2 && all.first() == all.last()) {
            let shown: Vec<Value> = list(new, many)
                .iter()
                .map(|entry| json!({"IP": text(entry, "ip")}))
                .collect();
            errors.invalid(many, shown, "may specify no more than one IP for each IP family");
        }
    }
}

/// A container that ended for good stays ended.
fn restarts(errors: &mut Errors, new: &Value, old: &Value) {
    let policy = text(old, "spec.restartPolicy");
    for (position, before) in list(old, "status.containerStatuses").iter().enumerate() {
        let Some(end) = at(before, "state.terminated") else {
            continue;
        };
        let may_restart = policy == "Always" || (policy == "OnFailure" && number(end, "exitCode") != 0);
        let own = list(old, "spec.containers")
            .iter()
            .find(|c| text(c, "name") == text(before, "name"));
        if may_restart || own.is_some_and(|container| at(container, "restartPolicy").is_some()) {
            continue;
        }
        let after = list(new, "status.containerStatuses")
            .iter()
            .find(|status| text(status, "name") == text(before, "name"));
        if after.is_some_and(|after| at(after, "state.terminated").is_none()) {
            errors.forbidden(
                format!("status.containerStatuses[{position}].state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}
