// SPDX-License-Identifier: Apache-2.0
//! What an eviction has to know, asked in as few calls as it takes: one list of the host's
//! servers, one of its migrations, one of all compute services, and single servers only where one
//! vanished from the list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::{EvictionCondition, HypervisorCondition};
use cobaltcore_api::names::ServerId;
use cobaltcore_api::reasons::EvictingReason;
use cobaltcore_api::{Eviction, Hypervisor, Maintenance, annotations, finalizers, labels};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Evictor;
use super::model::{
    Answer, Departed, Host, Ledger, MigrationRecord, MigrationState, Order, Server, Settings, Snapshot,
    wanted,
};
use crate::cloud::{self, Flavor};
use crate::config::TraitConcurrency;
use crate::context::Context;
use crate::look::{Says, age, reason, says};
use crate::preflight::{Demand, Room, capacity};
use crate::seen::LookAtHypervisor as _;

/// How old the list of compute services may be.
const SERVICES: Duration = Duration::from_secs(5);
/// How far back migrations are looked for at least.
const HISTORY: Duration = Duration::from_hours(6);
/// From when on a migration's progress is asked for.
const PROGRESS: Duration = Duration::from_mins(1);

/// What was found out, or why nothing could be.
pub(crate) enum Facts {
    /// Everything a decision needs.
    Known(Box<Snapshot>),
    /// Nova did not answer.
    Trouble(String),
}

/// An Eviction as the judgement wants it.
pub(crate) fn order(eviction: &Eviction, hypervisor: Option<&Hypervisor>) -> Order {
    let note = |key: cobaltcore_api::Key| eviction.annotations().get(key.as_str()).map(String::as_str);
    let controlled = hypervisor.is_some_and(|hypervisor| controls(hypervisor, eviction));
    Order {
        name: eviction.name_any(),
        spec: eviction.spec.clone(),
        status: eviction.status.clone().unwrap_or_default(),
        deleting: eviction.metadata.deletion_timestamp.is_some(),
        held: eviction
            .finalizers()
            .iter()
            .any(|name| name == finalizers::EVICTION.as_str()),
        controlled,
        retry: note(annotations::RETRY).is_some_and(|value| !value.is_empty()),
        ignore_preflight: note(annotations::IGNORE_PREFLIGHT) == Some("true"),
        abort_in_flight: note(annotations::ABORT_IN_FLIGHT) == Some("true"),
    }
}

/// Whether `hypervisor` is the controlling owner of `eviction`.
pub(crate) fn controls(hypervisor: &Hypervisor, eviction: &Eviction) -> bool {
    let (name, uid) = (hypervisor.name_any(), hypervisor.uid().unwrap_or_default());
    eviction.owner_references().iter().any(|owner| {
        owner.controller == Some(true) && owner.kind == "Hypervisor" && owner.name == name && owner.uid == uid
    })
}

fn host(hypervisor: &Hypervisor) -> Host {
    let status = hypervisor.known();
    Host {
        registered: hypervisor.is_registered(),
        hypervisor_id: status.hypervisor_id.clone(),
        compute_host: compute_host(hypervisor),
        maintenance: hypervisor.spec.maintenance.clone(),
        disabled: hypervisor.is(HypervisorCondition::HypervisorDisabled),
        terminating: hypervisor.is(HypervisorCondition::Terminating),
    }
}

/// The name Nova knows a host by. Objects of an operator that did not record it carry the node's
/// name, which is what that operator used.
pub(crate) fn compute_host(hypervisor: &Hypervisor) -> String {
    let known = &hypervisor.known().compute_host;
    if known.is_empty() {
        hypervisor.name_any()
    } else {
        known.clone()
    }
}

