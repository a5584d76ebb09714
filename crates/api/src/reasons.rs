// SPDX-License-Identifier: Apache-2.0
//! Reasons by the condition they belong to, so that a controller can only write a reason that
//! the catalogue of conditions knows.

use crate::words::words;

words! {
    /// Reasons of `Ready`.
    pub enum ReadyReason {
        Ready = "Ready",
        Offboarded = "Offboarded",
        Terminating = "Terminating",
        Onboarding = "Onboarding",
        Evicting = "Evicting",
        Evicted = "Evicted",
        Maintenance = "Maintenance",
        Disabled = "Disabled",
        NodeNotReady = "NodeNotReady",
    }
}

words! {
    /// Reasons of `Onboarding`.
    pub enum OnboardingReason {
        Initial = "Initial",
        Testing = "Testing",
        Handover = "Handover",
        Succeeded = "Succeeded",
        Aborted = "Aborted",
    }
}

words! {
    /// Reasons of `Terminating`.
    pub enum TerminatingReason {
        Terminating = "Terminating",
        NotTerminating = "NotTerminating",
    }
}

words! {
    /// Reasons of `HypervisorDisabled` on a Hypervisor.
    pub enum HypervisorDisabledReason {
        Succeeded = "Succeeded",
        Evicting = "Evicting",
        NodePressure = "NodePressure",
    }
}

