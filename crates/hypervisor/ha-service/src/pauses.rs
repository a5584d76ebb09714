// SPDX-License-Identifier: Apache-2.0
//! Pauses: no new fencing and no new evacuation in a scope, until a moment that must be given. They
//! are kept where every replica sees them: in the cluster among several, in the database alone.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{Domain, Input, Pause as EnginePause, PauseScope};
use cobaltcore_ha_wire::rest::Pause;
use parking_lot::RwLock;
use rusqlite::params;
use tokio_util::sync::CancellationToken;

use crate::brain::BrainHandle;
use crate::directory::{BUILDING_BLOCK, ZONE};
use crate::kept::Kept;
use crate::leadership::pause as wait;
use crate::metrics::{Metrics, OfScope};
use crate::store::Store;

const EVERY: Duration = Duration::from_secs(3);
const WHAT: &str = "pauses";
/// Pauses that may be in force.
const MOST: usize = 1000;

#[derive(Clone)]
enum Place {
    Database(Store),
    Cluster(Box<Kept<Vec<Pause>>>),
}

/// All pauses. Cheap to clone; clones share.
#[derive(Clone)]
pub struct PauseBook {
    place: Place,
    /// As last read; nothing before they were.
    known: Arc<RwLock<Option<Vec<Pause>>>>,
    /// One look at a time, so that none puts an older answer over a newer one.
    looking: Arc<tokio::sync::Mutex<()>>,
    brain: BrainHandle,
    metrics: Metrics,
}

/// Reads a scope.
///
/// ```
/// use cobaltcore_ha_service::pauses::scope;
/// assert!(scope("zone/a").is_some());
/// assert!(scope("vm/not-a-uuid").is_none());
/// ```
pub fn scope(text: &str) -> Option<PauseScope> {
    let label = |key: &str, value: &str| {
        let harmless = !value.is_empty() && value.len() <= 63;
        harmless.then(|| PauseScope::Domain(Domain(format!("{key}={value}"))))
    };
    match text.split_once('/') {
        None if text == "global" => Some(PauseScope::Global),
        Some(("zone", name)) => label(ZONE, name),
        Some(("bb", name)) => label(BUILDING_BLOCK, name),
        Some(("host", name)) => HostName::new(name).ok().map(PauseScope::Host),
        Some(("vm", name)) => ServerId::new(name).ok().map(PauseScope::Server),
        _ => None,
    }
}

impl PauseBook {
    /// In the database of this replica.
    pub fn in_database(store: Store, brain: BrainHandle, metrics: Metrics) -> Self {
        Self {
            place: Place::Database(store),
            known: Arc::default(),
            looking: Arc::default(),
            brain,
            metrics,
        }
    }

    /// In the cluster, where every replica sees them.
    pub fn in_cluster(
        client: kube::Client,
        namespace: &str,
        name: &str,
        brain: BrainHandle,
        metrics: Metrics,
    ) -> Self {
        Self {
            place: Place::Cluster(Box::new(Kept::new(client, namespace, name, WHAT))),
            known: Arc::default(),
            looking: Arc::default(),
            brain,
            metrics,
        }
    }

    /// Those in force, as last read; none before they were.
    pub fn all(&self) -> Vec<Pause> {
        self.in_force().unwrap_or_default()
    }

    fn in_force(&self) -> Option<Vec<Pause>> {
        let now = jiff::Timestamp::now();
        let known = self.known.read();
        let known = known.as_ref()?.iter();
        Some(known.filter(|pause| pause.until > now).cloned().collect())
    }

    /// The pause of this scope, as it is kept now.
    pub async fn of(&self, scope: &str) -> Result<Option<Pause>, String> {
        let all = self.read().await?;
        Ok(all.into_iter().find(|pause| pause.scope == scope))
    }

    /// Begins or renews a pause. In force when it returns.
    pub async fn put(&self, pause: Pause) -> Result<(), String> {
        self.edit(move |pauses| {
            pauses.retain(|other| other.scope != pause.scope);
            if pauses.len() >= MOST {
                return Err(format!("there are {MOST} pauses already"));
            }
            pauses.push(pause.clone());
            Ok(())
        })
        .await
    }

    /// Ends a pause; says whether there was one.
    pub async fn end(&self, scope: &str) -> Result<bool, String> {
        let there = self.read().await?.iter().any(|pause| pause.scope == scope);
        if there {
            let scope = scope.to_owned();
            self.edit(move |pauses| {
                pauses.retain(|pause| pause.scope != scope);
                Ok(())
            })
            .await?;
        }
        Ok(there)
    }

