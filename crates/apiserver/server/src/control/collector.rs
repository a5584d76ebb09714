// SPDX-License-Identifier: Apache-2.0
//! The garbage collector: dependents follow their owners, or lose the reference, as the policy of
//! the owner's deletion says. Every write is conditioned on what was read; what changed meanwhile is
//! looked at again.

use cobaltcore_text::go;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::internal::Hand;
use super::queue::Work;
use crate::api::Api;
use crate::delete::{FOREGROUND, ORPHAN};
use crate::meta;
use crate::options::Propagation;
use crate::registry::Resource;
use crate::status::ApiResult;
use crate::store::{Event, Key, Op, Record, Table, TypeId, Uid};

const NAME: &str = "generic-garbage-collector";
/// Owners may be created after their dependents; an object whose owners are all absent is looked at
/// again after this time before it is removed.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// How often an object without owners was looked at.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    First,
    /// Again, but before its time is over.
    Early,
    Second,
}

/// Remembers when an object was looked at first. Whatever else happens to it before its time is over
/// is no second look.
fn look_at(due: &mut HashMap<Uid, Instant>, uid: Uid, now: Instant) -> Look {
    if due.len() > 10_000 {
        due.clear();
    }
    match due.get(&uid) {
        None => {
            due.insert(uid, now + SECOND_LOOK);
            Look::First
        }
        Some(at) if *at > now => Look::Early,
        Some(_) => Look::Second,
    }
}

impl Api {
    /// Queues what a commit gives the collector to do. Runs in the writer.
    pub(crate) fn collector_observes(&self, table: &Table, event: &Event) {
        let place = || (table.id, event.key.clone());
        if event.op == Op::Deleted {
            if let Some(uid) = event.new.facts.uid {
                for (id, key) in self.owners.dependents(uid) {
                    self.note_orphaned(id, &key, uid);
                    self.queue.add(Work::Dependent(id, key));
                }
            }
        } else if !event.new.facts.owners.is_empty() {
            let (id, key) = place();
            self.queue.add(Work::Dependent(id, key));
        }
        // Owners that wait for this object look again when it goes or stops blocking them.
        for owner in event.old.iter().flat_map(|old| old.facts.owners.iter()) {
            if let Some((id, key)) = self.owners.place(*owner) {
                self.queue.add(Work::Owner(id, key));
            }
        }
        if event.op != Op::Deleted && event.new.facts.deleting {
            let (id, key) = place();
            self.queue.add(Work::Owner(id, key));
        }
    }

