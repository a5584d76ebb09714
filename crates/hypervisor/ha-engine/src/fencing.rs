// SPDX-License-Identifier: Apache-2.0
//! Making certain that a host is off, and that it stays so. Levels are tried in turn, a device must
//! belong to the machine that is meant, and one reading of Off is not enough; afterwards the fence is
//! looked at again and again, and dropped at the first sign that it is gone.

use std::time::Duration;

use crate::action::{Effect, ServiceChange};
use crate::engine::{Engine, Host, OffReads, Run, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{Grade, IncidentId, Mono, Now};
use crate::input::{Answer, Identity, Power, Trouble};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentState};
use crate::mutation::Mutation;
use crate::recovery::Pass;
use crate::status::{HeldReason, Notice};

const SECOND: Duration = Duration::from_secs(1);
/// How often the fence is looked at while it matters.
const HOLD_CHECK: Duration = Duration::from_secs(4);
/// For how long a host that booted since an earlier term began to switch it off has to work before it is given back.
const REVIVED: Duration = Duration::from_mins(1);
/// How long ago a look at what people plan for a host may have come when the first order to switch it off is written.
const PLANS_FRESH: Duration = Duration::from_secs(2);
/// How old a device's word about which machine it belongs to may be when it is relied on, and from when on it is asked again.
const IDENTITY_FRESH: Duration = Duration::from_secs(60);
const IDENTITY_OLD: Duration = Duration::from_secs(30);
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
        if evidence.reset_itself()
            && let Some(level) = self.watchdog_level()
        {
            self.fenced(id, level, Grade::SelfFence, now);
            return Ok(());
        }
        if self.revived(id, now) {
            return Err(None);
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
        if verified && (heard || evidence.proof_contradicted || self.answers_anew(id, now)) {
            return Err(Some(HeldReason::IdentityMismatch));
        }
        if verified && self.inherited(id) && self.nobody_answered(id, now).is_none() {
            return Err(None);
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
            self.evidence(host, now).any_alive() || on || self.spoke_since(id, host)
        });
        if contradicted {
            self.lose_fence(id, now);
        }
        !contradicted
    }

    /// Whether the host has spoken since somebody signed that it is off, whoever heard it: it speaks of another boot than
    /// it did then, or this replica heard it while another one led.
    fn spoke_since(&self, id: &IncidentId, host: &Host) -> bool {
        let known = self.ledger.incidents.get(id).and_then(|i| i.off_after.as_ref());
        let boot = host.signals.latest_boot();
        !self.broken.is(Mutation::TrustOldSignature) && (host.spoke || boot.is_some() && boot != known)
    }

    /// The fence is gone, or was never there.
    fn lose_fence(&mut self, id: &IncidentId, now: Now) {
        self.run(id, now).believed_up = true;
        if let Some(host) = self.hosts.get_mut(&id.host) {
            host.spoke = false;
        }
        self.write(Entry::FenceLost { incident: id.clone() }, now);
        self.tell(Notice::Held {
            incident: id.clone(),
            reason: HeldReason::FenceLost,
        });
    }

    fn fenced(&mut self, id: &IncidentId, level: usize, grade: Grade, now: Now) {
        let host = self.hosts.get(&id.host);
        let boot = host.and_then(|host| host.signals.latest_boot()).cloned();
        self.write(
            Entry::Fenced {
                incident: id.clone(),
                level,
                grade,
                boot,
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

    /// The level that stands for a watchdog, if one is good enough. Any other device says On of a host that was reset.
    fn watchdog_level(&self) -> Option<usize> {
        let levels = &self.config.fence_levels;
        let wanted = self.config.required_grade <= Grade::SelfFence;
        let level = levels.iter().position(|level| level.grade == Grade::SelfFence);
        level.filter(|_| wanted)
    }

    /// Whether a host that an earlier term began to switch off has booted since and works: nobody was asked for, so its guests
    /// are where they were. What this term began is finished, if its order left, for which it may have waited for the journal;
    /// what an earlier one did is looked at for a while, and if the host goes on working it is given back.
    fn revived(&mut self, id: &IncidentId, now: Now) -> bool {
        let ours = self.busy(Some(id), &Slot::Off) || self.run(id, now).off_sent;
        let incident = self.ledger.incidents.get(id);
        let untouched = incident.is_some_and(|i| i.fence_intended && !i.planned && !i.state.settled());
        let speaks = incident.is_some_and(|i| self.another_boot_speaks(i, now));
        let revived = untouched && !ours && speaks;
        let run = self.run(id, now);
        run.revived_since = revived.then(|| run.revived_since.unwrap_or(now.mono));
        let lasts = |since: Mono| now.mono.since(since) >= REVIVED;
        if run.revived_since.is_some_and(lasts) {
            let (incident, state) = (id.clone(), IncidentState::Releasing);
            self.write(Entry::Moved { incident, state }, now);
        }
        revived && !self.broken.is(Mutation::FinishOldFence)
    }

    /// Whether its agent speaks of another boot than the one that died, as far as anybody can tell: one word that is late is no
    /// silence.
    fn another_boot_speaks(&self, incident: &Incident, now: Now) -> bool {
        self.hosts.get(&incident.id.host).is_some_and(|host| {
            let boot = host.signals.latest_boot();
            let silent = self.evidence(host, now).of(Group::A).verdict == Verdict::Dead;
            boot.is_some() && boot != incident.boot.as_ref() && !silent
        })
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

    /// The device must say that it belongs to the machine we mean, and have said so lately: its address may lead to another by
    /// now.
    fn identify(&mut self, id: &IncidentId, level: usize, now: Now) -> Pass {
        if self.broken.is(Mutation::SkipIdentityCheck) {
            return Ok(());
        }
        let known = self.known_machine(id);
        let read = self.run(id, now).identity.clone();
        let answer = read
            .as_ref()
            .map(|(_, identity)| known.as_ref().is_some_and(|known| known.matches(identity)));
        let ages = self.broken.is(Mutation::TrustOldIdentity);
        let older = |than| {
            let read = read.as_ref();
            !ages && read.is_some_and(|(asked, _)| now.mono.since(*asked) > than)
        };
        let again = read.is_none() || older(IDENTITY_OLD);
        if again && self.ready(id, &Slot::Identify, now) {
            let effect = Effect::Identify {
                host: id.host.clone(),
                level,
            };
            self.act(Some(id), Slot::Identify, effect, now);
        }
        if answer == Some(true) && !older(IDENTITY_FRESH) {
            return Ok(());
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

    /// Whether the power of a host may be touched now, and until when the order may leave. A level that has to wait for that
    /// has not failed.
    fn may_switch_off(&mut self, id: &IncidentId, now: Now) -> Result<Option<Mono>, Option<HeldReason>> {
        let allowed = match self.power_brakes(id, now) {
            Ok(()) => self.first_order(id, now),
            Err(reason) => Err(Some(reason)),
        };
        if allowed.is_err() {
            self.run(id, now).level_since = now.mono;
        }
        allowed
    }

    /// The first order may have waited for long: the host may answer by now, and people may have taken it back since it was
    /// claimed, or do so while the order waits for the journal.
    fn first_order(&mut self, id: &IncidentId, now: Now) -> Result<Option<Mono>, Option<HeldReason>> {
        if self.ledger.incidents.get(id).is_none_or(|i| i.fence_intended) {
            return Ok(Some(Mono(u64::MAX)));
        }
        if !self.still_down(id, now) {
            return Ok(None);
        }
        if self.broken.is(Mutation::TrustOldPlans) {
            return Ok(Some(Mono(u64::MAX)));
        }
        let run = self.run(id, now);
        let lately = now.mono.since(run.maintenance_came) <= PLANS_FRESH;
        let read = run.maintenance.as_ref().map(|(asked, _)| *asked);
        let until = read
            .filter(|_| lately)
            .map(|asked| asked.after(self.config.hold_max_age));
        match until.filter(|until| *until > now.mono) {
            Some(until) => Ok(Some(until)),
            None => self.read_maintenance(id, now).map(|()| None),
        }
    }

    /// A host that passed the gates because its power was off, and is on again, meets them anew, whatever was proven before.
    /// Not so one that was fenced: its guests are on their way.
    fn power_brakes(&self, id: &IncidentId, now: Now) -> Result<(), HeldReason> {
        self.isolation_gate(Some(&id.host), now.mono)?;
        match self.ledger.incidents.get(id).filter(|i| !i.fence_intended) {
            None => Ok(()),
            Some(incident) => {
                self.people_allow(&id.host)?;
                self.storm_brake(incident, now)?;
                self.warmup_brake(incident, now.mono)
            }
        }
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
        let Some(until) = self.may_switch_off(id, now)? else {
            return Ok(());
        };
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
        let effect = Effect::PowerOff {
            host: id.host.clone(),
            level,
        };
        self.act_until(Some(id), Slot::Off, effect, until, now);
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
        let by_word = incident.by_word();
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
            let heard = evidence.of(Group::A).verdict == Verdict::Alive || evidence.proof_contradicted;
            // Nobody measures what a person signed, so whoever sees life speaks against it.
            heard || by_word && (evidence.shows_itself() || self.spoke_since(id, host))
        });
        let alive = alive || !by_word && self.answers_anew(id, now);
        // Where a person vouches for the host, its silence is all there is to see, once those that may know better were asked
        // whether they still keep it off.
        if by_word && !alive {
            let unanswered = self.nobody_answered(id, now);
            let run = self.run(id, now);
            run.hold_ok = run.hold_ok.max(unanswered.filter(|_| run.power_looked));
        }
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
            self.lose_fence(id, now);
        }
    }

    /// When somebody last asked the host itself in vain, in this term. Whoever is new to it listens first: one whose address
    /// nobody knows can be asked by nobody.
    pub(crate) fn nobody_answered(&self, id: &IncidentId, now: Now) -> Option<Mono> {
        let listened = self
            .term
            .is_some_and(|term| now.mono.since(term.since) >= self.config.silent_after);
        let signals = &self.hosts.get(&id.host)?.signals;
        let unasked = (listened && signals.unasked()).then_some(now.mono);
        signals.last_unanswered().or(unasked)
    }

    /// Whether an earlier term found the host to be off, and this one only its device says so, which may lie: somebody may have
    /// switched the host on while nobody led.
    pub(crate) fn inherited(&self, id: &IncidentId) -> bool {
        let earlier = self.term.is_some_and(|term| term.epoch != id.epoch);
        let grade = self.ledger.incidents.get(id).and_then(|i| i.grade);
        let measured = |run: &&Run| run.presumed.is_none() && grade.is_none_or(|grade| grade == Grade::Power);
        let run = self.runs.get(id).filter(measured);
        let unseen = run.is_some_and(|run| run.fenced_at.is_none() && !run.off_sent);
        earlier && unseen && !self.broken.is(Mutation::TrustOldFence)
    }

    /// Whether such a host answers.
    fn answers_anew(&self, id: &IncidentId, now: Now) -> bool {
        let answers = |host: &Host| self.evidence(host, now).answers();
        self.inherited(id) && self.hosts.get(&id.host).is_some_and(answers)
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
        // What an earlier term found to be off need not be so any more.
        if self.fence_holds(id, now).is_none() {
            return Err(None);
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
        let refused = self.failing(id, &[Slot::Hold]);
        Err(refused.then_some(HeldReason::FenceFailed))
    }

    /// Whether nobody can tell any more that the fence holds, and a guest waits for that.
    pub(crate) fn fence_unseen(&self, id: &IncidentId, now: Now) -> bool {
        let incident = self.ledger.incidents.get(id);
        let waits = |i: &Incident| !i.planned || i.vms.values().any(|vm| !vm.progress.terminal());
        let fenced = incident.is_some_and(|i| i.grade.is_some() && waits(i));
        let silent = |answered: Mono| now.mono.since(answered) > self.config.fence_timeout;
        let unread = self.runs.get(id).is_some_and(|run| silent(run.power_answered));
        fenced && unread && self.fence_holds(id, now).is_none()
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
        run.power_looked |= !matches!(result, Err(Trouble::NotStarted | Trouble::Lost));
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
            _ => {}
        }
    }
}
