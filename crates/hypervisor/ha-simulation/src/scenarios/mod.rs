// SPDX-License-Identifier: Apache-2.0
//! Every row of the failure matrix as a world with one story and a required outcome. The promises
//! of the plane are checked in each of them as well.

mod acceptance;
mod beyond;
mod matrix;

use std::collections::BTreeSet;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    CapacityCheck, Config, Decision, Degraded, Entry, FenceLevel, Grade, Group, HeldReason, IncidentState,
    Input, Notice, Observation, SkipReason, VmProgress,
};

use crate::invariants::Invariant;
use crate::world::{Event, Options, Run, World};
use acceptance::ACCEPTANCE;
use beyond::BEYOND;
use matrix::MATRIX;

/// A row of the failure matrix.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name: the number of the row and what happens.
    pub name: &'static str,
    /// What must come of it.
    pub outcome: &'static str,
    guests: usize,
    setup: fn(&mut World),
    /// Virtual seconds.
    until: u64,
    check: fn(&World) -> Result<(), String>,
}

/// When the fault strikes, in milliseconds.
const T: u64 = 120_000;

/// All rows.
pub fn scenarios() -> Vec<Scenario> {
    MATRIX.iter().chain(BEYOND).copied().collect()
}

/// Scenarios of acceptance that need a zone of twelve hosts in three racks, and hours.
pub fn acceptance() -> Vec<Scenario> {
    ACCEPTANCE.to_vec()
}

/// Runs one row. Nothing if there is no such row.
pub fn run_scenario(name: &str, options: Options) -> Option<Run> {
    let row = MATRIX
        .iter()
        .chain(BEYOND)
        .chain(ACCEPTANCE)
        .find(|row| row.name == name || row.name.split('-').next() == Some(name))?;
    let mut config = Config::default();
    if ["f11", "f03", "p32"]
        .iter()
        .any(|name| row.name.starts_with(name))
    {
        config.storage_watched = true;
    }
    if ["p31", "p69"].iter().any(|name| row.name.starts_with(name)) {
        config.fence_levels.push(FenceLevel {
            name: "exec".to_owned(),
            grade: Grade::Power,
        });
    }
    if ["p91", "p96"].iter().any(|name| row.name.starts_with(name)) {
        config.required_grade = Grade::SelfFence;
        config.fence_levels = vec![FenceLevel {
            name: "watchdog-lease".to_owned(),
            grade: Grade::SelfFence,
        }];
    }
    if row.name.starts_with("p96") {
        // As in a fleet of hundreds, where three hosts are few.
        (config.fresh_percent, config.storm_percent) = (50, 50);
        (config.max_domain_hosts, config.domain_percent) = (4, 100);
    }
    if row.name.starts_with("p3") {
        config.capacity = CapacityCheck::Hold;
    }
    if row.name.starts_with("p51") {
        config.auto_release = Some(std::time::Duration::from_mins(5));
    }
    if ["p5-", "p57", "p58"]
        .iter()
        .any(|name| row.name.starts_with(name))
    {
        config.spares = ["n10", "n11"]
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
    }
    let mut world = World::new(options, 12, 3, row.guests, config);
    world.schedule(30_000, Event::Operator);
    world.run_until(100_000);
    (row.setup)(&mut world);
    world.run_until(row.until * 1000);
    // A row in which nothing happens shows nothing.
    let struck = || ensure(!world.struck.is_empty(), "nothing went wrong");
    if world.violation.is_none()
        && let Err(what) = struck().and_then(|()| (row.check)(&world))
    {
        world.violate(Invariant::Outcome, what);
    }
    Some(world.into_run())
}

const fn row(
    name: &'static str,
    outcome: &'static str,
    guests: usize,
    setup: fn(&mut World),
    until: u64,
    check: fn(&World) -> Result<(), String>,
) -> Scenario {
    Scenario {
        name,
        outcome,
        guests,
        setup,
        until,
        check,
    }
}

// --- what a person would look at afterwards

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn nothing(w: &World) -> Result<(), String> {
    ensure(w.power_offs.is_empty(), "a host was switched off")?;
    ensure(w.evacuations.is_empty(), "a guest was moved")
}

fn told(w: &World, wanted: impl Fn(&Notice) -> bool, what: &str) -> Result<(), String> {
    ensure(
        w.notices.iter().any(|(_, notice)| wanted(notice)),
        &format!("nobody was told: {what}"),
    )
}

