// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore bench`: what the parts of the platform cost, beside what the machine allows.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use cobaltcore_apiserver_bench::{Options, Report};

use crate::run::{self, Failure, LogArgs};

/// Measure costs against a baseline in the same run
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the embedded Kubernetes API
    ///
    /// Starts server processes of its own on loopback and a temporary directory, and ends them.
    /// Nothing is asserted about time: the report says which goals are met.
    Apiserver(ApiserverArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ApiserverArgs {
    /// A few seconds that show the benchmark itself works, instead of a few minutes
    #[arg(long)]
    quick: bool,
    /// Leave etcd and kube-apiserver out even when they are on the PATH
    #[arg(long)]
    no_reference: bool,
    /// Only these parts: operations, watch, life, size
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = ["operations", "watch", "life", "size"])]
    only: Vec<String>,
    /// Measure the server of another build of this program
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
    Yaml,
}

pub(crate) fn run(log: &LogArgs, command: Command) -> ExitCode {
    let Command::Apiserver(args) = command;
    run::block_on(log, "bench", async move {
        apiserver(args).await.map_err(Failure::from)
    })
}

async fn apiserver(args: ApiserverArgs) -> anyhow::Result<()> {
    let ApiserverArgs {
        quick,
        no_reference,
        only,
        program,
        output,
    } = args;
    let program = match program {
        Some(program) => program,
        None => std::env::current_exe().context("cannot find this program to start it as a server")?,
    };
    let options = Options {
        program,
        quick,
        no_reference,
        only,
        progress: |text| eprintln!("{text}"),
    };
    let report = cobaltcore_apiserver_bench::run(options).await?;
    say!("{}", print(&report, output)?.trim_end());
    Ok(())
}

fn print(report: &Report, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Text => report.to_text(),
        Output::Json => serde_json::to_string_pretty(report)? + "\n",
        Output::Yaml => cobaltcore_api::yaml::to_yaml(&serde_json::to_value(report)?),
    })
}
