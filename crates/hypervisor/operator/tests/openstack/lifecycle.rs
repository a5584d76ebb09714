// SPDX-License-Identifier: Apache-2.0
//! Hosts come in, are proven, are kept as they should be, and leave.

use std::time::Duration;

use cobaltcore_kit::config::HumanDuration;
use cobaltcore_openstack::placement::{Allocation, NewAllocation};
use cobaltcore_openstack::{ConsumerId, Placement, ProviderId};
use cobaltcore_sim::cloud::Service;
use cobaltcore_sim::world::{ApiEffect, ApiFault, BuildFault, BuildTrouble, Consumer, World};
use kube::api::DeleteParams;
use serde_json::json;

use super::scene::{Scene, ZONE, aggregates_of, condition, config, until};

const NODE: &str = "node001-bb1";

fn fresh() -> World {
    World::builder().hosts(1).fresh().time_scale(20.0).build()
}

#[tokio::test]
async fn a_new_host_is_tested_on_a_real_server_and_then_opened() {
    let scene = Scene::start(fresh()).await;
    let spec = json!({"skipTests": false, "customTraits": ["CUSTOM_GOLD"]});
    scene.add(NODE, spec).await;
    scene.until(NODE, "Onboarding", "True/Testing").await;
    assert_eq!(aggregates_of(scene.world(), NODE), [ZONE, "tenant_filter_tests"]);
    let done = scene
        .until(NODE, "Onboarding", "False/Succeeded/Onboarding completed")
        .await;
    let status = done.status.unwrap();
    assert_eq!(
        condition(&status.conditions, "AggregatesUpdated")
            .split('/')
            .next(),
        Some("True")
    );
    assert_eq!(aggregates_of(scene.world(), NODE), ["prod", ZONE]);
    assert!(status.traits.contains(&"CUSTOM_GOLD".to_owned()));
    assert_eq!(status.managed_traits, ["CUSTOM_GOLD"]);
    assert_eq!(status.compute_host, NODE);
    until("the test server is gone", || async {
        scene.world().read(|state| state.servers.is_empty())
    })
    .await;
    let writes = scene.cloud.calls().writes();
    let at = |what: &str| {
        writes
            .iter()
            .position(|call| call.path.contains(what) || call.body.contains(what))
    };
    assert!(
        at("/traits") < writes.iter().rposition(|call| call.body.contains("add_host")),
        "traits before aggregates"
    );
    let create = writes
        .iter()
        .find(|call| call.method == "POST" && call.path == "/servers")
        .unwrap();
    assert!(create.body.contains(&format!("{ZONE}:{NODE}")), "{}", create.body);
    assert!(create.body.contains("cobaltcore-hypervisor"), "{}", create.body);
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_host_without_traits_and_tests_comes_in_without_any_server() {
    let scene = Scene::start(fresh()).await;
    scene.add(NODE, json!({})).await;
    scene.until(NODE, "Onboarding", "False/Succeeded").await;
    scene.until(NODE, "TraitsUpdated", "True/Succeeded").await;
    assert_eq!(scene.cloud.calls().count(Service::Compute, "POST", "/servers"), 0);
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_broken_host_is_aborted_after_three_tests_and_comes_back_on_request() {
    let scene = Scene::start(fresh()).await;
    scene.world().break_builds(BuildFault {
        host: None,
        trouble: BuildTrouble::Error("the disk is on fire".into()),
        times: None,
    });
    scene.add(NODE, json!({"skipTests": false})).await;
    let aborted = scene.until(NODE, "Onboarding", "False/Aborted").await;
    let status = aborted.status.unwrap();
    let said = condition(&status.conditions, "Onboarding");
    assert!(
        said.contains("the disk is on fire") && said.contains("server "),
        "{said}"
    );
    assert_eq!(status.onboarding.unwrap().attempts, Some(3));
    assert_eq!(scene.cloud.calls().count(Service::Compute, "POST", "/servers"), 3);
    until("the test server is gone", || async {
        scene.world().read(|state| state.servers.is_empty())
    })
    .await;
    scene.world().heal();
    let annotation = json!({"metadata": {"annotations": {"kvm.cloud.sap/restart-onboarding": "1"}}});
    scene.edit(NODE, annotation).await;
    scene.until(NODE, "Onboarding", "False/Succeeded").await;
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_missing_aggregate_changes_nothing_and_is_named() {
    let scene = Scene::start(fresh()).await;
    scene
        .add(NODE, json!({"aggregates": ["prod", "gold", ZONE]}))
        .await;
    let failed = scene.until(NODE, "AggregatesUpdated", "False/Failed").await;
    let said = condition(&failed.status.unwrap().conditions, "AggregatesUpdated");
    assert!(said.contains("aggregates not found: [gold]"), "{said}");
    assert_eq!(
        aggregates_of(scene.world(), NODE),
        [ZONE, "tenant_filter_tests"],
        "still out of production"
    );
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_placement_conflict_is_settled_within_one_pass() {
    let scene = Scene::start(fresh()).await;
    scene.world().break_api(
        ApiFault::all(ApiEffect::Refuse(409))
            .service("placement")
            .method("PUT")
            .part("traits")
            .times(1),
    );
    scene
        .add(NODE, json!({"customTraits": ["CUSTOM_B", "CUSTOM_A"]}))
        .await;
    let done = scene.until(NODE, "TraitsUpdated", "True/Succeeded").await;
    assert_eq!(done.status.unwrap().managed_traits, ["CUSTOM_A", "CUSTOM_B"]);
    scene.operator.stop().await;
}

#[tokio::test]
async fn drift_is_put_right_and_what_belongs_to_others_stays() {
    let quick = cobaltcore_operator::Config {
        drift_interval: HumanDuration(Duration::from_secs(2)),
        ..config()
    };
    let scene = Scene::start_with(fresh(), quick).await;
    scene.add(NODE, json!({"customTraits": ["CUSTOM_OURS"]})).await;
    scene.until(NODE, "Onboarding", "False/Succeeded").await;
    scene.world().change(|state| {
        for aggregate in state.aggregates.values_mut().filter(|one| one.name == "prod") {
            aggregate.hosts.clear();
        }
        state.placement.custom_traits.insert("CUSTOM_FOREIGN".into());
        let provider = state
            .placement
            .providers
            .values_mut()
            .find(|one| one.name.starts_with(NODE))
            .unwrap();
        provider.traits.remove("CUSTOM_OURS");
        provider.traits.insert("CUSTOM_FOREIGN".into());
        provider.generation += 1;
    });
    until("prod is back", || async {
        aggregates_of(scene.world(), NODE) == ["prod", ZONE]
    })
    .await;
    let traits = || {
        scene.world().read(|state| {
            let mut providers = state.placement.providers.values();
            let ours = providers.find(|one| one.name.starts_with(NODE));
            ours.unwrap().traits.clone()
        })
    };
    until("our trait is back", || async { traits().contains("CUSTOM_OURS") }).await;
    assert!(traits().contains("CUSTOM_FOREIGN"));
    scene.edit(NODE, json!({"spec": {"customTraits": []}})).await;
    until("our trait is gone", || async {
        !traits().contains("CUSTOM_OURS")
    })
    .await;
    assert!(traits().contains("CUSTOM_FOREIGN"));
    scene.operator.stop().await;
}

/// Waits until the operator's finalizer, and no other, is on the host.
async fn held(scene: &Scene) {
    until("the finalizer is on", || async {
        let object = scene.hypervisors().get(NODE).await.unwrap();
        object.metadata.finalizers.as_deref() == Some(&["kvm.cloud.sap/offboarding".to_owned()][..])
    })
    .await;
}

#[tokio::test]
async fn a_terminating_host_leaves_nothing_behind() {
    let world = World::builder().hosts(2).vms_per_host(2).time_scale(20.0).build();
    let scene = Scene::start(world).await;
    scene.add_active(&[NODE, "node002-bb1"]).await;
    held(&scene).await;
    let object = scene.hypervisors().get(NODE).await.unwrap();
    let provider = object.status.unwrap().hypervisor_id;
    scene
        .edit(NODE, json!({"spec": {"maintenance": "termination"}}))
        .await;
    scene.until(NODE, "Evicting", "False/Succeeded").await;
    let waits = scene
        .until(NODE, "Offboarded", "False/Offboarding/Waiting for agent pods")
        .await;
    assert!(!waits.status.unwrap().service_id.is_empty());
    assert!(
        scene.world().read(|state| state.hosts[NODE].service.is_some()),
        "not while agents run"
    );
    scene.say(NODE, "AgentPodsEvicted", "True", "NoAgentPods").await;
    scene
        .until(NODE, "Offboarded", "True/Offboarded/Offboarding successful")
        .await;
    assert!(aggregates_of(scene.world(), NODE).is_empty());
    scene.world().read(|state| {
        assert!(state.hosts[NODE].service.is_none(), "no service");
        let left = state
            .placement
            .providers
            .keys()
            .any(|uuid| uuid.to_string() == provider);
        assert!(!left, "no provider");
        assert_eq!(state.servers_on(NODE).count(), 0);
        assert_eq!(state.servers.len(), 4, "no server was lost");
    });
    until("the ids are given up and the finalizer is off", || async {
        let object = scene.hypervisors().get(NODE).await.unwrap();
        let status = object.status.unwrap();
        status.service_id.is_empty() && status.aggregates.is_empty() && object.metadata.finalizers.is_none()
    })
    .await;
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_service_that_cannot_be_deleted_is_told_and_tried_again() {
    let scene = Scene::start(World::builder().hosts(2).time_scale(20.0).build()).await;
    scene.add_active(&[NODE]).await;
    let refusal = ApiFault::all(ApiEffect::Refuse(500))
        .service("compute")
        .method("DELETE");
    scene.world().break_api(refusal.times(1));
    scene
        .edit(NODE, json!({"spec": {"maintenance": "termination"}}))
        .await;
    scene.say(NODE, "AgentPodsEvicted", "True", "NoAgentPods").await;
    scene
        .until(NODE, "Offboarded", "False/Offboarding/cannot delete service")
        .await;
    scene.until(NODE, "Offboarded", "True/Offboarded").await;
    scene.operator.stop().await;
}

/// Nova has forgotten the host, but its provider is still there.
async fn forgotten(scene: &Scene) -> (Placement, ProviderId) {
    scene.add_active(&[NODE]).await;
    let known = scene.hypervisors().get(NODE).await.unwrap().status.unwrap();
    let session = super::scene::session(&scene.cloud.auth_url());
    session
        .nova()
        .delete_service(&known.service_id.as_str().into())
        .await
        .unwrap();
    let (placement, id) = (
        session.placement(),
        ProviderId::from(known.hypervisor_id.as_str()),
    );
    let provider = placement.create_provider(NODE, Some(&id)).await.unwrap();
    let mut inventories = placement.inventories(&id).await.unwrap();
    inventories.generation = provider.generation;
    let cpus = serde_json::from_value(json!({"total": 8})).unwrap();
    inventories.inventories.insert("VCPU".into(), cpus);
    placement.set_inventories(&id, &inventories).await.unwrap();
    (placement, id)
}

async fn has_provider(placement: &Placement, id: &ProviderId) -> bool {
    match placement.provider(id).await {
        Ok(_) => true,
        Err(error) => {
            assert!(error.is_not_found(), "{error}");
            false
        }
    }
}

async fn terminate(scene: &Scene) {
    scene
        .edit(NODE, json!({"spec": {"maintenance": "termination"}}))
        .await;
    scene.say(NODE, "AgentPodsEvicted", "True", "NoAgentPods").await;
}

#[tokio::test]
async fn a_consumer_with_allocations_blocks_the_end_until_it_is_gone() {
    let scene = Scene::start(World::builder().hosts(2).time_scale(20.0).build()).await;
    let (placement, id) = forgotten(&scene).await;
    let consumer = ConsumerId::from("99999999-0000-4000-8000-000000000001");
    let held = Allocation {
        resources: [("VCPU".to_owned(), 1)].into(),
    };
    let new = NewAllocation {
        allocations: [(id.clone(), held)].into(),
        generation: None,
        project_id: "p".into(),
        user_id: "u".into(),
        consumer_type: "INSTANCE".into(),
    };
    placement.set_allocations(&consumer, &new).await.unwrap();
    terminate(&scene).await;
    let text = "False/Offboarding/cannot clean up resource provider: cannot clean up provider, \
                cannot handle non-empty consumer allocations";
    scene.until(NODE, "Offboarded", text).await;
    placement.delete_allocations(&consumer).await.unwrap();
    scene.until(NODE, "Offboarded", "True/Offboarded").await;
    assert!(!has_provider(&placement, &id).await);
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_consumer_that_holds_nothing_is_cleared_away() {
    let scene = Scene::start(World::builder().hosts(2).time_scale(20.0).build()).await;
    let (placement, id) = forgotten(&scene).await;
    let consumer = "99999999-0000-4000-8000-000000000002";
    // Placement lists it at the provider, and it holds nothing there: a leftover.
    scene.world().change(|state| {
        let provider = id.as_str().parse().unwrap();
        let held = Consumer {
            generation: 1,
            project: "p".into(),
            user: "u".into(),
            kind: "INSTANCE".into(),
            allocations: [(provider, std::collections::BTreeMap::new())].into(),
        };
        state.placement.allocate(consumer.parse().unwrap(), held);
    });
    let listed = placement.provider_allocations(&id).await.unwrap();
    assert_eq!(listed.len(), 1, "it is in the way");
    terminate(&scene).await;
    scene.until(NODE, "Offboarded", "True/Offboarded").await;
    assert!(!has_provider(&placement, &id).await);
    let deleted = scene
        .cloud
        .calls()
        .latest(|call| call.method == "DELETE" && call.path == format!("/allocations/{consumer}"));
    assert_eq!(deleted.len(), 1);
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_deleted_object_of_a_living_node_is_let_go_without_touching_nova() {
    let world = World::builder().hosts(1).time_scale(20.0).build();
    let scene = Scene::start(world).await;
    let node = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n");
    scene.server.apply_yaml(&node).await.unwrap();
    scene.add_active(&[NODE]).await;
    held(&scene).await;
    scene
        .hypervisors()
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    until("the object is gone", || async {
        let there = scene.hypervisors().get_opt(NODE).await.unwrap();
        there.is_none_or(|object| object.metadata.deletion_timestamp.is_none())
    })
    .await;
    assert!(scene.world().read(|state| state.hosts[NODE].service.is_some()));
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_vanished_node_is_offboarded_only_when_it_is_empty() {
    let world = World::builder().hosts(2).vms_per_host(1).time_scale(20.0).build();
    let scene = Scene::start(world).await;
    scene.add_active(&[NODE, "node002-bb1"]).await;
    held(&scene).await;
    scene
        .hypervisors()
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    let text = "False/Offboarding/node is gone but 1 instances are still assigned";
    scene.until(NODE, "Offboarded", text).await;
    let places = super::scene::places(scene.world());
    let last = places.iter().find(|(_, host)| *host == NODE).unwrap().0;
    let session = super::scene::session(&scene.cloud.auth_url());
    session.nova().delete_server(&last.as_str().into()).await.unwrap();
    until("the object is gone", || async {
        scene.hypervisors().get_opt(NODE).await.unwrap().is_none()
    })
    .await;
    assert!(scene.world().read(|state| state.hosts[NODE].service.is_none()));
    scene.operator.stop().await;
}

#[tokio::test]
async fn the_whole_fleet_costs_one_list_of_aggregates() {
    let world = World::builder().hosts(30).fresh().time_scale(20.0).build();
    let names: Vec<String> = world.read(|state| state.hosts.keys().map(ToString::to_string).collect());
    let scene = Scene::start(world).await;
    let began = std::time::Instant::now();
    for name in &names {
        scene.add(name, json!({})).await;
    }
    for name in &names {
        scene.until(name, "Onboarding", "False/Succeeded").await;
    }
    let lists = scene
        .cloud
        .calls()
        .count(Service::Compute, "GET", "/os-aggregates");
    // A list serves everybody for half a minute, however many hosts come in meanwhile.
    let most = 2 + 2 * began.elapsed().as_secs().div_ceil(30);
    assert!(lists <= most, "{lists} lists for 30 hosts, {most} are enough");
    let unharmed = "controller_runtime_reconcile_errors_total{controller=\"offboarding\"} 0";
    let metrics = scene.operator.telemetry.encode();
    assert!(
        metrics.contains(unharmed),
        "ten writers at once cost the finalizer no failed pass"
    );
    // Events of what happened are still being sent; after that an idle fleet asks nothing between two ticks.
    let mut asked = 1;
    for _ in 0..30 {
        scene.cloud.calls().reset();
        scene.server.comes_to_rest(Duration::from_secs(2)).await;
        asked = scene.cloud.calls().total();
        if asked == 0 {
            break;
        }
    }
    assert_eq!(asked, 0, "an idle fleet asks nothing between two ticks");
    scene.operator.stop().await;
}
