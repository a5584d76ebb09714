// SPDX-License-Identifier: Apache-2.0
//! The hypervisor operator: brings hosts in, drains them, returns them and takes them out.
//!
//! [`run()`] is the one entry, for the binary, `up` and tests alike. Every controller is a folder
//! with a pure `decide` and a thin rest around it; `taint` is the smallest complete one. They
//! share the caches in [`context`], and each writes its own conditions under its own name.

// A test that unwraps says where it failed just as well.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod aggregates;
pub mod certificate;
pub mod clock;
pub mod cloud;
mod cloud_calls;
pub mod config;
pub mod context;
mod covers;
mod error;
pub mod eviction;
mod finalizer;
mod gardener;
pub mod ha;
mod health;
mod known_fields;
mod look;
pub mod maintenance;
mod memory;
pub mod metrics;
pub mod network;
mod node;
pub mod offboarding;
pub mod onboarding;
mod ownership;
pub mod people;
pub mod preflight;
pub mod ready;
mod run;
pub mod seen;
pub mod taint;
pub mod traits;
mod wanted;

pub use clock::Clock;
pub use cloud_calls::{openstack_session, session as session_with};
pub use config::{Config, Flags};
pub use context::{Caches, Context};
pub use error::Error;
pub use known_fields::{KnownFields, OwnKind};
pub use run::{Surroundings, run};
