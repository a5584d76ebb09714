// SPDX-License-Identifier: Apache-2.0
//! The operator gets by with the rights that its manifests give it, and the lease keeps a
//! second one waiting.

use std::time::Duration;

use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_operator::Config;
use cobaltcore_operator::config::lease_name;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::json;

use crate::world::{
    Operator, apply_manifests, cluster, config, create_node, edit, hypervisors, install, node, node_status,
    say, until, until_condition,
};

const USER: &str = "system:serviceaccount:cobaltcore:hypervisor-operator";

#[tokio::test]
async fn a_whole_life_needs_no_right_that_the_manifests_do_not_give() {
    let server = TestServer::start_with_rbac().await;
    install(&server).await;
    server.apply_yaml(crate::cover::CERT_MANAGER).await.unwrap();
    apply_manifests(&server).await;
    let settings = Config {
        agent_namespaces: vec!["monsoon3".into()],
        leader_elect: true,
        leader_elect_namespace: "cobaltcore".into(),
        ..config()
    };
    let (client, own) = (
        server.client(),
        server.client_for_service_account("cobaltcore", "hypervisor-operator"),
    );
    let operator = Operator::start(own, settings);
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "CertificateIssued", "False/Pending").await;
    say(
        &client,
        "node1",
        "onboarding",
        json!({"conditions": [{"type": "Onboarding", "status": "False", "reason": "Succeeded"}]}),
    )
    .await;
    until_condition(&client, "node1", "Ready", "True").await;
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Terminating", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    node_status(&client, "node1", &json!({"conditions": conditions})).await;
    until_condition(&client, "node1", "Terminating", "True").await;
    say(
        &client,
        "node1",
        "HypervisorMaintenance",
        json!({"conditions": [{"type": "Evicting", "status": "False", "reason": "Succeeded"}]}),
    )
    .await;
    until_condition(&client, "node1", "AgentPodsEvicted", "True").await;
    // Signals that are no longer wanted are taken away.
    create_node(&client, &node("node2")).await;
    until_condition(&client, "node2", "Ready", "False").await;
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(client.clone(), "kube-system");
    until("the budget", || async {
        budgets.get_opt("maint-node2").await.unwrap()
    })
    .await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    edit(
        &nodes,
        "node2",
        &json!({"metadata": {"labels": {"cobaltcore.cloud.sap/node-hypervisor-lifecycle": null}}}),
    )
    .await;
    until("the budget to go", || async {
        budgets
            .get_opt("maint-node2")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    operator.stop().await;
    let report = server
        .admin()
        .get(&format!("/debug/rbac?user={USER}&format=json"))
        .await;
    assert_eq!(report.code, 200);
    assert_eq!(report.body["missing"], json!([]), "{}", report.body);
}

#[tokio::test]
async fn only_one_operator_works_at_a_time_and_the_next_takes_over_at_once() {
    let server = cluster().await;
    let client = server.client();
    let settings = Config {
        leader_elect: true,
        leader_elect_namespace: "default".into(),
        ..config()
    };
    let first = Operator::start(client.clone(), settings.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let holder = || async {
        let lease = leases.get_opt(&lease_name("")).await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    };
    let leader = until("a leader", holder).await;
    let second = Operator::start(client.clone(), settings);
    tokio::time::sleep(Duration::from_millis(300)).await;
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    assert!(
        second
            .telemetry
            .encode()
            .contains("leader_election_master_status{name=\"4c28796a.cloud.sap\"} 0")
    );
    first.stop().await;
    // The lease was given back, so the second one need not wait for it to end.
    until("another leader", || async {
        holder().await.filter(|now| *now != leader)
    })
    .await;
    create_node(&client, &node("node2")).await;
    until_condition(&client, "node2", "Ready", "False").await;
    assert!(hypervisors(&client).get("node1").await.is_ok());
    second.stop().await;
}
