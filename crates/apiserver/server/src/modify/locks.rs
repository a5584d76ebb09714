// SPDX-License-Identifier: Apache-2.0
//! What a change may not touch: the object meant by the URL, the uid and revision the client insists
//! on, and the metadata that belongs to the server.

use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use super::Edit;
use crate::api::Api;
use crate::call::Call;
use crate::meta;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

impl Api {
    /// Checks uid and resource version; tells whether the client pinned the revision.
    pub(super) fn check_preconditions(
        &self,
        write: &Write<'_>,
        edit: &Edit,
        old: &Value,
        new: &Value,
    ) -> ApiResult<bool> {
        let resource = write.resource;
        let (uid, live_uid) = (meta::text(new, "uid"), meta::text(old, "uid"));
        if matches!(edit, Edit::Replace(_)) && !uid.is_empty() && uid != live_uid {
            return Err(uid_conflict(resource, meta::name(old), new, old));
        }
        let asked = match edit {
            Edit::Apply(config) => meta::text(&config.value, "resourceVersion"),
            _ => meta::text(new, "resourceVersion"),
        };
        let live = meta::text(old, "resourceVersion");
        match edit {
            Edit::Apply(_) if asked.is_empty() => return Ok(false),
            // A patch may take the resource version away, which leaves an update without one.
            _ if asked.is_empty() || asked == "0" => {
                if resource.unconditional_update() {
                    return Ok(false);
                }
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                // The reference names the resource where other refusals name the kind.
                return Err(ApiError::invalid(
                    &resource.group,
                    &resource.plural,
                    meta::name(old),
                    &[error],
                ));
            }
            Edit::Replace(_) => {}
            // A patch that does not touch the resource version leaves the stored one in place.
            _ if asked == live && !patch_names_version(edit) => return Ok(false),
            _ => {}
        }
        let Ok(_) = asked.parse::<u64>() else {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(asked),
                "must be a valid resource version",
            );
            return Err(ApiError::new(400, "BadRequest", format!("{error}")));
        };
        if asked != live {
            return Err(resource.stale(meta::name(old)));
        }
        Ok(true)
    }
}

/// Whether a patch itself carries a resource version.
fn patch_names_version(edit: &Edit) -> bool {
    match edit {
        Edit::Merge(patch) | Edit::Strategic(patch) | Edit::Apply(patch) => {
            !meta::text(&patch.value, "resourceVersion").is_empty()
        }
        Edit::Json(patch) => patch
            .value
            .as_array()
            .into_iter()
            .flatten()
            .any(|op| op["path"] == "/metadata/resourceVersion" && op["op"] != "test"),
        Edit::Replace(_) => true,
    }
}

/// The name in the object must be the one in the URL.
pub(crate) fn check_name(call: &Call, object: &Value) -> ApiResult<()> {
    let (given, wanted) = (meta::name(object), &call.info.name);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != wanted {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

/// Metadata a client can neither change nor remove.
pub(super) fn keep_server_owned(resource: &Resource, new: &mut Value, old: &Value) {
    meta::copy(new, old, &["creationTimestamp", "selfLink", "resourceVersion"]);
    if resource.has_generation() {
        meta::copy(new, old, &["generation"]);
    } else {
        meta::set(new, "generation", Value::Null);
    }
    if meta::text(new, "uid").is_empty() {
        meta::copy(new, old, &["uid"]);
    }
    if meta::deleting(old) {
        meta::copy(new, old, &["deletionTimestamp"]);
        if new["metadata"]["deletionGracePeriodSeconds"].is_null() {
            meta::copy(new, old, &["deletionGracePeriodSeconds"]);
        }
    }
}

pub(super) fn uid_conflict(resource: &Resource, name: &str, new: &Value, old: &Value) -> ApiError {
    ApiError::conflict(
        &resource.group,
        &resource.plural,
        name,
        &format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            meta::text(new, "uid"),
            meta::text(old, "uid")
        ),
    )
}
