// SPDX-License-Identifier: Apache-2.0
//! Open vSwitch and ovn-controller of every simulated host, as far as others see them: a run directory per host with the
//! sockets of the real daemons. `db.sock` speaks OVSDB, `*.ctl` what `ovs-appctl` speaks, `*.mgmt` OpenFlow. The database,
//! the flows and the answers follow from the world and what clients wrote; sockets come and go with their daemons and the
//! power of the host. They are local: a cut network takes only ovn-controller its Southbound database.

mod derive;
mod doors;
mod facts;
mod flows;
mod frame;
mod hub;
mod monitor;
mod openflow;
mod schema;
mod tables;
mod transact;
mod unixctl;
mod value;
mod writes;

pub use doors::Switches;

pub(crate) use derive::settle;
pub(crate) use facts::INTEGRATION;
pub(crate) use flows::FlowWrites;
pub(crate) use writes::Writes;
