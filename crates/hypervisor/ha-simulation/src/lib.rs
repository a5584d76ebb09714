// SPDX-License-Identifier: Apache-2.0
//! The whole HA plane in virtual time, from a seed, with its invariants checked after every step.
