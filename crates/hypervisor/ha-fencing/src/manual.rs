// SPDX-License-Identifier: Apache-2.0
//! Hosts that only a person can switch off. The device answers nothing and does nothing; the
//! incident waits for `ack-fenced`, and the person's word is the fence.

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::config::Driver;
use crate::device::Device;
use crate::error::{Error, Result};

/// A person.
#[derive(Debug)]
pub(crate) struct Manual {
    pub(crate) host: HostName,
}

impl Manual {
    fn ask<T: Send + 'static>(&self) -> BoxFuture<'static, Result<T>> {
        let host = self.host.clone();
        ready(Err(Error::Person { host })).boxed()
    }
}

impl Device for Manual {
    fn driver(&self) -> Driver {
        Driver::Manual
    }

    fn address(&self) -> String {
        format!("whoever looks after {}", self.host)
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        self.ask()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        self.ask()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        self.ask()
    }

    /// The person who said it is off sees to it that it stays off.
    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }

    /// The person who asked for the release switches it on.
    fn release(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }
}
