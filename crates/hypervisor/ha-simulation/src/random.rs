// SPDX-License-Identifier: Apache-2.0
//! A random world in which everything goes wrong that can. Faults come for a while, then stop; what is dead stays dead, a
//! person comes on duty, and everything has to settle. Each family of faults has a die of its own, so that the worlds
//! without it stay what they were.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{Config, Decision, FenceLevel, Grade, VmPolicy};

use crate::faults::{Fault, releasing, unsettled};
use crate::journal::Moment;
use crate::world::{Event, Options, World};

/// When the faults of a random world stop, in milliseconds.
const FAULTS_END: u64 = 520_000;

/// A random fleet, random faults, and time to settle.
pub(crate) fn random_run(options: Options) -> World {
    let mut rng = fastrand::Rng::with_seed(options.seed ^ 0x00C0_BA17);
    let hosts = rng.usize(6..=12);
    let options_seed = options.seed;
    // A die of its own, so that what the others say does not depend on it.
    let mut people = fastrand::Rng::with_seed(options_seed ^ 0x0070_E091);
    let mut config = Config::default();
    if people.u8(..3) == 0 {
        config.fence_levels.push(FenceLevel {
            name: "exec".to_owned(),
            grade: Grade::Power,
        });
    }
    let mut world = World::new(options, hosts, 3, rng.usize(1..=3), config);
    world.noise = [0, 0, 2, 10][rng.usize(..4)];
    world.nova_flaky = [0, 0, 10, 40][rng.usize(..4)];
    world.messages_lost = [0, 0, 10, 30][rng.usize(..4)];
    world.nova_old = rng.bool();
    world.slow_sends = rng.bool();
    for h in 0..hosts {
        let bmc = &mut world.hosts[h].bmc;
        bmc.slow = rng.u64(50..3000);
        bmc.off_delay = rng.u64(300..6000);
        world.hosts[h].clock_skew_ms = [0, 0, 0, 3_600_000, -3_600_000][rng.usize(..5)];
    }
    for n in 0..world.servers.len() {
        dress(&mut world, n, &mut rng);
    }
    if rng.u8(..100) < 5 {
        let (a, b) = (rng.usize(..hosts), rng.usize(..hosts));
        world.hosts[a].bmc.wired_to = (a != b).then_some(b);
    }
    if rng.bool() {
        let at = rng.u64(3..60);
        let when = if rng.bool() { Moment::Done } else { Moment::Written };
        world.crash_at_record = Some((at, when));
    }
    let mut gap = fastrand::Rng::with_seed(options_seed ^ 0x0000_6A95);
    let end = nobody_leads(&mut world, &mut gap).max(FAULTS_END);
    world.faults_end = end;
    let faults = rng.usize(1..=7);
    for _ in 0..faults {
        let at = rng.u64(90_000..end - 60_000);
        let lasts = rng.u64(5_000..240_000);
        one_fault(&mut world, &mut rng, at, (at + lasts).min(end));
    }
    // A die of its own, so that the worlds without it stay what they were.
    let mut rare = fastrand::Rng::with_seed(options_seed ^ 0x0057_09AD);
    if rare.u8(..4) == 0 {
        let at = rare.u64(120_000..end - 60_000);
        for h in 0..hosts {
            world.at(at, Fault::Unpark(h));
        }
    }
    if rare.u8(..4) == 0 {
        let h = rare.usize(..hosts);
        let at = rare.u64(90_000..end - 90_000);
        world.at(at, Fault::Cover(h, false));
        world.at(at + rare.u64(100..60_000), Fault::Cover(h, true));
    }
    telemetry_fails(&mut world, &mut rare, end);
    people_act(&mut world, &mut people, end);
    let mut ways = fastrand::Rng::with_seed(options_seed ^ 0x0011_0A15);
    answers_are_lost(&mut world, &mut ways, end);
    let mut wishes = fastrand::Rng::with_seed(options_seed ^ 0x0031_5E55);
    wishes_of_people(&mut world, &mut wishes, end);
    let mut patience = fastrand::Rng::with_seed(options_seed ^ 0x0510_3A0A);
    world.nova_slow = [0, 0, 0, 1_500, 4_000][patience.usize(..5)];
    world.nova_late = [0, 0, 0, 10, 30][patience.usize(..5)];
    let mut stale = fastrand::Rng::with_seed(options_seed ^ 0x0057_A1E0);
    clocks_and_watches(&mut world, &mut stale, end);
    world.plan_troubles();
    world.at(end, Fault::Heal);
    world.at(end + 90_000, Fault::OnDuty);
    world.schedule(30_000, Event::Operator);
    // Every guest is settled within half an hour; earlier if everything is.
    for slice in 3..=18 {
        world.run_until(end + slice * 100_000);
        let settled = || unsettled(&world).is_none() && releasing(&world).next().is_none();
        if world.violation.is_some() || settled() {
            return world;
        }
    }
    if let Some((invariant, what)) = unsettled(&world) {
        world.violate(invariant, what);
    }
    world
}

