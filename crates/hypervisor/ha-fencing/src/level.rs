// SPDX-License-Identifier: Apache-2.0
//! One level of fencing: devices that must all succeed, asked side by side. A host with two
//! supplies is off when both outlets are; it is on when one of them is, whatever the other says.

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Grade, Identity, Power};
use futures::future::{BoxFuture, join_all};

use crate::device::Device;
use crate::error::{Error, Result};

/// The devices of one level for one host.
#[derive(Debug)]
pub struct Level {
    host: HostName,
    devices: Vec<Box<dyn Device>>,
}

impl Level {
    pub(crate) fn new(host: HostName, devices: Vec<Box<dyn Device>>) -> Self {
        Self { host, devices }
    }

    /// The host it is for.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The kinds of its devices, for people: `redfish+exec`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self
            .devices
            .iter()
            .map(|device| device.driver().as_str())
            .collect();
        names.join("+")
    }

    /// What it proves: as much as the weakest of its devices.
    pub fn grade(&self) -> Grade {
        let grades = self.devices.iter().map(|device| device.driver().grade());
        grades.min().unwrap_or(Grade::None)
    }

    /// The one machine all devices belong to. Devices that contradict each other, and devices that
    /// answer without knowing, give an identity that matches nothing.
    pub async fn identify(&self) -> Result<Identity> {
        let answers = self.ask(|device| device.identify()).await?;
        let mut merged: Option<Identity> = None;
        for answer in answers {
            let known = answer.system_uuid.is_some() || answer.serial.is_some();
            merged = match merged {
                _ if !known => return Ok(Identity::default()),
                None => Some(answer),
                Some(before) if before.matches(&answer) => Some(Identity {
                    system_uuid: before.system_uuid.or(answer.system_uuid),
                    serial: before.serial.or(answer.serial),
                }),
                Some(before) => {
                    tracing::error!(host = %self.host, ?before, ?answer, "two fencing devices of one host belong to different machines");
                    return Ok(Identity::default());
                }
            };
        }
        Ok(merged.unwrap_or_default())
    }

    /// Off if every device says so, on if one does.
    pub async fn power(&self) -> Result<Power> {
        let answers = join_all(self.devices.iter().map(|device| device.power())).await;
        if answers.iter().any(|answer| matches!(answer, Ok(Power::On))) {
            return Ok(Power::On);
        }
        answers
            .into_iter()
            .collect::<Result<Vec<Power>>>()
            .map(|all| if all.is_empty() { Power::On } else { Power::Off })
    }

    /// Orders every device off; the first failure is the answer, after all were tried.
    pub async fn power_off(&self) -> Result<()> {
        self.ask(|device| device.power_off()).await.map(drop)
    }

    /// Lets every device keep the host off.
    pub async fn hold(&self) -> Result<()> {
        self.ask(|device| device.hold()).await.map(drop)
    }

    /// Whether every device still keeps the host off.
    pub async fn holds(&self) -> Result<bool> {
        let answers = join_all(self.devices.iter().map(|device| device.holds())).await;
        // One that let go is enough, whatever the others could not say.
        if answers.iter().any(|answer| matches!(answer, Ok(false))) {
            return Ok(false);
        }
        answers
            .into_iter()
            .collect::<Result<Vec<bool>>>()
            .map(|all| !all.is_empty())
    }

    /// Has every device let go, and switch on. Done when none of them keeps the host off any more: one that only switches may
    /// be dead, and the host on all the same. Gives back why it is not known to be switched on, if that is so.
    pub async fn release(&self) -> Result<Option<Error>> {
        let released = join_all(self.devices.iter().map(|device| device.release())).await;
        let mut unsure = None;
        for (device, released) in self.devices.iter().zip(released) {
            match released {
                Err(error) if !device.driver().keeps_off() => unsure = Some(error),
                released => released?,
            }
        }
        Ok(unsure)
    }

    async fn ask<'a, T>(
        &'a self,
        question: impl Fn(&'a dyn Device) -> BoxFuture<'a, Result<T>>,
    ) -> Result<Vec<T>> {
        if self.devices.is_empty() {
            return Err(Error::NoLevel {
                host: self.host.clone(),
                level: 0,
            });
        }
        let asked = self.devices.iter().map(|device| question(device.as_ref()));
        join_all(asked).await.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Driver;
    use futures::FutureExt as _;
    use futures::future::ready;

    /// A device that lets go of a host, or cannot.
    #[derive(Debug)]
    struct Works(Driver, bool);

    impl Works {
        fn done<T: Send + 'static>(&self, done: T) -> BoxFuture<'static, Result<T>> {
            let device = self.address();
            let detail = "no answer".to_owned();
            ready(if self.1 {
                Ok(done)
            } else {
                Err(Error::Unknown { device, detail })
            })
            .boxed()
        }
    }

    impl Device for Works {
        fn driver(&self) -> Driver {
            self.0
        }

        fn address(&self) -> String {
            self.0.as_str().to_owned()
        }

        fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
            self.done(Identity::default())
        }

        fn power(&self) -> BoxFuture<'_, Result<Power>> {
            self.done(Power::On)
        }

        fn power_off(&self) -> BoxFuture<'_, Result<()>> {
            self.done(())
        }

        fn hold(&self) -> BoxFuture<'_, Result<()>> {
            self.done(())
        }

        fn release(&self) -> BoxFuture<'_, Result<()>> {
            self.done(())
        }
    }

    #[tokio::test]
    async fn a_host_is_let_go_of_when_nothing_keeps_it_off_whether_or_not_somebody_could_switch_it_on() {
        use Driver::{CephFence, Exec, MetalOperator, Redfish};
        for (devices, let_go) in [
            (vec![(Redfish, true)], true),
            (vec![(Redfish, false)], true),
            (vec![(Exec, false), (Redfish, false)], true),
            (vec![(MetalOperator, true), (Redfish, false)], true),
            (vec![(MetalOperator, false), (Redfish, true)], false),
            (vec![(Redfish, true), (CephFence, false)], false),
        ] {
            let works =
                |(driver, works): &(Driver, bool)| Box::new(Works(*driver, *works)) as Box<dyn Device>;
            let level = Level::new(HostName::new("n1").unwrap(), devices.iter().map(works).collect());
            assert_eq!(level.release().await.is_ok(), let_go, "{devices:?}");
        }
    }
}
