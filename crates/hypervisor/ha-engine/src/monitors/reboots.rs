// SPDX-License-Identifier: Apache-2.0
//! Hosts that booted by themselves. Their compute service resumes the guests; what it forgets is started in
//! place. A host whose compute service does not come up at all has no way to run its guests, and goes the
//! way of a dead one: but only if none of them runs there, and if the services of others do report.

use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{Mono, Now};
use crate::input::{Answer, ServerFacts, Trouble, VmState};
use crate::ledger::IncidentKind;
use crate::status::Notice;

/// How often Nova is asked for the guests of a host without a compute service, and how often when they can be started.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A boot of a host, for as long as its guests may be missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reboot {
    /// When we learnt of it.
    since: Mono,
    /// When its compute service first reported after it.
    compute: Option<Mono>,
    /// When Nova was last asked which guests it should have.
    asked: Option<Mono>,
}

impl Reboot {
    /// A boot this long ago is what guests may still be missing for; later they are for other reasons.
    pub(crate) const LATELY: Duration = Duration::from_hours(1);

    pub(crate) fn at(now: Mono) -> Self {
        Self {
            since: now,
            compute: None,
            asked: None,
        }
    }

    /// Whether its compute service was waited for so long, and never reported.
    fn given_up(&self, now: Mono, patience: Duration) -> bool {
        self.compute.is_none() && now.since(self.since) >= patience
    }

    /// Whether, when a term began, its compute service had had so long to resume the guests, and Nova had not been asked for
    /// them for so long, that whoever led has looked into it. Who does not lead learns neither.
    fn lapsed(&self, began: Mono) -> bool {
        let long_before = |at: Mono| began.since(at) > Self::LATELY;
        self.compute.is_some_and(long_before) && self.asked.is_none_or(long_before)
    }

    /// Its compute service reported.
    pub(crate) fn reported(&mut self, now: Mono) {
        self.compute.get_or_insert(now);
    }
}

impl Engine {
    /// Asks Nova for the guests of hosts whose compute service has had its time to resume them, and of those
    /// whose compute service has had its time to come up.
    pub(super) fn watch_reboots(&mut self, now: Now) {
        let watched = self.config.monitors.host_rebooted;
        if !watched.enabled {
            return;
        }
        let began = self.term.map_or(now.mono, |term| term.since);
        for host in self.hosts.values_mut() {
            host.rebooted = host.rebooted.filter(|reboot| !reboot.lapsed(began));
        }
        let resumed = |reboot: &Reboot| {
            reboot
                .compute
                .is_some_and(|at| now.mono.since(at) >= watched.resume_after)
        };
        let due: Vec<HostName> = self
            .hosts
            .iter()
            .filter(|(name, host)| {
                host.rebooted
                    .is_some_and(|reboot| resumed(&reboot) || self.stranded(name, now))
            })
            .filter(|(name, _)| self.ledger.open_incident(name).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.ask_for_guests(&name, now);
        }
    }

    fn ask_for_guests(&mut self, name: &HostName, now: Now) {
        let Some(reboot) = self.hosts.get_mut(name).and_then(|host| host.rebooted.as_mut()) else {
            return;
        };
        // Without a compute service it may take long until there is something to do about the answer.
        let patience = if reboot.compute.is_some() {
            ASK_AGAIN
        } else {
            LOOK_AGAIN
        };
        if reboot.asked.is_some_and(|at| now.mono.since(at) < patience) {
            return;
        }
        reboot.asked = Some(now.mono);
        let effect = Effect::ListServers { host: name.clone() };
        self.act(None, Slot::HostList(name.clone()), effect, now);
    }

    pub(crate) fn host_list_outcome(&mut self, name: &HostName, result: Result<Answer, Trouble>, now: Now) {
        let Ok(Answer::Servers {
            servers,
            complete: true,
            ..
        }) = result
        else {
            return;
        };
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let Some((_, inventory)) = &host.inventory else {
            return;
        };
        let missing: Vec<ServerId> = servers
            .iter()
            .filter(|server| is_to_run(server, name) && !inventory.domains.active(&server.id))
            .map(|server| server.id.clone())
            .collect();
        if host.rebooted.is_some_and(|reboot| reboot.compute.is_some()) {
            host.rebooted = None;
            self.tell(Notice::HostRebooted { host: name.clone() });
            for server in missing {
                self.guest_missing(name, &server, now);
            }
        } else if !missing.is_empty()
            && self.may_act(now.mono)
            && self.stranded(name, now)
            && self.ledger.open_incident(name).is_none()
        {
            let by = "monitor/host-rebooted".to_owned();
            self.open(name, IncidentKind::HostRebooted, by, now);
        }
    }

    /// Whether a host has booted and its compute service has not come up for so long that nobody waits for
    /// it any more. Its agent must say that none of its guests runs, and the services of other hosts must
    /// report: a message queue that is down looks the same.
    pub(crate) fn stranded(&self, name: &HostName, now: Now) -> bool {
        let Some(host) = self.hosts.get(name) else {
            return false;
        };
        let patience = self.config.monitors.host_rebooted.compute_after;
        let evidence = self.evidence(host, now);
        let nova = evidence.of(Group::N);
        host.rebooted
            .is_some_and(|reboot| reboot.given_up(now.mono, patience))
            && evidence.of(Group::A).verdict == Verdict::Alive
            && nova.verdict == Verdict::Dead
            && !nova.untrusted
            && self.guests_run(host, now) == Some(false)
            && self.others_report(name, now)
    }

    /// Whether a host that was found stranded is not: its compute service reports, a guest runs there, or it
    /// has booted once more and gets its time again.
    pub(crate) fn no_longer_stranded(&self, name: &HostName, now: Now) -> bool {
        let Some(host) = self.hosts.get(name) else {
            return true;
        };
        let patience = self.config.monitors.host_rebooted.compute_after;
        !host
            .rebooted
            .is_some_and(|reboot| reboot.given_up(now.mono, patience))
            || self.evidence(host, now).of(Group::N).verdict == Verdict::Alive
            || self.guests_run(host, now) == Some(true)
    }

    /// Whether the fresh list of a host shows any guest, if there is one.
    fn guests_run(&self, host: &Host, now: Now) -> Option<bool> {
        let (at, inventory) = host.inventory.as_ref()?;
        let fresh = now.mono.since(*at) <= self.config.inventory_fresh;
        fresh.then(|| inventory.domains.any_active())
    }

    /// Whether the compute services of nearly all other hosts that nobody has given up report to Nova.
    fn others_report(&self, name: &HostName, now: Now) -> bool {
        let others = self.hosts.iter().filter(|(other, host)| {
            *other != name
                && host.facts.is_some()
                && self.ledger.open_incident(other).is_none()
                && !self.left_to_people(other)
        });
        let (mut all, mut report) = (0, 0);
        for (_, host) in others {
            all += 1;
            let alive = self.evidence(host, now).of(Group::N).verdict == Verdict::Alive;
            report += usize::from(alive);
        }
        report > 0 && report * 100 >= all * self.config.fresh_percent
    }
}

/// Whether a guest belongs on a host and should execute.
fn is_to_run(server: &ServerFacts, host: &HostName) -> bool {
    server.state == VmState::Active && server.host.as_ref() == Some(host)
}
