// SPDX-License-Identifier: Apache-2.0
//! Questions about identity and access: the bodies of the review kinds and their answers.
//!
//! Nothing is stored. The body is what the client sent, already known to be of the right kind;
//! the answer is the same object with its status filled in, or a refusal with the reference's
//! field errors. TokenReview lives with the tokens.

use crate::error::{FieldCause, Refusal};
use crate::identity::User;
use crate::rbac::{Attributes, Decision, Index};
use cobaltcore_text::go;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const AUTHORIZATION: &str = "authorization.k8s.io";

type Authorize<'f> = dyn Fn(&Attributes<'_>) -> Decision + 'f;

/// A time as objects carry it: UTC, whole seconds.
pub(crate) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn invalid(causes: Vec<FieldCause>) -> Refusal {
    // The reference has lost the kind when it builds this error.
    Refusal::Invalid {
        group: AUTHORIZATION.to_owned(),
        kind: String::new(),
        name: String::new(),
        causes,
    }
}

/// Answers a SelfSubjectReview: who the caller is.
pub fn self_subject_review(user: &User, now: Timestamp) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": stamp(now)},
        "status": {"userInfo": user.to_user_info()},
    })
}

/// Answers a SelfSubjectAccessReview: may the caller do this.
pub fn self_subject_access_review(
    body: &Value,
    user: &User,
    authorize: &Authorize<'_>,
) -> Result<Value, Refusal> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let mut causes = attribute_causes(spec);
    causes.extend(selector_causes(spec));
    causes.extend(metadata_cause(body, false));
    if !causes.is_empty() {
        return Err(invalid(causes));
    }
    Ok(answer(body, "SelfSubjectAccessReview", spec, user, authorize))
}

/// Answers a SubjectAccessReview: may somebody do this.
pub fn subject_access_review(body: &Value, authorize: &Authorize<'_>) -> Result<Value, Refusal> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let mut causes = subject_causes(spec);
    causes.extend(metadata_cause(body, false));
    if !causes.is_empty() {
        return Err(invalid(causes));
    }
    Ok(answer(
        body,
        "SubjectAccessReview",
        spec,
        &subject_of(spec),
        authorize,
    ))
}

/// Answers a LocalSubjectAccessReview posted to `namespace`.
pub fn local_subject_access_review(
    body: &Value,
    namespace: &str,
    authorize: &Authorize<'_>,
) -> Result<Value, Refusal> {
    let mut body = body.clone();
    let given = body
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if given.is_empty() {
        if let Some(object) = body.as_object_mut() {
            let meta = object.entry("metadata").or_insert_with(|| json!({}));
            if !meta.is_object() {
                *meta = json!({});
            }
            meta["namespace"] = json!(namespace);
        }
    } else if given != namespace {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::BadRequest(text.to_owned()));
    }
    let spec = body.get("spec").cloned().unwrap_or_default();
    let mut causes = subject_causes(&spec);
    causes.extend(metadata_cause(&body, true));
    if let Some(attributes) = spec.get("resourceAttributes").filter(|a| a.is_object()) {
        let asked = text(attributes, "namespace");
        if asked != namespace {
            let field = "spec.resourceAttributes.namespace";
            causes.push(FieldCause::invalid(
                field,
                &go::quote(asked),
                "must match metadata.namespace",
            ));
        }
    }
    if let Some(path) = spec.get("nonResourceAttributes").filter(|a| a.is_object()) {
        let field = "spec.nonResourceAttributes";
        causes.push(FieldCause::invalid(
            field,
            &path_value(path),
            "disallowed on this kind of request",
        ));
    }
    if !causes.is_empty() {
        return Err(invalid(causes));
    }
    Ok(answer(
        &body,
        "LocalSubjectAccessReview",
        &spec,
        &subject_of(&spec),
        authorize,
    ))
}

