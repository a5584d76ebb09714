// SPDX-License-Identifier: Apache-2.0
//! The switches of simulated hosts over their real wires: with Debian's `ovs-vsctl`, `ovsdb-client`, `ovs-appctl` and
//! `ovs-ofctl` where they are installed, and with a plain client everywhere.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cobaltcore_sim::Switches;
use cobaltcore_sim::world::{Moment, State, Vswitchd, World};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
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
            "skipped: no /usr/bin/{name} (Debian: openvswitch-common, openvswitch-switch)"
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

#[tokio::test(flavor = "multi_thread")]
async fn ovs_vsctl_shows_a_host_and_what_it_writes_stays() {
    if !installed(&["ovs-vsctl"]) {
        return;
    }
    let scene = Scene::of(2, 2);
    let (server, tap) = scene.guest();
    let shown = scene.vsctl(&["show"]).await;
    for word in [
        "Bridge br-int",
        "Bridge br-ex",
        "Port bond0",
        "fail_mode: secure",
        "type: geneve",
        &tap,
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let id = scene
        .vsctl(&["get", "interface", &tap, "external_ids:vm-uuid"])
        .await;
    assert_eq!(id, format!("\"{server}\""));
    assert_eq!(
        scene
            .vsctl(&["get", "interface", &tap, "external_ids:ovn-installed"])
            .await,
        "\"true\""
    );
    let found = [
        "--bare",
        "--columns=name",
        "find",
        "interface",
        &format!("external_ids:vm-uuid={server}"),
    ];
    assert_eq!(scene.vsctl(&found).await, tap);

    scene
        .vsctl(&[
            "add-port",
            "br-int",
            "mine",
            "--",
            "set",
            "interface",
            "mine",
            "type=internal",
        ])
        .await;
    assert_ne!(scene.vsctl(&["get", "interface", "mine", "ofport"]).await, "[]");
    scene.vsctl(&["set", "open", ".", "external_ids:note=kept"]).await;
    scene.vsctl(&["add-br", "br-new"]).await;
    // A guest that goes takes its port along and nothing else.
    scene.world.crash_guest(server).unwrap();
    assert_eq!(scene.vsctl(&["list-br"]).await, "br-ex\nbr-int\nbr-new");
    let ports = scene.vsctl(&["list-ports", "br-int"]).await;
    assert!(ports.contains("mine") && !ports.contains(&tap), "{ports}");
    assert_eq!(
        scene.vsctl(&["get", "open", ".", "external_ids:note"]).await,
        "kept"
    );
    scene.vsctl(&["del-port", "mine"]).await;
    assert!(!scene.vsctl(&["list-ports", "br-int"]).await.contains("mine"));
    // A device that does not exist is refused by the switch, and the port stays all the same.
    let said = scene.run("ovs-vsctl", &["add-port", "br-int", "ghost"]).await;
    assert!(said.is_ok() || said.unwrap_err().contains("No such device"));
    assert_eq!(scene.vsctl(&["get", "interface", "ghost", "ofport"]).await, "-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_wrote_outlasts_the_program() {
    let scene = Scene::of(2, 1);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let write = json!([{"op": "mutate", "table": "Open_vSwitch", "where": [],
        "mutations": [["external_ids", "insert", ["map", [["note", "kept"]]]]]}]);
    assert_eq!(plain.transact(write).await, [json!({"count": 1})]);
    let file = scene.rundir().join("world.json");
    scene.world.save(&file).unwrap();
    let again = World::load(&file, 0.0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let switches = Switches::start(&again, folder.path()).unwrap();
    let mut plain = Plain::to(&switches.rundir(ONE).join("db.sock")).await;
    let read = json!([{"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["external_ids"]}]);
    let found = plain.transact(read).await;
    assert!(found[0].to_string().contains(r#"["note","kept"]"#), "{found:?}");
    assert!(found[0].to_string().contains("system-id"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ovsdb_client_hears_of_guests_that_come_and_go() {
    if !installed(&["ovsdb-client"]) {
        return;
    }
    let scene = Scene::of(2, 2);
    let remote = format!("unix:{}", scene.rundir().join("db.sock").display());
    let listed = scene.run("ovsdb-client", &["list-dbs", &remote]).await.unwrap();
    assert_eq!(listed, "Open_vSwitch\n_Server\n");
    let mut monitor = Command::new("ovsdb-client")
        .args([
            "monitor",
            "--format=json",
            &remote,
            "Open_vSwitch",
            "Interface",
            "name",
        ])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let mut next = async || {
        tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .expect("silence")
            .unwrap()
            .unwrap()
    };
    let (server, tap) = scene.guest();
    assert!(next().await.contains(&tap));
    scene.world.crash_guest(server).unwrap();
    let gone = next().await;
    assert!(gone.contains(&tap) && gone.contains("delete"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ovs_appctl_finds_every_daemon_by_its_pid_file() {
    if !installed(&["ovs-appctl"]) {
        return;
    }
    let scene = Scene::of(2, 2);
    let (_, tap) = scene.guest();
    let vswitchd = scene.appctl(&["version"]).await;
    assert_eq!(vswitchd, "ovs-vswitchd (Open vSwitch) 3.1.0\n");
    let database = scene.appctl(&["-t", "ovsdb-server", "version"]).await;
    assert_eq!(database, "ovsdb-server (Open vSwitch) 3.1.0\n");
    let ovn = scene.appctl(&["-t", "ovn-controller", "connection-status"]).await;
    assert_eq!(ovn, "connected\n");
    scene.world.cut(ONE).unwrap();
    let ovn = scene.appctl(&["-t", "ovn-controller", "connection-status"]).await;
    assert_eq!(ovn, "not connected\n");
    let shown = scene.appctl(&["dpif/show"]).await;
    assert!(
        shown.starts_with("system@ovs-system: hit:") && shown.contains(&tap),
        "{shown}"
    );
    let bond = scene.appctl(&["bond/show", "bond0"]).await;
    for line in [
        "---- bond0 ----\n",
        "lacp_status: negotiated\n",
        "member eth0: enabled\n  active member\n  may_enable: true\n",
    ] {
        assert!(bond.contains(line), "{bond}");
    }
    let refused = scene.run("ovs-appctl", &["frobnicate"]).await.unwrap_err();
    assert!(
        refused.starts_with("\"frobnicate\" is not a valid command"),
        "{refused}"
    );
    let refused = scene.run("ovs-appctl", &["fdb/show"]).await.unwrap_err();
    assert!(
        refused.starts_with("\"fdb/show\" command requires at least 1 arguments"),
        "{refused}"
    );
    let refused = scene
        .run("ovs-appctl", &["fdb/show", "br-none"])
        .await
        .unwrap_err();
    assert!(refused.starts_with("no such bridge"), "{refused}");
    for command in [
        "list-commands",
        "memory/show",
        "coverage/show",
        "dpctl/show",
        "upcall/show",
        "vlog/list",
        "lacp/show",
    ] {
        assert!(!scene.appctl(&[command]).await.is_empty(), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_that_of_the_real_server() {
    const REAL: &str = "/usr/share/openvswitch/vswitch.ovsschema";
    let scene = Scene::of(1, 0);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let (ours, _) = plain.ask("get_schema", json!(["Open_vSwitch"])).await;
    assert_eq!(ours["result"]["version"], json!("8.3.1"));
    let Ok(text) = std::fs::read_to_string(REAL) else {
        writeln!(
            std::io::stderr(),
            "skipped: no {REAL} (Debian: openvswitch-common)"
        )
        .ok();
        return;
    };
    let real: Value = serde_json::from_str(&text).unwrap();
    if real["version"] != ours["result"]["version"] {
        writeln!(std::io::stderr(), "skipped: {REAL} is of another version").ok();
        return;
    }
    let tables = real["tables"].as_object().unwrap();
    assert_eq!(ours["result"]["tables"].as_object().unwrap().len(), tables.len());
    for (name, table) in tables {
        let mine = &ours["result"]["tables"][name];
        assert_eq!(mine["isRoot"], table["isRoot"], "{name}");
        let columns = table["columns"].as_object().unwrap();
        assert_eq!(
            mine["columns"].as_object().unwrap().len(),
            columns.len(),
            "{name}"
        );
        for (column, facts) in columns {
            let mine = &mine["columns"][column];
            assert_eq!(plainly(&mine["type"]), plainly(&facts["type"]), "{name}.{column}");
            assert_eq!(mine["ephemeral"], facts["ephemeral"], "{name}.{column}");
            assert_eq!(mine["mutable"], facts["mutable"], "{name}.{column}");
        }
    }
}

/// A type without what goes without saying.
fn plainly(kind: &Value) -> Value {
    let mut kind = match kind {
        Value::String(_) => json!({"key": kind}),
        other => other.clone(),
    };
    let body = kind.as_object_mut().unwrap();
    for end in ["key", "value"] {
        if let Some(base) = body.get_mut(end) {
            if base.is_string() {
                *base = json!({"type": base});
            }
            if let Some(words) = base.pointer_mut("/enum/1").and_then(Value::as_array_mut) {
                words.sort_by_key(Value::to_string);
            }
        }
    }
    for (name, usual) in [("min", json!(1)), ("max", json!(1))] {
        if body.get(name) == Some(&usual) {
            body.remove(name);
        }
    }
    kind
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_words_of_the_real_server() {
    let scene = Scene::of(1, 1);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let (answer, _) = plain.ask("frobnicate", json!([])).await;
    assert_eq!(answer, json!({"id": 7, "error": "unknown method"}));
    let (answer, _) = plain.ask("get_schema", json!(["nope"])).await;
    assert_eq!(answer["error"]["error"], json!("unknown database"));
    let table = [
        (
            json!([{"op": "select", "table": "Nope", "where": []}]),
            "syntax error",
        ),
        (
            json!([{"op": "insert", "table": "Bridge", "row": {"fail_mode": "odd"}}]),
            "constraint violation",
        ),
        (
            json!([{"op": "insert", "table": "Bridge", "row": {"colour": "red"}}]),
            "unknown column",
        ),
        (json!([{"op": "assert", "lock": "mine"}]), "not owner"),
        (json!([{"op": "abort"}]), "aborted"),
        (
            json!([{"op": "wait", "table": "Bridge", "where": [], "columns": ["name"], "until": "==",
                "rows": [{"name": "br-none"}], "timeout": 0}]),
            "timed out",
        ),
    ];
    for (operations, error) in table {
        assert_eq!(plain.transact(operations).await[0]["error"], json!(error));
    }
    // What only shows at the end of a transaction comes after its results.
    let dangling = json!([{"op": "insert", "table": "Port", "row": {"name": "x"}}]);
    assert_eq!(
        plain.transact(dangling).await[1]["error"],
        json!("referential integrity violation")
    );
    let double = json!([
        {"op": "insert", "table": "Bridge", "row": {"name": "br-int"}, "uuid-name": "b"},
        {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["bridges", "insert", ["named-uuid", "b"]]]}]);
    assert_eq!(
        plain.transact(double).await[2]["error"],
        json!("constraint violation")
    );
    // Nobody refers to it: it is gone before anybody sees it.
    let lost = json!([{"op": "insert", "table": "Interface", "row": {"name": "lost"}}]);
    plain.transact(lost).await;
    let look = json!([{"op": "select", "table": "Interface", "where": [["name", "==", "lost"]]}]);
    assert_eq!(plain.transact(look).await, [json!({"rows": []})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn monitors_tell_differences_in_all_three_forms() {
    let scene = Scene::of(1, 1);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let wanted = json!({"Open_vSwitch": [{"columns": ["external_ids"]}]});
    for (method, name) in [("monitor", "one"), ("monitor_cond", "two")] {
        let (answer, _) = plain.ask(method, json!(["Open_vSwitch", name, wanted])).await;
        assert!(answer["result"]["Open_vSwitch"].is_object(), "{answer}");
    }
    let since = json!(["Open_vSwitch", "three", wanted, Uuid::nil()]);
    let (answer, _) = plain.ask("monitor_cond_since", since).await;
    assert_eq!(answer["result"][0], json!(false));
    let params = |word: &str| {
        json!(["Open_vSwitch", {"op": "mutate", "table": "Open_vSwitch", "where": [],
            "mutations": [["external_ids", word, ["map", [["foo", "bar"]]]]]}])
    };
    // Adding a key and taking it away look the same, and are told before the answer.
    for word in ["insert", "delete"] {
        let (_, told) = plain.ask("transact", params(word)).await;
        let methods: Vec<&str> = told
            .iter()
            .filter_map(|message| message["method"].as_str())
            .collect();
        assert_eq!(methods, ["update", "update2", "update3"]);
        let row = told[2]["params"][2]["Open_vSwitch"]
            .as_object()
            .unwrap()
            .values()
            .next()
            .unwrap();
        assert_eq!(
            *row,
            json!({"modify": {"external_ids": ["map", [["foo", "bar"]]]}})
        );
    }
    // Rows that fall out of a condition are gone before the answer.
    let narrow = json!(["three", "four", {"Open_vSwitch": [{"where": [false]}]}]);
    let (answer, told) = plain.ask("monitor_cond_change", narrow).await;
    assert_eq!(answer["result"], json!({}));
    assert!(told[0].to_string().contains("\"delete\":null"), "{told:?}");
    let (answer, _) = plain.ask("monitor_cancel", json!(["three"])).await;
    assert_eq!(answer["error"], json!("unknown monitor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_pass_on_when_their_holder_leaves() {
    let scene = Scene::of(1, 0);
    let path = scene.rundir().join("db.sock");
    let (mut one, mut two) = (Plain::to(&path).await, Plain::to(&path).await);
    assert_eq!(
        one.ask("lock", json!(["l"])).await.0["result"],
        json!({"locked": true})
    );
    assert_eq!(
        two.ask("lock", json!(["l"])).await.0["result"],
        json!({"locked": false})
    );
    drop(one);
    assert_eq!(two.next().await["method"], json!("locked"));
    let mut three = Plain::to(&path).await;
    assert_eq!(
        three.ask("steal", json!(["l"])).await.0["result"],
        json!({"locked": true})
    );
    assert_eq!(two.next().await["method"], json!("stolen"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_can_wait_for_what_another_writes() {
    let scene = Scene::of(1, 0);
    let path = scene.rundir().join("db.sock");
    let (mut one, mut two) = (Plain::to(&path).await, Plain::to(&path).await);
    let wait = json!(["Open_vSwitch", {"op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["system_type"],
        "until": "==", "rows": [{"system_type": "other"}], "timeout": 60_000}]);
    one.send(json!(1), "transact", wait).await;
    let write =
        json!([{"op": "update", "table": "Open_vSwitch", "where": [], "row": {"system_type": "other"}}]);
    two.transact(write).await;
    let answer = one.next().await;
    assert_eq!(answer, json!({"id": 1, "result": [{}], "error": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_on_its_way_is_on_both_switches_and_then_on_one() {
    let scene = Scene::of(2, 1);
    let (server, tap) = scene.guest();
    let ports = async |host: &str| {
        let mut plain = Plain::to(&scene.switches.rundir(host).join("db.sock")).await;
        let wanted = json!([{"op": "select", "table": "Interface", "where": [["name", "==", tap]], "columns": ["external_ids"]}]);
        plain.transact(wanted).await[0]["rows"]
            .as_array()
            .unwrap()
            .clone()
    };
    assert_eq!((ports(ONE).await.len(), ports(TWO).await.len()), (1, 0));
    scene.world.live_migrate(server).unwrap();
    scene.world.step(Duration::from_secs(2));
    assert_eq!((ports(ONE).await.len(), ports(TWO).await.len()), (1, 1));
    assert!(
        !ports(TWO).await[0].to_string().contains("ovn-installed"),
        "it is not there yet"
    );
    scene.world.step(Duration::from_secs(600));
    assert_eq!((ports(ONE).await.len(), ports(TWO).await.len()), (0, 1));
    assert!(ports(TWO).await[0].to_string().contains("ovn-installed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_come_and_go_with_power_and_daemons() {
    let scene = Scene::of(1, 1);
    let there = |name: &str| scene.rundir().join(name).exists();
    let control = format!("ovs-vswitchd.{}.ctl", std::process::id());
    assert!(there("db.sock") && there(&control) && there("ovs-vswitchd.pid"));
    scene.world.set_vswitchd(ONE, Vswitchd::Down).unwrap();
    eventually("the end of ovs-vswitchd", async || {
        (!there(&control)).then_some(())
    })
    .await;
    assert!(there("db.sock"));
    scene.world.set_vswitchd(ONE, Vswitchd::Up).unwrap();
    eventually("ovs-vswitchd", async || there(&control).then_some(())).await;
    scene.world.set_ovsdb(ONE, false).unwrap();
    eventually("the end of ovsdb-server", async || {
        (!there("db.sock")).then_some(())
    })
    .await;
    scene.world.set_ovsdb(ONE, true).unwrap();
    eventually("ovsdb-server", async || there("db.sock").then_some(())).await;
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    plain.ask("echo", json!([])).await;
    scene.world.power_off(ONE).unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, plain.stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "a host without power still talks");
    eventually("darkness", async || {
        (!there("db.sock") && !there("ovn-controller.pid")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_hangs_takes_nothing_over_and_answers_later() {
    let scene = Scene::of(1, 1);
    scene.world.set_vswitchd(ONE, Vswitchd::Hung).unwrap();
    let control = scene
        .rundir()
        .join(format!("ovs-vswitchd.{}.ctl", std::process::id()));
    let mut waiting = Plain::to(&control).await;
    waiting.send(json!(7), "version", json!([])).await;
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let bump =
        json!([{"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}]);
    plain.transact(bump).await;
    let look =
        json!([{"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg", "next_cfg"]}]);
    assert_eq!(
        plain.transact(look.clone()).await[0]["rows"][0],
        json!({"cur_cfg": 1, "next_cfg": 2})
    );
    scene.world.set_vswitchd(ONE, Vswitchd::Up).unwrap();
    assert_eq!(
        waiting.next().await["result"],
        json!("ovs-vswitchd (Open vSwitch) 3.1.0\n")
    );
    assert_eq!(
        plain.transact(look).await[0]["rows"][0],
        json!({"cur_cfg": 2, "next_cfg": 2})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_was_left_behind_has_no_device_and_a_lonely_controller_installs_nothing() {
    let scene = Scene::of(2, 1);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    scene.world.leave_port(ONE).unwrap();
    let lost = json!([{"op": "select", "table": "Interface", "where": [["ofport", "==", -1]], "columns": ["error", "external_ids"]}]);
    let rows = plain.transact(lost.clone()).await[0]["rows"].clone();
    assert!(
        rows[0]["error"].as_str().unwrap().contains("No such device"),
        "{rows}"
    );
    assert!(rows.to_string().contains("iface-id"), "{rows}");
    scene.world.tidy_switch(ONE).unwrap();
    assert_eq!(plain.transact(lost).await[0]["rows"], json!([]));
    scene.world.set_ovn(TWO, false).unwrap();
    let (server, tap) = scene.guest();
    scene.world.live_migrate(server).unwrap();
    scene.world.step(Duration::from_secs(600));
    let mut plain = Plain::to(&scene.switches.rundir(TWO).join("db.sock")).await;
    let arrived = json!([{"op": "select", "table": "Interface", "where": [["name", "==", tap]], "columns": ["external_ids", "ofport"]}]);
    let rows = plain.transact(arrived.clone()).await[0]["rows"].to_string();
    assert!(
        !rows.contains("ovn-installed") && rows.contains("iface-id"),
        "{rows}"
    );
    scene.world.set_ovn(TWO, true).unwrap();
    assert!(
        plain.transact(arrived).await[0]["rows"]
            .to_string()
            .contains("ovn-installed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_seed_gives_the_same_switch_and_figures_grow_with_time() {
    let (one, two) = (Scene::of(3, 2), Scene::of(3, 2));
    let wanted = json!([{"op": "select", "table": "Interface", "where": []}, {"op": "select", "table": "Port", "where": []}]);
    let mut first = Plain::to(&one.rundir().join("db.sock")).await;
    let mut second = Plain::to(&two.rundir().join("db.sock")).await;
    let before = first.transact(wanted.clone()).await;
    assert_eq!(before, second.transact(wanted).await);
    let (_, tap) = one.guest();
    let figures = json!([{"op": "select", "table": "Interface", "where": [["name", "==", tap]], "columns": ["statistics"]}]);
    let count = |rows: &[Value]| {
        let pairs = rows[0]["rows"][0]["statistics"][1].as_array().unwrap().clone();
        pairs.iter().find(|pair| pair[0] == json!("rx_packets")).unwrap()[1]
            .as_u64()
            .unwrap()
    };
    let old = count(&first.transact(figures.clone()).await);
    one.world.step(Duration::from_secs(10));
    assert!(count(&first.transact(figures).await) > old);
}

const VERSIONS: [&str; 4] = ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

#[tokio::test(flavor = "multi_thread")]
async fn ovs_ofctl_sees_ports_tables_and_flows_in_every_version() {
    if !installed(&["ovs-ofctl", "ovs-vsctl"]) {
        return;
    }
    let scene = Scene::of(2, 2);
    scene.world.step(Duration::from_secs(60));
    let (_, tap) = scene.guest();
    let number = scene.vsctl(&["get", "interface", &tap, "ofport"]).await;
    let mut counted = Vec::new();
    for version in VERSIONS {
        let ofctl = async |words: &[&str]| {
            let words: Vec<&str> = ["-O", version].iter().chain(words).copied().collect();
            scene
                .run("ovs-ofctl", &words)
                .await
                .unwrap_or_else(|said| panic!("{words:?}: {said}"))
        };
        let shown = ofctl(&["show", "br-int"]).await;
        let short: String = tap.chars().take(15).collect();
        assert!(
            shown.contains(&format!(" {number}({short}): addr:fe:16:3e")),
            "{version}: {shown}"
        );
        let own = scene.vsctl(&["get", "interface", "br-int", "mac_in_use"]).await;
        let local = format!("LOCAL(br-int): addr:{}", own.trim_matches('"'));
        assert!(shown.contains(&local), "{version}: {shown}");
        let described = ofctl(&["dump-ports-desc", "br-int"]).await;
        assert!(described.contains(&short), "{described}");
        let figures = ofctl(&["dump-ports", "br-int", &number]).await;
        assert!(
            figures.contains("1 ports") && !figures.contains("rx pkts=0"),
            "{version}: {figures}"
        );
        let tables = ofctl(&["dump-tables", "br-int"]).await;
        assert!(tables.contains("table 65:"), "{version}: {tables}");
        let flows = ofctl(&["--no-stats", "dump-flows", "br-int"]).await;
        // What gives a field a value has another form in the oldest version.
        let verb = if version == "OpenFlow10" {
            "load"
        } else {
            "set_field"
        };
        let own = format!("in_port={number} actions={verb}:");
        assert!(
            flows.contains(&own) && flows.contains("resubmit(,8)"),
            "{version}: {flows}"
        );
        assert!(
            flows.contains(&format!("actions=output:{number}")),
            "{version}: {flows}"
        );
        let lines = flows.lines().filter(|line| line.contains("actions=")).count();
        let aggregate = ofctl(&["dump-aggregate", "br-int"]).await;
        assert!(
            aggregate.contains(&format!("flow_count={lines}")),
            "{version}: {aggregate} {flows}"
        );
        counted.push(lines);
        ofctl(&[
            "add-flow",
            "br-int",
            "cookie=0x77,priority=7,in_port=9,tcp,tcp_dst=80,actions=output:9",
        ])
        .await;
        let added = ofctl(&["dump-flows", "br-int", "in_port=9"]).await;
        assert!(
            added.contains("cookie=0x77") && added.contains("tcp,in_port=9") && added.contains("tp_dst=80"),
            "{version}: {added}"
        );
        assert!(added.contains("actions=output:9"), "{version}: {added}");
        ofctl(&["del-flows", "br-int", "in_port=9"]).await;
        let left = ofctl(&["dump-flows", "br-int", "in_port=9"]).await;
        assert!(!left.contains("actions="), "{version}: {left}");
    }
    assert!(counted.iter().all(|count| *count == counted[0]), "{counted:?}");
    // Without a word about versions, on a bridge that somebody made.
    scene.vsctl(&["add-br", "br-new"]).await;
    let socket = scene.rundir().join("br-new.mgmt");
    eventually("the new bridge", async || socket.exists().then_some(())).await;
    let flows = scene.run("ovs-ofctl", &["dump-flows", "br-new"]).await.unwrap();
    assert!(flows.contains("actions=NORMAL"), "{flows}");
    scene
        .vsctl(&["set", "bridge", "br-int", "protocols=OpenFlow13"])
        .await;
    assert!(scene.run("ovs-ofctl", &["show", "br-int"]).await.is_err());
    assert!(
        scene
            .run("ovs-ofctl", &["-O", "OpenFlow13", "show", "br-int"])
            .await
            .is_ok()
    );
}

/// A client of a management socket that speaks one version.
struct Switchboard {
    stream: UnixStream,
    version: u8,
}

impl Switchboard {
    async fn open(path: &Path, version: u8) -> Self {
        let stream = UnixStream::connect(path).await.unwrap();
        let mut board = Self { stream, version };
        let bits = (1_u32 << version).to_be_bytes();
        board.send(0, &[&[0, 1, 0, 8], &bits[..]].concat()).await;
        let (kind, _) = board.next().await;
        assert_eq!(kind, 0, "a greeting comes first");
        board
    }

    async fn send(&mut self, kind: u8, body: &[u8]) {
        let length = (body.len() as u16 + 8).to_be_bytes();
        let message = [&[self.version, kind], &length[..], &[0, 0, 0, 5], body].concat();
        self.stream.write_all(&message).await.unwrap();
    }

    async fn next(&mut self) -> (u8, Vec<u8>) {
        let read = async {
            let mut header = [0; 8];
            self.stream.read_exact(&mut header).await.unwrap();
            let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
            self.stream.read_exact(&mut body).await.unwrap();
            (header[1], body)
        };
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("nothing was said")
    }

    /// Flows in all tables together, as an agent counts them.
    async fn count(&mut self) -> u32 {
        self.send(18, &[0, 3, 0, 0, 0, 0, 0, 0]).await;
        let (kind, body) = self.next().await;
        assert_eq!((kind, body.len()), (19, 8 + 254 * 24));
        let active = |entry: &[u8]| u32::from_be_bytes(entry[4..8].try_into().unwrap());
        body[8..].chunks(24).map(active).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_statistics_follow_guests_and_flows_that_were_left_behind() {
    let scene = Scene::of(2, 2);
    let path = scene.rundir().join("br-int.mgmt");
    let mut board = Switchboard::open(&path, 4).await;
    let before = board.count().await;
    scene.world.leave_flow(ONE).unwrap();
    assert_eq!(board.count().await, before + 1);
    scene.world.tidy_switch(ONE).unwrap();
    let (server, _) = scene.guest();
    scene.world.crash_guest(server).unwrap();
    assert_eq!(board.count().await, before - 7);
    for version in [5, 6] {
        assert_eq!(Switchboard::open(&path, version).await.count().await, before - 7);
    }
    board.send(2, b"ping").await;
    assert_eq!(board.next().await, (3, b"ping".to_vec()));
    // A kind of statistics that nobody has is refused, and the conversation goes on.
    board.send(18, &[0, 99, 0, 0, 0, 0, 0, 0]).await;
    let (kind, body) = board.next().await;
    assert_eq!((kind, &body[..4]), (1, &[0, 1, 0, 2][..]));
    assert_eq!(board.count().await, before - 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_no_common_version_is_told_so() {
    let scene = Scene::of(1, 0);
    let mut stream = UnixStream::connect(scene.rundir().join("br-int.mgmt"))
        .await
        .unwrap();
    stream
        .write_all(&[2, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 4])
        .await
        .unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said))
        .await
        .expect("it goes on")
        .unwrap();
    let error = &said[16..];
    assert_eq!((error[1], &error[8..12]), (1, &[0, 0, 0, 0][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_listens_to_figures_hears_them_grow() {
    let scene = Scene::of(1, 1);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let wanted = json!(["Open_vSwitch", "figures", {"Interface": [{"columns": ["statistics"]}]}]);
    plain.ask("monitor_cond", wanted).await;
    scene.world.step(Duration::from_secs(30));
    let told = plain.next().await;
    assert_eq!(told["method"], json!("update2"));
    assert!(told.to_string().contains("rx_packets"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_ends_one_conversation_and_no_other() {
    let scene = Scene::of(1, 0);
    let path = scene.rundir().join("db.sock");
    let mut plain = Plain::to(&path).await;
    for nonsense in [
        &b"hello"[..],
        b"]",
        b"{\"method\":1}",
        b"{\"id\":1,\"method\":\"echo\",\"params\":{}}",
    ] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        let mut said = Vec::new();
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
        assert!(end.is_ok() && said.is_empty(), "{said:?}");
    }
    assert_eq!(
        plain.ask("echo", json!(["still", "there"])).await.0["result"],
        json!(["still", "there"])
    );
}
