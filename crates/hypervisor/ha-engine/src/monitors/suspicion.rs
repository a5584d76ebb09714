// SPDX-License-Identifier: Apache-2.0
//! From suspicion to an incident: a host whose agent fell silent is investigated at once, its verdict is
//! weighed round by round, and what is confirmed is opened with what it was concluded from.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;

use crate::action::Effect;
use crate::config::{Config, Response};
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Assessment, Evidence, Group, Verdict, assess};
use crate::ids::{IncidentId, Mono, Now};
use crate::journal::Entry;
use crate::ledger::{IncidentKind, IncidentState};
use crate::mutation::Mutation;
use crate::status::Notice;

const SECOND: Duration = Duration::from_secs(1);
/// For how long after an incident was called off a device must insist before the next.
const CALM: Duration = Duration::from_mins(10);
/// How long that is.
const INSISTS: Duration = Duration::from_secs(30);

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

impl Engine {
    pub(super) fn suspect(&mut self, name: &HostName, assessment: Assessment, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        if host.evidence.of(Group::A).verdict == Verdict::Alive {
            host.blind = false;
        }
        if host.suspicion.is_none() {
            if !suspicious(host, assessment) {
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

    /// Leaves a host alone, and whatever was probed of it.
    pub(super) fn suspect_no_more(&mut self, name: &HostName) {
        if let Some(host) = self.hosts.get_mut(name)
            && host.suspicion.take().is_some()
        {
            host.signals.forget_probes();
        }
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
        if kind == Some(IncidentKind::HostRebooted) && self.stranded(&id.host, now) {
            return true;
        }
        let assessment = assess(&evidence, &self.config, self.broken);
        match assessment {
            Assessment::Down | Assessment::Proven => true,
            // Its guests may work; whether they are given up is asked again.
            Assessment::Isolated | Assessment::Hung => {
                kind.is_some() && sacrificed(assessment, &self.config, &evidence) == kind
            }
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
            .partition(|(_, host)| host.rack() == rack);
        let wanted = self.config.probe_peers;
        near.truncate(wanted.saturating_sub(far.len().min(wanted / 2)));
        far.truncate(wanted - near.len());
        near.extend(far);
        near.into_iter().map(|(peer, _)| peer.clone()).collect()
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
        let lives = assessment == Assessment::Alive && host.evidence.seen_at_work();
        s.life_since = lives.then(|| s.life_since.unwrap_or(mono));
        s.shape = match (s.shape, assessment) {
            (Some((shape, since)), now) if shape == now => Some((shape, since)),
            _ => Some((assessment, mono)),
        };
        let lasted =
            |since: Option<Mono>, span: Duration| since.is_some_and(|since| mono.since(since) >= span);
        let long_heard = lasted(s.heard_since, Duration::from_secs(10));
        let long_life = lasted(s.life_since, config.monitors.agent_silent.after);
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
            if self.config.monitors.agent_silent.enabled {
                self.tell(Notice::AgentSilent { host: name.clone() });
            }
            self.end_suspicion(name, assessment);
        } else {
            match assessment {
                Assessment::Isolated if newly_shaped => self.tell(Notice::Isolated { host: name.clone() }),
                Assessment::Hung if newly_shaped => self.tell(Notice::Hung { host: name.clone() }),
                // That is told once for as long as it goes on.
                Assessment::Contradicted => {}
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
        // There is nothing to recover, and somebody's work to disturb.
        if facts.emptied() {
            return;
        }
        // Everybody saw the verdict; nobody wants anything done about it.
        if !self.config.monitors.host_down {
            return;
        }
        // The zone was announced to be switched off, and so was the host.
        if self.zone_paused(name)
            && self
                .hosts
                .get(name)
                .is_some_and(|h| h.shutdown_announced.is_some())
        {
            return;
        }
        let by = match kind {
            IncidentKind::Isolated => "monitor/isolated",
            IncidentKind::Hung => "monitor/hung",
            _ => "monitor/host-down",
        };
        // Somebody else set what only we set: whatever they want of us, a person has to say so.
        let kind = if facts.maintenance == Maintenance::Ha {
            IncidentKind::OperatorRequested
        } else {
            kind
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
        let announced = host.shutdown_announced.is_some();
        host.suspicion = None;
        host.spoke = false;
        let Some(incident) = self.next_incident(name, now) else {
            return;
        };
        self.write(
            Entry::Opened {
                incident: incident.clone(),
                kind,
                by,
                boot,
                evidence,
                announced,
            },
            now,
        );
        self.run(&incident, now);
        self.tell(Notice::State {
            incident,
            state: IncidentState::Confirmed,
        });
    }
}

/// Whether a host deserves a closer look: its agent fell silent, its power is off and nothing contradicts that, or,
/// for a host whose agent cannot tell, another source accuses and none defends it.
fn suspicious(host: &Host, assessment: Assessment) -> bool {
    let dead = |group: Group| {
        let g = host.evidence.of(group);
        g.verdict == Verdict::Dead && !g.untrusted
    };
    let unheard = host.evidence.of(Group::A).verdict == Verdict::Unknown;
    host.facts.is_some()
        && (dead(Group::A) && !host.blind
            || host.evidence.proven() && assessment != Assessment::Contradicted
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
    let kind = sacrificed(assessment, config, evidence)?;
    let dwell = match kind {
        IncidentKind::Isolated => config.isolated.dwell,
        _ => config.hung.dwell,
    };
    (lasted >= dwell).then_some(kind)
}

/// As what a host is recovered whose guests may still work, if that is wanted.
fn sacrificed(assessment: Assessment, config: &Config, evidence: &Evidence) -> Option<IncidentKind> {
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
    fence.then_some(kind)
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
