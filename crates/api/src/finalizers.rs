// SPDX-License-Identifier: Apache-2.0
//! Finalizers that roles set.

use crate::key::Key;

/// On a Hypervisor that is registered in Nova: hold it until it has left OpenStack.
pub const OFFBOARDING: Key = Key::new("kvm.cloud.sap/offboarding");
/// On a standalone Eviction: hold it until the host is back in scheduling.
pub const EVICTION: Key = Key::new("eviction-controller.cloud.sap/finalizer");
