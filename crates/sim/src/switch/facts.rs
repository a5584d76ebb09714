// SPDX-License-Identifier: Apache-2.0
//! What a host's switch is made of, read from the world: the network cards of guests, the hosts it has tunnels to, the
//! networks that leave through its provider bridge. Everything else about a switch is written from these.

use std::time::Duration;

use uuid::Uuid;

use crate::world::{Host, Moment, State, Switch};

/// The integration bridge.
pub(crate) const INTEGRATION: &str = "br-int";
/// The bridge towards the provider's networks.
pub(crate) const PROVIDER: &str = "br-ex";
/// The bond on it, and its members.
pub(crate) const BOND: &str = "bond0";
pub(crate) const MEMBERS: [&str; 2] = ["eth0", "eth1"];
/// Number of a bridge's own port.
pub(crate) const LOCAL: u32 = 65_534;
/// Figures of ports are taken this often, as the real switch does.
pub(crate) const FIGURES: Duration = Duration::from_secs(5);
/// The version of everything on the host.
pub(crate) const OVS_VERSION: &str = "3.1.0";
pub(crate) const OVN_VERSION: &str = "23.03.1";

/// A network card of a guest on a host.
#[derive(Debug, Clone)]
pub(crate) struct Nic {
    pub(crate) port: Uuid,
    pub(crate) server: Uuid,
    pub(crate) network: Uuid,
    /// Name of its device on the host.
    pub(crate) tap: String,
    pub(crate) mac: String,
    pub(crate) address: String,
    /// How long its guest has been running here.
    pub(crate) running: Duration,
    /// Whether Neutron has the port on this host.
    pub(crate) bound: bool,
}

impl Nic {
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic::after(self.port, self.running)
    }
}

/// The name of a port's device.
pub(crate) fn tap(port: Uuid) -> String {
    let text = port.to_string();
    format!("tap{}", text.get(..11).unwrap_or(&text))
}

/// The last moment at which figures were taken.
pub(crate) fn figures_at(now: Moment) -> Moment {
    Moment(now.0 - now.0.rem_euclid(FIGURES.as_millis() as i64))
}

/// The network cards of all guests that have a process on the host, in the order of the guests.
pub(crate) fn nics(state: &State, host: &Host) -> Vec<Nic> {
    let now = figures_at(state.now);
    let mut nics = Vec::new();
    for domain in host.running() {
        let ports = state
            .servers
            .get(&domain.uuid)
            .map(|server| server.ports.as_slice());
        let share = u64::from(domain.vcpus.max(1));
        let running = Duration::from_nanos(domain.cpu_time(now) / share * 4);
        for port in ports
            .unwrap_or_default()
            .iter()
            .filter_map(|id| state.ports.get(id))
        {
            nics.push(Nic {
                port: port.id,
                server: domain.uuid,
                network: port.network,
                tap: tap(port.id),
                mac: port.mac.clone(),
                address: port.address.clone(),
                running,
                bound: port.host.as_ref() == Some(&host.name),
            });
        }
    }
    nics
}

/// A host that this one has a tunnel to.
pub(crate) struct Peer {
    pub(crate) chassis: String,
    pub(crate) interface: String,
    pub(crate) ip: String,
    pub(crate) seed: Uuid,
}

/// The name under which OVN knows a host.
pub(crate) fn chassis(host: &Host) -> String {
    host.node_uuid.to_string()
}

/// Tunnels lead to the hosts of the same building block: each block is a transport zone of its own.
pub(crate) fn peers(state: &State, host: &Host) -> Vec<Peer> {
    let near = state
        .hosts
        .values()
        .filter(|other| other.building_block == host.building_block && other.name != host.name);
    near.map(|other| {
        let chassis = chassis(other);
        Peer {
            interface: format!("ovn-{}-0", chassis.get(..6).unwrap_or_default()),
            chassis,
            ip: other.ip.clone(),
            seed: other.node_uuid,
        }
    })
    .collect()
}

/// A provider network as it leaves the integration bridge: a pair of patch ports.
pub(crate) struct Exit {
    pub(crate) network: Uuid,
    pub(crate) vlan: u32,
    /// The logical port in OVN.
    pub(crate) port: String,
    pub(crate) inner: String,
    pub(crate) outer: String,
}

