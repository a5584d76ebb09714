// SPDX-License-Identifier: Apache-2.0
//! The system side of the agent over real wires: a `dbus-daemon` of one's own with systemd, logind and hostnamed on
//! its far side, and an embedded Kubernetes API.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "system/access.rs"]
mod access;
#[path = "system/bus.rs"]
mod bus;
#[path = "system/certificates.rs"]
mod certificates;
mod rules;
#[path = "system/scene.rs"]
mod scene;
#[path = "system/services.rs"]
mod services;
#[path = "system/shutdowns.rs"]
mod shutdowns;
mod told;
#[path = "system/units.rs"]
mod units;
#[path = "system/updates.rs"]
mod updates;
