// SPDX-License-Identifier: Apache-2.0
//! Short ways to read a Hypervisor, a Node or an Eviction. Absent conditions are their own
//! answer everywhere: nobody said anything is neither yes nor no.

use std::time::Duration;

use cobaltcore_api::conditions::{EvictionCondition, HypervisorCondition, NodeCondition};
use cobaltcore_api::reasons::OnboardingReason;
use cobaltcore_api::{Eviction, Hypervisor, HypervisorStatus};
use cobaltcore_kit::status::{ConditionStatus, find};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Whether the aspect holds.
    pub status: ConditionStatus,
    /// One word for programs.
    pub reason: &'a str,
    /// One sentence for people.
    pub message: &'a str,
    /// Since when the status is what it is.
    pub since: Timestamp,
}

impl<'a> Seen<'a> {
    fn new(condition: &'a Condition) -> Self {
        Self {
            status: status(&condition.status),
            reason: &condition.reason,
            message: &condition.message,
            since: condition.last_transition_time.0,
        }
    }

    /// Whether the aspect holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether the aspect does not hold.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }
}

fn status(text: &str) -> ConditionStatus {
    match text {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    }
}

static NOTHING: std::sync::LazyLock<HypervisorStatus> = std::sync::LazyLock::new(HypervisorStatus::default);

/// Reading a Hypervisor.
pub trait LookAtHypervisor {
    /// The status, empty if there is none yet.
    fn known(&self) -> &HypervisorStatus;
    /// What a condition says, if it is there.
    fn seen(&self, condition: HypervisorCondition) -> Option<Seen<'_>>;
    /// Whether a condition is there and true.
    fn is(&self, condition: HypervisorCondition) -> bool;
    /// Whether a condition is there and false.
    fn is_not(&self, condition: HypervisorCondition) -> bool;
    /// The reason of `Onboarding`, if it is there and known.
    fn onboarding(&self) -> Option<(bool, OnboardingReason)>;
    /// A label.
    fn label(&self, key: impl AsRef<str>) -> Option<&str>;
    /// Whether Nova knows the host: both identifiers are there.
    fn is_registered(&self) -> bool;
}

impl LookAtHypervisor for Hypervisor {
    fn known(&self) -> &HypervisorStatus {
        self.status.as_ref().unwrap_or(&NOTHING)
    }

    fn seen(&self, condition: HypervisorCondition) -> Option<Seen<'_>> {
        find(&self.known().conditions, condition).map(Seen::new)
    }

    fn is(&self, condition: HypervisorCondition) -> bool {
        self.seen(condition).is_some_and(|seen| seen.is_true())
    }

    fn is_not(&self, condition: HypervisorCondition) -> bool {
        self.seen(condition).is_some_and(|seen| seen.is_false())
    }

    fn onboarding(&self) -> Option<(bool, OnboardingReason)> {
        let seen = self.seen(HypervisorCondition::Onboarding)?;
        Some((seen.is_true(), OnboardingReason::parse(seen.reason)?))
    }

    fn label(&self, key: impl AsRef<str>) -> Option<&str> {
        self.metadata
            .labels
            .as_ref()?
            .get(key.as_ref())
            .map(String::as_str)
    }

    fn is_registered(&self) -> bool {
        let status = self.known();
        !status.hypervisor_id.is_empty() && !status.service_id.is_empty()
    }
}

/// What a condition of an Eviction says, if it is there.
pub fn eviction_condition(eviction: &Eviction, condition: EvictionCondition) -> Option<Seen<'_>> {
    let status = eviction.status.as_ref()?;
    find(&status.conditions, condition).map(Seen::new)
}

/// What a condition of a Node says: its status and since when.
pub fn node_condition(node: &Node, condition: NodeCondition) -> Option<(ConditionStatus, Option<Timestamp>)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|c| c.type_ == condition.as_str())?;
    let since = found.last_transition_time.as_ref().map(|time| time.0);
    Some((status(&found.status), since))
}

/// Whether a Node is about to go away.
pub fn is_terminating(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
        || matches!(
            node_condition(node, NodeCondition::Terminating),
            Some((ConditionStatus::True, _))
        )
}

/// A label of a Node.
pub fn node_label(node: &Node, key: impl AsRef<str>) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key.as_ref()).map(String::as_str)
}

/// An annotation of a Node.
pub fn node_annotation(node: &Node, key: impl AsRef<str>) -> Option<&str> {
    let annotations = node.metadata.annotations.as_ref()?;
    annotations.get(key.as_ref()).map(String::as_str)
}

/// How long it is from `since` to `now`; nothing when the clocks disagree.
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
