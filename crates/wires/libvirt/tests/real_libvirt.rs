// SPDX-License-Identifier: Apache-2.0
//! The client against a real libvirtd with a real QEMU. Runs with `COBALTCORE_REAL=1` as root where libvirtd, virsh and
//! QEMU are installed; says SKIPPED and passes elsewhere.
#![allow(clippy::unwrap_used)]

mod pki;

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_lab::private::{
    Daemon, RW, SECOND, TCP, busy_guest_xml, field, guest_xml, in_private_host, until_busy, virsh,
};
use cobaltcore_libvirt::client::{Connection, Delivery, EventStream, Options};
use cobaltcore_libvirt::error::code;
use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::names;
use cobaltcore_libvirt::procedure::{MigrateParams, flags};
use cobaltcore_libvirt::session::{Notice, Session, SessionConfig, State};
use cobaltcore_libvirt::types::Value;

const RO: &str = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock-ro";

async fn connect(uri: &str, options: Options) -> Connection {
    let uri = uri.parse().expect("uri");
    Connection::connect(&uri, options)
        .await
        .expect("libvirtd answers")
}

fn read_only() -> Options {
    Options {
        read_only: true,
        ..Options::default()
    }
}

#[test]
fn host_facts_equal_what_virsh_says() {
    in_private_host("host_facts_equal_what_virsh_says", || async {
        let _daemon = Daemon::start().await;
        for (uri, options) in [
            (RW, Options::default()),
            (TCP, Options::default()),
            (RO, read_only()),
        ] {
            let host = connect(uri, options).await;
            assert_eq!(host.driver_type().await.unwrap(), "QEMU", "{uri}");
            assert_eq!(host.hostname().await.unwrap(), virsh(&["hostname"]).await.trim());
            assert_eq!(host.uri().await.unwrap(), "qemu:///system");
            assert!(host.is_secure().await.unwrap());

            let version = virsh(&["version", "--daemon"]).await;
            let library = names::version(host.lib_version().await.unwrap());
            assert_eq!(field(&version, "Running against daemon"), library);
            let hypervisor = names::version(host.hypervisor_version().await.unwrap());
            assert_eq!(
                field(&version, "Running hypervisor"),
                format!("QEMU {hypervisor}")
            );

            let info = host.node_info().await.unwrap();
            let said = virsh(&["nodeinfo"]).await;
            assert_eq!(field(&said, "CPU model"), info.model);
            assert_eq!(field(&said, "CPU(s)"), info.cpus.to_string());
            assert_eq!(field(&said, "NUMA cell(s)"), info.nodes.to_string());
            assert_eq!(field(&said, "Memory size"), format!("{} KiB", info.memory_kib));

            assert_eq!(
                host.capabilities().await.unwrap().trim(),
                virsh(&["capabilities"]).await.trim()
            );
            assert!(host.free_memory().await.unwrap() > 0);
            assert_eq!(
                host.cells_free_memory(0, 64).await.unwrap().len(),
                info.nodes as usize
            );
            assert_eq!(
                host.free_pages(&[4], 0, info.nodes as u32).await.unwrap().len(),
                info.nodes as usize
            );
            let memory = host.node_memory_stats(-1).await.unwrap();
            let total = memory
                .iter()
                .find(|stat| stat.field == "total")
                .map(|stat| stat.value);
            let said = virsh(&["nodememstats"]).await.replace(' ', "");
            assert_eq!(
                total.map(|kib| format!("{kib}KiB")).as_deref(),
                Some(field(&said, "total"))
            );
            assert!(!host.node_cpu_stats(-1).await.unwrap().is_empty());
            assert!(host.node_cpu_map().await.unwrap().present >= info.cpus);
        }
    });
}

#[test]
fn domain_capabilities_need_a_read_write_connection() {
    in_private_host("domain_capabilities_need_a_read_write_connection", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        assert_eq!(
            host.domain_capabilities().await.unwrap().trim(),
            virsh(&["domcapabilities"]).await.trim()
        );
        let refused = connect(RO, read_only())
            .await
            .domain_capabilities()
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Some(code::OPERATION_DENIED), "{refused}");
        let words = "operation forbidden: read only access prevents virConnectGetDomainCapabilities";
        assert_eq!(refused.rpc().unwrap().message.as_deref(), Some(words));
    });
}

