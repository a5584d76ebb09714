// SPDX-License-Identifier: Apache-2.0
//! Validation of `metadata`, for every kind: on creation, on update, and the warnings that go
//! with finalizers of custom resources.

use std::collections::BTreeSet;

use cobaltcore_text::go;
use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::names::{self, NameRule};
use crate::path::join;

/// The largest sum of annotation keys and values, in bytes.
pub const ANNOTATIONS_MAX: usize = 256 << 10;
const MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const IMMUTABLE: &str = "field is immutable";

fn text_of<'a>(meta: &'a Value, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list_of<'a>(meta: &'a Value, key: &str) -> &'a [Value] {
    meta.get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn map_of<'a>(meta: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Validates the metadata of a new object. Names must have been generated before.
pub fn validate_object_meta(meta: &Value, namespaced: bool, rule: NameRule, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate = text_of(meta, "generateName");
    if !generate.is_empty() {
        let here = join(field, "generateName");
        for problem in rule.problems(generate, true) {
            errors.push(FieldError::invalid(
                here.clone(),
                &Value::from(generate),
                &problem,
            ));
        }
    }
    let name = text_of(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            join(field, "name"),
            "name or generateName is required",
        ));
    } else {
        for problem in rule.problems(name, false) {
            errors.push(FieldError::invalid(
                join(field, "name"),
                &Value::from(name),
                &problem,
            ));
        }
    }
    validate_namespace(text_of(meta, "namespace"), namespaced, field, &mut errors);
    if let Some(generation) = meta
        .get("generation")
        .filter(|g| g.as_i64().is_some_and(|g| g < 0))
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(join(field, "generation"), generation, detail));
    }
    errors.extend(validate_labels(meta, &join(field, "labels")));
    errors.extend(validate_annotations(meta, &join(field, "annotations")));
    errors.extend(validate_owner_references(meta, &join(field, "ownerReferences")));
    errors.extend(validate_finalizers(meta, &join(field, "finalizers")));
    errors.extend(validate_managed_fields(meta, &join(field, "managedFields")));
    errors
}

fn validate_namespace(namespace: &str, namespaced: bool, field: &str, errors: &mut Vec<FieldError>) {
    let here = || join(field, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(here(), "")),
        (true, false) => {
            for problem in names::dns1123_label(namespace) {
                errors.push(FieldError::invalid(here(), &Value::from(namespace), &problem));
            }
        }
        (false, false) => errors.push(FieldError::forbidden(here(), "not allowed on this type")),
        (false, true) => {}
    }
}

/// Validates the metadata of an object that replaces another.
pub fn validate_object_meta_update(new: &Value, old: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        errors.extend(no_new_finalizers(new, old, &join(field, "finalizers")));
    }
    if text_of(new, "resourceVersion").is_empty() {
        let detail = "must be specified for an update";
        errors.push(FieldError::invalid(
            join(field, "resourceVersion"),
            &Value::from(""),
            detail,
        ));
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        let detail = "must not be decremented";
        errors.push(FieldError::invalid(
            join(field, "generation"),
            &Value::from(generation(new)),
            detail,
        ));
    }
    for key in ["name", "namespace", "uid"] {
        if text_of(new, key) != text_of(old, key) {
            errors.push(FieldError::invalid(
                join(field, key),
                &Value::from(text_of(new, key)),
                IMMUTABLE,
            ));
        }
    }
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (
            new.get(key).unwrap_or(&Value::Null),
            old.get(key).unwrap_or(&Value::Null),
        );
        if !same_moment(new, old) {
            errors.push(FieldError::invalid(join(field, key), new, IMMUTABLE));
        }
    }
    errors.extend(validate_labels(new, &join(field, "labels")));
    errors.extend(validate_annotations(new, &join(field, "annotations")));
    errors.extend(validate_owner_references(new, &join(field, "ownerReferences")));
    errors.extend(validate_managed_fields(new, &join(field, "managedFields")));
    errors
}

fn same_moment(new: &Value, old: &Value) -> bool {
    if new == old {
        return true;
    }
    let moment = |v: &Value| v.as_str().and_then(|s| s.parse::<jiff::Timestamp>().ok());
    match (moment(new), moment(old)) {
        (Some(new), Some(old)) => new.as_second() == old.as_second(),
        _ => false,
    }
}

fn no_new_finalizers(new: &Value, old: &Value, field: &str) -> Option<FieldError> {
    let old: BTreeSet<&str> = list_of(old, "finalizers")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let added: BTreeSet<&str> = list_of(new, "finalizers")
        .iter()
        .filter_map(Value::as_str)
        .filter(|f| !old.contains(f))
        .collect();
    if added.is_empty() {
        return None;
    }
    let list: Vec<String> = added.iter().map(|f| go::quote(f)).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        list.join(", ")
    );
    Some(FieldError::forbidden(field, &detail))
}

