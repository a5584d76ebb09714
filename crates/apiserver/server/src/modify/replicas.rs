// SPDX-License-Identifier: Apache-2.0
//! Who owns the replicas of an object that are written through its Scale. The reference keeps the
//! owners of a Scale as if it were an object of its own: only owners of the replicas are seen there,
//! nothing is tracked while there are none, and no replicas are the same as none given.

use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::registry::Resource;
use crate::write::Write;

impl Api {
    /// Notes who owns the replicas after a write that is not an apply.
    pub(super) fn own_replicas(&self, write: &Write<'_>, old: &Value, new: &mut Value) {
        let resource = write.resource;
        let steps = steps(resource);
        if !owned(old, &steps) {
            return;
        }
        let mut before = old.clone();
        take_zero(&mut before, &steps);
        let zero = take_zero(new, &steps);
        self.own(write, Some(&before), new);
        if let Some(zero) = zero {
            put(new, &steps, zero);
        }
        if resource.as_custom().is_some() {
            forget_scale_times(new);
        }
    }
}

/// The fields that lead to the replicas.
fn steps(resource: &Resource) -> Vec<String> {
    let path = resource.scale_paths().spec_replicas;
    let steps = path.split('.').filter(|step| !step.is_empty());
    steps.map(str::to_owned).collect()
}

/// Whether anybody owns the replicas.
fn owned(object: &Value, steps: &[String]) -> bool {
    let owns = |entry: &Value| {
        let mut names = steps.iter().map(|step| format!("f:{step}"));
        let found = names.try_fold(&entry["fieldsV1"], |node, name| node.get(name));
        found.is_some()
    };
    let entries = object["metadata"]["managedFields"].as_array();
    entries.is_some_and(|entries| entries.iter().any(owns))
}

/// Takes replicas of zero out of an object.
fn take_zero(object: &mut Value, steps: &[String]) -> Option<Value> {
    let (last, parents) = steps.split_last()?;
    let parent = parents.iter().try_fold(object, |node, step| node.get_mut(step))?;
    let map = parent.as_object_mut()?;
    if map.get(last)? == 0 {
        map.remove(last)
    } else {
        None
    }
}

fn put(object: &mut Value, steps: &[String], value: Value) {
    let mut node = object;
    for step in steps {
        node = meta::field(meta::fields(node), step);
    }
    *node = value;
}

/// The parent of a Scale whose replicas nobody owns, with an owner made up for them: seen through a
/// Scale they were set before the first apply, and whoever wants others has to insist.
pub(super) fn replicas_attributed(resource: &Resource, live: &Value, now: &str) -> Option<Value> {
    let steps = steps(resource);
    steps.iter().try_fold(live, |node, step| node.get(step))?;
    if owned(live, &steps) {
        return None;
    }
    let mut owners = live["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let fields = steps.iter().rev().fold(json!({}), |inner, step| {
        Value::Object([(format!("f:{step}"), inner)].into_iter().collect())
    });
    owners.push(
        json!({"manager": "before-first-apply", "operation": "Update", "subresource": "scale",
        "apiVersion": resource.api_version(), "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields}),
    );
    let mut live = live.clone();
    meta::set(&mut live, "managedFields", json!(owners));
    Some(live)
}

/// Seen through a Scale, all owners speak of a Scale.
pub(super) fn name_as_scale(conflicts: &mut cobaltcore_patch::Conflicts) {
    for conflict in &mut conflicts.0 {
        if let Some((owner, _)) = conflict.manager.rsplit_once(" using ") {
            conflict.manager = format!("{owner} using autoscaling/v1");
        }
    }
}

/// What was written through the Scale of a custom resource is told without a time.
fn forget_scale_times(object: &mut Value) {
    let entries = meta::fields(meta::field(meta::fields(object), "metadata")).get_mut("managedFields");
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
        if entry["subresource"] == "scale" {
            meta::fields(entry).remove("time");
        }
    }
}
