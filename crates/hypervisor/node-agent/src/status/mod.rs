// SPDX-License-Identifier: Apache-2.0
//! The status of the own Hypervisor: what it should say ([`decide`], pure) and how it gets there ([`publish`]). The
//! agent owns its fields under one field manager and leaves everything else to others.

mod decide;
mod publish;
mod takeover;

pub use decide::{Decision, Standing, decide};
pub(crate) use publish::publish;
