// SPDX-License-Identifier: Apache-2.0
//! Rows of the kinds that bring pods about.

use serde_json::{Value, json};

use super::{Cells, containers, or_none, selector};
use crate::json::{at, flag, int, list, map, number, text};
use crate::selector::{labels_text, selector_text};
use crate::times::{human_duration, parse_time};

const CONTAINERS: &str = "spec.template.spec.containers";

pub(super) fn pod_template(cells: &Cells<'_>) -> Vec<Value> {
    let [names, images] = containers(cells.object, "template.spec.containers");
    let labels = labels_text(map(cells.object, "template.metadata.labels"));
    vec![cells.name(), names, images, or_none(&labels)]
}

pub(super) fn replicas(cells: &Cells<'_>, group: &str) -> Vec<Value> {
    let object = cells.object;
    let [names, images] = containers(object, CONTAINERS);
    let selector = if group.is_empty() {
        or_none(&labels_text(map(object, "spec.selector")))
    } else {
        selector(object, "spec.selector")
    };
    vec![
        cells.name(),
        json!(number(object, "spec.replicas")),
        json!(number(object, "status.replicas")),
        json!(number(object, "status.readyReplicas")),
        cells.age(),
        names,
        images,
        selector,
    ]
}

fn ready(object: &Value) -> Value {
    json!(format!(
        "{}/{}",
        number(object, "status.readyReplicas"),
        number(object, "spec.replicas")
    ))
}

pub(super) fn deployment(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let [names, images] = containers(object, CONTAINERS);
    vec![
        cells.name(),
        ready(object),
        json!(number(object, "status.updatedReplicas")),
        json!(number(object, "status.availableReplicas")),
        cells.age(),
        names,
        images,
        json!(at(object, "spec.selector").map(selector_text).unwrap_or_default()),
    ]
}

pub(super) fn stateful_set(cells: &Cells<'_>) -> Vec<Value> {
    let [names, images] = containers(cells.object, CONTAINERS);
    vec![cells.name(), ready(cells.object), cells.age(), names, images]
}

pub(super) fn daemon_set(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let [names, images] = containers(object, CONTAINERS);
    vec![
        cells.name(),
        json!(number(object, "status.desiredNumberScheduled")),
        json!(number(object, "status.currentNumberScheduled")),
        json!(number(object, "status.numberReady")),
        json!(number(object, "status.updatedNumberScheduled")),
        json!(number(object, "status.numberAvailable")),
        or_none(&labels_text(map(object, "spec.template.spec.nodeSelector"))),
        cells.age(),
        names,
        images,
        selector(object, "spec.selector"),
    ]
}

pub(super) fn revision(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let owner = list(object, "metadata.ownerReferences")
        .iter()
        .find(|owner| flag(owner, "controller"));
    let controller = owner.map_or("<none>".to_owned(), |owner| {
        let group = text(owner, "apiVersion")
            .split_once('/')
            .map_or("", |(group, _)| group);
        let kind = text(owner, "kind").to_lowercase();
        let full = if group.is_empty() {
            kind
        } else {
            format!("{kind}.{group}")
        };
        format!("{full}/{}", text(owner, "name"))
    });
    vec![
        cells.name(),
        json!(controller),
        json!(number(object, "revision")),
        cells.age(),
    ]
}

