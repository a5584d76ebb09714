// SPDX-License-Identifier: Apache-2.0
//! The HA agent: tells the HA service what happens on one hypervisor, loses nothing on the way, and makes small local
//! repairs if it may. It has no access to Kubernetes and opens no port but the one for metrics and health.
//!
//! | module | holds |
//! | --- | --- |
//! | [`args`], [`config`], [`run`] | how the agent is told, followed and started |
//! | [`libvirt`] | listening, and deriving what must have happened after a gap |
//! | [`draft`], [`intake`], [`spool`] | from a notice to a durable, numbered record |
//! | [`service`] | records, signs of life and commands, per endpoint |
//! | [`reaction`] | local repairs and what forbids them |
//! | [`fence`] | the watchdog |
//! | [`board`] | what the parts know of each other |
//! | [`metrics`] | what it counts |
//!
//! What is decided is pure and in modules named `decide`, `policy` or `known`; the rest carries it out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod args;
pub mod board;
mod clock;
pub mod config;
pub mod draft;
mod error;
pub mod fence;
pub mod intake;
mod kept;
pub mod libvirt;
mod logind;
mod machine;
pub mod metrics;
pub mod reaction;
mod reload;
pub mod run;
pub mod service;
pub mod spool;

pub use args::{Args, Start};
pub use error::Error;
pub use run::run;
