// SPDX-License-Identifier: Apache-2.0
//! Where the engine's actions meet the world. Every effect is judged here, against the truth,
//! before it happens; then it happens, late, twice or not at all, as the faults of the run want.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Action, Answer, Decision, Effect, Entry, Gate, Grade, Group, Incident, IncidentId, IncidentKind,
    IncidentState, Input, Ledger, MigrationKind, MigrationStatus, Observation, Pause, PauseScope, Power,
    ProbeResult, Prober, Refusal, ReplicaId, ServiceChange, Trouble, Verdict, lock_reason,
};

use crate::hosts::Bmc;
use crate::invariants::Invariant;
use crate::journal::Moment;
use crate::world::{Act, Event, World};

type Outcome = Result<Answer, Trouble>;

/// Milliseconds within which whoever decides need not know of what was written.
const JUST_NOW: u64 = 12_000;

impl World {
    pub(crate) fn exec(&mut self, r: usize, incarnation: u64, action: Action) {
        let loud = action.effect.changes();
        if loud {
            self.story(|| format!("replica {r} does {:?}", action.effect));
            self.check_intent(&action);
        }
        if self.options.crash.is_some() {
            self.acts.push(Act {
                at_ms: self.now,
                term: action.id.epoch.0,
                effect: action.effect.clone(),
            });
        }
        let (latency, outcome) = self.perform(r, &action);
        if loud && self.dying == Some((r, Moment::Done)) {
            self.dying = None;
            self.crash_replica(r);
            return;
        }
        let outcome = Box::new((action.id, outcome));
        self.schedule(latency, Event::Outcome(r, incarnation, outcome));
    }

    fn perform(&mut self, r: usize, action: &Action) -> (u64, Outcome) {
        let incident = action.incident.as_ref();
        match &action.effect {
            Effect::Investigate { host, peers } => (10, self.investigate(r, host, peers)),
            Effect::ListGuests { hosts } => {
                // As any command, it waits for an agent that asks for it.
                for h in hosts.iter().filter_map(|host| self.named.get(host).copied()) {
                    let reached = self.reaches(r, h) && !self.replicas[r].closed;
                    self.hosts[h].list_wanted |= reached && self.hosts[h].agent_speaks();
                }
                (10, Ok(Answer::Done))
            }
            Effect::ReadPower { host, level } => self.at_device(*level, host, Self::read_power),
            Effect::ReadHold { host, level } => {
                self.at_device(*level, host, |world, h, bmc| match world.read_power(h, bmc) {
                    Answer::Power(Power::Off) if world.hosts[h].unparked.is_some() => Answer::Unheld,
                    read => read,
                })
            }
            Effect::Identify { host, level } => self.at_device(*level, host, |world, h, bmc| {
                let machine = bmc.wired_to.unwrap_or(h);
                Answer::Identity(world.hosts[machine].identity())
            }),
            Effect::PowerOff { host, level } => self.power_off(r, host, *level, incident),
            Effect::ReleaseFence { host, level } => self.release_fence(host, *level),
            effect @ (Effect::ReadMaintenance { host }
            | Effect::Claim { host, .. }
            | Effect::Hold { host, .. }
            | Effect::SetDisabled { host }
            | Effect::StopEviction { host }
            | Effect::RestoreMaintenance { host, .. }) => {
                let Some(h) = self.host_index(host) else {
                    return (5, Err(Trouble::Unknown));
                };
                let way = self.kubernetes(r);
                if !way.there {
                    return (3000, Err(Trouble::Unknown));
                }
                let latency = self.rng.u64(5..60);
                let outcome = self.in_kubernetes(h, &effect.clone(), incident);
                if !way.back {
                    self.mark("Kubernetes does it, and nobody hears of it");
                    return (3000, Err(Trouble::Unknown));
                }
                (latency, outcome)
            }
            Effect::PauseDomain { host, server } => {
                // The command waits for its agent, which asks for it.
                if let (Some(h), Some(n)) = (self.host_index(host), self.server_index(server))
                    && self.hosts[h].agent_speaks()
                    && self.reaches(r, h)
                    && !self.replicas[r].closed
                {
                    self.servers[n].runs_on.remove(&h);
                    if self.shown_twice == Some((n, h)) {
                        self.shown_twice = None;
                    }
                }
                (50, Ok(Answer::Done))
            }
            Effect::Resign => {
                if self.lease.holder == Some(r) {
                    self.lease.holder = None;
                }
                self.replicas[r].stands_back = self.now + 30_000;
                let incarnation = self.replicas[r].incarnation;
                self.schedule(5, Event::Deliver(r, incarnation, Box::new(Input::LeaseLost)));
                (10, Ok(Answer::Done))
            }
            _ => self.at_nova(r, action),
        }
    }

