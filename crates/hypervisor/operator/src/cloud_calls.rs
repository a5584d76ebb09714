// SPDX-License-Identifier: Apache-2.0
//! The session with OpenStack, and figures of every call that goes through it.

use std::sync::Arc;

use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{CloudConfig, ConfigError, Report, Session, Settings};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::config::Config;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAnswer {
    service: &'static str,
    method: &'static str,
    route: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    service: &'static str,
    route: &'static str,
}

const BUCKETS: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The session that clouds.yaml or the `OS_*` variables describe, counted in `telemetry`. Nobody
/// is asked yet. Nothing if neither is there, which is a way to run too.
pub fn openstack_session(
    config: &Config,
    telemetry: &Telemetry,
    user_agent: &str,
) -> Result<Option<Session>, ConfigError> {
    let said = ["OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE"];
    if !said
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        return Ok(None);
    }
    session(CloudConfig::from_env()?, config, telemetry, user_agent).map(Some)
}

/// A session with this cloud under the operator's limits, counted in `telemetry`.
pub fn session(
    cloud: CloudConfig,
    config: &Config,
    telemetry: &Telemetry,
    user_agent: &str,
) -> Result<Session, ConfigError> {
    let settings = Settings {
        deadline: config.openstack_timeout.0,
        max_in_flight: config.openstack_max_inflight as usize,
        user_agent: user_agent.to_owned(),
        observer: Some(Arc::new(count(telemetry))),
        ..Settings::default()
    };
    Session::new(cloud, settings)
}

/// Counts calls.
fn count(telemetry: &Telemetry) -> impl Fn(&Report<'_>) + Send + Sync + 'static {
    let requests: Family<OfAnswer, Counter> = Family::default();
    let durations: Family<OfRoute, Histogram, fn() -> Histogram> =
        Family::new_with_constructor(|| Histogram::new(BUCKETS));
    telemetry.register(|registry| {
        let own = registry.sub_registry_with_prefix("hypervisor_operator");
        own.register("openstack_requests", "Calls to OpenStack", requests.clone());
        own.register(
            "openstack_request_duration_seconds",
            "Duration of calls to OpenStack",
            durations.clone(),
        );
    });
    move |report| {
        let (service, method, route) = (
            report.call.service.as_str(),
            report.call.method,
            report.call.route,
        );
        let code = report
            .status
            .map_or_else(|| "none".to_owned(), |code| code.to_string());
        let took = report.duration.as_secs_f64();
        durations.get_or_create(&OfRoute { service, route }).observe(took);
        requests
            .get_or_create(&OfAnswer {
                service,
                method,
                route,
                code,
            })
            .inc();
    }
}
