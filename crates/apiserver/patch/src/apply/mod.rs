// SPDX-License-Identifier: Apache-2.0
//! Server-side apply and the tracking of field ownership.
//!
//! [`apply`] merges a configuration, [`update`] records what any other write changed; both keep
//! `metadata.managedFields`. The server runs defaulting and admission on what [`apply`] returns and
//! then asks [`settle`] (or [`unchanged`]) whether anything is left to store: entry times alone are
//! not worth a write. Fields of a [`Filter`] are neither owned nor compared, but the caller must put
//! them back (or drop them) in the object itself, as it does for updates.

mod compare;
mod conflict;
mod engine;
mod fields;
mod last_applied;
mod managed;
mod merge;
mod path;
mod reconcile;
mod scale;
mod set;
mod time;
mod types;
mod validate;

use std::sync::Arc;

use cobaltcore_schema::Schema;
use serde_json::{Map, Value};

pub use conflict::{Conflict, Conflicts};
pub use path::PathElement;
pub use scale::{scale_entries, scaled_parent_entries};
pub use set::{FieldSet, Filter};

use crate::error::{ApplyError, PatchError};
use compare::empty_object;
use engine::Engine;
use managed::{Managed, Manager, Stored, managed_fields};
use types::Ty;

/// Finds the schema of another served version of the kind, by `apiVersion`. `None`: the version is
/// not served, and entries written through it are dropped.
pub type Versions<'a> = &'a dyn Fn(&str) -> Option<Arc<Schema>>;

/// An apply: a configuration meets the live object.
#[derive(Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// The stored object in the request's version; `None` creates.
    pub live: Option<&'a Value>,
    /// What the client sent.
    pub config: &'a Value,
    /// Schema of the request's version.
    pub schema: &'a Schema,
    /// Schemas of the other versions; without it every entry is read through `schema`.
    pub versions: Option<Versions<'a>>,
    /// `fieldManager`.
    pub manager: &'a str,
    /// `group/version` (or `v1`) of the endpoint.
    pub api_version: &'a str,
    /// Kind of the endpoint.
    pub kind: &'a str,
    /// Subresource of the endpoint.
    pub subresource: Option<&'a str>,
    /// Take fields from other managers instead of reporting conflicts.
    pub force: bool,
    /// What the endpoint lets a client change.
    pub filter: &'a Filter,
    /// The present time, RFC 3339 with seconds, in UTC.
    pub now: &'a str,
}

/// The outcome of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The merged object with its managedFields, before defaulting.
    pub object: Value,
    /// Whether object or ownership differ from the live object, entry times aside. A configuration
    /// that sets filtered fields counts as a change; [`settle`] has the last word.
    pub changed: bool,
}

/// Any other write: create, update, or a patch of another kind.
#[derive(Clone, Copy)]
pub struct UpdateRequest<'a> {
    /// The stored object; `None` on create.
    pub old: Option<&'a Value>,
    /// What every new object of the kind says before anything is set; nobody owns that.
    pub blank: Option<&'a Value>,
    /// Schema of the request's version.
    pub schema: &'a Schema,
    /// Schemas of the other versions; without it every entry is read through `schema`.
    pub versions: Option<Versions<'a>>,
    /// `fieldManager`, or what stands in for it.
    pub manager: &'a str,
    /// `group/version` (or `v1`) of the endpoint.
    pub api_version: &'a str,
    /// Subresource of the endpoint.
    pub subresource: Option<&'a str>,
    /// What the endpoint lets a client change.
    pub filter: &'a Filter,
    /// The present time, RFC 3339 with seconds, in UTC.
    pub now: &'a str,
}

