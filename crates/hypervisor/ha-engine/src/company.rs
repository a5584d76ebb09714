// SPDX-License-Identifier: Apache-2.0
//! Which hosts may keep each other alive. An agent that has lost the service asks its neighbours before it takes its host
//! out, and goes on if half of those that it reaches have lost the service as well: that is an outage. Hosts that are cut
//! off together find each other in the same way and go on too, so the silence of such a host proves no reset.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::HostName;

use crate::engine::{Engine, Host};
use crate::ids::{Domain, Mono, Now, ReplicaId};
use crate::mutation::Mutation;

/// How many neighbours an agent asks, no fewer.
pub const NEIGHBOURS: usize = 5;
/// How many of them stand in its own rack at most.
pub const NEAR_NEIGHBOURS: usize = 1;
/// Silence longer than this may be an outage in which agents lose their leases.
const OUTAGE: Duration = Duration::from_secs(15);
/// Longer than any watchdog takes.
const LONG: Duration = Duration::from_secs(20 * 60);

/// Hosts of which nobody tells any more: the racks where they stood, and when they were heard last.
pub(crate) type Gone = BTreeMap<HostName, (Option<Domain>, Mono)>;

/// A host that has lost most of the service, as others may find it: nothing says that it is off. Where it stands is what was
/// known when it was named: what is said of racks since is unknown to whoever does not hear it.
struct Lost<'a> {
    name: &'a HostName,
    rack: Option<&'a Domain>,
    heard: Mono,
}

impl Engine {
    /// Remembers of every silent host with a watchdog until when its neighbours may have kept it alive, and whether its
    /// watchdog has fired.
    pub(crate) fn watch_company(&mut self, time: Now) {
        let now = time.mono;
        let silent: Vec<(&HostName, &Host)> = self
            .hosts
            .iter()
            .filter(|(_, host)| !self.heard_by_most(host, now))
            .collect();
        let lost = self.lost(&silent, time);
        let blind = self.broken.is(Mutation::IgnoreCompany);
        let mut found = Vec::new();
        let mut earliest = now.before(LONG);
        for (name, host) in silent {
            let Some((last, after)) = host.signals.told_of_watchdog(&self.config, self.broken) else {
                continue;
            };
            // Those that were named had been heard shortly before, and it had been told within its lease.
            let since = last.before(after + self.config.silent_after);
            earliest = earliest.min(since);
            let kept = !blind && is_kept(name, host.stood_in.as_ref(), since, &lost);
            let fired = !kept
                && host
                    .signals
                    .self_fenced(now, self.listening(), &self.config, self.broken);
            if kept || fired {
                found.push((name.clone(), kept, fired));
            }
        }
        let hosts = &self.hosts;
        let speaks = |name: &HostName, then: Mono| {
            let again = hosts.get(name).and_then(|host| host.signals.last_heard());
            again.is_some_and(|at| at > then)
        };
        self.gone
            .retain(|name, (_, heard)| *heard >= earliest && !speaks(name, *heard));
        for (name, kept, fired) in found {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.signals.watch_neighbours(kept, fired, now);
            }
        }
    }

    /// Those of the silent that nobody knows to be off, and those that are not ours any more.
    fn lost<'a>(&'a self, silent: &[(&'a HostName, &'a Host)], time: Now) -> Vec<Lost<'a>> {
        let incidents = self.ledger.incidents.values();
        let signed: BTreeSet<&HostName> = incidents
            .filter(|incident| incident.state.open() && incident.by_word())
            .map(|incident| &incident.id.host)
            .collect();
        let mut lost: Vec<Lost<'a>> = silent
            .iter()
            .filter(|(name, host)| !signed.contains(name) && !self.evidence(host, time).shows_off())
            .filter_map(|(name, host)| {
                Some(Lost {
                    name,
                    rack: host.stood_in.as_ref(),
                    heard: host.signals.last_heard()?,
                })
            })
            .collect();
        lost.extend(self.gone.iter().map(|(name, (rack, heard))| Lost {
            name,
            rack: rack.as_ref(),
            heard: *heard,
        }));
        lost
    }

    /// A host is ours no more. That is no sign that it is off: whoever deletes an object need not have seen the machine.
    pub(crate) fn keep_in_mind(&mut self, name: &HostName) {
        let Some(host) = self.hosts.get(name).filter(|_| self.watchdogs) else {
            return;
        };
        if let Some(heard) = host.signals.last_heard() {
            self.gone.insert(name.clone(), (host.stood_in.clone(), heard));
        }
    }

    /// For how long a host may say nothing and yet have its lease.
    pub(crate) fn outage(&self) -> Duration {
        self.config.silent_after.min(OUTAGE)
    }

    fn heard_by_most(&self, host: &Host, now: Mono) -> bool {
        let (signals, silence) = (&host.signals, self.outage());
        let here = signals.fresh_here(now, silence);
        let there = |replica: &&ReplicaId| signals.fresh_at(**replica, now, silence, &self.config);
        let heard = usize::from(here) + self.peers_heard.keys().filter(there).count();
        heard > usize::from(self.config.replicas) / 2
    }
}

