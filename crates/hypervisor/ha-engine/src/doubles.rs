// SPDX-License-Identifier: Apache-2.0
//! Guests that execute in two places, as the hosts themselves tell. A guest that moves is listed by
//! both for a moment; one that both hosts go on listing runs twice. Nova says where it belongs, and
//! the other copy is paused.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::domains::{Number, server};
use crate::engine::{Engine, Slot};
use crate::ids::{Mono, Now};
use crate::input::{Answer, DomainState, Trouble};
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

/// All of them, and when the lists were compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubles {
    looked: Option<Mono>,
    /// No list has changed since the latest look.
    unchanged: bool,
    found: BTreeMap<ServerId, Double>,
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

    /// Nova said where the guest belongs.
    pub(crate) fn double_outcome(&mut self, server: &ServerId, result: Result<Answer, Trouble>, now: Now) {
        let Ok(Answer::Server {
            server: Some(facts),
            migrations,
        }) = result
        else {
            return;
        };
        let Some(double) = self.doubles.found.get_mut(server) else {
            return;
        };
        // Somebody still moves it.
        if !facts.task.is_empty() || migrations.iter().any(|record| record.status.open()) {
            return;
        }
        let hosts = double.hosts.clone();
        let told = std::mem::replace(&mut double.told, true);
        if !told {
            self.tell(Notice::GuestDoubled {
                server: server.clone(),
                hosts: hosts.clone(),
            });
        }
        // Where Nova names neither, nobody knows which copy is the good one.
        let belongs = facts.host.filter(|host| hosts.contains(host));
        let stray = belongs.and_then(|home| hosts.into_iter().find(|host| *host != home));
        let runs = |host: &HostName| {
            let inventory = self.hosts.get(host).and_then(|known| known.inventory.as_ref());
            inventory.is_some_and(|(_, list)| list.domains.get(server) == Some(DomainState::Running))
        };
        if let Some(host) = stray.filter(runs)
            && self.may_act(now.mono)
        {
            self.pause_zombie(&host, server, now);
        }
    }

    /// A guest that was moved away and runs at its old place again.
    pub(crate) fn find_zombies(&mut self, name: &HostName, now: Now) {
        let Some(host) = self.hosts.get(name) else { return };
        let Some((_, inventory)) = &host.inventory else {
            return;
        };
        let open = |incident: &&Incident| incident.id.host == *name && incident.state.open();
        let moved = |vm: &&VmRecord| matches!(vm.progress, VmProgress::Recovered { .. });
        let runs = |vm: &&VmRecord| inventory.domains.get(&vm.server) == Some(DomainState::Running);
        let found: Vec<ServerId> = self
            .ledger
            .incidents
            .values()
            .filter(open)
            .flat_map(|incident| incident.vms.values())
            .filter(moved)
            .filter(runs)
            .map(|vm| vm.server.clone())
            .collect();
        for server in found {
            self.pause_zombie(name, &server, now);
        }
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