/// The provider networks that guests of the host use.
pub(crate) fn exits(state: &State, nics: &[Nic]) -> Vec<Exit> {
    let used = |id: &Uuid| nics.iter().any(|nic| nic.network == *id);
    let networks = state.networks.values().filter(|network| used(&network.id));
    networks
        .filter_map(|network| {
            let port = format!("provnet-{}", network.id);
            Some(Exit {
                network: network.id,
                vlan: network.segment?,
                inner: format!("patch-{INTEGRATION}-to-{port}"),
                outer: format!("patch-{port}-to-{INTEGRATION}"),
                port,
            })
        })
        .collect()
}

/// Every interface that the world gives a switch, with its bridge.
pub(crate) fn interfaces(state: &State, host: &Host, nics: &[Nic]) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = MEMBERS
        .iter()
        .map(|name| (PROVIDER, (*name).to_owned()))
        .collect();
    for exit in exits(state, nics) {
        all.push((INTEGRATION, exit.inner));
        all.push((PROVIDER, exit.outer));
    }
    all.extend(
        peers(state, host)
            .into_iter()
            .map(|peer| (INTEGRATION, peer.interface)),
    );
    all.extend(nics.iter().map(|nic| (INTEGRATION, nic.tap.clone())));
    all
}

/// What went over a port since it was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) dropped: u64,
}

impl Traffic {
    /// Every port has a pace of its own.
    pub(crate) fn after(seed: Uuid, span: Duration) -> Self {
        let [get, send, got, sent, loss, ..] = seed.into_bytes();
        let seconds = span.as_secs();
        let pace = |byte: u8| 20 + u64::from(byte) * 3;
        let size = |byte: u8| 120 + u64::from(byte) * 4;
        let (rx_packets, tx_packets) = (seconds * pace(get), seconds * pace(send));
        Self {
            rx_packets,
            rx_bytes: rx_packets * size(got),
            tx_packets,
            tx_bytes: tx_packets * size(sent),
            dropped: seconds / (600 + u64::from(loss) * 20),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            dropped: self.dropped + other.dropped,
        }
    }

    /// The same seen from the other end.
    pub(crate) fn turned(self) -> Self {
        Self {
            rx_packets: self.tx_packets,
            rx_bytes: self.tx_bytes,
            tx_packets: self.rx_packets,
            tx_bytes: self.rx_bytes,
            dropped: self.dropped,
        }
    }

    /// An equal share of it.
    pub(crate) fn share(self, of: u64) -> Self {
        Self {
            rx_packets: self.rx_packets / of,
            rx_bytes: self.rx_bytes / of,
            tx_packets: self.tx_packets / of,
            tx_bytes: self.tx_bytes / of,
            dropped: self.dropped / of,
        }
    }
}

/// What went over each interface that the world gives a switch, by number of its port.
pub(crate) fn traffic(state: &State, host: &Host, switch: &Switch, name: &str) -> Traffic {
    let nics = nics(state, host);
    if let Some(nic) = nics.iter().find(|nic| nic.tap == name) {
        return nic.traffic();
    }
    let up = figures_at(state.now).since(host.booted_at);
    if let Some(peer) = peers(state, host).iter().find(|peer| peer.interface == name) {
        return Traffic::after(peer.seed, up);
    }
    if MEMBERS.contains(&name) {
        return uplink(&nics, host, up);
    }
    if switch.number(name).is_some() {
        let exit = exits(state, &nics)
            .into_iter()
            .find(|exit| exit.inner == name || exit.outer == name);
        if let Some(exit) = exit {
            let through = nics.iter().filter(|nic| nic.network == exit.network);
            let sum = through.map(Nic::traffic).fold(Traffic::default(), Traffic::and);
            return if exit.inner == name { sum.turned() } else { sum };
        }
    }
    Traffic::default()
}

/// What one member of the bond carries: the guests' traffic and the host's own.
pub(crate) fn uplink(nics: &[Nic], host: &Host, up: Duration) -> Traffic {
    let guests = nics.iter().map(|nic| nic.traffic().turned());
    let sum = guests.fold(Traffic::default(), Traffic::and);
    sum.share(MEMBERS.len() as u64)
        .and(Traffic::after(host.node_uuid, up))
}