/// Labels: keys are qualified names, values label values. All errors carry the same field.
pub fn validate_labels(meta: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in map_of(meta, "labels") {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(field, &Value::from(key.as_str()), &problem));
        }
        for problem in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, value, &problem));
        }
    }
    errors
}

/// Annotations: keys are qualified names whatever their case, and all together have a size limit.
pub fn validate_annotations(meta: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in map_of(meta, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(field, &Value::from(key.as_str()), &problem));
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(field, ANNOTATIONS_MAX));
    }
    errors
}

/// Owner references: complete, at most one controller, no events as owners.
pub fn validate_owner_references(meta: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let references = list_of(meta, "ownerReferences");
    for reference in references {
        let api_version = text_of(reference, "apiVersion");
        let (group, version) = match api_version.split_once('/') {
            _ if api_version.matches('/').count() > 1 => ("", ""),
            Some((group, version)) => (group, version),
            None => ("", api_version),
        };
        if version.is_empty() {
            let value = Value::from(api_version);
            errors.push(FieldError::invalid(
                join(field, "apiVersion"),
                &value,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text_of(reference, key).is_empty() {
                errors.push(FieldError::invalid(
                    join(field, key),
                    &Value::from(""),
                    "must not be empty",
                ));
            }
        }
        let kind = text_of(reference, "kind");
        if (group, version, kind) == ("", "v1", "Event") {
            errors.push(FieldError::new(
                crate::Cause::Invalid,
                field,
                format!(
                    "Invalid value: {}: /v1, Kind=Event is disallowed from being an owner",
                    show_reference(reference)
                ),
            ));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let current = format!("{kind}/{}", text_of(reference, "name"));
            match &controller {
                None => controller = Some(current),
                Some(first) => {
                    let list: Vec<String> = references.iter().map(show_reference).collect();
                    errors.push(FieldError::new(
                        crate::Cause::Invalid,
                        field,
                        format!(
                            "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}",
                            list.join(",")
                        ),
                    ));
                }
            }
        }
    }
    errors
}

fn show_reference(reference: &Value) -> String {
    let mut parts = Vec::new();
    for key in ["apiVersion", "kind", "name", "uid"] {
        parts.push(format!("\"{key}\":{}", Value::from(text_of(reference, key))));
    }
    for key in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(key).filter(|v| !v.is_null()) {
            parts.push(format!("\"{key}\":{value}"));
        }
    }
    format!("{{{}}}", parts.join(","))
}

/// Finalizers are qualified names; the two that decide about dependents exclude each other.
pub fn validate_finalizers(meta: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let finalizers = list_of(meta, "finalizers");
    for finalizer in finalizers {
        for problem in names::qualified_name(finalizer.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, finalizer, &problem));
        }
    }
    let has = |name: &str| finalizers.iter().any(|f| f.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        let list = Value::from(finalizers.to_vec());
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(field, &list, detail));
    }
    errors
}

fn is_standard_finalizer(name: &str) -> bool {
    matches!(name, "orphan" | "foregroundDeletion" | "kubernetes")
}

/// What built-in kinds demand of finalizers besides: a domain, or one of the standard names.
pub fn validate_builtin_finalizers(meta: &Value, field: &str) -> Vec<FieldError> {
    list_of(meta, "finalizers")
        .iter()
        .enumerate()
        .filter(|(_, f)| {
            f.as_str()
                .is_some_and(|f| !f.contains('/') && !is_standard_finalizer(f))
        })
        .map(|(i, f)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("{field}.finalizers[{i}]"), f, detail)
        })
        .collect()
}

