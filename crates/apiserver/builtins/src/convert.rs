// SPDX-License-Identifier: Apache-2.0
//! Conversion between kinds that share storage: the two event versions and the two autoscaler
//! versions. Nothing is lost on the way to storage and back; what an old version has no field for
//! travels in annotations, as in the reference.

use serde_json::{Map, Value, json};

use crate::json::{at, ensure, list, text};
use crate::kind::Kind;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

/// Fields of an event: core name, name in events.k8s.io.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

impl Kind {
    /// Turns an object of this kind into one of another that shares its storage. Converting to the
    /// same kind changes nothing.
    pub fn convert_to(&self, other: &Kind, object: &mut Value) {
        if (self.group, self.version) == (other.group, other.version) || self.kind != other.kind {
            return;
        }
        match (self.kind, other.group, other.version) {
            ("Event", "", _) => rename(object, |pair| (pair.1, pair.0)),
            ("Event", _, _) => rename(object, |pair| (pair.0, pair.1)),
            ("HorizontalPodAutoscaler", _, "v2") => autoscaler_to_v2(object),
            ("HorizontalPodAutoscaler", _, "v1") => autoscaler_to_v1(object),
            _ => {}
        }
        if object.get("apiVersion").is_some() {
            ensure(object, "").insert("apiVersion".to_owned(), json!(other.api_version()));
        }
    }
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = ensure(object, "");
    for pair in EVENT {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

/// The target CPU utilisation becomes a metric, annotations become fields.
pub(crate) fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics = Vec::new();
    if let Some(percent) = ensure(object, "spec")
        .remove("targetCPUUtilizationPercentage")
        .filter(|v| !v.is_null())
    {
        metrics.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
        }));
    }
    metrics.extend(
        from_annotation(object, METRICS)
            .and_then(|v| v.as_array().cloned())
            .unwrap_or_default(),
    );
    // v1 has no default of its own: it is given here, where it is known that no other metric is wanted.
    if metrics.is_empty() {
        metrics.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }));
    }
    ensure(object, "spec").insert("metrics".to_owned(), Value::Array(metrics));
    if let Some(behavior) = from_annotation(object, BEHAVIOR) {
        ensure(object, "spec").insert("behavior".to_owned(), behavior);
    }
    let conditions = from_annotation(object, CONDITIONS);
    let mut current = Vec::new();
    if at(object, "status").is_some() {
        let percent = ensure(object, "status").remove("currentCPUUtilizationPercentage");
        if let Some(percent) = percent.filter(|value| !value.is_null()) {
            current.push(json!({
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": percent}},
            }));
        }
    }
    current.extend(
        from_annotation(object, CURRENT)
            .and_then(|v| v.as_array().cloned())
            .unwrap_or_default(),
    );
    if let Some(conditions) = conditions {
        ensure(object, "status").insert("conditions".to_owned(), conditions);
    }
    if !current.is_empty() {
        ensure(object, "status").insert("currentMetrics".to_owned(), Value::Array(current));
    }
}

fn from_annotation(object: &mut Value, name: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let written = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(written.as_str()?).ok()
}

fn to_annotation(object: &mut Value, name: &str, value: &Value) {
    ensure(object, "metadata.annotations").insert(name.to_owned(), Value::from(value.to_string()));
}

fn is_cpu(metric: &Value, half: &str) -> bool {
    text(metric, "type") == "Resource"
        && text(metric, "resource.name") == "cpu"
        && at(metric, &format!("resource.{half}.averageUtilization")).is_some()
}

/// The first CPU utilisation becomes the target; everything else becomes annotations.
fn autoscaler_to_v1(object: &mut Value) {
    let split = |object: &Value, path: &str, half: &str| -> (Option<Value>, Vec<Value>) {
        let mut rest = list(object, path).to_vec();
        let found = rest
            .iter()
            .position(|metric| is_cpu(metric, half))
            .map(|position| rest.remove(position));
        let percent =
            found.and_then(|metric| at(&metric, &format!("resource.{half}.averageUtilization")).cloned());
        (percent, rest)
    };
    let (target, metrics) = split(object, "spec.metrics", "target");
    let (observed, current) = split(object, "status.currentMetrics", "current");
    let spec: &mut Map<String, Value> = ensure(object, "spec");
    spec.remove("metrics");
    let behavior = spec.remove("behavior").filter(|value| !value.is_null());
    if let Some(target) = target {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), target);
    }
    let mut conditions = None;
    if at(object, "status").is_some() {
        let status = ensure(object, "status");
        status.remove("currentMetrics");
        conditions = status
            .remove("conditions")
            .filter(|value| value.as_array().is_some_and(|list| !list.is_empty()));
        if let Some(observed) = observed {
            status.insert("currentCPUUtilizationPercentage".to_owned(), observed);
        }
    }
    if !metrics.is_empty() {
        to_annotation(object, METRICS, &Value::Array(metrics));
    }
    if !current.is_empty() {
        to_annotation(object, CURRENT, &Value::Array(current));
    }
    if let Some(behavior) = behavior {
        to_annotation(object, BEHAVIOR, &behavior);
    }
    if let Some(conditions) = conditions {
        to_annotation(object, CONDITIONS, &conditions);
    }
}
