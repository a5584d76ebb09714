// SPDX-License-Identifier: Apache-2.0
//! Ownership across the scale subresource: the entries a Scale shows, and what a change of them
//! means for the parent object.

use serde_json::Value;

use super::managed::{Managed, Stored};
use super::path::PathElement;
use super::set::FieldSet;

const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas_in_scale() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

fn path_set(path: &[&str]) -> (Vec<PathElement>, FieldSet) {
    let elements: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
    let mut set = FieldSet::new();
    set.insert(&elements);
    (elements, set)
}

/// The managedFields of a Scale: of the parent's entries those that own its replicas, which
/// `replicas` names (`["spec", "replicas"]`).
pub fn scale_entries(parent: &Value, replicas: &[&str]) -> Vec<Value> {
    let Ok(mut managed) = Managed::read(Some(parent)) else {
        return Vec::new();
    };
    let (_, owned) = path_set(replicas);
    managed.entries.retain(|_, entry| entry.touches(&owned));
    for entry in managed.entries.values_mut() {
        SCALE_VERSION.clone_into(&mut entry.api_version);
        entry.replace_set(replicas_in_scale());
    }
    managed.write(Stored::of(Some(parent)))
}

/// The managedFields of the parent after its Scale, with the given managedFields, was written.
pub fn scaled_parent_entries(
    parent: &Value,
    api_version: &str,
    replicas: &[&str],
    scale: &Value,
) -> Result<Vec<Value>, String> {
    let mut managed = Managed::read(Some(parent))?;
    let mut scale = Managed::read(Some(scale))?;
    let (path, owned) = path_set(replicas);
    for (identity, entry) in &mut managed.entries {
        let set = entry.set();
        if !set.has(&path) {
            continue;
        }
        // The identity under which the scale knows an unchanged entry is the parent's own.
        let mut seen = entry.clone();
        SCALE_VERSION.clone_into(&mut seen.api_version);
        if scale.entries.remove(identity).is_none() && scale.entries.remove(&seen.identity()).is_none() {
            entry.replace_set(set.difference(&owned));
        }
    }
    managed.drop_empty();
    for mut entry in scale.entries.into_values() {
        if entry.is_empty() {
            continue;
        }
        api_version.clone_into(&mut entry.api_version);
        entry.replace_set(owned.clone());
        let previous = managed.entries.remove(&entry.identity());
        entry.set_time(previous.and_then(|p| p.time));
        managed.entries.insert(entry.identity(), entry);
    }
    Ok(managed.write(Stored::of(Some(parent))))
}
