// SPDX-License-Identifier: Apache-2.0
//! How a stored object looks to a request: in the version asked for, pruned and defaulted by the
//! schema of today, whole or as metadata or as a table row. Where the stored bytes are already
//! right they are copied and never parsed.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::meta;
use crate::negotiate::{Form, Format, Include, Shape};
use crate::registry::{Registry, Resource};
use crate::store::{Record, serialize, without_envelope};
use crate::table;
use crate::yaml;

/// A resource as one request sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The type.
    pub resource: &'a Resource,
    /// The served types at the time of the request.
    pub registry: &'a Registry,
    /// The form asked for.
    pub form: Form,
    /// Tells the time that ages are counted to.
    pub clock: &'a Clock,
}

impl View<'_> {
    /// Whether the stored bytes are exactly what this version of the resource serves.
    pub fn serves_stored_bytes(&self, record: &Record) -> bool {
        // What a conversion webhook made carries the schema generation of the version it was made for.
        record.schema == self.resource.schema_generation()
            && (self.resource.is_storage() || self.resource.as_custom().is_some())
    }

    /// The object as a tree, in the version of the resource.
    pub fn tree(&self, record: &Record) -> Value {
        let mut object = record.parse();
        if !self.serves_stored_bytes(record) {
            self.reread(&mut object);
            self.resource.convert_stored(&mut object, self.registry);
        }
        object
    }

    /// Brings a stored custom resource under today's schema of the version it is stored in; another
    /// version then takes over what it knows of it.
    fn reread(&self, object: &mut Value) {
        let Some(own) = self.resource.as_custom() else {
            return;
        };
        let (group, version) = meta::split_api_version(object["apiVersion"].as_str().unwrap_or_default());
        let foreign = *version != *self.resource.version;
        let stored = self.registry.get(group, version, &self.resource.plural);
        let custom = stored.as_ref().and_then(|r| r.as_custom()).unwrap_or(own);
        custom.reread(object);
        if foreign {
            own.take_over(object);
        }
        meta::fields(object).insert("apiVersion".into(), Value::String(self.resource.api_version()));
    }

    /// The JSON of the object, in the version of the resource.
    pub fn json(&self, record: &Record) -> Bytes {
        if self.serves_stored_bytes(record) {
            return record.body.clone();
        }
        serialize(&self.tree(record)).into()
    }

    /// The object in the shape asked for, as JSON; `columns` tells whether a table names its columns.
    pub fn shaped(&self, record: &Record, columns: bool) -> Bytes {
        match self.form.shape {
            Shape::Object => self.json(record),
            _ => serialize(&self.reshape(self.tree(record), columns)).into(),
        }
    }

    /// A tree in the shape asked for.
    pub fn reshape(&self, object: Value, columns: bool) -> Value {
        match self.form.shape {
            Shape::Object => object,
            Shape::Metadata { beta, .. } => partial(&object, beta),
            Shape::Table { beta, include } => {
                let version = meta::text(&object, "resourceVersion").to_owned();
                let row = table::row(self.resource, object, include, beta, self.clock.now());
                let listmeta = if version.is_empty() {
                    json!({})
                } else {
                    json!({"resourceVersion": version})
                };
                table::table(self.resource, listmeta, vec![row], columns, beta)
            }
        }
    }

    /// A single object as the body of an answer.
    pub fn body(&self, record: &Record) -> Bytes {
        self.finish(self.shaped(record, true))
    }

    /// A tree that is not stored (dry runs, deletions) as the body of an answer.
    pub fn body_of(&self, object: Value) -> Bytes {
        self.finish(serialize(&self.reshape(object, true)).into())
    }

    /// A list as the body of an answer. `listmeta` is the list's metadata.
    pub fn list(&self, records: &[std::sync::Arc<Record>], listmeta: Value) -> Bytes {
        match self.form.shape {
            Shape::Object => {
                let mut listmeta = listmeta;
                if self.resource.as_custom().is_some() && listmeta.get("continue").is_none() {
                    // Lists of custom resources always say where they go on, if only nowhere.
                    listmeta["continue"] = Value::from("");
                }
                self.object_list(records, &listmeta)
            }
            Shape::Metadata { beta, .. } => {
                let items: Vec<Value> = records.iter().map(|r| partial(&self.tree(r), beta)).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": meta_version(beta),
                    "metadata": listmeta, "items": items,
                });
                self.finish(serialize(&list).into())
            }
            Shape::Table { beta, include } => {
                let now = self.clock.now();
                let rows = records
                    .iter()
                    .map(|r| table::row(self.resource, self.tree(r), include, beta, now))
                    .collect();
                let whole = table::table(self.resource, listmeta, rows, true, beta);
                self.finish(serialize(&whole).into())
            }
        }
    }

    fn object_list(&self, records: &[std::sync::Arc<Record>], listmeta: &Value) -> Bytes {
        let size: usize = records.iter().map(|r| r.body.len() + 1).sum();
        let mut out = Vec::with_capacity(size + 256);
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{listmeta},\"items\":[",
            Value::from(&*self.resource.list_kind),
            Value::from(self.resource.api_version()),
        );
        out.extend_from_slice(head.as_bytes());
        let bare = self.resource.as_builtin().is_some();
        for (at, record) in records.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let json = self.json(record);
            if bare {
                out.push(b'{');
                out.extend_from_slice(without_envelope(&json));
            } else {
                out.extend_from_slice(&json);
            }
        }
        out.extend_from_slice(b"]}");
        self.finish(out.into())
    }

    /// JSON bytes in the encoding asked for.
    pub fn finish(&self, json: Bytes) -> Bytes {
        encode(self.form, json)
    }
}

/// JSON bytes in the encoding asked for.
pub(crate) fn encode(form: Form, json: Bytes) -> Bytes {
    if form.format == Format::Json && !form.pretty {
        return json;
    }
    let Ok(value) = serde_json::from_slice::<Value>(&json) else {
        return json;
    };
    match form.format {
        Format::Yaml => yaml::encode(&value).into(),
        Format::Json => serde_json::to_vec_pretty(&Ordered(&value)).map_or(json, Bytes::from),
    }
}

/// Serialises objects with kind, apiVersion and metadata first, at the top level only.
struct Ordered<'a>(&'a Value);

impl serde::Serialize for Ordered<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let Value::Object(map) = self.0 else {
            return self.0.serialize(serializer);
        };
        const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
        let mut out = serializer.serialize_map(Some(map.len()))?;
        for key in FIRST {
            if let Some(value) = map.get(key) {
                out.serialize_entry(key, value)?;
            }
        }
        for (key, value) in map.iter().filter(|(k, _)| !FIRST.contains(&k.as_str())) {
            out.serialize_entry(key, value)?;
        }
        out.end()
    }
}

/// `meta.k8s.io/v1` or `v1beta1`.
pub(crate) fn meta_version(beta: bool) -> &'static str {
    if beta {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    }
}

/// Metadata only.
pub(crate) fn partial(object: &Value, beta: bool) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": meta_version(beta),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new())),
    })
}

/// What a row carries of its object.
pub(crate) fn included(object: Value, include: Include, beta: bool) -> Value {
    match include {
        Include::None => Value::Null,
        Include::Object => object,
        Include::Metadata => partial(&object, beta),
    }
}
