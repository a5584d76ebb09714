// SPDX-License-Identifier: Apache-2.0
//! Counters, under the reference's names where the meaning is the same, so that existing dashboards
//! work. Facts that the server keeps anyway (objects, watchers, revisions) are read when asked for.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use cobaltcore_cel::Budget;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::admission::WebhookCounts;
use crate::api::Api;
use crate::audit::Entry;
use crate::status::qualified;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    group: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    r#type: &'static str,
    name: &'static str,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Counters of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
    sizes: Family<SizeLabels, Histogram>,
    authentications: Family<ResultLabels, Counter>,
    decisions: Family<DecisionLabels, Counter>,
    rbac_denied: Counter,
    apply_conflicts: Counter,
    watchers_dropped: Counter,
    watch_events: Counter,
    watch_bytes: Counter,
    collected: Counter,
    evaluations: Counter,
    stopped: Counter,
    /// Calls of admission webhooks.
    pub webhooks: WebhookCounts,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            sizes: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1000.0, 10.0, 7))),
            authentications: Family::default(),
            decisions: Family::default(),
            rbac_denied: Counter::default(),
            apply_conflicts: Counter::default(),
            watchers_dropped: Counter::default(),
            watch_events: Counter::default(),
            watch_bytes: Counter::default(),
            collected: Counter::default(),
            evaluations: Counter::default(),
            stopped: Counter::default(),
            webhooks: WebhookCounts::default(),
            registry: Registry::default(),
        };
        registry.register("apiserver_request", "Requests answered", metrics.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to the answer, without watches",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_response_sizes",
            "Bytes of answers, without watches",
            metrics.sizes.clone(),
        );
        registry.register(
            "apiserver_authorization_decisions",
            "Decisions of the authoriser",
            metrics.decisions.clone(),
        );
        registry.register(
            "apiserver_authentication_attempts",
            "Bearer tokens looked at",
            metrics.authentications.clone(),
        );
        registry.register(
            "apiserver_watch_events",
            "Events sent to watchers",
            metrics.watch_events.clone(),
        );
        registry.register(
            "apiserver_watch_events_sizes_bytes",
            "Bytes sent to watchers",
            metrics.watch_bytes.clone(),
        );
        registry.register(
            "cobaltcore_kube_rbac_denied",
            "Requests RBAC refused",
            metrics.rbac_denied.clone(),
        );
        registry.register(
            "cobaltcore_kube_ssa_conflicts",
            "Applies that met other owners",
            metrics.apply_conflicts.clone(),
        );
        registry.register(
            "cobaltcore_kube_watchers_dropped",
            "Watchers that fell too far behind",
            metrics.watchers_dropped.clone(),
        );
        registry.register(
            "cobaltcore_kube_gc_deletions",
            "Objects the garbage collector removed",
            metrics.collected.clone(),
        );
        registry.register(
            "cobaltcore_kube_cel_evaluations",
            "Expressions evaluated: rules of definitions, match conditions, policies",
            metrics.evaluations.clone(),
        );
        registry.register(
            "cobaltcore_kube_cel_budget_exceeded",
            "Expressions stopped because they cost too much",
            metrics.stopped.clone(),
        );
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// A request RBAC refused.
    pub fn rbac_denied(&self) {
        self.rbac_denied.inc();
    }

    /// An apply that met other owners.
    pub fn apply_conflict(&self) {
        self.apply_conflicts.inc();
    }

    /// An object the garbage collector removed.
    pub fn collected(&self) {
        self.collected.inc();
    }

    /// What was evaluated on a budget.
    pub fn evaluated(&self, budget: &Budget) {
        self.evaluations.inc_by(budget.evaluations());
        self.stopped.inc_by(budget.exceeded());
    }

    /// What the authoriser said.
    pub fn decided(&self, allowed: bool) {
        let decision = if allowed { "allowed" } else { "denied" };
        let labels = DecisionLabels {
            r#type: "RBAC",
            name: "rbac",
            decision,
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// A watcher that fell too far behind.
    pub fn watcher_dropped(&self) {
        self.watchers_dropped.inc();
    }

    /// An event handed to a watcher.
    pub fn watch_event(&self, bytes: usize) {
        self.watch_events.inc();
        self.watch_bytes.inc_by(bytes as u64);
    }

    /// A request that was answered. Paths that name nothing served share one set of labels, so that
    /// a scanner cannot grow the metrics without bound.
    pub fn request(&self, entry: &Entry, bytes: Option<u64>) {
        let known = entry.code != 404 && entry.code != 401 && entry.code != 403;
        let text = |value: &str| if known { value.to_owned() } else { String::new() };
        let scope = match (
            entry.resource.is_empty(),
            entry.name.is_empty(),
            entry.namespace.is_empty(),
        ) {
            (true, ..) => "",
            (_, false, _) => "resource",
            (_, true, false) => "namespace",
            _ => "cluster",
        };
        self.requests
            .get_or_create(&RequestLabels {
                verb: verb_label(entry),
                group: text(&entry.group),
                version: text(&entry.version),
                resource: text(&entry.resource),
                subresource: text(&entry.subresource),
                scope,
                code: entry.code,
            })
            .inc();
        if !entry.is_watch() {
            let labels = DurationLabels {
                verb: verb_label(entry),
                group: text(&entry.group),
                resource: text(&entry.resource),
            };
            self.durations
                .get_or_create(&labels)
                .observe(entry.took.as_secs_f64());
            let labels = SizeLabels {
                verb: verb_label(entry),
                group: text(&entry.group),
                version: text(&entry.version),
                resource: text(&entry.resource),
                subresource: text(&entry.subresource),
                scope,
            };
            if let Some(bytes) = bytes {
                self.sizes.get_or_create(&labels).observe(bytes as f64);
            }
        }
    }

    /// A bearer token looked at.
    pub fn authentication(&self, good: bool) {
        let result = if good { "success" } else { "failure" };
        self.authentications.get_or_create(&ResultLabels { result }).inc();
    }
}

impl Api {
    /// All metrics in the text format of Prometheus.
    pub fn render_metrics(&self) -> String {
        let statistics = self.store.statistics();
        let mut writer = Registry::default();
        for (name, help, histogram) in [
            (
                "cobaltcore_kube_commit_seconds",
                "Time to commit a batch",
                &statistics.seconds,
            ),
            (
                "cobaltcore_kube_commit_batch_changes",
                "Changes in a batch",
                &statistics.batches,
            ),
        ] {
            writer.register(name, help, histogram.clone());
        }
        let mut out = String::new();
        for registry in [&self.metrics.registry, &writer] {
            if text::encode(&mut out, registry).is_err() {
                out.clear();
            }
        }
        let mut out = in_plain_format(&out);
        let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        let (file, log) = self.store.sizes();
        let plain: [(&str, &str, f64); 7] = [
            ("cobaltcore_kube_revision", "gauge", self.store.revision() as f64),
            (
                "cobaltcore_kube_compacted_revision",
                "gauge",
                self.store.compacted() as f64,
            ),
            (
                "cobaltcore_kube_writer_queue",
                "gauge",
                load(&statistics.queued) as f64,
            ),
            ("cobaltcore_kube_db_bytes", "gauge", file as f64),
            ("cobaltcore_kube_wal_bytes", "gauge", log as f64),
            (
                "cobaltcore_kube_writer_failing",
                "gauge",
                f64::from(u8::from(statistics.failing.load(Ordering::Relaxed))),
            ),
            (
                "apiserver_longrunning_requests",
                "gauge",
                self.watches.load(Ordering::Relaxed) as f64,
            ),
        ];
        for (name, kind, value) in plain {
            let _ = writeln!(out, "# TYPE {name} {kind}\n{name} {value}");
        }
        let _ = writeln!(out, "# TYPE apiserver_current_inflight_requests gauge");
        for (lane, kind) in ["readOnly", "mutating"].iter().enumerate() {
            let now = self.inflight[lane].load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} {now}"
            );
        }
        for (name, read) in [
            (
                "apiserver_storage_objects",
                (|t| t.len()) as fn(&crate::store::Table) -> usize,
            ),
            ("cobaltcore_kube_watchers", |t| t.watchers()),
            ("cobaltcore_kube_history_events", |t| t.history_len()),
        ] {
            let _ = writeln!(out, "# TYPE {name} gauge");
            for table in self.store.tables() {
                let resource = qualified(&table.group, &table.plural);
                let _ = writeln!(out, "{name}{{resource=\"{resource}\"}} {}", read(&table));
            }
        }
        self.metrics.webhooks.render(&mut out);
        out
    }
}

