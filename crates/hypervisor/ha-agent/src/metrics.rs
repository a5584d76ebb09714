// SPDX-License-Identifier: Apache-2.0
//! What the agent counts, under the prefix `kvm_ha_agent_`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cobaltcore_ha_wire::{DomainState, Kind, SpoolState};
use cobaltcore_kit::telemetry::Telemetry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::draft::Draft;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    kind: &'static str,
    event: String,
    detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    endpoint: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BeatLabel {
    endpoint: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReactionLabel {
    trigger: &'static str,
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HashLabel {
    hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Everything that is counted.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    uptime: Gauge,
    instances: Family<StateLabel, Gauge>,
    events: Family<EventLabel, Counter>,
    missed: Counter,
    connected: Gauge,
    reconnects: Counter,
    spool_bytes: Gauge,
    spool_records: Gauge,
    spool_oldest: Gauge,
    dropped: Family<KindLabel, Counter>,
    fsync: Histogram,
    spool_errors: Counter,
    batches: Family<CodeLabel, Counter>,
    quarantined: Family<EndpointLabel, Counter>,
    lag: Family<EndpointLabel, Gauge<f64, AtomicU64>>,
    beats: Family<BeatLabel, Counter>,
    reactions: Family<ReactionLabel, Counter>,
    hash: Family<HashLabel, Gauge>,
    reloads: Family<ResultLabel, Counter>,
    armed: Gauge,
}

impl Metrics {
    /// Registers everything.
    pub fn new(telemetry: &Telemetry) -> Self {
        let inner = Inner {
            uptime: Gauge::default(),
            instances: Family::default(),
            events: Family::default(),
            missed: Counter::default(),
            connected: Gauge::default(),
            reconnects: Counter::default(),
            spool_bytes: Gauge::default(),
            spool_records: Gauge::default(),
            spool_oldest: Gauge::default(),
            dropped: Family::default(),
            fsync: Histogram::new(exponential_buckets(0.0001, 2.5, 12)),
            spool_errors: Counter::default(),
            batches: Family::default(),
            quarantined: Family::default(),
            lag: Family::default(),
            beats: Family::default(),
            reactions: Family::default(),
            hash: Family::default(),
            reloads: Family::default(),
            armed: Gauge::default(),
        };
        telemetry.register(|registry| {
            let registry = registry.sub_registry_with_prefix("kvm_ha_agent");
            let Inner {
                uptime,
                instances,
                events,
                missed,
                connected,
                reconnects,
                spool_bytes,
                spool_records,
                spool_oldest,
                dropped,
                fsync,
                spool_errors,
                batches,
                quarantined,
                lag,
                beats,
                reactions,
                hash,
                reloads,
                armed,
            } = &inner;
            registry.register(
                "host_uptime_seconds",
                "Seconds since the host booted",
                uptime.clone(),
            );
            registry.register("instances", "Guests by state", instances.clone());
            registry.register("libvirt_events", "Events of libvirt", events.clone());
            registry.register(
                "libvirt_events_missed",
                "Events of libvirt that came too fast",
                missed.clone(),
            );
            registry.register(
                "libvirt_connected",
                "Whether libvirt is reached",
                connected.clone(),
            );
            registry.register(
                "libvirt_reconnects",
                "Connections to libvirt after the first",
                reconnects.clone(),
            );
            registry.register("spool_bytes", "Bytes that wait", spool_bytes.clone());
            registry.register(
                "spool_records",
                "Records the slowest endpoint lacks",
                spool_records.clone(),
            );
            registry.register(
                "spool_oldest_seconds",
                "Age of the oldest of them",
                spool_oldest.clone(),
            );
            registry.register(
                "spool_dropped",
                "Records given up for want of room",
                dropped.clone(),
            );
            registry.register("spool_fsync_seconds", "Time of a flush", fsync.clone());
            registry.register("spool_errors", "Writes that failed", spool_errors.clone());
            registry.register("batches", "Batches by answer", batches.clone());
            registry.register(
                "records_quarantined",
                "Records an endpoint refused for ever",
                quarantined.clone(),
            );
            registry.register(
                "delivery_lag_seconds",
                "From a record to its acknowledgement, last seen",
                lag.clone(),
            );
            registry.register("heartbeats", "Signs of life by result", beats.clone());
            registry.register("reactions", "Local repairs", reactions.clone());
            registry.register("config_hash_info", "The configuration in force", hash.clone());
            registry.register(
                "config_reload",
                "Configurations seen while running",
                reloads.clone(),
            );
            registry.register("self_fence_armed", "Whether the watchdog runs", armed.clone());
        });
        let metrics = Self(Arc::new(inner));
        // A series that begins with its first count never grew, and nobody would be told of the first.
        for kind in Kind::LIBVIRT.into_iter().chain([Kind::Agent]) {
            metrics.dropped(kind, 0);
        }
        for result in ["applied", "rejected"] {
            drop(metrics.0.reloads.get_or_create(&ResultLabel { result }));
        }
        metrics
    }

    pub(crate) fn uptime(&self, seconds: u64) {
        self.0.uptime.set(seconds as i64);
    }

    pub(crate) fn instances(&self, counts: &BTreeMap<DomainState, u32>) {
        for state in DomainState::ALL {
            let label = StateLabel {
                state: state.as_str(),
            };
            let count = counts.get(&state).copied().unwrap_or(0);
            self.0.instances.get_or_create(&label).set(i64::from(count));
        }
    }

    pub(crate) fn event(&self, draft: &Draft) {
        // What libvirt says in free words must not make labels.
        let plain = draft.kind != Kind::IoError;
        let label = EventLabel {
            kind: draft.kind.as_str(),
            event: draft.event.clone(),
            detail: if plain {
                draft.detail.clone()
            } else {
                String::new()
            },
        };
        self.0.events.get_or_create(&label).inc();
    }

    pub(crate) fn missed(&self, count: u64) {
        self.0.missed.inc_by(count);
    }

    pub(crate) fn libvirt(&self, connected: bool) {
        self.0.connected.set(i64::from(connected));
    }

    pub(crate) fn reconnected(&self) {
        self.0.reconnects.inc();
    }

    pub(crate) fn spool(&self, state: &SpoolState) {
        self.0.spool_bytes.set(state.bytes as i64);
        self.0.spool_records.set(state.depth as i64);
        self.0.spool_oldest.set(state.oldest_s as i64);
    }

    pub(crate) fn dropped(&self, kind: Kind, count: u64) {
        let label = KindLabel { kind: kind.as_str() };
        self.0.dropped.get_or_create(&label).inc_by(count);
    }

    pub(crate) fn flushed(&self, took: Duration) {
        self.0.fsync.observe(took.as_secs_f64());
    }

    pub(crate) fn spool_failed(&self) {
        self.0.spool_errors.inc();
    }

    pub(crate) fn batch(&self, endpoint: &str, code: &str) {
        let label = CodeLabel {
            endpoint: endpoint.to_owned(),
            code: code.to_owned(),
        };
        self.0.batches.get_or_create(&label).inc();
    }

    pub(crate) fn quarantined(&self, endpoint: &str) {
        let endpoint = endpoint.to_owned();
        self.0
            .quarantined
            .get_or_create(&EndpointLabel { endpoint })
            .inc();
    }

    pub(crate) fn lag(&self, endpoint: &str, lag: Duration) {
        let endpoint = endpoint.to_owned();
        self.0
            .lag
            .get_or_create(&EndpointLabel { endpoint })
            .set(lag.as_secs_f64());
    }

    pub(crate) fn beat(&self, endpoint: &str, result: &'static str) {
        let endpoint = endpoint.to_owned();
        self.0.beats.get_or_create(&BeatLabel { endpoint, result }).inc();
    }

    pub(crate) fn reaction(&self, trigger: &'static str, action: &'static str, result: &'static str) {
        let label = ReactionLabel {
            trigger,
            action,
            result,
        };
        self.0.reactions.get_or_create(&label).inc();
    }

    pub(crate) fn config(&self, hash: &str) {
        self.0.hash.clear();
        let hash = hash.to_owned();
        self.0.hash.get_or_create(&HashLabel { hash }).set(1);
    }

    pub(crate) fn reload(&self, result: &'static str) {
        self.0.reloads.get_or_create(&ResultLabel { result }).inc();
    }

    pub(crate) fn armed(&self, armed: bool) {
        self.0.armed.set(i64::from(armed));
    }
}
