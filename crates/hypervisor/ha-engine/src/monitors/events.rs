// SPDX-License-Identifier: Apache-2.0
//! Events of guests: watchdogs, disk errors and failing memory of many guests tell of their host, or of
//! the storage and network that hosts share. Each event counts once, at the moment it happened: agents tell of a whole
//! outage at once, and what was spread over an hour is no storm of now.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::config::WatchdogStorm;
use crate::engine::{Engine, Host};
use crate::ids::{Mono, Now};
use crate::input::{GuestEvent, GuestEventKind};
use crate::status::{Degraded, Notice};

impl Engine {
    /// A guest event, once.
    pub(crate) fn guest_event(&mut self, event: &GuestEvent, now: Now) {
        let Some(host) = self.hosts.get_mut(&event.host) else {
            return;
        };
        let monitors = &mut host.monitors;
        if let Some((agent, seq)) = &monitors.seen
            && *agent == event.agent
            && event.seq <= *seq
        {
            return;
        }
        monitors.seen = Some((event.agent.clone(), event.seq));
        let watched = self.config.monitors;
        match (event.kind, &event.server) {
            (GuestEventKind::Watchdog, Some(server)) => {
                self.watchdog_fired(event, server, now);
            }
            (GuestEventKind::IoError, Some(server)) => {
                if let Some(at) = happened(event, watched.io_error_storm.window, now) {
                    monitors.io_errors.note(event.device.clone(), server, at);
                }
            }
            (GuestEventKind::MemoryFailure, _) => self.memory_failed(event, now),
            (GuestEventKind::Crashed, Some(server)) if watched.instance_crashed.enabled => {
                self.guest_crashed(&event.host, server, event.age, now);
            }
            _ => {}
        }
    }

    /// Watchdogs of many guests are the host's trouble, those of one are its own.
    fn watchdog_fired(&mut self, event: &GuestEvent, server: &ServerId, now: Now) {
        let watched = self.config.monitors.watchdog_storm;
        let Some(host) = self.hosts.get_mut(&event.host) else {
            return;
        };
        let instances = host.facts.as_ref().map_or(0, |facts| facts.instances).max(1);
        let watchdogs = &mut host.monitors.watchdog;
        let storm = happened(event, watched.window, now)
            .is_some_and(|at| storm(watchdogs, server, at, now.mono, &watched, instances));
        if !watched.enabled || self.term.is_none() {
            return;
        }
        if storm && !self.shared_trouble(&event.host, now.mono) {
            self.degrade(&event.host, Degraded::WatchdogStorm, true, now);
        }
        if let Some(at) = happened(event, watched.guest_window, now) {
            self.guest_watchdog(&event.host, server, at, now);
        }
    }

    /// An agent saw memory fail. Enough of that, or metrics that say the same, make it the host's trouble.
    fn memory_failed(&mut self, event: &GuestEvent, now: Now) {
        let (name, watched) = (&event.host, self.config.monitors.memory_failure);
        let Some(at) = happened(event, watched.window, now) else {
            return;
        };
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let monitors = &mut host.monitors;
        let lately = |at: &Mono| now.mono.since(*at) <= watched.window;
        monitors.memory.retain(lately);
        let place = monitors.memory.partition_point(|earlier| *earlier <= at);
        monitors.memory.insert(place, at);
        while monitors.memory.len() > watched.events {
            monitors.memory.pop_front();
        }
        let witnessed = monitors.memory_metrics.as_ref().is_some_and(lately);
        let (count, enough) = (monitors.memory.len(), monitors.memory.len() >= watched.events);
        if !watched.enabled || self.term.is_none() {
            return;
        }
        if enough || witnessed {
            self.degrade(name, Degraded::MemoryFailure, true, now);
        } else if count == 1 {
            self.tell(Notice::MemoryFailed { host: name.clone() });
        }
    }

    /// Whether guests of too many other hosts suffer as well: then it is what they share, their storage or
    /// network, and no host is to blame.
    fn shared_trouble(&self, name: &HostName, now: Mono) -> bool {
        let watched = self.config.monitors.watchdog_storm;
        let suffers = |host: &Host| {
            let watchdogs = host.monitors.degraded.get(&Degraded::WatchdogStorm);
            host.monitors.io_errors.storm() || watchdogs.is_some_and(|at| now.since(*at) <= watched.window)
        };
        let others = self.hosts.iter().filter(|(other, _)| *other != name);
        others.filter(|(_, host)| suffers(host)).count() > watched.shared_hosts
    }
}

/// When something happened, unless that is so long ago that it counts for nothing any more.
fn happened(event: &GuestEvent, window: Duration, now: Now) -> Option<Mono> {
    (event.age <= window).then(|| now.mono.before(event.age))
}

/// Whether enough guests of a host had this event within the window.
fn storm(
    seen: &mut BTreeMap<ServerId, Mono>,
    server: &ServerId,
    at: Mono,
    now: Mono,
    watched: &WatchdogStorm,
    all: usize,
) -> bool {
    let latest = seen.entry(server.clone()).or_insert(at);
    *latest = at.max(*latest);
    seen.retain(|_, at| now.since(*at) <= watched.window);
    seen.len() >= watched.min_guests && seen.len() * 100 >= all * watched.percent as usize
}
