// SPDX-License-Identifier: Apache-2.0
//! The HA service: collects signs of life of hosts and guests, lets the engine judge, carries out
//! what it decides, and tells people why.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | what the service can be told |
//! | [`sources`] | telemetry besides that of agents |
//! | [`act`] | how the engine's actions meet the world |
//! | [`directory`] | what is known of every host |
//!
//! The judgement is not here: it is `cobaltcore-ha-engine`, pure and simulated. This crate promises
//! it what its contract asks for: inputs as they were seen, records durable before actions, no
//! action after its time.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod act;
mod ages;
pub mod brain;
pub mod chronicle;
pub mod clock;
pub mod commands;
pub mod config;
pub mod deps;
pub mod directory;
pub mod disks;
pub mod error;
pub mod heard;
pub mod http;
pub(crate) mod ingest;
pub mod journal;
mod kept;
pub mod leadership;
pub mod maintenance;
pub mod metrics;
mod mirror;
pub mod neighbours;
pub mod pauses;
pub mod peers;
pub mod probe;
pub(crate) mod reload;
pub mod run;
mod said;
pub mod settings;
pub mod signals;
pub mod sources;
pub mod store;
pub mod switches;
pub mod tasks;
mod wishes;

pub use config::Config;
pub use error::Error;
pub use run::{Service, Surroundings, run};
