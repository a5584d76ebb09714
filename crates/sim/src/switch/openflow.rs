// SPDX-License-Identifier: Apache-2.0
//! OpenFlow on the management socket of a bridge: versions 1.0, 1.3, 1.4 and 1.5, the messages that `ovs-ofctl` and an
//! agent send to look at ports, tables and flows and to add and remove flows. Everything else is refused in the protocol's
//! own words.

mod legacy;
mod reply;
mod wire;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::derive::{row_id, view};
use super::flows::{self, Flow};
use super::hub::Hub;
use super::unixctl::{Interface, bridges};
use super::value::Datum;
use crate::world::{Host, State, Switch};
use wire::{Reader, Writer};

/// Versions, by the number on the wire.
pub(crate) const V10: u8 = 1;
pub(crate) const V13: u8 = 4;
pub(crate) const V14: u8 = 5;
pub(crate) const V15: u8 = 6;
const VERSIONS: [(u8, &str); 4] = [
    (V10, "OpenFlow10"),
    (V13, "OpenFlow13"),
    (V14, "OpenFlow14"),
    (V15, "OpenFlow15"),
];

const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const VENDOR: u8 = 4;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const GET_CONFIG_REQUEST: u8 = 7;
const GET_CONFIG_REPLY: u8 = 8;
const SET_CONFIG: u8 = 9;
const FLOW_MOD: u8 = 14;

/// Longer messages do not exist.
const LONGEST: usize = u16::MAX as usize;

/// A message as it came.
struct Message {
    version: u8,
    kind: u8,
    xid: u32,
    body: Vec<u8>,
    /// As much of the original as an error repeats.
    start: Vec<u8>,
}

/// Why a request is refused: type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused(u16, u16);

const BAD_TYPE: Refused = Refused(1, 1);
const BAD_STAT: Refused = Refused(1, 2);
const BAD_VENDOR: Refused = Refused(1, 3);
const BAD_LENGTH: Refused = Refused(1, 6);
const BAD_COMMAND: Refused = Refused(5, 6);
const TABLE_FULL: Refused = Refused(5, 1);

/// What a bridge is at the moment.
struct Bridge<'a> {
    state: &'a mut State,
    host: Host,
    switch: Switch,
    name: &'a str,
}

/// One client of a bridge, until it leaves.
pub(crate) async fn converse(hub: &Hub, bridge: &str, mut stream: UnixStream) {
    let allowed = allowed(hub, bridge);
    let greeting = hello(&allowed);
    if stream.write_all(&greeting).await.is_err() {
        return;
    }
    let Some(first) = read(&mut stream).await.filter(|message| message.kind == HELLO) else {
        return;
    };
    let Some(version) = agree(&first, &allowed) else {
        let mut words = Writer::message(first.version, ERROR, first.xid);
        words.u16(0).u16(0).bytes(b"no version in common");
        stream.write_all(&words.done()).await.ok();
        return;
    };
    while let Some(message) = read(&mut stream).await {
        super::doors::pace(hub).await;
        let replies = if message.version == version {
            answer(hub, bridge, &message)
        } else {
            vec![refusal(&message, Refused(1, 0))]
        };
        for reply in replies {
            if stream.write_all(&reply).await.is_err() {
                return;
            }
        }
    }
}

async fn read(stream: &mut UnixStream) -> Option<Message> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).await.ok()?;
    let [version, kind, l1, l2, xid @ ..] = header;
    let length = usize::from(u16::from_be_bytes([l1, l2]));
    if !(8..=LONGEST).contains(&length) {
        return None;
    }
    let mut body = vec![0; length - 8];
    stream.read_exact(&mut body).await.ok()?;
    let mut start = header.to_vec();
    start.extend(body.iter().take(56));
    Some(Message {
        version,
        kind,
        xid: u32::from_be_bytes(xid),
        body,
        start,
    })
}

/// The versions that a bridge speaks: all of ours, or those among them that it is restricted to.
fn allowed(hub: &Hub, bridge: &str) -> Vec<u8> {
    let wanted: Vec<String> = hub.world.read(|state| {
        if state
            .switches
            .get(&hub.host)
            .is_none_or(|switch| switch.writes.is_empty())
        {
            return Vec::new();
        }
        let tables = view(state, &hub.host);
        let named = |row: &&std::sync::Arc<Vec<Datum>>| {
            tables.get("Bridge", row, "name").and_then(Datum::text) == Some(bridge)
        };
        let row = tables.named("Bridge").values().find(named);
        let protocols = row
            .and_then(|row| tables.get("Bridge", row, "protocols"))
            .cloned();
        protocols
            .unwrap_or_default()
            .0
            .keys()
            .map(ToString::to_string)
            .collect()
    });
    let spoken = VERSIONS
        .iter()
        .filter(|(_, name)| wanted.is_empty() || wanted.iter().any(|word| word == name));
    spoken.map(|(version, _)| *version).collect()
}

fn hello(versions: &[u8]) -> Vec<u8> {
    let highest = versions.iter().max().copied().unwrap_or(V15);
    let mut words = Writer::message(highest, HELLO, 1);
    words.u16(1).u16(8).u32(bits(versions));
    words.done()
}

