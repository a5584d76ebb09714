// SPDX-License-Identifier: Apache-2.0
//! Conversion between versions: which strategy, and how its webhook is reached.

use serde_json::Value;

use super::{list, text};
use crate::error::FieldError;
use crate::names;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Checks `spec.conversion`. `recognized` demands a review version this build speaks.
pub(super) fn check_conversion(conversion: &Value, recognized: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !conversion.is_object() {
        return errors;
    }
    let strategy = text(conversion, "strategy");
    match strategy {
        "None" | "Webhook" => {}
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            &Value::from(other),
            &["None", "Webhook"],
        )),
    }
    let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
    let config = webhook.get("clientConfig").filter(|c| c.is_object());
    let versions = list(webhook, "conversionReviewVersions");
    let at = "spec.conversion.webhookClientConfig";
    if strategy == "Webhook" {
        match config {
            None => errors.push(FieldError::required(
                at,
                "required when strategy is set to Webhook",
            )),
            Some(config) => errors.extend(check_client(config, at)),
        }
        errors.extend(check_review_versions(versions, recognized));
    } else {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(FieldError::forbidden(at, detail));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(
                "spec.conversion.conversionReviewVersions",
                detail,
            ));
        }
    }
    errors
}

/// Whether a list of review versions names one this build speaks, or none at all.
pub(super) fn speaks_known_version(versions: &[Value]) -> bool {
    versions.is_empty()
        || versions
            .iter()
            .any(|v| v.as_str().is_some_and(|v| REVIEW_VERSIONS.contains(&v)))
}

fn check_review_versions(versions: &[Value], recognized: bool) -> Vec<FieldError> {
    let at = "spec.conversion.conversionReviewVersions";
    if versions.is_empty() {
        return vec![FieldError::required(at, "")];
    }
    let mut errors = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        let field = format!("{at}[{i}]");
        if versions.iter().take(i).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(field, version, "duplicate version"));
            continue;
        }
        for problem in names::dns1035_label(version.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field.clone(), version, &problem));
        }
    }
    if recognized && !speaks_known_version(versions) {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(at, &Value::from(versions.to_vec()), detail));
    }
    errors
}

fn check_client(config: &Value, at: &str) -> Vec<FieldError> {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|s| s.is_object());
    match (url, service) {
        (Some(url), None) => check_url(url, &format!("{at}.url")),
        (None, Some(service)) => check_service(service, &format!("{at}.service")),
        _ => vec![FieldError::required(
            at,
            "exactly one of url or service is required",
        )],
    }
}

/// Checks the URL of a webhook: https, a host, nothing else.
pub(crate) fn check_url(url: &str, field: &str) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut errors = Vec::new();
    let (scheme, rest) = match url.split_once(':') {
        Some((scheme, rest))
            if scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
        {
            (scheme.to_lowercase(), rest)
        }
        _ => (String::new(), url),
    };
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(field, &Value::from(scheme), &detail));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest
        .strip_prefix("//")
        .map(|r| r.split('/').next().unwrap_or_default())
        .unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() {
        errors.push(FieldError::invalid(
            field,
            &Value::from(""),
            &format!("host must be specified{FORM}"),
        ));
    }
    if let Some(user) = user {
        let detail = "user information is not permitted in the URL";
        errors.push(FieldError::invalid(field, &Value::from(user), detail));
    }
    if !fragment.is_empty() {
        let detail = "fragments are not permitted in the URL";
        errors.push(FieldError::invalid(field, &Value::from(fragment), detail));
    }
    if !query.is_empty() {
        let detail = "query parameters are not permitted in the URL";
        errors.push(FieldError::invalid(field, &Value::from(query), detail));
    }
    errors
}

fn check_service(service: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The reference hands name and namespace over in the wrong order; clients see that.
    if text(service, "namespace").is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    if text(service, "name").is_empty() {
        errors.push(FieldError::required(format!("{field}.namespace"), ""));
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(0);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        errors.push(FieldError::invalid(
            format!("{field}.port"),
            &Value::from(port),
            &detail,
        ));
    }
    if let Some(path) = service.get("path").and_then(Value::as_str) {
        errors.extend(check_path(path, &format!("{field}.path")));
    }
    errors
}

fn check_path(path: &str, field: &str) -> Vec<FieldError> {
    let shown = Value::from(path);
    if path == "/" || path.is_empty() {
        return Vec::new();
    }
    if path == "//" {
        return vec![FieldError::invalid(field, &shown, "segment[0] may not be empty")];
    }
    let mut errors = Vec::new();
    if !path.starts_with('/') {
        errors.push(FieldError::invalid(field, &shown, "must start with a '/'"));
    }
    let mut chars = path.chars();
    chars.next();
    let segments = chars.as_str();
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    for (i, segment) in segments.split('/').enumerate() {
        if segment.is_empty() {
            errors.push(FieldError::invalid(
                field,
                &shown,
                &format!("segment[{i}] may not be empty"),
            ));
            continue;
        }
        for problem in names::dns1123_subdomain(segment) {
            errors.push(FieldError::invalid(
                field,
                &shown,
                &format!("segment[{i}]: {problem}"),
            ));
        }
    }
    errors
}
