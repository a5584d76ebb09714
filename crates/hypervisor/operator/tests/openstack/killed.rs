// SPDX-License-Identifier: Apache-2.0
//! The operator is killed a hundred times while it drains a host: a real process, a real signal,
//! at random moments. The eviction completes, every server moves exactly once, none is left out.

use std::process::Stdio;
use std::time::Duration;

use cobaltcore_apiserver::Config as ServerConfig;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_sim::cloud::Cloud;
use cobaltcore_sim::world::World;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::scene::{Operator, ZONE, condition, config, places, session};
use super::world::install;

const NODE: &str = "node001-bb1";
const AUTH_URL: &str = "COBALTCORE_TEST_CHILD_AUTH_URL";
const KILLS: u32 = 100;
const SERVERS: usize = 20;

/// The process that is killed: this very binary, told by its environment to be an operator.
#[tokio::test]
#[ignore = "run by a_hundred_kills_lose_nothing as its child"]
async fn child() {
    let Ok(auth_url) = std::env::var(AUTH_URL) else {
        return;
    };
    let client = kube::Client::try_default().await.unwrap();
    let operator = Operator::start(client, config(), session(&auth_url));
    std::future::pending::<()>().await;
    operator.stop().await;
}

fn spawn(kubeconfig: &std::path::Path, auth_url: &str) -> tokio::process::Child {
    tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "killed::child"])
        .env("KUBECONFIG", kubeconfig)
        .env(AUTH_URL, auth_url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = TestServer::with(ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        port_given: true,
        kubeconfig: Some(kubeconfig.clone()),
        ..ServerConfig::default()
    })
    .await;
    install(&server).await;
    let world = World::builder().hosts(4).time_scale(0.5).build();
    for _ in 0..SERVERS {
        let small = world.add_server(NODE, "1");
        small.unwrap();
    }
    let cloud = Cloud::start(world).await.unwrap();
    let client = server.client();
    let hypervisors: Api<cobaltcore_api::Hypervisor> = Api::all(client.clone());
    let mut child = spawn(&kubeconfig, &cloud.auth_url());
    for number in 1..=4 {
        let name = format!("node00{number}-bb1");
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONE}},
            "spec": {"skipTests": true, "highAvailability": false, "aggregates": ["prod", ZONE]},
        });
        let object = serde_json::from_value(object).unwrap();
        hypervisors.create(&PostParams::default(), &object).await.unwrap();
    }
    let said = |name: String, type_: &'static str| {
        let hypervisors = hypervisors.clone();
        async move {
            let status = hypervisors.get(&name).await.unwrap().status.unwrap_or_default();
            condition(&status.conditions, type_)
        }
    };
    for number in 1..=4 {
        let name = format!("node00{number}-bb1");
        for _ in 0..2400 {
            if said(name.clone(), "HypervisorDisabled")
                .await
                .starts_with("False")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(said(name, "Onboarding").await.starts_with("False/Succeeded"));
    }
    let enter = Patch::Merge(json!({"spec": {"maintenance": "manual", "maintenanceReason": "kills"}}));
    hypervisors
        .patch(NODE, &PatchParams::default(), &enter)
        .await
        .unwrap();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut kills = 0;
    while !said(NODE.to_owned(), "Evicting").await.starts_with("False") {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        tokio::time::sleep(Duration::from_millis(30 + dice % 1200)).await;
        if kills < KILLS {
            child.kill().await.unwrap();
            child = spawn(&kubeconfig, &cloud.auth_url());
            kills += 1;
            // On a quick machine the last servers wait until everybody was killed; then nobody waits any more.
            let left = places(cloud.world()).into_values().filter(|host| host == NODE);
            let pace = match left.count() {
                _ if kills == KILLS => 4.0,
                0..=3 => 0.01,
                _ => 0.5,
            };
            cloud.world().clock().set_scale(pace);
            // Whoever waits by the old pace looks at the clock again.
            cloud.world().change(|_| ());
        }
    }
    child.kill().await.unwrap();
    eprintln!("killed {kills} times");
    let world = cloud.world();
    let left: Vec<String> = places(world).into_values().filter(|host| host == NODE).collect();
    assert!(left.is_empty(), "none is left out");
    assert_eq!(places(world).len(), SERVERS);
    assert!(world.running_twice().is_empty());
    world.read(|state| {
        for server in state.servers.keys() {
            let moves = state.migrations_of(*server).count();
            assert_eq!(moves, 1, "{server} was moved {moves} times");
        }
        let service = state.hosts[NODE].service.as_ref().unwrap();
        assert!(service.disabled, "the service is out of scheduling");
        assert_eq!(
            service.disabled_reason.as_deref(),
            Some("Hypervisor CRD: spec.maintenance=manual")
        );
    });
    assert_eq!(kills, KILLS, "the eviction outlived every kill");
    drop(server);
}
