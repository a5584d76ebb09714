// SPDX-License-Identifier: Apache-2.0
//! Defaults: those a definition gets itself, and the check of those its schemas declare.

use cobaltcore_cel::Budget;
use serde_json::{Value, json};

use crate::check::check;
use crate::embedded::check_embedded_at;
use crate::error::FieldError;
use crate::node::Schema;
use crate::objectmeta::check_metadata;
use crate::prune::{Root, has_unknown_fields};
use crate::rules::run_rules_at;

/// Fills in what a CustomResourceDefinition leaves out: singular and list names, conversion, the
/// port of a conversion webhook, and the stored versions of its status.
pub fn default_crd(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").filter(|s| s.is_object()) else {
        return;
    };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let empty = |value: Option<&Value>| value.is_none_or(|v| v.as_str() == Some("") || v.is_null());
        if empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".to_owned(), Value::from(kind.to_lowercase()));
        }
        if empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_owned(), Value::from(format!("{kind}List")));
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null)
        && let Some(spec) = spec.as_object_mut()
    {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let service = spec
        .pointer_mut("/conversion/webhook/clientConfig/service")
        .and_then(Value::as_object_mut);
    if let Some(service) = service.filter(|s| s.get("port").is_none_or(Value::is_null)) {
        service.insert("port".to_owned(), Value::from(443));
    }
    let storage = spec
        .get("versions")
        .and_then(Value::as_array)
        .and_then(|versions| {
            versions
                .iter()
                .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        })
        .and_then(|v| v.get("name").cloned());
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    if let (Some(name), true) = (storage, stored.is_none_or(Vec::is_empty))
        && let Some(crd) = crd.as_object_mut()
    {
        let status = crd.entry("status").or_insert_with(|| json!({}));
        if status.is_null() {
            *status = json!({});
        }
        if let Some(status) = status.as_object_mut() {
            status.insert("storedVersions".to_owned(), json!([name]));
        }
    }
}

/// Checks that every declared default is pruned and valid. Rules must have been compiled.
pub(crate) fn check_defaults(tree: &Schema, path: &str, require_pruned: bool) -> Vec<FieldError> {
    let mut checker = Checker {
        errors: Vec::new(),
        require_pruned,
        budget: Budget::per_object(),
    };
    checker.node(tree, path, true, false);
    checker.errors
}

struct Checker {
    errors: Vec<FieldError>,
    require_pruned: bool,
    budget: Budget,
}

impl Checker {
    fn node(&mut self, schema: &Schema, path: &str, root: bool, in_meta: bool) {
        let resource = root || schema.embedded_resource;
        let in_meta = in_meta && !schema.embedded_resource;
        if let Some(default) = &schema.default {
            let path = format!("{path}.default");
            if root {
                // What stands for a whole object is one.
                let mut whole = schema.clone();
                whole.embedded_resource = true;
                self.value(&whole, default, &path, in_meta);
            } else {
                self.value(schema, default, &path, in_meta);
            }
        }
        if let Some(items) = schema.element() {
            self.node(items, &format!("{path}.items"), false, in_meta);
        }
        for (name, node) in &schema.properties {
            let meta = resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
            self.node(
                node,
                &format!("{path}.properties[{name}]"),
                false,
                in_meta || meta,
            );
        }
    }

    fn value(&mut self, schema: &Schema, default: &Value, path: &str, in_meta: bool) {
        let root = if schema.embedded_resource {
            Root::Resource
        } else {
            Root::Value
        };
        if !in_meta && self.require_pruned && has_unknown_fields(schema, default, root) {
            self.errors
                .push(FieldError::invalid(path, default, "must not have unknown fields"));
        }
        if let Err(detail) = check_metadata(schema, default, root) {
            self.errors.push(FieldError::invalid(path, default, &detail));
            return;
        }
        for errors in [
            check_embedded_at(schema, default, path),
            check(schema, default, None, path),
        ] {
            if !errors.is_empty() {
                self.errors.extend(errors);
                return;
            }
        }
        // Once as an unchanged value and once as a new one, because rules may tell them apart.
        let kept = run_rules_at(schema, default, Some(default), path, &mut self.budget);
        if kept.is_empty() {
            let new = run_rules_at(schema, default, None, path, &mut self.budget);
            self.errors.extend(new);
        } else {
            self.errors.extend(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn a_definition_is_completed() {
        let mut crd = json!({"spec": {"group": "g.example", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]}});
        default_crd(&mut crd);
        assert_eq!(crd.pointer("/spec/names/singular"), Some(&json!("widget")));
        assert_eq!(crd.pointer("/spec/names/listKind"), Some(&json!("WidgetList")));
        assert_eq!(
            crd.pointer("/spec/conversion"),
            Some(&json!({"strategy": "None"}))
        );
        assert_eq!(crd.pointer("/status/storedVersions"), Some(&json!(["v2"])));
        let once = crd.clone();
        default_crd(&mut crd);
        assert_eq!(crd, once);
    }

    #[test]
    fn declared_defaults_must_be_valid_and_pruned() {
        let tree = parse(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "integer", "default": "x"},
                "b": {"type": "object", "default": {"c": 1, "d": 2}, "properties": {"c": {"type": "integer"}}},
                "e": {"type": "string", "enum": ["x"], "default": "y"},
                "f": {"type": "string", "default": "fine"}
            }}}}),
        );
        let texts: Vec<String> = check_defaults(&tree, "s", true)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "s.properties[spec].properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
                "s.properties[spec].properties[b].default: Invalid value: {\"c\":1,\"d\":2}: must not have unknown fields",
                "s.properties[spec].properties[e].default: Unsupported value: \"y\": supported values: \"x\""
            ]
        );
    }
}
