// SPDX-License-Identifier: Apache-2.0
//! What judging costs: one round over all hosts, measured in the engine alone; and how long the worlds take that are
//! simulated with every change.

use std::time::Instant;

use cobaltcore_ha_simulation::{Batch, Day, bench, run_batch, run_day};

use crate::Row;

/// Worlds that are simulated with every change.
const SEEDS: u64 = 500;

/// Simulated worlds, on all cores.
fn simulated(quick: bool) -> Row {
    let count = if quick { SEEDS / 10 } else { SEEDS };
    let began = Instant::now();
    let report = run_batch(
        Batch {
            base: 0,
            count,
            prepare: None,
        },
        |_| {},
    );
    let seconds = began.elapsed().as_secs_f64();
    let what = format!("simulation: {SEEDS} seeds");
    let scaled = seconds * SEEDS as f64 / report.seeds.max(1) as f64;
    Row::new(what, scaled, "s").at_most(120.0, 120.0)
}

/// Seconds of one core that a simulated day of so many hosts takes.
fn day(hosts: usize, quick: bool) -> f64 {
    let hours = if quick { 1 } else { 24 };
    let began = core_seconds();
    run_day(
        &Day {
            hours,
            ..Day::new(1, hosts)
        },
        |_| {},
    );
    (core_seconds() - began) * 24.0 / hours as f64
}

/// What this thread has had of a core, whoever else is on the machine.
fn core_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

fn days(quick: bool) -> Row {
    let points: Vec<(usize, f64)> = [10, 100, 1000].map(|hosts| (hosts, day(hosts, quick))).to_vec();
    let largest = points.last().map_or(0.0, |(_, seconds)| *seconds);
    Row::new(
        "simulation: one day of 1000 hosts and 50000 guests, on one core",
        largest,
        "s",
    )
    .at_most(60.0, 120.0)
    .grown("hosts", points)
}

pub(crate) fn measure(quick: bool) -> Vec<Row> {
    let lines = bench::run();
    let Some(largest) = lines.last() else {
        return Vec::new();
    };
    let points =
        |figure: &dyn Fn(&bench::Line) -> f64| lines.iter().map(|line| (line.hosts, figure(line))).collect();
    let title = |what: &str| format!("engine, {} hosts: {what}", largest.hosts);
    let round = |line: &bench::Line| line.round_us / 1000.0;
    vec![
        Row::new(title("judging all of them, one round"), round(largest), "ms")
            .at_most(5.0, 20.0)
            .beside("touching a map entry of each", largest.baseline_us / 1000.0)
            .grown("hosts", points(&round)),
        Row::new(title("one heartbeat"), largest.heartbeat_ns / 1000.0, "µs")
            .grown("hosts", points(&|line| line.heartbeat_ns / 1000.0)),
        Row::new(title("one inventory of 50 guests"), largest.inventory_us, "µs")
            .grown("hosts", points(&|line| line.inventory_us)),
        simulated(quick),
        days(quick),
    ]
}
