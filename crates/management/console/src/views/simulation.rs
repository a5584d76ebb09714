// SPDX-License-Identifier: Apache-2.0
//! A simulated world as it is in truth: what is broken on purpose, and the services of its cloud.

use askama::Template;

use crate::faults::{CloudService, Faults};

/// The page.
#[derive(Debug, Template)]
#[template(path = "simulation.html")]
pub struct Simulation {
    /// Hosts that are not as they should be, each with the truth.
    pub hosts: Vec<(String, String)>,
    /// The services of the cloud.
    pub services: Vec<CloudService>,
    /// Whether the person who looks may break and mend.
    pub may_break: bool,
}

impl Simulation {
    /// The page of a world.
    pub fn of(faults: &dyn Faults, may_break: bool) -> Self {
        let broken = faults.broken().into_iter();
        Self {
            hosts: broken.map(|(host, truth)| (host, truth.words())).collect(),
            services: faults.services(),
            may_break,
        }
    }
}
