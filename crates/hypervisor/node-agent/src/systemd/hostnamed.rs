// SPDX-License-Identifier: Apache-2.0
//! The one call the agent makes to systemd-hostnamed.

use zbus::proxy::CacheProperties;
use zbus_systemd::hostname1::HostnamedProxy;

use super::error::BusError;

/// The description of the host, a JSON text.
pub(crate) async fn describe(connection: &zbus::Connection) -> Result<String, BusError> {
    let what = "asking hostnamed to describe the host";
    let failed = |error| BusError::from_call(what, error);
    let proxy = HostnamedProxy::builder(connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(failed)?;
    proxy.describe().await.map_err(failed)
}
