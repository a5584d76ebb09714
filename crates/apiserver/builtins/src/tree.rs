// SPDX-License-Identifier: Apache-2.0
//! Schema trees of built-in kinds, built from the table on first use and shared: one node per
//! definition, however many fields refer to it, and one more for each field that adds ownership or
//! merge rules of its own. Schemas of custom resources inside a definition are opaque here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cobaltcore_schema::{Additional, MapType, Schema, Type};
use serde_json::json;

use crate::table::{Definition, Field, FieldType, Form, descriptions, table};

/// Builds trees and remembers the node of every definition it has seen.
#[derive(Default)]
pub(crate) struct Trees {
    described: bool,
    nodes: Mutex<HashMap<usize, Arc<Schema>>>,
}

impl Trees {
    pub(crate) fn new(described: bool) -> Self {
        Self {
            described,
            nodes: Mutex::default(),
        }
    }

    /// The tree of a definition.
    pub(crate) fn of(&self, name: &str) -> Arc<Schema> {
        let Some(index) = table().index(name) else {
            return Arc::new(opaque());
        };
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        self.definition(index, &mut nodes)
    }

    fn definition(&self, index: usize, nodes: &mut HashMap<usize, Arc<Schema>>) -> Arc<Schema> {
        if let Some(known) = nodes.get(&index) {
            return Arc::clone(known);
        }
        let Some(definition) = table().get(index) else {
            return Arc::new(opaque());
        };
        let mut node = self.node_of(definition, index, nodes);
        node.definition = Some(Arc::from(definition.name));
        if self.described {
            node.description = Some(Arc::from(descriptions().of(index)));
        }
        let node = Arc::new(node);
        nodes.insert(index, Arc::clone(&node));
        node
    }

    fn node_of(
        &self,
        definition: &Definition,
        index: usize,
        nodes: &mut HashMap<usize, Arc<Schema>>,
    ) -> Schema {
        match definition.form {
            Form::Struct if definition.short_name() == "JSONSchemaProps" => opaque_object(),
            Form::Struct => {
                let mut node = Schema {
                    kind: Some(Type::Object),
                    ..Schema::default()
                };
                node.map_type = definition.map_type.unwrap_or_default();
                for (position, field) in definition.fields.iter().enumerate() {
                    let child = self.field(definition, index, position, field, nodes);
                    node.properties.insert(field.name.to_owned(), child);
                    if field.required {
                        node.required.push(field.name.to_owned());
                    }
                }
                node
            }
            // The published form of a quantity is a string; numbers are accepted and rewritten.
            Form::Quantity => Schema {
                kind: Some(Type::String),
                ..Schema::default()
            },
            Form::IntOrString => Schema {
                int_or_string: true,
                ..Schema::default()
            },
            Form::Time | Form::MicroTime => Schema {
                kind: Some(Type::String),
                format: Some("date-time".to_owned()),
                ..Schema::default()
            },
            // Nobody knows what its parts mean, so it is owned as a whole.
            Form::Raw => Schema {
                map_type: MapType::Atomic,
                ..opaque_object()
            },
            Form::Fields => Schema {
                map_type: MapType::Granular,
                ..opaque_object()
            },
            Form::Patch | Form::Json | Form::SchemaOrArray | Form::SchemaOrBool | Form::SchemaOrStrings => {
                opaque()
            }
        }
    }

    fn field(
        &self,
        definition: &Definition,
        index: usize,
        position: usize,
        field: &Field,
        nodes: &mut HashMap<usize, Arc<Schema>>,
    ) -> Arc<Schema> {
        let shared = self.type_node(&field.kind, nodes);
        let default = key_default(definition, field);
        let plain = field.list_type.is_none()
            && field.map_type.is_none()
            && field.patch == cobaltcore_schema::PatchStrategy::default()
            && default.is_none();
        if plain && !self.described {
            return shared;
        }
        let mut own = (*shared).clone();
        if let Some(list_type) = &field.list_type {
            own.list_type = list_type.clone();
        }
        if let Some(map_type) = field.map_type {
            own.map_type = map_type;
        }
        own.patch = field.patch.clone();
        own.default = default;
        if self.described {
            own.description = Some(Arc::from(descriptions().of_field(index, position)));
        }
        Arc::new(own)
    }

    fn type_node(&self, kind: &FieldType, nodes: &mut HashMap<usize, Arc<Schema>>) -> Arc<Schema> {
        let scalar = |kind: Type, format: Option<&str>| {
            Arc::new(Schema {
                kind: Some(kind),
                format: format.map(str::to_owned),
                ..Schema::default()
            })
        };
        match kind {
            FieldType::String => scalar(Type::String, None),
            FieldType::Bool => scalar(Type::Boolean, None),
            FieldType::Int32 => scalar(Type::Integer, Some("int32")),
            FieldType::Int64 => scalar(Type::Integer, Some("int64")),
            FieldType::Double => scalar(Type::Number, Some("double")),
            FieldType::Bytes => scalar(Type::String, Some("byte")),
            FieldType::Object => Arc::new(opaque_object()),
            FieldType::List(inner) => Arc::new(Schema {
                kind: Some(Type::Array),
                items: Some(self.type_node(inner, nodes)),
                ..Schema::default()
            }),
            FieldType::Map(inner) => Arc::new(Schema {
                kind: Some(Type::Object),
                additional: Some(Additional::Schema(self.type_node(inner, nodes))),
                ..Schema::default()
            }),
            FieldType::Definition(at) => self.definition(*at, nodes),
        }
    }
}

/// List-map keys that count with their default when a client leaves them out.
fn key_default(definition: &Definition, field: &Field) -> Option<serde_json::Value> {
    match (definition.name, field.name) {
        ("io.k8s.api.core.v1.ContainerPort" | "io.k8s.api.core.v1.ServicePort", "protocol") => {
            Some(json!("TCP"))
        }
        ("io.k8s.api.core.v1.LocalObjectReference", "name") => Some(json!("")),
        _ => None,
    }
}

fn opaque() -> Schema {
    Schema {
        preserve_unknown: true,
        ..Schema::default()
    }
}

fn opaque_object() -> Schema {
    Schema {
        kind: Some(Type::Object),
        ..opaque()
    }
}
