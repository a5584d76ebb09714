// SPDX-License-Identifier: Apache-2.0
//! Rules of webhook configurations. Whether match conditions compile and CA bundles parse is checked
//! by the server, which owns the expression checker and the TLS stack.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, int, list, number, strings, text};
use crate::names;

pub(super) fn admission(errors: &mut Errors, object: &Value, kind: &str) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let mut seen = BTreeSet::new();
            for (position, webhook) in list(object, "webhooks").iter().enumerate() {
                let path = format!("webhooks[{position}]");
                self::webhook(errors, webhook, &path, kind.starts_with("Mutating"));
                review_versions(errors, webhook, &format!("{path}.admissionReviewVersions"));
                let name = text(webhook, "name");
                if !name.is_empty() && !seen.insert(name) {
                    errors.duplicate(format!("{path}.name"), name);
                }
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            super::policy::binding(errors, object, kind);
        }
        _ => super::policy::policy(errors, object, kind),
    }
}

fn webhook(errors: &mut Errors, webhook: &Value, path: &str, mutating: bool) {
    qualified(errors, text(webhook, "name"), &format!("{path}.name"));
    for (position, rule) in list(webhook, "rules").iter().enumerate() {
        self::rule(errors, rule, &format!("{path}.rules[{position}]"));
    }
    errors.optional_choice(
        at(webhook, "failurePolicy"),
        &format!("{path}.failurePolicy"),
        &["Fail", "Ignore"],
    );
    errors.optional_choice(
        at(webhook, "matchPolicy"),
        &format!("{path}.matchPolicy"),
        &["Equivalent", "Exact"],
    );
    let effects = ["None", "NoneOnDryRun"];
    match at(webhook, "sideEffects") {
        None => errors.required(
            format!("{path}.sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ),
        some => errors.optional_choice(some, &format!("{path}.sideEffects"), &effects),
    }
    if let Some(seconds) = int(webhook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        errors.invalid(
            format!("{path}.timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for name in ["namespaceSelector", "objectSelector"] {
        errors.selector(at(webhook, name), &format!("{path}.{name}"));
    }
    if mutating {
        errors.optional_choice(
            at(webhook, "reinvocationPolicy"),
            &format!("{path}.reinvocationPolicy"),
            &["IfNeeded", "Never"],
        );
    }
    client(errors, webhook, &format!("{path}.clientConfig"));
    match_conditions(
        errors,
        webhook,
        "matchConditions",
        &format!("{path}.matchConditions"),
    );
}

/// A domain name with at least three parts.
fn qualified(errors: &mut Errors, name: &str, field: &str) {
    if name.is_empty() {
        errors.required(field, "");
        return;
    }
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.invalid(field, name, &problems.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(
            field,
            name,
            "should be a domain with at least three segments separated by dots",
        );
    }
}

fn review_versions(errors: &mut Errors, webhook: &Value, field: &str) {
    let versions = strings(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.required(field, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for (position, version) in versions.iter().enumerate() {
        let path = format!("{field}[{position}]");
        if !seen.insert(*version) {
            errors.invalid(path, *version, "duplicate version");
            continue;
        }
        errors.all(&path, version, names::dns1035_label(version));
    }
    if !versions
        .iter()
        .any(|version| matches!(*version, "v1" | "v1beta1"))
    {
        errors.invalid(field, json!(versions), "must include at least one of v1, v1beta1");
    }
}

pub(super) fn rule(errors: &mut Errors, rule: &Value, path: &str) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations = strings(rule, "operations");
    let field = format!("{path}.operations");
    if operations.is_empty() {
        errors.required(field.as_str(), "");
    }
    if operations.len() > 1 && operations.contains(&"*") {
        errors.invalid(
            field.as_str(),
            json!(operations),
            "if '*' is present, must not specify other operations",
        );
    }
    for (position, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.not_supported(format!("{field}[{position}]"), *operation, &OPERATIONS);
        }
    }
    for (name, words) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let values = strings(rule, name);
        let field = format!("{path}.{name}");
        if values.is_empty() {
            errors.required(field.as_str(), "");
        }
        if values.len() > 1 && values.contains(&"*") {
            errors.invalid(
                field.as_str(),
                json!(values),
                &format!("if '*' is present, must not specify other {words}"),
            );
        }
        if name == "apiVersions" {
            for (position, _) in values
                .iter()
                .enumerate()
                .filter(|(_, version)| version.is_empty())
            {
                errors.required(format!("{field}[{position}]"), "");
            }
        }
    }
    resources(errors, &strings(rule, "resources"), &format!("{path}.resources"));
    errors.optional_choice(
        at(rule, "scope"),
        &format!("{path}.scope"),
        &["*", "Cluster", "Namespaced"],
    );
}

fn resources(errors: &mut Errors, resources: &[&str], field: &str) {
    if resources.is_empty() {
        errors.required(field, "");
    }
    let (mut all_subs, mut all_resources) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (position, resource) in resources.iter().enumerate() {
        let path = format!("{field}[{position}]");
        if resource.is_empty() {
            errors.required(path, "");
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            plain = *resource != "*";
            continue;
        };
        if all_subs.contains(name) {
            errors.invalid(
                path.as_str(),
                *resource,
                &format!("if '{name}/*' is present, must not specify {resource}"),
            );
        }
        if all_resources.contains(sub) {
            errors.invalid(
                path,
                *resource,
                &format!("if '*/{sub}' is present, must not specify {resource}"),
            );
        }
        if sub == "*" {
            all_subs.insert(name);
        }
        if name == "*" {
            all_resources.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.invalid(
            field,
            json!(resources),
            "if '*/*' is present, must not specify other resources",
        );
    }
    if resources.contains(&"*") && plain {
        errors.invalid(
            field,
            json!(resources),
            "if '*' is present, must not specify other resources without subresources",
        );
    }
}

fn client(errors: &mut Errors, webhook: &Value, field: &str) {
    match (
        at(webhook, "clientConfig.url").and_then(Value::as_str),
        at(webhook, "clientConfig.service"),
    ) {
        (Some(address), None) => url(errors, address, &format!("{field}.url")),
        (None, Some(service)) => self::service(errors, service, &format!("{field}.service")),
        _ => errors.required(field, "exactly one of url or service is required"),
    }
}

fn url(errors: &mut Errors, address: &str, field: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => (address.split_once(':').map_or("", |(scheme, _)| scheme), ""),
    };
    if scheme != "https" {
        errors.invalid(
            field,
            scheme,
            &format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let authority = before.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() {
        errors.invalid(field, "", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(field, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(field, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(field, query, "query parameters are not permitted in the URL");
    }
}

fn service(errors: &mut Errors, service: &Value, field: &str) {
    for name in ["name", "namespace"] {
        if text(service, name).is_empty() {
            errors.required(format!("{field}.{name}"), "");
        }
    }
    let port = number(service, "port");
    if !(1..=65535).contains(&port) {
        errors.invalid(
            format!("{field}.port"),
            port,
            &format!("port is not valid: {}", names::range_error(1, 65535)),
        );
    }
    let path = text(service, "path");
    let field = format!("{field}.path");
    match path {
        "" | "/" => {}
        "//" => errors.invalid(field, path, "segment[0] may not be empty"),
        _ => {
            let inner = path.strip_prefix('/').unwrap_or_else(|| {
                errors.invalid(field.as_str(), path, "must start with a '/'");
                // Whatever stands in its place is taken for it.
                path.char_indices().nth(1).map_or("", |(at, _)| &path[at..])
            });
            let inner = inner.strip_suffix('/').unwrap_or(inner);
            for (position, step) in inner.split('/').enumerate() {
                if step.is_empty() {
                    errors.invalid(
                        field.as_str(),
                        path,
                        &format!("segment[{position}] may not be empty"),
                    );
                    continue;
                }
                for problem in names::dns1123_subdomain(step) {
                    errors.invalid(field.as_str(), path, &format!("segment[{position}]: {problem}"));
                }
            }
        }
    }
}

pub(super) fn match_conditions(errors: &mut Errors, parent: &Value, path: &str, field: &str) {
    let conditions = list(parent, path);
    if conditions.len() > 64 {
        errors.too_many(field, conditions.len(), 64);
    }
    let mut seen = BTreeSet::new();
    for (position, condition) in conditions.iter().enumerate() {
        let at_path = format!("{field}[{position}]");
        if text(condition, "expression").trim().is_empty() {
            errors.required(format!("{at_path}.expression"), "");
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.required(format!("{at_path}.name"), "");
        } else {
            errors.all(&format!("{at_path}.name"), name, names::qualified_name(name));
            if !seen.insert(name) {
                errors.duplicate(format!("{at_path}.name"), name);
            }
        }
    }
}
