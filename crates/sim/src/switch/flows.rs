// SPDX-License-Identifier: Apache-2.0
//! The flows of a bridge: what OVN installs for every port of a host, with counters that follow the ports, and what clients
//! added and took away. Matches and instructions are kept in the form of OpenFlow 1.3.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::facts::{self, Exit, INTEGRATION, Nic, PROVIDER, Traffic};
use crate::world::{Host, Moment, State, Switch, named_uuid};

/// Fields of a match, by the header they have on the wire.
pub(crate) mod field {
    pub(crate) const IN_PORT: u32 = 0x8000_0004;
    pub(crate) const METADATA: u32 = 0x8000_0408;
    pub(crate) const ETH_DST: u32 = 0x8000_0606;
    pub(crate) const ETH_SRC: u32 = 0x8000_0806;
    pub(crate) const ETH_TYPE: u32 = 0x8000_0a02;
    pub(crate) const VLAN_VID: u32 = 0x8000_0c02;
    pub(crate) const IPV4_SRC: u32 = 0x8000_1604;
    pub(crate) const ARP_SPA: u32 = 0x8000_2c04;
    pub(crate) const ARP_SHA: u32 = 0x8000_3006;
    /// Where a packet came from and where it goes, in OVN's use of the registers.
    pub(crate) const REG14: u32 = 0x0001_1c04;
    pub(crate) const REG15: u32 = 0x0001_1e04;
    pub(crate) const VLAN_TCI: u32 = 0x0000_0802;
}

/// Flows that clients can add to a bridge.
const MOST_ADDED: usize = 20_000;
const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
/// The port that means forwarding as a plain switch does.
const NORMAL: u32 = 0xffff_fffa;
const NICIRA: u32 = 0x2320;
/// The kind of action that gives a field a value.
pub(crate) const SET_FIELD: u8 = 25;

/// What a flow is known by: no two have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) table: u8,
    pub(crate) priority: u16,
    /// Fields in the order of the wire.
    pub(crate) fields: Vec<(u32, Vec<u8>)>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) key: Key,
    pub(crate) cookie: u64,
    pub(crate) idle: u16,
    pub(crate) hard: u16,
    pub(crate) flags: u16,
    /// Instructions, as they go over the wire.
    pub(crate) instructions: Vec<u8>,
    pub(crate) since: Moment,
    #[serde(default)]
    pub(crate) packets: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
}

/// What clients did to the flows of a bridge.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FlowWrites {
    added: Vec<Flow>,
    gone: Vec<Key>,
}

/// Which flows a client means.
pub(crate) struct Filter {
    /// None for all.
    pub(crate) table: Option<u8>,
    /// Only with exactly this priority and match.
    pub(crate) strict: Option<u16>,
    pub(crate) fields: Vec<(u32, Vec<u8>)>,
    pub(crate) cookie: u64,
    pub(crate) cookie_mask: u64,
    /// Only flows that send to this port.
    pub(crate) out_port: Option<u32>,
}

impl Filter {
    pub(crate) fn takes(&self, flow: &Flow) -> bool {
        let table = self.table.is_none_or(|table| table == flow.key.table);
        let cookie = flow.cookie & self.cookie_mask == self.cookie & self.cookie_mask;
        let out = self
            .out_port
            .is_none_or(|port| outputs(&flow.instructions).contains(&port));
        let fields = match self.strict {
            Some(priority) => priority == flow.key.priority && self.fields == flow.key.fields,
            None => self.fields.iter().all(|field| covered(field, &flow.key.fields)),
        };
        table && cookie && out && fields
    }
}

/// Whether one of the fields is at least as narrow as `wanted`.
fn covered((header, wanted): &(u32, Vec<u8>), fields: &[(u32, Vec<u8>)]) -> bool {
    let masked = |header: u32| header & 0x100 != 0;
    let same = |other: u32| other >> 9 == header >> 9;
    fields.iter().any(|(other, have)| {
        if !same(*other) {
            return false;
        }
        if !masked(*header) {
            return !masked(*other) && have == wanted;
        }
        let (value, mask) = wanted.split_at(wanted.len() / 2);
        let have = if masked(*other) {
            have.get(..have.len() / 2)
        } else {
            Some(have.as_slice())
        };
        let have = have.unwrap_or_default();
        value.len() == have.len()
            && have
                .iter()
                .zip(value)
                .zip(mask)
                .all(|((have, value), mask)| have & mask == value & mask)
    })
}

