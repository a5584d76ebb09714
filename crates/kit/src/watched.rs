// SPDX-License-Identifier: Apache-2.0
//! One watch and one cache per kind, shared by every controller of a process. Readers never
//! wait for the network; a controller that falls behind is told to look at everything again
//! instead of holding the watch back. What is not needed of an object is dropped on arrival.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::error::BoxError;
use crate::health::{Check, Health, Kind};

/// How many changes a reader may lag behind before it is told to look at everything.
const QUEUE: usize = 1024;
/// How often a watch that keeps failing is told of in the log.
const TELL_EVERY: Duration = Duration::from_mins(1);

/// What a kind must be to be watched.
pub trait Watchable:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// How an object changed: it appeared, changed or vanished. An object seen for the first time
/// by a reader has no `before`, however old it is.
#[derive(Debug)]
pub struct Change<K> {
    /// What it was.
    pub before: Option<Arc<K>>,
    /// What it is.
    pub after: Option<Arc<K>>,
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            before: self.before.clone(),
            after: self.after.clone(),
        }
    }
}

impl<K> Change<K> {
    /// The object as it is, or as it was when it vanished.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// Whether `aspect` differs between before and after. Appearing and vanishing always count.
    pub fn differs<'a, T: PartialEq>(&'a self, aspect: impl Fn(&'a K) -> T) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => aspect(before) != aspect(after),
            _ => true,
        }
    }
}

#[derive(Clone, Debug)]
enum Notice<K> {
    /// One object changed.
    Changed(Change<K>),
    /// The cache was filled anew.
    Replaced,
}

/// A cache that somebody else fills.
#[derive(Debug)]
pub struct Watched<K: Watchable> {
    store: Store<K>,
    notices: broadcast::Sender<Notice<K>>,
}

impl<K: Watchable> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            notices: self.notices.clone(),
        }
    }
}

/// Fills a cache; to be run by a supervisor.
pub struct WatchWorker<K: Watchable> {
    api: Api<K>,
    config: watcher::Config,
    slim: fn(&mut K),
    writer: Writer<K>,
    notices: broadcast::Sender<Notice<K>>,
}

/// A cache of the objects behind `api`, and the worker that fills it. `slim` removes from each
/// object what no reader needs.
pub fn watched<K: Watchable>(
    api: Api<K>,
    config: watcher::Config,
    slim: fn(&mut K),
) -> (Watched<K>, WatchWorker<K>) {
    let writer = Writer::new(());
    let (notices, _) = broadcast::channel(QUEUE);
    let watched = Watched {
        store: writer.as_reader(),
        notices: notices.clone(),
    };
    let worker = WatchWorker {
        api,
        config,
        slim,
        writer,
        notices,
    };
    (watched, worker)
}

impl<K: Watchable> Watched<K> {
    /// The object of a name, for kinds without namespaces.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name))
    }

    /// The object of a name in a namespace.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Every object.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The cache itself, as controllers want it.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Waits until the cache was filled once; an error if nobody fills it any more.
    pub async fn filled(&self) -> Result<(), BoxError> {
        Ok(self.store.wait_until_ready().await?)
    }

    /// Every change from now on, after each object that is there already.
    pub fn changes(&self) -> BoxStream<'static, Change<K>> {
        let (store, notices) = (self.store.clone(), self.notices.subscribe());
        let first = futures::stream::iter(everything(&store));
        let rest = futures::stream::unfold((store, notices), |(store, mut notices)| async move {
            let changes = match notices.recv().await {
                Ok(Notice::Changed(change)) => vec![change],
                Ok(Notice::Replaced) | Err(broadcast::error::RecvError::Lagged(_)) => everything(&store),
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((futures::stream::iter(changes), (store, notices)))
        });
        first.chain(rest.flatten()).boxed()
    }

    /// The objects of kind `T` that `map` names for each change.
    pub fn triggers<T, I>(
        &self,
        map: impl Fn(&Change<K>) -> I + Send + 'static,
    ) -> BoxStream<'static, ObjectRef<T>>
    where
        T: Resource<DynamicType = ()> + 'static,
        I: IntoIterator<Item = ObjectRef<T>>,
        I::IntoIter: Send + 'static,
    {
        self.changes()
            .flat_map(move |change| futures::stream::iter(map(&change)))
            .boxed()
    }

    /// The changed objects themselves, where `relevant` says so.
    pub fn own_triggers(
        &self,
        relevant: impl Fn(&Change<K>) -> bool + Send + 'static,
    ) -> BoxStream<'static, ObjectRef<K>> {
        self.triggers(move |change| {
            let relevant = relevant(change);
            change
                .after
                .as_deref()
                .filter(|_| relevant)
                .map(ObjectRef::from_obj)
        })
    }
}

fn everything<K: Watchable>(store: &Store<K>) -> Vec<Change<K>> {
    let each = |object| Change {
        before: None,
        after: Some(object),
    };
    store.state().into_iter().map(each).collect()
}

