// SPDX-License-Identifier: Apache-2.0
//! What the console knows of the fleet: every object it shows, kept current by one watch per
//! kind and shared by all viewers. It also remembers what Kubernetes forgets: how conditions
//! changed and how fast migrations ran. It never writes; what a person may see is decided
//! by [`crate::session`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::{Eviction, Hypervisor, Migration};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::{RwLock, RwLockReadGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ha::Incidents;

/// Changes are numbered; a viewer asks for what is newer than the number it has.
pub type Revision = u64;

const MOST_TRANSITIONS: usize = 50;
const MOST_SAMPLES: usize = 240;
/// Events older than the newest ones are of no use on a page.
const MOST_EVENTS: usize = 2_000;

/// An object and when it last changed.
#[derive(Debug)]
pub struct Kept<T> {
    /// The object as the API server sent it.
    pub object: Arc<T>,
    /// The change that brought it.
    pub revision: Revision,
}

/// All objects of one kind.
#[derive(Debug)]
pub struct Shelf<T> {
    items: BTreeMap<String, Kept<T>>,
    arriving: Option<BTreeSet<String>>,
    /// The last change that added or removed an object.
    pub shape: Revision,
    /// Whether a whole list was seen.
    pub complete: bool,
    /// Why nothing new arrives, if so, and since when.
    pub trouble: Option<(Timestamp, String)>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            arriving: None,
            shape: 0,
            complete: false,
            trouble: None,
        }
    }
}

impl<T> Shelf<T> {
    /// The object of this key (`name`, or `namespace/name`).
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.items.get(key).map(|kept| &kept.object)
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Kept<T>)> {
        self.items.iter().map(|(key, kept)| (key.as_str(), kept))
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        self.items.values().map(|kept| &kept.object)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn put(&mut self, key: String, object: Arc<T>, revision: Revision) -> Option<Arc<T>> {
        if let Some(arriving) = &mut self.arriving {
            arriving.insert(key.clone());
        }
        let before = self.items.insert(key, Kept { object, revision });
        if before.is_none() {
            self.shape = revision;
        }
        before.map(|kept| kept.object)
    }

    fn remove(&mut self, key: &str, revision: Revision) {
        if self.items.remove(key).is_some() {
            self.shape = revision;
        }
    }

    fn keep_arrived(&mut self, revision: Revision) {
        let Some(arrived) = self.arriving.take() else {
            return;
        };
        let before = self.items.len();
        self.items.retain(|key, _| arrived.contains(key));
        if self.items.len() != before {
            self.shape = revision;
        }
        self.complete = true;
        self.trouble = None;
    }
}

/// A condition that became something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When.
    pub at: Timestamp,
    /// The condition's type.
    pub condition: String,
    /// What it became.
    pub status: String,
    /// Why.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// How fast a migration ran at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds since the migration began.
    pub elapsed_ms: i64,
    /// Memory bytes per second.
    pub bytes_per_second: i64,
    /// Bytes left to move.
    pub remaining: i64,
}

/// Everything known at one moment.
#[derive(Debug, Default)]
pub struct Known {
    /// The last change.
    pub revision: Revision,
    /// Hypervisors by name.
    pub hypervisors: Shelf<Hypervisor>,
    /// Evictions by name.
    pub evictions: Shelf<Eviction>,
    /// Migrations by namespace and name.
    pub migrations: Shelf<Migration>,
    /// Events by namespace and name.
    pub events: Shelf<Event>,
    /// What the HA service knows.
    pub incidents: Incidents,
    transitions: HashMap<String, VecDeque<Transition>>,
    samples: HashMap<String, VecDeque<Sample>>,
}

impl Known {
    /// How the conditions of a host changed, newest first.
    pub fn transitions(&self, host: &str) -> impl Iterator<Item = &Transition> {
        self.transitions.get(host).into_iter().flatten()
    }

    /// How fast a migration ran, oldest first.
    pub fn samples(&self, migration: &str) -> impl Iterator<Item = &Sample> {
        self.samples.get(migration).into_iter().flatten()
    }
}

/// The kinds on the shelves; each says what else is remembered of it.
trait Shown:
    kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
    fn shelf(known: &mut Known) -> &mut Shelf<Self>;
    /// Leaves out what no page shows.
    fn slim(&mut self) {}
    fn remember(_known: &mut Known, _key: &str, _before: Option<&Self>, _now: &Self) {}
    fn forget(_known: &mut Known, _key: &str) {}
}

impl Shown for Hypervisor {
    fn shelf(known: &mut Known) -> &mut Shelf<Self> {
        &mut known.hypervisors
    }

    fn slim(&mut self) {
        if let Some(status) = &mut self.status {
            status.capabilities = None;
            status.domain_capabilities = None;
        }
    }

    fn remember(known: &mut Known, key: &str, before: Option<&Self>, now: &Self) {
        let fresh = changed_conditions(before, now);
        if fresh.is_empty() {
            return;
        }
        let history = known.transitions.entry(key.to_owned()).or_default();
        for transition in fresh {
            history.push_front(transition);
        }
        history.truncate(MOST_TRANSITIONS);
    }

