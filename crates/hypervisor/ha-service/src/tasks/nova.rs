// SPDX-License-Identifier: Apache-2.0
//! What Nova knows: compute services every few seconds, hypervisors and changed servers less often.
//! A refresh that fails deletes nothing; a service whose cell does not answer is no data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId, ServiceId};
use cobaltcore_ha_engine::{Epoch, Input, LOCK_PREFIX, Mono, Observation, ServiceFacts};
use cobaltcore_openstack::glance::Image;
use cobaltcore_openstack::nova::{ComputeService, Server, ServerFilter, ServiceState, ServiceStatus};
use cobaltcore_openstack::{ImageId, Kind, Session};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::brain::BrainHandle;
use crate::clock::Clock;
use crate::config::Exclusion;
use crate::directory::{Directory, HostEntry, ZONE};
use crate::heard::Heard;
use crate::leadership::pause;
use crate::settings::InForce;
use crate::store::{KeptServer, Store};
use crate::wishes::{speaks, wishes};

/// Complete refreshes without a host before it is gone.
const GONE_AFTER: u32 = 3;
/// Agents heard within this time keep a host known.
const CONTACT: Duration = Duration::from_secs(300);
/// How often all servers are listed, not only those that changed.
const FULL: Duration = Duration::from_secs(3600);
/// Letters of a ULID.
const ULID: usize = 26;
/// How often images and aggregates are asked what they say of guests.
const HEAR: Duration = Duration::from_mins(10);

/// When Nova last answered, in milliseconds of the clock; shared with the canaries.
#[derive(Clone, Debug, Default)]
pub struct LastAnswer(Arc<AtomicU64>);

impl LastAnswer {
    fn now(&self, clock: &Clock) {
        self.0.store(clock.mono().0, Ordering::Relaxed);
    }

    /// Whether it answered within `time`.
    pub fn within(&self, clock: &Clock, time: Duration) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last > 0 && clock.mono().since(Mono(last)) <= time
    }
}

/// Looks at Nova.
pub struct NovaWatch {
    /// The cloud.
    pub session: Session,
    /// What the service is told.
    pub in_force: InForce,
    /// Removes locks that were left behind.
    pub executor: Executor,
    /// The clock.
    pub clock: Clock,
    /// What is known of hosts.
    pub directory: Directory,
    /// Who was heard.
    pub heard: Heard,
    /// The loop.
    pub brain: BrainHandle,
    /// The telemetry.
    pub store: Store,
    /// When Nova last answered.
    pub answered: LastAnswer,
}

