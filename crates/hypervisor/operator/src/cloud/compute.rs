// SPDX-License-Identifier: Apache-2.0
//! Nova: services, hypervisors, aggregates, servers and their moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_openstack::nova::{
    BlockMigration, ComputeService, Evacuation, Hypervisor, MigrationFilter, MigrationType, ServerFilter,
    ServiceState, ServiceStatus, ServiceUpdate,
};
use cobaltcore_openstack::{AggregateId, HypervisorId, MigrationId, Optional as _, ServiceId};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Cloud, Error, Flavor, Result};
use crate::aggregates::Listed;
use crate::eviction::{MigrationRecord, MigrationState, Server, ServerState, Service};
use crate::onboarding::Identity;
use crate::preflight::pinned;

impl Cloud {
    /// All compute services by their id, asked for at most `max_age` ago.
    pub(crate) async fn services(&self, max_age: Duration) -> Result<Arc<BTreeMap<String, Service>>> {
        let fetch = || async {
            let services = self.nova().compute_services().await?;
            let known = services
                .into_iter()
                .map(|service| (service.id.to_string(), read_service(service)));
            Ok(known.collect())
        };
        self.services.get(max_age, fetch).await
    }

    /// The compute service of a host as it is now.
    pub(crate) async fn service(&self, host: &str) -> Result<Option<Service>> {
        Ok(self.nova().compute_service(host).await?.map(read_service))
    }

    /// Puts a service into scheduling and takes back that it is dead.
    pub(crate) async fn enable_service(&self, id: &str) -> Result<()> {
        self.update_service(id, &ServiceUpdate::enable().forced_down(false))
            .await
    }

    /// Takes a service out of scheduling.
    pub(crate) async fn disable_service(&self, id: &str, reason: &str) -> Result<()> {
        self.update_service(id, &ServiceUpdate::disable(reason)).await
    }

    async fn update_service(&self, id: &str, update: &ServiceUpdate) -> Result<()> {
        let outcome = self.nova().update_service(&ServiceId::from(id), update).await;
        self.services.forget();
        Ok(outcome.map(drop)?)
    }

    /// Deletes a service; one that is gone is fine.
    pub(crate) async fn delete_service(&self, id: &str) -> Result<()> {
        let outcome = self.nova().delete_service(&ServiceId::from(id)).await;
        self.services.forget();
        Ok(outcome.map(drop)?)
    }

    /// Hypervisors whose name contains `part`.
    pub(crate) async fn hypervisors_matching(&self, part: &str) -> Result<Vec<Identity>> {
        let found = self.nova().hypervisors_matching(part).await?;
        Ok(found.into_iter().map(|found| identity(&found)).collect())
    }

    /// A hypervisor by id with the number of its servers.
    pub(crate) async fn hypervisor(&self, id: &str) -> Result<Option<(Identity, usize)>> {
        let found = self.nova().hypervisor(&HypervisorId::from(id)).await.optional()?;
        Ok(found.map(|found| (identity(&found), found.servers.len())))
    }

    /// The hypervisors of exactly this name, with the numbers of their servers.
    pub(crate) async fn hypervisors_named(&self, name: &str) -> Result<Vec<(Identity, usize)>> {
        let found = self.nova().hypervisors_named(name).await?;
        Ok(found
            .iter()
            .map(|found| (identity(found), found.servers.len()))
            .collect())
    }

    /// All aggregates, asked for at `oldest` or later.
    pub(crate) async fn aggregates(&self, oldest: Instant) -> Result<Arc<Vec<Listed>>> {
        let fetch = || async {
            let aggregates = self.nova().aggregates().await?;
            let listed = aggregates.into_iter().map(|aggregate| Listed {
                id: aggregate.id.0,
                name: aggregate.name,
                uuid: aggregate.uuid,
                hosts: aggregate.hosts.into_iter().collect(),
                metadata: aggregate.metadata,
            });
            Ok(listed.collect())
        };
        self.aggregates.get_since(Some(oldest), fetch).await
    }

    /// Makes the next one list aggregates anew.
    pub(crate) fn forget_aggregates(&self) {
        self.aggregates.forget();
    }

    /// Puts a host into an aggregate; one that is there already is fine.
    pub(crate) async fn add_host(&self, aggregate: u64, host: &str) -> Result<()> {
        match self.nova().add_host(AggregateId(aggregate), host).await {
            Err(error) if error.is_conflict() && says_already(&error) => {}
            outcome => drop(outcome?),
        }
        self.amend_aggregate(aggregate, |hosts| {
            hosts.insert(host.to_owned());
        });
        Ok(())
    }

    /// Takes a host out of an aggregate; one that is not there is fine.
    pub(crate) async fn remove_host(&self, aggregate: u64, host: &str) -> Result<()> {
        let removed = self.nova().remove_host(AggregateId(aggregate), host).await;
        removed.optional()?;
        self.amend_aggregate(aggregate, |hosts| {
            hosts.remove(host);
        });
        Ok(())
    }

    fn amend_aggregate(&self, aggregate: u64, change: impl FnOnce(&mut BTreeSet<String>)) {
        self.aggregates.amend(|all| {
            if let Some(one) = all.iter_mut().find(|one| one.id == aggregate) {
                change(&mut one.hosts);
            }
        });
    }

