// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore incidents`: what high availability is doing, and the decisions only people can take.
//! What is printed and how the service is asked lives in its own crate.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use cobaltcore_ha_engine::{Decision, HeldReason, IncidentState};
use cobaltcore_ha_people::{
    self as people, BulkFilter, BulkRequest, Desk, IncidentDetail, Refused, Service, Width,
};
use cobaltcore_kit::config::HumanDuration;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::run::{self, Failure, LogArgs};

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// See and decide about hosts that died
///
/// An incident is opened when a host is found dead. The HA service fences the host, moves its guests and keeps it
/// switched off; where it cannot be certain it holds, says why, and waits for a person. `list` shows what is open,
/// `show` tells the whole story of one and what happens next. An incident is named by its id or by its host.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// Which service to talk to.
#[derive(Debug, clap::Args)]
struct Place {
    /// The HA service
    #[arg(
        long,
        global = true,
        env = "KVM_HA_SERVICE_URL",
        default_value = "https://localhost:8443",
        value_name = "URL"
    )]
    url: String,
    /// A file with the token of a viewer or an operator
    #[arg(long, global = true, env = "KVM_HA_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities of the service's certificate [default: those of this machine]
    #[arg(long, global = true, env = "KVM_HA_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

#[derive(Debug, clap::Args)]
struct Form {
    /// How to print it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Print it again whenever it changes
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, clap::Args)]
struct Decided {
    /// The incident, or the host of its only open incident
    incident: String,
    /// Why; required, it is kept with the decision
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The name of the host, written out [default: asked for on a terminal]
    #[arg(long, value_name = "HOST")]
    confirm: Option<String>,
    #[command(flatten)]
    told: Told,
}

