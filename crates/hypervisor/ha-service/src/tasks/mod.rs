// SPDX-License-Identifier: Apache-2.0
//! What runs beside the loop: looking at Nova, the cluster and the canaries, telling the engine what
//! was seen, telling people what the engine says, and cleaning up.

pub mod canaries;
pub mod cluster;
pub mod cover;
pub mod facts;
pub mod fences;
pub mod housekeeping;
pub mod notices;
pub mod nova;
pub mod past;
pub mod preflight;
pub mod pulls;
pub mod released;
pub(crate) mod reservations;
mod told;