    /// Looks at an object that has owners.
    pub(crate) async fn collect_dependent(self: &Arc<Self>, id: TypeId, key: &Key) -> ApiResult<()> {
        let Some((resource, record)) = self.found(id, key) else {
            return Ok(());
        };
        let object = record.parse();
        let sorted = self.sort_owners(&resource, &object);
        if sorted.dangling.is_empty() && sorted.waiting.is_empty() {
            return Ok(());
        }
        if !sorted.solid.is_empty() || sorted.unknown {
            if sorted.solid.is_empty() {
                return Ok(());
            }
            let gone: Vec<&Value> = sorted.dangling.iter().chain(&sorted.waiting).copied().collect();
            return self.drop_references(&resource, key, &object, &gone).await;
        }
        if record.facts.deleting && sorted.waiting.is_empty() {
            return Ok(());
        }
        if sorted.waiting.is_empty() && self.is_new(&object) {
            let uid = Uid::parse(meta::text(&object, "uid"));
            match look_at(&mut self.second_looks.lock(), uid, Instant::now()) {
                Look::First => {
                    self.look_again(Work::Dependent(id, key.clone()));
                    return Ok(());
                }
                Look::Early => return Ok(()),
                Look::Second => {}
            }
        }
        self.report_far_owners(&resource, &object, &sorted.dangling)
            .await?;
        let has_dependents = record
            .facts
            .uid
            .is_some_and(|uid| !self.owners.dependents(uid).is_empty());
        let finalizers = meta::finalizers(&object);
        let policy = if !sorted.waiting.is_empty() && has_dependents {
            Propagation::Foreground
        } else if finalizers.contains(&ORPHAN) {
            Propagation::Orphan
        } else if finalizers.contains(&FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.metrics.collected();
        match Hand::new(self, NAME)
            .delete(&resource, key, &record, policy)
            .await
        {
            Err(error) if error.code() == 404 => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Tells in an Event that an owner exists, but in a namespace from which it cannot own.
    async fn report_far_owners(
        self: &Arc<Self>,
        resource: &Resource,
        object: &Value,
        dangling: &[&Value],
    ) -> ApiResult<()> {
        let namespace = meta::namespace(object);
        for owner in dangling {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            if self
                .owners
                .place(Uid::parse(text("uid")))
                .is_none_or(|(_, key)| *key.namespace == *namespace)
            {
                continue;
            }
            let message = format!(
                "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {quoted_namespace}",
                text("apiVersion"),
                text("kind"),
                text("name"),
                text("uid"),
                quoted_namespace = go::quote(namespace)
            );
            let (now, name) = (self.clock.stamp(), meta::name(object));
            let home = if namespace.is_empty() {
                "default"
            } else {
                namespace
            };
            let event = json!({"apiVersion": "v1", "kind": "Event",
                "metadata": {"name": format!("{name}.{:x}", self.clock.now().as_nanosecond()), "namespace": home},
                "involvedObject": {"kind": &*resource.kind, "apiVersion": resource.api_version(), "namespace": namespace,
                    "name": name, "uid": meta::text(object, "uid")},
                "reason": "OwnerRefInvalidNamespace", "type": "Warning", "message": message, "count": 1,
                "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "garbage-collector-controller"}});
            let events = self.builtin("", "v1", "events")?;
            // The object goes whether or not the Event could be written.
            if let Err(error) = Hand::new(self, NAME).create(&events, home, event).await {
                tracing::debug!(%error, "the Event about an owner elsewhere was not written");
            }
        }
        Ok(())
    }

    /// Looks at an object that is being deleted and may wait for its dependents.
    pub(crate) async fn collect_owner(self: &Arc<Self>, id: TypeId, key: &Key) -> ApiResult<()> {
        let Some((resource, record)) = self.found(id, key) else {
            return Ok(());
        };
        if !record.facts.deleting {
            return Ok(());
        }
        let object = record.parse();
        let finalizers = meta::finalizers(&object);
        let (orphans, foreground) = (finalizers.contains(&ORPHAN), finalizers.contains(&FOREGROUND));
        let Some(uid) = record.facts.uid.filter(|_| orphans || foreground) else {
            return Ok(());
        };
        if orphans {
            for (dependent_id, dependent_key) in self.owners.dependents(uid) {
                if let Some((dependent, found)) = self.found(dependent_id, &dependent_key) {
                    let tree = found.parse();
                    let gone: Vec<&Value> = references(&tree).filter(|o| names(o, uid)).collect();
                    self.drop_references(&dependent, &dependent_key, &tree, &gone)
                        .await?;
                }
            }
            return self.drop_finalizer(&resource, key, &object, ORPHAN).await;
        }
        let mut blocked = false;
        for (dependent_id, dependent_key) in self.owners.dependents(uid) {
            let Some((_, found)) = self.found(dependent_id, &dependent_key) else {
                continue;
            };
            let tree = found.parse();
            let blocks = references(&tree).any(|o| names(o, uid) && o["blockOwnerDeletion"] == true);
            if blocks && !self.in_cycle(&found, uid) {
                blocked = true;
            }
            self.queue.add(Work::Dependent(dependent_id, dependent_key));
        }
        if blocked {
            Ok(())
        } else {
            self.drop_finalizer(&resource, key, &object, FOREGROUND).await
        }
    }

    /// Whether a dependent is itself, directly or not, an owner of `uid` and waits for it.
    fn in_cycle(&self, dependent: &Record, uid: Uid) -> bool {
        let mut seen = vec![uid];
        let mut pending: Vec<Uid> = dependent.facts.uid.into_iter().collect();
        while let Some(next) = pending.pop() {
            if seen.contains(&next) {
                continue;
            }
            seen.push(next);
            for (id, key) in self.owners.dependents(next) {
                let found = self.store.by_id(id).and_then(|t| t.get(&key));
                let found = found.and_then(|r| r.facts.uid);
                if found == Some(uid) {
                    return true;
                }
                pending.extend(found);
            }
        }
        false
    }

    /// An object and its type, in the version it is stored in.
    fn found(&self, id: TypeId, key: &Key) -> Option<(Arc<Resource>, Arc<Record>)> {
        let table = self.store.by_id(id)?;
        let record = table.get(key)?;
        Some((self.types().storage_of(&table)?, record))
    }

    /// An object whose only owner was there and is gone needs no second look: that owner will not
    /// come back.
    fn note_orphaned(&self, id: TypeId, key: &Key, owner: Uid) {
        let record = self.store.by_id(id).and_then(|table| table.get(key));
        let facts = record
            .as_ref()
            .map(|record| &record.facts)
            .filter(|facts| *facts.owners == [owner]);
        if let Some(uid) = facts.and_then(|facts| facts.uid) {
            self.second_looks.lock().insert(uid, Instant::now());
        }
    }

    fn is_new(&self, object: &Value) -> bool {
        let created = crate::clock::parse(meta::text(object, "creationTimestamp"));
        created
            .is_some_and(|at| self.clock.now().duration_since(at) < jiff::SignedDuration::from_millis(1_500))
    }

    fn look_again(self: &Arc<Self>, work: Work) {
        let api = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SECOND_LOOK).await;
            api.queue.add(work);
        });
    }

    fn sort_owners<'a>(&self, resource: &Resource, object: &'a Value) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        for owner in references(object) {
            match self.owner_state(resource, object, owner) {
                OwnerState::Solid => sorted.solid.push(owner),
                OwnerState::Waiting => sorted.waiting.push(owner),
                OwnerState::Absent => sorted.dangling.push(owner),
                OwnerState::Unknown => sorted.unknown = true,
            }
        }
        sorted
    }

