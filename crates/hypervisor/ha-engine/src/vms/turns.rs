// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is: how many guests may be on their way at once, and in which order they go.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::ServerId;

use crate::engine::Engine;
use crate::ids::{IncidentId, Mono, Now};
use crate::ledger::{Incident, IncidentState, VmProgress, VmRecord};
use crate::mutation::Mutation;

/// How long a group waits for the one before it.
const GROUP_PATIENCE: Duration = Duration::from_secs(120);

/// How many more guests may be begun.
pub(super) struct Places {
    here: usize,
    everywhere: usize,
}

impl Places {
    pub(super) fn free(&self) -> bool {
        self.here > 0 && self.everywhere > 0
    }

    /// A guest is begun; one that was prepared has its place already.
    pub(super) fn take(&mut self, vm: &VmRecord) {
        if !prepared(vm) {
            self.here = self.here.saturating_sub(1);
            self.everywhere = self.everywhere.saturating_sub(1);
        }
    }
}

/// Whether a guest was locked to be asked for next. It holds a place, so that no more are locked
/// than can be moved and the first is not asked for after the last was locked.
pub(super) fn prepared(vm: &VmRecord) -> bool {
    vm.locked && vm.attempt == 0 && vm.progress == VmProgress::Pending
}

impl Engine {
    /// The places there are, as guests on their way and those prepared for it leave them.
    pub(super) fn places(&self, id: &IncidentId) -> Places {
        let taken = |of: &Incident| {
            let run = self.runs.get(&of.id);
            let stuck =
                |server: &ServerId| run.and_then(|run| run.vms.get(server)).is_some_and(|vm| vm.stuck);
            let takes = |vm: &&VmRecord| prepared(vm) || vm.progress.moving() && !stuck(&vm.server);
            of.vms.values().filter(takes).count()
        };
        let here = self.ledger.incidents.get(id).map_or(0, taken);
        let evacuating = |of: &&Incident| of.state == IncidentState::Evacuating;
        let everywhere = self.ledger.incidents.values().filter(evacuating).map(taken).sum();
        Places {
            here: self.config.vm_concurrency.saturating_sub(here),
            everywhere: self.config.global_concurrency.saturating_sub(everywhere),
        }
    }

    /// Whether another guest that must not share a host with this one is on its way. It may be another incident's:
    /// where members of such a group are on one host each, that is the usual case.
    fn companion_moves(&self, vm: &VmRecord, group: &str) -> bool {
        let together = |other: &VmRecord| {
            other.server != vm.server
                && other.anti_affinity.as_deref() == Some(group)
                && (other.progress.moving() || matches!(other.progress, VmProgress::Verifying { .. }))
        };
        let open = self.ledger.incidents.values().filter(|of| of.state.open());
        open.flat_map(|of| of.vms.values()).any(together)
    }

    /// Begins the groups whose turn it is: each waits for those before it, for a while. A group of which somebody was asked
    /// for has begun, whoever led then; its time is counted anew.
    pub(super) fn begin_groups(&mut self, id: &IncidentId, best: &BTreeMap<String, u16>, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let mut groups: BTreeMap<_, bool> = BTreeMap::new();
        for vm in incident.vms.values().filter(|vm| !vm.progress.terminal()) {
            let rank = Reverse(best.get(&vm.group).copied().unwrap_or(0));
            let asked = vm.progress != VmProgress::Pending || vm.attempt > 0;
            *groups.entry((rank, vm.group.clone())).or_default() |= asked;
        }
        let mut patient = false;
        let run = self.run(id, now);
        for ((_, group), asked) in groups {
            if !patient || asked {
                run.group_since.entry(group.clone()).or_insert(now.mono);
            }
            let young = |since: &Mono| now.mono.since(*since) < GROUP_PATIENCE;
            patient |= run.group_since.get(&group).is_none_or(young);
        }
    }

    /// Whether it is this guest's turn: groups, anti-affinity.
    pub(super) fn turn(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) -> bool {
        let begun = self.run(id, now).group_since.contains_key(&vm.group);
        (begun || self.broken.is(Mutation::IgnoreGroups))
            && self
                .anti_affinity(id, vm)
                .is_none_or(|group| !self.companion_moves(vm, group))
    }

    /// The group whose members must not share a host: as a request was made for it, or as it was read since.
    fn anti_affinity<'a>(&'a self, id: &IncidentId, vm: &'a VmRecord) -> Option<&'a str> {
        let run = self.runs.get(id).and_then(|run| run.vms.get(&vm.server));
        let read = run.and_then(|run| run.read.as_ref()?.server.as_ref()?.anti_affinity.as_deref());
        vm.anti_affinity.as_deref().or(read)
    }
}
