// SPDX-License-Identifier: Apache-2.0
//! Simulated worlds on the far side of real wires: a cloud, its hosts, their guests, and faults on demand.
