// SPDX-License-Identifier: Apache-2.0
//! The rounds of a leader: every host is judged from one snapshot, suspicion is raised,
//! investigated and ended, and what is confirmed becomes an incident. Lasting troubles of living
//! hosts are told and never lead to fencing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::action::Effect;
use crate::config::{Config, Response};
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Assessment, Evidence, Group, Verdict, assess};
use crate::ids::{AgentId, IncidentId, Mono, Now};
use crate::input::{Answer, DomainState, GuestEvent, GuestEventKind, Trouble};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentKind, IncidentState, VmProgress, VmRecord};
use crate::mutation::Mutation;
use crate::status::{Degraded, Notice};

const SECOND: Duration = Duration::from_secs(1);
/// Hosts asked to probe a suspect.
const PEERS: usize = 4;
/// For how long after an incident was called off a device must insist before the next.
const CALM: Duration = Duration::from_mins(10);
/// How long that is.
const INSISTS: Duration = Duration::from_secs(30);
/// How long metrics that told of a trouble are believed.
const METRICS_FRESH: Duration = Duration::from_mins(1);
/// How long metrics of failed memory and an event of the same belong together.
const MEMORY_KEPT: Duration = Duration::from_hours(24);

/// A host that may be dead.
#[derive(Clone, Debug)]
pub(crate) struct Suspicion {
    since: Mono,
    asked: Option<Mono>,
    rounds: u32,
    round_at: Option<Mono>,
    heard_since: Option<Mono>,
    life_since: Option<Mono>,
    shape: Option<(Assessment, Mono)>,
    told: bool,
}

/// How many hosts died in one group lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distrust {
    deaths: VecDeque<Mono>,
    until: Option<Mono>,
}

impl Distrust {
    pub(crate) fn active(&self, now: Mono, _config: &Config) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn died(&mut self, now: Mono, fleet: usize, config: &Config) {
        self.deaths.push_back(now);
        while self
            .deaths
            .front()
            .is_some_and(|at| now.since(*at) > config.distrust_window)
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
    io_error: BTreeMap<ServerId, Mono>,
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
        self.resume_rebooted(now);
        self.drive_guests(now);
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
        if !quiet && self.ledger.open_incident(name).is_none() {
            self.suspect(name, assessment, now);
        }
        self.watch_services(name, now);
        let sound = self.broken.trusts_calm();
        if let Some(host) = self.hosts.get_mut(name) {
            let served =
                host.monitors.libvirt_down_since.is_none() && host.monitors.nova_down_since.is_none();
            let lively = host.signals.unquestioned() && host.signals.still_fresh(now.mono, &self.config);
            host.calm = sound && quiet && served && lively;
        }
    }

