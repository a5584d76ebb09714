// SPDX-License-Identifier: Apache-2.0
//! How a standalone Eviction takes its host out of scheduling and gives it back. It never
//! touches the service itself: it states a claim that the maintenance controller, the one owner
//! of the service, honours; and it holds its own deletion until the claim is settled.

use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::reasons::{EvictingReason, EvictionStepReason};
use cobaltcore_api::{Maintenance, ReEnable};
use cobaltcore_kit::controller::Next;

use super::decide::Decision;
use super::model::{Host, MigrationState, Order, Snapshot, Step};
use crate::look::{Says, reason, says};

/// Between two looks at a service that is not given back yet.
const AGAIN: Duration = Duration::from_mins(1);

/// What a standalone Eviction wants of the compute service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Out of scheduling.
    Disable,
    /// Back into scheduling.
    Enable,
    /// Nothing.
    Nothing,
}

/// The text Nova shows for a host that this Eviction took out; Nova keeps 255 characters.
pub fn disabled_reason(name: &str, reason: &str) -> String {
    format!("Eviction {name}: {reason}").chars().take(255).collect()
}

/// What `order` wants of the service of a host in the given state.
pub fn claim_of(order: &Order, maintenance: &Maintenance, terminating: bool) -> Claim {
    if order.controlled {
        return Claim::Nothing;
    }
    let conditions = &order.status.conditions;
    if says(conditions, EvictionCondition::HypervisorReEnabled) == Says::Yes {
        return Claim::Nothing;
    }
    let ended = order.deleting || {
        let always = order.spec.re_enable == Some(ReEnable::Always);
        always && reason(conditions, EvictionCondition::Evicting) == EvictingReason::Succeeded.as_str()
    };
    if !ended {
        let unknown_host = says(conditions, EvictionCondition::Evicting) == Says::No
            && says(conditions, EvictionCondition::HypervisorDisabled) == Says::Nothing;
        return if unknown_host {
            Claim::Nothing
        } else {
            Claim::Disable
        };
    }
    if !order.held && order.deleting {
        return Claim::Nothing;
    }
    if gives_back(order, maintenance, terminating) {
        Claim::Enable
    } else {
        Claim::Disable
    }
}

fn gives_back(order: &Order, maintenance: &Maintenance, terminating: bool) -> bool {
    let leaving = terminating || matches!(maintenance, Maintenance::Termination | Maintenance::Ha);
    match order.spec.re_enable.clone().unwrap_or_default() {
        ReEnable::Never => false,
        ReEnable::Always => *maintenance != Maintenance::Ha,
        ReEnable::Auto | ReEnable::Other(_) => !leaving,
    }
}

/// Reports whether the host is out of scheduling, and on whose account.
pub(super) fn claim(snapshot: &Snapshot, decision: &mut Decision) {
    let order = &snapshot.order;
    let ours = disabled_reason(&order.name, &order.spec.reason);
    let type_ = EvictionCondition::HypervisorDisabled;
    let (holds, why, text) = match &snapshot.service {
        Some(service) if !service.enabled && service.reason == ours => (
            true,
            EvictionStepReason::Succeeded,
            "Hypervisor is disabled".to_owned(),
        ),
        Some(service) if !service.enabled => {
            let text = format!("Hypervisor already disabled for reason {:?}", service.reason);
            (true, EvictionStepReason::Succeeded, text)
        }
        _ => {
            let text = "Waiting for the compute service to be disabled".to_owned();
            (false, EvictionStepReason::Running, text)
        }
    };
    decision.report.step(type_, holds, why, text);
}

/// Gives the host back after success, if that was asked for.
pub(super) fn give_back(snapshot: &Snapshot, host: &Host, decision: &mut Decision) {
    let order = &snapshot.order;
    if claim_of(order, &host.maintenance, host.terminating) == Claim::Enable {
        settle_claim(snapshot, host, decision);
    }
}

/// The end of a deleted Eviction: moves are stopped if asked for, the host is given back, the
/// finalizer comes off.
pub(super) fn closing(snapshot: &Snapshot, decision: &mut Decision) {
    let order = &snapshot.order;
    if order.abort_in_flight {
        abort(snapshot, decision);
    }
    if !order.held {
        return;
    }
    let type_ = EvictionCondition::HypervisorReEnabled;
    let Some(host) = &snapshot.host else {
        let text = "Hypervisor is gone, no need to re-enable";
        decision
            .report
            .step(type_, true, EvictionStepReason::Succeeded, text);
        decision.steps.push(Step::Release);
        return;
    };
    if claim_of(order, &host.maintenance, host.terminating) == Claim::Enable {
        settle_claim(snapshot, host, decision);
    }
    let given_back = decision
        .report
        .conditions
        .get(type_)
        .is_some_and(|said| said.is(true, EvictionStepReason::Succeeded));
    let stays = claim_of(order, &host.maintenance, host.terminating) != Claim::Enable;
    if given_back || stays {
        decision.steps.push(Step::Release);
    }
}

/// Whether the service is back, is held by somebody else, or has to be waited for.
fn settle_claim(snapshot: &Snapshot, host: &Host, decision: &mut Decision) {
    let ours = disabled_reason(&snapshot.order.name, &snapshot.order.spec.reason);
    let type_ = EvictionCondition::HypervisorReEnabled;
    let done = EvictionStepReason::Succeeded;
    if !host.maintenance.is_off() {
        let text = format!("Hypervisor stays disabled, maintenance is {}", host.maintenance);
        decision.report.step(type_, true, done, text);
        return;
    }
    match &snapshot.service {
        None => {
            let text = "Hypervisor is gone, no need to re-enable";
            decision.report.step(type_, true, done, text);
        }
        Some(service) if service.enabled => {
            let text = "Hypervisor re-enabled successfully";
            decision.report.step(type_, true, done, text);
        }
        Some(service) if service.reason != ours => {
            let text = format!("Hypervisor already re-enabled for reason:{}", service.reason);
            decision.report.step(type_, true, done, text);
        }
        Some(service) => {
            let text = if service.up {
                "Waiting for the compute service to be enabled"
            } else {
                "The compute service is down; it is enabled once it is up"
            };
            decision
                .report
                .step(type_, false, EvictionStepReason::Failed, text);
            decision.next = Next::After(if service.up { AGAIN / 12 } else { AGAIN });
        }
    }
}

fn abort(snapshot: &Snapshot, decision: &mut Decision) {
    for entry in &snapshot.order.status.in_flight {
        let running = snapshot.migrations.iter().find(|record| {
            record.server.as_str() == entry.id
                && record.live
                && matches!(record.state, MigrationState::Queued | MigrationState::Abortable)
        });
        if let Some(record) = running {
            decision.steps.push(Step::Abort {
                server: record.server.clone(),
                migration: record.id,
            });
        }
    }
}
