// SPDX-License-Identifier: Apache-2.0
//! Definitions of custom kinds: the schema as its definition has it, with the metadata every object
//! has. Version 3 keeps everything the schema says; version 2 loses what it cannot express or what
//! makes kubectl refuse valid objects.

use cobaltcore_builtins::{OpenApi as Edition, description};
use serde_json::{Map, Value, json};

use super::names;
use super::render::{described_reference, reference};
use crate::registry::Resource;

/// A kind whose descriptions of apiVersion, kind and metadata are those of every kind.
const MODEL: &str = "io.k8s.api.core.v1.ConfigMap";
/// Schemas are limited in depth when they are registered; this only bounds the recursion here.
const DEPTH: usize = 200;
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The definitions of a custom resource's objects and lists. `definition` is the stored
/// CustomResourceDefinition.
pub(super) fn definitions(edition: Edition, resource: &Resource, definition: &Value) -> [(String, Value); 2] {
    let version = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|v| v["name"] == *resource.version);
    let version = version.unwrap_or(&Value::Null);
    let mut object = object(edition, &version["schema"]["openAPIV3Schema"]);
    object.insert(
        "x-kubernetes-group-version-kind".into(),
        kind(resource, &resource.kind),
    );
    let selectable = version["selectableFields"]
        .as_array()
        .filter(|fields| !fields.is_empty());
    if let Some(fields) = selectable {
        let paths = fields.iter().filter_map(|f| f["jsonPath"].as_str());
        let paths: Vec<Value> = paths
            .map(|p| json!({"fieldPath": p.trim_start_matches('.')}))
            .collect();
        object.insert("x-kubernetes-selectable-fields".into(), Value::Array(paths));
    }
    [
        (names::definition(resource), Value::Object(object)),
        (names::list_definition(resource), list(edition, resource)),
    ]
}

fn kind(resource: &Resource, kind: &str) -> Value {
    json!([{"group": &*resource.group, "version": &*resource.version, "kind": kind}])
}

fn object(edition: Edition, written: &Value) -> Map<String, Value> {
    let open = edition == Edition::V2 && written[PRESERVE] == true;
    let Value::Object(mut schema) = written.clone() else {
        return untyped();
    };
    if schema.is_empty() || open {
        return untyped();
    }
    visit(edition, &mut schema, DEPTH);
    let properties = properties(&mut schema);
    add_type(properties);
    properties.insert("metadata".into(), metadata(edition));
    schema
}

/// Without properties, because kubectl would refuse every field that is not among them.
fn untyped() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object"))])
}

fn properties(schema: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let slot = schema.entry("properties").or_insert_with(|| json!({}));
    crate::meta::fields(slot)
}

fn add_type(properties: &mut Map<String, Value>) {
    for name in ["apiVersion", "kind"] {
        let text = description(MODEL, &[name]).unwrap_or_default();
        properties.insert(name.into(), json!({"type": "string", "description": text}));
    }
}

fn metadata(edition: Edition) -> Value {
    let text = description(MODEL, &["metadata"]).unwrap_or_default();
    described_reference(edition, &names::meta("ObjectMeta"), text)
}

fn list(edition: Edition, resource: &Resource) -> Value {
    let metadata = described_reference(
        edition,
        &names::meta("ListMeta"),
        description(&names::meta("Status"), &["metadata"]).unwrap_or_default(),
    );
    let mut properties = Map::new();
    add_type(&mut properties);
    properties.insert("metadata".into(), metadata);
    properties.insert(
        "items".into(),
        json!({
            "type": "array",
            "description": format!("The {} of this list.", resource.plural),
            "items": reference(edition, &names::definition(resource)),
        }),
    );
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": kind(resource, &resource.list_kind),
    })
}

/// Brings one node of a schema, and everything below it, into the form of the edition.
fn visit(edition: Edition, schema: &mut Map<String, Value>, depth: usize) {
    if depth == 0 {
        return;
    }
    for key in ["example", "externalDocs", "id", "$schema"] {
        schema.remove(key);
    }
    match edition {
        Edition::V3 => unfold(schema),
        Edition::V2 => downgrade(schema),
    }
    for child in schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(Map::values_mut)
    {
        child
            .as_object_mut()
            .into_iter()
            .for_each(|child| visit(edition, child, depth - 1));
    }
    for key in ["items", "additionalProperties"] {
        schema
            .get_mut(key)
            .and_then(Value::as_object_mut)
            .into_iter()
            .for_each(|child| visit(edition, child, depth - 1));
    }
    let preserved = edition == Edition::V2 && is_true(schema, PRESERVE);
    if is_true(schema, "x-kubernetes-embedded-resource") && !preserved {
        let properties = properties(schema);
        add_type(properties);
        properties.insert("metadata".into(), metadata(edition));
        let required = schema.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(names) = required {
            for name in ["kind", "apiVersion"] {
                if !names.iter().any(|n| n == name) {
                    names.push(json!(name));
                }
            }
        }
    }
}

