// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore rbac`: what the embedded API recorded about the rights of its users.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};

use crate::run::{self, Failure, LogArgs};

/// Look at rights: used, missing, too many
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Report what a user was allowed, was denied, and was given but never used
    ///
    /// Asks the embedded API server that the kubeconfig names. Missing rights come as rules ready
    /// to be added to a role.
    Report(ReportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The user, e.g. system:serviceaccount:kvm:node-agent
    #[arg(long, value_name = "NAME")]
    user: String,
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
    let Command::Report(args) = command;
    run::block_on(
        log,
        "rbac",
        async move { report(&args).await.map_err(Failure::from) },
    )
}

async fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let client = kube::Client::try_default()
        .await
        .context("no cluster to ask; set KUBECONFIG to that of a running server")?;
    let format = match args.output {
        Output::Text => "text",
        Output::Json => "json",
        Output::Yaml => "yaml",
    };
    let user: String = args.user.bytes().map(|b| format!("%{b:02X}")).collect();
    let request = http::Request::get(format!("/debug/rbac?user={user}&format={format}")).body(Vec::new())?;
    let text = client
        .request_text(request)
        .await
        .context("the server has no records; it must be an embedded API server")?;
    say!("{}", text.trim_end());
    Ok(())
}
