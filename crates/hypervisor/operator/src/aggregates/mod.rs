// SPDX-License-Identifier: Apache-2.0
//! The aggregates controller: keeps a host in exactly the host aggregates its stage of life asks
//! for. It compares with Nova and not with its own record, by one list for the whole fleet: all
//! hosts look at the same tick, and the first one fetches for the others.

mod decide;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::AggregatesUpdatedReason;
use cobaltcore_api::{Hypervisor, labels};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::status::{Intent, NewCondition};
use tokio::time::Instant;

use crate::cloud::Cloud;
use crate::context::Context;
use crate::eviction::compute_host;
use crate::memory::Memories;
use crate::metrics::OfKind;
use crate::seen::LookAtHypervisor as _;
use crate::{Error, wanted};

pub use decide::{Change, Desired, Listed, Snapshot, applied, changes, desired};

/// How old the list may be when something is to be changed.
const CHANGE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(30);

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Aggregates> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| {
        change.differs(|hypervisor| {
            (
                hypervisor.metadata.generation,
                hypervisor.onboarding(),
                hypervisor.known().service_id.clone(),
                hypervisor.label(labels::ZONE).map(str::to_owned),
                hypervisor.is(HypervisorCondition::TraitsUpdated),
                hypervisor.is_not(HypervisorCondition::Evicting),
                hypervisor.is(HypervisorCondition::Offboarded),
            )
        })
    });
    let aggregates = Aggregates {
        context: context.clone(),
        cloud: cloud.clone(),
        began: Instant::now(),
        verified: Memories::of(hypervisors),
    };
    SharedRunner::new("aggregates", hypervisors.store(), aggregates).on(changed)
}

/// Keeps hosts in their aggregates.
pub(crate) struct Aggregates {
    context: Context,
    cloud: Cloud,
    began: Instant,
    /// The tick at which a host was last compared with Nova.
    verified: Memories<Hypervisor, u32>,
}

/// A moment at which the whole fleet looks.
struct Tick {
    number: u32,
    at: Instant,
}

/// What is known.
pub(crate) enum Facts {
    /// Not ours to say now.
    Rest,
    /// The host has left.
    Gone,
    /// Nova need not be asked.
    Settled(Desired),
    /// Nova did not answer.
    Trouble(String),
    /// All aggregates.
    Listed(Desired, Arc<Vec<Listed>>),
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Say nothing any more.
    Withdraw,
    /// Say that it did not work.
    Fail(String),
    /// Say what holds.
    Say(Desired),
    /// Make it so and say it.
    Apply(Desired, Vec<Change>, Arc<Vec<Listed>>),
}

impl Reconciler for Aggregates {
    type Object = Hypervisor;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Facts, Error> {
        if hypervisor.is(HypervisorCondition::Offboarded) {
            return Ok(Facts::Gone);
        }
        let snapshot = self.snapshot(hypervisor);
        let Some(desired) = desired(&snapshot) else {
            return Ok(Facts::Rest);
        };
        let Some(names) = &desired.names else {
            return Ok(Facts::Settled(desired));
        };
        let mut have: Vec<&String> = snapshot.applied.iter().map(|one| &one.name).collect();
        let mut want: Vec<&String> = names.iter().collect();
        have.sort_unstable();
        want.sort_unstable();
        let tick = self.tick();
        let verified = self.verified.get(hypervisor) == Some(tick.number);
        if have == want && verified {
            return Ok(Facts::Settled(desired));
        }
        let recent = Instant::now().checked_sub(CHANGE).filter(|_| have != want);
        let oldest = recent.map_or(tick.at, |recent| recent.max(tick.at));
        Ok(match self.cloud.aggregates(oldest).await {
            Ok(listed) => Facts::Listed(desired, listed),
            Err(error) => Facts::Trouble(format!("failed to apply aggregates: {error}")),
        })
    }

    fn decide(&self, hypervisor: &Hypervisor, facts: &Facts) -> Plan<Action> {
        let into = self.tick().at.elapsed();
        let next = self.context.config.drift_interval.0.saturating_sub(into);
        let next = next.max(Duration::from_secs(1));
        match facts {
            Facts::Rest => Plan::rest(),
            Facts::Gone => Plan::of(vec![Action::Withdraw]),
            Facts::Settled(desired) => Plan::of(vec![Action::Say(desired.clone())]).again_after(next),
            Facts::Trouble(text) => Plan::of(vec![Action::Fail(text.clone())]).again_after(RETRY),
            Facts::Listed(desired, listed) => {
                let names = desired.names.as_deref().unwrap_or_default();
                match changes(names, &compute_host(hypervisor), listed) {
                    Ok(changes) => {
                        Plan::of(vec![Action::Apply(desired.clone(), changes, Arc::clone(listed))])
                            .again_after(next)
                    }
                    Err(missing) => {
                        let text = format!(
                            "failed to apply aggregates: aggregates not found: [{}]",
                            missing.join(" ")
                        );
                        Plan::of(vec![Action::Fail(text)]).again_after(RETRY)
                    }
                }
            }
        }
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Withdraw => self.write(hypervisor, &Intent::new()).await,
            Action::Say(desired) => {
                let applied = hypervisor.known().aggregates.clone();
                self.say(hypervisor, &desired, &applied).await
            }
            Action::Fail(text) => {
                // A name that appears meanwhile is found by the next look.
                self.fail(hypervisor, &text).await
            }
            Action::Apply(desired, changes, listed) => {
                self.apply(hypervisor, &desired, &changes, &listed).await
            }
        }
    }
}

