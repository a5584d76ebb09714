// SPDX-License-Identifier: Apache-2.0
//! Rules of quotas and limit ranges.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, entries, list, strings, text};
use crate::names;
use crate::quantity::Quantity;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

pub(super) fn quota(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    for (name, amount) in entries(object, "spec.hard") {
        let field = format!("spec.hard[{name}]");
        super::resources::quota_name(errors, name, &field);
        errors.amount(name, amount, &field);
    }
    let scopes = strings(object, "spec.scopes");
    let shown = json!(list(object, "spec.scopes"));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid("spec.scopes", shown.clone(), "unsupported scope");
        }
        misapplied(errors, object, scope, "spec.scopes", &shown);
    }
    conflicting(errors, &scopes, "spec.scopes", &shown);
    if at(object, "spec.scopeSelector").is_some() {
        scope_selector(errors, object);
    }
    let set = |scopes: Vec<&'_ str>| scopes.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    if old.is_some_and(|old| set(strings(old, "spec.scopes")) != set(scopes)) {
        errors.invalid("spec.scopes", shown, "field is immutable");
    }
}

/// What each scope can be counted by.
fn misapplied(errors: &mut Errors, object: &Value, scope: &str, field: &str, shown: &Value) {
    const PODS: [&str; 1] = ["pods"];
    const COMPUTE: [&str; 6] = [
        "cpu",
        "memory",
        "limits.cpu",
        "limits.memory",
        "requests.cpu",
        "requests.memory",
    ];
    const CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
    for (name, _) in entries(object, "spec.hard") {
        let name = name.as_str();
        let fits = match scope {
            "BestEffort" => PODS.contains(&name),
            "VolumeAttributesClass" => CLAIMS.contains(&name),
            known if SCOPES.contains(&known) => PODS.contains(&name) || COMPUTE.contains(&name),
            _ => true,
        };
        if !fits && is_standard_for_quota(name) {
            errors.invalid(field, shown.clone(), "unsupported scope applied to resource");
        }
    }
}

fn is_standard_for_quota(name: &str) -> bool {
    !name.contains('/') && super::resources::standard_resource(name) && name != "storage"
}

fn conflicting(errors: &mut Errors, scopes: &[&str], field: &str, shown: &Value) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(field, shown.clone(), "conflicting scopes");
        }
    }
}

