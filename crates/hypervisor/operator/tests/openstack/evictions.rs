// SPDX-License-Identifier: Apache-2.0
//! Hosts are drained and given back: maintenance, mixed servers, stuck migrations, late arrivals,
//! standalone evictions, HA.

use std::time::Duration;

use cobaltcore_api::{Eviction, EvictionState};
use cobaltcore_kit::config::HumanDuration;
use cobaltcore_sim::world::{ApiEffect, ApiFault, MigrationFault, MigrationTrouble, VmState, World};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::scene::{Scene, condition, config, places, session, until};

const NODE: &str = "node001-bb1";
const OTHERS: [&str; 2] = ["node002-bb1", "node003-bb1"];

fn world(vms: usize) -> World {
    World::builder()
        .hosts(3)
        .vms_per_host(vms)
        .time_scale(20.0)
        .build()
}

async fn drained(world: World) -> Scene {
    drained_with(world, config()).await
}

async fn drained_with(world: World, config: cobaltcore_operator::Config) -> Scene {
    let scene = Scene::start_with(world, config).await;
    scene.add_active(&[NODE, OTHERS[0], OTHERS[1]]).await;
    scene
}

fn enter(mode: &str) -> serde_json::Value {
    json!({"spec": {"maintenance": mode, "maintenanceReason": "new fans"}})
}

fn on_node(scene: &Scene) -> usize {
    places(scene.world())
        .values()
        .filter(|host| *host == NODE)
        .count()
}

#[tokio::test]
async fn maintenance_there_and_back() {
    let scene = drained(world(3)).await;
    let before = places(scene.world()).len();
    scene.cloud.calls().reset();
    scene.edit(NODE, enter("manual")).await;
    let evicted = scene.until(NODE, "Evicting", "False/Succeeded/Evicted").await;
    assert!(evicted.status.unwrap().evicted);
    assert_eq!(
        scene.service_updates(),
        [json!({"status": "disabled", "disabled_reason": "Hypervisor CRD: spec.maintenance=manual"})]
    );
    assert_eq!(on_node(&scene), 0);
    assert_eq!(places(scene.world()).len(), before);
    assert!(scene.world().running_twice().is_empty());
    let eviction = scene.evictions().get(NODE).await.unwrap();
    assert_eq!(eviction.spec.reason, "openstack-hypervisor-operator maintenance");
    assert_eq!(
        eviction.metadata.owner_references.as_ref().unwrap()[0].controller,
        Some(true)
    );
    let status = eviction.status.unwrap();
    assert_eq!(status.eviction_state, Some(EvictionState::Succeeded));
    assert_eq!(
        (status.total_instances, status.migrated_instances),
        (Some(3), Some(3))
    );
    let metrics = scene.operator.telemetry.encode();
    for counted in [
        "hypervisor_operator_migrations_total{kind=\"live\",result=\"succeeded\"} 3",
        "hypervisor_operator_migration_duration_seconds_count{kind=\"live\"} 3",
        "hypervisor_operator_eviction_duration_seconds_count 1",
    ] {
        assert!(metrics.contains(counted), "{counted} is not in {metrics}");
    }
    for family in ["phase", "onboarding_duration_seconds", "eviction_instances"] {
        let named = format!("# TYPE hypervisor_operator_{family} ");
        assert!(metrics.contains(&named), "{named}is not in {metrics}");
    }
    scene.cloud.calls().reset();
    scene
        .edit(
            NODE,
            json!({"spec": {"maintenance": "", "maintenanceReason": ""}}),
        )
        .await;
    scene
        .until(
            NODE,
            "HypervisorDisabled",
            "False/Succeeded/Hypervisor is enabled",
        )
        .await;
    scene.until(NODE, "Evicting", "").await;
    assert_eq!(
        scene.service_updates(),
        [json!({"status": "enabled", "forced_down": false})]
    );
    until("the eviction is gone", || async {
        scene.evictions().get_opt(NODE).await.unwrap().is_none()
    })
    .await;
    scene.operator.stop().await;
}

