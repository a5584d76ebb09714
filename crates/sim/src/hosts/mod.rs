// SPDX-License-Identifier: Apache-2.0
//! The libvirt daemons of the simulated hosts.

pub(crate) mod stats;
