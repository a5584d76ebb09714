// SPDX-License-Identifier: Apache-2.0
//! One guest from Pending to Recovered. Nova is asked once per attempt, and never again before the
//! record of the last attempt is known to have failed: a request that timed out can still happen.
//!
//! This module says in which order guests are looked at and what is known of each; how one is asked
//! for, where it may be already, and what became of it are modules of their own.

mod answers;
mod elsewhere;
mod follow;
mod lists;
mod locks;
mod request;
mod turns;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::ServerId;

use crate::action::Effect;
use crate::engine::{Engine, Seen, Slot, VmRun};
use crate::ids::{IncidentId, Mono, Now};
use crate::journal::Entry;
use crate::ledger::{BlockedReason, SkipReason, VmProgress, VmRecord};
use crate::mutation::Mutation;
use crate::status::Notice;

pub(crate) use lists::Lists;

const SECOND: Duration = Duration::from_secs(1);
/// How often a guest on its way is looked at.
const FOLLOW: Duration = Duration::from_secs(5);
/// How long it is awaited that somebody knows whether a guest arrived where it was sent.
const ARRIVAL_PATIENCE: Duration = Duration::from_mins(15);

impl Engine {
    /// Looks after guests that were asked for, while no other may be.
    pub(crate) fn follow_vms(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let under_way = incident.vms.values().filter(|vm| !vm.progress.terminal());
        let vms: Vec<VmRecord> = under_way.cloned().collect();
        for vm in vms {
            self.attend(id, &vm, now);
        }
        self.drive_locks(id, now);
    }

    /// Finds out what became of a guest that was asked for.
    fn attend(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        match &vm.progress {
            VmProgress::Requested => self.settle(id, vm, now),
            VmProgress::InFlight { migration } => self.follow(id, vm, *migration, now),
            VmProgress::Verifying { destination } => self.verify(id, vm, destination, now),
            _ => {}
        }
    }

    pub(crate) fn drive_vms(&mut self, id: &IncidentId, now: Now) {
        self.end_waits(id, now);
        self.heed_pauses(id, now);
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let mut vms: Vec<VmRecord> = incident
            .vms
            .values()
            .filter(|vm| !vm.progress.terminal())
            .cloned()
            .collect();
        if vms.is_empty() {
            return;
        }
        let best: BTreeMap<String, u16> = incident.vms.values().fold(BTreeMap::new(), |mut best, vm| {
            let priority = best.entry(vm.group.clone()).or_insert(0);
            *priority = (*priority).max(vm.priority);
            best
        });
        vms.sort_by_key(|vm| {
            let group = best.get(&vm.group).copied().unwrap_or(0);
            let size = Reverse(vm.memory_mib);
            (
                Reverse(group),
                vm.group.clone(),
                Reverse(vm.priority),
                size,
                vm.server.clone(),
            )
        });
        self.begin_groups(id, &best, now);
        let mut places = self.places(id);
        for vm in vms {
            match &vm.progress {
                // Pauses that nobody could read yet may be about this guest.
                VmProgress::Pending if self.pauses.is_none() => {}
                VmProgress::Pending => self.request(id, &vm, &mut places, now),
                _ => self.attend(id, &vm, now),
            }
        }
    }

    /// Guests that were not asked for and that somebody paused are left where they are until the pause ends.
    fn heed_pauses(&mut self, id: &IncidentId, now: Now) {
        if self.broken.is(Mutation::IgnoreGuestPause) {
            return;
        }
        let waiting = self.ledger.incidents.get(id).into_iter();
        let waiting = waiting.flat_map(|incident| incident.vms.values());
        let paused: Vec<ServerId> = waiting
            .filter(|vm| vm.progress == VmProgress::Pending && self.paused_server(&vm.server))
            .map(|vm| vm.server.clone())
            .collect();
        for server in paused {
            let reason = BlockedReason::Paused;
            self.set(id, &server, VmProgress::Blocked { reason }, now);
        }
    }

    fn vm_run(&mut self, id: &IncidentId, server: &ServerId, now: Now) -> &mut VmRun {
        let fresh = VmRun {
            since: now.mono,
            ..VmRun::default()
        };
        self.run(id, now).vms.entry(server.clone()).or_insert(fresh)
    }

    fn set(&mut self, id: &IncidentId, server: &ServerId, progress: VmProgress, now: Now) {
        self.set_with(id, server, progress, None, now);
    }

