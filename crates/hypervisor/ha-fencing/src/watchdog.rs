// SPDX-License-Identifier: Apache-2.0
//! The host's own watchdog as a fence: an agent that loses the service stops feeding it, and after
//! its lease and the watchdog's timeout the host has reset itself. Nothing can be ordered here. Off
//! means that the time has passed in silence, as the monitors see it; the first word of the host
//! takes that back.

use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::config::Driver;
use crate::device::{Device, Target};
use crate::error::{Error, Result};

/// A watchdog that nobody can reach.
#[derive(Debug)]
pub(crate) struct WatchdogLease {
    target: Target,
}

impl WatchdogLease {
    pub(crate) fn new(target: &Target) -> Self {
        Self {
            target: target.clone(),
        }
    }

    fn verdict(&self) -> Result<Power> {
        let Some(witness) = self.target.witness else {
            return Err(Error::Unknown {
                device: self.address(),
                detail: "nobody says when the host was last heard".to_owned(),
            });
        };
        Ok(if witness.reset_itself {
            Power::Off
        } else {
            Power::On
        })
    }
}

impl Device for WatchdogLease {
    fn driver(&self) -> Driver {
        Driver::WatchdogLease
    }

    fn address(&self) -> String {
        format!("the watchdog of {}", self.target.host)
    }

    /// A watchdog is in the machine it resets.
    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        ready(Ok(self.target.machine.clone())).boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        ready(self.verdict()).boxed()
    }

    /// It fires by itself, or not at all.
    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
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
    use std::time::Duration;

    use super::*;
    use crate::device::Witness;
    use cobaltcore_api::names::HostName;

    #[test]
    fn only_a_watchdog_that_must_have_fired_is_off() {
        let verdict = |reset_itself: Option<bool>| {
            let mut target = Target::new(HostName::new("n1").unwrap());
            target.witness = reset_itself.map(|reset_itself| Witness {
                dead_groups: 6,
                probes_dead: true,
                storage_alive: false,
                lasting: Duration::from_secs(3600),
                reset_itself,
            });
            WatchdogLease::new(&target).verdict().ok()
        };
        assert_eq!(verdict(Some(true)), Some(Power::Off));
        assert_eq!(verdict(Some(false)), Some(Power::On), "however dead it seems");
        assert_eq!(verdict(None), None, "not knowing is not off");
    }
}
