// SPDX-License-Identifier: Apache-2.0
//! An autoscaler in its two versions. v1 knows one target, the utilisation of the CPU; all else travels
//! in annotations, in the words that v1 had for it and in the order its fields were declared, so that a
//! client of the old version that keeps annotations loses nothing.

use serde_json::{Map, Value, json};

use crate::json::{at, default, ensure, list, text};
use crate::quantity::{self, Quantity};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// All that carry fields, and never reach the object itself.
const CARRIERS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CONDITIONS,
    CURRENT,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// How a field of a metric is written in v1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is; left out when it is not there.
    Plain,
    /// A quantity; left out when it is not there.
    Quantity,
    /// A quantity that v1 cannot leave out.
    Always,
    /// A reference to an object.
    Reference,
}

/// A field of a metric: its name in v1, its place in v2, its form.
type Field = (&'static str, &'static str, Form);

/// A type of metric: its name, the field that holds it, its fields in the order of v1.
type Metric = (&'static str, &'static str, &'static [Field]);

const WANTED: [Metric; 5] = [
    (
        "Object",
        "object",
        &[
            ("target", "describedObject", Form::Reference),
            ("metricName", "metric.name", Form::Plain),
            ("targetValue", "target.value", Form::Always),
            ("selector", "metric.selector", Form::Plain),
            ("averageValue", "target.averageValue", Form::Quantity),
        ],
    ),
    (
        "Pods",
        "pods",
        &[
            ("metricName", "metric.name", Form::Plain),
            ("targetAverageValue", "target.averageValue", Form::Always),
            ("selector", "metric.selector", Form::Plain),
        ],
    ),
    (
        "Resource",
        "resource",
        &[
            ("name", "name", Form::Plain),
            (
                "targetAverageUtilization",
                "target.averageUtilization",
                Form::Plain,
            ),
            ("targetAverageValue", "target.averageValue", Form::Quantity),
        ],
    ),
    (
        "ContainerResource",
        "containerResource",
        &[
            ("name", "name", Form::Plain),
            (
                "targetAverageUtilization",
                "target.averageUtilization",
                Form::Plain,
            ),
            ("targetAverageValue", "target.averageValue", Form::Quantity),
            ("container", "container", Form::Plain),
        ],
    ),
    (
        "External",
        "external",
        &[
            ("metricName", "metric.name", Form::Plain),
            ("metricSelector", "metric.selector", Form::Plain),
            ("targetValue", "target.value", Form::Quantity),
            ("targetAverageValue", "target.averageValue", Form::Quantity),
        ],
    ),
];

const SEEN: [Metric; 5] = [
    (
        "Object",
        "object",
        &[
            ("target", "describedObject", Form::Reference),
            ("metricName", "metric.name", Form::Plain),
            ("currentValue", "current.value", Form::Always),
            ("selector", "metric.selector", Form::Plain),
            ("averageValue", "current.averageValue", Form::Quantity),
        ],
    ),
    (
        "Pods",
        "pods",
        &[
            ("metricName", "metric.name", Form::Plain),
            ("currentAverageValue", "current.averageValue", Form::Always),
            ("selector", "metric.selector", Form::Plain),
        ],
    ),
    (
        "Resource",
        "resource",
        &[
            ("name", "name", Form::Plain),
            (
                "currentAverageUtilization",
                "current.averageUtilization",
                Form::Plain,
            ),
            ("currentAverageValue", "current.averageValue", Form::Always),
        ],
    ),
    (
        "ContainerResource",
        "containerResource",
        &[
            ("name", "name", Form::Plain),
            (
                "currentAverageUtilization",
                "current.averageUtilization",
                Form::Plain,
            ),
            ("currentAverageValue", "current.averageValue", Form::Always),
            ("container", "container", Form::Plain),
        ],
    ),
    (
        "External",
        "external",
        &[
            ("metricName", "metric.name", Form::Plain),
            ("metricSelector", "metric.selector", Form::Plain),
            ("currentValue", "current.value", Form::Always),
            ("currentAverageValue", "current.averageValue", Form::Quantity),
        ],
    ),
];

/// The utilisation an autoscaler aims at when it names no metric at all.
const AIM: i64 = 80;

/// In v1 the default is the target, unless an annotation holds metrics.
pub(crate) fn default_target(object: &mut Value) {
    if carried_metrics(object, METRICS, &WANTED).is_none_or(|metrics| metrics.is_empty()) {
        default(ensure(object, "spec"), "targetCPUUtilizationPercentage", AIM);
    }
}

/// The target of the CPU becomes a metric, behind those that annotations hold.
pub(crate) fn to_v2(object: &mut Value) {
    let percent = ensure(object, "spec")
        .remove("targetCPUUtilizationPercentage")
        .filter(|percent| !percent.is_null());
    let carried = carried_metrics(object, METRICS, &WANTED);
    let mut metrics: Vec<Value> = carried.unwrap_or_default();
    metrics.iter_mut().for_each(name_target);
    metrics.extend(percent.map(cpu_target));
    if metrics.is_empty() {
        metrics.push(cpu_target(json!(AIM)));
    }
    ensure(object, "spec").insert("metrics".to_owned(), Value::Array(metrics));
    let behavior = annotation(object, BEHAVIOR)
        .and_then(|written| serde_json::from_str(written).ok())
        .and_then(|written| behavior_from(&written));
    if let Some(behavior) = behavior {
        ensure(object, "spec").insert("behavior".to_owned(), behavior);
    }
    status_to_v2(object);
    drop_carriers(object);
}

fn status_to_v2(object: &mut Value) {
    let conditions: Option<Vec<Value>> =
        annotation(object, CONDITIONS).and_then(|written| serde_json::from_str(written).ok());
    let mut current = carried_metrics(object, CURRENT, &SEEN);
    if at(object, "status").is_some() {
        let percent = ensure(object, "status").remove("currentCPUUtilizationPercentage");
        if let (None, Some(percent)) = (&current, percent.filter(|percent| !percent.is_null())) {
            current = Some(vec![json!({
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": percent}},
            })]);
        }
    }
    if let Some(conditions) = conditions {
        ensure(object, "status").insert("conditions".to_owned(), Value::Array(conditions));
    }
    if at(object, "status").is_some() || current.is_some() {
        let status = ensure(object, "status");
        status.insert(
            "currentMetrics".to_owned(),
            current.map_or(Value::Null, Value::Array),
        );
        if status.get("currentReplicas") == Some(&json!(0)) {
            status.remove("currentReplicas");
        }
    }
}

/// The first utilisation of the CPU becomes the target; what v1 has no field for becomes annotations.
pub(crate) fn to_v1(object: &mut Value) {
    drop_carriers(object);
    let wanted = list(object, "spec.metrics");
    let target = wanted
        .iter()
        .find_map(|metric| cpu_percent(metric, "target"))
        .cloned();
    let others: Vec<&Value> = wanted
        .iter()
        .filter(|metric| cpu_percent(metric, "target").is_none())
        .collect();
    let metrics = written_metrics(&others, &WANTED);
    let seen: Vec<&Value> = list(object, "status.currentMetrics").iter().collect();
    let observed = seen
        .iter()
        .filter_map(|metric| cpu_percent(metric, "current"))
        .next_back()
        .cloned();
    let current = written_metrics(&seen, &SEEN);
    let conditions: Vec<String> = list(object, "status.conditions").iter().map(condition).collect();
    let conditions = (!conditions.is_empty()).then(|| format!("[{}]", conditions.join(",")));

    let spec = ensure(object, "spec");
    spec.remove("metrics");
    let behavior = spec.remove("behavior").filter(Value::is_object);
    if let Some(target) = target {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), target);
    }
    if at(object, "status").is_some() {
        let status = ensure(object, "status");
        status.remove("currentMetrics");
        status.remove("conditions");
        // v1 always says how many there are, v2 only when there are any.
        default(status, "currentReplicas", 0);
        if let Some(observed) = observed {
            status.insert("currentCPUUtilizationPercentage".to_owned(), observed);
        }
    }
    let carriers = [
        (METRICS, metrics),
        (CURRENT, current),
        (BEHAVIOR, behavior.as_ref().map(written_behavior)),
        (CONDITIONS, conditions),
    ];
    for (name, written) in carriers {
        if let Some(written) = written {
            ensure(object, "metadata.annotations").insert(name.to_owned(), Value::from(written));
        }
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn drop_carriers(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    for name in CARRIERS {
        annotations.remove(name);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn cpu_target(percent: Value) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    })
}

