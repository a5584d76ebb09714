// SPDX-License-Identifier: Apache-2.0
//! Notices of the engine in words: the rule behind each, what follows from it in a word, and a
//! sentence for whoever reads the log at night.

use cobaltcore_ha_engine::{Assessment, Degraded, HeldReason, IncidentState, Loss, Notice};

use crate::http::{assessment_in_words, held_in_words};

/// A notice in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The rule or gate that decided; empty where none did.
    pub(super) rule: &'static str,
    /// What follows, in a word.
    pub(super) result: String,
    /// A sentence.
    pub(super) said: String,
}

fn new(rule: &'static str, result: impl Into<String>, said: impl Into<String>) -> Told {
    Told {
        rule,
        result: result.into(),
        said: said.into(),
    }
}

pub(super) fn told(notice: &Notice) -> Told {
    match notice {
        Notice::Suspect { .. } => new(
            "E5",
            "suspect",
            "its agent is silent; everybody who could know is asked",
        ),
        Notice::SuspicionEnded { assessment, .. } => new(
            rule_of(*assessment),
            "cleared",
            format!("it is suspected no more: {}", assessment_in_words(*assessment)),
        ),
        Notice::AgentSilent { .. } => new("E4", "agent-silent", "only its agent is silent; the host lives"),
        Notice::Inconclusive { assessment, .. } => new(
            rule_of(*assessment),
            "inconclusive",
            assessment_in_words(*assessment),
        ),
        Notice::DeviceAgrees { times, .. } => new(
            "",
            "device-agrees",
            format!("its fencing device says off no more; it did so {times} times while the host was alive"),
        ),
        Notice::Isolated { .. } => new("E3", "isolated", assessment_in_words(Assessment::Isolated)),
        Notice::Hung { .. } => new("E3", "hung", assessment_in_words(Assessment::Hung)),
        Notice::HostRebooted { .. } => new("", "rebooted", "it booted anew; its guests are looked at"),
        Notice::HostDegraded { what, .. } => new("", "degraded", trouble(*what)),
        Notice::ServiceGone { what, .. } => new("", "service-gone", trouble(*what)),
        Notice::StorageOutage { hosts, device } => {
            let class = device.as_ref().map(|device| format!(" of class {device}"));
            let class = class.unwrap_or_default();
            new(
                "",
                "storage-outage",
                format!(
                    "disks of guests{class} fail on {hosts} hosts together: that is the storage; nothing is done to hosts"
                ),
            )
        }
        Notice::State { state, .. } => state_told(*state),
        Notice::Held { reason, .. } => new(
            gate_of(*reason),
            format!("held/{reason:?}"),
            held_in_words(*reason),
        ),
        Notice::Resumed { reason, .. } => new(
            gate_of(*reason),
            "resumed",
            format!("what held it ({reason:?}) is gone; it goes on"),
        ),
        Notice::VmRecovered { server, .. } => new("", "vm-recovered", format!("{server} is back")),
        Notice::VmLost { server, what, .. } => new(
            "",
            "vm-lost",
            format!("{server} is back without {}; tell its owner", loss(*what)),
        ),
        Notice::VmNeedsPerson { server, why, .. } => {
            new("", "vm-needs-person", format!("{server} needs a person: {why}"))
        }
        Notice::VmStuck { server, .. } => new(
            "",
            "vm-stuck",
            format!("{server} has been on its way for too long; it is followed, and never asked for twice"),
        ),
        Notice::Zombie { server, .. } => new(
            "",
            "zombie",
            format!("{server} runs here although it was brought back elsewhere; it is paused, look at it"),
        ),
        Notice::GuestDoubled {
            server,
            hosts: [one, other],
        } => new(
            "",
            "guest-doubled",
            format!(
                "{server} runs on {one} and on {other} at once; the copy that Nova does not know of is paused"
            ),
        ),
        Notice::GuestWatchdogs { server, .. } => new(
            "",
            "vm-watchdogs",
            format!("the watchdog of {server} fires again and again; it is not restarted until it is calm"),
        ),
        Notice::MemoryFailed { .. } => new(
            "",
            "memory-failed",
            "memory under a guest failed beyond repair, once; look at the machine",
        ),
        Notice::SpareCalled { host, .. } => new(
            "G10",
            "spare-called",
            format!(
                "there is too little room: the spare host {host} is enabled and stays so until somebody disables it"
            ),
        ),
        Notice::GuestRestarted { server, .. } => new(
            "",
            "vm-restarted",
            format!("{server} was down on a living host, and runs there again"),
        ),
        Notice::GuestGaveUp { server, .. } => new(
            "",
            "vm-gave-up",
            format!("{server} crashes again and again, or no restart mends it; it is left alone"),
        ),
        Notice::GuestStorm { crashes } => new(
            "",
            "vm-storm",
            format!(
                "{crashes} guests crashed within a minute: that is no matter of guests; none is restarted"
            ),
        ),
        Notice::CommandRefused { why, .. } => new("", "refused", format!("a decision was refused: {why}")),
        Notice::RequestRefused { why, .. } => new("", "refused", format!("a recovery was refused: {why}")),
        Notice::RoomShort {
            needed_mib, free_mib, ..
        } => new(
            "G10",
            "room-short",
            format!(
                "its guests take {needed_mib} MiB and other hosts have {free_mib} MiB; the most important come first"
            ),
        ),
        Notice::SelfIsolated { active: true } => new(
            "G5",
            "self-isolated",
            "this service may itself be cut off; nothing is fenced",
        ),
        Notice::SelfIsolated { active: false } => new(
            "G5",
            "not-isolated",
            "this service is in touch with its hosts again",
        ),
        Notice::GroupUntrusted {
            group,
            untrusted: true,
        } => new(
            "",
            "group-untrusted",
            format!(
                "too many hosts fell silent in group {group:?} together: its accusations do not count until two minutes after the last of them"
            ),
        ),
        Notice::GroupUntrusted { group, .. } => {
            new("", "group-trusted", format!("group {group:?} is believed again"))
        }
    }
}

