// SPDX-License-Identifier: Apache-2.0
//! The operator's own metrics. Gauges over the fleet are counted from the caches at the moment
//! of a scrape, so that they cannot drift from what the objects say.

use std::collections::BTreeMap;

use cobaltcore_api::{Eviction, EvictionState, Hypervisor, LifecyclePhase};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_kit::watched::Watched;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;

use crate::seen::LookAtHypervisor as _;

const PREFIX: &str = "hypervisor_operator";
/// From seconds to hours: what people wait for.
const LONG: [f64; 12] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 43_200.0,
];

/// One label named `reason`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfReason {
    /// Its value.
    pub reason: &'static str,
}

/// One label named `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfKind {
    /// Its value.
    pub kind: &'static str,
}

/// How a migration was made and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfMigration {
    /// `live`, `cold` or `evacuate`.
    pub kind: &'static str,
    /// `succeeded`, `failed`, `aborted` or `rejected`.
    pub result: &'static str,
}

/// One label named `zone`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfZone {
    /// Its value.
    pub zone: String,
}

/// The operator's own metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// How long onboarding took, from the first sight in Nova to Succeeded.
    pub onboarding_seconds: Histogram,
    /// Onboardings that ended without success.
    pub onboarding_failures: Family<OfReason, Counter>,
    /// How long evictions took.
    pub eviction_seconds: Histogram,
    /// Migrations by kind and result.
    pub migrations: Family<OfMigration, Counter>,
    /// How long migrations took.
    pub migration_seconds: Family<OfKind, Histogram, fn() -> Histogram>,
    /// What was found to differ from what is wanted, and put right.
    pub drift_corrections: Family<OfKind, Counter>,
    /// Whether the brake on node health reactions holds, by zone.
    pub node_health_brake: Family<OfZone, Gauge>,
    /// Hypervisors that wait for the HA service for too long.
    pub ha_waiting: Gauge,
}

impl Metrics {
    /// Registers the metrics; once per process.
    pub fn new(
        telemetry: &Telemetry,
        hypervisors: &Watched<Hypervisor>,
        evictions: &Watched<Eviction>,
    ) -> Self {
        let long: fn() -> Histogram = || Histogram::new(LONG);
        let this = Self {
            onboarding_seconds: long(),
            onboarding_failures: Family::default(),
            eviction_seconds: long(),
            migrations: Family::default(),
            migration_seconds: Family::new_with_constructor(long),
            drift_corrections: Family::default(),
            node_health_brake: Family::default(),
            ha_waiting: Gauge::default(),
        };
        let fleet = Fleet {
            hypervisors: hypervisors.clone(),
            evictions: evictions.clone(),
        };
        telemetry.register(|registry| {
            let Self {
                onboarding_seconds,
                onboarding_failures,
                eviction_seconds,
                migrations,
                migration_seconds,
                drift_corrections,
                node_health_brake,
                ha_waiting,
            } = this.clone();
            let own = registry.sub_registry_with_prefix(PREFIX);
            own.register(
                "onboarding_duration_seconds",
                "Duration of onboarding",
                onboarding_seconds,
            );
            own.register(
                "onboarding_failures",
                "Onboardings without success",
                onboarding_failures,
            );
            own.register(
                "eviction_duration_seconds",
                "Duration of evictions",
                eviction_seconds,
            );
            own.register("migrations", "Migrations by kind and result", migrations);
            own.register(
                "migration_duration_seconds",
                "Duration of migrations",
                migration_seconds,
            );
            own.register("drift_corrections", "Differences put right", drift_corrections);
            own.register(
                "node_health_brake_active",
                "Whether too many nodes of a zone are unhealthy to act",
                node_health_brake,
            );
            own.register(
                "ha_waiting",
                "Hypervisors that wait for the HA service for too long",
                ha_waiting,
            );
            registry.register_collector(Box::new(fleet));
        });
        this
    }
}

/// Counts the fleet when asked.
#[derive(Debug)]
struct Fleet {
    hypervisors: Watched<Hypervisor>,
    evictions: Watched<Eviction>,
}

impl Fleet {
    fn phases(&self) -> BTreeMap<&'static str, i64> {
        let mut phases: BTreeMap<_, _> = LifecyclePhase::ALL.iter().map(|p| (p.as_str(), 0)).collect();
        for hypervisor in self.hypervisors.all() {
            if let Some(phase) = hypervisor.known().phase {
                *phases.entry(phase.as_str()).or_default() += 1;
            }
        }
        phases
    }

    /// Instances of the evictions that have not ended well.
    fn instances(&self) -> BTreeMap<&'static str, i64> {
        let mut states = BTreeMap::from([
            ("outstanding", 0),
            ("inflight", 0),
            ("failed", 0),
            ("nonmigratable", 0),
        ]);
        for eviction in self.evictions.all() {
            let Some(status) = &eviction.status else { continue };
            if status.eviction_state == Some(EvictionState::Succeeded) {
                continue;
            }
            let counts = [
                ("outstanding", status.outstanding_instances.len() as i64),
                ("inflight", status.in_flight.len() as i64),
                ("failed", status.failed_instances.unwrap_or_default()),
                ("nonmigratable", status.non_migratable_instances.len() as i64),
            ];
            for (state, count) in counts {
                *states.entry(state).or_default() += count;
            }
        }
        states
    }
}

impl Collector for Fleet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gauges = [
            ("phase", "Hypervisors by phase", "phase", self.phases()),
            (
                "eviction_instances",
                "Servers of evictions by state",
                "state",
                self.instances(),
            ),
        ];
        for (name, help, label, counts) in gauges {
            let name = format!("{PREFIX}_{name}");
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (value, count) in counts {
                ConstGauge::new(count).encode(metric.encode_family(&[(label, value)])?)?;
            }
        }
        Ok(())
    }
}
