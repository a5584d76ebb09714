// SPDX-License-Identifier: Apache-2.0
//! Which hosts may keep each other alive. An agent that has lost the service asks its neighbours before it takes its host
//! out, and goes on if half of those that it reaches have lost the service as well: that is an outage. Hosts that are cut
//! off together find each other in the same way and go on too, so the silence of such a host proves no reset.

use std::time::Duration;

use cobaltcore_api::names::HostName;

use crate::engine::{Engine, Host};
use crate::gates::proven;
use crate::ids::{Domain, Mono, ReplicaId};
use crate::ledger::Incident;
use crate::mutation::Mutation;

/// How many neighbours an agent asks at most.
pub const NEIGHBOURS: usize = 5;
/// How many of them may stand in its own rack, where enough stand elsewhere. One alone keeps nobody alive, and a rack is
/// what is cut off most often.
pub const NEAR_NEIGHBOURS: usize = 1;
/// Only hosts that are heard are named. Whoever was named to a host in its last contact had been heard this long before, and
/// the silence that is allowed, at the latest.
const NAMED: Duration = Duration::from_secs(45);
/// Silence longer than this may be an outage in which agents lose their leases.
const OUTAGE: Duration = Duration::from_secs(15);

/// A host as others may find it.
struct Other<'a> {
    rack: &'a Domain,
    heard: Mono,
    /// Most of the service does not hear it, and nothing says that it is off.
    lost: bool,
}

/// How many of so many neighbours must have lost the service so that whoever asks them goes on: half of those that it
/// reaches, which are half of them.
fn keep_alive(asked: usize) -> usize {
    asked.div_ceil(2).div_ceil(2).max(1)
}

impl Engine {
    /// Remembers of every silent host with a watchdog until when its neighbours may have kept it alive, and whether its
    /// watchdog has fired.
    pub(crate) fn watch_company(&mut self, now: Mono) {
        let found = self.hosts.iter();
        let others: Vec<_> = found
            .filter_map(|(name, host)| self.as_found(name, host, now))
            .collect();
        let named = self.config.silent_after + NAMED;
        let blind = self.broken.is(Mutation::IgnoreCompany);
        let mut found = Vec::new();
        for (name, host) in self.hosts.iter() {
            let watched = host.signals.told_of_watchdog(&self.config, self.broken);
            let Some((last, _)) = watched.filter(|_| !self.heard_by_most(host, now)) else {
                continue;
            };
            let kept = !blind && is_kept(host.rack(), last.before(named), &others);
            let fired = host
                .signals
                .self_fenced(now, self.listening(), &self.config, self.broken);
            if kept || fired {
                found.push((name.clone(), kept, fired));
            }
        }
        for (name, kept, fired) in found {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.signals.watch_neighbours(kept, fired, now);
            }
        }
    }

    fn as_found<'a>(&self, name: &HostName, host: &'a Host, now: Mono) -> Option<Other<'a>> {
        let signed = || self.ledger.open_incident(name).is_some_and(Incident::by_word);
        Some(Other {
            rack: host.rack()?,
            heard: host.signals.last_heard()?,
            lost: !self.heard_by_most(host, now) && !proven(host) && !signed(),
        })
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

/// Whether a host of this rack may be kept alive by others as they are now: those that were heard at `since` or later.
fn is_kept(rack: Option<&Domain>, since: Mono, others: &[Other<'_>]) -> bool {
    let (mut near, mut far, mut lost_near, mut lost_far) = (0_usize, 0_usize, 0_usize, 0_usize);
    for other in others.iter().filter(|other| other.heard >= since) {
        let (all, lost) = if Some(other.rack) == rack {
            (&mut near, &mut lost_near)
        } else {
            (&mut far, &mut lost_far)
        };
        *all += 1;
        *lost += usize::from(other.lost);
    }
    // The host is one of those of its rack.
    (near, lost_near) = (near.saturating_sub(1), lost_near.saturating_sub(1));
    let from_here = NEIGHBOURS.saturating_sub(far).max(NEAR_NEIGHBOURS);
    let asked = (near.min(from_here) + far).min(NEIGHBOURS);
    lost_near.min(from_here) + lost_far >= keep_alive(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a host of the first rack is kept alive among racks of so many hosts, of which so many are lost; it is one of
    /// those of the first.
    fn kept(racks: &[(usize, usize)]) -> bool {
        let names: Vec<Domain> = (0..racks.len()).map(domain).collect();
        let mut others = Vec::new();
        for (rack, (all, lost)) in names.iter().zip(racks) {
            others.extend((0..*all).map(|n| Other {
                rack,
                heard: Mono(100_000),
                lost: n < *lost,
            }));
        }
        is_kept(Some(&names[0]), Mono(40_000), &others)
    }

    fn domain(n: usize) -> Domain {
        Domain(format!("bb={n}"))
    }

    #[test]
    fn who_is_cut_off_with_hosts_of_another_rack_may_be_kept_alive() {
        for (racks, wanted) in [
            (&[(20, 1), (20, 0), (20, 0)][..], false),
            // Its whole rack, which is most often what is cut off.
            (&[(20, 20), (20, 0), (20, 0)], false),
            (&[(20, 1), (20, 1), (20, 0)], false),
            (&[(20, 2), (20, 1), (20, 0)], true),
            (&[(20, 1), (20, 1), (20, 1)], true),
            (&[(20, 1), (20, 2), (20, 0)], true),
            // Where few stand elsewhere, more of its own rack are asked.
            (&[(20, 2), (3, 0)], false),
            (&[(20, 3), (3, 0)], true),
            (&[(20, 3), (4, 0)], false),
            // And where there are few at all, one is enough.
            (&[(2, 1), (2, 0)], false),
            (&[(2, 2), (2, 0)], true),
            (&[(2, 1), (2, 1)], true),
            (&[(1, 1)], false),
        ] {
            assert_eq!(kept(racks), wanted, "{racks:?}");
        }
    }

    #[test]
    fn whoever_was_silent_long_before_was_not_named() {
        let (here, there) = (domain(0), domain(1));
        let other = |rack, heard: u64, lost| Other {
            rack,
            heard: Mono(heard * 1000),
            lost,
        };
        for (heard, wanted) in [(0, false), (39, false), (40, true), (100, true), (150, true)] {
            let mut others = vec![other(&here, 100, true)];
            others.extend((0..10).map(|_| other(&there, 300, false)));
            others.extend((0..2).map(|_| other(&there, heard, true)));
            assert_eq!(is_kept(Some(&here), Mono(40_000), &others), wanted, "{heard}");
        }
    }

    #[test]
    fn as_many_neighbours_as_the_agent_counts() {
        let wanted = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2)];
        for (asked, lost) in wanted {
            assert_eq!(keep_alive(asked), lost, "{asked}");
        }
    }
}