/// What is told once a decision is taken.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Told {
    /// How to print what came of it: a sentence, or everything
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show open incidents, newest first
    List {
        /// Also those that are over
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Tell the story of one: evidence, guests, every step, what happens next
    Show {
        /// The incident, or the host of its only open incident
        incident: String,
        #[command(flatten)]
        form: Form,
    },
    /// Sign that a host is off, when no device can tell
    ///
    /// Go and look first. Its guests are started elsewhere at once; if it still runs, they run twice and destroy
    /// their disks. Refused while anything shows that the host is alive.
    AckFenced(Decided),
    /// Go on in spite of what holds it: a storm, planned maintenance, maintenance somebody cleared
    Approve(Decided),
    /// Stop it, before its host is fenced or while it is held afterwards
    Abort(Decided),
    /// Try the guests that failed again
    Retry(Decided),
    /// Take a repaired host back: switch it on, wait until it works, return it to scheduling
    Release(Decided),
    /// End it without taking the host back
    Close(Decided),
    /// Have a host recovered that nobody calls dead: it hangs, or only its guests suffer
    ///
    /// The host is switched off first and its guests are started elsewhere, as if it had died. Refused while the host
    /// works: then `cobaltcore maintenance start` empties it without harm.
    Recover {
        /// The host
        host: String,
        /// Why; required, it is kept with the decision
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The name of the host once more [default: asked for on a terminal]
        #[arg(long, value_name = "HOST")]
        confirm: Option<String>,
        #[command(flatten)]
        told: Told,
    },
    /// Take one decision for many incidents, such as those of a rack without power
    ///
    /// Nothing is done before you say --commit: without it, every incident that fits is named, and whether the
    /// decision would be taken there. At least one of --zone, --bb, --held and --state says which are meant.
    Bulk {
        /// `ack-fenced`, `approve`, `abort`, `retry`, `release` or `close`
        #[arg(value_parser = word::<Decision>)]
        decision: Decision,
        /// Hosts of this zone
        #[arg(long, value_name = "NAME")]
        zone: Option<String>,
        /// Hosts of this building block
        #[arg(long, value_name = "NAME")]
        bb: Option<String>,
        /// Incidents that are held for this reason, as `list` shows it: FenceFailed, Storm
        #[arg(long, value_name = "REASON", value_parser = word::<HeldReason>)]
        held: Option<HeldReason>,
        /// Incidents in this state, as `list` shows it
        #[arg(long, value_name = "STATE", value_parser = word::<IncidentState>)]
        state: Option<IncidentState>,
        /// Why; required, it is kept with every decision
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Do it
        #[arg(long)]
        commit: bool,
        /// How to print it
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Tell why a host is judged as it is: what every signal says, and the rule that blocks
    Explain {
        /// The host
        host: String,
        #[command(flatten)]
        form: Form,
    },
    /// Stop new fencing and new evacuations for a while; what is under way is finished
    #[command(alias = "hold")]
    Pause {
        /// `global`, `zone/NAME`, `bb/NAME`, `host/NAME` or `vm/UUID`
        scope: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// For how long, a day at most
        #[arg(long = "for", value_name = "DURATION", default_value = "2h")]
        span: HumanDuration,
        #[command(flatten)]
        told: Told,
    },
    /// End a pause
    Unpause {
        /// The scope, as `pauses` shows it
        scope: String,
        #[command(flatten)]
        told: Told,
    },
    /// Show what is paused, until when and why
    Pauses {
        /// How to print it
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "incidents", async move {
        let Args { place, command } = args;
        let Place {
            url,
            token_file,
            ca_file,
        } = place;
        let desk = Desk::new(Service {
            url,
            token_file,
            ca_file,
        })
        .map_err(sentence)?;
        obey(&desk, command).await.map_err(Failure::from)
    })
}

/// The sentence is the whole answer.
fn sentence(refused: Refused) -> anyhow::Error {
    anyhow!(refused.to_string())
}

async fn obey(desk: &Desk, command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { all, form } => list(desk, all, &form).await,
        Command::Show { incident, form } => show(desk, &incident, &form).await,
        Command::AckFenced(decided) => decide(desk, Decision::AckFenced, decided).await,
        Command::Approve(decided) => decide(desk, Decision::Approve, decided).await,
        Command::Abort(decided) => decide(desk, Decision::Abort, decided).await,
        Command::Retry(decided) => decide(desk, Decision::Retry, decided).await,
        Command::Release(decided) => decide(desk, Decision::Release, decided).await,
        Command::Close(decided) => decide(desk, Decision::Close, decided).await,
        Command::Recover {
            host,
            reason,
            confirm,
            told,
        } => {
            let confirm = match confirm {
                Some(confirm) => confirm,
                None => {
                    typed(
                        &host,
                        &format!("Switch {host} off and start its guests elsewhere"),
                    )
                    .await?
                }
            };
            let opened = desk.recover(&host, &reason, &confirm).await.map_err(sentence)?;
            let what = format!("incident {} is open.", opened.summary.id);
            tell(told, &what, &opened)
        }
        Command::Bulk {
            decision,
            zone,
            bb,
            held,
            state,
            reason,
            commit,
            output,
        } => {
            let filter = BulkFilter {
                zone,
                bb,
                hold: held,
                state,
            };
            let wanted = BulkRequest {
                filter,
                action: decision,
                reason,
                commit,
            };
            let answer = desk.bulk(&wanted).await.map_err(sentence)?;
            let value = || serde_json::to_value(&answer).unwrap_or_default();
            let text = printed(output, value, |_| people::bulk(&answer))?;
            say!("{}", text.trim_end());
            Ok(())
        }
        Command::Explain { host, form } => explain(desk, &host, &form).await,
        Command::Pause {
            scope,
            reason,
            span,
            told,
        } => {
            let until = Timestamp::now().checked_add(span.0)?;
            let pause = desk.pause(&scope, &reason, until).await.map_err(sentence)?;
            let value = || serde_json::to_value(&pause).unwrap_or_default();
            let text = printed(told.output, value, |_| {
                format!("{scope} is paused for {span}; `cobaltcore incidents unpause {scope}` ends it")
            })?;
            say!("{}", text.trim_end());
            Ok(())
        }
        Command::Unpause { scope, told } => {
            desk.unpause(&scope).await.map_err(sentence)?;
            // For whoever reads it by program: what is paused still.
            let left = match told.output {
                Output::Json | Output::Yaml => desk.pauses().await.map_err(sentence)?,
                Output::Table | Output::Wide => Vec::new(),
            };
            let text = printed(
                told.output,
                || Desk::listed(&left),
                |_| format!("{scope} is no longer paused"),
            )?;
            say!("{}", text.trim_end());
            Ok(())
        }
        Command::Pauses { output } => {
            let found = desk.pauses().await.map_err(sentence)?;
            let text = printed(
                output,
                || Desk::listed(&found),
                |_| people::pauses(&found, Timestamp::now()),
            )?;
            say!("{}", text.trim_end());
            Ok(())
        }
    }
}