    fn forget(known: &mut Known, key: &str) {
        known.transitions.remove(key);
    }
}

impl Shown for Eviction {
    fn shelf(known: &mut Known) -> &mut Shelf<Self> {
        &mut known.evictions
    }
}

impl Shown for Migration {
    fn shelf(known: &mut Known) -> &mut Shelf<Self> {
        &mut known.migrations
    }

    fn remember(known: &mut Known, key: &str, _before: Option<&Self>, now: &Self) {
        let Some(progress) = now.status.as_ref().and_then(|status| status.progress.as_ref()) else {
            return;
        };
        let (Some(elapsed_ms), Some(bytes_per_second)) = (progress.elapsed_ms, progress.memory_bps) else {
            return;
        };
        let curve = known.samples.entry(key.to_owned()).or_default();
        // A second attempt on the same object starts a new curve.
        if curve.back().is_some_and(|last| last.elapsed_ms > elapsed_ms) {
            curve.clear();
        }
        if curve.back().is_none_or(|last| last.elapsed_ms < elapsed_ms) {
            curve.push_back(Sample {
                elapsed_ms,
                bytes_per_second,
                remaining: progress.data_remaining_bytes.unwrap_or_default(),
            });
        }
        if curve.len() > MOST_SAMPLES {
            curve.pop_front();
        }
    }

    fn forget(known: &mut Known, key: &str) {
        known.samples.remove(key);
    }
}

impl Shown for Event {
    fn shelf(known: &mut Known) -> &mut Shelf<Self> {
        &mut known.events
    }

    fn remember(known: &mut Known, _key: &str, _before: Option<&Self>, _now: &Self) {
        while known.events.items.len() > MOST_EVENTS {
            let oldest = known.events.items.iter().min_by_key(|(_, kept)| kept.revision);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            known.events.items.remove(&key);
        }
    }
}

/// Conditions of `now` whose status or reason differs from `before`, oldest first. On first
/// sight every condition counts: its last transition is the history there is.
fn changed_conditions(before: Option<&Hypervisor>, now: &Hypervisor) -> Vec<Transition> {
    let conditions = |hypervisor: &Hypervisor| {
        hypervisor
            .status
            .as_ref()
            .map_or_else(Vec::new, |status| status.conditions.clone())
    };
    let old = before.map(conditions).unwrap_or_default();
    let mut fresh: Vec<Transition> = conditions(now)
        .into_iter()
        .filter(|new| {
            old.iter()
                .find(|old| old.type_ == new.type_)
                .is_none_or(|old| old.status != new.status || old.reason != new.reason)
        })
        .map(|new| Transition {
            at: new.last_transition_time.0,
            condition: new.type_,
            status: new.status,
            reason: new.reason,
            message: new.message,
        })
        .collect();
    fresh.sort_by_key(|transition| transition.at);
    fresh
}

/// The shared knowledge of all viewers.
#[derive(Clone, Debug)]
pub struct Fleet {
    known: Arc<RwLock<Known>>,
    latest: watch::Sender<Revision>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            known: Arc::default(),
            latest: watch::Sender::new(0),
        }
    }
}

impl Fleet {
    /// What is known now. Hold it only while a page is made.
    pub fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read()
    }

    /// Tells of every later change.
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.latest.subscribe()
    }

    /// Follows all kinds until `stop`.
    pub fn follow(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        self.follow_kind::<Hypervisor>(client, tasks, stop);
        self.follow_kind::<Eviction>(client, tasks, stop);
        self.follow_kind::<Migration>(client, tasks, stop);
        self.follow_kind::<Event>(client, tasks, stop);
    }

    fn follow_kind<K: Shown>(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        let api: Api<K> = Api::all(client.clone());
        let fleet = self.clone();
        let stop = stop.clone();
        tasks.spawn(async move {
            let config = watcher::Config::default();
            let mut changes = watcher(api, config).default_backoff().boxed();
            loop {
                let change = tokio::select! {
                    () = stop.cancelled() => return,
                    change = changes.next() => change,
                };
                match change {
                    Some(Ok(change)) => fleet.take(change),
                    Some(Err(error)) => {
                        fleet.note_trouble::<K>(error.to_string());
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    None => return,
                }
            }
        });
    }

    fn take<K: Shown>(&self, change: watcher::Event<K>) {
        let mut known = self.known.write();
        let revision = known.revision + 1;
        match change {
            watcher::Event::Init => K::shelf(&mut known).arriving = Some(BTreeSet::new()),
            watcher::Event::InitApply(mut object) | watcher::Event::Apply(mut object) => {
                let key = key_of(&object);
                // Who wrote which field is most of an object, and nobody looks at it here.
                object.meta_mut().managed_fields = None;
                object.slim();
                let object = Arc::new(object);
                let before = K::shelf(&mut known).put(key.clone(), object.clone(), revision);
                K::remember(&mut known, &key, before.as_deref(), &object);
                K::shelf(&mut known).trouble = None;
            }
            watcher::Event::Delete(object) => {
                let key = key_of(&object);
                K::shelf(&mut known).remove(&key, revision);
                K::forget(&mut known, &key);
            }
            watcher::Event::InitDone => K::shelf(&mut known).keep_arrived(revision),
        }
        known.revision = revision;
        drop(known);
        self.latest.send_replace(revision);
    }

    /// Changes what is known of incidents; viewers hear of it only if it looks different now.
    pub(crate) fn set_incidents(&self, change: impl FnOnce(&mut Incidents)) {
        let mut known = self.known.write();
        let before = known.incidents.clone();
        change(&mut known.incidents);
        if known.incidents == before {
            return;
        }
        known.revision += 1;
        let revision = known.revision;
        drop(known);
        self.latest.send_replace(revision);
    }

    fn note_trouble<K: Shown>(&self, text: String) {
        let kind = K::kind(&());
        let mut known = self.known.write();
        known.revision += 1;
        let revision = known.revision;
        let shelf = K::shelf(&mut known);
        if shelf.trouble.is_none() {
            tracing::warn!(kind = %kind, error = text, "the watch is interrupted and will be resumed");
            shelf.trouble = Some((Timestamp::now(), text));
        }
        drop(known);
        self.latest.send_replace(revision);
    }
}

