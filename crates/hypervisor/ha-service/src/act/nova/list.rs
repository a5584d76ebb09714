// SPDX-License-Identifier: Apache-2.0
//! The guests of a host, all of them. Nova leaves the guests of a cell that is down out of a list that is asked for by
//! host, answers 200 and says nothing of it, so a list is complete only when nothing speaks against that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Answer, MigrationFacts, MigrationId, ServerFacts};
use cobaltcore_openstack::nova::{MigrationFilter, MigrationType, Server, ServerFilter, ServerStatus};
use cobaltcore_openstack::{Error, Optional as _, ServerId};
use futures::future::join_all;
use jiff::Timestamp;
use uuid::Uuid;

use super::super::facts;
use super::around::FOR_A_PLAN;
use super::{Cloud, Failure};

/// Nothing that moves live has been under way for longer.
const LIVE_HISTORY: Duration = Duration::from_hours(7 * 24);
/// Guests that are missing from a list and are asked for one by one. A cell hides all guests of a host or none, so some of
/// them tell.
const MOST_ASKED: usize = 16;

impl Cloud {
    /// All guests of a host and the records of their migrations.
    pub(super) async fn list_servers(&self, host: &HostName) -> Result<Answer, Failure> {
        let nova_host = self.nova_host(host)?;
        // Before and after: a cell that was away in between may be back by now.
        let known_before = self.cell_answers(host).await?;
        let listed = self.listed(host, &nova_host).await?;
        let (servers, told) = self.told_of(host, &listed).await?;
        let migrations = self.migrations_touching(&nova_host).await?;
        let complete = told
            && known_before
            && self.cell_answers(host).await?
            && !self.hides_guests(host, &nova_host, &listed).await?;
        Ok(Answer::Servers {
            servers,
            migrations,
            complete,
        })
    }

    /// Whether Nova knows the state of the compute service: without the cell of a host it does not.
    async fn cell_answers(&self, host: &HostName) -> Result<bool, Failure> {
        let known = facts::service(&self.service(host).await?).is_some();
        if !known {
            tracing::warn!(%host, "Nova does not know the state of its compute service, so its list of guests proves nothing");
        }
        Ok(known)
    }

    /// The list, asked for a second time when it is empty and the host was last said to have guests.
    async fn listed(&self, host: &HostName, nova_host: &str) -> Result<Vec<Server>, Error> {
        let filter = ServerFilter::on_host(nova_host);
        let listed = self.nova().servers(&filter).await?;
        let had_guests = self.directory.get(host).is_some_and(|entry| entry.instances > 0);
        if listed.is_empty() && had_guests {
            return self.nova().servers(&filter).await;
        }
        Ok(listed)
    }

    /// What is known of the listed guests, and whether Nova said enough of each.
    async fn told_of(&self, host: &HostName, listed: &[Server]) -> Result<(Vec<ServerFacts>, bool), Failure> {
        let mut servers = Vec::with_capacity(listed.len());
        for server in listed {
            if let Some(facts) = self.facts(server, None, FOR_A_PLAN).await? {
                servers.push(facts);
            } else {
                tracing::warn!(%host, server = %server.id, status = ?server.status, "Nova does not say enough about a server");
            }
        }
        let told = servers.len() == listed.len();
        Ok((servers, told))
    }

    async fn migrations_touching(&self, nova_host: &str) -> Result<Vec<MigrationFacts>, Failure> {
        let evacuations = MigrationFilter {
            source: Some(nova_host.to_owned()),
            migration_type: Some(MigrationType::Evacuation),
            ..MigrationFilter::default()
        };
        let recent = MigrationFilter {
            host: Some(nova_host.to_owned()),
            changes_since: Timestamp::now().checked_sub(LIVE_HISTORY).ok(),
            ..MigrationFilter::default()
        };
        let mut records = self.nova().migrations(&evacuations).await?;
        records.extend(self.nova().migrations(&recent).await?);
        let facts = records.iter().filter_map(|record| self.migration(record));
        let by_id: BTreeMap<MigrationId, MigrationFacts> = facts.map(|facts| (facts.id, facts)).collect();
        Ok(by_id.into_values().collect())
    }

    /// Whether a guest that the host was last said to have is missing from the list and Nova does not say that it is gone
    /// or elsewhere.
    async fn hides_guests(
        &self,
        host: &HostName,
        nova_host: &str,
        listed: &[Server],
    ) -> Result<bool, Failure> {
        let there: BTreeSet<&str> = listed.iter().map(|server| server.id.as_str()).collect();
        let mut missing = self.last_known(host);
        missing.retain(|guest| !there.contains(guest.as_str()));
        let nova = self.nova();
        let looks = missing.iter().take(MOST_ASKED).map(|guest| nova.server(guest));
        for found in join_all(looks).await {
            let Some(found) = found.optional()? else {
                continue;
            };
            let unknown = found.status == ServerStatus::Unknown;
            if unknown || found.host.as_deref() == Some(nova_host) {
                tracing::warn!(%host, server = %found.id, "Nova leaves a guest out of the list of its host");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The guests that the host was last said to have, by its Hypervisor object or by its agent.
    fn last_known(&self, host: &HostName) -> Vec<ServerId> {
        let entry = self.directory.get(host).unwrap_or_default();
        let mut guests: BTreeSet<Uuid> = entry.guests.iter().copied().collect();
        guests.extend(self.directory.in_ceph.of(host));
        guests.extend(self.directory.outside_ceph.of(host));
        guests
            .into_iter()
            .map(|guest| ServerId::from(guest.to_string().as_str()))
            .collect()
    }
}