async fn list(desk: &Desk, all: bool, form: &Form) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    loop {
        let found = desk.incidents(all).await.map_err(sentence)?;
        let value = || Desk::listed(&found);
        let text = printed(form.output, value, |width| {
            people::table(&found, width, Timestamp::now())
        })?;
        // Ages grow by themselves; only a change of the incidents is worth a new page.
        shown.print(&serde_json::to_string(&found)?, &text, form.watch);
        if !form.watch {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn show(desk: &Desk, name: &str, form: &Form) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    loop {
        let found = desk.incident(name).await.map_err(sentence)?;
        let value = || serde_json::to_value(&found).unwrap_or_default();
        let text = printed(form.output, value, |width| {
            people::detail(&found, width, Timestamp::now())
        })?;
        shown.print(&serde_json::to_string(&found)?, &text, form.watch);
        if !form.watch || !found.summary.open {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn explain(desk: &Desk, host: &str, form: &Form) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    loop {
        let found = desk.evidence(host).await.map_err(sentence)?;
        let value = || serde_json::to_value(&found).unwrap_or_default();
        let text = printed(form.output, value, |_| people::explained(&found))?;
        // Ages grow by themselves; only another verdict is worth a new page.
        let verdicts: Vec<_> = found.signals.iter().map(|signal| signal.verdict).collect();
        let key = format!("{:?} {verdicts:?} {:?}", found.assessment, found.blocked_by);
        shown.print(&key, &text, form.watch);
        if !form.watch {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A word that the service knows.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| error.to_string())
}

fn printed(
    output: Output,
    value: impl FnOnce() -> Value,
    text: impl FnOnce(Width) -> String,
) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table => text(Width::Usual),
        Output::Wide => text(Width::Wide),
        Output::Json => serde_json::to_string_pretty(&value())?,
        Output::Yaml => cobaltcore_api::yaml::to_yaml(&value()),
    })
}

/// What was printed last.
#[derive(Default)]
struct Shown(String);

impl Shown {
    /// On a terminal a page is drawn over the one before; elsewhere pages follow each other.
    fn print(&mut self, key: &str, text: &str, watch: bool) {
        if self.0 == key {
            return;
        }
        if watch && std::io::stdout().is_terminal() {
            say!("\x1b[2J\x1b[H{}", text.trim_end());
        } else {
            say!("{}", text.trim_end());
        }
        key.clone_into(&mut self.0);
    }
}

async fn decide(desk: &Desk, decision: Decision, decided: Decided) -> anyhow::Result<()> {
    let Decided {
        incident,
        reason,
        confirm,
        told,
    } = decided;
    let confirm = match confirm {
        Some(confirm) => confirm,
        None => asked(desk, decision, &incident).await?,
    };
    let word = decision.as_str();
    let now = desk
        .decide(&incident, decision, &reason, &confirm)
        .await
        .map_err(sentence)?;
    tell(told, &format!("{word} is taken for {}.", now.summary.id), &now)
}

/// Tells what was decided: in a sentence with what happens next, or the incident as it is now.
fn tell(told: Told, what: &str, now: &IncidentDetail) -> anyhow::Result<()> {
    let value = || serde_json::to_value(now).unwrap_or_default();
    let text = printed(told.output, value, |width| match width {
        Width::Usual => format!("{what} {}", now.next),
        Width::Wide => format!("{what}\n\n{}", people::detail(now, width, Timestamp::now())),
    })?;
    say!("{}", text.trim_end());
    Ok(())
}

/// Asks the person in front of the terminal to write the host's name out.
async fn asked(desk: &Desk, decision: Decision, incident: &str) -> anyhow::Result<String> {
    let found = desk.incident(incident).await.map_err(sentence)?;
    let host = found.summary.host;
    let word = decision.as_str();
    let what = format!("{word} for incident {} of {host}", found.summary.id);
    typed(host.as_str(), &what).await
}

/// Has the name of a host written out by the person in front of the terminal.
async fn typed(host: &str, what: &str) -> anyhow::Result<String> {
    if !std::io::stdin().is_terminal() {
        return Err(anyhow!("Write the name of the host out with --confirm {host}"));
    }
    eprint!("{what}. Type the name of the host: ");
    let _ = std::io::stderr().flush();
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    })
    .await??;
    Ok(line.trim().to_owned())
}
