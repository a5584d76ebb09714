// SPDX-License-Identifier: Apache-2.0
//! What network agents report becomes a condition of the Hypervisor, from the moment there are any.

use cobaltcore_operator::Config;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::definitions::OVS_NODES;
use crate::world::{Operator, cluster, condition, config, create_node, node, until_condition};

async fn report(client: &kube::Client, bridges: Value) {
    let nodes: Api<cobaltcore_operator::network::OVSNode> = Api::namespaced(client.clone(), "ovn-system");
    let object = json!({
        "apiVersion": "ovs.c5c3.io/v1alpha1", "kind": "OVSNode", "metadata": {"name": "node1"},
        "spec": {}, "status": {"bridges": bridges},
    });
    let params = PatchParams::apply("ovs-agent").force();
    nodes
        .patch("node1", &params, &Patch::Apply(&object))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_network_of_a_host_is_mirrored_once_there_are_agents() {
    let server = cluster().await;
    let client = server.client();
    let settings = Config {
        test_bridges: vec!["br-int".into(), "br-provider".into()],
        ..config()
    };
    let operator = Operator::start(client.clone(), settings);
    create_node(&client, &node("node1")).await;
    let before = until_condition(&client, "node1", "NodeReady", "True").await;
    assert_eq!(condition(&before, "NetworkReady"), "");
    server.apply_yaml(OVS_NODES).await.unwrap();
    until_condition(&client, "node1", "NetworkReady", "False/NotReported").await;
    report(&client, json!([{"name": "br-int", "status": "Active"}])).await;
    until_condition(
        &client,
        "node1",
        "NetworkReady",
        "False/BridgeMissing/missing: br-provider",
    )
    .await;
    report(
        &client,
        json!([{"name": "br-int", "status": "Active"}, {"name": "br-provider", "status": "Active"}]),
    )
    .await;
    until_condition(
        &client,
        "node1",
        "NetworkReady",
        "True/Healthy/healthy: br-int, br-provider",
    )
    .await;
    operator.stop().await;
}
