// SPDX-License-Identifier: Apache-2.0
//! Rules about where pods go and how many: affinity, tolerations, spreading, budgets, autoscalers,
//! quotas, limits, priority and runtime classes.

use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, flag, int, list, number, same, strings, text};
use crate::names;
use crate::quantity::Quantity;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(errors: &mut Errors, spec: &Value, field: &str) {
    if let Some(node) = at(spec, "affinity.nodeAffinity") {
        let path = format!("{field}.nodeAffinity");
        if let Some(selector) = at(node, REQUIRED) {
            let terms = format!("{path}.{REQUIRED}.nodeSelectorTerms");
            if list(selector, "nodeSelectorTerms").is_empty() {
                errors.required(terms.as_str(), "must have at least one node selector term");
            }
            for (position, term) in list(selector, "nodeSelectorTerms").iter().enumerate() {
                node_term(errors, term, &format!("{terms}[{position}]"));
            }
        }
        for (position, term) in list(node, PREFERRED).iter().enumerate() {
            let at_path = format!("{path}.{PREFERRED}[{position}]");
            weight(errors, term, &at_path);
            node_term(
                errors,
                at(term, "preference").unwrap_or(&Value::Null),
                &format!("{at_path}.preference"),
            );
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = at(spec, &format!("affinity.{kind}")) else {
            continue;
        };
        for (position, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_term(errors, term, &format!("{field}.{kind}.{REQUIRED}[{position}]"));
        }
        for (position, term) in list(pods, PREFERRED).iter().enumerate() {
            let path = format!("{field}.{kind}.{PREFERRED}[{position}]");
            weight(errors, term, &path);
            pod_term(
                errors,
                at(term, "podAffinityTerm").unwrap_or(&Value::Null),
                &format!("{path}.podAffinityTerm"),
            );
        }
    }
}

fn weight(errors: &mut Errors, term: &Value, path: &str) {
    let weight = number(term, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(format!("{path}.weight"), weight, "must be in the range 1-100");
    }
}

pub(super) fn node_term(errors: &mut Errors, term: &Value, path: &str) {
    for (position, requirement) in list(term, "matchExpressions").iter().enumerate() {
        errors.requirement(
            requirement,
            &format!("{path}.matchExpressions[{position}]"),
            &["Gt", "Lt"],
        );
    }
    for (position, requirement) in list(term, "matchFields").iter().enumerate() {
        let field = format!("{path}.matchFields[{position}]");
        let operator = text(requirement, "operator");
        if matches!(operator, "In" | "NotIn") {
            if list(requirement, "values").len() != 1 {
                errors.required(
                    format!("{field}.values"),
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
        } else {
            errors.invalid(
                format!("{field}.operator"),
                operator,
                "not a valid selector operator",
            );
        }
        let key = text(requirement, "key");
        if key != "metadata.name" {
            errors.invalid(format!("{field}.key"), key, "not a valid field selector key");
        }
    }
}

fn pod_term(errors: &mut Errors, term: &Value, path: &str) {
    errors.selector(at(term, "labelSelector"), &format!("{path}.labelSelector"));
    errors.selector(
        at(term, "namespaceSelector"),
        &format!("{path}.namespaceSelector"),
    );
    for name in strings(term, "namespaces") {
        errors.all(&format!("{path}.namespace"), name, names::dns1123_label(name));
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(format!("{path}.topologyKey"), "can not be empty");
    }
    errors.all(&format!("{path}.topologyKey"), key, names::qualified_name(key));
}

pub(super) fn tolerations(errors: &mut Errors, tolerations: &[Value], field: &str) {
    for (position, toleration) in tolerations.iter().enumerate() {
        let path = format!("{field}[{position}]");
        let (key, operator, effect) = (
            text(toleration, "key"),
            text(toleration, "operator"),
            text(toleration, "effect"),
        );
        if !key.is_empty() {
            errors.all(&format!("{path}.key"), key, names::qualified_name(key));
        }
        if key.is_empty() && operator != "Exists" {
            errors.invalid(
                format!("{path}.operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if int(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            errors.invalid(
                format!("{path}.effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        let value = text(toleration, "value");
        match operator {
            "Equal" | "" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.invalid(format!("{path}.operator"), value, &problems.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(
                        format!("{path}.operator"),
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            "Lt" | "Gt" => {
                errors.not_supported(
                    format!("{path}.operator"),
                    operator,
                    &["Equal", "Exists", "Lt", "Gt"],
                );
            }
            other => errors.not_supported(format!("{path}.operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.choice(effect, &format!("{path}.effect"), &effects);
        }
    }
}

pub(super) fn spread(errors: &mut Errors, spec: &Value, field: &str) {
    let constraints = list(spec, "topologySpreadConstraints");
    for (position, constraint) in constraints.iter().enumerate() {
        let path = format!("{field}[{position}]");
        let skew = number(constraint, "maxSkew");
        if skew <= 0 {
            errors.invalid(format!("{path}.maxSkew"), skew, "must be greater than zero");
        }
        let (key, action) = (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        );
        if key.is_empty() {
            errors.required(format!("{path}.topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(
                format!("{path}.whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            );
        }
        let repeated = constraints
            .iter()
            .skip(position + 1)
            .any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
        if repeated {
            errors.duplicate(
                format!("{path}.{{topologyKey, whenUnsatisfiable}}"),
                format!("{{{key}, {action}}}"),
            );
        }
        if let Some(least) = int(constraint, "minDomains") {
            if least <= 0 {
                errors.invalid(format!("{path}.minDomains"), least, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                errors.invalid(
                    format!("{path}.minDomains"),
                    least,
                    &format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                );
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.optional_choice(
                at(constraint, policy),
                &format!("{path}.{policy}"),
                &["Honor", "Ignore"],
            );
        }
        errors.selector(at(constraint, "labelSelector"), &format!("{path}.labelSelector"));
    }
}

pub(super) fn budget(errors: &mut Errors, object: &Value) {
    let (least, most) = (at(object, "spec.minAvailable"), at(object, "spec.maxUnavailable"));
    if least.is_some() && most.is_some() {
        // The reference prints its internal struct.
        errors.invalid_struct(
            "spec",
            &[
                ("MinAvailable", least),
                ("Selector", at(object, "spec.selector")),
                ("MaxUnavailable", most),
                (
                    "UnhealthyPodEvictionPolicy",
                    at(object, "spec.unhealthyPodEvictionPolicy"),
                ),
            ],
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for (value, field) in [(least, "spec.minAvailable"), (most, "spec.maxUnavailable")] {
        errors.int_or_percent(value, field);
        errors.at_most_all(value, field);
    }
    errors.selector(at(object, "spec.selector"), "spec.selector");
    errors.optional_choice(
        at(object, "spec.unhealthyPodEvictionPolicy"),
        "spec.unhealthyPodEvictionPolicy",
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

/// What is scaled is named with its group; only replication controllers have none.
fn target_version(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.scaleTargetRef.apiVersion";
    let version = text(object, FIELD);
    match version.matches('/').count() {
        0 if text(object, "spec.scaleTargetRef.kind") == "ReplicationController" => {}
        0 => errors.invalid(FIELD, version, "apiVersion must specify API group"),
        1 if version.starts_with('/') => {
            errors.invalid(FIELD, version, "apiVersion must specify API group");
        }
        1 => {}
        _ => errors.invalid(
            FIELD,
            version,
            &format!("unexpected GroupVersion string: {version}"),
        ),
    }
}

pub(super) fn autoscaler(errors: &mut Errors, object: &Value, version: &str) {
    // v1 is judged by what it becomes, with all that its annotations hold.
    if version == "v1" {
        let mut new = object.clone();
        crate::autoscaler::to_v2(&mut new);
        return autoscaler(errors, &new, "v2");
    }
    let least = int(object, "spec.minReplicas");
    let most = number(object, "spec.maxReplicas");
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    if most == 0 {
        errors.required("spec.maxReplicas", "must be set and greater than 0");
    } else if most < 0 {
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1");
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid(
            "spec.maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
    for name in ["kind", "name"] {
        let field = format!("spec.scaleTargetRef.{name}");
        let value = text(object, &field);
        if value.is_empty() {
            errors.required(field, "");
        } else {
            errors.all(&field, value, names::path_segment(value));
        }
    }
    target_version(errors, object);
    for (position, metric) in list(object, "spec.metrics").iter().enumerate() {
        self::metric(errors, metric, &format!("spec.metrics[{position}]"));
    }
    let scales_to_zero = list(object, "spec.metrics")
        .iter()
        .any(|metric| matches!(text(metric, "type"), "Object" | "External"));
    if least == Some(0) && !scales_to_zero {
        errors.forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = at(object, &format!("spec.behavior.{direction}")) {
            scaling_rules(errors, rules, &format!("spec.behavior.{direction}"));
        }
    }
}

fn metric(errors: &mut Errors, metric: &Value, path: &str) {
    const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = text(metric, "type");
    if kind.is_empty() {
        errors.required(format!("{path}.type"), "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(format!("{path}.type"), kind, &TYPES);
    }
    let expected = match kind {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "External" => "external",
        "ContainerResource" => "containerResource",
        _ => "",
    };
    let sources = ["object", "external", "pods", "resource", "containerResource"];
    let given: Vec<&str> = sources
        .into_iter()
        .filter(|source| at(metric, source).is_some())
        .collect();
    if let Some(first) = given.first() {
        metric_source(errors, metric, first, path);
    }
    if expected.is_empty() {
        // A type nobody knows has no source either, and is named once more.
        errors.not_supported(format!("{path}.type"), kind, &TYPES);
    }
    if !expected.is_empty() && !given.contains(&expected) {
        errors.required(
            format!("{path}.{expected}"),
            "must populate information for the given metric source",
        );
    }
    if given.len() != 1 {
        for other in given.iter().filter(|source| **source != expected) {
            errors.forbidden(
                format!("{path}.{other}"),
                "must populate the given metric source only",
            );
        }
    }
}

fn metric_source(errors: &mut Errors, metric: &Value, source: &str, path: &str) {
    let body = at(metric, source).unwrap_or(&Value::Null);
    let field = format!("{path}.{source}");
    let target = at(body, "target").unwrap_or(&Value::Null);
    if matches!(source, "resource" | "containerResource") {
        if text(body, "name").is_empty() {
            errors.required(format!("{field}.name"), "must specify a resource name");
        }
        if source == "containerResource" && text(body, "container").is_empty() {
            errors.required(format!("{field}.container"), "must specify a container");
        }
    } else if text(body, "metric.name").is_empty() {
        errors.required(format!("{field}.metric.name"), "must specify a metric name");
    }
    metric_target(errors, target, &format!("{field}.target"));
    let has = |name: &str| at(target, name).is_some();
    match source {
        "resource" | "containerResource" => {
            if !has("averageUtilization") && !has("averageValue") {
                errors.required(
                    format!("{field}.target.averageUtilization"),
                    "must set either a target raw value or a target utilization",
                );
            }
            if has("averageUtilization") && has("averageValue") {
                errors.forbidden(
                    format!("{field}.target.averageValue"),
                    "may not set both a target raw value and a target utilization",
                );
            }
        }
        "pods" => {
            if !has("averageValue") {
                errors.required(
                    format!("{field}.target.averageValue"),
                    "must specify a positive target averageValue",
                );
            }
        }
        _ => {
            if !has("value") && !has("averageValue") {
                errors.required(
                    format!("{field}.target.averageValue"),
                    "must set either a target value for metric or a per-pod target",
                );
            }
        }
    }
}

fn metric_target(errors: &mut Errors, target: &Value, field: &str) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.required(format!("{field}.type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(
            format!("{field}.type"),
            kind,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for name in ["value", "averageValue"] {
        let amount = at(target, name).and_then(|value| Quantity::from_value(value).ok());
        if let Some(amount) = amount.filter(|amount| amount.is_zero() || amount.is_negative()) {
            errors.invalid(format!("{field}.{name}"), amount.to_string(), "must be positive");
        }
    }
    if let Some(percent) = int(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(
            format!("{field}.averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
}

/// What a controller says of a scaler.
pub(super) fn autoscaler_status(errors: &mut Errors, object: &Value) {
    for name in ["status.currentReplicas", "status.desiredReplicas"] {
        errors.non_negative(object, name, name);
    }
}

fn scaling_rules(errors: &mut Errors, rules: &Value, field: &str) {
    if let Some(seconds) = int(rules, "stabilizationWindowSeconds") {
        let path = format!("{field}.stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(path.as_str(), seconds, "must be greater than or equal to zero");
        }
        if seconds > 3600 {
            errors.invalid(path, seconds, "must be less than or equal to 3600");
        }
    }
    errors.optional_choice(
        at(rules, "selectPolicy"),
        &format!("{field}.selectPolicy"),
        &["Disabled", "Max", "Min"],
    );
    if list(rules, "policies").is_empty() {
        errors.required(format!("{field}.policies"), "must specify at least one Policy");
    }
    for (position, policy) in list(rules, "policies").iter().enumerate() {
        let path = format!("{field}.policies[{position}]");
        let kind = text(policy, "type");
        if !matches!(kind, "Pods" | "Percent") {
            errors.not_supported(format!("{path}.type"), kind, &["Percent", "Pods"]);
        }
        for name in ["value", "periodSeconds"] {
            if number(policy, name) <= 0 {
                errors.invalid(
                    format!("{path}.{name}"),
                    number(policy, name),
                    "must be greater than zero",
                );
            }
        }
        if number(policy, "periodSeconds") > 1800 {
            errors.invalid(
                format!("{path}.periodSeconds"),
                number(policy, "periodSeconds"),
                "must be less than or equal to 1800",
            );
        }
    }
    if let Some(tolerance) = at(rules, "tolerance") {
        errors.amount("tolerance", tolerance, &format!("{field}.tolerance"));
    }
}

/// Priorities above this belong to the system.
const HIGHEST: i64 = 1_000_000_000;

pub(super) fn priority_class(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        if number(object, "value") != number(old, "value") {
            errors.forbidden("value", "may not be changed in an update.");
        }
        errors.immutable("preemptionPolicy", object, old, "preemptionPolicy");
        return;
    }
    let (name, value) = (text(object, "metadata.name"), number(object, "value"));
    if name.starts_with("system-") {
        let known = match name {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let problem = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some(wanted) if wanted != value => {
                Some(format!("value of {name} PriorityClass must be {wanted}"))
            }
            Some(_) if flag(object, "globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            errors.forbidden(
                "metadata.name",
                &format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}"),
            );
        }
    } else if value > HIGHEST {
        errors.forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    errors.optional_choice(
        at(object, "preemptionPolicy"),
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
    );
}

pub(super) fn runtime_class(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let handler = text(object, "handler");
    if handler.is_empty() {
        errors.required("handler", "");
    } else {
        errors.all("handler", handler, names::dns1123_label(handler));
    }
    // What every pod costs in addition is limited like a container.
    if let Some(fixed) = at(object, "overhead.podFixed") {
        super::resources::resources(errors, &json!({"limits": fixed}), "overhead", false);
    }
    errors.labels(object, "scheduling.nodeSelector", "scheduling.nodeSelector");
    tolerations(
        errors,
        list(object, "scheduling.tolerations"),
        "scheduling.tolerations",
    );
    if let Some(old) = old
        && !same(at(object, "handler"), at(old, "handler"))
    {
        errors.invalid("handler", handler, "field is immutable");
    }
}
