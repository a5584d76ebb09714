// SPDX-License-Identifier: Apache-2.0
//! The daemons of a host: how they are found, what they answer, and how they come and go with the world.

use std::time::Duration;

use cobaltcore_sim::world::Vswitchd;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{ONE, PATIENCE, Plain, Scene, TWO, eventually, installed};

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
