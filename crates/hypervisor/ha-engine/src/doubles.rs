// SPDX-License-Identifier: Apache-2.0
//! Guests that execute in two places, as the hosts themselves tell. A guest that moves is listed by
//! both for a moment; one that both hosts go on listing runs twice. Nova says where it belongs, and
//! the other copy is paused. What was moved away from a host and runs there again is paused at once
//! while the host is ours; on one that takes guests again it may have come back, so Nova is asked first.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::domains::{Number, server};
use crate::engine::{Engine, Slot};
use crate::ids::{IncidentId, Mono, Now};
use crate::input::{Answer, DomainState, ServerFacts, Trouble};
use crate::journal::Entry;
use crate::ledger::{Incident, VmProgress, VmRecord};
use crate::status::Notice;

/// How often the lists are compared.
const EVERY: Duration = Duration::from_secs(30);

/// A guest that two hosts list.
#[derive(Clone, Debug)]
struct Double {
    since: Mono,
    hosts: [HostName; 2],
    told: bool,
}

/// A guest that was moved away from a host and is there again, while others may bring guests there.
#[derive(Clone, Copy, Debug)]
struct Returned {
    /// When Nova was last asked for it.
    asked: Mono,
    /// Its answer is still to come.
    asking: bool,
    /// Nova said that it belongs there.
    at_home: bool,
}

/// All of them, and when the lists were compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubles {
    looked: Option<Mono>,
    /// No list has changed since the latest look.
    unchanged: bool,
    found: BTreeMap<ServerId, Double>,
    /// By the incident in which it was moved away.
    returned: BTreeMap<(IncidentId, ServerId), Returned>,
}

impl Doubles {
    /// A list has changed.
    pub(crate) fn compare_again(&mut self) {
        self.unchanged = false;
    }
}

impl Engine {
    /// Compares the lists of all hosts with each other, if any of them changed. A list that grows old can only take a
    /// guest off.
    pub(crate) fn watch_doubles(&mut self, now: Now) {
        if self.doubles.looked.is_some_and(|at| now.mono.since(at) < EVERY) {
            return;
        }
        self.doubles.looked = Some(now.mono);
        if std::mem::replace(&mut self.doubles.unchanged, true) && self.doubles.found.is_empty() {
            return;
        }
        let listed = self.listed_twice(now.mono);
        self.doubles.found.retain(|server, _| listed.contains_key(server));
        for (server, hosts) in listed {
            let known = self.doubles.found.entry(server.clone()).or_insert(Double {
                since: now.mono,
                hosts: hosts.clone(),
                told: false,
            });
            if known.hosts != hosts {
                (known.since, known.hosts) = (now.mono, hosts);
                continue;
            }
            let since = known.since;
            // Both listed their guests again since, so neither list is from before a move.
            if hosts.iter().all(|host| self.listed_after(host, since)) {
                let slot = Slot::Double(server.clone());
                self.act(None, slot, Effect::ReadServer { server }, now);
            }
        }
    }

    fn listed_after(&self, host: &HostName, since: Mono) -> bool {
        let inventory = self.hosts.get(host).and_then(|host| host.inventory.as_ref());
        inventory.is_some_and(|(at, _)| *at > since)
    }

    /// Guests that execute by the fresh lists of two hosts.
    fn listed_twice(&self, now: Mono) -> BTreeMap<ServerId, [HostName; 2]> {
        let mut all: Vec<(Number, &HostName)> = Vec::new();
        for (name, host) in self.hosts.iter() {
            let Some((at, inventory)) = &host.inventory else {
                continue;
            };
            if now.since(*at) <= self.config.inventory_fresh {
                all.extend(inventory.domains.running().map(|number| (number, name)));
            }
        }
        all.sort_unstable();
        let twice = |pair: &[(Number, &HostName)]| match pair {
            [(one, here), (two, there)] if one == two => {
                Some((server(*one)?, [(*here).clone(), (*there).clone()]))
            }
            _ => None,
        };
        all.windows(2).filter_map(twice).collect()
    }

    /// Nova said where the guest belongs, or could not be asked: then nobody knows, and nothing is done.
    pub(crate) fn double_outcome(&mut self, server: &ServerId, result: Result<Answer, Trouble>, now: Now) {
        let settled = match result {
            // Somebody still moves it.
            Ok(Answer::Server { migrations, .. }) if migrations.iter().any(|it| it.status.open()) => None,
            Ok(Answer::Server { server, .. }) => server.filter(|facts| facts.task.is_empty()),
            _ => None,
        };
        // Whoever asked gets the answer. One that was asked for before the lists of the other road says nothing about them.
        let asker = self
            .doubles
            .returned
            .iter_mut()
            .find(|(key, it)| key.1 == *server && it.asking);
        if let Some(((incident, _), returned)) = asker {
            returned.asking = false;
            let incident = incident.clone();
            if let Some(facts) = settled {
                self.returned_outcome(&incident, &facts, now);
            }
        } else if let Some(facts) = settled {
            self.listed_twice_outcome(&facts, now);
        }
    }

    fn listed_twice_outcome(&mut self, facts: &ServerFacts, now: Now) {
        let server = &facts.id;
        let Some(double) = self.doubles.found.get_mut(server) else {
            return;
        };
        let hosts = double.hosts.clone();
        let told = std::mem::replace(&mut double.told, true);
        if !told {
            self.tell(Notice::GuestDoubled {
                server: server.clone(),
                hosts: hosts.clone(),
            });
        }
        // Where Nova names neither, nobody knows which copy is the good one.
        let belongs = facts.host.as_ref().filter(|host| hosts.contains(host));
        let stray = belongs.and_then(|home| hosts.iter().find(|host| *host != home));
        if let Some(host) = stray {
            self.pause_stray(host, server, now);
        }
    }

