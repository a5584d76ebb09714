// SPDX-License-Identifier: Apache-2.0
//! What every program of the platform shares: how it logs, the runtime it works on, the cluster it talks to, and how a
//! failure that ends it is told. What a program does is its own.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use crate::startup::{self, Component, LogConfig, LogFormat, StartupGuard};

/// How to log.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Form of log lines: plain, json, logfmt or journald [default: plain]
    #[arg(
        long,
        global = true,
        env = "COBALTCORE_LOG_FORMAT",
        value_name = "FORMAT",
        help_heading = "Logging"
    )]
    log_format: Option<LogFormat>,
    /// What to log, as `level` or `target=level,...` [default: warn]
    #[arg(
        long,
        global = true,
        env = "COBALTCORE_LOG",
        value_name = "FILTER",
        help_heading = "Logging"
    )]
    log: Option<String>,
}

impl LogArgs {
    /// With another form or filter, where given.
    pub fn with(self, format: Option<LogFormat>, filter: Option<String>) -> Self {
        Self {
            log_format: format.or(self.log_format),
            log: filter.or(self.log),
        }
    }

    /// With this form and filter where the command line says nothing.
    pub fn or(&self, format: LogFormat, filter: &str) -> Self {
        Self {
            log_format: self.log_format.or(Some(format)),
            log: self.log.clone().or_else(|| Some(filter.to_owned())),
        }
    }

    /// Whether the command line says what to log.
    pub fn says_what(&self) -> bool {
        self.log.is_some()
    }
}

/// Sets up logging and runs `work` to its end.
pub fn block_on<F>(log: &LogArgs, name: &'static str, work: F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    block_on_with(tokio::runtime::Builder::new_multi_thread(), log, name, work)
}

/// The same on a single thread, for roles whose memory matters more than their speed.
pub fn block_on_one<F>(log: &LogArgs, name: &'static str, work: F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    block_on_with(tokio::runtime::Builder::new_current_thread(), log, name, work)
}

fn block_on_with<F>(
    mut builder: tokio::runtime::Builder,
    log: &LogArgs,
    name: &'static str,
    work: F,
) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    let guard = match start(log, name) {
        Ok(guard) => guard,
        Err(error) => return tell(&Failure::config(error.to_string())),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return tell(&Failure::from(
                anyhow::Error::from(error).context("cannot start the runtime"),
            ));
        }
    };
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    drop(guard);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => tell(&failure),
    }
}

fn start(log: &LogArgs, name: &'static str) -> Result<StartupGuard, crate::Error> {
    let component = Component {
        name,
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("COBALTCORE_COMMIT").unwrap_or("unknown"),
    };
    let config = LogConfig {
        format: log.log_format.unwrap_or_default(),
        filter: log.log.clone().unwrap_or_else(|| "warn".to_owned()),
        ..LogConfig::default()
    };
    startup::init(&component, &config)
}

/// A failure that ends the program, with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// A mistake in flags or configuration.
    pub fn config(text: String) -> Self {
        Self::new(2, text)
    }

    /// A failure that says all there is to say, with the exit code that tells scripts its kind.
    pub fn new(code: u8, text: String) -> Self {
        Self {
            code,
            error: anyhow::anyhow!(text),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: 1, error }
    }
}

/// Tells why the program ends, and gives its exit code.
pub fn tell(failure: &Failure) -> ExitCode {
    eprintln!("error: {:#}", failure.error);
    ExitCode::from(failure.code)
}

/// The cluster of the kubeconfig, or of the pod's own account.
pub async fn cluster(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let read = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
        }
        None => kube::Config::infer()
            .await
            .context("no Kubernetes cluster: run in a pod, or name a kubeconfig with --kubeconfig"),
    }
}

/// A client for that cluster.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(cluster(kubeconfig).await?).context("cannot make a client for the Kubernetes API")
}
