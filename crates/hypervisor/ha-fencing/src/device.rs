// SPDX-License-Identifier: Apache-2.0
//! The one trait behind which every fencing device stands, and what is known of the host it is
//! meant for.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::config::Driver;
use crate::error::Result;

/// A device that can switch one host off and keep it off.
///
/// Every call is one question or one order with a deadline of its own; none is repeated inside,
/// and each may be repeated by the caller. [`Device::power_off`] returns when the order was taken,
/// not when the host is off: that is read with [`Device::power`], and believed when it was read
/// twice.
pub trait Device: Send + Sync + Debug {
    /// The kind of device.
    fn driver(&self) -> Driver;

    /// Where it is, without secrets.
    fn address(&self) -> String;

    /// Everything that is switched by it. Two hosts that share any of it can both not be fenced.
    fn switches(&self) -> Vec<String> {
        vec![self.address()]
    }

    /// Whom it belongs to, as far as it can tell. Empty when it answers without knowing.
    fn identify(&self) -> BoxFuture<'_, Result<Identity>>;

    /// The power, read now. On its way to either state is on.
    fn power(&self) -> BoxFuture<'_, Result<Power>>;

    /// Orders it off, at once and without asking the guest.
    fn power_off(&self) -> BoxFuture<'_, Result<()>>;

    /// Sees to it that nobody switches it on again, as far as the device can.
    fn hold(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether it still does. A device that nobody else can command holds as long as it reads off.
    fn holds(&self) -> BoxFuture<'_, Result<bool>> {
        ready(Ok(true)).boxed()
    }

    /// Ends the hold and switches it on.
    fn release(&self) -> BoxFuture<'_, Result<()>>;
}

/// A host that is to be fenced, as its caller knows it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub host: HostName,
    /// Labels of its Node or Hypervisor, for devices that are found by one.
    pub labels: BTreeMap<String, String>,
    /// Its address in the management network, if known.
    pub internal_ip: Option<String>,
    /// The machine as its agent last reported it.
    pub machine: Identity,
    /// What the monitors see of it, for those that have no device to ask.
    pub witness: Option<Witness>,
    /// What its devices are asked for.
    pub purpose: Purpose,
}

impl Target {
    /// A host of which nothing but the name is known.
    pub fn new(host: HostName) -> Self {
        Self {
            host,
            labels: BTreeMap::new(),
            internal_ip: None,
            machine: Identity::default(),
            witness: None,
            purpose: Purpose::Incident,
        }
    }
}

/// What devices are asked for. Whoever asks for an incident waits for nobody who merely checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An incident.
    Incident,
    /// To know beforehand whether they work.
    Check,
}

/// What the monitors see of a host that nothing can switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// How many independent groups call it dead.
    pub dead_groups: usize,
    /// Whether probes from here and probes by its neighbours are among them.
    pub probes_dead: bool,
    /// Whether its storage sessions are alive.
    pub storage_alive: bool,
    /// For how long all of this has been so without a break.
    pub lasting: Duration,
    /// Whether its watchdog was armed and must have reset it by now.
    pub reset_itself: bool,
}
