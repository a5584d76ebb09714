// SPDX-License-Identifier: Apache-2.0
//! What the agent counts, under the prefix `kvm_node_agent_`. Observers count as they go; gauges about the host are
//! set from the board when the status is published, so that they say what the status says.

mod ages;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::MigrationPhase;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_libvirt::client::Observer;
use cobaltcore_libvirt::event::EventId;
use cobaltcore_libvirt::procedure::Procedure;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::board::{Link, Model, Reading};
use crate::capacity::{Allocation, Amount};

use ages::Ages;
pub(crate) use ages::Source;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcedureLabel {
    procedure: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ErrorLabel {
    procedure: String,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EventLabel {
    event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    pub(crate) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CellLabel {
    resource: &'static str,
    cell: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PhaseLabel {
    phase: &'static str,
}

impl From<&MigrationPhase> for PhaseLabel {
    fn from(phase: &MigrationPhase) -> Self {
        let phase = match phase {
            MigrationPhase::Preparing => "Preparing",
            MigrationPhase::Running => "Running",
            MigrationPhase::Completed => "Completed",
            MigrationPhase::Failed => "Failed",
            MigrationPhase::Cancelled => "Cancelled",
            _ => "Unknown",
        };
        Self { phase }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ServerLabel {
    pub(crate) server: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UnitLabel {
    unit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct InfoLabel {
    version: String,
    driver: String,
    libvirt_version: String,
}

fn seconds() -> Histogram {
    Histogram::new([
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident : $type:ty = $name:literal, $help:literal, $new:expr;)*) => {
        /// What the agent counts.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            $($(#[$doc])* pub(crate) $field: $type,)*
            pub(crate) ages: Ages,
        }

        impl Metrics {
            fn unregistered() -> Self {
                Self { $($field: $new,)* ages: Ages::default() }
            }

            fn add_to(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
                registry.register_collector(Box::new(self.ages.clone()));
            }
        }
    };
}

metrics! {
    info: Family<InfoLabel, Gauge> = "info", "What runs and what it talks to", Family::default();
    connected: Gauge = "libvirt_connected", "Whether libvirt answers", Gauge::default();
    reconnects: Counter = "libvirt_reconnects", "Connections made after the first", Counter::default();
    rpc: Family<ProcedureLabel, Histogram> = "libvirt_rpc_seconds", "Calls to libvirt by procedure", Family::new_with_constructor(seconds);
    rpc_errors: Family<ErrorLabel, Counter> = "libvirt_rpc_errors", "Calls that failed, by procedure and libvirt's code", Family::default();
    events: Family<EventLabel, Counter> = "libvirt_events", "Events of libvirt by name", Family::default();
    event_queue: Gauge = "libvirt_event_queue_length", "Events that wait to be looked at", Gauge::default();
    overflows: Counter = "libvirt_event_overflows", "Times that events were lost and everything was read again", Counter::default();
    domains: Family<StateLabel, Gauge> = "domains", "Guests by state", Family::default();
    read_errors: Gauge = "domain_read_errors", "Guests whose definition cannot be read or understood", Gauge::default();
    writes: Family<ResultLabel, Counter> = "status_writes", "Writes of the Hypervisor status by result", Family::default();
    write_seconds: Histogram = "status_write_seconds", "How long a write takes", seconds();
    event_to_status: Histogram = "event_to_status_seconds", "From the first change to its successful write", seconds();
    resync_seconds: Histogram = "resync_seconds", "How long a comparison with libvirt's list takes", seconds();
    capacity: Family<CellLabel, Gauge> = "capacity", "What the host has, by resource and cell", Family::default();
    allocation: Family<CellLabel, Gauge> = "allocation", "What guests have taken, by resource and cell", Family::default();
    migrations: Family<PhaseLabel, Gauge> = "migrations", "Migrations under way from here, by phase", Family::default();
    migrations_ended: Family<PhaseLabel, Counter> = "migrations_ended", "Migrations from here that ended, by phase", Family::default();
    migration_remaining: Family<ServerLabel, Gauge> = "migration_bytes_remaining", "What a running migration has left", Family::default();
    migration_downtime: Histogram = "migration_downtime_seconds", "How long guests stood still", Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]);
    unit_active: Family<UnitLabel, Gauge> = "unit_active", "Whether a watched unit is active", Family::default();
    tls_not_after: Gauge = "tls_not_after_seconds", "When the installed certificate ends, seconds since the epoch", Gauge::default();
    tls_served: Gauge = "tls_served_matches", "Whether libvirt serves the installed certificate", Gauge::default();
    shutdown_inhibited: Gauge = "shutdown_inhibited", "Whether a shutdown is held back", Gauge::default();
    shutdown_delay_max: Gauge = "shutdown_delay_max_seconds", "How long logind lets a shutdown be held back", Gauge::default();
    os_update: Family<StateLabel, Gauge> = "os_update_state", "Where an operating system update is", Family::default();
    migration_write_errors: Counter = "migration_write_errors", "Writes of Migration objects that failed", Counter::default();
}

impl Metrics {
    /// Metrics that show up in `telemetry`.
    pub fn new(telemetry: &Telemetry) -> Self {
        let metrics = Self::unregistered();
        telemetry.register(|registry| metrics.add_to(registry.sub_registry_with_prefix("kvm_node_agent")));
        metrics
    }

    /// A histogram of calls for the libvirt client.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(Calls(self.clone()))
    }

    /// Shows whether a watched unit is active.
    pub(crate) fn show_unit(&self, unit: &str, active: bool) {
        let label = UnitLabel {
            unit: unit.to_owned(),
        };
        self.unit_active.get_or_create(&label).set(active.into());
    }

    /// Shows where an operating system update is: the one state among `all` that holds.
    pub(crate) fn show_update(&self, all: &[&'static str], now: &str) {
        for state in all {
            self.os_update
                .get_or_create(&StateLabel { state })
                .set((*state == now).into());
        }
    }

    /// Shows what the model says about libvirt and guests.
    pub(crate) fn show(&self, model: &Model, allocation: Option<&Allocation>) {
        let libvirt = &model.libvirt;
        self.connected.set(i64::from(libvirt.link == Link::Up));
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        self.info.clear();
        let info = InfoLabel {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            driver: text(&libvirt.driver),
            libvirt_version: text(&libvirt.lib_version),
        };
        self.info.get_or_create(&info).set(1);
        if let Some(guests) = &libvirt.guests {
            self.domains.clear();
            for guest in guests.values() {
                let state = guest.state.map_or("unknown", super::board::GuestState::as_str);
                self.domains.get_or_create(&StateLabel { state }).inc();
            }
            let failed = guests.values().filter(|guest| match &guest.claim {
                Reading::Failed(_) => true,
                Reading::Known(claim) => !claim.problems.is_empty(),
                Reading::Pending => false,
            });
            self.read_errors.set(failed.count() as i64);
        }
        let Some(cells) = &libvirt.cells else { return };
        show_amount(&self.capacity, "all", cells.total());
        for (id, cell) in &cells.cells {
            let amount = Amount {
                memory: cell.memory,
                cpus: cell.cpus,
            };
            show_amount(&self.capacity, &id.to_string(), amount);
        }
        let Some(allocation) = allocation else { return };
        show_amount(&self.allocation, "all", allocation.total);
        for id in cells.cells.keys() {
            let amount = allocation.cells.get(id).copied().unwrap_or_default();
            show_amount(&self.allocation, &id.to_string(), amount);
        }
    }
}

fn show_amount(family: &Family<CellLabel, Gauge>, cell: &str, amount: Amount) {
    for (resource, value) in [("cpu", amount.cpus), ("memory", amount.memory)] {
        let label = CellLabel {
            resource,
            cell: cell.to_owned(),
        };
        family
            .get_or_create(&label)
            .set(i64::try_from(value).unwrap_or(i64::MAX));
    }
}

struct Calls(Metrics);

impl Observer for Calls {
    fn call(
        &self,
        procedure: Procedure,
        took: Duration,
        outcome: Option<Result<(), &cobaltcore_libvirt::Error>>,
    ) {
        let name = procedure.to_string();
        if let Some(Err(error)) = outcome {
            let code = error
                .code()
                .map_or_else(|| "none".to_owned(), |code| code.to_string());
            let label = ErrorLabel {
                procedure: name.clone(),
                code,
            };
            self.0.rpc_errors.get_or_create(&label).inc();
        }
        let label = ProcedureLabel { procedure: name };
        self.0.rpc.get_or_create(&label).observe(took.as_secs_f64());
    }

    fn event(&self, id: Option<EventId>) {
        let event = id.and_then(EventId::name).unwrap_or("unknown").to_owned();
        self.0.events.get_or_create(&EventLabel { event }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_kit::startup::Component;

    /// What dashboards and alerts may count on.
    const NAMES: [&str; 27] = [
        "libvirt_connected",
        "libvirt_reconnects",
        "libvirt_event_queue_length",
        "libvirt_event_overflows",
        "libvirt_rpc_seconds",
        "libvirt_rpc_errors",
        "libvirt_events",
        "info",
        "domains",
        "domain_read_errors",
        "status_writes",
        "status_write_seconds",
        "event_to_status_seconds",
        "resync_seconds",
        "model_age_seconds",
        "capacity",
        "allocation",
        "migrations",
        "migrations_ended",
        "migration_bytes_remaining",
        "migration_downtime_seconds",
        "unit_active",
        "tls_not_after_seconds",
        "tls_served_matches",
        "shutdown_inhibited",
        "shutdown_delay_max_seconds",
        "os_update_state",
    ];

    #[test]
    fn every_promised_metric_is_there_and_ages_grow() {
        let telemetry = Telemetry::new(&Component {
            name: "test",
            version: "0",
            commit: "none",
        });
        let metrics = Metrics::new(&telemetry);
        metrics.ages.fresh(Source::Libvirt);
        // A family that nobody has used yet is not shown.
        let amount = Amount { memory: 1, cpus: 1 };
        metrics.show(&Model::default(), None);
        metrics.show_unit("libvirtd.service", true);
        metrics.show_update(&["Idle"], "Idle");
        show_amount(&metrics.capacity, "all", amount);
        show_amount(&metrics.allocation, "all", amount);
        let error = cobaltcore_libvirt::Error::Uri {
            uri: "x".to_owned(),
            why: "no".to_owned(),
        };
        metrics
            .observer()
            .call(Procedure::CONNECT_OPEN, Duration::ZERO, Some(Err(&error)));
        metrics.observer().event(Some(EventId::LIFECYCLE));
        metrics
            .domains
            .get_or_create(&StateLabel { state: "running" })
            .inc();
        metrics
            .writes
            .get_or_create(&ResultLabel { result: "written" })
            .inc();
        let phase = PhaseLabel::from(&MigrationPhase::Running);
        metrics.migrations.get_or_create(&phase).inc();
        metrics.migrations_ended.get_or_create(&phase).inc();
        let server = "s".to_owned();
        metrics
            .migration_remaining
            .get_or_create(&ServerLabel { server })
            .set(1);
        let text = telemetry.encode();
        for name in NAMES {
            assert!(
                text.contains(&format!("# TYPE kvm_node_agent_{name} ")),
                "{name} is not in {text}"
            );
        }
        let age = |text: &str| {
            let line = text.lines().find(|line| line.contains("source=\"libvirt\""));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        let first = age(&text).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert!(age(&telemetry.encode()).unwrap() > first);
        assert!(!text.contains("source=\"units\""), "nobody asked systemd yet");
    }
}
