// SPDX-License-Identifier: Apache-2.0
//! The agent and the HA service as they are: what happens on a simulated host is stored by the service exactly once,
//! also when the service dies in between.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use cobaltcore_ha_service::{Config, Service, Surroundings};
use cobaltcore_ha_wire::path;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use cobaltcore_sim::hosts::Place as Where;
use cobaltcore_sim::{Cloud, Hosts, World};
use serde_json::Value;
use support::{Agent, PATIENCE, Place};
use tokio::runtime::Runtime;

const AGENT: &str = "token-of-all-agents";
const VIEWER: &str = "token-of-a-viewer";

fn hash(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A service with threads of its own, so that it can die as a process does.
struct Running {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Running {
    async fn start(listen: &str, folder: &Path) -> Self {
        Self::start_with(listen, folder, "openstack: {enabled: false}\n", None).await
    }

    async fn start_with(listen: &str, folder: &Path, more: &str, openstack: Option<Session>) -> Self {
        let text = format!(
            "server: {{listen: '{listen}', metrics_listen: '127.0.0.1:0'}}\nstorage: {{path: '{}'}}\n\
             access: {{viewers: {{victor: [{}]}}, any_agent: [{}]}}\n\
             kubernetes: {{enabled: false, failure_domains: [topology.kubernetes.io/zone]}}\n\
             leader: {{enabled: false}}\n{more}",
            folder.display(),
            hash(VIEWER),
            hash(AGENT)
        );
        let component = Component {
            name: "kvm-ha-service",
            version: "0",
            commit: "none",
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let mut prepared = None;
        let mut why = String::new();
        for _ in 0..200 {
            let config = Config::parse("service.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
            let surroundings = Surroundings {
                client: None,
                openstack: openstack.clone(),
                telemetry: Telemetry::new(&component),
                health: Health::new(),
                shutdown: Shutdown::new(Duration::from_secs(5)),
                own_host: None,
                namespace: "default".into(),
            };
            // The one before may hold its address and its database a moment longer.
            match runtime
                .spawn(Service::prepare(config, surroundings))
                .await
                .unwrap()
            {
                Ok(service) => {
                    prepared = Some(service);
                    break;
                }
                Err(error) => {
                    why = error.to_string();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        let service = prepared.unwrap_or_else(|| panic!("no service: {why}"));
        let address = service.address();
        runtime.spawn(service.run());
        Self {
            address,
            runtime: Some(runtime),
        }
    }

    async fn get(&self, path: &str) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}{path}", self.address);
        let Ok(answer) = client.get(url).bearer_auth(VIEWER).send().await else {
            return Value::Null;
        };
        answer.json().await.unwrap_or(Value::Null)
    }

    /// Waits until so many watchdogs are stored; gives back the numbers of all records.
    async fn until_watchdogs(&self, count: usize) -> Vec<u64> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let page = self.get("/api/v1/events?host=node001&limit=1000").await;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            if items.iter().filter(|item| item["kind"] == "watchdog").count() >= count {
                let mut numbers: Vec<u64> = items.iter().filter_map(|item| item["seq"].as_u64()).collect();
                numbers.sort_unstable();
                return numbers;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "never {count} watchdogs: {page}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_stores_what_the_agent_tells_once() {
    cobaltcore_kit::startup::install_tls_provider();
    let place = Place::new();
    let world = World::builder().hosts(1).vms_per_host(2).build();
    let hosts = Hosts::start(&world, Where::Tcp).await.unwrap();
    let host = world.read(|state| state.hosts.keys().next().unwrap().to_string());
    let guest = world.read(|state| state.servers_on(&host).map(|server| server.id).min().unwrap());
    let service = Running::start("127.0.0.1:0", &place.path("service")).await;
    let address = service.address;
    let token = place.path("token");
    std::fs::write(&token, AGENT).unwrap();
    place.write_config(&format!(
        "service: {{endpoints: [\"http://{address}\"], token_file: {}}}\nspool: {{dir: {}}}\n\
         metrics: {{listen: \"\"}}\nheartbeat: {{interval: 1s}}\n",
        token.display(),
        place.path("spool").display()
    ));
    let agent = Agent::start(place.start(&hosts.uri(&host).unwrap()));
    // The agent is heard and has listed its guests.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !place.path("spool/guests.json").exists() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the agent never listed its guests"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..3 {
        world.announce(guest, EventBody::Watchdog { action: 5 }).unwrap();
    }
    service.until_watchdogs(3).await;
    drop(service);
    for _ in 0..4 {
        world.announce(guest, EventBody::Watchdog { action: 5 }).unwrap();
    }
    let service = Running::start(&address.to_string(), &place.path("service")).await;
    let numbers = service.until_watchdogs(7).await;
    assert_eq!(
        numbers,
        (1..=numbers.len() as u64).collect::<Vec<_>>(),
        "each once"
    );
    agent.stop().await;
}

fn session(cloud: &Cloud, folder: &Path) -> Session {
    let file = folder.join("clouds.yaml");
    let text = cloud.clouds_yaml();
    std::fs::write(&file, &text).unwrap();
    let name = text
        .lines()
        .nth(1)
        .unwrap()
        .trim()
        .trim_end_matches(':')
        .to_owned();
    let settings = Settings {
        proxy_from_environment: false,
        ..Settings::default()
    };
    Session::new(CloudConfig::from_file(file, &name).unwrap(), settings).unwrap()
}

/// Somebody who speaks for a host as its agent would, until dropped.
async fn speak_for(service: SocketAddr, host: String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let name = host.parse().unwrap();
    let url = format!("http://{service}{}", path::batches(&name));
    for n in 1_u64.. {
        let boot = format!("boot-of-{host}");
        let body = serde_json::json!({
            "schema": 1, "host": host, "agent_id": format!("agent-of-{host}"), "boot_id": boot, "epoch": 1,
            "sent_at": "2026-01-01T00:00:00Z", "mono_ns": n, "first_seq": 0, "last_seq": 0, "events": [],
            "heartbeat": {
                "uptime_s": n, "boot_id": boot, "agent_version": "0", "config_hash": "0",
                "libvirt": {"connected": true}, "domains": {},
                "spool": {"depth": 0, "bytes": 0, "oldest_s": 0, "dropped_total": 0},
                "machine": {}, "self_fence": {"armed": false, "timeout_s": 0}, "planned_shutdown": false,
            },
        });
        let sent = client.post(&url).bearer_auth(AGENT).json(&body).send().await;
        // A service that is gone is no concern of an agent.
        if let Ok(answer) = sent {
            assert_eq!(answer.status().as_u16(), 200, "{}", answer.text().await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The service names neighbours to an agent that wants to fence itself; only then is the watchdog armed. When the
/// service is gone and the neighbours still have it, the guests are stopped and nobody feeds the watchdog any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_is_armed_once_the_service_has_named_neighbours() {
    cobaltcore_kit::startup::install_tls_provider();
    let place = Place::new();
    // What is cut off together must be known: without a cluster, zones are all that is.
    let world = World::builder()
        .hosts(6)
        .zones(["a", "b", "c"])
        .vms_per_host(2)
        .build();
    world.change(|state| {
        for host in state.hosts.values_mut() {
            host.ip = "127.0.0.1".into();
        }
    });
    let hosts = Hosts::start(&world, Where::Tcp).await.unwrap();
    let cloud = Cloud::start(world.clone()).await.unwrap();
    let names: Vec<String> = world.read(|state| state.hosts.keys().map(ToString::to_string).collect());
    let own = &names[0];
    // All neighbours are at one address here; whoever answers there still reaches the service.
    let neighbour = axum::Router::new().route(
        "/readyz/service-lease",
        axum::routing::get(|| async { "[+]service-lease ok\n" }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, neighbour).await.unwrap() });
    let more =
        format!("agents: {{port: {port}}}\nopenstack: {{services_interval: 1s, hypervisors_interval: 1s}}\n");
    let cloudy = Some(session(&cloud, &place.path("")));
    let service = Running::start_with("127.0.0.1:0", &place.path("service"), &more, cloudy).await;
    let (address, token, device) = (service.address, place.path("token"), place.path("watchdog"));
    std::fs::write(&token, AGENT).unwrap();
    std::fs::write(&device, "").unwrap();
    place.write_config(&format!(
        "service: {{endpoints: [\"http://{address}\"], token_file: {}}}\nspool: {{dir: {}}}\n\
         metrics: {{listen: \"\"}}\nheartbeat: {{interval: 1s}}\n\
         self_fence: {{enabled: true, device: {}, timeout: 30s, feed_interval: 100ms, lease_ttl: 20s}}\n",
        token.display(),
        place.path("spool").display(),
        device.display()
    ));
    let agent = Agent::start(place.start_as(own, &hosts.uri(own).unwrap()));
    let fed = || std::fs::read(&device).unwrap().len();
    let wait = async |what: &str, done: &dyn Fn() -> bool| {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // It is heard, and nobody else is: there is no one it could ask.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = service.get(&format!("/api/v1/hosts/{own}")).await;
        if found["signals"][0]["verdict"] == "alive" {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "never heard: {found}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fed(), 0, "no neighbours, no watchdog");
    let speakers: Vec<_> = names[1..]
        .iter()
        .map(|name| tokio::spawn(speak_for(address, name.clone())))
        .collect();
    wait("the watchdog is armed and fed", &|| fed() > 3).await;
    drop(service);
    let paused = || {
        world.read(|state| {
            let host = state
                .hosts
                .iter()
                .find(|(name, _)| name.as_str() == own)
                .unwrap()
                .1;
            host.domains
                .values()
                .filter(|domain| domain.phase.state() == 3)
                .count()
        })
    };
    wait("the guests are stopped", &|| paused() == 2).await;
    let last = fed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fed(), last, "the watchdog is not fed any more");
    agent.stop().await;
    for speaker in speakers {
        assert!(!speaker.is_finished(), "a report was refused");
        speaker.abort();
    }
}
