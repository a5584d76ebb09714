// SPDX-License-Identifier: Apache-2.0
//! Workloads that nobody runs. There is no kubelet, so a Deployment would never become available and
//! whoever waits for it would wait for ever; where it is asked for, workloads are marked as running
//! a moment after they changed, and named as simulated.

use std::sync::Arc;

use cobaltcore_builtins::{SIMULATED, fulfilled};
use serde_json::{Value, json};

use super::internal::Hand;
use super::queue::Work;
use crate::api::Api;
use crate::clock;
use crate::meta;
use crate::status::ApiResult;
use crate::store::{Event, Key, Op, Table};

/// A kubelet that was heard of within this time is alive.
const HEARTBEAT: jiff::SignedDuration = jiff::SignedDuration::from_secs(40);

impl Api {
    /// Queues workloads that changed, and daemons when nodes come or go. Runs in the writer.
    pub(crate) fn workloads_observe(&self, table: &Table, event: &Event) {
        if self.config.simulate_workloads.is_none() || event.op == Op::Deleted && !is_nodes(table) {
            return;
        }
        if is_workload(table) {
            self.queue.add(Work::Workload(table.id, event.key.clone()));
        } else if is_nodes(table) && (event.op != Op::Modified || relabelled(event)) {
            self.queue.add(Work::Daemons);
        }
    }

    /// Queues the workloads a freshly loaded store holds.
    pub(crate) fn resume_workload(&self, table: &Table, key: &Key) {
        if self.config.simulate_workloads.is_some() && is_workload(table) {
            self.queue.add(Work::Workload(table.id, key.clone()));
        }
    }

    /// Queues every daemon.
    pub(crate) fn review_daemons(&self) {
        if let Some(table) = self.store.find("apps", "daemonsets") {
            table.each(|key, _| self.queue.add(Work::Workload(table.id, key.clone())));
        }
    }

    /// Has a workload looked at when its delay is over.
    pub(crate) fn await_workload(self: &Arc<Self>, table: crate::store::TypeId, key: &Key) {
        let Some(delay) = self.config.simulate_workloads else {
            return;
        };
        let (api, work) = (self.clone(), Work::Fulfil(table, key.clone()));
        if !api.queue.rest(&work) {
            return;
        }
        tokio::spawn(async move {
            let later = tokio::time::sleep(delay);
            if api.stop.run_until_cancelled(later).await.is_some() {
                api.queue.add(work);
            }
        });
    }

    /// Marks a workload as running, unless something real may run it.
    pub(crate) async fn fulfil_workload(
        self: &Arc<Self>,
        table: crate::store::TypeId,
        key: &Key,
    ) -> ApiResult<()> {
        let Some(table) = self.store.by_id(table) else {
            return Ok(());
        };
        let Some(record) = table.get(key).filter(|record| !record.facts.deleting) else {
            return Ok(());
        };
        if self.kubelet_is_alive() {
            return Ok(());
        }
        let resource = self.builtin(&table.group, "v1", &table.plural)?;
        let workload = record.parse();
        let nodes = match &*table.plural {
            "daemonsets" => self.objects("", "nodes", None),
            _ => Vec::new(),
        };
        let Some(status) = fulfilled(&resource.kind, &workload, &nodes, self.clock.now()) else {
            return Ok(());
        };
        let mark = json!("true");
        if workload["status"] == status && workload["metadata"]["annotations"][SIMULATED] == mark {
            return Ok(());
        }
        let mut next = workload;
        next["status"] = status;
        next["metadata"]["annotations"][SIMULATED] = mark;
        let hand = Hand::new(self, "workload-simulator");
        match hand.replace(&resource, key, next, Some("status")).await {
            // Whoever was faster has it queued again.
            Err(error) if matches!(error.reason(), "Conflict" | "NotFound") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Whether a node of this cluster has a kubelet that renews its lease.
    fn kubelet_is_alive(&self) -> bool {
        let now = self.clock.now();
        let fresh = |lease: &Value| {
            let renewed = lease["spec"]["renewTime"].as_str().and_then(clock::parse);
            renewed.is_some_and(|renewed| now.duration_since(renewed) < HEARTBEAT)
        };
        self.objects("coordination.k8s.io", "leases", Some("kube-node-lease"))
            .iter()
            .any(|lease| fresh(lease) && self.lookup("", "nodes", "", meta::name(lease)).is_some())
    }
}

fn is_workload(table: &Table) -> bool {
    matches!(
        (&*table.group, &*table.plural),
        (
            "apps",
            "deployments" | "replicasets" | "statefulsets" | "daemonsets"
        ) | ("batch", "jobs")
    )
}

fn is_nodes(table: &Table) -> bool {
    table.group.is_empty() && &*table.plural == "nodes"
}

/// Whether the labels of an object changed, by which daemons select.
fn relabelled(event: &Event) -> bool {
    let labels = |object: Value| object["metadata"]["labels"].clone();
    let before = event.old.as_ref().map(|old| labels(old.parse()));
    before.is_none_or(|before| before != labels(event.new.parse()))
}
