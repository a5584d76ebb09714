// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up` as a program of its own, and what a test does with it: its commands, its world as it is on disk, and
//! somebody who looks at its console.
#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use cobaltcore_sim::World;
use cobaltcore_sim::world::MigrationKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_cobaltcore");

/// A running platform. It is killed with the test.
pub(crate) struct Platform {
    child: Child,
    pub(crate) said: String,
}

impl Platform {
    pub(crate) fn start(folder: &Path, more: &[&str]) -> Self {
        let listen = ["--listen", "127.0.0.1:0"];
        Self::start_on_others(folder, &[&listen, more].concat(), &[])
    }

    /// With systems of somebody else, and variables that say where they are.
    pub(crate) fn start_on_others(folder: &Path, more: &[&str], set: &[(&str, &str)]) -> Self {
        // People name a folder from where they stand.
        let (place, name) = (folder.parent().unwrap(), folder.file_name().unwrap());
        let mut child = Command::new(PROGRAM)
            .current_dir(place)
            .args(["up", "--console-listen", "127.0.0.1:0", "--data-dir"])
            .arg(name)
            .args(more)
            .envs(set.iter().copied())
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

    pub(crate) fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
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

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn ours(folder: &Path, arguments: &[&str]) -> Output {
    run(Command::new(PROGRAM)
        .args(arguments)
        .env("KUBECONFIG", folder.join("kubeconfig")))
}

pub(crate) fn installed(name: &str) -> bool {
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

pub(crate) fn hypervisors(folder: &Path) -> Vec<Value> {
    let output = ours(folder, &["hypervisors", "-o", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let items = list.get("items").unwrap_or(&list);
    items.as_array().unwrap().clone()
}

/// Asks again until `check` is content; test servers take a moment to go.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if check() {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("never seen: {what}");
}

/// Waits until every host of the fleet is in this phase.
pub(crate) fn all_in(folder: &Path, phase: &str, count: usize) {
    eventually(&format!("{count} hosts that are {phase}"), || {
        let hosts = hypervisors(folder);
        hosts.len() == count && hosts.iter().all(|host| host["status"]["phase"] == phase)
    });
}

/// A text in the object of a host.
pub(crate) fn field(folder: &Path, name: &str, pointer: &str) -> String {
    let hosts = hypervisors(folder);
    let host = hosts.iter().find(|host| host["metadata"]["name"] == name);
    let value = host.and_then(|host| host.pointer(pointer)?.as_str());
    value.unwrap_or_default().to_owned()
}

/// How many guests a host reports.
pub(crate) fn guests(folder: &Path, name: &str) -> i64 {
    let hosts = hypervisors(folder);
    let host = hosts.iter().find(|host| host["metadata"]["name"] == name);
    host.and_then(|host| host["status"]["numInstances"].as_i64())
        .unwrap_or(-1)
}

/// `cobaltcore sim` for the world of a running platform.
pub(crate) fn sim(folder: &Path, arguments: &[&str]) -> Output {
    run(Command::new(PROGRAM)
        .arg("sim")
        .arg("--data-dir")
        .arg(folder)
        .args(arguments))
}

/// The value of a line of what the platform says when it is ready, such as `kubeconfig`.
pub(crate) fn told(said: &str, what: &str) -> String {
    let line = said.lines().find_map(|line| line.trim_start().strip_prefix(what));
    let value = line.and_then(|rest| rest.split_whitespace().next());
    value
        .unwrap_or_else(|| panic!("it says {what}: {said}"))
        .to_owned()
}

/// `cobaltcore incidents` at the HA service of a running platform.
pub(crate) fn incidents(folder: &Path, said: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("incidents")
        .args(arguments)
        .env("KVM_HA_SERVICE_URL", told(said, "HA service"))
        .env("KVM_HA_TOKEN_FILE", folder.join("ha/operator-token"))
        .output()
        .unwrap()
}

/// The newest incident of a host.
pub(crate) fn incident(folder: &Path, said: &str, host: &str) -> Option<Value> {
    let output = incidents(folder, said, &["list", "--all", "-o", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).ok()?;
    let items = list.get("items").unwrap_or(&list).as_array()?.clone();
    items.into_iter().find(|incident| incident["host"] == host)
}

/// Waits until the newest incident of a host is in this state.
pub(crate) fn until_incident(folder: &Path, said: &str, host: &str, state: &str) {
    let mut last = None;
    for _ in 0..1200 {
        let now = incident(folder, said, host);
        if now.as_ref().is_some_and(|incident| incident["state"] == state) {
            return;
        }
        nothing_runs_twice(folder);
        last = now.or(last);
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("never {state}: {last:?}");
}

/// The world as it is on disk, at most a moment old.
pub(crate) fn world(folder: &Path) -> World {
    World::load(&folder.join("world.json"), 0.0).unwrap()
}

pub(crate) fn nothing_runs_twice(folder: &Path) {
    let twice = world(folder).running_twice();
    assert!(twice.is_empty(), "these guests run twice: {twice:?}");
}

/// How often each server was evacuated.
pub(crate) fn evacuations(folder: &Path) -> BTreeMap<String, usize> {
    world(folder).read(|state| {
        let mut all = BTreeMap::new();
        let evacuations = state.migrations.values();
        for migration in evacuations.filter(|migration| migration.kind == MigrationKind::Evacuation) {
            *all.entry(migration.server.to_string()).or_default() += 1;
        }
        all
    })
}

/// Servers that are ACTIVE in Nova and execute on exactly the host Nova names, by that host.
pub(crate) fn running(folder: &Path) -> BTreeMap<String, usize> {
    world(folder).read(|state| {
        let mut all = BTreeMap::new();
        for server in state
            .servers
            .values()
            .filter(|server| server.status() == "ACTIVE")
        {
            let host = server.host.as_ref().and_then(|name| state.hosts.get(name));
            if let Some(host) = host.filter(|host| host.running().any(|domain| domain.uuid == server.id)) {
                *all.entry(host.name.to_string()).or_default() += 1;
            }
        }
        all
    })
}

/// Somebody with a browser, down to what the console needs.
pub(crate) struct Viewer {
    address: String,
    cookie: String,
}

impl Viewer {
    pub(crate) fn sign_in(said: &str) -> Self {
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
    pub(crate) fn send(&self, method: &str, path: &str, form: &str) -> String {
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

    pub(crate) fn get(&self, path: &str) -> String {
        self.send("GET", path, "")
    }
}