fn cpu_percent<'a>(metric: &'a Value, half: &str) -> Option<&'a Value> {
    let is_cpu = text(metric, "type") == "Resource" && text(metric, "resource.name") == "cpu";
    at(metric, &format!("resource.{half}.averageUtilization")).filter(|percent| is_cpu && !percent.is_null())
}

/// The metrics an annotation holds; none when it cannot be read.
fn carried_metrics(object: &Value, name: &str, known: &[Metric]) -> Option<Vec<Value>> {
    let written: Vec<Value> = serde_json::from_str(annotation(object, name)?).ok()?;
    written.iter().map(|metric| metric_from(metric, known)).collect()
}

/// A metric of v2 from its form in v1, without the type of its target.
fn metric_from(written: &Value, known: &[Metric]) -> Option<Value> {
    let written = written.as_object()?;
    let mut metric = json!({"type": written.get("type").cloned().unwrap_or_default()});
    for (_, holder, fields) in known {
        let Some(source) = written.get(*holder).filter(|source| !source.is_null()) else {
            continue;
        };
        let mut parts = json!({});
        for (old, new, form) in *fields {
            let value = source.get(*old).filter(|value| !value.is_null());
            let value = match (form, value) {
                (Form::Always, None) => json!("0"),
                (_, None) => continue,
                (Form::Quantity | Form::Always, Some(value)) => json!(quantity::canonical(value).ok()?),
                (Form::Plain | Form::Reference, Some(value)) => value.clone(),
            };
            let (parent, leaf) = new.rsplit_once('.').unwrap_or(("", new));
            ensure(&mut parts, parent).insert(leaf.to_owned(), value);
        }
        ensure(&mut metric, "").insert((*holder).to_owned(), parts);
    }
    Some(metric)
}