fn settings(context: &Context, hypervisor: Option<&Hypervisor>) -> Settings {
    let config = &context.config;
    let traits = hypervisor.map_or(&[][..], |hypervisor| &hypervisor.known().traits);
    Settings {
        concurrency: concurrency(
            &config.eviction_trait_concurrency,
            traits,
            config.eviction_concurrency,
        ),
        timeout: config.migration_timeout.0,
        stall: config.migration_stall_timeout.0,
        max_attempts: config.migration_max_attempts,
        retry_interval: config.eviction_retry_interval.0,
        confirm_resize: config.eviction_confirm_resize,
        evacuate_down_hosts: config.evacuate_down_hosts,
        partitioned: !config.label_selector.is_empty(),
    }
}

/// How many servers of a host with these traits may move at once: the lowest limit that fits, or
/// else `usual`.
fn concurrency(limits: &[TraitConcurrency], traits: &[String], usual: u32) -> u32 {
    let fits = |limit: &&TraitConcurrency| traits.contains(&limit.name);
    let lowest = limits.iter().filter(fits).map(|limit| limit.most).min();
    lowest.unwrap_or(usual).max(1)
}

impl Evictor {
    /// Asks the world about one Eviction.
    pub(super) async fn look(&self, eviction: &Eviction) -> Result<Facts, crate::Error> {
        let context = &self.context;
        if context.caches.hypervisors.filled().await.is_err() {
            return Ok(Facts::Trouble("the cache of hypervisors is gone".to_owned()));
        }
        let hypervisor = context.caches.hypervisors.get(&eviction.spec.hypervisor);
        let order = self.remembered(order(eviction, hypervisor.as_deref()), eviction);
        let mut snapshot = Snapshot {
            now: context.now(),
            settings: settings(context, hypervisor.as_deref()),
            host: hypervisor.as_deref().map(host),
            service: None,
            servers: Vec::new(),
            departed: BTreeMap::new(),
            migrations: Vec::new(),
            remaining: BTreeMap::new(),
            capacity: None,
            candidates: Vec::new(),
            fleet_free: 0,
            ledger: self.ledger(eviction),
            order,
        };
        let Some(hypervisor) = hypervisor.filter(|hypervisor| hypervisor.is_registered()) else {
            return Ok(Facts::Known(Box::new(snapshot)));
        };
        match self.ask(eviction, &hypervisor, &mut snapshot).await {
            Ok(()) => Ok(Facts::Known(Box::new(snapshot))),
            Err(error) => Ok(Facts::Trouble(error.to_string())),
        }
    }

    async fn ask(
        &self,
        eviction: &Eviction,
        hypervisor: &Hypervisor,
        snapshot: &mut Snapshot,
    ) -> Result<(), cloud::Error> {
        let over = over(snapshot);
        let claims = snapshot.order.held || snapshot.order.deleting;
        if over && !claims {
            return Ok(());
        }
        let services = self.cloud.services(SERVICES).await?;
        snapshot.service = services.get(&hypervisor.known().service_id).cloned();
        let host = compute_host(hypervisor);
        if snapshot.order.deleting {
            if snapshot.order.abort_in_flight && !snapshot.order.status.in_flight.is_empty() {
                snapshot.migrations = self.cloud.migrations(&host, after_history(snapshot)).await?;
            }
            return Ok(());
        }
        if over {
            return Ok(());
        }
        let (servers, migrations) = tokio::try_join!(
            self.cloud.servers_on(&host),
            self.cloud.migrations(&host, after_history(snapshot)),
        )?;
        let mut flavors = Vec::new();
        for (server, flavor) in servers {
            snapshot.servers.push(server);
            flavors.push(flavor);
        }
        snapshot.migrations = migrations;
        self.ask_departed(snapshot).await;
        self.ask_progress(snapshot).await;
        if needs_room(snapshot) {
            snapshot.capacity = Some(room(&self.context, hypervisor, snapshot));
            snapshot.candidates = self.ask_candidates(hypervisor, &flavors).await;
        }
        self.reserve(eviction, snapshot);
        Ok(())
    }