    /// Tells the loop what is in force, until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        loop {
            if let Err(why) = self.refresh().await {
                // What was last known stays in force: losing a pause is worse than keeping it.
                tracing::warn!(
                    why,
                    "pauses cannot be read; those known stay in force, and nothing begins before they were read once"
                );
                self.tell().await;
            }
            if wait(&stop, EVERY).await {
                return;
            }
        }
    }

    async fn refresh(&self) -> Result<(), String> {
        let _turn = self.looking.lock().await;
        let found = self.read().await?;
        *self.known.write() = Some(found);
        self.tell().await;
        Ok(())
    }

    /// Nothing before they were read once: that there are none is something to be known, too.
    async fn tell(&self) {
        let Some(all) = self.in_force() else {
            return;
        };
        self.metrics.paused.clear();
        for pause in &all {
            let kind = pause.scope.split('/').next().unwrap_or_default().to_owned();
            self.metrics.paused.get_or_create(&OfScope { scope: kind }).inc();
        }
        let pauses = all
            .iter()
            .filter_map(|pause| {
                Some(EnginePause {
                    scope: scope(&pause.scope)?,
                    reason: pause.reason.clone(),
                })
            })
            .collect();
        self.brain.tell(Input::Pauses(pauses)).await;
    }

    async fn edit(
        &self,
        change: impl Fn(&mut Vec<Pause>) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        match &self.place {
            Place::Database(store) => {
                let mut pauses = self.read().await?;
                change(&mut pauses)?;
                store
                    .write(move |transaction| {
                        transaction.execute("delete from pauses", [])?;
                        for pause in &pauses {
                            transaction.execute(
                                "insert into pauses values(?1, ?2, ?3, ?4)",
                                params![
                                    pause.scope,
                                    pause.reason,
                                    pause.actor,
                                    pause.until.as_millisecond()
                                ],
                            )?;
                        }
                        Ok(())
                    })
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Place::Cluster(kept) => {
                kept.edit(|pauses| {
                    pauses.retain(|pause| pause.until > jiff::Timestamp::now());
                    change(pauses)
                })
                .await?;
            }
        }
        self.refresh().await
    }

    async fn read(&self) -> Result<Vec<Pause>, String> {
        let now = jiff::Timestamp::now();
        let mut found = match &self.place {
            Place::Database(store) => store
                .read(|connection| {
                    let mut all =
                        connection.prepare_cached("select scope, reason, actor, until from pauses")?;
                    all.query_map([], |row| {
                        Ok(Pause {
                            scope: row.get(0)?,
                            reason: row.get(1)?,
                            actor: row.get(2)?,
                            until: jiff::Timestamp::from_millisecond(row.get(3)?)
                                .unwrap_or(jiff::Timestamp::UNIX_EPOCH),
                        })
                    })?
                    .collect()
                })
                .await
                .map_err(|error| error.to_string())?,
            Place::Cluster(kept) => kept.read().await?,
        };
        found.retain(|pause: &Pause| pause.until > now);
        found.sort_by(|a, b| a.scope.cmp(&b.scope));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use cobaltcore_apiserver::testkit::TestServer;
    use cobaltcore_apiserver::{Effect, Fault};
    use cobaltcore_kit::startup::Component;
    use cobaltcore_kit::telemetry::Telemetry;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, Patch, PatchParams, PostParams};
    use serde_json::json;

    use super::*;
    use crate::brain::{Ends, channels};

    fn book(server: &TestServer) -> (PauseBook, Ends) {
        let (brain, ends) = channels();
        let metrics = Metrics::new(&Telemetry::new(&Component {
            name: "kvm-ha-service",
            version: "0",
            commit: "none",
        }));
        (
            PauseBook::in_cluster(server.client(), "default", "ha", brain, metrics),
            ends,
        )
    }

    /// One round of `keep`, and what the engine was told in it.
    async fn round(book: &PauseBook, ends: &mut Ends) -> Option<Vec<EnginePause>> {
        let stop = CancellationToken::new();
        stop.cancel();
        book.clone().keep(stop).await;
        match ends.told() {
            Some(Input::Pauses(pauses)) => Some(pauses),
            _ => None,
        }
    }

    #[tokio::test]
    async fn who_could_not_read_the_pauses_does_not_say_that_there_are_none() {
        let server = TestServer::start().await;
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
        let garbled = json!({"metadata": {"name": "ha-pauses"}, "data": {"pauses": "[{"}});
        let garbled = serde_json::from_value(garbled).unwrap();
        maps.create(&PostParams::default(), &garbled).await.unwrap();
        let (book, mut ends) = book(&server);
        assert_eq!(round(&book, &mut ends).await, None, "what is there is garbled");
        let forbidden = Effect::Refuse {
            code: 403,
            reason: "Forbidden",
            retry_after: None,
        };
        let fault = Fault::new(forbidden).resource("configmaps");
        server.faults().inject(fault.clone());
        assert_eq!(round(&book, &mut ends).await, None, "it may not be read");
        server.faults().clear();
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        let pauses = json!([{"scope": "global", "reason": "work", "actor": "olga", "until": until}]);
        let written = json!({"data": {"pauses": pauses.to_string()}});
        maps.patch("ha-pauses", &PatchParams::default(), &Patch::Merge(&written))
            .await
            .unwrap();
        let told = round(&book, &mut ends).await.unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        server.faults().inject(fault);
        let still = round(&book, &mut ends).await;
        assert_eq!(still, Some(told), "those known stay in force");
    }

    #[tokio::test]
    async fn that_there_are_no_pauses_is_told_once_it_is_known() {
        let server = TestServer::start().await;
        let (book, mut ends) = book(&server);
        assert_eq!(round(&book, &mut ends).await, Some(Vec::new()));
    }
}