impl NovaWatch {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let this = &self;
        tokio::join!(this.services(&stop), this.hypervisors(&stop), this.servers(&stop));
    }

    async fn services(&self, stop: &CancellationToken) {
        let mut missing: HashMap<HostName, u32> = HashMap::new();
        loop {
            let begun = Instant::now();
            let nova = self
                .session
                .nova()
                .within(self.in_force.get().openstack.timeout.0);
            match nova.compute_services().await {
                Ok(services) => {
                    self.answered.now(&self.clock);
                    self.take_services(&services, &mut missing).await;
                }
                Err(error) => tracing::warn!(%error, "compute services cannot be listed"),
            }
            let every = if self.suspects().await {
                self.in_force.get().openstack.suspect_interval.0
            } else {
                self.in_force.get().openstack.services_interval.0
            };
            if pause(stop, every.saturating_sub(begun.elapsed())).await {
                return;
            }
        }
    }

    async fn suspects(&self) -> bool {
        let asked = self.brain.ask(|engine, _| engine.watchful()).await;
        asked.unwrap_or(false)
    }

    async fn take_services(&self, services: &[ComputeService], missing: &mut HashMap<HostName, u32>) {
        let known = self.directory.all();
        let keys = Keys::of(&known);
        let mut of: BTreeMap<HostName, Vec<&ComputeService>> = BTreeMap::new();
        let mut unclear: BTreeSet<HostName> = BTreeSet::new();
        for service in services {
            match keys.hosts_of(service).as_slice() {
                [host] => of.entry(host.clone()).or_default().push(service),
                several => unclear.extend(several.iter().cloned()),
            }
        }
        for host in &unclear {
            missing.remove(host);
            self.directory.change_known(host, |entry| entry.ambiguous = true);
        }
        let in_cluster = self.in_force.get().kubernetes.enabled;
        let mut facts = Vec::new();
        for (host, services) in of.iter().filter(|(host, _)| !unclear.contains(*host)) {
            missing.remove(host);
            let [service, rest @ ..] = services.as_slice() else {
                continue;
            };
            self.directory.change(host, |entry| {
                let fresh = entry.nova_host.is_none();
                entry.ambiguous = !rest.is_empty();
                entry.nova_host = Some(service.host.clone());
                let id = service.id.as_str();
                entry.service_id = ServiceId::new(id).ok();
                if fresh && !in_cluster {
                    let said = entry.legacy;
                    entry.switch(said);
                    if let Some(zone) = &service.zone {
                        entry
                            .labels
                            .entry(ZONE.to_owned())
                            .or_insert_with(|| zone.clone());
                    }
                }
            });
            if rest.is_empty()
                && let Some(seen) = facts_of(service)
            {
                facts.push((host.clone(), seen));
            }
        }
        for host in doubles(&known, &of) {
            tracing::info!(%host, "Nova told of it before its Hypervisor object did, by another name");
            self.directory.remove(host);
        }
        let listed = of.keys().chain(&unclear).collect();
        self.forget_gone(&known, &listed, missing).await;
        self.brain.tell(Input::Saw(Observation::Services(facts))).await;
    }

    /// A host is gone when Nova left it out of several complete lists and nobody speaks for it.
    async fn forget_gone(
        &self,
        known: &[(HostName, Arc<HostEntry>)],
        listed: &BTreeSet<&HostName>,
        missing: &mut HashMap<HostName, u32>,
    ) {
        for (host, entry) in known {
            if listed.contains(host) || entry.in_kubernetes {
                continue;
            }
            let times = missing.entry(host.clone()).or_insert(0);
            *times += 1;
            if *times >= GONE_AFTER && !self.heard.fresh(host, CONTACT) {
                missing.remove(host);
                tracing::info!(%host, "Nova does not know it any more");
                self.directory.remove(host);
                self.brain
                    .tell(Input::Saw(Observation::HostGone(host.clone())))
                    .await;
            }
        }
    }

    async fn hypervisors(&self, stop: &CancellationToken) {
        loop {
            let nova = self
                .session
                .nova()
                .within(self.in_force.get().openstack.timeout.0);
            match nova.hypervisors().await {
                Ok(all) => {
                    for hypervisor in all {
                        let Some(host) = self.directory.by_nova_host(&hypervisor.service.host) else {
                            continue;
                        };
                        self.directory.change_known(&host, |entry| {
                            entry.hypervisor_id = Some(hypervisor.id.as_str().to_owned());
                            if !entry.in_kubernetes {
                                entry.internal_ip.clone_from(&hypervisor.host_ip);
                            }
                        });
                    }
                }
                Err(error) => tracing::warn!(%error, "hypervisors cannot be listed"),
            }
            // The first lists may come in any order.
            let every = if self
                .directory
                .all()
                .iter()
                .any(|(_, entry)| entry.hypervisor_id.is_none())
            {
                Duration::from_secs(5).min(self.in_force.get().openstack.hypervisors_interval.0)
            } else {
                self.in_force.get().openstack.hypervisors_interval.0
            };
            if pause(stop, every).await {
                return;
            }
        }
    }

    async fn servers(&self, stop: &CancellationToken) {
        let mut since: Option<jiff::Timestamp> = None;
        let mut full_at: Option<Instant> = None;
        let mut words = Words::default();
        let mut locks = Locks::default();
        loop {
            self.hear(&mut words).await;
            let full = full_at.is_none_or(|at| at.elapsed() >= FULL);
            let began = jiff::Timestamp::now();
            let filter = ServerFilter {
                changes_since: since.filter(|_| !full),
                ..ServerFilter::everywhere()
            };
            let nova = self
                .session
                .nova()
                .within(self.in_force.get().openstack.timeout.0);
            if full {
                locks = Locks::default();
            }
            // Page by page: what is kept of a server is a fraction of what Nova says.
            let listed = nova
                .each_page_of_servers(&filter, |page| {
                    locks.note(&page);
                    self.keep_servers(&page, &words);
                })
                .await;
            match listed {
                Ok(()) => {
                    self.unlock_forgotten(&mut locks).await;
                    // A minute of overlap forgives clocks that differ.
                    since = began.checked_sub(jiff::SignedDuration::from_secs(60)).ok();
                    if full {
                        full_at = Some(Instant::now());
                    }
                }
                Err(error) => tracing::warn!(%error, "servers cannot be listed"),
            }
            if pause(stop, self.in_force.get().openstack.servers_interval.0).await {
                return;
            }
        }
    }

    /// Asks what images and aggregates say, every now and then. Whoever does not answer has said what it said before.
    async fn hear(&self, words: &mut Words) {
        if words.heard.is_some_and(|at| at.elapsed() < HEAR) {
            return;
        }
        let begun = Instant::now();
        let config = self.in_force.get();
        let session = self.session.within(config.openstack.timeout.0);
        match session.glance().images().await {
            Ok(images) => {
                let telling = images
                    .into_iter()
                    .filter(|image| speaks(image, &config.recovery.exclude));
                words.images = telling.map(|image| (image.id.clone(), image)).collect();
            }
            Err(error) if error.kind() == Kind::NoEndpoint => words.images.clear(),
            Err(error) => {
                tracing::warn!(%error, "images cannot be listed");
                return;
            }
        }
        match session.nova().aggregates().await {
            Ok(aggregates) => {
                words.aggregates.clear();
                for aggregate in aggregates {
                    for host in aggregate.hosts {
                        let known = words.aggregates.entry(host).or_default();
                        known.push(aggregate.metadata.clone());
                    }
                }
                words.heard = Some(begun);
            }
            Err(error) => tracing::warn!(%error, "aggregates cannot be listed"),
        }
    }

    /// Removes locks of incidents of our hosts that are over: a person ended them, or their end was not seen. Nova lists the
    /// guests of a whole region, and what other services lock for their own hosts is theirs.
    async fn unlock_forgotten(&self, locks: &mut Locks) {
        let in_cluster = self.in_force.get().kubernetes.enabled;
        let mut removed = Vec::new();
        for (server, incident) in &locks.0 {
            if !is_ours(incident, &self.directory, in_cluster) {
                continue;
            }
            let Some((term, not_after)) = self.may_unlock(incident).await else {
                continue;
            };
            match self.executor.unlock(term, not_after, server.clone()).await {
                Ok(_) => {
                    tracing::info!(%server, incident, "a lock that was left behind is removed");
                    removed.push(server.clone());
                }
                Err(trouble) => tracing::warn!(%server, ?trouble, "a lock that was left behind stays"),
            }
        }
        for server in removed {
            locks.0.remove(&server);
        }
    }

    /// In which term a lock may be removed, and until when; nothing while its incident is open or another replica may lead.
    async fn may_unlock(&self, incident: &str) -> Option<(Epoch, Mono)> {
        let incident = incident.to_owned();
        let clock = self.clock;
        let look = self.brain.ask(move |engine, _| {
            let mut open = engine.ledger().incidents.values().filter(|one| one.state.open());
            let known = open.any(|one| one.id.to_string() == incident);
            engine.may_leave(clock.mono()).filter(|_| !known)
        });
        look.await.flatten()
    }

    fn keep_servers(&self, servers: &[Server], words: &Words) {
        let now = jiff::Timestamp::now().as_millisecond();
        let config = self.in_force.get();
        let mut known = self.directory.all();
        // Of two that Nova calls the same, the later one counts.
        known.sort_by_key(|(_, entry)| entry.in_kubernetes);
        let ours: HashMap<&str, &HostName> = known
            .iter()
            .filter_map(|(host, entry)| Some((entry.nova_host.as_deref()?, host)))
            .collect();
        let rows = servers
            .iter()
            .map(|server| kept(server, &ours, words, &config.recovery.exclude))
            .collect();
        self.store.keep_servers(rows, now);
    }
}

