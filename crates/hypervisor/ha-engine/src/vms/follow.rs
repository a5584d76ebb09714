// SPDX-License-Identifier: Apache-2.0
//! What became of a guest that was asked for: the record of the request, its way, and whether it is at its new place as it
//! was at its old one.

use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use super::{ARRIVAL_PATIENCE, FOLLOW, SECOND};
use crate::action::Effect;
use crate::engine::{Engine, Slot};
use crate::ids::{IncidentId, MigrationId, Mono, Now};
use crate::input::{DomainState, MigrationFacts, MigrationKind, MigrationStatus, ServerFacts};
use crate::ledger::{BlockedReason, FailedReason, SkipReason, VmProgress, VmRecord, Wanted};
use crate::mutation::Mutation;
use crate::status::Notice;

/// How long a request that Nova answered may take to show up as a record.
const SHOWS_UP: Duration = Duration::from_secs(10);
/// The same of one that was not answered: whoever took it may be waiting for a lock in the database, or for a message to be
/// taken, for most of a minute each, and carry it out then. A second request beside it would bring up the guest twice.
const SHOWS_UP_LATE: Duration = Duration::from_secs(90);

/// How old an answer may be by which a guest is started or stopped.
const JUST_READ: Duration = Duration::from_secs(2);

impl Engine {
    /// Finds out what came of a request: the record it made, or none.
    pub(super) fn settle(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        self.watch_time(id, vm, now);
        if self.busy(Some(id), &Slot::Vm(vm.server.clone())) {
            return;
        }
        let forget = self.broken.is(Mutation::ResendBlindly);
        let hasty = self.broken.is(Mutation::ResendEarly);
        let run = self.vm_run(id, &vm.server, now);
        // A term that only knows of the intent counts from when it learnt of it.
        let answered = *run.answered.get_or_insert(now.mono);
        let patience = if run.clear || hasty {
            SHOWS_UP
        } else {
            SHOWS_UP_LATE
        };
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
            self.skip(id, vm, SkipReason::NotOnHost, now);
        } else if seen.asked.since(answered) >= patience {
            self.again(id, vm, FailedReason::NovaError, now);
        }
    }

    /// One attempt is over without a guest; another follows, or none.
    pub(super) fn again(&mut self, id: &IncidentId, vm: &VmRecord, reason: FailedReason, now: Now) {
        if vm.attempt >= self.config.vm_attempts {
            self.set(id, &vm.server, VmProgress::Failed { reason }, now);
            return;
        }
        self.set(id, &vm.server, VmProgress::Pending, now);
        let pause = self.config.vm_backoff * 2u32.saturating_pow(vm.attempt.saturating_sub(1).min(6));
        let pause = pause * spread(id, &vm.server, vm.attempt) / 100;
        let run = self.vm_run(id, &vm.server, now);
        run.not_before = now.mono.after(pause);
        run.answered = Some(now.mono);
    }

    /// Tells people of a guest that was asked for and takes too long, and gives its place to another.
    fn watch_time(&mut self, id: &IncidentId, vm: &VmRecord, now: Now) {
        let limit = self.config.vm_timeout;
        let run = self.vm_run(id, &vm.server, now);
        if now.mono.since(run.since) > limit && !std::mem::replace(&mut run.stuck, true) {
            self.tell(Notice::VmStuck {
                incident: id.clone(),
                server: vm.server.clone(),
            });
        }
    }

    pub(super) fn follow(&mut self, id: &IncidentId, vm: &VmRecord, migration: MigrationId, now: Now) {
        self.watch_time(id, vm, now);
        let Some(seen) = self.look(id, &vm.server, FOLLOW, Mono(0), now) else {
            return;
        };
        let Some(server) = seen.server else {
            self.skip(id, vm, SkipReason::NotOnHost, now);
            return;
        };
        let record = seen.migrations.iter().find(|m| m.id == migration);
        let status = record.map(|record| record.status);
        let closed = matches!(status, Some(MigrationStatus::Done | MigrationStatus::Completed));
        let there = server
            .host
            .filter(|host| closed && *host != id.host && server.task.is_empty());
        let fenced = record.is_some_and(|record| self.destination_fenced(record, now));
        match (there, status) {
            (Some(destination), _) => {
                self.set(id, &vm.server, VmProgress::Verifying { destination }, now);
            }
            (None, Some(MigrationStatus::Error)) => {
                let asked = self.vm_run(id, &vm.server, now).asked_last;
                self.no_place(id, asked, now);
                self.again(id, vm, FailedReason::NoValidHost, now);
            }
            (None, Some(MigrationStatus::Failed)) => self.again(id, vm, FailedReason::NovaError, now),
            _ if fenced => self.again(id, vm, FailedReason::NovaError, now),
            // Also one whose record the source closed when it started, and one that Nova does not show any more.
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
        record: Option<&MigrationFacts>,
        now: Now,
    ) -> bool {
        let waited = now.mono.since(self.vm_run(id, &vm.server, now).since);
        let died = |host| self.ledger.open_incident(host).is_some();
        let destination = record.and_then(|record| record.destination.as_ref());
        let patience = if destination.is_some_and(died) {
            ARRIVAL_PATIENCE
        } else {
            self.config.vm_timeout * 2
        };
        waited >= patience
    }

    /// The guest is at its new place; it must also be as it was.
    pub(super) fn verify(&mut self, id: &IncidentId, vm: &VmRecord, destination: &HostName, now: Now) {
        let run = self.vm_run(id, &vm.server, now);
        let (since, after) = (run.since, run.answered.unwrap_or(Mono(0)));
        let Some(seen) = self.look(id, &vm.server, FOLLOW, after, now) else {
            return;
        };
        let Some(server) = seen.server else {
            self.skip(id, vm, SkipReason::NotOnHost, now);
            return;
        };
        let just_read = now.mono.since(seen.came) <= JUST_READ;
        let waited = now.mono.since(since);
        let wanted = vm.wanted == Wanted::Running;
        if self.left_to_others(id, &server, now) {
            self.recovered(id, vm, destination, now);
        } else if server.running != wanted && !just_read {
            // Its owner may have stopped or started it since.
            self.vm_run(id, &vm.server, now).read = None;
        } else if server.running != wanted {
            self.put_right(id, vm, &server, waited, now);
        } else if self.contradicted(&vm.server, destination, wanted, now) {
            self.not_verified(id, vm, waited > SECOND * 120, now);
        } else {
            self.recovered(id, vm, destination, now);
        }
    }

    /// Whether its owner stopped or restarted it since it was moved: that is theirs to decide. Nova knows which came first,
    /// whoever led then, but a request may have waited there for a while: what its owner did since it left counts as well.
    fn left_to_others(&self, id: &IncidentId, server: &ServerFacts, now: Now) -> bool {
        self.acted_since(id, server, now) && !self.broken.is(Mutation::ForgetOldWishes)
    }

    /// Whether its owner acted since it was last asked for.
    pub(super) fn acted_since(&self, id: &IncidentId, server: &ServerFacts, now: Now) -> bool {
        let run = self.runs.get(id).and_then(|run| run.vms.get(&server.id));
        let left = run.and_then(|run| run.asked_last);
        let acted = |ms| left.is_some_and(|left| now.mono.since(left) >= Duration::from_millis(ms));
        server.acted_since_move || server.user_action_ms.is_some_and(acted)
    }

    fn recovered(&mut self, id: &IncidentId, vm: &VmRecord, destination: &HostName, now: Now) {
        let destination = destination.clone();
        self.set(id, &vm.server, VmProgress::Recovered { destination }, now);
    }

    fn not_verified(&mut self, id: &IncidentId, vm: &VmRecord, too_long: bool, now: Now) {
        if too_long {
            let reason = FailedReason::VerifyFailed;
            self.set(id, &vm.server, VmProgress::Failed { reason }, now);
        }
    }

    /// Starts or stops a guest that is not as it was.
    fn put_right(
        &mut self,
        id: &IncidentId,
        vm: &VmRecord,
        server: &ServerFacts,
        waited: Duration,
        now: Now,
    ) {
        // Where guests arrive stopped, nothing runs twice before this: the host must still be kept off, and be known to
        // be when the request leaves.
        let until = match vm.wanted {
            Wanted::Stopped => Mono(u64::MAX),
            Wanted::Running if self.broken.is(Mutation::StartUnfenced) => Mono(u64::MAX),
            Wanted::Running => match self.fence_holds(id, now) {
                Some(until) => until,
                None => return,
            },
        };
        if waited > SECOND * 300 {
            self.not_verified(id, vm, true, now);
            return;
        }
        if !server.task.is_empty() {
            return;
        }
        let server = vm.server.clone();
        let (what, effect) = match vm.wanted {
            Wanted::Running => ("start", Effect::Start { server }),
            Wanted::Stopped => ("stop", Effect::Stop { server }),
        };
        self.intend_until(id, &vm.server, what, effect, until, now);
    }

    /// Whether the agent of the destination says otherwise than Nova.
    fn contradicted(&self, server: &ServerId, destination: &HostName, wanted: bool, now: Now) -> bool {
        self.config.verify_by_agent
            && self
                .shown_by_agent(server, destination, now)
                .is_some_and(|shown| shown != wanted)
    }

    /// Whether the agent of the destination shows the guest running, if it says anything.
    fn shown_by_agent(&self, server: &ServerId, destination: &HostName, now: Now) -> Option<bool> {
        let (at, inventory) = self.hosts.get(destination)?.inventory.as_ref()?;
        if now.mono.since(*at) > self.config.inventory_fresh {
            return None;
        }
        Some(inventory.domains.get(server) == Some(DomainState::Running))
    }
}

