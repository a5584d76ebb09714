// SPDX-License-Identifier: Apache-2.0
//! The agent and the HA service as they are: what happens on a simulated host is stored by the service exactly once,
//! also when the service dies in between.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use cobaltcore_ha_service::{Config, Service, Surroundings};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_sim::hosts::Place as Where;
use cobaltcore_sim::{Hosts, World};
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
        let text = format!(
            "server: {{listen: '{listen}', metrics_listen: '127.0.0.1:0'}}\nstorage: {{path: '{}'}}\n\
             access: {{viewers: {{victor: [{}]}}, any_agent: [{}]}}\n\
             openstack: {{enabled: false}}\nkubernetes: {{enabled: false}}\nleader: {{enabled: false}}\n",
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
                openstack: None,
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
