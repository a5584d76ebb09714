// SPDX-License-Identifier: Apache-2.0
//! The server half as seen by the real `virsh`, over a local socket, TCP and TLS. Says SKIPPED where virsh is missing.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_libvirt::event::{EventBody, EventId};
use cobaltcore_libvirt::server::{Listener, ServerOptions};
use support::{CAPABILITIES, Daemon, TestHost, alpha};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

fn virsh_is_here() -> bool {
    let here = Path::new("/usr/bin/virsh").exists();
    if !here {
        {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "SKIPPED: virsh is not installed");
        }
    }
    here
}

async fn virsh(uri: &str, args: &[&str]) -> String {
    let run = Command::new("virsh")
        .args(["-c", uri])
        .args(args)
        .env("LC_ALL", "C")
        .output();
    let output = tokio::time::timeout(Duration::from_mins(2), run)
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

async fn tour(uri: &str) {
    assert_eq!(virsh(uri, &["hostname"]).await.trim(), "sim-host");
    assert_eq!(virsh(uri, &["capabilities"]).await.trim(), CAPABILITIES.trim());
    let version = virsh(uri, &["version", "--daemon"]).await;
    assert!(version.contains("Running hypervisor: QEMU 7.2.22"), "{version}");
    assert!(version.contains("Running against daemon: 9.0.0"), "{version}");
    let list = virsh(uri, &["list", "--all"]).await;
    let rows: Vec<Vec<&str>> = list
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["1", "alpha", "running"], "{list}");
    assert_eq!(rows[1], ["-", "beta", "shut", "off"], "{list}");
    assert!(virsh(uri, &["nodeinfo"]).await.contains("4096 KiB"));
    assert!(
        virsh(uri, &["dumpxml", "alpha"])
            .await
            .contains("<name>alpha</name>")
    );
    assert_eq!(virsh(uri, &["domstate", "beta"]).await.trim(), "shut off");
    let job = virsh(uri, &["domjobinfo", "alpha"]).await;
    assert!(
        job.contains("Unbounded") && job.contains("Outgoing migration") && job.contains("1234"),
        "{job}"
    );
    let stats = virsh(uri, &["domstats"]).await;
    assert!(stats.contains("state.state=1"), "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_works_over_a_local_socket() {
    if !virsh_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(directory.path().join("sock"), ServerOptions::default());
    tour(&daemon.uri()).await;
    daemon.die().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_works_over_tcp() {
    if !virsh_is_here() {
        return;
    }
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let uri = format!(
        "qemu+tcp://127.0.0.1:{}/system",
        listener.address().unwrap().port()
    );
    let host = Arc::new(TestHost::default());
    tokio::spawn(async move { listener.run(host, ServerOptions::default(), |_| {}).await });
    tour(&uri).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_prints_every_event_it_is_sent() {
    if !virsh_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(directory.path().join("sock"), ServerOptions::default());
    let mut child = Command::new("virsh")
        .args(["-c", &daemon.uri(), "event", "--all", "--loop"])
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // virsh registers in the order of the ids; the newest event below has the highest.
    let last = EventId::MEMORY_DEVICE_SIZE_CHANGE;
    let ready = || {
        daemon
            .host
            .clients
            .lock()
            .first()
            .is_some_and(|client| client.registered().contains(&last))
    };
    while !ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bodies = [
        EventBody::Lifecycle { event: 5, detail: 2 },
        EventBody::Reboot {},
        EventBody::RtcChange { offset: 3600 },
        EventBody::Watchdog { action: 2 },
        EventBody::IoErrorReason {
            path: "/disk".into(),
            alias: "vda".into(),
            action: 1,
            reason: "enospc".into(),
        },
        EventBody::ControlError {},
        EventBody::BlockJob2 {
            disk: "vda".into(),
            kind: 2,
            status: 3,
        },
        EventBody::BalloonChange { actual_kib: 4711 },
        EventBody::PmSuspendDisk {},
        EventBody::DeviceRemoved { alias: "net0".into() },
        EventBody::AgentLifecycle { state: 1, reason: 2 },
        EventBody::MigrationIteration { iteration: 12 },
        EventBody::MetadataChange {
            kind: 2,
            uri: Some("http://example.org/m".into()),
        },
        EventBody::MemoryFailure {
            recipient: 1,
            action: 2,
            flags: 1,
        },
        EventBody::MemoryDeviceSizeChange {
            alias: "mem0".into(),
            size: 1024,
        },
    ];
    for body in &bodies {
        daemon.host.publish(&alpha(), body);
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed = Vec::new();
    while printed.len() < bodies.len() {
        let line = tokio::time::timeout(Duration::from_mins(2), lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            panic!("{line:?} after {printed:#?}")
        };
        if line.starts_with("event") {
            printed.push(line);
        }
    }
    for (line, words) in printed.iter().zip([
        "Stopped Crashed",
        "reboot",
        "3600",
        "reset",
        "enospc",
        "control-error",
        "vda",
        "4711",
        "pm-suspend-disk",
        "net0",
        "connected",
        "12",
        "http://example.org/m",
        "memory-failure",
        "memory-device-size-change",
    ]) {
        assert!(
            line.contains("alpha") && line.contains(words),
            "{words:?} is not in {line:?}"
        );
    }
    child.kill().await.unwrap();
}