#[test]
fn guests_equal_what_virsh_says() {
    in_private_host("guests_equal_what_virsh_says", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let running = host.define(&guest_xml("running")).await.unwrap();
        let stopped = host.define(&guest_xml("stopped")).await.unwrap();
        assert!(!running.is_active());
        let running = host.start(&running, 0).await.unwrap();
        assert!(running.is_active());

        let mut all = host.list_all_domains(flags::LIST_ALL).await.unwrap();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(all, [running.clone(), stopped.clone()]);
        assert_eq!(
            host.list_all_domains(flags::LIST_ACTIVE).await.unwrap(),
            std::slice::from_ref(&running)
        );
        let listed = virsh(&["list", "--all", "--uuid"]).await;
        assert!(listed.contains(&running.uuid.to_string()) && listed.contains(&stopped.uuid.to_string()));
        assert_eq!(host.lookup_by_name("running").await.unwrap(), running);
        assert_eq!(host.lookup_by_uuid(running.uuid).await.unwrap(), running);
        assert_eq!(host.lookup_by_id(running.id).await.unwrap(), running);
        let nobody = host.lookup_by_name("nobody").await.unwrap_err();
        assert!(nobody.is_no_domain(), "{nobody}");

        let said = virsh(&["dominfo", "running"]).await;
        let info = host.info(&running).await.unwrap();
        assert_eq!(
            field(&said, "State"),
            names::domain_state(info.state.cast_signed())
        );
        assert_eq!(field(&said, "Max memory"), format!("{} KiB", info.max_memory_kib));
        assert_eq!(field(&said, "Used memory"), format!("{} KiB", info.memory_kib));
        assert_eq!(field(&said, "CPU(s)"), info.vcpus.to_string());
        assert!(host.is_persistent(&running).await.unwrap());
        assert!(host.is_active(&running).await.unwrap() && !host.is_active(&stopped).await.unwrap());
        assert!(!host.autostart(&running).await.unwrap());
        let state = host.state(&running).await.unwrap();
        let words = format!(
            "{} ({})",
            names::domain_state(state.state),
            names::domain_state_reason(state.state, state.reason)
        );
        assert_eq!(virsh(&["domstate", "--reason", "running"]).await.trim(), words);
        assert_eq!(host.control_info(&running).await.unwrap().state, 0);

        assert_eq!(
            host.xml(&running, 0).await.unwrap().trim(),
            virsh(&["dumpxml", "running"]).await.trim()
        );
        let metadata = host
            .metadata(&running, "http://example.org/meta/1")
            .await
            .unwrap();
        assert!(metadata.contains("tiny"), "{metadata}");

        compare_stats(&host, &running).await;
        assert_eq!(host.job_info(&running).await.unwrap().kind, 0);
        assert_eq!(host.job_stats(&running).await.unwrap().kind, 0);
        let idle = host.job_stats(&stopped).await.unwrap_err();
        assert_eq!(idle.code(), Some(code::OPERATION_INVALID), "{idle}");
        host.destroy(&running).await.unwrap();
        host.undefine(&stopped).await.unwrap();
    });
}

/// Figures that do not move by themselves must be equal to the letter.
async fn compare_stats(host: &cobaltcore_libvirt::Connection, guest: &cobaltcore_libvirt::types::Domain) {
    let said = virsh(&["domstats", "--raw", "--state", "--balloon", "--vcpu", &guest.name]).await;
    let said: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| line.trim().split_once('='))
        .collect();
    let ours = host.all_domain_stats(&[], 1 | 4 | 8, 0).await.unwrap();
    let ours = ours.iter().find(|stats| stats.domain.uuid == guest.uuid).unwrap();
    for key in [
        "state.state",
        "state.reason",
        "balloon.current",
        "balloon.maximum",
        "vcpu.current",
        "vcpu.maximum",
    ] {
        let value = match ours.params.get(key).unwrap() {
            Value::String(text) => text.clone(),
            number => number.as_i64().unwrap().to_string(),
        };
        assert_eq!(said.get(key).copied(), Some(value.as_str()), "{key}");
    }
    assert!(said.len() <= ours.params.iter().count() + 1);
}