/// How many per cent of its pause a guest waits: 80 to 120, so that those that failed together do not come
/// back together. The same guest always gets the same, for whoever replays the journal.
fn spread(id: &IncidentId, server: &ServerId, attempt: u32) -> u32 {
    let text = format!("{id} {server} {attempt}");
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    // Low bits of such a product know little of the last bytes.
    80 + (text.bytes().fold(0x811c_9dc5, step) >> 8) % 41
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;

    #[test]
    fn pauses_of_guests_that_failed_together_are_spread_by_a_fifth_and_always_the_same() {
        let id = IncidentId {
            epoch: Epoch(3),
            n: 1,
            host: "n1".parse().unwrap(),
            opened_ms: None,
        };
        let guest = |n: u32| ServerId::new(format!("00000000-0000-4000-8000-{n:012}")).unwrap();
        let all: Vec<u32> = (0..500)
            .flat_map(|n| (1..5).map(move |attempt| (n, attempt)))
            .map(|(n, attempt)| spread(&id, &guest(n), attempt))
            .collect();
        assert!(all.iter().all(|percent| (80..=120).contains(percent)));
        for percent in 80..=120 {
            let hit = all.iter().filter(|found| **found == percent).count();
            assert!(
                (20..100).contains(&hit),
                "{percent} % came {hit} times of {}",
                all.len()
            );
        }
        assert_eq!(spread(&id, &guest(7), 2), spread(&id, &guest(7), 2));
    }
}
