// SPDX-License-Identifier: Apache-2.0
//! A host dies in a simulated world, over real wires: Nova, Redfish, agents and the service's own
//! API. It is fenced, verified, forced down and evacuated; a service that dies in between goes on
//! where it was; of two replicas one acts.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use cobaltcore_api::{HaIncident, HaIncidentState, Hypervisor};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_sim::bmc;
use cobaltcore_sim::world::Power;
use common::scene::{DEAD, Scene, in_a_cluster, incident, until_state};
use common::{ALONE, OPERATOR, Running, addresses, until};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_host_is_fenced_and_its_guests_run_elsewhere() {
    let scene = Scene::new(5, 3).await;
    let config = scene.config(&format!("{ALONE}release: {{mode: nova}}\n"));
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    let guests = scene.guests_of_the_dead();
    assert_eq!(guests.len(), 3);
    scene.world.power_off(DEAD).unwrap();

    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert_eq!(found["guests"]["recovered"], 3, "{found}");
    assert!(scene.settled(&guests), "every guest is ACTIVE and runs elsewhere");
    assert!(
        scene.evacuations().values().all(|count| *count == 1),
        "{:?}",
        scene.evacuations()
    );
    scene.check();

    // The order of what was done is in the journal: fenced before forced down before the first request.
    let id = found["id"].as_str().unwrap();
    let (_, detail) = service.get(&format!("/api/v1/incidents/{id}")).await;
    let entries: Vec<&str> = detail["journal"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["entry"].as_str().unwrap())
        .collect();
    let place = |wanted: &str| {
        entries
            .iter()
            .position(|entry| *entry == wanted)
            .unwrap_or_else(|| panic!("{wanted} is in {entries:?}"))
    };
    assert!(place("claimed") < place("fenced"));
    assert!(place("fenced") < place("forced-down"));
    assert!(place("forced-down") < place("planned"));
    assert!(place("planned") < place("evacuate-intended"));

    // Guests were locked while they were on their way, each once, and are their owners' again.
    until("no guest is locked any more", async || {
        (scene.locked() == 0).then_some(())
    })
    .await;
    until("three locks and three ends of them", async || {
        ((scene.asked("\"lock\""), scene.asked("\"unlock\"")) == (3, 3)).then_some(())
    })
    .await;
    figures_of_a_recovery(&service).await;

    // A wrong confirmation is refused; the right one takes the host back.
    let act = format!("/api/v1/incidents/{id}/actions/release");
    let wish = |confirm: &str| Some(json!({"reason": "repaired", "confirm": confirm}));
    let (code, refused) = service.send("POST", &act, Some(OPERATOR), wish("another")).await;
    assert_eq!(code, 409, "{refused}");
    let (code, taken) = service.send("POST", &act, Some(OPERATOR), wish(DEAD)).await;
    assert_eq!(code, 200, "{taken}");
    until_state(&service, &["Released"]).await;
    scene.check();
    let up = scene.world.read(|state| {
        let (_, host) = state
            .hosts
            .iter()
            .find(|(host, _)| host.as_str() == DEAD)
            .unwrap();
        host.power == Power::On && host.service.as_ref().is_some_and(|service| !service.forced_down)
    });
    assert!(up, "the host is on and in service again");
    service.stop().await;
}

