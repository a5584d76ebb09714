// SPDX-License-Identifier: Apache-2.0
//! Printer columns, selectable fields and scale paths of a definition, compiled.

use cobaltcore_text::go;
use serde_json::Value;

use crate::error::FieldError;
use crate::jsonpath::{JsonPath, print};

const AGE_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// One additional column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// integer, number, string, boolean or date.
    pub kind: String,
    /// How to show the values, may be empty.
    pub format: String,
    /// What it means.
    pub description: String,
    /// Columns above 0 are only shown in wide tables.
    pub priority: i64,
    /// Where its values are.
    pub json_path: JsonPath,
}

impl Column {
    /// The cell of an object; null where it has no value. `age` turns a timestamp into an age.
    pub fn cell(&self, object: &Value, age: &dyn Fn(&str) -> String) -> Value {
        let Some(value) = self.json_path.first(object) else {
            return Value::Null;
        };
        let value = value.as_ref();
        match (self.kind.as_str(), value) {
            ("string", Value::Null) => Value::from("<no value>"),
            ("string", value) => Value::String(print(value)),
            ("integer", Value::Number(n)) => n
                .as_i64()
                .or_else(|| n.as_f64().map(|f| f as i64))
                .map_or(Value::Null, Value::from),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => Value::String(age(text)),
            _ => Value::Null,
        }
    }
}

/// The columns of a version; an Age column if it declares none. Columns from the first that does
/// not compile on are left out.
pub(super) fn compile_columns(list: &[Value]) -> Vec<Column> {
    let text = |col: &Value, key: &str| {
        col.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if list.is_empty() {
        return JsonPath::compile(".metadata.creationTimestamp")
            .map(|json_path| Column {
                name: "Age".to_owned(),
                kind: "date".to_owned(),
                format: String::new(),
                description: AGE_TEXT.to_owned(),
                priority: 0,
                json_path,
            })
            .into_iter()
            .collect();
    }
    let mut columns = Vec::new();
    for column in list {
        let path = text(column, "jsonPath");
        let Ok(json_path) = JsonPath::compile(&path) else {
            break;
        };
        let description = match text(column, "description") {
            empty if empty.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given,
        };
        columns.push(Column {
            name: text(column, "name"),
            kind: text(column, "type"),
            format: text(column, "format"),
            description,
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            json_path,
        });
    }
    columns
}

/// A field that can be used in field selectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Selectable {
    /// Its name in selectors: `spec.color`.
    pub name: String,
    /// Where its value is.
    pub json_path: JsonPath,
}

impl Selectable {
    /// The value of an object as selectors compare it; empty where there is none.
    pub fn value(&self, object: &Value) -> String {
        match self.json_path.first(object).as_deref() {
            None | Some(Value::Null) => String::new(),
            Some(value) => print(value),
        }
    }
}

pub(super) fn compile_selectable(list: &[Value]) -> Vec<Selectable> {
    list.iter()
        .filter_map(|field| {
            let path = field.get("jsonPath").and_then(Value::as_str)?;
            let json_path = JsonPath::compile(path).ok()?;
            Some(Selectable {
                name: path.trim_start_matches('.').to_owned(),
                json_path,
            })
        })
        .collect()
}

/// Where the scale subresource finds its numbers, as lists of field names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Wanted replicas, under spec.
    pub spec_path: Vec<String>,
    /// Existing replicas, under status.
    pub status_path: Vec<String>,
    /// The selector as text, under spec or status.
    pub label_selector_path: Option<Vec<String>>,
}

