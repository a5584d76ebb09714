// SPDX-License-Identifier: Apache-2.0
//! The rounds of a leader: every host is judged from one snapshot, and each monitor looks at it. How
//! suspicion becomes an incident, what living hosts suffer from and what a reboot left behind are modules
//! of their own; none but suspicion and reboots leads to fencing.

mod contradiction;
mod events;
mod io_errors;
mod reboots;
mod services;
mod suspicion;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::config::Config;
use crate::engine::Engine;
use crate::evidence::{Evidence, Group, Verdict, assess};
use crate::ids::{AgentId, IncidentId, Mono, Now};
use crate::journal::Entry;
use crate::ledger::Incident;
use crate::status::{Degraded, Notice};

pub(crate) use contradiction::Contradiction;
use io_errors::IoErrors;
pub(crate) use reboots::Reboot;
pub(crate) use suspicion::Suspicion;

/// How many hosts died in one group lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distrust {
    deaths: VecDeque<(Mono, HostName)>,
    until: Option<Mono>,
}

impl Distrust {
    pub(crate) fn active(&self, now: Mono, _config: &Config) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Hosts count, not deaths: one that comes and goes says nothing about the others.
    fn died(&mut self, host: &HostName, now: Mono, fleet: usize, config: &Config) {
        self.deaths.retain(|(_, dead)| dead != host);
        self.deaths.push_back((now, host.clone()));
        while self
            .deaths
            .front()
            .is_some_and(|(at, _)| now.since(*at) > config.distrust_window)
        {
            self.deaths.pop_front();
        }
        let share = self.deaths.len() * 100 > fleet * config.distrust_percent as usize;
        if share && self.deaths.len() >= config.distrust_min {
            self.until = Some(now.after(config.distrust_for));
        }
    }
}

/// Guest events of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostMonitors {
    seen: Option<(AgentId, u64)>,
    watchdog: BTreeMap<ServerId, Mono>,
    io_errors: IoErrors,
    memory: VecDeque<Mono>,
    /// When metrics last told of memory that fails beyond repair.
    memory_metrics: Option<Mono>,
    /// When metrics last told that libvirt is down.
    libvirt_metrics: Option<Mono>,
    libvirt_down_since: Option<Mono>,
    nova_down_since: Option<Mono>,
    /// Services that people were told are gone.
    told_gone: BTreeSet<Degraded>,
    pub(crate) degraded: BTreeMap<Degraded, Mono>,
}

impl Engine {
    /// One round over all hosts. Those that are well and of which only signs of life were heard are well.
    pub(crate) fn round(&mut self, now: Now) {
        let judged = self.count_deaths(now);
        self.watch_groups(now);
        for (name, evidence) in judged {
            self.judge(&name, evidence, now);
        }
        self.watch_storm(now);
        self.watch_storage(now);
        self.watch_doubles(now);
        self.watch_reboots(now);
        self.drive_guests(now);
        self.forget_old(now);
    }

    /// What has been over for long leaves the journal. Nothing is decided by the wall clock but for how long people can
    /// read of it there.
    fn forget_old(&mut self, now: Now) {
        let long_over = |incident: &&Incident| {
            let age = incident.ended.map(|at| now.wall.duration_since(at));
            age.and_then(|age| Duration::try_from(age).ok())
                .is_some_and(|age| age > self.config.remember)
        };
        let old: Vec<IncidentId> = self
            .ledger
            .incidents
            .values()
            .filter(long_over)
            .map(|incident| incident.id.clone())
            .collect();
        for incident in old {
            self.runs.remove(&incident);
            self.write(Entry::Forgotten { incident }, now);
        }
    }

    fn judge(&mut self, name: &HostName, mut evidence: Evidence, now: Now) {
        self.distrust_in(&mut evidence, now.mono);
        let assessment = assess(&evidence, &self.config, self.broken);
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let heard = evidence.of(Group::A).verdict == Verdict::Alive;
        let quiet = host.suspicion.is_none() && heard && !host.blind && !evidence.proven();
        let sure = evidence.overwhelming();
        host.overwhelming = sure.then(|| host.overwhelming.unwrap_or(now.mono));
        host.evidence = evidence;
        let doubted = host.contradiction.is_some();
        if (!quiet || doubted) && self.ledger.open_incident(name).is_none() {
            self.watch_device(name, assessment, now);
            if self.left_to_people(name) {
                self.suspect_no_more(name);
            } else {
                self.suspect(name, assessment, now);
            }
        }
        self.watch_services(name, now);
        let sound = self.broken.trusts_calm();
        if let Some(host) = self.hosts.get_mut(name) {
            let served =
                host.monitors.libvirt_down_since.is_none() && host.monitors.nova_down_since.is_none();
            host.signals.forget_words(now.mono);
            let lively = host.signals.unquestioned() && host.signals.still_fresh(now.mono, &self.config);
            host.calm = sound && quiet && served && lively;
        }
    }

    /// Accusations of a group in which many hosts fall silent together say something about the
    /// group, not about the hosts. Gives back what is known of those that have to be judged.
    fn count_deaths(&mut self, now: Now) -> Vec<(HostName, Evidence)> {
        let (fleet, listening) = (self.hosts.len(), self.listening());
        let mut judged = Vec::new();
        for (name, host) in self.hosts.iter_mut() {
            if host.calm && host.signals.still_fresh(now.mono, &self.config) {
                continue;
            }
            let evidence = host
                .signals
                .evidence(now, listening, &self.config, host.blind, self.broken);
            for group in Group::ALL {
                let dead = evidence.of(group).verdict == Verdict::Dead;
                let was = &mut host.dead_in[group as usize];
                if dead && !*was && !matches!(group, Group::B | Group::W) {
                    self.distrust[group as usize].died(name, now.mono, fleet, &self.config);
                }
                *was = dead;
            }
            judged.push((name.clone(), evidence));
        }
        judged
    }

    /// Tells when a group is not believed any more, and when it is again.
    fn watch_groups(&mut self, now: Now) {
        for group in Group::ALL {
            let untrusted = self.distrust[group as usize].active(now.mono, &self.config);
            let told = std::mem::replace(&mut self.told_untrusted[group as usize], untrusted);
            if told != untrusted {
                self.tell(Notice::GroupUntrusted { group, untrusted });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_distrusted_for_the_hosts_that_die_in_it_and_not_for_one_that_blinks() {
        let config = Config::default();
        let host = |n: u64| HostName::new(format!("n{n}")).unwrap();
        let dies = |hosts: &dyn Fn(u64) -> u64| {
            let mut distrust = Distrust::default();
            for n in 0..6 {
                distrust.died(&host(hosts(n)), Mono(n * 5000), 12, &config);
            }
            distrust
        };
        let until = Mono(25_000 + 120_000);
        let many = dies(&|n| n);
        assert!(
            many.active(Mono(until.0 - 1), &config),
            "two minutes after the last of them"
        );
        assert!(!many.active(until, &config));
        assert!(!dies(&|_| 3).active(Mono(25_000), &config));
    }
}