/// The verb as the reference counts it: by method, with reads told apart.
fn verb_label(entry: &Entry) -> &'static str {
    match entry.verb {
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "head" => "HEAD",
        "options" => "OPTIONS",
        _ => "other",
    }
}

/// The encoder writes OpenMetrics, where a counter is announced without the ending of its samples; the
/// format this server answers in announces it with it.
fn in_plain_format(open_metrics: &str) -> String {
    const ENDING: &str = "_total";
    let mut out = String::with_capacity(open_metrics.len() + 256);
    let lines: Vec<&str> = open_metrics.lines().filter(|line| *line != "# EOF").collect();
    let counters: HashSet<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in lines {
        let announced = line
            .strip_prefix("# HELP ")
            .or_else(|| line.strip_prefix("# TYPE "))
            .and_then(|rest| rest.split_once(' '));
        match announced {
            Some((name, rest)) if counters.contains(name) => {
                let word = line.get(..7).unwrap_or_default();
                let _ = writeln!(out, "{word}{name}{ENDING} {rest}");
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_announced_under_the_name_of_their_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{x=\"1\"} 2\n# HELP h Times.\n# TYPE h histogram\nh_sum 1\n# EOF\n";
        let plain = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 2\n# HELP h Times.\n# TYPE h histogram\nh_sum 1\n";
        assert_eq!(in_plain_format(open), plain);
    }
}
