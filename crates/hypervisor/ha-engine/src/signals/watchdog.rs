// SPDX-License-Identifier: Apache-2.0
//! What the silence of a host says about its watchdog, which resets it where its agent stops feeding it. Nothing is measured
//! here, so all that may explain the silence otherwise speaks against it.

use std::time::Duration;

use super::{REPORT_LAG, Signals};
use crate::config::Config;
use crate::ids::Mono;
use crate::mutation::{Broken, Mutation};

impl Signals {
    /// Whether the watchdog has fired by now. A silence that we slept through, in which hardly anybody was heard, or in which
    /// neighbours may have kept the host alive says nothing: it is counted from the end of that. Once it has fired, we need
    /// only have listened for as long as a host that came back would say nothing. One that showed life after it must have
    /// reset was not reset.
    pub(crate) fn self_fenced(&self, now: Mono, listening: Mono, config: &Config, broken: Broken) -> bool {
        let Some((last, after)) = self.told_of_watchdog(config, broken) else {
            return false;
        };
        let spared = self.lived_after(last.after(after)) && !broken.is(Mutation::TrustOldWatchdog);
        let quiet = if self.fired.is_some_and(|at| last < at) {
            now.since(listening) > config.silent_after
        } else {
            now.since(self.kept.map_or(listening, |kept| kept.max(listening))) > after
        };
        self.voices(now, config) > usize::from(config.replicas) / 2
            && quiet
            && now.since(last) > after
            && !spared
    }

    /// Its neighbours may keep it alive now, or its watchdog has fired.
    pub(crate) fn watch_neighbours(&mut self, kept: bool, fired: bool, now: Mono) {
        if kept {
            self.kept = Some(now);
        }
        if fired {
            self.fired = Some(now);
        }
    }

    /// When the host was heard last, and how long after that its watchdog has reset it. An agent that stops its watchdog tells
    /// whom it reaches, so all count that heard it about as late as anybody did, and all of them must say that it runs.
    pub(crate) fn told_of_watchdog(&self, config: &Config, broken: Broken) -> Option<(Mono, Duration)> {
        let own = self.agent.last.map(|last| (last, self.agent.resets_after));
        if broken.is(Mutation::TrustOldWatchdog) {
            return own.and_then(|(last, after)| Some((last, after?)));
        }
        let peers = self.peers.values().filter_map(|(at, seen)| {
            let last = at.before(Duration::from_millis(seen.age_ms?));
            Some((last, seen.resets_after))
        });
        let words: Vec<_> = own.into_iter().chain(peers).collect();
        let latest = words.iter().map(|(last, _)| *last).max()?;
        let lately = words
            .into_iter()
            .filter(|(last, _)| latest.since(*last) <= config.heartbeat_alive);
        let longest = lately
            .map(|(_, after)| after)
            .reduce(|one, other| one.zip(other).map(|(a, b)| a.max(b)));
        Some((latest, longest??))
    }

    /// Whether anything but its agent showed life of the host after `then`. Reports of its last moments surface a little later.
    fn lived_after(&self, then: Mono) -> bool {
        let signs = [self.nova.changed, self.lease.changed, self.lived];
        signs.into_iter().flatten().any(|at| at > then.after(REPORT_LAG))
    }
}
