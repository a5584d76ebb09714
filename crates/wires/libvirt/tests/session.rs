// SPDX-License-Identifier: Apache-2.0
//! A session over the daemon's life: late start, restarts, drivers that are missing, changes of what is wanted.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use cobaltcore_libvirt::client::Options;
use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::procedure::calls;
use cobaltcore_libvirt::server::{Client, ServerOptions};
use cobaltcore_libvirt::session::{Notice, Notices, Session, SessionConfig, State};
use rustix::time::{ClockId, clock_gettime};
use support::{Daemon, alpha};

const LIFE: EventBody = EventBody::Lifecycle { event: 2, detail: 0 };

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

async fn next(notices: &mut Notices) -> Notice {
    tokio::time::timeout(Duration::from_mins(2), notices.next())
        .await
        .expect("in time")
        .expect("not over")
}

fn config(path: &std::path::Path) -> SessionConfig {
    let uri = format!("qemu+unix:///system?socket={}", path.display())
        .parse()
        .unwrap();
    let mut config = SessionConfig::new(uri).with_events([EventId::LIFECYCLE]);
    config.backoff.first = Duration::from_millis(10);
    config.backoff.last = Duration::from_millis(50);
    config
}

#[tokio::test]
async fn a_daemon_that_starts_late_is_found() {
    let directory = directory();
    let path = directory.path().join("sock");
    let (session, mut notices) = Session::start(config(&path));
    let first = next(&mut notices).await;
    assert!(
        matches!(&first, Notice::Down { generation: 0, why } if why.to_string().contains("sock")),
        "{first:?}"
    );
    let mut watch = session.watch();
    watch
        .wait_for(|state| matches!(state, State::Down(outage) if outage.attempts >= 3))
        .await
        .unwrap();
    let daemon = Daemon::start(path, ServerOptions::default());
    let connection = session.up().await.unwrap();
    assert_eq!(connection.hostname().await.unwrap(), "sim-host");
    assert!(matches!(
        next(&mut notices).await,
        Notice::Up { generation: 1, .. }
    ));
    session.stop().await;
    assert!(notices.next().await.is_none());
    daemon.die().await;
}

#[tokio::test]
async fn every_restart_is_told_and_events_are_registered_again() {
    let directory = directory();
    let path = directory.path().join("sock");
    let mut daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, mut notices) = Session::start(config(&path));
    for generation in 1..=20 {
        let up = next(&mut notices).await;
        assert!(
            matches!(&up, Notice::Up { generation: seen, .. } if *seen == generation),
            "{up:?}"
        );
        daemon.host.publish(&alpha(), &LIFE);
        let event = next(&mut notices).await;
        assert!(
            matches!(&event, Notice::Event { generation: seen, event, .. } if *seen == generation && event.body == LIFE),
            "{event:?}"
        );
        daemon.die().await;
        let down = next(&mut notices).await;
        assert!(
            matches!(&down, Notice::Down { generation: seen, .. } if *seen == generation),
            "{down:?}"
        );
        daemon = Daemon::start(path.clone(), ServerOptions::default());
    }
    session.stop().await;
}

#[tokio::test]
async fn an_outage_keeps_its_beginning_while_attempts_go_on() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, _notices) = Session::start(config(&path));
    session.up().await.unwrap();
    daemon.die().await;
    let mut watch = session.watch();
    let lost = watch
        .wait_for(|state| state.outage().is_some())
        .await
        .unwrap()
        .outage()
        .unwrap()
        .clone();
    let later = watch
        .wait_for(|state| state.outage().is_some_and(|outage| outage.attempts >= 3))
        .await
        .unwrap();
    assert_eq!(later.outage().map(|outage| outage.since), Some(lost.since));
    assert!(lost.why.is_closed());
}

#[tokio::test]
async fn the_next_driver_is_tried_when_the_daemon_lacks_one() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let mut config = config(&path);
    config.uris.insert(
        0,
        format!("ch+unix:///system?socket={}", path.display())
            .parse()
            .unwrap(),
    );
    let (session, _notices) = Session::start(config);
    assert_eq!(session.up().await.unwrap().driver_type().await.unwrap(), "QEMU");
    daemon.die().await;
}

#[tokio::test]
async fn wanted_events_can_change_while_connected() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, mut notices) = Session::start(config(&path));
    session.up().await.unwrap();
    assert!(matches!(next(&mut notices).await, Notice::Up { .. }));
    session.set_events(vec![EventId::REBOOT, EventId::WATCHDOG]);
    let wanted = [EventId::REBOOT, EventId::WATCHDOG];
    while daemon.host.clients.lock()[0].registered() != wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    daemon.host.publish(&alpha(), &LIFE);
    daemon.host.publish(&alpha(), &EventBody::Watchdog { action: 2 });
    let event = next(&mut notices).await;
    assert!(matches!(&event, Notice::Event { event, .. } if event.body == EventBody::Watchdog { action: 2 }));
}

