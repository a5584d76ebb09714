// SPDX-License-Identifier: Apache-2.0
//! Whether the other hosts can take what one host carries: the largest server first, each into
//! the first host with room. This finds a placement whenever there is slack; where it fails, the
//! scheduler would at best succeed by luck.

use crate::eviction::Answer;

/// What one server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Processors.
    pub vcpus: u64,
    /// Memory.
    pub ram_mb: u64,
}

/// What one other host has left; nothing when it does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Processors and memory.
    pub free: Option<(u64, u64)>,
}

/// Packs `demands` into `rooms`.
pub fn capacity(demands: &[Demand], rooms: &[Room]) -> Answer {
    let mut free: Vec<(u64, u64)> = rooms.iter().filter_map(|room| room.free).collect();
    let sum = |values: &mut dyn Iterator<Item = u64>| values.fold(0u64, u64::saturating_add);
    let (need_cpu, need_ram) = (
        sum(&mut demands.iter().map(|demand| demand.vcpus)),
        sum(&mut demands.iter().map(|demand| demand.ram_mb)),
    );
    let (free_cpu, free_ram) = (
        sum(&mut free.iter().map(|free| free.0)),
        sum(&mut free.iter().map(|free| free.1)),
    );
    let largest = demands.iter().map(|demand| demand.ram_mb).max().unwrap_or(0);
    let text = format!(
        "capacity: needs {need_cpu} vCPU/{need_ram} MiB, free {free_cpu}/{free_ram}, largest server {largest} MiB"
    );
    if demands.is_empty() {
        return Answer::Yes(text);
    }
    let mut sorted = demands.to_vec();
    sorted.sort_by_key(|demand| std::cmp::Reverse((demand.ram_mb, demand.vcpus)));
    let fits = sorted.iter().all(|demand| {
        let place = free
            .iter_mut()
            .find(|(cpu, ram)| *cpu >= demand.vcpus && *ram >= demand.ram_mb);
        place
            .map(|(cpu, ram)| {
                *cpu -= demand.vcpus;
                *ram -= demand.ram_mb;
            })
            .is_some()
    });
    let silent = rooms.iter().filter(|room| room.free.is_none()).count();
    if fits {
        Answer::Yes(text)
    } else if silent > 0 {
        Answer::Unknown(format!("{text}; {silent} host(s) do not report theirs"))
    } else {
        Answer::No(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(vcpus: u64, ram_mb: u64) -> Demand {
        Demand { vcpus, ram_mb }
    }

    fn room(cpu: u64, ram: u64) -> Room {
        Room {
            free: Some((cpu, ram)),
        }
    }

    #[test]
    fn the_sum_is_not_enough_when_no_single_host_has_room() {
        let answer = capacity(&[demand(2, 4096)], &[room(8, 3000), room(8, 3000)]);
        assert_eq!(
            answer,
            Answer::No("capacity: needs 2 vCPU/4096 MiB, free 16/6000, largest server 4096 MiB".to_owned())
        );
    }

    #[test]
    fn large_servers_are_placed_before_small_ones() {
        let demands = [demand(1, 1000), demand(1, 1000), demand(1, 3000)];
        assert!(matches!(
            capacity(&demands, &[room(4, 3000), room(4, 2000)]),
            Answer::Yes(_)
        ));
    }

    #[test]
    fn a_host_that_does_not_report_may_have_room() {
        let rooms = [room(1, 10), Room { free: None }];
        assert!(matches!(capacity(&[demand(1, 64)], &rooms), Answer::Unknown(_)));
        assert!(matches!(capacity(&[demand(1, 64)], &[]), Answer::No(_)));
        assert!(matches!(capacity(&[], &[]), Answer::Yes(_)));
    }
}