fn state_told(state: IncidentState) -> Told {
    match state {
        IncidentState::Confirmed => new(
            "E2",
            "confirmed",
            "it is dead; the gates before fencing are checked",
        ),
        IncidentState::Fencing => new(
            "",
            "fencing",
            "it is switched off, and its power is read until that is certain",
        ),
        IncidentState::Fenced => new("", "fenced", "it is certainly off and kept off"),
        IncidentState::Evacuating => new(
            "I1",
            "evacuating",
            "its guests are moved; its fence is watched meanwhile",
        ),
        IncidentState::Recovered => new(
            "",
            "recovered",
            "all its guests are settled; repair it, then release it",
        ),
        IncidentState::Failed => new(
            "",
            "failed",
            "some of its guests could not be moved; look at them",
        ),
        IncidentState::Releasing => new(
            "",
            "releasing",
            "it is switched on and taken back once it is well",
        ),
        IncidentState::Released => new("", "released", "it is back"),
        IncidentState::Cancelled => new("E3", "cancelled", "it came back before anything was done to it"),
        IncidentState::Closed => new("", "closed", "a person ended the incident"),
    }
}

const fn rule_of(assessment: Assessment) -> &'static str {
    match assessment {
        Assessment::Alive | Assessment::Isolated | Assessment::Hung => "E3",
        Assessment::Unclear => "E1",
        Assessment::Down | Assessment::Proven | Assessment::Contradicted => "E2",
    }
}

const fn gate_of(reason: HeldReason) -> &'static str {
    match reason {
        HeldReason::HaDisabled => "G1",
        HeldReason::Paused => "G2",
        HeldReason::PlannedMaintenance | HeldReason::AwaitingApproval => "G3",
        HeldReason::SelfIsolated => "G5",
        HeldReason::WarmUp => "G6",
        HeldReason::Storm | HeldReason::DomainLimit => "G7",
        HeldReason::HostsInFlight => "G8",
        HeldReason::NoCapacity => "G10",
        HeldReason::FenceLost => "I1",
        HeldReason::IdentityMismatch
        | HeldReason::FenceFailed
        | HeldReason::NovaUnavailable
        | HeldReason::VmListIncomplete
        | HeldReason::OperatorCleared
        | HeldReason::NotReturned
        | HeldReason::KubernetesRefuses => "",
    }
}

/// What a guest lost with its host, in words.
pub(super) const fn loss(what: Loss) -> &'static str {
    match what {
        Loss::Memory => "what it held in memory: it was paused or suspended, and boots anew",
        Loss::Disks => "what was on disks of its dead host: they are made anew, and empty",
    }
}

/// A lasting trouble in words.
pub(super) const fn trouble(what: Degraded) -> &'static str {
    match what {
        Degraded::WatchdogStorm => "watchdogs of many of its guests fired",
        Degraded::IoErrorStorm => "disks of many of its guests fail, and those of other hosts do not",
        Degraded::MemoryFailure => "its memory fails",
        Degraded::LibvirtUnreachable => "its libvirt does not answer; its guests still run",
        Degraded::NovaServiceDown => "its nova-compute is gone; its guests still run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_api::names::HostName;
    use cobaltcore_ha_engine::{Epoch, Group, IncidentId};

    #[test]
    fn notices_are_sentences_and_not_dumps() {
        let host = HostName::new("n1").unwrap();
        let incident = IncidentId {
            epoch: Epoch(1),
            n: 1,
            host: host.clone(),
            opened_ms: None,
        };
        for (notice, rule, result) in [
            (Notice::Suspect { host: host.clone() }, "E5", "suspect"),
            (
                Notice::State {
                    incident: incident.clone(),
                    state: IncidentState::Confirmed,
                },
                "E2",
                "confirmed",
            ),
            (
                Notice::Held {
                    incident,
                    reason: HeldReason::Storm,
                },
                "G7",
                "held/Storm",
            ),
            (
                Notice::HostDegraded {
                    host,
                    what: Degraded::MemoryFailure,
                },
                "",
                "degraded",
            ),
            (
                Notice::GroupUntrusted {
                    group: Group::N,
                    untrusted: true,
                },
                "",
                "group-untrusted",
            ),
        ] {
            let told = told(&notice);
            assert_eq!((told.rule, told.result.as_str()), (rule, result));
            assert!(
                !told.said.contains(['{', '}']) && told.said.len() > 10,
                "{told:?}"
            );
        }
    }
}
