// SPDX-License-Identifier: Apache-2.0
//! Incidents for the person on call: what is going on, why, what happens next, and the decisions
//! that only a person can take. It speaks to the HA service over its API and holds no judgement of
//! its own: what is allowed is decided there, and a refusal is told in one sentence with what to do
//! instead.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod desk;
mod timeline;
mod view;

pub use cobaltcore_ha_wire::rest::{BulkFilter, BulkRequest, IncidentDetail};
pub use desk::{Desk, Refused, Service};
pub use timeline::words;
pub use view::{Width, bulk, detail, explained, pauses, table};
