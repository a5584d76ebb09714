// SPDX-License-Identifier: Apache-2.0
//! The two objects that Gardener reads: a Deployment of one critical pod, and its budget.

use cobaltcore_api::labels;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::run::SIGNAL_NAMESPACE;
use crate::seen::node_label;

/// What the names of signalling objects begin with.
pub(super) const PREFIX: &str = "maint-";

/// The name of the signalling objects of a node.
pub(super) fn name(node: &str) -> String {
    format!("{PREFIX}{node}")
}

fn label(node: &str) -> Value {
    json!({labels::MAINTENANCE_CONTROLLER.as_str(): name(node)})
}

/// Gone with the Node. Not a controller reference: the Node controls nothing.
fn metadata(node: &Node) -> Value {
    let of = node.metadata.name.clone().unwrap_or_default();
    json!({
        "name": name(&of),
        "namespace": SIGNAL_NAMESPACE,
        "labels": label(&of),
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": of, "uid": node.metadata.uid}],
    })
}

/// The budget: with `closed` nobody may evict the pod, so a drain cannot finish.
pub(super) fn budget(node: &Node, closed: bool) -> Value {
    let of = node.metadata.name.clone().unwrap_or_default();
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(node),
        "spec": {"minAvailable": i32::from(closed), "selector": {"matchLabels": label(&of)}},
    })
}

/// The Deployment: one pod on the node while `closed`, ready once the host is `onboarded`.
/// Readiness, not start-up, carries the signal, so nothing restarts while the host is prepared.
pub(super) fn deployment(node: &Node, closed: bool, onboarded: bool, image: &str) -> Value {
    let of = node.metadata.name.clone().unwrap_or_default();
    let host = node_label(node, labels::HOSTNAME).unwrap_or(&of).to_owned();
    let mut pod_labels = label(&of);
    pod_labels[labels::GARDENER_CRITICAL_COMPONENT.as_str()] = json!("true");
    let ready = format!("--ready={onboarded}");
    let tolerations =
        ["NoExecute", "NoSchedule"].map(|effect| json!({"effect": effect, "operator": "Exists"}));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(node),
        "spec": {
            "replicas": i32::from(closed),
            "selector": {"matchLabels": label(&of)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": pod_labels},
                "spec": {
                    "hostNetwork": true,
                    "automountServiceAccountToken": false,
                    "nodeSelector": {labels::HOSTNAME.as_str(): host},
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": tolerations,
                    "containers": [{
                        "name": "signal",
                        "image": image,
                        "args": ["signal", ready],
                        "readinessProbe": {
                            "exec": {"command": ["/cobaltcore", "signal", "--check", ready]},
                            "periodSeconds": 5,
                        },
                        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                            "runAsNonRoot": true,
                            "runAsUser": 4200,
                        },
                    }],
                },
            },
        },
    })
}