/// The actions of instructions that are applied at once.
pub(crate) fn actions(instructions: &[u8]) -> &[u8] {
    let mut rest = instructions;
    while let [k1, k2, l1, l2, ..] = *rest {
        let (kind, length) = (
            u16::from_be_bytes([k1, k2]),
            usize::from(u16::from_be_bytes([l1, l2])),
        );
        if length < 8 || length > rest.len() {
            break;
        }
        if kind == 4 || kind == 3 {
            return rest.get(8..length).unwrap_or_default();
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    &[]
}

/// The actions, one by one.
pub(crate) fn each_action(mut actions: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let [_, _, l1, l2, ..] = *actions else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([l1, l2]));
        if length < 8 || length > actions.len() {
            return None;
        }
        let (action, rest) = actions.split_at(length);
        actions = rest;
        Some(action)
    })
}

fn outputs(instructions: &[u8]) -> Vec<u32> {
    let port = |action: &[u8]| match *action {
        [0, 0, _, _, a, b, c, d, ..] => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    };
    each_action(actions(instructions)).filter_map(port).collect()
}

/// Instructions that apply these actions.
pub(crate) fn apply(actions: &[u8]) -> Vec<u8> {
    if actions.is_empty() {
        return Vec::new();
    }
    let mut bytes = vec![0, 4];
    bytes.extend_from_slice(&((actions.len() + 8) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(actions);
    bytes
}

/// The action that gives a field a value.
pub(crate) fn set_field(field: u32, value: &[u8]) -> Vec<u8> {
    let length = (8 + value.len()).next_multiple_of(8);
    let mut bytes = vec![0, SET_FIELD];
    bytes.extend_from_slice(&(length as u16).to_be_bytes());
    bytes.extend_from_slice(&field.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length, 0);
    bytes
}

/// Actions as OVN writes them.
#[derive(Default)]
struct Do(Vec<u8>);

impl Do {
    fn nicira(mut self, subtype: u16, body: &[u8]) -> Self {
        self.0.extend_from_slice(&[0xff, 0xff]);
        self.0
            .extend_from_slice(&((body.len() + 10) as u16).to_be_bytes());
        self.0.extend_from_slice(&NICIRA.to_be_bytes());
        self.0.extend_from_slice(&subtype.to_be_bytes());
        self.0.extend_from_slice(body);
        self
    }

    /// Puts a number into a field.
    fn load(mut self, field: u32, value: u64) -> Self {
        let value = value.to_be_bytes();
        let kept = value.len() - (field & 0xff) as usize;
        self.0
            .extend(set_field(field, value.get(kept..).unwrap_or_default()));
        self
    }

    /// Goes on in another table.
    fn resubmit(self, table: u8) -> Self {
        self.nicira(14, &[0xff, 0xf8, table, 0, 0, 0])
    }

    fn output(mut self, port: u32) -> Self {
        self.0.extend_from_slice(&[0, 0, 0, 16]);
        self.0.extend_from_slice(&port.to_be_bytes());
        self.0.extend_from_slice(&[0; 8]);
        self
    }
}

struct Made<'a> {
    host: &'a Host,
    flows: Vec<Flow>,
}

impl Made<'_> {
    fn add(
        &mut self,
        table: u8,
        priority: u16,
        mut fields: Vec<(u32, Vec<u8>)>,
        does: Do,
        counted: (u64, u64),
    ) {
        fields.sort();
        let key = Key {
            table,
            priority,
            fields,
        };
        let (cookie, ..) = named_uuid(self.host.node_uuid, &format!("{key:?}")).as_fields();
        self.flows.push(Flow {
            cookie: u64::from(cookie),
            key,
            idle: 0,
            hard: 0,
            flags: 0,
            instructions: apply(&does.0),
            since: self.host.booted_at,
            packets: counted.0,
            bytes: counted.1,
        });
    }
}

