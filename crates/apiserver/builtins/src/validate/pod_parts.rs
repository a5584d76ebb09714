// SPDX-License-Identifier: Apache-2.0
//! Rules of the endpoints that change one part of a pod: containers added to look into it, which
//! then stay as they are, and resources of the containers it has, which may grow and shrink.

use std::collections::BTreeSet;

use cobaltcore_text::go;
use serde_json::Value;

use super::container::{PodFacts, common};
use super::errors::Errors;
use super::pod::metadata_and_spec;
use crate::json::{at, entries, list, map, map_mut, same, text};
use crate::prepare::qos_class;

const MIRROR: &str = "kubernetes.io/config.mirror";
const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
/// What a container that only looks may not have, in the order the reference names it.
const NOT_FOR_LOOKING: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
/// What can be resized.
const SIZES: [&str; 2] = ["cpu", "memory"];

/// The containers of a pod that only look into it.
pub(super) fn containers(errors: &mut Errors, spec: &Value, field: &str, pod: &PodFacts<'_>) {
    let others: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(spec, field))
        .map(|container| text(container, "name"))
        .collect();
    let mut names = others.clone();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = format!("{field}[{index}]");
        common(errors, container, &path, pod);
        let image = text(container, "image");
        if image.trim() != image {
            errors.invalid(
                format!("{path}.image"),
                image,
                "must not have leading or trailing whitespace",
            );
        }
        let name = text(container, "name");
        if !names.insert(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(format!("{path}.targetContainerName"), target);
        }
        for field in NOT_FOR_LOOKING {
            let set = at(container, field).is_some_and(|value| match value {
                Value::Object(map) => field != "resources" || !map.is_empty(),
                Value::Array(list) => !list.is_empty(),
                _ => true,
            });
            if set {
                errors.forbidden(format!("{path}.{field}"), NOT_EPHEMERAL);
            }
        }
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    errors.forbidden(format!("{path}.volumeMounts[{index}].{field}"), NOT_EPHEMERAL);
                }
            }
        }
    }
}

fn is_mirror(pod: &Value) -> bool {
    entries(pod, "metadata.annotations").any(|(key, _)| key == MIRROR)
}

/// Containers may be added; those that are there stay as they are.
pub(super) fn ephemeral(errors: &mut Errors, new: &Value, old: &Value) {
    const FIELD: &str = "spec.ephemeralContainers";
    metadata_and_spec(errors, new);
    if is_mirror(old) {
        errors.list.clear();
        errors.forbidden("", "static pods do not support ephemeral containers");
        return;
    }
    for known in list(old, FIELD) {
        let name = text(known, "name");
        let kept = list(new, FIELD).iter().find(|c| text(c, "name") == name);
        let quoted = go::quote(name);
        match kept {
            None => errors.forbidden(
                FIELD,
                &format!("existing ephemeral containers {quoted} may not be removed\n"),
            ),
            Some(kept) if !same(Some(kept), Some(known)) => errors.forbidden(
                FIELD,
                &format!(
                    "existing ephemeral containers {quoted} may not be changed\n{}",
                    super::pod::difference(known, kept)
                ),
            ),
            Some(_) => {}
        }
    }
}

/// Processors and memory of containers may change, and nothing else.
pub(super) fn resize(errors: &mut Errors, new: &Value, old: &Value) {
    metadata_and_spec(errors, new);
    let refusal = if is_mirror(old) {
        "static pods cannot be resized"
    } else if text(old, "spec.os.name") == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !refusal.is_empty() {
        errors.list.clear();
        errors.forbidden("", refusal);
        return;
    }
    if text(old, "status.qosClass") != qos_class(new) {
        errors.invalid(
            "spec",
            text(new, "status.qosClass"),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let running = list(old, "status.containerStatuses")
        .iter()
        .find(|status| at(status, "state.running").is_some());
    if running.is_some_and(|status| at(status, "resources").is_none()) {
        errors.forbidden("spec", "Pod running on node without support for resize");
    }
    if !same_containers(errors, new, old) {
        return;
    }
    for field in ["initContainers", "containers"] {
        let path = format!("spec.{field}");
        let pairs = list(new, &path).iter().zip(list(old, &path));
        for (index, (new, old)) in pairs.enumerate() {
            for (part, text) in [
                ("requests", "resource requests cannot be removed"),
                ("limits", "resource limits cannot be removed"),
            ] {
                let part = format!("resources.{part}");
                let kept = map(new, &part);
                let removed = entries(old, &part).any(|(name, _)| kept.is_none_or(|k| !k.contains_key(name)));
                if removed {
                    errors.forbidden(format!("{path}[{index}].{part}"), text);
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        let path = format!("spec.{field}");
        for (index, (new, old)) in list(new, &path).iter().zip(list(old, &path)).enumerate() {
            if same(Some(&without_sizes(new)), Some(&without_sizes(old))) {
                continue;
            }
            if field == "containers" {
                errors.forbidden("spec", "only cpu and memory resources are mutable");
            } else {
                errors.forbidden(
                    format!("{path}[{index}]"),
                    "only cpu and memory resources for init or sidecar containers are mutable",
                );
            }
        }
    }
}

/// Answers whether the containers are the same ones, in the same order.
fn same_containers(errors: &mut Errors, new: &Value, old: &Value) -> bool {
    let before = errors.list.len();
    for field in ["containers", "initContainers"] {
        let path = format!("spec.{field}");
        let (new, old) = (list(new, &path), list(old, &path));
        if new.len() != old.len() {
            errors.forbidden(path, &format!("{field} may not be added or removed on resize"));
            continue;
        }
        for (index, (new, old)) in new.iter().zip(old).enumerate() {
            if text(new, "name") != text(old, "name") {
                errors.forbidden(
                    format!("{path}[{index}].name"),
                    &format!("{field} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    errors.list.len() == before
}

fn without_sizes(container: &Value) -> Value {
    let mut rest = container.clone();
    for part in ["resources.requests", "resources.limits"] {
        if let Some(amounts) = map_mut(&mut rest, part) {
            amounts.retain(|name, _| !SIZES.contains(&name.as_str()));
        }
    }
    rest
}
