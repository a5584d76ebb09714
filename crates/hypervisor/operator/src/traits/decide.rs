// SPDX-License-Identifier: Apache-2.0
//! Which traits a resource provider gets and loses. Ours are those we put there; whatever else
//! Placement lists belongs to somebody else and stays.

use std::collections::BTreeSet;

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::OnboardingReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::look::{Says, reason, says};

/// The longest name Placement holds.
const LONGEST: usize = 255;
const CUSTOM: &str = "CUSTOM_";

/// Whether traits are to be looked after now.
pub fn due(lifecycle: bool, registered: bool, mode: &Maintenance, conditions: &[Condition]) -> bool {
    let onboarding = says(conditions, HypervisorCondition::Onboarding);
    let stage = OnboardingReason::parse(reason(conditions, HypervisorCondition::Onboarding));
    let stage_allows = match onboarding {
        Says::Yes => stage == Some(OnboardingReason::Handover),
        Says::No => stage == Some(OnboardingReason::Succeeded),
        Says::Unsure | Says::Nothing => false,
    };
    lifecycle && registered && *mode != Maintenance::Termination && stage_allows
}

/// What has to become of a provider's traits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Everything the provider shall have, sorted.
    pub all: Vec<String>,
    /// What of it is ours, sorted.
    pub managed: Vec<String>,
    /// Whether Placement has to be told.
    pub changed: bool,
    /// Custom traits that are new to the provider and may be new to Placement.
    pub create: Vec<String>,
}

/// Names that no provider can hold: not custom, and not `standard` either.
pub fn invalid(spec: &[String], standard: &BTreeSet<String>) -> Vec<String> {
    let fits = |name: &str| {
        let custom = name.strip_prefix(CUSTOM).is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .bytes()
                    .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        });
        name.len() <= LONGEST && (custom || standard.contains(name))
    };
    spec.iter().filter(|name| !fits(name)).cloned().collect()
}

/// Names in the spec that only Placement can tell to be standard traits.
pub fn unproven(spec: &[String]) -> Vec<String> {
    spec.iter()
        .filter(|name| !name.starts_with(CUSTOM))
        .cloned()
        .collect()
}

/// What `current` has to become for `spec`, given what we put there before.
pub fn target(spec: &[String], managed: &[String], current: &[String]) -> Target {
    let spec: BTreeSet<&String> = spec.iter().collect();
    let before: BTreeSet<&String> = managed.iter().collect();
    let current: BTreeSet<&String> = current.iter().collect();
    let removed: BTreeSet<&String> = before.difference(&spec).copied().collect();
    let all: BTreeSet<&String> = current
        .difference(&removed)
        .copied()
        .chain(spec.iter().copied())
        .collect();
    // What was there without us and is asked for now is not ours to remove later.
    let ours = |name: &&&String| before.contains(**name) || !current.contains(**name);
    Target {
        changed: all != current,
        create: all
            .iter()
            .filter(|name| name.starts_with(CUSTOM) && !current.contains(**name))
            .map(|name| (*name).clone())
            .collect(),
        managed: spec.iter().filter(ours).map(|name| (*name).clone()).collect(),
        all: all.into_iter().cloned().collect(),
    }
}
