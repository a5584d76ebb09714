// SPDX-License-Identifier: Apache-2.0
//! Hosts that operators before May 2026 switched off. That is kept where pauses are: in the cluster among several
//! replicas, so that it holds for all of them and for whoever leads next, in the database alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use parking_lot::Mutex;
use rusqlite::{Transaction, params};
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::kept::Kept;
use crate::leadership::pause;
use crate::store::Store;

const EVERY: Duration = Duration::from_secs(3);
const WHAT: &str = "switches";
/// Hosts that may be switched off: as many as fit into an object.
const MOST: usize = 10_000;

/// Hosts that are switched off.
type Off = BTreeSet<HostName>;

#[derive(Clone)]
enum Place {
    Database,
    Cluster(Box<Kept<Off>>),
}

/// All switches. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Switches {
    place: Place,
    directory: Directory,
    store: Store,
    /// As last read from the cluster.
    known: Arc<Mutex<Option<Off>>>,
}

impl Switches {
    /// In the database of this replica.
    pub fn in_database(store: Store, directory: Directory) -> Self {
        Self {
            place: Place::Database,
            directory,
            store,
            known: Arc::default(),
        }
    }

    /// In the cluster, where every replica sees them. The database has a copy for the next start.
    pub fn in_cluster(
        client: kube::Client,
        namespace: &str,
        name: &str,
        store: Store,
        directory: Directory,
    ) -> Self {
        Self {
            place: Place::Cluster(Box::new(Kept::new(client, namespace, name, WHAT))),
            ..Self::in_database(store, directory)
        }
    }

    /// Switches a host on or off. In force when it returns.
    pub async fn put(&self, host: &HostName, enabled: bool) -> Result<(), String> {
        let Place::Cluster(kept) = &self.place else {
            let name = host.clone();
            let written = self
                .store
                .write(move |transaction| write(transaction, &name, enabled));
            written.await.map_err(|error| error.to_string())?;
            self.directory
                .change_known(host, |entry| entry.switch(Some(enabled)));
            return Ok(());
        };
        kept.edit(|off| {
            if enabled {
                off.remove(host);
            } else if off.len() >= MOST && !off.contains(host) {
                return Err(format!("{MOST} hosts are switched off already"));
            } else {
                off.insert(host.clone());
            }
            Ok(())
        })
        .await?;
        self.take(kept.read().await?);
        Ok(())
    }

    /// Follows what is kept in the cluster, until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let Place::Cluster(kept) = &self.place else {
            stop.cancelled().await;
            return;
        };
        loop {
            match kept.read().await {
                Ok(found) => self.take(found),
                // What was last known stays so: fencing a host that was switched off is worse than covering it late.
                Err(why) => {
                    tracing::warn!(why, "switches of hosts cannot be read; those known stay in force");
                }
            }
            if pause(&stop, EVERY).await {
                return;
            }
        }
    }

    fn take(&self, off: Off) {
        self.directory.switched_off(&off);
        let mut known = self.known.lock();
        if known.as_ref() == Some(&off) {
            return;
        }
        let copy = off.clone();
        let queued = self.store.write_later(move |transaction| {
            transaction.execute("update hosts set legacy = null where legacy is not null", [])?;
            copy.iter().try_for_each(|host| write(transaction, host, false))
        });
        if queued {
            *known = Some(off);
        }
    }
}

fn write(transaction: &Transaction<'_>, host: &HostName, enabled: bool) -> rusqlite::Result<()> {
    let now = jiff::Timestamp::now().as_millisecond();
    transaction
        .execute(
            "insert into hosts(host, first_seen, known_at, legacy) values(?1, ?2, ?2, ?3)
             on conflict(host) do update set legacy = ?3",
            params![host.as_str(), now, enabled],
        )
        .map(drop)
}