    fn returned_outcome(&mut self, id: &IncidentId, facts: &ServerFacts, now: Now) {
        let at_home = facts.host.as_ref() == Some(&id.host);
        let key = (id.clone(), facts.id.clone());
        if let Some(returned) = self.doubles.returned.get_mut(&key) {
            returned.at_home = at_home;
        }
        if at_home {
            self.zombies.remove(&(id.host.clone(), facts.id.clone()));
        } else if facts.host.is_some() {
            self.pause_stray(&id.host, &facts.id, now);
        }
    }

    /// Nova has the guest elsewhere: this copy is paused, if it still runs.
    fn pause_stray(&mut self, host: &HostName, server: &ServerId, now: Now) {
        if self.state_on(host, server) == Some(DomainState::Running) && self.may_act(now.mono) {
            self.pause_zombie(host, server, now);
        }
    }

    /// How a guest is, as the host last listed it.
    fn state_on(&self, host: &HostName, server: &ServerId) -> Option<DomainState> {
        let (_, inventory) = self.hosts.get(host)?.inventory.as_ref()?;
        inventory.domains.get(server)
    }

    /// Looks for guests that were moved away and are at their old place again.
    pub(crate) fn find_zombies(&mut self, name: &HostName, now: Now) {
        let incident = self.ledger.open_incident(name);
        let ours = incident.is_some_and(|incident| self.still_ours(incident));
        let found = incident.map_or(Vec::new(), |incident| self.moved_and_there(incident));
        let asks = |key: &(IncidentId, ServerId)| !ours && found.contains(key);
        self.doubles
            .returned
            .retain(|key, returned| key.0.host != *name || returned.asking || asks(key));
        for (incident, server) in found {
            if !ours {
                self.ask_where(incident, server, now);
            } else if self.state_on(name, &server) == Some(DomainState::Running) {
                self.pause_zombie(name, &server, now);
            }
        }
    }

    /// Whether nobody can have brought guests to the host of an incident: it is claimed, and was not given back.
    fn still_ours(&self, incident: &Incident) -> bool {
        let facts = self
            .hosts
            .get(&incident.id.host)
            .and_then(|host| host.facts.as_ref());
        let claimed = facts.is_some_and(|facts| facts.maintenance == Maintenance::Ha);
        claimed && incident.claimed && !incident.restored
    }

    /// Guests of an incident that were moved away and have their disks open at their old place.
    fn moved_and_there(&self, incident: &Incident) -> Vec<(IncidentId, ServerId)> {
        let moved = |vm: &&VmRecord| matches!(vm.progress, VmProgress::Recovered { .. });
        let there = |vm: &&VmRecord| {
            let state = self.state_on(&incident.id.host, &vm.server);
            state.is_some_and(DomainState::active)
        };
        let found = incident.vms.values().filter(moved).filter(there);
        found.map(|vm| (incident.id.clone(), vm.server.clone())).collect()
    }

    /// Asks Nova for a guest that may have come back, now and then: somebody may take it away again.
    fn ask_where(&mut self, incident: IncidentId, server: ServerId, now: Now) {
        let key = (incident, server.clone());
        let known = self.doubles.returned.get(&key).copied();
        let lately = known.is_some_and(|known| known.asking || now.mono.since(known.asked) < EVERY);
        let slot = Slot::Double(server.clone());
        // What was asked for before the host listed it may be from before it came.
        if lately || self.busy(None, &slot) {
            return;
        }
        let returned = Returned {
            asked: now.mono,
            asking: true,
            at_home: known.is_some_and(|known| known.at_home),
        };
        self.doubles.returned.insert(key, returned);
        self.act(None, slot, Effect::ReadServer { server }, now);
    }

    /// Whether Nova said that a guest that was moved away belongs to its old place again.
    pub(crate) fn at_home(&self, incident: &IncidentId, server: &ServerId) -> bool {
        let key = (incident.clone(), server.clone());
        let returned = self.doubles.returned.get(&key);
        returned.is_some_and(|returned| returned.at_home)
    }

    /// Guests that run or wait, paused, where they should not.
    pub fn zombies(&self) -> usize {
        let there = |(host, server): &&(HostName, ServerId)| {
            let inventory = self.hosts.get(host).and_then(|known| known.inventory.as_ref());
            inventory.is_some_and(|(_, list)| list.domains.active(server))
        };
        self.zombies.iter().filter(there).count()
    }

    /// Has the agent of a host pause a guest that runs elsewhere as well.
    pub(crate) fn pause_zombie(&mut self, host: &HostName, server: &ServerId, now: Now) {
        if self.zombies.insert((host.clone(), server.clone())) {
            self.tell(Notice::Zombie {
                host: host.clone(),
                server: server.clone(),
            });
        }
        let slot = Slot::Zombie(host.clone(), server.clone());
        if self.busy(None, &slot) {
            return;
        }
        let (host, server) = (host.clone(), server.clone());
        self.write(
            Entry::PauseIntended {
                host: host.clone(),
                server: server.clone(),
            },
            now,
        );
        self.act(None, slot, Effect::PauseDomain { host, server }, now);
    }
}
