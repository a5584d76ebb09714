// SPDX-License-Identifier: Apache-2.0
//! CustomResourceDefinitions: completed, checked, and compiled into what the server needs to
//! serve the kind.

mod columns;
mod conversion;
mod defaults;
mod definition;
mod spec;
mod versions;
mod warnings;

use std::sync::Arc;

use serde_json::Value;

pub use columns::{Column, Scale, Selectable, validate_scale};
pub use defaults::default_crd;
pub use definition::{validate_crd, validate_crd_status_update, validate_crd_update};
pub use versions::version_priority;
pub use warnings::{crd_warnings, unknown_fields};

use crate::error::FieldError;
use crate::node::Schema;
use crate::parse::{parse, strings};
use crate::rules::compile_rules;

/// A definition, ready to be served.
#[derive(Debug, Clone)]
pub struct CustomResource {
    /// The API group.
    pub group: String,
    /// What the kind is called.
    pub names: Names,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// All versions, served or not, in the order of the definition.
    pub versions: Vec<Version>,
}

/// What a kind is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// As in paths.
    pub plural: String,
    /// For people.
    pub singular: String,
    /// As in objects.
    pub kind: String,
    /// As in lists.
    pub list_kind: String,
    /// For the command line.
    pub short_names: Vec<String>,
    /// Groups of kinds such as `all`.
    pub categories: Vec<String>,
}

/// One version of a kind.
#[derive(Debug, Clone)]
pub struct Version {
    /// `v1alpha1` and the like.
    pub name: String,
    /// Whether requests may use it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The warning for users of a deprecated version.
    pub deprecated: Option<String>,
    /// What objects look like.
    pub schema: Arc<Schema>,
    /// Columns of tables besides the name.
    pub columns: Vec<Column>,
    /// Whether there is a status endpoint.
    pub status: bool,
    /// The scale endpoint, if there is one.
    pub scale: Option<Scale>,
    /// Fields that selectors may use besides name and namespace.
    pub selectable: Vec<Selectable>,
}

impl CustomResource {
    /// The version objects are stored in.
    pub fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|v| v.storage)
    }

    /// A version by name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|v| v.name == name)
    }
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The `openAPIV3Schema` of a version.
pub(super) fn schema_of(version: &Value) -> Option<&Value> {
    version
        .get("schema")
        .and_then(|s| s.get("openAPIV3Schema"))
        .filter(|s| s.is_object())
}

/// Compiles a definition that was validated before. Errors are rules that do not compile.
pub fn compile(crd: &Value) -> Result<CustomResource, Vec<FieldError>> {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    let names = Names {
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
    };
    let group = text(spec, "group");
    let mut errors = Vec::new();
    let mut versions: Vec<Version> = Vec::new();
    for (i, version) in list(spec, "versions").iter().enumerate() {
        // Versions often share one schema; it is compiled once.
        let shared = list(spec, "versions")
            .iter()
            .take(i)
            .position(|earlier| schema_of(earlier) == schema_of(version))
            .and_then(|at| versions.get(at))
            .map(|earlier| Arc::clone(&earlier.schema));
        let schema = match shared {
            Some(schema) => schema,
            None => Arc::new(compile_schema(version, i, &mut errors)),
        };
        versions.push(compile_version(version, spec, &names.kind, schema));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let namespaced = text(spec, "scope") == "Namespaced";
    Ok(CustomResource {
        group: group.to_owned(),
        names,
        namespaced,
        versions,
    })
}

fn compile_version(version: &Value, spec: &Value, kind: &str, schema: Arc<Schema>) -> Version {
    let name = text(version, "name");
    let flag = |key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
    let deprecated = flag("deprecated").then(|| match text(version, "deprecationWarning") {
        "" => versions::deprecation(spec, name, kind),
        given => given.to_owned(),
    });
    let subresources = version.get("subresources").unwrap_or(&Value::Null);
    Version {
        name: name.to_owned(),
        served: flag("served"),
        storage: flag("storage"),
        deprecated,
        schema,
        columns: columns::compile_columns(list(version, "additionalPrinterColumns")),
        status: subresources.get("status").is_some_and(|s| !s.is_null()),
        scale: subresources
            .get("scale")
            .filter(|s| s.is_object())
            .map(columns::compile_scale),
        selectable: columns::compile_selectable(list(version, "selectableFields")),
    }
}

fn compile_schema(version: &Value, index: usize, errors: &mut Vec<FieldError>) -> Schema {
    let Some(raw) = schema_of(version) else {
        // Without a schema nothing is known about the fields, and so nothing is kept.
        return parse(&serde_json::json!({"type": "object"}));
    };
    let mut schema = parse(raw);
    compile_rules(&mut schema, true);
    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
    collect_rule_errors(&schema, &path, errors);
    schema
}

fn collect_rule_errors(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if !schema.has_rules() {
        return;
    }
    for (i, rule) in schema.rules.iter().enumerate() {
        for (key, error) in [("rule", &rule.error), ("messageExpression", &rule.message_error)] {
            if let Some(error) = error {
                let field = format!("{path}.x-kubernetes-validations[{i}].{key}");
                errors.push(FieldError::invalid(
                    field,
                    &Value::from(rule.rule.as_str()),
                    error,
                ));
            }
        }
    }
    if let Some(items) = schema.element() {
        collect_rule_errors(items, &format!("{path}.items"), errors);
    }
    if let Some(crate::node::Additional::Schema(values)) = &schema.additional {
        collect_rule_errors(values, &format!("{path}.additionalProperties"), errors);
    }
    for (name, node) in &schema.properties {
        collect_rule_errors(node, &format!("{path}.properties[{name}]"), errors);
    }
}
