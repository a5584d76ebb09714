// SPDX-License-Identifier: Apache-2.0
//! The checks before a host is emptied that look beyond the host: whether the other hosts of its
//! zone have room for its servers, and which servers cannot move at all. Pure; what cannot be
//! found out is told and never held against the eviction.

mod capacity;
mod compatibility;

pub use capacity::{Demand, Room, capacity};
pub use compatibility::pinned;