    /// Nova may be away, slow, or take a request without answering it.
    fn at_nova(&mut self, r: usize, action: &Action) -> (u64, Outcome) {
        let way = self.nova(r);
        if !way.there {
            return (5000, Err(Trouble::Unknown));
        }
        let latency = self.rng.u64(20..600);
        if !way.back {
            self.mark("Nova does it, and nobody hears of it");
            let _ = self.in_nova(action);
            return (8000, Err(Trouble::Unknown));
        }
        let roll = self.rng.u8(..100);
        if roll < self.nova_flaky {
            if roll.is_multiple_of(2) {
                self.mark("Nova fails without an effect");
                return (latency * 3, Err(Trouble::Unknown));
            }
            // The effect without the answer.
            self.mark("Nova fails after the effect");
            let _ = self.in_nova(action);
            return (8000, Err(Trouble::Unknown));
        }
        (latency, self.in_nova(action))
    }

    fn in_nova(&mut self, action: &Action) -> Outcome {
        let gone = Err(Trouble::Refused(Refusal::NotFound));
        match &action.effect {
            Effect::ReadService { host } => match self.host_index(host) {
                Some(h) => Ok(Answer::Service(self.service(h))),
                None => gone,
            },
            Effect::ListServers { host } => match self.host_index(host) {
                Some(h) => Ok(self.list_servers(h)),
                None => gone,
            },
            Effect::UpdateService { host, change } => match self.host_index(host) {
                Some(h) => self.update_service(h, *change, action.incident.as_ref()),
                None => gone,
            },
            Effect::ReadServer { server } => match self.server_index(server) {
                Some(n) => Ok(self.read_server(n)),
                None => gone,
            },
            Effect::Evacuate { server, from, .. } => {
                let Some(n) = self.server_index(server) else {
                    return gone;
                };
                self.check_evacuate(n, from, action.incident.as_ref());
                self.evacuate(n)
            }
            Effect::ResetState { server } => {
                let Some(n) = self.server_index(server) else {
                    return gone;
                };
                self.servers[n].state = cobaltcore_ha_engine::VmState::Error;
                self.servers[n].task.clear();
                Ok(Answer::Done)
            }
            Effect::Lock { server } => match self.server_index(server) {
                Some(n) => {
                    self.servers[n].lock = action.incident.as_ref().map(lock_reason);
                    Ok(Answer::Done)
                }
                None => gone,
            },
            Effect::Unlock { server } => match self.server_index(server) {
                Some(n) => {
                    self.servers[n].lock = None;
                    Ok(Answer::Done)
                }
                None => gone,
            },
            Effect::Start { server } | Effect::RebootHard { server } => match self.server_index(server) {
                Some(n) => {
                    self.check_start(n, action.incident.as_ref());
                    self.start_server(n)
                }
                None => gone,
            },
            Effect::Stop { server } => match self.server_index(server) {
                Some(n) => self.stop_server(n),
                None => gone,
            },
            _ => Err(Trouble::Refused(Refusal::Other)),
        }
    }

    // --- probes and devices

