// SPDX-License-Identifier: Apache-2.0
//! Scenarios of acceptance that are about one thing each, from end to end: the order of a recovery,
//! who gets the room there is, a host is taken back, metrics are pulled, a verdict is explained.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use cobaltcore_api::{Hypervisor, Maintenance};
use cobaltcore_openstack::nova::ServiceUpdate;
use cobaltcore_openstack::{ServerId, ServiceId};
use cobaltcore_sim::world::{Inventory, MigrationKind, MigrationStatus, Power};
use cobaltcore_sim::{Cloud, World};
use common::scene::{DEAD, Scene, in_a_cluster, until_state};
use common::{ALONE, OPERATOR, Running, base, session, until};
use kube::api::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

const LEASE: &str = "leader: {replicas: 1, lease_duration: 12s, renew_deadline: 10s, retry_period: 500ms}\n";

// --- the whole way

/// Given a host with five guests that run and one that is stopped; when it loses power, then, in this
/// order: its object is claimed, its power verified, its service changed by one call, the condition
/// written, its guests listed, and six evacuations. Five run, one is stopped, and it stays claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lost_power_is_recovered_in_the_one_order_that_is_safe() {
    let scene = Scene::new(5, 6).await;
    let server = in_a_cluster(&scene).await;
    let objects: Api<Hypervisor> = Api::all(server.client());
    let guests = scene.guests_of_the_dead();
    let stopped = guests[0];
    let owner = session(&scene.cloud, scene.folder.path()).nova();
    owner
        .stop(&ServerId::from(stopped.to_string().as_str()))
        .await
        .unwrap();
    until("one guest is stopped", async || {
        let status = scene.world.read(|state| state.servers[&stopped].status());
        (status == "SHUTOFF").then_some(())
    })
    .await;
    let service = scene.start(&scene.config(LEASE), Some(server.client())).await;
    scene.heard(&service).await;
    scene.world.power_off(DEAD).unwrap();
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert_eq!(found["guests"]["recovered"], 6, "{found}");

    let (_, detail) = service
        .get(&format!("/api/v1/incidents/{}", found["id"].as_str().unwrap()))
        .await;
    let entries: Vec<String> = detail["journal"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["entry"].as_str().unwrap().to_owned())
        .collect();
    let place = |wanted: &str| entries.iter().position(|entry| entry == wanted);
    let order = [
        "opened",
        "claimed",
        "fenced",
        "held",
        "forced-down",
        "condition-set",
        "planned",
        "evacuate-intended",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|wanted| place(wanted).unwrap_or_else(|| panic!("{wanted} is in {entries:?}")))
        .collect();
    assert!(places.is_sorted(), "{entries:?}");
    let calls = scene.cloud.calls().writes();
    let changes: Vec<_> = calls
        .iter()
        .filter(|call| call.path.contains("os-services"))
        .collect();
    assert_eq!(changes.len(), 1, "{changes:?}");
    let change: Value = serde_json::from_str(&changes[0].body).unwrap();
    assert_eq!(
        (&change["status"], &change["forced_down"]),
        (&json!("disabled"), &json!(true))
    );
    assert_eq!(scene.asked("\"evacuate\""), 6);
    // As Nova has seen it, and not only as it was written down.
    let place = |word: &str| {
        calls
            .iter()
            .position(|call| call.path.contains(word) || call.body.contains(word))
    };
    assert!(place("os-services") < place("\"evacuate\""), "{calls:?}");
    let states: Vec<String> = scene.world.read(|state| {
        guests
            .iter()
            .map(|id| state.servers[id].status().to_owned())
            .collect()
    });
    assert_eq!(states[0], "SHUTOFF");
    assert!(states[1..].iter().all(|status| status == "ACTIVE"), "{states:?}");
    assert_eq!(maintenance(&objects).await, Maintenance::Ha);
    let conditions = objects.get(DEAD).await.unwrap().status.unwrap().conditions;
    assert!(
        conditions
            .iter()
            .any(|one| one.type_ == "HypervisorDisabled" && one.status == "True"),
        "{conditions:?}"
    );
    until("the object says how far the recovery is", async || {
        let conditions = objects.get(DEAD).await.unwrap().status?.conditions;
        let said = conditions.iter().find(|one| one.type_ == "HaRecovery")?;
        (said.status == "True" && said.reason == "Recovered").then_some(())
    })
    .await;
    scene.check();
    service.stop().await;
}

