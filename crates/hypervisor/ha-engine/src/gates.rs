// SPDX-License-Identifier: Apache-2.0
//! What must hold before a host is fenced. Every gate fails closed: a brake never expires into
//! action, and what cannot be known counts against acting.

use std::collections::BTreeSet;
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::config::CapacityCheck;
use crate::engine::{Engine, Host, Slot};
use crate::ids::{Domain, IncidentId, Mono, Now, ReplicaId};
use crate::input::{HostFacts, Pause, PauseScope, Room};
use crate::ledger::{Incident, IncidentState};
use crate::mutation::Mutation;
use crate::status::{Gate, HeldReason, Notice};

/// By how much the clock of a replica may be wrong without anybody acting on it.
pub(crate) const CLOCKS_DIFFER: Duration = Duration::from_hours(1);

impl Engine {
    /// The first gate that holds this incident back, of those that need no reading.
    pub(crate) fn gate(&mut self, id: &IncidentId, now: Now) -> Result<(), HeldReason> {
        let Some(incident) = self.ledger.incidents.get(id).cloned() else {
            return Err(HeldReason::HaDisabled);
        };
        let host = &incident.id.host;
        self.people_allow(host)?;
        self.planned_shutdown(&incident, now.mono)?;
        if self.own_host.as_ref() == Some(host) && !self.broken.is(Mutation::IgnoreOwnHost) {
            // Whoever stands on the failed host is about to fall with it.
            self.act(None, Slot::Resign, Effect::Resign, now);
            return Err(HeldReason::SelfIsolated);
        }
        self.storm_gate(&incident, now)?;
        self.isolation_gate(Some(host), now.mono)?;
        self.warmup_gate(&incident, now.mono)?;
        if self.in_flight() >= self.config.max_hosts_in_flight && !self.broken.is(Mutation::NoInFlightLimit) {
            return Err(HeldReason::HostsInFlight);
        }
        self.room_gate(&incident, now)
    }

    /// Hosts between Fencing and Evacuating.
    pub(crate) fn in_flight(&self) -> usize {
        let states = self.ledger.incidents.values().map(|incident| incident.state);
        states.filter(|state| state.in_flight()).count()
    }

    /// Whether people want the host looked after, and nobody has asked to leave it alone meanwhile.
    pub(crate) fn people_allow(&self, host: &HostName) -> Result<(), HeldReason> {
        let facts = self.hosts.get(host).and_then(|known| known.facts.as_ref());
        let managed = facts.is_some_and(|facts| facts.ha_enabled && !facts.ambiguous);
        if !managed && !self.broken.is(Mutation::IgnoreHaDisabled) {
            return Err(HeldReason::HaDisabled);
        }
        if self.broken.is(Mutation::IgnorePause) {
            return Ok(());
        }
        // Who has not been told which pauses there are does not know.
        if self.pauses.is_none() {
            return Err(HeldReason::WarmUp);
        }
        if self.paused(host) {
            return Err(HeldReason::Paused);
        }
        Ok(())
    }

    /// Whether its guests would find room. What nobody reports is not there.
    fn room_gate(&mut self, incident: &Incident, now: Now) -> Result<(), HeldReason> {
        let ignored = self.broken.is(Mutation::IgnoreCapacity);
        let approved = incident.approved.contains(&Gate::Capacity);
        if self.config.capacity == CapacityCheck::Off || approved || ignored {
            return Ok(());
        }
        let (needed, free) = self.room(&incident.id.host);
        let spares = self.config.spares.iter().filter(|spare| self.idle_spare(spare));
        let free = spares.fold(free, |free, spare| free.with(self.free_of(spare)));
        if needed.is_some_and(|needed| free.holds(needed)) {
            return Ok(());
        }
        if self.config.capacity == CapacityCheck::Hold {
            return Err(HeldReason::NoCapacity);
        }
        let told = std::mem::replace(&mut self.run(&incident.id, now).told_room, true);
        if let Some(needed) = needed.filter(|_| !told) {
            self.tell(Notice::RoomShort {
                incident: incident.id.clone(),
                needed_mib: needed.used_mib,
                free_mib: free.free_mib,
            });
        }
        Ok(())
    }