    fn investigate(&mut self, r: usize, host: &HostName, peers: &[HostName]) -> Outcome {
        let Some(h) = self.host_index(host) else {
            return Err(Trouble::Unknown);
        };
        let asked_at = self.mono(r);
        let incarnation = self.replicas[r].incarnation;
        let mut probes: Vec<(Prober, bool)> = Vec::new();
        for other in 0..self.replicas.len() {
            let talks = other == r || self.asks_peer(r, other);
            if talks && self.replicas[other].alive() {
                probes.push((Prober::Replica(ReplicaId(other as u8)), self.reaches(other, h)));
            }
        }
        for peer in peers {
            let Some(p) = self.host_index(peer) else { continue };
            if !self.hosts[p].agent_speaks() || !self.reaches(r, p) {
                continue;
            }
            let same = self.hosts[p].rack == self.hosts[h].rack;
            let route = same || (self.uplinks[self.hosts[p].rack] && self.uplinks[self.hosts[h].rack]);
            probes.push((Prober::Peer(peer.clone()), route && self.hosts[h].mgmt.answers()));
        }
        for (by, route) in probes {
            let target = &self.hosts[h];
            let result = match (route && target.kernel, target.user && target.kubelet) {
                (false, _) => ProbeResult::Timeout,
                (true, true) => ProbeResult::App,
                (true, false) => ProbeResult::Kernel,
            };
            let takes = if result == ProbeResult::Timeout { 2000 } else { 30 };
            let seen = Observation::Probe {
                host: host.clone(),
                by,
                asked_at,
                result,
            };
            self.schedule(takes, Event::Deliver(r, incarnation, Box::new(Input::Saw(seen))));
        }
        Ok(Answer::Done)
    }

    /// The device of a level: that of the host itself, or the outlet that it is plugged into.
    fn device(&self, h: usize, level: usize) -> Bmc {
        if level == 0 {
            self.hosts[h].bmc.clone()
        } else {
            Bmc::sound()
        }
    }

    fn at_device(
        &mut self,
        level: usize,
        host: &HostName,
        ask: impl FnOnce(&mut Self, usize, &Bmc) -> Answer,
    ) -> (u64, Outcome) {
        let Some(h) = self.host_index(host) else {
            return (5, Err(Trouble::Unknown));
        };
        let bmc = self.device(h, level);
        // One whose answers are lost is heard now and then.
        if !bmc.reachable || (bmc.unheard && self.ways.u8(..3) > 0) {
            return (5000, Err(Trouble::Unknown));
        }
        (bmc.slow, Ok(ask(self, h, &bmc)))
    }

    fn release_fence(&mut self, host: &HostName, level: usize) -> (u64, Outcome) {
        let Some(h) = self.host_index(host) else {
            return (5, Err(Trouble::Unknown));
        };
        let bmc = self.device(h, level);
        if !bmc.reachable {
            return (5000, Err(Trouble::Unknown));
        }
        self.hosts[h].tainted = false;
        self.hosts[h].unparked = None;
        self.gain_power(h);
        if self.hosts[h].user && !self.hosts[h].compute {
            self.compute_starts(h);
        }
        self.answer_of(&bmc)
    }

    /// What is heard of a device that did what it was told.
    fn answer_of(&mut self, bmc: &Bmc) -> (u64, Outcome) {
        if bmc.unheard {
            self.mark("a device does it, and nobody hears of it");
            return (5000, Err(Trouble::Unknown));
        }
        (bmc.slow, Ok(Answer::Done))
    }

    fn read_power(&mut self, h: usize, bmc: &Bmc) -> Answer {
        let now = self.now;
        self.power_reads.insert(h, now);
        let machine = bmc.wired_to.unwrap_or(h);
        let early = self.hosts[machine]
            .bmc
            .says_off_from
            .is_some_and(|from| from <= now);
        let off = bmc.lies || early || !self.hosts[machine].power;
        if early && self.hosts[machine].power {
            self.mark("a device says Off too early");
        }
        Answer::Power(if off { Power::Off } else { Power::On })
    }