fn scope_selector(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.scopeSelector.matchExpressions";
    let selector = at(object, "spec.scopeSelector").cloned().unwrap_or_default();
    let mut scopes = Vec::new();
    for requirement in list(object, FIELD) {
        let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(format!("{FIELD}.scopeName"), scope, "unsupported scope");
        }
        misapplied(errors, object, scope, FIELD, &selector);
        let only_exists =
            SCOPES.contains(&scope) && !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if only_exists && operator != "Exists" {
            errors.invalid(
                format!("{FIELD}.operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        let values = list(requirement, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.required(
                format!("{FIELD}.values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.invalid(
                format!("{FIELD}.values"),
                json!(values),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(
                format!("{FIELD}.operator"),
                other,
                "not a valid selector operator",
            ),
        }
        scopes.push(scope);
    }
    conflicting(errors, &scopes, "spec.scopeSelector.matchExpressions", &selector);
}

pub(super) fn limit_range(errors: &mut Errors, object: &Value) {
    let mut seen = BTreeSet::new();
    for (position, item) in list(object, "spec.limits").iter().enumerate() {
        let path = format!("spec.limits[{position}]");
        let kind = text(item, "type");
        let problems = names::qualified_name(kind);
        let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if problems.is_empty() && !kind.contains('/') && !standard {
            errors.invalid(
                format!("{path}.type"),
                kind,
                "must be a standard limit type or fully qualified",
            );
        }
        errors.all(&format!("{path}.type"), kind, problems);
        if !seen.insert(kind) {
            errors.duplicate(format!("{path}.type"), kind);
        }
        limited_names(errors, item, kind, &path);
        if kind == "Pod" {
            for name in ["default", "defaultRequest"] {
                if at(item, name).is_some() {
                    errors.forbidden(
                        format!("{path}.{name}"),
                        "may not be specified when `type` is 'Pod'",
                    );
                }
            }
        }
        let bounded = |part: &str| entries(item, part).any(|(name, _)| name == "storage");
        if kind == "PersistentVolumeClaim" && !bounded("min") && !bounded("max") {
            errors.required(
                format!("{path}.limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        limit_order(errors, item, &path);
    }
}

/// What is limited has a name that pods and containers, or others, can have.
fn limited_names(errors: &mut Errors, item: &Value, kind: &str, path: &str) {
    let running = matches!(kind, "Pod" | "Container");
    let parts: &[&str] = if kind == "Pod" {
        &["max", "min", "maxLimitRequestRatio"]
    } else {
        &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    };
    for part in parts {
        for (name, _) in entries(item, part) {
            let field = format!("{path}.{part}[{name}]");
            if running {
                super::resources::resource_name(errors, name, &field, false);
            } else {
                super::resources::any_name(errors, name, &field);
            }
        }
    }
}

/// What the controller says of a quota.
pub(super) fn quota_status(errors: &mut Errors, object: &Value) {
    for part in ["status.hard", "status.used"] {
        for (name, amount) in entries(object, part) {
            let field = format!("{part}[{name}]");
            super::resources::quota_name(errors, name, &field);
            errors.amount(name, amount, &field);
        }
    }
}

/// min <= defaultRequest <= default <= max, for every resource.
fn limit_order(errors: &mut Errors, item: &Value, path: &str) {
    let amount = |list: &str, name: &str| {
        entries(item, list)
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| Quantity::from_value(value).ok())
    };
    let parts = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];
    let resources: BTreeSet<&String> = parts
        .iter()
        .flat_map(|part| entries(item, part))
        .map(|(name, _)| name)
        .collect();
    for name in resources {
        for (low, low_text, high, high_text, at_field) in [
            ("min", "min value", "max", "max value", "min"),
            (
                "min",
                "min value",
                "defaultRequest",
                "default request value",
                "defaultRequest",
            ),
            (
                "defaultRequest",
                "default request value",
                "max",
                "max value",
                "defaultRequest",
            ),
            (
                "defaultRequest",
                "default request value",
                "default",
                "default limit value",
                "defaultRequest",
            ),
            ("min", "min value", "default", "default value", "default"),
            ("default", "default value", "max", "max value", "default"),
        ] {
            if let (Some(a), Some(b)) = (amount(low, name), amount(high, name))
                && a > b
            {
                // At the default the reference shows what it was compared with.
                let shown = match (at_field, low) {
                    ("default", "min") => "min",
                    ("default", _) => "max",
                    (own, _) => own,
                };
                let shown = amount(shown, name).map_or(Value::Null, |value| json!(value.to_string()));
                errors.invalid(
                    format!("{path}.{at_field}[{name}]"),
                    shown,
                    &format!("{low_text} {a} is greater than {high_text} {b}"),
                );
            }
        }
        if let Some(ratio) = amount("maxLimitRequestRatio", name) {
            limit_ratio(errors, &ratio, amount("min", name), amount("max", name), {
                format!("{path}.maxLimitRequestRatio[{name}]")
            });
        }
    }
}

/// A limit is at least what is requested, and at most the largest over the smallest allowed.
fn limit_ratio(
    errors: &mut Errors,
    ratio: &Quantity,
    min: Option<Quantity>,
    max: Option<Quantity>,
    field: String,
) {
    if *ratio < Quantity::from_integer(1) {
        errors.invalid(
            field.clone(),
            ratio.to_string(),
            &format!("ratio {ratio} is less than 1"),
        );
    }
    if let (Some(min), Some(max)) = (min, max) {
        #[allow(
            clippy::cast_precision_loss,
            reason = "compared and printed as the reference does"
        )]
        let (most, wanted) = (
            max.milli_value() as f64 / min.milli_value() as f64,
            ratio.milli_value() as f64 / 1000.0,
        );
        if wanted > most {
            errors.invalid(
                field,
                ratio.to_string(),
                &format!("ratio {ratio} is greater than max/min = {most:.6}"),
            );
        }
    }
}