    /// What the guests of a host take, and what hosts that work and are given guests have left for
    /// them: what is kept for the guests of others is not theirs.
    pub(crate) fn room(&self, host: &HostName) -> (Option<Room>, Room) {
        let mut needed = None;
        let mut free = Room::default();
        for (name, known) in self.hosts.iter() {
            let Some((facts, room)) = known.facts.as_ref().and_then(|facts| Some((facts, facts.room?)))
            else {
                continue;
            };
            if name == host {
                needed = Some(room);
            } else if facts.maintenance.is_off()
                && !known.signals.service.disabled
                && known.suspicion.is_none()
                && self.ledger.open_incident(name).is_none()
            {
                let others = facts.reserved.iter().filter(|kept| !kept.covers.contains(host));
                free = free.with(others.fold(room, Room::without));
            }
        }
        (needed, free)
    }

    /// The gate that needs the host's maintenance, read from the API just now.
    pub(crate) fn maintenance_gate(
        &self,
        id: &IncidentId,
        found: &Maintenance,
        now: Mono,
    ) -> Result<(), HeldReason> {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Err(HeldReason::HaDisabled);
        };
        let approved = incident.approved.contains(&Gate::Maintenance);
        if approved || self.broken.is(Mutation::IgnoreMaintenance) {
            return Ok(());
        }
        let since = self.runs.get(id).map_or(now, |run| run.state_since);
        match found {
            Maintenance::Off | Maintenance::Termination => Ok(()),
            Maintenance::Auto if now.since(since) >= self.config.auto_takeover => Ok(()),
            Maintenance::Manual
                if self
                    .config
                    .manual_takeover
                    .is_some_and(|span| now.since(since) >= span) =>
            {
                Ok(())
            }
            Maintenance::Ha => Err(HeldReason::AwaitingApproval),
            // Words that are not known are somebody's plan as well.
            _ => Err(HeldReason::PlannedMaintenance),
        }
    }

    pub(crate) fn paused(&self, host: &HostName) -> bool {
        let domains = self
            .hosts
            .get(host)
            .and_then(|h| h.facts.as_ref())
            .map_or(&[][..], |f| &f.domains);
        self.pauses.iter().flatten().any(|pause| match &pause.scope {
            PauseScope::Global => true,
            PauseScope::Domain(domain) => domains.contains(domain),
            PauseScope::Host(paused) => paused == host,
            PauseScope::Server(_) => false,
        })
    }

    /// Whether the zone of a host was announced to rest, not the host alone.
    pub(crate) fn zone_paused(&self, host: &HostName) -> bool {
        let known = self.hosts.get(host).and_then(|h| h.facts.as_ref());
        let zone = known.and_then(|facts| facts.domains.first());
        self.pauses.iter().flatten().any(|pause| match &pause.scope {
            PauseScope::Global => true,
            PauseScope::Domain(domain) => Some(domain) == zone,
            PauseScope::Host(_) | PauseScope::Server(_) => false,
        })
    }

    pub(crate) fn paused_server(&self, server: &ServerId) -> bool {
        let about = |pause: &Pause| matches!(&pause.scope, PauseScope::Server(paused) if paused == server);
        self.pauses.iter().flatten().any(about)
    }

    /// Whether no pause of the guest is in force. Who has not been told which there are does not know.
    pub(crate) fn unpaused_server(&self, server: &ServerId) -> bool {
        self.pauses.is_some() && !self.paused_server(server)
    }

    fn planned_shutdown(&self, incident: &Incident, now: Mono) -> Result<(), HeldReason> {
        let host = self.hosts.get(&incident.id.host);
        // Who was not there when it was announced counts from when they learnt of it.
        let since = self.runs.get(&incident.id).map(|run| run.state_since);
        let announced = host
            .and_then(|host| host.shutdown_announced)
            .or_else(|| since.filter(|_| incident.announced));
        let approved = incident.approved.contains(&Gate::Maintenance);
        match announced {
            Some(at) if now.since(at) < self.config.planned_grace && !approved => {
                Err(HeldReason::PlannedMaintenance)
            }
            _ => Ok(()),
        }
    }

    /// Whether the power of the host reads Off and nothing speaks against it. A watchdog that must
    /// have fired is no such reading: it is told from silence, and whoever is cut off hears silence
    /// from every host at once.
    pub(crate) fn proven(&self, host: &HostName) -> bool {
        self.hosts.get(host).is_some_and(proven)
    }

    // --- storm

    /// Hosts that are in trouble: suspects nobody defends and open incidents; those that were
    /// lately, which is what makes blinking hosts visible; and incidents that ended within the
    /// memory, which is what makes a slow cascade visible.
    fn impacted(&self, now: Now) -> BTreeSet<HostName> {
        let mut impacted: BTreeSet<HostName> = self.in_trouble().cloned().collect();
        let lately = |at: Mono| now.mono.since(at) <= self.config.storm_window;
        let struck = self.struck.iter().filter(|(_, at)| lately(**at));
        impacted.extend(struck.map(|(name, _)| name.clone()));
        for incident in self.ledger.incidents.values() {
            let since = self
                .runs
                .get(&incident.id)
                .map_or(now.mono, |run| run.state_since);
            let remembered = now.mono.since(since) <= self.config.storm_memory;
            if remembered && incident.state.settled() && !self.long_settled(incident, now) {
                impacted.insert(incident.id.host.clone());
            }
        }
        impacted
    }

    /// Whether an incident was settled so long before this leader's term that it is no part of a cascade. A leader has
    /// only the wall clock for that, and an hour more than the memory makes up for one that jumps.
    fn long_settled(&self, incident: &Incident, now: Now) -> bool {
        let age = incident.settled.map(|at| now.wall.duration_since(at));
        age.and_then(|age| Duration::try_from(age).ok())
            .is_some_and(|age| age > self.config.storm_memory + CLOCKS_DIFFER)
    }

    /// Whoever led before saw hosts come and go that a new leader has not seen. Those that were called off lately count as if
    /// that had been now. A leader has only the wall clock for that, and an hour more makes up for one that jumps.
    pub(crate) fn resume_storm(&mut self, now: Now) {
        if self.broken.is(Mutation::ForgetStorm) {
            return;
        }
        let memory = self.config.storm_window + self.config.storm_cooldown + CLOCKS_DIFFER;
        let lately = |incident: &&Incident| {
            let ended = incident
                .ended
                .filter(|_| incident.state == IncidentState::Cancelled);
            let age = ended.map(|at| now.wall.duration_since(at));
            age.is_some_and(|age| age.unsigned_abs() <= memory)
        };
        let called_off = self.ledger.incidents.values().filter(lately);
        let struck = called_off.map(|incident| (incident.id.host.clone(), now.mono));
        self.struck.extend(struck);
    }

    /// Hosts that are in trouble at this moment.
    fn in_trouble(&self) -> impl Iterator<Item = &HostName> {
        let suspects = self
            .hosts
            .iter()
            .filter(|(_, host)| {
                let emptied = host.facts.as_ref().is_some_and(HostFacts::emptied);
                host.suspicion.is_some() && !host.evidence.any_alive() && !emptied
            })
            .map(|(name, _)| name);
        let handled =
            |incident: &&Incident| incident.state == IncidentState::Confirmed || incident.state.in_flight();
        let incidents = self.ledger.incidents.values().filter(handled);
        suspects.chain(incidents.map(|incident| &incident.id.host))
    }

    /// Remembers who is in trouble, for as long as the window lasts.
    fn note_trouble(&mut self, now: Mono) {
        let mut struck = std::mem::take(&mut self.struck);
        struck.retain(|_, at| now.since(*at) <= self.config.storm_window);
        struck.extend(self.in_trouble().map(|name| (name.clone(), now)));
        self.struck = struck;
    }

    pub(crate) fn watch_storm(&mut self, now: Now) {
        self.note_trouble(now.mono);
        let impacted = self.impacted(now);
        let limit = (self.hosts.len() * self.config.storm_percent as usize / 100).max(2);
        if impacted.len() > limit {
            self.storm_last = Some(now.mono);
        }
        self.note_crowds(&impacted, now);
        let isolated = self.isolation_gate(None, now.mono).is_err();
        // Who has just begun to lead has heard nobody yet. The gate holds all the same; it is no news.
        let begins = self
            .term
            .is_some_and(|term| now.mono.since(term.since) < self.config.warmup);
        if isolated != self.self_isolated && !(isolated && begins) {
            self.self_isolated = isolated;
            self.tell(Notice::SelfIsolated { active: isolated });
        }
        self.make_way(isolated && !begins, now);
    }

    /// Whoever hears too few hosts for a while, while another replica hears them, lets that one lead: nothing would be
    /// recovered otherwise for as long as it lasts.
    fn make_way(&mut self, isolated: bool, now: Now) {
        let deaf = isolated && self.heard_better_elsewhere(now.mono);
        self.deaf_since = deaf.then(|| self.deaf_since.unwrap_or(now.mono));
        let patience = self.config.silent_after;
        if self
            .deaf_since
            .is_some_and(|since| now.mono.since(since) >= patience)
        {
            self.deaf_since = None;
            self.act(None, Slot::Resign, Effect::Resign, now);
        }
    }

    /// Whether we hear too few hosts, and one of the others that answer us does not.
    fn heard_better_elsewhere(&self, now: Mono) -> bool {
        let known = || self.hosts.values().filter(|host| host.facts.is_some());
        let heard = |who: &dyn Fn(&Host) -> bool| known().filter(|host| who(host)).count();
        let all = known().count();
        let silence = self.config.silent_after;
        let here = heard(&|host| host.signals.fresh_here(now, silence));
        let there =
            |replica: ReplicaId| heard(&|host| host.signals.fresh_at(replica, now, silence, &self.config));
        let hears = |replica: &ReplicaId| self.enough(there(*replica), all);
        !self.enough(here, all) && self.peers_heard.keys().any(hears)
    }

    /// A host whose power is off needs no command, so it may be recovered in a storm; by the word of its device, or of
    /// somebody who looked.
    fn storm_gate(&self, incident: &Incident, now: Now) -> Result<(), HeldReason> {
        if incident.asserted || self.config.proven_dead_bypass && self.proven(&incident.id.host) {
            return Ok(());
        }
        self.storm_brake(incident, now)
    }

    /// Whether a storm forbids to touch the power of this host.
    pub(crate) fn storm_brake(&self, incident: &Incident, now: Now) -> Result<(), HeldReason> {
        let approved = incident.approved.contains(&Gate::Storm);
        if approved || self.broken.is(Mutation::NoStormBrake) {
            return Ok(());
        }
        if self
            .storm_last
            .is_some_and(|last| now.mono.since(last) <= self.config.storm_cooldown)
        {
            return Err(HeldReason::Storm);
        }
        let crowded = self.runs.get(&incident.id).and_then(|run| run.crowded);
        let lately = crowded.is_some_and(|last| now.mono.since(last) <= self.config.storm_cooldown);
        if lately || self.crowded(incident, &self.impacted(now)) {
            return Err(HeldReason::DomainLimit);
        }
        Ok(())
    }

    /// Whether as many hosts of one of its failure domains as may be in trouble were so before it.
    fn crowded(&self, incident: &Incident, impacted: &BTreeSet<HostName>) -> bool {
        let facts = self
            .hosts
            .get(&incident.id.host)
            .and_then(|host| host.facts.as_ref());
        // The outermost domain is the fleet of this service; the storm limit speaks for it.
        let inner = facts.map_or(&[][..], |facts| facts.domains.get(1..).unwrap_or(&[]));
        inner
            .iter()
            .any(|domain| self.ahead(incident, domain, impacted) >= self.domain_limit(domain))
    }

    /// Remembers whose domains are crowded: like a storm, that is over when it has been calm for a while.
    fn note_crowds(&mut self, impacted: &BTreeSet<HostName>, now: Now) {
        if self.broken.is(Mutation::NoDomainCooldown) {
            return;
        }
        let waits = |incident: &&Incident| incident.state.open() && !incident.fence_intended;
        let waiting = self.ledger.incidents.values().filter(waits);
        let crowded = waiting.filter(|incident| self.crowded(incident, impacted));
        let crowded: Vec<IncidentId> = crowded.map(|incident| incident.id.clone()).collect();
        for id in crowded {
            self.run(&id, now).crowded = Some(now.mono);
        }
    }

    fn members<'a>(&'a self, domain: &'a Domain) -> impl Iterator<Item = &'a HostName> {
        let belongs = move |host: &&Host| host.facts.as_ref().is_some_and(|f| f.domains.contains(domain));
        self.hosts
            .iter()
            .filter(move |(_, host)| belongs(host))
            .map(|(name, _)| name)
    }

    fn domain_limit(&self, domain: &Domain) -> usize {
        let share = self.members(domain).count() * self.config.domain_percent as usize / 100;
        share.min(self.config.max_domain_hosts).max(1)
    }

    /// How many impacted hosts of the domain have a better claim: incidents opened earlier, and
    /// hosts already beyond the gates.
    fn ahead(&self, incident: &Incident, domain: &Domain, impacted: &BTreeSet<HostName>) -> usize {
        self.members(domain)
            .filter(|name| **name != incident.id.host && impacted.contains(*name))
            .filter(|name| {
                self.ledger.incidents.values().any(|other| {
                    other.id.host == **name
                        && other.id < incident.id
                        && other.state != IncidentState::Cancelled
                })
            })
            .count()
    }

    // --- ourselves

    /// Whether it may be us who cannot hear. Hosts whose death somebody vouches for, a person or
    /// their power, do not count against us, nor does the host in question.
    pub(crate) fn isolation_gate(&self, about: Option<&HostName>, now: Mono) -> Result<(), HeldReason> {
        if self.broken.is(Mutation::IgnoreSelfIsolation) {
            return Ok(());
        }
        let fresh = |at: Mono| now.since(at) <= self.config.answer_fresh;
        let heard = 1 + self.peers_heard.values().filter(|at| fresh(**at)).count();
        let majority = heard > usize::from(self.config.replicas) / 2;
        let canaries = self.canaries.is_some_and(|(at, ok, total)| {
            now.since(at) <= self.config.silent_after && ok * 100 >= total * self.config.canary_percent
        });
        let silence = self.config.silent_after;
        let fleet = self.hearing(about, |host| host.signals.fresh_here(now, silence));
        // Where all that could be heard are excused, nothing says that anything can be.
        let nobody = fleet.others == 0 && fleet.vouched_for == 0 && fleet.excused > 0;
        if majority && canaries && self.enough(fleet.here, fleet.others) && !nobody {
            Ok(())
        } else {
            Err(HeldReason::SelfIsolated)
        }
    }

    /// Remembers until when most replicas heard too little of the fleet, whoever leads. Agents that lost most of the service
    /// together with their neighbours keep their hosts alive: the silence of that time says nothing about watchdogs.
    pub(crate) fn watch_hearing(&mut self, time: Now) {
        let now = time.mono;
        let lately = |at: Mono| now.since(at) < Duration::from_secs(1);
        if !self.watchdogs || self.hearing_at.is_some_and(lately) {
            return;
        }
        // What was heard before anybody looked is not known.
        if self.hearing_at.replace(now).is_none() {
            self.deaf_until = Some(now);
        }
        let enough = |fleet: Hearing| {
            // One that is silent may be the one in question.
            let silent = fleet.others - fleet.here;
            self.enough(fleet.here, fleet.here + silent.saturating_sub(1))
        };
        let silence = self.outage();
        let here = enough(self.hearing(None, |host| host.signals.fresh_here(now, silence)));
        let there = |replica: &&ReplicaId| {
            let heard = |host: &Host| host.signals.fresh_at(**replica, now, silence, &self.config);
            enough(self.hearing(None, heard))
        };
        let hear = usize::from(here) + self.peers_heard.keys().filter(there).count();
        if hear <= usize::from(self.config.replicas) / 2 {
            self.deaf_until = Some(now);
        } else {
            self.watch_company(time);
        }
    }

    /// Since when we have been awake and heard the fleet.
    pub(crate) fn listening(&self) -> Mono {
        self.deaf_until.map_or(self.awake, |deaf| deaf.max(self.awake))
    }

    fn enough(&self, heard: usize, all: usize) -> bool {
        heard * 100 >= all * self.config.fresh_percent
    }

    /// How many hosts are heard, of those that could be.
    fn hearing(&self, about: Option<&HostName>, heard: impl Fn(&Host) -> bool) -> Hearing {
        let open: Vec<&Incident> = self
            .ledger
            .incidents
            .values()
            .filter(|i| i.state.open())
            .collect();
        let vouched = |name: &HostName, host: &Host| {
            let handled = || open.iter().find(|incident| incident.id.host == *name);
            about == Some(name)
                || proven(host)
                || handled().is_some_and(|i| {
                    !i.approved.is_empty() || i.asserted || i.state > IncidentState::Confirmed
                })
        };
        let mut hearing = Hearing::default();
        for (name, host) in self.hosts.iter() {
            if host.facts.is_none() || vouched(name, host) {
                hearing.vouched_for += usize::from(host.facts.is_some() && about != Some(name));
                continue;
            }
            let fresh = heard(host);
            if fresh || !self.may_be_silent(name, host) {
                hearing.others += 1;
                hearing.here += usize::from(fresh);
            } else {
                hearing.excused += 1;
            }
        }
        hearing
    }

    /// Whether nobody need wonder that a host says nothing: people have it in maintenance, or in their hands since they ended its
    /// incident. It need not be an incident either, if it was emptied.
    fn may_be_silent(&self, name: &HostName, host: &Host) -> bool {
        let maintained = |facts: &HostFacts| !facts.maintenance.is_off();
        host.facts.as_ref().is_some_and(maintained) || self.left_to_people(name)
    }

    /// While most of the fleet has just been switched on, who is still off is on its way: not even that
    /// its power reads Off says more.
    fn cold_start(&self, now: Mono) -> Result<(), HeldReason> {
        let known = || self.hosts.values().filter(|host| host.facts.is_some());
        let lately = |host: &&Host| {
            let up = host.signals.agent.up_for(now);
            up.is_some_and(|up| up < self.config.cold_start)
        };
        if known().filter(lately).count() * 2 > known().count() {
            Err(HeldReason::WarmUp)
        } else {
            Ok(())
        }
    }

    fn warmup_gate(&self, incident: &Incident, now: Mono) -> Result<(), HeldReason> {
        if !self.broken.is(Mutation::NoWarmUp) {
            self.cold_start(now)?;
        }
        if self.proven(&incident.id.host) {
            return Ok(());
        }
        self.warmup_brake(incident, now)
    }

    /// Whether this replica leads for too short a time to touch the power of this host.
    pub(crate) fn warmup_brake(&self, incident: &Incident, now: Mono) -> Result<(), HeldReason> {
        if self.broken.is(Mutation::NoWarmUp) {
            return Ok(());
        }
        self.cold_start(now)?;
        let Some(term) = self.term else {
            return Err(HeldReason::WarmUp);
        };
        let known: Vec<_> = self
            .hosts
            .iter()
            .filter(|(name, host)| **name != incident.id.host && host.facts.is_some())
            .filter(|(name, host)| {
                host.signals.heartbeat_age(now).is_some()
                    && self.ledger.open_incident(name).is_none()
                    && !self.may_be_silent(name, host)
                    && !proven(host)
            })
            .collect();
        let heard = known
            .iter()
            .filter(|(_, host)| host.signals.heard_in_term)
            .count();
        if now.since(term.since) >= self.config.warmup && self.enough(heard, known.len()) {
            Ok(())
        } else {
            Err(HeldReason::WarmUp)
        }
    }
}

/// How many hosts there are, by whether they are heard.
#[derive(Default)]
struct Hearing {
    /// Heard.
    here: usize,
    /// That could be heard, those that are among them.
    others: usize,
    /// Silent for a reason that is known.
    excused: usize,
    /// Whose death somebody vouches for.
    vouched_for: usize,
}

fn proven(host: &Host) -> bool {
    host.evidence.shows_off()
}
