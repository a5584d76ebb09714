// SPDX-License-Identifier: Apache-2.0
//! Whole lives from Node to Node, with every controller at work: under exactly the rights of the
//! manifests, in the right order, with sick nodes, and with a cloud that comes late.

use std::collections::BTreeSet;
use std::time::Duration;

use cobaltcore_api::{Eviction, Maintenance};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_operator::Config;
use cobaltcore_sim::cloud::Cloud;
use cobaltcore_sim::world::{ApiEffect, ApiFault, World};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::definitions::OVS_NODES;
use super::scene::{Scene, aggregates_of, config, places, until};
use super::world::{apply_manifests, create_node, install, node, node_status};

const NODES: [&str; 4] = ["node001-bb1", "node002-bb1", "node003-bb1", "node004-bb1"];
const USER: &str = "system:serviceaccount:cobaltcore:hypervisor-operator";

fn world(vms: usize) -> World {
    World::builder()
        .hosts(NODES.len())
        .vms_per_host(vms)
        .time_scale(20.0)
        .build()
}

/// A Node whose host comes in without a test.
fn untested(name: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"]["cobaltcore.cloud.sap/node-hypervisor-lifecycle"] = json!("skip-tests");
    node
}

async fn come_in(scene: &Scene) {
    for name in NODES {
        create_node(&scene.client, &untested(name)).await;
    }
    for name in NODES {
        scene.until(name, "Onboarding", "False/Succeeded").await;
        scene.until(name, "HypervisorDisabled", "False/Succeeded").await;
    }
}

fn ready(status: &str) -> Value {
    json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn terminating() -> Value {
    let signal =
        json!({"type": "Terminating", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"conditions": [ready("True"), signal]})
}

async fn add_agent(scene: &Scene, namespace: &str, node: &str) {
    let pod = json!({
        "metadata": {"name": format!("nova-compute-{node}")},
        "spec": {"nodeName": node, "containers": [{"name": "nova-compute", "image": "nova"}]},
    });
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), namespace);
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// The taint works: agents leave a node once they are pushed off.
async fn push_off(scene: &Scene, namespace: &str, name: &str) {
    until("the taint", || async { is_tainted(scene, name).await }).await;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), namespace);
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&format!("nova-compute-{name}"), &now).await.unwrap();
}

async fn is_tainted(scene: &Scene, name: &str) -> bool {
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let taints = nodes.get(name).await.unwrap().spec.and_then(|spec| spec.taints);
    let mut taints = taints.into_iter().flatten();
    taints.any(|taint| taint.key == "kvm.cloud.sap/offboarding" && taint.effect == "NoExecute")
}

async fn may_be_drained(scene: &Scene, name: &str) -> bool {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(scene.client.clone(), "kube-system");
    let budget = budgets.get_opt(&format!("maint-{name}")).await.unwrap();
    let least = budget.and_then(|budget| budget.spec?.min_available);
    matches!(
        least,
        Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(0))
    )
}

fn is_empty(scene: &Scene, name: &str) -> bool {
    !places(scene.world()).values().any(|host| host == name)
}

fn has_service(scene: &Scene, name: &str) -> bool {
    scene.world().read(|state| state.hosts[name].service.is_some())
}

fn has_provider(scene: &Scene, name: &str) -> bool {
    scene.world().read(|state| {
        let mut providers = state.placement.providers.values();
        providers.any(|provider| provider.name.starts_with(name))
    })
}

async fn has_agent(scene: &Scene, namespace: &str, name: &str) -> bool {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), namespace);
    let pod = pods.get_opt(&format!("nova-compute-{name}")).await.unwrap();
    pod.is_some()
}

/// One look at a host on its way out. What follows is read before what must have come first, and
/// nothing of that comes back, so reading one after the other proves as much as reading at once.
async fn in_order(scene: &Scene, namespace: &str, name: &str) {
    if may_be_drained(scene, name).await {
        assert!(!has_service(scene, name), "{name}: drained with a service");
        assert!(!has_provider(scene, name), "{name}: drained with a provider");
    }
    if !has_service(scene, name) {
        assert!(
            !has_agent(scene, namespace, name).await,
            "{name}: agents run without a service"
        );
        assert!(
            aggregates_of(scene.world(), name).is_empty(),
            "{name}: in aggregates without a service"
        );
    }
    if is_tainted(scene, name).await || aggregates_of(scene.world(), name).is_empty() {
        assert!(
            is_empty(scene, name),
            "{name}: servers without agents or aggregates"
        );
    }
}

#[tokio::test]
async fn nodes_that_terminate_at_once_are_let_go_in_order() {
    let scene = Scene::start(world(2)).await;
    come_in(&scene).await;
    // A cloud that answers late mixes up who comes first.
    for (part, millis) in [("os-aggregates", 300), ("os-services", 200), ("servers", 100)] {
        let late = ApiEffect::Delay(Duration::from_millis(millis));
        scene
            .world()
            .break_api(ApiFault::all(late).service("compute").part(part));
    }
    let leaving = &NODES[..2];
    for name in leaving {
        add_agent(&scene, "agents", name).await;
        node_status(&scene.client, name, &terminating()).await;
    }
    let mut pushed = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for _ in 0..6000 {
        for name in leaving {
            in_order(&scene, "agents", name).await;
            if is_tainted(&scene, name).await && pushed.insert(name) {
                push_off(&scene, "agents", name).await;
            }
            if may_be_drained(&scene, name).await {
                gone.insert(name);
            }
        }
        if gone.len() == leaving.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gone.len(), leaving.len(), "both may be drained");
    assert_eq!(places(scene.world()).len(), 8, "no server was lost");
    scene.operator.stop().await;
}

