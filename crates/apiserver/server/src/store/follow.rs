// SPDX-License-Identifier: Apache-2.0
//! How watchers learn of changes. Who may see any object of a type is rung by every change and reads
//! the type's ring; who watches a single object has a mailbox of its own, so that a change costs
//! nothing for the thousand watchers of other objects.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::record::Key;
use super::table::{Event, Table};

/// The events of one object, waiting for one watcher.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Mail {
    events: VecDeque<Arc<Event>>,
    limit: usize,
    full: bool,
}

impl Mailbox {
    /// Puts an event in. A full mailbox keeps nothing: its watcher has to begin anew.
    fn put(&self, event: &Arc<Event>) {
        let mut mail = self.mail.lock();
        if mail.full {
            return;
        }
        if mail.events.len() >= mail.limit {
            mail.events = VecDeque::new();
            mail.full = true;
            return;
        }
        mail.events.push_back(event.clone());
    }
}

/// The mailboxes of a type, by the object they are for.
#[derive(Debug, Default)]
pub(super) struct Mailboxes(Mutex<HashMap<Key, Vec<Arc<Mailbox>>>>);

impl Mailboxes {
    /// Hands events to those who follow their objects and returns whom to ring once they are visible.
    /// Called with the type's lock held, so that nobody misses what happens while it subscribes.
    pub(super) fn deliver(&self, events: &[Arc<Event>]) -> Vec<Arc<Mailbox>> {
        let boxes = self.0.lock();
        let mut rung = Vec::new();
        if boxes.is_empty() {
            return rung;
        }
        for event in events {
            for mailbox in boxes.get(&event.key).into_iter().flatten() {
                mailbox.put(event);
                rung.push(mailbox.clone());
            }
        }
        rung
    }

    /// Rings everybody, without mail.
    pub(super) fn ring_all(&self) {
        for mailbox in self.0.lock().values().flatten() {
            mailbox.bell.notify_one();
        }
    }

    /// Rings some.
    pub(super) fn ring(rung: &[Arc<Mailbox>]) {
        for mailbox in rung {
            mailbox.bell.notify_one();
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().values().map(Vec::len).sum()
    }

    fn add(&self, key: &Key, mailbox: &Arc<Mailbox>) {
        self.0
            .lock()
            .entry(key.clone())
            .or_default()
            .push(mailbox.clone());
    }

    fn remove(&self, key: &Key, mailbox: &Arc<Mailbox>) {
        let mut boxes = self.0.lock();
        if let Some(followers) = boxes.get_mut(key) {
            followers.retain(|other| !Arc::ptr_eq(other, mailbox));
            if followers.is_empty() {
                boxes.remove(key);
            }
        }
    }
}

/// A watcher's end of the line.
#[derive(Debug)]
pub(crate) struct Subscription {
    table: Arc<Table>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Rung by every change of the type.
    Type(watch::Receiver<u64>),
    /// Rung by changes of one object.
    Object { key: Key, mailbox: Arc<Mailbox> },
}

/// The watcher fell so far behind that it has to begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missed;

impl Subscription {
    /// Follows a type; with `key` only that object, with at most `limit` events waiting.
    pub(crate) fn new(table: &Arc<Table>, key: Option<Key>, limit: usize) -> Self {
        let kind = match key {
            None => {
                let mut changes = table.subscribe();
                changes.mark_unchanged();
                Kind::Type(changes)
            }
            Some(key) => {
                let mailbox = Arc::new(Mailbox::default());
                mailbox.mail.lock().limit = limit;
                table.mailboxes().add(&key, &mailbox);
                Kind::Object { key, mailbox }
            }
        };
        Self {
            table: table.clone(),
            kind,
        }
    }

    /// The one object followed, if it is one.
    pub(crate) fn object(&self) -> Option<&Key> {
        match &self.kind {
            Kind::Type(_) => None,
            Kind::Object { key, .. } => Some(key),
        }
    }

