// SPDX-License-Identifier: Apache-2.0
//! Whether an effect breaks a promise, judged against the truth of the world and what is durably written when it
//! reaches the world. What the engine believed is no excuse.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Action, Decision, Effect, Entry, Gate, Grade, Group, Incident, IncidentId, IncidentKind, IncidentState,
    Ledger, Pause, PauseScope, Record, ServiceChange, Verdict,
};

use crate::invariants::Invariant;
use crate::world::World;

/// Milliseconds within which whoever decides need not know of what was written.
const JUST_NOW: u64 = 12_000;

impl World {
    /// What the durable journal says; the judge reads nothing else of the service.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.durable
    }

    /// Whether a person said that somebody's plans for the host do not count; not merely that a storm is real.
    pub(crate) fn plans_overridden(&self, incident: Option<&IncidentId>) -> bool {
        self.journal.iter().any(|record| {
            matches!(&record.entry, Entry::Decided { incident: about, decision: Decision::Approve, held: Some(held), .. }
                if Some(about) == incident && matches!(held.gate(), Some(Gate::Maintenance | Gate::Cleared)))
        })
    }

    pub(crate) fn check_intent(&mut self, action: &Action) {
        let about = action.incident.as_ref();
        let written =
            |wanted: &dyn Fn(&Entry) -> bool| self.journal.iter().rev().any(|record| wanted(&record.entry));
        let intended = match &action.effect {
            Effect::Claim { .. } => {
                written(&|e| matches!(e, Entry::ClaimIntended { incident, .. } if Some(incident) == about))
            }
            Effect::PowerOff { .. } => {
                written(&|e| matches!(e, Entry::FenceIntended { incident, .. } if Some(incident) == about))
            }
            Effect::Evacuate { server, known, .. } => {
                // The latest word about this guest must be the intent of exactly this request.
                let last = self.journal.iter().rev().find_map(|record| match &record.entry {
                    Entry::EvacuateIntended {
                        incident,
                        server: s,
                        known: k,
                        ..
                    } if Some(incident) == about && s == server => Some(k == known),
                    Entry::Vm {
                        incident, server: s, ..
                    } if Some(incident) == about && s == server => Some(false),
                    _ => None,
                });
                last == Some(true)
            }
            Effect::UpdateService { host, change } => written(&|e| match (e, change) {
                (
                    Entry::DisableIntended {
                        incident,
                        forced_down,
                    },
                    ServiceChange::ForceDown,
                ) => Some(incident) == about && *forced_down,
                (
                    Entry::DisableIntended {
                        incident,
                        forced_down,
                    },
                    ServiceChange::Disable,
                ) => Some(incident) == about && !forced_down,
                (Entry::RestoreIntended { incident }, ServiceChange::Enable) => Some(incident) == about,
                (
                    Entry::SpareIntended {
                        incident,
                        host: spare,
                    },
                    ServiceChange::EnableSpare,
                ) => Some(incident) == about && spare == host,
                _ => false,
            }),
            Effect::Hold { .. } => {
                written(&|e| matches!(e, Entry::HoldIntended { incident } if Some(incident) == about))
            }
            Effect::SetDisabled { .. } => {
                written(&|e| matches!(e, Entry::ConditionIntended { incident } if Some(incident) == about))
            }
            Effect::StopEviction { .. } => {
                written(&|e| matches!(e, Entry::StopEvictionIntended { incident } if Some(incident) == about))
            }
            Effect::PauseDomain { server, .. } => {
                written(&|e| matches!(e, Entry::PauseIntended { server: s, .. } if s == server))
            }
            Effect::RestoreMaintenance { .. } => {
                written(&|e| matches!(e, Entry::RestoreIntended { incident } if Some(incident) == about))
            }
            Effect::ReleaseFence { .. } => {
                written(&|e| matches!(e, Entry::FenceReleaseIntended { incident } if Some(incident) == about))
            }
            Effect::Start { server } | Effect::RebootHard { server } if about.is_none() => {
                written(&|e| matches!(e, Entry::RestartIntended { server: s, .. } if s == server))
            }
            Effect::Lock { server }
            | Effect::Unlock { server }
            | Effect::ResetState { server }
            | Effect::Start { server }
            | Effect::Stop { server }
            | Effect::RebootHard { server } => written(
                &|e| matches!(e, Entry::VmIntended { incident, server: s, .. } if Some(incident) == about && s == server),
            ),
            Effect::Investigate { .. }
            | Effect::ListGuests { .. }
            | Effect::ReadPower { .. }
            | Effect::ReadHold { .. }
            | Effect::Identify { .. }
            | Effect::ReadMaintenance { .. }
            | Effect::ReadService { .. }
            | Effect::ListServers { .. }
            | Effect::ReadServer { .. }
            | Effect::Resign => true,
        };
        if !intended {
            self.violate(
                Invariant::S8Journal,
                format!("{:?} has no durable intent", action.effect),
            );
        }
    }

    /// What an incident was concluded from is written down with it, and is enough: a proof, or two groups
    /// of which one tried to reach the host, and nobody who saw life.
    pub(crate) fn check_grounds(&mut self, entry: &Entry) {
        let Entry::Opened {
            incident,
            kind,
            by,
            evidence,
            ..
        } = entry
        else {
            return;
        };
        let dead = |group: Group| evidence.of(group).verdict == Verdict::Dead;
        if *kind == IncidentKind::HostRebooted {
            if !dead(Group::N) || evidence.of(Group::N).untrusted {
                let what = format!(
                    "{incident} was opened without grounds: its compute service is not known to be gone"
                );
                self.violate(Invariant::S3NoFalseFence, what);
            }
            return;
        }
        if matches!(kind, IncidentKind::Isolated | IncidentKind::Hung) || !by.starts_with("monitor/") {
            return;
        }
        let probed = dead(Group::P) || dead(Group::Q) || !self.config.require_active_probe;
        let agreed = evidence.dead_groups() >= self.config.min_groups && probed && !evidence.any_alive();
        if !evidence.proven() && !agreed {
            let accusers: Vec<Group> = Group::ALL.into_iter().filter(|group| dead(*group)).collect();
            let what = format!("{incident} was opened without grounds: only {accusers:?} call it dead");
            self.violate(Invariant::S3NoFalseFence, what);
        }
    }

    pub(crate) fn check_power_off(
        &mut self,
        r: usize,
        h: usize,
        machine: usize,
        incident: Option<&IncidentId>,
    ) {
        let now = self.now;
        let first = self.first_power_command(incident) && !self.requested(incident);
        let well = |host: &crate::hosts::Host| {
            host.well_since.is_some_and(|since| now - since > 45_000) && host.well()
        };
        let revived = self.revived(r, h, incident);
        if (first || machine != h || revived) && well(&self.hosts[machine]) {
            self.violate(
                Invariant::S3NoFalseFence,
                format!("healthy n{machine:02} is switched off"),
            );
        }
        // Who set it a moment ago may not have been seen yet.
        let manual = self.hosts[h].maintenance == Maintenance::Manual
            && self.now - self.hosts[h].maintenance_set > 11_500;
        if first && manual && !self.plans_overridden(incident) {
            let what = format!("n{h:02} is switched off in manual maintenance");
            self.violate(Invariant::S11Manual, what);
        }
        let host = self.hosts[h].clone();
        // One that came back this moment may still be taken for dead; one that answers for a while not.
        if first
            && !self.stranded(h, incident)
            && host.answers_since.is_some_and(|since| now - since > 12_000)
        {
            self.violate(
                Invariant::S3NoFalseFence,
                format!("n{h:02} answers and is switched off"),
            );
        }
        // An agent that is heard speaks for its host, whatever the others say.
        let heard = host.speaks_since.is_some_and(|since| {
            let since = since.max(self.replicas[r].cut_since).max(self.replicas[r].began);
            self.hears(r, h) && now - since > 17_000
        });
        if first && heard && !self.stranded(h, incident) {
            self.violate(
                Invariant::S3NoFalseFence,
                format!("the agent of n{h:02} speaks, and it is switched off"),
            );
        }
        // It takes as long as a host's silence to notice one's own.
        let cut = !self.replicas[r].listens() && now - self.replicas[r].cut_since > 30_000;
        if cut && host.power {
            self.violate(
                Invariant::S4Brakes,
                format!("replica {r} is cut off and switches n{h:02} off"),
            );
        }
        let paused = |pause: &Pause| pause.scope == PauseScope::Global;
        if self.pauses.iter().any(paused) && self.claimed_lately(incident) {
            self.violate(
                Invariant::S4Brakes,
                format!("n{h:02} is switched off during a pause"),
            );
        }
        // Whose power was touched before the storm is under way; the brake is for those who are not.
        if first {
            self.check_storm(h, incident);
        }
        let epoch = incident.map_or(0, |id| id.epoch.0);
        let term_began = self.terms.get(&epoch).copied().unwrap_or(0);
        if first && self.now.saturating_sub(term_began) < 55_000 && self.hosts[h].power {
            self.violate(
                Invariant::S4Brakes,
                format!("n{h:02} is switched off during warm-up"),
            );
        }
        self.check_in_flight();
    }

    /// Whether a host has booted since its incident began, none of its guests was asked for, and the term that switches it off
    /// is not the one that began to.
    fn revived(&mut self, r: usize, h: usize, incident: Option<&IncidentId>) -> bool {
        let Some(id) = incident else { return false };
        let term = self.replicas[r].engine.leads().map_or(0, |term| term.0);
        let begun = !self.power_terms.insert((id.clone(), term));
        let boot = self.hosts[h].boot_id();
        let found = self.ledger().incidents.get(id);
        let anew = found.is_some_and(|i| !i.planned && i.boot.as_ref().is_some_and(|dead| dead.0 != boot));
        !begun && anew
    }

    /// Whether a person wanted this, knowing that the host still answers.
    fn requested(&self, incident: Option<&IncidentId>) -> bool {
        let ledger = self.ledger();
        let found = incident.and_then(|id| ledger.incidents.get(id));
        found.is_some_and(|incident| {
            incident.kind == IncidentKind::OperatorRequested && !incident.by.starts_with("monitor/")
        })
    }

    /// Whether the host really has no compute service that could run its guests, and runs none.
    pub(crate) fn stranded(&self, h: usize, incident: Option<&IncidentId>) -> bool {
        let ledger = self.ledger();
        let found = incident.and_then(|id| ledger.incidents.get(id));
        let empty = self.servers.running_on(h).is_empty();
        found.is_some_and(|incident| incident.kind == IncidentKind::HostRebooted)
            && !self.hosts[h].compute
            && empty
    }

    pub(crate) fn check_in_flight(&mut self) {
        let in_flight = self
            .ledger()
            .incidents
            .values()
            .filter(|i| i.state.in_flight())
            .count();
        if in_flight > self.config.max_hosts_in_flight {
            self.violate(Invariant::S5InFlight, format!("{in_flight} hosts are in flight"));
        }
    }

    /// How many hosts are in trouble, or were within the memory and are not in service again, as the journal has told for a
    /// while: whoever decided just now need not know of the latest. A person who said that it is no storm, or that a host is off, has
    /// decided; and a host that is off is only held.
    fn check_storm(&mut self, h: usize, incident: Option<&IncidentId>) {
        let Some(mine) = incident.and_then(|id| self.ledger().incidents.get(id)) else {
            return;
        };
        if mine.approved.contains(&Gate::Storm) || mine.asserted || !self.hosts[h].power {
            return;
        }
        let memory = self.config.storm_memory.as_millis() as u64;
        let counts = |incident: &&Incident| match incident.state {
            IncidentState::Confirmed => true,
            IncidentState::Recovered | IncidentState::Failed => self
                .settled_at(&incident.id)
                .is_some_and(|at| self.now - at + JUST_NOW < memory),
            state => state.in_flight(),
        };
        let (mut fleet, mut ahead) = (1, 0);
        for other in self.ledger().incidents.values().filter(counts) {
            let known = self
                .opened_at(&other.id)
                .is_some_and(|at| self.now - at > JUST_NOW);
            if other.id == mine.id || !known {
                continue;
            }
            fleet += 1;
            let rack = self
                .host_index(&other.id.host)
                .map(|other| self.hosts[other].rack);
            ahead += usize::from(rack == Some(self.hosts[h].rack) && other.id < mine.id);
        }
        let of_rack = self
            .hosts
            .iter()
            .filter(|host| host.rack == self.hosts[h].rack)
            .count();
        let rack_limit = (of_rack * self.config.domain_percent as usize / 100)
            .min(self.config.max_domain_hosts)
            .max(1);
        if fleet > (self.hosts.len() / 10).max(2) {
            let what = format!("n{h:02} is switched off while {fleet} hosts are in trouble");
            self.violate(Invariant::S4Brakes, what);
        } else if ahead >= rack_limit {
            let what = format!("n{h:02} is switched off while {ahead} of its rack were in trouble before it");
            self.violate(Invariant::S5InFlight, what);
        }
    }

    fn opened_at(&self, id: &IncidentId) -> Option<u64> {
        self.durable(|entry| matches!(entry, Entry::Opened { incident, .. } if incident == id))
            .next()
    }

    /// When all its guests were settled, for the last time.
    fn settled_at(&self, id: &IncidentId) -> Option<u64> {
        let settled = [IncidentState::Recovered, IncidentState::Failed];
        self.durable(|entry| matches!(entry, Entry::Moved { incident, state, .. } if incident == id && settled.contains(state)))
            .last()
    }

    /// When such entries became durable.
    fn durable(&self, such: impl Fn(&Entry) -> bool) -> impl Iterator<Item = u64> {
        let records = self.journal.iter().zip(&self.written_at);
        records
            .filter(move |(record, _)| such(&record.entry))
            .map(|(_, at)| *at)
    }

    /// Whether the incident passed its gates only now. A pause does not stop what is under way.
    fn claimed_lately(&self, incident: Option<&IncidentId>) -> bool {
        let wanted = |entry: &Entry| matches!(entry, Entry::ClaimIntended { incident: about, .. } if Some(about) == incident);
        let claim = self.journal.iter().position(|record| wanted(&record.entry));
        claim
            .and_then(|n| self.written_at.get(n))
            .is_some_and(|at| *at >= self.paused_since)
    }

    fn first_power_command(&self, incident: Option<&IncidentId>) -> bool {
        let fenced =
            |entry: &Entry| matches!(entry, Entry::Fenced { incident: about, .. } if Some(about) == incident);
        if self.journal.iter().any(|record| fenced(&record.entry)) {
            return false;
        }
        let orders = |record: &Record| match &record.entry {
            Entry::FenceIntended { incident: about, .. } if Some(about) == incident => 1,
            Entry::FenceWithdrawn { incident: about } if Some(about) == incident => -1,
            _ => 0,
        };
        self.journal.iter().map(orders).sum::<i32>() <= 1
    }

    /// A request decided while the fence was seen to hold may leave until that look is ten seconds old.
    pub(crate) fn just_lost(&self, incident: Option<&IncidentId>) -> bool {
        let lost =
            |entry: &Entry| matches!(entry, Entry::FenceLost { incident: about } if Some(about) == incident);
        let lost_at = self.journal.iter().rposition(|record| lost(&record.entry));
        lost_at
            .and_then(|n| self.written_at.get(n))
            .is_some_and(|at| self.now - at <= 11_500)
    }

    /// Whether guests may run on a machine, as far as anybody can know. One that was switched on a
    /// moment ago runs nothing yet; the fence is looked at in time. A device that lies about a machine
    /// on which nothing runs harms nobody.
    pub(crate) fn runs_guests(&self, h: usize) -> bool {
        let host = &self.hosts[h];
        let lied = host.bmc.lies
            || host
                .bmc
                .lied_until
                .is_some_and(|until| self.now - until <= 11_500);
        host.power && self.now - host.power_since > 11_500 && (host.user || !lied)
    }

    /// Whether a person vouches for the host of an incident being off, as the journal has it.
    fn signed_for(&self, incident: Option<&IncidentId>) -> bool {
        let found = incident.and_then(|id| self.ledger().incidents.get(id));
        found.is_some_and(|i| i.asserted || i.grade == Some(Grade::Asserted))
    }

    /// As [`Self::runs_guests`], but nobody measures what a person signed: that it was switched on shows when it boots, and
    /// never if it says nothing and cannot be asked.
    fn runs_in_spite(&self, h: usize, incident: Option<&IncidentId>) -> bool {
        let host = &self.hosts[h];
        let boots = self.now - host.power_since <= 28_000;
        let mute = !host.heard_since_on && !host.mgmt.answers() && !host.bmc.reachable;
        let signed = self.signed_for(incident) || self.just_lost(incident);
        self.runs_guests(h) && !(signed && (boots || mute))
    }

    pub(crate) fn check_evacuate(&mut self, n: usize, from: &HostName, incident: Option<&IncidentId>) {
        let Some(h) = self.host_index(from) else { return };
        let ledger = self.ledger();
        let fence = incident
            .and_then(|id| ledger.incidents.get(id))
            .and_then(|i| i.grade);
        if self.runs_in_spite(h, incident) {
            self.violate(
                Invariant::S2Fenced,
                format!("guest {n} is moved although n{h:02} is on"),
            );
        }
        let just_lost = self.just_lost(incident);
        if fence.is_none() && !just_lost {
            self.violate(
                Invariant::S2Fenced,
                format!("guest {n} is moved although n{h:02} has no fence record"),
            );
        }
        let looked = self.power_reads.get(&h).is_some_and(|at| self.now - at <= 11_500);
        if !looked && !self.signed_for(incident) && fence == Some(Grade::Power) {
            self.violate(
                Invariant::S2Fenced,
                format!("nobody looked at the power of n{h:02} for ten seconds"),
            );
        }
        // A device that does not answer, as where somebody signed, keeps that look waiting twice.
        let noticed = if self.signed_for(incident) { 21_500 } else { 11_500 };
        let let_go = self.hosts[h].unparked.is_some_and(|at| self.now - at > noticed);
        if let_go && !just_lost {
            self.violate(
                Invariant::S2Fenced,
                format!("guest {n} is moved although nobody keeps n{h:02} off"),
            );
        }
        // Whoever cleared its maintenance a moment ago had it enabled; that is noticed in time.
        let enabled = self.hosts[h].enabled_at.is_some_and(|at| self.now - at <= 11_500);
        if !self.hosts[h].forced_down && !enabled {
            self.violate(
                Invariant::S12Order,
                format!("guest {n} is moved before n{h:02} is forced down"),
            );
        }
    }

    /// A guest that was moved and arrived stopped is started as it is moved: only while its old host is off.
    pub(crate) fn check_start(&mut self, n: usize, incident: Option<&IncidentId>) {
        let Some(h) = incident.and_then(|id| self.host_index(&id.host)) else {
            return;
        };
        self.mark("a guest that was moved is started");
        let looked = self.power_reads.get(&h).is_some_and(|at| self.now - at <= 11_500);
        let looked = looked || self.signed_for(incident);
        if self.runs_in_spite(h, incident) || !looked {
            let what =
                format!("guest {n} of n{h:02} is started, and its old host is on or was not looked at");
            self.violate(Invariant::S2Fenced, what);
        }
    }

    pub(crate) fn check_restore(&mut self, h: usize, incident: Option<&IncidentId>) {
        // What a late message opened since somebody could have looked nobody knows.
        let lately = |at: u64| self.now - at < 10_500;
        let open = self
            .migrations
            .iter()
            .any(|m| m.open_at(h) && !m.reopened.is_some_and(lately));
        // A claim that is undone before anything was done to the host gives back what it took.
        let touched = incident.and_then(|id| {
            self.ledger()
                .incidents
                .get(id)
                .map(|i| i.fence_intended || i.grade.is_some())
        });
        if touched != Some(true) {
            return;
        }
        let boot = incident.and_then(|id| self.ledger().incidents.get(id).and_then(|i| i.boot.clone()));
        let same_boot = boot.is_some_and(|boot| boot.0 == self.hosts[h].boot_id());
        let silent = self.hosts[h].service_seen < self.hosts[h].booted_at;
        // Whoever was heard a moment ago may be dead by now; nobody knows before it has been silent for a while.
        let lately = self.hosts[h].died_at.is_some_and(|at| self.now - at < 20_000);
        let dead = !self.hosts[h].user && !lately;
        if open || same_boot || silent || dead {
            let what = format!(
                "n{h:02} is given back: open records {open}, same boot {same_boot}, silent service {silent}, dead {dead}"
            );
            self.violate(Invariant::S13Release, what);
        }
    }

    /// Whether Nova has evacuations from a host on record that are not closed.
    pub(crate) fn records_open(&self, h: usize) -> bool {
        self.migrations.iter().any(|m| m.open_at(h))
    }
}
