// SPDX-License-Identifier: Apache-2.0
//! Where our definitions go beyond those of the running system. Every entry is optional for
//! clients: old objects stay valid and old programs see nothing they must understand. A test
//! holds this table and the definitions together in both directions.

/// One way in which a definition differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An optional field, with everything below it.
    Field,
    /// A field that is no longer required.
    NotRequired,
    /// A printer column.
    Column,
    /// A printer column that no longer needs to be asked for.
    ShownColumn,
    /// A short name.
    ShortName,
}

/// One documented difference.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The definition, by its name.
    pub crd: &'static str,
    /// What changed.
    pub change: Change,
    /// The path of the field, the name of the column, or the short name.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
}

const HV: &str = "hypervisors.kvm.cloud.sap";
const EVI: &str = "evictions.kvm.cloud.sap";
const MIG: &str = "migrations.kvm.cloud.sap";

const fn added(crd: &'static str, what: &'static str, why: &'static str) -> Difference {
    Difference {
        crd,
        change: Change::Field,
        what,
        why,
    }
}

const fn relaxed(crd: &'static str, what: &'static str, why: &'static str) -> Difference {
    Difference {
        crd,
        change: Change::NotRequired,
        what,
        why,
    }
}

/// Every difference, by definition.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        crd: HV,
        change: Change::Column,
        what: "Node",
        why: "the product documents list it",
    },
    Difference {
        crd: HV,
        change: Change::Column,
        what: "Phase",
        why: "the documented state in one word",
    },
    Difference {
        crd: HV,
        change: Change::ShownColumn,
        what: "Hardware",
        why: "the product documents show it without being asked",
    },
    Difference {
        crd: HV,
        change: Change::ShownColumn,
        what: "Kernel",
        why: "the product documents show it without being asked",
    },
    added(
        HV,
        ".status.instances[].state",
        "tells a paused or crashed guest from a running one",
    ),
    added(
        HV,
        ".status.phase",
        "the documented state machine, derived from the conditions",
    ),
    added(
        HV,
        ".status.observedGeneration",
        "tells whether the status answers the current spec",
    ),
    added(
        HV,
        ".status.computeHost",
        "the exact service host, instead of guessing from names",
    ),
    added(
        HV,
        ".status.hypervisorHostname",
        "the exact hypervisor hostname, instead of guessing from names",
    ),
    added(
        HV,
        ".status.managedTraits",
        "tells our traits from those of others",
    ),
    added(
        HV,
        ".status.onboarding",
        "attempts and failures survive a restart of the operator",
    ),
    added(
        HV,
        ".status.agent",
        "who reports, since when, and over which connection",
    ),
    added(HV, ".status.cells[].pages", "huge pages per cell for placement"),
    added(
        HV,
        ".status.unplacedAllocation",
        "guests outside of cells must be counted too",
    ),
    added(EVI, ".spec.instances", "empties a host in part"),
    added(EVI, ".spec.maxParallel", "limits concurrent moves"),
    added(EVI, ".spec.migrationTimeoutSeconds", "limits one move"),
    added(EVI, ".spec.maxAttempts", "limits retries"),
    added(
        EVI,
        ".spec.allowColdForRunning",
        "consent to shut servers down; absent means no",
    ),
    added(
        EVI,
        ".spec.reEnable",
        "what happens to the host afterwards; absent means Auto",
    ),
    added(
        EVI,
        ".status.evictionState",
        "the upstream node agent polls this field",
    ),
    added(EVI, ".status.totalInstances", "progress"),
    added(EVI, ".status.migratedInstances", "progress"),
    added(EVI, ".status.failedInstances", "progress"),
    added(EVI, ".status.startedAt", "duration"),
    added(EVI, ".status.completedAt", "duration"),
    added(
        EVI,
        ".status.inFlight",
        "moves under way survive a restart of the operator",
    ),
    added(
        EVI,
        ".status.nonMigratableInstances",
        "says which servers stay and why",
    ),
    Difference {
        crd: MIG,
        change: Change::ShortName,
        what: "migr",
        why: "the upstream definition has none",
    },
    relaxed(MIG, ".metadata", "always present anyway"),
    relaxed(MIG, ".spec", "an empty object says nothing"),
    relaxed(
        MIG,
        ".status",
        "the API server drops it on create and would then refuse every object",
    ),
    relaxed(
        MIG,
        ".status.started",
        "the destination may write before the source does",
    ),
    added(MIG, ".status.phase", "programs must not parse texts"),
    added(MIG, ".status.finished", "duration and retention"),
    added(
        MIG,
        ".status.updated",
        "tells a stalled migration from a lost agent",
    ),
    added(
        MIG,
        ".status.attempt",
        "tells migrations of the same server apart",
    ),
    added(MIG, ".status.progress", "programs must not parse texts"),
    added(
        MIG,
        ".status.sourceNode",
        "the label in origin need not be the Node name",
    ),
    added(
        MIG,
        ".status.destinationNode",
        "the label in destination need not be the Node name",
    ),
];
