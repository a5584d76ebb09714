// SPDX-License-Identifier: Apache-2.0
//! Metrics of a process in one registry, and optionally traces over OTLP. Roles register
//! their metrics here at start; a scrape only reads.

#[cfg(feature = "otlp")]
mod otlp;

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[cfg(feature = "otlp")]
pub use otlp::TraceExport;

use crate::startup::Component;

/// The content type of [`Telemetry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a process.
#[derive(Clone, Debug)]
pub struct Telemetry {
    registry: Arc<RwLock<Registry>>,
}

impl Telemetry {
    /// A registry that already says who is running.
    ///
    /// ```
    /// use cobaltcore_kit::startup::Component;
    /// use cobaltcore_kit::telemetry::Telemetry;
    /// use prometheus_client::metrics::counter::Counter;
    ///
    /// let telemetry = Telemetry::new(&Component { name: "example", version: "1.0.0", commit: "none" });
    /// let passes: Counter = Counter::default();
    /// telemetry.register(|registry| registry.register("passes", "Passes made", passes.clone()));
    /// passes.inc();
    /// assert!(telemetry.encode().contains("passes_total 1\n"));
    /// ```
    pub fn new(component: &Component) -> Self {
        let telemetry = Self {
            registry: Arc::default(),
        };
        let build = Info::new(vec![
            ("component", component.name),
            ("version", component.version),
            ("commit", component.commit),
        ]);
        telemetry.register(|registry| registry.register("cobaltcore_build", "What is running", build));
        telemetry
    }

    /// Adds metrics. Names are not checked for clashes, so each role keeps its own prefix.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.write())
    }

    /// Everything as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail; a metric that cannot be encoded must not hide the rest.
        if text::encode(&mut text, &self.registry.read()).is_err() {
            tracing::error!("a metric could not be encoded");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_says_who_is_running() {
        let telemetry = Telemetry::new(&Component {
            name: "agent",
            version: "1.2.3",
            commit: "abc",
        });
        let text = telemetry.encode();
        assert!(
            text.contains("cobaltcore_build_info{component=\"agent\",version=\"1.2.3\",commit=\"abc\"} 1"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
