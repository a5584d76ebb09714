// SPDX-License-Identifier: Apache-2.0
//! The journal of an incident in sentences. Every record becomes one line; nothing is left out,
//! because what is left out is what somebody asks for later.

use cobaltcore_ha_engine::{BlockedReason, Entry, FailedReason, Grade, IncidentState, VmProgress};

/// What a record says, for people.
pub fn words(entry: &Entry) -> String {
    match entry {
        Entry::Led => "a new leader took over".to_owned(),
        Entry::Opened { kind, by, .. } => format!("opened as {} by {by}", kebab(kind)),
        Entry::Decided {
            decision,
            actor,
            reason,
            ..
        } => format!("{actor} decided {}: {reason}", decision.as_str()),
        Entry::ClaimIntended { previous, .. } => {
            if previous.is_off() {
                "claiming the host (maintenance ha)".to_owned()
            } else {
                format!("claiming the host (maintenance ha, it was {previous})")
            }
        }
        Entry::Claimed { .. } => "the host is claimed".to_owned(),
        Entry::StopEvictionIntended { .. } => "stopping its eviction".to_owned(),
        Entry::FenceIntended { level, .. } => format!("switching it off, level {level}"),
        Entry::FenceWithdrawn { .. } => "the order to switch it off was too late and never left".to_owned(),
        Entry::Fenced {
            grade: Grade::None, ..
        } => "UNSAFE: nothing switched it off; whoever runs it accepted that its guests may run twice"
            .to_owned(),
        Entry::Fenced { grade, level, .. } => format!("it is off: {} by level {level}", kebab(grade)),
        Entry::FenceLost { .. } => {
            "THE FENCE IS LOST: it came back; nothing more is moved until it is off again".to_owned()
        }
        Entry::HoldIntended { .. } => "keeping it off".to_owned(),
        Entry::Held { .. } => "it is kept off".to_owned(),
        Entry::DisableIntended {
            forced_down: true, ..
        } => "telling Nova that the host is down and disabled".to_owned(),
        Entry::DisableIntended { .. } => "telling Nova to place nothing there".to_owned(),
        Entry::ForcedDown { .. } => "Nova knows that it is down".to_owned(),
        Entry::ConditionIntended { .. } => "marking the Hypervisor as disabled".to_owned(),
        Entry::ConditionSet { .. } => "the Hypervisor is marked as disabled".to_owned(),
        Entry::SpareIntended { host, .. } => format!("enabling the spare host {host} for its guests"),
        Entry::Planned { vms, .. } => format!("the plan has {} guests", vms.len()),
        Entry::EvacuateIntended { server, attempt, .. } => format!("moving {server}, attempt {attempt}"),
        Entry::VmIntended { server, what, .. } => format!("{what} of {server}"),
        Entry::Vm {
            server,
            progress,
            said,
            ..
        } => format!("{server}: {}", progress_words(progress, said.as_deref())),
        Entry::VmUnlocked { server, .. } => format!("{server} is not locked by us any more"),
        // A person who wants it back says so; this was nobody's decision.
        Entry::Moved {
            state: IncidentState::Releasing,
            ..
        } => "it works again, and none of its guests was asked for: it is given back".to_owned(),
        Entry::Moved { state, .. } => format!("now {state:?}"),
        Entry::FenceReleaseIntended { .. } => "switching it on".to_owned(),
        Entry::FenceReleased { .. } => "it is on".to_owned(),
        Entry::RestoreIntended { .. } => "giving the host back".to_owned(),
        Entry::Restored { .. } => "the host is given back".to_owned(),
        Entry::RestartIntended { server, n, .. } => format!("restarting {server} where it is, time {n}"),
        Entry::PauseIntended { server, .. } => format!("pausing {server}, which runs elsewhere as well"),
        Entry::Forgotten { .. } => "it leaves the journal".to_owned(),
        Entry::Left { .. } => "older records have left the journal".to_owned(),
    }
}

/// Where a guest stands, with Nova's own words where there are any.
pub(crate) fn progress_words(progress: &VmProgress, said: Option<&str>) -> String {
    match progress {
        VmProgress::Blocked { reason } if said.is_some() => {
            format!("BLOCKED ({reason:?}): {}", said.unwrap_or_default())
        }
        VmProgress::Pending => "waits for its turn".to_owned(),
        VmProgress::Requested => "asked for".to_owned(),
        VmProgress::InFlight { migration } => format!("moving (migration {})", migration.0),
        VmProgress::Verifying { destination } => format!("on {destination}, being verified"),
        VmProgress::Recovered { destination } => format!("recovered on {destination}"),
        VmProgress::Failed { reason } => format!("FAILED ({reason:?}): {}", failed(*reason)),
        VmProgress::Skipped { reason } => format!("left alone ({reason:?})"),
        VmProgress::Blocked { reason } => format!("BLOCKED ({reason:?}): {}", blocked(*reason)),
        VmProgress::Conflict { seen_on } => format!("CONFLICT: it already runs on {seen_on}"),
    }
}

const fn failed(reason: FailedReason) -> &'static str {
    match reason {
        FailedReason::NoValidHost => "Nova found no place for it",
        FailedReason::NovaError => "Nova refused or failed; the service's log has its words",
        FailedReason::VerifyFailed => {
            "Nova has it running, its new host has not; is it waiting for its disk?"
        }
        FailedReason::AttemptsExhausted => "it was tried often enough",
    }
}

const fn blocked(reason: BlockedReason) -> &'static str {
    match reason {
        BlockedReason::Unsupported => "Nova can never move it",
        BlockedReason::Resized => "it is on two hosts until its resize is confirmed or reverted",
        BlockedReason::NotStorageFenced => {
            "its host is cut off from Ceph only, and not all its disks are there"
        }
        BlockedReason::ArrivalUnknown => {
            "it may have arrived on a host that does not speak; find out, then retry"
        }
        BlockedReason::Paused => "somebody paused it; it goes on when the pause ends",
    }
}

/// The word of a value on the wire.
pub(crate) fn kebab(value: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    word.as_ref()
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_needs_a_person_says_what_is_wrong_with_it() {
        let reason = FailedReason::VerifyFailed;
        assert_eq!(
            progress_words(&VmProgress::Failed { reason }, None),
            "FAILED (VerifyFailed): Nova has it running, its new host has not; is it waiting for its disk?"
        );
        let reason = BlockedReason::Resized;
        assert_eq!(
            progress_words(&VmProgress::Blocked { reason }, None),
            "BLOCKED (Resized): it is on two hosts until its resize is confirmed or reverted"
        );
        let reason = BlockedReason::Unsupported;
        let said = "Instances with vTPM cannot be evacuated.";
        assert_eq!(
            progress_words(&VmProgress::Blocked { reason }, Some(said)),
            format!("BLOCKED (Unsupported): {said}")
        );
    }

    #[test]
    fn a_host_that_nothing_switched_off_is_not_called_off() {
        let said = |grade| {
            let incident = cobaltcore_ha_engine::IncidentId {
                epoch: cobaltcore_ha_engine::Epoch(1),
                n: 1,
                host: "n1".parse().unwrap(),
                opened_ms: None,
            };
            words(&Entry::Fenced {
                incident,
                level: 0,
                grade,
                boot: None,
            })
        };
        assert_eq!(said(Grade::Power), "it is off: power by level 0");
        assert!(said(Grade::None).starts_with("UNSAFE"), "{}", said(Grade::None));
    }
}
