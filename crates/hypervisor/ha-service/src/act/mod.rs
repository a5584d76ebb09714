// SPDX-License-Identifier: Apache-2.0
//! Carries out what the engine wants: every action is started at most once, not after its time,
//! and answered by exactly one outcome.
//!
//! | module | holds |
//! | --- | --- |
//! | [`nova`](self) | compute services, servers, evacuations |
//! | [`facts`](self) | what Nova's answers mean to the engine, without I/O |
//! | [`kubernetes`](self) | maintenance, conditions, taints, evictions |
//! | [`fence`](self) | power, through the devices of `cobaltcore-ha-fencing` |
//! | [`pace`](self) | how fast Nova is asked |
//! | [`terms`](self) | which terms are over, and what of them is still under way |
//!
//! Nothing here repeats a request that may have had an effect. What could not be found out is
//! answered as unknown, and the engine looks before it acts again.

mod facts;
mod fence;
pub(crate) mod kubernetes;
mod nova;
mod pace;
mod terms;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{Action, ActionId, Answer, Effect, Epoch, IncidentId, Input, Mono, Trouble};
use cobaltcore_ha_fencing::Fences;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use crate::commands::Order;
use crate::config::Config;
use crate::deps::Deps;
use crate::error::Error;

pub use fence::Unfit;
use nova::Cloud;
pub(crate) use nova::microversion;
pub use terms::Terms;

/// How long an action may take altogether. It bounds what waits for answers; two leaders are kept apart by the bounds of
/// each action, after which no order leaves for a device or for Nova, and by the versions that writes to objects name.
const LONGEST: Duration = Duration::from_secs(10);
/// How long a command waits for its agent.
const COMMAND_LIFE: Duration = Duration::from_secs(30);

pub(crate) type Outcome = Result<Answer, Trouble>;

/// Carries out actions. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    deps: Deps,
    /// Made anew when the configuration changes.
    fences: Arc<RwLock<Arc<Fences>>>,
    cloud: Option<Cloud>,
    terms: Terms,
}

impl Executor {
    /// An executor with these ways into the world. Fails if a fencing device cannot be used as it
    /// is configured: better now than in an emergency.
    pub fn new(deps: Deps) -> Result<Self, Error> {
        let fences = fences(&deps.in_force.get(), &deps)?;
        let cloud = deps.openstack.clone().map(|session| Cloud::new(session, &deps));
        Ok(Self {
            fences: Arc::new(RwLock::new(fences)),
            cloud,
            terms: Terms::default(),
            deps,
        })
    }

