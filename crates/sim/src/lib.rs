// SPDX-License-Identifier: Apache-2.0
//! Simulated worlds on the far side of real wires: a cloud, its hosts, their guests, and faults on demand.
//!
//! | module | holds |
//! | --- | --- |
//! | [`world`] | state and how it changes with time: hosts, guests, migrations, what Nova and Placement record, faults |
//! | [`cloud`] | Keystone, Nova, Placement, Glance, Neutron and Cinder over HTTP, for our roles and the `openstack` client |
//! | [`doors`] | an address and an open port per host, for those who want to know whether it lives |
//! | [`facts`] | the files an agent on a host reads about its machine |
//! | [`hosts`] | one libvirt daemon per host, for the agents and `virsh` |
//! | [`switch`] | Open vSwitch and ovn-controller of each host, for the agents, `ovs-vsctl`, `ovs-appctl` and `ovs-ofctl` |
//! | [`bmc`] | one Redfish BMC per host, for fencing |
//! | [`system`] | systemd, logind and hostnamed of a host, on a message bus |
//!
//! A role under test talks to these over the same protocols as in production and cannot tell the difference. A world is
//! seeded: with a manual clock, the same calls in the same order give the same answers.

pub mod bmc;
pub mod cloud;
pub mod doors;
mod error;
pub mod facts;
pub mod hosts;
pub mod switch;
pub mod system;
pub mod world;

pub use bmc::Bmcs;
pub use cloud::Cloud;
pub use doors::Doors;
pub use error::Error;
pub use hosts::Hosts;
pub use switch::Switches;
pub use system::System;
pub use world::World;
