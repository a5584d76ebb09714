// SPDX-License-Identifier: Apache-2.0
//! What a process does first: say who it is, set up logging once, and choose the TLS
//! provider. After [`init`] every role in the process may log and open TLS connections.

mod logfmt;

use std::fmt;
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::error::Error;

/// Who is running.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// The name of the role.
    pub name: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The commit it was built from, or `unknown`.
    pub commit: &'static str,
}

impl Component {
    /// The line that `--version` prints.
    ///
    /// ```
    /// use cobaltcore_kit::startup::Component;
    /// let component = Component { name: "cobaltcore", version: "0.1.0", commit: "abc1234" };
    /// let banner = component.banner();
    /// assert!(banner.starts_with("cobaltcore 0.1.0 (linux/"), "{banner}");
    /// assert!(banner.ends_with(") abc1234"), "{banner}");
    /// ```
    pub fn banner(&self) -> String {
        format!("{} {} ({}) {}", self.name, self.version, platform(), self.commit)
    }

    /// The name under which the process speaks to servers.
    pub fn user_agent(&self) -> String {
        format!("{}/{} ({}) {}", self.name, self.version, platform(), self.commit)
    }
}

/// Operating system and processor in the words of the Kubernetes world.
fn platform() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{processor}", std::env::consts::OS)
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people, with colour on a terminal.
    #[default]
    Plain,
    /// One JSON object per line.
    Json,
    /// `key=value` pairs, beginning with `time=`.
    Logfmt,
    /// Structured records to the systemd journal.
    Journald,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plain" => Ok(Self::Plain),
            "json" => Ok(Self::Json),
            "logfmt" => Ok(Self::Logfmt),
            "journald" => Ok(Self::Journald),
            other => Err(format!("{other:?} is not one of plain, json, logfmt, journald")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain => "plain",
            Self::Json => "json",
            Self::Logfmt => "logfmt",
            Self::Journald => "journald",
        })
    }
}

/// How to log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LogConfig {
    /// The form of log lines.
    pub format: LogFormat,
    /// What to log, as `level` or `target=level,...`.
    pub filter: String,
    /// Where to send traces (OTLP over HTTP); nothing is sent when empty.
    pub otlp_endpoint: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Plain,
            filter: "info".into(),
            otlp_endpoint: String::new(),
        }
    }
}

/// Keeps background exporters alive; dropping it sends what is still waiting.
#[must_use = "dropping the guard stops the export of traces"]
#[derive(Debug, Default)]
pub struct StartupGuard {
    #[cfg(feature = "otlp")]
    traces: Option<crate::telemetry::TraceExport>,
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces.take() {
            traces.finish();
        }
    }
}

/// Sets up logging and TLS for the whole process and logs the banner. The second call in a
/// process is an error, so that two roles in one process cannot fight over the logger.
pub fn init(component: &Component, log: &LogConfig) -> Result<StartupGuard, Error> {
    install_tls_provider();
    let LogConfig {
        format,
        filter,
        otlp_endpoint,
    } = log;
    let guard = install_logging(component, *format, filter, otlp_endpoint)?;
    tracing::info!(
        version = component.version,
        commit = component.commit,
        "{}",
        component.banner()
    );
    Ok(guard)
}

/// Makes ring the TLS provider of the process. Harmless when called again.
pub fn install_tls_provider() {
    // An error means that a provider is installed already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

fn install_logging(
    component: &Component,
    format: LogFormat,
    filter: &str,
    otlp: &str,
) -> Result<StartupGuard, Error> {
    let (filter, switch) = reload::Layer::new(parse_filter(filter)?);
    let lines: BoxedLayer = match format {
        LogFormat::Plain => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Logfmt => tracing_subscriber::fmt::layer()
            .event_format(logfmt::Logfmt)
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Journald => tracing_journald::layer()
            .map_err(Error::Journal)?
            .with_syslog_identifier(component.name.to_owned())
            .with_field_prefix(None)
            .boxed(),
    };
    let mut layers = vec![lines.with_filter(filter).boxed()];
    let guard = add_traces(component, otlp, &mut layers)?;
    tracing_subscriber::registry()
        .with(layers)
        .try_init()
        .map_err(|_| Error::LoggingTwice)?;
    // Set once: whoever comes second was refused above.
    let _ = FILTER.set(switch);
    Ok(guard)
}

fn parse_filter(filter: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(filter).map_err(|error| Error::LogFilter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })
}

/// What is wrong with a filter of log lines, before anything depends on it.
pub fn check_filter(filter: &str) -> Result<(), Error> {
    parse_filter(filter).map(drop)
}

/// The filter of the process, once it logs.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Logs by another filter from now on. Nothing happens in a process that does not log.
pub fn change_filter(filter: &str) -> Result<(), Error> {
    let filter = parse_filter(filter)?;
    if let Some(switch) = FILTER.get() {
        // It fails only when the logger is gone, and then there is nothing to filter.
        let _ = switch.reload(filter);
    }
    Ok(())
}

#[cfg(feature = "otlp")]
fn add_traces(
    component: &Component,
    endpoint: &str,
    layers: &mut Vec<BoxedLayer>,
) -> Result<StartupGuard, Error> {
    if endpoint.is_empty() {
        return Ok(StartupGuard::default());
    }
    let (export, layer) = crate::telemetry::TraceExport::start(component, endpoint)?;
    layers.push(layer);
    Ok(StartupGuard { traces: Some(export) })
}

#[cfg(not(feature = "otlp"))]
fn add_traces(_: &Component, endpoint: &str, _: &mut Vec<BoxedLayer>) -> Result<StartupGuard, Error> {
    if endpoint.is_empty() {
        return Ok(StartupGuard::default());
    }
    let reason = "this build has no trace export (feature otlp)".into();
    Err(Error::Traces {
        endpoint: endpoint.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: Component = Component {
        name: "test",
        version: "1.2.3",
        commit: "0000000",
    };

    #[test]
    fn logging_is_set_up_once() {
        let guard = init(&COMPONENT, &LogConfig::default()).unwrap();
        let error = init(&COMPONENT, &LogConfig::default()).unwrap_err();
        assert!(matches!(error, Error::LoggingTwice));
        drop(guard);
    }

    #[test]
    fn a_bad_filter_is_named() {
        let log = LogConfig {
            filter: "info,kube=loud".into(),
            ..LogConfig::default()
        };
        let error = init(&COMPONENT, &log).unwrap_err().to_string();
        assert!(error.starts_with("log filter \"info,kube=loud\":"), "{error}");
    }

    #[test]
    fn formats_have_names() {
        for format in [LogFormat::Plain, LogFormat::Json, LogFormat::Journald] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("xml".parse::<LogFormat>().is_err());
    }
}
