// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is: how many guests may be on their way at once, and in which order they go.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::ServerId;

use crate::engine::Engine;
use crate::ids::{IncidentId, Now};
use crate::ledger::{Incident, IncidentState, VmProgress, VmRecord};

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
    fn companion_moves(&self, vm: &VmRecord) -> bool {
        let together = |other: &VmRecord| {
            other.server != vm.server
                && other.anti_affinity == vm.anti_affinity
                && (other.progress.moving() || matches!(other.progress, VmProgress::Verifying { .. }))
        };
        let open = self.ledger.incidents.values().filter(|of| of.state.open());
        open.flat_map(|of| of.vms.values()).any(together)
    }

    /// Whether it is this guest's turn: groups, anti-affinity.
    pub(super) fn turn(
        &mut self,
        id: &IncidentId,
        vm: &VmRecord,
        best: &BTreeMap<String, u16>,
        now: Now,
    ) -> bool {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return false;
        };
        if vm.anti_affinity.is_some() && self.companion_moves(vm) {
            return false;
        }
        let rank = |group: &str| (Reverse(best.get(group).copied().unwrap_or(0)), group.to_owned());
        let mine = rank(&vm.group);
        let earlier: Vec<String> = incident
            .vms
            .values()
            .filter(|other| rank(&other.group) < mine && !other.progress.terminal())
            .map(|other| other.group.clone())
            .collect();
        let group = vm.group.clone();
        let run = self.run(id, now);
        let patient = earlier.iter().any(|group| {
            run.group_since
                .get(group)
                .is_none_or(|since| now.mono.since(*since) < GROUP_PATIENCE)
        });
        if !patient {
            run.group_since.entry(group).or_insert(now.mono);
        }
        !patient
    }
}
