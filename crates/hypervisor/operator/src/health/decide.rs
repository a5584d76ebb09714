// SPDX-License-Identifier: Apache-2.0
//! What the health of a node comes to.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition::{self, NodePressure, NodeReady, Onboarding};
use cobaltcore_api::conditions::NodeCondition;
use cobaltcore_api::reasons::{EventReason, NodePressureReason, NodeReadyReason, OnboardingReason};
use cobaltcore_api::{Hypervisor, Maintenance};
use cobaltcore_kit::controller::Plan;
use cobaltcore_kit::status::{ConditionStatus, NewCondition};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::holds;
use crate::config::Share;
use crate::node::maintenance_set_by;
use crate::seen::{LookAtHypervisor as _, Seen, elapsed, node_condition};

/// Who set the mode when it was this controller.
pub(super) const BY_NODE_HEALTH: &str = "node-health";
/// How long a node must be well before anything is undone.
const CALM: Duration = Duration::from_mins(5);
/// How often a node that stays unhealthy is looked at.
const AGAIN: Duration = Duration::from_secs(30);
/// More of a zone than this, in percent, is not the hosts' fault.
const BRAKE_PERCENT: usize = 30;

/// What is known besides the Node.
pub(crate) struct Facts {
    pub(super) hypervisor: Option<Arc<Hypervisor>>,
    pub(super) zone: Zone,
    /// Whether the compute service is up; nothing when nobody could tell.
    pub(super) compute_up: Option<bool>,
    pub(super) now: Timestamp,
}

/// The hypervisor nodes of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) all: usize,
    pub(super) unhealthy: usize,
    /// Put into maintenance for their health.
    pub(super) reacting: usize,
}

impl Zone {
    /// Whether too many are unhealthy for it to be their own fault.
    pub(super) fn brakes(self) -> bool {
        self.unhealthy * 100 > self.all * BRAKE_PERCENT
    }
}

/// What the operator was told.
pub(crate) struct Rules {
    pub(super) timeout: Duration,
    pub(super) most: Share,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write the conditions that mirror the Node.
    Report(Vec<NewCondition>),
    /// Warn people.
    Tell(EventReason, String),
    /// Move the servers away.
    Maintain,
    /// End what was begun.
    Recover,
}

/// What of a Node is looked at.
pub(super) fn inputs(node: &Node) -> impl PartialEq + use<> {
    const READ: [NodeCondition; 3] = [
        NodeCondition::Ready,
        NodeCondition::DiskPressure,
        NodeCondition::MemoryPressure,
    ];
    (
        READ.map(|condition| node_condition(node, condition)),
        node.metadata.labels.clone(),
    )
}

/// What of a Hypervisor is looked at.
pub(super) fn mirrored(hypervisor: &Hypervisor) -> impl PartialEq + use<> {
    const READ: [HypervisorCondition; 3] = [NodeReady, NodePressure, Onboarding];
    let said = READ.map(|condition| {
        let seen = hypervisor.seen(condition)?;
        Some((seen.status, seen.reason.to_owned()))
    });
    (
        said,
        hypervisor.spec.maintenance.clone(),
        maintenance_set_by(hypervisor).map(str::to_owned),
        hypervisor.status.is_some(),
    )
}

/// Whether the kubelet says the node is ready. A node that never said anything is not unhealthy,
/// it is new.
pub(super) fn is_healthy(node: &Node) -> bool {
    !matches!(
        node_condition(node, NodeCondition::Ready),
        Some((ConditionStatus::False | ConditionStatus::Unknown, _))
    )
}

/// For how long the node has been what it is.
fn lasted(node: &Node, condition: NodeCondition, now: Timestamp) -> Duration {
    let since = node_condition(node, condition).and_then(|(_, since)| since);
    since.map_or(Duration::ZERO, |since| elapsed(since, now))
}

/// What to do.
pub(super) fn decide(node: &Node, facts: &Facts, rules: &Rules) -> Plan<Action> {
    let Some(hypervisor) = facts.hypervisor.as_deref() else {
        return Plan::rest();
    };
    let (pressure, wait) = pressure(node, hypervisor, facts.now);
    let mut actions = Vec::new();
    if pressure_begins(node, hypervisor) {
        let note = "The node is short of resources: no new servers are placed on it".to_owned();
        actions.push(Action::Tell(EventReason::NodePressure, note));
    }
    actions.push(Action::Report(
        ready(node).into_iter().chain([pressure]).collect(),
    ));
    let reaction = if is_healthy(node) {
        recovery(node, hypervisor, facts.now)
    } else {
        trouble(node, hypervisor, facts, rules)
    };
    actions.extend(reaction.actions);
    let waits = [wait, reaction.again].into_iter().flatten().min();
    let plan = Plan::of(actions);
    match waits {
        Some(wait) => plan.again_after(wait),
        None => plan,
    }
}

/// The node's readiness as the Hypervisor shows it.
fn ready(node: &Node) -> Option<NewCondition> {
    let (status, _) = node_condition(node, NodeCondition::Ready)?;
    Some(match status {
        ConditionStatus::True => NewCondition::yes(NodeReady, NodeReadyReason::Ready, ""),
        ConditionStatus::False => NewCondition::no(
            NodeReady,
            NodeReadyReason::NotReady,
            "The kubelet says it is not ready",
        ),
        ConditionStatus::Unknown => NewCondition::no(
            NodeReady,
            NodeReadyReason::Unreachable,
            "The kubelet does not report",
        ),
    })
}

