// SPDX-License-Identifier: Apache-2.0
//! The types rules see: declared from the schema, with the largest sizes it allows.
//!
//! Where a schema sets no bound, the largest number that fits a request is assumed, because the
//! cost of a rule is judged by its worst case.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_cel::{DeclType, ListKind};

use crate::node::{Additional, ListType, Schema, Type};

/// The largest request, in bytes.
pub(super) const MAX_REQUEST: u64 = 3 << 20;

/// A declared type with the smallest size its values have as JSON.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The type.
    pub kind: DeclType,
    /// The smallest size of a value, in bytes.
    pub min_size: u64,
}

impl Declared {
    /// How often a value can occur at most in one request.
    pub fn cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }
}

/// The type of a node, or `None` if rules cannot see it. With `root` the node is a whole object,
/// whose apiVersion, kind and name are always visible.
pub fn declare(schema: &Schema, root: bool) -> Option<Declared> {
    declare_named(schema, root, "object")
}

fn simple(kind: DeclType, min_size: u64) -> Declared {
    Declared { kind, min_size }
}

fn declare_named(schema: &Schema, root: bool, name: &str) -> Option<Declared> {
    if schema.int_or_string {
        return Some(simple(DeclType::Dyn, 1));
    }
    match schema.kind? {
        Type::Array => declare_list(schema, name),
        Type::Object => match &schema.additional {
            Some(Additional::Schema(values)) if !values.is_opaque() && !root => {
                declare_map(schema, values, name)
            }
            _ => Some(declare_object(schema, root, name)),
        },
        Type::String => Some(declare_string(schema)),
        Type::Boolean => Some(simple(DeclType::Bool, 4)),
        Type::Number => Some(simple(DeclType::Double, 1)),
        Type::Integer => Some(simple(DeclType::Int, 1)),
    }
}

fn declare_list(schema: &Schema, name: &str) -> Option<Declared> {
    let element = schema.element()?;
    let declared = declare_named(element, element.embedded_resource, &format!("{name}.@idx"))?;
    let bound = schema.validation.as_ref().and_then(|v| v.max_items);
    let kind = match &schema.list_type {
        ListType::Atomic => ListKind::Atomic,
        ListType::Set => ListKind::Set,
        ListType::Map(keys) => ListKind::Map(keys.clone()),
    };
    let max = bound.unwrap_or((MAX_REQUEST - 2) / (declared.min_size + 1));
    let kind = DeclType::List {
        element: Arc::new(declared.kind),
        kind,
        max: Some(max),
    };
    Some(simple(kind, 2))
}

fn declare_map(schema: &Schema, values: &Schema, name: &str) -> Option<Declared> {
    let declared = declare_named(values, values.embedded_resource, &format!("{name}.@elem"))?;
    let bound = schema.validation.as_ref().and_then(|v| v.max_properties);
    let max = bound.unwrap_or((MAX_REQUEST - 2) / (declared.min_size + 6));
    let kind = DeclType::Map {
        value: Arc::new(declared.kind),
        max: Some(max),
    };
    Some(simple(kind, 2))
}

fn declare_object(schema: &Schema, root: bool, name: &str) -> Declared {
    let mut fields = BTreeMap::new();
    // `{}` at least, and every required field that the server does not fill in itself.
    let mut min_size = 2;
    for (field, node) in &schema.properties {
        if root && matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(declared) = declare_named(node, node.embedded_resource, &format!("{name}.{field}")) {
            if schema.required.contains(field) && node.default.is_none() {
                min_size += field.len() as u64 + declared.min_size + 4;
            }
            fields.insert(field.clone(), Arc::new(declared.kind));
        }
    }
    if root {
        for (field, node) in type_and_object_meta(name) {
            let required = schema.required.iter().any(|r| r == field);
            min_size += if required { field.len() as u64 + 2 + 4 } else { 0 };
            fields.insert(field.to_owned(), Arc::new(node));
        }
    }
    simple(
        DeclType::Object {
            name: name.to_owned(),
            fields: Arc::new(fields),
        },
        min_size,
    )
}

fn type_and_object_meta(name: &str) -> [(&'static str, DeclType); 3] {
    let text = || DeclType::String { max: None };
    let names = ["name", "generateName"].map(|f| (f.to_owned(), Arc::new(text())));
    let metadata = DeclType::Object {
        name: format!("{name}.metadata"),
        fields: Arc::new(names.into_iter().collect()),
    };
    [("apiVersion", text()), ("kind", text()), ("metadata", metadata)]
}

fn declare_string(schema: &Schema) -> Declared {
    let validation = schema.validation.as_deref();
    let bound = validation.and_then(|v| v.max_length);
    match schema.format.as_deref() {
        Some("byte") => simple(DeclType::Bytes { max: bound }, 2),
        Some("duration") => simple(DeclType::Duration, 3),
        Some("date") => simple(DeclType::Timestamp, 12),
        Some("date-time") => simple(DeclType::Timestamp, 21),
        _ => {
            let listed = validation.and_then(|v| v.enumeration.as_ref()).map(|values| {
                // Counted in bytes there, in code points of up to four bytes here.
                let longest = values
                    .iter()
                    .filter_map(|v| v.as_str())
                    .map(str::len)
                    .max()
                    .unwrap_or(0);
                (longest as u64).div_ceil(4)
            });
            simple(
                DeclType::String {
                    max: bound.or(listed),
                },
                2,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    fn shown(schema: &serde_json::Value, root: bool) -> String {
        declare(&parse(schema), root)
            .map(|d| format!("{} {:?}", d.min_size, d.kind))
            .unwrap_or_default()
    }

    #[test]
    fn sizes_follow_the_schema() {
        assert_eq!(shown(&json!({"type": "integer"}), false), "1 Int");
        assert_eq!(
            shown(&json!({"type": "string", "maxLength": 5}), false),
            "2 String { max: Some(5) }"
        );
        assert_eq!(
            shown(&json!({"type": "string", "enum": ["a", "abcde"]}), false),
            "2 String { max: Some(2) }"
        );
        assert_eq!(
            shown(&json!({"type": "string", "format": "date-time"}), false),
            "21 Timestamp"
        );
        assert_eq!(
            shown(&json!({"x-kubernetes-int-or-string": true}), false),
            "1 Dyn"
        );
        assert_eq!(
            shown(&json!({"x-kubernetes-preserve-unknown-fields": true}), false),
            ""
        );
        let unbounded = shown(&json!({"type": "array", "items": {"type": "integer"}}), false);
        assert!(unbounded.contains("max: Some(1572863)"), "{unbounded}");
        let list = shown(
            &json!({"type": "array", "maxItems": 3, "x-kubernetes-list-type": "set", "items": {"type": "integer"}}),
            false,
        );
        assert_eq!(list, "2 List { element: Int, kind: Set, max: Some(3) }");
    }

    #[test]
    fn required_fields_make_objects_larger() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "integer"}, "b": {"type": "string", "default": "x"}, "c": {"type": "string"}}});
        let declared = declare(&parse(&schema), false).expect("visible");
        assert_eq!(declared.min_size, 2 + 1 + 1 + 4);
        let DeclType::Object { fields, .. } = declared.kind else {
            panic!("not an object")
        };
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn roots_show_their_name() {
        let declared = declare(&parse(&json!({"type": "object"})), true).expect("visible");
        let DeclType::Object { fields, .. } = declared.kind else {
            panic!("not an object")
        };
        assert_eq!(
            fields.keys().collect::<Vec<_>>(),
            ["apiVersion", "kind", "metadata"]
        );
    }
}
