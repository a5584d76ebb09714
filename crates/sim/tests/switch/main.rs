// SPDX-License-Identifier: Apache-2.0
//! The switches of simulated hosts over their real wires: with Debian's `ovs-vsctl`, `ovsdb-client`, `ovs-appctl` and
//! `ovs-ofctl` where they are installed, and with a plain client everywhere.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod daemons;
mod database;
mod openflow;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cobaltcore_sim::Switches;
use cobaltcore_sim::world::{Moment, State, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use uuid::Uuid;

const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";
const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    world: World,
    switches: Switches,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn of(hosts: usize, guests: usize) -> Self {
        let world = World::builder()
            .hosts(hosts)
            .vms_per_host(guests)
            .seed(3)
            .manual_clock_at(Moment(1_790_000_000_000))
            .build();
        let folder = tempfile::tempdir().unwrap();
        let switches = Switches::start(&world, folder.path()).unwrap();
        Self {
            world,
            switches,
            _folder: folder,
        }
    }

    fn rundir(&self) -> PathBuf {
        self.switches.rundir(ONE)
    }

    /// Runs one of the real programs on the first host; its output, or what it complained about.
    async fn run(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let run = Command::new(program)
            .args(words)
            .env("OVS_RUNDIR", self.rundir())
            .env("LC_ALL", "C")
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, run)
            .await
            .expect("it hangs")
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    async fn vsctl(&self, words: &[&str]) -> String {
        self.run("ovs-vsctl", words).await.unwrap().trim_end().to_owned()
    }

    async fn appctl(&self, words: &[&str]) -> String {
        self.run("ovs-appctl", words).await.unwrap()
    }

    fn guest(&self) -> (Uuid, String) {
        self.world.read(|state| {
            let host = &state.hosts[ONE];
            let id = host.running().next().unwrap().uuid;
            (id, tap(state, id))
        })
    }
}

fn tap(state: &State, server: Uuid) -> String {
    format!("tap{}", &state.servers[&server].ports[0].to_string()[..11])
}

fn installed(programs: &[&str]) -> bool {
    let there = |name: &&str| Path::new("/usr/bin").join(name).exists();
    let missing = programs.iter().find(|name| !there(name));
    if let Some(name) = missing {
        // Past the test harness, which swallows what tests print.
        writeln!(
            std::io::stderr(),
            "SKIPPED: no /usr/bin/{name} (Debian: openvswitch-common, openvswitch-switch)"
        )
        .ok();
    }
    missing.is_none()
}

/// A client that knows JSON and nothing else.
struct Plain {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Plain {
    async fn to(path: &Path) -> Self {
        let stream = UnixStream::connect(path).await.unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    async fn next(&mut self) -> Value {
        let read = async {
            loop {
                let mut values = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
                if let Some(Ok(value)) = values.next() {
                    let end = values.byte_offset();
                    self.buffer.drain(..end);
                    return value;
                }
                assert!(
                    self.stream.read_buf(&mut self.buffer).await.unwrap() > 0,
                    "it hung up"
                );
            }
        };
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("nothing was said")
    }

    async fn send(&mut self, id: Value, method: &str, params: Value) {
        let request = json!({"id": id, "method": method, "params": params});
        self.stream
            .write_all(request.to_string().as_bytes())
            .await
            .unwrap();
    }

    /// The answer to a request, with whatever was said before it.
    async fn ask(&mut self, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.send(json!(7), method, params).await;
        let mut before = Vec::new();
        loop {
            let message = self.next().await;
            if message["id"] == json!(7) {
                return (message, before);
            }
            before.push(message);
        }
    }

    async fn transact(&mut self, operations: Value) -> Vec<Value> {
        let mut params = vec![json!("Open_vSwitch")];
        params.extend(operations.as_array().unwrap().clone());
        let (answer, _) = self.ask("transact", params.into()).await;
        answer["result"].as_array().unwrap().clone()
    }
}

async fn eventually<R>(what: &str, mut look: impl AsyncFnMut() -> Option<R>) -> R {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} never came"))
}
