// SPDX-License-Identifier: Apache-2.0
//! One incident from Confirmed to Recovered. Each step is a goal with an observation that tells
//! whether it was reached: the engine reads, and only if the goal is not reached writes an intent
//! and acts, and reads again. A lost answer, a crash and a success look the same to it.

use std::time::Duration;

use cobaltcore_api::Maintenance;

use crate::action::{Effect, ServiceChange};
use crate::config::FenceLevel;
use crate::engine::{Engine, Run, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{Grade, IncidentId, Mono, Now};
use crate::input::{Answer, Trouble};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentKind, IncidentState, VmProgress};
use crate::mutation::Mutation;
use crate::status::{Gate, HeldReason, Notice};

/// How often people are reminded of an incident that waits.
const HELD_AGAIN: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

/// Whether a step let the incident pass.
pub(crate) type Pass = Result<(), Option<HeldReason>>;

impl Engine {
    /// Moves every open incident on, oldest first, and every other that left a lock behind.
    pub(crate) fn drive_all(&mut self, now: Now) {
        let open: Vec<IncidentId> = self
            .ledger
            .incidents
            .values()
            .filter(|incident| incident.state.open() || incident.vms.values().any(|vm| vm.locked))
            .map(|incident| incident.id.clone())
            .collect();
        for id in open {
            self.drive(&id, now);
        }
    }

    pub(crate) fn drive(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let state = incident.state;
        // What is waited for in a state is counted from its beginning.
        let run = self.run(id, now);
        if run.state != state {
            run.state_since = now.mono;
        }
        let passed = match state {
            IncidentState::Confirmed => self.consider(id, now),
            IncidentState::Fencing | IncidentState::Fenced | IncidentState::Evacuating => {
                self.recover(id, now)
            }
            IncidentState::Recovered | IncidentState::Failed => self.guard(id, now),
            IncidentState::Releasing => self.release(id, now),
            IncidentState::Released | IncidentState::Cancelled | IncidentState::Closed => {
                self.drive_locks(id, now);
                Ok(())
            }
        };
        let held = passed.err().flatten();
        let state = self
            .ledger
            .incidents
            .get(id)
            .map_or(state, |incident| incident.state);
        let run = self.run(id, now);
        let before = std::mem::replace(&mut run.held, held);
        let moved = std::mem::replace(&mut run.state, state) != state;
        if moved {
            run.state_since = now.mono;
            self.tell(Notice::State {
                incident: id.clone(),
                state,
            });
        }
        if before != held
            && let Some(reason) = before
        {
            self.tell(Notice::Resumed {
                incident: id.clone(),
                reason,
            });
        }
        self.tell_held(id, held, before != held, now);
    }

    /// Tells why an incident waits when it begins to, and again every hour.
    fn tell_held(&mut self, id: &IncidentId, held: Option<HeldReason>, anew: bool, now: Now) {
        let Some(reason) = held else { return };
        if self.broken.is(Mutation::HoldSilently) {
            return;
        }
        let run = self.run(id, now);
        if anew || now.mono.since(run.held_told) >= HELD_AGAIN {
            run.held_told = now.mono;
            self.tell(Notice::Held {
                incident: id.clone(),
                reason,
            });
        }
    }

    // --- before the point of no return

    fn consider(&mut self, id: &IncidentId, now: Now) -> Pass {
        let back = self.returned(id, now);
        if back && !self.broken.is(Mutation::IgnoreAliveVeto) && !self.broken.is(Mutation::TrustOneSignal) {
            self.call_off(id, now);
            return Ok(());
        }
        self.keep_asking(id, now);
        self.vouched_for(id, now);
        let down = self.still_down(id, now);
        if self.broken.is(Mutation::ConditionBeforeClaim) {
            self.condition(id, now)?;
        }
        self.gate(id, now).map_err(Some)?;
        if !down {
            return Err(None);
        }
        // The cache of the watch may be old, so the word of the API itself decides.
        let Some((asked, found)) = self.run(id, now).maintenance.clone() else {
            return self.read_maintenance(id, now);
        };
        if now.mono.since(asked) > SECOND * 5 {
            return self.read_maintenance(id, now);
        }
        self.maintenance_gate(id, &found, now.mono).map_err(Some)?;
        self.write(
            Entry::ClaimIntended {
                incident: id.clone(),
                previous: found.clone(),
            },
            now,
        );
        let run = self.run(id, now);
        run.maintenance = None;
        run.fence_since = now.mono;
        run.level_since = now.mono;
        run.off_reads = None;
        self.act(
            Some(id),
            Slot::Claim,
            Effect::Claim {
                host: id.host.clone(),
                expected: found,
            },
            now,
        );
        Ok(())
    }

