// SPDX-License-Identifier: Apache-2.0
//! Checks that need more than the object itself: rights a client would hand out, owners it would
//! block, definitions it would shadow.

use cobaltcore_access::rbac;
use cobaltcore_builtins::{
    SecurityMode, security_label_errors, security_relabel_warnings, security_violation,
};
use cobaltcore_text::go;
use serde_json::Value;

use crate::api::Api;
use crate::config::Authorization;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

/// The labels by which namespaces ask for security begin with this.
const SECURITY: &str = "pod-security.kubernetes.io/";

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
        if write.subresource == Some("resize") {
            guard_size(self, new, old)?;
        }
        self.guard_security(write, new, old)?;
        if self.config.enforce_owner_references {
            self.guard_owners(write, new, old)?;
        }
        Ok(())
    }

    /// Pods keep to the level of security their namespace asks for; who makes others that would not
    /// is warned.
    fn guard_security(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        let resource = write.resource;
        if write.subresource.is_some() || resource.as_builtin().is_none() {
            return Ok(());
        }
        if resource.is("", "Namespace") {
            let errors = security_label_errors(new);
            if !errors.is_empty() {
                return Err(resource.invalid(meta::name(new), &errors));
            }
            if let Some(old) = old {
                self.warn_of_present_pods(write, new, old);
            }
            return Ok(());
        }
        let path = match (&*resource.group, &*resource.kind) {
            ("", "Pod") => "",
            ("", "PodTemplate") => "/template",
            ("batch", "CronJob") => "/spec/jobTemplate/spec/template",
            ("", "ReplicationController") | ("apps" | "batch", _) => "/spec/template",
            _ => return Ok(()),
        };
        let is_pod = resource.is("", "Pod");
        let Some(pod) = new.pointer(path) else {
            return Ok(());
        };
        // What a running pod can change does not concern its security, but for its images.
        if is_pod && old.is_some_and(|old| images(old) == images(new)) {
            return Ok(());
        }
        let labels = self.namespace(meta::namespace(new));
        let Some(namespace) =
            labels.filter(|n| n.facts.labels.iter().any(|(key, _)| key.starts_with(SECURITY)))
        else {
            return Ok(());
        };
        let namespace = namespace.parse();
        if is_pod && let Some(why) = security_violation(&namespace, SecurityMode::Enforce, pod) {
            let why = format!("violates PodSecurity {why}");
            return Err(ApiError::forbidden("", &resource.plural, meta::name(new), &why));
        }
        if let Some(why) = security_violation(&namespace, SecurityMode::Warn, pod) {
            write.call.warn(format!("would violate PodSecurity {why}"));
        }
        Ok(())
    }

    /// Pods that are there stay when their namespace begins to forbid them; whoever changed it is told.
    fn warn_of_present_pods(&self, write: &Write<'_>, new: &Value, old: &Value) {
        if new["metadata"]["labels"] == old["metadata"]["labels"] {
            return;
        }
        let Some(table) = self.store.find("", "pods") else {
            return;
        };
        let mut pods: Vec<Value> = Vec::new();
        table.each(|key, record| {
            if *key.namespace == *meta::name(new) {
                pods.push(record.parse());
            }
        });
        let named = pods.iter().map(|pod| (meta::name(pod), pod));
        for warning in security_relabel_warnings(new, old, named) {
            write.call.warn(warning);
        }
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

/// The images of a pod's containers.
fn images(pod: &Value) -> Vec<&Value> {
    ["containers", "initContainers"]
        .into_iter()
        .filter_map(|key| pod["spec"][key].as_array())
        .flatten()
        .map(|container| &container["image"])
        .collect()
}

/// A pod that runs somewhere grows only as far as its node allows.
fn guard_size(api: &Api, pod: &Value, old: Option<&Value>) -> ApiResult<()> {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let generation = |pod: &Value| pod["metadata"]["generation"].as_i64();
    if node.is_empty() || old.is_some_and(|old| generation(old) == generation(pod)) {
        return Ok(());
    }
    let refuse = |why: &str| ApiError::forbidden("", "pods", meta::name(pod), why);
    let Some(found) = api.lookup("", "nodes", "", node) else {
        return Err(refuse(&format!("node {} not found", go::quote(node))));
    };
    match cobaltcore_builtins::resize_objection(pod, &found.parse()) {
        None => Ok(()),
        Some((reason, why)) => Err(refuse(&why).with_cause(reason, "", "")),
    }
}
