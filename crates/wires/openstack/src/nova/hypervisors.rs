// SPDX-License-Identifier: Apache-2.0
//! Hypervisors as Nova sees them, at 2.87 at most: from 2.88 on Nova asks every compute host for its
//! uptime while the caller waits, and no longer tells what is in use.

use serde::Deserialize;

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::{Error, Result};
use crate::ids::{HypervisorId, ServerId, ServiceId};
use crate::pages::marked_by_id;
use crate::version::Microversion;

const OLDEST: Microversion = Microversion::new(2, 53);
const NEWEST: Microversion = Microversion::new(2, 87);

static LIST: Call =
    Call::get(Service::Nova, "list hypervisors", "/os-hypervisors/detail").versions(OLDEST, NEWEST);
static SHOW: Call =
    Call::get(Service::Nova, "show a hypervisor", "/os-hypervisors/{hypervisor}").versions(OLDEST, NEWEST);
static USAGE: Call =
    Call::get(Service::Nova, "list hypervisor usage", "/os-hypervisors/detail").versions(OLDEST, NEWEST);

/// A hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hypervisor {
    /// Its id, which is also that of its resource provider.
    pub id: HypervisorId,
    /// Its name as libvirt reports it.
    pub hypervisor_hostname: String,
    /// `up` or `down`.
    #[serde(default)]
    pub state: Option<String>,
    /// `enabled` or `disabled`.
    #[serde(default)]
    pub status: Option<String>,
    /// `QEMU`.
    #[serde(default)]
    pub hypervisor_type: Option<String>,
    /// The version of it, as one number.
    #[serde(default)]
    pub hypervisor_version: Option<u64>,
    /// Its address.
    #[serde(default)]
    pub host_ip: Option<String>,
    /// The service that runs it.
    pub service: HypervisorService,
    /// The servers on it; empty unless they were asked for.
    #[serde(default)]
    pub servers: Vec<HypervisorServer>,
}

/// The service of a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HypervisorService {
    /// Its id.
    pub id: ServiceId,
    /// Its host as Nova calls it: what servers, aggregates and migrations name.
    pub host: String,
    /// Why it is disabled.
    #[serde(default)]
    pub disabled_reason: Option<String>,
}

/// A server on a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HypervisorServer {
    /// Its id.
    #[serde(rename = "uuid")]
    pub id: ServerId,
    /// The name of its libvirt domain.
    #[serde(default)]
    pub name: String,
}

/// What a hypervisor has and uses, up to microversion 2.87.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HypervisorUsage {
    /// The hypervisor.
    pub id: HypervisorId,
    /// Its name.
    pub hypervisor_hostname: String,
    /// Virtual CPUs it has.
    pub vcpus: u64,
    /// Virtual CPUs in use.
    pub vcpus_used: u64,
    /// Memory it has, in MiB.
    pub memory_mb: u64,
    /// Memory in use, in MiB.
    pub memory_mb_used: u64,
    /// Disk it has, in GiB.
    pub local_gb: u64,
    /// Disk in use, in GiB.
    pub local_gb_used: u64,
    /// Servers that run.
    pub running_vms: u64,
}

marked_by_id!(Hypervisor);

marked_by_id!(HypervisorUsage);

impl Nova {
    /// All hypervisors, without their servers.
    pub async fn hypervisors(&self) -> Result<Vec<Hypervisor>> {
        let request = Request::new(&LIST, &[]);
        self.session.list(request, "hypervisors").await
    }

    /// The hypervisors whose name is this one, with their servers. Nova searches for parts of names;
    /// here only whole names count, so that `node1` never means `node10`.
    pub async fn hypervisors_named(&self, name: &str) -> Result<Vec<Hypervisor>> {
        let mut found = self.hypervisors_matching(name).await?;
        found.retain(|hypervisor| hypervisor.hypervisor_hostname == name);
        Ok(found)
    }

    /// The hypervisors whose name contains a text, with their servers; none is no error.
    pub async fn hypervisors_matching(&self, part: &str) -> Result<Vec<Hypervisor>> {
        let request = Request::new(&LIST, &[])
            .about(format!("hypervisors matching {part}"))
            .query("hypervisor_hostname_pattern", part)
            .query("with_servers", "true");
        // Nova refuses paging together with a pattern, and says 404 for "none"
        match self.session.member(request, "hypervisors").await {
            Err(Error::NotFound(_)) => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    /// One hypervisor with its servers.
    pub async fn hypervisor(&self, id: &HypervisorId) -> Result<Hypervisor> {
        let request = Request::new(&SHOW, &[id.as_str()]).query("with_servers", "true");
        self.session.member(request, "hypervisor").await
    }

    /// What every hypervisor has and uses, from Nova's own books.
    pub async fn hypervisor_usage(&self) -> Result<Vec<HypervisorUsage>> {
        let request = Request::new(&USAGE, &[]);
        self.session.list(request, "hypervisors").await
    }
}
