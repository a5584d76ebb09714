// SPDX-License-Identifier: Apache-2.0
//! Two tables, read from the top: the first row that fits is the answer.

use cobaltcore_api::conditions::HypervisorCondition::{
    self, Evicting, HypervisorDisabled, NodeReady, Offboarded, Onboarding, Ready, Terminating,
};
use cobaltcore_api::reasons::{OnboardingReason, ReadyReason};
use cobaltcore_api::{Hypervisor, LifecyclePhase, Maintenance};
use cobaltcore_kit::status::NewCondition;

use crate::seen::{LookAtHypervisor as _, Seen};

/// Everything the two tables look at, and the answers as they stand.
pub(super) fn inputs(hypervisor: &Hypervisor) -> impl PartialEq + use<> {
    const READ: [HypervisorCondition; 7] = [
        Ready,
        Offboarded,
        Terminating,
        Onboarding,
        Evicting,
        HypervisorDisabled,
        NodeReady,
    ];
    let said = READ.map(|condition| {
        let seen = hypervisor.seen(condition)?;
        Some((seen.status, seen.reason.to_owned(), seen.message.to_owned()))
    });
    (
        said,
        hypervisor.metadata.generation,
        hypervisor.spec.maintenance.clone(),
        hypervisor.spec.lifecycle_enabled,
        hypervisor.is_registered(),
        hypervisor.known().phase,
    )
}

/// What `Ready` should say.
pub(super) fn ready(hypervisor: &Hypervisor) -> NewCondition {
    let no = |reason, message: &str| NewCondition::no(Ready, reason, message);
    if hypervisor.is(Offboarded) {
        return no(ReadyReason::Offboarded, "Hypervisor has been offboarded");
    }
    if hypervisor.is(Terminating) {
        return no(ReadyReason::Terminating, "Hypervisor is terminating");
    }
    let onboarding = hypervisor.seen(Onboarding);
    if let Some(running) = onboarding.filter(Seen::is_true) {
        let message = format!("Onboarding in progress: {}", running.message);
        return no(ReadyReason::Onboarding, &message);
    }
    if !hypervisor.spec.maintenance.is_off() {
        return if hypervisor.is(Evicting) {
            no(ReadyReason::Evicting, "Hypervisor is disabled and evicting")
        } else if hypervisor.is_not(Evicting) {
            no(ReadyReason::Evicted, "Hypervisor is disabled and evicted")
        } else {
            no(ReadyReason::Maintenance, "Hypervisor is in maintenance mode")
        };
    }
    if let Some(disabled) = hypervisor.seen(HypervisorDisabled).filter(Seen::is_true) {
        let message = match disabled.message {
            "" => "Hypervisor is disabled",
            message => message,
        };
        return no(ReadyReason::Disabled, message);
    }
    if hypervisor.is_not(NodeReady) {
        return no(ReadyReason::NodeNotReady, "The node is not ready");
    }
    match onboarding.map(|seen| OnboardingReason::parse(seen.reason)) {
        None => no(ReadyReason::Onboarding, not_started(hypervisor)),
        Some(Some(OnboardingReason::Aborted)) => no(ReadyReason::Onboarding, "Onboarding was aborted"),
        Some(Some(OnboardingReason::Succeeded)) => {
            NewCondition::yes(Ready, ReadyReason::Ready, "Hypervisor is ready")
        }
        Some(_) => no(ReadyReason::Onboarding, "Onboarding not yet completed"),
    }
}

/// Why onboarding has not begun.
fn not_started(hypervisor: &Hypervisor) -> &'static str {
    if !hypervisor.spec.lifecycle_enabled {
        "Onboarding not started: lifecycle management is disabled"
    } else if !hypervisor.is_registered() {
        "Onboarding not started: waiting for nova-compute to register the hypervisor in Nova \
         (HypervisorID/ServiceID not yet available)"
    } else {
        "Onboarding not started"
    }
}

