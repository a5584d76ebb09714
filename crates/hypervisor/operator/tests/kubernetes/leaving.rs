// SPDX-License-Identifier: Apache-2.0
//! What Gardener is told while a host comes and goes: the pod, the budget and the taint.

use std::time::Duration;

use cobaltcore_operator::Config;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::world::{
    Operator, cluster, config, create_node, edit, hypervisors, node, node_status, say, until, until_condition,
};

fn budgets(client: &kube::Client) -> Api<PodDisruptionBudget> {
    Api::namespaced(client.clone(), "kube-system")
}

fn deployments(client: &kube::Client) -> Api<Deployment> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Waits until the signals of node1 say so: how many pods must stay, and whether the pod is ready.
async fn until_signal(client: &kube::Client, least: i32, ready: bool) {
    let what = format!("budget {least}, ready {ready}");
    until(&what, || async {
        let budget = budgets(client).get_opt("maint-node1").await.unwrap()?;
        let deployment = deployments(client).get_opt("maint-node1").await.unwrap()?;
        let (budget, deployment) = (budget.spec?, deployment.spec?);
        let args = deployment.template.spec?.containers[0].args.clone()?;
        let says = args.contains(&format!("--ready={ready}"));
        (budget.min_available == Some(IntOrString::Int(least)) && deployment.replicas == Some(least) && says)
            .then_some(())
    })
    .await;
}

fn onboarded() -> Value {
    json!({"conditions": [{"type": "Onboarding", "status": "False", "reason": "Succeeded"}]})
}

#[tokio::test]
async fn the_pod_is_ready_once_the_host_is_onboarded_and_lost_objects_come_back() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_signal(&client, 1, false).await;
    let budget = budgets(&client).get("maint-node1").await.unwrap();
    let owner = &budget.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.api_version.as_str(), owner.controller), ("v1", None));
    say(&client, "node1", "onboarding", onboarded()).await;
    until_signal(&client, 1, true).await;
    budgets(&client)
        .delete("maint-node1", &DeleteParams::default())
        .await
        .unwrap();
    until_signal(&client, 1, true).await;
    // Nobody manages the host any more: nothing may block a drain.
    let nodes: Api<Node> = Api::all(client.clone());
    edit(
        &nodes,
        "node1",
        &json!({"metadata": {"labels": {"cobaltcore.cloud.sap/node-hypervisor-lifecycle": null}}}),
    )
    .await;
    until("the leftovers to go", || async {
        let budget = budgets(&client).get_opt("maint-node1").await.unwrap();
        let deployment = deployments(&client).get_opt("maint-node1").await.unwrap();
        (budget.is_none() && deployment.is_none()).then_some(())
    })
    .await;
    operator.stop().await;
}

/// Whether the node pushes agents off.
fn is_tainted(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "kvm.cloud.sap/offboarding")
}

#[tokio::test]
async fn a_terminating_host_is_let_go_in_order() {
    let server = cluster().await;
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    say(&client, "node1", "onboarding", onboarded()).await;
    say(
        &client,
        "node1",
        "kvm-ha-service",
        json!({"conditions": [{"type": "HaEnabled", "status": "True", "reason": "Succeeded"}]}),
    )
    .await;
    until_signal(&client, 1, true).await;
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Terminating", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    node_status(&client, "node1", &json!({"conditions": conditions})).await;
    until_condition(&client, "node1", "Ready", "False/Terminating").await;
    say(
        &client,
        "node1",
        "HypervisorMaintenance",
        json!({"conditions": [{"type": "Evicting", "status": "True", "reason": "Running"}]}),
    )
    .await;
    until_condition(&client, "node1", "Evicting", "True").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        !is_tainted(&nodes.get("node1").await.unwrap()),
        "agents are needed to move servers"
    );
    say(
        &client,
        "node1",
        "HypervisorMaintenance",
        json!({"conditions": [{"type": "Evicting", "status": "False", "reason": "Succeeded"}]}),
    )
    .await;
    until("the taint", || async {
        let node = nodes.get("node1").await.unwrap();
        is_tainted(&node).then_some(())
    })
    .await;
    until_condition(&client, "node1", "AgentPodsEvicted", "True/NoAgentPods").await;
    say(
        &client,
        "node1",
        "offboarding",
        json!({"conditions": [{"type": "Offboarded", "status": "False", "reason": "Offboarding"}]}),
    )
    .await;
    until_signal(&client, 1, true).await;
    // The transition time of another writer is old, so patience is counted from there.
    operator.stop().await;
    let patient = Config {
        ha_disable_timeout: "876000h".parse().unwrap(),
        ..config()
    };
    let operator = Operator::start(client.clone(), patient);
    say(
        &client,
        "node1",
        "offboarding",
        json!({"conditions": [{"type": "Offboarded", "status": "True", "reason": "Offboarded"}]}),
    )
    .await;
    until_condition(&client, "node1", "Ready", "False/Offboarded").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    until_signal(&client, 1, true).await;
    say(
        &client,
        "node1",
        "kvm-ha-service",
        json!({"conditions": [{"type": "HaEnabled", "status": "False", "reason": "Evicted"}]}),
    )
    .await;
    until_signal(&client, 0, true).await;
    // The machine goes, and everything of it.
    nodes.delete("node1", &DeleteParams::default()).await.unwrap();
    until("everything to be collected", || async {
        let left = hypervisors(&client).get_opt("node1").await.unwrap().is_some()
            || budgets(&client).get_opt("maint-node1").await.unwrap().is_some()
            || deployments(&client)
                .get_opt("maint-node1")
                .await
                .unwrap()
                .is_some();
        (!left).then_some(())
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn a_termination_undone_through_ha_lets_agents_back() {
    let server = cluster().await;
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let settings = Config {
        manage_termination: false,
        ..config()
    };
    let operator = Operator::start(client.clone(), settings);
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    edit(
        &hypervisors(&client),
        "node1",
        &json!({"spec": {"maintenance": "termination"}}),
    )
    .await;
    say(
        &client,
        "node1",
        "HypervisorMaintenance",
        json!({"conditions": [{"type": "Evicting", "status": "False", "reason": "Succeeded"}]}),
    )
    .await;
    let until_tainted = |wanted: bool| {
        let nodes = nodes.clone();
        async move {
            until("the taint", || async {
                let node = nodes.get("node1").await.unwrap();
                (is_tainted(&node) == wanted).then_some(())
            })
            .await;
        }
    };
    until_tainted(true).await;
    edit(
        &hypervisors(&client),
        "node1",
        &json!({"spec": {"maintenance": "ha"}}),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    until_tainted(true).await;
    edit(
        &hypervisors(&client),
        "node1",
        &json!({"spec": {"maintenance": ""}}),
    )
    .await;
    until_tainted(false).await;
    operator.stop().await;
}