/// v1 tells the type of a target by the fields it has.
fn name_target(metric: &mut Value) {
    for (kind, holder, _) in WANTED {
        if at(metric, holder).is_none() {
            continue;
        }
        let target = ensure(metric, &format!("{holder}.target"));
        let name = match kind {
            "Object" if target.contains_key("averageValue") => {
                let zero = |value: &Value| Quantity::from_value(value).is_ok_and(|value| value.is_zero());
                if target.get("value").is_some_and(zero) {
                    target.remove("value");
                }
                "AverageValue"
            }
            "Object" => "Value",
            "External" if target.contains_key("value") => "Value",
            _ if target.contains_key("averageUtilization") => "Utilization",
            _ => "AverageValue",
        };
        target.insert("type".to_owned(), json!(name));
    }
}

fn written_metrics(metrics: &[&Value], known: &[Metric]) -> Option<String> {
    let written: Vec<String> = metrics
        .iter()
        .map(|metric| written_metric(metric, known))
        .collect();
    (!written.is_empty()).then(|| format!("[{}]", written.join(",")))
}

fn written_metric(metric: &Value, known: &[Metric]) -> String {
    let mut all = vec![("type", json!(text(metric, "type")).to_string())];
    for (_, holder, fields) in known {
        let Some(source) = metric.get(*holder).filter(|source| !source.is_null()) else {
            continue;
        };
        let parts = fields.iter().filter_map(|(old, new, form)| {
            let value = at(source, new).filter(|value| !value.is_null());
            let written = match (form, value) {
                (Form::Reference, value) => reference(value.unwrap_or(&Value::Null)),
                (Form::Always, None) => "\"0\"".to_owned(),
                (_, None) => return None,
                (_, Some(value)) => value.to_string(),
            };
            Some((*old, written))
        });
        all.push((*holder, braces(parts)));
    }
    braces(all)
}

