// SPDX-License-Identifier: Apache-2.0
//! Tells the engine what is known of hosts, whenever that changes, and writes it down for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{HostFacts, Input, Observation};
use rusqlite::params;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::brain::BrainHandle;
use crate::directory::{Directory, HostEntry};
use crate::leadership::pause;
use crate::maintenance::LocalMaintenance;
use crate::settings::InForce;
use crate::store::Store;

const EVERY: Duration = Duration::from_millis(500);

/// Tells the engine what is known of hosts, until `stop`.
pub async fn tell(
    in_force: InForce,
    directory: Directory,
    local: LocalMaintenance,
    brain: BrainHandle,
    store: Store,
    stop: CancellationToken,
) {
    let mut told: BTreeMap<HostName, HostFacts> = BTreeMap::new();
    let mut written: BTreeMap<HostName, Arc<HostEntry>> = BTreeMap::new();
    loop {
        let config = in_force.get();
        for (host, _) in directory.all() {
            if !config.kubernetes.enabled {
                let maintenance = local.get(&host);
                directory.change_known(&host, |entry| entry.maintenance = maintenance);
            }
        }
        let all = directory.all();
        for (host, entry) in &all {
            if !entry.ours(config.kubernetes.enabled) {
                continue;
            }
            let facts = entry.facts(host, &config.kubernetes.failure_domains);
            if told.get(host) != Some(&facts) {
                brain.tell(Input::Saw(Observation::Host(facts.clone()))).await;
                told.insert(host.clone(), facts);
            }
            if written.get(host) != Some(entry) {
                write(&store, host, entry);
                written.insert(host.clone(), Arc::clone(entry));
            }
        }
        let gone: Vec<HostName> = told
            .keys()
            .filter(|host| directory.get(host).is_none())
            .cloned()
            .collect();
        for host in gone {
            told.remove(&host);
            written.remove(&host);
            brain.tell(Input::Saw(Observation::HostGone(host))).await;
        }
        if pause(&stop, EVERY).await {
            return;
        }
    }
}

fn write(store: &Store, host: &HostName, entry: &Arc<HostEntry>) {
    let (host, entry) = (host.to_string(), Arc::clone(entry));
    let now = jiff::Timestamp::now().as_millisecond();
    store.write_later(move |transaction| {
        transaction
            .prepare_cached(
                "insert into hosts(host, nova_host, service_id, hypervisor_id, zone, bb, internal_ip, ha_enabled,
                    ha_reason, maintenance, first_seen, known_at)
                 values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
                 on conflict(host) do update set nova_host = ?2, service_id = ?3, hypervisor_id = ?4, zone = ?5, bb = ?6,
                    internal_ip = ?7, ha_enabled = ?8, ha_reason = ?9, maintenance = ?10, known_at = ?11",
            )?
            .execute(params![
                host,
                entry.nova_host,
                entry.service_id.as_ref().map(ToString::to_string),
                entry.hypervisor_id,
                entry.zone(),
                entry.building_block(),
                entry.internal_ip,
                entry.ha_enabled,
                entry.ha_reason,
                entry.maintenance.to_string(),
                now,
            ])?;
        Ok(())
    });
}

/// What the legacy call said about hosts, from an earlier life of this process.
pub async fn remembered(store: &Store) -> Result<Vec<(HostName, bool)>, crate::store::StoreError> {
    store
        .read(|connection| {
            let mut all = connection.prepare("select host, legacy from hosts where legacy is not null")?;
            let rows = all.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
            let mut out = Vec::new();
            for row in rows {
                let (host, enabled) = row?;
                if let Ok(host) = HostName::new(host) {
                    out.push((host, enabled));
                }
            }
            Ok(out)
        })
        .await
}

/// Guests whose disk is on their host alone, as their hosts last said in an earlier life of this process. A host that
/// is dead by now cannot say so again.
pub(crate) async fn disks_outside_ceph(
    store: &Store,
) -> Result<Vec<(HostName, Uuid)>, crate::store::StoreError> {
    store
        .read(|connection| {
            let mut all = connection
                .prepare("select agent_host, uuid from vms where outside_ceph and agent_host is not null")?;
            let rows = all.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            let mut out = Vec::new();
            for row in rows {
                let (host, guest) = row?;
                if let (Ok(host), Ok(guest)) = (HostName::new(host), Uuid::try_parse(&guest)) {
                    out.push((host, guest));
                }
            }
            Ok(out)
        })
        .await
}