/// Answers a SelfSubjectRulesReview; `rules` is `None` when everything is allowed to everybody.
pub fn self_subject_rules_review(body: &Value, rules: Option<(&Index, &User)>) -> Result<Value, Refusal> {
    let namespace = body
        .pointer("/spec/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace.is_empty() {
        return Err(Refusal::BadRequest("no namespace on request".to_owned()));
    }
    let (mut resource, mut paths, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    match rules {
        None => {
            resource.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
            paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        }
        Some((index, user)) => {
            let (held, unresolved) = index.rules_for(user, namespace);
            missing = unresolved;
            for rule in held.iter().filter_map(|r| r.rule()) {
                if !rule.resources.is_empty() {
                    let mut one = rule.clone();
                    one.non_resource_urls.clear();
                    resource.push(with_verbs(one.to_value()));
                }
                if !rule.non_resource_urls.is_empty() {
                    paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
                }
            }
        }
    }
    let mut status = json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": false});
    if !missing.is_empty() {
        status["evaluationError"] = json!(go::aggregate(&missing));
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

fn with_verbs(mut rule: Value) -> Value {
    if let Some(object) = rule.as_object_mut() {
        object.entry("verbs").or_insert_with(|| json!([]));
    }
    rule
}

fn subject_of(spec: &Value) -> User {
    let strings = |v: Option<&Value>| -> Vec<String> {
        let items = v.and_then(Value::as_array);
        items
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let extra = spec.get("extra").and_then(Value::as_object);
    User {
        name: text(spec, "user").to_owned(),
        uid: Some(text(spec, "uid").to_owned()).filter(|u| !u.is_empty()),
        groups: strings(spec.get("groups")),
        extra: extra
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), strings(Some(v))))
            .collect::<BTreeMap<_, _>>(),
    }
}

fn answer(body: &Value, kind: &str, spec: &Value, user: &User, authorize: &Authorize<'_>) -> Value {
    let resource = spec.get("resourceAttributes").filter(|a| a.is_object());
    let attributes = match (resource, spec.get("nonResourceAttributes")) {
        (Some(asked), _) => Attributes::resource(
            user,
            text(asked, "verb"),
            text(asked, "group"),
            text(asked, "resource"),
        )
        .of_subresource(text(asked, "subresource"))
        .in_namespace(text(asked, "namespace"))
        .named(text(asked, "name")),
        (None, Some(asked)) => Attributes::path(user, text(asked, "verb"), text(asked, "path")),
        (None, None) => Attributes::path(user, "", ""),
    };
    let decision = authorize(&attributes);
    let mut status = Map::new();
    status.insert("allowed".into(), json!(decision.allowed));
    let reason = decision.reason();
    if !reason.is_empty() {
        status.insert("reason".into(), json!(reason));
    }
    let evaluation = resource.map(evaluation_errors).unwrap_or_default();
    if !evaluation.is_empty() {
        status.insert("evaluationError".into(), json!(evaluation));
    }
    let mut out = body.as_object().cloned().unwrap_or_default();
    out.insert("kind".into(), json!(kind));
    out.insert("apiVersion".into(), json!("authorization.k8s.io/v1"));
    out.entry("metadata").or_insert_with(|| json!({}));
    out.insert("status".into(), Value::Object(status));
    Value::Object(out)
}

/// Internal form of nonResourceAttributes, as the reference prints it.
fn path_value(path: &Value) -> String {
    let quote = |key: &str| Value::from(text(path, key)).to_string();
    format!("{{\"Path\":{},\"Verb\":{}}}", quote("path"), quote("verb"))
}

fn attribute_causes(spec: &Value) -> Vec<FieldCause> {
    let object = |key: &str| spec.get(key).filter(|v| v.is_object());
    match (object("resourceAttributes"), object("nonResourceAttributes")) {
        (Some(_), Some(path)) => vec![FieldCause::invalid(
            "spec.nonResourceAttributes",
            &path_value(path),
            "cannot be specified in combination with resourceAttributes",
        )],
        (None, None) => vec![FieldCause::invalid(
            "spec.resourceAttributes",
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

fn subject_causes(spec: &Value) -> Vec<FieldCause> {
    let mut causes = attribute_causes(spec);
    let groups = spec
        .get("groups")
        .and_then(Value::as_array)
        .is_some_and(|g| !g.is_empty());
    if text(spec, "user").is_empty() && !groups {
        let detail = "at least one of user or group must be specified";
        causes.push(FieldCause::invalid("spec.user", "\"\"", detail));
    }
    causes.extend(selector_causes(spec));
    causes
}

fn metadata_cause(body: &Value, local: bool) -> Option<FieldCause> {
    let meta = body.get("metadata").and_then(Value::as_object)?;
    let blank = |v: &Value| v.is_null() || v == "" || v == &json!({}) || v == &json!([]);
    let ignored = |key: &str| key == "managedFields" || (local && key == "namespace");
    if meta.iter().all(|(key, value)| ignored(key) || blank(value)) {
        return None;
    }
    let shown = Value::Object(meta.clone()).to_string();
    let detail = if local {
        "must be empty except for namespace"
    } else {
        "must be empty"
    };
    Some(FieldCause::invalid("metadata", &shown, detail))
}

fn selector_causes(spec: &Value) -> Vec<FieldCause> {
    let mut causes = Vec::new();
    for kind in ["fieldSelector", "labelSelector"] {
        let Some(selector) = spec
            .get("resourceAttributes")
            .and_then(|a| a.get(kind))
            .filter(|s| s.is_object())
        else {
            continue;
        };
        let path = format!("spec.resourceAttributes.{kind}");
        let raw = text(selector, "rawSelector");
        let empty = Vec::new();
        let requirements = selector
            .get("requirements")
            .and_then(Value::as_array)
            .unwrap_or(&empty);
        if !raw.is_empty() && !requirements.is_empty() {
            let detail = "may not specified at the same time as requirements";
            causes.push(FieldCause::invalid(
                &format!("{path}.rawSelector"),
                &go::quote(raw),
                detail,
            ));
        }
        if raw.is_empty() && requirements.is_empty() {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            causes.push(FieldCause::required(&format!("{path}.requirements"), &detail));
        }
        for (i, requirement) in requirements.iter().enumerate() {
            causes.extend(requirement_causes(
                requirement,
                &format!("{path}.requirements[{i}]"),
            ));
        }
    }
    causes
}

fn requirement_causes(requirement: &Value, path: &str) -> Vec<FieldCause> {
    let mut causes = Vec::new();
    let values = requirement
        .get("values")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    match text(requirement, "operator") {
        "In" | "NotIn" if values == 0 => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            causes.push(FieldCause::required(&format!("{path}.values"), detail));
        }
        "Exists" | "DoesNotExist" if values > 0 => causes.push(FieldCause {
            reason: "FieldValueForbidden",
            field: format!("{path}.values"),
            message: "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                .to_owned(),
        }),
        _ => {}
    }
    if text(requirement, "key").is_empty() {
        causes.push(FieldCause::required(&format!("{path}.key"), "must be specified"));
    }
    causes
}

/// Selectors narrow a question; what of them is not understood is named in the answer.
fn evaluation_errors(attributes: &Value) -> String {
    let mut errors = Vec::new();
    for kind in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(kind) else {
            continue;
        };
        let requirements = selector.get("requirements").and_then(Value::as_array);
        let understood = |r: &Value| {
            let values = r.get("values").and_then(Value::as_array).map_or(0, Vec::len);
            match text(r, "operator") {
                "In" | "NotIn" => kind == "labelSelector" || values == 1,
                "Exists" | "DoesNotExist" => kind == "labelSelector",
                _ => false,
            }
        };
        let total = requirements.map_or(0, Vec::len);
        let known = requirements
            .into_iter()
            .flatten()
            .filter(|r| understood(r))
            .count();
        let raw = text(selector, "rawSelector");
        let bad_raw = kind == "fieldSelector"
            && !raw.is_empty()
            && raw.split(',').any(|term| !term.is_empty() && !term.contains('='));
        if bad_raw || (total > 0 && known == 0) {
            errors.push(format!(
                "spec.resourceAttributes.{kind} ignored due to parse error"
            ));
        } else if known < total {
            errors.push(format!(
                "spec.resourceAttributes.{kind} partially ignored due to parse error"
            ));
        }
    }
    errors.join("; ")
}
