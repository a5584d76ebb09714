// SPDX-License-Identifier: Apache-2.0
//! The profiles that confine containers, seccomp and AppArmor: their fields, the annotations that
//! stood for them before there were fields, and that the two agree. With them the other annotations
//! of pods that mean something.

use cobaltcore_text::go;
use serde_json::Value;

use super::container::relative_path;
use super::errors::Errors;
use crate::json::{at, entries, list, text};

const MIRROR: &str = "kubernetes.io/config.mirror";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The longest path of a profile.
const LONGEST: usize = 4095;
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) fn seccomp(errors: &mut Errors, profile: Option<&Value>, field: &str) {
    let Some(profile) = profile else { return };
    let local = format!("{field}.localhostProfile");
    match (text(profile, "type"), at(profile, "localhostProfile")) {
        ("", _) => errors.required(
            format!("{field}.type"),
            "type is required when seccompProfile is set",
        ),
        ("Localhost", None) => errors.required(local, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(path)) => relative_path(errors, path.as_str().unwrap_or_default(), &local),
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(path)) => errors.invalid(
            local,
            path.clone(),
            "can only be set when seccomp type is Localhost",
        ),
        (other, _) => errors.not_supported(
            format!("{field}.type"),
            other,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
}

pub(super) fn app_armor(errors: &mut Errors, profile: Option<&Value>, field: &str) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = profile else { return };
    let local = format!("{field}.localhostProfile");
    match (text(profile, "type"), at(profile, "localhostProfile")) {
        ("", _) => errors.required(
            format!("{field}.type"),
            "type is required when appArmorProfile is set",
        ),
        ("Localhost", None) => errors.required(local, NEEDED),
        ("Localhost", Some(name)) => {
            let name = name.as_str().unwrap_or_default();
            if name.trim() != name {
                errors.invalid(local.clone(), name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(local.clone(), NEEDED);
            }
            if name.len() > LONGEST {
                errors.too_long(local, LONGEST);
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => errors.invalid(
            local,
            name.clone(),
            "can only be set when AppArmor type is Localhost",
        ),
        (other, _) => errors.not_supported(
            format!("{field}.type"),
            other,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        ),
    }
}

/// The profile an annotation names: its type, and the name of one that is on the host.
pub(crate) fn annotated_app_armor(annotation: &str) -> Option<(&'static str, Option<&str>)> {
    match annotation {
        "unconfined" => Some(("Unconfined", None)),
        "runtime/default" => Some(("RuntimeDefault", None)),
        other => {
            let name = other.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(("Localhost", Some(name)))
        }
    }
}

/// The containers of a pod with their places.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    CONTAINERS.iter().flat_map(move |field| {
        let all = list(spec, field).iter().enumerate();
        all.map(move |(position, container)| (format!("{field}[{position}]"), container))
    })
}

/// Annotations of a pod or template that mean something; `field` leads to them.
pub(super) fn annotations(errors: &mut Errors, pod: &Value, field: &str) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    for (key, value) in entries(pod, "metadata.annotations") {
        let value = value.as_str().unwrap_or_default();
        let at_key = format!("{field}[{key}]");
        if key == MIRROR && text(spec, "nodeName").is_empty() {
            errors.invalid(
                &at_key,
                value,
                "must set spec.nodeName if mirror pod annotation is set",
            );
        } else if key == COST && !is_cost(value) {
            errors.invalid(&at_key, value, "must be a 32bit integer");
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let below = format!("{field}.{key}");
            match value.strip_prefix("localhost/") {
                Some(path) => relative_path(errors, path, &below),
                None if matches!(value, "runtime/default" | "docker/default" | "unconfined") => {}
                None => errors.invalid(below, value, "must be a valid seccomp profile"),
            }
        } else if let Some(name) = key.strip_prefix(APP_ARMOR) {
            if !containers(spec).any(|(_, container)| text(container, "name") == name) {
                errors.invalid(&at_key, name, "container not found");
            }
            let known = matches!(value, "" | "runtime/default" | "unconfined");
            if !known && !value.starts_with("localhost/") {
                let detail = format!("invalid AppArmor profile name: {}", go::quote(value));
                errors.invalid(&at_key, value, &detail);
            }
        }
    }
}

/// A cost is written as a number is printed: no plus sign and no leading zeros.
fn is_cost(value: &str) -> bool {
    value.parse::<i32>().is_ok_and(|cost| cost.to_string() == value)
}

