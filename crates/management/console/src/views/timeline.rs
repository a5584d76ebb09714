// SPDX-License-Identifier: Apache-2.0
//! The story of an incident: every record of its journal as a sentence, marked as evidence, a decision, an intention or
//! a result, so that somebody who comes late reads what happened and why in order.

use cobaltcore_ha_engine::{Decision, Entry, Grade, IncidentState, Record};
use cobaltcore_ha_wire::rest::IncidentDetail;

use super::incidents::{progress, speaker};
use super::{Tone, moment};

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Something was learnt.
    Evidence,
    /// Somebody or the service decided.
    Decision,
    /// Something is about to be done.
    Action,
    /// It was, and was seen.
    Result,
}

impl Sort {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Evidence => "evidence",
            Self::Decision => "decision",
            Self::Action => "action",
            Self::Result => "result",
        }
    }

    /// How it is shown.
    pub fn tone(self) -> Tone {
        match self {
            Self::Evidence => Tone::Bad,
            Self::Decision => Tone::Warn,
            Self::Action => Tone::Busy,
            Self::Result => Tone::Good,
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: String,
    /// Seconds since the incident was opened.
    pub after: String,
    /// What kind of thing.
    pub sort: Sort,
    /// What.
    pub text: String,
}

/// The story of an incident, in order.
pub(crate) fn steps(detail: &IncidentDetail) -> Vec<Step> {
    let began = detail.summary.opened_at;
    detail
        .journal
        .iter()
        .filter_map(|record| {
            let (sort, text) = tell(record, detail)?;
            let after = record.at.as_millisecond().saturating_sub(began.as_millisecond());
            Some(Step {
                at: moment(record.at),
                after: format!("+{}.{} s", after.max(0) / 1000, after.max(0) % 1000 / 100),
                sort,
                text,
            })
        })
        .collect()
}

fn tell(record: &Record, detail: &IncidentDetail) -> Option<(Sort, String)> {
    use Sort::{Action, Evidence, Result};
    let host = &detail.summary.host;
    Some(match &record.entry {
        Entry::Opened { by, .. } => (Evidence, opened(detail, by)),
        Entry::Decided {
            decision,
            actor,
            reason,
            ..
        } => (
            Sort::Decision,
            format!("{actor} {}: {reason}", decided(*decision)),
        ),
        Entry::ClaimIntended { .. } => (
            Action,
            format!("takes {host} out of scheduling: maintenance is to be “ha”"),
        ),
        Entry::Claimed { .. } => (Result, format!("{host} is claimed")),
        Entry::StopEvictionIntended { .. } => (Action, "ends the running eviction of the host".into()),
        Entry::FenceIntended { level, .. } => {
            (Action, format!("turns {host} off (fencing level {})", level + 1))
        }
        Entry::FenceWithdrawn { .. } => (
            Result,
            "the order to turn it off came too late and never left".into(),
        ),
        Entry::Fenced { grade, .. } => (Result, fenced(host.as_str(), *grade)),
        Entry::FenceLost { .. } => (
            Evidence,
            format!("{host} shows life in spite of the fence: nothing more is moved before it is off again"),
        ),
        Entry::HoldIntended { .. } => (Action, format!("keeps {host} off")),
        Entry::Held { .. } => (Result, format!("{host} is kept off")),
        Entry::DisableIntended {
            forced_down: true, ..
        } => (
            Action,
            "tells Nova that the compute service is disabled and forced down".into(),
        ),
        Entry::DisableIntended { .. } => (Action, "tells Nova that the compute service is disabled".into()),
        Entry::ForcedDown { .. } => (Result, "Nova takes the host for down".into()),
        Entry::ConditionIntended { .. } => return None,
        Entry::ConditionSet { .. } => (Result, "the Hypervisor says that it is disabled".into()),
        Entry::SpareIntended { host, .. } => {
            (Action, format!("enables the spare host {host} for its guests"))
        }
        Entry::Planned { vms, .. } => (
            Sort::Decision,
            match vms.len() {
                0 => "there is no guest to move".into(),
                1 => "one guest is to run again elsewhere".into(),
                many => format!("{many} guests are to run again elsewhere, the most important first"),
            },
        ),
        Entry::EvacuateIntended { server, attempt, .. } => (
            Action,
            match attempt {
                0 | 1 => format!("asks Nova to evacuate {}", name(detail, server)),
                n => format!(
                    "asks Nova to evacuate {}, for the {n}. time",
                    name(detail, server)
                ),
            },
        ),
        Entry::VmIntended { server, what, .. } => (Action, format!("{what}: {}", name(detail, server))),
        Entry::Vm {
            server, progress: at, ..
        } => {
            let (state, _, text) = progress(at);
            let text = if text.is_empty() {
                text
            } else {
                format!(" ({text})")
            };
            (Result, format!("{}: {state}{text}", name(detail, server)))
        }
        Entry::VmUnlocked { server, .. } => {
            (Result, format!("{} is its owner's again", name(detail, server)))
        }
        Entry::Moved { state, .. } => (Sort::Decision, moved(*state).into()),
        Entry::FenceReleaseIntended { .. } => (Action, format!("gives {host} its power back")),
        Entry::FenceReleased { .. } => (Result, format!("{host} may run again")),
        Entry::RestoreIntended { .. } => (Action, "restores the maintenance there was before".into()),
        Entry::Restored { .. } => (Result, "the operator looks after the host again".into()),
        Entry::RestartIntended { server, n, .. } => (
            Action,
            format!("restarts {} where it is, for the {n}. time", name(detail, server)),
        ),
        Entry::PauseIntended { server, .. } => (
            Action,
            format!("pauses {} here: it runs elsewhere", name(detail, server)),
        ),
        Entry::Led | Entry::Forgotten { .. } | Entry::Left { .. } => return None,
    })
}

fn opened(detail: &IncidentDetail, by: &str) -> String {
    let dead: Vec<&str> = detail
        .signals
        .iter()
        .filter(|signal| signal.verdict == cobaltcore_ha_engine::Verdict::Dead && !signal.untrusted)
        .map(|signal| speaker(signal.group))
        .collect();
    let host = &detail.summary.host;
    if dead.is_empty() {
        format!("{by} says that {host} needs to be recovered")
    } else {
        format!(
            "no life of {host}, according to {}; noticed by {by}",
            dead.join(", ")
        )
    }
}

fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::AckFenced => "signs that the host is off",
        Decision::Approve => "approves",
        Decision::Abort => "aborts",
        Decision::Retry => "wants another attempt",
        Decision::Release => "takes the host back",
        Decision::Close => "closes the incident",
    }
}

