// SPDX-License-Identifier: Apache-2.0
//! The judgement on a host that leaves: what still has to happen before its service and its
//! resource provider may go, and when it is really gone. Every state it waits in says what for.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::OffboardedReason;
use cobaltcore_kit::controller::Next;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::look::{Says, Statements, age, message, says};

const PODS: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(30);
/// After something was taken away.
const SOON: Duration = Duration::from_secs(1);
const REMOVING: &str = "Hypervisor is being offboarded, removing host from nova";
/// How long service and provider have to stay away before the host counts as gone.
const STAYS_AWAY: Duration = Duration::from_secs(10);

/// The host in Nova.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InNova {
    /// Not asked.
    Unasked,
    /// Nova did not answer properly.
    Trouble(String),
    /// Nova does not have it.
    Absent,
    /// Nova has it.
    Present {
        /// Its compute service.
        service: String,
        /// Servers assigned to it.
        servers: usize,
    },
}

/// The resource provider in Placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InPlacement {
    /// Not asked.
    Unasked,
    /// Placement did not answer properly.
    Trouble(String),
    /// There is none.
    Absent,
    /// There is one.
    Present,
}

/// Everything a decision is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// The name of the host, as Nova knows it.
    pub host: String,
    /// Whether the host is managed.
    pub lifecycle: bool,
    /// The mode.
    pub mode: Maintenance,
    /// Whether the Hypervisor is being deleted.
    pub deleting: bool,
    /// Whether our finalizer holds it.
    pub held: bool,
    /// Whether finalizers are wanted.
    pub finalizers: bool,
    /// Whether the Node is there.
    pub node: bool,
    /// Whether the host was ever registered.
    pub service_known: bool,
    /// The Hypervisor's conditions.
    pub conditions: Vec<Condition>,
    /// Names of the aggregates last applied.
    pub aggregates: Vec<String>,
    /// The host in Nova.
    pub nova: InNova,
    /// The provider in Placement.
    pub placement: InPlacement,
    /// Since when both were seen to be absent.
    pub gone_since: Option<Timestamp>,
    /// What went wrong in the last pass.
    pub trouble: Option<String>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put our finalizer on the Hypervisor.
    Hold,
    /// Take it off.
    Release,
    /// Write the condition.
    Report,
    /// Remember since when the host is gone.
    GoneSince(Option<Timestamp>),
    /// Delete the compute service.
    DeleteService(String),
    /// Delete what is left in Placement.
    CleanProvider,
    /// Tell people.
    Tell(String),
}

/// What a decision comes to.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The condition.
    pub conditions: Statements,
    /// When to look again.
    pub next: Next,
}

/// What part of leaving a host is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// It is not leaving.
    Stays,
    /// It leaves in order.
    Orderly,
    /// Its node disappeared.
    NodeGone,
}

/// Whether and how a host leaves.
pub fn path(snapshot: &Snapshot) -> Path {
    if snapshot.deleting && snapshot.held && !snapshot.node && snapshot.lifecycle {
        Path::NodeGone
    } else if snapshot.lifecycle && snapshot.mode == Maintenance::Termination {
        Path::Orderly
    } else {
        Path::Stays
    }
}

/// Whether Nova and Placement have to be asked: only once nothing else is in the way.
pub fn asks(snapshot: &Snapshot) -> bool {
    let done = says(&snapshot.conditions, HypervisorCondition::Offboarded) == Says::Yes;
    match path(snapshot) {
        Path::Stays => false,
        Path::NodeGone => !done,
        Path::Orderly => !done && obstacle(snapshot).is_none(),
    }
}

/// What stands in the way before Nova is asked at all.
fn obstacle(snapshot: &Snapshot) -> Option<(String, Next)> {
    let conditions = &snapshot.conditions;
    if says(conditions, HypervisorCondition::Onboarding) == Says::Yes {
        return Some((
            "Hypervisor is being offboarded, waiting for onboarding to be aborted".to_owned(),
            Next::After(WAIT),
        ));
    }
    if snapshot.service_known && says(conditions, HypervisorCondition::Evicting) != Says::No {
        let text = "Hypervisor is being offboarded, waiting for its instances to be moved away";
        return Some((text.to_owned(), Next::After(WAIT)));
    }
    let pods = HypervisorCondition::AgentPodsEvicted;
    match says(conditions, pods) {
        Says::Yes => None,
        Says::Nothing => Some((
            "Waiting for agent pods (nova-compute, neutron) to be evicted from node".to_owned(),
            Next::After(PODS),
        )),
        Says::No | Says::Unsure => Some((
            format!(
                "Waiting for agent pods to be evicted: {}",
                message(conditions, pods)
            ),
            Next::After(PODS),
        )),
    }
}

