// SPDX-License-Identifier: Apache-2.0
//! The traits controller: keeps the custom traits of a host in Placement as its spec says, and
//! leaves the traits of others alone.

mod decide;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::TraitsUpdatedReason;
use cobaltcore_kit::controller::{Next, Plan, Reconciler, SharedRunner};
use cobaltcore_kit::status::{Intent, NewCondition};
use tokio::time::Instant;

use crate::cloud::{self, Cloud};
use crate::context::Context;
use crate::known_fields::OwnKind;
use crate::memory::Memories;
use crate::metrics::OfKind;
use crate::seen::LookAtHypervisor as _;
use crate::{Error, wanted};

pub use decide::{Target, due, invalid, target, unproven};

/// How often a write that somebody else overtook is tried again.
const TRIES: u32 = 4;
const RETRY: Duration = Duration::from_secs(30);

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Traits> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| {
        change.differs(|hypervisor| {
            (
                hypervisor.metadata.generation,
                hypervisor.known().hypervisor_id.clone(),
                hypervisor.onboarding(),
                hypervisor.is(HypervisorCondition::Offboarded),
                hypervisor.known().managed_traits.clone(),
                hypervisor.seen(HypervisorCondition::TraitsUpdated).is_some(),
            )
        })
    });
    let traits = Traits {
        context: context.clone(),
        cloud: cloud.clone(),
        memory: Memories::of(hypervisors),
    };
    SharedRunner::new("traits", hypervisors.store(), traits).on(changed)
}

/// What is remembered of one host.
#[derive(Clone, Debug, Default)]
struct Memory {
    managed: Vec<String>,
    /// What was wanted when Placement was last asked, and when that was.
    verified: Option<(Vec<String>, Instant)>,
}

/// Keeps traits.
pub(crate) struct Traits {
    context: Context,
    cloud: Cloud,
    memory: Memories<Hypervisor, Memory>,
}

/// What is known of a host's traits.
pub(crate) enum Facts {
    /// Nobody is to look after them now.
    Rest,
    /// The host has left; nothing is to be said any more.
    Gone,
    /// They were verified not long ago; look again then.
    Fresh(Duration),
    /// These cannot be.
    Invalid(Vec<String>),
    /// Placement did not answer.
    Trouble(String),
    /// They are, or shall become.
    Known { target: Target, generation: u64 },
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Bring Placement in line and say so.
    Apply(Target, u64),
    /// Say something.
    Say(TraitsUpdatedReason, String),
    /// Say nothing any more.
    Withdraw,
}

impl Reconciler for Traits {
    type Object = Hypervisor;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Facts, Error> {
        if hypervisor.is(HypervisorCondition::Offboarded) {
            return Ok(Facts::Gone);
        }
        let known = hypervisor.known();
        let spec = &hypervisor.spec;
        if !due(
            spec.lifecycle_enabled,
            !known.hypervisor_id.is_empty(),
            &spec.maintenance,
            &known.conditions,
        ) {
            return Ok(Facts::Rest);
        }
        let wanted = wanted::traits(spec, self.context.config.groups_source);
        if let Some(pause) = self.fresh(hypervisor, &wanted) {
            return Ok(Facts::Fresh(pause));
        }
        Ok(match self.ask(hypervisor, &wanted).await {
            Ok(facts) => facts,
            Err(error) => Facts::Trouble(format!("Failed to get current traits from placement: {error}")),
        })
    }

    fn decide(&self, _: &Hypervisor, facts: &Facts) -> Plan<Action> {
        let drift = self.context.config.drift_interval.0;
        match facts {
            Facts::Rest => Plan::rest(),
            Facts::Gone => Plan::of(vec![Action::Withdraw]),
            Facts::Fresh(pause) => Plan::rest().again_after(*pause),
            Facts::Invalid(names) => {
                let text = format!("Placement cannot hold: {}", names.join(", "));
                Plan::of(vec![Action::Say(TraitsUpdatedReason::Invalid, text)]).again_after(drift)
            }
            Facts::Trouble(text) => {
                Plan::of(vec![Action::Say(TraitsUpdatedReason::Failed, text.clone())]).again_after(RETRY)
            }
            Facts::Known { target, generation } => Plan {
                actions: vec![Action::Apply(target.clone(), *generation)],
                next: Next::After(drift),
            },
        }
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Withdraw => {
                self.memory.forget(hypervisor);
                self.write(hypervisor, &Intent::new()).await
            }
            Action::Say(reason, text) => {
                let condition = NewCondition::no(HypervisorCondition::TraitsUpdated, reason, text);
                self.write(hypervisor, &self.lists(hypervisor).condition(condition))
                    .await
            }
            Action::Apply(target, generation) => self.apply(hypervisor, target, generation).await,
        }
    }
}

impl Traits {
    /// How long the last look at Placement still serves, if nothing else is wanted since.
    fn fresh(&self, hypervisor: &Hypervisor, wanted: &[String]) -> Option<Duration> {
        let (then, at) = self.memory.get(hypervisor)?.verified?;
        let drift = self.context.config.drift_interval.0;
        let said = hypervisor.is(HypervisorCondition::TraitsUpdated);
        let left = drift.checked_sub(at.elapsed())?;
        (said && then == wanted && !left.is_zero()).then_some(left)
    }

