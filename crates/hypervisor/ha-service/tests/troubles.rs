// SPDX-License-Identifier: Apache-2.0
//! What the service does about troubles that are no deaths: a group of signals that fails as a
//! whole, a host whose memory fails, locks that were left behind.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use cobaltcore_api::Hypervisor;
use cobaltcore_ha_wire::Kind;
use cobaltcore_sim::world::{ApiEffect, ApiFault, Lock, Moment};
use common::scene::{DEAD, Scene, in_a_cluster, incident, until_state};
use common::{ALONE, Agent, until};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_in_which_many_fall_silent_together_is_not_believed_and_says_so() {
    let scene = Scene::new(6, 1).await;
    let service = scene.start(&scene.config(ALONE), None).await;
    scene.heard(&service).await;
    let names: Vec<String> = scene
        .world
        .read(|state| state.hosts.keys().map(ToString::to_string).collect());
    for name in &names {
        scene.mute(name);
    }
    until("agents are not believed any more", async || {
        let figures = service.figures().await;
        (figures.of("kvm_ha_group_untrusted", r#"group="A""#) == 1.0).then_some(())
    })
    .await;
    assert!(incident(&service).await.is_none(), "nobody is dead");
    assert!(scene.evacuations().is_empty());
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_memory_fails_gets_no_new_guests_where_that_is_wanted() {
    let scene = Scene::new(3, 1).await;
    let config = scene.config(&format!("{ALONE}degraded_action: disable\n"));
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    // A second agent of the same host would be odd; a second stream of its records is not.
    let mut agent = Agent::new(DEAD);
    agent.id.0 = "another-stream".into();
    let mut batch = agent.events(1..=2);
    for event in &mut batch.events {
        event.kind = Kind::MemoryFailure;
        event.event = "fatal".into();
        event.detail = String::new();
    }
    assert_eq!(agent.report(&service, &batch).await.0, 200);
    let reason = until("Nova places nothing there", async || {
        scene.world.read(|state| {
            let host = state.hosts.get(DEAD)?;
            let service = host.service.as_ref()?;
            (service.disabled && !service.forced_down)
                .then(|| service.disabled_reason.clone())
                .flatten()
        })
    })
    .await;
    assert!(reason.contains("memory"), "{reason}");
    let others = scene.world.read(|state| {
        state
            .hosts
            .values()
            .filter_map(|host| host.service.as_ref())
            .filter(|one| one.disabled)
            .count()
    });
    assert_eq!(others, 1, "the others are left alone");
    assert!(scene.evacuations().is_empty(), "its guests stay where they are");
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_left_behind_is_removed_and_those_of_owners_and_of_other_zones_are_not() {
    let scene = Scene::new(3, 1).await;
    let guests = scene.guests_of_the_dead();
    let [ours] = guests.as_slice() else {
        panic!("one guest was asked for: {guests:?}");
    };
    let others: Vec<_> = scene.world.read(|state| {
        let others = state.servers.keys().filter(|id| *id != ours);
        others.copied().collect()
    });
    let [theirs, elsewhere, ..] = others.as_slice() else {
        panic!("three hosts were asked for: {others:?}");
    };
    let reason = |text: &str| {
        Some(Lock {
            by: "admin".to_owned(),
            reason: Some(text.to_owned()),
        })
    };
    scene.world.change(|state| {
        state.servers.get_mut(ours).unwrap().lock = reason("cobaltcore-ha node001-bb1-1-1");
        state.servers.get_mut(theirs).unwrap().lock = reason("mine");
        state.servers.get_mut(elsewhere).unwrap().lock = reason("cobaltcore-ha node001-bb9-1-1");
    });
    let service = scene.start(&scene.config(ALONE), None).await;
    scene.heard(&service).await;
    until("only the locks of others are there", async || {
        (scene.locked() == 2).then_some(())
    })
    .await;
    for (server, reason) in [(theirs, "mine"), (elsewhere, "cobaltcore-ha node001-bb9-1-1")] {
        let kept = scene
            .world
            .read(|state| state.servers.get(server).unwrap().lock.clone());
        assert_eq!(kept.and_then(|lock| lock.reason).as_deref(), Some(reason));
    }
    service.stop().await;
}

/// Most lists show only what changed lately, and a lock that stays does not change.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_could_not_be_removed_is_not_forgotten_until_everything_is_listed_again() {
    let scene = Scene::new(3, 1).await;
    let [guest] = scene.guests_of_the_dead()[..] else {
        panic!("one guest was asked for");
    };
    scene.world.change(|state| {
        let server = state.servers.get_mut(&guest).unwrap();
        server.updated = Moment(server.updated.0 - 3_600_000);
        server.lock = Some(Lock {
            by: "admin".to_owned(),
            reason: Some("cobaltcore-ha node001-bb1-1-1".to_owned()),
        });
    });
    scene
        .world
        .break_api(ApiFault::all(ApiEffect::Refuse(500)).part("unlock"));
    let service = scene.start(&scene.config(ALONE), None).await;
    until("it was tried to remove the lock", async || {
        (scene.asked("unlock") > 0).then_some(())
    })
    .await;
    scene.world.heal();
    until("it is tried again", async || (scene.locked() == 0).then_some(())).await;
    service.stop().await;
}

/// Nothing switches these hosts off; what the monitors see of them must reach the device that is
/// none, or nothing is ever moved.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_device_the_word_of_everybody_who_looked_is_what_counts() {
    let scene = Scene::in_zones(6, 1, &["qa-de-1a", "qa-de-1b"]).await;
    let config = scene.config(ALONE);
    let (usual, _) = config.split_once("fencing:").unwrap();
    let unsafe_choice = format!(
        "{usual}fencing:\n  required_grade: none\n  levels:\n    \
         - - {{driver: nova-force-down-only, accept_split_brain: true, dwell: 2s}}\n"
    );
    let service = scene.start(&unsafe_choice, None).await;
    scene.heard(&service).await;
    let guests = scene.guests_of_the_dead();
    scene.world.power_off(DEAD).unwrap();
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    let (_, detail) = service
        .get(&format!("/api/v1/incidents/{}", found["id"].as_str().unwrap()))
        .await;
    let fenced = detail["journal"]
        .as_array()
        .unwrap()
        .iter()
        .find(|record| record["entry"] == "fenced")
        .unwrap();
    assert_eq!(fenced["grade"], "none", "nobody claims more than is known");
    assert!(scene.settled(&guests));
    scene.check();
    service.stop().await;
}

/// Nobody told the service that this host keeps disks of its own; its agent did.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_only_the_dead_host_has_is_not_rebuilt_empty_whatever_the_configuration_says() {
    let scene = Scene::new(4, 2).await;
    let guests = scene.guests_of_the_dead();
    let [local, other] = guests.as_slice() else {
        panic!("two guests were asked for: {guests:?}");
    };
    scene.on_their_host.lock().push(*local);
    let service = scene.start(&scene.config(ALONE), None).await;
    scene.heard(&service).await;
    scene.world.power_off(DEAD).unwrap();
    until_state(&service, &["Recovered"]).await;
    let moved = scene.evacuations();
    assert_eq!(moved.get(&other.to_string()), Some(&1));
    assert_eq!(moved.get(&local.to_string()), None, "its disk would be lost");
    let id = incident(&service).await.unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, shown) = service.get(&format!("/api/v1/incidents/{id}")).await;
    let vms = shown["vms"].as_array().unwrap();
    let left = vms.iter().find(|vm| vm["server"] == local.to_string()).unwrap();
    assert!(left["progress"].to_string().contains("LocalDisk"), "{left}");
    scene.check();
    service.stop().await;
}