/// In some worlds nobody leads for minutes in the middle of a recovery, and people and hosts do not wait for that. Says when that
/// is over, at the latest.
fn nobody_leads(world: &mut World, gap: &mut fastrand::Rng) -> u64 {
    if gap.u8(..5) > 0 {
        return 0;
    }
    let hosts = world.hosts.len();
    let (h, n) = (gap.usize(..hosts), gap.usize(..world.servers.len()));
    let dies = gap.u64(90_000..200_000);
    let from = dies + gap.u64(20_000..150_000);
    let lasts = gap.u64(30_000..600_000);
    let until = from + lasts;
    let between = |gap: &mut fastrand::Rng| gap.u64(from..until);
    world.at(
        dies,
        if gap.bool() {
            Fault::PowerLoss(h)
        } else {
            Fault::Panic(h)
        },
    );
    if gap.bool() {
        // Those who could lead are there, and cannot write. A person was there before.
        world.at(from, Fault::Kubernetes(false));
        world.at(until, Fault::Kubernetes(true));
        world.at(dies - 30_000, Fault::OnDuty);
        if gap.bool() {
            world.at(dies, Fault::Bmc(h, false));
            let on = between(gap);
            world.at(on, Fault::PowerOn(h));
            world.at(on + gap.u64(60_000..200_000), Fault::Mgmt(h, false));
        }
    } else {
        for r in 0..3 {
            world.at(from, Fault::CrashReplica(r));
            world.at(from, Fault::Down(r, lasts));
        }
        if gap.bool() {
            let cleared = between(gap);
            world.at(cleared, Fault::Maintenance(h, Maintenance::Off));
            let again = [Maintenance::Ha, Maintenance::Manual, Maintenance::Off];
            world.at(
                between(gap).max(cleared),
                Fault::Maintenance(h, again[gap.usize(..3)].clone()),
            );
        }
    }
    if gap.bool() {
        world.at(between(gap), Fault::PowerOn(h));
    }
    if gap.bool() {
        world.at(between(gap), Fault::OwnerStops(n));
    }
    if gap.u8(..4) == 0 {
        world.at(from, Fault::Nodes(false));
        world.at(until + gap.u64(1_000..120_000), Fault::Nodes(true));
    }
    if gap.u8(..3) == 0 {
        world.at(from - 1_000, Fault::Release);
    }
    until + 180_000
}

