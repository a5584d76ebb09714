// SPDX-License-Identifier: Apache-2.0
//! The vocabulary of CobaltCore: custom resources, conditions, reasons, labels.
//!
//! Everything that two roles must spell alike lives here and nowhere else. The crate does no
//! I/O and takes no decisions; it promises that the custom resource definitions it produces
//! accept whatever the running system accepts (see [`crd::differences`] for the few additions).

// A test that unwraps says where it failed just as well.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod annotations;
pub mod conditions;
pub mod crd;
mod eviction;
pub mod field_managers;
pub mod finalizers;
pub mod format;
pub mod ha;
mod ha_incident;
mod hypervisor;
mod key;
pub mod labels;
mod migration;
pub mod names;
mod phase;
pub mod quantity;
pub mod reasons;
pub mod schema;
pub mod taints;
mod words;
pub mod yaml;

pub use crd::{crds, crds_yaml};
pub use eviction::{
    Eviction, EvictionSpec, EvictionState, EvictionStatus, InFlightMigration, MoveKind,
    NonMigratableInstance, ReEnable,
};
pub use ha_incident::{
    HaFence, HaHeldReason, HaIncident, HaIncidentSpec, HaIncidentState, HaIncidentStatus, HaIncidentType,
    HaSignal, HaSnapshot, HaStep, HaSummary, HaVm,
};
pub use hypervisor::{
    AgentInfo, Aggregate, AggregateGroup, Capabilities, Cell, DomainCapabilities, Group, Hypervisor,
    HypervisorSpec, HypervisorStatus, HypervisorUpdateStatus, Instance, Maintenance, OnboardingProgress,
    OperatingSystem, PagePool, ResourceMap, TraitGroup,
};
pub use key::Key;
pub use migration::{
    JobOperation, JobType, Migration, MigrationPhase, MigrationProgress, MigrationSpec, MigrationStatus,
};
pub use phase::LifecyclePhase;
pub use quantity::Quantity;
pub use words::UnknownWord;

/// The API group of hypervisors, evictions, migrations and incidents.
pub const KVM_GROUP: &str = "kvm.cloud.sap";
