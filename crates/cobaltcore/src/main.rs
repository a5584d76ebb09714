// SPDX-License-Identifier: Apache-2.0
//! The `cobaltcore` binary: command line, `up`, one subcommand per role, nothing else.

mod apiserver;

use clap::{Parser, Subcommand};

/// Runs fleets of KVM hypervisors under OpenStack, on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "cobaltcore", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Apiserver(apiserver::Args),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Apiserver(args) => apiserver::run(args),
    }
}
