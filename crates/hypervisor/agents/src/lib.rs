// SPDX-License-Identifier: Apache-2.0
//! The roles of a hypervisor as commands: their flags, their runtime, their end. `cobaltcore` offers them beside all
//! others, `cobaltcore-agent` alone; what the roles do is in their own crates.

pub mod ha_agent;
pub mod node_agent;
