// SPDX-License-Identifier: Apache-2.0
//! How ownership reads a schema: which shapes a node may take, which lists and maps are owned as a
//! whole, and how list elements are identified. Where there is no schema the shape is deduced from
//! the value: maps granular, lists atomic.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cobaltcore_schema::{Additional, ListType, MapType, Schema, Type};
use cobaltcore_text::go;
use serde_json::Value;

use super::path::PathElement;

/// A schema node in its place.
#[derive(Clone, Copy)]
pub(crate) struct Ty<'a> {
    node: Option<&'a Schema>,
    /// Some node above keeps unknown fields, and with it everything below.
    preserve: bool,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    RootMetadata,
    Inner,
}

/// The shape a value is handled as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Map,
    List,
    Scalar,
}

/// What a scalar must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

struct Atom {
    map: bool,
    list: bool,
    scalar: Option<Scalar>,
}

const ANY: Atom = Atom {
    map: true,
    list: true,
    scalar: Some(Scalar::Untyped),
};

impl<'a> Ty<'a> {
    /// A value no schema describes.
    pub(crate) const DEDUCED: Ty<'static> = Ty {
        node: None,
        preserve: false,
        place: Place::Inner,
    };

    /// The root of an object.
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Self {
            node: Some(schema),
            preserve: schema.preserve_unknown,
            place: Place::Root,
        }
    }

    fn inner(schema: &'a Schema, preserve: bool) -> Self {
        Self {
            node: Some(schema),
            preserve: preserve || schema.preserve_unknown,
            place: Place::Inner,
        }
    }

    fn atom(self) -> Atom {
        let Some(node) = self.node else { return ANY };
        let only = |scalar| Atom {
            map: false,
            list: false,
            scalar: Some(scalar),
        };
        // Quantities and int-or-strings are either of two types in the reference's schema, which
        // makes them untyped here.
        if node
            .definition
            .as_deref()
            .is_some_and(|d| d.ends_with("Quantity") || d.ends_with("IntOrString"))
        {
            return ANY;
        }
        match node.kind {
            None => ANY,
            Some(Type::Object) => Atom {
                map: true,
                list: false,
                scalar: None,
            },
            Some(Type::Array) => Atom {
                map: false,
                list: true,
                scalar: None,
            },
            Some(Type::Integer | Type::Number) => only(Scalar::Numeric),
            Some(Type::Boolean) => only(Scalar::Boolean),
            Some(Type::String) => match node.format.as_deref() {
                None | Some("" | "byte") => only(Scalar::Text),
                Some(_) => only(Scalar::Untyped),
            },
        }
    }

    /// The shape `value` is handled as; null and values of a wrong type take the first allowed one.
    pub(crate) fn shape(self, value: &Value) -> Shape {
        let atom = self.atom();
        match value {
            Value::Array(_) if atom.list => Shape::List,
            Value::String(_) | Value::Number(_) | Value::Bool(_) if atom.scalar.is_some() => Shape::Scalar,
            _ if atom.map => Shape::Map,
            _ if atom.scalar.is_some() => Shape::Scalar,
            _ => Shape::List,
        }
    }

    pub(crate) fn scalar(self) -> Scalar {
        self.atom().scalar.unwrap_or(Scalar::Untyped)
    }

    pub(crate) fn is_root(self) -> bool {
        self.place == Place::Root
    }

    fn is_object(self) -> bool {
        self.place == Place::Root || self.node.is_some_and(|n| n.embedded_resource)
    }

    /// The schema of a field the node names.
    pub(crate) fn field(self, key: &str) -> Option<Self> {
        let node = self.node?;
        let found = node.properties.get(key).map(Arc::as_ref);
        if self.is_object() {
            match key {
                "metadata" => {
                    let schema = found.filter(|s| s.is_struct()).unwrap_or_else(|| object_meta());
                    let place = if self.place == Place::Root {
                        Place::RootMetadata
                    } else {
                        Place::Inner
                    };
                    return Some(Self {
                        place,
                        ..Self::inner(schema, false)
                    });
                }
                "apiVersion" | "kind" => return Some(Self::inner(found.unwrap_or_else(|| text()), false)),
                _ => {}
            }
        }
        found.map(|schema| Self::inner(schema, self.preserve))
    }

    /// The schema of fields the node does not name; `None` where there must be none.
    pub(crate) fn map_value(self) -> Option<Self> {
        let Some(node) = self.node else {
            return Some(Ty::DEDUCED);
        };
        match &node.additional {
            Some(Additional::Schema(schema)) => Some(Self::inner(schema, self.preserve)),
            Some(Additional::Any) => Some(Ty::DEDUCED),
            None if self.preserve || node.properties.is_empty() => Some(Ty::DEDUCED),
            None => None,
        }
    }

    /// The schema of a field, and whether the node names it. Undeclared fields are deduced.
    pub(crate) fn child(self, key: &str) -> (Self, bool) {
        match self.field(key) {
            Some(ty) => (ty, true),
            None => (self.map_value().unwrap_or(Ty::DEDUCED), false),
        }
    }

    /// The schema of list elements.
    pub(crate) fn element(self) -> Self {
        match self.node.and_then(Schema::element) {
            Some(schema) => Self::inner(schema, self.preserve),
            None => Ty::DEDUCED,
        }
    }

    /// Whether a map is owned as a whole.
    pub(crate) fn map_is_atomic(self) -> bool {
        self.node.is_some_and(|n| n.map_type == MapType::Atomic)
    }

    /// Whether a list is owned as a whole.
    pub(crate) fn list_is_atomic(self) -> bool {
        self.node.is_none_or(|n| n.list_type == ListType::Atomic)
    }

    /// Whether the node is declared to be a list.
    pub(crate) fn is_list(self) -> bool {
        self.node.is_some_and(|n| n.kind == Some(Type::Array))
    }

    /// Whether nothing is known of the map but that it keeps everything.
    pub(crate) fn is_untyped_map(self) -> bool {
        match self.node {
            None => true,
            Some(node) => {
                node.properties.is_empty()
                    && !self.is_object()
                    && !matches!(node.additional, Some(Additional::Schema(_)))
            }
        }
    }

    /// Fields whose ownership is not recorded because they record it.
    pub(crate) fn is_skipped(self, key: &str) -> bool {
        self.place == Place::RootMetadata && key == "managedFields"
    }

    /// Whether the node is part of a built-in kind.
    pub(crate) fn is_builtin(self) -> bool {
        self.node.is_some_and(|n| n.definition.is_some())
    }

    /// Whether the field exists in every object of the kind, set or not: the reference decodes
    /// built-in kinds into structs, whose embedded structs and required lists are always there.
    pub(crate) fn is_always_there(self, key: &str) -> bool {
        let Some(node) = self.node else { return false };
        if self.place == Place::Root && key == "metadata" {
            return true;
        }
        let Some(definition) = node.definition.as_deref() else {
            return false;
        };
        if self.place == Place::Root && matches!(key, "spec" | "status") {
            return true;
        }
        let Some(field) = node.properties.get(key) else {
            return false;
        };
        match field.kind {
            // The only required list that the reference leaves out when it is empty.
            Some(Type::Array) if key == "validationActions" => false,
            Some(Type::Array) => node.required.iter().any(|r| r == key),
            Some(Type::String) => {
                definition.ends_with(".Event") && matches!(key, "reportingComponent" | "reportingInstance")
            }
            Some(Type::Object) => {
                matches!(&field.default, Some(Value::Object(map)) if map.is_empty())
                    || is_embedded_struct(definition, key)
            }
            _ => false,
        }
    }

    /// The path element of a list element.
    pub(crate) fn identify(self, item: &Value) -> Result<PathElement, String> {
        match self.node.map(|n| &n.list_type) {
            Some(ListType::Map(keys)) => self.identify_by_keys(keys, item),
            Some(ListType::Set) => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            Some(ListType::Atomic) | None => Err("invalid indexing of non-associative list".to_owned()),
        }
    }

    fn identify_by_keys(self, keys: &[String], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut fields: Vec<(String, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = map.get(key) {
                fields.push((key.clone(), value.clone()));
            } else if let Some(value) = self.key_default(key) {
                fields.push((key.clone(), value));
            }
        }
        if fields.is_empty() {
            let names: Vec<String> = keys.iter().map(|k| go::quote(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(PathElement::Key(fields))
    }

    /// The value an absent key field stands for. Required fields of built-in kinds have the zero
    /// value of their type, as in the reference's schema.
    fn key_default(self, key: &str) -> Option<Value> {
        let element = self.node.and_then(Schema::element)?;
        let field = element.properties.get(key)?;
        if let Some(default) = &field.default {
            return Some(default.clone());
        }
        if element.definition.is_none() || !element.required.iter().any(|r| r == key) {
            return None;
        }
        match field.kind {
            Some(Type::String) => Some(Value::String(String::new())),
            Some(Type::Integer | Type::Number) => Some(Value::from(0)),
            _ => None,
        }
    }
}

/// Fields of built-in kinds that are structs, not pointers to structs, in the reference's types.
fn is_embedded_struct(definition: &str, key: &str) -> bool {
    let kind = definition.rsplit('.').next().unwrap_or_default();
    let fields: &[&str] = match kind {
        "DeploymentSpec" => &["template", "strategy"],
        "StatefulSetSpec" | "DaemonSetSpec" => &["template", "updateStrategy"],
        "ReplicaSetSpec" | "JobSpec" | "PodTemplate" => &["template"],
        "CronJobSpec" => &["jobTemplate"],
        "PodTemplateSpec"
        | "JobTemplateSpec"
        | "PersistentVolumeClaimTemplate"
        | "ResourceClaimTemplateSpec" => &["metadata", "spec"],
        "ResourceClaimSpec" | "AllocationResult" => &["devices"],
        "ResourceSliceSpec" => &["pool"],
        "IngressServiceBackend" => &["port"],
        "Container" | "EphemeralContainer" | "PersistentVolumeClaimSpec" => &["resources"],
        "ServiceStatus" | "IngressStatus" => &["loadBalancer"],
        "NodeStatus" => &["daemonEndpoints", "nodeInfo"],
        "NodeDaemonEndpoints" => &["kubeletEndpoint"],
        "ContainerStatus" => &["state", "lastState"],
        "HorizontalPodAutoscalerSpec" => &["scaleTargetRef"],
        "VolumeAttachmentSpec" => &["source"],
        "NetworkPolicySpec" => &["podSelector"],
        "Event" => &["involvedObject", "source", "regarding", "deprecatedSource"],
        "Endpoint" => &["conditions"],
        "CustomResourceDefinitionSpec" => &["names"],
        "CustomResourceDefinitionStatus" => &["acceptedNames"],
        "RoleBinding" | "ClusterRoleBinding" => &["roleRef"],
        "MutatingWebhook" | "ValidatingWebhook" => &["clientConfig"],
        _ => &[],
    };
    fields.contains(&key)
}

fn scalar(kind: Type) -> Schema {
    Schema {
        kind: Some(kind),
        ..Schema::default()
    }
}

fn text() -> &'static Schema {
    static TEXT: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String));
    &TEXT
}

