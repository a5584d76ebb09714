// SPDX-License-Identifier: Apache-2.0
//! The service in a cluster: which hosts it says are covered, with the rights its manifests give it;
//! the lease; pauses that every replica sees; certificates of agents.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cobaltcore_api::{Hypervisor, Maintenance};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_wire::Kind;
use common::scene::{DEAD, Scene, Silence, in_a_cluster, incident, until_state};
use common::{AGENT, Agent, OPERATOR, Running, SENDER, VIEWER, addresses, base, until};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const QUICK: &str = "openstack: {enabled: false}\nleader: {replicas: 1, lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms}\n";

async fn install(server: &TestServer) {
    server.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    for namespace in ["kube-node-lease", "cobaltcore"] {
        let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        server.apply_yaml(&text).await.unwrap();
    }
}

async fn hypervisor(client: &kube::Client, name: &str, spec: Value, conditions: Value) {
    let api: Api<Hypervisor> = Api::all(client.clone());
    let object = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name}, "spec": spec,
    });
    let object: Hypervisor = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    say(client, name, conditions).await;
}

async fn say(client: &kube::Client, name: &str, conditions: Value) {
    let api: Api<Hypervisor> = Api::all(client.clone());
    let conditions: Vec<Value> = conditions
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            let mut condition = condition.clone();
            condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
            condition["message"] = json!("");
            condition
        })
        .collect();
    let status = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "status": {"conditions": conditions},
    });
    api.patch_status(
        name,
        &PatchParams::apply("operator").force(),
        &Patch::Apply(status),
    )
    .await
    .unwrap();
}

async fn said(client: &kube::Client, name: &str) -> Option<(String, String, String)> {
    let api: Api<Hypervisor> = Api::all(client.clone());
    let found = api.get(name).await.ok()?;
    let conditions = found.status?.conditions;
    let condition = conditions.into_iter().find(|c| c.type_ == "HaEnabled")?;
    Some((condition.status, condition.reason, condition.message))
}

async fn until_said(client: &kube::Client, name: &str, wanted: (&str, &str, &str)) {
    until(&format!("{name} says {wanted:?}"), async || {
        let (status, reason, message) = said(client, name).await?;
        ((status.as_str(), reason.as_str(), message.as_str()) == wanted).then_some(())
    })
    .await;
}

const PROVEN: &str = r#"[{"type": "Onboarding", "status": "False", "reason": "Succeeded"}]"#;

fn proven() -> Value {
    serde_json::from_str(PROVEN).unwrap()
}

