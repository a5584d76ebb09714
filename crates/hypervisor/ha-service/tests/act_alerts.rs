// SPDX-License-Identifier: Apache-2.0
//! The shipped alerts fire, by the word of a real Prometheus, and the runbook knows each of them.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

const TEST: &str = "alerts.test.yaml";

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap()
}

/// The rules inside the PrometheusRule, as Prometheus itself reads them.
fn rules(manifest: &str) -> String {
    let inside = manifest.lines().skip_while(|line| *line != "spec:").skip(1);
    inside
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)))
        .collect()
}

#[test]
fn every_alert_is_tested_and_in_the_runbook() {
    let manifest = read("deploy/ha-service/monitoring/alerts.yaml");
    let test = read("deploy/ha-service/monitoring/alerts.test.yaml");
    let runbook = read("docs/runbook-ha.md");
    let alerts: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() >= 11, "{alerts:?}");
    for alert in alerts {
        assert!(
            test.contains(&format!("alertname: {alert}\n")),
            "{alert} has a test that expects it"
        );
        assert!(
            runbook.contains(&format!("### {alert}")),
            "{alert} has a section in the runbook"
        );
    }
    if Command::new("promtool").arg("--version").output().is_err() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the alert rules need promtool; apt-get install prometheus"
        );
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("alerts.rules.yaml"), rules(&manifest)).unwrap();
    std::fs::write(place.path().join(TEST), test).unwrap();
    let outcome = Command::new("promtool")
        .args(["test", "rules", TEST])
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout) + String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{said}");
}

/// What Prometheus is told to scrape is there: a monitor that selects nothing would silence every alert.
#[test]
fn the_monitor_selects_the_service_that_has_figures() {
    let after = |text: &str, before: &str| {
        let found = text.split_once(before).map(|(_, rest)| rest.to_owned());
        found.unwrap_or_else(|| panic!("{before} is not in:\n{text}"))
    };
    let monitor = read("deploy/ha-service/monitoring/service-monitor.yaml");
    let wanted = after(&monitor, "matchLabels: {");
    let wanted = wanted.split('}').next().unwrap();
    let base = read("deploy/ha-service/kustomization.yaml");
    assert!(
        after(&base, "labels:\n").contains(wanted),
        "nothing bears the label {wanted}"
    );
    let port = after(&monitor, "- port: ");
    let port = port.lines().next().unwrap();
    let services = read("deploy/ha-service/services.yaml");
    assert!(
        services.contains(&format!("- {{name: {port},")),
        "no service has the port {port}"
    );
}
