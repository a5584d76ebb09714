// SPDX-License-Identifier: Apache-2.0
//! Pruning: fields a schema does not know disappear, and their paths are told.
//!
//! What lies below `x-kubernetes-preserve-unknown-fields` stays, except that nodes which are
//! described there are pruned again. `apiVersion`, `kind` and `metadata` of whole objects are
//! always kept; metadata follows its own table.

use serde_json::{Map, Value};

use crate::node::{Additional, Schema};
use crate::objectmeta::prune_object_meta;
use crate::path::Path;

/// What the pruned value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A whole object with apiVersion, kind and metadata.
    Resource,
    /// Some value inside an object.
    Value,
}

/// Removes everything the schema does not know and returns the paths of what was removed, sorted,
/// those inside the object's own metadata first.
pub fn prune(schema: &Schema, value: &mut Value, root: Root) -> Vec<String> {
    let mut pruner = Pruner {
        unknown: Vec::new(),
        embedded: Vec::new(),
    };
    let resource = root == Root::Resource || schema.embedded_resource;
    let mut unknown = Vec::new();
    if resource && let Some(metadata) = value.get_mut("metadata") {
        prune_object_meta(metadata, &Path::Root.child("metadata"), &mut unknown);
        unknown.sort();
    }
    pruner.node(value, Some(schema), resource, &Path::Root);
    pruner.unknown.sort();
    pruner.embedded.sort();
    unknown.append(&mut pruner.unknown);
    unknown.append(&mut pruner.embedded);
    unknown
}

/// Whether a value has fields the schema does not know. What is unknown in the metadata of an
/// embedded resource does not count: it goes wherever the value is used.
pub(crate) fn has_unknown_fields(schema: &Schema, value: &Value, root: Root) -> bool {
    let mut pruner = Pruner {
        unknown: Vec::new(),
        embedded: Vec::new(),
    };
    let resource = root == Root::Resource || schema.embedded_resource;
    pruner.node(&mut value.clone(), Some(schema), resource, &Path::Root);
    !pruner.unknown.is_empty()
}

struct Pruner {
    unknown: Vec<String>,
    embedded: Vec<String>,
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

impl Pruner {
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, resource: bool, path: &Path<'_>) {
        match value {
            Value::Object(map) => self.object(map, schema, resource, path),
            Value::Array(items) => {
                let preserve = schema.is_some_and(|s| s.preserve_unknown);
                let element = schema.and_then(Schema::element);
                if preserve && element.is_none() {
                    return;
                }
                for (i, item) in items.iter_mut().enumerate() {
                    self.element(item, element, preserve, &path.index(i));
                }
            }
            _ => {}
        }
    }

    /// An element of a list; below a list that preserves, elements preserve as well.
    fn element(&mut self, item: &mut Value, schema: Option<&Schema>, preserve: bool, path: &Path<'_>) {
        let embedded = schema.is_some_and(|s| s.embedded_resource);
        match (preserve, schema, &mut *item) {
            (true, Some(schema), Value::Object(map)) => {
                self.known_fields(map, schema, embedded, path);
            }
            (true, Some(schema), Value::Array(items)) => {
                if let Some(element) = schema.element() {
                    for (i, item) in items.iter_mut().enumerate() {
                        self.element(item, Some(element), true, &path.index(i));
                    }
                }
            }
            (true, ..) => {}
            (false, ..) => self.node(item, schema, embedded, path),
        }
        if embedded {
            self.metadata(item, path);
        }
    }

    fn object(
        &mut self,
        map: &mut Map<String, Value>,
        schema: Option<&Schema>,
        resource: bool,
        path: &Path<'_>,
    ) {
        let Some(schema) = schema else {
            self.unknown.extend(map.keys().map(|k| path.child(k).dotted()));
            map.clear();
            return;
        };
        let unknown = self.known_fields(map, schema, resource, path);
        if schema.preserve_unknown || !unknown {
            return;
        }
        map.retain(|key, _| {
            if self.is_known(key, schema, resource) {
                return true;
            }
            if !is_meta(key) || !path.is_root() {
                self.unknown.push(path.child(key).dotted());
            }
            false
        });
    }