const PRESSURES: [(NodeCondition, NodePressureReason); 2] = [
    (NodeCondition::DiskPressure, NodePressureReason::DiskPressure),
    (NodeCondition::MemoryPressure, NodePressureReason::MemoryPressure),
];

fn pressure_begins(node: &Node, hypervisor: &Hypervisor) -> bool {
    let now = PRESSURES.iter().any(|(condition, _)| holds(node, *condition));
    now && !hypervisor.is(NodePressure)
}

/// The node's pressure, held for a while after it ended; and when to look again.
fn pressure(node: &Node, hypervisor: &Hypervisor, now: Timestamp) -> (NewCondition, Option<Duration>) {
    let said = |reason: NodePressureReason, tail: &str| {
        NewCondition::yes(NodePressure, reason, format!("node condition {reason}{tail}"))
    };
    let held = PRESSURES.iter().find(|(condition, _)| holds(node, *condition));
    if let Some((_, reason)) = held {
        return (said(*reason, ""), None);
    }
    let before = hypervisor.seen(NodePressure).filter(Seen::is_true);
    let recovering = before.and_then(|before| {
        let same = |(_, reason): &&(NodeCondition, NodePressureReason)| reason.as_str() == before.reason;
        let (condition, reason) = PRESSURES.iter().find(same)?;
        let left = CALM.saturating_sub(lasted(node, *condition, now));
        (!left.is_zero()).then_some((*reason, left))
    });
    if let Some((reason, left)) = recovering {
        return (said(reason, " ended a moment ago"), Some(left));
    }
    (
        NewCondition::no(NodePressure, NodePressureReason::NoPressure, ""),
        None,
    )
}

/// What a judgement comes to besides the mirror.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reaction {
    actions: Vec<Action>,
    again: Option<Duration>,
}

impl Reaction {
    fn act(action: Action) -> Self {
        Self {
            actions: vec![action],
            again: None,
        }
    }

    fn wait(again: Duration) -> Self {
        Self {
            actions: Vec::new(),
            again: Some(again),
        }
    }

    fn tell(reason: EventReason, note: String) -> Self {
        Self {
            actions: vec![Action::Tell(reason, note)],
            again: Some(AGAIN),
        }
    }
}

/// Whether what was begun for the node's health can end.
fn recovery(node: &Node, hypervisor: &Hypervisor, now: Timestamp) -> Reaction {
    let ours = maintenance_set_by(hypervisor) == Some(BY_NODE_HEALTH);
    if !ours || hypervisor.spec.maintenance != Maintenance::Auto {
        return Reaction::default();
    }
    let left = CALM.saturating_sub(lasted(node, NodeCondition::Ready, now));
    if left.is_zero() {
        Reaction::act(Action::Recover)
    } else {
        Reaction::wait(left)
    }
}

/// Whether a host is in use and nobody has taken it already.
fn is_in_use(hypervisor: &Hypervisor) -> bool {
    hypervisor.spec.lifecycle_enabled
        && hypervisor.spec.maintenance.is_off()
        && hypervisor.onboarding() == Some((false, OnboardingReason::Succeeded))
}

/// Whether everything else allows a reaction, so that the compute service decides.
pub(super) fn depends_on_compute(node: &Node, facts: &Facts, rules: &Rules) -> bool {
    let Some(hypervisor) = facts.hypervisor.as_deref() else {
        return false;
    };
    !is_healthy(node)
        && is_in_use(hypervisor)
        && !rules.timeout.is_zero()
        && lasted(node, NodeCondition::Ready, facts.now) >= rules.timeout
        && !facts.zone.brakes()
        && facts.zone.reacting < rules.most.of(facts.zone.all)
}

/// What a node that is not ready comes to.
fn trouble(node: &Node, hypervisor: &Hypervisor, facts: &Facts, rules: &Rules) -> Reaction {
    if rules.timeout.is_zero() || !is_in_use(hypervisor) {
        return Reaction::default();
    }
    let left = rules
        .timeout
        .saturating_sub(lasted(node, NodeCondition::Ready, facts.now));
    if !left.is_zero() {
        return Reaction::wait(left);
    }
    let Zone {
        all,
        unhealthy,
        reacting,
    } = facts.zone;
    if facts.zone.brakes() {
        let note = format!("{unhealthy} of {all} nodes of the zone are unhealthy: nothing is moved");
        return Reaction::tell(EventReason::NodeHealthBrake, note);
    }
    if reacting >= rules.most.of(all) {
        let note = format!("{reacting} hosts of the zone are being emptied already: this one waits");
        return Reaction::tell(EventReason::NodeHealthBrake, note);
    }
    match facts.compute_up {
        Some(true) => Reaction::act(Action::Maintain),
        Some(false) => {
            let note = "The node and its compute service are down: the HA service decides".to_owned();
            Reaction::tell(EventReason::HostDown, note)
        }
        None => {
            let note = "The node is unhealthy and Nova cannot be asked: nothing is moved".to_owned();
            Reaction::tell(EventReason::NodeUnhealthy, note)
        }
    }
}

#[cfg(test)]
mod tests;
