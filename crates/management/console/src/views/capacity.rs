// SPDX-License-Identifier: Apache-2.0
//! Room in the fleet: how full hosts are, zone by zone, how CPU and memory are balanced, and what still fits. Free memory
//! that is spread thinly over many hosts is room that no large guest can use; the page shows how much.

use std::collections::BTreeMap;

use askama::Template;
use cobaltcore_api::labels;

use super::order::Counted;
use super::{Share, Tone, bytes, label, phase, shares, tone};
use crate::fleet::Known;

/// Guests people ask for, by memory.
const SIZES_GIB: [i128; 6] = [4, 16, 64, 128, 256, 512];
const BUCKETS: usize = 10;
/// How far the bars of the plot stand apart.
const BAR_STEP: usize = 30;
/// How high a line of its numbers is.
const LINE: i64 = 9;
/// Steps of each axis of the plot of CPU against memory.
const STEPS: usize = 20;
/// The side of that plot.
const SIDE: usize = 200;
/// The widest dot of it.
const WIDEST: f64 = 9.0;
const GIB: i128 = 1 << 30;

/// The page.
#[derive(Debug, Template)]
#[template(path = "capacity.html")]
pub struct Capacity {
    /// Zones by name.
    pub zones: Vec<Zone>,
    /// Hosts by how full their memory is.
    pub bars: Vec<Bar>,
    /// Hosts by how full both their processors and their memory are.
    pub dots: Vec<Dot>,
    /// What still fits.
    pub fits: Vec<Fit>,
    /// Memory that is free on hosts that take new guests.
    pub free: String,
    /// Hosts that take new guests.
    pub open: usize,
}

/// A zone.
#[derive(Debug)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// Its hosts.
    pub hosts: usize,
    /// Its processors.
    pub cpu: Share,
    /// Its memory.
    pub memory: Share,
}

/// Hosts of one fullness.
#[derive(Debug, PartialEq, Eq)]
pub struct Bar {
    /// From how many percent.
    pub from: usize,
    /// How many hosts by memory.
    pub memory: usize,
    /// That bar's height in percent of the highest.
    pub memory_height: i64,
    /// How many hosts by processors.
    pub cpu: usize,
    /// That bar's height.
    pub cpu_height: i64,
    /// How high above it the number stands: over that of a bar of about the same height beside it.
    pub cpu_rise: i64,
    /// Where it stands in the plot.
    pub x: usize,
}

/// Hosts that are alike in both.
#[derive(Debug, PartialEq, Eq)]
pub struct Dot {
    /// Where it stands, by processors.
    pub x: usize,
    /// Where it stands, by memory.
    pub y: usize,
    /// How wide it is.
    pub radius: String,
    /// In words.
    pub words: String,
}

/// Guests of one size.
#[derive(Debug, PartialEq, Eq)]
pub struct Fit {
    /// The memory of one guest.
    pub size: String,
    /// How many more fit.
    pub count: i128,
    /// Free memory that they can use, in percent of what is free.
    pub used: i128,
    /// Free memory that is of no use to them, in percent of what is free.
    pub lost: i128,
}

impl Capacity {
    /// The room of the fleet. Hosts out of use have none.
    pub fn of(known: &Known) -> Self {
        let mut zones: BTreeMap<Counted, Zone> = BTreeMap::new();
        let (mut by_memory, mut by_cpu) = ([0usize; BUCKETS], [0usize; BUCKETS]);
        let mut alike: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut free: Vec<i128> = Vec::new();
        for host in known.hypervisors.objects() {
            let (cpu, memory) = shares(host);
            let name = label(host, labels::ZONE);
            let zone = zones.entry(Counted(name.clone())).or_insert(Zone {
                name,
                hosts: 0,
                cpu: Share::default(),
                memory: Share::default(),
            });
            zone.hosts += 1;
            zone.cpu = zone.cpu.plus(cpu);
            zone.memory = zone.memory.plus(memory);
            for (counts, share) in [(&mut by_memory, memory), (&mut by_cpu, cpu)] {
                if let Some(count) = counts.get_mut(bucket(share, BUCKETS)) {
                    *count += 1;
                }
            }
            *alike
                .entry((bucket(cpu, STEPS), bucket(memory, STEPS)))
                .or_default() += 1;
            if phase(host) == "Active" && tone(host) < Tone::Warn {
                free.push((memory.total - memory.used).max(0));
            }
        }
        Self {
            zones: zones.into_values().collect(),
            bars: bars(&by_memory, &by_cpu),
            dots: dots(&alike),
            fits: SIZES_GIB.iter().map(|size| fit(*size * GIB, &free)).collect(),
            free: bytes(free.iter().sum()),
            open: free.len(),
        }
    }
}

/// Which of `steps` equal steps a share falls into.
fn bucket(share: Share, steps: usize) -> usize {
    usize::try_from(share.percent().clamp(0, 99)).unwrap_or_default() * steps / 100
}