fn reference(value: &Value) -> String {
    let mut parts = vec![
        ("kind", json!(text(value, "kind")).to_string()),
        ("name", json!(text(value, "name")).to_string()),
    ];
    if !text(value, "apiVersion").is_empty() {
        parts.push(("apiVersion", json!(text(value, "apiVersion")).to_string()));
    }
    braces(parts)
}

fn condition(condition: &Value) -> String {
    let changed = at(condition, "lastTransitionTime").unwrap_or(&Value::Null);
    let mut parts = vec![
        ("type", json!(text(condition, "type")).to_string()),
        ("status", json!(text(condition, "status")).to_string()),
        ("lastTransitionTime", changed.to_string()),
    ];
    for name in ["reason", "message"] {
        if !text(condition, name).is_empty() {
            parts.push((name, json!(text(condition, name)).to_string()));
        }
    }
    braces(parts)
}

fn braces<'a>(parts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", parts.join(","))
}

const RULES: [(&str, &str); 2] = [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")];
const RULE: [(&str, &str); 4] = [
    ("StabilizationWindowSeconds", "stabilizationWindowSeconds"),
    ("SelectPolicy", "selectPolicy"),
    ("Policies", "policies"),
    ("Tolerance", "tolerance"),
];
const POLICY: [(&str, &str); 3] = [
    ("Type", "type"),
    ("Value", "value"),
    ("PeriodSeconds", "periodSeconds"),
];

/// Behaviour is written with the names of the fields in the program, and nothing is left out.
fn written_behavior(behavior: &Value) -> String {
    let renamed =
        |value: &Value, names: &[(&'static str, &'static str)], deeper: &dyn Fn(&str, &Value) -> String| {
            braces(names.iter().map(|(old, new)| {
                let part = value.get(*new).unwrap_or(&Value::Null);
                (*old, deeper(new, part))
            }))
        };
    let as_it_is = |_: &str, value: &Value| value.to_string();
    let policies = |name: &str, value: &Value| match value.as_array().filter(|_| name == "policies") {
        None => value.to_string(),
        Some(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|policy| renamed(policy, &POLICY, &as_it_is))
                .collect();
            format!("[{}]", all.join(","))
        }
    };
    let rule = |_: &str, value: &Value| match value {
        Value::Object(_) => renamed(value, &RULE, &policies),
        other => other.to_string(),
    };
    renamed(behavior, &RULES, &rule)
}

/// Behaviour as v2 has it; none when it cannot be read or says nothing.
fn behavior_from(written: &Value) -> Option<Value> {
    let mut behavior = renamed_from(written.as_object()?, &RULES);
    for rule in behavior.values_mut() {
        let mut parts = renamed_from(rule.as_object()?, &RULE);
        if let Some(policies) = parts.get_mut("policies") {
            let read = |policy: &Value| Some(Value::Object(renamed_from(policy.as_object()?, &POLICY)));
            *policies = Value::Array(policies.as_array()?.iter().map(read).collect::<Option<_>>()?);
        }
        *rule = Value::Object(parts);
    }
    (!behavior.is_empty()).then_some(Value::Object(behavior))
}

/// The fields that are set, by their names in v2; letters may be large or small, as JSON is read there.
fn renamed_from(written: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let set = names.iter().filter_map(|(old, new)| {
        let found = written.iter().find(|(name, _)| name.eq_ignore_ascii_case(old));
        let value = found.map(|(_, value)| value).filter(|value| !value.is_null())?;
        Some(((*new).to_owned(), value.clone()))
    });
    set.collect()
}