/// What is said of guests elsewhere than in Nova's list of them.
#[derive(Default)]
struct Words {
    heard: Option<Instant>,
    /// Images that say anything.
    images: HashMap<ImageId, Image>,
    /// The metadata of aggregates, by Nova's name of the host.
    aggregates: HashMap<String, Vec<BTreeMap<String, String>>>,
}

/// Servers that are locked in our name, and for which incidents. Only what changed is listed most of the time, so it is
/// remembered who was locked: by now an incident may be over, or this replica lead.
#[derive(Default)]
struct Locks(BTreeMap<ServerId, String>);

impl Locks {
    fn note(&mut self, servers: &[Server]) {
        for server in servers {
            let Ok(id) = ServerId::new(server.id.as_str()) else {
                continue;
            };
            let reason = server.locked_reason.as_deref().filter(|_| server.locked);
            match reason.and_then(|reason| reason.strip_prefix(LOCK_PREFIX)) {
                Some(incident) => self.0.insert(id, incident.to_owned()),
                None => self.0.remove(&id),
            };
        }
    }
}

/// Whether the host of an incident is one of ours.
fn is_ours(incident: &str, directory: &Directory, in_cluster: bool) -> bool {
    let host = host_of(incident).and_then(|host| HostName::new(host).ok());
    let entry = host.and_then(|host| directory.get(&host));
    entry.is_some_and(|entry| entry.ours(in_cluster))
}