fn bars(by_memory: &[usize; BUCKETS], by_cpu: &[usize; BUCKETS]) -> Vec<Bar> {
    let highest = by_memory.iter().chain(by_cpu).copied().max();
    let height =
        |hosts: usize| i64::try_from(hosts * 100 / highest.unwrap_or_default().max(1)).unwrap_or_default();
    let both = by_memory.iter().copied().zip(by_cpu.iter().copied());
    both.enumerate()
        .map(|(index, (memory, cpu))| {
            let beside = by_memory.iter().skip(index).take(2).filter(|hosts| **hosts > 0);
            let crowded = beside
                .into_iter()
                .any(|hosts| height(*hosts).abs_diff(height(cpu)) < LINE.unsigned_abs());
            Bar {
                from: index * 100 / BUCKETS,
                memory,
                memory_height: height(memory),
                cpu,
                cpu_height: height(cpu),
                cpu_rise: if crowded { LINE } else { 0 },
                x: index * BAR_STEP,
            }
        })
        .collect()
}

/// One dot for all hosts that are alike, its area by how many they are: thousands of hosts make a few hundred dots.
fn dots(alike: &BTreeMap<(usize, usize), usize>) -> Vec<Dot> {
    let most = alike.values().copied().max().unwrap_or_default().max(1) as f64;
    let (step, width) = (100 / STEPS, SIDE / STEPS);
    let dot = |((cpu, memory), hosts): (&(usize, usize), &usize)| Dot {
        x: cpu * width + width / 2,
        y: SIDE - (memory * width + width / 2),
        radius: format!("{:.1}", (WIDEST * (*hosts as f64 / most).sqrt()).max(2.0)),
        words: format!(
            "{hosts} {} with {} to {} % of CPU and {} to {} % of memory taken",
            if *hosts == 1 { "host" } else { "hosts" },
            cpu * step,
            (cpu + 1) * step,
            memory * step,
            (memory + 1) * step
        ),
    };
    alike.iter().map(dot).collect()
}

/// How many guests of `size` fit into the free memory of single hosts.
fn fit(size: i128, free: &[i128]) -> Fit {
    let total: i128 = free.iter().sum();
    let count: i128 = free.iter().map(|free| free / size).sum();
    let lost = (total - count * size) * 100 / total.max(1);
    Fit {
        size: bytes(size),
        count,
        used: if total == 0 { 0 } else { 100 - lost },
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;
    use crate::views::samples::host;
    use serde_json::json;

    #[test]
    fn scattered_room_is_lost_for_large_guests() {
        let free = vec![6 * GIB; 10];
        assert_eq!((fit(4 * GIB, &free).count, fit(4 * GIB, &free).lost), (10, 33));
        assert_eq!((fit(16 * GIB, &free).count, fit(16 * GIB, &free).lost), (0, 100));
        assert_eq!(fit(4 * GIB, &[]).lost, 0);
    }

    #[test]
    fn numbers_of_bars_of_one_height_stand_above_each_other() {
        let rise = |memory: [usize; BUCKETS], cpu: [usize; BUCKETS]| {
            let bars = bars(&memory, &cpu);
            bars.iter().map(|bar| bar.cpu_rise).take(3).collect::<Vec<_>>()
        };
        let alone = |at: usize, hosts| std::array::from_fn(|index| if index == at { hosts } else { 0 });
        assert_eq!(rise(alone(1, 1000), alone(1, 1000)), [0, LINE, 0], "in one bar");
        assert_eq!(
            rise(alone(1, 1000), alone(0, 990)),
            [LINE, 0, 0],
            "beside the next"
        );
        assert_eq!(rise(alone(1, 1000), alone(1, 500)), [0, 0, 0]);
        assert_eq!(rise(alone(0, 1000), alone(1, 1000)), [0, 0, 0], "on the far side");
    }

    #[test]
    fn only_hosts_in_use_have_room() {
        let status = |phase: &str| json!({"phase": phase, "allocation": {"memory": "10Gi"}, "capacity": {"memory": "100Gi"}});
        let fleet = Fleet::with([
            host("a", "east", "b", &status("Active")),
            host("b", "east", "b", &status("Maintenance")),
        ]);
        let capacity = Capacity::of(&fleet.known());
        assert_eq!(capacity.open, 1);
        assert_eq!(
            capacity.fits.iter().map(|fit| fit.count).collect::<Vec<_>>(),
            [22, 5, 1, 0, 0, 0]
        );
        assert_eq!(capacity.zones.len(), 1);
        assert_eq!(
            capacity
                .bars
                .get(1)
                .map(|bar| (bar.memory, bar.memory_height, bar.cpu)),
            Some((2, 100, 0))
        );
        let dots: Vec<&str> = capacity.dots.iter().map(|dot| dot.words.as_str()).collect();
        assert_eq!(
            dots,
            ["2 hosts with 0 to 5 % of CPU and 10 to 15 % of memory taken"]
        );
    }
}
