// SPDX-License-Identifier: Apache-2.0
//! Pod subresources as pure functions: binding a pod to a node, and deciding whether a pod may be
//! evicted. Reading, writing and deleting is left to the caller.

use cobaltcore_schema::FieldError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{at, ensure, entries, list, list_mut, map, number, text};
use crate::selector::selector_matches;
use crate::times::{Precision, render};

/// Labels of a node that say where it is.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Why a pod cannot be bound; both are answered with 409 Conflict on `pods/binding`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The pod is going away.
    #[error("pod {0} is being deleted, cannot be assigned to a host")]
    Deleted(String),
    /// The pod runs somewhere already.
    #[error("pod {pod} is already assigned to node {node:?}")]
    Assigned {
        /// Its name.
        pod: String,
        /// The node it is assigned to.
        node: String,
    },
    /// The pod may not be scheduled yet.
    #[error("pod {0} has non-empty .spec.schedulingGates")]
    Gated(String),
    /// The binding was made for another pod of the same name.
    #[error("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}")]
    Uid {
        /// What the binding asks for.
        wanted: String,
        /// What the pod has.
        found: String,
    },
}

/// What is wrong with a Binding.
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(binding, "target.kind");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(
            "target.kind",
            &json!(kind),
            &["Node", "<empty>"],
        ));
    }
    if text(binding, "target.name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    errors
}

/// Assigns a pod to the node of a binding, notes the condition and copies the binding's annotations
/// and labels.
pub fn bind(pod: &mut Value, binding: &Value, now: Timestamp) -> Result<(), BindError> {
    let name = text(pod, "metadata.name").to_owned();
    let wanted = text(binding, "metadata.uid");
    if !wanted.is_empty() && wanted != text(pod, "metadata.uid") {
        return Err(BindError::Uid {
            wanted: wanted.to_owned(),
            found: text(pod, "metadata.uid").to_owned(),
        });
    }
    if at(pod, "metadata.deletionTimestamp").is_some() {
        return Err(BindError::Deleted(name));
    }
    let node = text(pod, "spec.nodeName");
    if !node.is_empty() {
        return Err(BindError::Assigned {
            pod: name,
            node: node.to_owned(),
        });
    }
    if !list(pod, "spec.schedulingGates").is_empty() {
        return Err(BindError::Gated(name));
    }
    ensure(pod, "spec").insert("nodeName".to_owned(), json!(text(binding, "target.name")));
    for field in ["annotations", "labels"] {
        let path = format!("metadata.{field}");
        let copied: Vec<(String, Value)> = entries(binding, &path)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if !copied.is_empty() {
            ensure(pod, &path).extend(copied);
        }
    }
    set_condition(pod, json!({"type": "PodScheduled", "status": "True"}), now);
    Ok(())
}

/// Labels a pod, or what binds it, with the zone and region of its node. What it said itself does not
/// count.
pub fn copy_topology(object: &mut Value, node: &Value) {
    let copied: Vec<(String, Value)> = entries(node, "metadata.labels")
        .filter(|(key, _)| TOPOLOGY.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !copied.is_empty() {
        ensure(object, "metadata.labels").extend(copied);
    }
}

/// Sets or replaces a pod condition; the transition time moves only when the status changes.
pub fn set_condition(pod: &mut Value, condition: Value, now: Timestamp) {
    let stamp = json!(render(now, Precision::Seconds));
    let kind = text(&condition, "type").to_owned();
    let mut condition = condition;
    let fields = ensure(&mut condition, "");
    fields.insert("lastTransitionTime".to_owned(), stamp);
    fields.entry("lastProbeTime").or_insert(Value::Null);
    for known in list_mut(pod, "status.conditions") {
        if text(known, "type") == kind {
            if text(known, "status") == text(&condition, "status")
                && let Some(before) = at(known, "lastTransitionTime").cloned()
            {
                ensure(&mut condition, "").insert("lastTransitionTime".to_owned(), before);
            }
            *known = condition;
            return;
        }
    }
    let conditions = ensure(pod, "status").entry("conditions").or_insert(json!([]));
    match conditions.as_array_mut() {
        Some(list) => list.push(condition),
        None => *conditions = json!([condition]),
    }
}

/// The condition an evicted pod gets before it is deleted.
pub fn disruption_condition() -> Value {
    json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    })
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    list(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

/// What to do with an eviction.
#[derive(Debug, Clone, PartialEq)]
pub enum Eviction {
    /// Delete the pod; no budget is touched. `locked`: only if the pod has not changed meanwhile.
    Delete {
        /// Condition the deletion on the resource version that was judged.
        locked: bool,
    },
    /// Store this budget (compare-and-swap), then delete the pod.
    Spend(Value),
    /// 429 with cause reason `DisruptionBudget`.
    TooManyRequests {
        /// Message of the Status.
        message: String,
        /// Message of the cause.
        cause: String,
        /// `Retry-After`, where one is given.
        retry_after_seconds: Option<u32>,
    },
    /// 403 on the budget with this detail.
    Forbidden {
        /// Name of the budget.
        budget: String,
        /// What is wrong with it.
        detail: String,
    },
    /// 500: more than one budget applies.
    TooManyBudgets(String),
}

/// Budgets that apply to a pod, out of those of its namespace.
pub fn matching_budgets<'a>(pod: &Value, budgets: &'a [Value]) -> Vec<&'a Value> {
    let labels = map(pod, "metadata.labels");
    budgets
        .iter()
        .filter(|budget| selector_matches(at(budget, "spec.selector"), labels))
        .collect()
}

