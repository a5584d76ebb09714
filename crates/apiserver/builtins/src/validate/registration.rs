// SPDX-License-Identifier: Apache-2.0
//! Rules of requests for certificates, of what becomes of them, and of API services.

use serde_json::Value;

use super::errors::Errors;
use crate::json::{at, list, number, text};
use crate::keypair::block_kinds;
use crate::names;

/// What a certificate may be used for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The shortest life a certificate may be asked for.
const SHORTEST: i64 = 600;

/// A new request for a certificate; later its spec does not change any more.
pub(super) fn signing_request(errors: &mut Errors, object: &Value) {
    let request = at(object, "spec.request").cloned().unwrap_or_default();
    let first = block_kinds(request.as_str().unwrap_or_default())
        .into_iter()
        .next();
    if first.as_deref() != Some("CERTIFICATE REQUEST") {
        errors.invalid(
            "spec.request",
            request,
            "PEM block type must be CERTIFICATE REQUEST",
        );
    }
    let usages: Vec<&str> = list(object, "spec.usages")
        .iter()
        .map(|usage| usage.as_str().unwrap_or_default())
        .collect();
    if usages.is_empty() {
        errors.required("spec.usages", "");
    }
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            errors.not_supported(format!("spec.usages[{i}]"), *usage, &USAGES);
        }
    }
    for (i, usage) in usages.iter().enumerate() {
        if usages.iter().take(i).any(|earlier| earlier == usage) {
            errors.duplicate(format!("spec.usages[{i}]"), *usage);
        }
    }
    signer(errors, text(object, "spec.signerName"));
    let seconds = at(object, "spec.expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|s| *s < SHORTEST) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", seconds, detail);
    }
}

/// What may become of a request: its conditions are set by whoever approves (`approval`), the
/// certificate by whoever signs (`status`), and neither is taken back.
pub(super) fn signing_update(errors: &mut Errors, new: &Value, old: &Value, part: Option<&str>) {
    verdicts(errors, new, old);
    if part == Some("status") {
        certificate(errors, new, old);
    }
    for verdict in ["Approved", "Denied", "Failed"] {
        let count = |object| conditions_of(object, verdict).count();
        let (now, was) = (count(new), count(old));
        if now < was {
            let detail = format!("updates may not remove a condition of type {verdict:?}");
            errors.forbidden("status.conditions", &detail);
        } else if now > was && verdict != "Failed" && part != Some("approval") {
            let detail = format!("updates may not add a condition of type {verdict:?}");
            errors.forbidden("status.conditions", &detail);
        }
    }
}

fn conditions_of<'a>(object: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(object, "status.conditions")
        .iter()
        .filter(move |condition| text(condition, "type") == kind)
}

fn verdicts(errors: &mut Errors, new: &Value, old: &Value) {
    let both = |object| {
        ["Approved", "Denied"]
            .iter()
            .all(|kind| conditions_of(object, kind).next().is_some())
    };
    let conditions = list(new, "status.conditions");
    for (position, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{position}]");
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() {
            errors.required(format!("{path}.type"), "");
        }
        let values: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        errors.choice(status, &format!("{path}.status"), values);
        let earlier = |wanted: &str| {
            let mut before = conditions.iter().take(position);
            before.any(|other| text(other, "type") == wanted)
        };
        let other = match kind {
            "Approved" => Some("Denied"),
            "Denied" => Some("Approved"),
            _ => None,
        };
        if other.is_some_and(earlier) && !both(old) {
            errors.invalid(
                "status.conditions",
                kind,
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if earlier(kind) {
            errors.duplicate(format!("{path}.type"), kind);
        }
    }
}

fn certificate(errors: &mut Errors, new: &Value, old: &Value) {
    const FIELD: &str = "status.certificate";
    let (now, was) = (text(new, FIELD), text(old, FIELD));
    if now == was {
        return;
    }
    let kinds = block_kinds(now);
    let problem = match kinds.iter().find(|kind| *kind != "CERTIFICATE") {
        _ if now.is_empty() => None,
        Some(other) => Some(format!(
            "only CERTIFICATE PEM blocks are allowed, found {other:?}"
        )),
        None if kinds.is_empty() => Some("must contain at least one CERTIFICATE PEM block".to_owned()),
        None => None,
    };
    if let Some(problem) = problem {
        errors.invalid(FIELD, "<certificate data>", &problem);
    }
    if !was.is_empty() {
        errors.forbidden(FIELD, "updates may not modify existing certificate content");
    }
}

/// A signer is named by a domain and a path.
fn signer(errors: &mut Errors, name: &str) {
    const FIELD: &str = "spec.signerName";
    if name == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(FIELD, name, detail);
        return;
    }
    if name.is_empty() {
        errors.required(FIELD, "");
        return;
    }
    let mut segments = name.split('/');
    let (Some(domain), Some(path), None) = (segments.next(), segments.next(), segments.next()) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(FIELD, name, detail);
        return;
    };
    let mut labels = |whole: &str, rule: fn(&str) -> Vec<String>| {
        for label in whole.split('.') {
            for problem in rule(label) {
                errors.invalid(FIELD, whole, &format!("validating label {label:?}: {problem}"));
            }
        }
    };
    labels(domain, names::dns1123_label);
    labels(path, names::dns1123_subdomain);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(FIELD, domain, detail);
    }
}

/// An API service; only those of this server itself are possible.
pub(super) fn api_service(errors: &mut Errors, object: &Value) {
    let (group, version) = (text(object, "spec.group"), text(object, "spec.version"));
    let (name, wanted) = (text(object, "metadata.name"), format!("{version}.{group}"));
    if !name.is_empty() && name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.invalid("metadata.name", name, &detail);
    }
    if group.is_empty() {
        if version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.required("spec.group", detail);
        }
    } else {
        errors.all("spec.group", group, names::dns1123_subdomain(group));
    }
    errors.all("spec.version", version, names::dns1035_label(version));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let path = format!("spec.{field}");
        let value = number(object, &path);
        if !(1..=most).contains(&value) {
            errors.invalid(path, value, &format!("must be positive and less than {most}"));
        }
    }
    if at(object, "spec.service").is_some() {
        errors.forbidden("spec.service", "other API servers are not aggregated here");
    }
}
