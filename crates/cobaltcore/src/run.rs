// SPDX-License-Identifier: Apache-2.0
//! What every subcommand shares: logging, the runtime, and how a failure is told.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use cobaltcore_kit::startup::{self, Component, LogConfig, LogFormat, StartupGuard};

/// Prints a line. A reader that has seen enough and closed the pipe is no reason to fail.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// How to log.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Form of log lines: plain, json or journald
    #[arg(
        long,
        global = true,
        env = "COBALTCORE_LOG_FORMAT",
        default_value = "plain",
        value_name = "FORMAT",
        help_heading = "Logging"
    )]
    log_format: LogFormat,
    /// What to log, as `level` or `target=level,...`
    #[arg(
        long,
        global = true,
        env = "COBALTCORE_LOG",
        default_value = "warn",
        value_name = "FILTER",
        help_heading = "Logging"
    )]
    log: String,
}

impl LogArgs {
    /// With another form or filter, where given.
    pub(crate) fn with(self, format: Option<LogFormat>, filter: Option<String>) -> Self {
        Self {
            log_format: format.unwrap_or(self.log_format),
            log: filter.unwrap_or(self.log),
        }
    }
}

/// Sets up logging and runs `work` to its end.
pub(crate) fn block_on<F>(log: &LogArgs, name: &'static str, work: F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    block_on_with(tokio::runtime::Builder::new_multi_thread(), log, name, work)
}

/// The same on a single thread, for roles whose memory matters more than their speed.
pub(crate) fn block_on_one<F>(log: &LogArgs, name: &'static str, work: F) -> ExitCode
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

fn start(log: &LogArgs, name: &'static str) -> Result<StartupGuard, cobaltcore_kit::Error> {
    let component = Component {
        name,
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("COBALTCORE_COMMIT").unwrap_or("unknown"),
    };
    let config = LogConfig {
        format: log.log_format,
        filter: log.log.clone(),
        ..LogConfig::default()
    };
    startup::init(&component, &config)
}

/// A failure that ends the program, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// A mistake in flags or configuration.
    pub(crate) fn config(text: String) -> Self {
        Self {
            code: 2,
            error: anyhow::anyhow!(text),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: 1, error }
    }
}

impl From<cobaltcore_apiserver::ServerError> for Failure {
    fn from(error: cobaltcore_apiserver::ServerError) -> Self {
        // Its text names the cause already; the chain would say it twice.
        Self {
            code: error.exit_code(),
            error: anyhow::anyhow!("{error}"),
        }
    }
}

fn tell(failure: &Failure) -> ExitCode {
    eprintln!("error: {:#}", failure.error);
    ExitCode::from(failure.code)
}

/// The cluster of the kubeconfig, or of the pod's own account.
pub(crate) async fn cluster(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
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
pub(crate) async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(cluster(kubeconfig).await?).context("cannot make a client for the Kubernetes API")
}

/// Where a role keeps its state unless told otherwise: the system's place for root, the user's own
/// otherwise.
pub(crate) fn state_dir(role: &str) -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_STATE_HOME").map(|dir| dir.join("cobaltcore"));
    let home = || {
        set("HOME")
            .filter(|home| home != std::path::Path::new("/root"))
            .map(|home| home.join(".local/state/cobaltcore"))
    };
    base.or_else(home)
        .unwrap_or_else(|| PathBuf::from("/var/lib/cobaltcore"))
        .join(role)
}
