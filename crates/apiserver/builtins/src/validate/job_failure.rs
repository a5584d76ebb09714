// SPDX-License-Identifier: Apache-2.0
//! Rules of what a job makes of failed pods, and of who manages it.

use std::collections::BTreeSet;

use cobaltcore_schema::Cause;
use serde_json::Value;

use super::errors::Errors;
use crate::json::{at, int, list, text};
use crate::names;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;

/// What happens to a job whose pods fail.
pub(super) fn policy(errors: &mut Errors, spec: &Value, field: &str) {
    let rules = list(spec, "podFailurePolicy.rules");
    let field = format!("{field}.podFailurePolicy.rules");
    if rules.len() > MAX_RULES {
        errors.too_many(field.as_str(), rules.len(), MAX_RULES);
    }
    for (position, rule) in rules.iter().enumerate() {
        self::rule(errors, spec, rule, &format!("{field}[{position}]"));
    }
}

fn rule(errors: &mut Errors, spec: &Value, rule: &Value, path: &str) {
    let action = text(rule, "action");
    one_of(errors, action, &format!("{path}.action"), &ACTIONS);
    if action == "FailIndex" && int(spec, "backoffLimitPerIndex").is_none() {
        errors.invalid(
            format!("{path}.action"),
            action,
            "requires the backoffLimitPerIndex to be set",
        );
    }
    let codes = at(rule, "onExitCodes");
    if let Some(codes) = codes {
        exit_codes(errors, spec, codes, &format!("{path}.onExitCodes"));
    }
    let conditions = list(rule, "onPodConditions");
    for (position, condition) in conditions.iter().enumerate() {
        let path = format!("{path}.onPodConditions[{position}]");
        let kind = text(condition, "type");
        errors.all(&format!("{path}.type"), kind, names::qualified_name(kind));
        errors.choice(
            text(condition, "status"),
            &format!("{path}.status"),
            &["False", "True", "Unknown"],
        );
    }
    let problem = match (codes.is_some(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.raw(Cause::Invalid, path, format!("Invalid value: {problem}"));
}

fn exit_codes(errors: &mut Errors, spec: &Value, codes: &Value, path: &str) {
    let operator = text(codes, "operator");
    one_of(errors, operator, &format!("{path}.operator"), &OPERATORS);
    let container = text(codes, "containerName");
    let named = ["containers", "initContainers"]
        .iter()
        .flat_map(|kind| list(spec, &format!("template.spec.{kind}")))
        .any(|known| text(known, "name") == container);
    if !container.is_empty() && !named {
        errors.invalid(
            format!("{path}.containerName"),
            container,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let values = list(codes, "values");
    let field = format!("{path}.values");
    if values.is_empty() {
        errors.invalid(field, serde_json::json!([]), "at least one value is required");
        return;
    }
    if values.len() > MAX_CODES {
        errors.too_many(field, values.len(), MAX_CODES);
        return;
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = BTreeSet::new();
    for (position, number) in numbers.iter().enumerate() {
        let at = format!("{field}[{position}]");
        if operator == "In" && *number == 0 {
            errors.invalid(at.as_str(), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(number) {
            errors.duplicate(at, *number);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(field, values.to_vec(), "must be ordered");
    }
}

/// One of some values, which are told where none is given.
fn one_of(errors: &mut Errors, value: &str, field: &str, supported: &[&str]) {
    if value.is_empty() {
        let quoted: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        errors.required(field, &format!("valid values: [{}]", quoted.join(" ")));
    } else {
        errors.choice(value, field, supported);
    }
}

/// Who manages a job instead of the cluster is named like a label, with a domain.
pub(super) fn manager(errors: &mut Errors, spec: &Value, field: &str) {
    const LONGEST: usize = 63;
    let manager = text(spec, "managedBy");
    if manager.is_empty() {
        return;
    }
    let field = format!("{field}.managedBy");
    match manager.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            errors.all(&field, domain, names::dns1123_subdomain(domain));
        }
        _ => errors.invalid(
            field.as_str(),
            manager,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
    if manager.len() > LONGEST {
        errors.too_long(field, LONGEST);
    }
}
