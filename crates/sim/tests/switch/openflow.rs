// SPDX-License-Identifier: Apache-2.0
//! OpenFlow: ports, tables and flows, in every version that is spoken.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::{ONE, PATIENCE, Scene, eventually, installed};

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
