// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up` as a newcomer meets it: the program itself, its commands, and the unmodified
//! clients of the systems it speaks for. Clients that are not installed are named and left out.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;

use rustix::process::Signal;
use support::{PROGRAM, Platform, Viewer, all_in, eventually, guests, installed, ours, run, text};

#[test]
fn a_fleet_comes_up_and_can_be_used_with_everybodys_own_tools() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let mut platform = Platform::start(
        folder,
        &["--hypervisors", "3", "--vms-per-host", "2", "--seed", "7"],
    );
    assert!(platform.said.contains("/sign-in#code="), "{}", platform.said);
    all_in(folder, "Active", 3);

    if installed("kubectl") {
        let table = text(&run(Command::new("kubectl")
            .args(["get", "hypervisors"])
            .env("KUBECONFIG", folder.join("kubeconfig"))));
        assert!(
            table.contains("Garden Linux 1877.5") && table.lines().count() == 4,
            "{table}"
        );
    }
    if installed("virsh") {
        let socket = folder.join("libvirt/node001-bb1.sock");
        let uri = format!("qemu+unix:///system?socket={}", socket.display());
        eventually("two domains of the first host", || {
            let list = text(&run(Command::new("virsh").args(["-c", &uri, "list", "--name"])));
            list.split_whitespace().count() == 2
        });
    }
    if installed("openstack") {
        eventually("six running servers", || {
            let list = text(&run(Command::new("openstack")
                .args([
                    "--os-cloud",
                    "sim",
                    "server",
                    "list",
                    "--all-projects",
                    "-f",
                    "value",
                    "-c",
                    "Status",
                ])
                .env("OS_CLIENT_CONFIG_FILE", folder.join("clouds.yaml"))));
            list.split_whitespace()
                .filter(|status| *status == "ACTIVE")
                .count()
                == 6
        });
    }

    ours(
        folder,
        &["evict", "node001-bb1", "--reason", "new fans", "--wait"],
    );
    eventually("every guest on another host", || {
        let names = ["node001-bb1", "node002-bb1", "node003-bb1"];
        let [emptied, second, third] = names.map(|name| guests(folder, name));
        emptied == 0 && second + third == 6
    });

    assert!(
        platform.signal(Signal::TERM).success(),
        "it ends cleanly when asked to"
    );
}

#[test]
fn a_killed_platform_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let mut platform = Platform::start(folder, &["--hypervisors", "2", "--vms-per-host", "3"]);
    all_in(folder, "Active", 2);
    eventually("no test server", || {
        (guests(folder, "node001-bb1"), guests(folder, "node002-bb1")) == (3, 3)
    });
    ours(folder, &["evict", "node002-bb1", "--reason", "a test"]);
    eventually("an eviction under way", || guests(folder, "node002-bb1") < 3);
    platform.signal(Signal::KILL);
    let _platform = Platform::start(folder, &[]);
    eventually("the eviction at its end", || {
        (guests(folder, "node001-bb1"), guests(folder, "node002-bb1")) == (6, 0)
    });
}

#[test]
fn a_plug_that_was_pulled_in_the_console_stays_pulled_when_everything_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let page = "/hypervisors/node001-bb1";
    let mut platform = Platform::start(folder, &["--hypervisors", "2", "--vms-per-host", "1"]);
    let viewer = Viewer::sign_in(&platform.said);
    eventually("the page of the host", || {
        viewer.get(page).contains("In truth it has power")
    });
    let question = viewer.get("/simulation/kill/node001-bb1");
    let (_, rest) = question.split_once("name=\"csrf\" value=\"").unwrap();
    let csrf = rest.split('"').next().unwrap();
    let done = viewer.send("POST", "/simulation/kill/node001-bb1", &format!("csrf={csrf}"));
    assert!(done.starts_with("HTTP/1.1 303"), "{done}");
    platform.signal(Signal::KILL);

    let platform = Platform::start(folder, &[]);
    let viewer = Viewer::sign_in(&platform.said);
    eventually("the host that stayed dark", || {
        viewer.get(page).contains("In truth it has no power")
    });
}

#[test]
fn faults_reach_the_running_world_and_nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let sim = |arguments: &[&str]| {
        Command::new(PROGRAM)
            .arg("sim")
            .arg("--data-dir")
            .arg(folder)
            .args(arguments)
            .output()
            .unwrap()
    };
    let alone = sim(&["kill", "node001-bb1"]);
    assert!(!alone.status.success());
    assert!(String::from_utf8_lossy(&alone.stderr).contains("start `cobaltcore up`"));

    let _platform = Platform::start(folder, &["--hypervisors", "2", "--vms-per-host", "1"]);
    let done = sim(&["kill", "node001-bb1"]);
    assert_eq!(text(&done), "node001-bb1 has no power\n");
    let refused = sim(&["kill", "node999"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("node999"));
    assert!(!sim(&["crash-guest", "not-a-uuid"]).status.success());
    assert_eq!(text(&sim(&["boot", "node001-bb1"])), "node001-bb1 boots\n");
    assert_eq!(
        text(&sim(&["slow", "compute", "5"])),
        "compute takes 5 ms longer for each call\n"
    );
    assert_eq!(text(&sim(&["slow", "compute", "0"])), "compute answers as ever\n");
    assert_eq!(
        text(&sim(&["refuse", "compute", "503"])),
        "compute refuses each call with 503\n"
    );
    assert_eq!(
        text(&sim(&["refuse", "compute", "0"])),
        "compute answers as ever\n"
    );
    for nonsense in [["refuse", "compute", "200"], ["slow", "kompute", "5"]] {
        assert!(!sim(&nonsense).status.success(), "{nonsense:?}");
    }
    assert_eq!(
        text(&sim(&["fail-migrations", "node001-bb1"])),
        "migrations from node001-bb1 break\n"
    );
    assert_eq!(
        text(&sim(&["hang-libvirt", "node001-bb1"])),
        "libvirt on node001-bb1 hangs\n"
    );
}

#[test]
fn a_full_disk_is_told_by_the_node_and_seen_by_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("up");
    let platform = Platform::start(folder, &["--hypervisors", "2", "--vms-per-host", "1"]);
    all_in(folder, "Active", 2);
    let sim = |fault: &str| {
        let mut command = Command::new(PROGRAM);
        command.arg("sim").arg("--data-dir").arg(folder);
        text(&run(command.args([fault, "node001-bb1"])))
    };
    let viewer = Viewer::sign_in(&platform.said);
    let page = || viewer.get("/hypervisors/node001-bb1");
    assert_eq!(sim("fill-disk"), "the disk of node001-bb1 is full\n");
    eventually("the pressure among the conditions of the host", || {
        page().contains("NodePressure is True") && page().contains("its disk is full")
    });
    assert_eq!(sim("clear-disk"), "the disk of node001-bb1 has room\n");
    // The operator waits a while before it trusts a node again, and says so.
    eventually("the end of the pressure", || {
        page().contains("DiskPressure ended a moment ago")
    });
}
