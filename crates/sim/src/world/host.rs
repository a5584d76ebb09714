// SPDX-License-Identifier: Apache-2.0
//! A simulated host: what it is made of, whether it has power, network, libvirt and nova-compute, and the domains that
//! libvirt knows on it. What Nova believes about it is its [`Service`]; the two differ whenever something is broken.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::domain::Domain;
use super::names::HostName;

/// Nova calls a service down when it was silent for this long.
pub const SERVICE_DOWN: Duration = Duration::from_secs(60);
/// A service reports at this interval.
const REPORT: Duration = Duration::from_secs(10);

/// Whether the machine has power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// Running.
    On,
    /// Dark.
    Off,
    /// Has power, its operating system is not up yet.
    Booting,
}

/// How the libvirt daemon behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Libvirt {
    /// Answers.
    Up,
    /// Accepts connections and answers nothing.
    Hung,
    /// The process is gone.
    Down,
}

/// Which libvirt driver the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Driver {
    /// QEMU/KVM.
    Qemu,
    /// Cloud Hypervisor, as the GardenLinux branch behaves.
    CloudHypervisor,
}

/// What Nova knows of a host's nova-compute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Service {
    /// Number, for microversions before 2.53.
    pub id: u64,
    /// Identity since 2.53.
    pub uuid: Uuid,
    /// Whether the scheduler leaves it out.
    pub disabled: bool,
    /// Why.
    pub disabled_reason: Option<String>,
    /// Whether somebody declared it dead.
    pub forced_down: bool,
    /// Since when nothing was heard of it.
    pub silent_since: Option<Moment>,
    /// Whether the database of its cell is away.
    #[serde(default)]
    pub cell_down: bool,
}

impl Service {
    /// Whether Nova shows it as up.
    pub fn is_up(&self, now: Moment) -> bool {
        !self.forced_down && self.silent_since.is_none_or(|since| now < since + SERVICE_DOWN)
    }

    /// When Nova last heard of it.
    pub fn reported_at(&self, now: Moment) -> Moment {
        let heard = self.silent_since.unwrap_or(now);
        let interval = REPORT.as_millis() as i64;
        Moment(heard.0 - heard.0.rem_euclid(interval))
    }
}

/// A NUMA cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Its number.
    pub id: u32,
    /// First CPU.
    pub first_cpu: u32,
    /// How many CPUs.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
}

/// A host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// Name of the Nova service host.
    pub name: HostName,
    /// Name of the compute node; may be longer than the host name.
    pub hypervisor_hostname: String,
    /// Availability zone it belongs to.
    pub zone: String,
    /// Building block it stands in.
    pub building_block: String,
    /// Nova's number of the compute node.
    pub node_id: u64,
    /// Identity of the compute node and of its resource provider.
    pub node_uuid: Uuid,
    /// Nova's record of its compute service; none before it registered and after it was deleted.
    pub service: Option<Service>,
    /// CPU sockets in the whole machine.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Local disk in GiB.
    pub disk_gb: u64,
    /// NUMA cells.
    pub cells: Vec<Cell>,
    /// Address.
    pub ip: String,
    /// Whether it has power.
    pub power: Power,
    /// When its operating system came up.
    pub booted_at: Moment,
    /// Changes with each boot.
    pub boot_id: Uuid,
    /// Whether the nova-compute process runs (while there is power).
    pub compute: bool,
    /// Whether it is cut off from the control plane.
    pub cut: bool,
    /// How libvirt behaves.
    pub libvirt: Libvirt,
    /// Which driver it runs.
    pub driver: Driver,
    /// Whether its local disk is full.
    pub disk_full: bool,
    /// What libvirt knows here.
    pub domains: BTreeMap<Uuid, Domain>,
    /// Number of the next domain that starts.
    pub next_domain_id: i32,
    /// Bytes per second that migrations get.
    pub bandwidth: u64,
    /// How many live migrations nova-compute runs at once.
    pub max_live: usize,
}

impl Host {
    /// CPUs in all.
    pub fn cpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// Whether nova-compute can be heard.
    pub fn reports(&self) -> bool {
        self.power == Power::On && self.compute && !self.cut
    }

    /// Whether anybody can reach its libvirt.
    pub fn libvirt_answers(&self) -> bool {
        self.power == Power::On && !self.cut && self.libvirt == Libvirt::Up
    }

    /// Domains that execute.
    pub fn running(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values().filter(|domain| domain.is_active())
    }
}
