// SPDX-License-Identifier: Apache-2.0
//! Rules of admission policies and their bindings. Whether expressions compile is checked by the
//! server, which owns the expression checker.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::Errors;
use super::webhook::{match_conditions, rule};
use crate::json::{at, list, strings, text};
use crate::names;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// A policy; those that change objects say how instead of what must hold.
pub(super) fn policy(errors: &mut Errors, object: &Value, kind: &str) {
    errors.optional_choice(
        at(object, "spec.failurePolicy"),
        "spec.failurePolicy",
        &["Fail", "Ignore"],
    );
    if at(object, "spec.paramKind").is_some() {
        param_kind(errors, object);
    }
    if at(object, "spec.matchConstraints").is_none() {
        errors.required("spec.matchConstraints", "");
    } else {
        match_resources(errors, object, "spec.matchConstraints");
        if list(object, "spec.matchConstraints.resourceRules").is_empty() {
            errors.required("spec.matchConstraints.resourceRules", "");
        }
    }
    match_conditions(errors, object, "spec.matchConditions", "spec.matchConditions");
    for (position, variable) in list(object, "spec.variables").iter().enumerate() {
        self::variable(errors, variable, &format!("spec.variables[{position}]"));
    }
    if kind == "ValidatingAdmissionPolicy" {
        judgements(errors, object);
    } else {
        mutations(errors, object);
    }
}

/// What a policy changes, and whether it is asked again.
fn mutations(errors: &mut Errors, object: &Value) {
    let mutations = list(object, "spec.mutations");
    if mutations.is_empty() {
        errors.required("spec.mutations", "mutations must contain at least one item");
    }
    for (position, mutation) in mutations.iter().enumerate() {
        let path = format!("spec.mutations[{position}]");
        let (given, other) = match text(mutation, "patchType") {
            "" => {
                errors.required(format!("{path}.patchType"), "");
                continue;
            }
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            unknown => {
                let supported = ["ApplyConfiguration", "JSONPatch"];
                errors.choice(unknown, &format!("{path}.patchType"), &supported);
                continue;
            }
        };
        match at(mutation, given) {
            None => {
                let kind = text(mutation, "patchType");
                errors.required(
                    format!("{path}.{given}"),
                    &format!("must be specified when patchType is {kind}"),
                );
            }
            Some(change) if text(change, "expression").trim().is_empty() => {
                errors.required(format!("{path}.{given}.expression"), "");
            }
            Some(_) => {}
        }
        if at(mutation, other).is_some() {
            let kind = text(mutation, "patchType");
            errors.invalid(
                format!("{path}.{other}"),
                format!("{{{other}}}"),
                &format!("must not be specified when patchType is {kind}"),
            );
        }
    }
    match text(object, "spec.reinvocationPolicy") {
        "" => errors.required("spec.reinvocationPolicy", ""),
        policy => errors.choice(policy, "spec.reinvocationPolicy", &["IfNeeded", "Never"]),
    }
}

fn param_kind(errors: &mut Errors, object: &Value) {
    let (version, kind) = (
        text(object, "spec.paramKind.apiVersion"),
        text(object, "spec.paramKind.kind"),
    );
    if version.is_empty() {
        errors.required("spec.paramKind.apiVersion", "");
    } else {
        let parts: Vec<&str> = version.split('/').collect();
        if parts.len() > 2 {
            errors.invalid(
                "spec.paramKind.apiVersion",
                version,
                &format!("unexpected GroupVersion string: {version}"),
            );
        } else if let Some(last) = parts.last() {
            errors.all("spec.paramKind.apiVersion", last, names::dns1035_label(last));
        }
    }
    if kind.is_empty() {
        errors.required("spec.paramKind.kind", "");
    } else {
        let lower = kind.to_lowercase();
        let problems = names::dns1035_label(&lower);
        if !problems.is_empty() {
            errors.invalid(
                "spec.paramKind.kind",
                kind,
                &format!(
                    "may have mixed case, but should otherwise match: {}",
                    problems.join(",")
                ),
            );
        }
    }
}

fn variable(errors: &mut Errors, variable: &Value, path: &str) {
    let name = text(variable, "name");
    if name.is_empty() {
        errors.required(format!("{path}.name"), "name is not specified");
    } else if !is_identifier(name) {
        errors.invalid(format!("{path}.name"), name, "must be a valid CEL identifier");
    }
    if text(variable, "expression").trim().is_empty() {
        errors.required(format!("{path}.expression"), "expression is not specified");
    }
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Validations and audit annotations; at least one of them is there.
fn judgements(errors: &mut Errors, object: &Value) {
    let (validations, annotations) = (
        list(object, "spec.validations"),
        list(object, "spec.auditAnnotations"),
    );
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required("spec.validations", detail);
        errors.required("spec.auditAnnotations", detail);
        return;
    }
    for (position, validation) in validations.iter().enumerate() {
        self::validation(errors, validation, &format!("spec.validations[{position}]"));
    }
    let mut seen = BTreeSet::new();
    for (position, annotation) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{position}]");
        let key = text(annotation, "key");
        // Annotations are kept under the name of their policy.
        let qualified = format!("{}/{key}", text(object, "metadata.name"));
        errors.all(
            &format!("{path}.key"),
            &qualified,
            names::qualified_name(&qualified),
        );
        if !key.is_empty() && !seen.insert(key) {
            errors.duplicate(format!("{path}.key"), key);
        }
        if text(annotation, "valueExpression").trim().is_empty() {
            errors.required(
                format!("{path}.valueExpression"),
                "valueExpression is not specified",
            );
        }
    }
}

