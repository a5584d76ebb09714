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
    /// Measure the node agent: memory, CPU, calls, writes, and event to visible status
    ///
    /// Runs the agent as a process of its own between an embedded API and a scripted libvirt host, by the lean program
    /// `cobaltcore-agent` where that lies beside this one: idle with 50 guests, then with 10, 50 and 200 guests that change state once a second. Takes about five minutes.
    /// Nothing is asserted about time: the report says which goals are met.
    NodeAgent(NodeAgentArgs),
    /// Measure the hypervisor operator: fleets from their first Node to rest, and a drain
    ///
    /// Runs the operator as a process of its own between an embedded API and a simulated cloud. Nothing is asserted
    /// about time: the report shows each figure beside a baseline of the same run.
    Operator(OperatorArgs),
    /// Measure what a decision of the HA engine costs
    ///
    /// Fleets of 10, 100 and 1,000 hosts with fifty guests each, beside a plain walk over a map.
    HaEngine,
    /// Measure high availability: agent, service, and how fast guests of dead hosts are brought back
    ///
    /// Runs agent and service as processes of their own between simulated hosts, clouds and BMCs: what records and signs
    /// of life cost, memory, the time from the death of a host to the first evacuation in fleets of several sizes, and
    /// how soon a killed service goes on. Takes less than ten minutes, most of them waiting for hosts to be found dead.
    /// Nothing is asserted about time: the report shows each figure beside its goal.
    Ha(HaArgs),
    /// Measure the whole platform: `up` with 10, 100 and 1,000 hypervisors
    ///
    /// Runs `up` as a process of its own for each size: time to ready and to all Active, memory, CPU at rest, pages of
    /// the console, and how long a change takes to the browser. Nothing is asserted about time: the report shows the
    /// goals beside the figures. The largest fleet takes some minutes and a gigabyte.
    Up(UpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HaArgs {
    /// Fewer and shorter measurements, which show that the benchmark itself works
    #[arg(long)]
    quick: bool,
    /// Only these parts: spool, wire, agent, ingest, engine, fleet, resume; and full, two weeks of events in the
    /// database, which takes some minutes and six gigabytes more and is measured only if it is named
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = cobaltcore_ha_bench::PARTS)]
    only: Vec<String>,
    /// Hosts of the fleets, in growing order; each has fifty guests
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    sizes: Vec<usize>,
    /// Measure the roles of another build of this program
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Sizes of the fleets
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    sizes: Vec<usize>,
    /// Servers on each hypervisor
    #[arg(long, value_name = "N", default_value_t = 50)]
    vms_per_host: usize,
    /// How long to watch a fleet at rest, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    idle: u64,
    /// Measure another build of this program
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct NodeAgentArgs {
    /// A few seconds that show the benchmark itself works, instead of a few minutes
    #[arg(long)]
    quick: bool,
    /// Measure the agent of another build of this program
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// Sizes of the fleets
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    sizes: Vec<usize>,
    /// Leave the drain of forty servers out
    #[arg(long)]
    no_drain: bool,
    /// How long to watch a fleet at rest, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Measure the operator of another build of this program
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
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
    run::block_on(log, "bench", async move {
        match command {
            Command::Apiserver(args) => apiserver(args).await.map_err(Failure::from),
            Command::NodeAgent(args) => node_agent(args).await.map_err(Failure::from),
            Command::Operator(args) => operator(args).await.map_err(Failure::from),
            Command::Up(args) => up(args).await.map_err(Failure::from),
            Command::HaEngine => {
                let lines = cobaltcore_ha_simulation::bench::run();
                say!("{}", cobaltcore_ha_simulation::bench::to_text(&lines).trim_end());
                Ok(())
            }
            Command::Ha(args) => ha(args).await.map_err(Failure::from),
        }
    })
}

/// Prints a report as the table it makes of itself, or as data.
fn tell(
    report: &impl serde::Serialize,
    output: Output,
    table: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let text = match output {
        Output::Text => table(),
        output => print_data(report, output)?,
    };
    say!("{}", text.trim_end());
    Ok(())
}

async fn ha(args: HaArgs) -> anyhow::Result<()> {
    let HaArgs {
        quick,
        only,
        sizes,
        program,
        output,
    } = args;
    let options = cobaltcore_ha_bench::Options {
        program: this_program(program.clone())?,
        agent: agent_program(program)?,
        quick,
        only,
        sizes,
        progress: |text| eprintln!("{text}"),
    };
    let report = cobaltcore_ha_bench::run(options).await?;
    tell(&report, output, || report.to_text())
}

async fn up(args: UpArgs) -> anyhow::Result<()> {
    let UpArgs {
        sizes,
        vms_per_host,
        idle,
        program,
        output,
    } = args;
    let report = crate::up::bench::run(crate::up::bench::Options {
        program: this_program(program)?,
        sizes,
        vms_per_host,
        idle: std::time::Duration::from_secs(idle),
    })
    .await?;
    tell(&report, output, || report.to_text())
}

async fn node_agent(args: NodeAgentArgs) -> anyhow::Result<()> {
    let NodeAgentArgs {
        quick,
        program,
        output,
    } = args;
    let options = cobaltcore_node_agent_bench::Options {
        program: agent_program(program)?,
        quick,
        progress: |text| eprintln!("{text}"),
    };
    let report = cobaltcore_node_agent_bench::run(options).await?;
    tell(&report, output, || report.to_text())
}

async fn operator(args: OperatorArgs) -> anyhow::Result<()> {
    let OperatorArgs {
        sizes,
        no_drain,
        idle,
        program,
        output,
    } = args;
    let options = cobaltcore_operator_bench::Options {
        program: this_program(program)?,
        sizes,
        drain: !no_drain,
        idle_seconds: idle,
        progress: |text| eprintln!("{text}"),
    };
    let report = cobaltcore_operator_bench::run(options).await?;
    tell(&report, output, || report.to_text())
}

/// The program whose agents are measured: another build, the lean one beside this program, or this one.
fn agent_program(given: Option<std::path::PathBuf>) -> anyhow::Result<std::path::PathBuf> {
    if let Some(program) = given {
        return Ok(program);
    }
    let program = this_program(None)?;
    let lean = program.with_file_name("cobaltcore-agent");
    Ok(if lean.is_file() { lean } else { program })
}

/// The program to measure: another build, or this one.
fn this_program(given: Option<std::path::PathBuf>) -> anyhow::Result<std::path::PathBuf> {
    match given {
        Some(program) => Ok(program),
        None => std::env::current_exe().context("cannot find this program to start it"),
    }
}

async fn apiserver(args: ApiserverArgs) -> anyhow::Result<()> {
    let ApiserverArgs {
        quick,
        no_reference,
        only,
        program,
        output,
    } = args;
    let program = this_program(program)?;
    let options = Options {
        program,
        quick,
        no_reference,
        only,
        progress: |text| eprintln!("{text}"),
    };
    let report = cobaltcore_apiserver_bench::run(options).await?;
    say!("{}", print(&report, output)?.trim_end());
    anyhow::ensure!(
        report.failed.is_empty(),
        "not everything could be measured: {}",
        report.failed.join("; ")
    );
    Ok(())
}

fn print(report: &Report, output: Output) -> anyhow::Result<String> {
    match output {
        Output::Text => Ok(report.to_text()),
        output => print_data(report, output),
    }
}

fn print_data(report: &impl serde::Serialize, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Yaml => cobaltcore_api::yaml::to_yaml(&serde_json::to_value(report)?),
        Output::Text | Output::Json => serde_json::to_string_pretty(report)? + "\n",
    })
}
