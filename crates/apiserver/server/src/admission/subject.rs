// SPDX-License-Identifier: Apache-2.0
//! A request as webhooks are told about it: which resource and subresource, which kind the bodies
//! have, which namespace and name; and the same request in the words of another version.

use std::borrow::Cow;
use std::sync::Arc;

use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::call::Call;
use crate::meta;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};

/// A kind by group, version and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub group: String,
    pub version: String,
    pub name: String,
}

impl Kind {
    fn of(resource: &Resource) -> Self {
        Self {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            name: resource.kind.to_string(),
        }
    }

    /// The kind of the bodies at an endpoint, and whether it is the resource's own.
    fn at(resource: &Resource, subresource: &str) -> (Self, bool) {
        let entry = resource
            .subresource_entries()
            .into_iter()
            .find(|entry| entry.name == subresource);
        match entry {
            Some(entry) if !entry.version.is_empty() => (
                Self {
                    group: entry.group,
                    version: entry.version,
                    name: entry.kind,
                },
                false,
            ),
            Some(entry) if *entry.kind != *resource.kind => (
                Self {
                    name: entry.kind,
                    ..Self::of(resource)
                },
                false,
            ),
            _ => (Self::of(resource), true),
        }
    }
}

/// What a request is about.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub call: &'a Call,
    pub registry: &'a Registry,
    pub resource: &'a Arc<Resource>,
    pub subresource: &'a str,
    pub kind: Kind,
    /// The bodies are objects of the resource itself, in one of its versions.
    pub own_kind: bool,
    pub operation: Operation,
    pub namespace: String,
    pub name: String,
    pub old: Option<&'a Value>,
    pub options: &'a Value,
    pub dry_run: bool,
}

impl<'a> Subject<'a> {
    pub(super) fn of(attempt: &'a Attempt<'a>) -> Self {
        let write = attempt.write;
        let subresource = write.subresource.unwrap_or_default();
        let (kind, own_kind) = Kind::at(write.resource, subresource);
        let mut subject = Self {
            call: write.call,
            registry: write.registry,
            resource: write.resource,
            subresource,
            kind,
            own_kind,
            operation: attempt.operation,
            namespace: attempt.namespace.clone(),
            name: attempt.name.clone(),
            old: attempt.old,
            options: &attempt.options,
            dry_run: write.options.dry_run,
        };
        if subject.is_namespace() {
            // A namespace counts as lying in itself.
            subject.namespace.clone_from(&subject.name);
        }
        subject
    }

    pub(super) fn is_namespace(&self) -> bool {
        self.resource.is("", "Namespace")
    }
}

/// The request in the words of the version a webhook asked for.
#[derive(Debug)]
pub(super) struct Form {
    pub resource: Arc<Resource>,
    pub kind: Kind,
    /// Bodies have to be converted.
    converts: bool,
}

/// The bodies of a request in some form.
#[derive(Debug)]
pub(super) struct Bodies<'a> {
    pub object: Cow<'a, Value>,
    pub old: Cow<'a, Value>,
}

impl Form {
    /// As the client asked.
    pub(super) fn requested(subject: &Subject<'_>) -> Self {
        Self {
            resource: subject.resource.clone(),
            kind: subject.kind.clone(),
            converts: false,
        }
    }

    /// In another version.
    pub(super) fn equivalent(subject: &Subject<'_>, other: &Arc<Resource>) -> Self {
        let (kind, own) = Kind::at(other, subject.subresource);
        Self {
            resource: other.clone(),
            kind,
            converts: own && subject.own_kind,
        }
    }

