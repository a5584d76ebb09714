// SPDX-License-Identifier: Apache-2.0
//! When a node may be drained, when it counts as ready, and when its agents must leave. The
//! order that must hold: no taint before the host is empty, because moving servers needs the
//! agents; no drain before the host has left OpenStack and HA has let it go.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition::{
    self, Evicting, HaEnabled, Offboarded, Onboarding, Terminating,
};
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, Maintenance, labels, taints};
use cobaltcore_kit::controller::Plan;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::signal;
use crate::config::{Config, GardenerMode, HaMode};
use crate::covers::covers;
use crate::node::pods::has_offboarding_taint;
use crate::seen::{LookAtHypervisor as _, Seen, elapsed, is_terminating, node_label};

/// What is known besides the Node.
pub(crate) struct Facts {
    pub(super) hypervisor: Option<Arc<Hypervisor>>,
    pub(super) deployment: Option<Arc<Deployment>>,
    pub(super) budget: Option<Arc<PodDisruptionBudget>>,
    pub(super) now: Timestamp,
}

/// What the operator was told.
pub(crate) struct Rules {
    pub(super) mode: GardenerMode,
    pub(super) image: String,
    pub(super) ha: HaMode,
    pub(super) ha_patience: Duration,
}

impl Rules {
    pub(super) fn new(config: &Config) -> Self {
        let own = || {
            let default = concat!("ghcr.io/cobaltcore-dev/cobaltcore:v", env!("CARGO_PKG_VERSION"));
            std::env::var("COBALTCORE_IMAGE").unwrap_or_else(|_| default.to_owned())
        };
        Self {
            mode: config.gardener,
            image: Some(config.signal_image.clone())
                .filter(|image| !image.is_empty())
                .unwrap_or_else(own),
            ha: config.ha_mode,
            ha_patience: config.ha_disable_timeout.0,
        }
    }
}

/// What may be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Replace the taints of the Node.
    Taints(Value),
    /// Bring the budget in line.
    Budget(Value),
    /// Bring the deployment in line.
    Deployment(Value),
    /// Take the budget away.
    DropBudget,
    /// Take the deployment away.
    DropDeployment,
    /// Tell people.
    Tell(EventReason, String),
}

/// What of a Node is looked at.
pub(super) fn inputs(node: &Node) -> impl PartialEq + use<> {
    (
        node.metadata.labels.clone(),
        node.metadata.uid.clone(),
        is_terminating(node),
        has_offboarding_taint(node),
    )
}

/// What of a Hypervisor is looked at.
pub(super) fn mirrored(hypervisor: &Hypervisor) -> impl PartialEq + use<> {
    const READ: [HypervisorCondition; 5] = [Evicting, Onboarding, Offboarded, HaEnabled, Terminating];
    let said = READ.map(|condition| hypervisor.seen(condition).map(|seen| seen.status));
    let spec = &hypervisor.spec;
    (
        said,
        spec.maintenance.clone(),
        spec.lifecycle_enabled,
        spec.high_availability,
    )
}

/// Whether the drain may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Not yet.
    Closed,
    /// Not yet, only because HA still covers the host; for at most so long.
    AwaitingHa(Duration),
    /// Yes.
    Open,
}

/// What to do.
pub(super) fn decide(node: &Node, facts: &Facts, rules: &Rules) -> Plan<Action> {
    let managed = facts
        .hypervisor
        .as_deref()
        .filter(|hypervisor| hypervisor.spec.lifecycle_enabled && is_told(node, rules.mode));
    let Some(hypervisor) = managed else {
        return Plan::of(clean_up(node, facts));
    };
    let gate = gate(node, hypervisor, rules, facts.now);
    let (closed, onboarded) = (gate != Gate::Open, hypervisor.is_not(Onboarding));
    let mut actions = taint(node, hypervisor);
    // Closing goes from the budget to the pod, opening too: the pod must not vanish first.
    let budget = signal::budget(node, closed);
    if !is_there(facts.budget.as_deref(), &budget) {
        if !closed && facts.budget.as_deref().is_some_and(forbids) {
            let note = "The host has left OpenStack; the node may be drained".to_owned();
            actions.push(Action::Tell(EventReason::DrainAllowed, note));
        }
        actions.push(Action::Budget(budget));
    }
    let deployment = signal::deployment(node, closed, onboarded, &rules.image);
    if !is_there(facts.deployment.as_deref(), &deployment) {
        actions.push(Action::Deployment(deployment));
    }
    match gate {
        Gate::AwaitingHa(left) => Plan::of(actions).again_after(left),
        Gate::Closed | Gate::Open => Plan::of(actions),
    }
}