    /// Where the servers are that the host no longer lists. Only those are asked for whose move has
    /// left no finished record; a server that cannot be read stays on the list.
    async fn ask_departed(&self, snapshot: &mut Snapshot) {
        let here: BTreeSet<&str> = snapshot.servers.iter().map(|server| server.id.as_str()).collect();
        let fresh = says(&snapshot.order.status.conditions, EvictionCondition::Evicting) != Says::Yes;
        let gone: Vec<ServerId> = snapshot
            .order
            .status
            .outstanding_instances
            .iter()
            .filter(|id| !fresh && !here.contains(id.as_str()))
            .filter_map(|id| ServerId::new(id.clone()).ok())
            .collect();
        let (left, unclear): (Vec<_>, Vec<_>) = gone.into_iter().partition(|id| has_left(snapshot, id));
        let asks = unclear.into_iter().map(|id| async {
            let departed = match self.cloud.server(&id).await {
                Ok(Some(server)) => Departed::Elsewhere(Box::new(server)),
                Ok(None) => Departed::Gone,
                Err(_) => Departed::Unknown,
            };
            (id, departed)
        });
        let asked = futures::future::join_all(asks).await;
        let left = left.into_iter().map(|id| (id, Departed::Left));
        snapshot.departed = asked.into_iter().chain(left).collect();
    }

    /// What is left to copy of migrations that take their time: from the node agents, or else from
    /// Nova.
    async fn ask_progress(&self, snapshot: &mut Snapshot) {
        let mut asks = Vec::new();
        for record in &snapshot.migrations {
            let slow =
                record.live && !record.state.is_final() && age(snapshot.now, record.created) >= PROGRESS;
            if !slow {
                continue;
            }
            if let Some(remaining) = self.reported_progress(&record.server) {
                snapshot.remaining.insert(record.server.clone(), remaining);
            } else {
                asks.push(self.ask_one_progress(record));
            }
        }
        let answers: Vec<_> = futures::future::join_all(asks).await;
        snapshot.remaining.extend(answers.into_iter().flatten());
    }

    async fn ask_one_progress(&self, record: &MigrationRecord) -> Option<(ServerId, u64)> {
        let remaining = self.cloud.remaining(&record.server, record.id).await.ok()??;
        Some((record.server.clone(), remaining))
    }

    fn reported_progress(&self, server: &ServerId) -> Option<u64> {
        let all = self.context.caches.migrations.all();
        let migration = all
            .iter()
            .find(|one| one.metadata.name.as_deref() == Some(server.as_str()))?;
        let progress = migration.status.as_ref()?.progress.as_ref()?;
        u64::try_from(progress.data_remaining_bytes?).ok()
    }

    /// Whether Placement knows another place for each kind of server.
    async fn ask_candidates(&self, hypervisor: &Hypervisor, flavors: &[Flavor]) -> Vec<Answer> {
        let mut kinds: BTreeMap<&str, &Flavor> = BTreeMap::new();
        for flavor in flavors {
            kinds.insert(&flavor.name, flavor);
        }
        let own = &hypervisor.known().hypervisor_id;
        let asks = kinds.into_values().map(|flavor| async move {
            let name = &flavor.name;
            match self.cloud.other_place(flavor, own).await {
                Ok(true) => Answer::Yes(format!("flavor {name}: placement has another host")),
                Ok(false) => Answer::No(format!("flavor {name}: placement has no other host")),
                Err(error) => Answer::Unknown(format!("flavor {name}: {error}")),
            }
        });
        futures::future::join_all(asks).await
    }

    fn reserve(&self, eviction: &Eviction, snapshot: &mut Snapshot) {
        let busy = snapshot
            .servers
            .iter()
            .filter(|server| server.is_moving())
            .count() as u32;
        let most = snapshot
            .order
            .spec
            .max_parallel
            .and_then(|given| u32::try_from(given).ok())
            .unwrap_or(snapshot.settings.concurrency)
            .max(1);
        let cap = self.context.config.eviction_concurrency_total;
        let all = self.context.caches.evictions.all();
        let uid = eviction.uid().unwrap_or_default();
        snapshot.fleet_free = self
            .fleet
            .reserve(&uid, busy, most.saturating_sub(busy), cap, &all);
    }
}