/// Onboarding, maintenance, a standalone eviction and termination, as the service account.
#[tokio::test]
async fn a_life_in_the_cloud_needs_no_right_that_the_manifests_do_not_give() {
    let server = TestServer::start_with_rbac().await;
    install(&server).await;
    server.apply_yaml(OVS_NODES).await.unwrap();
    apply_manifests(&server).await;
    let settings = Config {
        agent_namespaces: vec!["monsoon3".into()],
        leader_elect: true,
        leader_elect_namespace: "cobaltcore".into(),
        ..config()
    };
    let own = server.client_for_service_account("cobaltcore", "hypervisor-operator");
    let cloud = Cloud::start(world(1)).await.unwrap();
    let scene = Scene::start_in(server, own, cloud, settings);
    come_in(&scene).await;
    let [leaves, drained, evicted, _] = NODES;
    scene
        .edit(
            drained,
            json!({"spec": {"maintenance": "manual", "maintenanceReason": "rights"}}),
        )
        .await;
    scene.until(drained, "Evicting", "False/Succeeded").await;
    scene
        .edit(
            drained,
            json!({"spec": {"maintenance": "", "maintenanceReason": ""}}),
        )
        .await;
    scene.until(drained, "HypervisorDisabled", "False").await;
    let eviction: Eviction = serde_json::from_value(json!({
        "metadata": {"name": "alone"}, "spec": {"hypervisor": evicted, "reason": "rights"},
    }))
    .unwrap();
    let evictions = scene.evictions();
    evictions.create(&PostParams::default(), &eviction).await.unwrap();
    scene.until_eviction("alone", "Evicting", "False/Succeeded").await;
    evictions.delete("alone", &DeleteParams::default()).await.unwrap();
    until("the eviction is gone", || async {
        evictions.get_opt("alone").await.unwrap().is_none()
    })
    .await;
    add_agent(&scene, "monsoon3", leaves).await;
    node_status(&scene.client, leaves, &terminating()).await;
    push_off(&scene, "monsoon3", leaves).await;
    scene.until(leaves, "Offboarded", "True").await;
    until("the gate is open", || async {
        may_be_drained(&scene, leaves).await
    })
    .await;
    let path = format!("/debug/rbac?user={USER}&format=json");
    let report = scene.server.admin().get(&path).await;
    scene.operator.stop().await;
    assert_eq!(report.code, 200);
    assert_eq!(report.body["missing"], json!([]), "{}", report.body);
}

#[tokio::test]
async fn a_sick_node_is_emptied_while_its_compute_service_works_and_comes_back() {
    let scene = Scene::start(world(2)).await;
    come_in(&scene).await;
    let sick = NODES[0];
    let health = |status| json!({"conditions": [ready(status)]});
    let mode = || async { scene.hypervisors().get(sick).await.unwrap().spec.maintenance };
    node_status(&scene.client, sick, &health("Unknown")).await;
    let evicted = scene.until(sick, "Evicting", "False/Succeeded").await;
    assert_eq!(evicted.spec.maintenance, Maintenance::Auto);
    assert_eq!(
        evicted.metadata.annotations.unwrap()["kvm.cloud.sap/maintenance-set-by"],
        "node-health"
    );
    assert!(is_empty(&scene, sick));
    // It has been well for long: what was begun for its health ends.
    node_status(&scene.client, sick, &health("True")).await;
    scene.until(sick, "Ready", "True").await;
    assert_eq!(mode().await, Maintenance::Off);
    // Now its compute service is down as well: that is somebody else's to recover.
    scene.world().stop_compute(sick).unwrap();
    let down = || {
        scene.world().read(|state| {
            let now = scene.world().clock().now();
            let service = state.hosts[sick].service.as_ref();
            service.is_some_and(|service| !service.is_up(now))
        })
    };
    until("nova misses the service", || async { down() }).await;
    node_status(&scene.client, sick, &health("False")).await;
    scene.until_told("HostDown").await;
    scene.until(sick, "NodeReady", "False/NotReady").await;
    assert_eq!(mode().await, Maintenance::Off);
    scene.operator.stop().await;
}

#[tokio::test]
async fn without_keystone_nodes_become_hypervisors_and_the_rest_follows_when_it_is_back() {
    let world = world(0);
    world.break_api(ApiFault::all(ApiEffect::Refuse(503)).service("identity"));
    let scene = Scene::start(world).await;
    for name in NODES {
        create_node(&scene.client, &untested(name)).await;
    }
    let text = "False/Onboarding/Onboarding in progress: Not started: nova could not be asked";
    for name in NODES {
        scene.until(name, "Ready", text).await;
        assert!(!may_be_drained(&scene, name).await, "the gate is there and shut");
    }
    let cloud = |scene: &Scene| {
        let ready = scene.operator.health.ready();
        (ready.ok, ready.render("readyz", true))
    };
    until("readiness names the cloud", || async {
        cloud(&scene).1.contains("openstack")
    })
    .await;
    assert!(cloud(&scene).0, "and stops nobody: {}", cloud(&scene).1);
    scene.world().heal();
    for name in NODES {
        scene.until(name, "Onboarding", "False/Succeeded").await;
    }
    scene.operator.stop().await;
}
