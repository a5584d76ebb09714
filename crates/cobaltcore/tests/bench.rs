// SPDX-License-Identifier: Apache-2.0
//! The benchmark measures everything it promises and leaves nothing behind. Nothing is asserted
//! about time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

fn bench(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cobaltcore"));
    command
        .args(["bench", "apiserver", "--quick", "--no-reference", "-o", "json"])
        .env("TMPDIR", home);
    command
}

/// Processes that were started over files in this directory.
fn processes_over(home: &Path) -> usize {
    let home = home.display().to_string();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|command| String::from_utf8_lossy(command).contains(&home))
        .count()
}

fn files_in(home: &Path) -> usize {
    std::fs::read_dir(home).expect("the temporary directory").count()
}

#[test]
fn a_quick_run_has_a_figure_for_every_measure() {
    let home = tempfile::tempdir().expect("a directory");
    let output = bench(home.path()).output().expect("the benchmark");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let mut wanted: Vec<String> = [
        "start",
        "memory-idle",
        "memory-1000",
        "list-1000",
        "list-selector",
        "list-limit",
    ]
    .into_iter()
    .chain([
        "watch-1",
        "watch-50",
        "new-definition",
        "dependents",
        "namespace-gone",
        "definition-gone",
    ])
    .chain([
        "token-refused",
        "disk-1000",
        "start-1000",
        "floor-sync",
        "floor-commit",
        "floor-echo-8",
    ])
    .map(str::to_owned)
    .collect();
    for operation in [
        "create",
        "update",
        "merge-patch",
        "apply",
        "get",
        "status-patch",
        "status-apply",
        "delete",
    ] {
        wanted.extend([format!("{operation}-1"), format!("{operation}-8")]);
    }
    for id in wanted {
        let row = rows
            .iter()
            .find(|row| row["id"] == *id)
            .unwrap_or_else(|| panic!("{id} is not measured"));
        let first = row["figures"][0]["median"].as_f64();
        assert!(first.is_some_and(|median| median > 0.0), "{row}");
    }
    let refused = rows
        .iter()
        .find(|row| row["id"] == "token-refused")
        .expect("tokens");
    assert_eq!(
        refused["figures"][0]["median"], 1.0,
        "a token outlived its account"
    );
    assert_eq!((files_in(home.path()), processes_over(home.path())), (0, 0));
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let home = tempfile::tempdir().expect("a directory");
    let mut child = bench(home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the benchmark");
    let mut said = BufReader::new(child.stderr.take().expect("stderr"));
    let mut line = String::new();
    while !line.starts_with("operations") {
        line.clear();
        assert!(
            said.read_line(&mut line).expect("a line") > 0,
            "it ended before the server was used"
        );
    }
    assert!(processes_over(home.path()) > 0, "there is no server to end");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    let status = child.wait().expect("its end");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(status.code(), Some(1));
    assert!(rest.ends_with("error: interrupted\n"), "{rest}");
    assert_eq!((files_in(home.path()), processes_over(home.path())), (0, 0));
}

#[test]
fn the_node_agent_is_measured_beside_its_baselines_and_nothing_is_left_behind() {
    let home = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cobaltcore"))
        .args(["bench", "node-agent", "--quick", "-o", "json"])
        .env("TMPDIR", home.path())
        .output()
        .expect("the benchmark");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    for wanted in [
        "baseline: a bare status write becomes visible",
        "idle, 50 guests: memory",
        "idle, 50 guests: calls to libvirt",
        "idle, 50 guests: status writes",
        "10 guests changing: event to visible status",
        "10 guests changing: status writes",
    ] {
        let row = rows.iter().find(|row| row["title"] == wanted);
        let figures = row.and_then(|row| row["figures"].as_array()).expect(wanted);
        for figure in figures {
            assert!(figure["value"].is_number(), "{wanted}: {figure}");
        }
    }
    assert_eq!((processes_over(home.path()), files_in(home.path())), (0, 0));
}

#[test]
fn the_operator_is_measured_from_the_first_node_to_rest() {
    let output = Command::new(env!("CARGO_BIN_EXE_cobaltcore"))
        .args([
            "bench",
            "operator",
            "--sizes",
            "3",
            "--no-drain",
            "--idle",
            "1",
            "-o",
            "json",
        ])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fleet = &report["fleets"][0];
    assert_eq!(fleet["hypervisors"], 3);
    for figure in [
        "secondsToActive",
        "secondsOfRawWrites",
        "writesPerHost",
        "cloudCallsPerHost",
        "residentMib",
    ] {
        assert!(
            fleet[figure].as_f64().is_some_and(|value| value > 0.0),
            "{figure}: {fleet}"
        );
    }
}

#[test]
fn high_availability_is_measured_beside_its_goals_and_nothing_is_left_behind() {
    let home = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cobaltcore"))
        .args([
            "bench",
            "ha",
            "--quick",
            "--only",
            "wire,ingest,engine",
            "-o",
            "json",
        ])
        .env("TMPDIR", home.path())
        .output()
        .expect("the benchmark");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    for (wanted, goal) in [
        ("wire: heartbeats decoded, one core", None),
        ("ingest: batches of 200 through HTTP into SQLite", Some(50_000.0)),
        (
            "ingest: acknowledgement at 5,000 events/s in batches of 200, 99 %",
            Some(50.0),
        ),
        ("database: bytes per event, indexes included", None),
        ("database: after 14 days at 50 events/s", Some(6.0)),
        ("engine, 1000 hosts: judging all of them, one round", Some(5.0)),
    ] {
        let row = rows
            .iter()
            .find(|row| row["what"] == wanted)
            .unwrap_or_else(|| panic!("{wanted} is not measured: {report}"));
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        assert_eq!(row["goal"].as_f64(), goal, "{row}");
        assert_eq!(row["met"].is_boolean(), goal.is_some(), "{row}");
    }
    assert!(
        rows.iter().any(|row| row["what"]
            .as_str()
            .is_some_and(|what| what.starts_with("start to ready with"))),
        "{report}"
    );
    assert_eq!((processes_over(home.path()), files_in(home.path())), (0, 0));
}
