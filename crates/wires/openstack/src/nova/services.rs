// SPDX-License-Identifier: Apache-2.0
//! Compute services: whether a host is up, enabled, forced down.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{ServiceId, states};
use crate::session::Removal;
use crate::when;

static LIST: Call = Call::get(Service::Nova, "list compute services", "/os-services");
static UPDATE: Call = Call::put(
    Service::Nova,
    "update a compute service",
    "/os-services/{service}",
);
static DELETE: Call = Call::delete(
    Service::Nova,
    "delete a compute service",
    "/os-services/{service}",
);

states! {
    /// Whether a service gives signs of life.
    ServiceState {
        /// It does.
        Up = "up",
        /// It does not, or it is forced down.
        Down = "down",
        /// Nova cannot tell: the service's cell does not answer. That is no sign of death.
        Unknown = "UNKNOWN",
    }
}

states! {
    /// Whether the scheduler uses a service.
    ServiceStatus {
        /// It does.
        Enabled = "enabled",
        /// It does not.
        Disabled = "disabled",
        /// Nova cannot tell: the service's cell does not answer.
        Unknown = "UNKNOWN",
    }
}

/// A nova-compute service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ComputeService {
    /// Its id; empty while its cell does not answer, and then good for no call.
    #[serde(default = "ComputeService::no_id")]
    pub id: ServiceId,
    /// The host as Nova calls it.
    pub host: String,
    /// `nova-compute`.
    pub binary: String,
    /// Its availability zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// Whether it gives signs of life.
    #[serde(default = "ComputeService::no_state")]
    pub state: ServiceState,
    /// Whether the scheduler uses it.
    pub status: ServiceStatus,
    /// Why it is disabled.
    #[serde(default)]
    pub disabled_reason: Option<String>,
    /// Whether somebody declared it dead.
    #[serde(default)]
    pub forced_down: bool,
    /// Its last sign of life.
    #[serde(default, deserialize_with = "when::optional")]
    pub updated_at: Option<Timestamp>,
}

impl ComputeService {
    fn no_id() -> ServiceId {
        ServiceId::from("")
    }

    fn no_state() -> ServiceState {
        ServiceState::Unknown
    }
}

/// What to change about a service. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServiceUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forced_down: Option<bool>,
}

impl ServiceUpdate {
    /// The scheduler shall use it.
    pub fn enable() -> Self {
        Self {
            status: Some("enabled"),
            ..Self::default()
        }
    }

    /// The scheduler shall not use it, and this is why.
    pub fn disable(reason: impl Into<String>) -> Self {
        Self {
            status: Some("disabled"),
            disabled_reason: Some(reason.into()),
            ..Self::default()
        }
    }

    /// Only the mark that somebody declared it dead, or took that back.
    pub fn mark_forced_down(forced_down: bool) -> Self {
        Self::default().forced_down(forced_down)
    }

    /// Also sets or clears the mark that somebody declared it dead.
    pub fn forced_down(mut self, forced_down: bool) -> Self {
        self.forced_down = Some(forced_down);
        self
    }
}

impl Nova {
    /// All nova-compute services. Those of a cell that does not answer are in there too, with
    /// [`ServiceState::Unknown`] and nothing but their host.
    pub async fn compute_services(&self) -> Result<Vec<ComputeService>> {
        let request = Request::new(&LIST, &[]).query("binary", "nova-compute");
        self.session.member(request, "services").await
    }

    /// The nova-compute service of a host; nothing if Nova does not know the host.
    pub async fn compute_service(&self, host: &str) -> Result<Option<ComputeService>> {
        let request = Request::new(&LIST, &[])
            .about(format!("host {host}"))
            .query("binary", "nova-compute")
            .query("host", host);
        let services: Vec<ComputeService> = self.session.member(request, "services").await?;
        // never believe a filter where the wrong host would be hit
        Ok(services.into_iter().find(|service| service.host == host))
    }

    /// Changes a service and returns it as it is now.
    pub async fn update_service(&self, id: &ServiceId, update: &ServiceUpdate) -> Result<ComputeService> {
        let request = Request::new(&UPDATE, &[id.as_str()]).json(update);
        self.session.member(request, "service").await
    }

    /// Deletes a service and, with it, its resource provider. Nova refuses while the host has servers.
    pub async fn delete_service(&self, id: &ServiceId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }
}
