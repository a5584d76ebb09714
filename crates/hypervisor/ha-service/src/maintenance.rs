// SPDX-License-Identifier: Apache-2.0
//! The maintenance of hosts where no cluster keeps it: what people announced and what an incident
//! took. Written durably before it counts, so that a restart does not forget a claim.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use parking_lot::Mutex;
use rusqlite::{Connection, params};

use crate::error::Error;

/// The maintenance of hosts without a cluster. Cheap to clone; clones share.
#[derive(Clone)]
pub struct LocalMaintenance(Arc<Mutex<Book>>);

struct Book {
    connection: Connection,
    known: BTreeMap<HostName, Maintenance>,
}

impl LocalMaintenance {
    /// Opens the book in a folder.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("maintenance.db");
        let failed = |source| Error::Store {
            path: path.clone(),
            source,
        };
        let connection = Connection::open(&path).map_err(failed)?;
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full;
                 create table if not exists maintenance(host text primary key, value text not null) without rowid;",
            )
            .map_err(failed)?;
        let mut known = BTreeMap::new();
        {
            let mut all = connection
                .prepare("select host, value from maintenance")
                .map_err(failed)?;
            let rows = all
                .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
                .map_err(failed)?;
            for row in rows {
                let (host, value) = row.map_err(failed)?;
                if let Ok(host) = HostName::new(host) {
                    known.insert(host, Maintenance::from(value.as_str()));
                }
            }
        }
        Ok(Self(Arc::new(Mutex::new(Book { connection, known }))))
    }

    /// What it is.
    pub fn get(&self, host: &HostName) -> Maintenance {
        self.0.lock().known.get(host).cloned().unwrap_or_default()
    }

    /// Changes it if it still is `expected`; says whether it was. Durable when it returns.
    pub fn set(&self, host: &HostName, expected: &Maintenance, value: &Maintenance) -> Result<bool, Error> {
        let mut book = self.0.lock();
        if book.known.get(host).cloned().unwrap_or_default() != *expected {
            return Ok(false);
        }
        book.connection
            .execute(
                "insert into maintenance values(?1, ?2) on conflict(host) do update set value = ?2",
                params![host.as_str(), value.to_string()],
            )
            .map_err(|source| Error::Store {
                path: "maintenance.db".into(),
                source,
            })?;
        book.known.insert(host.clone(), value.clone());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let host = HostName::new("n1").unwrap();
        {
            let book = LocalMaintenance::open(folder.path()).unwrap();
            assert!(book.set(&host, &Maintenance::Off, &Maintenance::Ha).unwrap());
            assert!(!book.set(&host, &Maintenance::Off, &Maintenance::Ha).unwrap());
        }
        let book = LocalMaintenance::open(folder.path()).unwrap();
        assert_eq!(book.get(&host), Maintenance::Ha);
        assert!(book.set(&host, &Maintenance::Ha, &Maintenance::Off).unwrap());
    }
}
