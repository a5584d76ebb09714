// SPDX-License-Identifier: Apache-2.0
//! Test support for suites that run against the real lab (`lab/lab`): it starts or joins the lab,
//! hands out hosts and clients, injects faults, and keeps the logs of a test that failed.
//! It promises that a suite which cannot run says so in one line and passes, that suites sharing a
//! lab take turns, and that a lab started here is stopped here.
//!
//! ```no_run
//! use cobaltcore_lab::{Lab, Options};
//!
//! let lab = match Lab::join_or_start(&Options::with_hosts(2)) {
//!     Ok(lab) => lab,
//!     Err(skip) => return Ok(skip.print()),
//! };
//! let cloud = lab.cloud()?;
//! let server = cloud.boot("real-example", lab.host(0)?)?;
//! lab.host(0)?.power_off()?;
//! # Ok::<(), cobaltcore_lab::Error>(())
//! ```

mod cloud;
mod command;
mod describe;
mod error;
mod host;
mod lab;
pub mod private;
mod redfish;
mod skip;
mod wait;
mod web;

pub use cloud::{Cloud, ComputeService, Migration, Server};
pub use describe::{ControlPlane, Description, HostDescription, RedfishAddress};
pub use error::{Error, Result};
pub use host::{Domain, Host};
pub use lab::{Lab, Options};
pub use redfish::Redfish;
pub use skip::Skip;
pub use wait::eventually;