pub(super) fn job(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let done = number(object, "status.succeeded");
    let completions = match (
        int(object, "spec.completions"),
        number(object, "spec.parallelism"),
    ) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    };
    let start = parse_time(text(object, "status.startTime"));
    let end = parse_time(text(object, "status.completionTime")).unwrap_or(cells.now);
    let duration = start
        .map(|start| human_duration(end.duration_since(start).as_secs_f64()))
        .unwrap_or_default();
    let [names, images] = containers(object, CONTAINERS);
    vec![
        cells.name(),
        json!(job_status(object)),
        json!(completions),
        json!(duration),
        cells.age(),
        names,
        images,
        selector(object, "spec.selector"),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        list(object, "status.conditions")
            .iter()
            .any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if at(object, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub(super) fn cron_job(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let [names, images] = containers(object, "spec.jobTemplate.spec.template.spec.containers");
    let suspend = match at(object, "spec.suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = if at(object, "status.lastScheduleTime").is_some() {
        cells.since("status.lastScheduleTime")
    } else {
        "<none>".to_owned()
    };
    vec![
        cells.name(),
        json!(text(object, "spec.schedule")),
        at(object, "spec.timeZone").cloned().unwrap_or(json!("<none>")),
        json!(suspend),
        json!(list(object, "status.active").len()),
        json!(last),
        cells.age(),
        names,
        images,
        selector(object, "spec.jobTemplate.spec.selector"),
    ]
}

pub(super) fn budget(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let amount = |path: &str| match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "N/A".to_owned(),
    };
    vec![
        cells.name(),
        json!(amount("spec.minAvailable")),
        json!(amount("spec.maxUnavailable")),
        json!(number(object, "status.disruptionsAllowed")),
        cells.age(),
    ]
}

pub(super) fn autoscaler(cells: &Cells<'_>, version: &str) -> Vec<Value> {
    let converted;
    let object = if version == "v1" {
        let mut copy = cells.object.clone();
        crate::autoscaler::to_v2(&mut copy);
        converted = copy;
        &converted
    } else {
        cells.object
    };
    let reference = format!(
        "{}/{}",
        text(object, "spec.scaleTargetRef.kind"),
        text(object, "spec.scaleTargetRef.name")
    );
    let least = int(object, "spec.minReplicas").map_or("<unset>".to_owned(), |least| least.to_string());
    vec![
        cells.name(),
        json!(reference),
        json!(metrics(object)),
        json!(least),
        json!(number(object, "spec.maxReplicas")),
        json!(number(object, "status.currentReplicas")),
        cells.age(),
    ]
}

fn metrics(object: &Value) -> String {
    const MAX: usize = 2;
    let specs = list(object, "spec.metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list(object, "status.currentMetrics");
    let texts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(at, spec)| metric(spec, statuses.get(at).unwrap_or(&Value::Null)))
        .collect();
    let shown = texts.iter().take(MAX).cloned().collect::<Vec<_>>().join(", ");
    if texts.len() > MAX {
        format!("{shown} + {} more...", texts.len() - MAX)
    } else {
        shown
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let amount = |value: Option<&Value>, unset: &str| match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => unset.to_owned(),
    };
    let source = match text(spec, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| at(spec, &format!("{source}.target.{field}"));
    let current = |field: &str| at(status, &format!("{source}.current.{field}"));
    let known = at(status, source).is_some();
    let since_known = |field: &str| amount(current(field), if known { "0" } else { "<unknown>" });
    match source {
        "external" | "object" if target("averageValue").is_some() => {
            format!(
                "{}/{} (avg)",
                amount(current("averageValue"), "<unknown>"),
                amount(target("averageValue"), "")
            )
        }
        "external" | "object" => format!("{}/{}", since_known("value"), amount(target("value"), "0")),
        "pods" => format!(
            "{}/{}",
            since_known("averageValue"),
            amount(target("averageValue"), "0")
        ),
        _ => {
            let name = text(spec, &format!("{source}.name"));
            if target("averageValue").is_some() {
                return format!(
                    "{name}: {}/{}",
                    since_known("averageValue"),
                    amount(target("averageValue"), "0")
                );
            }
            let percent = |value: Option<&Value>, unset: &str| {
                value.map_or(unset.to_owned(), |value| format!("{value}%"))
            };
            let wanted = percent(target("averageUtilization"), "<auto>");
            format!(
                "{name}: {}/{wanted}",
                percent(current("averageUtilization"), "<unknown>")
            )
        }
    }
}