/// Whether the last move of a server away from the host was a live migration that ended well. A
/// cold one has to be confirmed, so its server is looked at.
fn has_left(snapshot: &Snapshot, id: &ServerId) -> bool {
    let host = snapshot.host.as_ref().map(|host| host.compute_host.as_str());
    let last = snapshot.migrations.iter().rfind(|record| record.server == *id);
    last.is_some_and(|record| {
        record.live && record.state == MigrationState::Done && Some(record.source.as_str()) == host
    })
}

/// Whether the Eviction has ended and is not to begin again yet.
fn over(snapshot: &Snapshot) -> bool {
    let conditions = &snapshot.order.status.conditions;
    let ended = says(conditions, EvictionCondition::Evicting) == Says::No;
    let failed = reason(conditions, EvictionCondition::Evicting) == EvictingReason::Failed.as_str();
    ended && !(failed && super::decide::starts_over(snapshot))
}

fn after_history(snapshot: &Snapshot) -> Timestamp {
    let began = snapshot.order.status.started_at.as_ref().map(|time| time.0);
    let recent = snapshot.now.checked_sub(HISTORY).unwrap_or(snapshot.now);
    began.map_or(recent, |began| began.min(recent))
}

/// Whether room elsewhere has to be looked for: before the first move, with the host disabled.
fn needs_room(snapshot: &Snapshot) -> bool {
    let conditions = &snapshot.order.status.conditions;
    let passed = says(conditions, EvictionCondition::PreflightChecksSucceeded) == Says::Yes
        && says(conditions, EvictionCondition::Evicting) == Says::Yes;
    let disabled = snapshot.service.as_ref().is_some_and(|service| !service.enabled);
    !passed && disabled && !wanted(&snapshot.order.spec, &snapshot.servers).is_empty()
}

/// Whether the other hosts of the zone can take the servers.
fn room(context: &Context, hypervisor: &Hypervisor, snapshot: &Snapshot) -> Answer {
    let zone = hypervisor.label(labels::ZONE);
    let isolation = isolation(hypervisor);
    let rooms: Vec<Room> = context
        .caches
        .hypervisors
        .all()
        .iter()
        .filter(|other| other.name_any() != hypervisor.name_any())
        .filter(|other| other.label(labels::ZONE) == zone && takes_servers(other))
        .filter(|other| isolation.is_subset(&aggregate_names(other)))
        .map(|other| Room { free: free(other) })
        .collect();
    let demands: Vec<Demand> = wanted(&snapshot.order.spec, &snapshot.servers)
        .iter()
        .map(|server: &&Server| Demand {
            vcpus: server.vcpus,
            ram_mb: server.ram_mb,
        })
        .collect();
    capacity(&demands, &rooms)
}

fn takes_servers(hypervisor: &Arc<Hypervisor>) -> bool {
    hypervisor.spec.maintenance == Maintenance::Off
        && !hypervisor.is(HypervisorCondition::Terminating)
        && !hypervisor.is(HypervisorCondition::HypervisorDisabled)
        && !hypervisor.is_not(HypervisorCondition::Ready)
}

fn aggregate_names(hypervisor: &Hypervisor) -> BTreeSet<&str> {
    let aggregates = hypervisor.known().aggregates.iter();
    aggregates.map(|aggregate| aggregate.name.as_str()).collect()
}

/// The aggregates that keep tenants apart; their servers cannot go elsewhere.
fn isolation(hypervisor: &Hypervisor) -> BTreeSet<&str> {
    let aggregates = hypervisor.known().aggregates.iter();
    aggregates
        .filter(|aggregate| {
            aggregate
                .metadata
                .keys()
                .any(|key| key.starts_with("filter_tenant_id"))
        })
        .map(|aggregate| aggregate.name.as_str())
        .collect()
}

