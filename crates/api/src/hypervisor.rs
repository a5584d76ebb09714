// SPDX-License-Identifier: Apache-2.0
//! The Hypervisor: one per Node, named like it. The spec is what people and the operator want
//! of the host; the status is written field by field by the operator, the node agent and the
//! HA service, each with its own field manager.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::phase::LifecyclePhase;
use crate::quantity::Quantity;
use crate::words::open_words;

/// Amounts by resource name (`cpu`, `memory`).
pub type ResourceMap = BTreeMap<String, Quantity>;

open_words! {
    /// Why a host is out of scheduling, if it is.
    #[derive(Default)]
    pub enum Maintenance {
        /// Not in maintenance.
        #[default]
        Off = "",
        /// Requested by a person, who gives a reason.
        Manual = "manual",
        /// Requested by automation for planned work.
        Auto = "auto",
        /// Taken by the HA service after a failure.
        Ha = "ha",
        /// The host is leaving for good.
        Termination = "termination",
    }
}

impl Maintenance {
    /// Whether no maintenance is wanted.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// What is wanted of a hypervisor.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1",
    kind = "Hypervisor",
    plural = "hypervisors",
    shortname = "hv",
    status = "HypervisorStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default",
    doc = "One KVM host under OpenStack."
)]
#[serde(rename_all = "camelCase", default)]
pub struct HypervisorSpec {
    /// The operating system version to run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Reboot once an update is installed.
    pub reboot: bool,
    /// Move servers away before the host reboots.
    pub evacuate_on_reboot: bool,
    /// Let the operator manage the life of this host.
    pub lifecycle_enabled: bool,
    /// Onboard without a test server.
    pub skip_tests: bool,
    /// Traits to hold in Placement.
    pub custom_traits: Vec<String>,
    /// Names of the host aggregates to be in.
    pub aggregates: Vec<String>,
    /// Typed memberships that the scheduler reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Projects that may use the host; empty means all.
    pub allowed_projects: Vec<String>,
    /// Recover servers elsewhere when the host fails.
    pub high_availability: bool,
    /// Have the node agent request a certificate.
    pub create_cert_manager_certificate: bool,
    /// Have the node agent install the certificate.
    pub install_certificate: bool,
    /// The maintenance mode.
    #[serde(skip_serializing_if = "Maintenance::is_off")]
    pub maintenance: Maintenance,
    /// Why maintenance was requested by hand.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub maintenance_reason: String,
    /// Overcommit ratios by resource name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overcommit: BTreeMap<String, f64>,
}

impl Default for HypervisorSpec {
    /// The defaults of the schema, so that an object reads alike before and after the API
    /// server has seen it.
    fn default() -> Self {
        Self {
            version: String::new(),
            reboot: false,
            evacuate_on_reboot: true,
            lifecycle_enabled: true,
            skip_tests: false,
            custom_traits: Vec::new(),
            aggregates: Vec::new(),
            groups: Vec::new(),
            allowed_projects: Vec::new(),
            high_availability: true,
            create_cert_manager_certificate: false,
            install_certificate: true,
            maintenance: Maintenance::Off,
            maintenance_reason: String::new(),
            overcommit: BTreeMap::new(),
        }
    }
}

/// One membership of a hypervisor: exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// A capability.
    #[serde(rename = "trait", default, skip_serializing_if = "Option::is_none")]
    pub trait_: Option<TraitGroup>,
    /// An administrative grouping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateGroup>,
}

/// A capability of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraitGroup {
    /// The trait.
    pub name: String,
}

/// An administrative grouping of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AggregateGroup {
    /// The aggregate's name.
    pub name: String,
    /// The aggregate's UUID.
    pub uuid: String,
    /// The aggregate's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// What is known of a hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HypervisorStatus {
    /// The version of libvirt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lib_virt_version: String,
    /// The version of the hypervisor below libvirt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypervisor_version: String,
    /// Operating system, kernel, hardware and firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<OperatingSystem>,
    /// Progress of an operating system update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_status: Option<HypervisorUpdateStatus>,
    /// Guests that libvirt knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<Instance>,
    /// How many guests there are.
    pub num_instances: i64,
    /// What the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// What guests may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_capabilities: Option<DomainCapabilities>,
    /// What guests have taken.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub allocation: ResourceMap,
    /// What is physically there.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub capacity: ResourceMap,
    /// What may be handed out, with overcommit.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub effective_capacity: ResourceMap,
    /// NUMA cells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Cell>,
    /// The UUID of the hypervisor in Nova.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypervisor_id: String,
    /// The UUID of the compute service in Nova.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_id: String,
    /// Traits last seen or written in Placement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traits: Vec<String>,
    /// Aggregates last applied in Nova.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregates: Vec<Aggregate>,
    /// The address of the node inside the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub internal_ip: String,
    /// Empty while in maintenance.
    #[serde(skip_serializing_if = "is_false")]
    pub evicted: bool,
    /// Conditions, keyed by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Kept for compatibility; nobody uses it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spec_hash: String,
    /// The one-word summary of the conditions. An unknown word reads as absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_phase")]
    pub phase: Option<LifecyclePhase>,
    /// The generation of the spec that this status answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The host of the compute service in Nova.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compute_host: String,
    /// The hostname of the hypervisor in Nova.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypervisor_hostname: String,
    /// Traits that the operator itself put into Placement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_traits: Vec<String>,
    /// Progress of onboarding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onboarding: Option<OnboardingProgress>,
    /// Who reports from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentInfo>,
    /// What guests that are not bound to a cell have taken.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub unplaced_allocation: ResourceMap,
}