// --- priorities

/// Given guests with priority 900, 500 and 100, and room for two; the first two are back, the third
/// found no host and may be tried again.
#[tokio::test(flavor = "multi_thread")]
async fn the_most_important_guests_get_the_room_there_is() {
    let scene = Scene::new(4, 3).await;
    let guests = scene.guests_of_the_dead();
    let only = scene.world.change(|state| {
        let mut room = 0;
        for (guest, priority) in guests.iter().zip([100, 900, 500]) {
            let server = state.servers.get_mut(guest).unwrap();
            let key = "cobaltcore:ha_priority".to_owned();
            server.metadata.insert(key, priority.to_string());
            if priority > 100 {
                room += server.flavor.ram_mb;
            }
        }
        let mut others = state.hosts.iter_mut().filter(|(name, _)| name.as_str() != DEAD);
        let (_, only) = others.next().unwrap();
        let node = only.node_uuid;
        for (_, host) in others {
            host.service.as_mut().unwrap().disabled = true;
        }
        let provider = state.placement.providers.get_mut(&node).unwrap();
        let used = provider.used.get("MEMORY_MB").copied().unwrap_or_default();
        provider
            .inventories
            .insert("MEMORY_MB".into(), Inventory::of(used + room, 0, 1.0));
        node
    });
    let more = format!("{ALONE}recovery: {{vm_attempts: 2, backoff: 1s}}\n");
    let service = scene.start(&scene.config(&more), None).await;
    scene.heard(&service).await;
    scene.world.power_off(DEAD).unwrap();
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Failed", "{found}");
    let (_, detail) = service
        .get(&format!("/api/v1/incidents/{}", found["id"].as_str().unwrap()))
        .await;
    let vms = detail["vms"].as_array().unwrap();
    let shown: Vec<String> = vms
        .iter()
        .map(|vm| format!("{} {}", vm["priority"], vm["progress"]))
        .collect();
    let of = |priority: u64| {
        vms.iter()
            .find(|vm| vm["priority"] == priority)
            .unwrap()
            .to_string()
    };
    assert!(
        of(900).contains("recovered") && of(500).contains("recovered"),
        "{shown:?}"
    );
    assert!(
        of(100).contains("NoValidHost") || of(100).contains("no-valid-host"),
        "{shown:?}"
    );
    let actions = detail["actions"].as_array().unwrap();
    assert!(actions.contains(&json!("retry")), "{actions:?}");

    // Somebody makes room, and tries again.
    scene.world.change(|state| {
        let provider = state.placement.providers.get_mut(&only).unwrap();
        provider
            .inventories
            .insert("MEMORY_MB".into(), Inventory::of(1 << 30, 0, 1.0));
    });
    let act = format!(
        "/api/v1/incidents/{}/actions/retry",
        found["id"].as_str().unwrap()
    );
    let wish = Some(json!({"reason": "there is room now", "confirm": DEAD}));
    let (code, taken) = service.send("POST", &act, Some(OPERATOR), wish).await;
    assert_eq!(code, 200, "{taken}");
    until_state(&service, &["Recovered"]).await;
    scene.check();
    service.stop().await;
}

// --- release

/// How many evacuations from the dead host its nova-compute has not cleaned up after.
fn not_cleaned_up(scene: &Scene) -> usize {
    scene.world.read(|state| {
        state
            .migrations
            .values()
            .filter(|one| one.kind == MigrationKind::Evacuation && one.status == MigrationStatus::Done)
            .count()
    })
}

async fn maintenance(objects: &Api<Hypervisor>) -> Maintenance {
    objects.get(DEAD).await.unwrap().spec.maintenance
}

