// SPDX-License-Identifier: Apache-2.0
//! The built-in definitions of one edition, each already written as JSON, so that the documents of
//! group versions are put together from pieces instead of being serialised over and over. A
//! catalogue lives as long as documents are being made and is dropped afterwards.

use std::collections::BTreeMap;

use cobaltcore_builtins::{FieldType, Form, OpenApi as Edition, definitions, table};
use serde_json::{Value, json};

use super::names;

/// Serialised definitions by name.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// The edition they are written in.
    pub(super) edition: Edition,
    definitions: BTreeMap<String, Vec<u8>>,
}

impl Catalogue {
    /// All built-in definitions.
    pub(super) fn new(edition: Edition) -> Self {
        let mut all = definitions(edition);
        // Version 2 carries no defaults: old clients would take them for values to fill in.
        if edition == Edition::V3 {
            for definition in &table().definitions {
                if let Some(schema) = all.get_mut(definition.name) {
                    add_defaults(schema, definition);
                }
            }
            for schema in all
                .iter_mut()
                .filter(|(name, _)| name.ends_with("List"))
                .map(|(_, schema)| schema)
            {
                if let Some(items) = schema.pointer_mut("/properties/items/items") {
                    wrap(items);
                }
                if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
                    metadata["default"] = json!({});
                }
            }
        }
        all.insert(names::meta("WatchEvent"), watch_event(edition));
        let definitions = all
            .into_iter()
            .map(|(name, schema)| (name, write(&schema)))
            .collect();
        Self { edition, definitions }
    }

    /// One definition, written.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.definitions.get(name).map(Vec::as_slice)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.definitions
            .iter()
            .map(|(name, schema)| (name.as_str(), schema.as_slice()))
    }
}

/// Any object, whatever its kind.
pub(super) const ANY: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// What a watch sends: no stored kind, so the type table does not know it.
fn watch_event(edition: Edition) -> Value {
    let text = "The object after the change, before its deletion, or a Status that says what went wrong.";
    let (object, kind) = match edition {
        Edition::V2 => (
            json!({"description": text, "$ref": format!("#/definitions/{ANY}")}),
            json!({"type": "string"}),
        ),
        Edition::V3 => (
            json!({"description": text, "allOf": [{"$ref": format!("#/components/schemas/{ANY}")}]}),
            json!({"type": "string", "default": ""}),
        ),
    };
    json!({
        "description": "One event of a watch.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {"object": object, "type": kind},
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "WatchEvent", "version": "v1"}],
    })
}

/// JSON of a value that is our own; writing it into memory cannot fail.
pub(super) fn write(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Fields that are always present have the zero value of their type as default, as the published
/// documents have it; so have items of lists and values of maps.
fn add_defaults(schema: &mut Value, definition: &cobaltcore_builtins::Definition) {
    let Some(properties) = schema.get_mut("properties") else {
        return;
    };
    for field in &definition.fields {
        let Some(property) = properties.get_mut(field.name) else {
            continue;
        };
        match &field.kind {
            FieldType::List(inner) => property
                .get_mut("items")
                .into_iter()
                .for_each(|items| element(items, inner)),
            FieldType::Map(inner) => {
                property
                    .get_mut("additionalProperties")
                    .into_iter()
                    .for_each(|values| element(values, inner));
            }
            kind => {
                let present = (field.always || field.omit_zero) && !field.pointer;
                if let Some(default) =
                    stated(definition.name, field.name).or_else(|| present.then(|| zero(kind)).flatten())
                {
                    property["default"] = default;
                }
            }
        }
    }
}

/// Defaults the API declares itself.
fn stated(definition: &str, field: &str) -> Option<Value> {
    let short = definition.strip_prefix("io.k8s.api.")?;
    Some(match (short.strip_prefix("core.v1.").unwrap_or(short), field) {
        ("ContainerPort" | "ServicePort", "protocol") => json!("TCP"),
        ("ReplicationControllerSpec", "replicas") => json!(1),
        ("ReplicationControllerSpec", "minReadySeconds") | ("autoscaling.v1.ScaleSpec", "replicas") => {
            json!(0)
        }
        (
            "LocalObjectReference"
            | "ConfigMapEnvSource"
            | "ConfigMapKeySelector"
            | "ConfigMapProjection"
            | "ConfigMapVolumeSource"
            | "SecretEnvSource"
            | "SecretKeySelector"
            | "SecretProjection",
            "name",
        )
        | ("GRPCAction", "service") => json!(""),
        ("FileKeySelector", "optional") | ("AzureDiskVolumeSource", "readOnly") => json!(false),
        ("AzureDiskVolumeSource", "cachingMode") => json!("ReadWrite"),
        ("AzureDiskVolumeSource", "fsType") => json!("ext4"),
        ("AzureDiskVolumeSource", "kind") => json!("Shared"),
        ("ISCSIPersistentVolumeSource" | "ISCSIVolumeSource", "iscsiInterface") => json!("default"),
        ("RBDPersistentVolumeSource" | "RBDVolumeSource", "keyring") => json!("/etc/ceph/keyring"),
        ("RBDPersistentVolumeSource" | "RBDVolumeSource", "pool") => json!("rbd"),
        ("RBDPersistentVolumeSource" | "RBDVolumeSource", "user") => json!("admin"),
        ("ScaleIOPersistentVolumeSource" | "ScaleIOVolumeSource", "fsType") => json!("xfs"),
        ("ScaleIOPersistentVolumeSource" | "ScaleIOVolumeSource", "storageMode") => json!("ThinProvisioned"),
        ("resource.v1.DeviceToleration", "operator") => json!("Equal"),
        _ => return None,
    })
}

fn element(schema: &mut Value, kind: &FieldType) {
    match kind {
        FieldType::List(inner) => schema
            .get_mut("items")
            .into_iter()
            .for_each(|items| element(items, inner)),
        FieldType::Map(inner) => {
            schema
                .get_mut("additionalProperties")
                .into_iter()
                .for_each(|values| element(values, inner));
        }
        _ => {
            if let Some(default) = zero(kind) {
                if schema.get("$ref").is_some() {
                    *schema = json!({"allOf": [schema.take()]});
                }
                schema["default"] = default;
            }
        }
    }
}

fn wrap(reference: &mut Value) {
    *reference = json!({"allOf": [reference.take()], "default": {}});
}

fn zero(kind: &FieldType) -> Option<Value> {
    match kind {
        FieldType::String => Some(json!("")),
        FieldType::Bool => Some(json!(false)),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => Some(json!(0)),
        FieldType::Definition(index) => table()
            .get(*index)
            .filter(|definition| definition.form == Form::Struct)
            .map(|_| json!({})),
        FieldType::Bytes | FieldType::Object | FieldType::List(_) | FieldType::Map(_) => None,
    }
}
