// SPDX-License-Identifier: Apache-2.0
//! The daemon's side of the protocol, for simulated hosts.