    /// The same, with what Nova said about it.
    fn set_with(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        progress: VmProgress,
        said: Option<String>,
        now: Now,
    ) {
        self.announce(id, server, &progress, said.as_deref());
        self.write(
            Entry::Vm {
                incident: id.clone(),
                server: server.clone(),
                progress,
                said,
            },
            now,
        );
        let run = self.vm_run(id, server, now);
        run.since = now.mono;
        run.stuck = false;
    }

    /// Tells people of an end that matters to them.
    pub(crate) fn announce(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        progress: &VmProgress,
        said: Option<&str>,
    ) {
        let why = match (progress, said) {
            (VmProgress::Recovered { .. }, _) => return self.announce_back(id, server),
            (VmProgress::Failed { reason }, _) => format!("{reason:?}"),
            (VmProgress::Blocked { reason }, Some(said)) => format!("{reason:?}: {said}"),
            (VmProgress::Blocked { reason }, None) => format!("{reason:?}"),
            (VmProgress::Conflict { seen_on }, _) => format!("it already runs on {seen_on}"),
            (
                VmProgress::Skipped {
                    reason: SkipReason::LocalDisk,
                },
                _,
            ) => "its disk is local and would be rebuilt empty".to_owned(),
            _ => return,
        };
        self.tell(Notice::VmNeedsPerson {
            incident: id.clone(),
            server: server.clone(),
            why,
        });
    }

    /// A guest is back; what it lost with its host, its owner has to know.
    fn announce_back(&mut self, id: &IncidentId, server: &ServerId) {
        self.tell(Notice::VmRecovered {
            incident: id.clone(),
            server: server.clone(),
        });
        let incident = self.ledger.incidents.get(id);
        let vm = incident.and_then(|incident| incident.vms.get(server));
        for what in vm.map(|vm| vm.losses.clone()).unwrap_or_default() {
            self.tell(Notice::VmLost {
                incident: id.clone(),
                server: server.clone(),
                what,
            });
        }
    }

    /// Leaves a guest alone.
    fn skip(&mut self, id: &IncidentId, vm: &VmRecord, reason: SkipReason, now: Now) {
        self.set(id, &vm.server, VmProgress::Skipped { reason }, now);
    }

    /// What was read of the guest, asked for after `after` and not older than `age` since it came. Asks if there is nothing.
    fn look(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        age: Duration,
        after: Mono,
        now: Now,
    ) -> Option<Seen> {
        let by_asking = self.broken.is(Mutation::AgeAnswersByAsking);
        let run = self.vm_run(id, server, now);
        if let Some(seen) = &run.read
            && seen.asked >= after
            && now.mono.since(if by_asking { seen.asked } else { seen.came }) <= age
        {
            return Some(seen.clone());
        }
        if run.not_before <= now.mono {
            let slot = Slot::Vm(server.clone());
            self.act(
                Some(id),
                slot,
                Effect::ReadServer {
                    server: server.clone(),
                },
                now,
            );
        }
        None
    }

    /// Whether the fence was seen to hold so recently that a guest may be moved, and until when.
    pub(crate) fn fence_holds(&self, id: &IncidentId, now: Now) -> Option<Mono> {
        let incident = self.ledger.incidents.get(id)?;
        if !incident.fenced(self.config.required_grade) || incident.fence_release_intended {
            return None;
        }
        if self.inherited(id) && self.nobody_answered(id, now).is_none() {
            return None;
        }
        let checked = self.runs.get(id)?.hold_ok?;
        let until = checked.after(self.config.hold_max_age);
        let ageless = [
            Mutation::NoHoldCheck,
            Mutation::SkipFenceVerification,
            Mutation::AcceptStalePower,
        ];
        if ageless.into_iter().any(|mutation| self.broken.is(mutation)) {
            return Some(Mono(u64::MAX));
        }
        (now.mono.after(SECOND) < until).then_some(until)
    }

    /// Writes an intent about a guest and acts; what was read before is the past.
    fn intend(&mut self, id: &IncidentId, server: &ServerId, what: &str, effect: Effect, now: Now) {
        self.intend_until(id, server, what, effect, Mono(u64::MAX), now);
    }

    /// The same, of something that must not leave after `until`.
    fn intend_until(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        what: &str,
        effect: Effect,
        until: Mono,
        now: Now,
    ) {
        let slot = Slot::Vm(server.clone());
        if self.busy(Some(id), &slot) {
            return;
        }
        let entry = Entry::VmIntended {
            incident: id.clone(),
            server: server.clone(),
            what: what.to_owned(),
        };
        self.write(entry, now);
        self.vm_run(id, server, now).read = None;
        self.act_until(Some(id), slot, effect, until, now);
    }
}