fn bits(versions: &[u8]) -> u32 {
    versions.iter().fold(0, |bits, version| bits | 1 << version)
}

/// The highest version that both sides speak.
fn agree(first: &Message, allowed: &[u8]) -> Option<u8> {
    let mut reader = Reader(&first.body);
    let mut theirs = None;
    while let (Some(kind), Some(length)) = (reader.u16(), reader.u16()) {
        let element = reader.take(usize::from(length).saturating_sub(4));
        if kind == 1 {
            theirs = element.and_then(|bytes| Reader(bytes).u32());
        }
    }
    // Who names none speaks everything up to the version of its greeting.
    let theirs = theirs.unwrap_or_else(|| (2_u32 << first.version.min(30)) - 1);
    allowed
        .iter()
        .copied()
        .filter(|version| theirs & (1 << version) != 0)
        .max()
}

fn refusal(message: &Message, Refused(kind, code): Refused) -> Vec<u8> {
    let mut words = Writer::message(message.version, ERROR, message.xid);
    words.u16(kind).u16(code).bytes(&message.start);
    words.done()
}

fn answer(hub: &Hub, bridge: &str, message: &Message) -> Vec<Vec<u8>> {
    let changes = message.kind == FLOW_MOD || message.kind == VENDOR;
    let outcome = hub.world.attend(changes, |state| {
        super::derive::settle(state, &hub.host);
        let host = state.hosts.get(&hub.host)?.clone();
        let switch = state.switches.get(&hub.host).cloned().unwrap_or_default();
        let mut bridge = Bridge {
            state,
            host,
            switch,
            name: bridge,
        };
        Some(bridge.answer(message))
    });
    match outcome {
        Some(Ok(replies)) => replies,
        Some(Err(refused)) => vec![refusal(message, refused)],
        None => Vec::new(),
    }
}

impl Bridge<'_> {
    fn answer(&mut self, message: &Message) -> Result<Vec<Vec<u8>>, Refused> {
        let reply = |kind| Writer::message(message.version, kind, message.xid);
        let old = message.version == V10;
        let (multipart, barrier) = if old { (16, 18) } else { (18, 20) };
        match message.kind {
            HELLO | ERROR | ECHO_REPLY | SET_CONFIG => Ok(Vec::new()),
            ECHO_REQUEST => {
                let mut words = reply(ECHO_REPLY);
                words.bytes(&message.body);
                Ok(vec![words.done()])
            }
            FEATURES_REQUEST => {
                let mut words = reply(FEATURES_REPLY);
                self.features(&mut words, message.version);
                Ok(vec![words.done()])
            }
            GET_CONFIG_REQUEST => {
                let mut words = reply(GET_CONFIG_REPLY);
                words.u16(0).u16(0);
                Ok(vec![words.done()])
            }
            FLOW_MOD if old => self.flow_mod_10(&message.body).map(|()| Vec::new()),
            FLOW_MOD => self.flow_mod(&message.body).map(|()| Vec::new()),
            VENDOR if old => self.vendor(&message.body).map(|()| Vec::new()),
            VENDOR => Err(BAD_VENDOR),
            kind if kind == barrier => Ok(vec![reply(barrier + 1).done()]),
            kind if kind == multipart && old => self.stats_10(message),
            kind if kind == multipart => self.multipart(message),
            _ => Err(BAD_TYPE),
        }
    }

    /// The ports of the bridge, in the order of their numbers.
    fn ports(&self) -> Vec<Interface> {
        let tables = view(self.state, &self.host.name);
        let mut all = bridges(&tables);
        let mut ports: Vec<Interface> = all.remove(self.name).unwrap_or_default().into_values().collect();
        ports.sort_by_key(|port| port.number);
        ports
    }

    fn flows(&self) -> Vec<Flow> {
        flows::flows(self.state, &self.host, &self.switch, self.name)
    }

    fn datapath_id(&self) -> u64 {
        flows::datapath_id(row_id(&self.host, "Bridge", self.name))
    }

    fn flow_mod(&mut self, body: &[u8]) -> Result<(), Refused> {
        let mut reader = Reader(body);
        let wanted = wire::FlowMod::read(&mut reader).ok_or(BAD_LENGTH)?;
        self.carry_out(wanted)
    }

    fn carry_out(&mut self, wanted: wire::FlowMod) -> Result<(), Refused> {
        let host = self.host.clone();
        let room = match wanted.command {
            0 => {
                let flow = wanted.flow(self.state.now);
                flows::add(self.state, &host, self.name, flow)
            }
            1 | 2 => {
                let (filter, new) = (wanted.filter(), wanted.instructions.clone());
                let hit = flows::change(self.state, &host, self.name, &filter, Some(&new));
                let flow = wanted.flow(self.state.now);
                hit > 0 || flows::add(self.state, &host, self.name, flow)
            }
            3 | 4 => {
                flows::change(self.state, &host, self.name, &wanted.filter(), None);
                true
            }
            _ => return Err(BAD_COMMAND),
        };
        if room { Ok(()) } else { Err(TABLE_FULL) }
    }
}
