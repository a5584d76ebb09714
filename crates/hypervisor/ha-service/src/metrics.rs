// SPDX-License-Identifier: Apache-2.0
//! What is counted, under the prefix `kvm_ha_`. Names and labels are a contract with the alert
//! rules; a label never carries what somebody outside can choose freely.

use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{Observer, Report};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

macro_rules! labels {
    ($($(#[$meta:meta])* $name:ident { $($field:ident),+ })+) => {
        $($(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: String),+ })+
    };
}

labels! {
    /// By state.
    OfState { state }
    /// By group.
    OfGroup { group }
    /// By group and verdict.
    OfVerdict { group, verdict }
    /// By state and reason.
    OfIncident { state, held }
    /// By grade.
    OfGrade { grade }
    /// By type and result.
    OfEnd { r#type, result }
    /// By result and reason.
    OfVm { result, reason }
    /// By kind.
    OfKind { kind }
    /// By status code.
    OfCode { code }
    /// By source.
    OfSource { source }
    /// By scope.
    OfScope { scope }
    /// By call and status code.
    OfCall { call, code }
    /// By call.
    OfCallOnly { call }
    /// By what was looked at and what was found.
    OfPreflight { check, of, result }
    /// By driver and result.
    OfDriver { driver, result }
    /// By what was refused and why.
    OfRefusal { what, why }
    /// By result.
    OfResult { result }
    /// By version.
    OfVersion { version }
}

const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
];

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

fn timed<L: Clone + std::hash::Hash + Eq>() -> Timed<L> {
    Family::new_with_constructor(histogram)
}

macro_rules! metrics {
    ($($help:literal $name:literal $field:ident: $kind:ty = $default:expr;)+) => {
        /// All figures. Cheap to clone; clones share.
        #[derive(Clone, Debug)]
        pub struct Metrics { $(#[doc = $help] pub $field: $kind,)+ }

        impl Default for Metrics {
            /// Figures that nobody is shown.
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Metrics {
            /// Figures that `telemetry` shows.
            pub fn new(telemetry: &Telemetry) -> Self {
                let metrics = Self::default();
                let version = env!("CARGO_PKG_VERSION").to_owned();
                metrics.build.get_or_create(&OfVersion { version }).set(1);
                telemetry.register(|registry| {
                    let own = registry.sub_registry_with_prefix("kvm_ha");
                    $(own.register($name, $help, metrics.$field.clone());)+
                });
                metrics
            }
        }
    };
}

/// Counts what a session asks of the cloud. Made before the session, which tells it of every call.
#[derive(Clone, Debug)]
pub struct CloudCalls {
    requests: Family<OfCall, Counter>,
    seconds: Timed<OfCallOnly>,
}

impl CloudCalls {
    /// Figures that `telemetry` shows.
    pub fn new(telemetry: &Telemetry) -> Self {
        let calls = Self {
            requests: Family::default(),
            seconds: timed(),
        };
        telemetry.register(|registry| {
            let own = registry.sub_registry_with_prefix("kvm_ha");
            own.register("nova_requests", "Calls to the cloud", calls.requests.clone());
            let help = "Duration of calls to the cloud";
            own.register("nova_request_seconds", help, calls.seconds.clone());
        });
        calls
    }
}

impl Observer for CloudCalls {
    fn finished(&self, report: &Report<'_>) {
        let call = report.call.name.to_owned();
        let code = match (report.status, report.failure) {
            (Some(status), _) => status.to_string(),
            (None, Some(failure)) => failure.as_str().to_owned(),
            (None, None) => "none".to_owned(),
        };
        let of = OfCallOnly { call: call.clone() };
        self.seconds
            .get_or_create(&of)
            .observe(report.duration.as_secs_f64());
        self.requests.get_or_create(&OfCall { call, code }).inc();
    }
}

metrics! {
    "Which program this is" "build_info" build: Family<OfVersion, Gauge> = Family::default();
    "Hosts by state" "hosts" hosts: Family<OfState, Gauge> = Family::default();
    "Hosts without a usable fencing level" "hosts_unfenceable" hosts_unfenceable: Gauge = Gauge::default();
    "Fenced hosts by what is certain of them" "hosts_fenced" hosts_fenced: Family<OfGrade, Gauge> = Family::default();
    "Hosts whose fencing device says off although they live" "hosts_contradicted" hosts_contradicted: Gauge = Gauge::default();
    "Readings of off by those devices, as long as it goes on" "contradictions" contradictions: Gauge = Gauge::default();
    "Age of the last sign of life, per group" "signal_age_seconds" signal_age: Timed<OfGroup> = timed();
    "Hosts by what a group says" "signals" signals: Family<OfVerdict, Gauge> = Family::default();
    "Whether a group is not believed" "group_untrusted" group_untrusted: Family<OfGroup, Gauge> = Family::default();
    "Incidents that ended" "incidents" incidents: Family<OfEnd, Counter> = Family::default();
    "Open incidents" "incidents_open" incidents_open: Family<OfIncident, Gauge> = Family::default();
    "From the last sign of life to the verdict" "detection_seconds" detection: Histogram = histogram();
    "Duration of fencing" "fence_seconds" fence: Timed<OfDriver> = timed();
    "From the last sign of life to the first evacuation" "evacuate_call_seconds" evacuate_call: Histogram = histogram();
    "From the start of an incident to a recovered guest" "vm_recovery_seconds" vm_recovery: Histogram = histogram();
    "Guests by how their recovery ended" "vm_recoveries" vm_recoveries: Family<OfVm, Counter> = Family::default();
    "Events taken" "ingest_events" ingest_events: Family<OfKind, Counter> = Family::default();
    "Reports of agents by answer" "ingest_batches" ingest_batches: Family<OfCode, Counter> = Family::default();
    "From an event to its arrival" "ingest_lag_seconds" ingest_lag: Histogram = histogram();
    "Telemetry that was refused" "ingest_refused" refused: Family<OfRefusal, Counter> = Family::default();
    "Bytes of the telemetry database" "db_size_bytes" db_size: Gauge = Gauge::default();
    "Duration of storing a report" "db_commit_seconds" db_commit: Histogram = histogram();
    "Whether the telemetry database takes data" "db_up" db_up: Gauge = Gauge::default();
    "Series that a scrape held twice" "pull_doubled" pull_doubled: Family<OfSource, Counter> = Family::default();
    "Whether a source answers" "pull_up" pull_up: Family<OfSource, Gauge> = Family::default();
    "Whether the service believes to be cut off" "self_isolated" self_isolated: Gauge = Gauge::default();
    "What was found before it was needed" "preflight" preflight: Family<OfPreflight, Gauge> = Family::default();
    "Whether too many hosts died to go on" "storm_active" storm_active: Gauge = Gauge::default();
    "Whether this replica leads" "leader" leader: Gauge = Gauge::default();
    "Guests that are on two hosts" "zombies" zombies: Gauge = Gauge::default();
    "Memory of hosts that failed beyond repair, first of each" "memory_failures" memory_failures: Counter = Counter::default();
    "Guests whose watchdog fired again and again" "watchdog_storms" watchdog_storms: Counter = Counter::default();
    "Times that so many guests crashed at once that none was restarted" "crash_storms" crash_storms: Counter = Counter::default();
    "Times that disks of guests failed on many hosts together" "storage_outages" storage_outages: Counter = Counter::default();
    "Pauses in force" "paused" paused: Family<OfScope, Gauge> = Family::default();
    "Steps of the engine" "engine_steps" steps: Counter = Counter::default();
    "Duration of a step of the engine" "engine_step_seconds" step_seconds: Histogram = histogram();
    "Duration of making records durable" "journal_commit_seconds" journal_commit: Histogram = histogram();
    "Records that could not be made durable" "journal_failures" journal_failures: Counter = Counter::default();
    "Configurations that were read anew" "config_reload" config_reload: Family<OfResult, Counter> = Family::default();
    "Decisions of people" "operator_actions" operator_actions: Family<OfEnd, Counter> = Family::default();
    "Guests that do not arrive" "vms_stuck" vms_stuck: Gauge = Gauge::default();
    "Records dropped by agents before they were sent" "spool_dropped" spool_dropped: Counter = Counter::default();
}
