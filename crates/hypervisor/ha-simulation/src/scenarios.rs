// SPDX-License-Identifier: Apache-2.0
//! Every row of the failure matrix as a world with one story and a required outcome. The promises
//! of the plane are checked in each of them as well.

use std::collections::BTreeSet;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Assessment, BlockedReason, CapacityCheck, Config, Decision, Degraded, Entry, FailedReason, FenceLevel,
    Grade, Group, GuestEventKind, HeldReason, IncidentKind, IncidentState, Input, Notice, Observation,
    SkipReason, Verdict, VmPolicy, VmProgress, VmState,
};

use crate::cloud::Migration;
use crate::faults::Fault;
use crate::invariants::Invariant;
use crate::journal::Moment;
use crate::world::{Event, Options, Run, World};

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
    ROWS.to_vec()
}

/// Scenarios of acceptance that need a zone of twelve hosts in three racks, and hours.
pub fn acceptance() -> Vec<Scenario> {
    ACCEPTANCE.to_vec()
}

/// Runs one row. Nothing if there is no such row.
pub fn run_scenario(name: &str, options: Options) -> Option<Run> {
    let row = ROWS
        .iter()
        .chain(ACCEPTANCE)
        .find(|row| row.name == name || row.name.split('-').next() == Some(name))?;
    let mut config = Config::default();
    if ["f11", "f03", "p32"]
        .iter()
        .any(|name| row.name.starts_with(name))
    {
        config.storage_watched = true;
    }
    if row.name.starts_with("p31") {
        config.fence_levels.push(FenceLevel {
            name: "exec".to_owned(),
            grade: Grade::Power,
        });
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

#[rustfmt::skip]
const ACCEPTANCE: &[Scenario] = &[
    row("a05-agent-stopped-for-an-hour", "told; no incident", 2,
        |w| w.at(T, Fault::Agent(0, false)), 3800,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("a06-all-services-stale", "their group is not believed; no incident", 2,
        |w| { w.at(T, Fault::Rabbit(false)); w.at(T + 600_000, Fault::Rabbit(true)); }, 900,
        |w| { nothing(w)?; no_incident(w)?;
              told(w, |n| matches!(n, Notice::GroupUntrusted { group: Group::N, untrusted: true }), "N untrusted") }),
    row("a07-no-fence-no-move", "held for a day; moved after a person signed", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0)); w.at(86_400_000 + T, Fault::OnDuty); }, 88_000,
        |w| { held(w, HeldReason::FenceFailed)?; not_before(w, 86_400 + T / 1000)?; recovered(w, 0) }),
    row("a08-two-of-different-racks", "both recovered", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Panic(1)); }, 900,
        |w| { recovered(w, 0)?; recovered(w, 1)?;
              ensure(held_hosts(w, HeldReason::Storm).is_empty(), "held for a storm") }),
    row("a08-two-of-one-rack", "the second is held", 2,
        // Nova takes the other for well for a minute; no guest is to be sent there.
        |w| for h in [0, 3] { w.hosts[h].disabled = true; w.at(T, Fault::Panic(h)); }, 3000,
        |w| { let moved = [0, 3].into_iter().filter(|h| recovered(w, *h).is_ok()).count();
              ensure(moved == 1, &format!("{moved} of them were recovered"))?;
              ensure(held_hosts(w, HeldReason::DomainLimit).len() == 1, "not one of them is held") }),
    row("a08-three-hosts", "all held for as long as it lasts; recovered once approved", 2,
        |w| { for h in 0..3 { w.at(T, Fault::Panic(h)); } w.at(3_600_000, Fault::OnDuty); }, 5400,
        |w| { ensure(held_hosts(w, HeldReason::Storm).len() == 3, "not all are held")?;
              not_before(w, 3600)?; for h in 0..3 { recovered(w, h)?; } Ok(()) }),
    row("a10-manual-maintenance", "held; Nova is not touched", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { nothing(w)?; held(w, HeldReason::PlannedMaintenance)?;
              ensure(!w.hosts[0].disabled && !w.hosts[0].forced_down, "Nova was told")?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual, "its maintenance was changed") }),
    row("a11-dies-while-it-is-emptied", "taken over after ten minutes", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Auto)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { not_before(w, 715)?; recovered(w, 0)?; ensure(w.evacuations.len() == 2, "not two requests")?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "it is not claimed") }),
];

