// SPDX-License-Identifier: Apache-2.0
//! Turns JSON schemas into the table's lines. A definition is a line `D<TAB>name<TAB>form<TAB>map type`
//! followed by one line per field `name<TAB>type<TAB>flags<TAB>list<TAB>map<TAB>patch<TAB>type name`.
//! Types are letters: s string, b bool, i int32, l int64, f number, y bytes, o object, `[` list of,
//! `{` map of, `@N` the definition with number N.

use serde_json::{Map, Value};

use crate::metadata::Metadata;

/// The structure and the descriptions, in the same order.
pub fn table(definitions: &Map<String, Value>, metadata: &Metadata) -> (String, String) {
    let names: Vec<&str> = definitions.keys().map(String::as_str).collect();
    let (mut structure, mut descriptions) = (String::new(), String::new());
    for (name, schema) in definitions {
        let merge = metadata.merge(name, ".");
        structure.push_str(&format!(
            "D\t{name}\t{}\t{}\n",
            form(name, schema),
            merge.map.unwrap_or_default()
        ));
        push_description(&mut descriptions, schema);
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            continue;
        };
        for (field, schema_of_field) in properties {
            structure.push_str(&field_line(
                name,
                schema,
                field,
                schema_of_field,
                &names,
                metadata,
            ));
            push_description(&mut descriptions, schema_of_field);
        }
    }
    (structure, descriptions)
}

fn push_description(target: &mut String, schema: &Value) {
    let text = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    assert!(!text.contains('\0'), "the separator occurs in a description");
    target.push_str(text);
    target.push('\0');
}

/// What a definition is: a struct, or one of the types with an encoding of their own.
fn form(name: &str, schema: &Value) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => "quantity",
        "IntOrString" => "int-or-string",
        "Time" => "time",
        "MicroTime" => "micro-time",
        "RawExtension" => "raw",
        "FieldsV1" => "fields",
        "Patch" => "patch",
        "JSON" => "json",
        "JSONSchemaPropsOrArray" => "schema-or-array",
        "JSONSchemaPropsOrBool" => "schema-or-bool",
        "JSONSchemaPropsOrStringArray" => "schema-or-strings",
        _ => {
            assert_eq!(
                schema.get("type").and_then(Value::as_str),
                Some("object"),
                "{name} is no struct"
            );
            "struct"
        }
    }
}

fn field_line(
    definition: &str,
    schema: &Value,
    field: &str,
    schema_of_field: &Value,
    names: &[&str],
    metadata: &Metadata,
) -> String {
    let merge = metadata.merge(definition, field);
    let shape = metadata.shape(definition, field);
    let mut flags = shape.flags;
    if required(definition, schema, field) {
        flags.push('r');
    }
    let kind = type_text(schema_of_field, names);
    format!(
        "{field}\t{kind}\t{flags}\t{}\t{}\t{}\t{}\n",
        merge.list.unwrap_or_default(),
        merge.map.unwrap_or_default(),
        merge.patch.unwrap_or_default(),
        shape.type_name
    )
}

/// The crate marks object metadata and the names of local references as required because its structs
/// have them by value; the published API does not. `eventTime` is the opposite case.
fn required(definition: &str, schema: &Value, field: &str) -> bool {
    const OPTIONAL_NAMES: [&str; 8] = [
        "io.k8s.api.core.v1.ConfigMapEnvSource",
        "io.k8s.api.core.v1.ConfigMapKeySelector",
        "io.k8s.api.core.v1.ConfigMapProjection",
        "io.k8s.api.core.v1.ConfigMapVolumeSource",
        "io.k8s.api.core.v1.LocalObjectReference",
        "io.k8s.api.core.v1.SecretEnvSource",
        "io.k8s.api.core.v1.SecretKeySelector",
        "io.k8s.api.core.v1.SecretProjection",
    ];
    match (definition, field) {
        ("io.k8s.api.core.v1.Event", "metadata") | ("io.k8s.api.events.v1.Event", "eventTime") => true,
        (_, "metadata") => false,
        (name, "name") if OPTIONAL_NAMES.contains(&name) => false,
        _ => schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|entry| entry == field)),
    }
}

fn type_text(schema: &Value, names: &[&str]) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.trim_start_matches("#/$defs/");
        let index = names
            .iter()
            .position(|known| *known == name)
            .expect("reference to a known definition");
        return format!("@{index}");
    }
    if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return type_text(only, names);
    }
    let format = schema.get("format").and_then(Value::as_str);
    match (schema.get("type").and_then(Value::as_str), format) {
        (Some("string"), Some("byte")) => "y".to_owned(),
        (Some("string"), None) => "s".to_owned(),
        (Some("boolean"), None) => "b".to_owned(),
        (Some("integer"), Some("int32")) => "i".to_owned(),
        (Some("integer"), Some("int64")) => "l".to_owned(),
        (Some("number"), Some("double")) => "f".to_owned(),
        (Some("array"), None) => format!("[{}", type_text(&schema["items"], names)),
        (Some("object"), None) => match schema.get("additionalProperties") {
            Some(values) => format!("{{{}", type_text(values, names)),
            None => "o".to_owned(),
        },
        other => panic!("no letter for {other:?} in {schema}"),
    }
}
