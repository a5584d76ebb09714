// SPDX-License-Identifier: Apache-2.0
//! A Hypervisor that somebody edits by hand says so, and an operator with nothing to do is quiet.

use std::time::Duration;

use crate::world::{Operator, cluster, config, hypervisors, until_condition};
use cobaltcore_api::Hypervisor;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn an_edit_by_hand_is_marked() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    let object: Hypervisor =
        serde_json::from_value(json!({"metadata": {"name": "node1"}, "spec": {"lifecycleEnabled": false}}))
            .unwrap();
    hypervisors(&client)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    until_condition(&client, "node1", "Tainted", "False/NoKubectl/🟢").await;
    let by_hand = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    hypervisors(&client)
        .patch(
            "node1",
            &by_hand,
            &Patch::Merge(json!({"spec": {"skipTests": true}})),
        )
        .await
        .unwrap();
    let tainted = until_condition(&client, "node1", "Tainted", "True/Kubectl/⚠️").await;
    let conditions = tainted.status.unwrap().conditions;
    let condition = conditions.iter().find(|c| c.type_ == "Tainted").unwrap();
    assert_eq!(condition.observed_generation, tainted.metadata.generation);
    operator.stop().await;
}

#[tokio::test]
async fn caches_are_reported_ready_and_an_idle_operator_writes_nothing() {
    let server = cluster().await;
    let client = server.client();
    let object: Hypervisor =
        serde_json::from_value(json!({"metadata": {"name": "node1"}, "spec": {}})).unwrap();
    hypervisors(&client)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let operator = Operator::start(client.clone(), config());
    until_condition(&client, "node1", "Tainted", "False").await;
    let ready = crate::world::until("readiness", || async {
        let report = operator.health.ready();
        report.ok.then_some(report)
    })
    .await;
    let names: Vec<_> = ready.checks.iter().map(|check| check.name.as_str()).collect();
    assert!(
        names.contains(&"cache-hypervisors") && names.contains(&"controller-HypervisorTaint"),
        "{names:?}"
    );
    server.comes_to_rest(Duration::from_secs(1)).await;
    assert!(
        operator
            .telemetry
            .encode()
            .contains("controller_runtime_reconcile_errors_total{controller=\"HypervisorTaint\"} 0")
    );
    operator.stop().await;
}
