// SPDX-License-Identifier: Apache-2.0
//! The whole HA plane in virtual time, from a seed: agents, replicas of the service with their
//! leases and journal, Nova, BMCs, networks and clocks. The engine is the one production runs;
//! everything around it is a model that knows the truth, and checks after every step that no
//! promise was broken.
//!
//! A run is defined by its seed and scenario and repeats exactly. A failing seed is printed with
//! what was violated; `--seed N --trace` tells its story.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agenda;
mod agents;
mod batch;
pub mod bench;
mod boards;
mod cloud;
mod cover;
mod day;
mod exec;
mod faults;
mod hosts;
mod invariants;
mod journal;
mod judge;
mod network;
mod random;
mod replica;
mod scenarios;
mod servers;
mod smallest;
mod streams;
mod world;

pub use batch::{Batch, BatchReport, Failure, run_batch};
pub use day::{Day, run_day};
pub use invariants::{Invariant, Violation};
pub use scenarios::{Scenario, acceptance, run_scenario, scenarios};
pub use smallest::{Smallest, smallest};
pub use streams::Mistake;
pub use world::{Act, Crash, Options, Run, run_seed};
