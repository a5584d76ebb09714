// SPDX-License-Identifier: Apache-2.0
//! The eviction controller: empties a host one server after the other, some of them at a time.
//! It promises that success means an empty host, that a server that cannot move never holds up
//! the others, and that a crash at any point neither repeats nor forgets a move. It leaves the
//! state of the compute service to the maintenance controller.

mod act;
mod closing;
mod decide;
mod fleet;
mod gate;
mod judge;
mod model;
mod observe;
mod pace;
mod report;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::reasons::EvictionStepReason;
use cobaltcore_api::{Eviction, Migration};
use cobaltcore_kit::controller::{Next, Plan, Reconciler, SharedRunner};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use crate::Error;
use crate::cloud::Cloud;
use crate::context::Context;
use crate::look::Statements;
use crate::memory::Memories;
use fleet::Fleet;
use observe::{Facts, Memory};

pub use closing::{Claim, claim_of, disabled_reason};
pub use decide::{Decision, decide};
pub use model::*;
pub(crate) use observe::{compute_host, controls, order};
pub use report::Report;

/// Between two tries while Nova does not answer.
const TROUBLE: Duration = Duration::from_secs(10);

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context, cloud: &Cloud) -> SharedRunner<Evictor> {
    let caches = &context.caches;
    let own = caches.evictions.own_triggers(|change| {
        change.differs(|eviction| {
            (
                eviction.spec.clone(),
                eviction.metadata.deletion_timestamp.clone(),
                eviction.metadata.annotations.clone(),
                eviction.metadata.finalizers.clone(),
                eviction.metadata.owner_references.clone(),
            )
        })
    });
    let evictions = caches.evictions.clone();
    let hosts = caches.hypervisors.triggers(move |change| {
        let relevant = change.differs(|hypervisor| {
            let status = hypervisor.status.as_ref();
            (
                hypervisor.spec.maintenance.clone(),
                status.map(|status| (status.service_id.clone(), status.num_instances)),
                crate::look::says(
                    status.map_or(&[], |status| &status.conditions),
                    cobaltcore_api::conditions::HypervisorCondition::HypervisorDisabled,
                ),
            )
        });
        let name = change.object().map(|hypervisor| hypervisor.name_any());
        let of_host = |eviction: &Eviction| Some(&eviction.spec.hypervisor) == name.as_ref();
        let all = if relevant { evictions.all() } else { Vec::new() };
        those(&all, of_host)
    });
    let evictions = caches.evictions.clone();
    let moves = caches.migrations.triggers(move |change| {
        let server = change.object().map(|migration| migration.name_any());
        let server = server.filter(|_| change.differs(stage));
        server.map_or_else(Vec::new, |server| {
            those(&evictions.all(), |eviction| is_moving(eviction, &server))
        })
    });
    let evictor = Evictor {
        context: context.clone(),
        cloud: cloud.clone(),
        fleet: Fleet::default(),
        memory: Memories::of(&caches.evictions),
    };
    SharedRunner::new("eviction", caches.evictions.store(), evictor)
        .on(own)
        .on(hosts)
        .on(moves)
}

/// Those of `all` that are meant, to be looked at now.
fn those(all: &[Arc<Eviction>], meant: impl Fn(&Eviction) -> bool) -> Vec<ObjectRef<Eviction>> {
    let meant = all.iter().filter(|eviction| meant(eviction));
    meant
        .map(|eviction| ObjectRef::from_obj(eviction.as_ref()))
        .collect()
}

/// How far a migration got, as its node agent reports it: what is worth a look when it changes.
/// Figures of progress are not; they change all the time.
fn stage(migration: &Migration) -> impl PartialEq + use<> {
    let status = migration.status.as_ref();
    status.map(|status| (status.phase.clone(), status.finished.clone()))
}

/// Whether an Eviction announced a move of this server.
fn is_moving(eviction: &Eviction, server: &str) -> bool {
    let status = eviction.status.as_ref();
    let mut entries = status.into_iter().flat_map(|status| &status.in_flight);
    entries.any(|entry| entry.id == server)
}

/// Empties hosts.
pub(crate) struct Evictor {
    context: Context,
    cloud: Cloud,
    fleet: Fleet,
    memory: Memories<Eviction, Memory>,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Keep in mind.
    Remember(Box<Ledger>, u32),
    /// Write the report.
    Report(Box<Report>),
    /// Say on the Hypervisor how incoming migrations stand.
    Incoming(Incoming),
    /// One step.
    Step(Step),
}

impl Reconciler for Evictor {
    type Object = Eviction;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, eviction: &Arc<Eviction>) -> Result<Facts, Error> {
        self.look(eviction).await
    }

    fn decide(&self, eviction: &Eviction, facts: &Facts) -> Plan<Action> {
        match facts {
            Facts::Known(snapshot) => plan(decide(snapshot)),
            Facts::Trouble(text) => trouble(eviction, text),
        }
    }

    async fn act(&self, eviction: &Arc<Eviction>, action: Action) -> Result<(), Error> {
        match action {
            Action::Remember(ledger, moving) => {
                let uid = eviction.uid().unwrap_or_default();
                self.fleet.settle(&uid, moving);
                self.memory.with(eviction, |memory| memory.ledger = *ledger);
                Ok(())
            }
            Action::Report(report) => self.report(eviction, &report).await,
            Action::Incoming(incoming) => self.report_incoming(eviction, &incoming).await,
            Action::Step(step) => self.step(eviction, step).await,
        }
    }
}

/// The order of things: hold the object, announce, then act.
fn plan(decision: Decision) -> Plan<Action> {
    let Decision {
        steps,
        report,
        ledger,
        moving,
        next,
    } = decision;
    let (first, rest): (Vec<Step>, Vec<Step>) = steps
        .into_iter()
        .partition(|step| matches!(step, Step::Hold | Step::TakeRetry));
    let incoming = report.incoming.clone().map(Action::Incoming);
    let actions = first
        .into_iter()
        .map(Action::Step)
        .chain([
            Action::Remember(Box::new(ledger), moving),
            Action::Report(Box::new(report)),
        ])
        .chain(incoming)
        .chain(rest.into_iter().map(Action::Step))
        .collect();
    Plan { actions, next }
}

/// Nova does not answer: nothing is concluded, and the Eviction says so.
fn trouble(eviction: &Eviction, text: &str) -> Plan<Action> {
    let status = eviction.status.clone().unwrap_or_default();
    let mut conditions = Statements::again(&status.conditions, EvictionCondition::ALL);
    conditions.say(
        EvictionCondition::MigratingInstance,
        false,
        EvictionStepReason::Failed,
        format!("waiting for an answer: {text}"),
    );
    let report = Report {
        status: cobaltcore_api::EvictionStatus {
            conditions: Vec::new(),
            ..status
        },
        conditions,
        incoming: None,
    };
    Plan {
        actions: vec![Action::Report(Box::new(report))],
        next: Next::After(TROUBLE),
    }
}

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