fn held(w: &World, wanted: HeldReason) -> Result<(), String> {
    told(
        w,
        |n| matches!(n, Notice::Held { reason, .. } if *reason == wanted),
        &format!("held for {wanted:?}"),
    )
}

/// Every guest that was on the host runs elsewhere.
fn recovered(w: &World, h: usize) -> Result<(), String> {
    let per_host = w.servers.len() / w.hosts.len();
    for n in h * per_host..(h + 1) * per_host {
        let server = &w.servers[n];
        let movable = !server.deleted && !server.local_disk && !server.excluded && !server.unsupported;
        if movable && (server.host == h || (server.owner_wants_it && server.runs_on.is_empty())) {
            return Err(format!("guest {n} is still down"));
        }
    }
    Ok(())
}

fn fast(w: &World, h: usize, within_s: u64) -> Result<(), String> {
    let first = w
        .first_evacuate
        .get(&h)
        .copied()
        .ok_or("no guest was asked for")?;
    ensure(
        first - T <= within_s * 1000,
        &format!("the first request came after {} ms", first - T),
    )
}

fn state(w: &World, h: usize, wanted: IncidentState) -> Result<(), String> {
    let ledger = w.ledger();
    let found = ledger
        .incidents
        .values()
        .rfind(|i| i.id.host == w.hosts[h].name)
        .map(|i| i.state);
    ensure(
        found == Some(wanted),
        &format!("the incident is {found:?}, not {wanted:?}"),
    )
}

fn progress(w: &World, n: usize) -> Option<VmProgress> {
    let ledger = w.ledger();
    ledger
        .incidents
        .values()
        .find_map(|i| i.vms.get(&w.servers[n].id).map(|vm| vm.progress.clone()))
}

fn not_before(w: &World, seconds: u64) -> Result<(), String> {
    let first = w.evacuations.first().map_or(u64::MAX, |(at, _)| *at);
    ensure(
        first >= seconds * 1000,
        &format!("the first request came at {first} ms"),
    )
}

fn degraded(w: &World, wanted: Degraded) -> Result<(), String> {
    nothing(w)?;
    told(
        w,
        |n| matches!(n, Notice::HostDegraded { what, .. } if *what == wanted),
        "degraded",
    )
}

/// What people decided.
fn decisions(w: &World) -> Vec<Decision> {
    let decided = w.journal.iter().filter_map(|record| match &record.entry {
        Entry::Decided { decision, .. } => Some(*decision),
        _ => None,
    });
    decided.collect()
}

/// The term in which the first record of this kind was written.
fn term_of(w: &World, wanted: fn(&Entry) -> bool) -> Option<u64> {
    let mut found = w.journal.iter().filter(|record| wanted(&record.entry));
    found.next().map(|record| record.epoch.0)
}

/// The leader learns which host it runs on.
fn runs_on(w: &mut World, h: usize) {
    let r = leader(w);
    let (incarnation, host) = (w.replicas[r].incarnation, w.hosts[h].name.clone());
    w.deliver(r, incarnation, Input::Saw(Observation::OwnHost(host)));
}

fn leader(w: &World) -> usize {
    w.leader().unwrap_or(0)
}

fn no_incident(w: &World) -> Result<(), String> {
    let ledger = w.ledger();
    let named = ledger.incidents.keys().map(ToString::to_string);
    let found = named.collect::<Vec<_>>();
    ensure(found.is_empty(), &format!("incidents: {found:?}"))
}

/// Whether the group was told not to be believed.
fn untrusted(w: &World, wanted: Group) -> Result<(), String> {
    let is = |n: &Notice| matches!(n, Notice::GroupUntrusted { group, untrusted: true } if *group == wanted);
    told(w, is, &format!("{wanted:?} untrusted"))
}

fn not_degraded(w: &World) -> Result<(), String> {
    let degraded = |(_, n): &(u64, Notice)| matches!(n, Notice::HostDegraded { .. });
    ensure(!w.notices.iter().any(degraded), "a host is blamed")
}

/// When each record of a kind was written.
fn written(w: &World, wanted: fn(&Entry) -> bool) -> Vec<u64> {
    let records = w.journal.iter().zip(&w.written_at);
    let found = records.filter(|(record, _)| wanted(&record.entry));
    found.map(|(_, at)| *at).collect()
}

