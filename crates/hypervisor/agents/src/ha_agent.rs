// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore ha-agent`: the eyes of high availability on every hypervisor.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_ha_agent::Start;
use cobaltcore_kit::shutdown::Shutdown;

use cobaltcore_kit::program::{self, Failure, LogArgs};

/// Long enough for the last record to arrive.
const GRACE: Duration = Duration::from_secs(20);

/// Tell the HA service what happens on this hypervisor
///
/// Listens to libvirt and reports every event of a guest, the list of guests and a sign of life to all replicas of the
/// HA service. What cannot be sent now is kept on disk and sent later, in order and exactly once. It needs no access to
/// Kubernetes. Local repairs and the watchdog are off unless the configuration turns them on; the configuration is
/// followed while the agent runs.
#[derive(Debug, ClapArgs)]
#[group(id = "ha-agent")]
pub struct Args {
    #[command(flatten)]
    agent: cobaltcore_ha_agent::Args,
}

/// Runs the role until it is asked to stop.
pub fn run(log: LogArgs, args: Args) -> ExitCode {
    let Args { agent } = args;
    // A level in the file wins over the command line's, unless it is the one everybody has.
    let level = cobaltcore_ha_agent::config::Config::read(&agent.config)
        .ok()
        .map(|config| config.log.level)
        .filter(|level| level != "info");
    // One thread is plenty for one host, and memory on a hypervisor belongs to its guests.
    program::block_on_one(&log.with(None, level), "ha-agent", async move {
        let start = Start::new(agent).map_err(|error| Failure::config(error.to_string()))?;
        let shutdown = Shutdown::new(GRACE)
            .on_signals()
            .context("cannot wait for signals")?;
        cobaltcore_ha_agent::run(start, shutdown).await.map_err(|error| {
            if error.is_config() {
                Failure::config(error.to_string())
            } else {
                Failure::from(anyhow::Error::from(error))
            }
        })
    })
}
