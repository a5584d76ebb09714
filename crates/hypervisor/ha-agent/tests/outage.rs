// SPDX-License-Identifier: Apache-2.0
//! The service is away while 20 000 things happen on a host, and the agent is killed twice meanwhile, as a process
//! is: without a word. All of it arrives, each once, in order.
//!
//! The hours that such an outage lasts are not waited for. What is kept is kept by its number, not by its age.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cobaltcore_ha_wire::Kind;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_sim::hosts::Place as Where;
use cobaltcore_sim::{Hosts, World};
use support::{PATIENCE, Place, Service, assert_exactly_once};

const EVENTS: usize = 20_000;
/// So many at once: no more than what libvirt's own queue holds.
const GROUP: usize = 500;

/// An agent in a process of its own; runs only as a child of the test below.
#[test]
fn child() {
    let (Ok(folder), Ok(uri)) = (std::env::var("OUTAGE_FOLDER"), std::env::var("OUTAGE_URI")) else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let start = cobaltcore_ha_agent::Start::new(cobaltcore_ha_agent::Args {
        node_name: Some("node001".to_owned()),
        config: folder.join("config.yaml"),
        libvirt_uri: uri,
        libvirt_socket: None,
        host_root: folder.join("root"),
        system_bus: Some("unix:path=/nonexistent".to_owned()),
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(10));
    runtime
        .block_on(cobaltcore_ha_agent::run(start.unwrap(), shutdown))
        .unwrap();
}

/// The process, killed when it is dropped.
struct Agent(Child);

impl Agent {
    /// Starts one and waits until it listens: what is announced before is nobody's.
    async fn start(place: &Place, uri: &str) -> Self {
        let remembered = place.path("spool/guests.json");
        let stamp = || {
            std::fs::metadata(&remembered)
                .and_then(|data| data.modified())
                .ok()
        };
        let before = stamp();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("OUTAGE_FOLDER", place.folder.path())
            .env("OUTAGE_URI", uri)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let agent = Self(child);
        until("the agent listens", || stamp() != before).await;
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether this event is in the spool.
fn on_disk(place: &Place, name: &str) -> bool {
    let wanted = format!("\"{name}\"");
    let entries = std::fs::read_dir(place.path("spool")).unwrap().flatten();
    let mut segments: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("segment-"))
        })
        .collect();
    // The latest segments are the ones to look at.
    segments.sort();
    segments.iter().rev().take(2).any(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(&wanted)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_events_and_two_kills_lose_nothing() {
    let (service, place) = (Service::start().await, Place::new());
    let world = World::builder().hosts(1).vms_per_host(1).build();
    let hosts = Hosts::start(&world, Where::Tcp).await.unwrap();
    let host = world.read(|state| state.hosts.keys().next().unwrap().to_string());
    let guest = world.read(|state| state.servers_on(&host).map(|server| server.id).next().unwrap());
    let uri = hosts.uri(&host).unwrap();
    place.write_config(&format!(
        "service: {{endpoints: [\"{}\"]}}\nspool: {{dir: {}}}\nmetrics: {{listen: \"\"}}\nheartbeat: {{interval: 1s}}\n",
        service.url(),
        place.path("spool").display()
    ));
    let mut agent = Agent::start(&place, &uri).await;
    let (address, known) = (service.address, service.known.clone());
    drop(service);
    for n in 1..=EVENTS {
        let event = EventBody::IoErrorReason {
            path: format!("/event-{n}"),
            alias: "vda".into(),
            action: 2,
            reason: "eio".into(),
        };
        world.announce(guest, event).unwrap();
        if n % GROUP == 0 {
            // What libvirt said reaches the disk before the agent may die.
            until("the group is on disk", || on_disk(&place, &format!("/event-{n}"))).await;
        }
        if n == EVENTS / 4 || n == EVENTS / 4 * 3 {
            drop(agent);
            agent = Agent::start(&place, &uri).await;
        }
    }
    let service = Service::start_at(address, known).await;
    let names = |known: &support::Known| -> Vec<String> {
        let errors = known.events.iter().filter(|event| event.kind == Kind::IoError);
        errors.map(|event| event.attrs["src_path"].to_string()).collect()
    };
    service
        .until("all of it", |known| (names(known).len() >= EVENTS).then_some(()))
        .await;
    drop(agent);
    let known = service.known.lock();
    let wanted: Vec<String> = (1..=EVENTS).map(|n| format!("/event-{n}")).collect();
    assert!(names(&known) == wanted, "not each once, or not in order");
    assert_exactly_once(&known.events);
    assert!(known.dropped.is_empty(), "{:?}", known.dropped);
}
