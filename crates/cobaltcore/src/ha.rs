// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore ha`: high availability for people. The simulation itself lives in its own crate.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use cobaltcore_ha_simulation::{
    Batch, Day, Options, Run, Smallest, run_batch, run_day, run_scenario, run_seed, scenarios, smallest,
};

use crate::run::{self, Failure, LogArgs};

/// Look into high availability
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole HA plane in virtual time and check its promises
    ///
    /// Hosts, agents, replicas of the service, Nova, BMCs and networks are simulated from a seed,
    /// with faults; the engine is the one that runs in production. A seed that breaks a promise
    /// is printed and repeats exactly with `--seed N --trace`.
    Simulate(SimulateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// How many random worlds to run
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    base: u64,
    /// Choose the first one at random and say which it was
    #[arg(long, conflicts_with = "base")]
    random: bool,
    /// Run this one world
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "base", "random"])]
    seed: Option<u64>,
    /// Tell its story
    #[arg(long)]
    trace: bool,
    /// Leave out of that world whatever its broken promise does not need, and tell what is left, with its story
    #[arg(long, requires = "seed", conflicts_with_all = ["scenario", "day"])]
    minimise: bool,
    /// Run one row of the failure matrix, by name or number (`f24`); `all` for every one
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// List the rows of the failure matrix
    #[arg(long)]
    list: bool,
    /// Live one day of a whole fleet, with what befalls a fleet in a day; `--seed` chooses the day
    #[arg(long, conflicts_with_all = ["scenario", "list"])]
    day: bool,
    /// How many hosts the fleet has
    #[arg(long, value_name = "COUNT", default_value_t = 1000, requires = "day", value_parser = clap::value_parser!(u16).range(6..=5000))]
    hosts: u16,
    /// How many guests each of them has
    #[arg(long, value_name = "COUNT", default_value_t = 50, requires = "day", value_parser = clap::value_parser!(u16).range(1..=500))]
    guests_per_host: u16,
}

pub(crate) fn run(log: &LogArgs, command: Command) -> ExitCode {
    let Command::Simulate(args) = command;
    run::block_on(log, "ha", async move { simulate(args).map_err(Failure::from) })
}

fn simulate(args: SimulateArgs) -> anyhow::Result<()> {
    let SimulateArgs {
        seeds,
        base,
        random,
        seed,
        trace,
        minimise,
        scenario,
        list,
        day,
        hosts,
        guests_per_host,
    } = args;
    if list {
        for row in scenarios() {
            say!("{:<38} {}", row.name, row.outcome);
        }
        return Ok(());
    }
    let options = |seed| Options {
        trace,
        ..Options::new(seed)
    };
    if day {
        return one_day(&Day {
            options: options(seed.unwrap_or(1)),
            hosts: hosts.into(),
            guests_per_host: guests_per_host.into(),
            hours: 24,
        });
    }
    match (scenario.as_deref(), seed) {
        (Some("all"), seed) => {
            for row in scenarios() {
                if let Some(run) = run_scenario(row.name, options(seed.unwrap_or(7))) {
                    tell(row.name, &run)?;
                }
            }
            Ok(())
        }
        (Some(name), seed) => match run_scenario(name, options(seed.unwrap_or(7))) {
            Some(run) => tell(name, &run),
            None => bail!("there is no scenario {name:?}; --list shows them"),
        },
        (None, Some(seed)) if minimise => tell_smallest(&options(seed)),
        (None, Some(seed)) => tell(&format!("seed {seed}"), &run_seed(options(seed))),
        (None, None) => many(seeds, if random { chosen() } else { base }),
    }
}

fn one_day(day: &Day) -> anyhow::Result<()> {
    let (hosts, guests) = (day.hosts, day.hosts * day.guests_per_host);
    let began = std::time::Instant::now();
    let run = run_day(day, |hour| {
        eprintln!(
            "{hour:>2} of {} hours after {:.0} s",
            day.hours,
            began.elapsed().as_secs_f64()
        );
    });
    let name = format!("a day of {hosts} hosts and {guests} guests, seed {}", run.seed);
    tell(&name, &run)?;
    say!("{} events, {} steps of engines", run.events, run.steps);
    Ok(())
}

fn tell(name: &str, run: &Run) -> anyhow::Result<()> {
    for line in &run.trace {
        say!("{line}");
    }
    if let Some(violation) = &run.violation {
        bail!("{name} broke {violation}");
    }
    say!(
        "{name}: ok, {} guests moved, {} power-offs",
        run.recovered,
        run.fences
    );
    Ok(())
}

fn tell_smallest(options: &Options) -> anyhow::Result<()> {
    let seed = options.seed;
    let Some(found) = smallest(options) else {
        say!("seed {seed}: ok, there is nothing to make smaller");
        return Ok(());
    };
    let Smallest { needs, of, run } = found;
    say!(
        "{} of the {of} things that go wrong in this world are enough:",
        needs.len()
    );
    for what in needs {
        say!("  {what}");
    }
    say!();
    tell(&format!("seed {seed}, made smaller,"), &run)
}

fn many(count: u64, base: u64) -> anyhow::Result<()> {
    say!("{count} seeds from {base}");
    let terminal = std::io::stderr().is_terminal();
    let every = (count / 20).max(1);
    let report = run_batch(
        Batch {
            base,
            count,
            prepare: None,
        },
        |done| {
            if done % every == 0 {
                eprint!(
                    "{}{done} of {count}{}",
                    if terminal { "\r" } else { "" },
                    if terminal { "" } else { "\n" }
                );
            }
        },
    );
    if terminal {
        eprintln!();
    }
    if let Some(failure) = report.failure {
        let seed = failure.seed;
        bail!(
            "seed {seed} broke {}\n  its story: cobaltcore ha simulate --seed {seed} --trace\n  only what it takes: cobaltcore ha simulate --seed {seed} --minimise",
            failure.violation
        );
    }
    say!(
        "{} seeds, no promise broken: {} steps, {} guests moved, {} power-offs",
        report.seeds,
        report.steps,
        report.recovered,
        report.fences
    );
    let struck: Vec<String> = report
        .struck
        .iter()
        .map(|(what, times)| format!("{what} {times}"))
        .collect();
    say!("what went wrong or right again: {}", struck.join(", "));
    Ok(())
}

/// A base nobody chose, small enough to type.
fn chosen() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |t| t.as_nanos() as u64 % 1_000_000_000)
}
