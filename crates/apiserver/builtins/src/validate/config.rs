// SPDX-License-Identifier: Apache-2.0
//! Rules of ConfigMaps, Secrets, Namespaces, Leases and Events.

use serde_json::{Map, Value};

use super::errors::Errors;
use crate::json::{at, entries, flag, int, map, same, strings, text};
use crate::names;

/// Most bytes a ConfigMap or Secret may hold.
const MAX_SIZE: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// Bytes behind base64 text.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn frozen(errors: &mut Errors, new: &Value, old: Option<&Value>, fields: &[&str]) {
    let Some(old) = old.filter(|old| flag(old, "immutable")) else {
        return;
    };
    if !flag(new, "immutable") {
        errors.forbidden("immutable", FROZEN);
    }
    for field in fields {
        if !same(at(new, field), at(old, field)) {
            errors.forbidden(*field, FROZEN);
        }
    }
}

pub(super) fn config_map(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    frozen(errors, object, old, &["data", "binaryData"]);
    let binary = map(object, "binaryData");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        let field = format!("data[{key}]");
        errors.all(&field, key, names::config_key(key));
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            errors.invalid(field, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().unwrap_or_default().len();
    }
    for (key, value) in entries(object, "binaryData") {
        errors.all(&format!("binaryData[{key}]"), key, names::config_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > MAX_SIZE {
        errors.too_long("[]", MAX_SIZE);
    }
}

pub(super) fn secret(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        errors.immutable("type", object, old, "type");
        frozen(errors, object, Some(old), &["data"]);
    }
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        errors.all(&format!("data[{key}]"), key, names::config_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > MAX_SIZE {
        errors.too_long("data", MAX_SIZE);
    }
    secret_type(errors, object);
}

fn secret_type(errors: &mut Errors, object: &Value) {
    let data = map(object, "data");
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let mut need = |key: &str| errors.required(format!("data[{key}]"), "");
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let named =
                entries(object, "metadata.annotations").any(|(key, value)| key == NAME && value != "");
            if !named {
                errors.required(format!("metadata.annotations[{NAME}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => docker(errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker(errors, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" => {
            let empty = data
                .and_then(|data| data.get("ssh-privatekey"))
                .is_none_or(|key| key == "");
            if empty {
                need("ssh-privatekey");
            }
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    need(key);
                }
            }
        }
        _ => {}
    }
}

fn docker(errors: &mut Errors, data: Option<&Map<String, Value>>, key: &str) {
    use base64::Engine as _;
    let field = format!("data[{key}]");
    let Some(encoded) = data.and_then(|data| data.get(key)).and_then(Value::as_str) else {
        errors.required(field, "");
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default();
    if let Err(problem) = serde_json::from_slice::<Map<String, Value>>(&bytes) {
        errors.invalid(
            field,
            "<secret contents redacted>",
            &json_problem(&bytes, &problem),
        );
    }
}

/// The reference's parser names the first byte it cannot use.
fn json_problem(bytes: &[u8], problem: &serde_json::Error) -> String {
    if problem.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    if problem.is_data() {
        let found = match serde_json::from_slice::<Value>(bytes) {
            Ok(Value::Array(_)) => "array",
            Ok(Value::String(_)) => "string",
            Ok(Value::Number(_)) => "number",
            Ok(Value::Bool(_)) => "bool",
            _ => return problem.to_string(),
        };
        return format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
    }
    let found = bytes
        .get(problem.column().saturating_sub(1))
        .copied()
        .unwrap_or_default();
    let place = if problem.column() <= 1 {
        "looking for beginning of value"
    } else {
        "after object key:value pair"
    };
    format!("invalid character '{}' {place}", char::from(found))
}

pub(super) fn namespace(errors: &mut Errors, object: &Value) {
    for finalizer in strings(object, "spec.finalizers") {
        finalizer_name(errors, finalizer, "spec.finalizers");
    }
}

fn finalizer_name(errors: &mut Errors, name: &str, field: &str) {
    errors.all(field, name, names::qualified_name(name));
    let standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    if !name.contains('/') && !standard {
        errors.invalid(
            field,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

pub(super) fn finalize(errors: &mut Errors, object: &Value) {
    for (position, finalizer) in strings(object, "spec.finalizers").into_iter().enumerate() {
        finalizer_name(errors, finalizer, &format!("spec.finalizers[{position}]"));
    }
}

pub(super) fn namespace_status(errors: &mut Errors, object: &Value) {
    let phase = text(object, "status.phase");
    let going = at(object, "metadata.deletionTimestamp").is_some();
    if !going && phase != "Active" {
        errors.invalid(
            "status.Phase",
            phase,
            "may only be 'Active' if `deletionTimestamp` is empty",
        );
    }
    if going && phase != "Terminating" {
        errors.invalid(
            "status.Phase",
            phase,
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        );
    }
}

pub(super) fn lease(errors: &mut Errors, object: &Value) {
    if let Some(seconds) = int(object, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    errors.non_negative(object, "spec.leaseTransitions", "spec.leaseTransitions");
}

/// Names of the event's fields in the core version and in events.k8s.io; messages use the core ones,
/// because the reference checks the stored form.
struct EventFields {
    about: &'static str,
    message: &'static str,
    controller: &'static str,
    source: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}

const CORE: EventFields = EventFields {
    about: "involvedObject",
    message: "message",
    controller: "reportingComponent",
    source: "source",
    first: "firstTimestamp",
    last: "lastTimestamp",
    count: "count",
};
const EVENTS: EventFields = EventFields {
    about: "regarding",
    message: "note",
    controller: "reportingController",
    source: "deprecatedSource",
    first: "deprecatedFirstTimestamp",
    last: "deprecatedLastTimestamp",
    count: "deprecatedCount",
};

pub(super) fn event(errors: &mut Errors, object: &Value, old: Option<&Value>, group: &str) {
    let fields = if group.is_empty() { &CORE } else { &EVENTS };
    event_core(errors, object, fields);
    if group.is_empty() {
        return;
    }
    match old {
        None => new_event(errors, object, fields),
        Some(old) => changed_event(errors, object, old, fields),
    }
}

fn event_core(errors: &mut Errors, object: &Value, fields: &EventFields) {
    let namespace = text(object, "metadata.namespace");
    let about = text(object, &format!("{}.namespace", fields.about));
    let mismatch = if at(object, "eventTime").is_none() {
        if about.is_empty() {
            !matches!(namespace, "" | "default")
        } else {
            namespace != about
        }
    } else {
        about.is_empty() && !matches!(namespace, "default" | "kube-system")
    };
    if mismatch {
        errors.invalid(
            "involvedObject.namespace",
            about,
            "does not match event.namespace",
        );
    }
    if at(object, "eventTime").is_some() {
        reporting(errors, object, fields);
    }
    errors.all("namespace", namespace, names::dns1123_subdomain(namespace));
}

fn reporting(errors: &mut Errors, object: &Value, fields: &EventFields) {
    let controller = text(object, fields.controller);
    if controller.is_empty() {
        errors.required(fields.controller, "");
    }
    errors.all(fields.controller, controller, names::qualified_name(controller));
    for (field, value, limit) in [
        ("reportingInstance", text(object, "reportingInstance"), 128),
        ("action", text(object, "action"), 128),
        ("reason", text(object, "reason"), 128),
    ] {
        if value.is_empty() {
            errors.required(field, "");
        }
        if value.len() > limit {
            errors.invalid(field, "", &format!("can have at most {limit} characters"));
        }
    }
    if text(object, fields.message).len() > 1024 {
        errors.invalid("message", "", "can have at most 1024 characters");
    }
}

fn series(errors: &mut Errors, object: &Value) {
    if let Some(series) = at(object, "series") {
        if int(series, "count").unwrap_or(0) < 2 {
            errors.invalid("series.count", "", "should be at least 2");
        }
        if at(series, "lastObservedTime").is_none() {
            errors.required("series.lastObservedTime", "");
        }
    }
}

fn new_event(errors: &mut Errors, object: &Value, fields: &EventFields) {
    series(errors, object);
    if at(object, "eventTime").is_none() {
        errors.required("eventTime", "");
    }
    let kind = text(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid("type", "", &format!("has invalid value: {kind}"));
    }
    for (field, set) in [
        ("firstTimestamp", at(object, fields.first).is_some()),
        ("lastTimestamp", at(object, fields.last).is_some()),
        ("count", int(object, fields.count).unwrap_or(0) != 0),
        (
            "source",
            at(object, fields.source)
                .and_then(Value::as_object)
                .is_some_and(|source| !source.is_empty()),
        ),
    ] {
        if set {
            errors.invalid(field, "", "needs to be unset");
        }
    }
}

fn changed_event(errors: &mut Errors, object: &Value, old: &Value, fields: &EventFields) {
    if !same(at(object, "series"), at(old, "series")) {
        series(errors, object);
    }
    for (path, field) in [
        (fields.about, "involvedObject"),
        ("reason", "reason"),
        (fields.message, "message"),
        (fields.source, "source"),
        (fields.first, "firstTimestamp"),
        (fields.last, "lastTimestamp"),
        (fields.count, "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        (fields.controller, "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        errors.immutable(path, object, old, field);
    }
}
