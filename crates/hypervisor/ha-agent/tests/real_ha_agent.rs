// SPDX-License-Identifier: Apache-2.0
//! The agent against a real libvirtd with real QEMU guests: a crash, a watchdog, a pause and the death of libvirtd are
//! each told exactly once. Runs with `COBALTCORE_REAL=1` as root where libvirtd, virsh and QEMU are installed; says
//! SKIPPED and passes elsewhere.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use std::time::Duration;

use cobaltcore_ha_wire::{DomainState, Event, Kind};
use cobaltcore_lab::private::{Daemon, RW, guest_xml, hung_guest_xml, in_private_host, virsh};
use cobaltcore_libvirt::client::{Connection, Options};
use support::{Agent, Place, Service, assert_exactly_once};

async fn connect(uri: &str, options: Options) -> Connection {
    let uri = uri.parse().expect("uri");
    Connection::connect(&uri, options)
        .await
        .expect("libvirtd answers")
}

/// The process of a guest, found by its name on the command line.
fn pid_of(guest: &str) -> String {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.contains("qemu-system") && words.contains(&format!("guest={guest},")) {
            return pid;
        }
    }
    panic!("{guest} has no process");
}

fn kill(guest: &str) {
    let pid = pid_of(guest);
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn of(known: &support::Known, guest: &str, event: &str) -> Vec<Event> {
    let fits =
        |one: &&Event| one.event == event && one.domain.as_ref().is_some_and(|domain| domain.name == guest);
    known.events.iter().filter(fits).cloned().collect()
}

#[test]
fn what_happens_to_real_guests_is_told_exactly_once() {
    in_private_host("what_happens_to_real_guests_is_told_exactly_once", || async {
        let daemon = Daemon::start().await;
        let host = connect(RW, Options::default()).await;
        let names = [
            "instance-00000001",
            "instance-00000002",
            "instance-00000003",
            "other",
        ];
        for name in names {
            let guest = host.define(&guest_xml(name)).await.unwrap();
            host.start(&guest, 0).await.unwrap();
        }
        let (service, place) = (Service::start().await, Place::new());
        place.configure(&[service.url()], "");
        let agent = Agent::start(place.start(RW));
        let inventory = service
            .until("the guests", |known| {
                known
                    .inventories
                    .last()
                    .filter(|list| list.domains.len() == 4)
                    .cloned()
            })
            .await;
        assert!(
            inventory
                .domains
                .iter()
                .all(|domain| domain.state == DomainState::Running && domain.persistent)
        );
        assert_eq!(inventory.domains[0].mem_kib, 32 * 1024);
        let told = async |guest: &str, event: &str| {
            let what = format!("{guest} {event}");
            service
                .until(&what, |known| of(known, guest, event).first().cloned())
                .await
        };

        // A pause by a person.
        virsh(&["suspend", names[0]]).await;
        assert_eq!(told(names[0], "suspended").await.detail, "paused");
        virsh(&["resume", names[0]]).await;
        assert_eq!(told(names[0], "resumed").await.detail, "unpaused");

        // A guest hangs and its watchdog fires.
        let hung = "instance-00000004";
        let disk = place.path("hung.img");
        let guest = host.define(&hung_guest_xml(hung, &disk)).await.unwrap();
        host.start(&guest, 0).await.unwrap();
        assert_eq!(told(hung, "suspended").await.detail, "watchdog");
        assert!(told(hung, "pause").await.urgent());
        service
            .until("its disk in the inventory", |known| {
                let entry = known
                    .inventories
                    .last()?
                    .domains
                    .iter()
                    .find(|entry| entry.name == hung)?;
                (entry.disks.first()?.source == disk.display().to_string()).then_some(())
            })
            .await;

        // The process of a guest dies.
        kill(names[1]);
        let crash = told(names[1], "stopped").await;
        assert!(!crash.synthetic && crash.urgent() && crash.kind == Kind::Lifecycle);
        assert!(matches!(crash.detail.as_str(), "crashed" | "failed"), "{crash:?}");
        service
            .until("it is off in the inventory", |known| {
                let entry = known
                    .inventories
                    .last()?
                    .domains
                    .iter()
                    .find(|entry| entry.name == names[1])?;
                (entry.state == DomainState::Shutoff).then_some(())
            })
            .await;

        // What is not ours is not told, but it is listed.
        kill("other");
        // libvirtd dies, a guest dies meanwhile, libvirtd comes back.
        daemon.kill().await;
        service.event("stream_lost", "").await;
        kill(names[2]);
        let daemon = Daemon::start().await;
        service.event("stream_resumed", "").await;
        told(names[2], "stopped").await;
        // Whatever libvirtd announces late is no second record.
        tokio::time::sleep(Duration::from_secs(2)).await;
        agent.stop().await;
        drop(daemon);

        let known = service.known.lock();
        assert_exactly_once(&known.events);
        for (guest, event, times) in [
            (names[0], "suspended", 1),
            (names[0], "resumed", 1),
            (names[0], "stopped", 0),
            (hung, "started", 1),
            (hung, "suspended", 1),
            (hung, "pause", 1),
            (names[1], "stopped", 1),
            (names[2], "stopped", 1),
            ("other", "stopped", 0),
        ] {
            assert_eq!(
                of(&known, guest, event).len(),
                times,
                "{guest} {event}: {:#?}",
                known.events
            );
        }
        let count = |event: &str| known.events.iter().filter(|one| one.event == event).count();
        assert_eq!((count("stream_lost"), count("stream_resumed")), (1, 1));
    });
}
