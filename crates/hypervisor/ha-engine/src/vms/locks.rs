// SPDX-License-Identifier: Apache-2.0
//! Locks keep owners from acting on a guest that is on its way.

use cobaltcore_api::names::ServerId;

use super::FOLLOW;
use crate::action::{Effect, lock_reason};
use crate::engine::{Engine, Slot};
use crate::ids::{IncidentId, Mono, Now};
use crate::journal::{Entry, LOCK};
use crate::ledger::VmRecord;

impl Engine {
    /// Keeps its owner from acting on a guest that is on its way. A lock that does not succeed is no
    /// reason to leave the guest down.
    pub(super) fn lock(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        let busy = self.busy(Some(id), &Slot::Vm(vm.server.clone()));
        if busy || self.fence_holds(id, now).is_none() {
            return;
        }
        self.vm_run(id, &vm.server, now).lock_tried = true;
        let effect = Effect::Lock {
            server: vm.server.clone(),
        };
        self.intend(id, &vm.server, LOCK, effect, now);
    }

    /// Unlocks what we locked and is settled, or is nobody's business any more. What somebody else
    /// locked stays locked.
    pub(crate) fn drive_locks(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let over = !incident.state.open();
        let settled: Vec<ServerId> = incident
            .vms
            .values()
            .filter(|vm| vm.locked && (over || vm.progress.terminal()))
            .map(|vm| vm.server.clone())
            .collect();
        for server in settled {
            let run = self.vm_run(id, &server, now);
            let after = run.answered.unwrap_or(Mono(0));
            if run.not_before > now.mono {
                continue;
            }
            let Some(seen) = self.look(id, &server, FOLLOW, after, now) else {
                continue;
            };
            let ours = lock_reason(id);
            if seen.server.is_some_and(|found| found.lock == Some(ours)) {
                let effect = Effect::Unlock {
                    server: server.clone(),
                };
                self.intend(id, &server, "unlock", effect, now);
            } else {
                self.write(
                    Entry::VmUnlocked {
                        incident: id.clone(),
                        server,
                    },
                    now,
                );
            }
        }
    }
}
