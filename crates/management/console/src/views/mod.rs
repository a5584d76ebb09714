// SPDX-License-Identifier: Apache-2.0
//! What a page says, worked out from what is known. Pure: a view is made from [`Known`] and a
//! moment, holds plain texts and numbers, and renders itself. Rights and requests are the
//! business of [`crate::site`].
//!
//! [`Known`]: crate::fleet::Known

pub mod activity;
pub mod capacity;
pub mod evictions;
pub mod host;
pub mod hosts;
pub mod incidents;
pub mod migrations;
pub mod next;
pub mod order;
pub mod simulation;
pub mod tiles;
pub mod timeline;

use cobaltcore_api::ResourceMap;
use cobaltcore_api::{Hypervisor, format};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// How something is doing, for colour and for those who do not see colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Being worked on.
    Busy,
    /// Out of use on purpose.
    Off,
    /// Somebody should look.
    Warn,
    /// Broken.
    Bad,
}

impl Tone {
    /// The style sheet's word.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// The lifecycle phase of a host in words; hosts that nobody looks after have none.
pub(crate) fn phase(hypervisor: &Hypervisor) -> &'static str {
    let status = hypervisor.status.as_ref();
    status
        .and_then(|status| status.phase)
        .map_or("Unknown", |phase| phase.as_str())
}

/// How hosts of a phase are doing.
pub(crate) fn tone_of_phase(phase: &str) -> Tone {
    match phase {
        "Active" => Tone::Good,
        "Initial" | "Onboarding" | "Testing" | "Ready" | "Evicting" => Tone::Busy,
        "Maintenance" | "Decommissioned" => Tone::Off,
        "Aborted" => Tone::Bad,
        _ => Tone::Warn,
    }
}

/// How a host is doing: its phase, unless a condition says worse.
pub(crate) fn tone(hypervisor: &Hypervisor) -> Tone {
    let by_phase = tone_of_phase(phase(hypervisor));
    let is = |type_: &str, status: &str| condition(hypervisor, type_).is_some_and(|c| c.status == status);
    if is("NodeReady", "False") || is("LibVirtConnection", "False") || is("HaRecovery", "True") {
        return Tone::Bad;
    }
    if by_phase == Tone::Good && (is("Ready", "False") || is("Tainted", "True") || is("NodePressure", "True"))
    {
        return Tone::Warn;
    }
    by_phase
}

/// Conditions for which `True` is bad news.
const BAD_WHEN_TRUE: [&str; 4] = ["Tainted", "NodePressure", "HaRecovery", "Terminating"];
/// Conditions that only say what is going on.
const NEUTRAL: [&str; 5] = [
    "Onboarding",
    "Evicting",
    "HypervisorDisabled",
    "Offboarded",
    "OperatingSystemUpdate",
];

/// How a condition with this status is for its host.
pub(crate) fn tone_of_condition(type_: &str, status: &str) -> Tone {
    match status {
        "True" if BAD_WHEN_TRUE.contains(&type_) => Tone::Warn,
        "True" if NEUTRAL.contains(&type_) => Tone::Busy,
        "True" => Tone::Good,
        "False" if BAD_WHEN_TRUE.contains(&type_) || NEUTRAL.contains(&type_) => Tone::Good,
        "False" => Tone::Warn,
        _ => Tone::Off,
    }
}

/// A condition of a host.
pub(crate) fn condition<'a>(hypervisor: &'a Hypervisor, type_: &str) -> Option<&'a Condition> {
    hypervisor
        .status
        .as_ref()?
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// A label of a host, or a dash.
pub(crate) fn label(hypervisor: &Hypervisor, key: cobaltcore_api::Key) -> String {
    let labels = hypervisor.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key.as_str()))
        .cloned()
        .unwrap_or_else(|| "–".into())
}

/// Used and available amounts of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What guests have taken.
    pub used: i128,
    /// What may be handed out.
    pub total: i128,
}

impl Share {
    pub(crate) fn of(
        resource: &str,
        used: &ResourceMap,
        effective: &ResourceMap,
        physical: &ResourceMap,
    ) -> Self {
        let amount = |map: &ResourceMap| map.get(resource).and_then(cobaltcore_api::Quantity::value);
        Self {
            used: amount(used).unwrap_or_default().max(0),
            total: amount(effective)
                .or_else(|| amount(physical))
                .unwrap_or_default()
                .max(0),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            used: self.used + other.used,
            total: self.total + other.total,
        }
    }

