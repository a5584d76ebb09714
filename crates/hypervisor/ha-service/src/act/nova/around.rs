// SPDX-License-Identifier: Apache-2.0
//! What images, aggregates and server groups say of a guest. It hardly changes and is remembered; how old it may be is
//! for those to say who ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::ServerFacts;
use cobaltcore_openstack::nova::Server;
use cobaltcore_openstack::{ImageId, Kind, Optional as _, ServerGroupId, glance};
use tokio::time::Instant;

use super::super::facts::{self, Around, Wish};
use super::memory::Memory;
use super::{Cloud, Failure};
use crate::config::{Config, EphemeralBackend};
use crate::disks::Guests;

/// How old it may be for another look at a guest.
pub(super) const REMEMBER: Duration = Duration::from_mins(10);
/// How old it may be for a plan. A try that was cut off leaves what it has read to the next one.
pub(super) const FOR_A_PLAN: Duration = Duration::from_secs(60);
/// Images and groups that are remembered: more than the guests of the hosts that are handled at one time have.
const MOST: usize = 4096;
/// The policy of groups whose members must not share a host.
const HARD: &str = "anti-affinity";

/// The metadata of aggregates, by Nova's name of the host.
type Aggregates = HashMap<String, Vec<BTreeMap<String, String>>>;

/// What is remembered.
pub(super) struct Known {
    images: Memory<ImageId, Option<Arc<glance::Image>>>,
    /// Whether the members of a group must not share a host.
    groups: Memory<ServerGroupId, bool>,
    aggregates: Memory<(), Arc<Aggregates>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            images: Memory::of_at_most(MOST),
            groups: Memory::of_at_most(MOST),
            aggregates: Memory::of_at_most(1),
        }
    }
}

impl Cloud {
    /// A server with what its image, aggregates and groups say of it, asked for no longer than `age` ago. Nova shows groups
    /// with a single server only, so those of a list have none.
    pub(super) async fn facts(
        &self,
        server: &Server,
        wish: Option<Wish>,
        age: Duration,
    ) -> Result<Option<ServerFacts>, Failure> {
        let image = match &server.image {
            Some(image) => self.image(image, age).await?,
            None => None,
        };
        let nova_host = server.host.as_deref().unwrap_or_default();
        let aggregates = self.aggregates_of(nova_host, age).await?;
        let anti_affinity = self.anti_affinity(&server.server_groups).await?;
        let host = server.host.as_deref().and_then(|host| self.host_of(host));
        let config = self.in_force.get();
        let listed = |guests: &Guests| {
            let (Some(host), Ok(id)) = (&host, ServerId::new(server.id.as_str())) else {
                return false;
            };
            guests.has(host, &id)
        };
        let around = Around {
            in_ceph: listed(&self.directory.in_ceph),
            outside_ceph: listed(&self.directory.outside_ceph),
            backend: self.backend(host.as_ref(), &config),
            image: image.as_deref(),
            aggregates: &aggregates,
            anti_affinity,
            wish,
        };
        Ok(facts::server(server, host, &around, &config.recovery))
    }

    /// Where the disks are that are made of images.
    fn backend(&self, host: Option<&HostName>, config: &Config) -> EphemeralBackend {
        let Some(host) = host else {
            return config.recovery.ephemeral_backend;
        };
        let entry = self.directory.get(host).unwrap_or_default();
        config
            .recovery
            .backend_of(host, entry.building_block(), entry.zone())
    }

    /// An image that is gone says nothing; a Glance that does not answer is no such image.
    pub(super) async fn image(
        &self,
        id: &ImageId,
        age: Duration,
    ) -> Result<Option<Arc<glance::Image>>, Failure> {
        if let Some(known) = self.known.images.get(id, age) {
            return Ok(known);
        }
        let begun = Instant::now();
        let asked = self
            .session
            .within(self.in_force.get().openstack.timeout.0)
            .glance();
        let found = match asked.image(id).await.optional() {
            Err(error) if error.kind() == Kind::NoEndpoint => None,
            found => found?.map(Arc::new),
        };
        self.known.images.keep(id.clone(), begun, found.clone());
        Ok(found)
    }

    async fn aggregates_of(
        &self,
        nova_host: &str,
        age: Duration,
    ) -> Result<Vec<BTreeMap<String, String>>, Failure> {
        let all = if let Some(known) = self.known.aggregates.get(&(), age) {
            known
        } else {
            let begun = Instant::now();
            let mut by_host: Aggregates = HashMap::new();
            for aggregate in self.nova().aggregates().await? {
                for host in aggregate.hosts {
                    by_host.entry(host).or_default().push(aggregate.metadata.clone());
                }
            }
            let all = Arc::new(by_host);
            self.known.aggregates.keep((), begun, Arc::clone(&all));
            all
        };
        Ok(all.get(nova_host).cloned().unwrap_or_default())
    }

    /// The first of these groups whose members must not share a host, by its id.
    async fn anti_affinity(&self, groups: &[ServerGroupId]) -> Result<Option<String>, Failure> {
        for group in groups {
            if self.is_hard(group).await? {
                return Ok(Some(group.to_string()));
            }
        }
        Ok(None)
    }

    /// The policy of a group never changes, so it is asked once. One that is gone keeps nobody apart.
    async fn is_hard(&self, group: &ServerGroupId) -> Result<bool, Failure> {
        if let Some(known) = self.known.groups.get(group, Duration::MAX) {
            return Ok(known);
        }
        let begun = Instant::now();
        let Some(found) = self.nova().server_group(group).await.optional()? else {
            return Ok(false);
        };
        let hard = found.policy == HARD;
        self.known.groups.keep(group.clone(), begun, hard);
        Ok(hard)
    }
}