fn fenced(host: &str, grade: Grade) -> String {
    match grade {
        Grade::Power => format!("{host} is off: its power was read twice"),
        Grade::SelfFence => format!("{host} is off: its watchdog has reset it"),
        Grade::Storage => format!("{host} cannot write its disks any more"),
        Grade::Asserted => format!("{host} is off: a person signed for it"),
        Grade::None => format!("{host} is taken for off, and nothing proves it: its guests may run twice"),
    }
}

fn moved(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Confirmed => "the host is taken for dead",
        IncidentState::Fencing => "the host is to be fenced before anything else",
        IncidentState::Fenced => "the fence holds; the guests are next",
        IncidentState::Evacuating => "the guests are started elsewhere",
        IncidentState::Recovered => "every guest is settled; the host stays fenced until it is released",
        IncidentState::Failed => "some guests are not settled; a person has to look",
        IncidentState::Releasing => "the host works again, and no guest was asked for: it is given back",
        IncidentState::Released => "the host is back; this is over",
        IncidentState::Cancelled => "the host came back before anything was done",
        IncidentState::Closed => "closed without taking the host back",
    }
}

fn name(detail: &IncidentDetail, server: &cobaltcore_ha_wire::ServerId) -> String {
    let known = detail.vms.iter().find(|vm| vm.server == *server);
    match known {
        Some(vm) if !vm.name.is_empty() => vm.name.clone(),
        _ => server.to_string(),
    }
}