#[tokio::test]
async fn manual_without_a_reason_is_refused() {
    let scene = Scene::start(world(0)).await;
    scene.add(NODE, json!({})).await;
    let patch = kube::api::Patch::Merge(json!({"spec": {"maintenance": "manual"}}));
    let refused = scene
        .hypervisors()
        .patch(NODE, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("maintenanceReason must be non-empty"),
        "{refused}"
    );
    scene.operator.stop().await;
}

#[tokio::test]
async fn every_kind_of_server_gets_its_answer() {
    let scene = drained(world(4)).await;
    let ids: Vec<String> = places(scene.world())
        .into_iter()
        .filter(|(_, host)| host == NODE)
        .map(|(id, _)| id)
        .collect();
    let nova = session(&scene.cloud.auth_url()).nova();
    nova.pause(&ids[0].as_str().into()).await.unwrap();
    nova.stop(&ids[1].as_str().into()).await.unwrap();
    let state = |id: &str| {
        scene
            .world()
            .server(id.parse().unwrap())
            .map(|server| server.vm_state)
    };
    until("one is paused and one is off", || async {
        state(&ids[0]) == Some(VmState::Paused) && state(&ids[1]) == Some(VmState::Stopped)
    })
    .await;
    nova.reset_state(&ids[2].as_str().into(), &"error".into())
        .await
        .unwrap();
    scene.edit(NODE, enter("manual")).await;
    let failed = scene.until(NODE, "Evicting", "True/Failed").await;
    assert!(
        !failed.status.as_ref().unwrap().evicted,
        "a failed eviction is not an empty host"
    );
    let said = condition(&failed.status.unwrap().conditions, "Evicting");
    assert_eq!(
        said,
        format!("True/Failed/1 of 4 instances could not be moved: {}", ids[2])
    );
    let places = places(scene.world());
    assert_eq!(places[&ids[2]], NODE);
    for moved in [&ids[0], &ids[1], &ids[3]] {
        assert_ne!(places[moved], NODE);
    }
    assert_eq!(state(&ids[0]), Some(VmState::Paused), "paused as before");
    assert_eq!(
        state(&ids[1]),
        Some(VmState::Stopped),
        "confirmed and off as before"
    );
    let status = scene.evictions().get(NODE).await.unwrap().status.unwrap();
    assert_eq!(status.eviction_state, Some(EvictionState::Failed));
    assert_eq!(status.non_migratable_instances[0].id, ids[2]);
    assert!(status.non_migratable_instances[0].reason.contains("ERROR"));
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_stuck_migration_is_stopped_and_does_not_hold_up_the_others() {
    let patient = cobaltcore_operator::Config {
        migration_stall_timeout: HumanDuration(Duration::from_secs(1)),
        migration_max_attempts: 1,
        ..config()
    };
    let scene = drained_with(world(3), patient).await;
    let stuck = places(scene.world())
        .into_iter()
        .find(|(_, host)| host == NODE)
        .unwrap()
        .0;
    scene.world().break_migrations(MigrationFault {
        server: Some(stuck.parse().unwrap()),
        source: None,
        trouble: MigrationTrouble::Stalls,
        times: None,
    });
    scene.edit(NODE, enter("auto")).await;
    scene.until(NODE, "Evicting", "True/Failed").await;
    assert_eq!(on_node(&scene), 1);
    let status = scene.evictions().get(NODE).await.unwrap().status.unwrap();
    assert_eq!(status.outstanding_instances, [stuck]);
    let aborted = scene
        .cloud
        .calls()
        .latest(|call| call.method == "DELETE" && call.path.contains("/migrations/"));
    assert!(!aborted.is_empty(), "it was stopped");
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_late_arrival_is_moved_too() {
    let scene = drained(world(2)).await;
    scene.edit(NODE, enter("manual")).await;
    scene
        .until_eviction(NODE, "MigratingInstance", "True/Running")
        .await;
    let late = scene.world().add_server(NODE, "1");
    let late = late.unwrap().to_string();
    scene.until(NODE, "Evicting", "False/Succeeded").await;
    assert_ne!(places(scene.world())[&late], NODE);
    assert_eq!(on_node(&scene), 0);
    scene.operator.stop().await;
}

async fn standalone(scene: &Scene) {
    let eviction: Eviction = serde_json::from_value(json!({
        "metadata": {"name": "reboot"}, "spec": {"hypervisor": NODE, "reason": "kernel"},
    }))
    .unwrap();
    scene
        .evictions()
        .create(&PostParams::default(), &eviction)
        .await
        .unwrap();
    scene
        .until_eviction("reboot", "Evicting", "False/Succeeded")
        .await;
    let object = scene
        .until_eviction("reboot", "HypervisorDisabled", "True/Succeeded")
        .await;
    assert_eq!(
        object.metadata.finalizers.unwrap(),
        ["eviction-controller.cloud.sap/finalizer"]
    );
    scene.until(NODE, "HypervisorDisabled", "True/Evicting").await;
    assert_eq!(on_node(scene), 0);
}

fn service(scene: &Scene) -> (bool, Option<String>) {
    scene.world().read(|state| {
        let service = state.hosts[NODE].service.as_ref().unwrap();
        (service.disabled, service.disabled_reason.clone())
    })
}

#[tokio::test]
async fn a_standalone_eviction_takes_the_host_out_and_gives_it_back() {
    let scene = drained(world(2)).await;
    standalone(&scene).await;
    assert_eq!(service(&scene), (true, Some("Eviction reboot: kernel".into())));
    scene
        .evictions()
        .delete("reboot", &DeleteParams::default())
        .await
        .unwrap();
    until("the eviction is gone", || async {
        scene.evictions().get_opt("reboot").await.unwrap().is_none()
    })
    .await;
    scene.until(NODE, "HypervisorDisabled", "False/Succeeded").await;
    assert!(!service(&scene).0);
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_host_that_somebody_else_disabled_meanwhile_stays_disabled() {
    let scene = drained(world(1)).await;
    standalone(&scene).await;
    scene.world().change(|state| {
        let service = state.hosts.get_mut(NODE).unwrap().service.as_mut().unwrap();
        service.disabled_reason = Some("bad disk".into());
    });
    scene
        .evictions()
        .delete("reboot", &DeleteParams::default())
        .await
        .unwrap();
    until("the eviction is gone", || async {
        scene.evictions().get_opt("reboot").await.unwrap().is_none()
    })
    .await;
    scene
        .until(
            NODE,
            "HypervisorDisabled",
            "True/Succeeded/Hypervisor already disabled",
        )
        .await;
    assert_eq!(service(&scene), (true, Some("bad disk".into())));
    scene.operator.stop().await;
}

#[tokio::test]
async fn an_eviction_of_an_unknown_host_says_so() {
    let scene = Scene::start(world(0)).await;
    let eviction: Eviction = serde_json::from_value(json!({
        "metadata": {"name": "typo"}, "spec": {"hypervisor": "nobody", "reason": "r"},
    }))
    .unwrap();
    scene
        .evictions()
        .create(&PostParams::default(), &eviction)
        .await
        .unwrap();
    scene
        .until_eviction("typo", "Evicting", "False/Failed/hypervisor nobody not found")
        .await;
    scene.operator.stop().await;
}

#[tokio::test]
async fn ha_is_left_alone_and_taken_back() {
    let scene = drained(world(1)).await;
    scene.cloud.calls().reset();
    scene.edit(NODE, json!({"spec": {"maintenance": "ha"}})).await;
    scene.world().change(|state| {
        let service = state.hosts.get_mut(NODE).unwrap().service.as_mut().unwrap();
        service.disabled = true;
        service.forced_down = true;
        service.disabled_reason = Some("Hypervisor CRD: spec.maintenance=ha; incident 1".into());
    });
    scene.say(NODE, "HypervisorDisabled", "True", "Succeeded").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(scene.service_updates().is_empty());
    assert!(scene.evictions().get_opt(NODE).await.unwrap().is_none());
    scene.edit(NODE, json!({"spec": {"maintenance": ""}})).await;
    scene.until(NODE, "HypervisorDisabled", "False/Succeeded").await;
    assert_eq!(
        scene.service_updates(),
        [json!({"status": "enabled", "forced_down": false})]
    );
    scene.operator.stop().await;
}

#[tokio::test]
async fn a_nova_that_does_not_answer_is_told_and_waited_for() {
    let scene = drained(world(2)).await;
    scene.world().break_api(
        ApiFault::all(ApiEffect::Refuse(500))
            .service("compute")
            .part("servers/detail"),
    );
    scene.edit(NODE, enter("manual")).await;
    scene
        .until_eviction(NODE, "MigratingInstance", "False/Failed/waiting for an answer")
        .await;
    scene.world().heal();
    scene.until(NODE, "Evicting", "False/Succeeded").await;
    assert_eq!(on_node(&scene), 0);
    scene.operator.stop().await;
}

#[tokio::test]
async fn leaving_maintenance_stops_what_moves_if_told_so() {
    let scene = drained(world(2)).await;
    for server in places(scene.world()).into_keys() {
        scene.world().break_migrations(MigrationFault {
            server: Some(server.parse().unwrap()),
            source: None,
            trouble: MigrationTrouble::Stalls,
            times: None,
        });
    }
    scene.edit(NODE, enter("manual")).await;
    scene
        .until_eviction(NODE, "MigratingInstance", "True/Running")
        .await;
    let told = json!({"metadata": {"annotations": {"kvm.cloud.sap/abort-in-flight": "true"}}});
    let patch = kube::api::Patch::Merge(told);
    let params = kube::api::PatchParams::default();
    scene.evictions().patch(NODE, &params, &patch).await.unwrap();
    until("there is time to stop them", || async {
        let eviction = scene.evictions().get(NODE).await.unwrap();
        let moves = scene.world().read(|state| {
            let servers = state.servers.keys();
            servers
                .map(|server| state.migrations_of(*server).count())
                .sum::<usize>()
        });
        eviction.metadata.finalizers.is_some() && moves > 0
    })
    .await;
    scene
        .edit(
            NODE,
            json!({"spec": {"maintenance": "", "maintenanceReason": ""}}),
        )
        .await;
    until("the eviction is gone", || async {
        scene.evictions().get_opt(NODE).await.unwrap().is_none()
    })
    .await;
    let stopped = scene
        .cloud
        .calls()
        .latest(|call| call.method == "DELETE" && call.path.contains("/migrations/"));
    assert!(!stopped.is_empty(), "they were stopped");
    assert_eq!(on_node(&scene), 2, "and stay");
    scene.until(NODE, "HypervisorDisabled", "False/Succeeded").await;
    scene.operator.stop().await;
}

/// `node1` is part of `node10`, and a name with a dot is the beginning of a host name.
#[tokio::test]
async fn names_that_contain_one_another_are_different_hosts() {
    let names = ["node1", "node10", "node1.dotted"];
    let world = names
        .iter()
        .fold(World::builder(), |world, name| world.host(*name));
    let world = world
        .zones([super::scene::ZONE])
        .domain(".cc.example.com")
        .fresh()
        .time_scale(20.0)
        .build();
    let scene = Scene::start(world).await;
    for name in names {
        scene.add(name, json!({"skipTests": false})).await;
    }
    for name in names {
        scene.until(name, "Onboarding", "False/Succeeded").await;
        scene.until(name, "HypervisorDisabled", "False/Succeeded").await;
    }
    let tests = scene
        .cloud
        .calls()
        .count(cobaltcore_sim::cloud::Service::Compute, "POST", "/servers");
    assert_eq!(
        tests,
        names.len() as u64,
        "nobody removed the test server of another"
    );
    for name in names {
        scene.world().add_server(name, "1").unwrap();
    }
    scene.edit("node1.dotted", enter("manual")).await;
    scene.until("node1.dotted", "Evicting", "False/Succeeded").await;
    let hosts: Vec<String> = places(scene.world()).into_values().collect();
    assert_eq!(hosts.len(), 3);
    assert!(
        !hosts.contains(&"node1.dotted".to_owned()),
        "it really moved: {hosts:?}"
    );
    let service = |name: &str| {
        scene
            .world()
            .read(|state| state.hosts[name].service.as_ref().unwrap().disabled)
    };
    assert_eq!(names.map(service), [false, false, true]);
    scene.operator.stop().await;
}
