// SPDX-License-Identifier: Apache-2.0
//! The definition of Migrations. Nothing is required here: with a status subresource the API
//! server drops the status of a new object and would then miss it, so that nobody could ever
//! create one.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Definition, Scope, column, root};
use crate::MigrationPhase;
use crate::schema::Schema;

pub(super) fn definition() -> CustomResourceDefinition {
    Definition {
        group: crate::KVM_GROUP,
        version: "v1alpha1",
        kind: "Migration",
        plural: "migrations",
        singular: "migration",
        short_names: &["migr"],
        scope: Scope::Namespaced,
        columns: vec![
            column("Origin", "string", ".status.origin"),
            column("Destination", "string", ".status.destination"),
            column("Type", "string", ".status.type"),
            column("Operation", "string", ".status.operation"),
            column("Started", "date", ".status.started"),
            column("Elapsed", "string", ".status.timeElapsed"),
            column("Data Total", "string", ".status.dataTotal"),
            column("Data Processed", "string", ".status.dataProcessed"),
            column("Data Remaining", "string", ".status.dataRemaining"),
            column("Memory TX", "string", ".status.memBps"),
            column("Memory Dirty Rate", "string", ".status.memDirtyRate"),
            column("Memory Iteration", "string", ".status.memIteration"),
        ],
        schema: root(
            "What the node agents observe while a server moves. Its name is the UUID of the server.",
            Schema::object([]).doc("Empty: a migration is observed, not requested."),
            status(),
        ),
    }
    .build()
}

fn status() -> Schema {
    let text = |doc| Schema::text().doc(doc);
    let count = |doc| Schema::int64().doc(doc);
    Schema::object([
        ("origin", text("Host the server comes from.")),
        ("destination", text("Host the server goes to.")),
        (
            "type",
            text("Type of the libvirt job: `bounded`, `unbounded`, `completed`, `failed` or `cancelled`."),
        ),
        (
            "operation",
            text("Operation of the libvirt job, such as `migration_out`."),
        ),
        (
            "started",
            Schema::time().doc("When it started, by the clock of the source."),
        ),
        ("timeElapsed", text("How long it has taken.")),
        ("timeRemaining", text("How long it may still take.")),
        ("downtime", text("How long the guest stands still.")),
        ("setupTime", text("How long the preparation took.")),
        ("dataTotal", text("All data.")),
        ("dataProcessed", text("Data moved.")),
        ("dataRemaining", text("Data left to move.")),
        ("memTotal", text("All memory.")),
        ("memProcessed", text("Memory moved.")),
        ("memRemaining", text("Memory left to move.")),
        ("memBps", text("Memory moved per second.")),
        ("memConstant", count("Pages that hold one repeated byte.")),
        ("memNormal", count("Pages sent in full.")),
        ("memNormalBytes", text("Bytes sent in full pages.")),
        ("memDirtyRate", text("Pages the guest dirties per second.")),
        ("memIteration", count("Passes over the memory.")),
        ("memPostcopyRequests", count("Pages the destination asked for.")),
        ("memPageSize", text("Size of one page.")),
        ("diskTotal", text("All disk.")),
        ("diskProcessed", text("Disk moved.")),
        ("diskRemaining", text("Disk left to move.")),
        ("diskBps", text("Disk moved per second.")),
        ("autoConvergeThrottle", text("How much the guest is slowed down.")),
        ("errMsg", text("What went wrong.")),
        (
            "phase",
            Schema::word(MigrationPhase::WORDS).doc("The state in one word."),
        ),
        ("finished", Schema::time().doc("When it ended.")),
        ("updated", Schema::time().doc("When it was last observed.")),
        (
            "attempt",
            Schema::integer().doc("How many migrations of this server were seen."),
        ),
        ("progress", progress()),
        ("sourceNode", text("Node the server comes from.")),
        ("destinationNode", text("Node the server goes to.")),
    ])
    .doc("What was observed.")
}

fn progress() -> Schema {
    let count = |doc| Schema::int64().doc(doc);
    Schema::object([
        ("dataTotalBytes", count("All data.")),
        ("dataProcessedBytes", count("Data moved.")),
        ("dataRemainingBytes", count("Data left to move.")),
        ("memoryBps", count("Bytes of memory moved per second.")),
        (
            "dirtyPagesPerSecond",
            count("Pages the guest dirties per second."),
        ),
        ("pageSizeBytes", count("Size of one page.")),
        ("iteration", count("Passes over the memory.")),
        ("elapsedMs", count("How long it has taken.")),
        ("downtimeMs", count("How long the guest stands still.")),
        ("setupMs", count("How long the preparation took.")),
    ])
    .doc("The figures as numbers, for programs.")
}
