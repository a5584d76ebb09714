// SPDX-License-Identifier: Apache-2.0
//! The `cobaltcore` binary: command line, `up`, one subcommand per role, nothing else.

#[macro_use]
mod run;

mod apiserver;
mod bench;
mod clusters;
mod console;
mod crds;
mod ha;
mod ha_service;
mod incidents;
mod operator;
mod people;
mod rbac;
mod signal;
mod sim;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cobaltcore_agents::{ha_agent, node_agent};

// JSON trees are built and dropped by the thousand; this costs a third of what the system's
// allocator takes for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs fleets of KVM hypervisors under OpenStack, on Kubernetes.
///
/// Every part of the platform is a role of this one program. `up` starts them all on this
/// machine; in a cluster each role runs in its own pod.
#[derive(Debug, Parser)]
#[command(
    name = "cobaltcore",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    log: run::LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Apiserver(apiserver::Args),
    Crds(crds::Args),
    NodeAgent(Box<node_agent::Args>),
    HaAgent(Box<ha_agent::Args>),
    HypervisorOperator(Box<operator::Args>),
    HaService(ha_service::Args),
    Hypervisors(people::HypervisorsArgs),
    Evict(people::EvictArgs),
    #[command(subcommand)]
    Maintenance(people::MaintenanceCommand),
    Onboard(people::OnboardArgs),
    Signal(signal::Args),
    Console(console::Args),
    Sim(sim::Args),
    #[command(subcommand)]
    Rbac(rbac::Command),
    #[command(subcommand)]
    Ha(ha::Command),
    Incidents(incidents::Args),
    #[command(subcommand)]
    Bench(bench::Command),
}

/// The command line of the API server by itself. A process of its own is idle for most of its life;
/// building the command lines of all other roles would leave their code in its memory for good.
#[derive(Debug, Parser)]
#[command(name = "cobaltcore", version, propagate_version = true)]
struct ServerCli {
    #[command(flatten)]
    log: run::LogArgs,
    #[command(subcommand)]
    command: ServerCommand,
}

#[derive(Debug, Subcommand)]
enum ServerCommand {
    Apiserver(apiserver::Args),
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "apiserver") {
        let ServerCli {
            log,
            command: ServerCommand::Apiserver(args),
        } = ServerCli::parse();
        return apiserver::run(&log, args);
    }
    let Cli { log, command } = Cli::parse();
    match command {
        Command::Up(args) => up::run(&log, args),
        Command::Apiserver(args) => apiserver::run(&log, args),
        Command::Crds(args) => crds::run(&args),
        Command::NodeAgent(args) => node_agent::run(log, *args),
        Command::HaAgent(args) => ha_agent::run(log, *args),
        Command::HypervisorOperator(args) => operator::run(log, *args),
        Command::HaService(args) => ha_service::run(&log, args),
        Command::Hypervisors(args) => people::hypervisors(&log, args),
        Command::Evict(args) => people::evict(&log, args),
        Command::Maintenance(command) => people::maintenance(&log, command),
        Command::Onboard(args) => people::onboard(&log, args),
        Command::Signal(args) => signal::run(&log, &args),
        Command::Console(args) => console::run(&log, args),
        Command::Sim(args) => sim::run(&log, args),
        Command::Rbac(command) => rbac::run(&log, command),
        Command::Ha(command) => ha::run(&log, command),
        Command::Incidents(args) => incidents::run(&log, args),
        Command::Bench(command) => bench::run(&log, command),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cli, ServerCli};
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
        ServerCli::command().debug_assert();
    }

    /// Nobody can tell which of the two command lines has read `apiserver`.
    #[test]
    fn the_server_alone_speaks_as_the_whole_does() {
        let words = [
            ["cobaltcore", "apiserver", "--help"],
            ["cobaltcore", "apiserver", "--version"],
            ["cobaltcore", "apiserver", "--durabilty"],
            ["cobaltcore", "apiserver", "nonsense"],
        ];
        for line in words {
            let said = |mut command: clap::Command| {
                command
                    .try_get_matches_from_mut(line)
                    .map_err(|error| error.to_string())
                    .err()
            };
            assert_eq!(said(ServerCli::command()), said(Cli::command()), "{line:?}");
        }
    }
}