/// States both types of integers that may be strings.
fn unfold(schema: &mut Map<String, Value>) {
    if !is_true(schema, "x-kubernetes-int-or-string") {
        return;
    }
    let stated = |schema: &Map<String, Value>| schema.contains_key("anyOf");
    let nested = schema
        .get("allOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .any(stated);
    if !stated(schema) && !nested {
        schema.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    }
}

/// Removes what version 2 does not know: alternatives, null, and structure beside either of null
/// and unknown fields.
fn downgrade(schema: &mut Map<String, Value>) {
    for key in ["allOf", "anyOf", "oneOf", "not", "default"] {
        schema.remove(key);
    }
    let nullable = schema.remove("nullable") == Some(Value::Bool(true));
    let preserve = is_true(schema, PRESERVE);
    if nullable || preserve {
        for key in ["items", "properties"] {
            schema.remove(key);
        }
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let itemless = kind == "array" && !schema.contains_key("items");
    if nullable || itemless || (preserve && kind == "object") {
        schema.remove("type");
    }
    let nullable_child = |child: Option<&Value>| child.is_some_and(|c| c["nullable"] == true);
    let optional: Vec<String> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, child)| nullable_child(Some(child)))
        .map(|(name, _)| name.clone())
        .collect();
    let all_optional = nullable_child(schema.get("additionalProperties"));
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !all_optional && !optional.iter().any(|o| name == o.as_str()));
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

fn is_true(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_two_loses_what_it_cannot_say() {
        let written = json!({
            "type": "object",
            "required": ["maybe", "sure"],
            "properties": {
                "maybe": {"type": "string", "nullable": true, "oneOf": [{"minLength": 1}]},
                "sure": {"type": "string", "default": "x", "pattern": "^x", "example": "x"},
                "open": {"type": "object", PRESERVE: true, "properties": {"a": {"type": "string"}}},
                "list": {"type": "array", PRESERVE: true, "items": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "inner": {"type": "object", "x-kubernetes-embedded-resource": true, PRESERVE: true},
                "typed": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            },
        });
        let two = Value::Object(object(Edition::V2, &written));
        assert_eq!(two["required"], json!(["sure"]));
        assert_eq!(two["properties"]["maybe"], json!({}));
        assert_eq!(
            two["properties"]["sure"],
            json!({"type": "string", "pattern": "^x"})
        );
        assert_eq!(two["properties"]["open"], json!({PRESERVE: true}));
        assert_eq!(two["properties"]["list"], json!({PRESERVE: true}));
        assert_eq!(
            two["properties"]["port"],
            json!({"x-kubernetes-int-or-string": true})
        );
        assert_eq!(
            two["properties"]["inner"],
            json!({"x-kubernetes-embedded-resource": true, PRESERVE: true})
        );
        assert_eq!(
            two["properties"]["typed"]["required"],
            json!(["kind", "apiVersion"])
        );

        let three = Value::Object(object(Edition::V3, &written));
        assert_eq!(three["required"], written["required"]);
        assert_eq!(three["properties"]["maybe"], written["properties"]["maybe"]);
        assert_eq!(
            three["properties"]["sure"],
            json!({"type": "string", "default": "x", "pattern": "^x"})
        );
        assert_eq!(three["properties"]["port"], written["properties"]["port"]);
        assert!(three["properties"]["inner"]["properties"]["metadata"]["allOf"].is_array());
        assert!(
            three["properties"]["metadata"]["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }

    #[test]
    fn schemas_that_keep_everything_say_nothing_in_version_two() {
        let written = json!({"type": "object", PRESERVE: true, "properties": {"spec": {"type": "object"}}});
        assert_eq!(object(Edition::V2, &written), untyped());
        assert!(object(Edition::V3, &written).contains_key("properties"));
        assert_eq!(object(Edition::V3, &Value::Null), untyped());
    }
}
