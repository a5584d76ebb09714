// SPDX-License-Identifier: Apache-2.0
//! What becomes of the Hypervisor of a Node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition::{
    self, AgentPodsEvicted, Evicting, Offboarded, Terminating,
};
use cobaltcore_api::reasons::TerminatingReason;
use cobaltcore_api::{Hypervisor, Maintenance, annotations};
use cobaltcore_kit::controller::Plan;
use cobaltcore_kit::status::NewCondition;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::wanted::Wanted;
use super::{is_offboarding, maintenance_set_by, pods};
use crate::seen::{LookAtHypervisor as _, is_terminating, node_annotation};

/// How long to wait before pods are counted again.
const POD_POLL: Duration = Duration::from_secs(10);
/// Who set the mode when it came from the annotation of the Node.
pub(super) const FROM_NODE: &str = "node-annotation";

/// What is known besides the Node.
pub(crate) struct Facts {
    pub(super) hypervisor: Option<Arc<Hypervisor>>,
    /// Pods of agents still there, if they were asked for.
    pub(super) agent_pods: Option<Vec<String>>,
}

/// What the operator was told.
pub(crate) struct Rules {
    pub(super) inherited: Vec<String>,
    pub(super) manage_termination: bool,
    pub(super) keep_decommissioned: bool,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Bring the Hypervisor in line with its Node.
    Apply { wanted: Wanted, created: bool },
    /// Take back labels that vanished from the Node.
    DropLabels(Vec<String>),
    /// Let the Hypervisor outlive its Node.
    Release,
    /// Change the maintenance mode.
    Maintain(ModeChange),
    /// Write the conditions that follow from the Node.
    Report(Report),
}

/// A change of the maintenance mode, refused by the API if somebody else was faster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModeChange {
    pub(super) mode: Maintenance,
    pub(super) reason: Option<String>,
    pub(super) set_by: Option<&'static str>,
    /// The version the decision was made on; none for an object that was just created.
    pub(super) version: Option<String>,
    pub(super) because: &'static str,
}

impl ModeChange {
    pub(super) fn to_patch(&self) -> Value {
        let mut patch = json!({
            "metadata": {"annotations": {annotations::MAINTENANCE_SET_BY.as_str(): self.set_by}},
            "spec": {"maintenance": self.mode, "maintenanceReason": self.reason},
        });
        if let Some(version) = &self.version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        patch
    }
}

impl fmt::Display for ModeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mode {
            Maintenance::Off => write!(f, "Maintenance cleared: {}", self.because),
            mode => write!(f, "Maintenance set to {mode}: {}", self.because),
        }
    }
}

/// What follows from the Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(super) internal_ip: Option<String>,
    pub(super) conditions: Vec<NewCondition>,
}

/// What of a Node is looked at.
pub(super) fn inputs(node: &Node) -> impl PartialEq + use<> {
    let metadata = &node.metadata;
    (
        metadata.labels.clone(),
        metadata.annotations.clone(),
        metadata.uid.clone(),
        is_terminating(node),
        internal_ip(node),
        pods::has_offboarding_taint(node),
    )
}

/// What of a Hypervisor is looked at.
pub(super) fn mirrored(hypervisor: &Hypervisor) -> impl PartialEq + use<> {
    const READ: [HypervisorCondition; 4] = [Terminating, Evicting, Offboarded, AgentPodsEvicted];
    let said = READ.map(|condition| {
        let seen = hypervisor.seen(condition)?;
        Some((seen.status, seen.message.to_owned()))
    });
    let metadata = &hypervisor.metadata;
    (
        said,
        metadata.generation,
        metadata.labels.clone(),
        metadata.annotations.clone(),
        metadata.owner_references.clone(),
        metadata.deletion_timestamp.is_some(),
        hypervisor.known().internal_ip.clone(),
    )
}