/// Given a host whose guests were moved; when it is released, it gets power; while Nova has a `done`
/// record its maintenance stays `ha`; after nova-compute started it is cleared, and what the operator
/// asks Nova then works at the first try.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_host_is_given_back_only_when_nova_will_have_it() {
    let scene = Scene::new(5, 2).await;
    let server = in_a_cluster(&scene).await;
    let objects: Api<Hypervisor> = Api::all(server.client());
    let service = scene.start(&scene.config(LEASE), Some(server.client())).await;
    scene.heard(&service).await;
    scene.world.power_off(DEAD).unwrap();
    let found = until_state(&service, &["Recovered", "Failed"]).await;
    assert_eq!(found["state"], "Recovered", "{found}");
    assert_eq!(maintenance(&objects).await, Maintenance::Ha);
    // Its nova-compute will not start by itself.
    scene.world.stop_compute(DEAD).unwrap();

    let act = format!(
        "/api/v1/incidents/{}/actions/release",
        found["id"].as_str().unwrap()
    );
    let wish = Some(json!({"reason": "repaired", "confirm": DEAD}));
    let (code, taken) = service.send("POST", &act, Some(OPERATOR), wish).await;
    assert_eq!(code, 200, "{taken}");
    until("it has power, and its agent reports a new boot", async || {
        let on = scene.world.read(|state| state.hosts[DEAD].power == Power::On);
        let (_, host) = service.get(&format!("/api/v1/hosts/{DEAD}")).await;
        (on && host["signals"][0]["verdict"] == "alive").then_some(())
    })
    .await;

    // Nova refuses what the operator would ask now, so nobody lets the operator ask.
    let nova = session(&scene.cloud, scene.folder.path()).nova();
    let id = scene
        .world
        .read(|state| state.hosts[DEAD].service.as_ref().unwrap().uuid);
    let id = ServiceId::from(id.to_string().as_str());
    let enable = || ServiceUpdate::enable().forced_down(false);
    let refused = nova.update_service(&id, &enable()).await.unwrap_err();
    assert!(refused.to_string().contains("400"), "{refused}");
    for _ in 0..50 {
        assert_eq!(not_cleaned_up(&scene), 2);
        assert_eq!(maintenance(&objects).await, Maintenance::Ha);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(until_state(&service, &["Releasing"]).await["state"], "Releasing");

    scene.world.start_compute(DEAD).unwrap();
    until("its maintenance is cleared", async || {
        (maintenance(&objects).await == Maintenance::Off).then_some(())
    })
    .await;
    assert_eq!(not_cleaned_up(&scene), 0);
    nova.update_service(&id, &enable())
        .await
        .expect("the operator's first try");
    until_state(&service, &["Released"]).await;
    scene.check();
    service.stop().await;
}

// --- pull

/// An exporter whose text a test chooses.
struct Exporter {
    text: Arc<Mutex<String>>,
    port: u16,
    _server: AbortOnDropHandle<()>,
}

impl Exporter {
    async fn start(text: &str) -> Self {
        let text = Arc::new(Mutex::new(text.to_owned()));
        let shown = Arc::clone(&text);
        let app = Router::new().route("/{host}/metrics", get(async move || shown.lock().clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            text,
            port,
            _server: AbortOnDropHandle::new(server),
        }
    }
}

/// What storage says of a host.
async fn storage_says(service: &Running) -> Value {
    let (_, host) = service.get(&format!("/api/v1/hosts/{DEAD}")).await;
    let signal = host["signals"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["group"] == "S"));
    signal.map_or(Value::Null, |signal| signal["verdict"].clone())
}

/// The latest value of a series that is kept.
fn kept(folder: &std::path::Path, series: &str) -> Option<f64> {
    let database = rusqlite::Connection::open(folder.join("telemetry.db")).ok()?;
    let query = "select value from samples where host = ?1 and series like ?2 order by ts desc limit 1";
    database
        .query_row(query, (DEAD, format!("%{series}%")), |row| row.get(0))
        .ok()
}

