// SPDX-License-Identifier: Apache-2.0
//! The HaIncident: what the HA service does about one host, for people and their tools. It mirrors
//! the journal, which alone decides; changing or deleting one changes nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::words::open_words;

open_words! {
    /// What an incident is about.
    #[derive(Default)]
    pub enum HaIncidentType {
        #[default]
        HostDown = "host-down",
        HostRebooted = "host-rebooted",
        Isolated = "isolated",
        Hung = "hung",
        OperatorRequested = "operator-requested",
        InstanceCrashed = "instance-crashed",
    }
}

open_words! {
    /// Where an incident stands.
    pub enum HaIncidentState {
        Suspect = "Suspect",
        Confirmed = "Confirmed",
        Fencing = "Fencing",
        Fenced = "Fenced",
        Evacuating = "Evacuating",
        Recovered = "Recovered",
        Failed = "Failed",
        Releasing = "Releasing",
        Released = "Released",
        Cancelled = "Cancelled",
        Closed = "Closed",
    }
}

open_words! {
    /// Why an open incident does not go on.
    pub enum HaHeldReason {
        Paused = "Paused",
        Storm = "Storm",
        DomainLimit = "DomainLimit",
        HostsInFlight = "HostsInFlight",
        SelfIsolated = "SelfIsolated",
        WarmUp = "WarmUp",
        PlannedMaintenance = "PlannedMaintenance",
        AwaitingApproval = "AwaitingApproval",
        IdentityMismatch = "IdentityMismatch",
        FenceFailed = "FenceFailed",
        FenceLost = "FenceLost",
        NovaUnavailable = "NovaUnavailable",
        VmListIncomplete = "VmListIncomplete",
        NoCapacity = "NoCapacity",
        OperatorCleared = "OperatorCleared",
        HaDisabled = "HaDisabled",
        NotReturned = "NotReturned",
        KubernetesRefuses = "KubernetesRefuses",
    }
}

/// About which host, and who opened it. Never changes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1alpha1",
    kind = "HaIncident",
    plural = "haincidents",
    shortname = "hai",
    status = "HaIncidentStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default",
    doc = "What the HA service does about one host."
)]
#[serde(rename_all = "camelCase")]
pub struct HaIncidentSpec {
    /// The host, by the name of its Hypervisor.
    pub host: String,
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: HaIncidentType,
    /// A monitor or a person.
    pub opened_by: String,
}

/// How far it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaIncidentStatus {
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<HaIncidentState>,
    /// Why it does not go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_reason: Option<HaHeldReason>,
    /// The leadership term that wrote last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The number of the journal's latest record about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_seq: Option<i64>,
    /// What it was concluded from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<HaSnapshot>,
    /// The maintenance the host gets back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_maintenance: Option<String>,
    /// Fences that were verified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fence: Vec<HaFence>,
    /// What was intended, and what came of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<HaStep>,
    /// The guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<HaVm>,
    /// The guests, counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<HaSummary>,
    /// Conditions, keyed by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What an incident was concluded from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HaSnapshot {
    /// When.
    pub taken_at: Time,
    /// The boot that the host was last seen with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// What every group of signals said.
    pub groups: Vec<HaSignal>,
}

/// What one group of signals said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaSignal {
    /// The letter of the group.
    pub group: String,
    /// `alive`, `kernel-only`, `unknown` or `dead`.
    pub verdict: String,
    /// Milliseconds since the last sign of life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<i64>,
    /// Too many hosts died in this group together; it did not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
}

/// A fence that was verified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaFence {
    /// The level, counted from zero.
    pub level: i64,
    /// The devices of the level.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// What it proves.
    pub grade: String,
    /// When it was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
    /// When it was last seen to hold; brought up to date with other changes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_checked_at: Option<Time>,
}

/// Something that was intended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaStep {
    /// What.
    pub key: String,
    /// How many times so far.
    pub attempt: i64,
    /// When it was intended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_at: Option<Time>,
    /// When its result was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_at: Option<Time>,
    /// The result in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// More about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// One guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaVm {
    /// The server in Nova.
    pub uuid: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// 0 to 1000; higher ones come first.
    pub priority: i64,
    /// Its start group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its state before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub original_state: String,
    /// What it is to be afterwards.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wanted_power: String,
    /// Where it stands.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// How often it was asked for.
    pub attempt: i64,
    /// When it was last asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_at: Option<Time>,
    /// The migration in Nova.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_id: Option<i64>,
    /// Where it went.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination: String,
    /// The service may have locked it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// Why it stands there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Guests, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaSummary {
    /// All.
    pub total: i64,
    /// Those that run again, or are stopped again if they were.
    pub recovered: i64,
    /// Those that could not be moved.
    pub failed: i64,
    /// Those left alone.
    pub skipped: i64,
    /// Those that wait for a person.
    pub blocked: i64,
    /// Recovered and all, for tables.
    pub done: String,
}
