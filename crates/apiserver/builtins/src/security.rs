// SPDX-License-Identifier: Apache-2.0
//! Pod security standards: what a pod may not do in a namespace that asks for the level `baseline`
//! or `restricted`. Levels come from the namespace's labels; what breaks them is told in the words
//! of the reference, baseline first. Acting on it is the server's part.

use std::collections::BTreeSet;

use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{at, flag, int, list, strings, text};

const PREFIX: &str = "pod-security.kubernetes.io/";
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SAFE_SYSCTLS: [&str; 11] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
];
const OPEN_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// What a namespace does about pods that break its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityMode {
    /// They are refused.
    Enforce,
    /// Their creator is warned.
    Warn,
}

impl SecurityMode {
    fn label(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Warn => "warn",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => return None,
        })
    }
}

fn label<'a>(namespace: &'a Value, key: &str) -> Option<&'a str> {
    at(namespace, "metadata.labels")?
        .get(format!("{PREFIX}{key}"))?
        .as_str()
}

/// What is wrong with the levels a namespace asks for.
pub fn security_label_errors(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let field = |key: &str| format!("metadata.labels[{PREFIX}{key}]");
        if let Some(level) = label(namespace, mode)
            && Level::parse(level).is_none()
        {
            let detail = "must be one of privileged, baseline, restricted";
            errors.push(FieldError::invalid(field(mode), &Value::from(level), detail));
        }
        let key = format!("{mode}-version");
        if let Some(version) = label(namespace, &key)
            && !is_version(version)
        {
            let detail = "must be \"latest\" or \"v1.x\"";
            errors.push(FieldError::invalid(field(&key), &Value::from(version), detail));
        }
    }
    errors
}

fn is_version(text: &str) -> bool {
    let digits = |minor: &str| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit());
    text == "latest" || text.strip_prefix("v1.").is_some_and(digits)
}

/// How a pod spec breaks the level its namespace asks for: `"restricted:latest": a (why), b (why)`.
pub fn security_violation(namespace: &Value, mode: SecurityMode, spec: &Value) -> Option<String> {
    let mode = mode.label();
    let name = label(namespace, mode)?;
    let level = Level::parse(name)?;
    let findings = findings(spec, level);
    if findings.is_empty() {
        return None;
    }
    let version = label(namespace, &format!("{mode}-version")).unwrap_or("latest");
    let texts: Vec<String> = findings
        .into_iter()
        .map(|(reason, detail)| format!("{reason} ({detail})"))
        .collect();
    Some(format!("\"{name}:{version}\": {}", texts.join(", ")))
}

type Finding = (&'static str, String);

fn findings(spec: &Value, level: Level) -> Vec<Finding> {
    let mut found = Vec::new();
    if level >= Level::Baseline {
        baseline(spec, level == Level::Restricted, &mut found);
    }
    if level == Level::Restricted {
        restricted(spec, &mut found);
    }
    found
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|key| list(spec, key))
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(go::quote).collect::<Vec<_>>().join(", ")
}

/// `container "a"` or `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    let word = if names.len() == 1 {
        "container"
    } else {
        "containers"
    };
    format!("{word} {}", quoted(names.iter().copied()))
}

/// The names of the containers that do something.
fn those(spec: &Value, does: impl Fn(&Value) -> bool) -> Vec<&str> {
    containers(spec)
        .filter(|c| does(c))
        .map(|c| text(c, "name"))
        .collect()
}

/// A finding about containers, if there are any.
fn about(found: &mut Vec<Finding>, reason: &'static str, names: &[&str], rest: &str) {
    if !names.is_empty() {
        found.push((reason, format!("{} {rest}", named(names))));
    }
}

/// Values that the pod or containers must not set: `pod and container "a" must not set ...`.
fn setters<'a>(
    spec: &'a Value,
    path: &str,
    bad: impl Fn(&Value) -> bool,
) -> (Vec<String>, BTreeSet<&'a str>) {
    let path = format!("securityContext.{path}");
    let mut who = Vec::new();
    let mut values = BTreeSet::new();
    if let Some(value) = at(spec, &path).filter(|v| bad(v)) {
        who.push("pod".to_owned());
        values.extend(value.as_str());
    }
    let mut names = Vec::new();
    for container in containers(spec) {
        if let Some(value) = at(container, &path).filter(|v| bad(v)) {
            names.push(text(container, "name"));
            values.extend(value.as_str());
        }
    }
    if !names.is_empty() {
        who.push(named(&names));
    }
    (who, values)
}