/// The host in the name of an incident: what is before its ULID, or before two numbers where nobody knew the time.
fn host_of(incident: &str) -> Option<&str> {
    let (before, last) = incident.rsplit_once('-')?;
    if last.len() == ULID {
        return Some(before);
    }
    before.rsplit_once('-').map(|(host, _)| host)
}

/// What is kept of a server; `ours` are our names of hosts by Nova's.
fn kept(
    server: &Server,
    ours: &HashMap<&str, &HostName>,
    words: &Words,
    exclude: &[Exclusion],
) -> KeptServer {
    let name_of = |nova_host: &str| {
        let ours = ours.get(nova_host);
        ours.map_or_else(|| nova_host.to_owned(), ToString::to_string)
    };
    let image = server.image.as_ref().and_then(|id| words.images.get(id));
    let host = server.host.as_deref().unwrap_or_default();
    let aggregates = words.aggregates.get(host).map(Vec::as_slice);
    let wishes = wishes(server, image, aggregates.unwrap_or_default(), exclude);
    KeptServer {
        uuid: server.id.as_str().to_owned(),
        name: server.name.clone(),
        host: server.host.as_deref().map(name_of),
        vm_state: server.vm_state.as_ref().map(ToString::to_string),
        task_state: server.task_state.clone(),
        project: server.tenant_id.as_ref().map(ToString::to_string),
        flavor: server.flavor.original_name.clone(),
        policy: wishes.word().to_owned(),
        priority: wishes.priority,
        group: wishes.group,
    }
}

/// By what a service is known to belong to a host. A host that only Nova has told of gives way to one with a Hypervisor
/// object.
struct Keys<'a> {
    ids: HashMap<&'a str, (&'a HostName, bool)>,
    /// Hosts of whose objects Nova's name is known.
    nova_hosts: HashMap<&'a str, Vec<&'a HostName>>,
    names: HashMap<&'a str, Vec<Named<'a>>>,
}

/// A host of some short name.
struct Named<'a> {
    host: &'a HostName,
    /// A service is known to be its own.
    settled: bool,
    in_kubernetes: bool,
}

impl<'a> Keys<'a> {
    fn of(known: &'a [(HostName, Arc<HostEntry>)]) -> Self {
        let mut keys = Self {
            ids: HashMap::new(),
            nova_hosts: HashMap::new(),
            names: HashMap::new(),
        };
        for (host, entry) in known {
            let in_kubernetes = entry.in_kubernetes;
            if let Some(id) = &entry.service_id {
                let owner = keys.ids.entry(id.as_str()).or_insert((host, in_kubernetes));
                if in_kubernetes && !owner.1 {
                    *owner = (host, true);
                }
            }
            if let Some(nova_host) = entry.nova_host.as_deref().filter(|_| in_kubernetes) {
                keys.nova_hosts.entry(nova_host).or_default().push(host);
            }
            keys.names.entry(host.short()).or_default().push(Named {
                host,
                settled: entry.service_id.is_some(),
                in_kubernetes,
            });
        }
        keys.give_way();
        keys
    }