/// Gives the service the rights of its manifests, after `change`.
async fn grant(server: &TestServer, change: impl Fn(&str) -> String) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../deploy");
    for file in [
        "ha-service/service-account.yaml",
        "ha-service/rbac.yaml",
        "ha-service/namespaced-rbac.yaml",
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        server.apply_yaml(&change(&text)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_covered_as_the_table_says_with_the_rights_of_the_manifests() {
    let server = TestServer::start_with_rbac().await;
    install(&server).await;
    grant(&server, str::to_owned).await;
    let data = tempfile::tempdir().unwrap();
    let text =
        format!("{}{QUICK}", base(data.path())).replace("leader: {", "leader: {namespace: cobaltcore, ");
    let own = server.client_for_service_account("cobaltcore", "kvm-ha-service");
    let service = Running::start(&text, None, Some(own)).await;
    let client = server.client();
    let on = json!({"highAvailability": true});
    hypervisor(&client, "proven", on.clone(), proven()).await;
    hypervisor(&client, "unwanted", json!({"highAvailability": false}), proven()).await;
    hypervisor(
        &client,
        "handover",
        on.clone(),
        json!([{"type": "Onboarding", "status": "True", "reason": "Handover"}]),
    )
    .await;
    hypervisor(
        &client,
        "testing",
        on.clone(),
        json!([{"type": "Onboarding", "status": "True", "reason": "Testing"}]),
    )
    .await;
    hypervisor(
        &client,
        "aborted",
        on.clone(),
        json!([{"type": "Onboarding", "status": "False", "reason": "Aborted"}]),
    )
    .await;
    hypervisor(
        &client,
        "empty",
        on.clone(),
        json!([
            {"type": "Onboarding", "status": "False", "reason": "Succeeded"},
            {"type": "Evicting", "status": "False", "reason": "Succeeded"},
        ]),
    )
    .await;
    hypervisor(&client, "new", on, json!([])).await;
    until_said(&client, "proven", ("True", "Succeeded", "HA is enabled")).await;
    until_said(&client, "handover", ("True", "Succeeded", "HA is enabled")).await;
    until_said(
        &client,
        "unwanted",
        ("False", "Succeeded", "HA disabled per spec"),
    )
    .await;
    until_said(
        &client,
        "testing",
        ("False", "Onboarding", "HA disabled before onboarding"),
    )
    .await;
    until_said(
        &client,
        "aborted",
        ("False", "Onboarding", "HA disabled before onboarding"),
    )
    .await;
    until_said(
        &client,
        "empty",
        ("False", "Evicted", "HA disabled due to eviction"),
    )
    .await;
    assert_eq!(
        said(&client, "new").await,
        None,
        "nothing before onboarding began"
    );
    // Once said, nothing is written again.
    let hypervisors = || {
        server
            .writes()
            .iter()
            .filter(|write| write.resource.starts_with("hypervisors"))
            .count()
    };
    until(
        "three seconds in which unchanged inputs are not written again",
        async || {
            let before = hypervisors();
            tokio::time::sleep(Duration::from_secs(3)).await;
            (hypervisors() == before).then_some(())
        },
    )
    .await;
    // A change is answered.
    say(
        &client,
        "testing",
        json!([{"type": "Onboarding", "status": "True", "reason": "Handover"}]),
    )
    .await;
    until_said(&client, "testing", ("True", "Succeeded", "HA is enabled")).await;
    until("the API tells the same", async || {
        let (_, host) = service.get("/api/v1/hosts/proven").await;
        (host["ha_enabled"] == true && host["state"] == "healthy").then_some(())
    })
    .await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_could_not_be_protected_says_why() {
    let server = TestServer::start().await;
    install(&server).await;
    let data = tempfile::tempdir().unwrap();
    let text = format!("{}{QUICK}ha_gate: agent\n", base(data.path()));
    let client = server.client();
    let service = Running::start(&text, None, Some(server.client())).await;
    hypervisor(&client, "n1", json!({"highAvailability": true}), proven()).await;
    until_said(
        &client,
        "n1",
        (
            "Unknown",
            "Failed",
            "no heartbeat of its HA agent; is it running, and may it speak for this host?",
        ),
    )
    .await;
    let agent = parking_lot::Mutex::new(Agent::new("n1"));
    until("its agent is heard and it is covered", async || {
        let (beat, speaker) = {
            let mut agent = agent.lock();
            (agent.beat(), agent.clone())
        };
        speaker.report(&service, &beat).await;
        let (status, ..) = said(&client, "n1").await?;
        (status == "True").then_some(())
    })
    .await;
    service.stop().await;
}

/// A host is covered for the case that it dies. Its recovery may have to wait, here for the end of a pause, and whoever leads
/// then may never have heard it.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_died_stays_covered_until_it_is_recovered() {
    let scene = Scene::new(5, 2).await;
    let server = in_a_cluster(&scene).await;
    let client = server.client();
    // By this its device is known to whoever never heard its agent.
    let serial = scene.world.read(|state| state.hosts[DEAD].node_uuid.to_string());
    let status = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {"operatingSystem": {"hardwareSerial": serial}},
    });
    Api::<Hypervisor>::all(client.clone())
        .patch_status(DEAD, &PatchParams::apply("kvm-node-agent"), &Patch::Apply(status))
        .await
        .unwrap();
    let lease = "leader: {replicas: 1, lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms}\n";
    let config = scene.config(&format!("{lease}ha_gate: agent+fence\n"));
    let first = scene.start(&config, Some(server.client())).await;
    scene.heard(&first).await;
    let on = ("True", "Succeeded", "HA is enabled");
    until_said(&client, DEAD, on).await;
    let until_when = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_hours(1))
        .unwrap();
    let pause = Some(json!({"reason": "planned work", "until": until_when}));
    let (code, answer) = first
        .send("PUT", "/api/v1/pauses/global", Some(OPERATOR), pause)
        .await;
    assert_eq!(code, 200, "{answer}");
    scene.world.power_off(DEAD).unwrap();
    let stays_covered = async |service: &Running| {
        // Longer than twice agents.silent_after, after which nobody is taken to be heard, and than a check takes.
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (status, _, message) = said(&client, DEAD).await.unwrap();
            assert_eq!(status, "True", "{message}");
        }
        let (_, host) = service.get(&format!("/api/v1/hosts/{DEAD}")).await;
        assert_eq!(host["ha_enabled"], true, "{host}");
    };
    let paused = async |service: &Running| {
        until("its recovery waits for the end of the pause", async || {
            (incident(service).await?["held"] == "Paused").then_some(())
        })
        .await;
    };
    paused(&first).await;
    stays_covered(&first).await;
    // One that knows nothing but what the cluster has.
    scene.forget(&first);
    first.kill().await;
    let other = tempfile::tempdir().unwrap();
    let second = scene
        .start(
            &config.replacen(
                &format!("storage: {{path: '{}'}}", scene.folder.path().display()),
                &format!("storage: {{path: '{}'}}", other.path().display()),
                1,
            ),
            Some(server.client()),
        )
        .await;
    until("the second leads", async || leads(&second).then_some(())).await;
    stays_covered(&second).await;
    paused(&second).await;
    let (code, answer) = second
        .send("DELETE", "/api/v1/pauses/global", Some(OPERATOR), None)
        .await;
    assert_eq!(code, 200, "{answer}");
    let found = until_state(&second, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    scene.check();
    second.stop().await;
}

