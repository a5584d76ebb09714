// SPDX-License-Identifier: Apache-2.0
//! What breaks the pod security standards, check by check, in the words and the order of the
//! reference. Checks came and changed with releases; each is asked as it was in the one named.

use std::collections::BTreeSet;

use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{at, entries, flag, int, list, strings, text};
use crate::security::Level;

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
/// Settings of the kernel a pod may have, each with the release it became safe in.
const SAFE_SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
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
/// Types of SELinux a pod may have, each with the release it was allowed in.
const SELINUX_TYPES: [(&str, u32); 5] = [
    ("", 0),
    ("container_t", 0),
    ("container_init_t", 0),
    ("container_kvm_t", 0),
    ("container_engine_t", 31),
];

/// What was found, and where.
pub(crate) type Finding = (&'static str, String);

/// Everything in a pod's spec that breaks a level, as it was understood in a release.
pub(crate) fn findings(pod: &Value, level: Level, release: u32) -> Vec<Finding> {
    let mut found = Vec::new();
    let none = Value::Null;
    let spec = at(pod, "spec").unwrap_or(&none);
    if level >= Level::Baseline {
        baseline(pod, spec, level == Level::Restricted, release, &mut found);
    }
    if level == Level::Restricted {
        restricted(spec, release, &mut found);
    }
    found
}

fn safe(table: &[(&str, u32)], name: &str, release: u32) -> bool {
    table
        .iter()
        .any(|(known, since)| *known == name && *since <= release)
}

/// Whether root inside the pod is nobody outside of it.
fn has_own_users(spec: &Value) -> bool {
    at(spec, "hostUsers") == Some(&Value::Bool(false))
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

/// `restricted` looks closer at some of this later itself.
fn baseline(pod: &Value, spec: &Value, restricted: bool, release: u32, found: &mut Vec<Finding>) {
    app_armor(pod, spec, found);
    if !(restricted && release >= 22) {
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
    if !restricted {
        volumes(spec, |kind| kind != "hostPath", "hostPath volumes", false, found);
    }
    host_ports(spec, found);
    if release >= 34 {
        probed_hosts(spec, found);
    }
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
    if restricted || release < 35 || !has_own_users(spec) {
        about(found, "procMount", &those(spec, unmasked), &rest);
    }
    selinux(spec, release, found);
    if release < 19 {
        seccomp_annotations(pod, spec, found);
    } else if !restricted {
        let (who, values) = setters(spec, "seccompProfile.type", |v| v == "Unconfined");
        seccomp(&who, values, found);
    }
    let sysctls: Vec<&str> = list(spec, "securityContext.sysctls")
        .iter()
        .map(|sysctl| text(sysctl, "name"))
        .filter(|name| !safe(&SAFE_SYSCTLS, name, release))
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

fn restricted(spec: &Value, release: u32, found: &mut Vec<Finding>) {
    // Since 1.25 nothing is asked of Windows that only Linux has.
    let linux = release < 25 || text(spec, "os.name") != "windows";
    let escalating = those(spec, |c| {
        at(c, "securityContext.allowPrivilegeEscalation") != Some(&Value::Bool(false))
    });
    if linux && release >= 8 {
        about(
            found,
            "allowPrivilegeEscalation != false",
            &escalating,
            "must set securityContext.allowPrivilegeEscalation=false",
        );
    }
    if linux && release >= 22 {
        kept_capabilities(spec, found);
    }
    volumes(
        spec,
        |kind| OPEN_VOLUMES.contains(&kind),
        "restricted volume types",
        true,
        found,
    );
    if release < 35 || !has_own_users(spec) {
        root(spec, release, found);
    }
    if linux && release >= 19 {
        confined(spec, found);
    }
}

fn kept_capabilities(spec: &Value, found: &mut Vec<Finding>) {
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
}

/// Hosts a node would be made to talk to.
fn probed_hosts(spec: &Value, found: &mut Vec<Finding>) {
    let hosts = |c: &Value| -> Vec<String> {
        let askers = [
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle.postStart",
            "lifecycle.preStop",
        ];
        askers
            .iter()
            .flat_map(|asker| ["httpGet", "tcpSocket"].map(|way| format!("{asker}.{way}.host")))
            .map(|path| text(c, &path).to_owned())
            .filter(|host| !host.is_empty())
            .collect()
    };
    let names: BTreeSet<&str> = those(spec, |c| !hosts(c).is_empty()).into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let all: BTreeSet<String> = containers(spec).flat_map(hosts).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let word = if all.len() == 1 { "host" } else { "hosts" };
    let rest = format!(
        "{verb} probe or lifecycle {word} {}",
        quoted(all.iter().map(String::as_str))
    );
    about(found, "probe or lifecycle host", &names, &rest);
}

fn root(spec: &Value, release: u32, found: &mut Vec<Finding>) {
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
    if release >= 23 && !who.is_empty() {
        found.push((
            "runAsUser=0",
            format!("{} must not set runAsUser=0", who.join(" and ")),
        ));
    }
}

fn confined(spec: &Value, found: &mut Vec<Finding>) {
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

/// What a profile may be, said in a field or, the old way, in an annotation.
fn app_armor(pod: &Value, spec: &Value, found: &mut Vec<Finding>) {
    const OLD: &str = "container.apparmor.security.beta.kubernetes.io/";
    let (mut who, values) = setters(spec, "appArmorProfile.type", |v| v == "Unconfined");
    let old = forbidden(
        entries(pod, "metadata.annotations").filter(|(key, _)| key.starts_with(OLD)),
        |profile| matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/"),
    );
    let mut values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    if !old.is_empty() {
        who.push(
            if old.len() == 1 {
                "annotation"
            } else {
                "annotations"
            }
            .to_owned(),
        );
        values.extend(old);
    }
    if who.is_empty() {
        return;
    }
    let reason = if values.len() == 1 {
        "forbidden AppArmor profile"
    } else {
        "forbidden AppArmor profiles"
    };
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        who.join(" and "),
        values
            .iter()
            .map(|value| format!("\"{value}\""))
            .collect::<Vec<_>>()
            .join(", ")
    );
    found.push((reason, detail));
}

/// Before there was a field, seccomp profiles were annotations.
fn seccomp_annotations(pod: &Value, spec: &Value, found: &mut Vec<Finding>) {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let names: Vec<&str> = containers(spec).map(|c| text(c, "name")).collect();
    let about_it = |key: &str| {
        key == POD
            || key
                .strip_prefix(CONTAINER)
                .is_some_and(|name| names.contains(&name))
    };
    let bad = forbidden(
        entries(pod, "metadata.annotations").filter(|(key, _)| about_it(key.as_str())),
        |profile| {
            matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
        },
    );
    if !bad.is_empty() {
        let word = if bad.len() == 1 {
            "annotation"
        } else {
            "annotations"
        };
        found.push(("seccompProfile", format!("forbidden {word} {}", bad.join(", "))));
    }
}

/// Annotations that name a profile nobody may have, as `key="value"`, sorted.
fn forbidden<'a>(
    annotations: impl Iterator<Item = (&'a String, &'a Value)>,
    allowed: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut bad: Vec<String> = annotations
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, value)| !allowed(value))
        .map(|(key, value)| format!("{key}={}", go::quote(value)))
        .collect();
    bad.sort();
    bad
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

fn selinux(spec: &Value, release: u32, found: &mut Vec<Finding>) {
    let options = |owner: &Value| {
        at(owner, "securityContext.seLinuxOptions")
            .cloned()
            .unwrap_or_default()
    };
    let bad = |owner: &Value| {
        let options = options(owner);
        !safe(&SELINUX_TYPES, text(&options, "type"), release)
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
        .filter(|t| !safe(&SELINUX_TYPES, t, release))
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