/// What is wanted may change at any moment, also while a new connection registers what was wanted before.
#[tokio::test]
async fn a_change_while_events_are_being_registered_is_not_forgotten() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, _notices) = Session::start(config(&path).with_events(EventId::ALL.iter().copied()));
    let registered = || daemon.host.clients.lock().first().map(Client::registered);
    while registered().is_none_or(|ids| ids.is_empty()) {
        tokio::task::yield_now().await;
    }
    assert!(!session.state().is_up(), "it is still registering");
    session.set_events(vec![EventId::REBOOT]);
    session.up().await.unwrap();
    let only_reboot = async {
        while registered() != Some(vec![EventId::REBOOT]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), only_reboot)
        .await
        .expect("the change");
}

#[tokio::test]
async fn a_connection_whose_events_cannot_be_changed_is_given_up_for_one_that_has_what_is_wanted() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let both = [EventId::LIFECYCLE, EventId::REBOOT];
    let (session, mut notices) = Session::start(config(&path).with_events(both));
    let connection = session.up().await.unwrap();
    assert!(matches!(
        next(&mut notices).await,
        Notice::Up { generation: 1, .. }
    ));
    // The daemon forgets the second registration, so it refuses to end it.
    connection
        .call::<calls::ConnectDomainEventCallbackDeregisterAny>(&1)
        .await
        .unwrap();
    session.set_events(vec![EventId::LIFECYCLE, EventId::WATCHDOG]);
    let down = next(&mut notices).await;
    assert!(
        matches!(&down, Notice::Down { generation: 1, why } if why.rpc().is_some()),
        "{down:?}"
    );
    assert!(connection.close_reason().is_some(), "nobody goes on with it");
    assert!(matches!(
        next(&mut notices).await,
        Notice::Up { generation: 2, .. }
    ));
    let clients = daemon.host.clients.lock();
    let registered: Vec<_> = clients.iter().map(Client::registered).collect();
    assert!(
        registered.contains(&vec![EventId::LIFECYCLE, EventId::WATCHDOG]),
        "{registered:?}"
    );
}

/// Whoever takes an event late must still know when it happened.
#[tokio::test]
async fn an_event_carries_the_moment_it_came_from_the_wire() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, mut notices) = Session::start(config(&path));
    session.up().await.unwrap();
    assert!(matches!(next(&mut notices).await, Notice::Up { .. }));
    let boot_ns = || {
        let time = clock_gettime(ClockId::Boottime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let before = boot_ns();
    daemon.host.publish(&alpha(), &LIFE);
    while notices.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waiting = boot_ns();
    // It is taken only now.
    let Notice::Event { received_ns, .. } = next(&mut notices).await else {
        panic!("no event");
    };
    assert!(
        (before..=waiting).contains(&received_ns),
        "{before} {received_ns} {waiting}"
    );
}

#[tokio::test]
async fn a_flood_of_events_costs_memory_only_up_to_the_limit_and_is_told() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let options = Options {
        event_capacity: 100,
        ..Options::default()
    };
    let (session, mut notices) = Session::start(config(&path).with_options(options));
    let connection = session.up().await.unwrap();
    for detail in 0..10_000 {
        daemon
            .host
            .publish(&alpha(), &EventBody::Lifecycle { event: 3, detail });
        if detail % 1000 == 0 {
            connection.hostname().await.unwrap();
        }
    }
    connection.hostname().await.unwrap();
    assert!(notices.waiting() <= 100);
    let first = next(&mut notices).await;
    let Notice::Lagged { missed } = first else {
        panic!("{first:?}")
    };
    let mut last = None;
    for _ in 0..100 {
        if let Notice::Event { event, .. } = next(&mut notices).await {
            last = Some(event.body);
        }
    }
    assert_eq!(missed, 10_001 - 100, "the notice of being up is among the lost");
    assert_eq!(
        last,
        Some(EventBody::Lifecycle {
            event: 3,
            detail: 9_999
        })
    );
}

#[tokio::test]
async fn dropping_a_session_closes_its_connection() {
    let directory = directory();
    let path = directory.path().join("sock");
    let daemon = Daemon::start(path.clone(), ServerOptions::default());
    let (session, mut notices) = Session::start(config(&path));
    session.up().await.unwrap();
    drop(session);
    while notices.next().await.is_some() {}
    while !daemon.host.clients.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