pub(super) fn compile_scale(scale: &Value) -> Scale {
    let path = |key: &str| {
        let text = scale.get(key).and_then(Value::as_str).unwrap_or_default();
        text.trim_start_matches('.')
            .split('.')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let selector = scale
        .get("labelSelectorPath")
        .and_then(Value::as_str)
        .is_some_and(|s| !s.is_empty());
    Scale {
        spec_path: path("specReplicasPath"),
        status_path: path("statusReplicasPath"),
        label_selector_path: selector.then(|| path("labelSelectorPath")),
    }
}

/// Checks the values the scale subresource reads. Updates of the status do not look at the spec.
pub fn validate_scale(scale: &Scale, object: &Value, status_only: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !status_only {
        errors.extend(replicas(&scale.spec_path, object));
    }
    errors.extend(replicas(&scale.status_path, object));
    if let Some(path) = &scale.label_selector_path {
        let refusal = match lookup(object, path) {
            Err(detail) => Some(detail),
            Ok(found) => found
                .filter(|v| !v.is_string())
                .map(|value| access_error(path, value, "string")),
        };
        if let Some(detail) = refusal {
            let field = format!(".{}", path.join("."));
            errors.push(FieldError::invalid(field, &Value::from(""), &detail));
        }
    }
    errors
}

/// The value at a path; an error where something on the way is no object.
fn lookup<'a>(object: &'a Value, path: &[String]) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    for (depth, name) in path.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(inner) => value = inner,
                None => return Ok(None),
            },
            other => {
                let reached = path.get(..=depth).unwrap_or(path);
                return Err(access_error(reached, other, "map[string]interface{}"));
            }
        }
    }
    Ok(Some(value))
}

fn access_error(path: &[String], value: &Value, expected: &str) -> String {
    format!(
        ".{} accessor error: {} is of the type {}, expected {expected}",
        path.join("."),
        show(value),
        go::type_name(value)
    )
}

fn replicas(path: &[String], object: &Value) -> Option<FieldError> {
    let field = format!(".{}", path.join("."));
    let value = match lookup(object, path) {
        Ok(found) => found?,
        Err(detail) => return Some(FieldError::invalid(field, &Value::from(0), &detail)),
    };
    match value.as_i64() {
        None => {
            let detail = access_error(path, value, "int64");
            Some(FieldError::invalid(field, &Value::from(0), &detail))
        }
        Some(n) if n < 0 => Some(FieldError::invalid(
            field,
            value,
            "should be a non-negative integer",
        )),
        Some(n) if n > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            Some(FieldError::invalid(field, value, &detail))
        }
        Some(_) => None,
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        other => print(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells() {
        let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"n": 3, "f": 2.5, "b": true, "l": [1, 2], "s": "x"}});
        let cell = |kind: &str, path: &str| {
            let columns = compile_columns(&[json!({"name": "C", "type": kind, "jsonPath": path})]);
            columns.first().map(|c| c.cell(&object, &|_| "3d".to_owned()))
        };
        for (kind, path, expected) in [
            ("string", ".spec.s", json!("x")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.l", json!("[1,2]")),
            ("string", ".spec.l[*]", json!("1")),
            ("string", ".spec.none", json!(null)),
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.s", json!(null)),
            ("number", ".spec.f", json!(2.5)),
            ("boolean", ".spec.b", json!(true)),
            ("date", ".metadata.creationTimestamp", json!("3d")),
        ] {
            assert_eq!(cell(kind, path), Some(expected), "{kind} {path}");
        }
        assert_eq!(
            compile_columns(&[]).first().map(|c| c.name.clone()).as_deref(),
            Some("Age")
        );
    }

    #[test]
    fn scale_values() {
        let scale = compile_scale(
            &json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}),
        );
        let texts = |object: Value| -> Vec<String> {
            validate_scale(&scale, &object, false)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert!(texts(json!({"spec": {"replicas": 1}})).is_empty());
        assert_eq!(
            texts(json!({"spec": {"replicas": -1}, "status": {"replicas": "x", "selector": 5}})),
            [
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type string, expected int64",
                ".status.selector: Invalid value: \"\": .status.selector accessor error: 5 is of the type int64, expected string"
            ]
        );
        assert_eq!(
            texts(json!({"spec": [], "status": null})),
            [
                ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: [] is of the type []interface {}, expected map[string]interface{}"
            ]
        );
    }
}
