// SPDX-License-Identifier: Apache-2.0
//! Two small kinds and a one-object server: what the scenarios below play on.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::needless_pass_by_value
)]

use std::sync::Arc;

use cobaltcore_patch::{ApplyRequest, FieldSet, Filter, PatchError, UpdateRequest, apply, settle, update};
use cobaltcore_schema::{Additional, ListType, MapType, PatchStrategy, Schema, Type};
use serde_json::{Value, json};

pub fn scalar(kind: Type) -> Schema {
    Schema {
        kind: Some(kind),
        ..Schema::default()
    }
}

pub fn text() -> Schema {
    scalar(Type::String)
}

pub fn int() -> Schema {
    scalar(Type::Integer)
}

pub fn object(fields: &[(&str, Schema)]) -> Schema {
    let properties = fields
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), Arc::new(schema.clone())))
        .collect();
    Schema {
        properties,
        ..scalar(Type::Object)
    }
}

pub fn builtin(definition: &str, required: &[&str], fields: &[(&str, Schema)]) -> Schema {
    Schema {
        definition: Some(definition.into()),
        required: required.iter().map(|r| (*r).to_owned()).collect(),
        ..object(fields)
    }
}

pub fn map_of(values: Schema) -> Schema {
    Schema {
        additional: Some(Additional::Schema(Arc::new(values))),
        ..scalar(Type::Object)
    }
}

pub fn list_of(items: Schema) -> Schema {
    Schema {
        items: Some(Arc::new(items)),
        ..scalar(Type::Array)
    }
}

pub fn set_of(items: Schema) -> Schema {
    Schema {
        list_type: ListType::Set,
        ..list_of(items)
    }
}

pub fn list_map(keys: &[&str], items: Schema) -> Schema {
    let keys = keys.iter().map(|k| (*k).to_owned()).collect();
    Schema {
        list_type: ListType::Map(keys),
        ..list_of(items)
    }
}

pub fn merging(key: Option<&str>, schema: Schema) -> Schema {
    let patch = PatchStrategy {
        merge: true,
        merge_key: key.map(str::to_owned),
        ..PatchStrategy::default()
    };
    Schema { patch, ..schema }
}

pub fn atomic(schema: Schema) -> Schema {
    Schema {
        map_type: MapType::Atomic,
        ..schema
    }
}

pub fn defaulted(default: Value, schema: Schema) -> Schema {
    Schema {
        default: Some(default),
        ..schema
    }
}

pub fn metadata() -> Schema {
    let owner = atomic(object(&[
        ("apiVersion", text()),
        ("kind", text()),
        ("name", text()),
        ("uid", text()),
    ]));
    object(&[
        ("name", text()),
        ("namespace", text()),
        ("uid", text()),
        ("resourceVersion", text()),
        ("generation", int()),
        (
            "creationTimestamp",
            Schema {
                format: Some("date-time".to_owned()),
                ..text()
            },
        ),
        ("labels", map_of(text())),
        ("annotations", map_of(text())),
        ("finalizers", merging(None, set_of(text()))),
        ("ownerReferences", merging(Some("uid"), list_map(&["uid"], owner))),
        ("managedFields", list_of(scalar(Type::Object))),
    ])
}

pub fn conditions() -> Schema {
    let condition = object(&[
        ("type", text()),
        ("status", text()),
        ("reason", text()),
        ("message", text()),
    ]);
    merging(
        Some("type"),
        list_map(
            &["type"],
            Schema {
                required: vec!["type".to_owned()],
                ..condition
            },
        ),
    )
}

