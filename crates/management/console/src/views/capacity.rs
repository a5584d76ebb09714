// SPDX-License-Identifier: Apache-2.0
//! Room in the fleet: how full hosts are, zone by zone, and what still fits. Free memory that is
//! spread thinly over many hosts is room that no large guest can use; the page says how much.

use std::collections::BTreeMap;

use askama::Template;
use cobaltcore_api::labels;

use super::{Share, Tone, bytes, label, phase, shares, tone};
use crate::fleet::Known;

/// Guests people ask for, by memory.
const SIZES_GIB: [i128; 6] = [4, 16, 64, 128, 256, 512];
const BUCKETS: usize = 10;
/// How far the bars of the plot stand apart.
const BAR_STEP: usize = 30;
const GIB: i128 = 1 << 30;

/// The page.
#[derive(Debug, Template)]
#[template(path = "capacity.html")]
pub struct Capacity {
    /// Zones by name.
    pub zones: Vec<Zone>,
    /// Hosts by how full their memory is.
    pub bars: Vec<Bar>,
    /// What still fits.
    pub fits: Vec<Fit>,
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
    /// How many hosts.
    pub hosts: usize,
    /// The bar's height in percent of the highest.
    pub height: i64,
    /// Where it stands in the plot.
    pub x: usize,
}

/// Guests of one size.
#[derive(Debug, PartialEq, Eq)]
pub struct Fit {
    /// The memory of one guest.
    pub size: String,
    /// How many more fit.
    pub count: i128,
    /// Free memory that is of no use to them, in percent of what is free.
    pub lost: i128,
}

impl Capacity {
    /// The room of the fleet. Hosts out of use have none.
    pub fn of(known: &Known) -> Self {
        let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
        let mut counts = [0usize; BUCKETS];
        let mut free: Vec<i128> = Vec::new();
        for host in known.hypervisors.objects() {
            let (cpu, memory) = shares(host);
            let name = label(host, labels::ZONE);
            let zone = zones.entry(name.clone()).or_insert(Zone {
                name,
                hosts: 0,
                cpu: Share::default(),
                memory: Share::default(),
            });
            zone.hosts += 1;
            zone.cpu = zone.cpu.plus(cpu);
            zone.memory = zone.memory.plus(memory);
            let bucket = usize::try_from(memory.percent().clamp(0, 99)).unwrap_or_default() * BUCKETS / 100;
            if let Some(count) = counts.get_mut(bucket) {
                *count += 1;
            }
            if phase(host) == "Active" && tone(host) < Tone::Warn {
                free.push((memory.total - memory.used).max(0));
            }
        }
        Self {
            zones: zones.into_values().collect(),
            bars: bars(&counts),
            fits: SIZES_GIB.iter().map(|size| fit(*size * GIB, &free)).collect(),
            open: free.len(),
        }
    }
}

fn bars(counts: &[usize; BUCKETS]) -> Vec<Bar> {
    let highest = counts.iter().copied().max().unwrap_or_default().max(1);
    let bar = |(index, hosts): (usize, &usize)| Bar {
        from: index * 100 / BUCKETS,
        hosts: *hosts,
        height: i64::try_from(hosts * 100 / highest).unwrap_or_default(),
        x: index * BAR_STEP,
    };
    counts.iter().enumerate().map(bar).collect()
}

/// How many guests of `size` fit into the free memory of single hosts.
fn fit(size: i128, free: &[i128]) -> Fit {
    let total: i128 = free.iter().sum();
    let count: i128 = free.iter().map(|free| free / size).sum();
    Fit {
        size: bytes(size),
        count,
        lost: if total == 0 {
            0
        } else {
            (total - count * size) * 100 / total
        },
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
            capacity.bars.get(1).map(|bar| (bar.hosts, bar.height)),
            Some((2, 100))
        );
    }
}