    fn managed(&self, hypervisor: &Hypervisor) -> Vec<String> {
        if self.context.fields.has(OwnKind::Hypervisor, "managedTraits") {
            return hypervisor.known().managed_traits.clone();
        }
        let memory = self.memory.get(hypervisor);
        memory.map(|memory| memory.managed).unwrap_or_default()
    }

    async fn ask(&self, hypervisor: &Hypervisor, wanted: &[String]) -> cloud::Result<Facts> {
        let standard: BTreeSet<String> = self.cloud.known_traits(&unproven(wanted)).await?;
        let wrong = invalid(wanted, &standard);
        if !wrong.is_empty() {
            return Ok(Facts::Invalid(wrong));
        }
        let (current, generation) = self.cloud.traits(&hypervisor.known().hypervisor_id).await?;
        let target = target(wanted, &self.managed(hypervisor), &current);
        Ok(Facts::Known { target, generation })
    }

    async fn apply(
        &self,
        hypervisor: &Arc<Hypervisor>,
        mut target: Target,
        mut generation: u64,
    ) -> Result<(), Error> {
        let provider = &hypervisor.known().hypervisor_id;
        let settled = hypervisor.is(HypervisorCondition::TraitsUpdated);
        if target.changed && settled && hypervisor.metadata.generation == observed(hypervisor) {
            let drift = OfKind { kind: "traits" };
            self.context.metrics.drift_corrections.get_or_create(&drift).inc();
        }
        for attempt in 1..=TRIES {
            match self.put(provider, &target, generation).await {
                Ok(()) => return self.applied(hypervisor, &target).await,
                Err(error) if error.is_conflict() && attempt < TRIES => {}
                Err(error) => return self.failed(hypervisor, &error).await,
            }
            // Somebody else wrote first: read, judge and try again.
            match self.cloud.traits(provider).await {
                Ok((current, now)) => {
                    let wanted = wanted::traits(&hypervisor.spec, self.context.config.groups_source);
                    target = decide::target(&wanted, &self.managed(hypervisor), &current);
                    generation = now;
                }
                Err(error) => return self.failed(hypervisor, &error).await,
            }
        }
        Ok(())
    }

    async fn put(&self, provider: &str, target: &Target, generation: u64) -> cloud::Result<()> {
        if !target.changed {
            return Ok(());
        }
        for name in &target.create {
            self.cloud.create_trait(name).await?;
        }
        self.cloud.set_traits(provider, &target.all, generation).await
    }

    async fn applied(&self, hypervisor: &Arc<Hypervisor>, target: &Target) -> Result<(), Error> {
        let condition = NewCondition::yes(
            HypervisorCondition::TraitsUpdated,
            TraitsUpdatedReason::Succeeded,
            "Traits successfully updated",
        );
        let fields = &self.context.fields;
        let intent = Intent::new()
            .field("traits", target.all.clone())
            .condition(condition);
        let intent = fields.add(
            OwnKind::Hypervisor,
            intent,
            "managedTraits",
            target.managed.clone(),
        );
        self.write(hypervisor, &intent).await?;
        let wanted = wanted::traits(&hypervisor.spec, self.context.config.groups_source);
        let memory = Memory {
            managed: target.managed.clone(),
            verified: Some((wanted, Instant::now())),
        };
        self.memory.set(hypervisor, memory);
        Ok(())
    }

    async fn failed(&self, hypervisor: &Arc<Hypervisor>, error: &cloud::Error) -> Result<(), Error> {
        let text = format!("Failed to update traits in placement: {error}");
        let condition = NewCondition::no(
            HypervisorCondition::TraitsUpdated,
            TraitsUpdatedReason::Failed,
            text.clone(),
        );
        self.write(hypervisor, &self.lists(hypervisor).condition(condition))
            .await?;
        Err(Error::OpenStack(text))
    }

    /// The lists as they are, so that saying something else does not remove them.
    fn lists(&self, hypervisor: &Hypervisor) -> Intent {
        let known = hypervisor.known();
        let intent = Intent::new().field("traits", known.traits.clone());
        let managed = known.managed_traits.clone();
        self.context
            .fields
            .add(OwnKind::Hypervisor, intent, "managedTraits", managed)
    }

    async fn write(&self, hypervisor: &Arc<Hypervisor>, intent: &Intent) -> Result<(), Error> {
        self.context
            .write_status(FieldManager::Traits, hypervisor.as_ref(), intent)
            .await
            .map(drop)
    }
}

fn observed(hypervisor: &Hypervisor) -> Option<i64> {
    let condition =
        cobaltcore_kit::status::find(&hypervisor.known().conditions, HypervisorCondition::TraitsUpdated);
    condition.and_then(|condition| condition.observed_generation)
}

#[cfg(test)]
mod tests;
