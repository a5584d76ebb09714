// SPDX-License-Identifier: Apache-2.0
//! What every role needs to be a good citizen: start-up and shutdown, config, telemetry,
//! health, leader election, controllers, status writing, events, retry, TLS.
//!
//! The kit knows Kubernetes and Tokio but nothing of the product. Each module has one reason
//! to exist and can be used alone; none of them keeps global state besides the logger and the
//! TLS provider, which [`startup`] installs once.

// A test that unwraps says where it failed just as well.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod auth;
pub mod config;
pub mod controller;
mod error;
pub mod events;
pub mod health;
pub mod http;
pub mod leader;
pub mod program;
pub mod retry;
pub mod shutdown;
pub mod startup;
pub mod status;
pub mod supervisor;
pub mod telemetry;
pub mod tls;
pub mod watched;

pub use error::{BoxError, Error};
pub use tokio_util::sync::CancellationToken;