/// Given an exporter whose text has escapes, NaN and timestamps; it is read. When its second half
/// breaks, the whole scrape fails: `up` is 0 and the verdict before it grows old and is Unknown.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_pulled_as_a_whole_or_not_at_all() {
    let good = concat!(
        "# HELP rbd_watchers Clients of the host.\n# TYPE rbd_watchers gauge\n",
        "rbd_watchers{pool=\"fast \\\"ssd\\\"\",path=\"a\\\\b\\nc\"} 2 1395066363000\n",
        "rbd_latency_seconds NaN\nrbd_limit +Inf\n",
    );
    let exporter = Exporter::start(good).await;
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::start(World::builder().hosts(2).build()).await.unwrap();
    let sources = format!(
        "sources:\n  pull:\n    - name: storage\n      kind: exposition\n      from: hypervisors\n      \
         url: 'http://127.0.0.1:{}/{{host}}/metrics'\n      interval: 1s\n      timeout: 1s\n      rules:\n        \
         - {{name: watched, group: S, verdict: alive, expr: 'rbd_watchers{{pool=~\"fast .ssd.\"}} >= 1'}}\n",
        exporter.port
    );
    let text = format!("{}{ALONE}{sources}", base(folder.path()));
    let service = Running::start(&text, Some(session(&cloud, folder.path())), None).await;
    let up = async || service.figures().await.of("kvm_ha_pull_up", "source=\"storage\"");
    until("the storage speaks for the host", async || {
        (storage_says(&service).await == "alive").then_some(())
    })
    .await;
    until("what was read is kept", async || {
        let both =
            kept(folder.path(), "/rbd_watchers") == Some(2.0) && kept(folder.path(), "/up") == Some(1.0);
        (both && up().await == 1.0).then_some(())
    })
    .await;

    // The first half still says that the host lives.
    *exporter.text.lock() = format!("{good}rbd_more{{pool=\"torn}} 1\n");
    until("the scrape has failed", async || {
        (up().await == 0.0 && kept(folder.path(), "/up") == Some(0.0)).then_some(())
    })
    .await;
    until("what it said before is too old to count", async || {
        (storage_says(&service).await == "unknown").then_some(())
    })
    .await;
    *exporter.text.lock() = good.to_owned();
    until("a good scrape is believed again", async || {
        (storage_says(&service).await == "alive" && up().await == 1.0).then_some(())
    })
    .await;
    service.stop().await;
}

// --- explain

/// Given a host whose agent alone fell silent; while it is suspected, its evidence names every group
/// with its age and verdict, and the rule that keeps it from being taken for dead.
#[tokio::test(flavor = "multi_thread")]
async fn the_evidence_of_a_suspect_names_every_group_and_the_rule_that_blocks() {
    let scene = Scene::new(4, 1).await;
    let service = scene.start(&scene.config(ALONE), None).await;
    scene.heard(&service).await;
    scene.mute(DEAD);
    let evidence = until("it is suspected, and its agent counts as dead", async || {
        let (code, evidence) = service.get(&format!("/api/v1/hosts/{DEAD}/evidence")).await;
        let told = evidence["suspect"] == true
            && evidence["signals"][0]["verdict"] == "dead"
            && evidence["signals"][1]["verdict"] == "alive";
        (code == 200 && told).then_some(evidence)
    })
    .await;
    let signals = evidence["signals"].as_array().unwrap();
    let groups: Vec<&str> = signals.iter().map(|one| one["group"].as_str().unwrap()).collect();
    assert_eq!(groups, ["A", "N", "K", "P", "Q", "M", "S", "B", "W"]);
    for signal in signals {
        assert!(signal["verdict"].is_string(), "{signal}");
        assert!(!signal["says"].as_str().unwrap().is_empty(), "{signal}");
    }
    assert!(signals[0]["age_ms"].as_u64().unwrap() > 4000, "{}", signals[0]);
    assert!(signals[1]["age_ms"].is_u64(), "{}", signals[1]);
    assert_eq!(signals[2]["age_ms"], Value::Null, "there are no leases here");
    let blocking = evidence["blocked_by"].as_str().unwrap();
    assert!(
        blocking.starts_with("no sign of life: life is seen by N"),
        "{blocking}"
    );
    let rules = evidence["rules"].as_array().unwrap();
    let rule = |name: &str| rules.iter().find(|rule| rule["rule"] == name).unwrap();
    assert_eq!(rule("no sign of life")["passed"], false);
    assert_eq!(rule("enough independent groups")["passed"], false);
    assert!(
        rule("enough independent groups")["because"]
            .as_str()
            .unwrap()
            .contains("1 of 2")
    );
    assert!(!evidence["summary"].as_str().unwrap().is_empty());
    assert!(scene.evacuations().is_empty());
    scene.check();
    service.stop().await;
}
