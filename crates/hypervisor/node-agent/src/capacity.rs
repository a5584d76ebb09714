// SPDX-License-Identifier: Apache-2.0
//! What the host has and what its guests take from it, cell by cell. Pure arithmetic: every byte and every virtual
//! processor of a guest is counted exactly once in the total, and at most once in a cell.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::{Quantity, ResourceMap};

use crate::xml::IdSet;

/// The name of processors among resources.
pub const CPU: &str = "cpu";
/// The name of memory among resources.
pub const MEMORY: &str = "memory";

/// One NUMA cell of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCell {
    /// Bytes.
    pub memory: u64,
    /// Processors.
    pub cpus: u64,
    /// Their numbers, if libvirt lists them.
    pub cpu_ids: BTreeSet<u32>,
    /// How many huge pages there are, by their size in bytes. Ordinary pages are memory and nothing else.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The NUMA cells of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCells {
    /// Architecture of the processors.
    pub arch: String,
    /// Cells by number.
    pub cells: BTreeMap<u64, HostCell>,
    /// What could not be understood.
    pub problems: Vec<String>,
}

/// How many huge pages are free, by cell and by their size in bytes.
pub type FreePages = BTreeMap<u64, BTreeMap<u64, u64>>;

impl HostCells {
    /// The sizes of huge pages that some cell has, in bytes.
    pub fn page_sizes(&self) -> BTreeSet<u64> {
        let cells = self.cells.values();
        cells.flat_map(|cell| cell.huge_pages.keys().copied()).collect()
    }

    /// Bytes and processors over all cells.
    pub fn total(&self) -> Amount {
        self.cells.values().fold(Amount::default(), |sum, cell| {
            sum.plus(Amount {
                memory: cell.memory,
                cpus: cell.cpus,
            })
        })
    }
}

/// Memory and processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes.
    pub memory: u64,
    /// Processors.
    pub cpus: u64,
}

impl Amount {
    /// The sum; more than can be counted stays at the most.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            cpus: self.cpus.saturating_add(other.cpus),
        }
    }

    /// The rest; never below nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(other.memory),
            cpus: self.cpus.saturating_sub(other.cpus),
        }
    }

    /// With overcommit: rounded down, a missing or impossible ratio counts as one.
    #[must_use]
    pub fn overcommitted(self, ratios: &BTreeMap<String, f64>) -> Self {
        let times = |value: u64, resource: &str| match ratios.get(resource).copied() {
            // Without a ratio nothing may pass through a float: it would lose the last bytes of large hosts.
            Some(ratio) if ratio.is_finite() && ratio >= 1.0 && ratio != 1.0 => {
                (value as f64 * ratio).floor() as u64
            }
            _ => value,
        };
        Self {
            memory: times(self.memory, MEMORY),
            cpus: times(self.cpus, CPU),
        }
    }

    /// As Kubernetes writes it.
    pub fn resources(self) -> ResourceMap {
        [
            (CPU.to_owned(), Quantity::count(self.cpus)),
            (MEMORY.to_owned(), Quantity::bytes(self.memory)),
        ]
        .into()
    }
}

/// A NUMA cell inside of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestCell {
    /// Its number inside of the guest.
    pub id: u32,
    /// Bytes.
    pub memory: u64,
    /// Virtual processors.
    pub cpus: IdSet,
}

/// What a guest takes and where it is bound to, as its definition says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// Bytes.
    pub memory: u64,
    /// Virtual processors.
    pub vcpus: u64,
    /// Host processors for all virtual ones.
    pub cpuset: Option<IdSet>,
    /// Host processors by virtual processor.
    pub pins: BTreeMap<u32, IdSet>,
    /// Host cells for all memory.
    pub nodeset: Option<IdSet>,
    /// Host cells by guest cell.
    pub memnodes: BTreeMap<u32, IdSet>,
    /// Cells of the guest.
    pub cells: Vec<GuestCell>,
    /// What could not be understood.
    pub problems: Vec<String>,
}

impl Claim {
    /// What the guest takes in all.
    pub fn amount(&self) -> Amount {
        Amount {
            memory: self.memory,
            cpus: self.vcpus,
        }
    }

