// SPDX-License-Identifier: Apache-2.0
//! The admission plugins a cluster always has: what pods and nodes get without asking, and the
//! label every namespace carries.

use cobaltcore_text::go;
use serde_json::Value;

use super::{Attempt, Operation};
use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};

impl Api {
    /// Runs the built-in plugins that change objects.
    pub fn admit_builtin(&self, attempt: &mut Attempt<'_>, object: &mut Value) -> ApiResult<()> {
        let resource = attempt.write.resource;
        if attempt.write.subresource.is_some() {
            return Ok(());
        }
        match (&*resource.group, &*resource.kind, attempt.operation) {
            ("", "Pod", Operation::Create) => {
                cobaltcore_builtins::default_service_account(object);
                cobaltcore_builtins::default_tolerations(object);
                cobaltcore_builtins::default_limits(object, &self.limit_ranges(&attempt.namespace));
                self.pod_priority(object)?;
                let node = object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
                self.copy_topology(object, &node);
                self.pod_runtime(object)
            }
            ("", "Pod", Operation::Update) => {
                cobaltcore_builtins::default_tolerations(object);
                keep_priority(object, attempt.old);
                Ok(())
            }
            ("", "Node", Operation::Create) => {
                cobaltcore_builtins::taint_new_node(object);
                Ok(())
            }
            ("", kind @ ("PersistentVolumeClaim" | "PersistentVolume"), Operation::Create)
            | ("storage.k8s.io", kind @ "VolumeAttributesClass", Operation::Create) => {
                cobaltcore_builtins::protect_storage(object, kind);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The priority of a pod: that of its class, or of the default class, or 0.
    fn pod_priority(&self, pod: &mut Value) -> ApiResult<()> {
        let name = pod["spec"]["priorityClassName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let class = if name.is_empty() {
            let classes = self.objects("scheduling.k8s.io", "priorityclasses", None);
            classes
                .into_iter()
                .filter(|c| c["globalDefault"] == true)
                .min_by_key(|c| c["value"].as_i64())
        } else {
            self.lookup("scheduling.k8s.io", "priorityclasses", "", &name)
                .map(|r| r.parse())
        };
        let refuse = |pod: &Value, why: &str| Err(ApiError::forbidden("", "pods", meta::name(pod), why));
        if class.is_none() && !name.is_empty() {
            return refuse(pod, &cobaltcore_builtins::missing_priority_class(&name));
        }
        let priority = class.as_ref().map(|class| cobaltcore_builtins::Priority {
            class: meta::name(class).to_owned(),
            value: class["value"].as_i64().unwrap_or(0),
            preemption_policy: class["preemptionPolicy"].as_str().unwrap_or_default().to_owned(),
        });
        match cobaltcore_builtins::default_priority(pod, priority.as_ref()) {
            Ok(()) => Ok(()),
            Err(why) => refuse(pod, &why),
        }
    }

    /// What a pod gets from the class of its runtime; only that says what running it costs.
    fn pod_runtime(&self, pod: &mut Value) -> ApiResult<()> {
        let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default();
        let refuse = |pod: &Value, why: &str| {
            let why = format!("pod rejected: {why}");
            Err(ApiError::forbidden("", "pods", meta::name(pod), &why))
        };
        let class = if name.is_empty() {
            None
        } else {
            let found = self.lookup("node.k8s.io", "runtimeclasses", "", name);
            let Some(found) = found else {
                let why = format!("RuntimeClass {} not found", go::quote(name));
                return refuse(pod, &why);
            };
            Some(found.parse())
        };
        match cobaltcore_builtins::take_runtime_class(pod, class.as_ref()) {
            Ok(()) => Ok(()),
            Err(why) => refuse(pod, &why),
        }
    }

    /// A pod, or what binds it, is labelled with where its node is.
    pub(crate) fn copy_topology(&self, object: &mut Value, node: &str) {
        if let Some(node) = self.lookup("", "nodes", "", node) {
            cobaltcore_builtins::copy_topology(object, &node.parse());
        }
    }

    /// Owner references a client names twice. What a patch leads to is looked at once, when everybody
    /// has had their say.
    pub(crate) fn admit_owners(&self, attempt: &Attempt<'_>, object: &mut Value) {
        if attempt.write.subresource.is_none() {
            self.dedup_owners(attempt, object, attempt.write.call.info.verb == "patch");
        }
    }

    /// Owner references that occur twice, each word alike, are dropped with a warning.
    pub(super) fn dedup_owners(&self, attempt: &Attempt<'_>, object: &mut Value, mutated: bool) {
        let Some(Value::Array(owners)) = object
            .get_mut("metadata")
            .and_then(|m| m.get_mut("ownerReferences"))
        else {
            return;
        };
        let mut seen: Vec<Value> = Vec::new();
        let mut doubled: Vec<String> = Vec::new();
        owners.retain(|owner| {
            let fresh = !seen.contains(owner);
            if fresh {
                seen.push(owner.clone());
            } else {
                doubled.push(owner["uid"].as_str().unwrap_or_default().to_owned());
            }
            fresh
        });
        if doubled.is_empty() {
            return;
        }
        let after = if mutated {
            " after mutating admission happens"
        } else {
            ""
        };
        attempt.write.call.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        ));
    }
}

/// What the priority plugin settled when the pod was made stays when an update leaves it out.
fn keep_priority(pod: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    for key in ["priority", "preemptionPolicy"] {
        let spec = meta::fields(meta::field(meta::fields(pod), "spec"));
        if spec.get(key).is_none_or(Value::is_null)
            && let Some(kept) = old["spec"].get(key)
        {
            spec.insert(key.into(), kept.clone());
        }
    }
}
