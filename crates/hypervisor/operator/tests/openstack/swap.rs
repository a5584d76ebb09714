// SPDX-License-Identifier: Apache-2.0
//! The operator takes a fleet over from the one before it, in the middle of an eviction, and works
//! with definitions that have none of its additional fields.

use cobaltcore_api::{Eviction, Hypervisor};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_sim::cloud::Cloud;
use cobaltcore_sim::world::World;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::definitions::of_the_running_system;
use super::scene::{Scene, ZONE, config, places, session, until};
use super::world::install;

const NODE: &str = "node001-bb1";

fn slow() -> World {
    World::builder().hosts(3).vms_per_host(3).time_scale(1.0).build()
}

fn on_node(world: &World) -> Vec<String> {
    let all = places(world).into_iter();
    all.filter(|(_, host)| host == NODE).map(|(id, _)| id).collect()
}

async fn old_cluster() -> TestServer {
    let server = TestServer::start().await;
    server.apply_yaml(&of_the_running_system()).await.unwrap();
    for namespace in ["agents", "monsoon3"] {
        let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        server.apply_yaml(&text).await.unwrap();
    }
    server
}

/// Writes a status as the former operator did: the whole of it by merge patch, under its names.
async fn former<K>(api: &Api<K>, name: &str, manager: &str, status: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &params, &patch).await.unwrap();
}

fn said(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// The host as the former operator left it: in maintenance, with an eviction under way.
async fn leave_half_done(server: &TestServer, cloud: &Cloud, servers: &[String]) -> Eviction {
    let client = server.client();
    let nova = session(&cloud.auth_url()).nova();
    let found = nova.hypervisors_named(NODE).await.unwrap().remove(0);
    let hypervisors: Api<Hypervisor> = Api::all(client.clone());
    let evictions: Api<Eviction> = Api::all(client);
    let creator = PostParams {
        field_manager: Some("openstack-hypervisor-operator".to_owned()),
        ..PostParams::default()
    };
    let object = json!({
        "metadata": {"name": NODE, "labels": {
            "kubernetes.io/hostname": NODE, "topology.kubernetes.io/zone": ZONE,
        }},
        "spec": {
            "lifecycleEnabled": true, "highAvailability": false, "aggregates": ["prod", ZONE],
            "maintenance": "manual", "maintenanceReason": "fans",
        },
    });
    let object = serde_json::from_value(object).unwrap();
    let hypervisor = hypervisors.create(&creator, &object).await.unwrap();
    let status = json!({
        "numInstances": 3, "hypervisorId": found.id.to_string(), "serviceId": found.service.id.to_string(),
        "aggregates": [{"name": "prod", "uuid": "u1"}, {"name": ZONE, "uuid": "u2"}],
        "conditions": [
            said("Onboarding", "False", "Succeeded", "Onboarding completed"),
            said("HypervisorDisabled", "True", "Succeeded", "Hypervisor is disabled"),
            said("Evicting", "True", "Running", "Evicting"),
            said("Ready", "False", "Evicting", "Hypervisor is disabled and evicting"),
        ],
    });
    former(&hypervisors, NODE, "HypervisorMaintenance", status).await;
    let owner = hypervisor.controller_owner_ref(&()).unwrap();
    let eviction = json!({
        "metadata": {"name": NODE, "ownerReferences": [owner]},
        "spec": {"hypervisor": NODE, "reason": "openstack-hypervisor-operator maintenance"},
    });
    let eviction = serde_json::from_value(eviction).unwrap();
    let eviction = evictions.create(&creator, &eviction).await.unwrap();
    let status = json!({
        "hypervisorServiceId": found.id.to_string(), "outstandingRamMb": 0, "outstandingInstances": servers,
        "conditions": [
            said("Evicting", "True", "Running", "Running"),
            said("PreflightChecksSucceeded", "True", "Succeeded",
                "Preflight checks passed, hypervisor is disabled and ready for eviction"),
        ],
    });
    former(&evictions, NODE, "eviction", status).await;
    let reason = "Hypervisor CRD: spec.maintenance=manual";
    cloud.world().change(|state| {
        let service = state.hosts.get_mut(NODE).unwrap().service.as_mut().unwrap();
        (service.disabled, service.disabled_reason) = (true, Some(reason.to_owned()));
    });
    eviction
}

fn moved_once(world: &World, servers: &[String]) {
    world.read(|state| {
        for server in servers {
            let moves = state.migrations_of(server.parse().unwrap()).count();
            assert_eq!(moves, 1, "{server} was moved {moves} times");
        }
    });
    assert!(on_node(world).is_empty());
    assert!(world.running_twice().is_empty());
}

#[tokio::test]
async fn a_running_eviction_is_taken_over_without_repeating_a_move() {
    for old_definitions in [false, true] {
        let server = if old_definitions {
            old_cluster().await
        } else {
            let server = TestServer::start().await;
            install(&server).await;
            server
        };
        let cloud = Cloud::start(slow()).await.unwrap();
        let servers = on_node(cloud.world());
        let before = leave_half_done(&server, &cloud, &servers).await;
        // The former operator had just asked for the last one on its list.
        let last = servers.last().unwrap().parse().unwrap();
        cloud.world().live_migrate(last).unwrap();
        let client = server.client();
        let scene = Scene::start_in(server, client, cloud, config());
        scene.until(NODE, "Evicting", "False/Succeeded").await;
        moved_once(scene.world(), &servers);
        let after = scene.evictions().get(NODE).await.unwrap();
        assert_eq!(after.uid(), before.uid(), "the same eviction");
        assert_eq!(
            scene.service_updates(),
            Vec::<Value>::new(),
            "the service is as it should be"
        );
        assert!(
            scene
                .hypervisors()
                .get(NODE)
                .await
                .unwrap()
                .status
                .unwrap()
                .evicted
        );
        scene.operator.stop().await;
    }
}

/// Nothing of what the operator must remember has a field here, and it is restarted on the way.
#[tokio::test]
async fn a_host_lives_with_the_definitions_of_the_running_system() {
    let server = old_cluster().await;
    let cloud = Cloud::start(slow()).await.unwrap();
    let client = server.client();
    let scene = Scene::start_in(server, client, cloud, config());
    let servers = on_node(scene.world());
    scene.add_active(&[NODE, "node002-bb1", "node003-bb1"]).await;
    scene
        .edit(NODE, json!({"spec": {"customTraits": ["CUSTOM_OLD"]}}))
        .await;
    let traits = || {
        scene.world().read(|state| {
            let mut providers = state.placement.providers.values();
            let own = providers.find(|one| one.name.starts_with(NODE));
            own.unwrap().traits.clone()
        })
    };
    until("the trait", || async { traits().contains("CUSTOM_OLD") }).await;
    scene
        .edit(
            NODE,
            json!({"spec": {"maintenance": "manual", "maintenanceReason": "old"}}),
        )
        .await;
    until("a move", || async {
        scene.world().read(|state| {
            let mut all = servers.iter();
            all.any(|server| state.migrations_of(server.parse().unwrap()).count() > 0)
        })
    })
    .await;
    let scene = scene.restart(config()).await;
    scene.until(NODE, "Evicting", "False/Succeeded").await;
    moved_once(scene.world(), &servers);
    let status = scene.evictions().get(NODE).await.unwrap().status.unwrap();
    assert_eq!(
        (status.eviction_state, status.in_flight.len()),
        (None, 0),
        "there is no place for them"
    );
    scene.operator.stop().await;
}
