// SPDX-License-Identifier: Apache-2.0
//! The judgement on one host's maintenance: whether its compute service is in or out of
//! scheduling, and whether an Eviction has to exist. This controller alone changes the service
//! after onboarding, so every wish that touches it (maintenance, standalone evictions, node
//! pressure) meets here in one order of precedence.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::{EvictingReason, HypervisorDisabledReason};
use cobaltcore_kit::controller::Next;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::eviction::{Claim, Service};
use crate::look::{Says, Statements, age, message, reason, says, since};

/// The conditions this controller writes on a Hypervisor.
pub(super) const OWN: &[HypervisorCondition] = &[
    HypervisorCondition::HypervisorDisabled,
    HypervisorCondition::Evicting,
];
/// What every reason begins with that the operator or the HA service gave.
const OURS: &str = "Hypervisor CRD: ";
const DISABLED: &str = "Hypervisor is disabled";
/// How far the clocks of the API server and of this process may be apart.
const SKEW: Duration = Duration::from_secs(2);
/// While an eviction is replaced or deleted.
const SOON: Duration = Duration::from_secs(2);

/// An Eviction named like the host.
#[derive(Clone, Debug)]
pub struct Own {
    /// When it was made.
    pub created: Timestamp,
    /// Whether this host's maintenance controls it.
    pub controlled: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What its `Evicting` says.
    pub evicting: Says,
    /// The reason of that.
    pub reason: String,
    /// The message of that.
    pub message: String,
}

/// What a standalone Eviction wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The text for Nova.
    pub disabled_reason: String,
    /// What it wants.
    pub claim: Claim,
}

/// Everything a decision is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// The mode.
    pub mode: Maintenance,
    /// Why, if a person asked.
    pub mode_reason: String,
    /// The Hypervisor's conditions.
    pub conditions: Vec<Condition>,
    /// Whether the host was reported empty.
    pub evicted: bool,
    /// Whether Nova has a service for it.
    pub registered: bool,
    /// The service; nothing when Nova was not asked or did not answer.
    pub service: Option<Service>,
    /// The Eviction named like the host.
    pub own: Option<Own>,
    /// What standalone Evictions want.
    pub wishes: Vec<Wish>,
    /// The node condition that asks for no new servers.
    pub pressure: Option<String>,
    /// How many servers Nova lists, if that was asked.
    pub servers: Option<usize>,
    /// How often emptiness is verified.
    pub verify: Duration,
    /// How often the service is verified.
    pub drift: Duration,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put the service into scheduling and clear `forced_down`.
    Enable,
    /// Take it out, for this reason.
    Disable(String),
    /// Write the report.
    Report,
    /// Make the Eviction.
    CreateEviction,
    /// Remove the Eviction.
    DeleteEviction,
    /// Make a running Eviction ours.
    AdoptEviction,
    /// Tell people.
    Tell(Word),
}

/// Something people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The host goes into maintenance.
    Entered(String),
    /// The host comes out of maintenance.
    Left,
    /// The service was not as it should be.
    Drift(String),
    /// Somebody else holds the service.
    Foreign(String),
    /// An empty host is not empty any more.
    Refilled(usize),
}

/// What a decision comes to.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The conditions.
    pub conditions: Statements,
    /// Whether the host is empty.
    pub evicted: bool,
    /// When to look again.
    pub next: Next,
}

/// What the service should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Somebody else's business.
    HandsOff,
    /// In scheduling.
    Enabled,
    /// Out of scheduling.
    Disabled {
        /// The text for Nova.
        reason: String,
        /// The reason of the condition.
        why: HypervisorDisabledReason,
    },
}

/// The one order of precedence: mode, standalone evictions, node pressure.
pub fn wanted(mode: &Maintenance, wishes: &[Wish], pressure: Option<&str>) -> Wanted {
    match mode {
        Maintenance::Ha | Maintenance::Other(_) => return Wanted::HandsOff,
        Maintenance::Manual | Maintenance::Auto | Maintenance::Termination => {
            return Wanted::Disabled {
                reason: format!("{OURS}spec.maintenance={mode}"),
                why: HypervisorDisabledReason::Succeeded,
            };
        }
        Maintenance::Off => {}
    }
    if let Some(wish) = wishes.iter().find(|wish| wish.claim == Claim::Disable) {
        return Wanted::Disabled {
            reason: wish.disabled_reason.clone(),
            why: HypervisorDisabledReason::Evicting,
        };
    }
    pressure.map_or(Wanted::Enabled, |condition| Wanted::Disabled {
        reason: format!("{OURS}node condition {condition}"),
        why: HypervisorDisabledReason::NodePressure,
    })
}

