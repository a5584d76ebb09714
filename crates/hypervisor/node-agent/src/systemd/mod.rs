// SPDX-License-Identifier: Apache-2.0
//! The host's systemd over D-Bus: one connection that is kept alive, calls with deadlines, and the watched units as
//! conditions. States arrive by signal. While the bus is away units are unknown, never stopped: a missing answer is
//! not a negative one.

mod bus;
mod error;
pub(crate) mod hostnamed;
mod manager;
mod unit;
mod units;

pub use bus::{CALL_TIME, Link, SYSTEM_BUS, keep, settled, tried};
pub use error::BusError;
pub(crate) use manager::owner_changes;
pub use manager::{Job, JobResult, Manager, UnitDetails};
pub use unit::{UnitState, condition, is_stopped};
pub use units::run;