/// The next lifecycle events, as `event/detail`.
async fn lifecycle(stream: &mut EventStream, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(PATIENCE, stream.next())
            .await
            .expect("event in time");
        let Some(Delivery::Event(event)) = next else {
            panic!("{next:?} after {seen:?}")
        };
        if let EventBody::Lifecycle { event, detail } = event.body {
            seen.push(format!(
                "{}/{}",
                names::lifecycle_event(event),
                names::lifecycle_detail(event, detail)
            ));
        }
    }
    seen
}

#[test]
fn the_life_of_a_guest_is_told_in_events() {
    in_private_host("the_life_of_a_guest_is_told_in_events", || async {
        let _daemon = Daemon::start().await;
        for legacy_events in [false, true] {
            let host = connect(
                RW,
                Options {
                    legacy_events,
                    ..Options::default()
                },
            )
            .await;
            let mut events = host
                .subscribe(&[EventId::LIFECYCLE, EventId::REBOOT])
                .await
                .unwrap()
                .stream;
            let guest = host.define(&guest_xml("mortal")).await.unwrap();
            assert_eq!(lifecycle(&mut events, 1).await, ["defined/added"]);
            let guest = host.start(&guest, 0).await.unwrap();
            assert_eq!(
                lifecycle(&mut events, 2).await,
                ["resumed/unpaused", "started/booted"]
            );
            host.suspend(&guest).await.unwrap();
            assert_eq!(lifecycle(&mut events, 1).await, ["suspended/paused"]);
            host.resume(&guest).await.unwrap();
            assert_eq!(lifecycle(&mut events, 1).await, ["resumed/unpaused"]);
            host.reset(&guest).await.unwrap();
            let reset = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
            assert!(
                matches!(&reset, Some(Delivery::Event(event)) if event.body == EventBody::Reboot {}),
                "{reset:?}"
            );
            host.destroy(&guest).await.unwrap();
            // QEMU says goodbye only if it gets to it before its monitor is closed.
            let mut end = lifecycle(&mut events, 1).await;
            if end == ["shutdown/host"] {
                end = lifecycle(&mut events, 1).await;
            }
            assert_eq!(end, ["stopped/destroyed"]);
            host.undefine(&guest).await.unwrap();
            assert_eq!(lifecycle(&mut events, 1).await, ["undefined/removed"]);
            events.remove(&host, EventId::LIFECYCLE).await.unwrap();
        }
    });
}

#[test]
fn events_a_daemon_does_not_have_are_reported_and_the_others_work() {
    in_private_host(
        "events_a_daemon_does_not_have_are_reported_and_the_others_work",
        || async {
            let _daemon = Daemon::start().await;
            let host = connect(RO, read_only()).await;
            let version = host.lib_version().await.unwrap();
            let subscription = host.subscribe(EventId::ALL).await.unwrap();
            for (id, error) in &subscription.unsupported {
                assert!(id.0 > 26, "{id:?}: {error}");
                assert_eq!(error.code(), Some(code::INTERNAL), "{error}");
            }
            if version < 12_000_000 {
                assert_eq!(subscription.unsupported.len(), EventId::ALL.len() - 27);
            }
        },
    );
}

