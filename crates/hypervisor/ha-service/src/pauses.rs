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
    known: Arc<RwLock<Vec<Pause>>>,
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
            brain,
            metrics,
        }
    }

    /// Those in force, as last read.
    pub fn all(&self) -> Vec<Pause> {
        let now = jiff::Timestamp::now();
        self.known
            .read()
            .iter()
            .filter(|pause| pause.until > now)
            .cloned()
            .collect()
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
                tracing::warn!(why, "pauses cannot be read; those known stay in force");
                self.tell().await;
            }
            if wait(&stop, EVERY).await {
                return;
            }
        }
    }

    async fn refresh(&self) -> Result<(), String> {
        let found = self.read().await?;
        *self.known.write() = found;
        self.tell().await;
        Ok(())
    }

    async fn tell(&self) {
        let all = self.all();
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
