// SPDX-License-Identifier: Apache-2.0
//! Checks that need more than the object itself: rights a client would hand out, owners it would
//! block, definitions it would shadow.

use cobaltcore_access::rbac;
use serde_json::Value;

use crate::api::Api;
use crate::config::Authorization;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

impl Api {
    /// Refuses what a valid object must still not do.
    pub fn guard(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        let resource = write.resource;
        if resource.is_definition() {
            return self.guard_definition(new);
        }
        if *resource.group == *"rbac.authorization.k8s.io" {
            return self.guard_rights(write, new, old);
        }
        if old.is_none() || !resource.is("", "Pod") {
            self.guard_limits(write, new)?;
        }
        if self.config.enforce_owner_references {
            self.guard_owners(write, new, old)?;
        }
        Ok(())
    }

    /// The table of a definition must exist before its commit is published.
    fn guard_definition(&self, definition: &Value) -> ApiResult<()> {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        self.store.register(vec![(group.to_owned(), plural.to_owned())])?;
        Ok(())
    }

    /// Nobody hands out rights they do not hold.
    fn guard_rights(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        if self.config.authorization != Authorization::Rbac {
            return Ok(());
        }
        let (user, index) = (&write.call.user, self.rbac.load());
        let namespace = meta::namespace(new);
        let result = match rbac::RoleKind::parse(&write.resource.kind) {
            Some(kind) => {
                rbac::check_role_write(&index, user, kind, namespace, &write.call.info.name, new, old)
            }
            None => rbac::check_binding_write(&index, user, namespace, new, old),
        };
        result.map_err(ApiError::from)
    }

    /// Blocking an owner's deletion needs the right to change its finalizers.
    fn guard_owners(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        let blocking = |object: &Value| -> Vec<Value> {
            object["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|owner| owner["blockOwnerDeletion"] == true)
                .cloned()
                .collect()
        };
        let before = old.map(blocking).unwrap_or_default();
        for owner in blocking(new) {
            if before.iter().any(|b| b["uid"] == owner["uid"]) {
                continue;
            }
            let (group, version) = meta::split_api_version(owner["apiVersion"].as_str().unwrap_or_default());
            let kind = owner["kind"].as_str().unwrap_or_default();
            let Some(resource) = write.registry.by_kind(group, version, kind) else {
                let why = format!(
                    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {group}/{version} Kind {kind}"
                );
                return Err(ApiError::forbidden(
                    &write.resource.group,
                    &write.resource.plural,
                    meta::name(new),
                    &why,
                ));
            };
            let namespace = if resource.namespaced {
                meta::namespace(new)
            } else {
                ""
            };
            let attributes = rbac::Attributes::resource(&write.call.user, "update", group, &resource.plural)
                .of_subresource("finalizers")
                .in_namespace(namespace)
                .named(owner["name"].as_str().unwrap_or_default());
            if !self.authorize(&attributes).allowed {
                let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
                return Err(ApiError::forbidden(
                    &write.resource.group,
                    &write.resource.plural,
                    meta::name(new),
                    why,
                ));
            }
        }
        Ok(())
    }
}
