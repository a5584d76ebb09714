// SPDX-License-Identifier: Apache-2.0
//! The `/scale` subresource: a small object made out of a big one, and the way back.

use cobaltcore_schema::FieldError;
use serde_json::{Map, Value, json};

use crate::json::{at, ensure, int, number, text};
use crate::kind::Kind;
use crate::selector::{labels_text, selector_text};

impl Kind {
    /// The autoscaling/v1 Scale of an object, or nothing when the kind has no scale.
    pub fn get_scale(&self, object: &Value) -> Option<Value> {
        let paths = self.scale?;
        let selector = match at(object, paths.selector) {
            Some(Value::Object(labels)) if self.group.is_empty() => labels_text(Some(labels)),
            Some(selector) => selector_text(selector),
            None => String::new(),
        };
        let mut metadata = Map::new();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = at(object, "metadata").and_then(|metadata| metadata.get(name)) {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        let mut scale = json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            "spec": {},
            "status": {"replicas": number(object, paths.status_replicas)},
        });
        let wanted = number(object, paths.spec_replicas);
        if wanted != 0 {
            ensure(&mut scale, "spec").insert("replicas".to_owned(), json!(wanted));
        }
        if !selector.is_empty() {
            ensure(&mut scale, "status").insert("selector".to_owned(), json!(selector));
        }
        Some(scale)
    }

    /// Writes the wanted replicas of a Scale into the object it came from; nothing else changes.
    /// Optimistic locking by uid and resourceVersion is the server's.
    pub fn set_scale(&self, object: &mut Value, scale: &Value) {
        if let Some(paths) = self.scale {
            let (parent, field) = paths
                .spec_replicas
                .rsplit_once('.')
                .unwrap_or(("", paths.spec_replicas));
            ensure(object, parent).insert(field.to_owned(), json!(number(scale, "spec.replicas")));
        }
    }
}

/// What is wrong with a Scale. The server checks its metadata like any other.
pub fn validate_scale(scale: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(replicas) = int(scale, "spec.replicas").filter(|replicas| *replicas < 0) {
        errors.push(FieldError::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        ));
    }
    if text(scale, "metadata.name").is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    errors
}