/// Decides what to do about one host.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision {
        steps: Vec::new(),
        conditions: Statements::again(&snapshot.conditions, &[HypervisorCondition::Offboarded]),
        next: Next::OnChange,
    };
    let done = says(&snapshot.conditions, HypervisorCondition::Offboarded) == Says::Yes;
    match path(snapshot) {
        Path::Stays => stays(snapshot, &mut decision),
        Path::Orderly | Path::NodeGone if done => {
            if snapshot.held {
                decision.steps.push(Step::Release);
            }
        }
        Path::Orderly => {
            hold(snapshot, &mut decision);
            match obstacle(snapshot) {
                Some((text, next)) => wait(&mut decision, text, next),
                None => remove(snapshot, &mut decision, true),
            }
        }
        Path::NodeGone => remove(snapshot, &mut decision, false),
    }
    decision
}

/// A host that stays keeps its finalizer as long as Nova has it; one that is deleted although
/// its node is there is only made anew, and nothing may hold that up.
fn stays(snapshot: &Snapshot, decision: &mut Decision) {
    if snapshot.deleting {
        if snapshot.held {
            decision.steps.push(Step::Release);
        }
        return;
    }
    hold(snapshot, decision);
    let said = says(&snapshot.conditions, HypervisorCondition::Offboarded) != Says::Nothing;
    if said {
        // Termination was undone.
        decision.conditions.drop(HypervisorCondition::Offboarded);
        decision.steps.push(Step::Report);
    }
}

fn hold(snapshot: &Snapshot, decision: &mut Decision) {
    if snapshot.deleting {
        return;
    }
    let wanted = snapshot.finalizers && snapshot.lifecycle && snapshot.service_known;
    match (wanted, snapshot.held) {
        (true, false) => decision.steps.push(Step::Hold),
        (false, true) => decision.steps.push(Step::Release),
        _ => {}
    }
}

fn wait(decision: &mut Decision, text: impl Into<String>, next: Next) {
    decision.conditions.say(
        HypervisorCondition::Offboarded,
        false,
        OffboardedReason::Offboarding,
        text,
    );
    decision.steps.push(Step::Report);
    decision.next = next;
}

/// Service, then provider, then a second look, then the word that it is gone.
fn remove(snapshot: &Snapshot, decision: &mut Decision, orderly: bool) {
    let again = Next::After(WAIT);
    if let Some(text) = &snapshot.trouble {
        decision.steps.push(Step::Tell(text.clone()));
    }
    let host = &snapshot.host;
    match &snapshot.nova {
        InNova::Unasked => wait(decision, REMOVING, again),
        InNova::Trouble(error) => {
            let text = format!("cannot get hypervisor by name {host} due to {error}");
            wait(decision, text, again);
        }
        InNova::Present { servers, .. } if *servers > 0 && !orderly => {
            let text = format!("node is gone but {servers} instances are still assigned");
            if message(&snapshot.conditions, HypervisorCondition::Offboarded) != text {
                decision.steps.push(Step::Tell(text.clone()));
            }
            wait(decision, text, again);
        }
        InNova::Present { servers, .. } if *servers > 0 => {
            let text = format!(
                "Hypervisor is being offboarded, but still has {servers} assigned VMs, \
                 check with `openstack server list --all-projects --host {host}`"
            );
            wait(decision, text, again);
        }
        InNova::Present { .. } if orderly && !snapshot.aggregates.is_empty() => {
            let names = snapshot.aggregates.join(" ");
            let text = format!("Waiting for aggregates to be removed, current: [{names}]");
            wait(decision, text, again);
        }
        InNova::Present { service, .. } => {
            take(snapshot, decision, REMOVING, Step::DeleteService(service.clone()));
        }
        InNova::Absent => absent(snapshot, decision),
    }
}

/// Takes something away and looks soon whether it is gone; later if that did not work before.
fn take(snapshot: &Snapshot, decision: &mut Decision, text: &str, step: Step) {
    decision.steps.push(Step::GoneSince(None));
    match &snapshot.trouble {
        Some(trouble) => wait(decision, trouble, Next::After(WAIT)),
        None => wait(decision, text, Next::After(SOON)),
    }
    decision.steps.push(step);
}

fn absent(snapshot: &Snapshot, decision: &mut Decision) {
    let again = Next::After(WAIT);
    match &snapshot.placement {
        InPlacement::Unasked | InPlacement::Absent => {}
        InPlacement::Trouble(error) => {
            wait(decision, format!("cannot get resource provider: {error}"), again);
            return;
        }
        InPlacement::Present => {
            let text = "Removing the resource provider from placement";
            take(snapshot, decision, text, Step::CleanProvider);
            return;
        }
    }
    match snapshot.gone_since {
        Some(since) if age(snapshot.now, since) >= STAYS_AWAY => {
            decision.conditions.say(
                HypervisorCondition::Offboarded,
                true,
                OffboardedReason::Offboarded,
                "Offboarding successful",
            );
            decision.steps.push(Step::Report);
            decision
                .steps
                .push(Step::Tell("host has left nova and placement".to_owned()));
            if snapshot.held {
                decision.steps.push(Step::Release);
            }
        }
        since => {
            decision.steps.push(Step::GoneSince(since.or(Some(snapshot.now))));
            let text = "Host is gone from nova, making sure that it does not come back";
            wait(decision, text, Next::After(STAYS_AWAY));
        }
    }
}
