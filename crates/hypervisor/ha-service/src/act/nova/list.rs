// SPDX-License-Identifier: Apache-2.0
//! The guests of a host, all of them. Nova leaves the guests of a cell that is down out of a list that is asked for by
//! host, answers 200 and says nothing of it, so a list is complete only when nothing speaks against that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Answer, MigrationFacts, MigrationId, ServerFacts};
use cobaltcore_openstack::nova::{MigrationFilter, MigrationType, Server, ServerFilter, ServerStatus};
use cobaltcore_openstack::{Error, ImageId, Optional as _, ServerId};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use uuid::Uuid;

use super::super::facts;
use super::around::FOR_A_PLAN;
use super::{Cloud, Failure};

/// Nothing that moves live has been under way for longer.
const LIVE_HISTORY: Duration = Duration::from_hours(7 * 24);
/// Single guests and images that are asked for at one time.
const AT_ONCE: usize = 16;

impl Cloud {
    /// All guests of a host and the records of their migrations.
    pub(super) async fn list_servers(&self, host: &HostName) -> Result<Answer, Failure> {
        let nova_host = self.nova_host(host)?;
        // Before the first and after the last of it: a cell that was away in between may be back by now.
        let known_before = self.cell_answers(host).await?;
        let listed = self.listed(host, &nova_host).await?;
        // All at once, because Nova may take long for each; and each to its end, because what it read helps the next try.
        let (told_of, migrations, hidden) = tokio::join!(
            self.told_of(host, &listed),
            self.migrations_touching(&nova_host),
            self.hides_guests(host, &nova_host, &listed),
        );
        let ((servers, told), migrations, hidden) = (told_of?, migrations?, hidden?);
        Ok(Answer::Servers {
            servers,
            migrations,
            complete: told && known_before && !hidden && self.cell_answers(host).await?,
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
        let images: BTreeSet<&ImageId> = listed.iter().filter_map(|server| server.image.as_ref()).collect();
        let reads: Vec<_> = images
            .into_iter()
            .map(|image| self.image(image, FOR_A_PLAN))
            .collect();
        let mut read = stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(image) = read.next().await {
            image?;
        }
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
        let nova = self.nova();
        let (evacuations, recent) =
            tokio::try_join!(nova.migrations(&evacuations), nova.migrations(&recent))?;
        let records = evacuations.iter().chain(&recent);
        let facts = records.filter_map(|record| self.migration(record));
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
        let looks: Vec<_> = missing.iter().map(|guest| nova.server(guest)).collect();
        let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some(found) = looks.next().await {
            let Some(found) = found.optional()? else {
                continue;
            };
            if is_hidden(&found, nova_host) {
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

/// Whether a list of this host should have shown the guest. One that its owner deleted is in no list until it is reclaimed.
fn is_hidden(guest: &Server, nova_host: &str) -> bool {
    match guest.status {
        ServerStatus::Deleted | ServerStatus::SoftDeleted => false,
        ServerStatus::Unknown => true,
        _ => guest.host.as_deref() == Some(nova_host),
    }
}