/// Decides what to do about one host.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision {
        steps: Vec::new(),
        conditions: Statements::again(&snapshot.conditions, OWN),
        evicted: snapshot.evicted,
        next: Next::After(snapshot.drift),
    };
    let onboarding = says(&snapshot.conditions, HypervisorCondition::Onboarding) == Says::Yes;
    let wanted = wanted(&snapshot.mode, &snapshot.wishes, snapshot.pressure.as_deref());
    if onboarding || wanted == Wanted::HandsOff {
        // The HA service writes the condition in its mode; restating it here could undo that.
        decision.next = Next::OnChange;
        return decision;
    }
    if snapshot.registered {
        service(snapshot, &wanted, &mut decision);
    }
    decision.steps.push(Step::Report);
    match snapshot.mode {
        Maintenance::Off => leave(snapshot, &mut decision),
        _ => evict(snapshot, &mut decision),
    }
    decision
}

fn service(snapshot: &Snapshot, wanted: &Wanted, decision: &mut Decision) {
    let Some(service) = &snapshot.service else {
        // No answer is no answer: the condition stays as it is until Nova says more.
        decision.next = Next::After(Duration::from_secs(30));
        return;
    };
    match wanted {
        Wanted::HandsOff => {}
        Wanted::Enabled => enabled(snapshot, service, decision),
        Wanted::Disabled { reason, why } => disabled(snapshot, service, reason, *why, decision),
    }
}

fn enabled(snapshot: &Snapshot, service: &Service, decision: &mut Decision) {
    let type_ = HypervisorCondition::HypervisorDisabled;
    if !service.enabled && !service.forced_down && foreign(snapshot, service) {
        let text = format!("Hypervisor already disabled for reason {:?}", service.reason);
        if message(&snapshot.conditions, type_) != text {
            decision
                .steps
                .push(Step::Tell(Word::Foreign(service.reason.clone())));
        }
        decision
            .conditions
            .say(type_, true, HypervisorDisabledReason::Succeeded, text);
        return;
    }
    if !service.enabled || service.forced_down {
        if says(&snapshot.conditions, type_) == Says::No {
            let text = if service.forced_down {
                "forced down"
            } else {
                "disabled"
            };
            decision
                .steps
                .push(Step::Tell(Word::Drift(format!("service was {text}"))));
        }
        decision.steps.push(Step::Enable);
    }
    decision.conditions.say(
        type_,
        false,
        HypervisorDisabledReason::Succeeded,
        "Hypervisor is enabled",
    );
}

/// Whether a person or another program took the service out and said why. What we or the HA
/// service disabled is ours to enable, and so is what nobody gave a reason for.
fn foreign(snapshot: &Snapshot, service: &Service) -> bool {
    let type_ = HypervisorCondition::HypervisorDisabled;
    let by_us = says(&snapshot.conditions, type_) == Says::Yes
        && reason(&snapshot.conditions, type_) == HypervisorDisabledReason::Succeeded.as_str()
        && message(&snapshot.conditions, type_) == DISABLED;
    let given_back = snapshot
        .wishes
        .iter()
        .any(|wish| wish.claim == Claim::Enable && wish.disabled_reason == service.reason);
    let told = service.reason.as_str();
    !(by_us || given_back || told.is_empty() || told.starts_with(OURS))
}

fn disabled(
    snapshot: &Snapshot,
    service: &Service,
    reason: &str,
    why: HypervisorDisabledReason,
    decision: &mut Decision,
) {
    let type_ = HypervisorCondition::HypervisorDisabled;
    let held = !service.enabled
        && why != HypervisorDisabledReason::Succeeded
        && service.reason != reason
        && foreign(snapshot, service);
    if held {
        let text = format!("Hypervisor already disabled for reason {:?}", service.reason);
        decision.conditions.say(type_, true, why, text);
        return;
    }
    if service.enabled || service.reason != reason {
        let says_disabled = says(&snapshot.conditions, type_) == Says::Yes;
        if service.enabled && says_disabled {
            let text = "service was enabled during maintenance".to_owned();
            decision.steps.push(Step::Tell(Word::Drift(text)));
        } else if !says_disabled && why == HypervisorDisabledReason::Succeeded {
            let text = entered(snapshot);
            decision.steps.push(Step::Tell(Word::Entered(text)));
        }
        decision.steps.push(Step::Disable(reason.to_owned()));
    }
    decision.conditions.say(type_, true, why, DISABLED);
}

