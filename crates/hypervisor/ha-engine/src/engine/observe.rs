// SPDX-License-Identifier: Apache-2.0
//! What was seen is written down, each with the host it is about; what is old or doubled is dropped. What
//! follows from it is judged in rounds, except where a heartbeat or an inventory cannot wait.

use cobaltcore_api::names::HostName;

use super::Engine;
use crate::ids::{Domain, Now};
use crate::input::{Heartbeat, Inventory, Observation, Onlooker, Prober};
use crate::monitors::Reboot;
use crate::signals::{Heard, Word};

impl Engine {
    /// Keeps of an observation what is news: a fleet that does nothing costs next to nothing.
    pub(super) fn observe(&mut self, observation: &Observation, now: Now) {
        match observation {
            Observation::Host(facts) => {
                let host = self.hosts.meet(&facts.host);
                host.told(facts);
            }
            Observation::HostGone(host) => {
                self.keep_in_mind(host);
                self.hosts.remove(host);
            }
            Observation::Heartbeat(beat) => self.heartbeat(beat, now),
            Observation::Inventory(inventory) => self.inventory(inventory, now),
            Observation::Guest(event) => self.guest_event(event, now),
            Observation::Services(services) => {
                self.hosts.for_each_known(services, |host, facts| {
                    host.service_seen(facts, now.mono);
                });
                self.reports_against_signatures(now);
            }
            Observation::NodeLeases(leases) => {
                self.hosts.for_each_known(leases, |host, token| {
                    host.signals.lease.see(token, now.mono);
                });
                self.reports_against_signatures(now);
            }
            Observation::Probe {
                host,
                by,
                asked_at,
                result,
            } => {
                let rack = match by {
                    Prober::Peer(peer) => self.rack_of(peer).cloned(),
                    Prober::Replica(_) => None,
                };
                if let Some(host) = self.hosts.get_mut(host) {
                    host.signals.probe(by.clone(), rack, *asked_at, *result);
                    host.calm = false;
                }
            }
            Observation::Judged {
                host,
                by,
                source,
                up,
                good_for,
            } => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.judged(*by, source, Word::new(*up, *good_for, now.mono));
                }
            }
            Observation::Storage { host, watcher } => {
                let word = Word::new(*watcher, self.config.answer_fresh * 2, now.mono);
                if let Some(host) = self.hosts.get_mut(host) {
                    host.judged(Onlooker::Storage, "", word);
                }
            }
            Observation::Trouble { host, what, holds } => self.metrics_told(host, *what, *holds, now),
            Observation::Peer { replica, hosts } => {
                if *replica == self.me {
                    return;
                }
                self.peers_heard.insert(*replica, now.mono);
                let mut watchdogs = self.watchdogs;
                self.hosts.for_each_known(hosts, |host, seen| {
                    watchdogs |= seen.resets_after.is_some();
                    host.signals.peer(*replica, seen, now.mono);
                });
                self.watchdogs = watchdogs;
            }
            Observation::Canaries { ok, total } => self.canaries = Some((now.mono, *ok, *total)),
            Observation::OwnHost(host) => self.own_host = Some(host.clone()),
        }
    }

    /// A host that somebody signed for and that works may be cut off again before anybody leads.
    fn reports_against_signatures(&mut self, now: Now) {
        let signed = self.ledger.incidents.values();
        for incident in signed.filter(|incident| incident.state.open() && incident.by_word()) {
            if let Some(host) = self.hosts.get_mut(&incident.id.host) {
                host.spoke |= host.signals.reports(now.mono);
            }
        }
    }

    pub(crate) fn rack_of(&self, host: &HostName) -> Option<&Domain> {
        self.hosts.get(host)?.rack()
    }

    fn heartbeat(&mut self, beat: &Heartbeat, now: Now) {
        let Some(host) = self.hosts.get_mut(&beat.host) else {
            return;
        };
        self.watchdogs |= beat.resets_after.is_some();
        let libvirt = host.signals.agent.libvirt;
        let silence = self.config.silent_after;
        let heard = host.signals.agent.hear(beat, silence, now.mono, self.broken);
        if heard == Heard::Nothing {
            return;
        }
        host.ended = false;
        if host.stood_in.as_ref() != host.rack() {
            host.stood_in = host.rack().cloned();
        }
        host.calm &= heard == Heard::Life && beat.libvirt == libvirt;
        host.signals.heard_in_term = true;
        host.shutdown_announced = match (beat.planned_shutdown, host.shutdown_announced) {
            (true, None) => Some(now.mono),
            (true, since) => since,
            (false, _) => None,
        };
        // One that is heard for the first time and has not been up for long may have lost its guests as well.
        let lately = heard == Heard::First && beat.up_for < Reboot::LATELY;
        if heard == Heard::NewBoot || lately {
            host.rebooted = Some(Reboot::at(now.mono));
            host.inventory = None;
        }
        let Some(incident) = self.ledger.open_incident(&beat.host) else {
            return;
        };
        let (incident, signed) = (incident.id.clone(), incident.by_word());
        // Whoever leads next may not hear it any more.
        host.spoke |= signed;
        if self.may_act(now.mono) {
            self.drive(&incident, now);
        }
    }

    fn inventory(&mut self, inventory: &Inventory, now: Now) {
        let Some(host) = self.hosts.get_mut(&inventory.host) else {
            return;
        };
        // Only the boot that speaks now, and only what is newer than what is known.
        if host
            .signals
            .agent
            .boot
            .as_ref()
            .is_some_and(|boot| *boot != inventory.boot)
        {
            return;
        }
        let old = host.inventory.as_ref().is_some_and(|(_, known)| {
            known.agent == inventory.agent
                && (inventory.starts, inventory.version) < (known.starts, known.version)
        });
        if old {
            return;
        }
        match &mut host.inventory {
            Some((at, known)) if known.lists_as(inventory) => {
                *at = now.mono;
                known.version = inventory.version;
            }
            known => {
                *known = Some((now.mono, inventory.clone()));
                self.doubles.compare_again();
            }
        }
        if self.may_act(now.mono) {
            self.find_zombies(&inventory.host, now);
        }
    }
}