/// Whether Gardener is told about this node.
fn is_told(node: &Node, mode: GardenerMode) -> bool {
    let gardener = [labels::WORKER_POOL, labels::WORKER_GROUP];
    match mode {
        GardenerMode::On => true,
        GardenerMode::Off => false,
        GardenerMode::Auto => gardener.iter().any(|key| node_label(node, key).is_some()),
    }
}

/// Takes away what was left when nobody manages the host any more, so that nothing blocks a drain.
fn clean_up(node: &Node, facts: &Facts) -> Vec<Action> {
    let budget = facts.budget.is_some().then_some(Action::DropBudget);
    let deployment = facts.deployment.is_some().then_some(Action::DropDeployment);
    let taint = facts
        .hypervisor
        .as_deref()
        .filter(|hypervisor| hypervisor.spec.maintenance != Maintenance::Termination)
        .and_then(|_| without_taint(node));
    budget.into_iter().chain(deployment).chain(taint).collect()
}

/// Whether the drain of a node may go on.
pub(super) fn gate(node: &Node, hypervisor: &Hypervisor, rules: &Rules, now: Timestamp) -> Gate {
    let Some(offboarded) = hypervisor.seen(Offboarded).filter(Seen::is_true) else {
        return Gate::Closed;
    };
    let covered = rules.ha != HaMode::Off
        && hypervisor.spec.high_availability
        && hypervisor.is_not(Onboarding)
        && is_terminating(node)
        && !hypervisor.is_not(HaEnabled);
    let left = rules.ha_patience.saturating_sub(elapsed(offboarded.since, now));
    if covered && !left.is_zero() {
        Gate::AwaitingHa(left)
    } else {
        Gate::Open
    }
}

/// Whether the agents must leave, or may come back.
fn taint(node: &Node, hypervisor: &Hypervisor) -> Vec<Action> {
    let leaving = hypervisor.spec.maintenance == Maintenance::Termination;
    if leaving && hypervisor.is_not(Evicting) {
        return with_taint(node).map_or_else(Vec::new, |taints| {
            let note = "The host is empty; its agents are pushed off the node".to_owned();
            vec![taints, Action::Tell(EventReason::AgentsPushedOff, note)]
        });
    }
    // In mode ha the HA service decides what comes next, so nothing is taken back meanwhile.
    let undone = if leaving {
        hypervisor.is(Evicting)
    } else {
        hypervisor.spec.maintenance != Maintenance::Ha
    };
    if undone {
        without_taint(node).into_iter().collect()
    } else {
        Vec::new()
    }
}

fn taints_of(node: &Node) -> Vec<Taint> {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

fn with_taint(node: &Node) -> Option<Action> {
    if has_offboarding_taint(node) {
        return None;
    }
    let mut all = taints_of(node);
    all.push(Taint {
        key: taints::OFFBOARDING.key.to_owned(),
        effect: taints::OFFBOARDING.effect.into(),
        ..Taint::default()
    });
    Some(Action::Taints(json!(all)))
}

fn without_taint(node: &Node) -> Option<Action> {
    let all = taints_of(node);
    let others: Vec<&Taint> = all
        .iter()
        .filter(|taint| taint.key != taints::OFFBOARDING.key)
        .collect();
    (others.len() < all.len()).then(|| Action::Taints(json!(others)))
}

fn forbids(budget: &PodDisruptionBudget) -> bool {
    let least = budget.spec.as_ref().and_then(|spec| spec.min_available.clone());
    least == Some(IntOrString::Int(1))
}

fn is_there<K: serde::Serialize>(current: Option<&K>, wanted: &Value) -> bool {
    let Some(current) = current.and_then(|current| serde_json::to_value(current).ok()) else {
        return false;
    };
    ["metadata", "spec"]
        .iter()
        .all(|part| covers(&current[*part], &wanted[*part]))
}

#[cfg(test)]
mod tests;