fn entered(snapshot: &Snapshot) -> String {
    if snapshot.mode_reason.is_empty() {
        format!("maintenance {}", snapshot.mode)
    } else {
        format!("maintenance {}: {}", snapshot.mode, snapshot.mode_reason)
    }
}

/// Outside of maintenance there is no Eviction of ours and nothing is said about one.
fn leave(snapshot: &Snapshot, decision: &mut Decision) {
    let evicting = HypervisorCondition::Evicting;
    if says(&snapshot.conditions, evicting) != Says::Nothing {
        decision.steps.push(Step::Tell(Word::Left));
    }
    decision.conditions.drop(evicting);
    decision.evicted = false;
    if let Some(own) = &snapshot.own
        && own.controlled
        && !own.deleting
    {
        decision.steps.push(Step::DeleteEviction);
    }
}

/// In maintenance the host is emptied by an Eviction of its name, and what that came to is told.
fn evict(snapshot: &Snapshot, decision: &mut Decision) {
    let type_ = HypervisorCondition::Evicting;
    let succeeded = says(&snapshot.conditions, type_) == Says::No
        && reason(&snapshot.conditions, type_) == EvictingReason::Succeeded.as_str();
    if succeeded {
        match snapshot.servers {
            Some(0) | None => {
                decision.next = Next::After(snapshot.verify.min(snapshot.drift));
                return;
            }
            Some(count) => {
                decision.steps.push(Step::Tell(Word::Refilled(count)));
                running(decision);
                if snapshot.own.as_ref().is_some_and(|own| !own.deleting) {
                    decision.steps.push(Step::DeleteEviction);
                    decision.next = Next::After(SOON);
                } else if snapshot.own.is_none() {
                    decision.steps.push(Step::CreateEviction);
                }
                return;
            }
        }
    }
    let Some(own) = &snapshot.own else {
        decision.steps.push(Step::CreateEviction);
        running(decision);
        return;
    };
    if own.deleting {
        running(decision);
        decision.next = Next::After(SOON);
        return;
    }
    if !counts(snapshot, own) {
        running(decision);
        if own.evicting == Says::No {
            decision.steps.push(Step::DeleteEviction);
            decision.next = Next::After(SOON);
            return;
        }
        if !own.controlled {
            decision.steps.push(Step::AdoptEviction);
        }
        return;
    }
    mirror(own, decision);
    if own.evicting == Says::No {
        decision.next = Next::After(snapshot.verify.min(snapshot.drift));
    }
}

/// Whether an Eviction belongs to this maintenance and not to an earlier one.
fn counts(snapshot: &Snapshot, own: &Own) -> bool {
    let type_ = HypervisorCondition::HypervisorDisabled;
    let began = (says(&snapshot.conditions, type_) == Says::Yes)
        .then(|| since(&snapshot.conditions, type_))
        .flatten();
    let old = |began: Timestamp| age(began, own.created) > SKEW;
    own.controlled && !began.is_some_and(old)
}

fn running(decision: &mut Decision) {
    decision.evicted = false;
    decision.conditions.say(
        HypervisorCondition::Evicting,
        true,
        EvictingReason::Running,
        "Evicting",
    );
}

fn mirror(own: &Own, decision: &mut Decision) {
    if own.evicting != Says::No {
        running(decision);
        return;
    }
    let type_ = HypervisorCondition::Evicting;
    if own.reason == EvictingReason::Succeeded.as_str() {
        decision.evicted = true;
        decision
            .conditions
            .say(type_, false, EvictingReason::Succeeded, "Evicted");
    } else {
        decision.evicted = false;
        decision
            .conditions
            .say(type_, true, EvictingReason::Failed, &own.message);
    }
}