words! {
    /// Reasons of `Evicting`, on Hypervisors and on Evictions.
    pub enum EvictingReason {
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

words! {
    /// Reasons of `Offboarded`.
    pub enum OffboardedReason {
        Offboarding = "Offboarding",
        Offboarded = "Offboarded",
    }
}

words! {
    /// Reasons of `AggregatesUpdated`.
    pub enum AggregatesUpdatedReason {
        Succeeded = "Succeeded",
        TestAggregates = "TestAggregates",
        WaitingForTraits = "WaitingForTraits",
        EvictionInProgress = "EvictionInProgress",
        Terminating = "Terminating",
        Failed = "Failed",
    }
}

words! {
    /// Reasons of `TraitsUpdated`.
    pub enum TraitsUpdatedReason {
        Succeeded = "Succeeded",
        Failed = "Failed",
        Invalid = "Invalid",
    }
}

words! {
    /// Reasons of `AgentPodsEvicted`.
    pub enum AgentPodsEvictedReason {
        NoAgentPods = "NoAgentPods",
        AgentPodsRunning = "AgentPodsRunning",
    }
}

words! {
    /// Reasons of `HaEnabled`.
    pub enum HaEnabledReason {
        Succeeded = "Succeeded",
        Evicted = "Evicted",
        Onboarding = "Onboarding",
        Disabled = "Disabled",
        Failed = "Failed",
    }
}

words! {
    /// Reasons of `HaRecovery`: where the recovery of a host stands.
    pub enum HaRecoveryReason {
        Fencing = "Fencing",
        Evacuating = "Evacuating",
        Recovered = "Recovered",
        Failed = "Failed",
        Releasing = "Releasing",
        Released = "Released",
    }
}

words! {
    /// Reasons of `Tainted`.
    pub enum TaintedReason {
        Kubectl = "Kubectl",
        NoKubectl = "NoKubectl",
    }
}

words! {
    /// Reasons of `IncomingMigrationsSettled`.
    pub enum IncomingMigrationsReason {
        Settled = "Settled",
        Aborting = "Aborting",
        Waiting = "Waiting",
    }
}

words! {
    /// Reasons of `NodeReady`.
    pub enum NodeReadyReason {
        Ready = "Ready",
        NotReady = "NotReady",
        Unreachable = "Unreachable",
    }
}

words! {
    /// Reasons of `NodePressure`.
    pub enum NodePressureReason {
        DiskPressure = "DiskPressure",
        MemoryPressure = "MemoryPressure",
        NoPressure = "NoPressure",
    }
}

words! {
    /// Reasons of `NetworkReady`.
    pub enum NetworkReadyReason {
        Healthy = "Healthy",
        NotReported = "NotReported",
        BridgeMissing = "BridgeMissing",
        BridgeUnhealthy = "BridgeUnhealthy",
        NotReady = "NotReady",
    }
}

words! {
    /// Reasons of `CertificateIssued`.
    pub enum CertificateIssuedReason {
        Issued = "Issued",
        Pending = "Pending",
        NotRequested = "NotRequested",
    }
}

words! {
    /// Reasons of `PreflightChecksSucceeded`, `MigratingInstance`, `HypervisorDisabled` and
    /// `HypervisorReEnabled` on an Eviction.
    pub enum EvictionStepReason {
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

words! {
    /// Reasons of `LibVirtConnection`.
    pub enum LibVirtConnectionReason {
        Connected = "Connected",
        LibVirtServiceNotRunning = "LibVirtServiceNotRunning",
        ConnectFailed = "ConnectFailed",
        ProcessFailed = "ProcessFailed",
        Disconnected = "Disconnected",
        Timeout = "Timeout",
        AuthFailed = "AuthFailed",
        DriverUnavailable = "DriverUnavailable",
        Degraded = "Degraded",
    }
}

words! {
    /// Reasons of the conditions named after systemd units.
    pub enum UnitReason {
        Running = "Running",
        Reloading = "Reloading",
        Stopped = "Stopped",
        Failed = "Failed",
        Stopping = "Stopping",
        Starting = "Starting",
        Maintenance = "Maintenance",
        Unknown = "Unknown",
        NotFound = "NotFound",
    }
}

words! {
    /// Reasons of `OperatingSystemUpdate`.
    pub enum OperatingSystemUpdateReason {
        Running = "Running",
        Completed = "Completed",
        Stopped = "Stopped",
        RetryLimit = "RetryLimit",
        InvalidVersion = "InvalidVersion",
    }
}

words! {
    /// Reasons of `TLSCertificateInstalled`.
    pub enum TlsCertificateReason {
        Installing = "Installing",
        Ready = "Ready",
        FailedToUpdate = "FailedToUpdateTLSCertificate",
        FailedToStartUpdateService = "FailedToStartUpdateTLSService",
        ManagedByOperator = "ManagedByOperator",
        InvalidCertificate = "InvalidCertificate",
        NotServed = "NotServed",
    }
}

words! {
    /// Reasons of `EvacuationReady`.
    pub enum EvacuationReadyReason {
        Armed = "Armed",
        DelayTooShort = "DelayTooShort",
        InhibitFailed = "InhibitFailed",
        Disabled = "Disabled",
    }
}

words! {
    /// Reasons of Events (`reason` of an `events.k8s.io/v1` Event).
    pub enum EventReason {
        MigrationStuck = "MigrationStuck",
        HostDown = "HostDown",
        LibvirtConnected = "LibvirtConnected",
        LibvirtLost = "LibvirtLost",
        CertificateInstalled = "CertificateInstalled",
        CertificateFailed = "CertificateFailed",
        UpdateStarted = "UpdateStarted",
        UpdateInstalled = "UpdateInstalled",
        UpdateFailed = "UpdateFailed",
        ShutdownEvacuation = "ShutdownEvacuation",
        ShutdownEvacuated = "ShutdownEvacuated",
        DomainUnreadable = "DomainUnreadable",
        MigrationStarted = "MigrationStarted",
        MigrationCompleted = "MigrationCompleted",
        MigrationFailed = "MigrationFailed",
        HypervisorCreated = "HypervisorCreated",
        PhaseChanged = "PhaseChanged",
        MaintenanceSet = "MaintenanceSet",
        MaintenanceCleared = "MaintenanceCleared",
        NodePressure = "NodePressure",
        NodeUnhealthy = "NodeUnhealthy",
        NodeHealthBrake = "NodeHealthBrake",
        AgentsPushedOff = "AgentsPushedOff",
        DrainAllowed = "DrainAllowed",
        WaitingForHa = "WaitingForHa",
        HaSwitched = "HaSwitched",
        InstanceNotMigratable = "InstanceNotMigratable",
        EvictionSucceeded = "EvictionSucceeded",
        EvictionFailed = "EvictionFailed",
        PreflightWaiting = "PreflightWaiting",
        MaintenanceEntered = "MaintenanceEntered",
        MaintenanceLeft = "MaintenanceLeft",
        ServiceDrift = "ServiceDrift",
        ServiceDisabledByOthers = "ServiceDisabledByOthers",
        EvictedHostRefilled = "EvictedHostRefilled",
        OnboardingStage = "OnboardingStage",
        OnboardingTestFailed = "OnboardingTestFailed",
        OnboardingAborted = "OnboardingAborted",
        OnboardingSucceeded = "OnboardingSucceeded",
        HaServiceMissing = "HaServiceMissing",
        Offboarding = "Offboarding",
    }
}
