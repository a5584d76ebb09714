// SPDX-License-Identifier: Apache-2.0
//! One connection between the client and the server half: set-up, calls, deadlines, cancellation, events, keepalive.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cobaltcore_libvirt::client::{Connection, Delivery, Keepalive, Observer, Options};
use cobaltcore_libvirt::error::{CloseReason, Error, code};
use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::frame::{self, Header, PROGRAM_REMOTE, Status};
use cobaltcore_libvirt::procedure::{Procedure, flags};
use cobaltcore_libvirt::server::{ServerOptions, serve};
use cobaltcore_libvirt::transport::Stream;
use cobaltcore_libvirt::types::AuthType;
use support::{TestHost, alpha, beta, pair};

fn quick(call: u64) -> Options {
    let mut options = Options::default();
    options.deadlines.call = Duration::from_millis(call);
    options
}

#[tokio::test]
async fn calls_are_answered_with_their_types() {
    let (host, _, _) = pair(Options::default(), ServerOptions::default()).await;
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
    assert_eq!(host.lib_version().await.unwrap(), 9_000_000);
    assert_eq!(host.node_info().await.unwrap().nodes, 2);
    assert_eq!(
        host.list_all_domains(flags::LIST_ALL).await.unwrap(),
        [alpha(), beta()]
    );
    assert_eq!(
        host.list_all_domains(flags::LIST_INACTIVE).await.unwrap(),
        [beta()]
    );
    assert_eq!(host.state(&alpha()).await.unwrap().state, 1);
    assert_eq!(
        host.job_stats(&alpha()).await.unwrap().params.u64("time_elapsed"),
        Some(1234)
    );
    assert_eq!(
        host.all_domain_stats(&[], 0, 0).await.unwrap()[0]
            .params
            .u64("state.state"),
        Some(1)
    );
    let missing = host.lookup_by_name("nobody").await.unwrap_err();
    assert!(missing.is_no_domain(), "{missing}");
    let lacking = host.sysinfo().await.unwrap_err();
    assert!(lacking.is_unsupported(), "{lacking}");
}

