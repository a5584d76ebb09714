// SPDX-License-Identifier: Apache-2.0
//! The move from client-side to server-side apply: the manager `kubectl` may take over fields its
//! own last-applied annotation proves to be unchanged since, and keeps the annotation up to date.

use cobaltcore_text::go;
use serde_json::Value;

use super::ApplyRequest;
use super::compare::compare;
use super::fields::field_set;
use super::set::FieldSet;
use super::types::Ty;
use super::validate::validate;

/// The only manager this applies to.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The conflicts the annotation does not excuse.
pub(super) fn remaining(
    live: &Value,
    owners: Vec<(String, FieldSet)>,
    request: &ApplyRequest<'_>,
) -> Vec<(String, FieldSet)> {
    let Some(allowed) = allowed(live, request) else {
        return owners;
    };
    owners
        .into_iter()
        .map(|(manager, set)| (manager, set.difference(&allowed)))
        .filter(|(_, set)| !set.is_empty())
        .collect()
}

/// Paths that still have the value client-side apply gave them.
fn allowed(live: &Value, request: &ApplyRequest<'_>) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
        return None;
    }
    let ty = Ty::root(request.schema);
    validate(&last, ty).ok()?;
    let diff = compare(&last, live, ty).ok()?;
    Some(
        field_set(&last, ty)
            .difference(&diff.modified)
            .difference(&diff.added)
            .difference(&diff.removed),
    )
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION)?
        .as_str()?;
    if text.is_empty() { None } else { Some(text) }
}

/// Rewrites the annotation of an object that has one; says whether it has.
pub(super) fn refresh(object: &mut Value, config: &Value) -> bool {
    if annotation(object).is_none() {
        return false;
    }
    let mut config = config.clone();
    if let Some(annotations) = config
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{}\n", go::json(&config));
    if let Some(annotations) = object
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    }
    true
}
