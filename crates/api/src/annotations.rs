// SPDX-License-Identifier: Apache-2.0
//! Annotation keys that roles read or write.

use crate::key::Key;

/// On a Node: comma-separated host aggregates.
pub const AGGREGATES: Key = Key::new("nova.openstack.cloud.sap/aggregates");
/// On a Node: comma-separated custom traits.
pub const CUSTOM_TRAITS: Key = Key::new("nova.openstack.cloud.sap/custom-traits");
/// On a Node: the maintenance to request, `auto` or `manual:<reason>`.
pub const MAINTENANCE: Key = Key::new("kvm.cloud.sap/maintenance");
/// On a Hypervisor: who set the maintenance mode, so that only the same party clears it.
pub const MAINTENANCE_SET_BY: Key = Key::new("kvm.cloud.sap/maintenance-set-by");
/// On a Hypervisor: a new value starts onboarding again.
pub const RESTART_ONBOARDING: Key = Key::new("kvm.cloud.sap/restart-onboarding");
/// On a Hypervisor: a new value arms the operating system update again.
pub const RETRY_UPDATE: Key = Key::new("kvm.cloud.sap/retry-update");
/// On an Eviction: a new value starts a failed eviction again.
pub const RETRY: Key = Key::new("kvm.cloud.sap/retry");
/// On an Eviction: `true` turns capacity and filter checks into warnings.
pub const IGNORE_PREFLIGHT: Key = Key::new("kvm.cloud.sap/ignore-preflight");
/// On an Eviction: `true` makes deletion abort running migrations too.
pub const ABORT_IN_FLIGHT: Key = Key::new("kvm.cloud.sap/abort-in-flight");
/// On a Node: the incident for which the HA service keeps the host switched off.
pub const HA_FENCED: Key = Key::new("kvm.cloud.sap/ha-fenced");
