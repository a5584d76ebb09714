// SPDX-License-Identifier: Apache-2.0
//! Commands for people who look after a fleet: `hypervisors`, `evict`, `maintenance`, `onboard`.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use cobaltcore_operator::people::{self, Asked, Desk, Evict, Progress, Refused, Width, bar};
use serde_json::json;

use crate::run::{self, Failure, LogArgs};

const BAR: usize = 24;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which cluster to talk to.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// The kubeconfig to use [default: as kubectl does]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    async fn desk(&self) -> anyhow::Result<Desk> {
        Ok(Desk::new(crate::run::client(self.kubeconfig.as_deref()).await?))
    }
}

/// Show the fleet
///
/// One line per hypervisor: where it is in its life, whether servers are placed on it, and why not.
#[derive(Debug, Args)]
pub(crate) struct HypervisorsArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

/// Empty a host
///
/// Takes it out of scheduling and moves every server away, live where possible. The host stays out of scheduling
/// until the Eviction is deleted. For planned work on the host use `cobaltcore maintenance enter`.
#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The hypervisor, as `cobaltcore hypervisors` names it
    host: String,
    /// Why; shown in Nova and in the Eviction
    #[arg(long, default_value = "requested by hand", value_name = "TEXT")]
    reason: String,
    /// Servers moved at the same time [default: as the operator is configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=64))]
    parallel: Option<i64>,
    /// Show progress until it is over; fails if servers stay
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// Take hosts out of service for planned work, and return them
#[derive(Debug, Subcommand)]
pub(crate) enum MaintenanceCommand {
    /// Take a host out of scheduling and empty it
    Enter {
        /// The hypervisor
        host: String,
        /// Why; required, the next person on call will want to know
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Show progress until the host is empty; fails if servers stay
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Return a host to scheduling
    Leave {
        /// The hypervisor
        host: String,
        #[command(flatten)]
        cluster: Cluster,
    },
}

/// Start the onboarding of a host again
///
/// For a host whose onboarding was aborted, once the cause is repaired. `cobaltcore hypervisors -o wide` shows it.
#[derive(Debug, Args)]
pub(crate) struct OnboardArgs {
    /// The hypervisor
    host: String,
    /// Try again; hosts are onboarded by themselves the first time
    #[arg(long, required = true)]
    retry: bool,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn hypervisors(log: &LogArgs, args: HypervisorsArgs) -> ExitCode {
    run::block_on(log, "hypervisors", async move {
        show(args).await.map_err(Failure::from)
    })
}

async fn show(args: HypervisorsArgs) -> anyhow::Result<()> {
    let mut fleet = args.cluster.desk().await?.hypervisors().await.map_err(refusal)?;
    // As with kubectl: who wrote which field is most of an object and for programs only.
    for hypervisor in &mut fleet {
        hypervisor.metadata.managed_fields = None;
    }
    let list = || json!({"apiVersion": "v1", "kind": "List", "items": fleet});
    let text = match args.output {
        Output::Table => people::table(&fleet, Width::Usual, jiff::Timestamp::now()),
        Output::Wide => people::table(&fleet, Width::Wide, jiff::Timestamp::now()),
        Output::Json => serde_json::to_string_pretty(&list())?,
        Output::Yaml => cobaltcore_api::yaml::to_yaml(&list()),
    };
    say!("{}", text.trim_end());
    Ok(())
}

pub(crate) fn evict(log: &LogArgs, args: EvictArgs) -> ExitCode {
    run::block_on(log, "evict", async move {
        let EvictArgs {
            host,
            reason,
            parallel,
            wait,
            cluster,
        } = args;
        let desk = cluster.desk().await?;
        let how = Evict {
            reason,
            max_parallel: parallel,
        };
        let asked = people::evict(&desk, &host, &how).await.map_err(refusal)?;
        follow(&desk, asked, wait).await.map_err(Failure::from)
    })
}

pub(crate) fn maintenance(log: &LogArgs, command: MaintenanceCommand) -> ExitCode {
    run::block_on(log, "maintenance", async move {
        match command {
            MaintenanceCommand::Enter {
                host,
                reason,
                wait,
                cluster,
            } => {
                let desk = cluster.desk().await?;
                let asked = people::enter_maintenance(&desk, &host, &reason)
                    .await
                    .map_err(refusal)?;
                follow(&desk, asked, wait).await?;
            }
            MaintenanceCommand::Leave { host, cluster } => {
                let desk = cluster.desk().await?;
                let asked = people::leave_maintenance(&desk, &host).await.map_err(refusal)?;
                say!("{}", asked.note);
            }
        }
        Ok(())
    })
}

pub(crate) fn onboard(log: &LogArgs, args: OnboardArgs) -> ExitCode {
    run::block_on(log, "onboard", async move {
        let OnboardArgs {
            host,
            retry: _,
            cluster,
        } = args;
        let desk = cluster.desk().await?;
        let asked = people::retry_onboarding(&desk, &host).await.map_err(refusal)?;
        say!("{}", asked.note);
        Ok(())
    })
}

fn refusal(refused: Refused) -> anyhow::Error {
    match refused {
        // The sentence is the whole answer.
        Refused::No(text) => anyhow!(text),
        Refused::Failed(error) => anyhow::Error::from(error),
    }
}

/// Says what was done and, if wanted, follows the eviction to its end.
async fn follow(desk: &Desk, asked: Asked, wait: bool) -> anyhow::Result<()> {
    let Asked { eviction, note } = asked;
    say!("{note}");
    let Some(eviction) = eviction.filter(|_| wait) else {
        return Ok(());
    };
    let live = std::io::stderr().is_terminal();
    let (mut shown, mut seen) = (String::new(), false);
    loop {
        let progress = desk.progress(&eviction).await.map_err(refusal)?;
        let Some(progress) = progress else {
            if seen {
                bail!("Eviction {eviction} was deleted before it ended");
            }
            // The operator makes it in a moment.
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        seen = true;
        let line = if live {
            fit(bar(&progress, BAR), columns())
        } else {
            // In a log, how fast and how long is old news by the next line.
            let steady = Progress {
                bytes_per_second: 0,
                left: None,
                ..progress.clone()
            };
            bar(&steady, BAR)
        };
        draw(&line, &shown, live);
        if let Some((good, text)) = progress.end {
            if live {
                eprintln!();
            }
            return if good { Ok(()) } else { Err(anyhow!(text)) };
        }
        shown = line;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How many columns the terminal has.
fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col).max(20))
}

/// A line that is drawn over must not be broken into two.
fn fit(line: String, columns: usize) -> String {
    if line.chars().count() < columns {
        return line;
    }
    let kept: String = line.chars().take(columns.saturating_sub(2)).collect();
    format!("{kept}…")
}

/// On a terminal the line is drawn over; elsewhere a line is printed when it changes.
fn draw(line: &str, shown: &str, live: bool) {
    let mut out = std::io::stderr();
    let _ = if live {
        write!(out, "\r\x1b[K{line}").and_then(|()| out.flush())
    } else if line == shown {
        Ok(())
    } else {
        writeln!(out, "{line}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_line_never_reaches_the_edge() {
        assert_eq!(fit("12345".into(), 6), "12345");
        assert_eq!(fit("12345".into(), 5), "123…");
        for columns in 20..40 {
            assert!(fit("ä".repeat(60), columns).chars().count() < columns);
        }
    }
}
