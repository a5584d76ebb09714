// SPDX-License-Identifier: Apache-2.0
//! Decisions of people: what is allowed where, and what it changes. A decision is journaled with
//! its author; one that is not allowed changes nothing and is answered with the reason.

use crate::engine::Engine;
use crate::ids::Now;
use crate::input::{Command, Decision};
use crate::journal::Entry;
use crate::ledger::{Incident, IncidentState};
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
            Ok(()) => self.write(
                Entry::Decided {
                    incident,
                    decision,
                    actor,
                    reason,
                },
                now,
            ),
            Err(why) => self.tell(Notice::CommandRefused {
                incident,
                why: why.to_owned(),
            }),
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
            Decision::Retry => Err("only what failed can be tried again"),
            Decision::Release | Decision::Close
                if matches!(incident.state, IncidentState::Recovered | IncidentState::Failed) =>
            {
                Ok(())
            }
            Decision::Release | Decision::Close => Err("its guests are not settled"),
        }
    }
}