fn validation(errors: &mut Errors, validation: &Value, path: &str) {
    let expression = text(validation, "expression").trim();
    if expression.is_empty() {
        errors.required(format!("{path}.expression"), "expression is not specified");
    }
    let message = at(validation, "message").and_then(Value::as_str);
    let field = format!("{path}.message");
    match message {
        Some(text) if text.trim().is_empty() && !text.is_empty() => {
            errors.invalid(field, text, "must be non-empty if specified");
        }
        Some(text) if text.trim().contains('\n') => {
            errors.invalid(field, text, "must not contain line breaks");
        }
        _ => {}
    }
    if at(validation, "messageExpression").is_some_and(|v| v.as_str().is_some_and(|t| t.trim().is_empty())) {
        errors.required(
            format!("{path}.messageExpression"),
            "must be non-empty if specified",
        );
    }
    errors.optional_choice(at(validation, "reason"), &format!("{path}.reason"), &REASONS);
}

/// What was found out about a policy.
pub(super) fn status(errors: &mut Errors, object: &Value) {
    const WARNINGS: &str = "status.typeChecking.expressionWarnings";
    for (position, warning) in list(object, WARNINGS).iter().enumerate() {
        for name in ["warning", "fieldRef"] {
            if text(warning, name).is_empty() {
                errors.required(format!("{WARNINGS}[{position}].{name}"), "");
            }
        }
    }
    errors.conditions(object, "status.conditions");
}

fn match_resources(errors: &mut Errors, object: &Value, path: &str) {
    errors.optional_choice(
        at(object, &format!("{path}.matchPolicy")),
        &format!("{path}.matchPolicy"),
        &["Equivalent", "Exact"],
    );
    for name in ["namespaceSelector", "objectSelector"] {
        let field = format!("{path}.{name}");
        errors.selector(at(object, &field), &field);
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let field = format!("{path}.{name}");
        for (position, one) in list(object, &field).iter().enumerate() {
            let at_path = format!("{field}[{position}]");
            rule(errors, one, &at_path);
            let mut seen = BTreeSet::new();
            for (index, name) in strings(one, "resourceNames").into_iter().enumerate() {
                if !seen.insert(name) {
                    errors.duplicate(format!("{at_path}.resourceNames[{index}]"), name);
                }
            }
        }
    }
}

/// A binding.
pub(super) fn binding(errors: &mut Errors, object: &Value, kind: &str) {
    let policy = text(object, "spec.policyName");
    if policy.is_empty() {
        errors.required("spec.policyName", "");
    } else {
        errors.all("spec.policyName", policy, names::dns1123_subdomain(policy));
    }
    if let Some(reference) = at(object, "spec.paramRef") {
        param_ref(errors, reference);
    }
    if at(object, "spec.matchResources").is_some() {
        match_resources(errors, object, "spec.matchResources");
    }
    if kind.starts_with("Validating") {
        actions(errors, object);
    }
}

fn param_ref(errors: &mut Errors, reference: &Value) {
    let (name, selector) = (text(reference, "name"), at(reference, "selector"));
    match (name.is_empty(), selector) {
        (true, None) => errors.required("spec.paramRef", "one of name or selector must be specified"),
        (false, Some(_)) => {
            for field in ["spec.paramRef.name", "spec.paramRef.selector"] {
                errors.forbidden(field, "name and selector are mutually exclusive");
            }
        }
        (false, None) => errors.all("spec.paramRef.name", name, names::path_segment(name)),
        (true, Some(_)) => errors.selector(selector, "spec.paramRef.selector"),
    }
    match at(reference, "parameterNotFoundAction") {
        None => errors.required("spec.paramRef.parameterNotFoundAction", ""),
        some => errors.optional_choice(some, "spec.paramRef.parameterNotFoundAction", &["Deny", "Allow"]),
    }
}

fn actions(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.validationActions";
    let actions = strings(object, FIELD);
    if actions.is_empty() {
        errors.required(FIELD, "at least one validation action is required");
    }
    let mut seen = BTreeSet::new();
    for (position, action) in actions.iter().enumerate() {
        let path = format!("{FIELD}[{position}]");
        if !["Audit", "Deny", "Warn"].contains(action) {
            errors.not_supported(path.as_str(), *action, &["Audit", "Deny", "Warn"]);
        }
        if !seen.insert(*action) {
            errors.duplicate(path, *action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.invalid(
            FIELD,
            serde_json::json!(actions),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        );
    }
}
