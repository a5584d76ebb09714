// SPDX-License-Identifier: Apache-2.0
//! Taking a repaired host back: power on, wait for a new boot that works, make sure that Nova has
//! cleaned up and no guest runs twice, and only then give maintenance back.

use std::time::Duration;

use cobaltcore_api::Maintenance;

use crate::action::{Effect, ServiceChange};
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Group, Verdict};
use crate::fencing::POWER_POLL;
use crate::ids::{IncidentId, Mono, Now};
use crate::input::{Decision, MigrationFacts, MigrationKind, MigrationStatus, ServiceFacts};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentState, VmProgress};
use crate::mutation::Mutation;
use crate::recovery::{Pass, note_retry};
use crate::status::HeldReason;

const SECOND: Duration = Duration::from_secs(1);
/// How often Nova is asked whether it has closed its records.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long that may take before people are told.
const RECORDS_PATIENCE: Duration = Duration::from_mins(1);
/// How long a machine may take to be off once its device has taken the order.
const OFF_TAKES: Duration = Duration::from_secs(10);
/// How long a host may take to have power before people are told.
const POWER_PATIENCE: Duration = Duration::from_mins(5);
/// How long guests that were on their way to a host may take to be asked for elsewhere before it comes back.
const ASKED_PATIENCE: Duration = Duration::from_mins(3);
/// How long it may take to be in service again before they are.
const RETURN_PATIENCE: Duration = Duration::from_mins(15);
/// How long a host that was given back says nothing before it is a case of its own again.
const SILENT_AGAIN: Duration = Duration::from_secs(30);

impl Engine {
    pub(crate) fn release(&mut self, id: &IncidentId, now: Now) -> Pass {
        let passed = self.take_back(id, now);
        let late = now.mono.since(self.run(id, now).state_since) >= RETURN_PATIENCE;
        match passed {
            Err(None) if late && !self.broken.is(Mutation::ReleaseSilently) => {
                Err(Some(HeldReason::NotReturned))
            }
            passed => passed,
        }
    }

