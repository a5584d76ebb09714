// SPDX-License-Identifier: Apache-2.0
//! Knocking at the doors of simulated hosts, as those do who want to know whether a host lives.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use cobaltcore_sim::{Doors, World};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Whether somebody answers at the host's door; nothing if not even the kernel does.
async fn knock(world: &World, host: &str, port: u16) -> Option<usize> {
    let ip = world.read(|state| state.hosts[host].ip.clone());
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let connect = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address));
    let mut stream = connect.await.ok()?.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.ok()
}

#[tokio::test]
async fn a_door_answers_while_its_host_can_and_is_silent_otherwise() {
    let world = World::builder().hosts(2).build();
    let doors = Doors::open(&world).await.unwrap();
    let _time = world.run();
    let reached = async |host: &str| knock(&world, host, doors.port()).await.is_some();
    let until = async |host: &str, wanted: bool| {
        while reached(host).await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(reached("node001-bb1").await && reached("node002-bb1").await);
    world.power_off("node001-bb1").unwrap();
    until("node001-bb1", false).await;
    world.cut("node002-bb1").unwrap();
    until("node002-bb1", false).await;
    world.mend("node002-bb1").unwrap();
    until("node002-bb1", true).await;
    assert!(!reached("node001-bb1").await, "it still has no power");
}

#[tokio::test]
async fn two_worlds_live_beside_each_other() {
    let (one, two) = (
        World::builder().hosts(3).build(),
        World::builder().hosts(3).build(),
    );
    let (first, second) = (Doors::open(&one).await.unwrap(), Doors::open(&two).await.unwrap());
    assert_ne!(first.port(), second.port());
    two.power_off("node002-bb1").unwrap();
    assert!(knock(&one, "node002-bb1", first.port()).await.is_some());
}
