// SPDX-License-Identifier: Apache-2.0
//! Inner controllers: what a cluster does by itself. Commits put things on a queue; a few workers
//! look at each thing, decide from the state they find, and act through the same handlers as clients.

mod collector;
mod internal;
mod leaving;
pub(crate) mod owners;
pub(crate) mod queue;
mod registrations;
mod upkeep;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::api::Api;
use crate::status::ApiResult;
use crate::store::{Event, Key, Record, Table};
use queue::Work;

const WORKERS: usize = 4;
/// Old events are looked for this often.
const EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);
/// The clock is looked at this often.
const GLANCE: Duration = Duration::from_millis(250);
/// After this many failures in a row a thing is worth a log line.
const WORRY: u32 = 5;

/// Starts the inner controllers.
pub(crate) fn spawn(api: &Arc<Api>, tasks: &mut JoinSet<()>) {
    for _ in 0..WORKERS {
        let api = api.clone();
        tasks.spawn(async move {
            let stop = api.stop.clone();
            stop.run_until_cancelled(work(&api)).await;
        });
    }
    let api = api.clone();
    tasks.spawn(async move {
        let stop = api.stop.clone();
        stop.run_until_cancelled(async {
            let mut last = api.clock.now();
            loop {
                // Looked up often and by the server's own clock, which tests move.
                tokio::time::sleep(GLANCE).await;
                if api.clock.now().duration_since(last) < EXPIRY {
                    continue;
                }
                last = api.clock.now();
                if let Err(error) = api.expire_events().await {
                    tracing::warn!(%error, "expiring events");
                }
            }
        })
        .await;
    });
}

async fn work(api: &Arc<Api>) {
    loop {
        let work = api.queue.take().await;
        let result = api.attend(&work).await;
        if let Err(error) = &result
            && api.queue.failures(&work) >= WORRY
        {
            tracing::warn!(?work, %error, "an inner controller keeps failing");
        }
        if let Some(delay) = api.queue.done(&work, result.is_ok()) {
            let api = api.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                api.queue.add(work);
            });
        }
    }
}

impl Api {
    /// Queues what a commit gives the inner controllers to do. Runs in the writer.
    pub(crate) fn controllers_observe(&self, table: &Table, event: &Event) {
        self.collector_observes(table, event);
        self.leaving_observes(table, event);
        self.upkeep_observes(table, event);
        self.workloads_observe(table, event);
        self.registrations_observe(table, event);
    }

    /// Queues what a freshly loaded store may have left undone.
    pub(crate) fn resume_controllers(&self) {
        self.queue.add(Work::Roles);
        for table in self.store.tables() {
            table.each(|key, record| self.resume_object(&table, key, record));
        }
    }

    fn resume_object(&self, table: &Table, key: &Key, record: &Record) {
        if !record.facts.owners.is_empty() {
            self.queue.add(Work::Dependent(table.id, key.clone()));
        }
        self.resume_workload(table, key);
        if record.facts.deleting {
            self.queue.add(Work::Owner(table.id, key.clone()));
        }
        if (&*table.group, &*table.plural) == ("apiextensions.k8s.io", "customresourcedefinitions") {
            self.queue_registrations(key);
        }
        match (&*table.group, &*table.plural) {
            ("", "namespaces") if record.facts.deleting => {
                self.leaving.lock().insert(key.name.to_string());
                self.queue.add(Work::Namespace(key.name.to_string()));
            }
            ("", "namespaces") => self.queue.add(Work::Accounts(key.name.to_string())),
            ("apiextensions.k8s.io", "customresourcedefinitions") if record.facts.deleting => {
                self.queue.add(Work::Definition(key.name.to_string()));
            }
            ("policy", "poddisruptionbudgets") => {
                self.queue.add(Work::Budgets(key.namespace.to_string()));
            }
            _ => {}
        }
    }

    async fn attend(self: &Arc<Self>, work: &Work) -> ApiResult<()> {
        match work {
            Work::Dependent(id, key) => self.collect_dependent(*id, key).await,
            Work::Owner(id, key) => self.collect_owner(*id, key).await,
            Work::Namespace(name) => self.empty_namespace(name).await,
            Work::Definition(name) => self.empty_definition(name).await,
            Work::Accounts(namespace) => self.keep_accounts(namespace).await,
            Work::Budgets(namespace) => self.keep_budgets(namespace).await,
            Work::Quotas(namespace) => self.keep_quotas(namespace).await,
            Work::Roles => self.keep_roles().await,
            Work::Workload(id, key) => {
                self.await_workload(*id, key);
                Ok(())
            }
            Work::Fulfil(id, key) => self.fulfil_workload(*id, key).await,
            Work::Daemons => {
                self.review_daemons();
                Ok(())
            }
            Work::Registrations(group) => self.keep_registrations(group).await,
            Work::Names(group) => self.review_names(group).await,
        }
    }
}
