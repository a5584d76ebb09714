// SPDX-License-Identifier: Apache-2.0
//! Answers to what was asked about a guest, and refusals.

use cobaltcore_api::names::ServerId;

use super::SECOND;
use crate::engine::{Engine, Seen, Slot};
use crate::ids::{IncidentId, Mono, Now};
use crate::input::{Answer, Refusal, Trouble};
use crate::ledger::{BlockedReason, FailedReason, SkipReason, VmProgress, VmRecord};
use crate::recovery::note_retry;

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
        match &result {
            Ok(Answer::Server { .. }) => self.nova_answers(id, &Slot::Guests, now),
            Ok(_) => self.nova_answers(id, &Slot::Requests, now),
            Err(Trouble::Unknown | Trouble::Refused(Refusal::Unauthorized)) => {
                self.nova_fails(id, &Slot::Guests, now);
            }
            Err(_) => {}
        }
        let run = self.vm_run(id, server, now);
        match result {
            Ok(Answer::Server { server, migrations }) => {
                run.read = Some(Seen {
                    asked,
                    came: now.mono,
                    server,
                    migrations,
                });
            }
            Err(trouble) => {
                run.not_before = now.mono.after(SECOND * 2);
                let requested = progress
                    .as_ref()
                    .filter(|vm| vm.progress == VmProgress::Requested);
                if let Some(vm) = requested
                    && run.answered.is_none()
                {
                    run.answered = Some(now.mono);
                    run.clear = !matches!(trouble, Trouble::Unknown | Trouble::Lost);
                    self.refused(id, vm, trouble, now);
                }
            }
            Ok(Answer::Unsupported(said)) => {
                let requested = progress.is_some_and(|vm| vm.progress == VmProgress::Requested);
                if requested && run.answered.replace(now.mono).is_none() {
                    let reason = BlockedReason::Unsupported;
                    self.set_with(id, server, VmProgress::Blocked { reason }, Some(said), now);
                }
            }
            Ok(_) => {
                // Done: whatever was read before is the past.
                run.answered = Some(now.mono);
                run.clear = true;
            }
        }
    }

    fn refused(&mut self, id: &IncidentId, vm: &VmRecord, trouble: Trouble, now: Now) {
        match trouble {
            // What never left says nothing about the guest.
            Trouble::NotStarted => self.later(id, vm, now),
            Trouble::Refused(Refusal::NotFound) => {
                self.skip(id, vm, SkipReason::NotOnHost, now);
            }
            Trouble::Refused(Refusal::Conflict) => {
                self.again(id, vm, FailedReason::NovaError, now);
                self.vm_run(id, &vm.server, now).needs_reset = true;
            }
            Trouble::Refused(Refusal::StillInUse) => {
                // Somebody took back that the host is down, or Nova forgot it: its record is read and written again.
                let run = self.run(id, now);
                run.believed_up = true;
                run.service = None;
                self.later(id, vm, now);
            }
            Trouble::Refused(Refusal::Unauthorized) => self.later(id, vm, now),
            Trouble::Refused(Refusal::Other) => self.again(id, vm, FailedReason::NovaError, now),
            // It may have happened: the records will tell.
            Trouble::Unknown | Trouble::Lost => {}
        }
    }

    /// A refusal that is nothing against the guest: the attempt is made again when Nova takes requests again.
    fn later(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        self.nova_fails(id, &Slot::Requests, now);
        self.set(id, &vm.server, VmProgress::Pending, now);
        let run = self.vm_run(id, &vm.server, now);
        run.answered = Some(now.mono);
        run.uncounted = true;
    }

    /// Many guests are refused at once; that counts once.
    fn nova_fails(&mut self, id: &IncidentId, slot: &Slot, now: Now) {
        if self.ready(id, slot, now) {
            note_retry(self.run(id, now), slot, true, now.mono);
        }
    }

    fn nova_answers(&mut self, id: &IncidentId, slot: &Slot, now: Now) {
        note_retry(self.run(id, now), slot, false, now.mono);
    }
}