    fn owner_state(&self, resource: &Resource, object: &Value, owner: &Value) -> OwnerState {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        let (group, version) = meta::split_api_version(text("apiVersion"));
        let registry = self.types();
        let Some(kind) = registry.by_kind(group, version, text("kind")) else {
            // A kind nobody serves cannot be judged, except that its definition is known to be gone.
            return OwnerState::Unknown;
        };
        if kind.namespaced && !resource.namespaced {
            return OwnerState::Unknown;
        }
        let namespace = if kind.namespaced {
            meta::namespace(object)
        } else {
            ""
        };
        let found = kind.table.get(&Key::new(namespace, text("name")));
        match found {
            Some(record) if record.facts.uid == Some(Uid::parse(text("uid"))) => {
                let waits = record.facts.deleting && meta::finalizers(&record.parse()).contains(&FOREGROUND);
                if waits {
                    OwnerState::Waiting
                } else {
                    OwnerState::Solid
                }
            }
            _ => OwnerState::Absent,
        }
    }

    async fn drop_references(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        key: &Key,
        object: &Value,
        gone: &[&Value],
    ) -> ApiResult<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut next = object.clone();
        let kept: Vec<Value> = references(object)
            .filter(|o| !gone.contains(o))
            .cloned()
            .collect();
        let value = if kept.is_empty() {
            Value::Null
        } else {
            Value::Array(kept)
        };
        meta::set(&mut next, "ownerReferences", value);
        ignore_gone(
            Hand::new(self, NAME)
                .replace(resource, key, next, None)
                .await
                .map(|_| ()),
        )
    }

    async fn drop_finalizer(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        key: &Key,
        object: &Value,
        finalizer: &str,
    ) -> ApiResult<()> {
        let mut next = object.clone();
        let kept: Vec<&str> = meta::finalizers(object)
            .into_iter()
            .filter(|f| *f != finalizer)
            .collect();
        meta::set_finalizers(&mut next, &kept);
        ignore_gone(
            Hand::new(self, NAME)
                .replace(resource, key, next, None)
                .await
                .map(|_| ()),
        )
    }
}

#[derive(Default)]
struct Sorted<'a> {
    solid: Vec<&'a Value>,
    waiting: Vec<&'a Value>,
    dangling: Vec<&'a Value>,
    unknown: bool,
}

enum OwnerState {
    /// Exists.
    Solid,
    /// Exists and waits for its dependents to go first.
    Waiting,
    /// Does not exist.
    Absent,
    /// Cannot be judged.
    Unknown,
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
}

fn names(owner: &Value, uid: Uid) -> bool {
    owner["uid"].as_str().is_some_and(|text| Uid::parse(text) == uid)
}

/// What is gone needs no further change.
fn ignore_gone(result: ApiResult<()>) -> ApiResult<()> {
    match result {
        Err(error) if error.code() == 404 => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::time::Instant;

    use super::{Look, SECOND_LOOK, look_at};
    use crate::store::Uid;

    /// A change in between does not make an object go sooner.
    #[test]
    fn a_second_look_is_not_taken_before_its_time() {
        let (mut due, start) = (HashMap::new(), Instant::now());
        let uid = Uid::parse("00000000-0000-4000-8000-000000000001");
        let looks =
            [start, start + SECOND_LOOK / 2, start + SECOND_LOOK].map(|at| look_at(&mut due, uid, at));
        assert_eq!(looks, [Look::First, Look::Early, Look::Second]);
    }
}
