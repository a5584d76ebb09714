// SPDX-License-Identifier: Apache-2.0
//! What is not wrong with a definition but worth saying: formats nobody checks, and keywords
//! nobody knows.

use cobaltcore_text::go::quote as quoted;
use serde_json::Value;

use super::{list, schema_of};
use crate::formats;
use crate::parse::unknown_keywords;
use crate::structural::{subschemas, type_of};

/// The paths of unknown keywords in all schemas of a definition, for strict field validation.
pub fn unknown_fields(crd: &Value) -> Vec<String> {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let mut out = Vec::new();
    for (i, version) in list(spec, "versions").iter().enumerate() {
        if let Some(schema) = schema_of(version) {
            out.extend(unknown_keywords(
                schema,
                &format!("spec.versions[{i}].schema.openAPIV3Schema"),
            ));
        }
    }
    out
}

/// The warnings a definition gets when it is created, or with `old` updated.
pub fn crd_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(unrecognized_formats).unwrap_or_default();
    unrecognized_formats(new)
        .iter()
        .filter(|format| !known.contains(format))
        .map(|format| format!("unrecognized format {}", quoted(format)))
        .collect()
}

fn unrecognized_formats(crd: &Value) -> Vec<String> {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let schemas: Vec<&Value> = list(spec, "versions").iter().filter_map(schema_of).collect();
    let mut out = Vec::new();
    let mut seen: Vec<&Value> = Vec::new();
    for schema in schemas {
        // One schema for all versions is looked at once.
        if !seen.contains(&schema) {
            collect_formats(schema, &mut out);
            seen.push(schema);
        }
    }
    out
}

fn collect_formats(schema: &Value, out: &mut Vec<String>) {
    let Some(node) = schema.as_object() else { return };
    if let Some(format) = node
        .get("format")
        .and_then(Value::as_str)
        .filter(|f| !f.is_empty())
    {
        let known = match type_of(node) {
            "" | "string" => formats::is_known(format),
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            _ => false,
        };
        if !known {
            out.push(format.to_owned());
        }
    }
    for child in subschemas(node) {
        collect_formats(child, out);
    }
}
