// SPDX-License-Identifier: Apache-2.0
//! Where a server goes: Nova's filters that matter to operators (service state, resources, zone, tenant isolation,
//! traits, group policies) and the usual weight by free memory. One pass over the hosts, no search.

use uuid::Uuid;

use super::host::Host;
use super::names::HostName;
use super::placement::Resources;
use super::server::{Flavor, Server, flavor_resources};
use super::state::State;

/// What a place must have.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) server: Option<Uuid>,
    pub(crate) project: Uuid,
    pub(crate) flavor: &'a Flavor,
    pub(crate) volume_backed: bool,
    pub(crate) zone: Option<&'a str>,
    pub(crate) group: Option<Uuid>,
    /// Nowhere else than here.
    pub(crate) only: Option<&'a HostName>,
    /// Anywhere but here.
    pub(crate) not: Option<&'a HostName>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(server: &'a Server) -> Self {
        Self {
            server: Some(server.id),
            project: server.project,
            flavor: &server.flavor,
            volume_backed: server.volume_backed(),
            zone: server.zone_asked.as_deref(),
            group: server.group,
            only: None,
            not: server.host.as_ref(),
        }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHost {
    /// Placement has none with these resources and traits.
    Resources,
    /// The filters left none.
    Filters,
}

impl NoHost {
    /// What Nova says.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Resources => "No valid host was found. ",
            Self::Filters => "No valid host was found. There are not enough hosts available.",
        }
    }
}

impl State {
    /// The best host.
    pub(crate) fn choose(&self, wanted: &Wanted<'_>) -> Result<HostName, NoHost> {
        let resources = flavor_resources(wanted.flavor, wanted.volume_backed);
        let all: Vec<&Host> = match wanted.only {
            Some(only) => self.hosts.get(only).into_iter().collect(),
            None => self.hosts.values().collect(),
        };
        let free = |host: &Host| {
            let provider = self.placement.providers.get(&host.node_uuid);
            provider.map_or(0, |provider| provider.free("MEMORY_MB"))
        };
        let mut with_room: Vec<(u64, &Host)> = all
            .into_iter()
            .filter(|host| self.has_room(host, &resources, wanted.flavor))
            .map(|host| (free(host), host))
            .collect();
        if with_room.is_empty() {
            return Err(NoHost::Resources);
        }
        // Most free memory first, equals by name; then the first that passes is the best, and few are looked at closely.
        with_room.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
        let passes = |host: &Host| {
            wanted.not != Some(&host.name) && self.admits(host, wanted) && self.group_allows(host, wanted)
        };
        with_room
            .into_iter()
            .find(|(_, host)| passes(host))
            .map(|(_, host)| host.name.clone())
            .ok_or(NoHost::Filters)
    }

    fn has_room(&self, host: &Host, resources: &Resources, flavor: &Flavor) -> bool {
        let Some(provider) = self.placement.providers.get(&host.node_uuid) else {
            return false;
        };
        let traits = flavor.extra_specs.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("trait:")?;
            Some((name, value.as_str()))
        });
        provider.fits(resources)
            && traits.into_iter().all(|(name, rule)| match rule {
                "required" => provider.traits.contains(name),
                "forbidden" => !provider.traits.contains(name),
                _ => true,
            })
    }

    /// Service state, zone, and aggregates that are only for some projects.
    fn admits(&self, host: &Host, wanted: &Wanted<'_>) -> bool {
        let Some(service) = &host.service else {
            return false;
        };
        let tenant = wanted.project.simple().to_string();
        let mut zone = "nova";
        for aggregate in self.aggregates.values().filter(|a| a.has(host.name.as_str())) {
            zone = aggregate.zone().unwrap_or(zone);
            let mut closed = false;
            let mut mine = false;
            for (key, value) in &aggregate.metadata {
                if key.starts_with("filter_tenant_id") {
                    closed = true;
                    mine |= value.split(',').any(|id| id.trim() == tenant);
                }
            }
            if closed && !mine {
                return false;
            }
        }
        !service.disabled && service.is_up(self.now) && wanted.zone.is_none_or(|asked| asked == zone)
    }

    fn group_allows(&self, host: &Host, wanted: &Wanted<'_>) -> bool {
        let Some(group) = wanted.group.and_then(|id| self.groups.get(&id)) else {
            return true;
        };
        let others = group.members.iter().filter(|id| Some(**id) != wanted.server);
        let mut hosts = others.filter_map(|id| self.servers.get(id)?.host.as_ref());
        match group.policy.as_str() {
            "anti-affinity" => hosts.all(|other| *other != host.name),
            "affinity" => hosts.all(|other| *other == host.name),
            _ => true,
        }
    }
}
