// SPDX-License-Identifier: Apache-2.0
//! Condition types by the object that carries them. The type of a watched systemd unit is the
//! unit's own name and therefore not listed here.

use crate::words::words;

words! {
    /// Conditions on a Hypervisor.
    pub enum HypervisorCondition {
        /// The summary other components schedule by.
        Ready = "Ready",
        /// True while onboarding is in progress; False when it ended.
        Onboarding = "Onboarding",
        /// The node is about to go away.
        Terminating = "Terminating",
        /// The compute service is out of scheduling.
        HypervisorDisabled = "HypervisorDisabled",
        /// Servers are being moved away; absent outside of maintenance.
        Evicting = "Evicting",
        /// The host has left OpenStack.
        Offboarded = "Offboarded",
        /// Host aggregates are as the spec wants them.
        AggregatesUpdated = "AggregatesUpdated",
        /// Traits in Placement are as the spec wants them.
        TraitsUpdated = "TraitsUpdated",
        /// No agent pods are left on the node.
        AgentPodsEvicted = "AgentPodsEvicted",
        /// Instance high availability covers this host.
        HaEnabled = "HaEnabled",
        /// The HA service is recovering this host.
        HaRecovery = "HaRecovery",
        /// Somebody edited the object by hand.
        Tainted = "Tainted",
        /// No migration towards this host is under way.
        IncomingMigrationsSettled = "IncomingMigrationsSettled",
        /// Mirror of the node's readiness.
        NodeReady = "NodeReady",
        /// The node is short of disk or memory.
        NodePressure = "NodePressure",
        /// The network agent of the host reports its bridges healthy.
        NetworkReady = "NetworkReady",
        /// The libvirt certificate was issued.
        CertificateIssued = "CertificateIssued",
        /// The node agent talks to libvirt.
        LibVirtConnection = "LibVirtConnection",
        /// Progress of an operating system update.
        OperatingSystemUpdate = "OperatingSystemUpdate",
        /// The libvirt certificate is installed on the host.
        TlsCertificateInstalled = "TLSCertificateInstalled",
        /// A shutdown of the host would be held back long enough to evacuate it.
        EvacuationReady = "EvacuationReady",
    }
}

words! {
    /// Conditions on an Eviction.
    pub enum EvictionCondition {
        /// True while servers are being moved; False when the eviction ended.
        Evicting = "Evicting",
        /// The host may be emptied.
        PreflightChecksSucceeded = "PreflightChecksSucceeded",
        /// What is being moved right now, or how the last move ended.
        MigratingInstance = "MigratingInstance",
        /// This eviction took the host out of scheduling.
        HypervisorDisabled = "HypervisorDisabled",
        /// This eviction gave the host back to scheduling.
        HypervisorReEnabled = "HypervisorReEnabled",
    }
}

words! {
    /// Conditions of a Kubernetes Node that the operator reads.
    pub enum NodeCondition {
        /// The kubelet is healthy.
        Ready = "Ready",
        /// The machine controller is removing the machine.
        Terminating = "Terminating",
        /// The node is short of disk.
        DiskPressure = "DiskPressure",
        /// The node is short of memory.
        MemoryPressure = "MemoryPressure",
    }
}
