// SPDX-License-Identifier: Apache-2.0
//! Who switches the cover of a host, and what is said about it. Which hosts are covered is a
//! contract with the HA service, see [`cover`].

use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition::{self, Evicting, HaEnabled, Onboarding};
use cobaltcore_api::reasons::{HaEnabledReason, OnboardingReason};
use cobaltcore_kit::controller::Plan;
use cobaltcore_kit::status::NewCondition;
use jiff::Timestamp;

use crate::config::HaMode;
use crate::seen::{LookAtHypervisor as _, elapsed};

pub use cobaltcore_api::ha::{Cover, cover};

/// The condition once the cover is switched.
pub(super) fn condition(cover: Cover) -> NewCondition {
    NewCondition::new(HaEnabled, cover.is_on(), cover.reason(), cover.message())
}

/// What is known besides the Hypervisor.
pub(crate) struct Facts {
    pub(super) waiting_since: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// What the operator was told.
pub(crate) struct Rules {
    pub(super) mode: HaMode,
    pub(super) patience: Duration,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell the HA service, then say so.
    Switch(Cover),
    /// Say so.
    Say(NewCondition),
    /// Tell people that the HA service is late.
    Warn,
}

/// What of a Hypervisor is looked at.
pub(super) fn inputs(hypervisor: &Hypervisor) -> impl PartialEq + use<> {
    const READ: [HypervisorCondition; 3] = [Onboarding, Evicting, HaEnabled];
    let said = READ.map(|condition| {
        let seen = hypervisor.seen(condition)?;
        Some((seen.status, seen.reason.to_owned()))
    });
    (said, hypervisor.spec.high_availability)
}

/// Whether onboarding cannot go on without an answer of the HA service.
pub(super) fn awaits_service(hypervisor: &Hypervisor) -> bool {
    hypervisor.onboarding() == Some((true, OnboardingReason::Handover))
        && hypervisor.spec.high_availability
        && !hypervisor.is(HaEnabled)
}

/// What `HaEnabled` says when the HA service could not be told.
pub(super) fn failed(error: &str) -> NewCondition {
    NewCondition::unknown(HaEnabled, HaEnabledReason::Failed, error)
}

/// What to do.
pub(super) fn decide(hypervisor: &Hypervisor, facts: &Facts, rules: &Rules) -> Plan<Action> {
    match rules.mode {
        HaMode::Off => {
            let off = NewCondition::no(HaEnabled, HaEnabledReason::Disabled, "HA is not configured");
            Plan::of(vec![Action::Say(off)])
        }
        HaMode::Direct => Plan::of(direct(hypervisor).into_iter().collect()),
        HaMode::Delegated => delegated(facts, rules.patience),
    }
}

/// The call is made only when the condition would change.
fn direct(hypervisor: &Hypervisor) -> Option<Action> {
    let cover = cover(hypervisor)?;
    let said = hypervisor.seen(HaEnabled);
    let same = said.is_some_and(|said| {
        NewCondition::new(HaEnabled, said.status, said.reason, said.message) == condition(cover)
    });
    Some(if same {
        Action::Say(condition(cover))
    } else {
        Action::Switch(cover)
    })
}

fn delegated(facts: &Facts, patience: Duration) -> Plan<Action> {
    let Some(since) = facts.waiting_since else {
        return Plan::rest();
    };
    let left = patience.saturating_sub(elapsed(since, facts.now));
    if left.is_zero() {
        Plan::of(vec![Action::Warn]).again_after(patience.max(Duration::from_secs(30)))
    } else {
        Plan::rest().again_after(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_kit::controller::Next;
    use serde_json::{Value, json};

    fn hypervisor(wanted: bool, conditions: &[&str]) -> Hypervisor {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|text| {
                let mut parts = text.splitn(4, '/');
                let mut next = || parts.next().unwrap_or_default();
                json!({"type": next(), "status": next(), "reason": next(), "message": next(), "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"highAvailability": wanted}, "status": {"conditions": conditions, "numInstances": 0}}))
            .unwrap()
    }

    #[test]
    fn the_table_both_sides_go_by() {
        let done = "Onboarding/False/Succeeded";
        let table: &[(bool, &[&str], Option<Cover>)] = &[
            (true, &[], None),
            (true, &["Onboarding/True/Initial"], Some(Cover::OffOnboarding)),
            (true, &["Onboarding/True/Testing"], Some(Cover::OffOnboarding)),
            (true, &["Onboarding/True/Handover"], Some(Cover::On)),
            (true, &[done], Some(Cover::On)),
            (true, &["Onboarding/False/Aborted"], Some(Cover::OffOnboarding)),
            (true, &[done, "Evicting/True/Running"], Some(Cover::On)),
            (true, &[done, "Evicting/False/Succeeded"], Some(Cover::OffEvicted)),
            (
                false,
                &[done, "Evicting/False/Succeeded"],
                Some(Cover::OffEvicted),
            ),
            (false, &["Onboarding/True/Testing"], Some(Cover::OffOnboarding)),
            (false, &[done], Some(Cover::OffBySpec)),
        ];
        for (wanted, conditions, expected) in table {
            assert_eq!(
                cover(&hypervisor(*wanted, conditions)),
                *expected,
                "{wanted} {conditions:?}"
            );
        }
        assert_eq!(
            condition(Cover::On),
            NewCondition::yes("HaEnabled", "Succeeded", "HA is enabled")
        );
        assert_eq!(
            condition(Cover::OffEvicted),
            NewCondition::no("HaEnabled", "Evicted", "HA disabled due to eviction")
        );
    }

    #[test]
    fn the_service_is_told_once() {
        let done = "Onboarding/False/Succeeded";
        assert_eq!(
            direct(&hypervisor(true, &[done])),
            Some(Action::Switch(Cover::On))
        );
        let told = hypervisor(true, &[done, "HaEnabled/True/Succeeded/HA is enabled"]);
        assert_eq!(direct(&told), Some(Action::Say(condition(Cover::On))));
        let failed = hypervisor(true, &[done, "HaEnabled/Unknown/Failed/no route"]);
        assert_eq!(direct(&failed), Some(Action::Switch(Cover::On)), "tried again");
    }

    #[test]
    fn a_service_that_does_not_answer_is_noticed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let plan = |now: &str| {
            let facts = Facts {
                waiting_since: Some(at("2026-01-01T00:00:00Z")),
                now: at(now),
            };
            delegated(&facts, Duration::from_mins(10))
        };
        assert_eq!(
            plan("2026-01-01T00:04:00Z").next,
            Next::After(Duration::from_mins(6))
        );
        assert_eq!(plan("2026-01-01T00:10:00Z").actions, [Action::Warn]);
        assert!(awaits_service(&hypervisor(true, &["Onboarding/True/Handover"])));
        assert!(!awaits_service(&hypervisor(false, &["Onboarding/True/Handover"])));
        assert!(!awaits_service(&hypervisor(
            true,
            &["Onboarding/True/Handover", "HaEnabled/True/Succeeded"]
        )));
    }
}
