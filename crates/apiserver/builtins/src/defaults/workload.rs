// SPDX-License-Identifier: Apache-2.0
//! Defaults of the kinds that bring pods about: deployments, sets, jobs and autoscalers.

use serde_json::{Map, Value, json};

use super::pod::template;
use crate::json::{at, at_mut, default, default_text, ensure, list, list_mut, map_mut, text};

const TEMPLATE: &str = "spec.template";

pub(super) fn replication_controller(object: &mut Value) {
    default(ensure(object, "spec"), "replicas", 1);
    let labels = at(object, "spec.template.metadata.labels").cloned();
    if let Some(labels) = labels {
        if at(object, "spec.selector")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty)
        {
            ensure(object, "spec").insert("selector".to_owned(), labels.clone());
        }
        labels_from_template(object, labels);
    }
    template(object, TEMPLATE);
}

fn labels_from_template(object: &mut Value, labels: Value) {
    if at(object, "metadata.labels")
        .and_then(Value::as_object)
        .is_none_or(Map::is_empty)
    {
        ensure(object, "metadata").insert("labels".to_owned(), labels);
    }
}

pub(super) fn deployment(object: &mut Value) {
    let spec = ensure(object, "spec");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    default_text(ensure(object, "spec.strategy"), "type", "RollingUpdate");
    if text(object, "spec.strategy.type") == "RollingUpdate" {
        let rolling = ensure(object, "spec.strategy.rollingUpdate");
        default(rolling, "maxUnavailable", "25%");
        default(rolling, "maxSurge", "25%");
    }
    ensure(object, TEMPLATE);
    template(object, TEMPLATE);
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = ensure(object, "spec");
    default_text(spec, "podManagementPolicy", "OrderedReady");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    if text(object, "spec.updateStrategy.type").is_empty() {
        ensure(object, "spec.updateStrategy").insert("type".to_owned(), json!("RollingUpdate"));
        ensure(object, "spec.updateStrategy.rollingUpdate");
    }
    if text(object, "spec.updateStrategy.type") == "RollingUpdate"
        && let Some(rolling) = map_mut(object, "spec.updateStrategy.rollingUpdate")
    {
        default(rolling, "partition", 0);
    }
    let retention = ensure(object, "spec.persistentVolumeClaimRetentionPolicy");
    default_text(retention, "whenDeleted", "Retain");
    default_text(retention, "whenScaled", "Retain");
    for claim in list_mut(object, "spec.volumeClaimTemplates") {
        super::cluster::claim(claim);
        if let Some(claim) = claim.as_object_mut() {
            default(claim, "kind", "PersistentVolumeClaim");
            default(claim, "apiVersion", "v1");
        }
    }
    ensure(object, TEMPLATE);
    template(object, TEMPLATE);
}

pub(super) fn daemon_set(object: &mut Value) {
    default(ensure(object, "spec"), "revisionHistoryLimit", 10);
    default_text(ensure(object, "spec.updateStrategy"), "type", "RollingUpdate");
    if text(object, "spec.updateStrategy.type") == "RollingUpdate" {
        let rolling = ensure(object, "spec.updateStrategy.rollingUpdate");
        default(rolling, "maxUnavailable", 1);
        default(rolling, "maxSurge", 0);
    }
    ensure(object, TEMPLATE);
    template(object, TEMPLATE);
}

pub(super) fn replica_set(object: &mut Value) {
    default(ensure(object, "spec"), "replicas", 1);
    template(object, TEMPLATE);
}

pub(super) fn job(object: &mut Value) {
    job_spec(ensure(object, "spec"));
    if let Some(labels) = at(object, "spec.template.metadata.labels").cloned() {
        labels_from_template(object, labels);
    }
    job_template(object, "spec");
}

fn job_spec(spec: &mut Map<String, Value>) {
    let has = |spec: &Map<String, Value>, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !has(spec, "completions") && !has(spec, "parallelism") {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    let limit = if has(spec, "backoffLimitPerIndex") {
        i32::MAX
    } else {
        6
    };
    default(spec, "backoffLimit", limit);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let replacement = if has(spec, "podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    default(spec, "podReplacementPolicy", replacement);
    default(spec, "manualSelector", false);
}

fn job_template(object: &mut Value, spec: &str) {
    for rule in list_mut(object, &format!("{spec}.podFailurePolicy.rules")) {
        for condition in list_mut(rule, "onPodConditions") {
            default_text(ensure(condition, ""), "status", "True");
        }
    }
    let path = format!("{spec}.template");
    ensure(object, &path);
    template(object, &path);
}

/// The job inside gets the defaults of pod templates only; the rest waits until it is created.
pub(super) fn cron_job(object: &mut Value) {
    let spec = ensure(object, "spec");
    default_text(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    ensure(object, "spec.jobTemplate.metadata");
    job_template(object, "spec.jobTemplate.spec");
}

pub(super) fn autoscaler(object: &mut Value, version: &str) {
    default(ensure(object, "spec"), "minReplicas", 1);
    if version != "v2" {
        crate::autoscaler::default_target(object);
        return;
    }
    if list(object, "spec.metrics").is_empty() {
        let cpu = json!([{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
        ensure(object, "spec").insert("metrics".to_owned(), cpu);
    }
    if at_mut(object, "spec.behavior").is_some() {
        let up = ensure(object, "spec.behavior.scaleUp");
        default(up, "stabilizationWindowSeconds", 0);
        default(up, "selectPolicy", "Max");
        default(
            up,
            "policies",
            json!([
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ]),
        );
        let down = ensure(object, "spec.behavior.scaleDown");
        default(down, "selectPolicy", "Max");
        default(
            down,
            "policies",
            json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
    }
}
