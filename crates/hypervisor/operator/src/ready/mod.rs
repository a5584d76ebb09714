// SPDX-License-Identifier: Apache-2.0
//! Sums a Hypervisor up: the `Ready` condition that schedulers read, and the lifecycle phase
//! that people read. It decides nothing; it says in one place what all the others decided.

mod decide;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_api::{Hypervisor, LifecyclePhase};
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::{Intent, NewCondition, Written};
use kube::runtime::reflector::ObjectRef;

use crate::context::Context;
use crate::error::Error;
use crate::known_fields::OwnKind;
use crate::seen::LookAtHypervisor as _;

pub use decide::phase;

/// The controller.
pub(crate) fn controller(context: &Context) -> SharedRunner<Ready> {
    let hypervisors = &context.caches.hypervisors;
    let changed = hypervisors.own_triggers(|change| change.differs(decide::inputs));
    // A definition that gains the field of the phase has it filled in everywhere.
    let (all, fields, had) = (
        hypervisors.clone(),
        context.fields.clone(),
        AtomicBool::new(false),
    );
    let defined = context.caches.definitions.triggers(move |change| {
        if let Some(definition) = &change.after {
            fields.read(definition);
        }
        let has = fields.has(OwnKind::Hypervisor, "phase");
        let gained = has && !had.swap(has, Ordering::Relaxed);
        let whole = if gained { all.all() } else { Vec::new() };
        whole
            .into_iter()
            .map(|hv| ObjectRef::from_obj(hv.as_ref()))
            .collect::<Vec<_>>()
    });
    SharedRunner::new("ready", hypervisors.store(), Ready(context.clone()))
        .on(changed)
        .on(defined)
}

/// Sums Hypervisors up.
pub(crate) struct Ready(Context);

/// What a Hypervisor comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    ready: NewCondition,
    phase: LifecyclePhase,
}

impl Reconciler for Ready {
    type Object = Hypervisor;
    type Facts = ();
    type Action = Summary;
    type Error = Error;

    async fn observe(&self, _: &Arc<Hypervisor>) -> Result<(), Error> {
        Ok(())
    }

    fn decide(&self, hypervisor: &Hypervisor, (): &()) -> Plan<Summary> {
        Plan::of(vec![Summary {
            ready: decide::ready(hypervisor),
            phase: decide::phase(hypervisor),
        }])
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, summary: Summary) -> Result<(), Error> {
        let Summary { ready, phase } = summary;
        let Self(context) = self;
        let mut intent = Intent::new().condition(ready);
        for (field, value) in [
            ("phase", serde_json::Value::from(phase.as_str())),
            ("observedGeneration", hypervisor.metadata.generation.into()),
        ] {
            intent = context.fields.add(OwnKind::Hypervisor, intent, field, value);
        }
        let written = context.write_status(FieldManager::Ready, hypervisor.as_ref(), &intent);
        let before = hypervisor.known().phase;
        if let (Written::Applied(_), true) = (written.await?, before != Some(phase)) {
            let note = match before {
                Some(before) => format!("{before} -> {phase}"),
                None => format!("now {phase}"),
            };
            let happening = Happening::normal(EventReason::PhaseChanged, "Lifecycle", note);
            context.recorder.record(hypervisor.as_ref(), happening);
        }
        Ok(())
    }
}
