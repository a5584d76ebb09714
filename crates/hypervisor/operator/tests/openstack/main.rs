// SPDX-License-Identifier: Apache-2.0
//! The operator between a real Kubernetes API and a simulated cloud, both over the wire: hosts
//! come in, are drained, come back and leave.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

#[path = "../world/definitions.rs"]
mod definitions;
mod evictions;
mod killed;
mod lifecycle;
mod nodes;
mod scene;
mod swap;
#[path = "../world/mod.rs"]
mod world;
