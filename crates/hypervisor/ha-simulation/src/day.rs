// SPDX-License-Identifier: Apache-2.0
//! One day of a whole fleet, with what befalls a fleet in a day: a few hosts die, services and networks fail and come
//! back, people maintain, stop and delete, agents are rolled out. Every promise is checked after every step, as in every
//! other world, and in the evening everything has to be settled.

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{Config, GuestEventKind, VmPolicy};

use crate::faults::{Fault, unsettled};
use crate::random::dress;
use crate::world::{Event, Options, Run, World};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// What has failed by then is repaired, and nothing fails any more.
const EVENING: u64 = 22 * HOUR;
/// How often agents list their guests.
const LISTS: u64 = MINUTE;
/// Hosts that share an uplink.
const RACK: usize = 40;

/// A day.
#[derive(Clone)]
pub struct Day {
    /// Its seed, and whether its story is wanted.
    pub options: Options,
    /// How many hosts there are.
    pub hosts: usize,
    /// How many guests each of them has.
    pub guests_per_host: usize,
    /// How many of its hours are lived, at most 24.
    pub hours: u64,
}

impl Day {
    /// A whole day of so many hosts with fifty guests each.
    pub fn new(seed: u64, hosts: usize) -> Self {
        Self {
            options: Options::new(seed),
            hosts,
            guests_per_host: 50,
            hours: 24,
        }
    }
}

/// Lives one day. `progress` hears of every hour that is over.
pub fn run_day(day: &Day, mut progress: impl FnMut(u64)) -> Run {
    let mut rng = fastrand::Rng::with_seed(day.options.seed ^ 0x0DA1);
    let racks = day.hosts.div_ceil(RACK).max(3);
    let config = Config::default();
    let mut world = World::new(day.options.clone(), day.hosts, racks, day.guests_per_host, config);
    world.lists_every = Some(LISTS);
    world.quiet = 400;
    world.faults_end = EVENING;
    for h in 0..day.hosts {
        world.hosts[h].bmc.slow = rng.u64(50..3000);
        world.hosts[h].bmc.off_delay = rng.u64(300..6000);
    }
    for n in 0..world.servers.len() {
        dress(&mut world, n, &mut rng);
        if rng.u8(..10) == 0 {
            world.servers[n].policy = Some(VmPolicy::Restart);
        }
    }
    plan(&mut world, &mut rng);
    world.schedule(30_000, Event::Operator);
    for hour in 1..=day.hours.min(24) {
        world.run_until(hour * HOUR);
        if world.violation.is_some() {
            break;
        }
        progress(hour);
    }
    if world.violation.is_none()
        && world.now >= 24 * HOUR
        && let Some((invariant, what)) = unsettled(&world)
    {
        world.violate(invariant, what);
    }
    world.into_run()
}

/// What befalls the fleet, and when. Large fleets have more of it.
fn plan(world: &mut World, rng: &mut fastrand::Rng) {
    let often = (world.hosts.len() / 250).max(1);
    world.at(MINUTE, Fault::OnDuty);
    for _ in 0..often {
        hosts_die(world, rng);
        for _ in 0..5 {
            services_fail(world, rng);
        }
        for _ in 0..10 {
            guests_change(world, rng);
        }
        for _ in 0..3 {
            let (h, at) = (any_host(world, rng), moment(rng));
            world.at(at, Fault::Maintenance(h, Maintenance::Manual));
            world.at(at + HOUR, Fault::Maintenance(h, Maintenance::Off));
        }
    }
    plane_fails(world, rng);
    // A rollout over the whole fleet within an hour.
    let (begin, hosts) = (rng.u64(6 * HOUR..20 * HOUR), world.hosts.len());
    for h in 0..hosts {
        let at = begin + h as u64 * HOUR / hosts as u64;
        world.at(at, Fault::Agent(h, false));
        world.at(at + 8_000, Fault::Agent(h, true));
    }
    world.at(EVENING, Fault::Heal);
}

fn moment(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(10 * MINUTE..EVENING - 2 * HOUR)
}

fn any_host(world: &World, rng: &mut fastrand::Rng) -> usize {
    rng.usize(..world.hosts.len())
}

/// Each way in which a host can die, once. A person repairs it after an hour or two.
fn hosts_die(world: &mut World, rng: &mut fastrand::Rng) {
    for n in 0..4 {
        let (h, at) = (any_host(world, rng), moment(rng));
        let died = match n {
            0 => Fault::PowerLoss(h),
            1 => Fault::Panic(h),
            2 => Fault::SelfReboot(h),
            _ => Fault::Hang(h),
        };
        world.at(at, died);
        world.at(at + rng.u64(HOUR..2 * HOUR), Fault::PowerOn(h));
    }
}

/// Parts of hosts that fail for a while.
fn services_fail(world: &mut World, rng: &mut fastrand::Rng) {
    let h = any_host(world, rng);
    for fault in [
        Fault::Agent,
        Fault::Compute,
        Fault::Kubelet,
        Fault::Libvirt,
        Fault::Bmc,
    ] {
        let (at, lasts) = (moment(rng), rng.u64(10_000..20 * MINUTE));
        world.at(at, fault(h, false));
        world.at(at + lasts, fault(h, true));
    }
    let (at, lasts) = (moment(rng), rng.u64(2_000..3 * MINUTE));
    world.at(at, Fault::Mgmt(h, false));
    world.at(at + lasts, Fault::Mgmt(h, true));
}

/// What guests and their owners do.
fn guests_change(world: &mut World, rng: &mut fastrand::Rng) {
    let mut any = || rng.usize(..world.servers.len());
    let (dies, stopped, deleted, barks) = (any(), any(), any(), any());
    world.at(moment(rng), Fault::GuestDies(dies));
    world.at(moment(rng), Fault::OwnerStops(stopped));
    world.at(moment(rng), Fault::Delete(deleted));
    let host = world.servers[barks].host;
    world.at(moment(rng), Fault::Guest(host, barks, GuestEventKind::Watchdog));
}

/// Replicas, Kubernetes, Nova, its message queue and an uplink: each once.
fn plane_fails(world: &mut World, rng: &mut fastrand::Rng) {
    let rack = rng.usize(..world.uplinks.len());
    let r = rng.usize(..3);
    world.at(moment(rng), Fault::CrashReplica(r));
    world.at(moment(rng), Fault::CrashLeader);
    world.at(moment(rng), Fault::FreezeLeader(25_000));
    for (first, last) in [
        (Fault::Kubernetes(false), Fault::Kubernetes(true)),
        (Fault::Nova(false), Fault::Nova(true)),
        (Fault::Rabbit(false), Fault::Rabbit(true)),
        (Fault::Uplink(rack, false), Fault::Uplink(rack, true)),
        (Fault::ReplicaHosts(r, false), Fault::ReplicaHosts(r, true)),
        (Fault::ReplicaPeers(r, false), Fault::ReplicaPeers(r, true)),
        (Fault::Pause(true), Fault::Pause(false)),
    ] {
        let (at, lasts) = (moment(rng), rng.u64(20_000..5 * MINUTE));
        world.at(at, first);
        world.at(at + lasts, last);
    }
}
