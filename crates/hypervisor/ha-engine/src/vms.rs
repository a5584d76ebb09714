// SPDX-License-Identifier: Apache-2.0
//! One guest from Pending to Recovered. Nova is asked once per attempt, and never again before the
//! record of the last attempt is known to have failed: a request that timed out can still happen.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::action::{Effect, lock_reason};
use crate::engine::{Engine, Slot, VmRun};
use crate::ids::{IncidentId, MigrationId, Mono, Now};
use crate::input::{
    Answer, Inventory, MigrationFacts, MigrationKind, MigrationStatus, Refusal, ServerFacts, Trouble, VmState,
};
use crate::journal::{Entry, LOCK};
use crate::ledger::{
    BlockedReason, FailedReason, Incident, IncidentState, SkipReason, VmProgress, VmRecord, Wanted,
};
use crate::mutation::Mutation;
use crate::status::Notice;

const SECOND: Duration = Duration::from_secs(1);
/// How often a guest on its way is looked at.
const FOLLOW: Duration = Duration::from_secs(5);
/// How long a request may take to show up as a record.
const SHOWS_UP: Duration = Duration::from_secs(10);
/// How long a group waits for the one before it.
const GROUP_PATIENCE: Duration = Duration::from_secs(120);
/// How long it is awaited that somebody knows whether a guest arrived where it was sent.
const ARRIVAL_PATIENCE: Duration = Duration::from_mins(15);
/// How long before this term a move may have begun that an earlier one asked for.
const EARLIER_TERM: Duration = Duration::from_secs(600);

/// A server and its migrations as they were read, and when that was asked for.
struct Seen {
    asked: Mono,
    server: Option<ServerFacts>,
    migrations: Vec<MigrationFacts>,
}

/// How many more guests may be begun.
struct Places {
    here: usize,
    everywhere: usize,
}

impl Places {
    fn free(&self) -> bool {
        self.here > 0 && self.everywhere > 0
    }

    /// A guest is begun; one that was prepared has its place already.
    fn take(&mut self, vm: &VmRecord) {
        if !prepared(vm) {
            self.here = self.here.saturating_sub(1);
            self.everywhere = self.everywhere.saturating_sub(1);
        }
    }
}

/// Whether a guest was locked to be asked for next. It holds a place, so that no more are locked
/// than can be moved and the first is not asked for after the last was locked.
fn prepared(vm: &VmRecord) -> bool {
    vm.locked && vm.attempt == 0 && vm.progress == VmProgress::Pending
}

