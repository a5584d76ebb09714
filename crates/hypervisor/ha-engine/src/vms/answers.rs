// SPDX-License-Identifier: Apache-2.0
//! Answers to what was asked about a guest, and refusals.

use cobaltcore_api::names::ServerId;

use super::SECOND;
use crate::engine::Engine;
use crate::ids::{IncidentId, Mono, Now};
use crate::input::{Answer, Refusal, Trouble};
use crate::ledger::{BlockedReason, FailedReason, SkipReason, VmProgress, VmRecord};

impl Engine {
    pub(crate) fn vm_outcome(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        asked: Mono,
        result: Result<Answer, Trouble>,
        now: Now,
    ) {
        let progress = self
            .ledger
            .incidents
            .get(id)
            .and_then(|i| i.vms.get(server))
            .cloned();
        let run = self.vm_run(id, server, now);
        match result {
            Ok(Answer::Server { server, migrations }) => run.read = Some((asked, (server, migrations))),
            Err(trouble) => {
                run.not_before = now.mono.after(SECOND * 2);
                let requested = progress
                    .as_ref()
                    .filter(|vm| vm.progress == VmProgress::Requested);
                if let Some(vm) = requested
                    && run.answered.is_none()
                {
                    run.answered = Some(now.mono);
                    self.refused(id, vm, trouble, now);
                }
            }
            Ok(_) => {
                // Done: whatever was read before is the past.
                run.answered = Some(now.mono);
            }
        }
    }

    fn refused(&mut self, id: &IncidentId, vm: &VmRecord, trouble: Trouble, now: Now) {
        match trouble {
            Trouble::NotStarted => self.again(id, vm, FailedReason::NovaError, now),
            Trouble::Refused(Refusal::NotFound) => {
                self.skip(id, vm, SkipReason::NotOnHost, now);
            }
            Trouble::Refused(Refusal::NotSupported) => {
                self.set(
                    id,
                    &vm.server,
                    VmProgress::Blocked {
                        reason: BlockedReason::Unsupported,
                    },
                    now,
                );
            }
            Trouble::Refused(Refusal::Conflict) => {
                self.again(id, vm, FailedReason::NovaError, now);
                self.vm_run(id, &vm.server, now).needs_reset = true;
            }
            Trouble::Refused(_) => self.again(id, vm, FailedReason::NovaError, now),
            // It may have happened: the records will tell.
            Trouble::Unknown => {}
        }
    }
}
