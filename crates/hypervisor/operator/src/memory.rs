// SPDX-License-Identifier: Apache-2.0
//! What a controller remembers of each object between passes. An object made anew under an old
//! name starts without memories, and those of objects that are gone do not pile up.

use std::collections::HashMap;

use cobaltcore_kit::watched::{Watchable, Watched};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::Mutex;

/// Entries beyond twice the living ones before the dead are looked for.
const SPARE: usize = 64;

struct Entry<T> {
    uid: Option<String>,
    value: T,
}

/// Memories by object.
pub(crate) struct Memories<K: Watchable, T> {
    living: Store<K>,
    entries: Mutex<HashMap<ObjectRef<K>, Entry<T>>>,
}

impl<K: Watchable, T> Memories<K, T> {
    /// No memories yet, of the objects in `cache`.
    pub(crate) fn of(cache: &Watched<K>) -> Self {
        Self {
            living: cache.store(),
            entries: Mutex::default(),
        }
    }

    /// What is remembered of an object.
    pub(crate) fn get(&self, object: &K) -> Option<T>
    where
        T: Clone,
    {
        let entries = self.entries.lock();
        let entry = entries.get(&ObjectRef::from_obj(object))?;
        (entry.uid == object.uid()).then(|| entry.value.clone())
    }

    /// Remembers something else than before.
    pub(crate) fn set(&self, object: &K, value: T) {
        let mut entries = self.entries.lock();
        self.make_room(&mut entries);
        let entry = Entry {
            uid: object.uid(),
            value,
        };
        entries.insert(ObjectRef::from_obj(object), entry);
    }

    /// Changes what is remembered, from nothing at first.
    pub(crate) fn with<R>(&self, object: &K, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Default,
    {
        let mut entries = self.entries.lock();
        self.make_room(&mut entries);
        let entry = entries.entry(ObjectRef::from_obj(object));
        let entry = entry.or_insert_with(|| Entry {
            uid: object.uid(),
            value: T::default(),
        });
        if entry.uid != object.uid() {
            *entry = Entry {
                uid: object.uid(),
                value: T::default(),
            };
        }
        change(&mut entry.value)
    }

    /// Remembers nothing of an object any more.
    pub(crate) fn forget(&self, object: &K) {
        self.entries.lock().remove(&ObjectRef::from_obj(object));
    }

    /// How many memories of living objects are like this.
    pub(crate) fn count(&self, like: impl Fn(&T) -> bool) -> usize {
        let mut entries = self.entries.lock();
        self.sweep(&mut entries);
        entries.values().filter(|entry| like(&entry.value)).count()
    }

    fn make_room(&self, entries: &mut HashMap<ObjectRef<K>, Entry<T>>) {
        if entries.len() >= 2 * self.living.len() + SPARE {
            self.sweep(entries);
        }
    }

    fn sweep(&self, entries: &mut HashMap<ObjectRef<K>, Entry<T>>) {
        entries.retain(|key, entry| {
            let object = self.living.get(key);
            object.is_some_and(|object| object.uid() == entry.uid)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_api::Hypervisor;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn hypervisor(name: &str, uid: &str) -> Hypervisor {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}, "spec": {}})).unwrap()
    }

    fn memories() -> (Writer<Hypervisor>, Memories<Hypervisor, u32>) {
        let writer = Writer::new(());
        let living = writer.as_reader();
        let entries = Mutex::default();
        (writer, Memories { living, entries })
    }

    #[test]
    fn an_object_made_anew_starts_without_memories() {
        let (_writer, memories) = memories();
        let (old, new) = (hypervisor("a", "1"), hypervisor("a", "2"));
        memories.with(&old, |value| *value = 7);
        assert_eq!(memories.get(&old), Some(7));
        assert_eq!(memories.get(&new), None);
        assert_eq!(memories.with(&new, |value| *value), 0);
        assert_eq!(memories.get(&old), None, "the old one is gone for good");
        memories.set(&new, 9);
        memories.forget(&new);
        assert_eq!(memories.get(&new), None);
    }

    #[test]
    fn memories_of_the_dead_do_not_pile_up() {
        let (mut writer, memories) = memories();
        for number in 0..1000 {
            let one = hypervisor(&format!("h{number}"), &number.to_string());
            writer.apply_watcher_event(&Event::Apply(one.clone()));
            memories.set(&one, number);
            writer.apply_watcher_event(&Event::Delete(one));
        }
        assert!(
            memories.entries.lock().len() <= SPARE,
            "{}",
            memories.entries.lock().len()
        );
        let alive = hypervisor("alive", "a");
        writer.apply_watcher_event(&Event::Apply(alive.clone()));
        memories.set(&alive, 1);
        assert_eq!(memories.count(|_| true), 1, "only the living count");
    }
}
