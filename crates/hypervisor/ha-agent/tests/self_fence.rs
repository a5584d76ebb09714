// SPDX-License-Identifier: Apache-2.0
//! The watchdog of a host: armed when that is safe, fed while this host is not cut off, and stopped when the service knows.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cobaltcore_ha_wire::Kind;
use cobaltcore_libvirt::event::EventBody;
use support::scene::Scene;
use support::{Agent, Known, Place, Service};
use tokio::net::TcpListener;

/// Another agent, which says whether it reaches the service.
struct Peer(Arc<AtomicBool>);

impl Peer {
    /// One that reaches it, and that the service names.
    async fn of(service: &Service) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        service.known.lock().peers = vec![format!("http://{}", listener.local_addr().unwrap())];
        Self::at(listener)
    }

    fn at(listener: TcpListener) -> Self {
        let reaches = Arc::new(AtomicBool::new(true));
        let says = Arc::clone(&reaches);
        let answer = move || {
            let reaches = says.load(Ordering::SeqCst);
            async move {
                if reaches {
                    "[+]service-lease ok\n"
                } else {
                    "[-]service-lease failed\n"
                }
            }
        };
        let peer = axum::Router::new().route("/readyz/service-lease", axum::routing::get(answer));
        tokio::spawn(async move { axum::serve(listener, peer).await.unwrap() });
        Self(reaches)
    }

    fn loses_the_service(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Once its latest sign of life says that its watchdog is armed.
fn armed(known: &Known) -> Option<()> {
    let beat = known.heartbeats.last()?;
    beat.self_fence.armed.then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cut_off_stops_its_guests_and_its_watchdog() {
    let (scene, service, place) = (Scene::new(2).await, Service::start().await, Place::new());
    // It still reaches the service.
    let _peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "20s").await;
    let told = service.known.lock().heartbeats.last().unwrap().self_fence.clone();
    assert_eq!((told.timeout_s, told.lease_ttl_s), (30, 20));
    service.known.lock().away = Some(503);
    until_paused(&scene, 2).await;
    let before = fed(&place);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fed(&place), before, "the watchdog is not fed any more");
    agent.stop().await;
    assert_eq!(fed(&place), before, "and not disarmed by the end of the agent");
    // The next one reaches the service, and its guests stand still all the same.
    service.known.lock().away = None;
    let beats = service.known.lock().heartbeats.len();
    let agent = Agent::start(place.start(&scene.uri));
    service
        .until("the next one is heard", move |known| {
            (known.heartbeats.len() > beats + 2).then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(fed(&place), before, "nothing takes it back");
    agent.stop().await;
}

/// An agent with an armed watchdog, a service, and a peer that still reaches it.
async fn armed_agent() -> (Scene, Service, Place, Agent) {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let _peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "60s").await;
    (scene, service, place, agent)
}

/// Starts an agent and waits until its watchdog is armed.
async fn arm(scene: &Scene, service: &Service, place: &Place, lease: &str) -> Agent {
    std::fs::write(place.path("watchdog"), "").unwrap();
    place.configure(&[service.url()], &with_lease(place, lease));
    let agent = Agent::start(place.start(&scene.uri));
    service.until("armed", armed).await;
    agent
}

fn with_lease(place: &Place, lease: &str) -> String {
    self_fence(place, true, lease)
}

fn unwanted(place: &Place) -> String {
    self_fence(place, false, "60s")
}

fn self_fence(place: &Place, enabled: bool, lease: &str) -> String {
    let device = place.path("watchdog");
    let device = device.display();
    format!(
        "self_fence: {{enabled: {enabled}, device: {device}, timeout: 30s, feed_interval: 100ms, lease_ttl: {lease}}}"
    )
}

fn fed(place: &Place) -> Vec<u8> {
    std::fs::read(place.path("watchdog")).unwrap()
}

/// Waits until the watchdog was fed so often from now on.
async fn until_fed(place: &Place, times: usize) {
    let before = fed(place).len();
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    while fed(place).len() < before + times {
        assert!(tokio::time::Instant::now() < deadline, "it is not fed any more");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until nobody has fed the watchdog for a while.
async fn until_hungry(place: &Place) {
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let (mut known, mut since) = (fed(place).len(), tokio::time::Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        assert!(tokio::time::Instant::now() < deadline, "it is fed on and on");
        tokio::time::sleep(Duration::from_millis(50)).await;
        if fed(place).len() != known {
            (known, since) = (fed(place).len(), tokio::time::Instant::now());
        }
    }
}

/// How many guests stand still.
fn paused(scene: &Scene) -> usize {
    scene.world.read(|state| {
        let host = state.hosts.values().next().unwrap();
        let paused = host.domains.values().filter(|domain| domain.phase.state() == 3);
        paused.count()
    })
}

async fn until_paused(scene: &Scene, guests: usize) {
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    while paused(scene) < guests {
        assert!(tokio::time::Instant::now() < deadline, "guests were not stopped");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// When the service goes, leases end one after the other: whoever asks first hears that the others still have theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_lease_ends_before_those_of_its_neighbours_goes_on() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "20s").await;
    service.known.lock().away = Some(503);
    until_hungry(&place).await;
    peer.loses_the_service();
    until_fed(&place, 20).await;
    assert_eq!(paused(&scene), 0);
    agent.stop().await;
}

/// A rollout in an outage of the service. What the first agent left running the second one feeds.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_begins_in_an_outage_of_the_service_feeds_what_the_one_before_it_left() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "20s").await;
    service.known.lock().away = Some(503);
    peer.loses_the_service();
    agent.stop().await;
    let agent = Agent::start(place.start(&scene.uri));
    until_fed(&place, 20).await;
    assert!(!fed(&place).contains(&b'V'));
    service.known.lock().away = None;
    let before = service.known.lock().heartbeats.len();
    service
        .until("heard again", move |known| {
            let beats = known.heartbeats.get(before..)?;
            beats.last()?.self_fence.armed.then_some(())
        })
        .await;
    agent.stop().await;
    assert!(fed(&place).ends_with(b"V"), "and stops it when the service knows");
}

/// It may be cut off itself, and then the service counts on its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_begins_alone_does_not_feed_what_the_one_before_it_left() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let _peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "20s").await;
    service.known.lock().away = Some(503);
    agent.stop().await;
    let before = fed(&place).len();
    let agent = Agent::start(place.start(&scene.uri));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(fed(&place).len(), before);
    agent.stop().await;
}

async fn until_disarmed(place: &Place) {
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    while !fed(place).ends_with(b"V") {
        assert!(tokio::time::Instant::now() < deadline, "it was not disarmed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Files of a spool that take nothing while this lives: whoever writes them waits until somebody reads them, and holds the
/// spool all the while.
struct StuckDisk([PathBuf; 3]);

impl StuckDisk {
    fn new(spool: &std::path::Path) -> Self {
        std::fs::create_dir_all(spool).unwrap();
        let files = ["cursors.new", "guests.new", "watchdog.new"].map(|name| spool.join(name));
        for file in &files {
            rustix::fs::mkfifoat(rustix::fs::CWD, file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        }
        Self(files)
    }
}

impl Drop for StuckDisk {
    fn drop(&mut self) {
        for file in self.0.clone() {
            std::thread::spawn(move || std::fs::read(file));
        }
    }
}

/// A disk that stands still must not look like a dead host, nor make it one.
// More threads than an agent could block, so that one that waits for the disk fails this test instead of stopping it.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_disk_that_stands_still_stops_neither_heartbeats_nor_the_feeding_of_the_watchdog() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let _peer = Peer::of(&service).await;
    let disk = StuckDisk::new(&place.path("spool"));
    let agent = arm(&scene, &service, &place, "20s").await;
    let beats = |count: usize| {
        let before = service.known.lock().heartbeats.len();
        service.until("heartbeats", move |known| {
            (known.heartbeats.len() >= before + count).then_some(())
        })
    };
    let reboots = || {
        let known = service.known.lock();
        let reboots = known.events.iter().filter(|event| event.kind == Kind::Reboot);
        reboots.count()
    };
    // Once one is not told, the disk stands still.
    let mut announced = 0;
    while announced == reboots() {
        scene
            .world
            .announce(scene.guests[0], EventBody::Reboot {})
            .unwrap();
        announced += 1;
        beats(3).await;
    }
    // Longer than the lease: without heartbeats this host would take itself out.
    let before = fed(&place).len();
    beats(12).await;
    assert!(fed(&place).len() > before + 12, "it is fed");
    assert!(!fed(&place).contains(&b'V'));
    assert!(reboots() < announced, "it stood still all the while");
    drop(disk);
    service
        .until("what happened meanwhile", |known| {
            let reboots = known.events.iter().filter(|event| event.kind == Kind::Reboot);
            (reboots.map(|event| event.count as usize).sum::<usize>() == announced).then_some(())
        })
        .await;
    agent.stop().await;
}

/// A service that believes in an armed watchdog takes silence for a host that has reset itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_disarms_its_watchdog_after_the_service_was_told() {
    let (_scene, service, place, agent) = armed_agent().await;
    agent.stop().await;
    let fed = std::fs::read(place.path("watchdog")).unwrap();
    assert!(fed.ends_with(b"V"), "it was not disarmed");
    let last = service.known.lock().heartbeats.last().cloned().unwrap();
    assert!(
        !last.self_fence.armed,
        "the service still believes that it is armed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_leaves_its_watchdog_armed_if_the_service_cannot_be_told() {
    let (_scene, service, place, agent) = armed_agent().await;
    service.known.lock().away = Some(503);
    agent.stop().await;
    let fed = std::fs::read(place.path("watchdog")).unwrap();
    assert!(!fed.is_empty() && !fed.contains(&b'V'), "it was disarmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_that_is_not_configured_any_more_is_disarmed_after_the_service_was_told() {
    let (_scene, service, place, agent) = armed_agent().await;
    service.known.lock().away = Some(503);
    place.configure(&[service.url()], &unwanted(&place));
    until_fed(&place, 20).await;
    assert!(!fed(&place).contains(&b'V'), "it was disarmed, and nobody knows");
    service.known.lock().away = None;
    until_disarmed(&place).await;
    let last = service.known.lock().heartbeats.last().cloned().unwrap();
    assert!(!last.self_fence.armed);
    agent.stop().await;
}

/// It heard that the watchdog is armed, whether its answer arrived or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_is_not_disarmed_while_a_service_whose_answer_was_lost_believes_in_it() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let _peer = Peer::of(&service).await;
    service.known.lock().deaf_once_armed = true;
    let agent = arm(&scene, &service, &place, "60s").await;
    place.configure(&[service.url()], &unwanted(&place));
    until_fed(&place, 30).await;
    assert!(!fed(&place).contains(&b'V'), "it was disarmed, and nobody knows");
    {
        let mut known = service.known.lock();
        (known.away, known.deaf_once_armed) = (None, false);
    }
    until_disarmed(&place).await;
    agent.stop().await;
}

/// The service counts with the lease and the timeout it was told. Others are used once it knows that the old ones are over.
#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_with_other_settings_is_disarmed_and_armed_anew() {
    let (_scene, service, place, agent) = armed_agent().await;
    service.known.lock().away = Some(503);
    place.configure(&[service.url()], &with_lease(&place, "90s"));
    until_fed(&place, 30).await;
    assert!(!fed(&place).contains(&b'V'), "it was disarmed, and nobody knows");
    service.known.lock().away = None;
    service
        .until("armed with the new lease", |known| {
            let told = &known.heartbeats.last()?.self_fence;
            (told.armed && told.lease_ttl_s == 90).then_some(())
        })
        .await;
    assert!(
        fed(&place).contains(&b'V') && !fed(&place).ends_with(b"V"),
        "stopped and begun"
    );
    let told: Vec<_> = {
        let known = service.known.lock();
        let beats = known.heartbeats.iter().map(|beat| &beat.self_fence);
        let armed = beats.skip_while(|told| !told.armed);
        armed.map(|told| (told.armed, told.lease_ttl_s)).collect()
    };
    let ended = told.iter().position(|told| !told.0).unwrap();
    assert!(
        told[..ended].iter().all(|told| *told == (true, 60)),
        "one lease for one watchdog: {told:?}"
    );
    agent.stop().await;
}

/// After the old lease and the timeout the service starts the guests elsewhere, whatever this host was configured to since.
#[tokio::test(flavor = "multi_thread")]
async fn a_longer_lease_does_not_help_a_host_that_is_cut_off_before_the_service_knows_of_it() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    let _peer = Peer::of(&service).await;
    let agent = arm(&scene, &service, &place, "20s").await;
    service.known.lock().away = Some(503);
    place.configure(&[service.url()], &with_lease(&place, "300s"));
    until_paused(&scene, 1).await;
    assert!(!fed(&place).contains(&b'V'), "it was disarmed");
    agent.stop().await;
}

/// Where agents do not reach each other, an outage of the service would look like isolation to every host at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_is_not_armed_while_nobody_could_be_asked() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    std::fs::write(place.path("watchdog"), "").unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // Bound, so that it is nobody else's, and not listening yet.
    service.known.lock().peers = vec![format!("http://{}", socket.local_addr().unwrap())];
    place.configure(&[service.url()], &with_lease(&place, "20s"));
    let agent = Agent::start(place.start(&scene.uri));
    service
        .until("it would arm its watchdog, and goes on without", |known| {
            let waiting = known
                .heartbeats
                .iter()
                .filter(|beat| beat.self_fence.timeout_s == 30);
            (waiting.count() > 3).then_some(())
        })
        .await;
    assert!(
        service
            .known
            .lock()
            .heartbeats
            .iter()
            .all(|beat| !beat.self_fence.armed)
    );
    assert_eq!(fed(&place), b"", "nobody opened it");

    let listener = socket.listen(16).unwrap();
    Peer::at(listener);
    service.until("armed, now that somebody answers", armed).await;

    // When the service names nobody any more, its next outage would reset this host.
    service.known.lock().peers.clear();
    service
        .until("the service is told that it will not be armed", |known| {
            (!known.heartbeats.last()?.self_fence.armed).then_some(())
        })
        .await;
    until_disarmed(&place).await;
    agent.stop().await;
}
