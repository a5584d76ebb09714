// SPDX-License-Identifier: Apache-2.0
//! What others may ask of an engine: how it judges a host, where incidents stand, what it hears. Asking
//! changes nothing.

use cobaltcore_api::names::HostName;

use super::{Engine, Host};
use crate::evidence::{Evidence, Group, assess};
use crate::ids::{Epoch, IncidentId, Mono, Now};
use crate::input::{HostFacts, PeerHost};
use crate::ledger::{Incident, Ledger, VmProgress};
use crate::status::{HostStatus, IncidentStatus};

impl Engine {
    /// The durable half, for status and tests.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether this replica leads, and in which term.
    pub fn leads(&self) -> Option<Epoch> {
        self.term.map(|term| term.epoch)
    }

    /// In which term an effect may leave now, and until when: as for actions, while the lease is known to be ours.
    pub fn may_leave(&self, now: Mono) -> Option<(Epoch, Mono)> {
        let term = self.term.filter(|_| self.may_act(now))?;
        Some((term.epoch, term.renewed.after(self.config.renew_deadline)))
    }

    /// What this replica hears of every host, for its peers.
    pub fn peer_view(&self, now: Mono) -> Vec<(HostName, PeerHost)> {
        let mut view = Vec::with_capacity(self.hosts.len());
        self.peer_view_into(now, &mut view);
        view
    }

    /// The same, into an earlier view: what is as it was is not written again.
    pub fn peer_view_into(&self, now: Mono, view: &mut Vec<(HostName, PeerHost)>) {
        view.truncate(self.hosts.len());
        for (n, (name, host)) in self.hosts.iter().enumerate() {
            let agent = &host.signals.agent;
            let age_ms = agent
                .last
                .map(|last| u64::try_from(now.since(last).as_millis()).unwrap_or(u64::MAX));
            match view.get_mut(n) {
                Some((known, seen)) if known == name && seen.boot == agent.boot => {
                    (seen.age_ms, seen.resets_after) = (age_ms, agent.resets_after);
                }
                known => {
                    let seen = PeerHost {
                        age_ms,
                        boot: agent.boot.clone(),
                        resets_after: agent.resets_after,
                    };
                    match known {
                        Some(entry) => *entry = (name.clone(), seen),
                        None => view.push((name.clone(), seen)),
                    }
                }
            }
        }
    }

    /// Whether an agent should do nothing by itself now: its host is being handled.
    pub fn hold_reactions(&self, host: &HostName) -> bool {
        let maintained = |facts: &HostFacts| !facts.maintenance.is_off();
        self.ledger.open_incident(host).is_some()
            || self
                .hosts
                .get(host)
                .and_then(|h| h.facts.as_ref())
                .is_some_and(maintained)
    }

    /// The next moment at which an agent will have been silent for too long, if it says nothing until
    /// then. A leader that is given a tick at that moment suspects its host without delay.
    pub fn next_silence(&self, now: Mono) -> Option<Mono> {
        self.term?;
        self.silences().filter(|at| *at > now).min()
    }

    /// One host as it is judged now.
    pub fn host_status(&self, host: &HostName, now: Now) -> Option<HostStatus> {
        let known = self.hosts.get(host)?;
        let evidence = self.evidence(known, now);
        Some(HostStatus {
            host: host.clone(),
            assessment: assess(&evidence, &self.config, self.broken),
            evidence,
            suspect: known.suspicion.is_some(),
            contradicted: known
                .contradiction
                .map(|episode| (now.mono.since(episode.since), episode.times)),
            blind: known.blind,
            left: self.left_to_people(host),
            degraded: known.monitors.degraded.keys().copied().collect(),
            overwhelming_for: known.overwhelming.map(|since| now.mono.since(since)),
            incident: self
                .ledger
                .open_incident(host)
                .map(|incident| incident.id.clone()),
        })
    }

    /// Whether any host is suspected or in an open incident.
    pub fn watchful(&self) -> bool {
        self.hosts.values().any(|host| host.suspicion.is_some())
            || self
                .ledger
                .incidents
                .values()
                .any(|incident| incident.state.open())
    }

    /// All incidents.
    pub fn incidents(&self) -> Vec<IncidentStatus> {
        let count = |incident: &Incident, wanted: fn(&VmProgress) -> bool| {
            incident.vms.values().filter(|vm| wanted(&vm.progress)).count()
        };
        self.ledger
            .incidents
            .values()
            .map(|incident| IncidentStatus {
                id: incident.id.clone(),
                state: incident.state,
                held: self.runs.get(&incident.id).and_then(|run| run.held),
                fenced: incident.grade.filter(|_| !incident.fence_release_intended),
                hold_checked: self.runs.get(&incident.id).and_then(|run| run.hold_ok),
                guests: [
                    incident.vms.len(),
                    count(incident, |p| matches!(p, VmProgress::Recovered { .. })),
                    count(incident, |p| matches!(p, VmProgress::Failed { .. })),
                    count(incident, |p| matches!(p, VmProgress::Skipped { .. })),
                    count(incident, |p| {
                        matches!(p, VmProgress::Blocked { .. } | VmProgress::Conflict { .. })
                    }),
                ],
                stuck: self.stuck(&incident.id),
            })
            .collect()
    }

    /// How many guests of an incident have been on their way for too long.
    pub(crate) fn stuck(&self, id: &IncidentId) -> usize {
        let run = self.runs.get(id);
        run.map_or(0, |run| run.vms.values().filter(|vm| vm.stuck).count())
    }

    pub(crate) fn evidence(&self, host: &Host, now: Now) -> Evidence {
        let mut evidence =
            host.signals
                .evidence(now, self.listening(), &self.config, host.blind, self.broken);
        self.distrust_in(&mut evidence, now.mono);
        evidence
    }

    /// Marks the groups that are not believed now.
    pub(crate) fn distrust_in(&self, evidence: &mut Evidence, now: Mono) {
        for group in Group::ALL {
            evidence.groups[group as usize].untrusted =
                self.distrust[group as usize].active(now, &self.config);
        }
    }
}
