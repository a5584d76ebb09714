// SPDX-License-Identifier: Apache-2.0
//! What would only be noticed when a host has died is looked at before: here by a service with a
//! `ceph` that answers as the real one does.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::path::Path;

use common::{ALONE, Figures, Running, base, telemetry, until};

const FIGURE: &str = "kvm_ha_preflight";

/// A program that prints the capabilities that stand in `caps`, for whoever is asked about.
fn ceph(folder: &Path) -> String {
    let program = folder.join("ceph");
    let text = format!(
        "#!/bin/sh\ncd '{}'\nprintf '\\n[{{\"entity\":\"%s\",\"key\":\"AQSECRET==\",\"caps\":{{\"mon\":\"%s\"}}}}]' \"$3\" \"$(cat caps)\"\n",
        folder.display()
    );
    // Another process writes it: a program that this one has open for writing cannot be run.
    let write = std::process::Command::new("/bin/sh")
        .args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""])
        .arg(&program)
        .arg(text)
        .status();
    assert!(write.unwrap().success());
    program.display().to_string()
}

fn found(figures: &Figures, client: &str, result: &str) -> f64 {
    figures.of(
        FIGURE,
        &format!(r#"check="ceph-locks",of="{client}",result="{result}""#),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_ceph_that_may_not_break_locks_is_known_before_a_host_dies() {
    let folder = tempfile::tempdir().unwrap();
    let command = ceph(folder.path());
    std::fs::write(folder.path().join("caps"), "allow r").unwrap();
    let file = folder.path().join("config.yaml");
    let text = |preflight: &str| {
        let base = base(folder.path());
        format!("{base}{ALONE}openstack: {{enabled: false}}\npreflight: {{ceph: [{preflight}]}}\n")
    };
    let nova = format!("{{client: client.nova, command: {command}}}");
    let gone = "{cluster: other, client: client.nova, command: /nowhere/ceph}";
    let first = text(&format!("{nova}, {gone}"));
    common::write_whole(&file, &first);
    let service = Running::start_with(&first, None, None, telemetry(), Some(file.clone())).await;
    let figures = until("both were looked at", async || {
        let figures = service.figures().await;
        let both =
            found(&figures, "ceph/client.nova", "missing") + found(&figures, "other/client.nova", "unknown");
        (both == 2.0).then_some(figures)
    })
    .await;
    assert_eq!(figures.of(FIGURE, ""), 2.0, "one result each: {}", figures.0);
    assert!(!figures.0.contains("SECRET"));

    std::fs::write(folder.path().join("caps"), "profile rbd").unwrap();
    common::write_whole(&file, &text(&nova));
    until("it was looked at again, and the other is forgotten", async || {
        let figures = service.figures().await;
        let good = found(&figures, "ceph/client.nova", "good");
        (good == 1.0 && !figures.0.contains(r#"of="other/client.nova""#)).then_some(())
    })
    .await;
    let (_, config) = service.get("/api/v1/config").await;
    assert_eq!(config["config"]["preflight"]["every"], "24h0m0s");
    service.stop().await;
}