/// What to do.
pub(super) fn decide(node: &Node, facts: &Facts, rules: &Rules) -> Plan<Action> {
    let Some(hypervisor) = facts.hypervisor.as_deref() else {
        return create(node, rules);
    };
    if hypervisor.metadata.deletion_timestamp.is_some() {
        // When it is gone, the next pass makes a new one if the Node is still there.
        return Plan::rest();
    }
    let outlive = rules.keep_decommissioned && hypervisor.is(Offboarded);
    let wanted = Wanted::new(node, Some(hypervisor), &rules.inherited, outlive);
    let mut actions = Vec::new();
    let stale = wanted.stale_labels(hypervisor, &rules.inherited);
    if !stale.is_empty() {
        actions.push(Action::DropLabels(stale));
    }
    if outlive
        && hypervisor
            .metadata
            .owner_references
            .iter()
            .flatten()
            .next()
            .is_some()
    {
        actions.push(Action::Release);
    }
    if !wanted.is_in(hypervisor) {
        actions.push(Action::Apply {
            wanted,
            created: false,
        });
    }
    actions.extend(mode(node, hypervisor, rules).map(Action::Maintain));
    let report = report(node, hypervisor, facts);
    let waiting = facts.agent_pods.as_ref().is_some_and(|pods| !pods.is_empty());
    actions.push(Action::Report(report));
    let plan = Plan::of(actions);
    if waiting { plan.again_after(POD_POLL) } else { plan }
}

fn create(node: &Node, rules: &Rules) -> Plan<Action> {
    let apply = Action::Apply {
        wanted: Wanted::new(node, None, &rules.inherited, false),
        created: true,
    };
    let terminate =
        (is_terminating(node) && rules.manage_termination).then_some(Action::Maintain(ModeChange {
            mode: Maintenance::Termination,
            reason: None,
            set_by: None,
            version: None,
            because: "the node is terminating",
        }));
    Plan::of([apply].into_iter().chain(terminate).collect())
}

/// Whether the maintenance mode must follow the Node.
fn mode(node: &Node, hypervisor: &Hypervisor, rules: &Rules) -> Option<ModeChange> {
    let current = &hypervisor.spec.maintenance;
    let change = |mode, reason, set_by, because| {
        let version = hypervisor.metadata.resource_version.clone();
        Some(ModeChange {
            mode,
            reason,
            set_by,
            version,
            because,
        })
    };
    if matches!(current, Maintenance::Termination | Maintenance::Ha) {
        return None;
    }
    if is_terminating(node) && rules.manage_termination && hypervisor.spec.lifecycle_enabled {
        return change(Maintenance::Termination, None, None, "the node is terminating");
    }
    let ours = maintenance_set_by(hypervisor) == Some(FROM_NODE);
    match requested(node) {
        Some((mode, reason)) if current.is_off() || ours => {
            let same = *current == mode && hypervisor.spec.maintenance_reason == reason;
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            if same {
                None
            } else {
                change(mode, reason, Some(FROM_NODE), "the node's annotation asks for it")
            }
        }
        None if ours => change(Maintenance::Off, None, None, "the node's annotation is gone"),
        _ => None,
    }
}

/// The mode that the Node asks for.
fn requested(node: &Node) -> Option<(Maintenance, String)> {
    let text = node_annotation(node, annotations::MAINTENANCE)?.trim();
    match text.split_once(':') {
        None if text == "auto" => Some((Maintenance::Auto, String::new())),
        Some(("manual", reason)) if !reason.trim().is_empty() => {
            Some((Maintenance::Manual, reason.trim().to_owned()))
        }
        _ => None,
    }
}

fn report(node: &Node, hypervisor: &Hypervisor, facts: &Facts) -> Report {
    let gone = hypervisor.is(Terminating) && is_offboarding(hypervisor);
    let terminating = if is_terminating(node) || gone {
        NewCondition::yes(Terminating, TerminatingReason::Terminating, "Node is terminating")
    } else {
        NewCondition::no(
            Terminating,
            TerminatingReason::NotTerminating,
            "Node is not terminating",
        )
    };
    let pods = facts.agent_pods.as_deref().map(pods::evicted);
    let known = Some(hypervisor.known().internal_ip.clone()).filter(|ip| !ip.is_empty());
    Report {
        internal_ip: internal_ip(node).or(known),
        conditions: [terminating].into_iter().chain(pods).collect(),
    }
}

/// The first internal address, so that two families do not alternate.
fn internal_ip(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP")?;
    Some(internal.address.clone())
}

#[cfg(test)]
mod tests;