    /// The bodies in this form; what is absent is null.
    pub(super) fn view<'a>(&self, subject: &Subject<'a>, object: Option<&'a Value>) -> Bodies<'a> {
        let show = |body: Option<&'a Value>| match body {
            None => Cow::Owned(Value::Null),
            Some(body) if !self.converts => Cow::Borrowed(body),
            Some(body) => {
                let mut converted = body.clone();
                subject.resource.to_storage(&mut converted, subject.registry);
                self.resource.convert_stored(&mut converted, subject.registry);
                Cow::Owned(converted)
            }
        };
        Bodies {
            object: show(object),
            old: show(subject.old),
        }
    }

    /// A changed body that is still of its kind. What leaves its kind out is of the one it was; what
    /// names another cannot be turned into it, and custom resources are told so by their definition.
    pub(super) fn same_kind(&self, subject: &Subject<'_>, mut changed: Value) -> ApiResult<Value> {
        let Some(map) = changed.as_object_mut() else {
            return if changed.is_null() {
                Ok(changed)
            } else {
                Err(ApiError::internal(format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    crate::decode::json_type(&changed)
                )))
            };
        };
        let expected = meta::api_version(&self.kind.group, &self.kind.version);
        let text = |map: &serde_json::Map<String, Value>, key: &str| {
            let given = map.get(key).and_then(Value::as_str);
            given.unwrap_or_default().to_owned()
        };
        let custom = self.resource.as_custom().is_some() && subject.own_kind;
        if !custom {
            for (key, own) in [("kind", &*self.kind.name), ("apiVersion", &*expected)] {
                if text(map, key).is_empty() {
                    map.insert(key.into(), json!(own));
                }
            }
        }
        let (kind, api_version) = (text(map, "kind"), text(map, "apiVersion"));
        if kind == *self.kind.name && api_version == expected {
            return Ok(changed);
        }
        let (group, version) = meta::split_api_version(&api_version);
        if custom && !kind.is_empty() && api_version == expected {
            let must = format!("must be {}", self.kind.name);
            let wrong = FieldError::invalid("kind", &json!(kind), &must);
            return Err(ApiError::invalid(group, &kind, meta::name(&changed), &[wrong]));
        }
        if custom && !kind.is_empty() {
            let why = format!(
                "{group}/{version}, Kind={kind} is unstructured and is not suitable for converting to {}",
                go::quote(&expected)
            );
            return Err(ApiError::new(500, "", why));
        }
        let known = subject.registry.by_kind(group, version, &kind);
        if known.is_some_and(|known| known.as_builtin().is_some()) {
            let why = format!(
                "converting ({version}.{kind}) to ({}.{}): unknown conversion",
                self.resource.package(),
                self.kind.name
            );
            return Err(ApiError::new(500, "", why));
        }
        Ok(changed)
    }

    /// A changed body in its type's form again, and in the version the client asked for.
    pub(super) fn accept(&self, subject: &Subject<'_>, mut changed: Value) -> Result<Value, String> {
        let api_version = meta::api_version(&self.kind.group, &self.kind.version);
        if changed["kind"] != *self.kind.name || changed["apiVersion"] != *api_version {
            return Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                go::quote(changed["kind"].as_str().unwrap_or_default()),
                go::quote(changed["apiVersion"].as_str().unwrap_or_default())
            ));
        }
        let bodies = if subject.own_kind {
            Some(self.resource.clone())
        } else {
            subject
                .registry
                .by_kind(&self.kind.group, &self.kind.version, &self.kind.name)
        };
        if let Some(bodies) = bodies {
            bodies.decode(&mut changed).map_err(|error| {
                let why = error.message();
                let (_, why) = why.split_once(" cannot be handled as a ").unwrap_or(("", why));
                why.strip_prefix(&format!("{}: ", bodies.kind))
                    .unwrap_or(why)
                    .to_owned()
            })?;
            bodies.default(&mut changed);
        }
        if self.converts {
            self.resource.to_storage(&mut changed, subject.registry);
            subject.resource.convert_stored(&mut changed, subject.registry);
        }
        Ok(changed)
    }
}

/// The request without its bodies: what conditions see.
pub(super) fn attributes(subject: &Subject<'_>, form: &Form) -> Value {
    let mut request = json!({
        "kind": kind(&form.kind),
        "resource": resource(&form.resource),
        "requestKind": kind(&subject.kind),
        "requestResource": resource(subject.resource),
        "operation": subject.operation.as_str(),
        "userInfo": subject.call.user.to_user_info(),
        "dryRun": subject.dry_run,
        "options": options(subject),
    });
    if let Value::Object(map) = &mut request {
        for (key, text) in [
            ("subResource", subject.subresource),
            ("requestSubResource", subject.subresource),
            ("name", &subject.name),
            ("namespace", &subject.namespace),
        ] {
            if !text.is_empty() {
                map.insert(key.into(), json!(text));
            }
        }
    }
    request
}

fn kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.name})
}

fn resource(resource: &Resource) -> Value {
    json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural})
}

/// The options of the request as the client gave them.
fn options(subject: &Subject<'_>) -> Value {
    let kind = match subject.operation {
        Operation::Create => "CreateOptions",
        // A patch is an update to those who admit it.
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = if subject.operation == Operation::Delete {
        subject.options.clone()
    } else {
        json!({})
    };
    let map = crate::meta::fields(&mut options);
    map.insert("kind".into(), json!(kind));
    map.insert("apiVersion".into(), json!("meta.k8s.io/v1"));
    if subject.operation != Operation::Delete {
        let query = &subject.call.query;
        if subject.dry_run {
            map.insert("dryRun".into(), json!(["All"]));
        }
        for key in ["fieldManager", "fieldValidation"] {
            if let Some(value) = query.get(key).filter(|value| !value.is_empty()) {
                map.insert(key.into(), json!(value));
            }
        }
    }
    options
}