/// What people do to a fleet whatever befalls it, and what befalls single guests, clocks and rooms.
fn people_act(world: &mut World, people: &mut fastrand::Rng, end: u64) {
    let hosts = world.hosts.len();
    for _ in 0..people.usize(..4) {
        let (h, r) = (people.usize(..hosts), people.usize(..3));
        let n = people.usize(..world.servers.len());
        let at = people.u64(90_000..end - 60_000);
        let until = (at + people.u64(5_000..200_000)).min(end);
        match people.u8(..16) {
            0 | 1 => {
                world.servers[n].policy = Some(VmPolicy::Evacuate);
                world.at(at, Fault::GuestDies(n));
            }
            2 => {
                world.servers[n].policy = Some(VmPolicy::Restart);
                world.at(at, Fault::GuestDies(n));
                world.at(at + 15_000, Fault::NovaNotices(n));
            }
            3 => {
                world.at(at, Fault::Capacity(false));
                world.at(until, Fault::Capacity(true));
            }
            4 => {
                world.at(at, Fault::Complete(false));
                world.at(until, Fault::Complete(true));
            }
            5 => {
                let decisions = [
                    Decision::Approve,
                    Decision::Abort,
                    Decision::Retry,
                    Decision::Close,
                ];
                let decision = decisions[people.usize(..decisions.len())];
                for n in 0..people.u64(1..4) {
                    world.at(at + n * 45_000, Fault::Meddle(decision));
                }
            }
            6 => world.at(at, Fault::Meddle(Decision::Release)),
            7 => world.at(at, Fault::Request(h)),
            8 => {
                world.at(at, Fault::Announce(h));
                world.at(at + 15_000, Fault::PowerLoss(h));
            }
            9 => {
                world.at(at, Fault::Maintenance(h, Maintenance::Auto));
                world.at(until, Fault::Maintenance(h, Maintenance::Off));
            }
            10 => world.at(at, Fault::Maintenance(h, Maintenance::Termination)),
            11 => {
                world.at(at, Fault::ReplicaClock(r, 3_600_000));
                world.at(until, Fault::ReplicaClock(r, -3_600_000));
            }
            12 => world.at(at, Fault::Clock(h, 3_600_000)),
            13 => world.at(at, Fault::Freeze(r, people.u64(2_000..120_000))),
            // Agents are rolled out.
            14 => {
                for h in 0..hosts {
                    let at = at + 1500 * h as u64;
                    world.at(at, Fault::Agent(h, false));
                    world.at(at + 20_000, Fault::Agent(h, true));
                }
            }
            _ => {
                world.at(at, Fault::Libvirt(h, false));
                world.at(until, Fault::Libvirt(h, true));
            }
        }
    }
}

/// Guests that are to start one after the other or to be left alone for a while, and hosts that somebody switches on once
/// their guests may be settled.
fn wishes_of_people(world: &mut World, wishes: &mut fastrand::Rng, end: u64) {
    if wishes.u8(..3) == 0 {
        for n in 0..world.servers.len() {
            let group = ["", "db", "web"][wishes.usize(..3)];
            group.clone_into(&mut world.servers[n].group);
        }
    }
    if wishes.u8(..4) == 0 {
        let (n, at) = (
            wishes.usize(..world.servers.len()),
            wishes.u64(60_000..end - 60_000),
        );
        world.at(at, Fault::PauseGuest(n, true));
        world.at(wishes.u64(at..end), Fault::PauseGuest(n, false));
    }
    if wishes.u8(..4) == 0 {
        let (h, at) = (wishes.usize(..world.hosts.len()), wishes.u64(200_000..end));
        world.at(at, Fault::PowerOn(h));
    }
}

/// Clocks of replicas that run faster or slower than others, as far as clocks do, and watches that tell nothing new.
fn clocks_and_watches(world: &mut World, stale: &mut fastrand::Rng, end: u64) {
    for r in 0..3 {
        world.replicas[r].drift = stale.i64(-500..=500);
    }
    if stale.u8(..6) == 0 {
        let (r, at) = (stale.usize(..3), stale.u64(90_000..end - 60_000));
        world.at(at, Fault::WatchStalls(r, true));
        world.at(
            (at + stale.u64(5_000..240_000)).min(end),
            Fault::WatchStalls(r, false),
        );
    }
}

