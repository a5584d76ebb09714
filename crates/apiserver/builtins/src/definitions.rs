// SPDX-License-Identifier: Apache-2.0
//! OpenAPI definitions of built-in types, with references between them, in the form the published
//! documents have. Version 2 and version 3 differ in where references point and how a description
//! stands beside one; the caller says which it wants.

use std::collections::BTreeMap;

use cobaltcore_schema::{ListType, MapType};
use serde_json::{Map, Value, json};

use crate::kind::kinds;
use crate::table::{Definition, Field, FieldType, Form, descriptions, table};

/// Which OpenAPI version to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenApi {
    /// Swagger 2: `#/definitions/...`, description beside `$ref`.
    V2,
    /// OpenAPI 3: `#/components/schemas/...`, `$ref` inside `allOf`.
    V3,
}

impl OpenApi {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// All definitions by name, lists of kinds included.
pub fn definitions(version: OpenApi) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let kinds_of = group_version_kinds();
    for (index, definition) in table().definitions.iter().enumerate() {
        let mut schema = schema(version, index, definition);
        if let (Some(list), Some(map)) = (kinds_of.get(definition.name), schema.as_object_mut()) {
            map.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                Value::Array(list.clone()),
            );
        }
        all.insert(definition.name.to_owned(), schema);
    }
    add_values(&mut all);
    for kind in kinds().iter().filter(|kind| kind.stored) {
        let name = format!("{}List", kind.definition);
        all.insert(
            name,
            list_schema(version, kind.definition, kind.group, kind.version, kind.kind),
        );
    }
    all
}

/// Names the values of fields that take some only, for people who ask what to write.
fn add_values(all: &mut BTreeMap<String, Value>) {
    const VALUES: &str = include_str!("../generator/metadata/values.txt");
    for line in VALUES.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, (field, values))) = line
            .split_once(' ')
            .and_then(|(name, rest)| Some((name, rest.split_once('=')?)))
        else {
            continue;
        };
        let (field, below) = match (field.strip_suffix("[]"), field.strip_suffix("{}")) {
            (Some(field), _) => (field, Some("items")),
            (_, Some(field)) => (field, Some("additionalProperties")),
            _ => (field, None),
        };
        let property = all
            .get_mut(name)
            .and_then(|schema| schema.get_mut("properties"))
            .and_then(|properties| properties.get_mut(field));
        let target = match below {
            Some(below) => property.and_then(|property| property.get_mut(below)),
            None => property,
        };
        if let Some(target) = target.and_then(Value::as_object_mut) {
            target.insert("enum".to_owned(), values.split('|').collect());
        }
    }
}

/// One definition and the names of those it refers to directly.
pub fn definition(version: OpenApi, name: &str) -> Option<Value> {
    definitions(version).remove(name)
}

/// Names of all definitions a definition reaches, itself included; what a group version's document
/// has to contain for the kinds it serves.
pub fn reachable(name: &str) -> Vec<&'static str> {
    let table = table();
    let mut seen = vec![false; table.definitions.len()];
    let mut open: Vec<usize> = table.index(name).into_iter().collect();
    while let Some(index) = open.pop() {
        let Some(mark) = seen.get_mut(index) else { continue };
        if std::mem::replace(mark, true) {
            continue;
        }
        if let Some(definition) = table.get(index) {
            open.extend(definition.fields.iter().filter_map(|field| target(&field.kind)));
            if matches!(
                definition.form,
                Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings
            ) {
                let schema = definition
                    .name
                    .trim_end_matches("OrArray")
                    .trim_end_matches("OrBool");
                open.extend(table.index(schema.trim_end_matches("OrStringArray")));
            }
        }
    }
    table
        .definitions
        .iter()
        .zip(seen)
        .filter(|(_, seen)| *seen)
        .map(|(definition, _)| definition.name)
        .collect()
}

fn target(kind: &FieldType) -> Option<usize> {
    match kind {
        FieldType::Definition(index) => Some(*index),
        FieldType::List(inner) | FieldType::Map(inner) => target(inner),
        _ => None,
    }
}

fn group_version_kinds() -> BTreeMap<&'static str, Vec<Value>> {
    let entry =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut all: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
    for kind in kinds() {
        all.entry(kind.definition)
            .or_default()
            .push(entry(kind.group, kind.version, kind.kind));
    }
    all.insert(
        "io.k8s.api.autoscaling.v1.Scale",
        vec![entry("autoscaling", "v1", "Scale")],
    );
    all.insert(
        "io.k8s.api.policy.v1.Eviction",
        vec![entry("policy", "v1", "Eviction")],
    );
    all.insert(
        "io.k8s.api.authentication.v1.TokenRequest",
        vec![entry("authentication.k8s.io", "v1", "TokenRequest")],
    );
    for name in [
        "Status",
        "DeleteOptions",
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
        "APIVersions",
    ] {
        if let Some(definition) = table().find(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")) {
            all.insert(definition.name, vec![entry("", "v1", name)]);
        }
    }
    all
}