    /// Accusations of a group in which many hosts fall silent together say something about the
    /// group, not about the hosts. Gives back what is known of those that have to be judged.
    fn count_deaths(&mut self, now: Now) -> Vec<(HostName, Evidence)> {
        let fleet = self.hosts.len();
        let mut judged = Vec::new();
        for (name, host) in &mut self.hosts {
            if host.calm && host.signals.still_fresh(now.mono, &self.config) {
                continue;
            }
            let evidence = host
                .signals
                .evidence(now, self.awake, &self.config, host.blind, self.broken);
            for group in Group::ALL {
                let dead = evidence.of(group).verdict == Verdict::Dead;
                let was = &mut host.dead_in[group as usize];
                if dead && !*was && !matches!(group, Group::B | Group::W) {
                    self.distrust[group as usize].died(now.mono, fleet, &self.config);
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

    fn suspect(&mut self, name: &HostName, assessment: Assessment, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        if host.evidence.of(Group::A).verdict == Verdict::Alive {
            host.blind = false;
        }
        if host.suspicion.is_none() {
            if !suspicious(host) {
                return;
            }
            host.suspicion = Some(Suspicion {
                since: now.mono,
                asked: None,
                rounds: 0,
                round_at: None,
                heard_since: None,
                life_since: None,
                shape: None,
                told: false,
            });
            self.tell(Notice::Suspect { host: name.clone() });
        }
        self.investigate(name, now);
        self.weigh(name, assessment, now);
    }

    /// Asks everybody who could know, at once and then every round.
    fn investigate(&mut self, name: &HostName, now: Now) {
        let round = self.config.round;
        let late = self.broken.is(Mutation::InvestigateLate);
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let Some(suspicion) = &mut host.suspicion else {
            return;
        };
        if late && now.mono.since(suspicion.since) < SECOND * 60 {
            return;
        }
        if suspicion.asked.is_some_and(|asked| now.mono.since(asked) < round) {
            return;
        }
        suspicion.asked = Some(now.mono);
        self.ask_everybody(name, now);
    }

    /// An incident that waits goes on being investigated: what was true when it was opened need not
    /// be true when it may go on.
    pub(crate) fn keep_asking(&mut self, id: &IncidentId, now: Now) {
        let round = self.config.round;
        let run = self.run(id, now);
        if run
            .investigated
            .is_none_or(|asked| now.mono.since(asked) >= round)
        {
            run.investigated = Some(now.mono);
            self.ask_everybody(&id.host, now);
        }
    }

    /// Whether what is known now would open the incident again.
    pub(crate) fn still_down(&self, id: &IncidentId, now: Now) -> bool {
        let Some(host) = self.hosts.get(&id.host) else {
            return false;
        };
        let evidence = self.evidence(host, now);
        let kind = self.ledger.incidents.get(id).map(|incident| incident.kind);
        // A person saw what nobody measured; only life itself speaks against it.
        if kind == Some(IncidentKind::OperatorRequested) {
            return !self.returned(id, now);
        }
        match assess(&evidence, &self.config, self.broken) {
            Assessment::Down | Assessment::Proven => true,
            Assessment::Isolated => kind == Some(IncidentKind::Isolated),
            Assessment::Hung => kind == Some(IncidentKind::Hung),
            _ => false,
        }
    }

    fn ask_everybody(&mut self, name: &HostName, now: Now) {
        let peers = self.choose_peers(name, now);
        let effect = Effect::Investigate {
            host: name.clone(),
            peers,
        };
        self.act(None, Slot::Investigate(name.clone()), effect, now);
        let effect = Effect::ReadPower {
            host: name.clone(),
            level: 0,
        };
        self.act(None, Slot::HostPower(name.clone()), effect, now);
    }

    /// Half of them from the host's own rack, half from others; only hosts that live.
    fn choose_peers(&self, name: &HostName, now: Now) -> Vec<HostName> {
        let rack = self.rack_of(name);
        let lives = |(peer, host): &(&HostName, &Host)| {
            *peer != name
                && host.facts.is_some()
                && host
                    .signals
                    .heartbeat_age(now.mono)
                    .is_some_and(|age| age <= self.config.heartbeat_alive)
        };
        let (mut near, mut far): (Vec<_>, Vec<_>) = self
            .hosts
            .iter()
            .filter(lives)
            .map(|(peer, _)| peer.clone())
            .partition(|peer| self.rack_of(peer) == rack);
        near.truncate(PEERS.saturating_sub(far.len().min(PEERS / 2)));
        far.truncate(PEERS - near.len());
        near.extend(far);
        near
    }

    fn weigh(&mut self, name: &HostName, assessment: Assessment, now: Now) {
        let mono = now.mono;
        let config = &self.config;
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let heard = host.evidence.of(Group::A).verdict == Verdict::Alive;
        let Some(s) = &mut host.suspicion else { return };
        s.heard_since = heard.then(|| s.heard_since.unwrap_or(mono));
        s.life_since = (assessment == Assessment::Alive).then(|| s.life_since.unwrap_or(mono));
        s.shape = match (s.shape, assessment) {
            (Some((shape, since)), now) if shape == now => Some((shape, since)),
            _ => Some((assessment, mono)),
        };
        let lasted =
            |since: Option<Mono>, span: Duration| since.is_some_and(|since| mono.since(since) >= span);
        let long_heard = lasted(s.heard_since, Duration::from_secs(10));
        let long_life = lasted(s.life_since, Duration::from_secs(60));
        let tell = !s.told && mono.since(s.since) > Duration::from_secs(120);
        s.told |= tell;
        let shape_since = s.shape.map_or(mono, |(_, since)| since);
        let proven_for = mono.since(shape_since);
        let doubtful = doubtful(&host.evidence, host.cancelled, proven_for, mono);
        let confirmed = match assessment {
            Assessment::Proven => (!doubtful).then_some(IncidentKind::HostDown),
            Assessment::Down => {
                if s.round_at.is_none_or(|at| mono.since(at) >= config.round) {
                    s.round_at = Some(mono);
                    s.rounds += 1;
                }
                (s.rounds >= config.confirm_rounds).then_some(IncidentKind::HostDown)
            }
            _ => {
                s.rounds = 0;
                s.round_at = None;
                shape_verdict(assessment, mono.since(shape_since), config, &host.evidence)
            }
        };
        let newly_shaped = shape_since == mono;
        if let Some(kind) = confirmed {
            self.confirm(name, kind, now);
        } else if long_heard {
            self.end_suspicion(name, assessment);
        } else if long_life {
            if let Some(host) = self.hosts.get_mut(name) {
                host.blind = true;
            }
            self.tell(Notice::AgentSilent { host: name.clone() });
            self.end_suspicion(name, assessment);
        } else {
            match assessment {
                Assessment::Isolated if newly_shaped => self.tell(Notice::Isolated { host: name.clone() }),
                Assessment::Hung if newly_shaped => self.tell(Notice::Hung { host: name.clone() }),
                Assessment::Contradicted if newly_shaped => {
                    self.tell(Notice::Inconclusive {
                        host: name.clone(),
                        assessment,
                    });
                }
                _ if tell => self.tell(Notice::Inconclusive {
                    host: name.clone(),
                    assessment,
                }),
                _ => {}
            }
        }
    }

    fn end_suspicion(&mut self, name: &HostName, assessment: Assessment) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.suspicion = None;
            host.signals.forget_probes();
        }
        self.tell(Notice::SuspicionEnded {
            host: name.clone(),
            assessment,
        });
    }

    fn confirm(&mut self, name: &HostName, kind: IncidentKind, now: Now) {
        let Some(facts) = self.hosts.get(name).and_then(|host| host.facts.as_ref()) else {
            return;
        };
        // An eviction that has emptied the host leaves nothing to recover.
        if facts.maintenance == Maintenance::Auto && facts.instances == 0 {
            return;
        }
        // Everybody saw the verdict; nobody wants anything done about it.
        if !self.config.monitors.host_down {
            return;
        }
        let by = match kind {
            IncidentKind::HostDown | IncidentKind::OperatorRequested => "monitor/host-down",
            IncidentKind::Isolated => "monitor/isolated",
            IncidentKind::Hung => "monitor/hung",
        };
        self.open(name, kind, by.to_owned(), now);
    }

    /// Opens an incident with what is known of the host right now.
    pub(crate) fn open(&mut self, name: &HostName, kind: IncidentKind, by: String, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let evidence = if self.broken.is(Mutation::NoSnapshot) {
            Box::default()
        } else {
            Box::new(host.evidence.clone())
        };
        let boot = host.signals.agent.boot.clone();
        host.suspicion = None;
        let Some(incident) = self.next_incident(name) else {
            return;
        };
        self.write(
            Entry::Opened {
                incident: incident.clone(),
                kind,
                by,
                boot,
                evidence,
            },
            now,
        );
        self.run(&incident, now);
        self.tell(Notice::State {
            incident,
            state: IncidentState::Confirmed,
        });
    }

    // --- living hosts

    fn watch_services(&mut self, name: &HostName, now: Now) {
        let mono = now.mono;
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let alive = host.evidence.of(Group::A).verdict == Verdict::Alive;
        let nova_down = alive && host.evidence.of(Group::N).verdict == Verdict::Dead;
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
        let lasted = |since: Option<Mono>, minutes: u32| {
            since.is_some_and(|at| mono.since(at) >= SECOND * 60 * minutes)
        };
        let libvirt = monitors
            .libvirt_down_since
            .filter(|_| watched.libvirt_unreachable);
        let nova = monitors.nova_down_since.filter(|_| watched.nova_service_down);
        for (what, since, patience) in [
            (Degraded::LibvirtUnreachable, libvirt, 5),
            (Degraded::NovaServiceDown, nova, 15),
        ] {
            self.tell_gone(name, what, lasted(since, 1));
            self.degrade(name, what, lasted(since, patience), now);
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
        let watched = self.config.monitors.memory_failure && self.term.is_some();
        let Some(host) = self.hosts.get_mut(name).filter(|_| holds) else {
            return;
        };
        host.calm = false;
        let monitors = &mut host.monitors;
        match what {
            Degraded::LibvirtUnreachable => monitors.libvirt_metrics = Some(now.mono),
            Degraded::MemoryFailure => {
                let before = monitors.memory_metrics.replace(now.mono);
                let first = before.is_none_or(|at| now.mono.since(at) > MEMORY_KEPT);
                let witnessed = !monitors.memory.is_empty();
                if watched && witnessed {
                    self.degrade(name, what, true, now);
                } else if watched && first {
                    self.tell(Notice::MemoryFailed { host: name.clone() });
                }
            }
            _ => {}
        }
    }

    fn degrade(&mut self, name: &HostName, what: Degraded, is: bool, now: Now) {
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
        let mono = now.mono;
        let (mut watchdog, mut first_failure) = (None, false);
        let (what, storm) = match (event.kind, &event.server) {
            (GuestEventKind::Watchdog, Some(server)) => {
                watchdog = Some(server);
                let storm = storm(&mut monitors.watchdog, server, mono, SECOND * 300, instances);
                (Degraded::WatchdogStorm, storm)
            }
            (GuestEventKind::IoError, Some(server)) => {
                let storm = storm(&mut monitors.io_error, server, mono, SECOND * 120, instances);
                (Degraded::IoErrorStorm, storm)
            }
            (GuestEventKind::MemoryFailure, _) => {
                monitors.memory.push_back(mono);
                while monitors.memory.len() > 2 {
                    monitors.memory.pop_front();
                }
                let metrics = monitors
                    .memory_metrics
                    .is_some_and(|at| mono.since(at) <= MEMORY_KEPT);
                first_failure = monitors.memory.len() == 1 && !metrics;
                (Degraded::MemoryFailure, !first_failure)
            }
            (GuestEventKind::Crashed, Some(server)) => {
                if self.config.monitors.instance_crashed {
                    self.guest_crashed(&event.host, server, now);
                }
                return;
            }
            _ => return,
        };
        let watched = match what {
            Degraded::WatchdogStorm => self.config.monitors.watchdog_storm,
            Degraded::IoErrorStorm => self.config.monitors.io_error_storm,
            _ => self.config.monitors.memory_failure,
        };
        if !watched || self.term.is_none() {
            return;
        }
        if storm && !(what == Degraded::WatchdogStorm && self.shared_trouble(&event.host, mono)) {
            self.degrade(&event.host, what, true, now);
        }
        if first_failure {
            self.tell(Notice::MemoryFailed {
                host: event.host.clone(),
            });
        }
        if let Some(server) = watchdog {
            self.guest_watchdog(&event.host, server, now);
        }
    }

    /// Whether guests of more than three other hosts suffer as well: then it is what they share,
    /// their storage or network, and no host is to blame.
    fn shared_trouble(&self, name: &HostName, now: Mono) -> bool {
        let suffers = |host: &Host| {
            [Degraded::WatchdogStorm, Degraded::IoErrorStorm]
                .iter()
                .filter_map(|what| host.monitors.degraded.get(what))
                .any(|at| now.since(*at) <= SECOND * 300)
        };
        let others = self.hosts.iter().filter(|(other, _)| *other != name);
        others.filter(|(_, host)| suffers(host)).count() > 3
    }

    /// Disk errors on many hosts are the storage's, and nobody's host is to blame.
    fn watch_storage(&mut self, now: Now) {
        let recent = |host: &&Host| {
            host.monitors
                .degraded
                .get(&Degraded::IoErrorStorm)
                .is_some_and(|at| now.mono.since(*at) <= SECOND * 120)
        };
        let hosts = self.hosts.values().filter(recent).count();
        if hosts > 1 && hosts * 10 > self.hosts.len() {
            self.tell(Notice::StorageOutage { hosts });
            for host in self.hosts.values_mut() {
                host.monitors.degraded.remove(&Degraded::IoErrorStorm);
                host.monitors.io_error.clear();
            }
        }
    }

    /// A host that came back by itself: its compute service resumes the guests; what it forgets is
    /// started in place.
    fn resume_rebooted(&mut self, now: Now) {
        if !self.config.monitors.host_rebooted {
            return;
        }
        let due: Vec<HostName> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.rebooted.is_some_and(|at| now.mono.since(at) >= SECOND * 60))
            .filter(|(name, _)| self.ledger.open_incident(name).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let effect = Effect::ListServers { host: name.clone() };
            self.act(None, Slot::HostList(name), effect, now);
        }
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
            .filter(|server| {
                server.state == crate::input::VmState::Active && server.host.as_ref() == Some(name)
            })
            .filter(|server| !inventory.domains.active(&server.id))
            .map(|server| server.id.clone())
            .collect();
        host.rebooted = None;
        self.tell(Notice::HostRebooted { host: name.clone() });
        for server in missing {
            self.guest_missing(name, &server, now);
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
}

/// Whether a host deserves a closer look: its agent fell silent, its power is off, or, for a host
/// whose agent cannot tell, another source accuses and none defends it.
fn suspicious(host: &Host) -> bool {
    let dead = |group: Group| {
        let g = host.evidence.of(group);
        g.verdict == Verdict::Dead && !g.untrusted
    };
    let unheard = host.evidence.of(Group::A).verdict == Verdict::Unknown;
    host.facts.is_some()
        && (dead(Group::A) && !host.blind
            || host.evidence.proven()
            || (host.blind || unheard) && (dead(Group::N) || dead(Group::K)) && !host.evidence.any_alive())
}

/// Whether a device that says Off had better be heard for longer: two others see the host alive, which
/// would call the incident off at once, or that has happened lately.
fn doubtful(evidence: &Evidence, cancelled: Option<Mono>, proven_for: Duration, now: Mono) -> bool {
    let lately = cancelled.is_some_and(|at| now.since(at) <= CALM);
    evidence.alive_groups() >= 2 || lately && proven_for < INSISTS
}

fn shape_verdict(
    assessment: Assessment,
    lasted: Duration,
    config: &Config,
    evidence: &Evidence,
) -> Option<IncidentKind> {
    let (kind, policy) = match assessment {
        Assessment::Isolated => (IncidentKind::Isolated, config.isolated),
        Assessment::Hung => (IncidentKind::Hung, config.hung),
        _ => return None,
    };
    let fence = match policy.response {
        Response::Hold => false,
        Response::Fence => true,
        Response::Auto => config.storage_watched && evidence.of(Group::S).verdict != Verdict::Alive,
    };
    (fence && lasted >= policy.dwell).then_some(kind)
}

/// Whether at least three and 30 % of the guests of a host had this event within the window.
fn storm(
    seen: &mut BTreeMap<ServerId, Mono>,
    server: &ServerId,
    now: Mono,
    window: Duration,
    all: usize,
) -> bool {
    seen.insert(server.clone(), now);
    seen.retain(|_, at| now.since(*at) <= window);
    seen.len() >= 3 && seen.len() * 10 >= all * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_others_contradict_opens_nothing_that_is_called_off_at_once() {
        let seen_by = |groups: &[Group]| {
            let mut evidence = Evidence::default();
            evidence.groups[Group::B as usize].verdict = Verdict::Dead;
            for group in groups {
                evidence.groups[*group as usize].verdict = Verdict::Alive;
            }
            evidence
        };
        let (now, moment) = (Mono(3_600_000), Duration::ZERO);
        let ago = |span: Duration| Some(now.before(span));
        let nobody = seen_by(&[]);
        assert!(!doubtful(&nobody, None, moment, now), "off is off");
        assert!(
            !doubtful(&seen_by(&[Group::K]), None, moment, now),
            "leases outlive their node"
        );
        assert!(doubtful(&seen_by(&[Group::N, Group::K]), None, moment, now));
        assert!(
            doubtful(&nobody, ago(SECOND), moment, now),
            "it was called off just now"
        );
        assert!(
            !doubtful(&nobody, ago(SECOND), INSISTS, now),
            "and the device insists"
        );
        assert!(
            !doubtful(&nobody, ago(CALM * 2), moment, now),
            "that is forgotten"
        );
    }
}