/// Whether others that are lost may keep this host alive. It goes on if it reaches three of its five neighbours and two of
/// those have lost the service, and only one of them stands in its own rack. Whose rack is not known stands elsewhere.
fn is_kept(host: &HostName, rack: Option<&Domain>, since: Mono, lost: &[Lost<'_>]) -> bool {
    let others = lost
        .iter()
        .filter(|other| other.name != host && other.heard >= since);
    let (near, far): (Vec<_>, Vec<_>) = others.partition(|other| rack.is_some() && other.rack == rack);
    near.len().min(NEAR_NEIGHBOURS) + far.len() >= NEIGHBOURS.div_ceil(2).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rack: usize, n: usize) -> HostName {
        HostName::new(format!("r{rack}n{n}")).unwrap()
    }

    /// Whether the first host of the first rack is kept alive, where so many hosts of each rack are lost, itself included.
    fn kept(racks: &[usize]) -> bool {
        let named: Vec<(Domain, Vec<HostName>)> = racks
            .iter()
            .enumerate()
            .map(|(rack, lost)| (domain(rack), (0..*lost).map(|n| name(rack, n)).collect()))
            .collect();
        let lost: Vec<Lost<'_>> = named
            .iter()
            .flat_map(|(rack, names)| {
                names.iter().map(move |name| Lost {
                    name,
                    rack: Some(rack),
                    heard: Mono(100_000),
                })
            })
            .collect();
        is_kept(&name(0, 0), Some(&domain(0)), Mono(40_000), &lost)
    }

    fn domain(n: usize) -> Domain {
        Domain(format!("bb={n}"))
    }

    #[test]
    fn who_is_cut_off_with_hosts_of_other_racks_may_be_kept_alive() {
        for (racks, wanted) in [
            (&[1, 0, 0][..], false),
            // Its whole rack, which is what is cut off most often.
            (&[20, 0, 0], false),
            (&[1, 1, 0], false),
            (&[2, 1, 0], true),
            (&[1, 1, 1], true),
            (&[1, 2, 0], true),
            (&[20, 20, 20], true),
        ] {
            assert_eq!(kept(racks), wanted, "{racks:?}");
        }
    }

    #[test]
    fn whose_rack_is_not_known_may_stand_anywhere() {
        let (own, other, third) = (name(0, 0), name(0, 1), name(0, 2));
        let lost = |name, heard: u64| Lost {
            name,
            rack: None,
            heard: Mono(heard * 1000),
        };
        let kept = |lost: &[Lost<'_>]| is_kept(&own, None, Mono(40_000), lost);
        assert!(kept(&[lost(&own, 100), lost(&other, 100), lost(&third, 40)]));
        assert!(
            !kept(&[lost(&own, 100), lost(&other, 100), lost(&third, 39)]),
            "it was silent long before"
        );
        assert!(!kept(&[lost(&own, 100), lost(&other, 100)]));
    }

    /// Whatever its neighbours are and say, a host that goes on is one that is taken to be kept alive.
    #[test]
    fn nobody_goes_on_of_whom_it_is_not_believed() {
        let own = name(0, 0);
        for near in [0, 1] {
            // Each of them is away, or reached and has the service, or reached and has lost it.
            for states in 0..3_usize.pow(5) {
                let state = |n: usize| states / 3_usize.pow(n as u32) % 3;
                let rack = |n: usize| if n < near { 0 } else { n + 1 };
                let reached = (0..5).filter(|n| state(*n) > 0).count();
                let without = (0..5).filter(|n| state(*n) == 2).count();
                let goes_on = reached * 2 >= 5 && without * 2 >= reached;
                let hosts: Vec<(HostName, Domain)> = (0..5)
                    .filter(|n| state(*n) == 2)
                    .map(|n| (name(rack(n), n + 1), domain(rack(n))))
                    .collect();
                let lost: Vec<Lost<'_>> = hosts
                    .iter()
                    .map(|(name, rack)| Lost {
                        name,
                        rack: Some(rack),
                        heard: Mono(100_000),
                    })
                    .collect();
                let kept = is_kept(&own, Some(&domain(0)), Mono(40_000), &lost);
                assert!(kept || !goes_on, "{near} {states}");
            }
        }
    }
}
