// SPDX-License-Identifier: Apache-2.0
//! A watchdog that runs, as the next start of the agent reads it. Whether a host is cut off is told by its neighbours while
//! the service is away, and the service alone names those: an agent that begins in an outage and did not know them could not
//! feed what the one before it left running, and a rollout would reset one healthy host after the other.

use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_ha_wire::BootId;
use cobaltcore_kit::config::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::config;

/// A watchdog that was left running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    boot: String,
    device: PathBuf,
    timeout: Duration,
    lease_ttl: Duration,
    /// Whom to ask before this host is taken out.
    pub(super) neighbours: Vec<String>,
    /// This host was taken out, and its guests stand still: it must end.
    #[serde(default)]
    pub(super) fenced: bool,
}

impl Left {
    /// One that runs with these settings in this boot.
    pub(super) fn new(
        boot: &BootId,
        settings: &config::SelfFence,
        neighbours: &[String],
        fenced: bool,
    ) -> Self {
        Self {
            boot: boot.0.clone(),
            device: settings.device.clone(),
            timeout: settings.timeout.0,
            lease_ttl: settings.lease_ttl.0,
            neighbours: neighbours.to_vec(),
            fenced,
        }
    }

    /// Whether it can still run: a boot ends every watchdog.
    pub(super) fn may_run(&self, boot: &BootId) -> bool {
        self.boot == boot.0
    }

    /// Whether this boot outlived it: an agent that began so long ago and did not feed it still runs.
    pub(super) fn is_over(&self, unfed: Duration) -> bool {
        !self.fenced && unfed > self.timeout
    }

    /// The settings that the service was told; the pace is nobody's business but ours.
    pub(super) fn settings(&self, now: &config::SelfFence) -> config::SelfFence {
        config::SelfFence {
            enabled: true,
            device: self.device.clone(),
            timeout: HumanDuration(self.timeout),
            lease_ttl: HumanDuration(self.lease_ttl),
            feed_interval: now.feed_interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_that_this_boot_outlived_does_not_run_but_what_was_decided_stays() {
        let boot = BootId("boot".to_owned());
        let settings = config::SelfFence::default();
        let left = |fenced: bool| Left::new(&boot, &settings, &[], fenced);
        let timeout = settings.timeout.0;
        for (fenced, unfed, wanted) in [
            (false, timeout, false),
            (false, timeout + Duration::from_secs(1), true),
            (true, timeout * 10, false),
        ] {
            assert_eq!(left(fenced).is_over(unfed), wanted, "{fenced} {unfed:?}");
        }
        assert!(left(false).may_run(&boot) && !left(false).may_run(&BootId("next".to_owned())));
    }
}