    fn power_off(
        &mut self,
        r: usize,
        host: &HostName,
        level: usize,
        incident: Option<&IncidentId>,
    ) -> (u64, Outcome) {
        let Some(h) = self.host_index(host) else {
            return (5, Err(Trouble::Unknown));
        };
        let bmc = self.device(h, level);
        self.check_power_off(r, h, bmc.wired_to.unwrap_or(h), incident);
        if level > 0 {
            self.mark("another level is tried");
        }
        if !bmc.reachable {
            return (5000, Err(Trouble::Unknown));
        }
        let machine = bmc.wired_to.unwrap_or(h);
        self.power_offs.push((self.now, machine));
        if self.hosts[machine].power {
            let now = self.now;
            let generation = self.hosts[machine].power_generation;
            // Some devices say Off a little before it is true.
            self.hosts[machine].bmc.says_off_from = Some(now + bmc.off_delay.saturating_sub(1200));
            self.schedule(bmc.off_delay, Event::PowerDown(machine, generation));
        }
        self.answer_of(&bmc)
    }

    // --- Kubernetes

    fn in_kubernetes(&mut self, h: usize, effect: &Effect, incident: Option<&IncidentId>) -> Outcome {
        let host = &self.hosts[h];
        match effect {
            Effect::ReadMaintenance { .. } => return Ok(Answer::Maintenance(host.maintenance.clone())),
            Effect::Claim { expected, .. } => {
                if host.maintenance != *expected {
                    return Err(Trouble::Refused(Refusal::Conflict));
                }
                if *expected == Maintenance::Manual && !self.plans_overridden(incident) {
                    self.violate(
                        Invariant::S11Manual,
                        format!("manual maintenance of n{h:02} is overridden"),
                    );
                }
                self.check_in_flight();
                self.hosts[h].maintenance = Maintenance::Ha;
            }
            Effect::Hold { .. } => {
                self.hosts[h].tainted = true;
                self.hosts[h].unparked = None;
            }
            Effect::SetDisabled { .. } => {
                let claimed =
                    incident.is_some_and(|id| self.ledger().incidents.get(id).is_some_and(|i| i.claimed));
                if !claimed {
                    self.violate(
                        Invariant::S12Order,
                        format!("n{h:02} is marked disabled before it is claimed"),
                    );
                }
                if self.hosts[h].maintenance != Maintenance::Ha {
                    return Err(Trouble::Refused(Refusal::Conflict));
                }
                self.hosts[h].disabled_condition = true;
            }
            Effect::RestoreMaintenance { value, .. } => {
                self.check_restore(h, incident);
                if self.hosts[h].maintenance != Maintenance::Ha {
                    return Err(Trouble::Refused(Refusal::Conflict));
                }
                self.hosts[h].maintenance = value.clone();
                self.schedule(2000, Event::Kubernetes);
            }
            _ => {}
        }
        Ok(Answer::Done)
    }

    fn update_service(&mut self, h: usize, change: ServiceChange, incident: Option<&IncidentId>) -> Outcome {
        if self.nova_refuses_service {
            return Err(Trouble::Refused(Refusal::Other));
        }
        let fenced = incident.and_then(|id| self.ledger().incidents.get(id).map(|i| i.grade.is_some()));
        match change {
            ServiceChange::Disable => self.hosts[h].disabled = true,
            ServiceChange::ForceDown => {
                if fenced != Some(true) && !self.just_lost(incident) {
                    self.violate(
                        Invariant::S12Order,
                        format!("n{h:02} is forced down before it is fenced"),
                    );
                }
                self.hosts[h].disabled = true;
                self.hosts[h].forced_down = true;
            }
            ServiceChange::Enable => {
                self.hosts[h].disabled = false;
                self.hosts[h].forced_down = false;
            }
            ServiceChange::EnableSpare => self.hosts[h].disabled = false,
        }
        self.hosts[h].service_updated = self.now;
        Ok(Answer::Done)
    }

    // --- promises