fn baseline(spec: &Value, overridden: bool, found: &mut Vec<Finding>) {
    let (who, values) = setters(spec, "appArmorProfile.type", |v| v == "Unconfined");
    if !who.is_empty() {
        let detail = format!(
            "{} must not set AppArmor profile type to {}",
            who.join(" and "),
            quoted(values)
        );
        found.push(("forbidden AppArmor profile", detail));
    }
    if !overridden {
        added_capabilities(spec, &DEFAULT_CAPABILITIES, "non-default capabilities", found);
    }
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|key| flag(spec, key))
        .map(|key| format!("{key}=true"))
        .collect();
    if !shared.is_empty() {
        found.push(("host namespaces", shared.join(", ")));
    }
    if !overridden {
        volumes(spec, |kind| kind != "hostPath", "hostPath volumes", false, found);
    }
    host_ports(spec, found);
    let privileged = those(spec, |c| flag(c, "securityContext.privileged"));
    about(
        found,
        "privileged",
        &privileged,
        "must not set securityContext.privileged=true",
    );
    let unmasked = |c: &Value| !matches!(text(c, "securityContext.procMount"), "" | "Default");
    let kinds: BTreeSet<&str> = containers(spec)
        .filter(|c| unmasked(c))
        .map(|c| text(c, "securityContext.procMount"))
        .collect();
    let rest = format!("must not set securityContext.procMount to {}", quoted(kinds));
    about(found, "procMount", &those(spec, unmasked), &rest);
    selinux(spec, found);
    if !overridden {
        let (who, values) = setters(spec, "seccompProfile.type", |v| v == "Unconfined");
        seccomp(&who, values, found);
    }
    let sysctls: Vec<&str> = list(spec, "securityContext.sysctls")
        .iter()
        .map(|sysctl| text(sysctl, "name"))
        .filter(|name| !SAFE_SYSCTLS.contains(name))
        .collect();
    if !sysctls.is_empty() {
        found.push(("forbidden sysctls", sysctls.join(", ")));
    }
    let (who, _) = setters(spec, "windowsOptions.hostProcess", |v| v == true);
    if !who.is_empty() {
        let detail = "must not set securityContext.windowsOptions.hostProcess=true";
        found.push(("hostProcess", format!("{} {detail}", who.join(" and "))));
    }
}

fn restricted(spec: &Value, found: &mut Vec<Finding>) {
    let escalating = those(spec, |c| {
        at(c, "securityContext.allowPrivilegeEscalation") != Some(&Value::Bool(false))
    });
    about(
        found,
        "allowPrivilegeEscalation != false",
        &escalating,
        "must set securityContext.allowPrivilegeEscalation=false",
    );
    let keeping = those(spec, |c| {
        !strings(c, "securityContext.capabilities.drop").contains(&"ALL")
    });
    let mut parts = Vec::new();
    if !keeping.is_empty() {
        let detail = "must set securityContext.capabilities.drop=[\"ALL\"]";
        parts.push(format!("{} {detail}", named(&keeping)));
    }
    let mut added = Vec::new();
    added_capabilities(spec, &["NET_BIND_SERVICE"], "", &mut added);
    parts.extend(added.into_iter().map(|(_, detail)| detail));
    if !parts.is_empty() {
        found.push(("unrestricted capabilities", parts.join("; ")));
    }
    volumes(
        spec,
        |kind| OPEN_VOLUMES.contains(&kind),
        "restricted volume types",
        true,
        found,
    );
    must_set(
        spec,
        "runAsNonRoot",
        "runAsNonRoot != true",
        "securityContext.runAsNonRoot=true",
        |v| v == true,
        "securityContext.runAsNonRoot=false",
        found,
    );
    let (who, _) = setters(spec, "runAsUser", |v| v.as_i64() == Some(0));
    if !who.is_empty() {
        found.push((
            "runAsUser=0",
            format!("{} must not set runAsUser=0", who.join(" and ")),
        ));
    }
    let valid = |v: &Value| v == "RuntimeDefault" || v == "Localhost";
    let (who, values) = setters(spec, "seccompProfile.type", |v| !valid(v));
    if who.is_empty() {
        must_set(
            spec,
            "seccompProfile.type",
            "seccompProfile",
            "securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            valid,
            "",
            found,
        );
    } else {
        seccomp(&who, values, found);
    }
}

