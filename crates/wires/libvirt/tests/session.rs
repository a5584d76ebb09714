// SPDX-License-Identifier: Apache-2.0
//! A session over the daemon's life: late start, restarts, drivers that are missing, changes of what is wanted.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use cobaltcore_libvirt::client::Options;
use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::server::ServerOptions;
use cobaltcore_libvirt::session::{Notice, Notices, Session, SessionConfig, State};
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
            matches!(&event, Notice::Event { generation: seen, event } if *seen == generation && event.body == LIFE),
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
