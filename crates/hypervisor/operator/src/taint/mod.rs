// SPDX-License-Identifier: Apache-2.0
//! Marks a Hypervisor that somebody edited by hand. The smallest complete controller: `observe`
//! asks nothing, `decide` is a function of the object, `act` writes one condition.

mod decide;

use std::sync::Arc;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::status::{Intent, NewCondition};

use crate::context::Context;
use crate::error::Error;

/// The controller; its name is that of the running system.
pub(crate) fn controller(context: &Context) -> SharedRunner<Taint> {
    let hypervisors = &context.caches.hypervisors;
    let edited =
        hypervisors.own_triggers(|change| change.differs(|hv| (hv.metadata.generation, decide::editors(hv))));
    SharedRunner::new("HypervisorTaint", hypervisors.store(), Taint(context.clone())).on(edited)
}

/// Looks at who changed a Hypervisor.
pub(crate) struct Taint(Context);

impl Reconciler for Taint {
    type Object = Hypervisor;
    type Facts = ();
    type Action = NewCondition;
    type Error = Error;

    async fn observe(&self, _: &Arc<Hypervisor>) -> Result<(), Error> {
        Ok(())
    }

    fn decide(&self, hypervisor: &Hypervisor, (): &()) -> Plan<NewCondition> {
        Plan::of(vec![decide::tainted(hypervisor)])
    }

    async fn act(&self, hypervisor: &Arc<Hypervisor>, tainted: NewCondition) -> Result<(), Error> {
        let intent = Intent::new().condition(tainted);
        let written = self
            .0
            .write_status(FieldManager::Taint, hypervisor.as_ref(), &intent);
        written.await.map(drop)
    }
}
