// SPDX-License-Identifier: Apache-2.0
//! Says of hosts that no incident has any more that their recovery is over. Whoever gives a host back says so at once;
//! this is for the ends at which nobody could: a crash in between, an API that did not answer, a person who ended the
//! incident. Only whoever leads writes, and only where the object still says otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition::HaRecovery;
use cobaltcore_api::reasons::HaRecoveryReason;
use cobaltcore_kit::status::NewCondition;
use cobaltcore_kit::watched::Watched;
use kube::ResourceExt as _;
use tokio_util::sync::CancellationToken;

use crate::http::App;
use crate::leadership::pause;
use crate::said;

const EVERY: Duration = Duration::from_secs(5);
const CALL_TIME: Duration = Duration::from_secs(10);
const OVER: &str = "no incident has the host any more";

/// Keeps `HaRecovery` from outliving its incident, until `stop`.
pub async fn keep(
    app: Arc<App>,
    hypervisors: Watched<Hypervisor>,
    client: kube::Client,
    stop: CancellationToken,
) {
    while !pause(&stop, EVERY).await {
        let mut told = hypervisors.all();
        told.retain(|hypervisor| said::affirmed(hypervisor, HaRecovery));
        if told.is_empty() {
            continue;
        }
        // Asked after the objects were read: an incident that begins later changes its object first.
        let Some(handled) = handled(&app).await else {
            continue;
        };
        for hypervisor in told {
            if !handled.contains(&hypervisor.name_any()) {
                write(&client, &hypervisor).await;
            }
        }
    }
}

/// Hosts that an incident has; nothing if this replica does not lead.
async fn handled(app: &App) -> Option<BTreeSet<String>> {
    let look = app.brain.ask(|engine, _| {
        engine.leads()?;
        let open = engine.incidents().into_iter().filter(|one| one.state.open());
        Some(open.map(|one| one.id.host.to_string()).collect())
    });
    look.await.flatten()
}

async fn write(client: &kube::Client, read: &Hypervisor) {
    let host = read.name_any();
    let call = said::say(client, read, |found| {
        // Whoever changed it meanwhile may have claimed the host for a new incident.
        let same = found.resource_version() == read.resource_version();
        same.then(|| vec![NewCondition::no(HaRecovery, HaRecoveryReason::Released, OVER)])
    });
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(Ok(true)) => tracing::info!(host, "its recovery was over and its object did not say so"),
        Ok(Ok(false)) => {}
        Ok(Err(error)) => tracing::warn!(host, %error, "HaRecovery cannot be written"),
        Err(_) => tracing::warn!(host, "HaRecovery cannot be written: no answer"),
    }
}
