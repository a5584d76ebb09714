// SPDX-License-Identifier: Apache-2.0
//! What agents say again and again: that their host lives, and which guests it has. It is kept ready, because a fleet
//! says it tens of millions of times a day.

use std::time::Duration;

use cobaltcore_ha_engine::{AgentId, BootId, DomainState, Domains, Heartbeat, Inventory, Observation};

use crate::hosts::Host;
use crate::world::{Event, World};

/// Milliseconds after which some of what was sent arrives once more: to a world of a few minutes those are hours.
const HOURS: u64 = 600_000;

/// The words of one agent.
pub(crate) struct Voice {
    beat: Observation,
    list: Observation,
    /// The boot that both are about.
    boot: u32,
    /// When the list was last sent, and how often its guests had changed when it was made.
    sent: u64,
    made: Option<u64>,
}

impl Voice {
    pub(crate) fn new(h: usize, host: &Host) -> Self {
        let agent = AgentId(format!("agent-{h}"));
        let boot = BootId(host.boot_id());
        Self {
            beat: Observation::Heartbeat(Heartbeat {
                host: host.name.clone(),
                agent: agent.clone(),
                starts: 0,
                boot: boot.clone(),
                mono_ns: 0,
                up_for: Duration::ZERO,
                sent_at_ms: 0,
                libvirt: false,
                machine: host.identity(),
                resets_after: None,
                planned_shutdown: false,
            }),
            list: Observation::Inventory(Inventory {
                host: host.name.clone(),
                agent,
                starts: 0,
                boot,
                version: 0,
                domains: Domains::default(),
                devices: Vec::new(),
            }),
            boot: host.boot,
            sent: 0,
            made: None,
        }
    }

    /// Says how its host is now.
    fn report(&mut self, host: &Host, now: u64, armed: bool) {
        let rebooted = std::mem::replace(&mut self.boot, host.boot) != host.boot;
        if let Observation::Heartbeat(beat) = &mut self.beat {
            if rebooted {
                beat.boot = BootId(host.boot_id());
            }
            beat.starts = host.agent_starts;
            beat.mono_ns = (now - host.booted_at) * 1_000_000 + 1;
            beat.up_for = host.up_for(now);
            beat.sent_at_ms = now as i64 + host.clock_skew_ms;
            beat.libvirt = host.libvirt;
            beat.resets_after = (armed && !host.disarmed).then(|| Duration::from_secs(105));
            beat.planned_shutdown = host.announced;
        }
        if let Observation::Inventory(list) = &mut self.list
            && rebooted
        {
            list.boot = BootId(host.boot_id());
        }
    }
}

impl World {
    /// An agent reports to every replica that hears it.
    pub(crate) fn beat(&mut self, h: usize) {
        let jitter = self.rng.u64(4500..5500);
        self.schedule(jitter, Event::Beat(h));
        self.note_health(h);
        self.chatter(h);
        if !self.hosts[h].agent_speaks() {
            return;
        }
        let Some(mut voice) = self.voices[h].take() else {
            return;
        };
        voice.report(&self.hosts[h], self.now, self.armed);
        let wanted = std::mem::take(&mut self.hosts[h].list_wanted);
        let told = wanted || !self.hosts[h].lists_lost && self.lists_guests(h, &voice);
        let listed = self.hosts[h].libvirt && told;
        if listed {
            self.list_guests(h, &mut voice);
        }
        for r in 0..self.replicas.len() {
            if !self.hears(r, h) {
                continue;
            }
            self.hosts[h].heard_since_on = true;
            self.send(r, &voice.beat);
            if listed {
                self.send(r, &voice.list);
            }
        }
        self.voices[h] = Some(voice);
    }

    /// Whether it is time for a list: after a while, where that is said; now and then, elsewhere.
    fn lists_guests(&mut self, h: usize, voice: &Voice) -> bool {
        match self.lists_every {
            Some(span) => voice.made != Some(self.servers.changes(h)) || self.now - voice.sent >= span,
            None => self.rng.u8(..3) == 0 || self.now < 20_000,
        }
    }

    fn list_guests(&mut self, h: usize, voice: &mut Voice) {
        let Observation::Inventory(list) = &mut voice.list else {
            return;
        };
        let host = &mut self.hosts[h];
        host.inventory_version += 1;
        list.version = host.inventory_version;
        list.starts = host.agent_starts;
        voice.sent = self.now;
        let changes = Some(self.servers.changes(h));
        if std::mem::replace(&mut voice.made, changes) == changes && self.shown_twice.is_none() {
            return;
        }
        let shown = self.shown_twice.filter(|(_, there)| *there == h).map(|(n, _)| n);
        let mut guests = self.servers.around(h);
        guests.extend(shown.filter(|n| !guests.contains(n)));
        let state = |n: usize| {
            if self.servers[n].runs_on.contains(&h) || shown == Some(n) {
                DomainState::Running
            } else {
                DomainState::Off
            }
        };
        list.domains = guests
            .into_iter()
            .map(|n| (self.servers[n].id.clone(), state(n)))
            .collect();
        if shown.is_some() {
            voice.made = None;
        }
    }

    /// The last sign of life of an agent arrives everywhere once more, so much later.
    pub(crate) fn repeat_later(&mut self, h: usize, later: u64) {
        let Some(beat) = self.voices[h].as_ref().map(|voice| voice.beat.clone()) else {
            return;
        };
        for r in 0..self.replicas.len() {
            self.schedule(later, Event::Said(r, Box::new(beat.clone())));
        }
    }

    /// Over a network that may drop, double and delay.
    pub(crate) fn send(&mut self, r: usize, seen: &Observation) {
        if self.noise > 0 && self.rng.u8(..100) < self.noise {
            let later = || Event::Said(r, Box::new(seen.clone()));
            match self.rng.u8(..3) {
                0 => {
                    self.mark("a message is lost");
                    return;
                }
                1 => {
                    let longest = if self.rng.u8(..10) == 0 { HOURS } else { 90_000 };
                    let late = self.rng.u64(100..longest);
                    self.schedule(late, later());
                    self.mark("a message is doubled");
                }
                _ => {
                    let late = self.rng.u64(100..4_000);
                    self.schedule(late, later());
                    self.mark("a message is late");
                    return;
                }
            }
        }
        self.show(r, seen);
    }
}
