// SPDX-License-Identifier: Apache-2.0
//! Nodes become hypervisors and stay in step with them.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_operator::Config;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::world::{
    Operator, cluster, condition, config, create_node, edit, hypervisors, node, node_status, say, until,
    until_condition,
};

#[tokio::test]
async fn a_new_node_becomes_a_hypervisor() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    let hypervisor = until_condition(&client, "node1", "Ready", "False/Onboarding/").await;
    assert!(hypervisor.spec.lifecycle_enabled && !hypervisor.spec.skip_tests);
    assert_eq!(hypervisor.spec.aggregates, ["prod", "qa-de-1a"]);
    assert!(hypervisor.spec.evacuate_on_reboot && hypervisor.spec.high_availability);
    let labels = hypervisor.labels();
    assert_eq!(labels["topology.kubernetes.io/zone"], "qa-de-1a");
    assert_eq!(labels["kubernetes.metal.cloud.sap/bb"], "bb1");
    assert!(!labels.contains_key("nova.openstack.cloud.sap/virt-driver"));
    let owner = &hypervisor.owner_references()[0];
    assert_eq!(
        (
            owner.kind.as_str(),
            owner.api_version.as_str(),
            owner.name.as_str()
        ),
        ("Node", "v1", "node1")
    );
    assert_eq!((owner.block_owner_deletion, owner.controller), (Some(true), None));
    let hypervisor = until("the phase and the address", || async {
        let hypervisor = hypervisors(&client).get("node1").await.unwrap();
        let status = hypervisor.status.as_ref()?;
        (status.phase.is_some() && !status.internal_ip.is_empty()).then_some(hypervisor.clone())
    })
    .await;
    let status = hypervisor.status.as_ref().unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Initial");
    assert_eq!(status.internal_ip, "10.0.0.1");
    assert_eq!(
        condition(&hypervisor, "Terminating"),
        "False/NotTerminating/Node is not terminating"
    );
    assert_eq!(condition(&hypervisor, "NodeReady"), "True/Ready/");
    // Everybody has had their say: now nobody writes any more.
    server.comes_to_rest(Duration::from_secs(1)).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_node_without_virt_driver_is_nobody_and_without_lifecycle_left_alone() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    let mut plain = node("plain");
    plain["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("nova.openstack.cloud.sap/virt-driver");
    create_node(&client, &plain).await;
    let mut idle = node("idle");
    idle["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("cobaltcore.cloud.sap/node-hypervisor-lifecycle");
    create_node(&client, &idle).await;
    let hypervisor = until_condition(
        &client,
        "idle",
        "Ready",
        "False/Onboarding/Onboarding not started: lifecycle management is disabled",
    )
    .await;
    assert!(!hypervisor.spec.lifecycle_enabled);
    assert!(hypervisors(&client).get_opt("plain").await.unwrap().is_none());
    let signals = |entry: &cobaltcore_apiserver::testkit::WriteEntry| {
        entry.resource == "deployments.apps" || entry.resource == "poddisruptionbudgets.policy"
    };
    assert!(
        !server.writes().iter().any(signals),
        "nothing is signalled for it"
    );
    operator.stop().await;
}

#[tokio::test]
async fn changes_of_the_node_arrive_and_removals_are_taken_back() {
    let server = cluster().await;
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    let change = json!({"metadata": {
        "labels": {"kubernetes.metal.cloud.sap/bb": null, "worker.gardener.cloud/pool": "other"},
        "annotations": {"nova.openstack.cloud.sap/aggregates": null, "nova.openstack.cloud.sap/custom-traits": "CUSTOM_A"},
    }});
    edit(&nodes, "node1", &change).await;
    let hypervisor = until("the change", || async {
        let hypervisor = hypervisors(&client).get("node1").await.unwrap();
        (hypervisor.spec.custom_traits == ["CUSTOM_A"] && hypervisor.spec.aggregates.is_empty())
            .then_some(hypervisor)
    })
    .await;
    assert_eq!(hypervisor.labels()["worker.gardener.cloud/pool"], "other");
    until("the label to go", || async {
        let hypervisor = hypervisors(&client).get("node1").await.unwrap();
        (!hypervisor.labels().contains_key("kubernetes.metal.cloud.sap/bb")).then_some(())
    })
    .await;
    // What a person set stays, also when the node says nothing.
    edit(
        &hypervisors(&client),
        "node1",
        &json!({"spec": {"aggregates": ["by-hand"]}}),
    )
    .await;
    let lifecycle = json!({"metadata": {"labels": {"cobaltcore.cloud.sap/node-hypervisor-lifecycle": null}}});
    edit(&nodes, "node1", &lifecycle).await;
    until("the lifecycle to end", || async {
        let hypervisor = hypervisors(&client).get("node1").await.unwrap();
        (!hypervisor.spec.lifecycle_enabled && hypervisor.spec.aggregates == ["by-hand"]).then_some(())
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn a_deleted_hypervisor_comes_back_while_its_node_is_there() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    let first = until_condition(&client, "node1", "Ready", "False").await;
    hypervisors(&client)
        .delete("node1", &DeleteParams::default())
        .await
        .unwrap();
    until("a new one", || async {
        let found = hypervisors(&client).get_opt("node1").await.unwrap()?;
        (found.uid() != first.uid()).then_some(())
    })
    .await;
    operator.stop().await;
}

#[tokio::test]
async fn manual_maintenance_needs_a_reason() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    let patch = kube::api::Patch::Merge(json!({"spec": {"maintenance": "manual"}}));
    let error = hypervisors(&client)
        .patch("node1", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("maintenanceReason must be non-empty when maintenance is 'manual'"),
        "{error}"
    );
    operator.stop().await;
}

#[tokio::test]
async fn a_terminating_node_sets_termination_unless_told_otherwise() {
    for manage in [true, false] {
        let server = cluster().await;
        let client = server.client();
        let settings = Config {
            manage_termination: manage,
            ..config()
        };
        let operator = Operator::start(client.clone(), settings);
        create_node(&client, &node("node1")).await;
        until_condition(&client, "node1", "Ready", "False").await;
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let terminating =
            json!({"type": "Terminating", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        node_status(&client, "node1", &json!({"conditions": [ready, terminating]})).await;
        let hypervisor = until_condition(
            &client,
            "node1",
            "Terminating",
            "True/Terminating/Node is terminating",
        )
        .await;
        if manage {
            until("termination", || async {
                let hypervisor = hypervisors(&client).get("node1").await.unwrap();
                (hypervisor.spec.maintenance == Maintenance::Termination).then_some(())
            })
            .await;
            // A changed annotation no longer reaches the spec, and nothing gets stuck over it.
            let nodes: Api<Node> = Api::all(client.clone());
            let change = json!({"metadata": {"annotations": {"nova.openstack.cloud.sap/aggregates": "x"}, "labels": {"kubernetes.metal.cloud.sap/bb": "bb2"}}});
            edit(&nodes, "node1", &change).await;
            until("the label", || async {
                let hypervisor = hypervisors(&client).get("node1").await.unwrap();
                (hypervisor.labels()["kubernetes.metal.cloud.sap/bb"] == "bb2").then_some(())
            })
            .await;
        } else {
            assert_eq!(hypervisor.spec.maintenance, Maintenance::Off);
            // The signal goes away, and with it the condition.
            node_status(&client, "node1", &json!({"conditions": [ready]})).await;
            until_condition(&client, "node1", "Terminating", "False/NotTerminating").await;
        }
        operator.stop().await;
    }
}

#[tokio::test]
async fn the_annotation_of_a_node_sets_and_clears_maintenance() {
    let server = cluster().await;
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    for (annotation, mode, reason) in [
        (json!("auto"), Maintenance::Auto, ""),
        (json!("manual: new disk"), Maintenance::Manual, "new disk"),
        (Value::Null, Maintenance::Off, ""),
    ] {
        edit(
            &nodes,
            "node1",
            &json!({"metadata": {"annotations": {"kvm.cloud.sap/maintenance": annotation}}}),
        )
        .await;
        until(mode.as_str(), || async {
            let spec = hypervisors(&client).get("node1").await.unwrap().spec;
            (spec.maintenance == mode && spec.maintenance_reason == reason).then_some(())
        })
        .await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_partition_sees_its_own_nodes_only() {
    let server = cluster().await;
    let client = server.client();
    let settings = Config {
        label_selector: "shard in (a)".into(),
        ..config()
    };
    let operator = Operator::start(client.clone(), settings);
    for (name, shard) in [("node1", "a"), ("node2", "b")] {
        let mut node = node(name);
        node["metadata"]["labels"]["shard"] = json!(shard);
        create_node(&client, &node).await;
    }
    let hypervisor = until_condition(&client, "node1", "Ready", "False").await;
    assert_eq!(hypervisor.labels()["shard"], "a");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(hypervisors(&client).get_opt("node2").await.unwrap().is_none());
    operator.stop().await;
}

#[tokio::test]
async fn agents_are_counted_when_the_host_is_empty_and_tainted() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    let mut leaving = node("node1");
    leaving["spec"] = json!({"taints": [{"key": "kvm.cloud.sap/offboarding", "effect": "NoExecute"}]});
    create_node(&client, &leaving).await;
    until_condition(&client, "node1", "Ready", "False").await;
    for (name, tolerations) in [("nova-compute", "[]"), ("node-agent", "[{operator: Exists}]")] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: agents}}\nspec: {{nodeName: node1, tolerations: {tolerations}, containers: [{{name: c, image: i}}]}}\n"
        );
        server.apply_yaml(&pod).await.unwrap();
    }
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
    until_condition(
        &client,
        "node1",
        "AgentPodsEvicted",
        "False/AgentPodsRunning/1 agent pod(s) still running on node: agents/nova-compute",
    )
    .await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "agents");
    pods.delete("nova-compute", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    until_condition(&client, "node1", "AgentPodsEvicted", "True/NoAgentPods").await;
    operator.stop().await;
}

#[tokio::test]
async fn objects_of_the_former_operator_are_taken_over() {
    let server = cluster().await;
    let client = server.client();
    let object: cobaltcore_api::Hypervisor = serde_json::from_value(json!({
        "metadata": {"name": "node1", "labels": {"kubernetes.metal.cloud.sap/bb": "old", "topology.kubernetes.io/zone": "qa-de-1a"}},
        "spec": {"lifecycleEnabled": true, "aggregates": ["stale"], "customTraits": ["CUSTOM_OLD"]},
    }))
    .unwrap();
    let params = kube::api::PostParams {
        field_manager: Some("openstack-hypervisor-operator".into()),
        ..Default::default()
    };
    hypervisors(&client).create(&params, &object).await.unwrap();
    let merge = kube::api::PatchParams {
        field_manager: Some("ready".into()),
        ..Default::default()
    };
    let status = json!({"status": {"numInstances": 0, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    hypervisors(&client)
        .patch_status("node1", &merge, &kube::api::Patch::Merge(status))
        .await
        .unwrap();
    let mut node = node("node1");
    node["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("kubernetes.metal.cloud.sap/bb");
    create_node(&client, &node).await;
    let operator = Operator::start(client.clone(), config());
    let hypervisor = until("the takeover", || async {
        let hypervisor = hypervisors(&client).get("node1").await.unwrap();
        let spec = &hypervisor.spec;
        (spec.aggregates == ["prod", "qa-de-1a"]
            && spec.custom_traits.is_empty()
            && !hypervisor.labels().contains_key("kubernetes.metal.cloud.sap/bb"))
        .then_some(hypervisor)
    })
    .await;
    assert_eq!(hypervisor.owner_references().len(), 1);
    until_condition(&client, "node1", "Ready", "False/Onboarding").await;
    server.comes_to_rest(Duration::from_secs(1)).await;
    operator.stop().await;
}
