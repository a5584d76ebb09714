// SPDX-License-Identifier: Apache-2.0
//! Rules of deployments, sets, replication controllers and their statuses.

use cobaltcore_schema::Cause;
use serde_json::Value;

use super::errors::{Errors, int_or_percent_value, printed};
use super::pod;
use crate::json::{at, ensure, int, list, list_mut, map, number, same, text};
use crate::kind::Kind;
use crate::names;
use crate::selector::{is_empty, map_matches, selector_matches};

const UNUSABLE: &str = "invalid label selector";
const MISMATCH: &str = "`selector` does not match template `labels`";

/// Selector of a workload: present, not empty, well formed, and one that matches the labels of the
/// template. What is not well formed matches nothing, and is told in the words of `unusable`.
fn selector(errors: &mut Errors, object: &Value, kind: &str, unusable: &str) {
    let Some(selector) = at(object, "spec.selector") else {
        errors.required("spec.selector", "");
        return matching(errors, object);
    };
    let sound = errors.sound_selector(selector, "spec.selector");
    if is_empty(selector) {
        errors.invalid(
            "spec.selector",
            selector.clone(),
            &format!("empty selector is invalid for {kind}"),
        );
    }
    if sound {
        matching(errors, object);
    } else {
        errors.invalid("spec.selector", selector.clone(), unusable);
    }
}

/// The selector must match the labels of the template.
fn matching(errors: &mut Errors, object: &Value) {
    let selector = at(object, "spec.selector");
    let labels = map(object, "spec.template.metadata.labels");
    // No selector selects nothing, an empty one everything.
    if selector.is_none_or(|selector| !is_empty(selector)) && !selector_matches(selector, labels) {
        mismatch(errors, object);
    }
}

fn mismatch(errors: &mut Errors, object: &Value) {
    let shown = at(object, "spec.template.metadata.labels")
        .cloned()
        .unwrap_or(Value::Null);
    errors.invalid("spec.template.metadata.labels", shown, MISMATCH);
}