/// Decides about an eviction. `budgets` are all budgets of the pod's namespace.
pub fn evict(pod: &Value, budgets: &[Value], now: Timestamp) -> Eviction {
    let deleted = at(pod, "metadata.deletionTimestamp").is_some();
    match text(pod, "status.phase") {
        "Succeeded" | "Failed" => return Eviction::Delete { locked: false },
        "Pending" => return Eviction::Delete { locked: !deleted },
        _ if deleted => return Eviction::Delete { locked: false },
        _ => {}
    }
    let matching = matching_budgets(pod, budgets);
    let budget = match matching.as_slice() {
        [] => return Eviction::Delete { locked: false },
        [only] => *only,
        _ => {
            return Eviction::TooManyBudgets(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                    .to_owned(),
            );
        }
    };
    if !is_ready(pod) {
        let wanted = number(budget, "status.desiredHealthy");
        let always = text(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if always || (wanted > 0 && number(budget, "status.currentHealthy") >= wanted) {
            return Eviction::Delete { locked: true };
        }
    }
    spend(pod, budget, now)
}

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// More unconfirmed evictions than this and the budget is considered broken.
const MAX_DISRUPTED: usize = 2000;

fn spend(pod: &Value, budget: &Value, now: Timestamp) -> Eviction {
    let name = text(budget, "metadata.name").to_owned();
    if number(budget, "status.observedGeneration") < number(budget, "metadata.generation") {
        return Eviction::TooManyRequests {
            message: REFUSED.to_owned(),
            cause: format!("The disruption budget {name} is still being processed by the server."),
            retry_after_seconds: Some(10),
        };
    }
    let allowed = number(budget, "status.disruptionsAllowed");
    if allowed < 0 {
        return Eviction::Forbidden {
            budget: name,
            detail: "pdb disruptions allowed is negative".to_owned(),
        };
    }
    if map(budget, "status.disruptedPods").is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        let detail =
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller".to_owned();
        return Eviction::Forbidden { budget: name, detail };
    }
    if allowed == 0 {
        return Eviction::TooManyRequests {
            message: REFUSED.to_owned(),
            cause: refusal(&name, budget),
            retry_after_seconds: None,
        };
    }
    let mut spent = budget.clone();
    let status = ensure(&mut spent, "status");
    status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
    if allowed == 1 {
        insufficient(&mut spent, now);
    }
    let pods = ensure(&mut spent, "status.disruptedPods");
    pods.insert(
        text(pod, "metadata.name").to_owned(),
        json!(render(now, Precision::Seconds)),
    );
    Eviction::Spend(spent)
}

fn insufficient(budget: &mut Value, now: Timestamp) {
    crate::budget::set_disruption_condition(budget, 0, now);
}

fn refusal(name: &str, budget: &Value) -> String {
    let condition = list(budget, "status.conditions")
        .iter()
        .find(|c| text(c, "type") == "DisruptionAllowed");
    let said = condition
        .filter(|condition| text(condition, "status") == "False" && !text(condition, "message").is_empty());
    if let Some(failed) = said.filter(|condition| text(condition, "reason") == "SyncFailed") {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text(failed, "message")
        );
    }
    let (healthy, wanted) = (
        number(budget, "status.currentHealthy"),
        number(budget, "status.desiredHealthy"),
    );
    if healthy <= wanted {
        return format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        );
    }
    match said {
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text(condition, "reason"),
            text(condition, "message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}