    /// At most `max` events after `revision`.
    pub(crate) fn next_events(&mut self, revision: u64, max: usize) -> Result<Vec<Arc<Event>>, Missed> {
        match &mut self.kind {
            Kind::Type(changes) => {
                changes.mark_unchanged();
                let events = self.table.next_events(revision, max).ok_or(Missed)?;
                if events.len() == max {
                    changes.mark_changed();
                }
                Ok(events)
            }
            Kind::Object { mailbox, .. } => {
                let mut mail = mailbox.mail.lock();
                if mail.full {
                    return Err(Missed);
                }
                let count = mail.events.len().min(max);
                let events = mail.events.drain(..count);
                let events = events.filter(|event| event.revision > revision).collect();
                if !mail.events.is_empty() {
                    mailbox.bell.notify_one();
                }
                Ok(events)
            }
        }
    }

    /// Whether nothing waits after `revision`.
    pub(crate) fn is_quiet(&self, revision: u64) -> bool {
        match &self.kind {
            Kind::Type(_) => self
                .table
                .next_events(revision, 1)
                .is_some_and(|events| events.is_empty()),
            Kind::Object { mailbox, .. } => {
                let mail = mailbox.mail.lock();
                !mail.full && mail.events.iter().all(|event| event.revision <= revision)
            }
        }
    }

    /// How many events wait after `revision`.
    pub(crate) fn lag(&self, revision: u64) -> usize {
        match &self.kind {
            Kind::Type(_) => self.table.lag(revision),
            Kind::Object { mailbox, .. } => mailbox.mail.lock().events.len(),
        }
    }

    /// Waits for the bell; false when it will never ring again.
    pub(crate) async fn rung(&mut self) -> bool {
        match &mut self.kind {
            Kind::Type(changes) => changes.changed().await.is_ok(),
            Kind::Object { mailbox, .. } => {
                mailbox.bell.notified().await;
                true
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Kind::Object { key, mailbox } = &self.kind {
            self.table.mailboxes().remove(key, mailbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Draft;
    use crate::store::table::{Op, TypeId};
    use serde_json::json;
    use std::time::Instant;

    fn event(revision: u64, name: &str) -> Arc<Event> {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}});
        Arc::new(Event {
            revision,
            key: Key::new("ns", name),
            op: Op::Modified,
            old: None,
            new: Arc::new(Draft::new(&object, 0).settle(revision)),
            rendered: Mutex::default(),
        })
    }

    fn revisions(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|e| e.revision).collect()
    }

    #[tokio::test]
    async fn a_follower_hears_of_its_object_alone() {
        let table = Arc::new(Table::new(TypeId(1), "", "things", 0, 0));
        let mut follower = Subscription::new(&table, Some(Key::new("ns", "a")), 10);
        let mut everybody = Subscription::new(&table, None, 10);
        table.publish(&[event(1, "b"), event(2, "a")], Instant::now());
        table.publish(&[event(3, "b")], Instant::now());
        assert!(follower.rung().await && everybody.rung().await);
        assert!(!follower.is_quiet(0) && follower.is_quiet(2));
        assert_eq!(revisions(&follower.next_events(0, 10).unwrap()), [2]);
        assert_eq!(revisions(&everybody.next_events(0, 10).unwrap()), [1, 2, 3]);
        table.publish(&[event(4, "a")], Instant::now());
        assert_eq!(
            follower.next_events(4, 10).unwrap().len(),
            0,
            "what was seen is not repeated"
        );
    }

    #[test]
    fn a_follower_that_takes_nothing_has_to_begin_anew() {
        let table = Arc::new(Table::new(TypeId(1), "", "things", 0, 0));
        let mut follower = Subscription::new(&table, Some(Key::new("ns", "a")), 2);
        for revision in 1..=2 {
            table.publish(&[event(revision, "a")], Instant::now());
        }
        assert_eq!(revisions(&follower.next_events(0, 1).unwrap()), [1]);
        for revision in 3..=5 {
            table.publish(&[event(revision, "a")], Instant::now());
        }
        assert_eq!(follower.next_events(1, 10).unwrap_err(), Missed);
    }

    #[test]
    fn mailboxes_go_with_their_watchers() {
        let table = Arc::new(Table::new(TypeId(1), "", "things", 0, 0));
        let followers: Vec<_> = (0..3)
            .map(|n| Subscription::new(&table, Some(Key::new("ns", &format!("{}", n % 2))), 2))
            .collect();
        assert_eq!(table.watchers(), 3);
        drop(followers);
        assert_eq!(table.watchers(), 0);
    }
}