/// Operating system, kernel, hardware and firmware of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatingSystem {
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The variant or edition.
    #[serde(rename = "variantID", skip_serializing_if = "String::is_empty")]
    pub variant_id: String,
    /// The version as people write it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pretty_version: String,
    /// The kernel's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_name: String,
    /// The kernel's release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_release: String,
    /// The kernel's build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    /// The parameters the kernel was booted with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_command_line: String,
    /// Who made the machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hardware_vendor: String,
    /// The machine's model.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hardware_model: String,
    /// The machine's serial number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hardware_serial: String,
    /// The firmware's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware_version: String,
    /// Who made the firmware.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware_vendor: String,
    /// When the firmware was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_date: Option<Time>,
    /// The commit Garden Linux was built from.
    #[serde(rename = "gardenLinuxCommitID", skip_serializing_if = "String::is_empty")]
    pub garden_linux_commit_id: String,
    /// The features Garden Linux was built with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub garden_linux_features: Vec<String>,
}

/// Progress of an operating system update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HypervisorUpdateStatus {
    /// Whether an update runs.
    pub in_progress: bool,
    /// The version last installed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub installed: String,
    /// Attempts left.
    pub retry: i64,
}

impl Default for HypervisorUpdateStatus {
    fn default() -> Self {
        Self {
            in_progress: false,
            installed: "unknown".into(),
            retry: 3,
        }
    }
}

/// A guest as libvirt knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The UUID, which is also the server's in Nova.
    pub id: String,
    /// The name of the libvirt domain.
    pub name: String,
    /// Whether it runs.
    pub active: bool,
    /// What it is doing, in libvirt's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}

/// What a host has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// The processor architecture.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_arch: String,
    /// Memory over all cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Processors over all cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Quantity>,
}

/// What guests of a host may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DomainCapabilities {
    /// The processor architecture of guests.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arch: String,
    /// The kind of virtualization, in libvirt's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypervisor_type: String,
    /// Device types, and models as `type/model`.
    pub supported_devices: Vec<String>,
    /// Processor modes, and submodes as `mode/submode`.
    pub supported_cpu_modes: Vec<String>,
    /// Features by name.
    pub supported_features: Vec<String>,
}

/// One NUMA cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cell {
    /// The number of the cell.
    #[serde(rename = "cellID")]
    pub cell_id: u64,
    /// What guests in this cell have taken.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub allocation: ResourceMap,
    /// What is physically there.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub capacity: ResourceMap,
    /// What may be handed out, with overcommit.
    #[serde(skip_serializing_if = "ResourceMap::is_empty")]
    pub effective_capacity: ResourceMap,
    /// Memory pages by size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PagePool>,
}

/// Memory pages of one size in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePool {
    /// The size of a page.
    pub size: Quantity,
    /// How many there are.
    #[serde(default)]
    pub total: i64,
    /// How many are free.
    #[serde(default)]
    pub free: i64,
}

/// A host aggregate as applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// The aggregate's name.
    pub name: String,
    /// The aggregate's UUID.
    pub uuid: String,
    /// The aggregate's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Progress of onboarding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnboardingProgress {
    /// Test servers tried so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// The test server in use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_id: String,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_failure: String,
    /// When onboarding began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When onboarding ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
}

/// Who reports from a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInfo {
    /// The agent's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The kernel's id of this boot.
    #[serde(rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// When the agent started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The libvirt connection in use.
    #[serde(rename = "libvirtURI", skip_serializing_if = "String::is_empty")]
    pub libvirt_uri: String,
    /// The libvirt driver in use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_false(value: &bool) -> bool {
    !*value
}

fn known_phase<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LifecyclePhase>, D::Error> {
    let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(text.and_then(|text| LifecyclePhase::parse(&text)))
}