    fn take_back(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id).cloned() else {
            return Err(None);
        };
        self.drive_locks(id, now);
        if !incident.fence_released {
            return self.release_fence(id, &incident, now);
        }
        if self.fell_silent_again(id, incident.restored, now) {
            let read = self.run(id, now).maintenance.clone();
            match read.filter(|(asked, _)| now.mono.since(*asked) <= SECOND * 10) {
                None => return self.read_maintenance(id, now),
                // Guests may be there by now. What became of it is for those to find who watch every host.
                Some((_, found)) if found != Maintenance::Ha => {
                    self.give_back(id, now);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        let early = self.broken.is(Mutation::ReleaseEarly);
        let repaired = self.back(id, now) && self.no_zombie(id);
        if !early && !repaired {
            self.run(id, now).healthy_since = None;
            return Err(None);
        }
        let run = self.run(id, now);
        let clean = run
            .healthy_since
            .is_some_and(|asked| now.mono.since(asked) <= SECOND * 10);
        if !clean && !early {
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
            return Err(self.records_trouble(id, now));
        }
        self.restore(id, now)
    }

    fn release_fence(&mut self, id: &IncidentId, incident: &Incident, now: Now) -> Pass {
        let (level, intended) = (incident.level, incident.fence_release_intended);
        // An order to switch it off may still be on its way, or take its time: it would undo what follows.
        let ends = |done: Mono| now.mono.since(done) < OFF_TAKES;
        let off_done = self.run(id, now).off_done;
        if self.busy(Some(id), &Slot::Off) || off_done.is_some_and(ends) {
            return Err(None);
        }
        let lately = now.mono.since(self.run(id, now).state_since) < ASKED_PATIENCE;
        if !intended && self.may_still_take(&id.host, lately) {
            self.check_hold(id, now);
            return Err(None);
        }
        // On, seen after whoever kept it off has let it go: the fence is gone. Where no device can tell, a new boot that
        // speaks shows it. Power alone does not: somebody may have switched it on with our mark still on its node.
        let speaks = self.boots_anew(id, now);
        let trusting = self.broken.is(Mutation::PowerIsRelease);
        let run = self.run(id, now);
        let on = run.power_on_seen || speaks;
        if intended && on && (run.let_go || trusting) {
            self.write(Entry::FenceReleased { incident: id.clone() }, now);
            // Whatever touches a service in Nova looks like a report of it, our own force-down too.
            if let Some(host) = self.hosts.get_mut(&id.host) {
                host.signals.nova.start_over(now.mono);
            }
            return Ok(());
        }
        // What another term intended may have been done, or a part of it: a look comes first, and to let go of a host twice
        // is to let go of it once.
        if intended && !run.retry.contains_key(&Slot::Fence) {
            note_retry(run, &Slot::Fence, true, now.mono);
        }
        let looks = self.busy(Some(id), &Slot::Power);
        if !intended || (!looks && self.ready(id, &Slot::Fence, now)) {
            let run = self.run(id, now);
            run.power_on_seen = false;
            note_retry(run, &Slot::Fence, true, now.mono);
            self.write(Entry::FenceReleaseIntended { incident: id.clone() }, now);
            self.act(
                Some(id),
                Slot::Fence,
                Effect::ReleaseFence {
                    host: id.host.clone(),
                    levels: incident.levels.iter().copied().collect(),
                },
                now,
            );
        } else if !self.busy(Some(id), &Slot::Fence) {
            let host = id.host.clone();
            self.poll_power(id, Effect::ReadPower { host, level }, POWER_POLL, now);
        }
        let late = now.mono.since(self.run(id, now).state_since) >= POWER_PATIENCE;
        Err(late.then_some(HeldReason::FenceFailed))
    }

    /// Whether its agent speaks, and of another boot than the one that died.
    fn boots_anew(&self, id: &IncidentId, now: Now) -> bool {
        let boot = self.ledger.incidents.get(id).and_then(|i| i.boot.as_ref());
        self.hosts.get(&id.host).is_some_and(|host| {
            let agent = &host.signals.agent;
            let heard = self.evidence(host, now).of(Group::A).verdict == Verdict::Alive;
            heard && agent.boot.is_some() && agent.boot.as_ref() != boot
        })
    }

    /// A new boot, and libvirt.
    fn boots_well(&self, id: &IncidentId, now: Now) -> bool {
        let host = self.hosts.get(&id.host);
        host.is_some_and(|host| host.signals.agent.libvirt) && self.boots_anew(id, now)
    }

    /// The same, and a compute service that reports.
    fn back(&self, id: &IncidentId, now: Now) -> bool {
        let reports = |host: &Host| self.evidence(host, now).of(Group::N).verdict == Verdict::Alive;
        self.boots_well(id, now) && self.hosts.get(&id.host).is_some_and(reports)
    }

    fn no_zombie(&self, id: &IncidentId) -> bool {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return false;
        };
        let Some(host) = self.hosts.get(&id.host) else {
            return false;
        };
        let Some((_, inventory)) = &host.inventory else {
            return false;
        };
        let moved = |progress: &VmProgress| matches!(progress, VmProgress::Recovered { .. });
        // What Nova has brought back since is none.
        !incident.vms.values().any(|vm| {
            moved(&vm.progress) && inventory.domains.active(&vm.server) && !self.at_home(id, &vm.server)
        })
    }

    /// Nova must have closed every evacuation from this host, or it refuses to enable it and the
    /// operator runs in circles.
    pub(crate) fn release_list(
        &mut self,
        id: &IncidentId,
        migrations: &[MigrationFacts],
        complete: bool,
        asked: Mono,
        now: Now,
    ) {
        let open = migrations.iter().any(|m| {
            m.kind == MigrationKind::Evacuation
                && m.source == id.host
                && (m.status.open() || m.status == MigrationStatus::Done)
        });
        let run = self.run(id, now);
        run.healthy_since = (complete && !open).then_some(asked);
        run.records_open = open.then(|| run.records_open.unwrap_or(now.mono));
        if open || !complete {
            run.retry.insert(Slot::List, (now.mono.after(LOOK_AGAIN), 1));
        }
    }

    /// Whether Nova keeps records open for so long that a person has to look.
    fn records_trouble(&mut self, id: &IncidentId, now: Now) -> Option<HeldReason> {
        let open = self.run(id, now).records_open;
        let lasts = open.is_some_and(|since| now.mono.since(since) >= RECORDS_PATIENCE)
            && !self.broken.is(Mutation::ReleaseSilently);
        lasts
            .then_some(HeldReason::NovaUnavailable)
            .or_else(|| self.nova_trouble(id))
    }

    fn restore(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id).cloned() else {
            return Err(None);
        };
        let value = incident.previous.clone().unwrap_or_default();
        let read = self.run(id, now).maintenance.clone();
        match read {
            Some((asked, found)) if now.mono.since(asked) <= SECOND * 10 => {
                // What was `ha` before us is given back as it is.
                if found != Maintenance::Ha || value == Maintenance::Ha {
                    return self.after_restore(id, &found, now);
                }
                if self.ready(id, &Slot::Restore, now) {
                    self.write(Entry::RestoreIntended { incident: id.clone() }, now);
                    let effect = Effect::RestoreMaintenance {
                        host: id.host.clone(),
                        value,
                    };
                    self.act(Some(id), Slot::Restore, effect, now);
                }
            }
            _ => {
                if self.ready(id, &Slot::Maintenance, now) && !self.busy(Some(id), &Slot::Restore) {
                    let effect = Effect::ReadMaintenance {
                        host: id.host.clone(),
                    };
                    self.act(Some(id), Slot::Maintenance, effect, now);
                }
            }
        }
        Err(None)
    }

