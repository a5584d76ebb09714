// SPDX-License-Identifier: Apache-2.0
//! What an object would become by a change: the client's object, a patch applied to the stored one, or
//! a configuration merged into it. The result decodes as the type it claims to be; whether it is
//! valid and who owns what is judged later.

use cobaltcore_patch::{ApplyRequest, PatchError};
use serde_json::{Value, json};

use super::Edit;
use super::locks::check_name;
use super::refusals::{
    envelope_changed, judge, judge_configuration, refused, shown_patch, shown_start, unconvertible,
    undecodable, unrestorable,
};
use super::replicas::{name_as_scale, replicas_attributed};
use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::write::{Write, version_schemas};

impl Api {
    /// The candidate.
    pub(super) fn build(&self, write: &Write<'_>, edit: &Edit, old: &Value) -> ApiResult<Value> {
        let resource = write.resource;
        let mut patched = match edit {
            Edit::Replace(object) => return Ok(object.clone()),
            Edit::Apply(config) => {
                let applied = self.apply_to(write, &config.value, Some(old))?;
                judge_configuration(write, &config.problems)?;
                applied
            }
            Edit::Json(patch) => {
                cobaltcore_patch::json_patch(old, &patch.value).map_err(|e| refused(resource, old, e))?
            }
            Edit::Merge(patch) => {
                let mut patched = old.clone();
                cobaltcore_patch::merge_patch(&mut patched, &patch.value);
                patched
            }
            Edit::Strategic(patch) => {
                cobaltcore_patch::strategic_merge_patch(old, &patch.value, resource.schema())
                    .map_err(|e| refused(resource, old, e))?
            }
        };
        if !patched.is_object() {
            return Err(undecodable(
                resource,
                &shown_start(&patched),
                "the patched object is not an object",
            ));
        }
        for field in ["kind", "apiVersion"] {
            if patched[field] == old[field] {
                continue;
            }
            // A strategic patch is merged into the type itself, which has no other name; built-in
            // kinds are read as what they are when they do not say so.
            let nameless = resource.as_builtin().is_some() && patched[field].is_null();
            if !nameless && !matches!(edit, Edit::Strategic(_)) {
                return Err(envelope_changed(write, &patched, old));
            }
            if !nameless && !patched[field].is_string() {
                continue;
            }
            meta::fields(&mut patched).insert(field.into(), old[field].clone());
        }
        // A strategic patch is merged into the type itself: it is the patch that does not fit.
        let patched_text = match edit {
            Edit::Strategic(patch) => shown_patch(&patch.value),
            _ => shown_start(&patched),
        };
        let reset = crate::write::resets_ownership(resource, &patched);
        // Strictness of an apply concerns its configuration and was judged when that was read.
        let unknown = resource.decode(&mut patched).map_err(|e| {
            if let Edit::Apply(config) = edit {
                unconvertible(resource, &config.value, &e)
            } else if e.code() == 400 && matches!(edit, Edit::Strategic(_)) {
                undecodable(resource, &patched_text, &unrestorable(e.message()))
            } else if e.code() == 400 {
                undecodable(resource, &patched_text, e.message())
            } else {
                e
            }
        })?;
        if reset {
            meta::set(&mut patched, "managedFields", json!([{}]));
        }
        if let Edit::Json(patch) | Edit::Merge(patch) | Edit::Strategic(patch) = edit {
            let mut unknown: Vec<String> = unknown.iter().map(|p| crate::call::unknown_field(p)).collect();
            if resource.as_builtin().is_some() {
                // A patched object has no order of its own any more.
                unknown.sort();
            }
            let problems = [patch.problems.clone(), unknown].concat();
            judge(write, &problems, &patched_text)?;
        }
        // Whoever leaves the namespace out means the one asked in.
        match meta::namespace(&patched) {
            // What is in no namespace says so, whatever it was told.
            _ if !resource.namespaced => meta::set(&mut patched, "namespace", Value::Null),
            "" if resource.namespaced => meta::copy(&mut patched, old, &["namespace"]),
            other if other != meta::namespace(old) => return Err(ApiError::other_namespace()),
            _ => {}
        }
        if meta::name(&patched) != meta::name(old) {
            check_name(write.call, &patched)?;
        }
        Ok(patched)
    }

    /// Merges an apply configuration into the live object.
    pub(super) fn apply_to(
        &self,
        write: &Write<'_>,
        config: &Value,
        live: Option<&Value>,
    ) -> ApiResult<Value> {
        let resource = write.resource;
        let api_version = resource.api_version();
        let versions = version_schemas(write.registry, resource);
        let filter = resource.filter(write.subresource);
        let attributed = live
            .filter(|_| write.subresource == Some("scale"))
            .and_then(|live| replicas_attributed(resource, live, &self.clock.stamp()));
        let request = ApplyRequest {
            live: attributed.as_ref().or(live),
            config,
            schema: resource.schema(),
            versions: Some(&versions),
            manager: &write.manager(),
            api_version: &api_version,
            kind: &resource.kind,
            subresource: write.subresource,
            force: write.options.force,
            filter: &filter,
            now: &self.clock.stamp(),
        };
        let applied = cobaltcore_patch::apply(request).map_err(|mut e| {
            if let PatchError::Conflict(conflicts) = &mut e {
                self.metrics.apply_conflict();
                if write.subresource == Some("scale") {
                    name_as_scale(conflicts);
                }
            }
            refused(resource, config, e)
        })?;
        if let Some(custom) = resource.as_custom() {
            let errors = custom.null_errors(&applied.object, live);
            if !errors.is_empty() {
                return Err(resource.invalid(&write.call.info.name, &errors));
            }
        }
        Ok(applied.object)
    }
}
