// SPDX-License-Identifier: Apache-2.0
//! The `cobaltcore-agent` binary: the roles that run on every hypervisor, and nothing else. They are the same as in
//! `cobaltcore`; the kernel keeps 64 KiB in memory around every page of code that runs, so a program that holds only
//! what they need takes a third of the memory, and memory on a hypervisor belongs to its guests.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cobaltcore_agents::{ha_agent, node_agent};
use cobaltcore_kit::program::LogArgs;

/// The agents of a hypervisor under OpenStack, on Kubernetes.
///
/// The same roles as `cobaltcore node-agent` and `cobaltcore ha-agent`, with the same flags, in a program that takes less
/// memory from the host.
#[derive(Debug, Parser)]
#[command(
    name = "cobaltcore-agent",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    NodeAgent(Box<node_agent::Args>),
    HaAgent(Box<ha_agent::Args>),
}

fn main() -> ExitCode {
    let Cli { log, command } = Cli::parse();
    match command {
        Command::NodeAgent(args) => node_agent::run(log, *args),
        Command::HaAgent(args) => ha_agent::run(log, *args),
    }
}
