// SPDX-License-Identifier: Apache-2.0
//! Verdicts in words: what each group says, which rule stands in the way, what happens next.

use std::time::Duration;

use cobaltcore_ha_engine::{
    Assessment, Decision, Evidence, Group, HeldReason, Incident, IncidentState, Verdict,
};
use cobaltcore_ha_wire::rest::{RuleOutcome, Signal};

use super::people::Course;

const fn about(group: Group) -> &'static str {
    match group {
        Group::A => "its agent",
        Group::N => "its compute service in Nova",
        Group::K => "its node lease in Kubernetes",
        Group::P => "probes from the replicas",
        Group::Q => "probes from agents of other hosts",
        Group::M => "the monitoring system",
        Group::S => "the storage side",
        Group::B => "its power, read from the fencing device",
        Group::W => "its watchdog's lease",
    }
}

fn age_ms(age: Option<u64>) -> String {
    match age {
        None => "never heard".into(),
        Some(ms) if ms < 10_000 => format!("{:.1} s ago", ms as f64 / 1000.0),
        Some(ms) => format!("{} s ago", Duration::from_millis(ms).as_secs()),
    }
}

fn says(group: Group, verdict: Verdict, age: Option<u64>, untrusted: bool) -> String {
    let what = about(group);
    let heard = age_ms(age);
    let mut text = match verdict {
        Verdict::Alive => format!("{what}: alive, {heard}"),
        Verdict::KernelOnly => format!("{what}: only the network stack answers, {heard}"),
        Verdict::Unknown => format!("{what}: nothing is known, {heard}"),
        Verdict::Dead if matches!(group, Group::B) => format!("{what}: off"),
        Verdict::Dead => format!("{what}: no life, {heard}"),
    };
    if untrusted {
        text.push_str("; too many hosts died in this group together, so it does not count");
    }
    text
}

pub(crate) fn signals_of(evidence: &Evidence) -> Vec<Signal> {
    Group::ALL
        .into_iter()
        .map(|group| {
            let said = evidence.of(group);
            Signal {
                group,
                verdict: said.verdict,
                age_ms: said.age_ms,
                untrusted: said.untrusted,
                says: says(group, said.verdict, said.age_ms, said.untrusted),
            }
        })
        .collect()
}

/// The first rule that keeps a host from being taken for dead. A proof needs no other rule; what
/// contradicts it is seen by somebody.
pub(super) fn blocked_by(assessment: Assessment, rules: &[RuleOutcome]) -> Option<String> {
    let name = |rule: &RuleOutcome| format!("{}: {}", rule.rule, rule.because);
    match assessment {
        Assessment::Down | Assessment::Proven => None,
        Assessment::Alive | Assessment::Contradicted | Assessment::Isolated | Assessment::Hung => {
            let life = rules.iter().find(|rule| rule.rule == NO_LIFE && !rule.passed);
            life.map(name)
        }
        Assessment::Unclear => rules.iter().find(|rule| !rule.passed).map(name),
    }
}

const NO_LIFE: &str = "no sign of life";

/// The rules of judgement, applied to one snapshot.
pub(super) fn rules_of(evidence: &Evidence, settings: &crate::config::Evidence) -> Vec<RuleOutcome> {
    let needed = settings.min_groups + usize::from(evidence.blind);
    let dead = evidence.dead_groups();
    let alive: Vec<String> = [Group::A, Group::N, Group::K, Group::P, Group::Q, Group::S]
        .into_iter()
        .filter(|group| matches!(evidence.of(*group).verdict, Verdict::Alive | Verdict::KernelOnly))
        .map(|group| format!("{group:?}"))
        .collect();
    let probed = [Group::P, Group::Q]
        .into_iter()
        .any(|group| evidence.of(group).verdict == Verdict::Dead && !evidence.of(group).untrusted);
    let rule = |rule: &str, passed: bool, because: String| RuleOutcome {
        rule: rule.to_owned(),
        passed,
        because,
    };
    vec![
        rule(
            "enough independent groups",
            dead >= needed,
            format!("{dead} of {needed} groups that are needed see no life"),
        ),
        rule(
            "an active probe among them",
            probed || !settings.require_active_probe,
            if probed {
                "probes found no life".into()
            } else if !settings.require_active_probe {
                "evidence.require_active_probe asks for none".into()
            } else {
                "no probe has found the host dead".into()
            },
        ),
        rule(
            NO_LIFE,
            alive.is_empty(),
            if alive.is_empty() {
                "no group shows life".into()
            } else {
                format!("life is seen by {}", alive.join(", "))
            },
        ),
        rule(
            "proof",
            evidence.proven(),
            if evidence.proven() {
                if evidence.powered_off() {
                    "its power is off".into()
                } else {
                    "its watchdog has reset it by now".into()
                }
            } else {
                "its power is not known to be off".into()
            },
        ),
    ]
}

pub(crate) fn assessment_in_words(assessment: Assessment) -> &'static str {
    match assessment {
        Assessment::Alive => "a sign of life stands against any accusation: nothing happens",
        Assessment::Unclear => "not enough is known to call it dead: nothing happens",
        Assessment::Down => "enough independent groups agree that it is dead",
        Assessment::Proven => "its power is off: it is dead",
        Assessment::Contradicted => {
            "its fencing device says off while it shows life: the device is probably another machine's; nothing is done until a person looked"
        }
        Assessment::Isolated => "it runs, but management cannot reach it",
        Assessment::Hung => "its kernel answers and nothing else does",
    }
}

