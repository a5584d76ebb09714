// SPDX-License-Identifier: Apache-2.0
//! Rules of roles, bindings and access reviews.

use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, list, same, text};
use crate::names;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn rbac(errors: &mut Errors, object: &Value, old: Option<&Value>, kind: &str) {
    match kind {
        "Role" | "ClusterRole" => role(errors, object, kind == "Role"),
        _ => {
            binding(errors, object, kind == "RoleBinding");
            if old.is_some_and(|old| !same(at(old, "roleRef"), at(object, "roleRef"))) {
                let role = at(object, "roleRef").unwrap_or(&Value::Null);
                // The reference prints its internal struct.
                let shown = json!({
                    "APIGroup": text(role, "apiGroup"),
                    "Kind": text(role, "kind"),
                    "Name": text(role, "name"),
                });
                errors.invalid("roleRef", shown, "cannot change roleRef");
            }
        }
    }
}

fn role(errors: &mut Errors, object: &Value, namespaced: bool) {
    for (position, rule) in list(object, "rules").iter().enumerate() {
        self::rule(errors, rule, namespaced, &format!("rules[{position}]"));
    }
    if namespaced {
        return;
    }
    if let Some(aggregation) = at(object, "aggregationRule") {
        let selectors = list(aggregation, "clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(
                "aggregationRule.clusterRoleSelectors",
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            );
        }
        for (position, selector) in selectors.iter().enumerate() {
            let path = format!("aggregationRule.clusterRoleSelectors[{position}]");
            let before = errors.list.len();
            errors.selector(Some(selector), &path);
            if errors.list.len() > before {
                errors.invalid(path, Value::Null, "invalid label selector.");
            }
        }
    }
}

fn rule(errors: &mut Errors, rule: &Value, namespaced: bool, path: &str) {
    let empty = |name: &str| list(rule, name).is_empty();
    if empty("verbs") {
        errors.required(format!("{path}.verbs"), "verbs must contain at least one value");
    }
    if !empty("nonResourceURLs") {
        let field = format!("{path}.nonResourceURLs");
        let urls = json!(list(rule, "nonResourceURLs"));
        if namespaced {
            errors.invalid(
                field.as_str(),
                urls.clone(),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            errors.invalid(
                field,
                urls,
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    if empty("apiGroups") {
        errors.required(
            format!("{path}.apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if empty("resources") {
        errors.required(
            format!("{path}.resources"),
            "resource rules must supply at least one resource",
        );
    }
}

fn binding(errors: &mut Errors, object: &Value, namespaced: bool) {
    let group = text(object, "roleRef.apiGroup");
    if group != GROUP {
        errors.not_supported("roleRef.apiGroup", group, &[GROUP]);
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(object, "roleRef.kind");
    if !kinds.contains(&kind) {
        errors.not_supported("roleRef.kind", kind, kinds);
    }
    let name = text(object, "roleRef.name");
    if name.is_empty() {
        errors.required("roleRef.name", "");
    } else {
        errors.all("roleRef.name", name, names::path_segment(name));
    }
    for (position, subject) in list(object, "subjects").iter().enumerate() {
        self::subject(errors, subject, namespaced, &format!("subjects[{position}]"));
    }
}

fn subject(errors: &mut Errors, subject: &Value, namespaced: bool, path: &str) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.required(format!("{path}.name"), "");
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.all(&format!("{path}.name"), name, names::dns1123_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(format!("{path}.apiGroup"), group, &[""]);
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.required(format!("{path}.namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(format!("{path}.apiGroup"), group, &[GROUP]);
            }
        }
        other => errors.not_supported(
            format!("{path}.kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

/// Access reviews: exactly one kind of question, somebody it is about.
pub(super) fn review(errors: &mut Errors, object: &Value, kind: &str) {
    if kind == "SelfSubjectRulesReview" {
        return;
    }
    let resource = at(object, "spec.resourceAttributes");
    let path = at(object, "spec.nonResourceAttributes");
    match (resource.is_some(), path.is_some()) {
        (true, true) => errors.invalid(
            "spec.nonResourceAttributes",
            path.cloned().unwrap_or(Value::Null),
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, false) => errors.invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    if kind == "SelfSubjectAccessReview" {
        return;
    }
    if text(object, "spec.user").is_empty() && list(object, "spec.groups").is_empty() {
        errors.invalid("spec.user", "", "at least one of user or group must be specified");
    }
    if kind == "LocalSubjectAccessReview" {
        let namespace = text(object, "metadata.namespace");
        let asked = text(object, "spec.resourceAttributes.namespace");
        if resource.is_some() && asked != namespace {
            errors.invalid(
                "spec.resourceAttributes.namespace",
                asked,
                "must match metadata.namespace",
            );
        }
        if path.is_some() {
            errors.invalid(
                "spec.nonResourceAttributes",
                path.cloned().unwrap_or(Value::Null),
                "disallowed on this kind of request",
            );
        }
    }
}
