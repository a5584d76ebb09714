// SPDX-License-Identifier: Apache-2.0
//! Making certain that a host is off, and that it stays so. Levels are tried in turn, a device must
//! belong to the machine that is meant, and one reading of Off is not enough; afterwards the fence is
//! looked at again and again, and dropped at the first sign that it is gone.

use std::time::Duration;

use crate::action::{Effect, ServiceChange};
use crate::engine::{Engine, OffReads, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{Grade, IncidentId, Mono, Now};
use crate::input::{Answer, Identity, Power, Trouble};
use crate::journal::Entry;
use crate::ledger::Incident;
use crate::mutation::Mutation;
use crate::recovery::Pass;
use crate::status::{HeldReason, Notice};

const SECOND: Duration = Duration::from_secs(1);
/// How often the fence is looked at while it matters.
const HOLD_CHECK: Duration = Duration::from_secs(4);
/// How often a look at the power is taken while it is being switched off.
pub(crate) const POWER_POLL: Duration = Duration::from_secs(1);

impl Engine {
    pub(crate) fn fence(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id).cloned() else {
            return Err(None);
        };
        let Some(host) = self.hosts.get(&id.host) else {
            return Err(Some(HeldReason::IdentityMismatch));
        };
        let evidence = self.evidence(host, now);
        if self.vouched_for(id, now) {
            self.fenced(id, incident.level, Grade::Asserted, now);
            return Ok(());
        }
        let watchdog = evidence.of(Group::W).verdict == Verdict::Dead;
        if watchdog && self.config.required_grade <= Grade::SelfFence {
            self.fenced(id, incident.level, Grade::SelfFence, now);
            return Ok(());
        }
        let heard = evidence.of(Group::A).verdict == Verdict::Alive;
        let level = self.choose_level(id, incident.level, now);
        self.disable_early(id, now);
        self.identify(id, level, now)?;
        let host = id.host.clone();
        self.poll_power(id, Effect::ReadPower { host, level }, POWER_POLL, now);
        let verified = self.verified(id, now.mono);
        if verified && heard && !self.heard_since_off(id, now) {
            // Its last word was before it was off; that it says no more is seen in a moment.
            return Err(None);
        }
        if verified && (heard || evidence.proof_contradicted) {
            return Err(Some(HeldReason::IdentityMismatch));
        }
        if verified {
            let level_grade = self.config.fence_levels.get(level).map(|level| level.grade);
            let presumed = self.run(id, now).presumed;
            let grade = presumed.or(level_grade).unwrap_or(Grade::Storage);
            if grade < self.config.required_grade {
                return Err(Some(HeldReason::FenceFailed));
            }
            self.fenced(id, level, grade, now);
            return Ok(());
        }
        self.power_off(id, level, now)?;
        let late = now.mono.since(self.run(id, now).fence_since) > self.config.fence_timeout * 3 / 4;
        Err(late.then_some(HeldReason::FenceFailed))
    }

    /// Whether somebody signed that the host is off and nothing has spoken against it since. A sign of life, or a device
    /// that says On, takes the signature back for good: it was about a host that is not what it was.
    pub(crate) fn vouched_for(&mut self, id: &IncidentId, now: Now) -> bool {
        let signed = |incident: &Incident| incident.asserted && incident.grade.is_none();
        if !self.ledger.incidents.get(id).is_some_and(signed) {
            return false;
        }
        let contradicted = self.hosts.get(&id.host).is_none_or(|host| {
            let on = host.signals.powered_on(now.mono, &self.config);
            self.evidence(host, now).any_alive() || on
        });
        if contradicted {
            self.run(id, now).believed_up = true;
            self.write(Entry::FenceLost { incident: id.clone() }, now);
            self.tell(Notice::Held {
                incident: id.clone(),
                reason: HeldReason::FenceLost,
            });
        }
        !contradicted
    }

    fn fenced(&mut self, id: &IncidentId, level: usize, grade: Grade, now: Now) {
        self.write(
            Entry::Fenced {
                incident: id.clone(),
                level,
                grade,
            },
            now,
        );
        let run = self.run(id, now);
        let asked = run.off_reads.map_or(now.mono, |reads| reads.last);
        run.hold_ok = Some(asked);
        run.fenced_at = Some(now.mono);
        run.unheld = false;
        run.level = None;
        run.retry.remove(&Slot::Off);
    }

    /// Whether its agent spoke after its power was first read to be off.
    fn heard_since_off(&mut self, id: &IncidentId, now: Now) -> bool {
        let off = self.run(id, now).off_reads.map(|reads| reads.first);
        let heard = self
            .hosts
            .get(&id.host)
            .and_then(|host| host.signals.last_heard());
        heard > off
    }

    /// Two readings of Off or more, far enough apart, asked for after the power-off ended.
    fn verified(&self, id: &IncidentId, now: Mono) -> bool {
        let Some(run) = self.runs.get(id) else {
            return false;
        };
        if self.broken.is(Mutation::SkipFenceVerification) {
            return run.off_done.is_some();
        }
        run.off_reads.is_some_and(|reads| {
            reads.count >= self.config.verify_reads && now.since(reads.last) <= self.config.hold_max_age
        })
    }

    /// Levels are tried in turn, those that cannot reach the required grade are passed over. To turn to the next one
    /// touches nothing, so nothing is written: the record of a level is that of its power command.
    fn choose_level(&mut self, id: &IncidentId, journaled: usize, now: Now) -> usize {
        let required = self.config.required_grade;
        let usable: Vec<usize> = self
            .config
            .fence_levels
            .iter()
            .enumerate()
            .filter(|(_, level)| level.grade >= required)
            .map(|(n, _)| n)
            .collect();
        let timeout = self.config.fence_timeout;
        let run = self.run(id, now);
        let current = run.level.unwrap_or(journaled);
        let expired = now.mono.since(run.level_since) > timeout;
        let Some(position) = usable.iter().position(|level| *level == current) else {
            return usable.first().copied().unwrap_or(current);
        };
        if !expired || usable.len() < 2 {
            return current;
        }
        run.level_since = now.mono;
        run.identity = None;
        run.off_reads = None;
        let next = usable
            .get((position + 1) % usable.len())
            .copied()
            .unwrap_or(current);
        run.level = Some(next);
        next
    }

    /// The device must say that it belongs to the machine we mean.
    fn identify(&mut self, id: &IncidentId, level: usize, now: Now) -> Pass {
        if self.broken.is(Mutation::SkipIdentityCheck) {
            return Ok(());
        }
        let known = self.known_machine(id);
        let read = self.run(id, now).identity.clone();
        let answer = read
            .as_ref()
            .map(|(_, identity)| known.as_ref().is_some_and(|known| known.matches(identity)));
        if answer == Some(true) {
            return Ok(());
        }
        let again = read.is_none_or(|(asked, _)| now.mono.since(asked) > SECOND * 30);
        if again && self.ready(id, &Slot::Identify, now) {
            let effect = Effect::Identify {
                host: id.host.clone(),
                level,
            };
            self.act(Some(id), Slot::Identify, effect, now);
        }
        if answer == Some(false) {
            return Err(Some(HeldReason::IdentityMismatch));
        }
        let late = now.mono.since(self.run(id, now).fence_since) > self.config.fence_timeout * 3 / 4;
        Err(late.then_some(HeldReason::FenceFailed))
    }

    fn known_machine(&self, id: &IncidentId) -> Option<Identity> {
        let host = self.hosts.get(&id.host)?;
        let told = host.signals.agent.machine.clone();
        if told != Identity::default() {
            return Some(told);
        }
        host.facts.as_ref().map(|facts| facts.machine.clone())
    }

    pub(crate) fn poll_power(&mut self, id: &IncidentId, how: Effect, every: Duration, now: Now) {
        let run = self.run(id, now);
        if run.power_asked.is_some_and(|asked| now.mono.since(asked) < every)
            || self.busy(Some(id), &Slot::Power)
        {
            return;
        }
        self.run(id, now).power_asked = Some(now.mono);
        self.act(Some(id), Slot::Power, how, now);
    }

    /// Switches off what was read to be on, or what cannot be read for a while. Waits longer after
    /// each failure, and never gives up.
    fn power_off(&mut self, id: &IncidentId, level: usize, now: Now) -> Pass {
        // What reads Off for the monitors needs no command, however slow the device is for us.
        let proven = self.proven(&id.host);
        let run = self.run(id, now);
        let unreadable = !proven && now.mono.since(run.power_answered) > SECOND * 10;
        let wanted = run.power_on_seen || unreadable;
        if !wanted || !self.ready(id, &Slot::Off, now) {
            return Ok(());
        }
        self.isolation_gate(Some(&id.host), now.mono).map_err(Some)?;
        // A host that passed the gates because its power was off, and is on again, meets them anew,
        // whatever was proven before. Not so one that was fenced: its guests are on their way.
        if let Some(incident) = self.ledger.incidents.get(id).filter(|i| !i.fence_intended) {
            self.people_allow(&id.host).map_err(Some)?;
            self.storm_brake(incident, now).map_err(Some)?;
            self.warmup_brake(incident, now.mono).map_err(Some)?;
            // It may have waited for long, and answer by now.
            if !self.still_down(id, now) {
                return Ok(());
            }
        }
        let min = self.config.fence_retry_min;
        let max = self.config.fence_retry_max;
        let keep = self.broken.is(Mutation::AcceptStalePower);
        let run = self.run(id, now);
        let tries = run.retry.get(&Slot::Off).map_or(0, |(_, tries)| *tries);
        let pause = (min * 2u32.saturating_pow(tries.min(8))).min(max);
        run.retry.insert(Slot::Off, (now.mono.after(pause), tries + 1));
        run.power_on_seen = false;
        if !keep {
            run.off_reads = None;
        }
        let entry = Entry::FenceIntended {
            incident: id.clone(),
            level,
        };
        if self.broken.is(Mutation::NoJournalBeforeFence) {
            self.pretend(entry, now);
        } else {
            self.write(entry, now);
        }
        self.act(
            Some(id),
            Slot::Off,
            Effect::PowerOff {
                host: id.host.clone(),
                level,
            },
            now,
        );
        Ok(())
    }

    /// A claimed host that cannot be fenced for two minutes at least gets no new guests, whatever it waits for. Nova must
    /// not believe it to be down, though: that is said only of a host that is off.
    pub(crate) fn disable_early(&mut self, id: &IncidentId, now: Now) {
        let late = now.mono.since(self.run(id, now).fence_since) > SECOND * 120;
        let told = self.ledger.incidents.get(id).is_none_or(|i| i.condition);
        if !late || told || self.busy(Some(id), &Slot::Update) {
            return;
        }
        let fresh = self.config.hold_max_age;
        let read = self.run(id, now).service.clone();
        let read = read.filter(|(asked, _)| now.mono.since(*asked) <= fresh);
        let host = id.host.clone();
        match read {
            None if self.ready(id, &Slot::Service, now) => {
                self.act(Some(id), Slot::Service, Effect::ReadService { host }, now);
            }
            Some((_, service)) if service.disabled => {
                let _ = self.condition(id, now);
            }
            Some(_) if self.ready(id, &Slot::Update, now) => {
                self.write(
                    Entry::DisableIntended {
                        incident: id.clone(),
                        forced_down: false,
                    },
                    now,
                );
                let change = ServiceChange::Disable;
                self.act(
                    Some(id),
                    Slot::Update,
                    Effect::UpdateService { host, change },
                    now,
                );
            }
            _ => {}
        }
    }

    /// Looks at the fence again and again, and drops it at the first sign that it is gone.
    pub(crate) fn check_hold(&mut self, id: &IncidentId, now: Now) {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return;
        };
        if incident.grade.is_none() || incident.fence_release_intended {
            return;
        }
        let (host, level) = (id.host.clone(), incident.level);
        // What was told to keep the host off must go on doing so; before that its power is all there is to see.
        let how = if incident.held {
            Effect::ReadHold { host, level }
        } else {
            Effect::ReadPower { host, level }
        };
        if !self.broken.is(Mutation::NoHoldCheck) {
            self.poll_power(id, how, HOLD_CHECK, now);
        }
        let alive = self.hosts.get(&id.host).is_some_and(|host| {
            let evidence = self.evidence(host, now);
            evidence.of(Group::A).verdict == Verdict::Alive || evidence.proof_contradicted
        });
        let blind = self.broken.is(Mutation::IgnoreFenceLoss) || self.broken.is(Mutation::NoHoldCheck);
        let run = self.run(id, now);
        let lost = run.power_on_seen || run.unheld || alive;
        if lost && !blind {
            run.fence_since = now.mono;
            run.level_since = now.mono;
            run.off_reads = None;
            run.hold_ok = None;
            run.unheld = false;
            run.retry.remove(&Slot::Off);
            self.run(id, now).believed_up = true;
            self.write(Entry::FenceLost { incident: id.clone() }, now);
            self.tell(Notice::Held {
                incident: id.clone(),
                reason: HeldReason::FenceLost,
            });
        }
    }

    /// Has those keep the host off who were found to have switched it off.
    pub(crate) fn hold(&mut self, id: &IncidentId, now: Now) -> Pass {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Err(None);
        };
        let level = incident.level;
        if incident.held {
            return Ok(());
        }
        if self.ready(id, &Slot::Hold, now) {
            self.write(Entry::HoldIntended { incident: id.clone() }, now);
            self.act(
                Some(id),
                Slot::Hold,
                Effect::Hold {
                    host: id.host.clone(),
                    level,
                },
                now,
            );
        }
        Err(None)
    }

    pub(crate) fn power_read(
        &mut self,
        id: &IncidentId,
        asked: Mono,
        result: Result<Answer, Trouble>,
        now: Now,
    ) {
        let stale_allowed = self.broken.is(Mutation::AcceptStalePower);
        let result = match result {
            Err(_) if self.broken.is(Mutation::MissingIsDead) => Ok(Answer::Power(Power::Off)),
            result => result,
        };
        let asserted = self
            .ledger
            .incidents
            .get(id)
            .is_some_and(|i| i.grade == Some(Grade::Asserted));
        let (result, presumed) = match result {
            Ok(Answer::Presumed(power, grade)) => (Ok(Answer::Power(power)), Some(grade)),
            Ok(Answer::Unheld) if self.broken.is(Mutation::IgnoreUnheld) => {
                (Ok(Answer::Power(Power::Off)), None)
            }
            result => (result, None),
        };
        let gap = self.config.verify_gap;
        let run = self.run(id, now);
        let off_done = run.off_done;
        match result {
            Ok(Answer::Power(power)) => {
                run.power_answered = now.mono;
                run.presumed = presumed;
                run.power_on_seen = power == Power::On;
                // A reading on its way while the power-off was may show the moment before it.
                let after = stale_allowed || off_done.is_none_or(|done| asked >= done);
                match power {
                    Power::On => {
                        if !stale_allowed {
                            run.off_reads = None;
                        }
                    }
                    Power::Off if after => {
                        run.off_reads = Some(OffReads::with(run.off_reads, asked, gap));
                        run.hold_ok = Some(asked);
                    }
                    Power::Off => {}
                }
                // What nobody measured is no proof that the monitors could use.
                if let Some(host) = self.hosts.get_mut(&id.host).filter(|_| presumed.is_none()) {
                    host.power_read(Some(power), asked);
                }
            }
            Ok(Answer::Unheld) => {
                run.power_answered = now.mono;
                run.unheld = true;
            }
            // A person vouches for a host whose device is dead; then silence is all there is to see.
            _ if asserted => run.hold_ok = Some(asked),
            _ => {}
        }
    }
}