/// Merges a configuration into the live object and records the manager's ownership.
pub fn apply(request: ApplyRequest<'_>) -> Result<Applied, ApplyError> {
    check_configuration(&request)?;
    let engine = Engine::of_apply(&request);
    let live = request.live.unwrap_or_else(|| empty_object());
    let mut managed = Managed::read(request.live)
        .map_err(|e| PatchError::IllTyped(format!("failed to decode managed fields: {e}")))?;
    if managed.is_empty() && request.live.is_some() {
        managed = before_first_apply(&engine, live, &request)?;
    }
    // kubectl may take over what its client-side apply wrote, hence the second attempt.
    let spare = (request.manager == last_applied::MANAGER && !request.force).then(|| managed.clone());
    let outcome = match (engine.apply(live, request.config, managed, request.force), spare) {
        (Err(engine::Refusal::Conflict(owners)), Some(spare)) => {
            let left = last_applied::remaining(live, owners, &request);
            if left.is_empty() {
                engine.apply(live, request.config, spare, true)
            } else {
                Err(engine::Refusal::Conflict(left))
            }
        }
        (outcome, _) => outcome,
    };
    let outcome = outcome.map_err(|refusal| match refusal {
        engine::Refusal::Conflict(owners) => PatchError::Conflict(Conflicts::collect(&owners)),
        engine::Refusal::IllTyped(text) => PatchError::IllTyped(text),
    })?;
    let mut object = outcome.object;
    let annotated =
        request.manager == last_applied::MANAGER && last_applied::refresh(&mut object, request.config);
    set_managed_fields(&mut object, outcome.managed.write(Stored::of(request.live)));
    let changed = match request.live {
        None => true,
        Some(live) if annotated => !unchanged(live, &object),
        Some(live) => outcome.changed || !same_ownership(live, &object),
    };
    Ok(Applied { object, changed })
}

/// Merges a configuration into an object without recording who owns what, as mutating policies do.
/// Parts that would be replaced as a whole must not be named: what the configuration leaves out
/// of them would be lost.
pub fn merge_configuration(object: &Value, config: &Value, schema: &Schema) -> Result<Value, String> {
    let ty = Ty::root(schema);
    validate::validate(config, ty)
        .map_err(|e| format!("failed to convert patch object to typed object: {e}"))?;
    let atomic = validate::atomic_paths(config, ty);
    if !atomic.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        ));
    }
    let mut merged = object.clone();
    merge::merge(&mut merged, config, ty).map_err(|e| format!("failed to merge patch: {e}"))?;
    Ok(merged)
}

/// Records in `new` who owns what after a write that is not an apply. `new` may carry managedFields
/// of its own: `[]` and `[{}]` clear them, others replace the stored ones, none or malformed ones
/// leave them. On a subresource they are ignored.
pub fn update(request: UpdateRequest<'_>, new: &mut Value) {
    let supplied = take_managed_fields(new);
    let read_stored = || Managed::read(request.old).unwrap_or_default();
    let mut stored = Stored::of(request.old);
    let managed = match supplied {
        // The usual case: the client sent back what it had read, or the patch left it alone.
        Some(Value::Array(same)) if is_stored(request.old, &same) => {
            stored = Stored::Owned(same);
            read_stored()
        }
        Some(value) if request.subresource.is_none() => {
            if is_reset(&value) {
                Managed::default()
            } else {
                Managed::read_foreign(&value)
                    .filter(|m| !m.is_empty())
                    .unwrap_or_else(read_stored)
            }
        }
        _ => read_stored(),
    };
    // An object nobody tracked so far stays untracked until it is applied to.
    if managed.is_empty() && request.old.is_some() {
        return;
    }
    let engine = Engine::of_update(&request);
    let manager = Manager {
        name: request.manager,
        apply: false,
        api_version: request.api_version,
        subresource: request.subresource,
    };
    let old = request.old.or(request.blank).unwrap_or_else(|| empty_object());
    let entries = match engine.update(old, new, managed, &manager) {
        Ok(managed) => managed.write(stored),
        // Not comparable under the schema: ownership stays as it was rather than getting lost.
        Err(_) => managed_fields(old)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
    };
    set_managed_fields(new, entries);
}

/// Why the entries of an object's managedFields cannot be read, if they cannot.
pub fn unreadable_ownership(object: &Value) -> Option<String> {
    Managed::read(Some(object)).err()
}

