// SPDX-License-Identifier: Apache-2.0
//! Looks once a day at what would only be noticed when a host has died: whether the client of Ceph
//! that opens the disks of guests may break the locks that a dead host leaves behind. Where it may
//! not, guests are moved and hang at their new place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_fencing::Locks;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::CephClient;
use crate::metrics::{Metrics, OfPreflight};
use crate::settings::InForce;

/// What is not as it should be is looked at again after this time, to see it repaired.
const AGAIN: Duration = Duration::from_secs(15 * 60);
const CHECK: &str = "ceph-locks";

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Good,
    /// It is missing, in a sentence.
    Missing(String),
    /// It cannot be told, and why.
    Unknown(String),
}

impl Found {
    const RESULTS: [&'static str; 3] = ["good", "missing", "unknown"];

    fn result(&self) -> &'static str {
        let [good, missing, unknown] = Self::RESULTS;
        match self {
            Self::Good => good,
            Self::Missing(_) => missing,
            Self::Unknown(_) => unknown,
        }
    }
}

/// What the last looks found. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Preflight(Arc<Mutex<BTreeMap<String, Found>>>);

impl Preflight {
    /// Why a guest that was moved may not start, as far as it was known before.
    pub(crate) fn suspicion(&self) -> Option<String> {
        let found = self.0.lock();
        let mut missing = found.values().filter_map(|found| match found {
            Found::Missing(said) => Some(said.clone()),
            Found::Good | Found::Unknown(_) => None,
        });
        missing.next()
    }

    /// Looks until `stop`.
    pub async fn keep(self, in_force: InForce, metrics: Metrics, stop: CancellationToken) {
        let mut changes = in_force.changes();
        loop {
            let wanted = changes.borrow_and_update().preflight.clone();
            self.forget(&wanted.ceph, &metrics);
            let looks = wanted.ceph.iter().map(|client| async {
                let found = look(client).await;
                self.note(&client.name(), found, &metrics);
            });
            tokio::select! {
                () = stop.cancelled() => return,
                _ = futures::future::join_all(looks) => {}
            }
            let well = self.0.lock().values().all(|found| *found == Found::Good);
            let pause = if well {
                wanted.every.0
            } else {
                AGAIN.min(wanted.every.0)
            };
            let changed = async {
                while changes.changed().await.is_ok() {
                    if changes.borrow_and_update().preflight != wanted {
                        return;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Whoever is not asked about any more is not told about either.
    fn forget(&self, wanted: &[CephClient], metrics: &Metrics) {
        self.0.lock().retain(|name, _| {
            let stays = wanted.iter().any(|client| client.name() == *name);
            if !stays {
                for result in Found::RESULTS {
                    metrics.preflight.remove(&label(name, result));
                }
            }
            stays
        });
    }

    fn note(&self, name: &str, found: Found, metrics: &Metrics) {
        let result = found.result();
        for other in Found::RESULTS {
            let value = i64::from(other == result);
            metrics.preflight.get_or_create(&label(name, other)).set(value);
        }
        let before = self.0.lock().insert(name.to_owned(), found.clone());
        if before.as_ref() == Some(&found) {
            return;
        }
        match &found {
            Found::Good => tracing::info!(check = CHECK, of = name, result, "preflight"),
            Found::Missing(said) => tracing::error!(check = CHECK, of = name, result, said, "preflight"),
            Found::Unknown(said) => tracing::warn!(check = CHECK, of = name, result, said, "preflight"),
        }
    }
}

fn label(name: &str, result: &str) -> OfPreflight {
    OfPreflight {
        check: CHECK.to_owned(),
        of: name.to_owned(),
        result: result.to_owned(),
    }
}

async fn look(client: &CephClient) -> Found {
    let CephClient {
        cluster, client: who, ..
    } = client;
    match client.locks().await {
        Ok(Locks::Breaks) => Found::Good,
        Ok(Locks::Cannot) => Found::Missing(format!(
            "{who} may not break locks in {cluster}, so guests of a dead host cannot open their disks; it needs the \
             capability `profile rbd` for the monitors"
        )),
        Ok(Locks::CouldOnce) => Found::Missing(format!(
            "{who} may not break locks in {cluster}, so guests of a dead host cannot open their disks: its `osd blacklist` \
             has been `osd blocklist` since Ceph 16; give it `profile rbd` for the monitors"
        )),
        Err(error) => Found::Unknown(error.to_string()),
    }
}
