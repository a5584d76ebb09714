// SPDX-License-Identifier: Apache-2.0
//! Takes a definition apart into facts that can be compared line by line.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What a definition says, without its prose.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// Names, scope, version, subresources.
    pub(crate) general: BTreeMap<String, Value>,
    /// Printer columns in order.
    pub(crate) columns: Vec<Value>,
    /// Field path to what holds for the field.
    pub(crate) schema: BTreeMap<String, Value>,
}

impl Facts {
    /// One line per fact.
    pub(crate) fn render(&self) -> String {
        let general = self
            .general
            .iter()
            .map(|(what, fact)| format!("general {what} {fact}\n"));
        let columns = self.columns.iter().map(|column| format!("column {column}\n"));
        let schema = self
            .schema
            .iter()
            .map(|(path, fact)| format!("field {path} {fact}\n"));
        general.chain(columns).chain(schema).collect()
    }

    /// Reads what [`Facts::render`] wrote.
    pub(crate) fn parse(text: &str) -> Self {
        let mut facts = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("a kind");
            let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
            let keyed = || {
                rest.split_once(' ')
                    .map(|(key, fact)| (key.to_owned(), value(fact)))
                    .expect("a key")
            };
            match kind {
                "general" => facts.general.extend([keyed()]),
                "field" => facts.schema.extend([keyed()]),
                "column" => facts.columns.push(value(rest)),
                other => panic!("unknown kind of fact {other}"),
            }
        }
        facts
    }
}

/// The facts of a definition.
pub(crate) fn facts_of(crd: &Value) -> Facts {
    let (spec, versions) = (&crd["spec"], &crd["spec"]["versions"]);
    assert_eq!(versions.as_array().map(Vec::len), Some(1), "one version");
    let version = &versions[0];
    let mut facts = Facts::default();
    for name in ["kind", "listKind", "plural", "singular", "shortNames"] {
        facts.general.insert(name.into(), spec["names"][name].clone());
    }
    for (what, value) in [
        ("group", &spec["group"]),
        ("scope", &spec["scope"]),
        ("name", &crd["metadata"]["name"]),
    ] {
        facts.general.insert(what.into(), value.clone());
    }
    for what in ["name", "served", "storage", "subresources"] {
        facts
            .general
            .insert(format!("version.{what}"), version[what].clone());
    }
    facts.columns = version["additionalPrinterColumns"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    walk(
        &version["schema"]["openAPIV3Schema"],
        "",
        false,
        &mut facts.schema,
    );
    facts
}

fn walk(schema: &Value, path: &str, required: bool, facts: &mut BTreeMap<String, Value>) {
    let mut fact = Map::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match key.as_str() {
            "description" | "properties" | "items" | "additionalProperties" | "required" => {}
            _ => {
                fact.insert(key.clone(), normal(value));
            }
        }
    }
    if required {
        fact.insert("required".into(), json!(true));
    }
    let name = if path.is_empty() { "." } else { path };
    facts.insert(name.into(), Value::Object(fact));
    let must = |field: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|list| list.contains(&json!(field)))
    };
    for (field, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{field}"), must(field), facts);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), false, facts);
    }
    if schema["additionalProperties"].is_object() {
        walk(
            &schema["additionalProperties"],
            &format!("{path}{{}}"),
            false,
            facts,
        );
    }
}

/// Bounds are the same number whether they are written as `1` or `1.0`.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => number
            .as_f64()
            .filter(|float| number.is_f64() && float.fract() == 0.0)
            .map_or_else(|| value.clone(), |float| json!(float as i64)),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Every description in a definition.
pub(crate) fn descriptions(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => {
            let own = map.get("description").and_then(Value::as_str).map(str::to_owned);
            own.into_iter()
                .chain(map.values().flat_map(descriptions))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(descriptions).collect(),
        _ => Vec::new(),
    }
}

/// An object with every field of the schema filled in.
pub(crate) fn sample(schema: &Value) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("8");
    }
    if let Some(word) = schema["enum"].as_array().and_then(|words| words.last()) {
        return word.clone();
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), Some("date-time")) => json!("2026-07-01T10:20:30Z"),
        (Some("string"), _) => json!("text"),
        (Some("integer"), _) => json!(7),
        (Some("number"), _) => json!(1.5),
        (Some("boolean"), _) => json!(true),
        (Some("array"), _) => json!([sample(&schema["items"])]),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            json!({"key": sample(&schema["additionalProperties"])})
        }
        (Some("object"), _) => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .map(|(name, field)| (name.clone(), sample(field)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => panic!("no sample for {other:?}"),
    }
}
