// SPDX-License-Identifier: Apache-2.0
//! Fencing: making certain that a host cannot run its guests any more, and keeping it so.
//!
//! Every device is used through one trait, [`Device`]: whom it belongs to, whether it is on, off,
//! hold, release. A level of fencing is one or more devices that must all succeed, asked side by
//! side. Nothing here decides anything: the engine asks one question at a time, reads twice, and
//! judges. What the crate promises is that an answer is fresh, that it comes within a deadline,
//! that a missing answer is never turned into "off", and that no secret reaches a log.
//!
//! | driver | switches off by | proves |
//! | --- | --- | --- |
//! | `redfish` | the machine's BMC | power |
//! | `metal-operator` | IronCore's metal-operator, with or without the BMC | power |
//! | `exec` | a program: IPMI, fence agents, anything | power |
//! | `ceph-fence` | Ceph, which refuses its addresses; the machine may go on | storage |
//! | `watchdog-lease` | itself, by its watchdog | selffence |
//! | `manual` | a person, who says so | asserted |
//! | `nova-force-down-only` | nothing at all, and somebody accepted that | none |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ceph;
mod ceph_caps;
mod ceph_clients;
mod claims;
mod config;
mod credentials;
mod device;
mod error;
mod exec;
mod fences;
mod level;
mod manual;
mod metal;
mod network;
mod nova_only;
mod program;
mod redfish;
mod vigil;
mod watchdog;

pub use ceph_caps::Locks;
pub use ceph_clients::CephClient;
pub use config::{
    Auth, Config, DeviceConfig, Driver, HostConfig, Machine, MetalMode, Protocol, RequiredGrade,
};
pub use credentials::{Credentials, Secret};
pub use device::{Device, Purpose, Target, Witness};
pub use error::{Error, Result};
pub use fences::Fences;
pub use level::Level;
pub use network::Network;
