// SPDX-License-Identifier: Apache-2.0
//! Namespaces and definitions on their way out: everything in them goes first, finalizers are
//! respected, and conditions say what is still there.

use std::sync::Arc;

use serde_json::{Value, json};

use super::internal::Hand;
use super::queue::Work;
use crate::api::Api;
use crate::definitions::{self, CLEANUP};
use crate::meta;
use crate::options::Propagation;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Event, Expect, Key, Op, Record, Table};

const NAMESPACES: &str = "namespace-controller";
const DEFINITIONS: &str = "customresourcedefinition-controller";
const KUBERNETES: &str = "kubernetes";

impl Api {
    /// Queues what a commit means for things on their way out. Runs in the writer.
    pub(crate) fn leaving_observes(&self, table: &Table, event: &Event) {
        match (&*table.group, &*table.plural) {
            ("", "namespaces") if event.op != Op::Deleted && event.new.facts.deleting => {
                self.leaving.lock().insert(event.key.name.to_string());
                self.queue.add(Work::Namespace(event.key.name.to_string()));
            }
            ("", "namespaces") if event.op == Op::Deleted => {
                self.leaving.lock().remove(&*event.key.name);
            }
            ("apiextensions.k8s.io", "customresourcedefinitions")
                if event.op != Op::Deleted && event.new.facts.deleting =>
            {
                self.queue.add(Work::Definition(event.key.name.to_string()));
            }
            _ => {}
        }
        if event.op == Op::Deleted {
            let namespace = &*event.key.namespace;
            if !namespace.is_empty() && self.leaving.lock().contains(namespace) {
                self.queue.add(Work::Namespace(namespace.to_owned()));
            }
            let definition = format!("{}.{}", table.plural, table.group);
            let record = self.lookup(
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "",
                &definition,
            );
            if record.is_some_and(|r| r.facts.deleting) {
                self.queue.add(Work::Definition(definition));
            }
        }
    }

    /// Empties a namespace and lets it go when nothing is left.
    pub(crate) async fn empty_namespace(self: &Arc<Self>, name: &str) -> ApiResult<()> {
        let key = Key::new("", name);
        let table = self.table("", "namespaces")?;
        let Some(record) = table.get(&key).filter(|r| r.facts.deleting) else {
            return Ok(());
        };
        let registry = self.types();
        let mut remaining: Vec<(String, usize)> = Vec::new();
        let mut finalizers: Vec<(String, usize)> = Vec::new();
        for resource in registry
            .resources()
            .filter(|r| r.namespaced && r.is_storage() && r.is_stored())
        {
            let left = self.empty_collection(resource, Some(name), NAMESPACES).await?;
            if !left.is_empty() {
                // The group is named even when it is the core's empty one.
                remaining.push((format!("{}.{}", resource.plural, resource.group), left.len()));
                count_finalizers(&left, &mut finalizers);
            }
        }
        let namespace = record.parse();
        if remaining.is_empty() {
            return self.release_namespace(&table, &key, &record, namespace).await;
        }
        let next = with_namespace_conditions(&namespace, &remaining, &finalizers, &self.clock.stamp());
        if next == namespace {
            return Ok(());
        }
        self.put_if_unchanged(&table, &key, &record, Action::Put(Draft::new(&next, 0)))
            .await
    }

