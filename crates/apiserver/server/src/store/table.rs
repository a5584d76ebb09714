// SPDX-License-Identifier: Apache-2.0
//! The in-memory state of one stored type: its objects, the ring of its latest events, and the
//! signal that wakes its watchers. Only the writer changes a table; everybody else reads.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::follow::Mailboxes;
use super::record::{Key, Record};

/// Identifies a stored type (one group and plural, whatever versions it is served in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// So many events are looked at from the end of a ring before it is searched.
const LATEST: usize = 4;
/// Ring sizes: a ring always keeps this many events, and no more than the second number.
const RING_MIN: usize = 1_024;
const RING_MAX: usize = 100_000;
/// Beyond the minimum, events older than this leave the ring.
const RING_AGE: Duration = Duration::from_secs(75);
/// Beyond the minimum, a ring holds no more than this many bytes of superseded bodies.
const RING_BYTES: usize = 64 << 20;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was removed.
    Deleted,
}

/// How an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// The version and shape, told from others.
    pub form: u64,
    /// What the watcher is told that happened.
    pub kind: &'static str,
    /// Whether it is the state before.
    pub old: bool,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// Revision of the change.
    pub revision: u64,
    /// Which object.
    pub key: Key,
    /// What happened.
    pub op: Op,
    /// The state before, absent for additions.
    pub old: Option<Arc<Record>>,
    /// The state after; for deletions the last state with the revision of the deletion.
    pub new: Arc<Record>,
    /// Renderings shared by all watchers that want the same form.
    pub rendered: Mutex<Vec<(Rendering, Bytes)>>,
}

/// The objects and recent history of one type.
#[derive(Debug)]
pub struct Table {
    /// The type.
    pub id: TypeId,
    /// API group.
    pub group: Arc<str>,
    /// Plural name.
    pub plural: Arc<str>,
    inner: RwLock<Inner>,
    newest: watch::Sender<u64>,
    mailboxes: Mailboxes,
}

#[derive(Debug)]
struct Inner {
    objects: BTreeMap<Key, Arc<Record>>,
    ring: VecDeque<(Instant, Arc<Event>)>,
    ring_bytes: usize,
    /// Every event with a higher revision is in the ring.
    ring_floor: u64,
    /// Every event with a higher revision is in the ring or in the database.
    floor: u64,
    newest: u64,
}

/// A consistent view of some objects of a type.
#[derive(Debug)]
pub struct Snapshot {
    /// The revision the view is of.
    pub revision: u64,
    /// The objects, sorted by namespace and name.
    pub items: Vec<(Key, Arc<Record>)>,
}

/// Asked for a revision whose history is gone. Carries the oldest one still answerable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can still be answered.
    pub oldest: u64,
}

/// What lies behind a revision that the ring cannot answer alone.
#[derive(Debug)]
pub enum Since {
    /// All events after the asked revision, in order.
    Events(Vec<Arc<Event>>),
    /// The ring begins at `ring_floor`; the database has what is missing.
    InDatabase {
        /// First revision the ring covers completely.
        ring_floor: u64,
    },
    /// Gone.
    TooOld(TooOld),
}