fn word(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn mac(text: &str) -> Vec<u8> {
    text.split(':')
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect()
}

fn address(text: &str) -> Vec<u8> {
    let parsed: std::net::Ipv4Addr = text.parse().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
    parsed.octets().to_vec()
}

/// The flows of a bridge as everybody sees them now, in the order of their tables.
pub(crate) fn flows(state: &State, host: &Host, switch: &Switch, bridge: &str) -> Vec<Flow> {
    let mut all = base(state, host, switch, bridge);
    if let Some(writes) = switch.flows.get(bridge) {
        all.retain(|flow| !writes.gone.contains(&flow.key));
        all.extend(writes.added.iter().cloned());
    }
    all.sort_by(|one, two| {
        one.key
            .table
            .cmp(&two.key.table)
            .then(two.key.priority.cmp(&one.key.priority))
    });
    all
}

fn base(state: &State, host: &Host, switch: &Switch, bridge: &str) -> Vec<Flow> {
    let mut made = Made {
        host,
        flows: Vec::new(),
    };
    let nics = facts::nics(state, host);
    if bridge != INTEGRATION {
        let up = facts::figures_at(state.now).since(host.booted_at);
        let through = if bridge == PROVIDER {
            facts::uplink(&nics, host, up)
        } else {
            Traffic::default()
        };
        made.add(
            0,
            0,
            Vec::new(),
            Do::default().output(NORMAL),
            (through.rx_packets, through.rx_bytes),
        );
        return made.flows;
    }
    made.always();
    let exits = facts::exits(state, &nics);
    for exit in &exits {
        let through = nics.iter().filter(|nic| nic.network == exit.network);
        let sum = through.map(Nic::traffic).fold(Traffic::default(), Traffic::and);
        made.exit(switch, exit, sum);
    }
    for peer in facts::peers(state, host) {
        if let Some(number) = switch.number(&peer.interface) {
            let traffic = Traffic::after(peer.seed, facts::figures_at(state.now).since(host.booted_at));
            let does = Do::default().load(field::REG14, 0xffff).resubmit(38);
            made.add(
                0,
                100,
                vec![(field::IN_PORT, word(number))],
                does,
                (traffic.rx_packets, traffic.rx_bytes),
            );
        }
    }
    for nic in nics.iter().filter(|nic| switch.installed.contains_key(&nic.port)) {
        if let (Some(number), Some(exit)) = (
            switch.number(&nic.tap),
            exits.iter().find(|exit| exit.network == nic.network),
        ) {
            made.guest(nic, number, exit);
        }
    }
    for number in &switch.stale {
        let does = Do::default()
            .load(field::REG14, u64::from(*number) + 2)
            .resubmit(8);
        made.add(0, 100, vec![(field::IN_PORT, word(*number))], does, (0, 0));
    }
    made.flows
}

/// The number under which OVN knows a network; its segment is as good as any.
fn datapath(exit: &Exit) -> u64 {
    u64::from(exit.vlan)
}

impl Made<'_> {
    /// What does not depend on any port.
    fn always(&mut self) {
        for (table, next) in [(37, 38), (39, 40), (64, 65)] {
            self.add(table, 0, Vec::new(), Do::default().resubmit(next), (0, 0));
        }
        for table in [8, 9, 38, 40] {
            self.add(table, 0, Vec::new(), Do::default(), (0, 0));
        }
    }

    /// A provider network: in by the patch port with its VLAN, out again the same way.
    fn exit(&mut self, switch: &Switch, exit: &Exit, sum: Traffic) {
        let Some(number) = switch.number(&exit.inner) else {
            return;
        };
        let network = datapath(exit);
        let tag = (0x1000 | exit.vlan as u16).to_be_bytes().to_vec();
        let fields = vec![(field::IN_PORT, word(number)), (field::VLAN_VID, tag)];
        let does = Do::default()
            .load(field::VLAN_TCI, 0)
            .load(field::METADATA, network)
            .load(field::REG14, 1)
            .resubmit(8);
        self.add(0, 150, fields, does, (sum.tx_packets, sum.tx_bytes));
        let fields = vec![
            (field::REG15, word(1)),
            (field::METADATA, network.to_be_bytes().to_vec()),
        ];
        let does = Do::default()
            .load(field::VLAN_TCI, u64::from(0x1000 | exit.vlan))
            .output(number)
            .load(field::VLAN_TCI, 0);
        self.add(65, 100, fields, does, (sum.rx_packets, sum.rx_bytes));
    }

    /// A guest: its packets are let in with its own addresses only, and packets to it find it.
    fn guest(&mut self, nic: &Nic, number: u32, exit: &Exit) {
        let traffic = nic.traffic();
        let (sent, got) = (
            (traffic.rx_packets, traffic.rx_bytes),
            (traffic.tx_packets, traffic.tx_bytes),
        );
        let (network, key) = (datapath(exit), number + 2);
        let metadata = || (field::METADATA, network.to_be_bytes().to_vec());
        let does = Do::default()
            .load(field::METADATA, network)
            .load(field::REG14, u64::from(key))
            .resubmit(8);
        self.add(0, 100, vec![(field::IN_PORT, word(number))], does, sent);
        let from = || (field::REG14, word(key));
        self.add(8, 50, vec![from(), metadata()], Do::default().resubmit(9), sent);
        let own = (field::ETH_SRC, mac(&nic.mac));
        let mut fields = vec![from(), metadata(), own.clone(), (field::ETH_TYPE, IPV4.to_vec())];
        fields.push((field::IPV4_SRC, address(&nic.address)));
        self.add(9, 90, fields, Do::default().resubmit(25), sent);
        let mut fields = vec![from(), metadata(), own, (field::ETH_TYPE, ARP.to_vec())];
        fields.push((field::ARP_SPA, address(&nic.address)));
        fields.push((field::ARP_SHA, mac(&nic.mac)));
        self.add(
            9,
            90,
            fields,
            Do::default().resubmit(25),
            (sent.0 / 400, sent.0 / 400 * 42),
        );
        let does = Do::default().load(field::REG15, u64::from(key)).resubmit(37);
        self.add(
            25,
            50,
            vec![metadata(), (field::ETH_DST, mac(&nic.mac))],
            does,
            got,
        );
        let to = || vec![(field::REG15, word(key)), metadata()];
        self.add(38, 100, to(), Do::default().resubmit(39), got);
        self.add(65, 100, to(), Do::default().output(number), got);
    }
}

