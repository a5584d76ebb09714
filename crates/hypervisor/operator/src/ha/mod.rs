// SPDX-License-Identifier: Apache-2.0
//! Instance high availability, in one of three ways. Delegated: the HA service watches by
//! itself, and the operator only notices when it does not answer. Direct: the operator tells the
//! HA service over HTTP. Off: nobody is asked, and every Hypervisor says so.

mod decide;
mod service;

use std::sync::Arc;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{Intent, NewCondition};
use jiff::Timestamp;

use crate::config::HaMode;
use crate::context::Context;
use crate::error::Error;
use crate::memory::Memories;

use decide::{Action, Facts, Rules};
pub use decide::{Cover, cover};
use service::HaService;

/// The controller; its name is that of its predecessor.
pub(crate) fn controller(context: &Context) -> SharedRunner<Ha> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| change.differs(decide::inputs));
    let reconciler = Ha {
        context: context.clone(),
        service: HaService::new(&context.config),
        rules: Rules {
            mode: context.config.ha_mode,
            patience: context.config.ha_enable_timeout.0,
        },
        waiting: Memories::of(hypervisors),
    };
    SharedRunner::new("HypervisorInstanceHa", hypervisors.store(), reconciler).on(changed)
}

/// Looks after the cover of Hypervisors.
pub(crate) struct Ha {
    context: Context,
    service: HaService,
    rules: Rules,
    /// Since when a host waits for the HA service. Forgotten with the process, which only makes
    /// the warning late.
    waiting: Memories<Hypervisor, Timestamp>,
}

impl Reconciler for Ha {
    type Object = Hypervisor;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, hypervisor: &Arc<Hypervisor>) -> Result<Facts, Error> {
        let now = self.context.now();
        let waiting_since = if decide::awaits_service(hypervisor) {
            let since = self.waiting.get(hypervisor).unwrap_or(now);
            self.waiting.set(hypervisor, since);
            Some(since)
        } else {
            self.waiting.forget(hypervisor);
            None
        };
        let late = self
            .waiting
            .count(|since| crate::seen::elapsed(*since, now) >= self.rules.patience);
        self.context.metrics.ha_waiting.set(late as i64);
        Ok(Facts { waiting_since, now })
    }

    fn decide(&self, hypervisor: &Hypervisor, facts: &Facts) -> Plan<Action> {
        decide::decide(hypervisor, facts, &self.rules)
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, action: Action) -> Result<(), Error> {
        match action {
            Action::Switch(cover) => self.switch(hypervisor, cover).await,
            Action::Say(condition) => self.say(hypervisor, condition).await,
            Action::Warn => {
                let note = "The HA service has not enabled this host; onboarding cannot finish without it";
                let happening = Happening::warning(EventReason::WaitingForHa, "HighAvailability", note);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                Ok(())
            }
        }
    }
}

impl Ha {
    /// Tells the HA service first and writes down what it answered.
    async fn switch(&self, hypervisor: &Arc<Hypervisor>, cover: Cover) -> Result<(), Error> {
        debug_assert_eq!(self.rules.mode, HaMode::Direct);
        match self.service.switch(hypervisor, cover.is_on()).await {
            Ok(()) => {
                let note = cover.message().to_owned();
                let happening = Happening::normal(EventReason::HaSwitched, "HighAvailability", note);
                self.context.recorder.record(hypervisor.as_ref(), happening);
                self.say(hypervisor, decide::condition(cover)).await
            }
            Err(error) => {
                self.say(hypervisor, decide::failed(&error.to_string())).await?;
                Err(error)
            }
        }
    }

    async fn say(&self, hypervisor: &Arc<Hypervisor>, condition: NewCondition) -> Result<(), Error> {
        let intent = Intent::new().condition(condition);
        let manager = FieldManager::InstanceHa;
        self.context
            .write_status(manager, hypervisor.as_ref(), &intent)
            .await
            .map(drop)
    }
}