impl<K: Watchable> WatchWorker<K> {
    /// Watches until `stop`. Readiness is reported as `cache-<plural>`.
    pub async fn run(mut self, health: Health, stop: CancellationToken) -> Result<(), BoxError> {
        let kind = K::plural(&()).into_owned();
        let ready = health.check(&format!("cache-{kind}"), Kind::Ready);
        let events = watcher(self.api.clone(), self.config.clone()).default_backoff();
        tokio::pin!(events);
        let mut told: Option<tokio::time::Instant> = None;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = events.next() => event,
            };
            match event {
                None => return Err(format!("the watch of {kind} ended").into()),
                Some(Ok(event)) => self.take(event, &ready),
                Some(Err(error)) => {
                    if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                        told = Some(tokio::time::Instant::now());
                        tracing::warn!(kind, %error, "a watch failed and is tried again");
                    }
                }
            }
        }
    }

    fn take(&mut self, mut event: Event<K>, ready: &Check) {
        if let Event::Apply(object) | Event::InitApply(object) = &mut event {
            (self.slim)(object);
        }
        let store = self.writer.as_reader();
        match &event {
            Event::Apply(object) | Event::Delete(object) => {
                let key = ObjectRef::from_obj(object);
                let before = store.get(&key);
                self.writer.apply_watcher_event(&event);
                let after = store.get(&key);
                self.tell(Notice::Changed(Change { before, after }));
            }
            Event::InitDone => {
                let old = store.state();
                self.writer.apply_watcher_event(&event);
                ready.ok();
                tracing::debug!(kind = %K::plural(&()), objects = store.len(), "cache is filled");
                for before in gone(old, &store) {
                    self.tell(Notice::Changed(Change {
                        before: Some(before),
                        after: None,
                    }));
                }
                self.tell(Notice::Replaced);
            }
            Event::Init | Event::InitApply(_) => self.writer.apply_watcher_event(&event),
        }
    }

    fn tell(&self, notice: Notice<K>) {
        // Nobody listening is fine: whoever comes later starts with the cache.
        let _ = self.notices.send(notice);
    }
}

/// The objects that vanished while nobody watched.
fn gone<K: Watchable>(old: Vec<Arc<K>>, store: &Store<K>) -> Vec<Arc<K>>
where
    K::DynamicType: Eq + Hash + Clone,
{
    let missing = |object: &Arc<K>| store.get(&ObjectRef::from_obj(object.as_ref())).is_none();
    old.into_iter().filter(missing).collect()
}

/// Drops what only people read of an object's metadata: the copy that `kubectl apply` leaves.
pub fn slim_metadata<K: Resource<DynamicType = ()>>(object: &mut K) {
    if object.meta().annotations.is_some() {
        object
            .annotations_mut()
            .remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn map(name: &str, value: &str) -> ConfigMap {
        let text = json!({"metadata": {"name": name, "namespace": "n"}, "data": {"k": value}});
        serde_json::from_value(text).unwrap()
    }

    fn client() -> kube::Client {
        let (mock, _) =
            tower_test::mock::pair::<http::Request<kube::client::Body>, http::Response<kube::client::Body>>();
        kube::Client::new(mock, "default")
    }

    fn world() -> (Watched<ConfigMap>, WatchWorker<ConfigMap>, Check) {
        let slim = |map: &mut ConfigMap| map.binary_data = None;
        let (watched, worker) = watched(Api::all(client()), watcher::Config::default(), slim);
        (watched, worker, Health::new().check("cache", Kind::Ready))
    }

    async fn next(changes: &mut BoxStream<'static, Change<ConfigMap>>) -> (Option<String>, Option<String>) {
        let change = changes.next().await.unwrap();
        let value = |map: &Arc<ConfigMap>| map.data.as_ref().unwrap()["k"].clone();
        (
            change.before.as_ref().map(value),
            change.after.as_ref().map(value),
        )
    }

    #[tokio::test]
    async fn a_reader_sees_what_is_there_and_then_each_change() {
        let (watched, mut worker, ready) = world();
        worker.take(Event::Init, &ready);
        worker.take(Event::InitApply(map("a", "1")), &ready);
        worker.take(Event::InitDone, &ready);
        let mut changes = watched.changes();
        assert_eq!(next(&mut changes).await, (None, Some("1".into())));
        worker.take(Event::Apply(map("a", "2")), &ready);
        assert_eq!(next(&mut changes).await, (Some("1".into()), Some("2".into())));
        worker.take(Event::Delete(map("a", "2")), &ready);
        assert_eq!(next(&mut changes).await, (Some("2".into()), None));
        assert!(watched.get_in("n", "a").is_none());
    }

    #[tokio::test]
    async fn what_vanished_during_a_gap_is_told_and_the_rest_is_shown_again() {
        let (watched, mut worker, ready) = world();
        let mut changes = watched.changes();
        for round in [vec![map("a", "1"), map("b", "1")], vec![map("b", "2")]] {
            worker.take(Event::Init, &ready);
            for object in round {
                worker.take(Event::InitApply(object), &ready);
            }
            worker.take(Event::InitDone, &ready);
        }
        // The first notice is read after the second round filled the cache.
        assert_eq!(next(&mut changes).await, (None, Some("2".into())));
        assert_eq!(next(&mut changes).await, (Some("1".into()), None));
        assert_eq!(next(&mut changes).await, (None, Some("2".into())));
    }

    #[tokio::test]
    async fn a_reader_that_lags_looks_at_everything_again() {
        let (watched, mut worker, ready) = world();
        let mut changes = watched.changes();
        for round in 0..=QUEUE {
            worker.take(Event::Apply(map("a", &round.to_string())), &ready);
        }
        assert_eq!(next(&mut changes).await, (None, Some(QUEUE.to_string())));
    }

    #[test]
    fn only_the_named_aspect_counts() {
        let change = |one: &str, two: &str| Change {
            before: Some(Arc::new(map("a", one))),
            after: Some(Arc::new(map("a", two))),
        };
        assert!(change("1", "2").differs(|map| map.data.clone()));
        assert!(!change("1", "1").differs(|map| map.data.clone()));
        let new = Change {
            before: None,
            after: Some(Arc::new(map("a", "1"))),
        };
        assert!(new.differs(|_| ()), "appearing is a change of everything");
    }
}