    /// Removes the finalizer that stands for the content; the object goes when it was the last one.
    async fn release_namespace(
        &self,
        table: &Table,
        key: &Key,
        record: &Record,
        namespace: Value,
    ) -> ApiResult<()> {
        let mut next = namespace.clone();
        let kept: Vec<Value> = namespace["spec"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| **f != KUBERNETES)
            .cloned()
            .collect();
        let empty = kept.is_empty() && meta::finalizers(&namespace).is_empty();
        if empty {
            return self
                .put_if_unchanged(table, key, record, Action::Delete(Draft::new(&namespace, 0)))
                .await;
        }
        let spec = meta::fields(meta::field(meta::fields(&mut next), "spec"));
        if kept.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".into(), Value::Array(kept));
        }
        let next = with_namespace_conditions(&next, &[], &[], &self.clock.stamp());
        if next == namespace {
            return Ok(());
        }
        self.put_if_unchanged(table, key, record, Action::Put(Draft::new(&next, 0)))
            .await
    }

    /// Deletes the instances of a definition and lets it go when none is left.
    pub(crate) async fn empty_definition(self: &Arc<Self>, name: &str) -> ApiResult<()> {
        let key = Key::new("", name);
        let table = self.table("apiextensions.k8s.io", "customresourcedefinitions")?;
        let Some(record) = table.get(&key).filter(|r| r.facts.deleting) else {
            return Ok(());
        };
        let definition = record.parse();
        if !meta::finalizers(&definition).contains(&CLEANUP) {
            return Ok(());
        }
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let served = self
            .types()
            .resources()
            .find(|r| &*r.group == group && &*r.plural == plural && r.is_storage())
            .cloned();
        if let Some(resource) = served {
            if !resource.table.is_empty() && self.note_deletion(&table, &key, &record, &definition).await? {
                return Box::pin(self.empty_definition(name)).await;
            }
            let left = self.empty_collection(&resource, None, DEFINITIONS).await?;
            if !left.is_empty() {
                return Ok(());
            }
        }
        let kept: Vec<&str> = meta::finalizers(&definition)
            .into_iter()
            .filter(|f| *f != CLEANUP)
            .collect();
        let mut next = definition.clone();
        meta::set_finalizers(&mut next, &kept);
        definitions::set_condition(
            &mut next,
            "Terminating",
            "False",
            "InstanceDeletionCompleted",
            "removed all instances",
            &self.clock.stamp(),
        );
        let action = if kept.is_empty() {
            Action::Delete(Draft::new(&definition, 0))
        } else {
            Action::Put(Draft::new(&next, 0))
        };
        let gone = kept.is_empty();
        // Whoever sees that the definition is gone may make it anew at once: what comes from here on is the history of that one.
        let until = self.store.revision();
        self.put_if_unchanged(&table, &key, &record, action).await?;
        if gone && let Some(instances) = self.store.find(group, plural) {
            self.store.retire(instances.id, until)?;
        }
        Ok(())
    }

    /// Says on a definition that its instances are being deleted; tells whether it had to be said.
    async fn note_deletion(
        self: &Arc<Self>,
        table: &Arc<Table>,
        key: &Key,
        record: &Arc<Record>,
        definition: &Value,
    ) -> ApiResult<bool> {
        let mut next = definition.clone();
        definitions::set_condition(
            &mut next,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            &self.clock.stamp(),
        );
        if next == *definition {
            return Ok(false);
        }
        self.put_if_unchanged(table, key, record, Action::Put(Draft::new(&next, 0)))
            .await?;
        Ok(true)
    }

    /// Deletes all objects of a type and returns those that are held.
    async fn empty_collection(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        controller: &'static str,
    ) -> ApiResult<Vec<Arc<Record>>> {
        let snapshot = resource.table.snapshot(namespace, || self.store.revision());
        for (key, record) in &snapshot.items {
            if record.facts.deleting {
                continue;
            }
            match Hand::new(self, controller)
                .delete(resource, key, record, Propagation::Background)
                .await
            {
                Err(error) if matches!(error.code(), 404 | 409) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        let left = resource.table.snapshot(namespace, || self.store.revision());
        Ok(left.items.into_iter().map(|(_, record)| record).collect())
    }

    /// A change by the server itself; if the object moved meanwhile it is looked at again.
    async fn put_if_unchanged(
        &self,
        table: &Table,
        key: &Key,
        record: &Record,
        action: Action,
    ) -> ApiResult<()> {
        let change = Change {
            table: table.id,
            key: key.clone(),
            expect: Expect::Revision(record.revision),
            action,
        };
        match self.store.commit(vec![change]).await {
            Ok(_) => Ok(()),
            Err(CommitError::Conflict) => Err(ApiError::stale(&table.group, &table.plural, &key.name)),
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }
}

fn count_finalizers(records: &[Arc<Record>], counts: &mut Vec<(String, usize)>) {
    for record in records {
        for finalizer in meta::finalizers(&record.parse()) {
            match counts.iter_mut().find(|(name, _)| name == finalizer) {
                Some((_, count)) => *count += 1,
                None => counts.push((finalizer.to_owned(), 1)),
            }
        }
    }
}

fn with_namespace_conditions(
    namespace: &Value,
    remaining: &[(String, usize)],
    finalizers: &[(String, usize)],
    now: &str,
) -> Value {
    let mut next = namespace.clone();
    let mut set = |kind: &str, status: &str, reason: &str, message: &str| {
        definitions::set_condition(&mut next, kind, status, reason, message, now);
    };
    set(
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    );
    set(
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    set(
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    );
    if remaining.is_empty() {
        set(
            "NamespaceContentRemaining",
            "False",
            "ContentRemoved",
            "All content successfully removed",
        );
    } else {
        let list: Vec<String> = remaining
            .iter()
            .map(|(what, n)| format!("{what} has {n} resource instances"))
            .collect();
        set(
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            &format!("Some resources are remaining: {}", list.join(", ")),
        );
    }
    if finalizers.is_empty() {
        set(
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        );
    } else {
        let list: Vec<String> = finalizers
            .iter()
            .map(|(what, n)| format!("{what} in {n} resource instances"))
            .collect();
        set(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            &format!(
                "Some content in the namespace has finalizers remaining: {}",
                list.join(", ")
            ),
        );
    }
    meta::fields(meta::field(meta::fields(&mut next), "status")).insert("phase".into(), json!("Terminating"));
    next
}