/// Where a Hypervisor is in its life.
pub fn phase(hypervisor: &Hypervisor) -> LifecyclePhase {
    let maintenance = &hypervisor.spec.maintenance;
    if hypervisor.is(Offboarded) {
        return LifecyclePhase::Decommissioned;
    }
    if *maintenance == Maintenance::Termination || hypervisor.is(Terminating) {
        return LifecyclePhase::Evicting;
    }
    let onboarding = hypervisor.onboarding();
    match onboarding {
        Some((true, OnboardingReason::Initial)) => return LifecyclePhase::Onboarding,
        Some((true, OnboardingReason::Testing)) => return LifecyclePhase::Testing,
        Some((true, OnboardingReason::Handover)) => return LifecyclePhase::Ready,
        Some((true, OnboardingReason::Aborted)) => return LifecyclePhase::Aborted,
        _ => {}
    }
    if !maintenance.is_off() {
        return if hypervisor.is(Evicting) {
            LifecyclePhase::Evicting
        } else {
            LifecyclePhase::Maintenance
        };
    }
    match (hypervisor.seen(Onboarding), onboarding) {
        (None, _) => LifecyclePhase::Initial,
        (_, Some((false, OnboardingReason::Aborted))) => LifecyclePhase::Aborted,
        (_, Some((false, OnboardingReason::Succeeded))) => LifecyclePhase::Active,
        _ => LifecyclePhase::Onboarding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn hypervisor(spec: Value, conditions: &[&str], registered: bool) -> Hypervisor {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|text| {
                let mut parts = text.splitn(4, '/');
                let mut next = || parts.next().unwrap_or_default();
                json!({"type": next(), "status": next(), "reason": next(), "message": next(),
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let id = if registered { "x" } else { "" };
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec,
            "status": {"conditions": conditions, "hypervisorId": id, "serviceId": id, "numInstances": 0}}))
        .unwrap()
    }

    #[test]
    fn ready_follows_its_table() {
        let on = json!({});
        let maintenance = json!({"maintenance": "auto"});
        let done = "Onboarding/False/Succeeded";
        let table: &[(&Value, &[&str], bool, &str)] = &[
            (
                &on,
                &["Offboarded/True/Offboarded", "Terminating/True/x"],
                true,
                "Offboarded/Hypervisor has been offboarded",
            ),
            (
                &on,
                &["Terminating/True/x", "Onboarding/True/Testing"],
                true,
                "Terminating/Hypervisor is terminating",
            ),
            (
                &maintenance,
                &["Onboarding/True/Testing/booting"],
                true,
                "Onboarding/Onboarding in progress: booting",
            ),
            (
                &maintenance,
                &[done, "Evicting/True/Running"],
                true,
                "Evicting/Hypervisor is disabled and evicting",
            ),
            (
                &maintenance,
                &[done, "Evicting/False/Succeeded"],
                true,
                "Evicted/Hypervisor is disabled and evicted",
            ),
            (
                &maintenance,
                &[done],
                true,
                "Maintenance/Hypervisor is in maintenance mode",
            ),
            (
                &on,
                &[done, "HypervisorDisabled/True/NodePressure"],
                true,
                "Disabled/Hypervisor is disabled",
            ),
            (
                &on,
                &[done, "HypervisorDisabled/True/Evicting/Eviction x"],
                true,
                "Disabled/Eviction x",
            ),
            (
                &on,
                &[done, "NodeReady/False/NotReady"],
                true,
                "NodeNotReady/The node is not ready",
            ),
            (
                &json!({"lifecycleEnabled": false}),
                &[],
                true,
                "Onboarding/Onboarding not started: lifecycle management is disabled",
            ),
            (
                &on,
                &[],
                false,
                "Onboarding/Onboarding not started: waiting for nova-compute to register the hypervisor in Nova (HypervisorID/ServiceID not yet available)",
            ),
            (&on, &[], true, "Onboarding/Onboarding not started"),
            (
                &on,
                &["Onboarding/False/Aborted"],
                true,
                "Onboarding/Onboarding was aborted",
            ),
            (
                &on,
                &["Onboarding/False/Odd"],
                true,
                "Onboarding/Onboarding not yet completed",
            ),
        ];
        for (spec, conditions, registered, wanted) in table {
            let (reason, message) = wanted.split_once('/').unwrap();
            let found = ready(&hypervisor((*spec).clone(), conditions, *registered));
            assert_eq!(
                found,
                NewCondition::no(Ready, reason, message),
                "{spec} {conditions:?}"
            );
        }
        let fine = [done, "HypervisorDisabled/False/Succeeded", "NodeReady/True/Ready"];
        assert_eq!(
            ready(&hypervisor(json!({}), &fine, true)),
            NewCondition::yes(Ready, "Ready", "Hypervisor is ready")
        );
    }

    #[test]
    fn the_phase_follows_its_table() {
        use LifecyclePhase::{
            Aborted, Active, Decommissioned, Evicting, Initial, Maintenance, Onboarding, Ready, Testing,
        };
        let done = "Onboarding/False/Succeeded";
        let table: &[(&str, &[&str], LifecyclePhase)] = &[
            ("termination", &["Offboarded/True/Offboarded"], Decommissioned),
            ("termination", &[done, "Evicting/False/Succeeded"], Evicting),
            ("", &["Terminating/True/Terminating"], Evicting),
            ("", &["Onboarding/True/Initial"], Onboarding),
            ("manual", &["Onboarding/True/Testing"], Testing),
            ("", &["Onboarding/True/Handover"], Ready),
            ("", &["Onboarding/True/Aborted"], Aborted),
            ("manual", &[done, "Evicting/True/Failed"], Evicting),
            ("auto", &[done, "Evicting/False/Succeeded"], Maintenance),
            ("ha", &[done], Maintenance),
            ("", &[], Initial),
            ("", &["Onboarding/False/Aborted"], Aborted),
            ("", &[done], Active),
            ("", &["Onboarding/False/Odd"], Onboarding),
            ("", &["Onboarding/Unknown/Initial"], Onboarding),
        ];
        for (mode, conditions, wanted) in table {
            let spec = json!({"maintenance": mode, "maintenanceReason": "test"});
            assert_eq!(
                phase(&hypervisor(spec, conditions, true)),
                *wanted,
                "{mode} {conditions:?}"
            );
        }
    }

    proptest! {
        /// Whoever is ready is active: a scheduler and a person never see different things.
        #[test]
        fn only_active_hypervisors_are_ready(
            mode in prop::sample::select(vec!["", "manual", "auto", "ha", "termination"]),
            lifecycle in any::<bool>(),
            registered in any::<bool>(),
            said in prop::collection::vec(
                (prop::sample::select(vec!["Offboarded", "Terminating", "Onboarding", "Evicting", "HypervisorDisabled", "NodeReady"]),
                 prop::sample::select(vec!["True", "False", "Unknown"]),
                 prop::sample::select(vec!["Initial", "Testing", "Handover", "Succeeded", "Aborted", "Odd"])), 0..6),
        ) {
            let conditions: Vec<String> = said.iter().map(|(t, s, r)| format!("{t}/{s}/{r}")).collect();
            let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
            let spec = json!({"maintenance": mode, "lifecycleEnabled": lifecycle, "maintenanceReason": "x"});
            let hypervisor = hypervisor(spec, &conditions, registered);
            let fine = NewCondition::yes(Ready, "Ready", "Hypervisor is ready");
            if ready(&hypervisor) == fine {
                prop_assert!(hypervisor.spec.maintenance.is_off());
                prop_assert_eq!(phase(&hypervisor), LifecyclePhase::Active);
            }
        }
    }
}