impl Table {
    /// An empty table whose history begins at `floor`.
    pub fn new(id: TypeId, group: &str, plural: &str, floor: u64, newest: u64) -> Self {
        Self {
            id,
            group: group.into(),
            plural: plural.into(),
            inner: RwLock::new(Inner {
                objects: BTreeMap::new(),
                ring: VecDeque::new(),
                ring_bytes: 0,
                ring_floor: newest,
                floor,
                newest: 0,
            }),
            newest: watch::Sender::new(0),
            mailboxes: Mailboxes::default(),
        }
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.inner.read().objects.get(key).cloned()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events the ring holds.
    pub fn history_len(&self) -> usize {
        self.inner.read().ring.len()
    }

    /// Oldest revision a watch may start from.
    pub fn floor(&self) -> u64 {
        self.inner.read().floor
    }

    /// All objects of a namespace (`None`: of all), at the newest revision. `published` is the
    /// newest revision that is complete over all types.
    pub fn snapshot(&self, namespace: Option<&str>, published: impl FnOnce() -> u64) -> Snapshot {
        let inner = self.inner.read();
        let items = inner
            .range(namespace, None)
            .map(|(k, r)| (k.clone(), r.clone()))
            .collect();
        Snapshot {
            revision: inner.newest.max(published()),
            items,
        }
    }

    /// Looks at every object where it lies, in order.
    pub fn each(&self, mut look: impl FnMut(&Key, &Record)) {
        for (key, record) in &self.inner.read().objects {
            look(key, record);
        }
    }

    /// One object alone, as a snapshot.
    pub fn snapshot_of(&self, key: &Key, published: impl FnOnce() -> u64) -> Snapshot {
        let inner = self.inner.read();
        let found = inner.objects.get_key_value(key);
        Snapshot {
            revision: inner.newest.max(published()),
            items: found.map(|(k, r)| (k.clone(), r.clone())).into_iter().collect(),
        }
    }

    /// Up to `limit` objects after `start`, and how many more there are.
    pub fn page(
        &self,
        namespace: Option<&str>,
        start: Option<&Key>,
        limit: usize,
        published: impl FnOnce() -> u64,
    ) -> (Snapshot, usize) {
        let inner = self.inner.read();
        let mut range = inner.range(namespace, start);
        let items: Vec<_> = range
            .by_ref()
            .take(limit)
            .map(|(k, r)| (k.clone(), r.clone()))
            .collect();
        let more = range.count();
        (
            Snapshot {
                revision: inner.newest.max(published()),
                items,
            },
            more,
        )
    }

    /// The events after `revision`, as far as the ring has them.
    pub fn since(&self, revision: u64) -> Since {
        let inner = self.inner.read();
        // First, because the ring of a type that retired still has what its last watchers are to see.
        if revision < inner.floor {
            return Since::TooOld(TooOld { oldest: inner.floor });
        }
        if revision >= inner.ring_floor {
            return Since::Events(inner.after(revision));
        }
        Since::InDatabase {
            ring_floor: inner.ring_floor,
        }
    }

    /// At most `max` events after `revision`; `None` when the ring no longer reaches back that far.
    pub fn next_events(&self, revision: u64, max: usize) -> Option<Vec<Arc<Event>>> {
        let inner = self.inner.read();
        (revision >= inner.ring_floor).then(|| {
            let from = inner.position_after(revision);
            inner
                .ring
                .range(from..)
                .take(max)
                .map(|(_, e)| e.clone())
                .collect()
        })
    }

    /// How many events lie behind `revision` in the ring.
    pub fn lag(&self, revision: u64) -> usize {
        let inner = self.inner.read();
        inner.ring.len() - inner.position_after(revision)
    }

    /// A receiver that learns the newest revision of this type with every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Number of live subscriptions.
    pub fn watchers(&self) -> usize {
        self.newest.receiver_count() + self.mailboxes.len()
    }

    pub(super) fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    /// Wakes every watcher without a change (end of the server, end of a type).
    pub fn wake(&self) {
        self.newest.send_modify(|_| {});
        self.mailboxes.ring_all();
    }

    // What follows is for the writer.

    /// What the table begins with. Sorted objects are put together at once, not one by one.
    pub(super) fn load(&self, objects: Vec<(Key, Arc<Record>)>) {
        let mut inner = self.inner.write();
        let newest = objects.iter().map(|(_, record)| record.revision).max();
        inner.newest = inner.newest.max(newest.unwrap_or(0));
        inner.objects = objects.into_iter().collect();
    }

    pub(super) fn publish(&self, events: &[Arc<Event>], now: Instant) {
        let mut newest = 0;
        let rung = {
            let mut inner = self.inner.write();
            for event in events {
                match event.op {
                    Op::Deleted => inner.objects.remove(&event.key),
                    Op::Added | Op::Modified => inner.objects.insert(event.key.clone(), event.new.clone()),
                };
                inner.ring_bytes += event.superseded();
                inner.ring.push_back((now, event.clone()));
                inner.newest = event.revision;
            }
            newest = newest.max(inner.newest);
            inner.trim(now);
            self.mailboxes.deliver(events)
        };
        self.newest.send_replace(newest);
        Mailboxes::ring(&rung);
    }

    pub(super) fn trim(&self, now: Instant) {
        self.inner.write().trim(now);
    }

    /// Without a database behind it, what leaves the ring is gone.
    pub(super) fn follow_ring(&self) {
        let mut inner = self.inner.write();
        inner.floor = inner.floor.max(inner.ring_floor);
    }

    pub(super) fn raise_floor(&self, floor: u64) {
        let mut inner = self.inner.write();
        inner.floor = inner.floor.max(floor);
    }
}

impl Event {
    /// Bytes that only the ring keeps alive.
    fn superseded(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |r| r.body.len());
        old + if self.op == Op::Deleted {
            self.new.body.len()
        } else {
            0
        }
    }
}

impl Inner {
    fn range(
        &self,
        namespace: Option<&str>,
        start: Option<&Key>,
    ) -> impl Iterator<Item = (&Key, &Arc<Record>)> {
        let low = match (start, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(ns)) => Bound::Included(Key::new(ns, "")),
            (None, None) => Bound::Unbounded,
        };
        let namespace: Option<Arc<str>> = namespace.map(Into::into);
        self.objects
            .range((low, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.as_ref().is_none_or(|ns| key.namespace == *ns))
    }

    fn position_after(&self, revision: u64) -> usize {
        // A watcher asks for what came just now: that lies at the end, and is warm.
        let latest = self.ring.iter().rev().take(LATEST);
        match latest
            .map(|(_, event)| event.revision)
            .position(|known| known <= revision)
        {
            Some(after) => self.ring.len() - after,
            None => self.ring.partition_point(|(_, event)| event.revision <= revision),
        }
    }

    fn after(&self, revision: u64) -> Vec<Arc<Event>> {
        self.ring
            .range(self.position_after(revision)..)
            .map(|(_, e)| e.clone())
            .collect()
    }

    fn trim(&mut self, now: Instant) {
        while self.ring.len() > RING_MIN {
            let Some((born, _)) = self.ring.front() else { break };
            let full = self.ring.len() > RING_MAX || self.ring_bytes > RING_BYTES;
            if !full && now.duration_since(*born) < RING_AGE {
                break;
            }
            if let Some((_, event)) = self.ring.pop_front() {
                self.ring_bytes -= event.superseded();
                self.ring_floor = event.revision;
            }
        }
    }
}