/// What a monitoring system reads after one host with three guests was recovered.
async fn figures_of_a_recovery(service: &Running) {
    let figures = until("the end is counted", async || {
        let figures = service.figures().await;
        let ended = figures.of("kvm_ha_incidents_total", "result=\"Recovered\"") >= 1.0;
        let open = figures.of("kvm_ha_incidents_open", "state=\"Recovered\"") >= 1.0;
        (ended && open).then_some(figures)
    })
    .await;
    for (name, label, wanted) in [
        ("kvm_ha_incidents_total", "type=\"host-down\"", 1.0),
        ("kvm_ha_detection_seconds_count", "", 1.0),
        ("kvm_ha_evacuate_call_seconds_count", "", 1.0),
        (
            "kvm_ha_fence_seconds_count",
            "driver=\"redfish\",result=\"verified\"",
            1.0,
        ),
        ("kvm_ha_vm_recovery_seconds_count", "", 3.0),
        ("kvm_ha_vm_recoveries_total", "result=\"recovered\"", 3.0),
        (
            "kvm_ha_nova_requests_total",
            "call=\"evacuate a server\",code=\"200\"",
            3.0,
        ),
        (
            "kvm_ha_nova_request_seconds_count",
            "call=\"evacuate a server\"",
            3.0,
        ),
        ("kvm_ha_leader", "", 1.0),
        ("kvm_ha_zombies", "", 0.0),
    ] {
        assert_eq!(
            figures.of(name, label),
            wanted,
            "{name}{{{label}}}:\n{}",
            figures.0
        );
    }
    for (name, label) in [
        ("kvm_ha_signal_age_seconds_count", "group=\"A\""),
        ("kvm_ha_signal_age_seconds_count", "group=\"N\""),
        ("kvm_ha_signals", "verdict=\"alive\""),
        ("kvm_ha_hosts", "state=\"healthy\""),
        ("kvm_ha_ingest_batches_total", "code=\"200\""),
        ("kvm_ha_engine_steps_total", ""),
        ("kvm_ha_journal_commit_seconds_count", ""),
    ] {
        assert!(figures.of(name, label) > 0.0, "{name}{{{label}}}:\n{}", figures.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_a_host_recovered_that_nobody_calls_dead() {
    let scene = Scene::new(5, 2).await;
    let config = scene.config(ALONE);
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    let path = format!("/api/v1/hosts/{DEAD}/actions/recover");
    let wish = |reason: &str, confirm: &str| Some(json!({"reason": reason, "confirm": confirm}));
    let send = async |path: &str, body: Option<Value>| service.send("POST", path, Some(OPERATOR), body).await;
    let (code, refused) = send(&path, wish("odd", DEAD)).await;
    assert_eq!(code, 409, "{refused}");
    assert!(refused.to_string().contains("the host works"), "{refused}");
    assert_eq!(send(&path, wish(" ", DEAD)).await.0, 400);
    let elsewhere = "/api/v1/hosts/nobody/actions/recover";
    assert_eq!(send(elsewhere, wish("odd", "nobody")).await.0, 404);
    assert_eq!(
        service
            .send("POST", &path, Some(common::VIEWER), wish("odd", DEAD))
            .await
            .0,
        403
    );
    // Its agent falls silent, but its compute service reports on: nobody calls it dead.
    let guests = scene.guests_of_the_dead();
    scene.mute(DEAD);
    until("its agent is not heard any more", async || {
        let (_, host) = service.get(&format!("/api/v1/hosts/{DEAD}")).await;
        (host["signals"][0]["verdict"] == "dead").then_some(())
    })
    .await;
    assert_eq!(incident(&service).await, None);
    assert_eq!(send(&path, wish("its guests hang", "wrong")).await.0, 409);
    let (code, opened) = send(&path, wish("its guests hang", DEAD)).await;
    assert_eq!(code, 200, "{opened}");
    assert_eq!(opened["type"], "operator-requested", "{opened}");
    assert!(
        opened.to_string().contains("operator/olga: its guests hang"),
        "{opened}"
    );
    assert_eq!(
        send(&path, wish("again", DEAD)).await.0,
        409,
        "one incident is enough"
    );
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert!(scene.settled(&guests));
    let off = scene.world.read(|state| {
        let (_, host) = state
            .hosts
            .iter()
            .find(|(host, _)| host.as_str() == DEAD)
            .unwrap();
        host.power == Power::Off
    });
    assert!(off, "it was switched off first");
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_dies_in_the_middle_goes_on_and_asks_for_nothing_twice() {
    let scene = Scene::new(5, 4).await;
    let config = scene.config(ALONE);
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    let guests = scene.guests_of_the_dead();
    scene.world.power_off(DEAD).unwrap();
    until("the first guest was asked for", async || {
        (!scene.evacuations().is_empty()).then_some(())
    })
    .await;
    scene.forget(&service);
    service.kill().await;

    let service = scene.start(&config, None).await;
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert!(scene.settled(&guests));
    let asked = scene.evacuations();
    assert_eq!(asked.len(), 4);
    assert!(asked.values().all(|count| *count == 1), "{asked:?}");
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_device_does_not_answer_is_held_until_a_person_signs() {
    let scene = Scene::new(5, 2).await;
    let config = scene.config(ALONE);
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    scene.bmcs.set(DEAD, bmc::Trouble::Errors);
    let guests = scene.guests_of_the_dead();
    scene.world.power_off(DEAD).unwrap();
    let found = until("the incident is held because fencing failed", async || {
        let found = incident(&service).await?;
        (found["held"] == "FenceFailed").then_some(found)
    })
    .await;
    assert!(scene.evacuations().is_empty(), "no fence, no move");
    let id = found["id"].as_str().unwrap();
    let act = format!("/api/v1/incidents/{id}/actions/ack-fenced");
    let wish = |confirm: &str| Some(json!({"reason": "I pulled the plug", "confirm": confirm}));
    assert_eq!(
        service.send("POST", &act, Some(OPERATOR), wish("wrong")).await.0,
        409
    );
    assert!(scene.evacuations().is_empty());
    let (code, answer) = service.send("POST", &act, Some(OPERATOR), wish(DEAD)).await;
    assert_eq!(code, 200, "{answer}");
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert!(scene.settled(&guests));
    scene.check();
    let (_, audit) = service.get("/api/v1/audit").await;
    let text = audit.to_string();
    assert!(text.contains("ack-fenced") && text.contains("refused"), "{text}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_what_has_not_begun() {
    let scene = Scene::new(4, 1).await;
    let config = scene.config(ALONE);
    let service = scene.start(&config, None).await;
    scene.heard(&service).await;
    let until_when = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_hours(1))
        .unwrap();
    let pause = Some(json!({"reason": "planned work", "until": until_when}));
    let (code, _) = service
        .send("PUT", "/api/v1/pauses/global", Some(OPERATOR), pause)
        .await;
    assert_eq!(code, 200);
    scene.world.power_off(DEAD).unwrap();
    let found = until("the incident waits for the pause", async || {
        let found = incident(&service).await?;
        (found["held"] == "Paused").then_some(found)
    })
    .await;
    assert_eq!(found["state"], "Confirmed", "{found}");
    assert!(scene.evacuations().is_empty());
    let (code, _) = service
        .send("DELETE", "/api/v1/pauses/global", Some(OPERATOR), None)
        .await;
    assert_eq!(code, 200);
    until_state(&service, &["Recovered"]).await;
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_acts_and_the_other_goes_on_when_it_dies() {
    let scene = Scene::new(5, 4).await;
    let server = in_a_cluster(&scene).await;
    let lease = "leader: {replicas: 1, lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms}\n";
    let other = tempfile::tempdir().unwrap();
    let config = scene.config(lease);
    let second_config = config.replacen(
        &format!("storage: {{path: '{}'}}", scene.folder.path().display()),
        &format!("storage: {{path: '{}'}}", other.path().display()),
        1,
    );
    assert_ne!(config, second_config);
    let leads = |service: &Running| service.telemetry.encode().contains("kvm_ha_leader 1");
    let first = scene.start(&config, Some(server.client())).await;
    until("the first leads", async || leads(&first).then_some(())).await;
    let second = scene.start(&second_config, Some(server.client())).await;
    scene.heard(&first).await;
    scene.heard(&second).await;
    let guests = scene.guests_of_the_dead();
    scene.world.power_off(DEAD).unwrap();
    until("the first guest was asked for", async || {
        (!scene.evacuations().is_empty()).then_some(())
    })
    .await;
    assert!(leads(&first) && !leads(&second), "one acts");
    scene.forget(&first);
    first.kill().await;

    let found = until_state(&second, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert!(leads(&second));
    assert!(scene.settled(&guests));
    let asked = scene.evacuations();
    assert_eq!(asked.len(), 4);
    assert!(asked.values().all(|count| *count == 1), "{asked:?}");
    scene.check();
    let objects: Api<Hypervisor> = Api::all(server.client());
    let dead = objects.get(DEAD).await.unwrap();
    assert_eq!(
        dead.spec.maintenance,
        cobaltcore_api::Maintenance::Ha,
        "it stays claimed until a person releases it"
    );
    shown_as_an_object(&server, &found).await;
    second.stop().await;
}

/// The incident is an object in the cluster, as whoever led last left it.
async fn shown_as_an_object(server: &TestServer, incident: &Value) {
    let objects: Api<HaIncident> = Api::all(server.client());
    let name = incident["id"].as_str().unwrap();
    let object = until("the object says that all is well", async || {
        let object = objects.get_opt(name).await.unwrap()?;
        let state = object.status.as_ref()?.state.clone()?;
        (state == HaIncidentState::Recovered).then_some(object)
    })
    .await;
    assert_eq!(object.spec.host, DEAD);
    assert_eq!(object.metadata.owner_references, None);
    let label = object.metadata.labels.unwrap_or_default();
    assert_eq!(
        label.get("kvm.cloud.sap/hypervisor").map(String::as_str),
        Some(DEAD)
    );
    let status = object.status.unwrap();
    let leases: Api<Lease> = Api::all(server.client());
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    let lease = leases.iter().find(|lease| lease.name_any() == "kvm-ha-service");
    let transitions = lease.and_then(|lease| lease.spec.as_ref()?.lease_transitions);
    assert_eq!(
        status.epoch,
        transitions.map(i64::from),
        "the number of a term is the lease's"
    );
    assert_eq!(status.summary.unwrap().done, "4/4");
    assert_eq!(
        status.fence.first().map(|fence| fence.grade.as_str()),
        Some("power")
    );
    assert!(
        status
            .vms
            .iter()
            .all(|vm| vm.state == "Recovered" && !vm.destination.is_empty())
    );
    let done = |key: &str| {
        status
            .steps
            .iter()
            .any(|step| step.key == key && step.result == "done")
    };
    assert!(
        done("claim") && done("nova-force-down") && done("plan"),
        "{:?}",
        status.steps
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_compare_forward_and_go_on_without_their_leader() {
    let scene = Scene::new(5, 4).await;
    let server = in_a_cluster(&scene).await;
    let token = scene.folder.path().join("peer-token");
    std::fs::write(&token, "token-of-replicas").unwrap();
    let at: [String; 3] = addresses().await;
    let folders: Vec<tempfile::TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let own = scene.folder.path().display().to_string();
    let mut replicas = Vec::new();
    for (n, folder) in folders.iter().enumerate() {
        let leader = format!(
            "leader: {{lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms, ordinal: {n}, \
             peers: ['http://{}', 'http://{}', 'http://{}'], peer_token_file: '{}'}}\n",
            at[0],
            at[1],
            at[2],
            token.display()
        );
        let config = scene
            .config(&leader)
            .replacen(
                &format!("storage: {{path: '{own}'}}"),
                &format!("storage: {{path: '{}'}}", folder.path().display()),
                1,
            )
            .replacen("listen: '127.0.0.1:0'", &format!("listen: '{}'", at[n]), 1);
        replicas.push(scene.start(&config, Some(server.client())).await);
    }
    let leads = |service: &Running| service.telemetry.encode().contains("kvm_ha_leader 1");
    until("one of them leads", async || {
        (replicas.iter().filter(|replica| leads(replica)).count() == 1).then_some(())
    })
    .await;
    for replica in &replicas {
        scene.heard(replica).await;
    }
    let guests = scene.guests_of_the_dead();
    scene.world.power_off(DEAD).unwrap();
    until("the first guest was asked for", async || {
        (!scene.evacuations().is_empty()).then_some(())
    })
    .await;
    let n = replicas.iter().position(leads).expect("a leader");
    let leader = replicas.remove(n);
    // A person who asks one that only follows is answered by the one that leads.
    let follower = &replicas[0];
    assert!(!leads(follower));
    let found = until("a follower tells of the incident", async || {
        incident(follower).await
    })
    .await;
    let (_, host) = follower.get(&format!("/api/v1/hosts/{DEAD}")).await;
    assert_eq!(host["state"], "incident", "as whoever leads sees it: {host}");
    let act = format!(
        "/api/v1/incidents/{}/actions/close",
        found["id"].as_str().unwrap()
    );
    let wish = Some(json!({"reason": "too early", "confirm": DEAD}));
    let (code, refused) = follower.send("POST", &act, Some(OPERATOR), wish).await;
    assert_eq!(code, 409, "{refused}");
    let (_, audit) = leader.get("/api/v1/audit").await;
    assert!(
        audit.to_string().contains("too early"),
        "whoever leads decided: {audit}"
    );
    scene.forget(&leader);
    leader.kill().await;

    let found = until_state(&replicas[1], &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert_eq!(replicas.iter().filter(|replica| leads(replica)).count(), 1);
    assert!(scene.settled(&guests));
    let asked = scene.evacuations();
    assert_eq!(asked.len(), 4);
    assert!(asked.values().all(|count| *count == 1), "{asked:?}");
    until("no guest is locked any more", async || {
        (scene.locked() == 0).then_some(())
    })
    .await;
    scene.check();
    for replica in replicas {
        replica.stop().await;
    }
}