    #[allow(clippy::unused_self)]
    fn is_known(&self, key: &str, schema: &Schema, resource: bool) -> bool {
        (resource && is_meta(key))
            || schema.properties.contains_key(key)
            || schema.additional.is_some()
            || schema.is_closed()
    }

    /// Prunes below every field the node describes; true if there is one it does not describe.
    fn known_fields(
        &mut self,
        map: &mut Map<String, Value>,
        schema: &Schema,
        resource: bool,
        path: &Path<'_>,
    ) -> bool {
        let mut unknown = false;
        for (key, child) in map.iter_mut() {
            if resource && is_meta(key) {
                continue;
            }
            let here = path.child(key);
            if let Some(node) = schema.properties.get(key) {
                self.node(child, Some(node), node.embedded_resource, &here);
                if node.embedded_resource {
                    self.metadata(child, &here);
                }
                continue;
            }
            match &schema.additional {
                Some(Additional::Any) => {}
                Some(Additional::Schema(node)) => {
                    self.node(child, Some(node), node.embedded_resource, &here);
                    if node.embedded_resource {
                        self.metadata(child, &here);
                    }
                }
                None if schema.is_closed() => self.node(child, None, false, &here),
                None => unknown = true,
            }
        }
        unknown
    }

    fn metadata(&mut self, value: &mut Value, path: &Path<'_>) {
        if let Some(metadata) = value.get_mut("metadata") {
            prune_object_meta(metadata, &path.child("metadata"), &mut self.embedded);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    fn pruned(schema: &Value, mut value: Value, root: Root) -> (Value, Vec<String>) {
        let schema = parse(schema);
        let paths = prune(&schema, &mut value, root);
        (value, paths)
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"},
                "items": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"known": {"type": "object", "properties": {"x": {"type": "string"}}}}},
                "open": {"type": "object", "additionalProperties": true}
            }}
        }});
        let (value, paths) = pruned(
            &schema,
            json!({
                "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "foo": 1}, "extra": {"deep": 1},
                "spec": {"size": 1, "foo": true, "items": [{"a": "x", "bar": 2}], "labels": {"k": "v"},
                         "free": {"anything": {"goes": 1}, "known": {"x": "y", "z": 1}}, "open": {"a": 1, "b": {"c": 1}}}
            }),
            Root::Resource,
        );
        assert_eq!(
            value,
            json!({
                "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"},
                "spec": {"size": 1, "items": [{"a": "x"}], "labels": {"k": "v"},
                         "free": {"anything": {"goes": 1}, "known": {"x": "y"}}, "open": {"a": 1, "b": {}}}
            })
        );
        assert_eq!(
            paths,
            [
                "metadata.foo",
                "extra",
                "spec.foo",
                "spec.free.known.z",
                "spec.items[0].bar",
                "spec.open.b.c"
            ]
        );
    }

    #[test]
    fn lists_below_preserving_nodes_keep_their_fields() {
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
                     "items": {"type": "object", "properties": {"p": {"type": "object", "properties": {}}}}}
        }});
        let (value, paths) = pruned(
            &schema,
            json!({"list": [{"unknown": 1, "p": {"q": 1}}]}),
            Root::Value,
        );
        assert_eq!(value, json!({"list": [{"unknown": 1, "p": {}}]}));
        assert_eq!(paths, ["list[0].p.q"]);
    }

    #[test]
    fn embedded_resources_keep_their_envelope() {
        let schema = json!({"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                         "properties": {"spec": {"type": "object", "properties": {}}}}
        }});
        let (value, paths) = pruned(
            &schema,
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1}, "spec": {"y": 1}, "z": 1}}),
            Root::Value,
        );
        assert_eq!(
            value,
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}})
        );
        assert_eq!(paths, ["template.spec.y", "template.z", "template.metadata.x"]);
    }
}
