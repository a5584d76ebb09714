// SPDX-License-Identifier: Apache-2.0
//! What is looked at before it is needed, once a day.

use std::time::Duration;

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::minutes;

pub use cobaltcore_ha_fencing::CephClient;

/// What is looked at before it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preflight {
    /// How often.
    pub every: HumanDuration,
    /// Clients of Ceph that must be able to break the locks of a dead host.
    pub ceph: Vec<CephClient>,
}

impl Default for Preflight {
    fn default() -> Self {
        Self {
            every: minutes(24 * 60),
            ceph: Vec::new(),
        }
    }
}

impl Preflight {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.every.0 < Duration::from_secs(60) {
            mistakes.add("preflight.every", "must be at least 1m");
        }
        for (n, client) in self.ceph.iter().enumerate() {
            for (key, message) in client.mistakes() {
                mistakes.add(&format!("preflight.ceph.{n}.{key}"), message);
            }
            let others = self.ceph.iter().take(n);
            if others.map(CephClient::name).any(|name| name == client.name()) {
                let told = format!("{} is asked about twice", client.name());
                mistakes.add(&format!("preflight.ceph.{n}"), told);
            }
        }
    }
}
