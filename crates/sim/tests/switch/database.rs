// SPDX-License-Identifier: Apache-2.0
//! The database: what is shown, written, refused, waited for and listened to.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use cobaltcore_sim::Switches;
use cobaltcore_sim::world::World;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use uuid::Uuid;

use crate::{ONE, PATIENCE, Plain, Scene, installed};

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
async fn the_schema_is_that_of_the_real_server() {
    const REAL: &str = "/usr/share/openvswitch/vswitch.ovsschema";
    let scene = Scene::of(1, 0);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let (ours, _) = plain.ask("get_schema", json!(["Open_vSwitch"])).await;
    assert_eq!(ours["result"]["version"], json!("8.3.1"));
    let Ok(text) = std::fs::read_to_string(REAL) else {
        writeln!(
            std::io::stderr(),
            "SKIPPED: no {REAL} (Debian: openvswitch-common)"
        )
        .ok();
        return;
    };
    let real: Value = serde_json::from_str(&text).unwrap();
    if real["version"] != ours["result"]["version"] {
        writeln!(std::io::stderr(), "SKIPPED: {REAL} is of another version").ok();
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
async fn a_transaction_that_is_too_long_changes_nothing() {
    let scene = Scene::of(1, 0);
    let mut plain = Plain::to(&scene.rundir().join("db.sock")).await;
    let rename =
        json!({"op": "update", "table": "Open_vSwitch", "where": [], "row": {"system_type": "changed"}});
    let mut params = vec![json!("Open_vSwitch")];
    params.extend(std::iter::repeat_n(rename, 10_001));
    let (answer, _) = plain.ask("transact", json!(params)).await;
    assert_eq!(answer["result"][0]["error"], json!("resources exhausted"));
    assert_eq!(answer["result"].as_array().unwrap().len(), 10_001);
    let select = json!({"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["system_type"]});
    let (answer, _) = plain.ask("transact", json!(["Open_vSwitch", select])).await;
    assert_ne!(answer["result"][0]["rows"][0]["system_type"], json!("changed"));
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
