// SPDX-License-Identifier: Apache-2.0
//! The unsafe choice: nothing is switched off, Nova is merely told that the host is down. Whoever
//! configures it has accepted in writing that a guest may run twice. All the device does is to
//! insist on overwhelming evidence that has lasted for minutes, and to take its word back as soon
//! as anything shows life.

use std::time::Duration;

use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::config::{DeviceConfig, Driver};
use crate::device::{Device, Target, Witness};
use crate::error::{Error, Result};

/// How long everything must have been dead, at least.
pub(crate) const DWELL: Duration = Duration::from_secs(300);
/// How many independent groups must say so.
const GROUPS: usize = 3;

/// No device.
#[derive(Debug)]
pub(crate) struct NovaOnly {
    target: Target,
    dwell: Duration,
}

impl NovaOnly {
    pub(crate) fn new(config: &DeviceConfig, target: &Target) -> Self {
        Self {
            target: target.clone(),
            dwell: config.dwell.map_or(DWELL, |dwell| dwell.0),
        }
    }

    fn verdict(&self) -> Result<Power> {
        let Some(witness) = self.target.witness else {
            return Err(Error::Unknown {
                device: self.address(),
                detail: "nobody says what the monitors see of the host".to_owned(),
            });
        };
        let Witness {
            dead_groups,
            probes_dead,
            storage_alive,
            lasting,
            reset_itself: _,
        } = witness;
        let dead = dead_groups >= GROUPS && probes_dead && !storage_alive && lasting >= self.dwell;
        Ok(if dead { Power::Off } else { Power::On })
    }
}

impl Device for NovaOnly {
    fn driver(&self) -> Driver {
        Driver::NovaForceDownOnly
    }

    fn address(&self) -> String {
        format!("nothing at all for {}", self.target.host)
    }

    /// There is no device that could be another machine's.
    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        ready(Ok(self.target.machine.clone())).boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        ready(self.verdict()).boxed()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        tracing::warn!(host = %self.target.host, "nothing switches this host off; its guests may end up running twice");
        ready(Ok(())).boxed()
    }

    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }

    fn release(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_api::names::HostName;

    #[test]
    fn it_takes_overwhelming_and_lasting_evidence() {
        let sure = Witness {
            dead_groups: 3,
            probes_dead: true,
            storage_alive: false,
            lasting: Duration::from_secs(300),
            reset_itself: false,
        };
        let verdict = |witness| {
            let mut target = Target::new(HostName::new("n1").unwrap());
            target.witness = witness;
            NovaOnly::new(&DeviceConfig::new(Driver::NovaForceDownOnly), &target)
                .verdict()
                .ok()
        };
        assert_eq!(verdict(Some(sure)), Some(Power::Off));
        assert_eq!(verdict(None), None, "not knowing is not off");
        for doubt in [
            Witness {
                dead_groups: 2,
                ..sure
            },
            Witness {
                probes_dead: false,
                ..sure
            },
            Witness {
                storage_alive: true,
                ..sure
            },
            Witness {
                lasting: Duration::from_secs(299),
                ..sure
            },
        ] {
            assert_eq!(verdict(Some(doubt)), Some(Power::On), "{doubt:?}");
        }
    }
}
