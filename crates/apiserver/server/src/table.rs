// SPDX-License-Identifier: Apache-2.0
//! Objects as rows and columns, the way `kubectl get` prints them.

use cobaltcore_builtins::age;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock;
use crate::negotiate::Include;
use crate::registry::{Model, Resource};
use crate::view::{included, meta_version};

/// What the reference says of a metadata field.
fn describe(field: &str) -> &'static str {
    cobaltcore_builtins::description("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &[field])
        .unwrap_or_default()
}

/// A whole table.
pub(crate) fn table(
    resource: &Resource,
    listmeta: Value,
    rows: Vec<Value>,
    columns: bool,
    beta: bool,
) -> Value {
    let definitions = columns.then(|| column_definitions(resource));
    json!({
        "kind": "Table",
        "apiVersion": meta_version(beta),
        "metadata": listmeta,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// The columns of a resource.
pub(crate) fn column_definitions(resource: &Resource) -> Vec<Value> {
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: i32| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    match &resource.model {
        Model::Builtin(kind) => kind
            .columns()
            .iter()
            .map(|c| column(c.name, c.kind, c.format, c.description, c.priority))
            .collect(),
        Model::Custom(custom) => {
            let mut all = vec![column("Name", "string", "name", describe("name"), 0)];
            let columns = &custom.version().columns;
            if columns.is_empty() {
                all.push(column("Age", "date", "", describe("creationTimestamp"), 0));
            }
            all.extend(
                columns
                    .iter()
                    .map(|c| column(&c.name, &c.kind, &c.format, &c.description, c.priority as i32)),
            );
            all
        }
    }
}

/// A Scale has columns of its own, whatever it scales.
pub(crate) fn of_scale(scale: Value, include: Include, beta: bool, now: Timestamp) -> Value {
    let described = |part: &str, field: &str| {
        let kind = format!("io.k8s.api.autoscaling.v1.{part}");
        cobaltcore_builtins::description(&kind, &[field]).unwrap_or_default()
    };
    let columns: Vec<Value> = [
        ("Name", "string", describe("name")),
        ("Desired", "integer", described("ScaleSpec", "replicas")),
        ("Available", "integer", described("ScaleStatus", "replicas")),
        ("Age", "string", describe("creationTimestamp")),
    ]
    .iter()
    .map(|(name, kind, description)| {
        json!({"name": name, "type": kind, "format": "", "description": description, "priority": 0})
    })
    .collect();
    let count = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let cells = json!([
        crate::meta::name(&scale),
        count("spec"),
        count("status"),
        age_cell(scale["metadata"]["creationTimestamp"].as_str(), now),
    ]);
    json!({
        "kind": "Table",
        "apiVersion": meta_version(beta),
        "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
        "columnDefinitions": columns,
        "rows": [{"cells": cells, "object": included(scale, include, beta)}],
    })
}

/// One row.
pub(crate) fn row(resource: &Resource, object: Value, include: Include, beta: bool, now: Timestamp) -> Value {
    let cells = match &resource.model {
        Model::Builtin(kind) => kind.row(&object, now),
        Model::Custom(custom) => custom_cells(custom.version(), &object, now),
    };
    json!({"cells": cells, "object": included(object, include, beta)})
}

fn custom_cells(version: &cobaltcore_schema::crd::Version, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![json!(crate::meta::name(object))];
    if version.columns.is_empty() {
        cells.push(age_cell(object["metadata"]["creationTimestamp"].as_str(), now));
        return cells;
    }
    let age = |text: &str| match clock::parse(text) {
        Some(at) => age(at, now),
        None => "<invalid>".to_owned(),
    };
    cells.extend(version.columns.iter().map(|column| column.cell(object, &age)));
    cells
}

fn age_cell(text: Option<&str>, now: Timestamp) -> Value {
    match text {
        None => Value::Null,
        Some(text) => match clock::parse(text) {
            Some(at) => Value::String(age(at, now)),
            None => Value::String("<invalid>".into()),
        },
    }
}
