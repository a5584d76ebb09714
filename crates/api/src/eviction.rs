// SPDX-License-Identifier: Apache-2.0
//! The Eviction: a request to empty one hypervisor, and the record of how far it got.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::words::open_words;

open_words! {
    /// Whether the host goes back into scheduling after the eviction.
    #[derive(Default)]
    pub enum ReEnable {
        /// Yes after planned work, never while the host terminates or is in HA.
        #[default]
        Auto = "Auto",
        /// Yes.
        Always = "Always",
        /// No.
        Never = "Never",
    }
}

open_words! {
    /// The state of an eviction in one word; the node agent waits for `Succeeded`.
    pub enum EvictionState {
        Pending = "Pending",
        Running = "Running",
        Failed = "Failed",
        Succeeded = "Succeeded",
    }
}

open_words! {
    /// How a server is moved.
    pub enum MoveKind {
        Live = "live",
        Cold = "cold",
        Evacuate = "evacuate",
    }
}

/// What is to be emptied, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1",
    kind = "Eviction",
    plural = "evictions",
    shortname = "evi",
    status = "EvictionStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default",
    doc = "A request to empty one hypervisor."
)]
#[serde(rename_all = "camelCase")]
pub struct EvictionSpec {
    /// The hypervisor to empty; cannot change.
    pub hypervisor: String,
    /// Why.
    pub reason: String,
    /// Move only these servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
    /// How many servers may move at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<i64>,
    /// How long one migration may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_timeout_seconds: Option<i64>,
    /// How often one server is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// Shut a running server down to move it; absent means no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cold_for_running: Option<bool>,
    /// Whether the host goes back into scheduling; absent means [`ReEnable::Auto`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub re_enable: Option<ReEnable>,
}

/// How far an eviction got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionStatus {
    /// The UUID of the *hypervisor* in Nova, despite the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypervisor_service_id: String,
    /// Memory still to move.
    pub outstanding_ram_mb: i64,
    /// Servers still to move; the last one is next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outstanding_instances: Vec<String>,
    /// Conditions, keyed by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_state: Option<EvictionState>,
    /// Servers found on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_instances: Option<i64>,
    /// Servers that have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrated_instances: Option<i64>,
    /// Servers that could not be moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_instances: Option<i64>,
    /// When the work began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the work ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// Moves under way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlightMigration>,
    /// Servers given up on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub non_migratable_instances: Vec<NonMigratableInstance>,
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlightMigration {
    /// The server.
    pub id: String,
    /// Which attempt this is.
    #[serde(default)]
    pub attempt: i64,
    /// How it is moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MoveKind>,
    /// The migration in Nova.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub migration_id: String,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// A server given up on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NonMigratableInstance {
    /// The server.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why it cannot move.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How often it was tried.
    #[serde(default)]
    pub attempts: i64,
    /// What the last attempt answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