    fn nodes_of_cell(&self, cell: u32) -> Option<&IdSet> {
        self.memnodes.get(&cell).or(self.nodeset.as_ref())
    }

    fn nodes_of_vcpu(&self, vcpu: u32) -> Option<&IdSet> {
        let cell = self.cells.iter().find(|cell| cell.cpus.contains(vcpu));
        match cell {
            Some(cell) => self.nodes_of_cell(cell.id),
            None => self.nodeset.as_ref(),
        }
    }
}

/// Where a guest's memory and processors are, by host cell. What is bound nowhere is missing here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Amounts by host cell.
    pub cells: BTreeMap<u64, Amount>,
    /// Bindings to things that the host does not have.
    pub problems: Vec<String>,
}

impl Placement {
    fn add(&mut self, cell: u64, amount: Amount) {
        let place = self.cells.entry(cell).or_default();
        *place = place.plus(amount);
    }
}

/// Places one guest on the cells of its host.
pub fn place(claim: &Claim, host: &HostCells) -> Placement {
    let mut placement = Placement::default();
    place_memory(claim, host, &mut placement);
    place_cpus(claim, host, &mut placement);
    placement.problems.sort();
    placement.problems.dedup();
    placement
}

fn place_memory(claim: &Claim, host: &HostCells, placement: &mut Placement) {
    let sum: u128 = claim.cells.iter().map(|cell| u128::from(cell.memory)).sum();
    if sum == 0 {
        if let Some(nodes) = &claim.nodeset {
            split_memory(claim.memory, nodes, host, placement);
        }
        return;
    }
    // Guest cells say how the memory is divided; the total is what the guest really gets.
    let mut left = claim.memory;
    for (index, cell) in claim.cells.iter().enumerate() {
        let last = index + 1 == claim.cells.len();
        let share = u128::from(cell.memory) * u128::from(claim.memory) / sum;
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(left);
        let share = if last { left } else { share };
        left -= share;
        if let Some(nodes) = claim.nodes_of_cell(cell.id) {
            split_memory(share, nodes, host, placement);
        }
    }
}

/// Divides evenly over the nodes of a set; the odd bytes go to the lowest of them.
fn split_memory(memory: u64, nodes: &IdSet, host: &HostCells, placement: &mut Placement) {
    let count = nodes.len();
    if count == 0 || memory == 0 {
        return;
    }
    let (share, rest) = (memory / count, memory % count);
    let known = known_cells(nodes, host);
    if (known.len() as u64) < count {
        placement
            .problems
            .push("bound to a NUMA cell that the host does not have".to_owned());
    }
    for cell in known {
        let odd = if nodes.first().map(u64::from) == Some(cell) {
            rest
        } else {
            0
        };
        let memory = share + odd;
        placement.add(cell, Amount { memory, cpus: 0 });
    }
}

fn known_cells(nodes: &IdSet, host: &HostCells) -> Vec<u64> {
    let known = host.cells.keys().copied();
    known
        .filter(|cell| u32::try_from(*cell).is_ok_and(|id| nodes.contains(id)))
        .collect()
}

fn place_cpus(claim: &Claim, host: &HostCells, placement: &mut Placement) {
    let mut groups: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
    for vcpu in 0..u32::try_from(claim.vcpus).unwrap_or(u32::MAX) {
        let pinned = claim.pins.get(&vcpu).or(claim.cpuset.as_ref());
        let touched = pinned.map(|set| cells_of_cpus(set, host)).unwrap_or_default();
        let cells = if touched.is_empty() {
            let nodes = claim.nodes_of_vcpu(vcpu);
            nodes.map(|nodes| known_cells(nodes, host)).unwrap_or_default()
        } else {
            touched
        };
        *groups.entry(cells).or_default() += 1;
    }
    for (cells, count) in groups {
        let many = cells.len() as u64;
        for (index, cell) in cells.into_iter().enumerate() {
            let cpus = count / many + u64::from((index as u64) < count % many);
            placement.add(cell, Amount { memory: 0, cpus });
        }
    }
}

