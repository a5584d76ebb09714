// SPDX-License-Identifier: Apache-2.0
//! The parts of a definition's spec that are the same for one version or for all: schema,
//! subresources, printer columns, selectable fields, names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::defaults::check_defaults;
use super::{list, text};
use crate::error::FieldError;
use crate::keywords::{Leniency, check_keywords};
use crate::names;
use crate::node::Type;
use crate::parse::parse;
use crate::rules::{compile_rules, valid_field_path};
use crate::structural::{check_structural, is_set, type_of, unsupported};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const SELECTABLE_MAX: usize = 8;

/// Root keywords that survive when the status is taken out of a schema.
const ROOT_KEYWORDS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
const ROOT_KEYWORDS_TEXT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// What an update forgives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demands {
    pub(super) structural: bool,
    pub(super) pruned_defaults: bool,
    pub(super) lenient: Leniency,
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            structural: true,
            pruned_defaults: true,
            lenient: Leniency::default(),
        }
    }
}

/// Checks a schema. `status` says whether a status endpoint takes the status out of it.
pub(super) fn check_schema(raw: &Value, status: bool, demands: Demands, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = format!("{at}.openAPIV3Schema");
    if status {
        errors.extend(check_root_keywords(raw, &path));
    }
    if raw.get("nullable") == Some(&Value::Bool(true)) {
        let field = format!("{path}.nullable");
        errors.push(FieldError::forbidden(
            field,
            "nullable cannot be true at the root",
        ));
    }
    let mut tree = None;
    let mut init_error = None;
    if demands.structural {
        if let Some(error) = unsupported(raw) {
            init_error = Some(FieldError::invalid(path.clone(), &Value::from(""), &error));
        } else {
            let structural = check_structural(raw, &path);
            if structural.is_empty() {
                let mut compiled = parse(raw);
                compile_rules(&mut compiled, true);
                let defaults = check_defaults(&compiled, &path, demands.pruned_defaults);
                if defaults.is_empty() {
                    tree = Some(compiled);
                }
                errors.extend(defaults);
            } else {
                errors.extend(structural);
            }
        }
    }
    errors.extend(check_keywords(raw, tree.as_ref(), &path, demands.lenient));
    if errors.is_empty() {
        errors.extend(init_error);
    }
    errors
}

fn check_root_keywords(raw: &Value, path: &str) -> Option<FieldError> {
    let node = raw.as_object()?;
    let kind = type_of(node);
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(
            format!("{path}.type"),
            &Value::from(kind),
            detail,
        ));
    }
    let other = node.iter().any(|(key, value)| {
        let set = is_set(value) || (key == "additionalProperties" && !value.is_null());
        set && !ROOT_KEYWORDS.contains(&key.as_str())
    });
    other.then(|| {
        let detail = format!(
            "only {ROOT_KEYWORDS_TEXT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        FieldError::invalid(path, raw, &detail)
    })
}

/// Checks `subresources`.
pub(super) fn check_subresources(subresources: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(scale) = subresources.get("scale").filter(|s| s.is_object()) else {
        return errors;
    };
    for (key, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let field = format!("{at}.scale.{key}");
        let path = text(scale, key);
        if path.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(error) = check_simple_path(path, &field) {
            errors.push(error);
        } else if !path.starts_with(prefix) {
            let root = prefix.trim_end_matches('.');
            let detail = format!("should be a json path under {root}");
            errors.push(FieldError::invalid(field, &Value::from(path), &detail));
        }
    }
    let path = text(scale, "labelSelectorPath");
    if !path.is_empty() {
        let field = format!("{at}.scale.labelSelectorPath");
        if let Some(error) = check_simple_path(path, &field) {
            errors.push(error);
        } else if !path.starts_with(".spec.") && !path.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(field, &Value::from(path), detail));
        }
    }
    errors
}

fn check_simple_path(path: &str, field: &str) -> Option<FieldError> {
    (!path.starts_with('.')).then(|| {
        FieldError::invalid(
            field,
            &Value::from(path),
            "must be a simple json path starting with .",
        )
    })
}

/// Checks one of `additionalPrinterColumns`.
pub(super) fn check_column(column: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, format, path) = (
        text(column, "type"),
        text(column, "format"),
        text(column, "jsonPath"),
    );
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{at}.type"), &types));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(FieldError::invalid(
            format!("{at}.type"),
            &Value::from(kind),
            &types,
        ));
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(
            format!("{at}.format"),
            &Value::from(format),
            &detail,
        ));
    }
    let field = format!("{at}.JSONPath");
    if path.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        errors.extend(check_simple_path(path, &field));
    }
    errors
}

/// Checks `selectableFields` against the schema they point into.
pub(super) fn check_selectable(
    fields: &[Value],
    schema: &Value,
    too_many: bool,
    at: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let tree = parse(schema);
    let mut unique = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let here = format!("{at}[{i}].jsonPath");
        let path = text(field, "jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(here, ""));
            continue;
        }
        let shown = Value::from(path);
        let (found, node) = match valid_field_path(path, &tree, false) {
            Ok(found) => found,
            Err(error) => {
                errors.push(FieldError::invalid(
                    here,
                    &shown,
                    &format!("is an invalid path: {error}"),
                ));
                continue;
            }
        };
        if found.split(['.', '[']).next() == Some("metadata") {
            errors.push(FieldError::invalid(
                here.clone(),
                &shown,
                "must not point to fields in metadata",
            ));
        }
        if !matches!(node.kind, Some(Type::String | Type::Boolean | Type::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(here.clone(), &shown, detail));
        }
        if !unique.insert(found) {
            errors.push(FieldError::duplicate(here, &shown));
        }
    }
    if unique.len() > SELECTABLE_MAX && !too_many {
        errors.push(FieldError::too_many(at, unique.len(), SELECTABLE_MAX));
    }
    errors
}

/// Whether a version or spec has more selectable fields than allowed today.
pub(super) fn has_too_many_selectable(fields: &[Value]) -> bool {
    fields.len() > SELECTABLE_MAX
}

/// Checks `names`; which of them are required is the caller's matter.
pub(super) fn check_names(value: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut label = |field: String, name: &str| {
        let problems = names::dns1035_label(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(
                field,
                &Value::from(name),
                &problems.join(","),
            ));
        }
    };
    for key in ["plural", "singular"] {
        let name = text(value, key);
        if !name.is_empty() {
            label(format!("{at}.{key}"), name);
        }
    }
    let (kind, list_kind) = (text(value, "kind"), text(value, "listKind"));
    for (key, name) in [("kind", kind), ("listKind", list_kind)] {
        let problems = names::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            );
            errors.push(FieldError::invalid(
                format!("{at}.{key}"),
                &Value::from(name),
                &detail,
            ));
        }
    }
    let each = |key: &str, errors: &mut Vec<FieldError>| {
        for (i, name) in list(value, key).iter().enumerate() {
            let problems = names::dns1035_label(name.as_str().unwrap_or_default());
            if !problems.is_empty() {
                errors.push(FieldError::invalid(
                    format!("{at}.{key}[{i}]"),
                    name,
                    &problems.join(","),
                ));
            }
        }
    };
    each("shortNames", &mut errors);
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            format!("{at}.listKind"),
            &Value::from(list_kind),
            detail,
        ));
    }
    each("categories", &mut errors);
    errors
}