#[test]
fn saving_a_guest_tells_its_iterations_and_final_figures() {
    in_private_host(
        "saving_a_guest_tells_its_iterations_and_final_figures",
        || async {
            let _daemon = Daemon::start().await;
            let host = connect(RW, Options::default()).await;
            let wanted = [EventId::MIGRATION_ITERATION, EventId::JOB_COMPLETED];
            let mut events = host.subscribe(&wanted).await.unwrap().stream;
            let guest = host.define(&guest_xml("saved")).await.unwrap();
            let guest = host.start(&guest, 0).await.unwrap();
            host.with_deadline(Duration::from_mins(2))
                .managed_save(&guest)
                .await
                .unwrap();
            let mut iterations = 0;
            let params = loop {
                let next = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
                match next {
                    Some(Delivery::Event(event)) => match event.body {
                        EventBody::MigrationIteration { .. } => iterations += 1,
                        EventBody::JobCompleted { params } => break params,
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                }
            };
            assert!(iterations > 0);
            assert_eq!(
                params
                    .u64("operation")
                    .map(|op| names::job_operation(op as i32))
                    .as_deref(),
                Some("save")
            );
            assert!(
                params.u64("memory_total").is_some_and(|bytes| bytes >= 32 << 20),
                "{params:?}"
            );
        },
    );
}

#[test]
fn two_hundred_calls_at_once_are_all_answered() {
    in_private_host("two_hundred_calls_at_once_are_all_answered", || async {
        let _daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let guest = host.define(&guest_xml("busy")).await.unwrap();
        let calls = (0..200).map(|index| {
            let (host, guest) = (host.clone(), guest.clone());
            tokio::spawn(async move {
                match index % 4 {
                    0 => host.hostname().await.map(|name| assert_eq!(name, "real-host")),
                    1 => host
                        .xml(&guest, 0)
                        .await
                        .map(|xml| assert!(xml.contains("<name>busy</name>"))),
                    2 => host.state(&guest).await.map(|state| assert_eq!(state.state, 5)),
                    _ => host.list_all_domains(3).await.map(|all| assert_eq!(all.len(), 1)),
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        assert_eq!(host.calls_pending(), 0);
    });
}

/// Longer than anything here takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(2);

async fn wait_for(session: &Session, what: &str, test: impl FnMut(&State) -> bool) {
    let mut state = session.watch();
    let result = tokio::time::timeout(PATIENCE, state.wait_for(test)).await;
    assert!(matches!(result, Ok(Ok(_))), "never {what}: {:?}", session.state());
}

#[test]
fn a_stopped_daemon_is_unreachable_and_comes_back() {
    in_private_host("a_stopped_daemon_is_unreachable_and_comes_back", || async {
        let daemon = Daemon::start().await;
        let config = SessionConfig::new(RW.parse().unwrap()).with_events([EventId::LIFECYCLE]);
        let (session, mut notices) = Session::start(config);
        wait_for(&session, "up", State::is_up).await;
        daemon.signal("-STOP");
        wait_for(&session, "down", |state| matches!(state, State::Down(_))).await;
        let state = session.state();
        assert!(
            state.outage().is_some_and(|outage| outage.why.is_timeout()),
            "{state:?}"
        );
        daemon.signal("-CONT");
        wait_for(&session, "up again", State::is_up).await;
        let host = session.connection().unwrap();
        host.define(&guest_xml("after")).await.unwrap();
        let mut told = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, notices.next())
                .await
                .unwrap()
                .unwrap()
            {
                Notice::Up { generation, .. } => told.push(format!("up {generation}")),
                Notice::Down { generation, .. } => told.push(format!("down {generation}")),
                Notice::Event {
                    generation, event, ..
                } => {
                    assert_eq!((generation, event.domain.name.as_str()), (2, "after"));
                    break;
                }
                Notice::Lagged { .. } => panic!("nothing may be lost"),
            }
        }
        assert_eq!(told, ["up 1", "down 1", "up 2"]);
        session.stop().await;
    });
}

#[test]
fn a_daemon_killed_twenty_times_is_found_again_every_time() {
    in_private_host(
        "a_daemon_killed_twenty_times_is_found_again_every_time",
        || async {
            let mut daemon = Daemon::start().await;
            let config = SessionConfig::new(RW.parse().unwrap()).with_events([EventId::LIFECYCLE]);
            let (session, mut notices) = Session::start(config);
            wait_for(&session, "up", State::is_up).await;
            let mut last = 1;
            for round in 1..=20 {
                daemon.kill().await;
                wait_for(&session, "down", |state| !state.is_up()).await;
                daemon = Daemon::spawn();
                wait_for(
                    &session,
                    "up",
                    |state| matches!(state, State::Up { generation, .. } if *generation > last),
                )
                .await;
                // Events are registered on the new connection before it is called up.
                let host = session.connection().unwrap();
                let guest = host.define(&guest_xml(&format!("round-{round}"))).await.unwrap();
                host.undefine(&guest).await.unwrap();
                let (mut seen, mut latest) = (Vec::new(), last);
                while seen.len() < 2 {
                    match tokio::time::timeout(PATIENCE, notices.next())
                        .await
                        .unwrap()
                        .unwrap()
                    {
                        Notice::Event {
                            generation, event, ..
                        } => {
                            assert!(generation > last, "{generation} after {last}");
                            latest = generation;
                            assert_eq!(event.domain.name, format!("round-{round}"));
                            seen.push(event.body);
                        }
                        Notice::Lagged { .. } => panic!("nothing may be lost"),
                        Notice::Up { .. } | Notice::Down { .. } => {}
                    }
                }
                assert_eq!(seen[0], EventBody::Lifecycle { event: 0, detail: 0 });
                assert_eq!(seen[1], EventBody::Lifecycle { event: 1, detail: 0 });
                last = latest;
            }
            session.stop().await;
        },
    );
}

#[test]
fn tls_gets_in_with_a_certificate_and_only_with_one() {
    in_private_host("tls_gets_in_with_a_certificate_and_only_with_one", || async {
        let directory = pki::write(std::path::Path::new("/run/pki"));
        let place = directory.display();
        let conf = std::fs::read_to_string("/etc/libvirt/libvirtd.conf").unwrap();
        let tls = format!(
            "listen_tls = 1\nkey_file = \"{place}/serverkey.pem\"\ncert_file = \"{place}/servercert.pem\"\n\
             ca_file = \"{place}/cacert.pem\"\n"
        );
        std::fs::write(
            "/etc/libvirt/libvirtd.conf",
            conf.replace("listen_tls = 0\n", &tls),
        )
        .unwrap();
        let _daemon = Daemon::start().await;
        let uri = format!("qemu+tls://127.0.0.1/system?pkipath={place}");
        let host = connect(&uri, Options::default()).await;
        assert!(host.is_secure().await.unwrap());
        assert_eq!(host.hostname().await.unwrap(), "real-host");
        std::fs::remove_file(directory.join("clientcert.pem")).unwrap();
        let refused =
            cobaltcore_libvirt::Connection::connect(&uri.parse().unwrap(), Options::default()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("refused this client's certificate"), "{refused}");
    });
}

fn slow_migration() -> MigrateParams {
    MigrateParams::default()
        .with("migrate_uri", Value::String("tcp://127.0.0.1".into()))
        .with("bandwidth", Value::ULLong(1))
}

const LIVE: u32 = flags::MIGRATE_LIVE | flags::MIGRATE_PERSIST_DEST | flags::MIGRATE_UNDEFINE_SOURCE;

/// The figures of the next finished job.
async fn job_completed(stream: &mut EventStream) -> BTreeMap<String, Value> {
    loop {
        let next = tokio::time::timeout(PATIENCE, stream.next())
            .await
            .expect("event in time");
        match next {
            Some(Delivery::Event(event)) => {
                if let EventBody::JobCompleted { params } = event.body {
                    return params
                        .iter()
                        .map(|(name, value)| (name.to_owned(), value.clone()))
                        .collect();
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_live_migration_is_told_on_both_sides_with_the_same_figures() {
    in_private_host(
        "a_live_migration_is_told_on_both_sides_with_the_same_figures",
        || async {
            let (_first, _second) = (Daemon::start().await, Daemon::start_second().await);
            let source = connect(RW, Options::default()).await;
            let target = connect(SECOND, Options::default()).await;
            let life = [EventId::LIFECYCLE];
            let mut leaving = source.subscribe(&life).await.unwrap().stream;
            let mut arriving = target.subscribe(&life).await.unwrap().stream;
            let jobs = [EventId::MIGRATION_ITERATION, EventId::JOB_COMPLETED];
            let mut jobs = source.subscribe(&jobs).await.unwrap().stream;
            let guest = source.define(&guest_xml("traveller")).await.unwrap();
            let guest = source.start(&guest, 0).await.unwrap();
            lifecycle(&mut leaving, 3).await;

            let patient = source.with_deadline(Duration::from_mins(5));
            patient
                .migrate_to_uri(&guest, SECOND, slow_migration(), LIVE)
                .await
                .unwrap();

            assert_eq!(
                lifecycle(&mut leaving, 2).await,
                ["suspended/migrated", "stopped/migrated"]
            );
            assert_eq!(
                lifecycle(&mut arriving, 3).await,
                ["started/migrated", "defined/added", "resumed/migrated"]
            );
            let told = job_completed(&mut jobs).await;
            assert_eq!(told.get("operation"), Some(&Value::Int(5)));
            assert!(
                source
                    .lookup_by_uuid(guest.uuid)
                    .await
                    .unwrap_err()
                    .is_no_domain()
            );

            for _ in 0..2 {
                let kept = target.completed_job_stats(&guest).await.unwrap();
                assert_eq!(kept.kind, 3, "reading them does not take them away");
                assert_eq!(kept.params.i64("operation"), Some(4));
                for figure in [
                    "memory_total",
                    "memory_processed",
                    "memory_remaining",
                    "data_total",
                    "memory_iteration",
                ] {
                    assert_eq!(kept.params.get(figure), told.get(figure), "{figure}");
                }
            }
        },
    );
}

#[test]
fn an_aborted_migration_fails_the_call_and_the_arriving_guest_only() {
    in_private_host(
        "an_aborted_migration_fails_the_call_and_the_arriving_guest_only",
        || async {
            let (_first, _second) = (Daemon::start().await, Daemon::start_second().await);
            let source = connect(RW, Options::default()).await;
            let target = connect(SECOND, Options::default()).await;
            let mut arriving = target.subscribe(&[EventId::LIFECYCLE]).await.unwrap().stream;
            let folder = tempfile::tempdir().unwrap();
            let busy = busy_guest_xml("undecided", &folder.path().join("disk"));
            let guest = source.define(&busy).await.unwrap();
            let guest = source.start(&guest, 0).await.unwrap();
            until_busy("undecided").await;
            let migration = {
                let (source, guest) = (source.with_deadline(Duration::from_mins(5)), guest.clone());
                tokio::spawn(async move {
                    source
                        .migrate_to_uri(&guest, SECOND, slow_migration(), LIVE)
                        .await
                })
            };
            loop {
                let stats = source.job_stats(&guest).await.unwrap();
                if stats
                    .params
                    .u64("memory_processed")
                    .is_some_and(|bytes| bytes > 0)
                {
                    assert_eq!((stats.kind, stats.params.i64("operation")), (2, Some(5)));
                    assert_eq!(source.job_info(&guest).await.unwrap().kind, 2);
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            source.abort_job(&guest).await.unwrap();
            let error = migration.await.unwrap().unwrap_err();
            assert_eq!(error.code(), Some(code::OPERATION_ABORTED), "{error}");
            assert_eq!(
                lifecycle(&mut arriving, 2).await,
                ["started/migrated", "stopped/failed"]
            );
            assert_eq!(source.state(&guest).await.unwrap().state, 1);
        },
    );
}

#[test]
fn other_drivers_of_the_daemon_are_reached_or_named_missing() {
    in_private_host(
        "other_drivers_of_the_daemon_are_reached_or_named_missing",
        || async {
            let _daemon = Daemon::start().await;
            let mock = connect(
                "test+unix:///default?socket=/run/libvirt/libvirt-sock",
                Options::default(),
            )
            .await;
            assert_eq!(mock.driver_type().await.unwrap(), "TEST");
            let guests = mock.list_all_domains(flags::LIST_ALL).await.unwrap();
            assert_eq!(
                guests
                    .iter()
                    .map(|guest| (guest.name.as_str(), guest.id))
                    .collect::<Vec<_>>(),
                [("test", 1)]
            );
            assert!(mock.job_stats(&guests[0]).await.unwrap_err().is_unsupported());
            let ch = "ch+tcp://127.0.0.1/system".parse().unwrap();
            let missing = cobaltcore_libvirt::Connection::connect(&ch, Options::default())
                .await
                .unwrap_err();
            assert!(missing.is_driver_unavailable(), "{missing}");
        },
    );
}