    /// Of hosts with one short name, those that only Nova has told of do not count beside others.
    fn give_way(&mut self) {
        let of_one_name = self.names.values_mut();
        for named in of_one_name.filter(|named| named.iter().any(|one| one.in_kubernetes)) {
            named.retain(|one| one.in_kubernetes);
        }
        let names = &self.names;
        self.ids.retain(|_, (host, in_kubernetes)| {
            let named = names.get(host.short());
            *in_kubernetes || named.is_some_and(|named| named.iter().any(|one| one.host == *host))
        });
    }

    /// The one host whose object goes by Nova's name of this service.
    fn named_by_object(&self, service: &ComputeService) -> Option<&'a HostName> {
        match self.nova_hosts.get(service.host.as_str()).map(Vec::as_slice) {
            Some([host]) => Some(host),
            _ => None,
        }
    }

    /// The host a service belongs to. What a Hypervisor object says wins; else names are compared up
    /// to their first dot, exactly and never by a part. Of several, nobody can tell whose it is.
    fn hosts_of(&self, service: &ComputeService) -> Vec<HostName> {
        let by_id = self.ids.get(service.id.as_str());
        let by_object = by_id.filter(|(_, in_kubernetes)| *in_kubernetes);
        let by_object = by_object
            .map(|(host, _)| *host)
            .or_else(|| self.named_by_object(service));
        if let Some(host) = by_object.or(by_id.map(|(host, _)| *host)) {
            return vec![host.clone()];
        }
        let short = service.host.split('.').next().unwrap_or_default();
        let short = short.to_ascii_lowercase();
        let Some(known) = self.names.get(short.as_str()) else {
            return HostName::new(short).into_iter().collect();
        };
        let all = || known.iter().map(|one| one.host.clone()).collect();
        let waiting: Vec<HostName> = known
            .iter()
            .filter(|one| !one.settled)
            .map(|one| one.host.clone())
            .collect();
        if known.len() == 1 || waiting.is_empty() {
            all()
        } else {
            waiting
        }
    }
}

/// Hosts that only Nova has told of and whose service belongs to a host with a Hypervisor object: they are one.
fn doubles<'a>(
    known: &'a [(HostName, Arc<HostEntry>)],
    of: &BTreeMap<HostName, Vec<&ComputeService>>,
) -> Vec<&'a HostName> {
    let (objects, others): (Vec<_>, Vec<_>) = known.iter().partition(|(_, entry)| entry.in_kubernetes);
    let services = objects.iter().filter_map(|(host, _)| of.get(host)).flatten();
    let theirs: BTreeSet<&str> = services.map(|service| service.id.as_str()).collect();
    let is_double = |entry: &HostEntry| {
        let id = entry.service_id.as_ref().map(ServiceId::as_str);
        id.is_some_and(|id| theirs.contains(id))
    };
    let doubles = others.into_iter().filter(|(_, entry)| is_double(entry));
    doubles.map(|(host, _)| host).collect()
}

