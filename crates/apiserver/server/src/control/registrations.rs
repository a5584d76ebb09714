// SPDX-License-Identifier: Apache-2.0
//! Registrations of what definitions serve: one APIService for each version of each group, made when
//! the first definition serves it and removed with the last. Those of built-in groups are there from
//! the start, and those a client made are not touched.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::queue::Work;
use crate::api::Api;
use crate::bootstrap;
use crate::meta;
use crate::registry::Group;
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Event, Expect, Key, Record, Table};

const GROUP: &str = "apiregistration.k8s.io";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Behind every built-in group.
const GROUP_PRIORITY: u32 = 1000;
const VERSION_PRIORITY: u32 = 100;

impl Api {
    /// Queues the group of a definition that changed. Runs in the writer.
    pub(crate) fn registrations_observe(&self, table: &Table, event: &Event) {
        if (&*table.group, &*table.plural) == ("apiextensions.k8s.io", "customresourcedefinitions") {
            self.queue_registrations(&event.key);
        }
    }

    /// Queues the group of a definition that was there before the server.
    pub(crate) fn queue_registrations(&self, definition: &Key) {
        if let Some((_, group)) = definition.name.split_once('.') {
            self.queue.add(Work::Registrations(group.to_owned()));
        }
    }

    /// Brings the registrations of a group in line with what is served of it.
    pub(crate) async fn keep_registrations(&self, group: &str) -> ApiResult<()> {
        let registry = self.types();
        if bootstrap::priority(group, "").is_some() {
            return Ok(());
        }
        let mut wanted: BTreeSet<String> = registry
            .group(group)
            .into_iter()
            .flat_map(Group::served)
            .map(|version| version.name.to_string())
            .collect();
        let table = self.table(GROUP, "apiservices")?;
        let mut changes = Vec::new();
        for (key, record) in table.snapshot(None, || self.store.revision()).items {
            let Some((version, of)) = key.name.split_once('.') else {
                continue;
            };
            if of == group && !wanted.remove(version) && is_managed(&record) {
                changes.push(Change {
                    table: table.id,
                    action: Action::Delete(Draft::new(&record.parse(), 0)),
                    expect: Expect::Revision(record.revision),
                    key,
                });
            }
        }
        for version in wanted {
            changes.push(self.creation(self.registration(group, &version))?);
        }
        if changes.is_empty() {
            return Ok(());
        }
        match self.store.commit(changes).await {
            Ok(_) => Ok(()),
            // Somebody was faster; what is left to do is seen at the next look.
            Err(CommitError::Conflict) => Err(ApiError::internal("the registrations changed meanwhile")),
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }

    fn registration(&self, group: &str, version: &str) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: "true"}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": GROUP_PRIORITY,
                "versionPriority": VERSION_PRIORITY},
            "status": {"conditions": [bootstrap::local_service(&self.clock.stamp())]},
        })
    }
}

/// Whether a registration was made for definitions, not by a client.
fn is_managed(record: &Record) -> bool {
    let object = record.parse();
    object["metadata"]["labels"][MANAGED] == "true" && !meta::deleting(&object)
}