/// The metadata every object has, for kinds whose schema does not spell it out.
fn object_meta() -> &'static Schema {
    static META: LazyLock<Schema> = LazyLock::new(build_object_meta);
    &META
}

fn build_object_meta() -> Schema {
    let mut properties: BTreeMap<String, Arc<Schema>> = BTreeMap::new();
    let text = Arc::new(scalar(Type::String));
    let time = Arc::new(Schema {
        format: Some("date-time".to_owned()),
        ..scalar(Type::String)
    });
    for name in [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
    ] {
        properties.insert(name.to_owned(), Arc::clone(&text));
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        properties.insert(name.to_owned(), Arc::clone(&time));
    }
    for name in ["generation", "deletionGracePeriodSeconds"] {
        properties.insert(name.to_owned(), Arc::new(scalar(Type::Integer)));
    }
    for name in ["labels", "annotations"] {
        let additional = Some(Additional::Schema(Arc::clone(&text)));
        properties.insert(
            name.to_owned(),
            Arc::new(Schema {
                additional,
                ..scalar(Type::Object)
            }),
        );
    }
    let list = |items: Arc<Schema>, list_type| {
        Arc::new(Schema {
            items: Some(items),
            list_type,
            ..scalar(Type::Array)
        })
    };
    properties.insert("finalizers".to_owned(), list(Arc::clone(&text), ListType::Set));
    properties.insert(
        "ownerReferences".to_owned(),
        list(
            Arc::new(owner_reference(&text)),
            ListType::Map(vec!["uid".to_owned()]),
        ),
    );
    properties.insert(
        "managedFields".to_owned(),
        list(Arc::new(scalar(Type::Object)), ListType::Atomic),
    );
    Schema {
        properties,
        ..scalar(Type::Object)
    }
}

fn owner_reference(text: &Arc<Schema>) -> Schema {
    let mut properties: BTreeMap<String, Arc<Schema>> = BTreeMap::new();
    for name in ["apiVersion", "kind", "name", "uid"] {
        properties.insert(name.to_owned(), Arc::clone(text));
    }
    for name in ["controller", "blockOwnerDeletion"] {
        properties.insert(name.to_owned(), Arc::new(scalar(Type::Boolean)));
    }
    Schema {
        properties,
        map_type: MapType::Atomic,
        ..scalar(Type::Object)
    }
}