impl Aggregates {
    /// The current tick.
    fn tick(&self) -> Tick {
        let interval = self.context.config.drift_interval.0.max(Duration::from_secs(1));
        let number = self.began.elapsed().as_nanos() / interval.as_nanos();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Tick {
            number,
            at: self.began + interval.saturating_mul(number),
        }
    }

    fn snapshot(&self, hypervisor: &Hypervisor) -> Snapshot {
        let (known, spec) = (hypervisor.known(), &hypervisor.spec);
        Snapshot {
            lifecycle: spec.lifecycle_enabled,
            compute_host: hypervisor.is_registered().then(|| compute_host(hypervisor)),
            mode: spec.maintenance.clone(),
            zone: hypervisor.label(labels::ZONE).map(str::to_owned),
            spec: wanted::aggregates(spec, self.context.config.groups_source),
            applied: known.aggregates.clone(),
            conditions: known.conditions.clone(),
            test_aggregate: self.context.config.test_aggregate.clone(),
        }
    }

    /// Adds before it removes, and goes on after a failure: what one call could not do may be done
    /// by the next pass, because another call made room for it.
    async fn apply(
        &self,
        hypervisor: &Arc<Hypervisor>,
        desired: &Desired,
        changes: &[Change],
        listed: &[Listed],
    ) -> Result<(), Error> {
        let host = compute_host(hypervisor);
        let names = desired.names.clone().unwrap_or_default();
        if !changes.is_empty() && names_of(hypervisor) == sorted(&names) {
            let drift = OfKind { kind: "aggregates" };
            self.context.metrics.drift_corrections.get_or_create(&drift).inc();
        }
        let mut errors = Vec::new();
        for change in changes {
            let outcome = match change {
                Change::Add(id, name) => {
                    let added = self.cloud.add_host(*id, &host).await;
                    added.map_err(|error| format!("failed to add host {host} to aggregate {name}: {error}"))
                }
                Change::Remove(id, name) => {
                    let removed = self.cloud.remove_host(*id, &host).await;
                    removed.map_err(|error| {
                        format!("failed to remove host {host} from aggregate {name}: {error}")
                    })
                }
            };
            errors.extend(outcome.err());
        }
        if errors.is_empty() {
            self.say(hypervisor, desired, &applied(&names, listed)).await?;
            let tick = self.tick().number;
            self.verified.set(hypervisor, tick);
            return Ok(());
        }
        self.cloud.forget_aggregates();
        let text = format!("failed to apply aggregates: {}", errors.join("; "));
        self.fail(hypervisor, &text).await?;
        Err(Error::OpenStack(text))
    }

    async fn say(
        &self,
        hypervisor: &Arc<Hypervisor>,
        desired: &Desired,
        applied: &[cobaltcore_api::Aggregate],
    ) -> Result<(), Error> {
        let condition = NewCondition::new(
            HypervisorCondition::AggregatesUpdated,
            desired.final_,
            desired.reason,
            desired.message,
        );
        self.write(hypervisor, &intent(applied)?.condition(condition))
            .await
    }

    async fn fail(&self, hypervisor: &Arc<Hypervisor>, text: &str) -> Result<(), Error> {
        let condition = NewCondition::no(
            HypervisorCondition::AggregatesUpdated,
            AggregatesUpdatedReason::Failed,
            text,
        );
        let applied = &hypervisor.known().aggregates;
        self.write(hypervisor, &intent(applied)?.condition(condition))
            .await
    }

    async fn write(&self, hypervisor: &Arc<Hypervisor>, intent: &Intent) -> Result<(), Error> {
        self.context
            .write_status(FieldManager::Aggregates, hypervisor.as_ref(), intent)
            .await
            .map(drop)
    }
}

fn intent(applied: &[cobaltcore_api::Aggregate]) -> Result<Intent, Error> {
    let value = serde_json::to_value(applied).map_err(|source| Error::Json {
        what: "the aggregates of a status".to_owned(),
        source,
    })?;
    Ok(Intent::new().field("aggregates", value))
}

fn names_of(hypervisor: &Hypervisor) -> Vec<String> {
    let names = hypervisor.known().aggregates.iter();
    sorted(&names.map(|one| one.name.clone()).collect::<Vec<_>>())
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
