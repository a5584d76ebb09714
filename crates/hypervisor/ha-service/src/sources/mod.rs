// SPDX-License-Identifier: Apache-2.0
//! Telemetry besides that of agents: metrics that are pulled, verdicts that are pushed, and the
//! rules that turn the one into the other.

pub mod exposition;
pub mod expr;
pub mod pull;