#[tokio::test]
async fn many_calls_at_once_never_exceed_the_limit_and_all_get_their_own_answer() {
    let server = ServerOptions {
        max_client_requests: 5,
        ..ServerOptions::default()
    };
    let (host, world, _) = pair(Options::default(), server).await;
    *world.slow.lock() = Some(Duration::from_millis(2));
    let calls: Vec<_> = (0..200)
        .map(|index| {
            let host = host.clone();
            tokio::spawn(async move {
                if index % 2 == 0 {
                    assert_eq!(host.hostname().await.unwrap(), "sim-host");
                } else {
                    assert_eq!(host.xml(&alpha(), 0).await.unwrap().matches("alpha").count(), 1);
                }
                assert!(host.calls_pending() <= 4);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(host.calls_pending(), 0);
}

#[tokio::test]
async fn a_quick_call_overtakes_a_slow_one() {
    let (host, world, _) = pair(Options::default(), ServerOptions::default()).await;
    world.hang.store(true, Ordering::Relaxed);
    let slow = {
        let host = host.clone();
        tokio::spawn(async move { host.hostname().await })
    };
    while host.calls_pending() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.lib_version().await.unwrap(), 9_000_000);
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_deadline() {
    let (host, world, _) = pair(quick(300), ServerOptions::default()).await;
    world.hang.store(true, Ordering::Relaxed);
    let late = host.hostname().await.unwrap_err();
    assert!(late.is_timeout() && !late.is_closed(), "{late}");
    assert_eq!(late.to_string(), "connect_get_hostname: no answer within 300ms");
    assert_eq!(host.lib_version().await.unwrap(), 9_000_000);
    let shorter = host
        .with_deadline(Duration::from_millis(5))
        .hostname()
        .await
        .unwrap_err();
    assert!(matches!(shorter, Error::Timeout { after, .. } if after.as_millis() == 5));
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_slots_are_all_stuck_is_given_up() {
    let (host, world, _) = pair(quick(300), ServerOptions::default()).await;
    world.hang.store(true, Ordering::Relaxed);
    let calls: Vec<_> = (0..4).map(|_| host.hostname()).collect();
    for call in calls {
        call.await.unwrap_err();
    }
    assert_eq!(host.closed().await, CloseReason::Stuck(4));
    assert!(host.lib_version().await.unwrap_err().is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_half_way_harms_nobody() {
    let (host, world, _) = pair(Options::default(), ServerOptions::default()).await;
    *world.slow.lock() = Some(Duration::from_millis(20));
    for _ in 0..20 {
        let call = host.hostname();
        tokio::select! {
            _ = call => panic!("too early"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    assert_eq!(host.lib_version().await.unwrap(), 9_000_000);
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
    assert_eq!(host.close_reason(), None);
}

#[tokio::test]
async fn authentication_this_client_does_not_do_is_refused_with_advice() {
    for (auth, word) in [(AuthType::Sasl, "sasl"), (AuthType::Polkit, "polkit")] {
        let options = ServerOptions {
            auth: vec![auth],
            ..ServerOptions::default()
        };
        let error = try_open(Options::default(), options, "qemu:///system")
            .await
            .unwrap_err();
        assert!(error.is_auth(), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("demands authentication ({word})")),
            "{error}"
        );
    }
    let polkit = || ServerOptions {
        auth: vec![AuthType::Polkit],
        ..ServerOptions::default()
    };
    let willing = Options {
        polkit: true,
        ..Options::default()
    };
    try_open(willing.clone(), polkit(), "qemu:///system")
        .await
        .unwrap();
    let refused = ServerOptions {
        polkit_accepts: false,
        ..polkit()
    };
    let error = try_open(willing, refused, "qemu:///system").await.unwrap_err();
    assert_eq!(error.code(), Some(code::AUTH_UNAVAILABLE));
    assert!(error.is_auth());
}

async fn try_open(client: Options, server: ServerOptions, uri: &str) -> Result<Connection, Error> {
    let (here, there) = tokio::io::duplex(64 * 1024);
    serve(
        Stream::new(there, "pipe"),
        std::sync::Arc::new(TestHost::default()),
        server,
    );
    Connection::over(Stream::new(here, "pipe"), uri, client).await
}

#[tokio::test]
async fn a_driver_the_daemon_does_not_have_is_its_own_kind_of_error() {
    let error = try_open(Options::default(), ServerOptions::default(), "ch:///system")
        .await
        .unwrap_err();
    assert!(error.is_driver_unavailable(), "{error}");
}

#[tokio::test]
async fn a_read_only_connection_reads_and_does_not_write() {
    // By the client's own wish, or because it came through the read-only socket.
    for (by_client, by_socket) in [(true, false), (false, true)] {
        let client = Options {
            read_only: by_client,
            ..Options::default()
        };
        let server = ServerOptions {
            read_only: by_socket,
            ..ServerOptions::default()
        };
        let (host, _, peer) = pair(client, server).await;
        assert!(peer.read_only());
        assert_eq!(host.state(&alpha()).await.unwrap().state, 1);
        host.xml(&alpha(), 0).await.unwrap();
        let write = host.suspend(&alpha()).await.unwrap_err();
        let secrets = host.xml(&alpha(), flags::XML_SECURE).await.unwrap_err();
        for (denied, text) in [
            (
                write,
                "operation forbidden: read only access prevents virDomainSuspend",
            ),
            (
                secrets,
                "operation forbidden: virDomainGetXMLDesc with secure flag",
            ),
        ] {
            assert_eq!(denied.code(), Some(code::OPERATION_DENIED));
            assert_eq!(denied.rpc().unwrap().message.as_deref(), Some(text));
        }
    }
}

#[tokio::test]
async fn the_order_of_the_set_up_is_enforced() {
    let (here, there) = tokio::io::duplex(64 * 1024);
    serve(
        Stream::new(there, "pipe"),
        std::sync::Arc::new(TestHost::default()),
        ServerOptions::default(),
    );
    let host = Connection::over(Stream::new(here, "pipe"), "qemu:///system", Options::default())
        .await
        .unwrap();
    let again = host
        .call::<cobaltcore_libvirt::calls::ConnectOpen>(&(Some("qemu:///system".into()), 0))
        .await;
    assert!(again.unwrap_err().to_string().contains("connection already open"));
    let unknown = host
        .call_raw(PROGRAM_REMOTE, Procedure(9999), Bytes::new())
        .await
        .unwrap_err();
    assert!(unknown.is_unsupported(), "{unknown}");
    let program = host
        .call_raw(0x1234, Procedure(1), Bytes::new())
        .await
        .unwrap_err();
    assert!(program.to_string().contains("Cannot find program"), "{program}");
    let garbage = host
        .call_raw(
            PROGRAM_REMOTE,
            Procedure::DOMAIN_GET_STATE,
            Bytes::from_static(&[1]),
        )
        .await;
    assert!(
        garbage
            .unwrap_err()
            .to_string()
            .contains("Unable to decode message payload")
    );
    host.call::<cobaltcore_libvirt::calls::ConnectClose>(&())
        .await
        .unwrap();
    assert!(
        host.hostname()
            .await
            .unwrap_err()
            .to_string()
            .contains("connection not open")
    );
}

#[tokio::test]
async fn events_arrive_in_order_beside_calls() {
    for (callbacks, legacy) in [(true, false), (true, true), (false, false)] {
        let server = ServerOptions {
            event_callbacks: callbacks,
            ..ServerOptions::default()
        };
        let client = Options {
            legacy_events: legacy,
            ..Options::default()
        };
        let (host, world, peer) = pair(client, server).await;
        let mut stream = host
            .subscribe(&[EventId::LIFECYCLE, EventId::REBOOT])
            .await
            .unwrap()
            .stream;
        let mut second = host.subscribe(&[EventId::REBOOT]).await.unwrap().stream;
        assert_eq!(peer.registered(), [EventId::LIFECYCLE, EventId::REBOOT]);
        for detail in 0..100 {
            world.publish(&alpha(), &EventBody::Lifecycle { event: 3, detail });
        }
        world.publish(&alpha(), &EventBody::Reboot {});
        world.publish(&alpha(), &EventBody::ControlError {});
        assert_eq!(host.hostname().await.unwrap(), "sim-host");
        for expected in 0..100 {
            match stream.next().await {
                Some(Delivery::Event(event)) => {
                    assert_eq!(
                        event.body,
                        EventBody::Lifecycle {
                            event: 3,
                            detail: expected
                        }
                    );
                    assert_eq!(event.callback.is_some(), callbacks && !legacy);
                }
                other => panic!("{other:?}"),
            }
        }
        for stream in [&mut stream, &mut second] {
            assert!(
                matches!(stream.next().await, Some(Delivery::Event(event)) if event.body == EventBody::Reboot {})
            );
            assert_eq!(stream.waiting(), 0);
        }
        stream.remove(&host, EventId::LIFECYCLE).await.unwrap();
        stream.remove(&host, EventId::REBOOT).await.unwrap();
        assert_eq!(
            peer.registered(),
            [EventId::REBOOT],
            "the other stream still wants it"
        );
    }
}

#[tokio::test]
async fn an_event_the_daemon_does_not_have_does_not_cost_the_others() {
    let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
    let subscription = host.subscribe(EventId::ALL).await.unwrap();
    let missing: Vec<_> = subscription.unsupported.iter().map(|(id, _)| id.0).collect();
    assert_eq!(missing, [27, 28, 29]);
    assert_eq!(peer.registered().len(), 27);
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_what_it_missed_and_calls_go_on() {
    let client = Options {
        event_capacity: 10,
        ..Options::default()
    };
    let (host, world, _) = pair(client, ServerOptions::default()).await;
    let mut stream = host
        .subscribe(&[EventId::MIGRATION_ITERATION])
        .await
        .unwrap()
        .stream;
    for iteration in 0..1000 {
        world.publish(&alpha(), &EventBody::MigrationIteration { iteration });
        if iteration % 100 == 0 {
            assert_eq!(host.hostname().await.unwrap(), "sim-host");
        }
    }
    host.hostname().await.unwrap();
    assert_eq!(stream.next().await, Some(Delivery::Lagged(990)));
    for iteration in 990..1000 {
        assert!(matches!(stream.next().await, Some(Delivery::Event(event))
            if event.body == EventBody::MigrationIteration { iteration }));
    }
}

#[tokio::test]
async fn an_event_that_makes_no_sense_counts_as_missed() {
    let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
    let mut stream = host.subscribe(&[EventId::LIFECYCLE]).await.unwrap().stream;
    peer.send_raw(frame::encode(&Header::message(PROGRAM_REMOTE, 318), &7_i32).unwrap());
    assert_eq!(stream.next().await, Some(Delivery::Lagged(1)));
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
}

#[tokio::test]
async fn a_lost_connection_ends_calls_and_streams_with_the_reason() {
    let (host, world, peer) = pair(Options::default(), ServerOptions::default()).await;
    let mut stream = host.subscribe(&[EventId::LIFECYCLE]).await.unwrap().stream;
    world.hang.store(true, Ordering::Relaxed);
    let waiting = {
        let host = host.clone();
        tokio::spawn(async move { host.hostname().await })
    };
    while host.calls_pending() == 0 {
        tokio::task::yield_now().await;
    }
    peer.close();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            Error::Closed {
                reason: CloseReason::Eof,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(stream.next().await, None);
    assert_eq!(host.closed().await, CloseReason::Eof);
    assert!(host.hostname().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn a_daemon_that_speaks_garbage_is_left() {
    let wrong_length = Bytes::from_static(&[0, 0, 0, 1]);
    let http = Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let call = frame::encode(&Header::call(PROGRAM_REMOTE, 1, 1), &()).unwrap();
    for garbage in [wrong_length, http, call] {
        let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
        peer.send_raw(garbage);
        let reason = host.closed().await;
        assert!(matches!(reason, CloseReason::Protocol(_)), "{reason}");
    }
}

#[tokio::test]
async fn replies_nobody_waits_for_and_wrong_ones_are_survived() {
    let (host, world, peer) = pair(quick(200), ServerOptions::default()).await;
    let stray = Header::call(PROGRAM_REMOTE, 59, 4_000_000).reply(Status::Ok);
    peer.send_raw(frame::encode(&stray, "who?").unwrap());
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
    world.hang.store(true, Ordering::Relaxed);
    let serial = u32::try_from(host.calls_sent()).unwrap() + 1;
    let call = host.hostname();
    let wrong = Header::call(PROGRAM_REMOTE, 7, serial).reply(Status::Ok);
    peer.send_raw(frame::encode(&wrong, "capabilities").unwrap());
    let error = call.await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { .. } | Error::Closed { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stops_reading_and_writing_is_dead_after_20_seconds() {
    let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
    let begun = tokio::time::Instant::now();
    peer.set_frozen(true);
    let reason = host.closed().await;
    assert!(
        matches!(reason, CloseReason::Keepalive { pings: 3, .. }),
        "{reason}"
    );
    assert!(
        begun.elapsed() <= Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_alive_from_both_sides() {
    for (client, server) in [(5, 0), (0, 5), (5, 5)] {
        let keepalive = |seconds, count| Keepalive {
            interval: Duration::from_secs(seconds),
            count,
        };
        let options = Options {
            keepalive: keepalive(client, 3),
            ..Options::default()
        };
        let server = ServerOptions {
            keepalive: keepalive(server, 5),
            ..ServerOptions::default()
        };
        let (host, _, peer) = pair(options, server).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(host.close_reason(), None);
        assert!(!peer.is_closed());
        assert_eq!(host.hostname().await.unwrap(), "sim-host");
    }
}

#[tokio::test]
async fn a_lost_driver_backend_ends_the_connection() {
    let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
    peer.publish_backend_closed(1);
    assert_eq!(host.closed().await, CloseReason::Backend(1));
}

#[tokio::test]
async fn the_daemon_notices_when_the_last_handle_goes() {
    let (host, _, peer) = pair(Options::default(), ServerOptions::default()).await;
    let other = host.clone();
    drop(host);
    assert_eq!(other.hostname().await.unwrap(), "sim-host");
    drop(other);
    peer.closed().await;
}

#[derive(Default)]
struct Seen {
    calls: parking_lot::Mutex<Vec<String>>,
    events: std::sync::atomic::AtomicU64,
}

impl Observer for Seen {
    fn call(&self, procedure: Procedure, _: Duration, outcome: Option<Result<(), &Error>>) {
        let word = match outcome {
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(error)) => error.code().map_or("lost".to_owned(), |code| code.to_string()),
            None => "left".to_owned(),
        };
        self.calls.lock().push(format!("{procedure} {word}"));
    }

    fn event(&self, id: Option<EventId>) {
        assert_eq!(id, Some(EventId::REBOOT));
        self.events.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_observer_sees_every_call_and_event_once() {
    let seen = std::sync::Arc::new(Seen::default());
    let options = Options {
        observer: Some(seen.clone()),
        ..Options::default()
    };
    let (host, world, _) = pair(options, ServerOptions::default()).await;
    let mut stream = host.subscribe(&[EventId::REBOOT]).await.unwrap().stream;
    seen.calls.lock().clear();
    host.lib_version().await.unwrap();
    host.sysinfo().await.unwrap_err();
    world.hang.store(true, Ordering::Relaxed);
    tokio::time::timeout(Duration::from_millis(10), host.hostname())
        .await
        .unwrap_err();
    world.publish(&alpha(), &EventBody::Reboot {});
    stream.next().await.unwrap();
    assert_eq!(stream.try_next(), None);
    assert_eq!(
        *seen.calls.lock(),
        [
            "connect_get_lib_version ok",
            "connect_get_sysinfo 3",
            "connect_get_hostname left"
        ]
    );
    assert_eq!(seen.events.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn streams_that_ask_at_the_same_moment_share_one_registration() {
    for legacy_events in [false, true] {
        let options = Options {
            legacy_events,
            ..Options::default()
        };
        let (host, world, _) = pair(options, ServerOptions::default()).await;
        let wanted = [EventId::REBOOT];
        let (first, second) = tokio::join!(host.subscribe(&wanted), host.subscribe(&wanted));
        let (mut first, mut second) = (first.unwrap(), second.unwrap());
        assert!(first.unsupported.is_empty() && second.unsupported.is_empty());
        world.publish(&alpha(), &EventBody::Reboot {});
        host.lib_version().await.unwrap();
        for subscription in [&mut first, &mut second] {
            assert!(matches!(subscription.stream.try_next(), Some(Delivery::Event(_))));
            assert_eq!(subscription.stream.try_next(), None, "told once");
        }
    }
}

#[tokio::test]
async fn a_full_house_lets_the_next_client_in_when_one_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        max_clients: 1,
        ..ServerOptions::default()
    };
    let daemon = support::Daemon::start(directory.path().join("sock"), options);
    let uri: cobaltcore_libvirt::Uri = daemon.uri().parse().unwrap();
    let first = Connection::connect(&uri, Options::default()).await.unwrap();
    let second = Connection::connect(&uri, Options::default());
    tokio::pin!(second);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
    assert!(early.is_err(), "must wait at the door");
    drop(first);
    assert_eq!(second.await.unwrap().hostname().await.unwrap(), "sim-host");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_with_five_calls_under_way_reads_nothing_more() {
    let client = Options {
        max_in_flight: 10,
        keepalive: Keepalive {
            interval: Duration::ZERO,
            count: 0,
        },
        ..quick(1000)
    };
    let (host, world, peer) = pair(client, ServerOptions::default()).await;
    world.hang.store(true, Ordering::Relaxed);
    let hanging: Vec<_> = (0..5)
        .map(|_| {
            let host = host.with_deadline(Duration::from_hours(1));
            tokio::spawn(async move { host.hostname().await })
        })
        .collect();
    while host.calls_pending() < 5 {
        tokio::task::yield_now().await;
    }
    assert!(
        host.lib_version().await.unwrap_err().is_timeout(),
        "the sixth call is not even read"
    );
    assert!(!peer.is_closed());
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}