/// Adds a flow, unless there are too many; one with the same match and priority makes room.
pub(crate) fn add(state: &mut State, host: &Host, bridge: &str, flow: Flow) -> bool {
    let writes = writes(state, host, bridge);
    writes.added.retain(|other| other.key != flow.key);
    if writes.added.len() >= MOST_ADDED {
        return false;
    }
    writes.gone.push(flow.key.clone());
    writes.gone.sort();
    writes.gone.dedup();
    writes.added.push(flow);
    true
}

/// Takes flows away, or gives them other instructions.
pub(crate) fn change(
    state: &mut State,
    host: &Host,
    bridge: &str,
    filter: &Filter,
    new: Option<&[u8]>,
) -> usize {
    let fresh = Switch::default();
    let switch = state.switches.get(&host.name).unwrap_or(&fresh);
    let hit: Vec<Flow> = flows(state, host, switch, bridge)
        .into_iter()
        .filter(|flow| filter.takes(flow))
        .collect();
    let there: Vec<Key> = base(state, host, switch, bridge)
        .into_iter()
        .map(|flow| flow.key)
        .collect();
    let writes = writes(state, host, bridge);
    // What OVN took away itself in the meantime needs no remembering.
    writes.gone.retain(|key| there.contains(key));
    let count = hit.len();
    for mut flow in hit {
        writes.added.retain(|other| other.key != flow.key);
        if there.contains(&flow.key) && !writes.gone.contains(&flow.key) {
            writes.gone.push(flow.key.clone());
        }
        if let Some(new) = new {
            flow.instructions = new.to_vec();
            writes.added.push(flow);
        }
    }
    count
}

fn writes<'a>(state: &'a mut State, host: &Host, bridge: &str) -> &'a mut FlowWrites {
    let switch = state.switches.entry(host.name.clone()).or_default();
    switch.flows.entry(bridge.to_owned()).or_default()
}

/// The identity of a bridge as OpenFlow knows it.
pub(crate) fn datapath_id(bridge: Uuid) -> u64 {
    (bridge.as_u128() >> 80) as u64
}