/// Ways that work in one direction only, and a journal that fails its writers.
fn answers_are_lost(world: &mut World, ways: &mut fastrand::Rng, end: u64) {
    if let Some((at, _)) = world.crash_at_record
        && ways.bool()
    {
        let when = if ways.bool() {
            Moment::Decided
        } else {
            Moment::Told
        };
        world.crash_at_record = Some((at, when));
    }
    world.arrive_stopped = ways.u8(..4) == 0;
    for _ in 0..ways.usize(..3) {
        let (h, r) = (ways.usize(..world.hosts.len()), ways.usize(..3));
        let at = ways.u64(90_000..end - 60_000);
        let until = (at + ways.u64(2_000..150_000)).min(end);
        let one_way: fn(usize, bool) -> Fault = match ways.u8(..11) {
            0 => Fault::ReplicaDeaf,
            1 => Fault::ReplicaMute,
            2 => Fault::ReplicaClosed,
            3 => Fault::HostDeaf,
            4 => Fault::HostMute,
            5 => Fault::KubernetesUnheard,
            6 => Fault::NovaUnheard,
            7 => Fault::BmcUnheard,
            8 => |_, on| Fault::JournalFull(on),
            9 => |_, on| Fault::JournalCut(on),
            _ => |percent, on| Fault::JournalFlaky(if on { 10 + 10 * percent as u8 } else { 0 }),
        };
        let whose = match one_way(0, true) {
            Fault::HostDeaf(..) | Fault::HostMute(..) | Fault::BmcUnheard(..) => h,
            _ => r,
        };
        world.at(at, one_way(whose, true));
        world.at(until, one_way(whose, false));
        // Best in the middle of a recovery.
        if ways.bool() {
            let dies = at.saturating_sub(ways.u64(1..40_000));
            let device = matches!(one_way(0, true), Fault::BmcUnheard(..));
            let who = if device {
                h
            } else {
                ways.usize(..world.hosts.len())
            };
            world.at(dies, Fault::Panic(who));
        }
    }
}

/// What befalls records on their way: much at once, agents that die in the middle of it, disks and stores.
fn telemetry_fails(world: &mut World, rare: &mut fastrand::Rng, end: u64) {
    for _ in 0..rare.usize(..3) {
        let (h, r) = (rare.usize(..world.hosts.len()), rare.usize(..3));
        let at = rare.u64(60_000..end - 60_000);
        let until = at + rare.u64(1_000..120_000);
        world.at(at + rare.u64(..1000), Fault::Chatter(h, rare.usize(1..600)));
        match rare.u8(..8) {
            0 => {
                world.at(at, Fault::SpoolFull(h, true));
                world.at(until, Fault::SpoolFull(h, false));
            }
            1 => {
                world.at(at, Fault::SpoolSqueezed(h, true));
                world.at(until, Fault::SpoolSqueezed(h, false));
            }
            2 => {
                world.at(at, Fault::SpoolSlow(h, true));
                world.at(until, Fault::SpoolSlow(h, false));
            }
            3 => {
                world.at(at, Fault::StoreFails(r, true));
                world.at(until, Fault::StoreFails(r, false));
            }
            4 => {
                world.at(at, Fault::StoreSlow(r, true));
                world.at(until, Fault::StoreSlow(r, false));
            }
            5 => world.at(until, Fault::StoreLost(r, rare.bool())),
            // Between writing and sending, or right after it.
            _ => {
                let dies = at + rare.u64(..1500);
                world.at(dies, Fault::Agent(h, false));
                world.at(dies + 2000, Fault::Agent(h, true));
            }
        }
    }
}

/// What kind of guest it is.
pub(crate) fn dress(world: &mut World, n: usize, rng: &mut fastrand::Rng) {
    let server = world.servers[n].clone();
    world.servers[n] = match rng.u8(..20) {
        0 | 1 => server.stopped(),
        2 => {
            let mut server = server;
            server.local_disk = true;
            server
        }
        3 => {
            let mut server = server;
            server.excluded = true;
            server
        }
        4 => {
            let mut server = server;
            server.unsupported = true;
            server
        }
        5 => {
            let mut server = server;
            server.anti_affinity = Some("together".to_owned());
            server
        }
        6 => {
            // A live migration that had switched over when Nova last looked.
            let mut server = server;
            let elsewhere = (server.host + 1) % world.hosts.len();
            server.runs_on = std::collections::BTreeSet::from([elsewhere]);
            "migrating".clone_into(&mut server.task);
            world
                .migrations
                .push(crate::cloud::Migration::live(n, server.host, elsewhere));
            server
        }
        _ => server,
    };
    world.servers[n].priority = rng.u16(0..1000);
}

