// SPDX-License-Identifier: Apache-2.0
//! The node agent: reports one hypervisor to Kubernetes and keeps it in order. It watches libvirt and the host, writes
//! the machine half of the Hypervisor status and one Migration object per moving server, and never changes a guest.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`], [`run`] | how the agent is told and started |
//! | [`board`], [`context`] | what it knows, and what every part is given |
//! | [`libvirt`], [`xml`] | observing libvirt, reading its documents |
//! | [`capacity`], [`status`] | the judgement: what the host has, what guests take, what the status says |
//! | [`migration`] | following migrations from both sides |
//! | [`host`], [`systemd`] | what the host is, and its units |
//! | [`update`], [`inhibitor`], [`certificate`] | installing operating systems, holding shutdowns back, TLS files |
//! | [`metrics`] | what it counts |
//!
//! A part is an `async fn(Context, CancellationToken)`; it puts what it learns on the [`board::Board`] and reads the
//! own Hypervisor from [`context::Context::hypervisor`]. [`run::run`] starts all of them. When all stop, the first
//! to end closes the channels that others read, so a part looks at its token before it looks at anything else.

// A test that unwraps says where it failed just as well.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod board;
pub mod capacity;
pub mod certificate;
pub mod config;
pub mod context;
mod error;
pub mod host;
mod hypervisor;
pub mod inhibitor;
pub mod libvirt;
pub mod metrics;
pub mod migration;
pub mod run;
pub mod status;
pub mod systemd;
pub mod update;
pub mod xml;

pub use config::{Args, Config};
pub use error::Error;
pub use run::run;