/// Warnings about finalizers a custom resource gains without a domain.
pub fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known: BTreeSet<&str> = old
        .map(|old| {
            list_of(old, "finalizers")
                .iter()
                .filter_map(Value::as_str)
                .collect()
        })
        .unwrap_or_default();
    let added: BTreeSet<&str> = list_of(new, "finalizers")
        .iter()
        .filter_map(Value::as_str)
        .filter(|f| !known.contains(f))
        .collect();
    let mut warnings = Vec::new();
    for finalizer in added {
        let head = format!("metadata.finalizers: {}", go::quote(finalizer));
        for problem in names::qualified_name(finalizer) {
            warnings.push(format!("{head}: {problem}"));
        }
        if !finalizer.contains('/') && !is_standard_finalizer(finalizer) {
            let path = if finalizer.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warnings.push(format!(
                "{head}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}

fn validate_managed_fields(meta: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    for (i, entry) in list_of(meta, "managedFields").iter().enumerate() {
        let here = format!("{field}[{i}]");
        let entry = entry.as_object().unwrap_or(&empty);
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("operation") {
            "" => errors.push(FieldError::required(
                format!("{here}.operation"),
                "must not be empty",
            )),
            "Apply" | "Update" => {}
            other => errors.push(FieldError::not_supported(
                format!("{here}.operation"),
                &Value::from(other),
                &["Apply", "Update"],
            )),
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            let value = Value::from(text("fieldsType"));
            errors.push(FieldError::invalid(
                format!("{here}.fieldsType"),
                &value,
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(
            text("manager"),
            &format!("{here}.manager"),
        ));
        if text("subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(
                format!("{here}.subresource"),
                SUBRESOURCE_MAX,
            ));
        }
    }
    errors
}

/// A field manager: at most 128 bytes, printable.
pub fn validate_field_manager(manager: &str, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MANAGER_MAX {
        errors.push(FieldError::too_long(field, MANAGER_MAX));
    }
    for (i, c) in manager.char_indices().filter(|(_, c)| !go::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {i})", c as u32);
        errors.push(FieldError::invalid(field, &Value::from(manager), &detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn creation() {
        for (meta, namespaced, expected) in [
            (
                json!({}),
                false,
                vec!["metadata.name: Required value: name or generateName is required"],
            ),
            (
                json!({"name": "a"}),
                true,
                vec!["metadata.namespace: Required value"],
            ),
            (
                json!({"name": "a", "namespace": "b"}),
                false,
                vec!["metadata.namespace: Forbidden: not allowed on this type"],
            ),
            (
                json!({"name": "a", "namespace": "b.c"}),
                true,
                vec!["metadata.namespace: Invalid value: \"b.c\": must not contain dots"],
            ),
            (
                json!({"name": "a", "generation": -1}),
                false,
                vec!["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                json!({"name": "a", "ownerReferences": [{}]}),
                false,
                vec![
                    "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                    "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                    "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                    "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
                ],
            ),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
                false,
                vec![
                    "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner",
                ],
            ),
            (
                json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
                false,
                vec![
                    "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
                ],
            ),
            (
                json!({"name": "a", "labels": {"x": "y".repeat(64)}}),
                false,
                vec![
                    "metadata.labels: Invalid value: \"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\": must be no more than 63 bytes",
                ],
            ),
            (
                json!({"name": "a", "annotations": {"x": "y".repeat(ANNOTATIONS_MAX)}}),
                false,
                vec!["metadata.annotations: Too long: may not be more than 262144 bytes"],
            ),
            (
                json!({"name": "a", "managedFields": [{"operation": "Merge", "fieldsType": "X"}]}),
                false,
                vec![
                    "metadata.managedFields[0].operation: Unsupported value: \"Merge\": supported values: \"Apply\", \"Update\"",
                    "metadata.managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`",
                ],
            ),
        ] {
            let errors = validate_object_meta(&meta, namespaced, NameRule::Subdomain, "metadata");
            assert_eq!(texts(&errors), expected);
        }
    }

    #[test]
    fn two_controllers_are_one_too_many() {
        let owner =
            |n: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": true});
        let errors = validate_owner_references(&json!({"ownerReferences": [owner("a"), owner("b")]}), "f");
        let only = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(only.ends_with(
            "Only one reference can have Controller set to true. Found \"true\" in references for Pod/a and Pod/b"
        ));
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn update() {
        let old = json!({"name": "a", "uid": "u", "resourceVersion": "1", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["x/y"]});
        let mut new = old.clone();
        new["finalizers"] = json!(["x/y", "x/z"]);
        new["uid"] = json!("v");
        new["generation"] = json!(1);
        new["resourceVersion"] = json!("");
        new["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old, "metadata")),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/z\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"v\": field is immutable",
                "metadata.creationTimestamp: Invalid value: \"2026-01-01T00:00:01Z\": field is immutable",
            ]
        );
        assert!(validate_object_meta_update(&old, &old, "metadata").is_empty());
    }

    #[test]
    fn finalizers_without_a_domain() {
        let meta = json!({"finalizers": ["plain", "orphan", "a.b", "a.b/c"]});
        assert_eq!(
            texts(&validate_builtin_finalizers(&meta, "metadata")),
            [
                "metadata.finalizers[0]: Invalid value: \"plain\": name is neither a standard finalizer name nor is it fully qualified",
                "metadata.finalizers[2]: Invalid value: \"a.b\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        assert_eq!(
            finalizer_warnings(&meta, Some(&json!({"finalizers": ["a.b"]}))),
            [
                "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            ]
        );
    }
}