/// A kind like Deployment, with everything its ownership depends on.
pub fn deployment() -> Schema {
    let port = builtin(
        "io.k8s.api.core.v1.ContainerPort",
        &["containerPort"],
        &[
            ("containerPort", int()),
            ("protocol", defaulted(json!("TCP"), text())),
            ("name", text()),
        ],
    );
    let env = builtin(
        "io.k8s.api.core.v1.EnvVar",
        &["name"],
        &[("name", text()), ("value", text())],
    );
    let resources = builtin(
        "io.k8s.api.core.v1.ResourceRequirements",
        &[],
        &[("limits", map_of(quantity())), ("requests", map_of(quantity()))],
    );
    let container = builtin(
        "io.k8s.api.core.v1.Container",
        &["name"],
        &[
            ("name", text()),
            ("image", text()),
            ("command", list_of(text())),
            ("env", merging(Some("name"), list_map(&["name"], env))),
            (
                "ports",
                merging(
                    Some("containerPort"),
                    list_map(&["containerPort", "protocol"], port),
                ),
            ),
            ("resources", resources),
        ],
    );
    let volume = builtin(
        "io.k8s.api.core.v1.Volume",
        &["name"],
        &[
            ("name", text()),
            ("emptyDir", object(&[("medium", text())])),
            ("hostPath", object(&[("path", text())])),
        ],
    );
    let mut volumes = merging(Some("name"), list_map(&["name"], volume));
    volumes.patch.retain_keys = true;
    let pod = builtin(
        "io.k8s.api.core.v1.PodSpec",
        &["containers"],
        &[
            (
                "containers",
                merging(Some("name"), list_map(&["name"], container)),
            ),
            ("volumes", volumes),
            ("nodeSelector", atomic(map_of(text()))),
            ("serviceAccountName", text()),
        ],
    );
    let template = builtin(
        "io.k8s.api.core.v1.PodTemplateSpec",
        &[],
        &[("metadata", metadata()), ("spec", pod)],
    );
    let rolling = builtin(
        "io.k8s.api.apps.v1.RollingUpdateDeployment",
        &[],
        &[(
            "maxSurge",
            Schema {
                int_or_string: true,
                ..Schema::default()
            },
        )],
    );
    let mut strategy = builtin(
        "io.k8s.api.apps.v1.DeploymentStrategy",
        &[],
        &[("type", text()), ("rollingUpdate", rolling)],
    );
    strategy.patch.retain_keys = true;
    let spec = builtin(
        "io.k8s.api.apps.v1.DeploymentSpec",
        &["selector", "template"],
        &[
            ("replicas", int()),
            ("paused", scalar(Type::Boolean)),
            ("selector", atomic(object(&[("matchLabels", map_of(text()))]))),
            ("strategy", strategy),
            ("template", template),
        ],
    );
    let status = builtin(
        "io.k8s.api.apps.v1.DeploymentStatus",
        &[],
        &[
            ("replicas", int()),
            ("readyReplicas", int()),
            ("conditions", conditions()),
        ],
    );
    builtin(
        "io.k8s.api.apps.v1.Deployment",
        &[],
        &[
            ("apiVersion", text()),
            ("kind", text()),
            ("metadata", metadata()),
            ("spec", spec),
            ("status", status),
        ],
    )
}

fn quantity() -> Schema {
    Schema {
        definition: Some("io.k8s.apimachinery.pkg.api.resource.Quantity".into()),
        ..text()
    }
}

/// A custom kind, as its author would write it: no word about metadata.
pub fn widget() -> Schema {
    let part = object(&[
        ("id", text()),
        ("size", int()),
        ("tags", set_of(text())),
        ("notes", map_of(text())),
    ]);
    let route = object(&[
        ("port", int()),
        ("protocol", defaulted(json!("TCP"), text())),
        ("to", text()),
    ]);
    let spec = object(&[
        ("color", text()),
        ("count", int()),
        ("parts", list_map(&["id"], part)),
        ("routes", list_map(&["port", "protocol"], route)),
        ("colors", set_of(text())),
        ("numbers", set_of(int())),
        ("steps", list_of(text())),
        ("limits", map_of(int())),
        (
            "nested",
            object(&[("inner", map_of(map_of(text()))), ("flag", scalar(Type::Boolean))]),
        ),
        ("frozen", atomic(object(&[("a", text()), ("b", text())]))),
        (
            "free",
            Schema {
                preserve_unknown: true,
                ..scalar(Type::Object)
            },
        ),
    ]);
    object(&[
        ("spec", spec),
        (
            "status",
            object(&[("phase", text()), ("count", int()), ("conditions", conditions())]),
        ),
    ])
}

/// A server with one object and a clock that moves a second with every write.
pub struct World {
    pub schema: Schema,
    pub api_version: &'static str,
    pub kind: &'static str,
    pub live: Option<Value>,
    pub clock: u32,
    pub writes: usize,
}

impl World {
    pub fn new(schema: Schema, api_version: &'static str, kind: &'static str) -> Self {
        Self {
            schema,
            api_version,
            kind,
            live: None,
            clock: 0,
            writes: 0,
        }
    }

    pub fn deployments() -> Self {
        Self::new(deployment(), "apps/v1", "Deployment")
    }

