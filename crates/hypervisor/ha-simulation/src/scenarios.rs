// SPDX-License-Identifier: Apache-2.0
//! placeholder until scenarios land in this file
use crate::world::{Options, Run};
/// A row of the failure matrix.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// What must come of it.
    pub outcome: &'static str,
}
/// All.
pub fn scenarios() -> Vec<Scenario> { Vec::new() }
/// One.
pub fn run_scenario(_name: &str, _options: Options) -> Option<Run> { None }
