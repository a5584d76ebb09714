// SPDX-License-Identifier: Apache-2.0
//! The definition of Evictions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Definition, Scope, column, condition_path, root};
use crate::schema::Schema;
use crate::{EvictionState, MoveKind, ReEnable};

pub(super) fn definition() -> CustomResourceDefinition {
    Definition {
        group: crate::KVM_GROUP,
        version: "v1",
        kind: "Eviction",
        plural: "evictions",
        singular: "eviction",
        short_names: &["evi"],
        scope: Scope::Cluster,
        columns: vec![
            column("Hypervisor", "string", ".spec.hypervisor"),
            column("Reason", "string", ".spec.reason"),
            column("State", "string", &condition_path("Evicting", "reason")),
            column("Created", "date", ".metadata.creationTimestamp"),
        ],
        schema: root("A request to empty one hypervisor.", spec(), status()),
    }
    .build()
}

fn spec() -> Schema {
    Schema::object([
        (
            "hypervisor",
            Schema::text()
                .min_length(1)
                .rule("self == oldSelf", "Value is immutable")
                .doc("Name of the Hypervisor to empty."),
        ),
        ("reason", Schema::text().min_length(1).doc("Why the host is to be emptied.")),
        ("instances", Schema::texts().doc("UUIDs of the servers to move; all of them when absent.")),
        ("maxParallel", Schema::integer().minimum(1).maximum(64).doc("How many servers may move at once.")),
        ("migrationTimeoutSeconds", Schema::integer().minimum(60).doc("How long one migration may take.")),
        ("maxAttempts", Schema::integer().minimum(1).maximum(20).doc("How often one server is tried.")),
        (
            "allowColdForRunning",
            Schema::boolean().doc("Shut a running server down if it cannot move otherwise. Absent means no."),
        ),
        (
            "reEnable",
            Schema::word(ReEnable::WORDS)
                .doc("Whether the host goes back into scheduling afterwards. Absent means `Auto`: after planned work only."),
        ),
    ])
    .required(&["hypervisor", "reason"])
    .doc("What is to be emptied, and how.")
}

fn status() -> Schema {
    Schema::object([
        (
            "conditions",
            Schema::conditions().doc("How the eviction goes, one entry per aspect."),
        ),
        (
            "hypervisorServiceId",
            Schema::text().doc("UUID of the hypervisor in Nova; the name of the field is historical."),
        ),
        (
            "outstandingInstances",
            Schema::texts().doc("UUIDs of the servers still to move; the last one is next."),
        ),
        (
            "outstandingRamMb",
            Schema::int64()
                .default_value(0)
                .doc("Memory of the servers still to move, in MiB."),
        ),
        (
            "evictionState",
            Schema::word(EvictionState::WORDS).doc("The conditions in one word."),
        ),
        (
            "totalInstances",
            Schema::integer().doc("Servers found on the host."),
        ),
        (
            "migratedInstances",
            Schema::integer().doc("Servers that have left."),
        ),
        (
            "failedInstances",
            Schema::integer().doc("Servers that could not be moved."),
        ),
        ("startedAt", Schema::time().doc("When the work began.")),
        ("completedAt", Schema::time().doc("When the work ended.")),
        ("inFlight", Schema::list_of(in_flight()).doc("Moves under way.")),
        (
            "nonMigratableInstances",
            Schema::list_of(non_migratable()).doc("Servers given up on, and why."),
        ),
    ])
    .doc("How far the eviction got.")
}

fn in_flight() -> Schema {
    Schema::object([
        ("id", Schema::text().doc("UUID of the server.")),
        ("attempt", Schema::integer().doc("Which attempt this is.")),
        (
            "kind",
            Schema::word(MoveKind::WORDS).doc("How the server is moved."),
        ),
        ("migrationId", Schema::text().doc("The migration in Nova.")),
        ("startedAt", Schema::time().doc("When the move was started.")),
    ])
}

fn non_migratable() -> Schema {
    Schema::object([
        ("id", Schema::text().doc("UUID of the server.")),
        ("name", Schema::text().doc("Name of the server.")),
        ("reason", Schema::text().doc("Why it cannot move.")),
        ("attempts", Schema::integer().doc("How often it was tried.")),
        ("lastError", Schema::text().doc("What the last attempt answered.")),
        (
            "since",
            Schema::time().doc("Since when it counts as not movable."),
        ),
    ])
}
