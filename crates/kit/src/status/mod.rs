// SPDX-License-Identifier: Apache-2.0
//! Status by server-side apply, one field manager per writer. Each apply carries exactly what
//! its writer owns: leaving a field out gives it up, a condition keeps its transition time
//! while its status stays, and a write that would change nothing is not sent.
//!
//! A map without entries is never applied. Kubernetes makes null of one that had entries before,
//! and refuses null where the schema says object: with it, the whole status would not be written.

mod condition;
mod owned;

use std::fmt::Debug;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::Error;

pub use condition::{ConditionStatus, NewCondition, find};
pub use owned::{compact, owned_fields};

/// What one writer wants the status to say.
#[derive(Clone, Debug, Default)]
pub struct Intent {
    fields: Map<String, Value>,
    conditions: Vec<NewCondition>,
}

impl Intent {
    /// Nothing yet. Applying it gives up everything the writer owned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Owns a field of the status. Null and a map without entries are left out, an empty list is written as such.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        match value.into() {
            Value::Null => self.fields.remove(name),
            value => self.fields.insert(name.to_owned(), value),
        };
        self
    }

    /// Owns every field that `status` serialises to, for example a part of a status type.
    pub fn fields(mut self, status: &impl Serialize) -> Result<Self, Error> {
        let what = || "status fields".to_owned();
        match serde_json::to_value(status).map_err(|source| Error::Json { what: what(), source })? {
            Value::Object(fields) => self
                .fields
                .extend(fields.into_iter().filter(|(_, value)| !value.is_null())),
            other => {
                let source = serde::de::Error::custom(format!("expected an object, found {other}"));
                return Err(Error::Json { what: what(), source });
            }
        }
        Ok(self)
    }

    /// Owns a condition; a later one of the same type replaces it.
    #[must_use]
    pub fn condition(mut self, condition: NewCondition) -> Self {
        self.conditions.retain(|other| other.type_ != condition.type_);
        self.conditions.push(condition);
        self
    }

    /// The status to apply over `current` (the whole object as JSON).
    ///
    /// ```
    /// use cobaltcore_kit::status::{Intent, NewCondition};
    /// use serde_json::json;
    ///
    /// let current = json!({"metadata": {"generation": 3}, "status": {"conditions": [
    ///     {"type": "Ready", "status": "True", "reason": "Ready", "message": "",
    ///      "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    /// let intent = Intent::new().condition(NewCondition::yes("Ready", "Ready", "still fine"));
    /// let status = intent.status(&current, "2026-02-02T00:00:00Z".parse().unwrap());
    /// assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    /// assert_eq!(status["conditions"][0]["observedGeneration"], 3);
    /// ```
    pub fn status(&self, current: &Value, now: Timestamp) -> Value {
        let mut status = self.fields.clone();
        if !self.conditions.is_empty() {
            let generation = current["metadata"]["generation"].as_i64();
            let before = &current["status"]["conditions"];
            let conditions = self
                .conditions
                .iter()
                .map(|condition| condition.render(before, generation, now));
            status.insert("conditions".into(), conditions.collect());
        }
        drop_empty_maps(&mut status);
        Value::Object(status)
    }
}

fn drop_empty_maps(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| match value {
        Value::Object(inner) => {
            drop_empty_maps(inner);
            !inner.is_empty()
        }
        _ => true,
    });
}

/// What became of a write.
#[derive(Clone, Debug)]
pub enum Written<K> {
    /// The API already says so.
    Unchanged,
    /// The object as it is now.
    Applied(Box<K>),
}

/// Writes the status of one kind of object under one field manager.
#[derive(Clone)]
pub struct StatusWriter {
    client: kube::Client,
    manager: String,
}

impl StatusWriter {
    /// A writer under the name `manager`.
    pub fn new(client: kube::Client, manager: impl Into<String>) -> Self {
        Self {
            client,
            manager: manager.into(),
        }
    }

    /// Brings the status of `current` in line with `intent`. Transition times and the decision
    /// to skip the write come from `current`, which should be as fresh as the cache allows; a
    /// stale one costs a needless write, never a wrong one.
    pub async fn write<K>(&self, current: &K, intent: &Intent) -> Result<Written<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.write_at(current, intent, Timestamp::now()).await
    }

    /// [`StatusWriter::write`] at a given time.
    pub async fn write_at<K>(&self, current: &K, intent: &Intent, now: Timestamp) -> Result<Written<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let name = current.name_any();
        let object = format!("{} {name}", K::kind(&()));
        for condition in &intent.conditions {
            condition.check(&object)?;
        }
        let before = serde_json::to_value(current).map_err(|source| Error::Json {
            what: format!("reading {object}"),
            source,
        })?;
        let status = intent.status(&before, now);
        let managed = current.meta().managed_fields.as_deref().unwrap_or_default();
        if !owned::would_change(&before["status"], &status, managed, &self.manager) {
            return Ok(Written::Unchanged);
        }
        let mut metadata = json!({"name": name});
        if let Some(namespace) = current.namespace() {
            metadata["namespace"] = namespace.into();
        }
        let mut apply = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": metadata,
        });
        if status.as_object().is_some_and(|fields| !fields.is_empty()) {
            apply["status"] = status;
        }
        let call = format!("writing the status of {object} as {}", self.manager);
        // The typed API wants to know the scope at compile time; the object's own path does not.
        let request = kube::core::Request::new(K::url_path(&(), current.namespace().as_deref()))
            .patch_subresource(
                "status",
                &name,
                &PatchParams::apply(&self.manager).force(),
                &Patch::Apply(&apply),
            )
            .map_err(|error| Error::kube(call.clone(), kube::Error::BuildRequest(error)))?;
        let applied = self
            .client
            .request::<K>(request)
            .await
            .map_err(|error| Error::kube(call, error))?;
        Ok(Written::Applied(Box::new(applied)))
    }
}

#[cfg(test)]
mod tests;
