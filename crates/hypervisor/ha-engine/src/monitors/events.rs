// SPDX-License-Identifier: Apache-2.0
//! Events of guests: watchdogs, disk errors and failing memory of many guests tell of their host, or of
//! the storage and network that hosts share. Each event counts once.

use std::collections::BTreeMap;

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
        let instances = host.facts.as_ref().map_or(0, |facts| facts.instances).max(1);
        let (mono, watched, leads) = (now.mono, self.config.monitors, self.term.is_some());
        match (event.kind, &event.server) {
            (GuestEventKind::Watchdog, Some(server)) => {
                let storm = storm(
                    &mut monitors.watchdog,
                    server,
                    mono,
                    &watched.watchdog_storm,
                    instances,
                );
                if watched.watchdog_storm.enabled && leads {
                    if storm && !self.shared_trouble(&event.host, mono) {
                        self.degrade(&event.host, Degraded::WatchdogStorm, true, now);
                    }
                    self.guest_watchdog(&event.host, server, now);
                }
            }
            (GuestEventKind::IoError, Some(server)) => {
                monitors.io_errors.note(event.device.clone(), server, mono);
            }
            (GuestEventKind::MemoryFailure, _) => self.memory_failed(&event.host, now),
            (GuestEventKind::Crashed, Some(server)) if watched.instance_crashed.enabled => {
                self.guest_crashed(&event.host, server, event.age, now);
            }
            _ => {}
        }
    }

    /// An agent saw memory fail. Enough of that, or metrics that say the same, make it the host's trouble.
    fn memory_failed(&mut self, name: &HostName, now: Now) {
        let watched = self.config.monitors.memory_failure;
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let monitors = &mut host.monitors;
        let lately = |at: &Mono| now.mono.since(*at) <= watched.window;
        monitors.memory.retain(lately);
        monitors.memory.push_back(now.mono);
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

/// Whether enough guests of a host had this event within the window.
fn storm(
    seen: &mut BTreeMap<ServerId, Mono>,
    server: &ServerId,
    now: Mono,
    watched: &WatchdogStorm,
    all: usize,
) -> bool {
    seen.insert(server.clone(), now);
    seen.retain(|_, at| now.since(*at) <= watched.window);
    seen.len() >= watched.min_guests && seen.len() * 100 >= all * watched.percent as usize
}