/// What the pod sets for all containers, or each for itself.
fn must_set(
    spec: &Value,
    path: &str,
    reason: &'static str,
    wanted: &str,
    good: impl Fn(&Value) -> bool,
    unwanted: &str,
    found: &mut Vec<Finding>,
) {
    let (who, _) = setters(spec, path, |v| !good(v));
    if !who.is_empty() {
        found.push((reason, format!("{} must not set {unwanted}", who.join(" and "))));
        return;
    }
    let path = format!("securityContext.{path}");
    if at(spec, &path).is_some_and(&good) {
        return;
    }
    let silent = those(spec, |c| at(c, &path).is_none());
    if !silent.is_empty() {
        found.push((reason, format!("pod or {} must set {wanted}", named(&silent))));
    }
}

fn seccomp(who: &[String], values: BTreeSet<&str>, found: &mut Vec<Finding>) {
    if !who.is_empty() {
        let detail = format!(
            "{} must not set securityContext.seccompProfile.type to {}",
            who.join(" and "),
            quoted(values)
        );
        found.push(("seccompProfile", detail));
    }
}

fn added_capabilities(spec: &Value, allowed: &[&str], reason: &'static str, found: &mut Vec<Finding>) {
    let forbidden = |c: &Value| -> Vec<String> {
        strings(c, "securityContext.capabilities.add")
            .into_iter()
            .filter(|name| !allowed.contains(name))
            .map(str::to_owned)
            .collect()
    };
    let names = those(spec, |c| !forbidden(c).is_empty());
    let all: BTreeSet<String> = containers(spec).flat_map(forbidden).collect();
    let rest = format!(
        "must not include {} in securityContext.capabilities.add",
        quoted(all.iter().map(String::as_str))
    );
    about(found, reason, &names, &rest);
}

fn volumes(
    spec: &Value,
    allowed: impl Fn(&str) -> bool,
    reason: &'static str,
    with_kinds: bool,
    found: &mut Vec<Finding>,
) {
    let kind = |volume: &Value| -> Option<String> {
        let keys = volume.as_object()?.keys();
        keys.filter(|key| *key != "name").map(String::to_owned).next()
    };
    let bad: Vec<(&str, String)> = list(spec, "volumes")
        .iter()
        .filter_map(|volume| Some((text(volume, "name"), kind(volume)?)))
        .filter(|(_, kind)| !allowed(kind))
        .collect();
    if bad.is_empty() {
        return;
    }
    let names = quoted(bad.iter().map(|(name, _)| *name));
    let kinds: BTreeSet<&str> = bad.iter().map(|(_, kind)| kind.as_str()).collect();
    let several = bad.len() > 1;
    let mut detail = format!("volume{} {names}", if several { "s" } else { "" });
    if with_kinds {
        let verb = if several { "use" } else { "uses" };
        let types = if kinds.len() > 1 { "types" } else { "type" };
        detail.push_str(&format!(" {verb} restricted volume {types} {}", quoted(kinds)));
    }
    found.push((reason, detail));
}

fn host_ports(spec: &Value, found: &mut Vec<Finding>) {
    let ports = |c: &Value| -> Vec<i64> {
        list(c, "ports")
            .iter()
            .filter_map(|port| int(port, "hostPort"))
            .filter(|port| *port != 0)
            .collect()
    };
    let names = those(spec, |c| !ports(c).is_empty());
    let all: BTreeSet<i64> = containers(spec).flat_map(ports).collect();
    let shown: Vec<String> = all.iter().map(i64::to_string).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let word = if all.len() == 1 { "hostPort" } else { "hostPorts" };
    about(
        found,
        "hostPort",
        &names,
        &format!("{verb} {word} {}", shown.join(", ")),
    );
}

