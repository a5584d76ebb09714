// SPDX-License-Identifier: Apache-2.0
//! Which pods still stand in the way of offboarding: agents that the offboarding taint has not
//! pushed off yet. A pod that tolerates the taint for ever belongs to the node; one that is
//! being deleted still runs.

use cobaltcore_api::conditions::HypervisorCondition::{AgentPodsEvicted, Evicting};
use cobaltcore_api::reasons::AgentPodsEvictedReason::{AgentPodsRunning, NoAgentPods};
use cobaltcore_api::{Hypervisor, Maintenance, taints};
use cobaltcore_kit::status::NewCondition;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};

use crate::seen::LookAtHypervisor as _;

/// Whether it is time to look at the pods of a node.
pub(super) fn are_asked_for(node: &Node, hypervisor: &Hypervisor) -> bool {
    hypervisor.spec.maintenance == Maintenance::Termination
        && hypervisor.is_not(Evicting)
        && has_offboarding_taint(node)
}

/// Whether the node pushes agents off.
pub(crate) fn has_offboarding_taint(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut offboarding = taints.filter(|taint| {
        taint.key == taints::OFFBOARDING.key && taint.effect == taints::OFFBOARDING.effect.as_str()
    });
    offboarding.next().is_some()
}

/// Whether a pod must leave before the host may be offboarded.
pub(super) fn blocks(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    !tolerations.into_iter().any(stays_for_ever)
}

fn stays_for_ever(toleration: &Toleration) -> bool {
    let Toleration {
        key,
        operator,
        value,
        effect,
        toleration_seconds,
    } = toleration;
    let text = |option: &Option<String>| option.as_deref().unwrap_or_default().to_owned();
    let (key, operator, effect) = (text(key), text(operator), text(effect));
    let exists = operator == "Exists";
    let same_key = key == taints::OFFBOARDING.key || (key.is_empty() && exists);
    let same_value = exists || value.as_deref().unwrap_or_default().is_empty();
    let same_effect = effect.is_empty() || effect == taints::OFFBOARDING.effect.as_str();
    toleration_seconds.is_none() && same_key && same_value && same_effect
}

/// What `AgentPodsEvicted` should say about the pods that block.
pub(super) fn evicted(blocking: &[String]) -> NewCondition {
    if blocking.is_empty() {
        return NewCondition::yes(
            AgentPodsEvicted,
            NoAgentPods,
            "No agent pods are running on this node",
        );
    }
    let message = format!(
        "{} agent pod(s) still running on node: {}",
        blocking.len(),
        blocking.join(", ")
    );
    NewCondition::no(AgentPodsEvicted, AgentPodsRunning, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(phase: &str, tolerations: &Value, deleted: bool) -> Pod {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "tolerations": tolerations}, "status": {"phase": phase}});
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_pods_that_must_leave_block() {
        let key = "kvm.cloud.sap/offboarding";
        let table: &[(&str, Value, bool, bool)] = &[
            ("Running", json!([]), false, true),
            ("Running", json!([]), true, true),
            ("Pending", json!([]), false, true),
            ("Succeeded", json!([]), false, false),
            ("Failed", json!([]), false, false),
            (
                "Running",
                json!([{"key": key, "operator": "Exists", "effect": "NoExecute"}]),
                false,
                false,
            ),
            (
                "Running",
                json!([{"key": key, "operator": "Exists"}]),
                true,
                false,
            ),
            ("Running", json!([{"key": key}]), false, false),
            ("Running", json!([{"operator": "Exists"}]), false, false),
            (
                "Running",
                json!([{"key": key, "operator": "Exists", "tolerationSeconds": 30}]),
                false,
                true,
            ),
            (
                "Running",
                json!([{"key": key, "operator": "Equal", "value": "x"}]),
                false,
                true,
            ),
            (
                "Running",
                json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]),
                false,
                true,
            ),
            (
                "Running",
                json!([{"key": "other", "operator": "Exists"}]),
                false,
                true,
            ),
        ];
        for (phase, tolerations, deleted, expected) in table {
            assert_eq!(
                blocks(&pod(phase, tolerations, *deleted)),
                *expected,
                "{phase} {tolerations}"
            );
        }
    }

    #[test]
    fn the_pods_are_named() {
        let names = ["a/x".to_owned(), "b/y".to_owned()];
        assert_eq!(
            evicted(&names),
            NewCondition::no(
                "AgentPodsEvicted",
                "AgentPodsRunning",
                "2 agent pod(s) still running on node: a/x, b/y"
            )
        );
        assert_eq!(
            evicted(&[]),
            NewCondition::yes(
                "AgentPodsEvicted",
                "NoAgentPods",
                "No agent pods are running on this node"
            )
        );
    }
}
