// SPDX-License-Identifier: Apache-2.0
//! The simulated system bus as a client sees it that somebody else wrote.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use cobaltcore_sim::System;
use cobaltcore_sim::system::{OnStart, Unit};
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls a method with `dbus-send`; `None` where that is not installed.
async fn call(address: &str, service: &str, path: &str, method: &str, args: &[&str]) -> Option<String> {
    let output = Command::new("dbus-send")
        .arg(format!("--bus={address}"))
        .args(["--print-reply", &format!("--dest={service}"), path, method])
        .args(args)
        .stdin(Stdio::null())
        .output();
    match tokio::time::timeout(PATIENCE, output).await.unwrap() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&text).into_owned())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Past the test harness, which hides what tests that pass say.
            let _ = std::io::stderr()
                .write_all(b"SKIPPED: dbus-send is not installed (Debian package dbus-bin)\n");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn systemd(address: &str, method: &str, args: &[&str]) -> Option<String> {
    let manager = format!("org.freedesktop.systemd1.Manager.{method}");
    let path = "/org/freedesktop/systemd1";
    call(address, "org.freedesktop.systemd1", path, &manager, args).await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_finds_the_services_on_the_bus() {
    let directory = tempfile::tempdir().unwrap();
    let system = System::default();
    system
        .set("libvirtd.service", Unit::new("reloading", "reload"))
        .await
        .unwrap();
    system.on_start("good.service", OnStart::Done);
    let bus = system.listen(&directory.path().join("bus")).unwrap();
    let address = bus.address();
    let units = ["array:string:libvirtd.service,other.service"];
    let Some(answer) = systemd(&address, "ListUnitsByNames", &units).await else {
        return;
    };
    for word in ["\"reloading\"", "\"not-found\"", "libvirtd_2eservice"] {
        assert!(answer.contains(word), "{answer} lacks {word}");
    }
    let start = |unit: &'static str| [unit, "string:replace"];
    let answer = systemd(&address, "StartUnit", &start("string:good.service"))
        .await
        .unwrap();
    assert!(answer.contains("/org/freedesktop/systemd1/job/"), "{answer}");
    let answer = systemd(&address, "StartUnit", &start("string:none.service"))
        .await
        .unwrap();
    assert!(answer.contains("Unit none.service not found."), "{answer}");
    assert_eq!(system.started(), ["good.service", "none.service"]);

    let hostnamed = "org.freedesktop.hostname1";
    let describe = format!("{hostnamed}.Describe");
    let answer = call(&address, hostnamed, "/org/freedesktop/hostname1", &describe, &[])
        .await
        .unwrap();
    assert!(answer.contains("GARDENLINUX_VERSION"), "{answer}");
    let nobody = call(
        &address,
        "org.example.Nobody",
        "/",
        "org.example.Nobody.Call",
        &[],
    )
    .await;
    assert!(nobody.unwrap().contains("Error"), "nobody else is on this bus");
}
