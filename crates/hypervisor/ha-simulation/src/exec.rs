// SPDX-License-Identifier: Apache-2.0
//! Where the engine's actions meet the world. Every effect is judged (see `judge`), against the truth,
//! before it happens; then it happens, late, twice or not at all, as the faults of the run want.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Action, Answer, Effect, IncidentId, Input, Observation, Power, ProbeResult, Prober, Refusal, ReplicaId,
    ServiceChange, Trouble, lock_reason,
};

use crate::faults::Fault;
use crate::hosts::Bmc;
use crate::invariants::Invariant;
use crate::journal::Moment;
use crate::world::{Act, Event, World};

type Outcome = Result<Answer, Trouble>;

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
                let h = self.host_index(host);
                let let_go = h.is_some_and(|h| self.hosts[h].unparked.is_some());
                match self.at_device(*level, host, Self::read_power) {
                    (slow, Ok(Answer::Power(Power::On))) => (slow, Ok(Answer::Power(Power::On))),
                    // Whether it is kept off is asked of somebody else than its device.
                    (slow, _) if let_go && self.kubernetes(r).answers() => (slow, Ok(Answer::Unheld)),
                    read => read,
                }
            }
            Effect::Identify { host, level } => self.at_device(*level, host, |world, h, bmc| {
                let machine = bmc.wired_to.unwrap_or(h);
                Answer::Identity(world.hosts[machine].identity())
            }),
            Effect::PowerOff { host, level } => self.power_off(r, host, *level, incident),
            Effect::ReleaseFence { host, levels } => self.release_fence(r, host, levels),
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
        let latency = self.rng.u64(20..600) + self.nova_slow;
        if let Effect::Evacuate { server, from, .. } = &action.effect
            && self.delays.u8(..100) < self.nova_late
            && let Some(n) = self.server_index(server)
        {
            self.mark("Nova does it most of a minute later");
            self.check_evacuate(n, from, action.incident.as_ref());
            let late = self.delays.u64(30_000..60_000);
            self.check_one_request(n, 0);
            self.schedule(late, Event::NovaMoves(n, self.migrations.len()));
            return (8000, Err(Trouble::Unknown));
        }
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
                self.evacuate(n, 0)
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

    /// First the mark on its node, then whatever each level left behind, then its power.
    fn release_fence(&mut self, r: usize, host: &HostName, levels: &[usize]) -> (u64, Outcome) {
        let Some(h) = self.host_index(host) else {
            return (5, Err(Trouble::Unknown));
        };
        let way = self.kubernetes(r);
        if !way.there {
            return (3000, Err(Trouble::Unknown));
        }
        if self.nodes_refused {
            return (20, Err(Trouble::Refused(Refusal::Other)));
        }
        self.hosts[h].tainted = false;
        self.hosts[h].unparked = None;
        if self.hosts[h].user && !self.hosts[h].compute {
            self.compute_starts(h);
        }
        if !way.back {
            return (3000, Err(Trouble::Unknown));
        }
        for level in levels {
            self.hosts[h].parked.remove(level);
        }
        if !self.hosts[h].parked.is_empty() {
            // Whoever was told to park it does so as soon as it can.
            self.schedule(60_000, Event::Do(Fault::PowerLoss(h)));
        }
        let devices: Vec<Bmc> = levels.iter().map(|level| self.device(h, *level)).collect();
        if let Some(bmc) = devices.iter().rfind(|bmc| bmc.reachable) {
            self.gain_power(h);
            return (bmc.slow, Ok(Answer::Done));
        }
        // Nothing keeps it off, and nobody could switch it on.
        (5000, Ok(Answer::Done))
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
        // Whoever looks after the machine is told before its BMC is.
        self.hosts[h].parked.insert(level);
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
            Effect::Hold { .. } if self.nodes_refused => {
                self.mark("a node cannot be marked");
                return Err(Trouble::Refused(Refusal::Other));
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
}
