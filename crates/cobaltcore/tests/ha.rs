// SPDX-License-Identifier: Apache-2.0
//! Hosts die under `cobaltcore up`, and their guests come back elsewhere: over the wire from the fault to the command
//! that takes the host back, and through a kill of the whole platform in the middle. No guest may ever run twice.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use cobaltcore_sim::world::Power;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{
    Platform, all_in, evacuations, eventually, field, incident, incidents, nothing_runs_twice, running, sim,
    text, until_incident, world,
};

const HOSTS: usize = 6;
const PER_HOST: usize = 2;

fn start(folder: &Path) -> Platform {
    let platform = Platform::start(
        folder,
        &[
            "--quick-ha",
            "--hypervisors",
            "6",
            "--vms-per-host",
            "2",
            "--seed",
            "7",
        ],
    );
    all_in(folder, "Active", HOSTS);
    eventually("every guest runs and no test server is left", || {
        let all = running(folder);
        all.len() == HOSTS && all.values().all(|count| *count == PER_HOST)
    });
    platform
}

/// Whether every guest is ACTIVE somewhere else than on this host.
fn all_elsewhere(folder: &Path, host: &str) -> bool {
    let all = running(folder);
    all.values().sum::<usize>() == HOSTS * PER_HOST && !all.contains_key(host)
}

fn is_off(folder: &Path, name: &str) -> bool {
    world(folder).read(|state| state.hosts[name].power == Power::Off)
}

/// Pauses come and go, in the words of people and of programs.
fn pause_and_go_on(folder: &Path, said: &str) {
    let pause = ["pause", "bb/bb1", "--reason", "rack work", "--for", "10m"];
    let sentence = text(&incidents(folder, said, &pause));
    assert!(sentence.starts_with("bb/bb1 is paused for 10m"), "{sentence}");
    let again = incidents(folder, said, &[&pause[..], &["-o", "json"]].concat());
    let kept: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&kept["scope"], &kept["reason"]),
        (&json!("bb/bb1"), &json!("rack work"))
    );
    let left = incidents(folder, said, &["unpause", "bb/bb1", "-o", "yaml"]);
    assert!(left.status.success(), "{left:?}");
    assert!(
        !text(&left).contains("bb/bb1"),
        "nothing is paused still: {left:?}"
    );
}

/// Takes a host back and waits until it is as it was.
fn take_back(folder: &Path, said: &str, host: &str) {
    let wrong = incidents(
        folder,
        said,
        &["release", host, "--reason", "repaired", "--confirm", "another"],
    );
    assert_eq!(wrong.status.code(), Some(1), "a wrong confirmation is refused");
    assert!(
        wrong.stdout.is_empty(),
        "whoever reads it by program reads nothing: {wrong:?}"
    );
    let taken = incidents(
        folder,
        said,
        &[
            "release",
            host,
            "--reason",
            "repaired",
            "--confirm",
            host,
            "-o",
            "json",
        ],
    );
    assert!(taken.status.success(), "{taken:?}");
    let now: Value = serde_json::from_slice(&taken.stdout).unwrap();
    assert_eq!(now["host"], host, "the incident as it is then: {now}");
    let decided = |record: &Value| record["entry"] == "decided" && record["decision"] == "release";
    assert!(now["journal"].as_array().unwrap().iter().any(decided), "{now}");
    until_incident(folder, said, host, "Released");
    eventually("the host is Active again", || {
        field(folder, host, "/status/phase") == "Active"
            && field(folder, host, "/spec/maintenance").is_empty()
    });
    // The world on disk is a moment older than what commands tell.
    eventually("Nova uses it again", || {
        world(folder).read(|state| {
            let host = &state.hosts[host];
            let service = host.service.as_ref();
            host.power == Power::On
                && service.is_some_and(|service| !service.forced_down && !service.disabled)
        })
    });
}

#[test]
fn a_dead_host_and_a_cut_off_one_are_fenced_emptied_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let platform = start(folder);
    let said = &platform.said;
    pause_and_go_on(folder, said);

    // Its power is gone.
    let dead = "node001-bb1";
    assert_eq!(text(&sim(folder, &["kill", dead])), "node001-bb1 has no power\n");
    until_incident(folder, said, dead, "Recovered");
    eventually("every guest elsewhere", || all_elsewhere(folder, dead));
    assert_eq!(field(folder, dead, "/spec/maintenance"), "ha");
    let forced_down = world(folder).read(|state| state.hosts[dead].service.as_ref().unwrap().forced_down);
    assert!(forced_down, "Nova knows that it is dead");
    let asked = evacuations(folder);
    assert_eq!(asked.len(), PER_HOST, "{asked:?}");
    assert!(asked.values().all(|count| *count == 1), "{asked:?}");
    let story = text(&incidents(folder, said, &["show", dead]));
    assert!(story.contains(dead) && story.contains("Recovered"), "{story}");
    take_back(folder, said, dead);

    // Its network is gone: the guests run on until somebody switches it off, and nobody else may start them before.
    let cut = "node002-bb1";
    sim(folder, &["cut", cut]);
    until_incident(folder, said, cut, "Recovered");
    eventually("its device switched it off", || is_off(folder, cut));
    eventually("every guest elsewhere", || all_elsewhere(folder, cut));
    sim(folder, &["mend", cut]);
    take_back(folder, said, cut);
    nothing_runs_twice(folder);
}

#[test]
fn an_incident_goes_on_where_it_was_when_everything_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let mut platform = start(folder);
    let dead = "node003-bb1";
    sim(folder, &["kill", dead]);
    eventually("the first evacuation", || {
        nothing_runs_twice(folder);
        !evacuations(folder).is_empty()
    });
    platform.signal(Signal::KILL);
    let before = evacuations(folder);
    assert!(!all_elsewhere(folder, dead), "it was killed in the middle");

    let platform = Platform::start(folder, &["--quick-ha"]);
    assert!(is_off(folder, dead), "it stayed dark");
    until_incident(folder, &platform.said, dead, "Recovered");
    eventually("every guest elsewhere", || all_elsewhere(folder, dead));
    let after = evacuations(folder);
    assert_eq!(after.len(), PER_HOST, "{before:?} {after:?}");
    assert!(
        after.values().all(|count| *count == 1),
        "nobody was asked for twice: {after:?}"
    );
    let summary = incident(folder, &platform.said, dead).unwrap();
    assert_eq!(summary["guests"]["recovered"], PER_HOST, "{summary}");
    nothing_runs_twice(folder);
}
