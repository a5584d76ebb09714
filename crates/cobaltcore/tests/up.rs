// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up` as a newcomer meets it: the program itself, its commands, and the unmodified
//! clients of the systems it speaks for. Clients that are not installed are named and left out.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobaltcore");

/// A running platform. It is killed with the test.
struct Platform {
    child: Child,
    said: String,
}

impl Platform {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("up")
            .args([
                "--listen",
                "127.0.0.1:0",
                "--console-listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(folder)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = String::new();
        loop {
            let line = lines.next().expect("it says when it is ready").unwrap();
            let last = line.starts_with("Ctrl-C");
            said.push_str(&line);
            said.push('\n');
            if last {
                break;
            }
        }
        // Somebody keeps reading, or the program would wait for them.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, said }
    }

    fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ours(folder: &Path, arguments: &[&str]) -> Output {
    run(Command::new(PROGRAM)
        .args(arguments)
        .env("KUBECONFIG", folder.join("kubeconfig")))
}

fn installed(name: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(name).is_file()));
    if !found {
        // Past the test harness, which keeps what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the part of the up suite that needs {name}: it is not installed"
        );
    }
    found
}

fn hypervisors(folder: &Path) -> Vec<Value> {
    let output = ours(folder, &["hypervisors", "-o", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let items = list.get("items").unwrap_or(&list);
    items.as_array().unwrap().clone()
}

/// Asks again until `check` is content; test servers take a moment to go.
fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..600 {
        if check() {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("never seen: {what}");
}

/// Waits until every host of the fleet is in this phase.
fn all_in(folder: &Path, phase: &str, count: usize) {
    eventually(&format!("{count} hosts that are {phase}"), || {
        let hosts = hypervisors(folder);
        hosts.len() == count && hosts.iter().all(|host| host["status"]["phase"] == phase)
    });
}

/// How many guests a host reports.
fn guests(folder: &Path, name: &str) -> i64 {
    let hosts = hypervisors(folder);
    let host = hosts.iter().find(|host| host["metadata"]["name"] == name);
    host.and_then(|host| host["status"]["numInstances"].as_i64())
        .unwrap_or(-1)
}

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

/// Somebody with a browser, down to what the console needs.
struct Viewer {
    address: String,
    cookie: String,
}

impl Viewer {
    fn sign_in(said: &str) -> Self {
        let link = said
            .split_whitespace()
            .find(|word| word.contains("/sign-in#code="));
        let (base, code) = link.unwrap().split_once("/sign-in#code=").unwrap();
        let mut viewer = Self {
            address: base.trim_start_matches("http://").to_owned(),
            cookie: String::new(),
        };
        let answer = viewer.send("POST", "/sign-in", &format!("token={code}"));
        let (_, rest) = answer.split_once("set-cookie: ").unwrap();
        rest.split(';').next().unwrap().clone_into(&mut viewer.cookie);
        viewer
    }

    /// The whole answer, head and body.
    fn send(&self, method: &str, path: &str, form: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let Self { address, cookie } = self;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        self.send("GET", path, "")
    }
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
    assert_eq!(
        text(&sim(&["slow", "compute", "0"])),
        "compute is as fast as ever\n"
    );
}