fn selinux(spec: &Value, found: &mut Vec<Finding>) {
    let options = |owner: &Value| {
        at(owner, "securityContext.seLinuxOptions")
            .cloned()
            .unwrap_or_default()
    };
    let bad = |owner: &Value| {
        let options = options(owner);
        !SELINUX_TYPES.contains(&text(&options, "type"))
            || !text(&options, "user").is_empty()
            || !text(&options, "role").is_empty()
    };
    let mut who = Vec::new();
    if bad(spec) {
        who.push("pod".to_owned());
    }
    let names = those(spec, bad);
    if !names.is_empty() {
        who.push(named(&names));
    }
    if who.is_empty() {
        return;
    }
    let owners: Vec<Value> = std::iter::once(spec)
        .chain(containers(spec))
        .map(options)
        .collect();
    let types: BTreeSet<&str> = owners
        .iter()
        .map(|o| text(o, "type"))
        .filter(|t| !SELINUX_TYPES.contains(t))
        .collect();
    let mut parts = Vec::new();
    if !types.is_empty() {
        let word = if types.len() == 1 { "type" } else { "types" };
        parts.push(format!("{word} {}", quoted(types)));
    }
    for (key, words) in [("user", "user may not be set"), ("role", "role may not be set")] {
        if owners.iter().any(|o| !text(o, key).is_empty()) {
            parts.push(words.to_owned());
        }
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        who.join(" and "),
        parts.join("; ")
    );
    found.push(("seLinuxOptions", detail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn violation(level: &str, spec: &Value) -> Option<String> {
        let namespace = json!({"metadata": {"labels": {format!("{PREFIX}enforce"): level}}});
        security_violation(&namespace, SecurityMode::Enforce, spec)
    }

    #[test]
    fn a_plain_pod_is_baseline_and_not_restricted() {
        let spec = json!({"containers": [{"name": "a", "image": "x"}]});
        assert_eq!(violation("privileged", &spec), None);
        assert_eq!(violation("baseline", &spec), None);
        assert_eq!(
            violation("restricted", &spec).unwrap(),
            "\"restricted:latest\": allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
    }

    #[test]
    fn a_careful_pod_is_restricted() {
        let spec = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "a", "image": "x", "securityContext": {"allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}]});
        assert_eq!(violation("restricted", &spec), None);
    }

    #[test]
    fn each_breach_of_the_baseline_is_named() {
        let container = |context: Value| json!({"containers": [{"name": "a", "securityContext": context}]});
        for (spec, text) in [
            (
                json!({"hostNetwork": true, "hostPID": true}),
                "host namespaces (hostNetwork=true, hostPID=true)",
            ),
            (
                container(json!({"privileged": true})),
                "privileged (container \"a\" must not set securityContext.privileged=true)",
            ),
            (
                container(json!({"capabilities": {"add": ["NET_ADMIN"]}})),
                "non-default capabilities (container \"a\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
            ),
            (
                json!({"volumes": [{"name": "v", "hostPath": {}}, {"name": "w", "hostPath": {}}]}),
                "hostPath volumes (volumes \"v\", \"w\")",
            ),
            (
                json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}),
                "hostPort (container \"a\" uses hostPort 80)",
            ),
            (
                container(json!({"procMount": "Unmasked"})),
                "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
                "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
            ),
            (
                json!({"securityContext": {"sysctls": [{"name": "kernel.x"}]}}),
                "forbidden sysctls (kernel.x)",
            ),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "x_t", "user": "u"}}}),
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x_t\"; user may not be set)",
            ),
        ] {
            assert_eq!(
                violation("baseline", &spec).unwrap(),
                format!("\"baseline:latest\": {text}")
            );
        }
    }

    #[test]
    fn levels_and_versions_are_checked() {
        let namespace = json!({"metadata": {"labels": {format!("{PREFIX}enforce"): "strict", format!("{PREFIX}warn-version"): "1.2"}}});
        let fields: Vec<String> = security_label_errors(&namespace)
            .into_iter()
            .map(|e| e.to_string())
            .collect();
        assert_eq!(
            fields,
            [
                format!(
                    "metadata.labels[{PREFIX}enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted"
                ),
                format!(
                    "metadata.labels[{PREFIX}warn-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\""
                ),
            ]
        );
    }
}
