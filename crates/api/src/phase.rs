// SPDX-License-Identifier: Apache-2.0
//! The nine states of a hypervisor as the lifecycle document draws them. Conditions stay the
//! source of truth; the phase is their one-word summary.

use crate::words::words;

words! {
    /// Where a hypervisor is in its life.
    pub enum LifecyclePhase {
        /// Known to Kubernetes, not yet to Nova.
        Initial = "Initial",
        /// Registered in Nova, being prepared.
        Onboarding = "Onboarding",
        /// Proving itself with a test server.
        Testing = "Testing",
        /// Onboarding ended without success.
        Aborted = "Aborted",
        /// Tests passed; production aggregates, traits and HA pending.
        Ready = "Ready",
        /// Carries tenants.
        Active = "Active",
        /// Out of scheduling on request.
        Maintenance = "Maintenance",
        /// Its servers are being moved away.
        Evicting = "Evicting",
        /// Removed from OpenStack.
        Decommissioned = "Decommissioned",
    }
}