/// What a person may decide now.
pub(super) fn allowed(incident: &Incident, course: Course) -> Vec<Decision> {
    let Course { held, stuck, .. } = course;
    let fits = |decision: &Decision| cobaltcore_ha_engine::allowed(incident, held, stuck, *decision).is_ok();
    Decision::ALL.into_iter().filter(fits).collect()
}

/// Why a host that is well again is not given back.
const RECORDS_OPEN: &str = "Nova does not answer, or has evacuations from this host on record as accepted, pre-migrating \
    or done: restart nova-compute here and on their destinations; or abort, and clear the maintenance by hand";

/// Why a host that is to be taken back is waited for.
const NO_POWER: &str = "the host is to be taken back, and no device can switch it on or tell that it is: switch it on by \
    hand, it goes on when its agent is heard; or abort, and bring it back by hand";

/// What becomes of a host whose incident a person ended.
fn ended(incident: &Incident, left: bool) -> String {
    let host = &incident.id.host;
    let mut text = "nothing: a person ended it".to_owned();
    if incident.touched() && !incident.restored {
        text.push_str(
            ". The host stays as it is, off, disabled in Nova and in maintenance ha, until people bring it back",
        );
    }
    if left {
        text.push_str(&format!(
            ". Nothing is done to {host} before its agent is heard again; `cobaltcore incidents recover {host}` has it \
             recovered after all"
        ));
    }
    text
}

/// What happens next, or who must do what.
pub(super) fn next(incident: &Incident, course: Course) -> String {
    let releasing = incident.state == IncidentState::Releasing;
    if let Some(held) = course.held {
        return match held {
            HeldReason::NovaUnavailable if releasing => RECORDS_OPEN,
            HeldReason::FenceFailed if releasing => NO_POWER,
            held => held_in_words(held),
        }
        .to_owned();
    }
    match incident.state {
        IncidentState::Closed => return ended(incident, course.left),
        _ if incident.aborted => "what was claimed is given back, then it is over",
        IncidentState::Confirmed => "the gates before fencing are checked",
        IncidentState::Fencing => "the host is switched off and its power is read until that is certain",
        IncidentState::Fenced => "Nova is told, and the guests are listed",
        IncidentState::Evacuating if course.stuck > 0 => {
            "some guests do not arrive: look at nova-compute on their destinations; retry looks at them anew"
        }
        IncidentState::Evacuating => "guests are moved; the fence is watched meanwhile",
        IncidentState::Recovered => "all guests are settled; repair the host, then release it",
        IncidentState::Failed => "some guests could not be moved: look at them, then retry, release or close",
        IncidentState::Releasing => {
            "the host is switched on and taken back once its agent, libvirt and nova-compute are well"
        }
        IncidentState::Released => "nothing: the host is back",
        IncidentState::Cancelled => "nothing: the host came back before anything was done",
    }
    .to_owned()
}

pub(crate) fn held_in_words(held: HeldReason) -> &'static str {
    match held {
        HeldReason::Paused => "a pause is in force: it goes on when the pause ends or is lifted",
        HeldReason::Storm => {
            "too many hosts died at once: find out why; approve this incident to go on in spite of it, or sign by ack-fenced that the host is off"
        }
        HeldReason::DomainLimit => {
            "too many hosts of one failure domain died: find out why; approve to go on in spite of it, or sign by ack-fenced that the host is off"
        }
        HeldReason::HostsInFlight => "other hosts are being handled; it goes on when one of them is done",
        HeldReason::SelfIsolated => {
            "the service may itself be cut off: check its network; it goes on by itself"
        }
        HeldReason::WarmUp => "the leader is new and only looks; it goes on by itself within a minute or two",
        HeldReason::PlannedMaintenance => {
            "somebody works on this host, or announced its shutdown: ask them; approve to take it over"
        }
        HeldReason::AwaitingApproval => "a person has to say yes: approve, or abort",
        HeldReason::IdentityMismatch => {
            "the fencing device is not this host's, or contradicts it: correct the fencing configuration; or see that the host is off, and ack-fenced; or abort"
        }
        HeldReason::FenceFailed => {
            "the host could not be switched off: look at it, and when it is certainly off, ack-fenced"
        }
        HeldReason::FenceLost => {
            "the host came back in spite of the fence: it is fenced again; find out who switched it on"
        }
        HeldReason::NovaUnavailable => {
            "Nova does not do what is asked: look at Nova; it is tried again by itself"
        }
        HeldReason::VmListIncomplete => {
            "Nova does not list all guests: look at its cells; it is tried again by itself"
        }
        HeldReason::NoCapacity => {
            "its guests would find no room: make room; approve to move as many as fit, the most important first"
        }
        HeldReason::OperatorCleared => {
            "somebody cleared the maintenance of this host: approve to take it again, or abort"
        }
        HeldReason::HaDisabled => "HA is off for this host: enable it, or settle its guests by hand",
        HeldReason::KubernetesRefuses => {
            "Kubernetes refuses to change the host's objects: look at the service's log, its rights and the webhooks of the cluster; it is tried again by itself"
        }
        HeldReason::NotReturned => {
            "the host is wanted back and does not come into service: look at its console, its agent and its compute service; it goes on by itself once they work; or abort"
        }
    }
}
