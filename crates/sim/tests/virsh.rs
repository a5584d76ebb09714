// SPDX-License-Identifier: Apache-2.0
//! Debian's `virsh` and our own client against the simulated hosts, over local sockets and TCP.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cobaltcore_libvirt::error::code;
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::types::Domain;
use cobaltcore_libvirt::{Connection, EventBody, Options};
use cobaltcore_sim::hosts::{Hosts, Place};
use cobaltcore_sim::world::{Driver, Libvirt, World};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use uuid::Uuid;

const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";

fn virsh_is_here() -> bool {
    let there = Path::new("/usr/bin/virsh").exists();
    if !there {
        // Past the test harness, which swallows what tests print.
        writeln!(
            std::io::stderr(),
            "SKIPPED: no /usr/bin/virsh (Debian: libvirt-clients)"
        )
        .ok();
    }
    there
}

async fn virsh(uri: &str, args: &[&str]) -> String {
    let run = Command::new("/usr/bin/virsh")
        .arg("-c")
        .arg(uri)
        .args(args)
        .env("LC_ALL", "C")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), run)
        .await
        .expect("virsh hangs")
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "virsh {args:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn first_on(world: &World, host: &str) -> (Uuid, String) {
    world.read(|state| {
        state
            .servers_on(host)
            .next()
            .map(|server| (server.id, server.domain_name()))
            .unwrap()
    })
}

async fn tour(world: &World, uri: &str) {
    let (id, name) = first_on(world, ONE);
    assert_eq!(virsh(uri, &["hostname"]).await.trim(), ONE);
    let version = virsh(uri, &["version", "--daemon"]).await;
    assert!(version.contains("Running hypervisor: QEMU 7.2.22"), "{version}");
    let list = virsh(uri, &["list", "--all"]).await;
    assert!(list.contains(&name) && list.contains("running"), "{list}");
    let info = virsh(uri, &["dominfo", &name]).await;
    assert!(
        info.contains(&id.to_string()) && info.contains("State:          running"),
        "{info}"
    );
    let node = virsh(uri, &["nodeinfo"]).await;
    assert!(
        node.contains("CPU(s):              64") && node.contains("NUMA cell(s):        2"),
        "{node}"
    );
    let capabilities = virsh(uri, &["capabilities"]).await;
    assert_eq!(capabilities.matches("<cell id=").count(), 2, "{capabilities}");
    assert!(
        virsh(uri, &["domcapabilities"])
            .await
            .contains("<domain>kvm</domain>")
    );
    let stats = virsh(uri, &["domstats"]).await;
    assert!(
        stats.contains("state.state=1") && stats.contains("vcpu.0.time="),
        "{stats}"
    );
    let xml = virsh(uri, &["dumpxml", &name]).await;
    assert!(
        xml.contains("nova:instance") && xml.contains(&format!("<uuid>{id}</uuid>")),
        "{xml}"
    );
    assert!(virsh(uri, &["nodememstats"]).await.contains("total  :"));
    assert!(virsh(uri, &["freecell", "--all"]).await.contains("Total:"));
    assert!(virsh(uri, &["domjobinfo", &name]).await.contains("None"));
    assert!(
        virsh(uri, &["domstate", "--reason", &name])
            .await
            .contains("running (booted)")
    );
    virsh(uri, &["suspend", &name]).await;
    assert!(
        virsh(uri, &["domstate", "--reason", &name])
            .await
            .contains("paused (user)")
    );
    virsh(uri, &["resume", &name]).await;
    assert!(
        virsh(uri, &["domstate", "--reason", &name])
            .await
            .contains("running (unpaused)")
    );
}

