// SPDX-License-Identifier: Apache-2.0
//! The shipped alerts fire, by the word of a real Prometheus.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

const TESTS: [&str; 2] = ["alerts.test.yaml", "alerts-week.test.yaml"];

fn manifests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/hypervisor-operator")
}

/// The rules inside the PrometheusRule, as Prometheus itself reads them.
fn rules(manifest: &str) -> String {
    let inside = manifest.lines().skip_while(|line| *line != "spec:").skip(1);
    inside
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)))
        .collect()
}

#[test]
fn every_alert_is_tested_and_fires() {
    let folder = manifests().join("monitoring");
    let manifest = std::fs::read_to_string(folder.join("alerts.yaml")).unwrap();
    let tests = TESTS.map(|file| std::fs::read_to_string(folder.join(file)).unwrap());
    let alerts = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let expected = format!("alertname: {alert}\n");
        assert!(
            tests.iter().any(|test| test.contains(&expected)),
            "{alert} has a test that expects it"
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
    for (file, test) in TESTS.iter().zip(&tests) {
        std::fs::write(place.path().join(file), test).unwrap();
    }
    let outcome = Command::new("promtool")
        .args(["test", "rules"])
        .args(TESTS)
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout) + String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{said}");
}