/// The cells whose processors are in the set, in order.
fn cells_of_cpus(set: &IdSet, host: &HostCells) -> Vec<u64> {
    let touched = host
        .cells
        .iter()
        .filter(|(_, cell)| cell.cpu_ids.iter().any(|id| set.contains(*id)));
    touched.map(|(id, _)| *id).collect()
}

/// What all guests take together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Everything.
    pub total: Amount,
    /// By host cell; cells where nothing is placed are missing.
    pub cells: BTreeMap<u64, Amount>,
}

impl Allocation {
    /// Counts a guest.
    pub fn add(&mut self, amount: Amount, placement: &Placement) {
        self.total = self.total.plus(amount);
        for (cell, part) in &placement.cells {
            let place = self.cells.entry(*cell).or_default();
            *place = place.plus(*part);
        }
    }

    /// What is bound to no cell.
    pub fn unplaced(&self) -> Amount {
        self.cells
            .values()
            .fold(self.total, |rest, cell| rest.minus(*cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four cells with four processors each, numbered through.
    fn host() -> HostCells {
        let cell = |id: u32| HostCell {
            memory: 64 << 30,
            cpus: 4,
            cpu_ids: (id * 4..id * 4 + 4).collect(),
            huge_pages: BTreeMap::new(),
        };
        HostCells {
            arch: "x86_64".into(),
            cells: (0..4).map(|id| (u64::from(id), cell(id))).collect(),
            problems: Vec::new(),
        }
    }

    fn set(text: &str) -> IdSet {
        IdSet::parse(text).unwrap()
    }

    fn cell(id: u32, memory: u64, cpus: &str) -> GuestCell {
        GuestCell {
            id,
            memory,
            cpus: set(cpus),
        }
    }

    fn amounts(placement: &Placement) -> Vec<(u64, u64, u64)> {
        let cells = placement.cells.iter();
        cells
            .map(|(id, amount)| (*id, amount.memory, amount.cpus))
            .collect()
    }

    #[test]
    fn a_guest_on_host_cell_one_is_booked_there_although_its_own_cell_is_zero() {
        let claim = Claim {
            memory: 8 << 30,
            vcpus: 2,
            pins: [(0, set("4")), (1, set("5"))].into(),
            memnodes: [(0, set("1"))].into(),
            cells: vec![cell(0, 8 << 30, "0-1")],
            ..Claim::default()
        };
        assert_eq!(amounts(&place(&claim, &host())), [(1, 8 << 30, 2)]);
    }

    #[test]
    fn a_plain_guest_is_in_no_cell() {
        let claim = Claim {
            memory: 1 << 30,
            vcpus: 4,
            ..Claim::default()
        };
        let placement = place(&claim, &host());
        assert_eq!((amounts(&placement), placement.problems.len()), (vec![], 0));
        let mut allocation = Allocation::default();
        allocation.add(claim.amount(), &placement);
        assert_eq!(allocation.unplaced(), claim.amount());
    }

    #[test]
    fn two_guest_cells_follow_their_own_nodes_and_are_scaled_to_the_memory() {
        let claim = Claim {
            memory: 10,
            vcpus: 3,
            memnodes: [(0, set("2")), (1, set("3"))].into(),
            cells: vec![cell(0, 1, "0-1"), cell(1, 3, "2")],
            ..Claim::default()
        };
        // A quarter of ten is two, the rest goes with the last cell; unpinned processors follow their memory.
        assert_eq!(amounts(&place(&claim, &host())), [(2, 2, 2), (3, 8, 1)]);
    }

    #[test]
    fn processors_that_may_run_in_several_cells_are_divided() {
        let claim = Claim {
            memory: 9,
            vcpus: 5,
            cpuset: Some(set("0-7")),
            nodeset: Some(set("0-1")),
            ..Claim::default()
        };
        assert_eq!(amounts(&place(&claim, &host())), [(0, 5, 3), (1, 4, 2)]);
    }

    #[test]
    fn a_cell_the_host_does_not_have_counts_in_the_total_only() {
        let claim = Claim {
            memory: 10,
            vcpus: 1,
            nodeset: Some(set("3-4")),
            ..Claim::default()
        };
        let placement = place(&claim, &host());
        assert_eq!(amounts(&placement), [(3, 5, 1)]);
        assert_eq!(
            placement.problems,
            ["bound to a NUMA cell that the host does not have"]
        );
    }

    #[test]
    fn without_listed_processors_the_memory_decides() {
        let mut host = host();
        host.cells.values_mut().for_each(|cell| cell.cpu_ids.clear());
        let claim = Claim {
            memory: 4,
            vcpus: 2,
            pins: [(0, set("8")), (1, set("9"))].into(),
            nodeset: Some(set("2")),
            ..Claim::default()
        };
        assert_eq!(amounts(&place(&claim, &host)), [(2, 4, 2)]);
    }

    #[test]
    fn overcommit_rounds_down_and_ignores_impossible_ratios() {
        let ratios = |cpu: f64, memory: f64| [(CPU.to_owned(), cpu), (MEMORY.to_owned(), memory)].into();
        let have = Amount {
            memory: 64 << 30,
            cpus: 11,
        };
        let effective = have.overcommitted(&ratios(1.5, 1.5)).resources();
        assert_eq!(
            (effective[CPU].as_str(), effective[MEMORY].as_str()),
            ("16", "96Gi")
        );
        assert_eq!(have.overcommitted(&BTreeMap::new()), have);
        assert_eq!(have.overcommitted(&ratios(f64::NAN, 0.5)), have);
        let large = Amount {
            memory: u64::MAX >> 4,
            cpus: 1,
        };
        assert_eq!(large.overcommitted(&ratios(1.0, 1.0)), large);
    }

    fn any_set() -> impl Strategy<Value = IdSet> {
        (0_u32..20, 0_u32..6).prop_map(|(first, more)| set(&format!("{first}-{}", first + more)))
    }

    prop_compose! {
        fn any_claim()(memory in 0_u64..1 << 40, vcpus in 0_u64..64, cpuset in proptest::option::of(any_set()),
            pins in proptest::collection::btree_map(0_u32..64, any_set(), 0..8),
            nodeset in proptest::option::of(any_set()), memnodes in proptest::collection::btree_map(0_u32..4, any_set(), 0..4),
            cells in proptest::collection::vec((0_u64..1 << 40, any_set()), 0..4)) -> Claim {
            let cells = cells.into_iter().zip(0..).map(|((memory, cpus), id)| GuestCell { id, memory, cpus }).collect();
            Claim { memory, vcpus, cpuset, pins, nodeset, memnodes, cells, problems: Vec::new() }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_counted_twice_and_nothing_appears(claims in proptest::collection::vec(any_claim(), 0..8)) {
            let host = host();
            let mut allocation = Allocation::default();
            for claim in &claims {
                let placement = place(claim, &host);
                let placed = placement.cells.values().fold(Amount::default(), |sum, part| sum.plus(*part));
                prop_assert!(placed.memory <= claim.memory && placed.cpus <= claim.vcpus, "{placement:?} of {claim:?}");
                prop_assert!(placement.cells.keys().all(|cell| host.cells.contains_key(cell)));
                allocation.add(claim.amount(), &placement);
            }
            let placed = allocation.cells.values().fold(Amount::default(), |sum, part| sum.plus(*part));
            prop_assert_eq!(placed.plus(allocation.unplaced()), allocation.total);
            prop_assert_eq!(allocation.total.memory, claims.iter().map(|claim| claim.memory).sum::<u64>());
        }

        #[test]
        fn what_is_bound_to_existing_cells_is_placed_completely(memory in 0_u64..1 << 40, vcpus in 0_u64..64, first in 0_u32..4, more in 0_u32..4) {
            let last = (first + more).min(3);
            let claim = Claim { memory, vcpus, nodeset: Some(set(&format!("{first}-{last}"))), ..Claim::default() };
            let placement = place(&claim, &host());
            let placed = placement.cells.values().fold(Amount::default(), |sum, part| sum.plus(*part));
            prop_assert_eq!(placed, claim.amount());
        }
    }
}