/// Pods of a workload that keeps them running restart always and have no deadline.
fn keeps_running(errors: &mut Errors, object: &Value, kind: &str) {
    let policy = text(object, "spec.template.spec.restartPolicy");
    if policy != "Always" {
        errors.not_supported("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    if at(object, "spec.template.spec.activeDeadlineSeconds").is_some() {
        errors.forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            &format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

pub(super) fn replication_controller(errors: &mut Errors, object: &Value) {
    errors.non_negative(object, "spec.minReadySeconds", "spec.minReadySeconds");
    let wanted = map(object, "spec.selector");
    if wanted.is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.selector", "");
    }
    errors.non_negative(object, "spec.replicas", "spec.replicas");
    if at(object, "spec.template").is_none() {
        errors.required("spec.template", "");
        return;
    }
    let labels = map(object, "spec.template.metadata.labels");
    if wanted.is_some_and(|wanted| !wanted.is_empty()) && !map_matches(wanted, labels) {
        mismatch(errors, object);
    }
    pod::template(errors, object, "spec.template");
    keeps_running(errors, object, "ReplicationController");
}

pub(super) fn deployment(errors: &mut Errors, object: &Value) {
    errors.non_negative(object, "spec.replicas", "spec.replicas");
    selector(errors, object, "deployment", UNUSABLE);
    pod::template(errors, object, "spec.template");
    keeps_running(errors, object, "ReplicaSet");
    strategy(errors, object);
    errors.non_negative(object, "spec.minReadySeconds", "spec.minReadySeconds");
    errors.non_negative(object, "spec.revisionHistoryLimit", "spec.revisionHistoryLimit");
    if let Some(seconds) = int(object, "spec.progressDeadlineSeconds") {
        errors.non_negative(
            object,
            "spec.progressDeadlineSeconds",
            "spec.progressDeadlineSeconds",
        );
        if seconds <= number(object, "spec.minReadySeconds") {
            errors.invalid(
                "spec.progressDeadlineSeconds",
                seconds,
                "must be greater than minReadySeconds",
            );
        }
    }
}

fn strategy(errors: &mut Errors, object: &Value) {
    let rolling = at(object, "spec.strategy.rollingUpdate");
    match text(object, "spec.strategy.type") {
        "Recreate" => {
            if rolling.is_some() {
                errors.forbidden(
                    "spec.strategy.rollingUpdate",
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => {
            let Some(rolling) = rolling else { return };
            let (down, up) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            errors.int_or_percent(down, "spec.strategy.rollingUpdate.maxUnavailable");
            errors.int_or_percent(up, "spec.strategy.rollingUpdate.maxSurge");
            if int_or_percent_value(down) == 0 && int_or_percent_value(up) == 0 {
                errors.invalid(
                    "spec.strategy.rollingUpdate.maxUnavailable",
                    down.cloned().unwrap_or(Value::Null),
                    "may not be 0 when `maxSurge` is 0",
                );
            }
            errors.at_most_all(down, "spec.strategy.rollingUpdate.maxUnavailable");
        }
        _ => {
            let shown = at(object, "spec.strategy").cloned().unwrap_or(Value::Null);
            unsupported_strategy(errors, "spec.strategy", &shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// The reference shows a refused strategy in its internal spelling.
fn unsupported_strategy(errors: &mut Errors, field: &str, strategy: &Value, supported: &[&str]) {
    let shown = printed(&internal(strategy));
    let supported: Vec<String> = supported.iter().map(|name| format!("\"{name}\"")).collect();
    let message = format!(
        "Unsupported value: {shown}: supported values: {}",
        supported.join(", ")
    );
    errors.raw(Cause::NotSupported, field, message);
}

fn internal(strategy: &Value) -> [(&'static str, Option<&Value>); 2] {
    [
        ("Type", at(strategy, "type")),
        ("RollingUpdate", at(strategy, "rollingUpdate")),
    ]
}

pub(super) fn replica_set(errors: &mut Errors, object: &Value) {
    errors.non_negative(object, "spec.replicas", "spec.replicas");
    errors.non_negative(object, "spec.minReadySeconds", "spec.minReadySeconds");
    // The reference says deployment here, too.
    selector(errors, object, "deployment", UNUSABLE);
    pod::template(errors, object, "spec.template");
    keeps_running(errors, object, "ReplicaSet");
}

pub(super) fn stateful_set(errors: &mut Errors, object: &Value, exists: bool) {
    let management = text(object, "spec.podManagementPolicy");
    if !matches!(management, "OrderedReady" | "Parallel") {
        errors.invalid(
            "spec.podManagementPolicy",
            management,
            "must be 'OrderedReady' or 'Parallel'",
        );
    }
    stateful_strategy(errors, object);
    for when in ["whenDeleted", "whenScaled"] {
        let field = format!("spec.persistentVolumeClaimRetentionPolicy.{when}");
        let policy = text(object, &field);
        if !matches!(policy, "Retain" | "Delete") {
            errors.not_supported(field, policy, &["Retain", "Delete"]);
        }
    }
    if !exists {
        for (position, claim) in list(object, "spec.volumeClaimTemplates").iter().enumerate() {
            let spec = at(claim, "spec").unwrap_or(&Value::Null);
            super::storage::claim_spec(
                errors,
                spec,
                &format!("spec.volumeClaimTemplates[{position}].spec"),
            );
        }
    }
    for name in ["replicas", "minReadySeconds", "ordinals.start"] {
        errors.non_negative(object, &format!("spec.{name}"), &format!("spec.{name}"));
    }
    let service = text(object, "spec.serviceName");
    if !exists && !service.is_empty() {
        errors.all("spec.serviceName", service, names::dns1123_label(service));
    }
    selector(errors, object, "statefulset", "");
    pod::template(errors, &with_claims(object), "spec.template");
    keeps_running(errors, object, "StatefulSet");
}

/// Claims of a set are volumes of its pods, under the claim's name.
fn with_claims(object: &Value) -> Value {
    let claims: Vec<String> = list(object, "spec.volumeClaimTemplates")
        .iter()
        .map(|claim| text(claim, "metadata.name").to_owned())
        .collect();
    let mut copy = object.clone();
    let spec = ensure(&mut copy, "spec.template.spec");
    spec.remove("subdomain");
    spec.remove("hostname");
    if !claims.is_empty() {
        let own: Vec<Value> = list_mut(&mut copy, "spec.template.spec.volumes")
            .iter()
            .filter(|volume| !claims.iter().any(|claim| claim == text(volume, "name")))
            .cloned()
            .collect();
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| serde_json::json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
            .chain(own)
            .collect();
        ensure(&mut copy, "spec.template.spec").insert("volumes".to_owned(), Value::Array(volumes));
    }
    copy
}

fn stateful_strategy(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    let rolling = at(object, "spec.updateStrategy.rollingUpdate");
    match text(object, "spec.updateStrategy.type") {
        "OnDelete" => {
            if let Some(rolling) = rolling {
                errors.invalid_struct(
                    "spec.updateStrategy.rollingUpdate",
                    &[
                        ("Partition", at(rolling, "partition")),
                        ("MaxUnavailable", at(rolling, "maxUnavailable")),
                    ],
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            let Some(rolling) = rolling else { return };
            errors.non_negative(
                rolling,
                "partition",
                "spec.updateStrategy.rollingUpdate.partition",
            );
            if let Some(most) = at(rolling, "maxUnavailable") {
                errors.int_or_percent(Some(most), FIELD);
                if int_or_percent_value(Some(most)) == 0 {
                    errors.invalid(FIELD, most.clone(), "cannot be 0");
                }
                errors.at_most_all(Some(most), FIELD);
            }
        }
        _ => {
            let shown = at(object, "spec.updateStrategy").cloned().unwrap_or(Value::Null);
            errors.invalid_struct(
                "spec.updateStrategy",
                &internal(&shown),
                "must be 'RollingUpdate' or 'OnDelete'",
            );
        }
    }
}

pub(super) fn stateful_set_update(errors: &mut Errors, new: &Value, old: &Value) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    stateful_set(errors, new, true);
    let strip = |object: &Value| {
        let mut spec = at(object, "spec").cloned().unwrap_or_default();
        let fields = ensure(&mut spec, "");
        for name in MUTABLE {
            fields.remove(name);
        }
        // Templates of claims did not always say what they are.
        for claim in list_mut(&mut spec, "volumeClaimTemplates") {
            if let Some(claim) = claim.as_object_mut() {
                claim.retain(|name, _| name != "kind" && name != "apiVersion");
            }
        }
        spec
    };
    if !same(Some(&strip(new)), Some(&strip(old))) {
        errors.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

pub(super) fn daemon_set(errors: &mut Errors, object: &Value) {
    let selector = at(object, "spec.selector");
    let sound = selector.is_none_or(|selector| errors.sound_selector(selector, "spec.selector"));
    if sound && !selector_matches(selector, map(object, "spec.template.metadata.labels")) {
        mismatch(errors, object);
    }
    if let Some(selector) = selector.filter(|selector| is_empty(selector)) {
        errors.invalid(
            "spec.selector",
            selector.clone(),
            "empty selector is invalid for daemonset",
        );
    }
    pod::template(errors, object, "spec.template");
    keeps_running(errors, object, "DaemonSet");
    errors.non_negative(object, "spec.minReadySeconds", "spec.minReadySeconds");
    daemon_strategy(errors, object);
    errors.non_negative(object, "spec.revisionHistoryLimit", "spec.revisionHistoryLimit");
}

fn daemon_strategy(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.updateStrategy.rollingUpdate";
    match text(object, "spec.updateStrategy.type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = at(object, FIELD) else {
                errors.required(FIELD, "");
                return;
            };
            let (down, up) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            let (down_field, up_field) = (format!("{FIELD}.maxUnavailable"), format!("{FIELD}.maxSurge"));
            errors.int_or_percent(down, &down_field);
            errors.int_or_percent(up, &up_field);
            errors.at_most_all(down, &down_field);
            errors.at_most_all(up, &up_field);
            match (int_or_percent_value(down) != 0, int_or_percent_value(up) != 0) {
                (true, true) => errors.invalid(
                    up_field,
                    up.cloned().unwrap_or(Value::Null),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => errors.required(down_field, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let shown = at(object, "spec.updateStrategy").cloned().unwrap_or(Value::Null);
            let supported = ["RollingUpdate", "OnDelete"];
            unsupported_strategy(errors, "spec.updateStrategy", &shown, &supported);
        }
    }
}

pub(super) fn revision_number(errors: &mut Errors, object: &Value) {
    errors.non_negative(object, "revision", "revision");
}

pub(super) fn revision(errors: &mut Errors, object: &Value) {
    revision_number(errors, object);
    match at(object, "data") {
        None => errors.required("data", "data is mandatory"),
        Some(Value::Object(_)) => {}
        Some(_) => errors.required("data", "data must be a valid JSON object"),
    }
}

/// Numbers of a status: not negative, and parts not above the whole.
pub(super) fn status(errors: &mut Errors, kind: &Kind, new: &Value, old: &Value) {
    let (counts, parts): (&[&str], &[&str]) = match kind.id() {
        ("apps", "Deployment") => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => (
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ),
        ("apps", "StatefulSet") => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ],
        ),
        ("apps", "DaemonSet") => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
        ),
        ("policy", _) => (
            &[
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ],
            &[],
        ),
        ("batch", "Job") => (&["active", "succeeded", "failed", "ready", "terminating"], &[]),
        _ => return,
    };
    for name in counts {
        errors.non_negative(new, &format!("status.{name}"), &format!("status.{name}"));
    }
    let replicas = number(new, "status.replicas");
    for name in parts {
        let part = number(new, &format!("status.{name}"));
        if part > replicas {
            errors.invalid(
                format!("status.{name}"),
                part,
                "cannot be greater than status.replicas",
            );
        }
    }
    let available = number(new, "status.availableReplicas");
    if parts.contains(&"availableReplicas") && available > number(new, "status.readyReplicas") {
        let whole = if kind.kind == "StatefulSet" {
            "status.readyReplicas"
        } else {
            "readyReplicas"
        };
        errors.invalid(
            "status.availableReplicas",
            available,
            &format!("cannot be greater than {whole}"),
        );
    }
    let before = number(old, "status.collisionCount");
    if counts.contains(&"collisionCount") && number(new, "status.collisionCount") < before {
        errors.invalid(
            "status.collisionCount",
            number(new, "status.collisionCount"),
            "cannot be decremented",
        );
    }
}