/// When people were first told that an incident is held for this.
fn held_at(w: &World, wanted: HeldReason) -> Result<u64, String> {
    let is = |n: &Notice| matches!(n, Notice::Held { reason, .. } if *reason == wanted);
    let found = w.notices.iter().find(|(_, n)| is(n)).map(|(at, _)| *at);
    found.ok_or_else(|| format!("nobody was told: held for {wanted:?}"))
}

/// Nobody is asked for within a span of time, in milliseconds.
fn none_asked_for(w: &World, from: u64, until: u64) -> Result<(), String> {
    let asked = w.evacuations.iter().any(|(at, _)| *at > from && *at < until);
    ensure(!asked, "a guest was asked for meanwhile")
}

/// The host is off and kept off, with its maintenance in our hands.
fn kept(w: &World, h: usize) -> Result<(), String> {
    let host = &w.hosts[h];
    ensure(!host.power && host.tainted, "it is not kept off")
}

fn is_skipped(w: &World, n: usize, wanted: SkipReason) -> Result<(), String> {
    let found = progress(w, n);
    let skipped = Some(VmProgress::Skipped { reason: wanted });
    ensure(found == skipped, &format!("guest {n} is {found:?}"))
}

/// Every guest was asked for once.
fn once_each(w: &World, guests: usize) -> Result<(), String> {
    let asked: BTreeSet<usize> = w.evacuations.iter().map(|(_, n)| *n).collect();
    let times = (asked.len(), w.evacuations.len());
    ensure(
        times == (guests, guests),
        &format!("guests and requests: {times:?}"),
    )
}

/// Maintenance and compute services are as they were.
fn untouched(w: &World) -> Result<(), String> {
    let touched = |host: &&crate::hosts::Host| {
        host.maintenance != Maintenance::Off || host.disabled || host.forced_down || host.disabled_condition
    };
    match w.hosts.iter().find(touched) {
        Some(host) => Err(format!("{} was touched", host.name)),
        None => Ok(()),
    }
}

/// Whoever died, somebody led twenty seconds later.
fn succession(w: &World) -> Result<(), String> {
    let led = written(w, |e| matches!(e, Entry::Led));
    let Some(died) = w.leader_died else {
        // Its number of records was never reached.
        return Ok(());
    };
    let next = led.into_iter().find(|at| *at > died).ok_or("nobody led again")?;
    ensure(
        next <= died + 20_000,
        &format!("somebody led {} ms later", next - died),
    )
}

/// When a guest was first asked for.
fn asked_at(w: &World, n: usize) -> Result<u64, String> {
    let found = w.evacuations.iter().find(|(_, guest)| *guest == n);
    found
        .map(|(at, _)| *at)
        .ok_or_else(|| format!("guest {n} was not asked for"))
}

/// When a guest was back.
fn back_at(w: &World, n: usize) -> Result<u64, String> {
    let id = &w.servers[n].id;
    let mut records = w.journal.iter().zip(&w.written_at);
    let back = |entry: &Entry| matches!(entry, Entry::Vm { server, progress: VmProgress::Recovered { .. }, .. } if server == id);
    let found = records.find(|(record, _)| back(&record.entry));
    found
        .map(|(_, at)| *at)
        .ok_or_else(|| format!("guest {n} did not come back"))
}

/// Two guests of a group, and two of another whose best is less important.
fn in_two_groups(w: &mut World, first: usize) {
    let wishes = [("db", 900), ("db", 100), ("web", 500), ("web", 500)];
    for (n, (group, priority)) in (first..).zip(wishes) {
        group.clone_into(&mut w.servers[n].group);
        w.servers[n].priority = priority;
    }
}

fn planned(entry: &Entry) -> bool {
    matches!(entry, Entry::Planned { .. })
}

fn asked_for(entry: &Entry) -> bool {
    matches!(entry, Entry::EvacuateIntended { .. })
}

fn fence_begun(entry: &Entry) -> bool {
    matches!(entry, Entry::FenceIntended { .. })
}

fn fence_lost(entry: &Entry) -> bool {
    matches!(entry, Entry::FenceLost { .. })
}

/// The hosts whose incidents were ever held for this.
fn held_hosts(w: &World, wanted: HeldReason) -> BTreeSet<String> {
    let of = |notice: &Notice| match notice {
        Notice::Held { incident, reason } if *reason == wanted => Some(incident.host.to_string()),
        _ => None,
    };
    w.notices.iter().filter_map(|(_, notice)| of(notice)).collect()
}
