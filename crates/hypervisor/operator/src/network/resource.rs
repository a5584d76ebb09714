// SPDX-License-Identifier: Apache-2.0
//! The OVSNode of the network agent, as much of it as is read here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What an OVSNode is about; nothing of it is read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ovs.c5c3.io",
    version = "v1alpha1",
    kind = "OVSNode",
    plural = "ovsnodes",
    namespaced,
    status = "OvsNodeStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "Open vSwitch on one node, as its agent reports it."
)]
pub struct OvsNodeSpec {}

/// What the agent reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvsNodeStatus {
    /// The bridges it found and those it expected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<Bridge>,
    /// Conditions; `Ready` is the one that counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One bridge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// `Active`, `Degraded`, `Down` or `Missing`.
    pub status: String,
    /// Why it is not active.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}