/// Whatever way an incident ends: given back by a process that died before it could say so, or closed by a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_is_over_is_not_said_to_go_on() {
    const OTHER: &str = "node002-bb1";
    let scene = Scene::new(5, 2).await;
    let server = in_a_cluster(&scene).await;
    let objects: Api<Hypervisor> = Api::all(server.client());
    let left = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {"conditions": [{
            "type": "HaRecovery", "status": "True", "reason": "Releasing", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    objects
        .patch_status(
            OTHER,
            &PatchParams::apply("kvm-ha-service").force(),
            &Patch::Apply(left),
        )
        .await
        .unwrap();
    let recovery = async |name: &str| {
        let conditions = objects.get(name).await.unwrap().status?.conditions;
        let found = conditions.into_iter().find(|one| one.type_ == "HaRecovery")?;
        Some((found.status, found.reason))
    };
    let until_said = async |name: &str, status: &str, reason: &str| {
        until(&format!("{name} says {status}, {reason}"), async || {
            let wanted = (status.to_owned(), reason.to_owned());
            (recovery(name).await? == wanted).then_some(())
        })
        .await;
    };
    let lease = "leader: {replicas: 1, lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms}\n";
    let service = scene.start(&scene.config(lease), Some(server.client())).await;
    scene.heard(&service).await;
    until_said(OTHER, "False", "Released").await;

    scene.world.power_off(DEAD).unwrap();
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    until_said(DEAD, "True", "Recovered").await;
    // Longer than a round.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let still = recovery(DEAD).await.unwrap();
    assert_eq!(still.0, "True", "its incident is open: {still:?}");
    let act = format!(
        "/api/v1/incidents/{}/actions/close",
        found["id"].as_str().unwrap()
    );
    let wish = Some(json!({"reason": "it goes to the scrap yard", "confirm": DEAD}));
    let (code, taken) = service.send("POST", &act, Some(OPERATOR), wish).await;
    assert_eq!(code, 200, "{taken}");
    until_said(DEAD, "False", "Released").await;
    let version = async || objects.get(OTHER).await.unwrap().metadata.resource_version;
    until("a round in which nothing is written again", async || {
        let before = version().await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        (version().await == before).then_some(())
    })
    .await;
    scene.check();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_leads_the_other_follows_and_takes_over() {
    let server = TestServer::start().await;
    install(&server).await;
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = |folder: &std::path::Path| format!("{}{QUICK}", base(folder));
    let first = Running::start(&text(one.path()), None, Some(server.client())).await;
    let leads = |service: &Running| service.telemetry.encode().contains("kvm_ha_leader 1");
    until("the first leads", async || leads(&first).then_some(())).await;
    let second = Running::start(&text(two.path()), None, Some(server.client())).await;
    // A pause that one took is in force at the other.
    let until_when = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_hours(1))
        .unwrap();
    let pause = Some(json!({"reason": "planned work", "until": until_when}));
    let (code, answer) = second
        .send("PUT", "/api/v1/pauses/zone/a", Some(OPERATOR), pause)
        .await;
    assert_eq!(code, 200, "{answer}");
    until("the first knows of the pause", async || {
        let (_, page) = first.get("/api/v1/pauses").await;
        (page["items"].as_array()?.len() == 1).then_some(())
    })
    .await;
    assert!(!leads(&second), "one leads");
    first.kill().await;
    until("the second leads", async || leads(&second).then_some(())).await;
    let (_, page) = second.get("/api/v1/pauses").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    second.stop().await;
}

/// A host with a lasting trouble is emptied by the operator, also if it could not be asked at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_memory_fails_is_emptied_where_that_is_wanted() {
    let server = TestServer::start_with_rbac().await;
    install(&server).await;
    let reads = "resources: [hypervisors]\n    verbs: [get, list, watch]";
    let writes = "resources: [hypervisors]\n    verbs: [get, list, watch, patch]";
    grant(&server, |text| text.replace(writes, reads)).await;
    let data = tempfile::tempdir().unwrap();
    let text = format!("{}{QUICK}degraded_action: drain\n", base(data.path()))
        .replace("leader: {", "leader: {namespace: cobaltcore, ");
    let own = server.client_for_service_account("cobaltcore", "kvm-ha-service");
    let service = Running::start(&text, None, Some(own)).await;
    let client = server.client();
    for name in ["n1", "n2"] {
        hypervisor(&client, name, json!({"highAvailability": true}), proven()).await;
    }
    until_said(&client, "n1", ("True", "Succeeded", "HA is enabled")).await;
    until("whoever leads knows the host", async || {
        let (code, _) = service.get("/api/v1/hosts/n1/evidence").await;
        (leads(&service) && code == 200).then_some(())
    })
    .await;
    let mut agent = Agent::new("n1");
    let beat = agent.beat();
    assert_eq!(agent.report(&service, &beat).await.0, 200);
    let mut batch = agent.events(1..=2);
    for event in &mut batch.events {
        event.kind = Kind::MemoryFailure;
        event.event = "fatal".into();
        event.detail = String::new();
    }
    assert_eq!(agent.report(&service, &batch).await.0, 200);
    until("the host is known to suffer", async || {
        let (_, host) = service.get("/api/v1/hosts/n1").await;
        (host["state"] == "degraded").then_some(())
    })
    .await;
    let objects: Api<Hypervisor> = Api::all(client.clone());
    let maintenance = async |name: &str| objects.get(name).await.unwrap().spec.maintenance;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(maintenance("n1").await.is_off(), "the service may not ask for it");
    grant(&server, str::to_owned).await;
    until("the operator is asked to empty it", async || {
        (maintenance("n1").await == Maintenance::Auto).then_some(())
    })
    .await;
    assert!(maintenance("n2").await.is_off(), "the others are left alone");
    service.stop().await;
}

const REPLICAS: &str = "token-of-replicas";

/// The configuration of one of three replicas, the last of which takes connections and never answers.
fn one_of_three(n: usize, at: &[String; 2], silent: &Silence, folder: &Path) -> String {
    let token = folder.join("peer-token");
    std::fs::write(&token, REPLICAS).unwrap();
    let leader = format!(
        "leader: {{lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms, ordinal: {n}, \
         peers: ['http://{}', 'http://{}', 'http://127.0.0.1:{}'], peer_token_file: '{}'}}\n",
        at[0],
        at[1],
        silent.port,
        token.display()
    );
    let text = format!("{}openstack: {{enabled: false}}\n{leader}", base(folder));
    text.replacen("listen: '127.0.0.1:0'", &format!("listen: '{}'", at[n]), 1)
}

fn leads(service: &Running) -> bool {
    service.telemetry.encode().contains("kvm_ha_leader 1")
}

/// Whoever leads judges by what it heard, and a sender reaches any of them.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_to_one_replica_is_known_to_all() {
    let server = TestServer::start().await;
    install(&server).await;
    let client = server.client();
    hypervisor(&client, "n1", json!({"highAvailability": true}), proven()).await;
    let (at, silent) = (addresses().await, Silence::new().await);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sources = "sources: {push: [{name: watchers, schema: generic, group: S, senders: [prom]}]}\n";
    let text = |n, folder: &Path| format!("{}{sources}", one_of_three(n, &at, &silent, folder));
    let leader = Running::start(&text(0, one.path()), None, Some(server.client())).await;
    until("the first leads", async || leads(&leader).then_some(())).await;
    let follower = Running::start(&text(1, two.path()), None, Some(server.client())).await;
    let storage = async || {
        let (code, host) = leader.get("/api/v1/hosts/n1").await;
        assert!(code == 200 || code == 404, "{host}");
        host["signals"][6]["verdict"].as_str().map(str::to_owned)
    };
    until("whoever leads knows the host", async || {
        (storage().await? == "unknown").then_some(())
    })
    .await;
    let item = |ttl: u32| {
        let now = jiff::Timestamp::now();
        json!({"items": [{"host": "n1", "signal": "rbd", "verdict": "alive", "observed_at": now, "ttl_s": ttl}]})
    };
    let begun = std::cell::Cell::new(std::time::Instant::now());
    until("a follower takes what is pushed", async || {
        begun.set(std::time::Instant::now());
        let (code, answer) = follower
            .send(
                "POST",
                "/api/v1/telemetry/watchers",
                Some(SENDER),
                Some(item(300)),
            )
            .await;
        assert_eq!(code, 200, "{answer}");
        (answer["accepted"] == 1).then_some(())
    })
    .await;
    let took = begun.get().elapsed();
    assert!(
        took < Duration::from_secs(3),
        "a sender does not wait for one that is gone: {took:?}"
    );
    assert!(!leads(&follower));
    until("whoever leads knows it", async || {
        (storage().await? == "alive").then_some(())
    })
    .await;
    // Nobody but a replica says what another heard.
    let path = "/internal/v1/telemetry/watchers";
    for (token, wanted) in [
        (None, 401),
        (Some(SENDER), 403),
        (Some(OPERATOR), 403),
        (Some(AGENT), 403),
        (Some(REPLICAS), 200),
    ] {
        let (code, answer) = leader.send("POST", path, token, Some(item(300))).await;
        assert_eq!(code, wanted, "{token:?}: {answer}");
    }
    follower.stop().await;
    leader.stop().await;
}

