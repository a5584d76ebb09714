// SPDX-License-Identifier: Apache-2.0
//! A guest that is down is asked for: it is still there, nobody else has it, Nova would take it, and the fence holds.

use super::turns::{Places, prepared};
use super::{ARRIVAL_PATIENCE, SECOND};
use crate::action::Effect;
use crate::engine::{Engine, Seen, Slot};
use crate::ids::{IncidentId, MigrationId, Mono, Now};
use crate::input::{MigrationFacts, MigrationKind, ServerFacts, VmState};
use crate::journal::Entry;
use crate::ledger::{BlockedReason, SkipReason, VmProgress, VmRecord, Wanted};
use crate::mutation::Mutation;
use crate::plan::{not_cut_off, out_of_reach, wanted};
use crate::recovery::note_retry;

impl Engine {
    pub(super) fn request(&mut self, id: &IncidentId, vm: &VmRecord, places: &mut Places, now: Now) {
        if !(prepared(vm) || places.free()) || !self.turn(id, vm, now) || self.awaits_lists(id, now) {
            return;
        }
        let run = self.vm_run(id, &vm.server, now);
        let after = run.answered.unwrap_or(Mono(0));
        if run.not_before > now.mono {
            return;
        }
        let Some(seen) = self.look(id, &vm.server, SECOND * 5, after, now) else {
            return;
        };
        let Some(server) = seen.server.clone() else {
            self.skip(id, vm, SkipReason::NotOnHost, now);
            return;
        };
        if server.host.as_ref() != Some(&id.host) {
            let progress = match (vm.attempt, server.host) {
                (1.., Some(destination)) => VmProgress::Verifying { destination },
                _ => VmProgress::Skipped {
                    reason: SkipReason::NotOnHost,
                },
            };
            self.set(id, &vm.server, progress, now);
            return;
        }
        if let Some(seen_on) = self.runs_elsewhere(&vm.server, &id.host, now) {
            self.set(id, &vm.server, VmProgress::Conflict { seen_on }, now);
            return;
        }
        // Of several records each may still come true whose destination is not known to be off.
        let possible = |m: &&MigrationFacts| {
            m.kind == MigrationKind::Evacuation && m.status.open() && !self.destination_fenced(m, now)
        };
        if let Some(open) = seen.migrations.iter().find(possible)
            && !self.broken.is(Mutation::ResendBlindly)
        {
            self.set(id, &vm.server, VmProgress::InFlight { migration: open.id }, now);
            places.take(vm);
            return;
        }
        if let Some(end) = self.left_alone(id, vm, &server) {
            self.set(id, &vm.server, end, now);
            return;
        }
        // Nova tells the group of a guest only to whoever asks for that guest.
        if !self.turn(id, vm, now) {
            return;
        }
        if !self.settled(id, vm, &server, &seen, now) || !self.acceptable(id, vm, &server, now) {
            return;
        }
        places.take(vm);
        // A lock that another term intended and that is not there was never sent.
        let tried = vm.locked && self.vm_run(id, &vm.server, now).lock_tried;
        if self.config.lock_servers && server.lock.is_none() && !tried {
            self.lock(id, vm, now);
            return;
        }
        self.evacuate(id, vm, &seen, now);
    }

    /// Why a guest is not moved after all. Its owner may have changed their mind since the plan was made; once it was asked for,
    /// only what stands against any move counts.
    fn left_alone(&self, id: &IncidentId, vm: &VmRecord, server: &ServerFacts) -> Option<VmProgress> {
        let grade = self.ledger.incidents.get(id).and_then(|incident| incident.grade);
        if vm.attempt > 0 || self.broken.is(Mutation::ForgetOldWishes) {
            return out_of_reach(server).or_else(|| not_cut_off(server, grade));
        }
        let end = self.classified(id, server, grade);
        (end != VmProgress::Pending).then_some(end)
    }

    /// What a guest is to be, if its owner stopped or started it between the plan and now. What Nova shows of one that failed
    /// is no wish of anybody; and of one that was asked for before, that it is to stop is. What was asked for before may have
    /// written over what its owner wished since, and whoever leads next would not know.
    fn wanted_now(&self, id: &IncidentId, vm: &VmRecord, server: &ServerFacts, now: Now) -> Option<Wanted> {
        let careless = [Mutation::ForgetOldWishes, Mutation::StartStopped];
        let careless = careless.into_iter().any(|mutation| self.broken.is(mutation));
        let failed = server.state == VmState::Error;
        if careless || self.wanted_elsewhere(id, &vm.server).is_some() {
            return None;
        }
        let stopped = vm.attempt > 0 && server.user_stops && self.acted_since(id, server, now);
        if failed && !stopped {
            return None;
        }
        let found = if stopped { Wanted::Stopped } else { wanted(server) };
        let telling = vm.attempt == 0 || found == Wanted::Stopped;
        (telling && found != vm.wanted).then_some(found)
    }

