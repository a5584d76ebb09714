// SPDX-License-Identifier: Apache-2.0
//! Which hosts instance high availability covers. The table is a contract: whoever switches the
//! cover, operator or HA service, goes by [`cover`].

use crate::Hypervisor;
use crate::conditions::HypervisorCondition;
use crate::reasons::{HaEnabledReason, OnboardingReason};

/// Whether a host is to be covered, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// It is.
    On,
    /// Not while it is empty.
    OffEvicted,
    /// Not before it has proved itself.
    OffOnboarding,
    /// Nobody wants it.
    OffBySpec,
}

impl Cover {
    /// Whether the host is to be covered.
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// What people read.
    pub fn message(self) -> &'static str {
        match self {
            Self::On => "HA is enabled",
            Self::OffEvicted => "HA disabled due to eviction",
            Self::OffOnboarding => "HA disabled before onboarding",
            Self::OffBySpec => "HA disabled per spec",
        }
    }

    /// What programs read.
    pub fn reason(self) -> HaEnabledReason {
        match self {
            Self::On | Self::OffBySpec => HaEnabledReason::Succeeded,
            Self::OffEvicted => HaEnabledReason::Evicted,
            Self::OffOnboarding => HaEnabledReason::Onboarding,
        }
    }
}

/// Whether a host is to be covered; nothing before its onboarding has begun.
pub fn cover(hypervisor: &Hypervisor) -> Option<Cover> {
    let find = |wanted: HypervisorCondition| {
        let conditions = &hypervisor.status.as_ref()?.conditions;
        conditions
            .iter()
            .find(|condition| condition.type_ == wanted.as_ref())
    };
    let onboarding = find(HypervisorCondition::Onboarding)?;
    let reason = OnboardingReason::parse(&onboarding.reason);
    let unproven = if onboarding.status == "True" {
        reason != Some(OnboardingReason::Handover)
    } else {
        reason == Some(OnboardingReason::Aborted)
    };
    let empty = find(HypervisorCondition::Evicting).is_some_and(|evicting| evicting.status == "False");
    Some(if empty {
        Cover::OffEvicted
    } else if unproven {
        Cover::OffOnboarding
    } else if hypervisor.spec.high_availability {
        Cover::On
    } else {
        Cover::OffBySpec
    })
}