fn free(hypervisor: &Arc<Hypervisor>) -> Option<(u64, u64)> {
    let status = hypervisor.known();
    let left = |key: &str| {
        let capacity = status.effective_capacity.get(key)?.value()?;
        let taken = status
            .allocation
            .get(key)
            .and_then(cobaltcore_api::Quantity::value);
        u64::try_from((capacity - taken.unwrap_or(0)).max(0)).ok()
    };
    Some((left("cpu")?, left("memory")? >> 20))
}

/// What is remembered of one Eviction between passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) ledger: Ledger,
    /// The Eviction as last written, which the cache may not show yet.
    pub(super) written: Option<Arc<Eviction>>,
    /// The status as last reported, for definitions that do not hold all of it.
    pub(super) reported: Option<cobaltcore_api::EvictionStatus>,
}

impl Evictor {
    pub(super) fn ledger(&self, eviction: &Eviction) -> Ledger {
        self.memory.with(eviction, |memory| memory.ledger.clone())
    }

    /// What we reported last where the cache is behind, or where the definition is poorer.
    fn remembered(&self, mut order: Order, eviction: &Eviction) -> Order {
        let Some(memory) = self.memory.get(eviction) else {
            return order;
        };
        if let Some(written) = &memory.written
            && newer(written, eviction)
            && let Some(status) = &written.status
        {
            order.status = status.clone();
        }
        if let Some(reported) = &memory.reported
            && !self.context.fields.has(crate::OwnKind::Eviction, "inFlight")
        {
            let conditions = std::mem::take(&mut order.status.conditions);
            order.status = cobaltcore_api::EvictionStatus {
                conditions,
                ..reported.clone()
            };
        }
        order
    }
}

fn newer(one: &Eviction, other: &Eviction) -> bool {
    let version = |eviction: &Eviction| eviction.resource_version()?.parse::<u64>().ok();
    version(one) > version(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finished_live_migration_away_from_here_proves_a_departure() {
        use crate::eviction::tests::{HOST, id, record, snapshot};
        let table = [
            (HOST, true, MigrationState::Done, true),
            (HOST, false, MigrationState::Done, false),
            (HOST, true, MigrationState::Committed, false),
            (HOST, true, MigrationState::Failed, false),
            ("node2", true, MigrationState::Done, false),
        ];
        for (source, live, state, left) in table {
            let mut one = snapshot(Vec::new());
            let last = MigrationRecord {
                live,
                ..record(2, 1, source, Some("node3"), state)
            };
            one.migrations = vec![record(1, 1, HOST, Some("node2"), MigrationState::Done), last];
            assert_eq!(has_left(&one, &id(1)), left, "{source} live={live} {state:?}");
            assert!(!has_left(&one, &id(2)), "another server");
        }
    }

    #[test]
    fn the_lowest_limit_of_a_hosts_traits_holds() {
        let limit = |name: &str, most| TraitConcurrency {
            name: name.to_owned(),
            most,
        };
        let limits = [
            limit("CUSTOM_NVME", 8),
            limit("CUSTOM_OLD", 1),
            limit("CUSTOM_ZERO", 0),
        ];
        let table: [(&[&str], u32); 5] = [
            (&[], 2),
            (&["CUSTOM_OTHER"], 2),
            (&["CUSTOM_NVME"], 8),
            (&["CUSTOM_NVME", "CUSTOM_OLD"], 1),
            (&["CUSTOM_ZERO"], 1),
        ];
        for (traits, wanted) in table {
            let traits: Vec<String> = traits.iter().map(ToString::to_string).collect();
            assert_eq!(concurrency(&limits, &traits, 2), wanted, "{traits:?}");
        }
    }
}