    pub fn widgets() -> Self {
        Self::new(widget(), "example.com/v1", "Widget")
    }

    fn now(&mut self) -> String {
        self.clock += 1;
        format!("2026-01-01T00:{:02}:{:02}Z", self.clock / 60, self.clock % 60)
    }

    pub fn object(&self, body: &Value) -> Value {
        let mut object = body.clone();
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        if object.get("metadata").is_none() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = json!("x");
        object
    }

    pub fn try_apply(
        &mut self,
        manager: &str,
        body: &Value,
        subresource: Option<&str>,
        force: bool,
    ) -> Result<Value, PatchError> {
        let now = self.now();
        let config = self.object(body);
        let filter = if subresource == Some("status") {
            Filter::Except(FieldSet::of_fields(&[
                &["apiVersion"],
                &["kind"],
                &["metadata"],
                &["spec"],
            ]))
        } else {
            Filter::without_status()
        };
        let applied = apply(ApplyRequest {
            live: self.live.as_ref(),
            config: &config,
            schema: &self.schema,
            versions: None,
            manager,
            api_version: self.api_version,
            kind: self.kind,
            subresource,
            force,
            filter: &filter,
            now: &now,
        })?;
        let mut object = applied.object;
        // What a server does for the endpoint: put back what the request may not change.
        let status = self.live.as_ref().and_then(|l| l.get("status")).cloned();
        if subresource.is_none() {
            match status {
                Some(status) => object["status"] = status,
                None => {
                    object.as_object_mut().unwrap().remove("status");
                }
            }
        }
        let stored = match &self.live {
            None => Some(object),
            Some(live) => {
                let settled = settle(live, object);
                if settled.is_none() {
                    assert!(
                        !applied.changed || subresource.is_none(),
                        "settled to nothing but called changed"
                    );
                }
                settled
            }
        };
        if let Some(object) = stored {
            self.live = Some(object);
            self.writes += 1;
        }
        Ok(self.live.clone().unwrap())
    }

    pub fn apply(&mut self, manager: &str, body: Value) -> Value {
        self.try_apply(manager, &body, None, false).unwrap()
    }

    pub fn force(&mut self, manager: &str, body: Value) -> Value {
        self.try_apply(manager, &body, None, true).unwrap()
    }

    pub fn conflict(&mut self, manager: &str, body: Value) -> String {
        match self.try_apply(manager, &body, None, false) {
            Err(PatchError::Conflict(conflicts)) => conflicts.to_string(),
            other => panic!("no conflict: {other:?}"),
        }
    }

    pub fn refused(&mut self, manager: &str, body: Value) -> String {
        match self.try_apply(manager, &body, None, false) {
            Err(error) => error.to_string(),
            Ok(object) => panic!("accepted: {object}"),
        }
    }

    pub fn write(&mut self, manager: &str, body: &Value, subresource: Option<&str>) -> Value {
        let now = self.now();
        let mut new = self.object(body);
        let filter = if subresource == Some("status") {
            Filter::Except(FieldSet::of_fields(&[
                &["apiVersion"],
                &["kind"],
                &["metadata"],
                &["spec"],
            ]))
        } else {
            Filter::without_status()
        };
        update(
            UpdateRequest {
                old: self.live.as_ref(),
                blank: None,
                schema: &self.schema,
                versions: None,
                manager,
                api_version: self.api_version,
                subresource,
                filter: &filter,
                now: &now,
            },
            &mut new,
        );
        self.live = Some(new);
        self.writes += 1;
        self.live.clone().unwrap()
    }

    /// A PUT or POST on the main endpoint.
    pub fn put(&mut self, manager: &str, body: Value) -> Value {
        self.write(manager, &body, None)
    }

    /// The fields of an entry; null when there is none.
    pub fn fields(&self, manager: &str) -> Value {
        self.entry(manager)
            .get("fieldsV1")
            .cloned()
            .unwrap_or(Value::Null)
    }

    pub fn entry(&self, manager: &str) -> Value {
        self.entries()
            .into_iter()
            .find(|e| e["manager"] == json!(manager))
            .unwrap_or(Value::Null)
    }

    pub fn entries(&self) -> Vec<Value> {
        let live = self.live.as_ref().unwrap();
        live["metadata"]
            .get("managedFields")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    }

    pub fn managers(&self) -> Vec<String> {
        self.entries()
            .iter()
            .map(|e| e["manager"].as_str().unwrap().to_owned())
            .collect()
    }
}
