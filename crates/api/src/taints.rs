// SPDX-License-Identifier: Apache-2.0
//! Node taints that roles set or tolerate.

use crate::words::words;

words! {
    /// What a taint does to pods that do not tolerate it.
    pub enum TaintEffect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
}

/// A taint by key and effect; ours carry no fixed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    /// The key.
    pub key: &'static str,
    /// The effect.
    pub effect: TaintEffect,
}

/// Pushes the agents off a node that is leaving.
pub const OFFBOARDING: Taint = Taint {
    key: "kvm.cloud.sap/offboarding",
    effect: TaintEffect::NoExecute,
};
/// Marks a node that the HA service fenced; the value is the incident.
pub const HA_FENCED: Taint = Taint {
    key: "kvm.cloud.sap/ha-fenced",
    effect: TaintEffect::NoExecute,
};
/// Gardener's own taint while critical pods are not ready.
pub const GARDENER_CRITICAL_COMPONENTS_NOT_READY: Taint = Taint {
    key: "node.gardener.cloud/critical-components-not-ready",
    effect: TaintEffect::NoSchedule,
};
