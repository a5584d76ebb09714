// SPDX-License-Identifier: Apache-2.0
//! What the operator does with Kubernetes alone, over the real API: nodes become hypervisors,
//! nodes that leave are let go in the right order, and nothing happens without reason.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod alerts;
mod cover;
#[path = "../world/definitions.rs"]
mod definitions;
mod leaving;
mod network;
mod nodes;
mod people;
mod rights;
mod taint;
#[path = "../world/mod.rs"]
mod world;