    pub(crate) fn read_maintenance(&mut self, id: &IncidentId, now: Now) -> Pass {
        let held = self.run(id, now).held;
        if self.ready(id, &Slot::Maintenance, now) {
            let effect = Effect::ReadMaintenance {
                host: id.host.clone(),
            };
            self.act(Some(id), Slot::Maintenance, effect, now);
        }
        let before = held.filter(|held| *held != HeldReason::KubernetesRefuses);
        Err(before.or(self.cluster_trouble(id)))
    }

    // --- after it

    /// A host that lives again before its power was touched, or whose incident somebody ended by then, is let go, and
    /// gets its maintenance back.
    fn cancel(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Err(None);
        };
        let previous = incident.previous.clone().unwrap_or_default();
        let disabled = incident.disabled && previous.is_off();
        let read = self.run(id, now).maintenance.clone();
        match read {
            _ if self.busy(Some(id), &Slot::Claim) || self.busy(Some(id), &Slot::Restore) => {}
            Some((asked, found)) if now.mono.since(asked) <= SECOND * 5 => {
                // What was `ha` before us is left as it is.
                if found != Maintenance::Ha || previous == Maintenance::Ha {
                    if disabled && !self.enabled_again(id, now) {
                        return Err(self.nova_trouble(id));
                    }
                    self.call_off(id, now);
                    return Ok(());
                }
                // Whoever enables the service when maintenance is cleared goes by the condition.
                if disabled {
                    self.condition(id, now)?;
                }
                if self.ready(id, &Slot::Restore, now) {
                    self.write(Entry::RestoreIntended { incident: id.clone() }, now);
                    let effect = Effect::RestoreMaintenance {
                        host: id.host.clone(),
                        value: previous,
                    };
                    self.act(Some(id), Slot::Restore, effect, now);
                }
            }
            _ => return self.read_maintenance(id, now),
        }
        Err(self.cluster_trouble(id))
    }

    /// Whether a service that was disabled before its host came back is enabled again. That is the operator's work,
    /// unless there is none, or nothing tells it to.
    fn enabled_again(&mut self, id: &IncidentId, now: Now) -> bool {
        let told = self.ledger.incidents.get(id).is_some_and(|i| i.condition);
        (told && !self.config.release_in_nova) || self.see_enabled(id, true, now)
    }

    fn call_off(&mut self, id: &IncidentId, now: Now) {
        let aborted = self.ledger.incidents.get(id).is_some_and(|i| i.aborted);
        let state = if aborted {
            IncidentState::Closed
        } else {
            IncidentState::Cancelled
        };
        self.write(
            Entry::Moved {
                incident: id.clone(),
                state,
            },
            now,
        );
        if aborted {
            return;
        }
        if let Some(host) = self.hosts.get_mut(&id.host) {
            host.cancelled = Some(now.mono);
        }
    }

    /// Whether it lives after all. One that is isolated is seen by others all the while, and one
    /// that a person wants recovered may be; there only its own work counts.
    pub(crate) fn returned(&self, id: &IncidentId, now: Now) -> bool {
        let kind = self.ledger.incidents.get(id).map(|incident| incident.kind);
        self.hosts.get(&id.host).is_some_and(|host| {
            if matches!(
                kind,
                Some(IncidentKind::Isolated | IncidentKind::OperatorRequested)
            ) {
                return self.works(host, now);
            }
            // That its agent speaks is how it was found.
            if kind == Some(IncidentKind::HostRebooted) {
                return self.no_longer_stranded(&id.host, now);
            }
            let evidence = self.evidence(host, now);
            evidence.of(Group::A).verdict == Verdict::Alive || evidence.alive_groups() >= 2
        })
    }

    fn recover(&mut self, id: &IncidentId, now: Now) -> Pass {
        let incident = self.ledger.incidents.get(id);
        // What was begun is finished, whoever began it: a request to give maintenance back may still be on its way.
        let (touched, over) = incident.map_or((false, false), |i| (i.touched(), i.aborted || i.restoring));
        if !touched && (over || self.returned(id, now)) {
            return self.cancel(id, now);
        }
        let claimed = self.claim(id, now);
        if claimed.is_ok() {
            self.stop_eviction(id, now);
        }
        // A device may lie, also about a host that somebody switched on again while its guests are moved. Whoever
        // answers contradicts it as long as somebody asks.
        self.keep_asking(id, now);
        self.refresh_lists(id, now);
        self.check_hold(id, now);
        let passed = match claimed.and_then(|()| self.prepare(id, now)) {
            Ok(()) | Err(None) if self.fence_unseen(id, now) => Err(Some(HeldReason::FenceFailed)),
            passed => passed,
        };
        // Whatever holds the incident back, guests that are on their way are followed to their end.
        if passed.is_err() {
            self.follow_vms(id, now);
            return passed;
        }
        self.drive_vms(id, now);
        self.drive_locks(id, now);
        self.finish(id, now);
        let incident = self.ledger.incidents.get(id);
        let moving = incident.is_some_and(|i| i.state == IncidentState::Evacuating);
        match self.nova_trouble(id).filter(|_| moving) {
            None => Ok(()),
            held => Err(held),
        }
    }

    /// Everything that must be so before a guest may be asked for.
    fn prepare(&mut self, id: &IncidentId, now: Now) -> Pass {
        let required = self.config.required_grade;
        let fenced = |engine: &Self| {
            engine
                .ledger
                .incidents
                .get(id)
                .is_some_and(|i| i.fenced(required))
        };
        if !fenced(self) {
            self.fence(id, now)?;
        }
        if !fenced(self) {
            return Err(self.run(id, now).held);
        }
        self.hold(id, now)?;
        self.force_down(id, now)?;
        self.condition(id, now)?;
        self.plan(id, now)?;
        self.call_spares(id, now)
    }

    /// The host is ours when its maintenance reads `ha`. Once it was, any other value is somebody's
    /// decision against us.
    fn claim(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Err(None);
        };
        let (claimed, previous) = (incident.claimed, incident.previous.clone());
        let in_fence = incident.touched() && incident.grade.is_none() && !incident.state.settled();
        let read = self.run(id, now).maintenance.clone();
        // Whoever watches its object may have seen a change since it was read.
        let watched = self.hosts.get(&id.host).and_then(|host| host.facts.as_ref());
        let shown_otherwise = watched.is_some_and(|facts| facts.maintenance != Maintenance::Ha);
        let changed = |found: &Maintenance| *found == Maintenance::Ha && shown_otherwise;
        let stale = read.as_ref().is_none_or(|(asked, found)| {
            now.mono.since(*asked) > SECOND * if changed(found) { 2 } else { 8 }
        });
        if stale && self.ready(id, &Slot::Maintenance, now) && !self.busy(Some(id), &Slot::Claim) {
            let effect = Effect::ReadMaintenance {
                host: id.host.clone(),
            };
            self.act(Some(id), Slot::Maintenance, effect, now);
        }
        // Its object has shown something else for a while, and the API has not been heard since.
        let outdated = |asked: Mono| shown_otherwise && now.mono.since(asked) > SECOND * 10;
        match read {
            Some((asked, Maintenance::Ha)) if outdated(asked) && !in_fence => Err(self.cluster_trouble(id)),
            Some((_, Maintenance::Ha)) if !claimed => {
                self.write(Entry::Claimed { incident: id.clone() }, now);
                Ok(())
            }
            Some((_, Maintenance::Ha)) => Ok(()),
            // A power state that is not known must become known, whoever cleared what.
            Some(_) if claimed && in_fence => Ok(()),
            Some(_) if claimed => Err(Some(HeldReason::OperatorCleared)),
            Some((_, found)) => {
                let opens = |gate: &Gate| matches!(gate, Gate::Maintenance | Gate::Cleared);
                let incident = self.ledger.incidents.get(id);
                let approved = incident.is_some_and(|i| i.approved.iter().any(opens));
                if !approved && previous.as_ref() != Some(&found) {
                    return Err(Some(HeldReason::PlannedMaintenance));
                }
                if self.ready(id, &Slot::Claim, now) {
                    self.write(
                        Entry::ClaimIntended {
                            incident: id.clone(),
                            previous: found.clone(),
                        },
                        now,
                    );
                    self.act(
                        Some(id),
                        Slot::Claim,
                        Effect::Claim {
                            host: id.host.clone(),
                            expected: found,
                        },
                        now,
                    );
                }
                Err(self.cluster_trouble(id))
            }
            // Who cannot be asked stops nobody; but whoever is new to it asks first.
            None if claimed
                && !shown_otherwise
                && self.run(id, now).retry.contains_key(&Slot::Maintenance) =>
            {
                Ok(())
            }
            None => Err(self.cluster_trouble(id)),
        }
    }

    fn stop_eviction(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        let evicting = incident
            .previous
            .as_ref()
            .is_some_and(|previous| !previous.is_off());
        if evicting && !self.run(id, now).eviction_stopped && self.ready(id, &Slot::Eviction, now) {
            self.write(Entry::StopEvictionIntended { incident: id.clone() }, now);
            self.act(
                Some(id),
                Slot::Eviction,
                Effect::StopEviction {
                    host: id.host.clone(),
                },
                now,
            );
        }
    }

    /// After the guests are settled the fence is kept until somebody wants the host back; and a host may be taken back by
    /// itself once it was repaired.
    fn guard(&mut self, id: &IncidentId, now: Now) -> Pass {
        if self.ledger.incidents.get(id).is_some_and(Incident::by_word) {
            self.keep_asking(id, now);
        }
        self.check_hold(id, now);
        let kept = self.keep_off(id, now);
        self.drive_locks(id, now);
        self.resume_waits(id, now);
        self.auto_release(id, now);
        kept
    }

    /// A host that is on again before its release could start what is still defined there, whatever runs elsewhere by now:
    /// it is fenced again like any other, if a device can. Where repaired hosts are taken back by themselves, switching one
    /// on is how that is asked for.
    fn keep_off(&mut self, id: &IncidentId, now: Now) -> Pass {
        let required = self.config.required_grade;
        let fenced = |incident: &Incident| incident.fenced(required);
        let incident = self.ledger.incidents.get(id);
        let kept = incident.is_none_or(|incident| fenced(incident) && incident.held);
        let unwanted = self.config.auto_release.is_some() || self.broken.is(Mutation::LetGoAfterwards);
        if kept || unwanted {
            return Ok(());
        }
        let switches = |level: &FenceLevel| level.grade == Grade::Power;
        if !self.config.fence_levels.iter().any(switches) {
            return Err(Some(HeldReason::FenceLost));
        }
        self.people_allow(&id.host).map_err(Some)?;
        // Whoever cleared its maintenance took it back by hand, and it may run guests of its own: an old look says nothing.
        let fresh = self.config.hold_max_age;
        let read = self.run(id, now).maintenance.as_ref();
        if read.is_none_or(|(asked, _)| now.mono.since(*asked) > fresh) {
            return self.read_maintenance(id, now);
        }
        match self.claim(id, now) {
            Err(Some(HeldReason::OperatorCleared)) if self.taken_back_by_hand(id, now) => return Ok(()),
            claimed => claimed?,
        }
        if !self.ledger.incidents.get(id).is_some_and(fenced) {
            self.keep_asking(id, now);
            self.fence(id, now)?;
        }
        self.hold(id, now)
    }

    // --- Nova

    fn force_down(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Err(None);
        };
        let forced_down = incident.forced_down;
        let trusting = self.broken.is(Mutation::IgnoreForcedDownFailure);
        if forced_down && (trusting || !self.run(id, now).believed_up) {
            return Ok(());
        }
        // Whoever clears maintenance meanwhile has the operator enable the service: an old look says nothing.
        let fresh = self.config.hold_max_age;
        let read = self.run(id, now).service.clone();
        let read = read.filter(|(asked, _)| now.mono.since(*asked) <= fresh);
        if let Some((_, service)) = &read
            && service.disabled
            && service.forced_down
        {
            self.run(id, now).believed_up = false;
            if !forced_down {
                self.write(Entry::ForcedDown { incident: id.clone() }, now);
            }
            return Ok(());
        }
        if self.busy(Some(id), &Slot::Update) || self.busy(Some(id), &Slot::Service) {
            return Err(self.nova_trouble(id));
        }
        if read.is_none() {
            if self.ready(id, &Slot::Service, now) {
                self.act(
                    Some(id),
                    Slot::Service,
                    Effect::ReadService {
                        host: id.host.clone(),
                    },
                    now,
                );
            }
        } else if let Some(until) = self.fence_holds(id, now)
            && self.ready(id, &Slot::Update, now)
        {
            self.write(
                Entry::DisableIntended {
                    incident: id.clone(),
                    forced_down: true,
                },
                now,
            );
            let effect = Effect::UpdateService {
                host: id.host.clone(),
                change: ServiceChange::ForceDown,
            };
            self.act_until(Some(id), Slot::Update, effect, until, now);
            if self.broken.is(Mutation::IgnoreForcedDownFailure) {
                self.write(Entry::ForcedDown { incident: id.clone() }, now);
            }
        }
        Err(self.nova_trouble(id))
    }

    /// Whether Nova has refused or failed more than once.
    pub(crate) fn nova_trouble(&self, id: &IncidentId) -> Option<HeldReason> {
        let failing = self.failing(
            id,
            &[
                Slot::Service,
                Slot::Update,
                Slot::List,
                Slot::Guests,
                Slot::Requests,
            ],
        );
        failing.then_some(HeldReason::NovaUnavailable)
    }

    /// Whether Kubernetes has refused or failed more than once.
    fn cluster_trouble(&self, id: &IncidentId) -> Option<HeldReason> {
        let slots = [Slot::Maintenance, Slot::Claim, Slot::Condition, Slot::Restore];
        let failing = self.failing(id, &slots);
        failing.then_some(HeldReason::KubernetesRefuses)
    }

    /// Whether one of these has failed more than once in a row.
    pub(crate) fn failing(&self, id: &IncidentId, slots: &[Slot]) -> bool {
        let Some(run) = self.runs.get(id) else {
            return false;
        };
        let fails = |slot: &Slot| run.retry.get(slot).is_some_and(|(_, tries)| *tries >= 2);
        slots.iter().any(fails)
    }

    pub(crate) fn condition(&mut self, id: &IncidentId, now: Now) -> Pass {
        if self.ledger.incidents.get(id).is_some_and(|i| i.condition) {
            return Ok(());
        }
        if self.ready(id, &Slot::Condition, now) {
            self.write(Entry::ConditionIntended { incident: id.clone() }, now);
            self.act(
                Some(id),
                Slot::Condition,
                Effect::SetDisabled {
                    host: id.host.clone(),
                },
                now,
            );
        }
        Err(self.cluster_trouble(id))
    }

    fn plan(&mut self, id: &IncidentId, now: Now) -> Pass {
        if self.ledger.incidents.get(id).is_some_and(|i| i.planned) {
            return Ok(());
        }
        if self.ready(id, &Slot::List, now) {
            self.act(
                Some(id),
                Slot::List,
                Effect::ListServers {
                    host: id.host.clone(),
                },
                now,
            );
        }
        let run = self.run(id, now);
        let incomplete = run.retry.get(&Slot::List).is_some_and(|(_, tries)| *tries >= 1);
        Err(incomplete.then_some(HeldReason::VmListIncomplete))
    }

    fn finish(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        if incident.state != IncidentState::Evacuating
            || !incident.vms.values().all(|vm| vm.progress.terminal())
        {
            return;
        }
        let bad = |p: &VmProgress| {
            matches!(
                p,
                VmProgress::Failed { .. } | VmProgress::Blocked { .. } | VmProgress::Conflict { .. }
            )
        };
        let state = if incident.vms.values().any(|vm| bad(&vm.progress)) {
            IncidentState::Failed
        } else {
            IncidentState::Recovered
        };
        self.write(
            Entry::Moved {
                incident: id.clone(),
                state,
            },
            now,
        );
    }

    // --- outcomes

    /// Whether the slot is free and its pause is over.
    pub(crate) fn ready(&self, id: &IncidentId, slot: &Slot, now: Now) -> bool {
        let waits = self
            .runs
            .get(id)
            .and_then(|run| run.retry.get(slot))
            .is_some_and(|(at, _)| now.mono < *at);
        !waits && !self.busy(Some(id), slot)
    }

    pub(crate) fn recovery_outcome(
        &mut self,
        id: &IncidentId,
        slot: Slot,
        asked: Mono,
        result: Result<Answer, Trouble>,
        now: Now,
    ) {
        if self.term.is_none() {
            return;
        }
        if let Slot::Vm(server) = &slot {
            self.vm_outcome(id, &server.clone(), asked, result, now);
            return;
        }
        let failed = result.is_err();
        let fenced = self.ledger.incidents.get(id).is_some_and(|i| i.grade.is_some());
        let run = self.run(id, now);
        // Those two pace themselves: their success is what is read afterwards.
        if !matches!(slot, Slot::Off | Slot::Fence) {
            note_retry(run, &slot, failed, now.mono);
        }
        match (slot, result) {
            (Slot::Maintenance, Ok(Answer::Maintenance(found))) => {
                run.maintenance = Some((asked, found));
                run.maintenance_came = now.mono;
            }
            (Slot::Claim | Slot::Restore, _) => run.maintenance = None,
            (Slot::Eviction, Ok(_)) => run.eviction_stopped = true,
            (Slot::Identify, Ok(Answer::Identity(identity))) => run.identity = Some((asked, identity)),
            (Slot::Power, result) => self.power_read(id, asked, result, now),
            // An order that never left switches nothing off, and is no try after which the next one waits longer.
            (Slot::Off, Err(Trouble::NotStarted)) => {
                run.retry.remove(&Slot::Off);
                self.write(Entry::FenceWithdrawn { incident: id.clone() }, now);
            }
            (Slot::Off, result) => {
                run.off_done = Some(now.mono);
                run.off_sent |= !matches!(result, Err(Trouble::Lost));
            }
            // One that was on its way when the fence was lost holds nothing of the next.
            (Slot::Hold, Ok(_)) if fenced && run.fenced_at.is_none_or(|at| asked >= at) => {
                self.write(Entry::Held { incident: id.clone() }, now);
            }
            (Slot::Service, Ok(Answer::Service(service))) => run.service = Some((asked, service)),
            (Slot::Update, result) => {
                run.service = None;
                let early = self.ledger.incidents.get(id).is_some_and(|i| i.grade.is_none());
                if early && result.is_err() {
                    self.run(id, now)
                        .retry
                        .insert(Slot::Update, (now.mono.after(SECOND * 10), 1));
                }
            }
            (Slot::Condition, Ok(_)) => self.write(Entry::ConditionSet { incident: id.clone() }, now),
            (Slot::Condition, Err(Trouble::Refused(_))) => run.maintenance = None,
            (
                Slot::List,
                Ok(Answer::Servers {
                    servers,
                    migrations,
                    complete,
                }),
            ) => {
                if self
                    .ledger
                    .incidents
                    .get(id)
                    .is_some_and(|i| i.state == IncidentState::Releasing)
                {
                    self.release_list(id, &migrations, complete, asked, now);
                } else if complete {
                    self.make_plan(id, &servers, now);
                } else {
                    note_retry(self.run(id, now), &Slot::List, true, now.mono);
                }
            }
            (Slot::Fence, result) => {
                run.power_asked = None;
                run.let_go |= result.is_ok();
            }
            _ => {}
        }
    }
}

/// Backs off a slot that failed: one second, doubling, half a minute at most.
pub(crate) fn note_retry(run: &mut Run, slot: &Slot, failed: bool, now: Mono) {
    if failed {
        let tries = run.retry.get(slot).map_or(0, |(_, tries)| *tries);
        let pause = (SECOND * 2u32.saturating_pow(tries.min(5))).min(SECOND * 30);
        run.retry.insert(slot.clone(), (now.after(pause), tries + 1));
    } else {
        run.retry.remove(slot);
    }
}
