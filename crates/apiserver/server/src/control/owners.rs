// SPDX-License-Identifier: Apache-2.0
//! Who owns whom, kept in step with every commit, so that the garbage collector needs no informers
//! and knows a custom kind the moment it exists.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::store::{Event, Key, Op, Record, Table, TypeId, Uid};

/// Where an object is.
pub(crate) type Place = (TypeId, Key);

/// The owner index.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<Index>);

#[derive(Debug, Default)]
struct Index {
    objects: HashMap<Uid, Place>,
    dependents: HashMap<Uid, BTreeSet<Place>>,
}

impl Owners {
    /// Reads what a table holds.
    pub(crate) fn load(&self, table: &Table) {
        let mut index = self.0.lock();
        index.objects.reserve(table.len());
        table.each(|key, record| index.add(&(table.id, key.clone()), record));
    }

    /// Notes a change.
    pub(crate) fn observe(&self, table: TypeId, event: &Event) {
        let old_owners = event.old.as_ref().map_or(&[][..], |r| &r.facts.owners);
        if event.op == Op::Modified && *old_owners == *event.new.facts.owners {
            return;
        }
        let place = (table, event.key.clone());
        let mut index = self.0.lock();
        if let Some(old) = &event.old {
            index.remove(&place, old);
        }
        if event.op != Op::Deleted {
            index.add(&place, &event.new);
        }
    }

    /// Where the object with this uid is, if it exists.
    pub(crate) fn place(&self, uid: Uid) -> Option<Place> {
        self.0.lock().objects.get(&uid).cloned()
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: Uid) -> Vec<Place> {
        self.0
            .lock()
            .dependents
            .get(&uid)
            .map(|set| set.iter().cloned().collect())
            .unwrap_or_default()
    }
}

impl Index {
    fn add(&mut self, place: &Place, record: &Record) {
        if let Some(uid) = record.facts.uid {
            self.objects.insert(uid, place.clone());
        }
        for owner in &record.facts.owners {
            self.dependents.entry(*owner).or_default().insert(place.clone());
        }
    }

    fn remove(&mut self, place: &Place, record: &Record) {
        if let Some(uid) = record.facts.uid
            && self.objects.get(&uid) == Some(place)
        {
            self.objects.remove(&uid);
        }
        for owner in &record.facts.owners {
            if let Some(set) = self.dependents.get_mut(owner) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}
