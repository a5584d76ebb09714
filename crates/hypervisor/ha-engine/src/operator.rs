// SPDX-License-Identifier: Apache-2.0
//! Decisions of people: what is allowed where, and what it changes. A decision is journaled with
//! its author; one that is not allowed changes nothing and is answered with the reason.

use crate::engine::{Engine, Host};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Now};
use crate::input::{Command, Decision, Request};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentKind, IncidentState};
use crate::status::{HeldReason, Notice};

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
            Some(found) => self.allowed(found, decision, now),
        };
        match allowed {
            Ok(()) => {
                if decision == Decision::Retry {
                    self.follow_anew(&incident, now);
                }
                let decided = Entry::Decided {
                    incident,
                    decision,
                    actor,
                    reason,
                };
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

    fn allowed(&self, incident: &Incident, decision: Decision, now: Now) -> Result<(), &'static str> {
        let held = self.runs.get(&incident.id).and_then(|run| run.held);
        match decision {
            Decision::AckFenced => {
                if incident.state != IncidentState::Fencing && held != Some(HeldReason::FenceFailed) {
                    return Err("the host is not being fenced");
                }
                let alive = self
                    .hosts
                    .get(&incident.id.host)
                    .is_none_or(|host| self.evidence(host, now).any_alive());
                if alive {
                    Err("the host shows signs of life")
                } else {
                    Ok(())
                }
            }
            Decision::Approve => match held {
                Some(
                    HeldReason::Storm
                    | HeldReason::DomainLimit
                    | HeldReason::PlannedMaintenance
                    | HeldReason::AwaitingApproval
                    | HeldReason::NoCapacity
                    | HeldReason::OperatorCleared,
                ) => Ok(()),
                _ => Err("it is not held for a reason that can be approved"),
            },
            Decision::Abort => {
                let fenced = incident.state > IncidentState::Fencing && held.is_some();
                if incident.state == IncidentState::Confirmed || (fenced && incident.state.open()) {
                    Ok(())
                } else {
                    Err("it can be aborted before fencing, or while it is held after it")
                }
            }
            Decision::Retry if incident.state == IncidentState::Failed => Ok(()),
            Decision::Retry
                if incident.state == IncidentState::Evacuating && self.stuck(&incident.id) > 0 =>
            {
                Ok(())
            }
            Decision::Retry => Err("only what failed or is stuck can be tried again"),
            Decision::Release | Decision::Close
                if matches!(incident.state, IncidentState::Recovered | IncidentState::Failed) =>
            {
                Ok(())
            }
            Decision::Release | Decision::Close => Err("its guests are not settled"),
        }
    }
}