fn facts_of(service: &ComputeService) -> Option<ServiceFacts> {
    let known = service.state != ServiceState::Unknown && service.status != ServiceStatus::Unknown;
    let updated_at = service.updated_at?;
    known.then(|| ServiceFacts {
        updated_at: updated_at.to_string(),
        up: service.state == ServiceState::Up,
        disabled: service.status == ServiceStatus::Disabled,
        forced_down: service.forced_down,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(id: &str, host: &str) -> ComputeService {
        let service = serde_json::json!({
            "id": id, "binary": "nova-compute", "host": host, "status": "enabled", "state": "up",
            "zone": "a", "forced_down": false, "updated_at": "2026-01-01T00:00:00.000000",
        });
        serde_json::from_value(service).unwrap()
    }

    /// Hosts by their names, each with the service that is known to be its own.
    fn hosts_of(known: &[(&str, Option<&str>)], service: &ComputeService) -> Vec<String> {
        let known: Vec<_> = known
            .iter()
            .map(|(name, id)| {
                let entry = HostEntry {
                    service_id: id.and_then(|id| ServiceId::new(id).ok()),
                    ..HostEntry::default()
                };
                (HostName::new(*name).unwrap(), Arc::new(entry))
            })
            .collect();
        let found = Keys::of(&known).hosts_of(service);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_belongs_to_the_host_of_its_id_or_of_its_whole_short_name() {
        let one = "00000000-0000-4000-8000-000000000001";
        let two = "00000000-0000-4000-8000-000000000002";
        let n1 = service(one, "N1.example.org");
        assert_eq!(hosts_of(&[("n1", None), ("n10", None), ("n", None)], &n1), ["n1"]);
        assert_eq!(hosts_of(&[], &n1), ["n1"], "a host that only Nova knows");
        assert_eq!(
            hosts_of(&[("n1", None), ("renamed", Some(one))], &n1),
            ["renamed"],
            "its id wins"
        );
        assert_eq!(
            hosts_of(&[("n1", Some(two))], &n1),
            ["n1"],
            "a second service of one host, which makes it ambiguous"
        );
        assert_eq!(
            hosts_of(&[("n1", None), ("n1.other", None)], &n1),
            ["n1", "n1.other"],
            "two objects, and nobody says whose it is"
        );
        assert_eq!(
            hosts_of(&[("n1", Some(two)), ("n1.other", None)], &n1),
            ["n1.other"],
            "the other has its own"
        );
    }

    const ONE: &str = "00000000-0000-4000-8000-000000000001";

    /// A host that only Nova has told of, and one with a Hypervisor object.
    fn seen_twice(object: &str, change: impl FnOnce(&mut HostEntry)) -> Vec<(HostName, Arc<HostEntry>)> {
        let told = HostEntry {
            service_id: ServiceId::new(ONE).ok(),
            nova_host: Some("n1".into()),
            ..HostEntry::default()
        };
        let mut known = HostEntry {
            in_kubernetes: true,
            ..HostEntry::default()
        };
        change(&mut known);
        let all = [("n1", told), (object, known)];
        all.map(|(name, entry)| (HostName::new(name).unwrap(), Arc::new(entry)))
            .into()
    }

    #[test]
    fn a_host_that_only_nova_told_of_gives_way_to_the_object_that_turns_out_to_be_it() {
        let n1 = service(ONE, "n1");
        let by_id = |entry: &mut HostEntry| entry.service_id = ServiceId::new(ONE).ok();
        let by_compute_host = |entry: &mut HostEntry| entry.nova_host = Some("n1".into());
        for (object, known) in [
            ("n1.example.org", seen_twice("n1.example.org", |_| {})),
            ("renamed", seen_twice("renamed", by_id)),
            ("renamed", seen_twice("renamed", by_compute_host)),
        ] {
            let object = HostName::new(object).unwrap();
            assert_eq!(Keys::of(&known).hosts_of(&n1), std::slice::from_ref(&object));
            let of = BTreeMap::from([(object, vec![&n1])]);
            let doubles: Vec<_> = doubles(&known, &of).into_iter().map(HostName::as_str).collect();
            assert_eq!(doubles, ["n1"]);
        }
        let apart = seen_twice("n2", |_| {});
        let n1_host = HostName::new("n1").unwrap();
        assert_eq!(Keys::of(&apart).hosts_of(&n1), std::slice::from_ref(&n1_host));
        let of = BTreeMap::from([(n1_host, vec![&n1])]);
        assert!(doubles(&apart, &of).is_empty(), "another host");
    }

    #[test]
    fn a_lock_is_ours_when_the_host_of_its_incident_is() {
        let directory = Directory::default();
        for (host, object) in [("n1-bb1", true), ("n2-bb1", false)] {
            let host = HostName::new(host).unwrap();
            directory.change(&host, |entry| entry.in_kubernetes = object);
        }
        let ours = |incident: &str, in_cluster| is_ours(incident, &directory, in_cluster);
        for (host, in_cluster) in [("n1-bb1", true), ("n1-bb1", false), ("n2-bb1", false)] {
            assert!(ours(&format!("{host}-01JCJ1MSGR000030000000000A"), in_cluster));
            assert!(ours(&format!("{host}-3-1"), in_cluster));
        }
        assert!(
            !ours("n2-bb1-3-1", true),
            "without an object it is another zone's"
        );
        for other in ["n3-bb1-3-1", "n1-3-1", "n1-bb1", "n1", "", "-", "a person"] {
            assert!(!ours(other, false), "{other}");
        }
    }
}
