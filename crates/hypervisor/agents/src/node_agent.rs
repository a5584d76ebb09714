// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore node-agent`: the agent on every hypervisor.

mod emulate;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_node_agent::Config;

use cobaltcore_kit::program::{self, Failure, LogArgs};

/// Longer than any evacuation that a shutdown may have to wait for.
const GRACE: Duration = Duration::from_mins(10);

/// Report this hypervisor to Kubernetes and keep it in order
///
/// Watches libvirt and the host, writes the machine half of the status of the Hypervisor that is named like this node,
/// and one Migration object per moving server. It never changes a guest. It waits for whatever is missing (libvirt,
/// the Hypervisor object, Kubernetes) and says so; only a mistake in these settings ends it.
#[derive(Debug, ClapArgs)]
#[group(id = "node-agent")]
pub struct Args {
    #[command(flatten)]
    agent: cobaltcore_node_agent::Args,
    /// Report an emulated host instead of this machine, for a look without libvirt and systemd; a file describes
    /// another host than the usual one
    #[arg(long, env = "EMULATE", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "FILE", help_heading = "Emulation")]
    emulate: Option<String>,
    #[command(flatten)]
    former: Former,
}

/// Flags of the agent that this one replaces; accepted so that its manifests keep working.
#[derive(Debug, ClapArgs)]
struct Former {
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    leader_elect: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    enable_http2: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    zap_devel: Option<bool>,
    #[arg(long, hide = true, value_name = "json|console")]
    zap_encoder: Option<String>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,
}

impl Former {
    /// The log settings these flags stand for; the others have no meaning here.
    fn log(&self, log: LogArgs) -> LogArgs {
        let Self {
            leader_elect: _,
            enable_http2: _,
            zap_devel: _,
            zap_encoder,
            zap_log_level,
            zap_stacktrace_level: _,
            zap_time_encoding: _,
        } = self;
        let format = match zap_encoder.as_deref() {
            Some("json") => Some("json"),
            Some("console") => Some("plain"),
            _ => None,
        };
        let filter = zap_log_level.as_deref().map(|level| match level {
            "debug" | "info" | "error" => level.to_owned(),
            "panic" => "error".to_owned(),
            // Numbers are verbosity: the higher, the more is said.
            number if number.parse::<u32>().is_ok() => "debug".to_owned(),
            _ => "info".to_owned(),
        });
        log.with(format.and_then(|format| format.parse().ok()), filter)
    }
}

/// Runs the role until it is asked to stop.
pub fn run(log: LogArgs, args: Args) -> ExitCode {
    let Args {
        mut agent,
        emulate,
        former,
    } = args;
    let kubeconfig = agent.kubeconfig.clone();
    // One thread is plenty for one host, and memory on a hypervisor belongs to its guests.
    program::block_on_one(&former.log(log), "node-agent", async move {
        let _emulated = match emulate.filter(|given| !given.is_empty()) {
            Some(given) => Some(emulate::start(&given, &mut agent).await?),
            None => None,
        };
        let config = Config::new(agent).map_err(|error| Failure::config(error.to_string()))?;
        let shutdown = Shutdown::new(GRACE)
            .on_signals()
            .context("cannot wait for signals")?;
        let client = program::client(kubeconfig.as_deref()).await?;
        cobaltcore_node_agent::run(config, client, shutdown)
            .await
            .map_err(|error| Failure::from(anyhow::Error::from(error)))
    })
}