/// A host that dies while the service is away cannot tell again what it has; what it told before counts.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_said_of_its_disks_outlives_the_service() {
    let scene = Scene::new(4, 2).await;
    let guests = scene.guests_of_the_dead();
    let [local, other] = guests.as_slice() else {
        panic!("two guests were asked for: {guests:?}");
    };
    scene.on_their_host.lock().push(*local);
    let server = in_a_cluster(&scene).await;
    let serial = scene.world.read(|state| {
        let host = state.hosts.get(DEAD)?;
        Some(host.node_uuid.to_string())
    });
    // The node agent told whose machine it is; its HA agent cannot do that again either.
    let objects: Api<Hypervisor> = Api::all(server.client());
    let known = json!({"status": {"operatingSystem": {"hardwareSerial": serial}}});
    objects
        .patch_status(DEAD, &PatchParams::default(), &Patch::Merge(known))
        .await
        .unwrap();
    let config = scene.config("leader: {replicas: 1, retry_period: 500ms}\n");
    let service = scene.start(&config, Some(server.client())).await;
    scene.heard(&service).await;
    until("what its agent listed is written", async || {
        let (_, vm) = service.get(&format!("/api/v1/vms/{local}")).await;
        (vm["agent_host"] == DEAD).then_some(())
    })
    .await;
    scene.forget(&service);
    service.stop().await;
    scene.world.power_off(DEAD).unwrap();

    let service = scene.start(&config, Some(server.client())).await;
    until_state(&service, &["Recovered"]).await;
    let moved = scene.evacuations();
    assert_eq!(moved.get(&other.to_string()), Some(&1));
    assert_eq!(moved.get(&local.to_string()), None, "its disk would be lost");
    scene.check();
    service.stop().await;
}