    /// Prepares what another configuration wants; nothing changes before it is put to use.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Prepared, Error> {
        Ok(Prepared(fences(config, &self.deps)?))
    }

    /// Puts to use what was prepared.
    pub(crate) fn change(&self, prepared: Prepared, config: &Config) {
        *self.fences.write() = prepared.0;
        if let Some(cloud) = &self.cloud {
            cloud.change(config);
        }
    }

    /// Which terms are over, and what is under way.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Starts an action and returns at once; the outcome comes through `reply`.
    pub fn start(&self, action: Action, reply: mpsc::Sender<Input>) {
        let this = self.clone();
        let under_way = self.terms.enter();
        tokio::spawn(async move {
            let id = action.id;
            let result = this.run(&action).await;
            drop(under_way);
            if let Err(trouble) = result {
                tracing::warn!(
                    action = ?action.effect, ?trouble, incident = action.incident.map(|id| id.to_string()),
                    "an action had no success"
                );
            }
            // The loop is gone only when the process ends.
            let _ = reply.send(Input::Outcome { id, result }).await;
        });
    }

    /// Carries one action out and waits for it.
    pub async fn run(&self, action: &Action) -> Outcome {
        let bounds = Bounds {
            not_after: action.not_after,
            term: action.id.epoch,
            clock: self.deps.clock,
            terms: &self.terms,
        };
        bounds.check()?;
        match tokio::time::timeout(LONGEST, self.carry_out(action, bounds)).await {
            Ok(result) => result,
            // It was cut off in the middle of something.
            Err(_) => Err(Trouble::Unknown),
        }
    }

    /// Removes the lock of a guest in the name of this term, like any other action of it.
    pub(crate) async fn unlock(&self, term: Epoch, not_after: Mono, server: ServerId) -> Outcome {
        let _under_way = self.terms.enter();
        let action = Action {
            id: ActionId { epoch: term, n: 0 },
            incident: None,
            not_after,
            effect: Effect::Unlock { server },
        };
        self.run(&action).await
    }

    async fn carry_out(&self, action: &Action, bounds: Bounds<'_>) -> Outcome {
        let incident = action.incident.as_ref();
        match &action.effect {
            Effect::Investigate { host, peers } => {
                self.deps.investigator.investigate(host, peers);
                Ok(Answer::Done)
            }
            Effect::ListGuests { hosts } => {
                for host in hosts {
                    self.deps.commands.push(host, Order::Resync, COMMAND_LIFE);
                }
                Ok(Answer::Done)
            }
            Effect::Resign => {
                self.deps.leadership.resign();
                Ok(Answer::Done)
            }
            Effect::PauseDomain { host, server } => {
                let order = Order::PauseDomain(server.clone());
                self.deps.commands.push(host, order, COMMAND_LIFE);
                Ok(Answer::Done)
            }
            Effect::ReadPower { host, level } => self.read_power(host, *level).await,
            Effect::ReadHold { host, level } => self.read_hold(host, *level).await,
            Effect::Identify { host, level } => self.identify(host, *level).await,
            Effect::PowerOff { host, level } => self.power_off(host, *level, bounds).await,
            Effect::Hold { host, level } => self.hold(host, *level, incident, bounds).await,
            Effect::ReleaseFence { host, levels } => self.release_fence(host, levels, bounds).await,
            Effect::ReadMaintenance { host } => self.read_maintenance(host).await,
            Effect::Claim { host, expected } => self.claim(host, expected, incident, bounds).await,
            Effect::SetDisabled { host } => self.set_disabled(host, incident).await,
            Effect::StopEviction { host } => self.stop_eviction(host).await,
            Effect::RestoreMaintenance { host, value } => {
                self.restore_maintenance(host, value, incident, bounds).await
            }
            effect => match &self.cloud {
                Some(cloud) => cloud.carry_out(effect, incident, bounds).await,
                // Without a cloud nothing of a cloud can be done.
                None => Err(Trouble::NotStarted),
            },
        }
    }
}

/// What another configuration needs.
pub(crate) struct Prepared(Arc<Fences>);

fn fences(config: &Config, deps: &Deps) -> Result<Arc<Fences>, Error> {
    Fences::new(config.fencing.clone(), deps.kubernetes.clone())
        .map(Arc::new)
        .map_err(|error| Error::Setup(format!("fencing.{error}")))
}

/// Until when a request may leave, and in whose term.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    not_after: Mono,
    term: Epoch,
    clock: crate::clock::Clock,
    terms: &'a Terms,
}

impl Bounds<'_> {
    /// To be asked right before a request leaves.
    pub(crate) fn check(self) -> Result<(), Trouble> {
        if self.clock.mono() > self.not_after || self.terms.is_over(self.term) {
            Err(Trouble::NotStarted)
        } else {
            Ok(())
        }
    }

    /// How long a request may still leave.
    pub(crate) fn left(self) -> Result<Duration, Trouble> {
        self.check()?;
        Ok(self.not_after.since(self.clock.mono()))
    }

    /// Does something that takes several requests. None of them leaves when the time is over; what had left by then may
    /// have had its effect. A timer alone does not see to that: a process that was frozen goes on where it was before it
    /// looks at its timers.
    pub(crate) async fn within<T>(self, doing: impl Future<Output = T>) -> Result<T, Trouble> {
        let mut doing = pin!(doing);
        let in_time = poll_fn(|context| {
            if self.clock.mono() > self.not_after {
                return Poll::Ready(Err(Trouble::Unknown));
            }
            doing.as_mut().poll(context).map(Ok)
        });
        let done = tokio::time::timeout(self.left()?, in_time).await;
        done.unwrap_or(Err(Trouble::Unknown))
    }
}

/// An incident in words that are written elsewhere.
fn named(incident: Option<&IncidentId>) -> String {
    incident.map_or_else(|| "none".to_owned(), ToString::to_string)
}