    /// In percent; overbooked hosts show more than a hundred.
    pub fn percent(self) -> i64 {
        if self.total == 0 {
            return 0;
        }
        i64::try_from((self.used * 100 + self.total / 2) / self.total).unwrap_or(i64::MAX)
    }

    /// `12 of 64`.
    pub fn counts(self) -> String {
        format!("{} of {}", self.used, self.total)
    }

    /// `12.0 GiB of 64.0 GiB`.
    pub fn bytes(self) -> String {
        format!("{} of {}", bytes(self.used), bytes(self.total))
    }
}

/// The resources of a host: processors, then memory.
pub(crate) fn shares(hypervisor: &Hypervisor) -> (Share, Share) {
    let Some(status) = &hypervisor.status else {
        return (Share::default(), Share::default());
    };
    let of = |name| {
        Share::of(
            name,
            &status.allocation,
            &status.effective_capacity,
            &status.capacity,
        )
    };
    (of("cpu"), of("memory"))
}

/// Bytes as people read them.
pub(crate) fn bytes(count: i128) -> String {
    format::bytes(u64::try_from(count.max(0)).unwrap_or(u64::MAX))
}

/// How long ago, in the style of kubectl.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    span(now.as_second().saturating_sub(then.as_second()))
}

/// Seconds in the style of kubectl: two units while they are small.
pub(crate) fn span(seconds: i64) -> String {
    match seconds {
        ..0 => "now".into(),
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..7200 => format!("{}m", seconds / 60),
        7200..86400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        86400..604_800 => format!("{}d{}h", seconds / 86400, seconds / 3600 % 24),
        _ => format!("{}d", seconds / 86400),
    }
}

/// A moment as a machine and a person read it, to the second.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
pub(crate) mod samples {
    use cobaltcore_api::Hypervisor;
    use serde_json::{Value, json};

    /// A host with a status, for the tests of views.
    pub(crate) fn host(name: &str, zone: &str, block: &str, status: &Value) -> Hypervisor {
        serde_json::from_value(json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": name, "labels": {
                "topology.kubernetes.io/zone": zone, "kubernetes.metal.cloud.sap/bb": block}},
            "spec": {}, "status": status,
        }))
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_outweighs_the_phase() {
        let at = "2026-01-01T00:00:00Z";
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": at});
        let table = [
            (json!({"phase": "Active"}), Tone::Good),
            (
                json!({"phase": "Active", "conditions": [condition("Ready", "False")]}),
                Tone::Warn,
            ),
            (
                json!({"phase": "Active", "conditions": [condition("LibVirtConnection", "False")]}),
                Tone::Bad,
            ),
            (
                json!({"phase": "Maintenance", "conditions": [condition("Ready", "False")]}),
                Tone::Off,
            ),
            (
                json!({"phase": "Maintenance", "conditions": [condition("HaRecovery", "True")]}),
                Tone::Bad,
            ),
            (json!({"phase": "Aborted"}), Tone::Bad),
            (json!({}), Tone::Warn),
        ];
        for (status, wanted) in table {
            assert_eq!(tone(&samples::host("a", "z", "b", &status)), wanted, "{status}");
        }
    }

    #[test]
    fn shares_prefer_what_may_be_handed_out() {
        let host = samples::host(
            "a",
            "z",
            "b",
            &json!({
                "allocation": {"cpu": "96", "memory": "64Gi"},
                "capacity": {"cpu": "64", "memory": "128Gi"},
                "effectiveCapacity": {"cpu": "128"},
            }),
        );
        let (cpu, memory) = shares(&host);
        assert_eq!((cpu.percent(), memory.percent()), (75, 50));
        assert_eq!(cpu.counts(), "96 of 128");
        assert_eq!(memory.bytes(), "64.0 GiB of 128.0 GiB");
        assert_eq!(Share::default().percent(), 0);
    }

    #[test]
    fn ages_read_like_those_of_kubectl() {
        let table = [
            (-1, "now"),
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3700, "61m"),
            (7260, "2h1m"),
            (90_000, "1d1h"),
            (864_000, "10d"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(seconds), text);
        }
    }
}
