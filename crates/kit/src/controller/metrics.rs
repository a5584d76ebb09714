// SPDX-License-Identifier: Apache-2.0
//! Metrics of controllers, under the names that dashboards and alerts of Kubernetes programs
//! already use.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::telemetry::Telemetry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    controller: &'static str,
    result: &'static str,
}

const BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// The metrics of all controllers in a process.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    total: Family<OfResult, Counter>,
    errors: Family<OfController, Counter>,
    time: Family<OfController, Histogram, fn() -> Histogram>,
    workers: Family<OfController, Gauge>,
    active: Family<OfController, Gauge>,
    watch_errors: Family<OfController, Counter>,
}

impl ControllerMetrics {
    /// Registers the metrics; once per process.
    pub fn new(telemetry: &Telemetry) -> Self {
        let this = Self {
            total: Family::default(),
            errors: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            workers: Family::default(),
            active: Family::default(),
            watch_errors: Family::default(),
        };
        telemetry.register(|registry| {
            let own = registry.sub_registry_with_prefix("controller_runtime");
            own.register("reconcile", "Passes by result", this.total.clone());
            own.register("reconcile_errors", "Failed passes", this.errors.clone());
            own.register("reconcile_time_seconds", "Duration of passes", this.time.clone());
            own.register(
                "max_concurrent_reconciles",
                "Most passes at the same time",
                this.workers.clone(),
            );
            own.register("active_workers", "Passes under way", this.active.clone());
            own.register(
                "watch_errors",
                "Watches that failed and were tried again",
                this.watch_errors.clone(),
            );
        });
        this
    }

    pub(super) fn started(&self, controller: &'static str, workers: u16) {
        let label = OfController { controller };
        self.workers.get_or_create(&label).set(workers.into());
        // Alerts on rates need the series to exist before the first failure.
        drop(self.errors.get_or_create(&label));
        drop(self.active.get_or_create(&label));
        for result in ["success", "requeue_after", "error"] {
            drop(self.total.get_or_create(&OfResult { controller, result }));
        }
    }

    pub(super) fn finished(&self, controller: &'static str, result: &'static str, time: Duration) {
        let label = OfController { controller };
        self.total.get_or_create(&OfResult { controller, result }).inc();
        self.time.get_or_create(&label).observe(time.as_secs_f64());
        if result == "error" {
            self.errors.get_or_create(&label).inc();
        }
    }

    pub(super) fn active(&self, controller: &'static str, change: i64) {
        self.active
            .get_or_create(&OfController { controller })
            .inc_by(change);
    }

    pub(super) fn watch_failed(&self, controller: &'static str) {
        self.watch_errors
            .get_or_create(&OfController { controller })
            .inc();
    }
}
