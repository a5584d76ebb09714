// SPDX-License-Identifier: Apache-2.0
//! What a host's virtual switch remembers: how its daemons behave, which numbers its ports have, which of them OVN has
//! installed, what clients wrote, and what was left behind on purpose. What follows from guests and hosts is derived when
//! somebody looks, in [`crate::switch`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::names::HostName;
use super::state::State;
use super::{Power, World};
use crate::error::Error;
use crate::switch::{FlowWrites, Writes};

/// How ovs-vswitchd behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Vswitchd {
    /// Answers.
    #[default]
    Up,
    /// Answers this much later.
    Slow(Duration),
    /// Accepts connections and answers nothing.
    Hung,
    /// The process is gone.
    Down,
}

/// A port whose device is gone: nobody took it out of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Of which port of the cloud.
    pub port: Uuid,
    /// Of which server.
    pub server: Uuid,
}

/// Why a port that a client asked for does not work, or its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plug {
    Number(u32),
    Failed(String),
}

/// A host's virtual switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Switch {
    /// How ovs-vswitchd behaves.
    pub vswitchd: Vswitchd,
    /// Whether ovsdb-server runs.
    pub ovsdb: bool,
    /// Whether ovn-controller reaches the Southbound database.
    pub ovn: bool,
    /// Ports without a device.
    pub orphans: Vec<Orphan>,
    /// Numbers that flows match and no port has.
    pub stale: BTreeSet<u32>,
    /// Numbers of ports by interface.
    pub(crate) plugs: BTreeMap<String, Plug>,
    /// The last number that was given away, by bridge.
    pub(crate) last: BTreeMap<String, u32>,
    /// Ports whose flows are in place, and since when.
    pub(crate) installed: BTreeMap<Uuid, Moment>,
    /// The last configuration that ovs-vswitchd has taken over.
    pub(crate) cur_cfg: i64,
    /// What clients wrote into the database.
    pub(crate) writes: Writes,
    /// What clients did to the flows, by bridge.
    pub(crate) flows: BTreeMap<String, FlowWrites>,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            vswitchd: Vswitchd::default(),
            ovsdb: true,
            ovn: true,
            orphans: Vec::new(),
            stale: BTreeSet::new(),
            plugs: BTreeMap::new(),
            last: BTreeMap::new(),
            installed: BTreeMap::new(),
            cur_cfg: 1,
            writes: Writes::default(),
            flows: BTreeMap::new(),
        }
    }
}

impl Switch {
    /// Whether ovs-vswitchd does anything at all.
    pub fn works(&self) -> bool {
        matches!(self.vswitchd, Vswitchd::Up | Vswitchd::Slow(_))
    }

    /// The number of an interface, if it has one.
    pub(crate) fn number(&self, interface: &str) -> Option<u32> {
        match self.plugs.get(interface) {
            Some(Plug::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Gives an interface the next number of its bridge, unless it has one.
    pub(crate) fn plug(&mut self, bridge: &str, interface: &str) -> u32 {
        if let Some(number) = self.number(interface) {
            return number;
        }
        let last = self.last.entry(bridge.to_owned()).or_default();
        *last = *last % HIGHEST_PORT + 1;
        self.plugs.insert(interface.to_owned(), Plug::Number(*last));
        *last
    }
}

/// The highest number a port can have.
const HIGHEST_PORT: u32 = 0xfeff;

impl World {
    fn on_switch(&self, host: &str, change: impl FnOnce(&mut State, &mut Switch)) -> Result<(), Error> {
        self.on_host(host, |state, name| {
            // What happened so far happened under the old circumstances.
            crate::switch::settle(state, name);
            let mut switch = state.switches.remove(name).unwrap_or_default();
            change(state, &mut switch);
            state.switches.insert(name.clone(), switch);
        })
    }

    /// Makes a host's ovs-vswitchd answer, answer late, hang or be gone.
    pub fn set_vswitchd(&self, host: &str, vswitchd: Vswitchd) -> Result<(), Error> {
        self.on_switch(host, |_, switch| switch.vswitchd = vswitchd)
    }

    /// Stops or starts a host's ovsdb-server.
    pub fn set_ovsdb(&self, host: &str, runs: bool) -> Result<(), Error> {
        self.on_switch(host, |_, switch| switch.ovsdb = runs)
    }

    /// Takes a host's ovn-controller the Southbound database, or gives it back.
    pub fn set_ovn(&self, host: &str, connected: bool) -> Result<(), Error> {
        self.on_switch(host, |_, switch| switch.ovn = connected)
    }

    /// Leaves a port behind on a host's switch whose guest and device are gone.
    pub fn leave_port(&self, host: &str) -> Result<(), Error> {
        self.on_switch(host, |state, switch| {
            let orphan = Orphan {
                port: state.fresh(),
                server: state.fresh(),
            };
            switch.orphans.push(orphan);
        })
    }

    /// Leaves a flow behind on a host's switch that matches a port that is gone.
    pub fn leave_flow(&self, host: &str) -> Result<(), Error> {
        self.on_switch(host, |_, switch| {
            let number = switch.plug(crate::switch::INTEGRATION, "");
            switch.plugs.remove("");
            switch.stale.insert(number);
        })
    }

    /// Clears away ports and flows that were left behind on a host's switch.
    pub fn tidy_switch(&self, host: &str) -> Result<(), Error> {
        self.on_switch(host, |_, switch| {
            switch.orphans.clear();
            switch.stale.clear();
        })
    }

    /// How a host's switch is.
    pub fn switch(&self, host: &str) -> Switch {
        self.read(|state| state.switches.get(host).cloned().unwrap_or_default())
    }
}

impl State {
    /// Whether a host's ovn-controller reaches the Southbound database.
    pub(crate) fn ovn_connected(&self, host: &HostName) -> bool {
        let reaches = |host: &super::Host| host.power == Power::On && !host.cut;
        self.hosts.get(host).is_some_and(reaches) && self.switches.get(host).is_none_or(|switch| switch.ovn)
    }
}
