// SPDX-License-Identifier: Apache-2.0
//! Services of living hosts: a libvirt or a compute service that is gone is told of and, when it lasts, a
//! lasting trouble of its host. The guests run on, so nothing of this ever moves one.

use std::time::Duration;

use cobaltcore_api::names::HostName;

use crate::engine::Engine;
use crate::evidence::{Group, Verdict};
use crate::ids::{Mono, Now};
use crate::status::{Degraded, Notice};

/// How long metrics that told of a trouble are believed.
const METRICS_FRESH: Duration = Duration::from_mins(1);

impl Engine {
    pub(super) fn watch_services(&mut self, name: &HostName, now: Now) {
        let mono = now.mono;
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let alive = host.evidence.of(Group::A).verdict == Verdict::Alive;
        // An agent that reports before the compute service of its host is up is normal; one that never comes up is
        // for those who watch reboots.
        let starts = self.config.monitors.host_rebooted;
        let starting = starts.enabled
            && host
                .signals
                .agent
                .up_for(mono)
                .is_some_and(|up| up < starts.compute_after);
        let nova_down = alive && !starting && host.evidence.of(Group::N).verdict == Verdict::Dead;
        let monitors = &mut host.monitors;
        // Its agent, the node agent and metrics each look for themselves; two of them must agree.
        let accusers = [
            !host.signals.agent.libvirt,
            host.facts.as_ref().is_some_and(|facts| facts.libvirt_down),
            monitors
                .libvirt_metrics
                .is_some_and(|at| mono.since(at) <= METRICS_FRESH),
        ];
        let libvirt_down = alive && accusers.iter().filter(|down| **down).count() >= 2;
        monitors.libvirt_down_since = libvirt_down.then(|| monitors.libvirt_down_since.unwrap_or(mono));
        monitors.nova_down_since = nova_down.then(|| monitors.nova_down_since.unwrap_or(mono));
        let watched = self.config.monitors;
        let lasted = |since: Option<Mono>, span: Duration| since.is_some_and(|at| mono.since(at) >= span);
        let (libvirt, nova) = (monitors.libvirt_down_since, monitors.nova_down_since);
        for (what, since, watched) in [
            (Degraded::LibvirtUnreachable, libvirt, watched.libvirt_unreachable),
            (Degraded::NovaServiceDown, nova, watched.nova_service_down),
        ] {
            let since = since.filter(|_| watched.enabled);
            self.tell_gone(name, what, lasted(since, watched.after));
            self.degrade(name, what, lasted(since, watched.degraded_after), now);
        }
    }

    /// Tells once that a service of a host is gone, before it lasts.
    fn tell_gone(&mut self, name: &HostName, what: Degraded, gone: bool) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        if !gone {
            host.monitors.told_gone.remove(&what);
        } else if host.monitors.told_gone.insert(what) {
            let host = name.clone();
            self.tell(Notice::ServiceGone { host, what });
        }
    }

    /// Metrics tell of a trouble. They decide nothing alone: another witness must have seen it.
    pub(crate) fn metrics_told(&mut self, name: &HostName, what: Degraded, holds: bool, now: Now) {
        let memory = self.config.monitors.memory_failure;
        let watched = memory.enabled && self.term.is_some();
        let Some(host) = self.hosts.get_mut(name).filter(|_| holds) else {
            return;
        };
        host.calm = false;
        let monitors = &mut host.monitors;
        match what {
            Degraded::LibvirtUnreachable => monitors.libvirt_metrics = Some(now.mono),
            Degraded::MemoryFailure => {
                let before = monitors.memory_metrics.replace(now.mono);
                let first = before.is_none_or(|at| now.mono.since(at) > memory.window);
                let witnessed = monitors
                    .memory
                    .iter()
                    .any(|at| now.mono.since(*at) <= memory.window);
                if watched && witnessed {
                    self.degrade(name, what, true, now);
                } else if watched && first {
                    self.tell(Notice::MemoryFailed { host: name.clone() });
                }
            }
            _ => {}
        }
    }

    pub(super) fn degrade(&mut self, name: &HostName, what: Degraded, is: bool, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        if !is {
            host.monitors.degraded.remove(&what);
        } else if host.monitors.degraded.insert(what, now.mono).is_none() {
            self.tell(Notice::HostDegraded {
                host: name.clone(),
                what,
            });
        }
    }
}