impl Engine {
    pub(crate) fn drive_vms(&mut self, id: &IncidentId, now: Now) {
        self.end_conflicts(id, now);
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
        let mut places = self.places(id);
        for vm in vms {
            match &vm.progress {
                VmProgress::Pending => self.request(id, &vm, &best, &mut places, now),
                VmProgress::Requested => self.settle(id, &vm, now),
                VmProgress::InFlight { migration } => self.follow(id, &vm, *migration, now),
                VmProgress::Verifying { destination } => self.verify(id, &vm, &destination.clone(), now),
                _ => {}
            }
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
        match &progress {
            VmProgress::Recovered { .. } => {
                self.tell(Notice::VmRecovered {
                    incident: id.clone(),
                    server: server.clone(),
                });
            }
            VmProgress::Failed { reason } => {
                let why = format!("{reason:?}");
                self.tell(Notice::VmNeedsPerson {
                    incident: id.clone(),
                    server: server.clone(),
                    why,
                });
            }
            VmProgress::Blocked { reason } => {
                let why = format!("{reason:?}");
                self.tell(Notice::VmNeedsPerson {
                    incident: id.clone(),
                    server: server.clone(),
                    why,
                });
            }
            VmProgress::Conflict { seen_on } => {
                let why = format!("it already runs on {seen_on}");
                self.tell(Notice::VmNeedsPerson {
                    incident: id.clone(),
                    server: server.clone(),
                    why,
                });
            }
            _ => {}
        }
        self.write(
            Entry::Vm {
                incident: id.clone(),
                server: server.clone(),
                progress,
            },
            now,
        );
        let run = self.vm_run(id, server, now);
        run.since = now.mono;
        run.stuck = false;
    }

    /// What was read of the guest, not older than `age` and asked for after `after`. Asks if there
    /// is nothing.
    fn look(
        &mut self,
        id: &IncidentId,
        server: &ServerId,
        age: Duration,
        after: Mono,
        now: Now,
    ) -> Option<Seen> {
        let run = self.vm_run(id, server, now);
        if let Some((asked, (facts, migrations))) = &run.read
            && *asked >= after
            && now.mono.since(*asked) <= age
        {
            return Some(Seen {
                asked: *asked,
                server: facts.clone(),
                migrations: migrations.clone(),
            });
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
    fn fence_holds(&self, id: &IncidentId, now: Now) -> Option<Mono> {
        let incident = self.ledger.incidents.get(id)?;
        if !incident.fenced(self.config.required_grade) || incident.fence_release_intended {
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

    // --- Pending

    fn request(
        &mut self,
        id: &IncidentId,
        vm: &VmRecord,
        best: &BTreeMap<String, u16>,
        places: &mut Places,
        now: Now,
    ) {
        if !(prepared(vm) || places.free()) || !self.turn(id, vm, best, now) {
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
            self.set(
                id,
                &vm.server,
                VmProgress::Skipped {
                    reason: SkipReason::NotOnHost,
                },
                now,
            );
            return;
        };
        if server.state == VmState::Deleted || server.task == "deleting" {
            self.set(
                id,
                &vm.server,
                VmProgress::Skipped {
                    reason: SkipReason::Deleting,
                },
                now,
            );
            return;
        }
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
        let evacuation = |m: &&MigrationFacts| m.kind == MigrationKind::Evacuation && m.status.open();
        if let Some(open) = seen.migrations.iter().find(evacuation)
            && !self.destination_fenced(open, now)
            && !self.broken.is(Mutation::ResendBlindly)
        {
            self.set(id, &vm.server, VmProgress::InFlight { migration: open.id }, now);
            places.take(vm);
            return;
        }
        if !self.settled(id, vm, &server, &seen, now) || !self.acceptable(id, vm, &server, now) {
            return;
        }
        places.take(vm);
        if self.config.lock_servers && server.lock.is_none() && !vm.locked {
            self.lock(id, vm, now);
            return;
        }
        self.evacuate(id, vm, &seen, now);
    }

    // --- locks

    /// Keeps its owner from acting on a guest that is on its way. A lock that does not succeed is no
    /// reason to leave the guest down.
    fn lock(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        if self.fence_holds(id, now).is_none() {
            return;
        }
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

    /// Writes an intent about a guest and acts; what was read before is the past.
    fn intend(&mut self, id: &IncidentId, server: &ServerId, what: &str, effect: Effect, now: Now) {
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
        self.act(Some(id), slot, effect, now);
    }

    fn evacuate(&mut self, id: &IncidentId, vm: &VmRecord, seen: &Seen, now: Now) {
        let Some(until) = self.fence_holds(id, now) else {
            return;
        };
        let known: Vec<MigrationId> = seen.migrations.iter().map(|m| m.id).collect();
        let entry = Entry::EvacuateIntended {
            incident: id.clone(),
            server: vm.server.clone(),
            attempt: vm.attempt + 1,
            known: known.clone(),
        };
        if self.broken.is(Mutation::NoJournalBeforeEvacuate) {
            self.pretend(entry, now);
        } else {
            self.write(entry, now);
        }
        let run = self.vm_run(id, &vm.server, now);
        run.answered = None;
        run.asked.get_or_insert(now.mono);
        run.since = now.mono;
        let effect = Effect::Evacuate {
            server: vm.server.clone(),
            from: id.host.clone(),
            known,
        };
        self.act_until(Some(id), Slot::Vm(vm.server.clone()), effect, until, now);
    }

    /// The places there are, as guests on their way and those prepared for it leave them.
    fn places(&self, id: &IncidentId) -> Places {
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

    /// Whether it is this guest's turn: groups, anti-affinity.
    fn turn(&mut self, id: &IncidentId, vm: &VmRecord, best: &BTreeMap<String, u16>, now: Now) -> bool {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return false;
        };
        let together = |other: &&VmRecord| {
            other.server != vm.server
                && vm.anti_affinity.is_some()
                && other.anti_affinity == vm.anti_affinity
                && (other.progress.moving() || matches!(other.progress, VmProgress::Verifying { .. }))
        };
        if incident.vms.values().any(|other| together(&other)) {
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

    /// A guest that ran elsewhere and certainly does not any more is looked at again. That nothing is
    /// heard from there is no such certainty.
    fn end_conflicts(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let over: Vec<ServerId> = incident
            .vms
            .values()
            .filter(|vm| match &vm.progress {
                VmProgress::Conflict { seen_on } => self.gone_from(&vm.server, seen_on, now),
                _ => false,
            })
            .map(|vm| vm.server.clone())
            .collect();
        for server in over {
            self.set(id, &server, VmProgress::Pending, now);
        }
    }

    /// Whether a host says that the guest is not there, or is off.
    fn gone_from(&self, server: &ServerId, host: &HostName, now: Now) -> bool {
        let says = |(at, inventory): &(Mono, Inventory)| {
            let shows = inventory.domains.active(server);
            now.mono.since(*at) <= self.config.inventory_fresh && !shows
        };
        let known = self.hosts.get(host).and_then(|host| host.inventory.as_ref());
        known.is_some_and(says) || self.kept_off(host, now)
    }

    /// Whether a host is off and was seen to be kept off right now: nothing runs there, whatever it
    /// said last.
    fn kept_off(&self, host: &HostName, now: Now) -> bool {
        // A fence of somebody else's incident counts only while it is seen to hold, like our own.
        let looked_at = |id: &IncidentId| {
            let checked = self.runs.get(id).and_then(|run| run.hold_ok);
            checked.is_some_and(|at| now.mono.since(at) <= self.config.hold_max_age)
        };
        self.ledger.incidents.values().any(|incident| {
            incident.id.host == *host
                && incident.state.open()
                && incident.fenced(self.config.required_grade)
                && !incident.fence_release_intended
                && looked_at(&incident.id)
        })
    }

    /// Another host whose fresh inventory shows the guest.
    fn runs_elsewhere(&self, server: &ServerId, not: &HostName, now: Now) -> Option<HostName> {
        if self.broken.is(Mutation::IgnoreGuestElsewhere) {
            return None;
        }
        self.hosts.iter().find_map(|(name, host)| {
            let (at, inventory) = host.inventory.as_ref()?;
            let shows = inventory.domains.active(server);
            let fresh = now.mono.since(*at) <= self.config.inventory_fresh;
            // What a host said before it was switched off is not true any more.
            (name != not && shows && fresh && !self.kept_off(name, now)).then(|| name.clone())
        })
    }

    /// Whether an evacuation went to a host that is itself off by now, so that nothing can come of it.
    fn destination_fenced(&self, migration: &MigrationFacts, now: Now) -> bool {
        let Some(destination) = &migration.destination else {
            return false;
        };
        let planned = |incident: &Incident| {
            incident.id.host == *destination && incident.state.open() && incident.planned
        };
        self.ledger.incidents.values().any(planned) && self.kept_off(destination, now)
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

    /// Whether a live migration is known not to have brought the guest to its destination: the
    /// destination listed its guests since we began to ask and has not got it, or it is off.
    fn did_not_arrive(&self, migration: &MigrationFacts, since: Option<Mono>, now: Now) -> bool {
        let listed = || {
            let (at, inventory) = self
                .hosts
                .get(migration.destination.as_ref()?)?
                .inventory
                .as_ref()?;
            let fresh = *at >= since? && now.mono.since(*at) <= self.config.inventory_fresh;
            let absent = !inventory.domains.active(&migration.server);
            Some(fresh && absent)
        };
        self.broken.is(Mutation::IgnoreGuestElsewhere)
            || listed() == Some(true)
            || self.destination_fenced(migration, now)
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

    // --- Requested

    /// Finds out what came of a request: the record it made, or none.
    fn settle(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        if self.busy(Some(id), &Slot::Vm(vm.server.clone())) {
            return;
        }
        let forget = self.broken.is(Mutation::ResendBlindly);
        let run = self.vm_run(id, &vm.server, now);
        // A term that only knows of the intent counts from when it learnt of it.
        let answered = *run.answered.get_or_insert(now.mono);
        if forget {
            self.set(id, &vm.server, VmProgress::Pending, now);
            return;
        }
        let Some(seen) = self.look(id, &vm.server, SECOND * 2, answered, now) else {
            return;
        };
        let ours = |m: &&MigrationFacts| m.kind == MigrationKind::Evacuation && !vm.known.contains(&m.id);
        if let Some(record) = seen.migrations.iter().find(ours) {
            self.set(id, &vm.server, VmProgress::InFlight { migration: record.id }, now);
        } else if seen.server.is_none() {
            self.set(
                id,
                &vm.server,
                VmProgress::Skipped {
                    reason: SkipReason::NotOnHost,
                },
                now,
            );
        } else if seen.asked.since(answered) >= SHOWS_UP {
            self.again(id, vm, FailedReason::NovaError, now);
        }
    }

    /// One attempt is over without a guest; another follows, or none.
    fn again(&mut self, id: &IncidentId, vm: &VmRecord, reason: FailedReason, now: Now) {
        if vm.attempt >= self.config.vm_attempts {
            self.set(id, &vm.server, VmProgress::Failed { reason }, now);
            return;
        }
        self.set(id, &vm.server, VmProgress::Pending, now);
        let pause = self.config.vm_backoff * 2u32.saturating_pow(vm.attempt.saturating_sub(1).min(6));
        let run = self.vm_run(id, &vm.server, now);
        run.not_before = now.mono.after(pause);
        run.answered = Some(now.mono);
    }

    // --- InFlight and Verifying

    fn follow(&mut self, id: &IncidentId, vm: &VmRecord, migration: MigrationId, now: Now) {
        let run = self.vm_run(id, &vm.server, now);
        if now.mono.since(run.since) > self.config.vm_timeout {
            let run = self.vm_run(id, &vm.server, now);
            if !std::mem::replace(&mut run.stuck, true) {
                self.tell(Notice::VmStuck {
                    incident: id.clone(),
                    server: vm.server.clone(),
                });
            }
        }
        let Some(seen) = self.look(id, &vm.server, FOLLOW, Mono(0), now) else {
            return;
        };
        let Some(server) = seen.server else {
            self.set(
                id,
                &vm.server,
                VmProgress::Skipped {
                    reason: SkipReason::NotOnHost,
                },
                now,
            );
            return;
        };
        let Some(record) = seen.migrations.iter().find(|m| m.id == migration) else {
            return;
        };
        match record.status {
            MigrationStatus::Done | MigrationStatus::Completed => {
                if let Some(destination) = server.host.filter(|host| *host != id.host)
                    && server.task.is_empty()
                {
                    self.set(id, &vm.server, VmProgress::Verifying { destination }, now);
                }
            }
            MigrationStatus::Error => {
                self.run(id, now).no_place = true;
                self.again(id, vm, FailedReason::NoValidHost, now);
            }
            MigrationStatus::Failed => self.again(id, vm, FailedReason::NovaError, now),
            _ if self.destination_fenced(record, now) => self.again(id, vm, FailedReason::NovaError, now),
            _ if self.destination_lost(id, vm, record, now) => {
                let reason = BlockedReason::ArrivalUnknown;
                self.set(id, &vm.server, VmProgress::Blocked { reason }, now);
            }
            _ => {}
        }
    }

    /// Whether a guest has been on its way for too long, and a person has to look. Sooner if it went to
    /// a host that died in its turn: that host may be waiting for the place in flight which this incident
    /// holds.
    fn destination_lost(
        &mut self,
        id: &IncidentId,
        vm: &VmRecord,
        record: &MigrationFacts,
        now: Now,
    ) -> bool {
        let waited = now.mono.since(self.vm_run(id, &vm.server, now).since);
        let died = |host| self.ledger.open_incident(host).is_some();
        let patience = if record.destination.as_ref().is_some_and(died) {
            ARRIVAL_PATIENCE
        } else {
            self.config.vm_timeout * 2
        };
        waited >= patience
    }

    /// The guest is at its new place; it must also be as it was.
    fn verify(&mut self, id: &IncidentId, vm: &VmRecord, destination: &HostName, now: Now) {
        let since = self.vm_run(id, &vm.server, now).since;
        let after = self.vm_run(id, &vm.server, now).answered.unwrap_or(Mono(0));
        let Some(seen) = self.look(id, &vm.server, FOLLOW, after, now) else {
            return;
        };
        let Some(server) = seen.server else {
            self.set(
                id,
                &vm.server,
                VmProgress::Skipped {
                    reason: SkipReason::NotOnHost,
                },
                now,
            );
            return;
        };
        // Its owner or somebody else moved or stopped it meanwhile: that is theirs to decide. When the
        // move began in an earlier term, nobody knows how long ago.
        let asked = self.vm_run(id, &vm.server, now).asked;
        let window = asked.map_or(now.mono.since(since) + EARLIER_TERM, |at| now.mono.since(at));
        if server
            .user_action_ms
            .is_some_and(|ms| Duration::from_millis(ms) < window)
        {
            self.set(
                id,
                &vm.server,
                VmProgress::Recovered {
                    destination: destination.clone(),
                },
                now,
            );
            return;
        }
        let wanted = vm.wanted == Wanted::Running;
        if server.running != wanted {
            if now.mono.since(since) > SECOND * 300 {
                self.set(
                    id,
                    &vm.server,
                    VmProgress::Failed {
                        reason: FailedReason::VerifyFailed,
                    },
                    now,
                );
                return;
            }
            if server.task.is_empty() {
                let (what, effect) = if wanted {
                    (
                        "start",
                        Effect::Start {
                            server: vm.server.clone(),
                        },
                    )
                } else {
                    (
                        "stop",
                        Effect::Stop {
                            server: vm.server.clone(),
                        },
                    )
                };
                self.intend(id, &vm.server, what, effect, now);
            }
            return;
        }
        let shown = self
            .config
            .verify_by_agent
            .then(|| self.shown_by_agent(&vm.server, destination, now));
        match shown.flatten() {
            Some(shown) if shown != wanted => {
                if now.mono.since(since) > SECOND * 120 {
                    self.set(
                        id,
                        &vm.server,
                        VmProgress::Failed {
                            reason: FailedReason::VerifyFailed,
                        },
                        now,
                    );
                }
            }
            _ => self.set(
                id,
                &vm.server,
                VmProgress::Recovered {
                    destination: destination.clone(),
                },
                now,
            ),
        }
    }

    /// Whether the agent of the destination shows the guest running, if it says anything.
    fn shown_by_agent(&self, server: &ServerId, destination: &HostName, now: Now) -> Option<bool> {
        let (at, inventory) = self.hosts.get(destination)?.inventory.as_ref()?;
        if now.mono.since(*at) > self.config.inventory_fresh {
            return None;
        }
        Some(inventory.domains.get(server) == Some(crate::input::DomainState::Running))
    }

    // --- outcomes

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
                self.set(
                    id,
                    &vm.server,
                    VmProgress::Skipped {
                        reason: SkipReason::NotOnHost,
                    },
                    now,
                );
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
