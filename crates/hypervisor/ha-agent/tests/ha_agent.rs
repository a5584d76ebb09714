// SPDX-License-Identifier: Apache-2.0
//! The agent between a simulated libvirt host and a service over real wires: what happens is told exactly once, through
//! outages of either side.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use cobaltcore_ha_wire::{
    Command, CommandId, CommandKind, CommandOutcome, DomainState, Kind, Packing, ProbeMethod, ProbeOutcome,
    ProbeTarget, Scalar, ServerId,
};
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_sim::world::Libvirt;
use support::scene::Scene;
use support::{Agent, Known, Place, Service, assert_exactly_once};

fn command(id: &str, kind: CommandKind) -> Command {
    Command {
        id: CommandId(id.to_owned()),
        expires_in_ms: 60_000,
        kind,
    }
}

async fn connected(service: &Service) {
    service
        .until("connected", |known| {
            let up = known.heartbeats.last().is_some_and(|beat| beat.libvirt.connected);
            (up && !known.inventories.is_empty()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_event_arrives_once_and_in_order() {
    let (scene, service, place) = (Scene::new(3).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let beat = service
        .until("a heartbeat", |known| known.heartbeats.last().cloned())
        .await;
    assert_eq!(beat.machine.serial.as_deref(), Some("J1000001"));
    assert_eq!(beat.boot_id.0, "11111111-0000-4000-8000-000000000001");
    assert_eq!(beat.domains.get(&DomainState::Running), Some(&3));
    assert!(!beat.self_fence.armed && !beat.planned_shutdown);
    let inventory = service
        .until("an inventory", |known| known.inventories.last().cloned())
        .await;
    assert_eq!(inventory.domains.len(), 3);
    assert!(
        inventory
            .domains
            .iter()
            .all(|domain| domain.vcpus > 0 && !domain.disks.is_empty())
    );

    let guest = scene.guests[0];
    for body in [
        EventBody::Reboot {},
        EventBody::Watchdog { action: 1 },
        EventBody::IoErrorReason {
            path: "/d".into(),
            alias: "disk0".into(),
            action: 2,
            reason: "enospc".into(),
        },
        EventBody::ControlError {},
        EventBody::AgentLifecycle { state: 2, reason: 2 },
        EventBody::MemoryFailure {
            recipient: 1,
            action: 2,
            flags: 1,
        },
    ] {
        scene.world.announce(guest, body).unwrap();
    }
    scene.world.crash_guest(scene.guests[1]).unwrap();
    let crash = service
        .until("the crash", |known| {
            let of = |event: &&cobaltcore_ha_wire::Event| {
                event.kind == Kind::Lifecycle
                    && event
                        .domain
                        .as_ref()
                        .is_some_and(|d| d.uuid.as_str() == scene.guests[1].to_string())
            };
            known.events.iter().find(of).cloned()
        })
        .await;
    assert!(!crash.synthetic && crash.urgent(), "{crash:?}");
    let kinds: Vec<Kind> = service
        .known
        .lock()
        .events
        .iter()
        .map(|event| event.kind)
        .filter(|kind| *kind != Kind::Agent)
        .collect();
    assert_eq!(kinds[..6], Kind::LIBVIRT[1..]);
    let failure = service.event("fatal", "").await;
    assert_eq!(failure.attrs["recipient"], Scalar::from("guest"));
    assert_eq!(failure.domain.unwrap().uuid.as_str(), guest.to_string());
    let changed = service.until("the new inventory", |known| {
        known
            .inventories
            .iter()
            .find(|now| now.inventory_version > inventory.inventory_version)
            .cloned()
    });
    assert_eq!(changed.await.domains.len(), 3);
    agent.stop().await;
    // What was said last may wait on disk until the next start, but not for ever.
    let agent = Agent::start(place.start(&scene.uri));
    service.event("agent_stopping", "").await;
    service
        .until("started twice", |known| {
            let starts = known.events.iter().filter(|event| event.event == "agent_started");
            (starts.count() == 2).then_some(())
        })
        .await;
    agent.stop().await;
    let known = service.known.lock();
    assert_exactly_once(&known.events);
    assert_eq!(known.events[0].event, "agent_started");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_libvirt_is_away_is_derived_once() {
    let (scene, service, place) = (Scene::new(3).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    scene.world.set_libvirt(&scene.host, Libvirt::Down).unwrap();
    service.event("stream_lost", "").await;
    scene.world.crash_guest(scene.guests[0]).unwrap();
    service
        .until("disconnected", |known| {
            known
                .heartbeats
                .last()
                .filter(|beat| !beat.libvirt.connected)
                .map(|_| ())
        })
        .await;
    scene.world.set_libvirt(&scene.host, Libvirt::Up).unwrap();
    service.event("stream_resumed", "").await;
    let stopped: Vec<_> = {
        let known = service.known.lock();
        known
            .events
            .iter()
            .filter(|event| event.event == "stopped")
            .cloned()
            .collect()
    };
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].synthetic);
    assert_eq!(
        stopped[0].domain.as_ref().unwrap().uuid.as_str(),
        scene.guests[0].to_string()
    );
    agent.stop().await;
    // What happens while the agent itself is away is derived too, from what it remembered.
    scene.world.crash_guest(scene.guests[1]).unwrap();
    let agent = Agent::start(place.start(&scene.uri));
    service
        .until("the second", |known| {
            (known
                .events
                .iter()
                .filter(|event| event.event == "stopped")
                .count()
                == 2)
                .then_some(())
        })
        .await;
    agent.stop().await;
    assert_exactly_once(&service.known.lock().events);
}

fn reboots_on_disk(place: &Place) -> usize {
    let entries = std::fs::read_dir(place.path("spool")).unwrap().flatten();
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    let count = |entry: std::fs::DirEntry| {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes)
            .matches(r#""kind":"reboot""#)
            .count()
    };
    segments.map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_service_loses_nothing() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let mut agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let (address, known) = (service.address, service.known.clone());
    drop(service);
    for round in 0..3 {
        for _ in 0..500 {
            scene
                .world
                .announce(scene.guests[0], EventBody::Reboot {})
                .unwrap();
        }
        // What libvirt said reaches the disk before the agent may end.
        while reboots_on_disk(&place) < (round + 1) * 500 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if round < 2 {
            agent.stop().await;
            // Until it listens again, what is announced is nobody's.
            let remembered = place.path("spool/guests.json");
            let before = std::fs::metadata(&remembered).unwrap().modified().unwrap();
            agent = Agent::start(place.start(&scene.uri));
            while std::fs::metadata(&remembered).unwrap().modified().unwrap() == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    // It comes back as an older one that knows gzip only.
    known.lock().no_zstd = true;
    let service = Service::start_at(address, known).await;
    service
        .until("every reboot", |known| {
            (known
                .events
                .iter()
                .filter(|event| event.kind == Kind::Reboot)
                .map(|event| event.count as usize)
                .sum::<usize>()
                == 1500)
                .then_some(())
        })
        .await;
    agent.stop().await;
    let known = service.known.lock();
    assert_exactly_once(&known.events);
    assert!(
        known.packings.contains(&Some(Packing::Gzip)),
        "the backlog was packed"
    );
    assert!(!known.packings.contains(&Some(Packing::Zstd)));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_every_kind_are_outlived() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let announce = |body| scene.world.announce(scene.guests[0], body).unwrap();
    // Busy, then too large, then one record that is never taken.
    for status in [503, 429, 500] {
        let before = service.known.lock().batches;
        service.known.lock().refuse = Some(status);
        announce(EventBody::Reboot {});
        service
            .until("refused", |known| (known.batches > before).then_some(()))
            .await;
        service.known.lock().refuse = None;
    }
    service.known.lock().most = Some(2);
    for _ in 0..20 {
        announce(EventBody::Reboot {});
    }
    announce(EventBody::Watchdog { action: 3 });
    service.event("poweroff", "").await;
    service.known.lock().most = None;
    service.known.lock().poison = Some("reset".to_owned());
    announce(EventBody::Watchdog { action: 2 });
    for _ in 0..5 {
        announce(EventBody::Reboot {});
    }
    announce(EventBody::Watchdog { action: 6 });
    service.event("injectnmi", "").await;
    {
        let known = service.known.lock();
        assert_eq!(
            known
                .events
                .iter()
                .filter(|event| event.kind == Kind::Reboot)
                .count(),
            28
        );
        assert_eq!(
            known.dropped.len(),
            1,
            "the poisoned one is announced as a gap: {:?}",
            known.dropped
        );
    }
    let kept = std::fs::read_dir(place.path("spool/quarantine")).unwrap().count();
    assert_eq!(kept, 1, "and kept for people");

    // A service that lost everything asks for it, and is told what is gone.
    {
        let mut known = service.known.lock();
        known.poison = None;
        known.last.clear();
        known.events.clear();
    }
    announce(EventBody::Watchdog { action: 5 });
    service.event("debug", "").await;
    assert!(
        service.count("agent_started", "") == 1,
        "records that are still there come again"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_takes_effect_as_a_whole_or_not_at_all() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let announce = |body| scene.world.announce(scene.guests[0], body).unwrap();
    place.configure(
        &[service.url()],
        "events: {reboot: {enabled: false}, watchdgo: {}}",
    );
    let rejected = service.event("config_rejected", "").await;
    assert!(
        rejected.attrs["why"].to_string().contains("events.watchdgo"),
        "{rejected:?}"
    );
    announce(EventBody::Reboot {});
    service
        .until("the reboot", |known| {
            known
                .events
                .iter()
                .find(|event| event.kind == Kind::Reboot)
                .map(|_| ())
        })
        .await;
    // A guest is said to run again, again and again, all the while.
    let applied = || {
        let known = service.known.lock();
        let applied = known
            .events
            .iter()
            .filter(|event| event.event == "config_applied");
        applied.count() == 2
    };
    place.configure(&[service.url()], "events: {reboot: {enabled: false}}");
    let mut sent: u32 = 0;
    while !applied() {
        announce(EventBody::Lifecycle { event: 4, detail: 0 });
        sent += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Nothing of what is still wanted is lost on the way.
    let received = |known: &Known| -> u32 {
        let lifecycle = known.events.iter().filter(|event| event.kind == Kind::Lifecycle);
        let seen = lifecycle.filter(|event| !event.synthetic);
        let of_ours = seen.filter(|event| event.event == "resumed");
        of_ours.map(|event| event.count).sum()
    };
    service
        .until(&format!("all {sent} of them"), |known| {
            (received(known) >= sent).then_some(())
        })
        .await;
    assert_eq!(received(&service.known.lock()), sent, "each once");
    let before = service
        .known
        .lock()
        .events
        .iter()
        .filter(|event| event.kind == Kind::Reboot)
        .count();
    announce(EventBody::Reboot {});
    announce(EventBody::Watchdog { action: 0 });
    service.event("none", "").await;
    let after = service
        .known
        .lock()
        .events
        .iter()
        .filter(|event| event.kind == Kind::Reboot)
        .count();
    assert_eq!(before, after);
    let hash = service
        .known
        .lock()
        .heartbeats
        .first()
        .unwrap()
        .config_hash
        .clone();
    service
        .until("the new hash", |known| {
            known
                .heartbeats
                .last()
                .filter(|beat| beat.config_hash != hash)
                .map(|_| ())
        })
        .await;
    agent.stop().await;
    assert_exactly_once(&service.known.lock().events);
}

/// What only a restart can change is refused as well, with the key, and everything stays as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_needs_a_restart_is_refused_and_said() {
    let (scene, service, place) = (Scene::new(1).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let config = std::fs::read_to_string(place.path("config.yaml")).unwrap();
    place.write_config(
        &config
            .replace("dir: ", "dir: /elsewhere")
            .replace("interval: 1s", "interval: 30s"),
    );
    let rejected = service.event("config_rejected", "").await;
    assert!(
        rejected.attrs["why"].to_string().contains("spool.dir"),
        "{rejected:?}"
    );
    // Heartbeats go on as they did, and name the configuration that is in force.
    let (beats, hash) = {
        let known = service.known.lock();
        let last = known.heartbeats.last().unwrap();
        (known.heartbeats.len(), last.config_hash.clone())
    };
    let later = service
        .until("three more heartbeats", |known| {
            known.heartbeats.get(beats + 3).cloned()
        })
        .await;
    assert_eq!(later.config_hash, hash);
    assert_ne!(rejected.attrs["hash"].to_string(), hash);
    agent.stop().await;
}

/// The value of the first series of a name that has all these labels.
fn figure(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let series = text.lines().find(|line| {
        let of = line.split(['{', ' ']).next() == Some(name);
        of && labels.iter().all(|label| line.contains(label))
    })?;
    series.rsplit(' ').next()?.parse().ok()
}

/// Every figure that is promised, in a scrape of an agent to which something happened, and its health.
#[tokio::test(flavor = "multi_thread")]
async fn every_promised_figure_is_in_a_scrape() {
    let (scene, service, place) = (Scene::new(2).await, Service::start().await, Place::new());
    // An address that nobody else takes a port of.
    let free = std::net::TcpListener::bind("127.77.16.8:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let configure = |more: &str| place.configure_on(&listen, &[service.url()], more);
    let reactions = "reactions: {watchdog: {action: reset, min_uptime: 1ms}}";
    configure(reactions);
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    scene
        .world
        .announce(scene.guests[0], EventBody::Watchdog { action: 0 })
        .unwrap();
    service.event("reaction_taken", "").await;
    configure("reactions: {watchdog: {action: dance}}");
    service.event("config_rejected", "").await;
    configure(&format!("{reactions}\nevents: {{reboot: {{enabled: false}}}}"));
    service
        .until("applied", |known| {
            let applied = known
                .events
                .iter()
                .filter(|event| event.event == "config_applied");
            (applied.count() == 2).then_some(())
        })
        .await;
    scene.world.set_libvirt(&scene.host, Libvirt::Down).unwrap();
    service.event("stream_lost", "").await;
    scene.world.set_libvirt(&scene.host, Libvirt::Up).unwrap();
    service.event("stream_resumed", "").await;

    let get = async |path: &str| {
        let answer = reqwest::get(format!("http://{listen}{path}")).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let url = service.url();
    let endpoint = format!("endpoint=\"{url}\"");
    let hash = service
        .known
        .lock()
        .heartbeats
        .last()
        .unwrap()
        .config_hash
        .clone();
    let hash = format!("hash=\"{hash}\"");
    type Wanted<'a> = (&'a str, Vec<&'a str>, fn(f64) -> bool);
    let wanted: Vec<Wanted<'_>> = vec![
        ("host_uptime_seconds", vec![], |value| value > 0.0),
        ("instances", vec!["state=\"running\""], |value| value == 2.0),
        ("instances", vec!["state=\"crashed\""], |value| value == 0.0),
        (
            "libvirt_events_total",
            vec!["kind=\"watchdog\"", "event=\"none\"", "detail=\"\""],
            |value| value >= 1.0,
        ),
        ("libvirt_connected", vec![], |value| value == 1.0),
        ("libvirt_reconnects_total", vec![], |value| value == 1.0),
        ("spool_bytes", vec![], |value| value > 0.0),
        ("spool_records", vec![], |value| value >= 0.0),
        ("spool_oldest_seconds", vec![], |value| value >= 0.0),
        ("spool_fsync_seconds_count", vec![], |value| value >= 1.0),
        ("spool_fsync_seconds_bucket", vec!["le=\"+Inf\""], |value| {
            value >= 1.0
        }),
        ("batches_total", vec![&endpoint, "code=\"200\""], |value| {
            value >= 1.0
        }),
        ("delivery_lag_seconds", vec![&endpoint], |value| value >= 0.0),
        ("heartbeats_total", vec![&endpoint, "result=\"ok\""], |value| {
            value >= 1.0
        }),
        (
            "reactions_total",
            vec!["trigger=\"watchdog\"", "action=\"reset\"", "result=\"done\""],
            |value| value == 1.0,
        ),
        ("config_hash_info", vec![&hash], |value| value == 1.0),
        ("config_reload_total", vec!["result=\"applied\""], |value| {
            value == 1.0
        }),
        ("config_reload_total", vec!["result=\"rejected\""], |value| {
            value == 1.0
        }),
        ("self_fence_armed", vec![], |value| value == 0.0),
    ];
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    let text = loop {
        let (status, text) = get("/metrics").await;
        assert_eq!(status, 200);
        let missing = wanted.iter().find(|(name, labels, fits)| {
            let value = figure(&text, &format!("kvm_ha_agent_{name}"), labels);
            !value.is_some_and(fits)
        });
        let Some((name, labels, _)) = missing else {
            break text;
        };
        assert!(
            tokio::time::Instant::now() < deadline,
            "{name} {labels:?}:\n{text}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // Nothing was dropped; what begins with 0 can be seen to grow.
    for kind in Kind::LIBVIRT.into_iter().chain([Kind::Agent]) {
        let label = format!("kind=\"{kind}\"");
        let dropped = figure(&text, "kvm_ha_agent_spool_dropped_total", &[&label]);
        assert_eq!(dropped, Some(0.0), "{kind}:\n{text}");
    }
    for path in [
        "/healthz",
        "/readyz",
        "/readyz/libvirt",
        "/readyz/spool",
        "/readyz/service-lease",
    ] {
        assert_eq!(get(path).await.0, 200, "{path}");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_carried_out_once() {
    let (scene, service, place) = (Scene::new(2).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    let target = ProbeTarget {
        address: service.address.ip(),
        method: ProbeMethod::Tcp,
        port: service.address.port(),
    };
    let probe = command(
        "p1",
        CommandKind::Probe {
            targets: vec![target],
            timeout_ms: 2000,
        },
    );
    let zombie = scene.guests[0];
    let pause = command(
        "z1",
        CommandKind::PauseDomain {
            uuid: ServerId::new(zombie.to_string()).unwrap(),
            incident: "node001-1-1".to_owned(),
        },
    );
    let mut late = command("e1", CommandKind::Resync);
    late.expires_in_ms = 0;
    let commands = [
        probe.clone(),
        probe,
        pause,
        late,
        command("u1", CommandKind::Unknown),
    ];
    service.known.lock().commands.extend(commands);
    let find = |id: &'static str| {
        service.until(id, move |known| {
            known
                .heartbeats
                .iter()
                .flat_map(|beat| &beat.results)
                .find(|result| result.id.0 == id)
                .cloned()
        })
    };
    assert_eq!(find("p1").await.outcome, CommandOutcome::Done);
    assert_eq!(find("z1").await.outcome, CommandOutcome::Done);
    assert_eq!(find("e1").await.outcome, CommandOutcome::Expired);
    assert_eq!(find("u1").await.outcome, CommandOutcome::Unsupported);
    let probes: Vec<_> = {
        let known = service.known.lock();
        known
            .heartbeats
            .iter()
            .flat_map(|beat| beat.probes.clone())
            .collect()
    };
    assert!(probes.iter().all(|probe| probe.outcome == ProbeOutcome::App));
    assert_eq!(probes.len(), 1, "an id is carried out once and told once");
    let taken = service.event("reaction_taken", "").await;
    assert_eq!(taken.attrs["trigger"], Scalar::from("zombie"));
    let state = service.until("the pause", |known| {
        let inventory = known.inventories.last()?;
        let entry = inventory
            .domains
            .iter()
            .find(|entry| entry.uuid.as_str() == zombie.to_string())?;
        (entry.state == DomainState::Paused).then_some(())
    });
    state.await;
    // An agent that may not pause says so.
    place.configure(&[service.url()], "reactions: {zombie: {action: report}}");
    service
        .until("applied", |known| {
            (known
                .events
                .iter()
                .filter(|event| event.event == "config_applied")
                .count()
                == 2)
                .then_some(())
        })
        .await;
    let again = command(
        "z2",
        CommandKind::PauseDomain {
            uuid: ServerId::new(scene.guests[1].to_string()).unwrap(),
            incident: String::new(),
        },
    );
    service.known.lock().commands.push_back(again);
    assert_eq!(find("z2").await.outcome, CommandOutcome::Refused);
    let left = service.event("reaction_suppressed", "").await;
    assert_eq!(
        (&left.attrs["trigger"], &left.attrs["guard"]),
        (&Scalar::from("zombie"), &Scalar::from("report"))
    );
    assert_eq!(left.domain.unwrap().uuid.as_str(), scene.guests[1].to_string());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_somebody_asks_for_is_told_at_once() {
    let (scene, service, place) = (Scene::new(2).await, Service::start().await, Place::new());
    place.configure(&[service.url()], "inventory: {interval: 600s}");
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    for n in 0..3 {
        let before = service.known.lock().inventories.len();
        let asked = command(&format!("r{n}"), CommandKind::Resync);
        service.known.lock().commands.push_back(asked);
        service
            .until("a list", move |known| {
                (known.inventories.len() > before).then_some(())
            })
            .await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_resets_a_guest_only_where_that_is_allowed() {
    let (scene, service, place) = (Scene::new(2).await, Service::start().await, Place::new());
    place.configure(
        &[service.url()],
        "reactions: {watchdog: {action: reset, min_uptime: 1ms}}",
    );
    let agent = Agent::start(place.start(&scene.uri));
    connected(&service).await;
    scene
        .world
        .announce(scene.guests[0], EventBody::Watchdog { action: 0 })
        .unwrap();
    let taken = service.event("reaction_taken", "").await;
    assert_eq!(taken.attrs["result"], Scalar::from("done"), "{taken:?}");
    assert_eq!(taken.domain.unwrap().uuid.as_str(), scene.guests[0].to_string());
    scene
        .world
        .announce(scene.guests[0], EventBody::Watchdog { action: 0 })
        .unwrap();
    let suppressed = service.event("reaction_suppressed", "").await;
    assert_eq!(suppressed.attrs["guard"], Scalar::from("cooldown"));
    // The service takes the host in hand: nothing is repaired any more.
    service.known.lock().hold = true;
    let beats = service.known.lock().heartbeats.len();
    service
        .until("two more heartbeats", |known| {
            (known.heartbeats.len() > beats + 1).then_some(())
        })
        .await;
    scene
        .world
        .announce(scene.guests[1], EventBody::Watchdog { action: 1 })
        .unwrap();
    service
        .until("held", |known| {
            let held =
                |event: &&cobaltcore_ha_wire::Event| event.attrs.get("guard") == Some(&Scalar::from("hold"));
            known.events.iter().find(held).map(|_| ())
        })
        .await;
    assert_eq!(service.count("reaction_taken", ""), 1);
    agent.stop().await;
}