/// Whether two versions of an object differ in nothing but the times of managedFields entries.
pub fn unchanged(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return old == new;
    };
    same_but(old, new, "metadata", |old, new| match (old, new) {
        (Value::Object(old), Value::Object(new)) => same_but(old, new, "managedFields", same_entries),
        _ => old == new,
    })
}

/// What is left to store of a candidate that went through defaulting and admission: `None` when it
/// is the live object but for entry times, so that re-applying changes nothing, times included.
pub fn settle(live: &Value, candidate: Value) -> Option<Value> {
    if unchanged(live, &candidate) {
        None
    } else {
        Some(candidate)
    }
}

fn same_but(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    special: &str,
    same: impl Fn(&Value, &Value) -> bool,
) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((old_key, a), (new_key, b))| {
            old_key == new_key && if old_key == special { same(a, b) } else { a == b }
        })
}

fn same_ownership(old: &Value, new: &Value) -> bool {
    match (managed_fields(old), managed_fields(new)) {
        (Some(old), Some(new)) => same_entries(old, new),
        (old, new) => old == new,
    }
}

fn same_entries(old: &Value, new: &Value) -> bool {
    let (Value::Array(old), Value::Array(new)) = (old, new) else {
        return old == new;
    };
    old.len() == new.len()
        && old.iter().zip(new).all(|(a, b)| match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let timeless = |map| Map::iter(map).filter(|(key, _)| *key != "time");
                timeless(a).eq(timeless(b))
            }
            _ => a == b,
        })
}

fn check_configuration(request: &ApplyRequest<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| {
        request
            .config
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != request.api_version || kind != request.kind {
        return Err(PatchError::BadRequest(format!(
            "invalid object type: {}",
            kind_text(api_version, kind)
        )));
    }
    if managed_fields(request.config).is_some() {
        return Err(PatchError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    validate::validate(request.config, Ty::root(request.schema)).map_err(|findings| {
        let meta = |name: &str| {
            request
                .config
                .get("metadata")
                .and_then(|m| m.get(name))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        PatchError::IllTyped(format!(
            "failed to create typed patch object ({}/{}; {}): {findings}",
            meta("namespace"),
            meta("name"),
            kind_text(api_version, kind)
        ))
    })
}

/// `apps/v1, Kind=Deployment`; the core group is empty: `/v1, Kind=Pod`.
fn kind_text(api_version: &str, kind: &str) -> String {
    match api_version.matches('/').count() {
        _ if api_version.is_empty() => format!("/, Kind={kind}"),
        0 => format!("/{api_version}, Kind={kind}"),
        1 => format!("{api_version}, Kind={kind}"),
        _ => format!("/, Kind={kind}"),
    }
}

fn before_first_apply<'a>(
    engine: &Engine<'_>,
    live: &'a Value,
    request: &ApplyRequest<'_>,
) -> Result<Managed<'a>, ApplyError> {
    let manager = Manager {
        name: "before-first-apply",
        apply: false,
        api_version: request.api_version,
        subresource: request.subresource,
    };
    engine
        .update(empty_object(), live, Managed::default(), &manager)
        .map_err(|e| PatchError::IllTyped(format!("failed to create manager for existing fields: {e}")))
}

fn is_stored(old: Option<&Value>, supplied: &[Value]) -> bool {
    old.and_then(managed_fields)
        .and_then(Value::as_array)
        .is_some_and(|stored| stored == supplied)
}

fn is_reset(value: &Value) -> bool {
    match value.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
        .filter(|v| !v.is_null())
}

fn set_managed_fields(object: &mut Value, entries: Vec<Value>) {
    let Value::Object(fields) = object else { return };
    if entries.is_empty() {
        if let Some(Value::Object(meta)) = fields.get_mut("metadata") {
            meta.remove("managedFields");
        }
        return;
    }
    let meta = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(meta) = meta {
        meta.insert("managedFields".to_owned(), Value::Array(entries));
    }
}