fn one_fault(world: &mut World, rng: &mut fastrand::Rng, at: u64, until: u64) {
    let h = rng.usize(..world.hosts.len());
    let r = rng.usize(..3);
    let rack = rng.usize(..3);
    let n = rng.usize(..world.servers.len());
    let (first, last) = match rng.u8(..30) {
        0..=4 => (Fault::PowerLoss(h), None),
        5..=8 => (Fault::Panic(h), None),
        9 => (Fault::Hang(h), None),
        10 => (Fault::SelfReboot(h), None),
        11 => (Fault::Agent(h, false), Some(Fault::Agent(h, true))),
        12 => (Fault::Compute(h, false), Some(Fault::Compute(h, true))),
        13 => (Fault::Kubelet(h, false), Some(Fault::Kubelet(h, true))),
        14 => (Fault::Mgmt(h, false), Some(Fault::Mgmt(h, true))),
        15 => (Fault::Uplink(rack, false), Some(Fault::Uplink(rack, true))),
        16 => (Fault::ReplicaHosts(r, false), Some(Fault::ReplicaHosts(r, true))),
        17 => (
            Fault::ReplicaKubernetes(r, false),
            Some(Fault::ReplicaKubernetes(r, true)),
        ),
        18 => (Fault::ReplicaPeers(r, false), Some(Fault::ReplicaPeers(r, true))),
        19 => (Fault::CrashReplica(r), Some(Fault::CrashLeader)),
        20 => {
            // Best in the middle of an incident.
            world.at(
                at + rng.u64(18_000..40_000),
                Fault::FreezeLeader(rng.u64(17_000..40_000)),
            );
            (Fault::Panic(h), None)
        }
        21 => (Fault::Kubernetes(false), Some(Fault::Kubernetes(true))),
        22 if rng.bool() => (Fault::ReplicaNova(r, false), Some(Fault::ReplicaNova(r, true))),
        22 => (Fault::Nova(false), Some(Fault::Nova(true))),
        23 if h.is_multiple_of(2) => (
            Fault::NovaRefusesMoves(true),
            Some(Fault::NovaRefusesMoves(false)),
        ),
        23 => (
            Fault::NovaRefusesService(true),
            Some(Fault::NovaRefusesService(false)),
        ),
        24 => (Fault::Rabbit(false), Some(Fault::Rabbit(true))),
        25 => (Fault::Bmc(h, false), Some(Fault::Bmc(h, true))),
        26 => (Fault::BmcLies(h, true), Some(Fault::BmcLies(h, false))),
        27 => (
            Fault::Maintenance(h, Maintenance::Manual),
            Some(Fault::Maintenance(h, Maintenance::Off)),
        ),
        28 => (Fault::Pause(true), Some(Fault::Pause(false))),
        _ => (
            Fault::Delete(n),
            Some(Fault::OwnerStops((n + 1) % world.servers.len())),
        ),
    };
    let dies = matches!(first, Fault::PowerLoss(_) | Fault::Panic(_));
    // Whoever lies about power must not be alone with a host nobody reaches: nothing could tell.
    if matches!(first, Fault::BmcLies(..)) && world.hosts[h].bmc.wired_to.is_some() {
        return;
    }
    // Two faults on one host at a time make the interesting ones.
    let lying = matches!(first, Fault::BmcLies(..));
    world.at(at, first);
    if let Some(last) = last {
        world.at(until, last);
    }
    if dies && rng.u8(..4) == 0 {
        // Somebody switches it on again in the middle of it.
        world.at(at + rng.u64(20_000..120_000), Fault::PowerOn(h));
    }
    if dies && rng.u8(..5) == 0 {
        world.at(at + rng.u64(1_000..60_000), Fault::Bmc(h, false));
    }
    if lying && rng.bool() {
        world.at(at + 1000, Fault::Agent(h, false));
    }
}