/// What was annotated stays annotated.
pub(super) fn annotation_updates(errors: &mut Errors, new: &Value, old: &Value, field: &str) {
    let value = |pod: &Value, key: &str| {
        let mut all = entries(pod, "metadata.annotations");
        all.find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    };
    let what = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ => key.starts_with(APP_ARMOR).then_some("AppArmor annotations"),
    };
    for (key, before) in entries(old, "metadata.annotations") {
        if let Some(what) = what(key).filter(|_| value(new, key).as_ref() != Some(before)) {
            errors.forbidden(
                format!("{field}[{key}]"),
                &format!("may not remove or update {what}"),
            );
        }
    }
    for (key, _) in entries(new, "metadata.annotations") {
        if let Some(what) = what(key).filter(|_| value(old, key).is_none()) {
            errors.forbidden(format!("{field}[{key}]"), &format!("may not add {what}"));
        }
    }
    annotations(errors, new, field);
}

/// Where both an annotation and a field are given, they say the same; `field` leads to the spec.
pub(super) fn agreement(errors: &mut Errors, pod: &Value, field: &str) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    let annotation = |key: &str| {
        let mut all = entries(pod, "metadata.annotations");
        all.find(|(name, _)| *name == key)
            .and_then(|(_, value)| value.as_str())
    };
    let places = std::iter::once((String::new(), spec, SECCOMP_POD.to_owned())).chain(containers(spec).map(
        |(place, container)| {
            let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
            (format!(".{place}"), container, key)
        },
    ));
    for (place, holder, key) in places {
        let profile = at(holder, "securityContext.seccompProfile");
        if let (Some(profile), Some(written)) = (profile, annotation(&key)) {
            let path = format!("{field}{place}.securityContext.seccompProfile");
            let written = if written == "docker/default" {
                "runtime/default"
            } else {
                written
            };
            agree(errors, "seccomp", profile, written, &path);
        }
    }
    if text(spec, "os.name") == "windows" {
        return;
    }
    for (place, container) in containers(spec) {
        let own = at(container, "securityContext.appArmorProfile");
        let profile = own.or_else(|| at(spec, "securityContext.appArmorProfile"));
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        if let (Some(profile), Some(written)) = (profile, annotation(&key)) {
            let path = format!("{field}.{place}.securityContext.appArmorProfile");
            agree(errors, "apparmor", profile, written, &path);
        }
    }
}

fn agree(errors: &mut Errors, what: &str, profile: &Value, written: &str, field: &str) {
    let same_type = match text(profile, "type") {
        "Unconfined" => written == "unconfined",
        "RuntimeDefault" => written == "runtime/default",
        "Localhost" => written.starts_with("localhost/"),
        _ => return,
    };
    if !same_type {
        errors.forbidden(
            format!("{field}.type"),
            &format!("{what} type in annotation and field must match"),
        );
    } else if let Some(name) = written.strip_prefix("localhost/")
        && at(profile, "localhostProfile").and_then(Value::as_str) != Some(name)
    {
        errors.forbidden(
            format!("{field}.localhostProfile"),
            &format!("{what} profile in annotation and field must match"),
        );
    }
}

/// Warnings about annotations in place of fields; `prefix` leads to the pod or template.
pub(crate) fn warnings(pod: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    let annotation = |key: &str| {
        let mut all = entries(pod, "metadata.annotations");
        all.find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_str().unwrap_or_default())
    };
    let mut seccomp = |holder: &Value, key: &str| {
        if at(holder, "securityContext.seccompProfile").is_none() && annotation(key).is_some() {
            warnings.push(format!(
                "{prefix}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
            ));
        }
    };
    seccomp(spec, SECCOMP_POD);
    for (_, container) in containers(spec) {
        seccomp(
            container,
            &format!("{SECCOMP_CONTAINER}{}", text(container, "name")),
        );
    }
    for (_, container) in containers(spec) {
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        let Some(written) = annotation(&key) else { continue };
        let own = at(container, "securityContext.appArmorProfile");
        // In a pod, which has no prefix, the annotation has become the field when it was prepared.
        let stands_alone = own.is_none() || (prefix.is_empty() && is_profile(own, written));
        if stands_alone && !is_profile(at(spec, "securityContext.appArmorProfile"), written) {
            warnings.push(format!(
                "{prefix}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
}

/// Whether a profile is the one an annotation names.
pub(crate) fn is_profile(profile: Option<&Value>, written: &str) -> bool {
    let (Some(profile), Some((kind, name))) = (profile, annotated_app_armor(written)) else {
        return false;
    };
    text(profile, "type") == kind && at(profile, "localhostProfile").and_then(Value::as_str) == name
}