#[rustfmt::skip]
const ROWS: &[Scenario] = &[
    row("f01-power-loss", "proof; no power command; held; moved within 45 s", 2,
        |w| w.at(T, Fault::PowerLoss(0)), 400,
        |w| { ensure(w.power_offs.is_empty(), "an off host was switched off")?; fast(w, 0, 45)?; recovered(w, 0)?; once_each(w, 2)?;
              kept(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("f02-kernel-panic", "switched off, verified, moved within 75 s", 2,
        |w| w.at(T, Fault::Panic(0)), 400,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; fast(w, 0, 75)?; recovered(w, 0)?; once_each(w, 2)?; kept(w, 0) }),
    row("f03-user-space-hangs", "hung, told, held: its storage is alive", 2,
        |w| w.at(T, Fault::Hang(0)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::Hung { .. }), "hung") }),
    row("f04-host-and-bmc-dead", "held until a person says it is off", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::PowerLoss(0)); w.at(3_600_000, Fault::OnDuty); }, 4000,
        |w| { let (told, opened) = (held_at(w, HeldReason::FenceFailed)?, written(w, |e| matches!(e, Entry::Opened { .. })));
              ensure(told <= opened[0] + 60_000, &format!("told {} ms after it was opened", told - opened[0]))?;
              not_before(w, 3600)?; recovered(w, 0)?; ensure(decisions(w) == [Decision::AckFenced], "not by one signature") }),
    row("f05-agent-killed", "told; nothing", 2,
        |w| w.at(T, Fault::Agent(0, false)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("f06-agent-rollout", "the group is not believed; nothing", 2,
        |w| for h in 0..12 { w.at(T + 2000 * h as u64, Fault::Agent(h, false)); w.at(T + 40_000 + 2000 * h as u64, Fault::Agent(h, true)); }, 500,
        |w| { nothing(w)?; no_incident(w)?; untrusted(w, Group::A) }),
    row("f07-libvirt-dead", "degraded; never moved", 2,
        |w| w.at(T, Fault::Libvirt(0, false)), 700,
        |w| { no_incident(w)?; degraded(w, Degraded::LibvirtUnreachable) }),
    row("f08-nova-compute-dead", "degraded after 15 min; nothing else", 2,
        |w| w.at(T, Fault::Compute(0, false)), 1300,
        |w| { no_incident(w)?; told(w, |n| matches!(n, Notice::ServiceGone { .. }), "gone")?; degraded(w, Degraded::NovaServiceDown) }),
    row("f09-kubelet-dead", "nothing", 2, |w| w.at(T, Fault::Kubelet(0, false)), 600, |w| { nothing(w)?; no_incident(w) }),
    row("f10-agent-and-compute-dead", "nothing: the host answers", 2,
        |w| { w.at(T, Fault::Agent(0, false)); w.at(T, Fault::Compute(0, false)); }, 600,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::AgentSilent { .. }), "agent silent") }),
    row("f11-management-network-cut", "isolated; held: its storage is alive", 2,
        |w| w.at(T, Fault::Mgmt(0, false)), 900,
        |w| { nothing(w)?; no_incident(w)?; told(w, |n| matches!(n, Notice::Isolated { .. }), "isolated") }),
    row("f12-storage-network-cut", "degraded; not down", 4,
        |w| for n in 0..4 { w.at(T + n as u64, Fault::Guest(0, n, GuestEventKind::IoError)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::IoErrorStorm) }),
    row("f13-storage-outage", "an outage of the storage; nothing anywhere", 4,
        |w| for n in 0..48 { w.at(T + n as u64, Fault::Guest(n / 4, n, GuestEventKind::IoError)); }, 400,
        |w| { nothing(w)?; no_incident(w)?; not_degraded(w)?; told(w, |n| matches!(n, Notice::StorageOutage { .. }), "storage outage") }),
    row("f14-leader-crashes-at-a-step", "its successor finishes; no request twice", 2,
        // Unless somebody said at which.
        |w| { let when = [Moment::Decided, Moment::Written, Moment::Done, Moment::Told][(w.options.seed / 24 % 4) as usize];
              let somewhere = Some((2 + w.options.seed % 24, when));
              w.crash_at_record = somewhere.filter(|_| w.options.crash.is_none()); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; kept(w, 0)?; succession(w) }),
    row("f15-host-of-the-leader", "another replica leads and recovers it", 2,
        |w| { w.at(T, Fault::CrashLeader); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "nobody else led") }),
    row("f16-all-replicas-cut-off", "they know that it is themselves: told, nothing, nobody claimed or blamed; over when they hear again", 2,
        |w| { for r in 0..3 { w.at(T, Fault::ReplicaHosts(r, false)); w.at(600_000, Fault::ReplicaHosts(r, true)); }
              w.at(T + 60_000, Fault::CrashLeader); }, 900,
        |w| { nothing(w)?; untouched(w)?; not_degraded(w)?;
              let isolated = |wanted: bool| w.notices.iter().filter(|(_, n)| matches!(n, Notice::SelfIsolated { active } if *active == wanted))
                  .map(|(at, _)| *at).collect::<Vec<_>>();
              let (began, ended) = (isolated(true), isolated(false));
              ensure(began.first().is_some_and(|at| *at <= T + 60_000), &format!("told at {began:?}"))?;
              ensure(ended.last().is_some_and(|at| *at > 600_000 && *at <= 660_000), &format!("over at {ended:?}"))?;
              let waits = |i: &cobaltcore_ha_engine::Incident| i.state == IncidentState::Confirmed;
              ensure(!w.ledger().incidents.values().any(waits), "a host is still taken for dead") }),
    row("f17-leader-alone-cut-off", "others lead and recover", 2,
        |w| { let r = leader(w); w.at(T, Fault::ReplicaHosts(r, false)); w.at(T, Fault::ReplicaKubernetes(r, false));
              w.at(T, Fault::ReplicaPeers(r, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "nobody else led") }),
    row("f18-kubernetes-down", "no new step; resumed later", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 5000, Fault::Kubernetes(false)); w.at(400_000, Fault::Kubernetes(true)); }, 900,
        |w| { not_before(w, 400)?; recovered(w, 0) }),
    row("f19-nova-down", "stays fenced, held, retried", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 5000, Fault::Nova(false)); w.at(400_000, Fault::Nova(true)); }, 900,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0)?; kept(w, 0)?; not_before(w, 400)?;
              let alarms = w.notices.iter().filter(|(_, n)| matches!(n, Notice::Held { .. })).count();
              ensure(alarms <= 3, &format!("told {alarms} times")) }),
    row("f20-message-queue-down", "the group is not believed; nothing", 2,
        |w| { w.at(T, Fault::Rabbit(false)); w.at(700_000, Fault::Rabbit(true)); }, 900,
        |w| { nothing(w)?; no_incident(w)?; untrusted(w, Group::N) }),
    row("f21-credentials-refused", "held, then continues", 2,
        |w| { w.at(T, Fault::NovaRefusesService(true)); w.at(T, Fault::Panic(0)); w.at(300_000, Fault::NovaRefusesService(false)); }, 700,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0) }),
    row("f22-rack-without-power", "held; a person vouches; all recovered, three at a time", 2,
        |w| { for h in [0, 3, 6, 9] { w.at(T, Fault::Bmc(h, false)); w.at(T, Fault::PowerLoss(h)); } w.at(600_000, Fault::OnDuty); }, 2400,
        |w| { not_before(w, 600)?; for h in [0, 3, 6, 9] { recovered(w, h)?; }
              let decided = decisions(w);
              ensure(decided == [Decision::AckFenced; 4], &format!("not one signature each: {decided:?}")) }),
    row("f23-half-the-zone-unreachable", "nothing", 2,
        |w| { w.at(T, Fault::Uplink(0, false)); w.at(T, Fault::Uplink(1, false)); }, 900,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::SelfIsolated { active: true } | Notice::Held { reason: HeldReason::Storm, .. }), "held") }),
    row("f24-fenced-host-switched-on", "noticed, fenced again, continued", 20,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T + 29_000, Fault::PowerOn(0)); }, 900,
        |w| { held(w, HeldReason::FenceLost)?; ensure(!w.power_offs.is_empty(), "not fenced again")?; recovered(w, 0)?; kept(w, 0)?;
              let (lost, fenced) = (written(w, fence_lost)[0], written(w, |e| matches!(e, Entry::Fenced { .. })));
              ensure(lost <= w.hosts[0].power_since + 10_000, &format!("noticed after {} ms", lost - w.hosts[0].power_since))?;
              none_asked_for(w, lost, fenced.into_iter().find(|at| *at > lost).unwrap_or(u64::MAX)) }),
    row("f25-bmc-says-off-but-host-lives", "contradiction; never moved", 2,
        |w| { w.at(T, Fault::BmcLies(0, true)); w.at(T, Fault::Agent(0, false)); }, 600,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::Inconclusive { assessment: Assessment::Contradicted, .. }), "contradicted") }),
    row("f26-back-before-the-fence", "cancelled", 2,
        |w| { w.at(T - 10_000, Fault::Pause(true)); w.at(T, Fault::Mgmt(0, false)); w.at(T + 60_000, Fault::Mgmt(0, true));
              w.at(T + 120_000, Fault::Pause(false)); }, 500,
        |w| { nothing(w)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("f27-back-after-the-fence-began", "the fence is finished first, then moved", 2,
        |w| { w.hosts[0].bmc.off_delay = 6000; w.at(T, Fault::Mgmt(0, false)); w.at(T, Fault::Once(fence_begun, Box::new(Fault::Mgmt(0, true)))); }, 600,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?;
              let fenced = written(w, |e| matches!(e, Entry::Fenced { .. })); not_before(w, fenced[0] / 1000)?; kept(w, 0) }),
    row("f28-reboots-by-itself", "guests start in place; nothing moved", 2,
        |w| w.at(T, Fault::SelfReboot(0)), 600,
        |w| { nothing(w)?; no_incident(w)?; ensure((0..2).all(|n| w.servers[n].runs_on.contains(&0)), "its guests did not come back") }),
    row("f29-manual-maintenance", "held", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { nothing(w)?; held(w, HeldReason::PlannedMaintenance)?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual && !w.hosts[0].disabled, "it was touched") }),
    row("f30-dies-during-an-eviction", "taken over after ten minutes, and its eviction stopped", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Auto)); w.at(T, Fault::PowerLoss(0)); }, 1200,
        |w| { not_before(w, 715)?; recovered(w, 0)?; ensure(w.hosts[0].maintenance == Maintenance::Ha, "it is not claimed")?;
              ensure(!written(w, |e| matches!(e, Entry::StopEvictionIntended { .. })).is_empty(), "its eviction goes on") }),
    row("f31-dies-in-termination", "taken over, then termination again", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Termination)); w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::Release); }, 800,
        |w| { recovered(w, 0)?; ensure(w.hosts[0].maintenance == Maintenance::Termination, "not in termination again") }),
    row("f32-announced-reboot", "fifteen minutes of patience, then moved", 2,
        |w| { w.at(T - 15_000, Fault::Announce(0)); w.at(T, Fault::PowerLoss(0)); }, 1500,
        |w| { not_before(w, 1000)?; recovered(w, 0) }),
    row("f33-planned-power-cycle", "nothing, though compute services come up long after agents, and one host is late; guests run where they were", 2,
        // The pause ends before the compute services are up: from there on it is the warm-up that keeps everybody calm.
        |w| { w.at(T - 10_000, Fault::Pause(true));
              for h in 0..12 { let on = T + 180_000 + if h == 11 { 240_000 } else { 0 }; w.at(T, Fault::PowerLoss(h)); w.at(on, Fault::PowerOn(h));
                  w.at(on + 36_000, Fault::Taint(h, true)); w.at(on + 150_000, Fault::Taint(h, false)); }
              w.at(T + 240_000, Fault::Pause(false)); }, 1500,
        |w| { nothing(w)?; untouched(w)?; not_degraded(w)?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::ServiceGone { .. })), "a compute service that starts is taken for gone")?;
              ensure((0..24).all(|n| w.servers[n].runs_on == [n / 2].into()), "a guest is not where it was") }),
    row("f34-destination-dies", "waits for its fence, then one new request", 2,
        |w| { for h in 2..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); w.at(T + 38_000, Fault::PowerLoss(1));
              w.at(T + 39_000, Fault::Capacity(true)); for h in 2..12 { w.hosts[h].disabled = h > 4; } }, 1500,
        |w| { recovered(w, 0)?; recovered(w, 1) }),
    row("f35-no-capacity", "retried, then failed for want of a host; tried again, moved", 2,
        |w| { w.at(T, Fault::Capacity(false)); w.at(T, Fault::PowerLoss(0)); w.at(1_500_000, Fault::Capacity(true));
              w.at(1_500_000, Fault::Meddle(Decision::Retry)); }, 1800,
        |w| { let none = |e: &Entry| matches!(e, Entry::Vm { progress: VmProgress::Failed { reason: FailedReason::NoValidHost }, .. });
              ensure(written(w, none).len() == 2, "no guest failed for want of a host")?;
              let tries = w.evacuations.iter().filter(|(at, n)| *at < 1_500_000 && *n == 0).count();
              ensure(tries == 5, &format!("tried {tries} times"))?; recovered(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("f36-deleted-meanwhile", "skipped", 2,
        // The second waits for the first, and is gone by then.
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(planned, Box::new(Fault::Delete(1)))); }, 500,
        |w| { ensure(!w.evacuations.iter().any(|(_, n)| *n == 1), "a deleted guest was moved")?; recovered(w, 0)?;
              is_skipped(w, 1, SkipReason::NotOnHost)?; state(w, 0, IncidentState::Recovered) }),
    row("f37-stuck-powering-off", "moved, ends stopped", 2,
        |w| { w.nova_old = true; "powering-off".clone_into(&mut w.servers[0].task); w.servers[0].owner_wants_it = false; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| ensure(w.servers[0].host != 0 && w.servers[0].runs_on.is_empty(), "it is not moved and stopped")),
    row("f38-anti-affinity", "one after the other", 2,
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); } w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; let t: Vec<u64> = w.evacuations.iter().map(|(at, _)| *at).collect();
              ensure(t.len() == 2 && t[1] - t[0] > 8000, "both were asked for at once") }),
    row("f39-local-disk", "skipped, told", 2,
        |w| { w.servers[0].local_disk = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; is_skipped(w, 0, SkipReason::LocalDisk)?; told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "local disk") }),
    row("f40-unsupported-device", "blocked, with what Nova said", 2,
        |w| { w.servers[0].unsupported = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; let blocked = VmProgress::Blocked { reason: BlockedReason::Unsupported };
              ensure(progress(w, 0) == Some(blocked), "not blocked")?; state(w, 0, IncidentState::Failed)?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { why, .. } if why.contains("vTPM")), "what Nova said") }),
    row("f41-amphora", "excluded", 2,
        |w| { w.servers[0].excluded = true; w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; is_skipped(w, 0, SkipReason::Excluded) }),
    row("f42-live-migration-switched-over", "conflict; no request", 2,
        |w| { w.servers[0].runs_on = [1].into(); "migrating".clone_into(&mut w.servers[0].task); w.migrations.push(Migration::live(0, 0, 1)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { ensure(matches!(progress(w, 0), Some(VmProgress::Conflict { .. })), "no conflict")?;
              ensure(!w.evacuations.iter().any(|(_, n)| *n == 0) && w.servers[0].runs_on == [1].into(), "it was asked for")?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "conflict") }),
    row("f43-live-migration-towards-it", "untouched at its source", 2,
        |w| { w.migrations.push(Migration::live(2, 1, 0)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; ensure(w.servers[2].runs_on.contains(&1) && !w.evacuations.iter().any(|(_, n)| *n == 2), "it was touched") }),
    row("f44-post-copy-interrupted", "nowhere running: reset, moved", 2,
        |w| { w.migrations.push(Migration::live(0, 0, 1)); "migrating".clone_into(&mut w.servers[0].task); w.nova_old = true; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| recovered(w, 0)),
    row("f45-guest-dies", "restarted in place", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); w.at(T, Fault::GuestDies(0)); }, 400,
        |w| { nothing(w)?; ensure(w.servers[0].runs_on.contains(&0) && w.reboots == 1, "it was not restarted once") }),
    row("f46-guest-dies-every-minute", "given up after three restarts", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); for n in 0..25 { w.at(T + n * 60_000, Fault::GuestDies(0)); } }, 1800,
        |w| { nothing(w)?; ensure(w.reboots == 3, &format!("{} restarts", w.reboots))?; told(w, |n| matches!(n, Notice::GuestGaveUp { .. }), "gave up") }),
    row("f47-watchdog-storm", "degraded", 5,
        |w| for n in 0..3 { w.at(T + n as u64, Fault::Guest(0, n, GuestEventKind::Watchdog)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::WatchdogStorm) }),
    row("f48-memory-error", "degraded", 2,
        |w| for n in 0..2 { w.at(T + n as u64 * 1000, Fault::Guest(0, n, GuestEventKind::MemoryFailure)); }, 400,
        |w| { no_incident(w)?; degraded(w, Degraded::MemoryFailure) }),
    row("f49-telemetry-late-and-doubled", "no state change from old data", 2, |w| w.noise = 30, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("f50-clocks-jump-and-a-freeze", "no verdict from it", 2,
        |w| { for h in 0..12 { w.at(T, Fault::Clock(h, if h % 2 == 0 { 3_600_000 } else { -3_600_000 })); }
              let r = leader(w); w.at(T, Fault::ReplicaClock(r, 3_600_000)); w.at(T, Fault::Freeze(r, 360_000)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("f51-telemetry-store-broken", "records wait in their spools; recovery works", 2,
        |w| { for r in 0..3 { w.at(T - 10_000, Fault::StoreFails(r, true)); w.at(T + 300_000, Fault::StoreFails(r, false)); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Chatter(1, 2000)); }, 600,
        |w| { recovered(w, 0)?; ensure((1..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are left") }),
    row("f52-spool-disk-full", "records dropped and announced; heartbeats go on", 2,
        |w| { for r in 0..3 { w.at(T - 5000, Fault::StoreFails(r, true)); w.at(T + 60_000, Fault::StoreFails(r, false)); }
              w.at(T, Fault::SpoolSqueezed(0, true)); for n in 0..20 { w.at(T + n * 500, Fault::Chatter(0, 10)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.dropped > 0, "nothing was dropped")?;
              ensure((0..3).all(|r| w.streams[0].drained(r)), "what is left did not arrive") }),
    row("f53-invalid-configuration", "the old one stays; told by a record; nothing", 2,
        |w| { w.quiet = u16::MAX; for h in 0..12 { w.at(T + h as u64 * 1000, Fault::BadConfig(h)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?;
              ensure((0..12).all(|h| w.rejections(h) == 3), "not everybody was told by every agent")?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::Suspect { .. })), "a host was suspected") }),
    row("f54-two-believe-to-lead", "one effect each", 8,
        |w| { w.slow_sends = true; w.at(T, Fault::Panic(0)); w.at(T + 34_000, Fault::FreezeLeader(25_000)); }, 900,
        |w| { recovered(w, 0)?; once_each(w, 8) }),
    row("f55-maintenance-cleared-by-hand", "held: no new request, those under way are followed, its fence is kept", 20,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(T + 34_000, Fault::Maintenance(0, Maintenance::Off)); }, 500,
        |w| { let at = held_at(w, HeldReason::OperatorCleared)?; none_asked_for(w, at, u64::MAX)?; kept(w, 0)?;
              let moving = (0..20).filter(|n| progress(w, *n).is_some_and(|p| p.moving() || matches!(p, VmProgress::Verifying { .. }))).count();
              ensure(moving == 0, &format!("{moving} guests are not followed"))?;
              ensure((0..20).any(|n| progress(w, n) == Some(VmProgress::Pending)), "it came too late to hold anything") }),
    row("f56-wrong-fencing-device", "refused", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Panic(0)); }, 900,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch) }),
    row("f57-host-replaced", "the device of the old machine is refused", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(11); w.at(T, Fault::PowerLoss(0)); }, 900,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch) }),
    row("f58-service-down-while-a-host-dies", "records wait; after a warm-up it is found dead and moved; no record is lost", 2,
        // Down for longer than a heartbeat may be late, so that nobody who comes back has ever heard the dead host.
        |w| { for r in 0..3 { w.at(T - 3000, Fault::CrashReplica(r)); w.at(T - 2000, Fault::Down(r, 240_000)); }
              w.at(T, Fault::Panic(0)); for h in 0..12 { w.at(T - 1000, Fault::Chatter(h, 300)); } }, 1200,
        |w| { recovered(w, 0)?; once_each(w, 2)?; let back = T + 237_000;
              let led = written(w, |e| matches!(e, Entry::Led)).into_iter().find(|at| *at >= back).ok_or("nobody led again")?;
              let claimed = written(w, |e| matches!(e, Entry::ClaimIntended { .. }))[0];
              ensure(claimed >= led + 60_000, &format!("claimed {} ms after somebody led", claimed.saturating_sub(led)))?;
              let n = w.ledger().incidents.values().next().map(|i| i.evidence.of(Group::A).verdict);
              ensure(n == Some(Verdict::Unknown), &format!("nobody had heard its agent, and it is called {n:?}"))?;
              ensure(w.dropped == 0 && (1..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are lost or left") }),
    row("f59-server-list-incomplete", "held until it is complete", 2,
        |w| { w.list_complete = false; w.at(T, Fault::PowerLoss(0)); w.at(500_000, Fault::Complete(true)); }, 900,
        |w| { held(w, HeldReason::VmListIncomplete)?; not_before(w, 500)?; recovered(w, 0) }),
    row("f60-guest-cannot-open-its-disk", "moved, verification fails, told", 2,
        |w| { w.servers[0].cannot_boot = true; w.at(T, Fault::PowerLoss(0)); }, 700,
        |w| { ensure(w.servers[0].state == VmState::Active, "not moved")?; state(w, 0, IncidentState::Failed)?;
              let failed = VmProgress::Failed { reason: FailedReason::VerifyFailed }; ensure(progress(w, 0) == Some(failed), "it is taken for well")?;
              told(w, |n| matches!(n, Notice::VmNeedsPerson { why, .. } if why.contains("VerifyFailed")), "not verified") }),
    row("p1-person-asks-for-a-hung-host", "switched off first, then moved", 2,
        |w| { w.at(T, Fault::Hang(0)); w.at(T + 90_000, Fault::Request(0)); }, 500,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; not_before(w, T / 1000 + 90)?; recovered(w, 0) }),
    row("p2-person-asks-for-a-host-that-works", "refused; nothing", 2,
        |w| w.at(T, Fault::Request(0)), 300,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::RequestRefused { .. }), "refused") }),
    row("p3-no-room-and-told-to-hold", "held until there is room", 2,
        |w| { w.at(T - 10_000, Fault::Capacity(false)); w.at(T, Fault::PowerLoss(0)); w.at(500_000, Fault::Capacity(true)); }, 900,
        |w| { held(w, HeldReason::NoCapacity)?; not_before(w, 500)?; recovered(w, 0) }),
    row("p4-armed-watchdogs-and-a-cut", "nothing: silence proves no reset to whoever is cut off", 2,
        |w| { w.armed = true; for r in 0..3 { w.at(T, Fault::ReplicaHosts(r, false)); } }, 900,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::SelfIsolated { active: true }), "self-isolated") }),
    row("p5-spare-host", "no room but on a spare: one is enabled first, the other is left alone", 2,
        |w| { for h in 1..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(w.evacuations.len() == 2, "a guest was asked for in vain")?;
              ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled")?;
              ensure(w.servers[0].host == 10 && w.servers[1].host == 10, "it is not where the spare is") }),
    row("p6-one-guest-twice", "both hosts list it, Nova names one: the other copy is paused", 2,
        |w| { w.servers[2].runs_on = [1].into(); w.at(T, Fault::Doubled(2, 5)); }, 400,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::GuestDoubled { .. }), "doubled")?;
              told(w, |n| matches!(n, Notice::Zombie { .. }), "zombie")?;
              ensure(w.servers[2].runs_on == [1].into(), "the wrong copy was paused") }),
    row("p7-watchdog-of-one-guest", "told once; it is not restarted while it goes on", 5,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart);
              for n in 0..7 { w.at(T + n * 20_000, Fault::Guest(0, 0, GuestEventKind::Watchdog)); }
              w.at(T + 150_000, Fault::GuestDies(0)); }, 500,
        |w| { nothing(w)?; let n = w.notices.iter().filter(|(_, n)| matches!(n, Notice::GuestWatchdogs { .. })).count();
              ensure(n == 1 && w.reboots == 0, &format!("told {n} times, {} restarts", w.reboots)) }),
    row("p8-memory-fails-once", "told; not degraded", 2,
        |w| w.at(T, Fault::Guest(0, 0, GuestEventKind::MemoryFailure)), 300,
        |w| { nothing(w)?; told(w, |n| matches!(n, Notice::MemoryFailed { .. }), "memory")?;
              ensure(!w.notices.iter().any(|(_, n)| matches!(n, Notice::HostDegraded { .. })), "degraded by one event") }),
    row("p9-leader-on-the-dead-host", "it resigns; another one acts", 2,
        |w| { runs_on(w, 0); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?;
              let opened = term_of(w, |e| matches!(e, Entry::Opened { .. }));
              let claimed = term_of(w, |e| matches!(e, Entry::ClaimIntended { .. }));
              ensure(opened < claimed, "whoever stands on the failed host acted") }),
    row("p10-ha-switched-off", "held; nothing", 2,
        |w| { w.at(T - 10_000, Fault::Cover(0, false)); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::HaDisabled) }),
    row("p11-rebooted-without-compute", "waited for ten minutes, then switched off and moved", 2,
        // What keeps its compute service from starting is not ours here.
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); }, 1200,
        |w| { not_before(w, T / 1000 + 600)?; ensure(w.power_offs.len() == 1, "not switched off once")?;
              ensure(held_hosts(w, HeldReason::IdentityMismatch).is_empty(), "its own last word was held against it")?;
              recovered(w, 0) }),
    row("p12-rebooted-without-compute-or-message-queue", "nothing: nobody's compute service reports", 2,
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); w.at(T + 60_000, Fault::Rabbit(false)); }, 1800,
        |w| { nothing(w)?; no_incident(w) }),
    row("p13-compute-comes-up-late", "guests start in place; nothing moved", 2,
        |w| { w.hosts[0].tainted = true; w.at(T, Fault::SelfReboot(0)); w.at(T + 500_000, Fault::Compute(0, true)); }, 1200,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.servers[0].runs_on.contains(&0), "its guest did not come back") }),
    row("p14-cold-start", "held while most of the fleet has just been switched on; then moved", 2,
        |w| { w.at(T - 10_000, Fault::Pause(true));
              for h in 0..12 { w.at(T, Fault::PowerLoss(h)); }
              for h in 1..12 { w.at(T + 60_000, Fault::PowerOn(h)); }
              w.at(T + 120_000, Fault::Pause(false)); }, 2400,
        |w| { held(w, HeldReason::WarmUp)?; not_before(w, T / 1000 + 60 + 600)?; recovered(w, 0) }),
    row("p15-zone-announced-to-rest", "hosts that announced their end open nothing", 2,
        |w| { w.at(T - 30_000, Fault::Pause(true));
              for h in 0..12 { w.at(T - 15_000, Fault::Announce(h)); w.at(T, Fault::PowerLoss(h)); w.at(T + 180_000, Fault::PowerOn(h)); }
              w.at(T + 400_000, Fault::Pause(false)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("p16-somebody-else-says-ha", "asked for by others: held until approved", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::PowerLoss(0)); w.at(900_000, Fault::OnDuty); }, 1500,
        |w| { held(w, HeldReason::AwaitingApproval)?; not_before(w, 900)?;
              let ledger = w.ledger(); let kinds: Vec<_> = ledger.incidents.values().map(|i| i.kind).collect();
              ensure(kinds == [IncidentKind::OperatorRequested], &format!("opened as {kinds:?}"))?; recovered(w, 0) }),
    row("p17-nobody-keeps-it-off", "the fence is lost; fenced and held again, then moved", 6,
        // One guest after the other, so that there is time for it.
        |w| { for n in 0..6 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T + 45_000, Fault::Unpark(0)); }, 900,
        |w| { ensure(w.journal.iter().any(|record| matches!(record.entry, Entry::FenceLost { .. })), "nobody noticed")?;
              held(w, HeldReason::FenceLost)?; ensure(w.hosts[0].unparked.is_none(), "it is not held again")?; recovered(w, 0) }),
    row("p18-somebody-else-says-ha-and-it-comes-back", "called off; their maintenance is theirs", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::Mgmt(0, false)); w.at(400_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::AwaitingApproval)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "its maintenance was taken away") }),
    row("p19-somebody-else-says-ha-and-it-is-repaired", "moved once approved, released, and left at `ha`", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Ha)); w.at(T, Fault::PowerLoss(0)); w.at(300_000, Fault::OnDuty);
              w.at(600_000, Fault::PowerOn(0)); }, 1500,
        |w| { recovered(w, 0)?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].maintenance == Maintenance::Ha, "its maintenance was taken away")?;
              ensure(w.hosts[0].disabled, "it was enabled behind their back") }),
    row("p20-device-says-off-of-a-living-host", "told once; counted; nothing", 2,
        |w| { w.at(T, Fault::BmcLies(0, true)); w.at(T + 1000, Fault::Agent(0, false)); w.at(T + 30_000, Fault::Agent(0, true)); }, 4000,
        |w| { nothing(w)?; no_incident(w)?;
              let count = |wanted: fn(&Notice) -> bool| w.notices.iter().filter(|(_, n)| wanted(n)).count();
              let (suspect, contradicted) = (count(|n| matches!(n, Notice::Suspect { .. })),
                  count(|n| matches!(n, Notice::Inconclusive { assessment: Assessment::Contradicted, .. })));
              ensure((suspect, contradicted) == (1, 1), &format!("suspected {suspect} times, told {contradicted} times")) }),
    row("p21-outage-of-all-stores", "a backlog goes at its rate, and completely", 2,
        |w| { for r in 0..3 { w.at(T, Fault::StoreFails(r, true)); w.at(T + 120_000, Fault::StoreFails(r, false)); }
              for h in 0..12 { w.at(T + 1000, Fault::Chatter(h, 900)); } }, 400,
        |w| { nothing(w)?; no_incident(w)?; ensure((0..12).all(|h| (0..3).all(|r| w.streams[h].drained(r))), "records are left") }),
    row("p22-cover-changes-while-kubernetes-is-away", "told when it is back", 2,
        |w| { w.at(T, Fault::Cover(3, false)); w.at(T + 60_000, Fault::Kubernetes(false)); w.at(T + 120_000, Fault::Kubernetes(true));
              w.at(T + 59_900, Fault::Cover(3, true)); }, 400,
        |w| { nothing(w)?; ensure(w.uncovered == 0, "a condition is wrong") }),
    row("p23-agent-dies-then-the-power", "every number stands for one record", 2,
        // It dies before its flush ends; what it wrote is found, sent, and the power goes.
        |w| { w.quiet = u16::MAX; w.at(T, Fault::SpoolSlow(0, true)); w.at(T + 100, Fault::Chatter(0, 40)); w.at(T + 400, Fault::Agent(0, false));
              w.at(T + 2000, Fault::Agent(0, true)); w.at(T + 6000, Fault::SelfReboot(0)); w.at(T + 120_000, Fault::Chatter(0, 80)); }, 400,
        |w| { nothing(w)?; ensure((0..3).all(|r| w.streams[0].drained(r)), "records are left") }),
    row("p24-credentials-refused-while-moving", "held; no attempt is lost; then continues", 2,
        |w| { w.at(T, Fault::NovaRefusesMoves(true)); w.at(T, Fault::Panic(0)); w.at(2_000_000, Fault::NovaRefusesMoves(false)); }, 2400,
        |w| { held(w, HeldReason::NovaUnavailable)?; not_before(w, 2000)?; recovered(w, 0) }),
    row("p25-nova-away-while-moving", "held; followed when it is back", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T + 26_000, Fault::Nova(false)); w.at(900_000, Fault::Nova(true)); }, 1500,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0) }),
    row("p26-room-runs-out-then-the-power", "every number stands for one record", 2,
        // The newest records are the cheapest: they are sent, given up for want of room, the power goes, and nobody is there to say how far
        // they were.
        |w| { w.quiet = u16::MAX; for h in 0..3 { let t = T + h as u64 * 150_000; for n in 0..80 { w.at(t + n, Fault::BadConfig(h)); }
              w.at(t + 1000, Fault::Chatter(h, 40)); w.at(t + 8000, Fault::SpoolSlow(h, true)); w.at(t + 8000, Fault::SpoolSqueezed(h, true));
              w.at(t + 8100, Fault::Chatter(h, 1)); w.at(t + 8300, Fault::SelfReboot(h)); w.at(t + 100_000, Fault::Chatter(h, 5));
              for r in 0..3 { w.at(t + 8200, Fault::StoreFails(r, true)); w.at(t + 110_000, Fault::StoreFails(r, false)); } } }, 700,
        |w| { nothing(w)?; ensure(w.dropped > 0, "nothing was given up")?; ensure((0..3).all(|r| w.streams[0].drained(r)), "records are left") }),
    row("p27-storm-approved-and-somebody-works-on-one", "the others are moved; that one waits for its own approval", 2,
        |w| { w.at(T - 5000, Fault::Maintenance(0, Maintenance::Manual)); for h in 0..3 { w.at(T, Fault::Panic(h)); }
              w.at(400_000, Fault::Approve(HeldReason::Storm)); }, 1500,
        |w| { recovered(w, 1)?; recovered(w, 2)?; ensure(held_hosts(w, HeldReason::PlannedMaintenance).contains("n00"), "not held")?;
              ensure(w.hosts[0].maintenance == Maintenance::Manual && w.power_offs.len() == 2, "somebody's work was overridden") }),
    row("p28-aborted-before-its-power-is-touched", "its maintenance is given back; nothing else", 2,
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Mgmt(0, false)); w.at(T + 200_000, Fault::Abort(0));
              w.at(T + 202_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch)?; let first = w.ledger().incidents.values().next().map(|i| i.state);
              ensure(first == Some(IncidentState::Closed), &format!("it is {first:?}"))?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("p29-companions-on-two-dead-hosts", "one after the other, though they are of two incidents", 1,
        |w| { for n in 0..2 { w.servers[n].anti_affinity = Some("g".to_owned()); w.at(T, Fault::PowerLoss(n)); } }, 600,
        |w| { recovered(w, 0)?; recovered(w, 1)?; let t: Vec<u64> = w.evacuations.iter().map(|(at, _)| *at).collect();
              ensure(t.len() == 2 && t[1] - t[0] > 8000, "both were asked for at once") }),
    row("p30-leader-deaf", "it hears nobody and the others do: it resigns, and they recover", 2,
        |w| { let r = leader(w); w.at(T - 1000, Fault::ReplicaHosts(r, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?;
              ensure(term_of(w, |e| matches!(e, Entry::ClaimIntended { .. })) > Some(1), "whoever hears nobody acted") }),
    row("p31-second-level", "its BMC does not answer; its outlet does it, and holds it", 2,
        |w| { w.at(T, Fault::Bmc(0, false)); w.at(T, Fault::Panic(0)); }, 600,
        |w| { recovered(w, 0)?; kept(w, 0)?; let levels: Vec<usize> = w.journal.iter().filter_map(|record| match record.entry {
                  Entry::Fenced { level, .. } => Some(level), _ => None }).collect();
              ensure(levels == [1], &format!("fenced by {levels:?}")) }),
    row("p32-hung-and-its-storage-silent", "three minutes of patience, then switched off and moved", 2,
        |w| { w.at(T, Fault::Hang(0)); w.at(T, Fault::StorageSilent(0)); }, 700,
        |w| { not_before(w, T / 1000 + 180)?; ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0) }),
    row("p33-claimed-and-back-before-the-fence", "called off; its maintenance is given back, and it is enabled again", 2,
        // Its device is not its own, so it waits for so long that it is disabled.
        |w| { w.hosts[0].bmc.wired_to = Some(5); w.at(T, Fault::Mgmt(0, false)); w.at(T + 240_000, Fault::Mgmt(0, true)); }, 600,
        |w| { nothing(w)?; held(w, HeldReason::IdentityMismatch)?; state(w, 0, IncidentState::Cancelled)?;
              ensure(!written(w, |e| matches!(e, Entry::ConditionSet { .. })).is_empty(), "it was not disabled meanwhile")?;
              ensure(w.hosts[0].maintenance == Maintenance::Off && !w.hosts[0].disabled, "it is not as it was") }),
    row("p34-guest-dies-and-nova-notices", "started in place", 2,
        |w| { w.servers[0].policy = Some(VmPolicy::Restart); w.at(T, Fault::GuestDies(0)); w.at(T + 15_000, Fault::NovaNotices(0)); }, 500,
        |w| { nothing(w)?; no_incident(w)?; ensure(w.servers[0].runs_on.contains(&0) && w.reboots == 1, "it was not started once")?;
              ensure(w.servers[0].state == VmState::Active, "Nova has it stopped") }),
    row("p35-guest-elsewhere-dies-there", "a conflict that ends by itself, then moved", 2,
        |w| { w.servers[0].runs_on = [1].into(); "migrating".clone_into(&mut w.servers[0].task); w.nova_old = true;
              w.migrations.push(Migration::live(0, 0, 1)); w.at(T, Fault::PowerLoss(0)); w.at(T + 300_000, Fault::GuestEnds(0)); }, 900,
        |w| { told(w, |n| matches!(n, Notice::VmNeedsPerson { .. }), "conflict")?; recovered(w, 0)?; state(w, 0, IncidentState::Recovered) }),
    row("p36-host-that-hears-nothing", "its agent is heard: nothing, though no probe is answered", 2,
        |w| { w.at(T, Fault::HostDeaf(0, true)); w.at(700_000, Fault::HostDeaf(0, false)); }, 900,
        |w| { nothing(w)?; no_incident(w) }),
    row("p37-host-that-nobody-hears", "it works, and nobody can know: switched off first, then moved", 2,
        |w| w.at(T, Fault::HostMute(0, true)), 500,
        |w| { ensure(w.power_offs.len() == 1, "not switched off once")?; recovered(w, 0)?; once_each(w, 2)?; kept(w, 0) }),
    row("p38-destination-that-nobody-hears", "its guests run there, untold: it is switched off before they are asked for again", 2,
        // The only host with room.
        |w| { for h in 2..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::HostMute(1, true))));
              w.at(T + 300_000, Fault::Enable); }, 1500,
        |w| { recovered(w, 0)?; recovered(w, 1)?; ensure(w.struck.contains_key("a guest runs, and Nova is not told"), "it was told")?;
              let off = w.power_offs.iter().find(|(_, h)| *h == 1).map(|(at, _)| *at).ok_or("it was not switched off")?;
              let again = w.evacuations.iter().filter(|(_, n)| *n < 2).map(|(at, _)| *at).max();
              ensure(again > Some(off), "asked for again while it ran") }),
    row("p39-nova-obeys-in-silence", "each guest is asked for once", 4,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(fence_begun, Box::new(Fault::NovaUnheard(r, true))));
              w.at(T + 240_000, Fault::NovaUnheard(r, false)); } }, 900,
        |w| { held(w, HeldReason::NovaUnavailable)?; recovered(w, 0)?; once_each(w, 4) }),
    row("p40-nova-falls-silent-while-moving", "what was asked for is found in its records; nobody is asked for twice", 4,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(asked_for, Box::new(Fault::NovaUnheard(r, true))));
              w.at(T + 240_000, Fault::NovaUnheard(r, false)); } }, 900,
        |w| { recovered(w, 0)?; once_each(w, 4) }),
    row("p41-device-obeys-in-silence", "off, and nobody hears so: no guest moves before it was read twice", 2,
        |w| { w.at(T, Fault::BmcUnheard(0, true)); w.at(T, Fault::Panic(0)); w.at(T + 600_000, Fault::BmcUnheard(0, false)); }, 1200,
        |w| { ensure(w.struck.contains_key("a device does it, and nobody hears of it"), "it was heard")?;
              let off = w.power_offs[0].0; let fenced = written(w, |e| matches!(e, Entry::Fenced { .. }))[0];
              ensure(fenced >= off + 2000, "taken for off at its word")?; not_before(w, fenced / 1000)?; recovered(w, 0)?; once_each(w, 2) }),
    row("p42-kubernetes-obeys-in-silence", "its leader acts no more; another one finds what it did, and goes on", 2,
        |w| { let r = leader(w); w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::KubernetesUnheard(r, true)))); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; kept(w, 0)?; ensure(w.power_offs.len() == 1, "not switched off once")?;
              ensure(w.terms.len() > 1, "nobody else led") }),
    row("p43-record-written-and-not-known", "its term ends; the next finds the record, looks, and does it once", 2,
        |w| { w.at(T, Fault::Panic(0)); for r in 0..3 { w.at(T, Fault::Once(asked_for, Box::new(Fault::KubernetesUnheard(r, true))));
              w.at(T + 120_000, Fault::KubernetesUnheard(r, false)); } }, 600,
        |w| { recovered(w, 0)?; once_each(w, 2)?; ensure(w.terms.len() > 1, "its term went on") }),
    row("p44-journal-disk-full", "no step without its record; gone on with when there is room", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::JournalFull(true))));
              w.at(T + 200_000, Fault::JournalFull(false)); }, 700,
        |w| { not_before(w, (T + 200_000) / 1000)?; ensure(w.power_offs.iter().all(|(at, _)| *at > T + 200_000), "switched off without a record")?;
              recovered(w, 0)?; once_each(w, 2) }),
    row("p45-journal-cut", "nobody decides by half a journal; gone on with when it is restored", 2,
        |w| { w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(|e| matches!(e, Entry::Opened { .. }), Box::new(Fault::JournalCut(true))));
              w.at(T + 200_000, Fault::JournalCut(false)); }, 700,
        |w| { not_before(w, (T + 200_000) / 1000)?; recovered(w, 0)?; once_each(w, 2)?;
              ensure(w.struck.contains_key("a journal cannot be read"), "somebody read it") }),
    row("p46-guests-arrive-stopped", "each is started where it arrived, once; the one that was stopped is not", 3,
        |w| { w.arrive_stopped = true; w.servers[2] = w.servers[2].clone().stopped(); w.at(T, Fault::PowerLoss(0)); }, 600,
        |w| { recovered(w, 0)?; once_each(w, 3)?; ensure(w.reboots == 2, &format!("{} starts", w.reboots))?;
              ensure(w.servers[2].runs_on.is_empty(), "its owner had stopped it")?; state(w, 0, IncidentState::Recovered) }),
    row("p47-old-host-switched-on-before-the-start", "nothing is started before it is off again", 6,
        // One guest after the other, so that there is always one that has arrived and does not run.
        |w| { w.arrive_stopped = true; for n in 0..6 { w.servers[n].anti_affinity = Some("g".to_owned()); }
              w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(12_000, Fault::PowerOn(0))])))); }, 1200,
        |w| { held(w, HeldReason::FenceLost)?; ensure(!w.power_offs.is_empty(), "not fenced again")?; recovered(w, 0)?; kept(w, 0)?;
              ensure(w.reboots == 6, &format!("{} starts", w.reboots)) }),
    row("p48-term-ends-while-requests-wait", "what waits does not leave after the next term began; each guest is asked for once", 20,
        // The journal is somebody else's for a moment, so the term is over long before its lease.
        |w| { w.slow_sends = true; w.at(T, Fault::Panic(0)); w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![
              (100, Fault::JournalCut(true)), (1500, Fault::JournalCut(false))])))); }, 1200,
        |w| { recovered(w, 0)?; once_each(w, 20)?; ensure(w.terms.len() > 1, "its term went on") }),
    row("p49-next-of-a-rack", "held while the one before it is not well, and until it has been calm for a while", 2,
        |w| { for h in [0, 3] { w.hosts[h].disabled = true; w.at(T, Fault::Panic(h)); } w.at(900_000, Fault::Release); }, 3000,
        |w| { ensure(held_hosts(w, HeldReason::DomainLimit).len() == 1, "not one of them is held")?; recovered(w, 0)?; recovered(w, 3)?;
              let well = *written(w, |e| matches!(e, Entry::Moved { state: IncidentState::Released, .. })).first().ok_or("not given back")?;
              let next = w.power_offs.get(1).map(|(at, _)| *at).ok_or("only one was switched off")?;
              ensure(next > well + 290_000, &format!("switched off {} s after the one before it was well", next.saturating_sub(well) / 1000)) }),
    row("p50-term-that-wrote-nothing", "the next one has a number of its own, and acts", 2,
        // Its first record is refused until somebody else is said to have written.
        |w| { let r = leader(w); w.at(T, Fault::JournalFull(true)); w.at(T, Fault::CrashReplica(r)); w.at(T + 50_000, Fault::JournalCut(true));
              w.at(T + 55_000, Fault::JournalFull(false)); w.at(T + 60_000, Fault::JournalCut(false)); w.at(T + 90_000, Fault::Panic(0)); }, 900,
        |w| { ensure(w.struck.contains_key("a term ends for want of a journal"), "none did")?; recovered(w, 0)?; once_each(w, 2) }),
    row("p51-taken-back-by-itself", "repaired, switched on and well for five minutes: released, though our taint keeps its compute service away until then", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::PowerOn(0)); }, 1400,
        |w| { recovered(w, 0)?; ensure(w.power_offs.is_empty(), "it was switched off")?; ensure(decisions(w) == [Decision::Release], "not released once")?;
              let asked = written(w, |e| matches!(e, Entry::Decided { .. }))[0];
              ensure(asked >= 700_000, &format!("released at {asked} ms"))?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].disabled && !w.hosts[0].tainted, "it is not in service") }),
    row("p52-start-groups", "one group after the other, by its most important guest; a guest that is stuck is waited for two minutes", 4,
        |w| { for h in 0..2 { in_two_groups(w, 4 * h); w.at(T, Fault::PowerLoss(h)); } w.servers[0].takes = Some(400_000); }, 900,
        |w| { recovered(w, 0)?; recovered(w, 1)?; once_each(w, 8)?;
              let waited = asked_at(w, 2)?.min(asked_at(w, 3)?).saturating_sub(asked_at(w, 0)?.max(asked_at(w, 1)?));
              ensure((115_000..135_000).contains(&waited), &format!("the next group waited for {waited} ms"))?;
              let (back, next) = (back_at(w, 4)?.max(back_at(w, 5)?), asked_at(w, 6)?.min(asked_at(w, 7)?));
              ensure(next >= back && next <= back + 15_000, &format!("{back} ms, and then {next} ms")) }),
    row("p53-start-groups-and-a-new-leader", "whoever leads next gives the group before two minutes, not until its last guest is back", 4,
        |w| { in_two_groups(w, 0); w.servers[0].takes = Some(400_000); w.at(T, Fault::PowerLoss(0));
              w.at(T, Fault::Once(asked_for, Box::new(Fault::Story(vec![(30_000, Fault::CrashLeader)])))); }, 900,
        |w| { recovered(w, 0)?; once_each(w, 4)?; let led = *written(w, |e| matches!(e, Entry::Led)).last().ok_or("nobody led")?;
              let next = asked_at(w, 2)?.min(asked_at(w, 3)?);
              ensure(next > led + 115_000 && next < led + 140_000, &format!("led at {led} ms, the next group at {next} ms")) }),
    row("p54-guests-that-are-paused", "left where they are, before the plan and after it, and named; moved when their pauses end", 3,
        // The third is of a group that goes before the second.
        |w| { "first".clone_into(&mut w.servers[2].group); w.servers[2].priority = 900;
              w.at(T, Fault::PauseGuest(0, true)); w.at(T, Fault::PowerLoss(0)); w.at(T, Fault::Once(planned, Box::new(Fault::PauseGuest(1, true))));
              w.at(500_000, Fault::PauseGuest(0, false)); w.at(700_000, Fault::PauseGuest(1, false)); }, 900,
        |w| { ensure(asked_at(w, 0)? > 500_000 && asked_at(w, 1)? > 700_000, "moved in spite of a pause")?; ensure(asked_at(w, 2)? < 400_000, "held back by others")?;
              let (named, ends) = (w.notices.iter().filter(|(_, n)| matches!(n, Notice::VmNeedsPerson { why, .. } if why == "Paused")).count(),
                  written(w, |e| matches!(e, Entry::Moved { state: IncidentState::Failed | IncidentState::Recovered, .. })).len());
              ensure((named, ends) == (2, 3), &format!("{named} were named, it ended {ends} times"))?;
              recovered(w, 0)?; once_each(w, 3)?; state(w, 0, IncidentState::Recovered) }),
    row("p55-switched-on-after-its-guests-are-safe", "switched off again before it boots; left on once somebody wants it back", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); w.at(400_000, Fault::PowerOn(0)); w.at(600_000, Fault::Release); }, 1000,
        |w| { held(w, HeldReason::FenceLost)?; let offs: Vec<u64> = w.power_offs.iter().map(|(at, _)| *at).collect();
              ensure(offs.len() == 1 && (400_000..412_000).contains(&offs[0]), &format!("switched off at {offs:?}"))?;
              ensure(w.hosts[0].boot == 2, "it booted before it was wanted back")?; recovered(w, 0)?; state(w, 0, IncidentState::Released)?;
              ensure(w.hosts[0].compute_works() && !w.hosts[0].disabled, "it is not in service") }),
    row("p56-taken-back-by-hand", "its maintenance was cleared: told, and left on", 2,
        |w| { w.at(T, Fault::PowerLoss(0)); for fault in [Fault::Maintenance(0, Maintenance::Off), Fault::Taint(0, false), Fault::PowerOn(0)] { w.at(400_000, fault); } }, 900,
        |w| { recovered(w, 0)?; held(w, HeldReason::OperatorCleared)?; ensure(w.power_offs.is_empty() && w.hosts[0].user, "it was switched off") }),
    row("p57-spare-where-nobody-knows-the-room", "one is enabled, the other is left alone", 2,
        |w| { w.rooms_told = false; for h in 1..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled") }),
    row("p58-no-valid-host-then-a-spare", "there is room, and Nova finds none: a spare is enabled, one for both guests", 2,
        |w| { w.picky = true; for h in 10..12 { w.hosts[h].disabled = true; } w.at(T, Fault::PowerLoss(0)); }, 500,
        |w| { recovered(w, 0)?; ensure(!w.hosts[10].disabled && w.hosts[11].disabled, "not one spare was enabled")?;
              ensure(w.evacuations.len() > 2, "Nova found a place at once")?; state(w, 0, IncidentState::Recovered) }),
    row("p59-lists-are-rare", "hosts are asked for lists before guests are: one that runs elsewhere is a conflict", 2,
        |w| { w.lists_every = Some(600_000); w.servers[0].runs_on = [1].into(); w.at(300_000, Fault::PowerLoss(0)); }, 700,
        |w| { ensure(matches!(progress(w, 0), Some(VmProgress::Conflict { .. })), "no conflict")?;
              ensure(!w.evacuations.iter().any(|(_, n)| *n == 0), "it was asked for")?; ensure(w.servers[1].host != 0, "the other was not moved") }),
];
