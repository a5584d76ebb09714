// SPDX-License-Identifier: Apache-2.0
//! Rules of what a pod shares with its host: a pod with users of its own shares no other namespace,
//! and a Windows pod has nothing that only Linux knows.

use serde_json::Value;

use super::errors::Errors;
use crate::json::{at, flag, list, text};

const OWN_USERS: &str = "when `hostUsers` is false";
const WINDOWS: &str = "cannot be set for a windows pod";

/// Fields of a pod's spec only Linux knows, in the order the reference looks at them.
const POD: [&str; 15] = [
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];

/// The same of a container's security context.
const CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The containers of a pod with their paths.
fn containers<'a>(spec: &'a Value, field: &'a str) -> impl Iterator<Item = (String, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |part| {
            list(spec, part)
                .iter()
                .enumerate()
                .map(move |(position, container)| (format!("{field}.{part}[{position}]"), container))
        })
}

pub(super) fn host_users(errors: &mut Errors, spec: &Value, field: &str) {
    if at(spec, "hostUsers") != Some(&Value::Bool(false)) {
        for (path, container) in containers(spec, field) {
            if text(container, "securityContext.procMount") == "Unmasked" {
                errors.invalid(
                    format!("{path}.securityContext.procMount"),
                    "Unmasked",
                    "`hostUsers` must be false to use `Unmasked`",
                );
            }
        }
        return;
    }
    for (shared, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(spec, shared) {
            errors.forbidden(format!("{field}.{shown}"), OWN_USERS);
        }
    }
    for (path, container) in containers(spec, field) {
        if !list(container, "volumeDevices").is_empty() {
            errors.forbidden(format!("{path}.volumeDevices"), OWN_USERS);
        }
    }
}

pub(super) fn windows(errors: &mut Errors, spec: &Value, field: &str) {
    for path in POD {
        let set = match at(spec, path) {
            Some(Value::Bool(shared)) if matches!(path, "hostPID" | "hostIPC") => *shared,
            Some(Value::Array(items)) => !items.is_empty(),
            other => other.is_some(),
        };
        if set {
            errors.forbidden(format!("{field}.{path}"), WINDOWS);
        }
    }
    for (path, container) in containers(spec, field) {
        for name in CONTAINER {
            if at(container, &format!("securityContext.{name}")).is_some() {
                errors.forbidden(format!("{path}.securityContext.{name}"), WINDOWS);
            }
        }
    }
}
