// SPDX-License-Identifier: Apache-2.0
//! The Migration: what the node agents observe while a server moves, named by the server's
//! UUID. Nothing is requested here, so the spec is empty.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::words::open_words;

open_words! {
    /// The type of a libvirt job.
    pub enum JobType {
        Bounded = "bounded",
        Unbounded = "unbounded",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

open_words! {
    /// The operation of a libvirt job.
    pub enum JobOperation {
        Unknown = "unknown",
        Start = "start",
        Save = "save",
        Restore = "restore",
        MigrationIn = "migration_in",
        MigrationOut = "migration_out",
        Snapshot = "snapshot",
        SnapshotRevert = "snapshot_revert",
        Dump = "dump",
        Backup = "backup",
        SnapshotDelete = "snapshot_delete",
    }
}

open_words! {
    /// The state of a migration in one word.
    pub enum MigrationPhase {
        Preparing = "Preparing",
        Running = "Running",
        Completed = "Completed",
        Failed = "Failed",
        Cancelled = "Cancelled",
        Unknown = "Unknown",
    }
}

/// Empty: a migration is observed, never requested.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1alpha1",
    kind = "Migration",
    plural = "migrations",
    shortname = "migr",
    namespaced,
    status = "MigrationStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default",
    doc = "What is observed while a server moves."
)]
pub struct MigrationSpec {}

/// What was observed. Texts follow [`crate::format`]; programs read `phase` and `progress`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationStatus {
    /// Where the server came from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// Where the server goes to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination: String,
    /// The type of the libvirt job.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<JobType>,
    /// The operation of the libvirt job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<JobOperation>,
    /// When it started, by the clock of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// How long it has taken.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time_elapsed: String,
    /// How long it may still take.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time_remaining: String,
    /// How long the guest stands still.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub downtime: String,
    /// How long the preparation took.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub setup_time: String,
    /// All data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data_total: String,
    /// Data moved.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data_processed: String,
    /// Data left.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data_remaining: String,
    /// All memory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_total: String,
    /// Memory moved.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_processed: String,
    /// Memory left.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_remaining: String,
    /// Memory per second.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_bps: String,
    /// Pages of one repeated byte.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_constant: u64,
    /// Pages sent in full.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_normal: u64,
    /// Bytes sent in full pages.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_normal_bytes: String,
    /// Pages dirtied per second.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_dirty_rate: String,
    /// Passes over the memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_iteration: u64,
    /// Pages the destination asked for.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_postcopy_requests: u64,
    /// The size of a page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_page_size: String,
    /// All disk.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk_total: String,
    /// Disk moved.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk_processed: String,
    /// Disk left.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk_remaining: String,
    /// Disk per second.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk_bps: String,
    /// How much the guest is slowed down.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub auto_converge_throttle: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub err_msg: String,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MigrationPhase>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// When it was last observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Time>,
    /// How many migrations of this server were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// The figures as numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// The source as a Node name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_node: String,
    /// The destination as a Node name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination_node: String,
}

/// The figures of a migration as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationProgress {
    /// All data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_total_bytes: Option<i64>,
    /// Data moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_processed_bytes: Option<i64>,
    /// Data left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_remaining_bytes: Option<i64>,
    /// Memory bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bps: Option<i64>,
    /// Pages dirtied per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_pages_per_second: Option<i64>,
    /// The size of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size_bytes: Option<i64>,
    /// Passes over the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<i64>,
    /// How long it has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<i64>,
    /// How long the guest stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<i64>,
    /// How long the preparation took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_ms: Option<i64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