fn schema(version: OpenApi, index: usize, definition: &Definition) -> Value {
    let mut schema = Map::new();
    let text = descriptions().of(index);
    if !text.is_empty() {
        schema.insert("description".to_owned(), json!(text));
    }
    match definition.form {
        Form::Struct => return structure(version, index, definition, schema),
        Form::Quantity if version == OpenApi::V3 => {
            schema.insert(
                "oneOf".to_owned(),
                json!([{"type": "string"}, {"type": "number"}]),
            );
        }
        Form::Quantity => {
            schema.insert("type".to_owned(), json!("string"));
        }
        Form::IntOrString if version == OpenApi::V3 => {
            schema.insert("format".to_owned(), json!("int-or-string"));
            schema.insert(
                "oneOf".to_owned(),
                json!([{"type": "integer"}, {"type": "string"}]),
            );
        }
        Form::IntOrString => {
            schema.insert("type".to_owned(), json!("string"));
            schema.insert("format".to_owned(), json!("int-or-string"));
        }
        Form::Time | Form::MicroTime => {
            schema.insert("type".to_owned(), json!("string"));
            schema.insert("format".to_owned(), json!("date-time"));
        }
        Form::Raw | Form::Fields | Form::Patch => {
            schema.insert("type".to_owned(), json!("object"));
        }
        Form::Json | Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {}
    }
    Value::Object(schema)
}

fn structure(
    version: OpenApi,
    index: usize,
    definition: &Definition,
    mut schema: Map<String, Value>,
) -> Value {
    schema.insert("type".to_owned(), json!("object"));
    let mut properties = Map::new();
    for (position, field) in definition.fields.iter().enumerate() {
        let text = descriptions().of_field(index, position);
        properties.insert(field.name.to_owned(), property(version, field, text));
    }
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    let required: Vec<&str> = definition
        .fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if let Some(map_type) = definition.map_type {
        schema.insert("x-kubernetes-map-type".to_owned(), json!(map_type_text(map_type)));
    }
    Value::Object(schema)
}

fn property(version: OpenApi, field: &Field, description: &str) -> Value {
    let plain = type_schema(version, &field.kind);
    let mut property = match plain {
        Value::Object(map) if version == OpenApi::V3 && map.contains_key("$ref") => {
            let mut wrapped = Map::new();
            wrapped.insert("allOf".to_owned(), json!([map]));
            wrapped
        }
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if !description.is_empty() {
        property.insert("description".to_owned(), json!(description));
    }
    if let Some(list_type) = &field.list_type {
        let (word, keys) = match list_type {
            ListType::Atomic => ("atomic", None),
            ListType::Set => ("set", None),
            ListType::Map(keys) => ("map", Some(keys)),
        };
        property.insert("x-kubernetes-list-type".to_owned(), json!(word));
        if let Some(keys) = keys {
            property.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
        }
    }
    if let Some(map_type) = field.map_type {
        property.insert("x-kubernetes-map-type".to_owned(), json!(map_type_text(map_type)));
    }
    if !field.patch_words.is_empty() {
        property.insert("x-kubernetes-patch-strategy".to_owned(), json!(field.patch_words));
    }
    if let Some(key) = &field.patch.merge_key {
        property.insert("x-kubernetes-patch-merge-key".to_owned(), json!(key));
    }
    Value::Object(property)
}

fn map_type_text(map_type: MapType) -> &'static str {
    match map_type {
        MapType::Atomic => "atomic",
        MapType::Granular => "granular",
    }
}

fn type_schema(version: OpenApi, kind: &FieldType) -> Value {
    match kind {
        FieldType::String => json!({"type": "string"}),
        FieldType::Bool => json!({"type": "boolean"}),
        FieldType::Int32 => json!({"type": "integer", "format": "int32"}),
        FieldType::Int64 => json!({"type": "integer", "format": "int64"}),
        FieldType::Double => json!({"type": "number", "format": "double"}),
        FieldType::Bytes => json!({"type": "string", "format": "byte"}),
        FieldType::Object => json!({"type": "object"}),
        FieldType::List(inner) => json!({"type": "array", "items": type_schema(version, inner)}),
        FieldType::Map(inner) => {
            json!({"type": "object", "additionalProperties": type_schema(version, inner)})
        }
        FieldType::Definition(index) => table()
            .get(*index)
            .map_or(json!({}), |definition| version.reference(definition.name)),
    }
}

fn list_schema(version: OpenApi, definition: &str, group: &str, api_version: &str, kind: &str) -> Value {
    let beside = |reference: Value, text: &str| match (version, reference) {
        (OpenApi::V3, reference) => json!({"allOf": [reference], "description": text}),
        (OpenApi::V2, Value::Object(mut map)) => {
            map.insert("description".to_owned(), json!(text));
            Value::Object(map)
        }
        (_, other) => other,
    };
    let own = |name: &str| crate::table::description(definition, &[name]).unwrap_or_default();
    let metadata = version.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    json!({
        "description": format!("{kind}List is a list of {kind} objects."),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": own("apiVersion")},
            "kind": {"type": "string", "description": own("kind")},
            "metadata": beside(metadata, "Standard list metadata."),
            "items": {
                "type": "array",
                "description": format!("The {kind} objects."),
                "items": version.reference(definition),
            },
        },
        "x-kubernetes-group-version-kind": [{"group": group, "version": api_version, "kind": format!("{kind}List")}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that moved would silently lose its values.
    #[test]
    fn every_listed_field_has_its_values() {
        let lines = include_str!("../generator/metadata/values.txt")
            .lines()
            .filter(|line| !line.starts_with('#'));
        for version in [OpenApi::V2, OpenApi::V3] {
            let all = definitions(version);
            let listed: usize = all
                .values()
                .filter_map(|schema| schema.get("properties")?.as_object())
                .flat_map(|properties| properties.values())
                .filter(|property| {
                    [None, Some("items"), Some("additionalProperties")]
                        .into_iter()
                        .filter_map(|below| match below {
                            Some(below) => property.get(below),
                            None => Some(*property),
                        })
                        .any(|target| target.get("enum").is_some())
                })
                .count();
            assert_eq!(listed, lines.clone().count());
        }
    }
}
