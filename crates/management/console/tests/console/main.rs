// SPDX-License-Identifier: Apache-2.0
//! The console as people meet it: over HTTP on an embedded Kubernetes API with RBAC in force, and
//! in a real Chromium. The browser tests say SKIPPED where Chromium or its driver is missing.
#![allow(clippy::unwrap_used)]

mod browser;
mod ha;
mod incidents;
mod pages;
mod webdriver;
mod world;