    /// Whoever enables the service, the operator or we, the incident ends when Nova says that it is
    /// enabled and up, so that the next guest can be placed there. A host that is in somebody's maintenance, the one it
    /// was in before or one they chose since, is in their hands and not enabled.
    fn after_restore(&mut self, id: &IncidentId, found: &Maintenance, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id).cloned() else {
            return Err(None);
        };
        if !incident.restored {
            self.write(Entry::Restored { incident: id.clone() }, now);
        }
        if !found.is_off() || self.in_service(id, now) {
            // It is well again, and counts for no storm.
            self.struck.remove(&id.host);
            self.give_back(id, now);
            return Ok(());
        }
        Err(None)
    }

    fn give_back(&mut self, id: &IncidentId, now: Now) {
        let (incident, state) = (id.clone(), IncidentState::Released);
        self.write(Entry::Moved { incident, state }, now);
    }

    /// Whether a host that was switched on says nothing any more. One that was not heard yet may take its time to boot.
    fn fell_silent_again(&mut self, id: &IncidentId, restored: bool, now: Now) -> bool {
        let speaks = self.boots_anew(id, now);
        let run = self.run(id, now);
        run.spoke_anew |= speaks;
        run.silent_since = (!speaks).then(|| run.silent_since.unwrap_or(now.mono));
        let patience = if restored || run.spoke_anew {
            SILENT_AGAIN
        } else {
            RETURN_PATIENCE
        };
        run.silent_since
            .is_some_and(|since| now.mono.since(since) >= patience)
    }

    /// A host whose maintenance somebody cleared, and that is in service again, was taken back by hand: there is nothing
    /// left to do, and if it dies again that is another incident.
    pub(crate) fn taken_back_by_hand(&mut self, id: &IncidentId, now: Now) -> bool {
        let well = self.back(id, now) && self.no_zombie(id);
        if !well || !self.see_enabled(id, false, now) {
            return false;
        }
        self.struck.remove(&id.host);
        self.give_back(id, now);
        true
    }

    /// Whether Nova says that the service is enabled and up.
    fn in_service(&mut self, id: &IncidentId, now: Now) -> bool {
        let enabled = self.see_enabled(id, self.config.release_in_nova, now);
        let up = |(_, service): &(Mono, ServiceFacts)| service.up;
        enabled && self.run(id, now).service.as_ref().is_some_and(up)
    }

    /// Whether Nova gives the host guests again, as it was last read; asks, and sees to it if that is ours to do.
    pub(crate) fn see_enabled(&mut self, id: &IncidentId, ours: bool, now: Now) -> bool {
        let read = self.run(id, now).service.clone();
        let enabled = |(_, service): &(Mono, ServiceFacts)| !service.disabled && !service.forced_down;
        let enabled = read.as_ref().is_some_and(enabled);
        let stale = read.is_none_or(|(asked, _)| now.mono.since(asked) > SECOND * 5);
        if stale && self.ready(id, &Slot::Service, now) {
            self.act(
                Some(id),
                Slot::Service,
                Effect::ReadService {
                    host: id.host.clone(),
                },
                now,
            );
        } else if !enabled && ours && self.ready(id, &Slot::Update, now) {
            self.write(Entry::RestoreIntended { incident: id.clone() }, now);
            let effect = Effect::UpdateService {
                host: id.host.clone(),
                change: ServiceChange::Enable,
            };
            self.act(Some(id), Slot::Update, effect, now);
        }
        enabled
    }

    /// Without being asked, if so configured: the host was repaired and has been healthy for long. Its compute service is
    /// not waited for: it cannot start before the taint is gone, which is what a release begins with.
    pub(crate) fn auto_release(&mut self, id: &IncidentId, now: Now) {
        let Some(span) = self.config.auto_release else {
            return;
        };
        let healthy = self.boots_well(id, now) && self.no_zombie(id);
        let run = self.run(id, now);
        run.healthy_since = healthy.then(|| run.healthy_since.unwrap_or(now.mono));
        if run
            .healthy_since
            .is_some_and(|since| now.mono.since(since) >= span)
        {
            run.healthy_since = None;
            let entry = Entry::Decided {
                incident: id.clone(),
                decision: Decision::Release,
                actor: "release.auto".to_owned(),
                reason: "healthy again".to_owned(),
                held: None,
                boot: None,
            };
            self.write(entry, now);
        }
    }
}