/// An operator from before May 2026 calls whichever replica it reaches.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_switched_off_is_off_for_every_replica_and_stays_so() {
    let server = TestServer::start().await;
    install(&server).await;
    let client = server.client();
    hypervisor(&client, "n1", json!({"highAvailability": true}), proven()).await;
    let (at, silent) = (addresses().await, Silence::new().await);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = async |n, folder: &Path| {
        let text = one_of_three(n, &at, &silent, folder);
        Running::start(&text, None, Some(server.client())).await
    };
    let first = start(0, one.path()).await;
    until("the first leads", async || leads(&first).then_some(())).await;
    let second = start(1, two.path()).await;
    let on = ("True", "Succeeded", "HA is enabled");
    let off = (
        "False",
        "Succeeded",
        "HA was switched off by a call of the operator",
    );
    until_said(&client, "n1", on).await;
    let switch = async |service: &Running, enabled: bool| {
        until("the host is known there", async || {
            let body = Some(json!({"enabled": enabled}));
            let (code, _) = service
                .send("POST", "/api/hypervisors/n1", Some(OPERATOR), body)
                .await;
            (code == 200).then_some(())
        })
        .await;
    };
    switch(&second, false).await;
    until_said(&client, "n1", off).await;
    first.kill().await;
    until("the second leads", async || leads(&second).then_some(())).await;
    // One that knows nothing but what the cluster has.
    let three = tempfile::tempdir().unwrap();
    let third = start(0, three.path()).await;
    second.kill().await;
    until("the third leads", async || leads(&third).then_some(())).await;
    until("it tells that the host is off", async || {
        let (_, host) = third.get("/api/hypervisors/n1").await;
        (host["enabled"] == false).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (status, ..) = said(&client, "n1").await.unwrap();
    assert_eq!(status, "False", "nobody switched it on");
    switch(&third, true).await;
    until_said(&client, "n1", on).await;
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_binds_an_agent_to_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.issue(&["localhost"], None);
    for (name, text) in [("ca.pem", &authority.pem), ("cert.pem", &cert), ("key.pem", &key)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "{}kubernetes: {{enabled: false}}\nleader: {{enabled: false}}\nopenstack: {{enabled: false}}\n",
        base(folder.path())
    )
    .replace(
        "server: {",
        &format!(
            "server: {{tls: {{cert_file: '{}', key_file: '{}', client_ca_file: '{}'}}, ",
            at("cert.pem"),
            at("key.pem"),
            at("ca.pem")
        ),
    )
    .replace("access:\n", "access:\n  agent_uri_prefix: spiffe://t/host/\n");
    let service = Running::start(&text, None, None).await;
    let url = |path: &str| format!("https://localhost:{}{path}", service.address.port());
    let caller = |identity: Option<(String, String)>| {
        cobaltcore_kit::startup::install_tls_provider();
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .resolve("localhost", service.address)
            .tls_certs_only([reqwest::Certificate::from_pem(authority.pem.as_bytes()).unwrap()]);
        if let Some((cert, key)) = identity {
            builder =
                builder.identity(reqwest::Identity::from_pem(format!("{cert}{key}").as_bytes()).unwrap());
        }
        builder.build().unwrap()
    };
    let n1 = caller(Some(authority.issue(&[], Some("spiffe://t/host/n1"))));
    let report = |client: &reqwest::Client, host: &str| {
        let mut agent = Agent::new(host);
        let body = agent.beat().encode().unwrap();
        let request = client.post(url(&agent.path())).body(body);
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(report(&n1, "n1").await, 200, "its own host");
    assert_eq!(report(&n1, "n2").await, 403, "another host");
    let nobody = caller(None);
    assert_eq!(report(&nobody, "n1").await, 401, "no certificate");
    // A person needs no certificate.
    let look = nobody.get(url("/api/v1/hosts")).bearer_auth(VIEWER);
    assert_eq!(look.send().await.unwrap().status().as_u16(), 200);
    let token = nobody
        .post(url(&Agent::new("n1").path()))
        .bearer_auth(AGENT)
        .body(Agent::new("n1").beat().encode().unwrap());
    assert_eq!(
        token.send().await.unwrap().status().as_u16(),
        200,
        "a token does as well"
    );
    // One that another authority signed is not even heard.
    let foreign = Authority::new();
    let stranger = caller(Some(foreign.issue(&[], Some("spiffe://t/host/n1"))));
    let mut agent = Agent::new("n1");
    let body = agent.beat().encode().unwrap();
    assert!(stranger.post(url(&agent.path())).body(body).send().await.is_err());
    service.stop().await;
}

struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    fn issue(&self, names: &[&str], uri: Option<&str>) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        if let Some(uri) = uri {
            params
                .subject_alt_names
                .push(rcgen::SanType::URI(uri.try_into().unwrap()));
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A replica that cannot read what the others decided is of no use to whoever asks it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_ready_once_it_knows_the_journal() {
    let is = async |service: &Running, check: &str, wanted: u16| {
        until(&format!("{check} is {wanted}"), async || {
            let url = format!("http://{}/{check}", service.metrics);
            let answer = common::client().get(url).send().await.unwrap();
            (answer.status() == wanted).then_some(())
        })
        .await;
    };
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{QUICK}", base(folder.path()));
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let lost = Running::start(&text, None, Some(nowhere.try_into().unwrap())).await;
    is(&lost, "readyz/database", 200).await;
    is(&lost, "readyz/journal", 500).await;
    // That is no reason to start it anew: its loop goes on.
    is(&lost, "healthz/loop-progress", 200).await;
    lost.kill().await;

    let server = TestServer::start().await;
    install(&server).await;
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = async |folder: &tempfile::TempDir| {
        let text = format!("{}{QUICK}", base(folder.path()));
        Running::start(&text, None, Some(server.client())).await
    };
    // One of them leads, the other follows; both are ready.
    let (first, second) = (start(&one).await, start(&two).await);
    is(&first, "readyz/journal", 200).await;
    is(&second, "readyz/journal", 200).await;
    first.kill().await;
    second.kill().await;
}