    /// The servers on a host with their flavors.
    pub(crate) async fn servers_on(&self, host: &str) -> Result<Vec<(Server, Flavor)>> {
        let servers = self.nova().servers(&ServerFilter::on_host(host)).await?;
        // Never believe a filter where the wrong server would be moved.
        let here = servers
            .into_iter()
            .filter(|server| server.host.as_deref() == Some(host));
        here.map(|server| {
            let flavor = Flavor::of(&server);
            Ok((self.read_server(server)?, flavor))
        })
        .collect()
    }

    /// One server, if it exists.
    pub(crate) async fn server(&self, id: &ServerId) -> Result<Option<Server>> {
        let server = self.nova().server(&id.as_str().into()).await.optional()?;
        server.map(|server| self.read_server(server)).transpose()
    }

    fn read_server(&self, server: cobaltcore_openstack::nova::Server) -> Result<Server> {
        let unusable = |error: cobaltcore_api::names::InvalidName| Error::Missing(error.to_string());
        Ok(Server {
            id: ServerId::new(server.id.as_str()).map_err(unusable)?,
            name: server.name,
            state: ServerState::parse(server.status.as_str()),
            task: server.task_state.filter(|task| !task.is_empty()),
            host: server.host.filter(|host| !host.is_empty()),
            ram_mb: server.flavor.ram,
            vcpus: u64::from(server.flavor.vcpus),
            fault: server.fault.map(|fault| fault.message),
            pinned: pinned(&server.flavor.extra_specs),
            volume_backed: server.image.is_none(),
        })
    }

    /// Migrations from or to a host that changed since `since`, oldest first.
    pub(crate) async fn migrations(&self, host: &str, since: Timestamp) -> Result<Vec<MigrationRecord>> {
        let filter = MigrationFilter {
            host: Some(host.to_owned()),
            changes_since: Some(since),
            ..MigrationFilter::default()
        };
        let found = self.nova().migrations(&filter).await?;
        let mut records: Vec<MigrationRecord> = found
            .into_iter()
            .filter_map(|found| {
                let created = found.created_at.unwrap_or(since);
                Some(MigrationRecord {
                    id: found.id.0,
                    server: ServerId::new(found.server.as_str()).ok()?,
                    source: found.source_compute.unwrap_or_default(),
                    destination: found.dest_compute.filter(|host| !host.is_empty()),
                    state: MigrationState::parse(found.status.as_str()),
                    live: found.migration_type == Some(MigrationType::Live),
                    created,
                    updated: found.updated_at.unwrap_or(created),
                })
            })
            .collect();
        records.sort_by_key(|record| record.id);
        Ok(records)
    }

    /// What a live migration still has to copy, as far as Nova knows.
    pub(crate) async fn remaining(&self, server: &ServerId, migration: u64) -> Result<Option<u64>> {
        let found = self
            .nova()
            .server_migration(&server.as_str().into(), MigrationId(migration))
            .await
            .optional()?;
        Ok(found.and_then(|found| {
            let (memory, disk) = (found.memory_remaining_bytes?, found.disk_remaining_bytes);
            Some(memory.saturating_add(disk.unwrap_or(0)))
        }))
    }

    /// Asks for a live migration to wherever the scheduler likes.
    pub(crate) async fn live_migrate(&self, server: &ServerId, volume_backed: bool) -> Result<()> {
        let disks = if volume_backed {
            BlockMigration::No
        } else {
            BlockMigration::Auto
        };
        Ok(self
            .nova()
            .live_migrate(&server.as_str().into(), None, disks)
            .await?)
    }

    /// Asks for a cold migration to wherever the scheduler likes.
    pub(crate) async fn cold_migrate(&self, server: &ServerId) -> Result<()> {
        Ok(self.nova().migrate(&server.as_str().into(), None).await?)
    }

    /// Asks for an evacuation to wherever the scheduler likes.
    pub(crate) async fn evacuate(&self, server: &ServerId) -> Result<()> {
        Ok(self
            .nova()
            .evacuate(&server.as_str().into(), &Evacuation::default())
            .await?)
    }

    /// Confirms a cold move.
    pub(crate) async fn confirm_resize(&self, server: &ServerId) -> Result<()> {
        Ok(self.nova().confirm_resize(&server.as_str().into()).await?)
    }

    /// Asks for the end of a live migration; one that is over is fine.
    pub(crate) async fn abort_migration(&self, server: &ServerId, migration: u64) -> Result<()> {
        Ok(self
            .nova()
            .abort_migration(&server.as_str().into(), MigrationId(migration))
            .await
            .map(drop)?)
    }
}

fn read_service(service: ComputeService) -> Service {
    Service {
        enabled: service.status == ServiceStatus::Enabled,
        up: service.state == ServiceState::Up,
        forced_down: service.forced_down,
        reason: service.disabled_reason.unwrap_or_default(),
    }
}

fn identity(found: &Hypervisor) -> Identity {
    Identity {
        hypervisor_id: found.id.to_string(),
        service_id: found.service.id.to_string(),
        compute_host: found.service.host.clone(),
        hypervisor_hostname: found.hypervisor_hostname.clone(),
    }
}

fn says_already(error: &cobaltcore_openstack::Error) -> bool {
    error
        .message()
        .is_some_and(|message| message.contains("already") && !message.contains("zone"))
}
