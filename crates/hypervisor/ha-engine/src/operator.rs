// SPDX-License-Identifier: Apache-2.0
//! Decisions of people: what is allowed where, and what it changes. A decision is journaled with
//! its author; one that is not allowed changes nothing and is answered with the reason.

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;

use crate::engine::{Engine, Host};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Now};
use crate::input::{Command, Decision, Request};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentKind, IncidentState};
use crate::status::{Gate, HeldReason, Notice};

impl Engine {
    pub(crate) fn command(&mut self, command: Command, now: Now) {
        let Command {
            incident,
            actor,
            reason,
            confirm,
            decision,
        } = command;
        let allowed = match self.ledger.incidents.get(&incident) {
            None => Err("there is no such incident"),
            Some(_) if confirm != incident.host.as_str() => Err("confirm must be the name of the host"),
            Some(_) if reason.trim().is_empty() => Err("a reason is needed"),
            Some(found) => self.may(found, decision, now),
        };
        match allowed {
            Ok(()) => {
                if decision == Decision::Retry {
                    self.follow_anew(&incident, now);
                }
                let held = self.runs.get(&incident).and_then(|run| run.held);
                let host = self.hosts.get_mut(&incident.host);
                let signs = |host: &mut Host| {
                    host.spoke = false;
                    host.signals.latest_boot().cloned()
                };
                let boot = host.filter(|_| decision == Decision::AckFenced).and_then(signs);
                let decided = Entry::Decided {
                    incident: incident.clone(),
                    decision,
                    actor,
                    reason,
                    held,
                    boot,
                };
                let ended = matches!(decision, Decision::Abort | Decision::Close);
                if let Some(host) = self.hosts.get_mut(&incident.host).filter(|_| ended) {
                    host.ended = true;
                }
                self.write(decided, now);
            }
            Err(why) => self.tell(Notice::CommandRefused {
                incident,
                why: why.to_owned(),
            }),
        }
    }

    /// Opens an incident because a person wants it. It is fenced first like any other, and a host
    /// that works is not recovered from anything.
    pub(crate) fn request_recovery(&mut self, request: &Request, now: Now) {
        let Request {
            host,
            actor,
            reason,
            confirm,
        } = request;
        let refused = match self.hosts.get(host) {
            None => Some("there is no such host"),
            Some(known) if known.facts.is_none() => Some("there is no such host"),
            Some(_) if confirm != host.as_str() => Some("confirm must be the name of the host"),
            Some(_) if reason.trim().is_empty() => Some("a reason is needed"),
            Some(_) if self.ledger.open_incident(host).is_some() => Some("it has an open incident already"),
            Some(known) if self.works(known, now) => {
                Some("the host works; set its maintenance to have it emptied")
            }
            Some(_) => None,
        };
        match refused {
            Some(why) => self.tell(Notice::RequestRefused {
                host: host.clone(),
                why: why.to_owned(),
            }),
            None => self.open(
                host,
                IncidentKind::OperatorRequested,
                format!("{actor}: {reason}"),
                now,
            ),
        }
    }

    /// Whether a person ended the last incident of a host, which has not been heard since: it is theirs, and nothing is
    /// done to it. Who was not there goes by what the journal has: a host that was switched off stays theirs until it
    /// speaks of another boot, or, where nobody knows its boot, until its maintenance is cleared.
    pub fn left_to_people(&self, name: &HostName) -> bool {
        let Some(host) = self.hosts.get(name) else {
            return false;
        };
        let mut incidents = self.ledger.incidents.values().rev();
        let Some(last) = incidents.find(|incident| incident.id.host == *name) else {
            return false;
        };
        let unheard = || match (&host.signals.agent.boot, &host.facts) {
            (Some(boot), _) => last.boot.as_ref() == Some(boot),
            (None, Some(facts)) => facts.maintenance == Maintenance::Ha,
            (None, None) => false,
        };
        let kept_off = || last.touched() && !host.signals.heard_in_term && unheard();
        last.state == IncidentState::Closed && (host.ended || kept_off())
    }

    /// Whether its agent reports, or two others see it at work.
    pub(crate) fn works(&self, host: &Host, now: Now) -> bool {
        let evidence = self.evidence(host, now);
        evidence.of(Group::A).verdict == Verdict::Alive || evidence.at_work() >= 2
    }

    /// Guests that are stuck are looked at as if they had just been asked for. None is asked for twice: its record still
    /// decides.
    fn follow_anew(&mut self, id: &IncidentId, now: Now) {
        let run = self.runs.get_mut(id);
        for vm in run.into_iter().flat_map(|run| run.vms.values_mut()) {
            if std::mem::take(&mut vm.stuck) {
                vm.since = now.mono;
                vm.read = None;
            }
        }
    }

    fn may(&self, incident: &Incident, decision: Decision, now: Now) -> Result<(), &'static str> {
        let held = self.runs.get(&incident.id).and_then(|run| run.held);
        allowed(incident, held, self.stuck(&incident.id), decision)?;
        let anew = decision == Decision::Retry && !incident.state.in_flight();
        if anew && self.in_flight() >= self.config.max_hosts_in_flight {
            return Err("as many hosts as allowed are in flight; try again when one of them is settled");
        }
        if decision != Decision::AckFenced {
            return Ok(());
        }
        let Some(host) = self.hosts.get(&incident.id.host) else {
            return Err("nobody knows whether the host shows signs of life");
        };
        if self.evidence(host, now).any_alive() {
            return Err("the host shows signs of life");
        }
        let untouched = incident.state == IncidentState::Confirmed;
        if untouched && host.signals.powered_on(now.mono, &self.config) {
            return Err("its device says that it is on; approve, and it is switched off first");
        }
        Ok(())
    }
}

/// Whether a decision fits where an incident stands; if not, why. Signs of life may still speak against it.
pub fn allowed(
    incident: &Incident,
    held: Option<HeldReason>,
    stuck: usize,
    decision: Decision,
) -> Result<(), &'static str> {
    use IncidentState as S;
    let Incident { state, .. } = *incident;
    let fits = |fits: bool, why: &'static str| if fits { Ok(()) } else { Err(why) };
    if incident.aborted && state.open() {
        return Err("it is being aborted");
    }
    match decision {
        Decision::AckFenced => {
            let failed = held == Some(HeldReason::FenceFailed) && state < S::Releasing;
            // A rack without power: its hosts need no power command, only somebody who saw that they are off.
            let crowd = held.and_then(HeldReason::gate) == Some(Gate::Storm);
            fits(
                state == S::Fencing || failed || crowd,
                "the host is not being fenced",
            )
        }
        // Whoever took the host back by hand may have guests there, and none of them is in the plan.
        Decision::Approve if held == Some(HeldReason::OperatorCleared) && state > S::Evacuating => {
            Err("its guests are settled, and somebody took the host back; abort leaves it to them")
        }
        Decision::Approve => fits(
            held.and_then(HeldReason::gate).is_some(),
            "it is not held for a reason that can be approved",
        ),
        Decision::Abort => {
            let untouched = state == S::Confirmed || state == S::Fencing && !incident.touched();
            let held = state > S::Fencing && state.open() && held.is_some();
            fits(
                untouched || held,
                "it can be aborted before the power of its host is touched, or while it is held afterwards",
            )
        }
        Decision::Retry => fits(
            state == S::Failed || state == S::Evacuating && stuck > 0,
            "only what failed or is stuck can be tried again",
        ),
        Decision::Release | Decision::Close => fits(
            matches!(state, S::Recovered | S::Failed),
            "its guests are not settled",
        ),
    }
}
