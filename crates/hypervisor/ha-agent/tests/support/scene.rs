// SPDX-License-Identifier: Apache-2.0
//! A simulated libvirt host with its guests.

use cobaltcore_sim::hosts::Place as Where;
use cobaltcore_sim::{Hosts, World};
use uuid::Uuid;

pub(crate) struct Scene {
    pub(crate) world: World,
    _hosts: Hosts,
    pub(crate) uri: String,
    pub(crate) guests: Vec<Uuid>,
    pub(crate) host: String,
}

impl Scene {
    pub(crate) async fn new(guests: usize) -> Self {
        let world = World::builder().hosts(1).vms_per_host(guests).build();
        let hosts = Hosts::start(&world, Where::Tcp).await.unwrap();
        let host = world.read(|state| state.hosts.keys().next().unwrap().to_string());
        let mut guests: Vec<Uuid> =
            world.read(|state| state.servers_on(&host).map(|server| server.id).collect());
        guests.sort();
        Self {
            uri: hosts.uri(&host).unwrap(),
            world,
            _hosts: hosts,
            guests,
            host,
        }
    }
}
