// SPDX-License-Identifier: Apache-2.0
//! Tables of built-in kinds: which columns a kind has and what an object shows in them. Cells are
//! those of the wide form; clients hide columns by priority.

mod columns;
mod devices;
mod network;
mod pod;
mod rest;
mod storage;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{at, list, text};
use crate::kind::Kind;
use crate::times::{age, parse_time};

pub use columns::{Column, status_columns};

/// Cells under construction, with the time ages are counted from.
pub(crate) struct Cells<'a> {
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
}

impl Cells<'_> {
    pub(crate) fn name(&self) -> Value {
        json!(text(self.object, "metadata.name"))
    }

    pub(crate) fn age(&self) -> Value {
        json!(self.since("metadata.creationTimestamp"))
    }

    /// The age of the time at a path, `<unknown>` when there is none.
    pub(crate) fn since(&self, path: &str) -> String {
        match parse_time(text(self.object, path)) {
            Some(time) => age(time, self.now),
            None => "<unknown>".to_owned(),
        }
    }
}

impl Kind {
    /// The columns of this kind, the name first (events: last).
    pub fn columns(&self) -> &'static [Column] {
        columns::of(self)
    }

    /// What an object shows, one cell per column.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cells = Cells { object, now };
        match self.id() {
            ("", "Pod") => pod::pod(&cells),
            ("", "PodTemplate") => workload::pod_template(&cells),
            ("", "ReplicationController") | ("apps", "ReplicaSet") => workload::replicas(&cells, self.group),
            ("apps", "Deployment") => workload::deployment(&cells),
            ("apps", "StatefulSet") => workload::stateful_set(&cells),
            ("apps", "DaemonSet") => workload::daemon_set(&cells),
            ("apps", "ControllerRevision") => workload::revision(&cells),
            ("batch", "Job") => workload::job(&cells),
            ("batch", "CronJob") => workload::cron_job(&cells),
            ("autoscaling", _) => workload::autoscaler(&cells, self.version),
            ("policy", _) => workload::budget(&cells),
            ("", "Service") => network::service(&cells),
            ("", "Endpoints") => network::endpoints(&cells),
            ("discovery.k8s.io", _) => network::slice(&cells),
            ("networking.k8s.io", "Ingress") => network::ingress(&cells),
            ("networking.k8s.io", "IngressClass") => network::ingress_class(&cells),
            ("networking.k8s.io", "NetworkPolicy") => network::policy(&cells),
            ("networking.k8s.io", "IPAddress") => network::assigned(&cells),
            ("networking.k8s.io", "ServiceCIDR") => network::range(&cells),
            ("resource.k8s.io", kind) => devices::devices(&cells, kind),
            ("", "Node") => network::node(&cells),
            ("", "PersistentVolume") => storage::volume(&cells),
            ("", "PersistentVolumeClaim") => storage::claim(&cells),
            ("storage.k8s.io", kind) => storage::storage(&cells, kind),
            ("" | "events.k8s.io", "Event") => rest::event(&cells, self.group),
            _ => rest::other(&cells, self),
        }
    }

    /// Conditions of a row: pods that ran to an end are marked as completed.
    pub fn row_conditions(&self, object: &Value) -> Option<Value> {
        if self.id() != ("", "Pod") {
            return None;
        }
        let (reason, message) = match text(object, "status.phase") {
            "Succeeded" => ("Succeeded", "The pod has completed successfully."),
            "Failed" => ("Failed", "The pod failed."),
            _ => return None,
        };
        Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
    }
}

/// Names and images of containers at a path, comma-separated.
pub(crate) fn containers(object: &Value, path: &str) -> [Value; 2] {
    let join = |field: &str| {
        list(object, path)
            .iter()
            .map(|container| text(container, field))
            .collect::<Vec<_>>()
            .join(",")
    };
    [json!(join("name")), json!(join("image"))]
}

/// The selector at a path, `<none>` when it has no requirement.
pub(crate) fn selector(object: &Value, path: &str) -> Value {
    let written = at(object, path)
        .map(crate::selector::selector_text)
        .unwrap_or_default();
    or_none(&written)
}

pub(crate) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}
