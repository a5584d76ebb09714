// SPDX-License-Identifier: Apache-2.0
//! Hosts as Kubernetes objects, and what their condition `HaEnabled` says. Whether a host is covered is decided by the
//! table that operator and service share; whoever leads writes it, once a second, for every host whose condition is wrong.

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::ha::cover;
use cobaltcore_api::reasons::OnboardingReason;
use cobaltcore_api::{Hypervisor, HypervisorSpec, HypervisorStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::invariants::Invariant;
use crate::streams::Mistake;
use crate::world::World;

/// Milliseconds in which a condition has to follow its object.
const FOLLOWS: u64 = 5000;
/// Milliseconds until a change of an object is seen by those who watch.
const SEEN: u64 = 300;

/// One object and its condition.
pub(crate) struct Covered {
    object: Hypervisor,
    /// What the condition says.
    says: bool,
    changed: u64,
    /// The condition may be wrong.
    pending: bool,
    /// Somebody tried to write it.
    tried: bool,
}

impl Covered {
    pub(crate) fn new(name: &str) -> Self {
        let onboarded = Condition {
            type_: HypervisorCondition::Onboarding.as_ref().to_owned(),
            status: "False".to_owned(),
            reason: OnboardingReason::Succeeded.as_ref().to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        };
        let mut object = Hypervisor::new(
            name,
            HypervisorSpec {
                high_availability: true,
                ..HypervisorSpec::default()
            },
        );
        object.status = Some(HypervisorStatus {
            conditions: vec![onboarded],
            ..HypervisorStatus::default()
        });
        Self {
            object,
            says: true,
            changed: 0,
            pending: false,
            tried: false,
        }
    }

    fn wanted(&self) -> bool {
        cover(&self.object).is_some_and(cobaltcore_api::ha::Cover::is_on)
    }
}

impl World {
    /// A person wants a host covered, or not.
    pub(crate) fn wants_cover(&mut self, h: usize, wanted: bool) {
        let covered = &mut self.covered[h];
        covered.object.spec.high_availability = wanted;
        covered.changed = self.now;
        covered.pending = true;
        covered.tried = false;
        self.hosts[h].ha_enabled = covered.wanted();
        self.uncovered += 1;
    }

    /// The leader writes what is wrong, as often as it takes.
    pub(crate) fn keep_cover(&mut self, r: usize) {
        if self.uncovered == 0 {
            return;
        }
        let reached = self.kubernetes(r).answers();
        let once = self.options.mistake == Some(Mistake::CoverOnce);
        let able = self.replicas[r].able_since.filter(|_| reached);
        let leads_since = self.replicas[r]
            .engine
            .leads()
            .and_then(|epoch| self.terms.get(&epoch.0));
        let since = able.zip(leads_since.copied()).map(|(able, led)| able.max(led));
        let now = self.now;
        let mut wrong = None;
        let mut left = 0;
        for (h, covered) in self.covered.iter_mut().enumerate() {
            if !covered.pending {
                continue;
            }
            let given_up = once && std::mem::replace(&mut covered.tried, true);
            if reached && !given_up && now - covered.changed >= SEEN {
                covered.says = covered.wanted();
            }
            covered.pending = covered.says != covered.wanted();
            left += usize::from(covered.pending);
            let late = since.is_some_and(|since| now - since.max(covered.changed) > FOLLOWS);
            if covered.pending && late {
                wrong = Some(h);
            }
        }
        self.uncovered = left;
        if let Some(h) = wrong {
            let (says, seconds) = (self.covered[h].says, (now - self.covered[h].changed) / 1000);
            let what = format!("n{h:02} was changed {seconds} seconds ago, and HaEnabled is still {says}");
            self.violate(Invariant::L6Cover, what);
        }
    }
}