    fn evacuate(&mut self, id: &IncidentId, vm: &VmRecord, seen: &Seen, now: Now) {
        let Some(until) = self.fence_holds(id, now) else {
            return;
        };
        if !self.ready(id, &Slot::Requests, now) {
            return;
        }
        let run = self.run(id, now);
        if run.retry.contains_key(&Slot::Requests) {
            // After a refusal one goes ahead; the others wait for what becomes of it.
            note_retry(run, &Slot::Requests, true, now.mono);
        }
        let counted = !std::mem::take(&mut self.vm_run(id, &vm.server, now).uncounted);
        let known: Vec<MigrationId> = seen.migrations.iter().map(|m| m.id).collect();
        let entry = Entry::EvacuateIntended {
            incident: id.clone(),
            server: vm.server.clone(),
            attempt: vm.attempt + u32::from(counted),
            known: known.clone(),
            wanted: seen
                .server
                .as_ref()
                .and_then(|server| self.wanted_now(id, vm, server, now)),
            anti_affinity: seen
                .server
                .as_ref()
                .and_then(|server| server.anti_affinity.clone()),
        };
        if self.broken.is(Mutation::NoJournalBeforeEvacuate) {
            self.pretend(entry, now);
        } else {
            self.write(entry, now);
        }
        let run = self.vm_run(id, &vm.server, now);
        run.answered = None;
        run.clear = false;
        run.asked_last = Some(now.mono);
        run.since = now.mono;
        let effect = Effect::Evacuate {
            server: vm.server.clone(),
            from: id.host.clone(),
            known,
        };
        self.act_until(Some(id), Slot::Vm(vm.server.clone()), effect, until, now);
    }

    /// Whether Nova has had its time to settle what was going on when the host died.
    fn settled(
        &mut self,
        id: &IncidentId,
        vm: &VmRecord,
        server: &ServerFacts,
        seen: &Seen,
        now: Now,
    ) -> bool {
        let live: Vec<&MigrationFacts> = seen
            .migrations
            .iter()
            .filter(|m| m.kind == MigrationKind::Live && m.status.open())
            .collect();
        let first_seen = self.vm_run(id, &vm.server, now).live_seen;
        // The guest may have arrived. That its destination says nothing proves nothing.
        let arrived = live.iter().any(|m| !self.did_not_arrive(m, first_seen, now));
        let fenced_since = self.run(id, now).state_since;
        let run = self.vm_run(id, &vm.server, now);
        if !live.is_empty() {
            let waited = now.mono.since(*run.live_seen.get_or_insert(now.mono));
            if arrived && waited >= ARRIVAL_PATIENCE {
                let reason = BlockedReason::ArrivalUnknown;
                self.set(id, &vm.server, VmProgress::Blocked { reason }, now);
                return false;
            }
            if arrived || waited < SECOND * 60 {
                return false;
            }
            run.needs_reset = true;
        }
        let busy = !server.task.is_empty() && server.task != "rebuilding";
        if busy && now.mono.since(fenced_since) < SECOND * 30 {
            return false;
        }
        if server.task == "rebuilding" && vm.attempt > 0 && !run.needs_reset {
            // A request is under way whose record is not there yet, or whose destination is gone.
            return now.mono.since(run.since) >= SECOND * 60;
        }
        true
    }

    /// Whether Nova would accept it; makes it acceptable if not.
    fn acceptable(&mut self, id: &IncidentId, vm: &VmRecord, server: &ServerFacts, now: Now) -> bool {
        let run = self.vm_run(id, &vm.server, now);
        let state = matches!(server.state, VmState::Active | VmState::Stopped | VmState::Error);
        let reset = !state || (run.needs_reset && server.state != VmState::Error);
        if !reset {
            run.needs_reset = false;
            return true;
        }
        run.answered = Some(now.mono);
        run.read = None;
        if self.fence_holds(id, now).is_none() {
            return false;
        }
        let effect = Effect::ResetState {
            server: vm.server.clone(),
        };
        self.intend(id, &vm.server, "reset-state", effect, now);
        false
    }
}