    /// What the durable journal says; the judge reads nothing else of the service.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.durable
    }

    /// Whether a person said that somebody's plans for the host do not count; not merely that a storm is real.
    fn plans_overridden(&self, incident: Option<&IncidentId>) -> bool {
        self.journal.iter().any(|record| {
            matches!(&record.entry, Entry::Decided { incident: about, decision: Decision::Approve, held: Some(held), .. }
                if Some(about) == incident && matches!(held.gate(), Some(Gate::Maintenance | Gate::Cleared)))
        })
    }

    fn check_intent(&mut self, action: &Action) {
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

    fn check_power_off(&mut self, r: usize, h: usize, machine: usize, incident: Option<&IncidentId>) {
        let now = self.now;
        let first = self.first_power_command(incident) && !self.requested(incident);
        let well = |host: &crate::hosts::Host| {
            host.well_since.is_some_and(|since| now - since > 45_000) && host.well()
        };
        if (first || machine != h) && well(&self.hosts[machine]) {
            self.violate(
                Invariant::S3NoFalseFence,
                format!("healthy n{machine:02} is switched off"),
            );
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

    fn check_in_flight(&mut self) {
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
        let fences = self
            .journal
            .iter()
            .filter(|record| matches!(&record.entry, Entry::FenceIntended { incident: about, .. } if Some(about) == incident))
            .count();
        fences <= 1
    }

    /// A request decided while the fence was seen to hold may leave until that look is ten seconds old.
    fn just_lost(&self, incident: Option<&IncidentId>) -> bool {
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

    fn check_evacuate(&mut self, n: usize, from: &HostName, incident: Option<&IncidentId>) {
        let Some(h) = self.host_index(from) else { return };
        let ledger = self.ledger();
        let fence = incident
            .and_then(|id| ledger.incidents.get(id))
            .and_then(|i| i.grade);
        if self.runs_guests(h) {
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
        if !looked && fence == Some(Grade::Power) {
            self.violate(
                Invariant::S2Fenced,
                format!("nobody looked at the power of n{h:02} for ten seconds"),
            );
        }
        let let_go = self.hosts[h].unparked.is_some_and(|at| self.now - at > 11_500);
        if let_go && !just_lost {
            self.violate(
                Invariant::S2Fenced,
                format!("guest {n} is moved although nobody keeps n{h:02} off"),
            );
        }
        if !self.hosts[h].forced_down {
            self.violate(
                Invariant::S12Order,
                format!("guest {n} is moved before n{h:02} is forced down"),
            );
        }
    }

    /// A guest that was moved and arrived stopped is started as it is moved: only while its old host is off.
    fn check_start(&mut self, n: usize, incident: Option<&IncidentId>) {
        let Some(h) = incident.and_then(|id| self.host_index(&id.host)) else {
            return;
        };
        self.mark("a guest that was moved is started");
        let looked = self.power_reads.get(&h).is_some_and(|at| self.now - at <= 11_500);
        if self.runs_guests(h) || !looked {
            let what =
                format!("guest {n} of n{h:02} is started, and its old host is on or was not looked at");
            self.violate(Invariant::S2Fenced, what);
        }
    }

    fn check_restore(&mut self, h: usize, incident: Option<&IncidentId>) {
        let open = self.records_open(h);
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
        let silent = self
            .fence_release_began(incident)
            .is_some_and(|at| self.hosts[h].service_seen < at);
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
        self.migrations.iter().any(|m| {
            m.source == h
                && m.kind == MigrationKind::Evacuation
                && (m.status.open() || m.status == MigrationStatus::Done)
        })
    }

    fn fence_release_began(&self, about: Option<&IncidentId>) -> Option<u64> {
        let records = self.journal.iter().zip(&self.written_at);
        let mut began = records.filter(|(record, _)| {
            matches!(&record.entry, Entry::FenceReleaseIntended { incident } if Some(incident) == about)
        });
        began.next().map(|(_, at)| *at)
    }
}