fn key_of<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
impl Fleet {
    /// A fleet of these hosts.
    pub(crate) fn with(hosts: impl IntoIterator<Item = Hypervisor>) -> Self {
        let fleet = Self::default();
        fleet.take::<Hypervisor>(watcher::Event::Init);
        for host in hosts {
            fleet.take(watcher::Event::InitApply(host));
        }
        fleet.take::<Hypervisor>(watcher::Event::InitDone);
        fleet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hypervisor(name: &str, conditions: &[(&str, &str, &str, &str)]) -> Hypervisor {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status, reason, at)| {
                json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": name}, "spec": {}, "status": {"conditions": conditions}
        }))
        .unwrap()
    }

    fn migration(elapsed: i64, bps: i64) -> Migration {
        serde_json::from_value(json!({
            "apiVersion": "kvm.cloud.sap/v1alpha1", "kind": "Migration",
            "metadata": {"name": "m", "namespace": "n"}, "spec": {},
            "status": {"progress": {"elapsedMs": elapsed, "memoryBps": bps}}
        }))
        .unwrap()
    }

    #[test]
    fn a_changed_condition_is_remembered_and_an_unchanged_one_is_not() {
        let fleet = Fleet::default();
        fleet.take(watcher::Event::Apply(hypervisor(
            "a",
            &[("Ready", "True", "Ready", "2026-01-01T00:00:00Z")],
        )));
        fleet.take(watcher::Event::Apply(hypervisor(
            "a",
            &[("Ready", "True", "Ready", "2026-01-01T00:00:00Z")],
        )));
        fleet.take(watcher::Event::Apply(hypervisor(
            "a",
            &[("Ready", "False", "Maintenance", "2026-01-02T00:00:00Z")],
        )));
        let known = fleet.known();
        let seen: Vec<_> = known
            .transitions("a")
            .map(|t| (t.status.as_str(), t.reason.as_str()))
            .collect();
        assert_eq!(seen, [("False", "Maintenance"), ("True", "Ready")]);
    }

    #[test]
    fn a_new_list_drops_what_it_does_not_hold() {
        let fleet = Fleet::default();
        fleet.take(watcher::Event::Apply(hypervisor("gone", &[])));
        fleet.take::<Hypervisor>(watcher::Event::Init);
        fleet.take(watcher::Event::InitApply(hypervisor("stays", &[])));
        assert_eq!(
            fleet.known().hypervisors.len(),
            2,
            "until the list is whole nothing is dropped"
        );
        fleet.take::<Hypervisor>(watcher::Event::InitDone);
        let known = fleet.known();
        assert_eq!(
            known.hypervisors.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["stays"]
        );
        assert!(known.hypervisors.complete);
    }

    #[test]
    fn only_additions_and_removals_change_the_shape() {
        let fleet = Fleet::default();
        fleet.take(watcher::Event::Apply(hypervisor("a", &[])));
        let shape = fleet.known().hypervisors.shape;
        fleet.take(watcher::Event::Apply(hypervisor(
            "a",
            &[("Ready", "True", "Ready", "2026-01-01T00:00:00Z")],
        )));
        assert_eq!(fleet.known().hypervisors.shape, shape);
        fleet.take(watcher::Event::Delete(hypervisor("a", &[])));
        assert!(fleet.known().hypervisors.shape > shape);
        assert_eq!(fleet.known().transitions("a").count(), 0);
    }

    #[test]
    fn a_second_attempt_starts_a_new_curve() {
        let fleet = Fleet::default();
        for (elapsed, bps) in [(100, 5), (200, 6), (200, 6), (50, 1)] {
            fleet.take(watcher::Event::Apply(migration(elapsed, bps)));
        }
        let known = fleet.known();
        assert_eq!(
            known.samples("n/m").map(|s| s.elapsed_ms).collect::<Vec<_>>(),
            [50]
        );
    }
}