fn two_hosts() -> World {
    World::builder()
        .hosts(2)
        .vms_per_host(1)
        .seed(3)
        .manual_clock()
        .build()
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_works_over_a_local_socket() {
    if !virsh_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let world = two_hosts();
    let hosts = Hosts::start(&world, Place::Unix(directory.path().to_owned()))
        .await
        .unwrap();
    tour(&world, &hosts.uri(ONE).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_works_over_tcp_and_sees_a_migration_from_both_sides() {
    if !virsh_is_here() {
        return;
    }
    let api = support::Api::start(two_hosts()).await;
    let world = api.world().clone();
    let hosts = Hosts::start(&world, Place::Tcp).await.unwrap();
    let (source, dest) = (hosts.uri(ONE).unwrap(), hosts.uri(TWO).unwrap());
    tour(&world, &source).await;
    let (id, name) = first_on(&world, ONE);
    let mut events = Command::new("/usr/bin/virsh")
        .args(["-c", &source, "event", "--all", "--loop"])
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // virsh registers in the order of the ids.
    let last = EventId::MEMORY_DEVICE_SIZE_CHANGE;
    while !hosts
        .clients(ONE)
        .iter()
        .any(|client| client.registered().contains(&last))
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.change(|state| state.servers.get_mut(&id).unwrap().dirty_rate = 500 << 20);
    let live = json!({"os-migrateLive": {"host": null, "block_migration": false}});
    api.act(&id.to_string(), live).await.expect(202);
    let running = |world: &World| {
        world.read(|state| {
            let job = state.hosts[ONE]
                .domains
                .get(&id)
                .and_then(|domain| domain.job.clone());
            job.is_some_and(|job| job.iteration >= 1)
        })
    };
    while !running(&world) {
        world.step(Duration::from_millis(50));
    }
    let job = virsh(&source, &["domjobinfo", &name]).await;
    assert!(
        job.contains("Unbounded") && job.contains("Outgoing migration") && job.contains("Iteration:"),
        "{job}"
    );
    let on_dest = virsh(&dest, &["list", "--all"]).await;
    assert!(on_dest.contains(&name) && on_dest.contains("paused"), "{on_dest}");
    let mut lines = BufReader::new(events.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    while !seen
        .last()
        .is_some_and(|line: &String| line.contains("job-completed"))
    {
        world.step(Duration::from_millis(200));
        while let Ok(Ok(Some(line))) =
            tokio::time::timeout(Duration::from_millis(200), lines.next_line()).await
        {
            if line.starts_with("event") {
                seen.push(line);
            }
            if seen.last().is_some_and(|line| line.contains("job-completed")) {
                break;
            }
        }
    }
    let text = seen.join("\n");
    let at = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no {words:?} in {text}"))
    };
    assert!(at("migration-iteration") < at("Suspended Migrated"), "{text}");
    assert!(
        at("Suspended Migrated") < at("Stopped Migrated") && at("Stopped Migrated") < at("job-completed"),
        "{text}"
    );
    let completed = virsh(&dest, &["domjobinfo", &name, "--completed"]).await;
    assert!(
        completed.contains("Completed") && completed.contains("Incoming migration"),
        "{completed}"
    );
    assert!(
        virsh(&dest, &["domstate", "--reason", &name])
            .await
            .contains("running (migrated)")
    );
    world.step(Duration::from_secs(5));
    assert!(!virsh(&source, &["list", "--all"]).await.contains(&name));
    events.kill().await.unwrap();
}

async fn connect(uri: &str) -> Result<Connection, cobaltcore_libvirt::Error> {
    Connection::connect(&uri.parse().unwrap(), Options::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_goes_and_comes_with_its_host() {
    let directory = tempfile::tempdir().unwrap();
    let world = two_hosts();
    let hosts = Hosts::start(&world, Place::Unix(directory.path().to_owned()))
        .await
        .unwrap();
    let uri = hosts.uri(ONE).unwrap();
    let connection = connect(&uri).await.unwrap();
    let (id, _) = first_on(&world, ONE);
    assert_eq!(connection.list_all_domains(1).await.unwrap().len(), 1);
    world.power_off(ONE).unwrap();
    connection.closed().await;
    assert!(connect(&uri).await.is_err());
    world.power_on(ONE).unwrap();
    world.step(Duration::from_secs(60));
    let connection = loop {
        if let Ok(connection) = connect(&uri).await {
            break connection;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(
        connection.list_all_domains(1).await.unwrap().is_empty(),
        "guests do not start by themselves"
    );
    assert_eq!(connection.list_all_domains(2).await.unwrap()[0].uuid, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_daemon_answers_nothing_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let world = two_hosts();
    let hosts = Hosts::start(&world, Place::Unix(directory.path().to_owned()))
        .await
        .unwrap();
    let connection = connect(&hosts.uri(ONE).unwrap()).await.unwrap();
    world.set_libvirt(ONE, Libvirt::Hung).unwrap();
    // The daemon notices in its own task; until then it may still answer.
    let hangs = || async {
        tokio::time::timeout(Duration::from_millis(300), connection.hostname())
            .await
            .is_err()
    };
    while !hangs().await {}
    world.set_libvirt(ONE, Libvirt::Up).unwrap();
    assert_eq!(connection.hostname().await.unwrap(), ONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_that_crash_are_announced_and_nova_notices_later() {
    let directory = tempfile::tempdir().unwrap();
    let api = support::Api::start(two_hosts()).await;
    let world = api.world().clone();
    let hosts = Hosts::start(&world, Place::Unix(directory.path().to_owned()))
        .await
        .unwrap();
    let connection = connect(&hosts.uri(ONE).unwrap()).await.unwrap();
    let mut events = connection
        .subscribe(&[EventId::LIFECYCLE, EventId::WATCHDOG])
        .await
        .unwrap();
    let (id, _) = first_on(&world, ONE);
    world.announce(id, EventBody::Watchdog { action: 2 }).unwrap();
    world.crash_guest(id).unwrap();
    let first = events.stream.next().await.unwrap();
    let second = events.stream.next().await.unwrap();
    let text = format!("{first:?}{second:?}");
    assert!(
        text.contains("Watchdog { action: 2 }") && text.contains("Lifecycle { event: 5, detail: 2 }"),
        "{text}"
    );
    assert_eq!(api.server(&id.to_string()).await["status"], "ACTIVE");
    world.step(Duration::from_secs(20));
    assert_eq!(api.server(&id.to_string()).await["status"], "SHUTOFF");
}

#[tokio::test(flavor = "multi_thread")]
async fn cloud_hypervisor_hosts_lack_what_their_driver_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::builder()
        .hosts(1)
        .vms_per_host(1)
        .driver(Driver::CloudHypervisor)
        .manual_clock()
        .build();
    let hosts = Hosts::start(&world, Place::Unix(directory.path().to_owned()))
        .await
        .unwrap();
    let uri = hosts.uri(ONE).unwrap();
    assert!(
        connect(&uri)
            .await
            .is_err_and(|error| error.is_driver_unavailable())
    );
    let connection = connect(&uri.replace("qemu+", "ch+")).await.unwrap();
    let (id, _) = first_on(&world, ONE);
    let refused = connection.all_domain_stats(&[], 0, 0).await;
    assert_eq!(refused.unwrap_err().code(), Some(code::NO_SUPPORT));
    let stats = connection.job_stats(&Domain::by_uuid(id)).await.unwrap();
    assert_eq!(stats.kind, 0);
}
