// SPDX-License-Identifier: Apache-2.0
//! One incident of the journal as the object people see. A pure function: the same records give the
//! same object, whichever replica makes it.

use std::collections::BTreeMap;

use cobaltcore_api::names::ServerId;
use cobaltcore_api::{
    HaFence, HaHeldReason, HaIncidentSpec, HaIncidentState, HaIncidentStatus, HaIncidentType, HaSignal,
    HaSnapshot, HaStep, HaSummary, HaVm,
};
use cobaltcore_ha_engine::{
    Entry, Epoch, Grade, Group, HeldReason, Incident, IncidentKind, IncidentState, Record, VmProgress,
    VmRecord,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::chronicle::Story;

/// Guests in one object.
pub(super) const GUESTS: usize = 800;
/// Steps in one object; of more, the latest are shown.
const STEPS: usize = 200;
/// Fences in one object; of more, the latest are shown.
const FENCES: usize = 50;
/// Bytes of a step's detail.
const DETAIL: usize = 512;

/// What is said of every incident in which nothing was switched off.
const UNSAFE: &str = "nothing was switched off and nothing is verified: its guests may run twice";

/// What the journal does not know of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Now {
    /// Why it does not go on.
    pub(super) held: Option<HeldReason>,
    /// When its fence was last seen to hold.
    pub(super) hold_checked: Option<Timestamp>,
}

pub(super) fn spec(incident: &Incident) -> HaIncidentSpec {
    HaIncidentSpec {
        host: incident.id.host.to_string(),
        type_: match incident.kind {
            IncidentKind::HostDown => HaIncidentType::HostDown,
            IncidentKind::HostRebooted => HaIncidentType::HostRebooted,
            IncidentKind::Isolated => HaIncidentType::Isolated,
            IncidentKind::Hung => HaIncidentType::Hung,
            IncidentKind::OperatorRequested => HaIncidentType::OperatorRequested,
        },
        opened_by: incident.by.clone(),
    }
}

/// The status of an incident, as the leader of `term` writes it, and, beyond the guests that fit, those of further objects.
pub(super) fn status(
    story: &Story,
    term: Epoch,
    now: &Now,
    levels: &[String],
) -> (HaIncidentStatus, Vec<HaIncidentStatus>) {
    let incident = &story.incident;
    let vms = guests(story);
    let mut parts = vms.chunks(GUESTS);
    let first = parts.next().unwrap_or_default().to_vec();
    let last = story.records.last();
    let status = HaIncidentStatus {
        state: Some(HaIncidentState::from(format!("{:?}", incident.state).as_str())),
        held_reason: now
            .held
            .map(|held| HaHeldReason::from(format!("{held:?}").as_str())),
        // Of what is over, the last word stays: nobody writes it again because somebody else leads.
        epoch: last.map(|record| {
            let open = incident.state.open();
            let writer = if open {
                term.max(record.epoch)
            } else {
                record.epoch
            };
            writer.0.cast_signed()
        }),
        journal_seq: last.map(|record| record.seq.cast_signed()),
        snapshot: Some(snapshot(story)),
        previous_maintenance: incident.previous.as_ref().map(ToString::to_string),
        fence: fences(&story.records, now, levels),
        steps: steps(&story.records),
        vms: first,
        summary: Some(summary(incident)),
        conditions: conditions(story),
    };
    let more = parts
        .map(|part| HaIncidentStatus {
            state: status.state.clone(),
            epoch: status.epoch,
            vms: part.to_vec(),
            conditions: status.conditions.clone(),
            ..HaIncidentStatus::default()
        })
        .collect();
    (status, more)
}

fn time(at: Timestamp) -> Time {
    // Objects carry whole seconds.
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The word of a value on the wire.
fn word(value: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    word.as_ref()
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn snapshot(story: &Story) -> HaSnapshot {
    let incident = &story.incident;
    let groups = Group::ALL
        .into_iter()
        .map(|group| {
            let said = incident.evidence.of(group);
            HaSignal {
                group: word(&group),
                verdict: word(&said.verdict),
                age_ms: said.age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX)),
                untrusted: said.untrusted,
            }
        })
        .collect();
    HaSnapshot {
        taken_at: time(story.opened_at()),
        boot_id: incident
            .boot
            .as_ref()
            .map(|boot| boot.0.chars().take(64).collect()),
        groups,
    }
}

fn fences(records: &[Record], now: &Now, levels: &[String]) -> Vec<HaFence> {
    let mut all: Vec<HaFence> = records
        .iter()
        .filter_map(|record| match &record.entry {
            Entry::Fenced { level, grade, .. } => Some(HaFence {
                level: i64::try_from(*level).unwrap_or(i64::MAX),
                driver: levels.get(*level).cloned().unwrap_or_default(),
                grade: word(grade),
                verified_at: Some(time(record.at)),
                hold_checked_at: None,
            }),
            _ => None,
        })
        .collect();
    if let Some(last) = all.last_mut() {
        last.hold_checked_at = now.hold_checked.map(time);
    }
    all.split_off(all.len().saturating_sub(FENCES))
}

// --- steps

/// What a record says of a step: an intent, its result, or both at once.
enum Says {
    Intent(String),
    Result(String, String),
    Both(String, String, String),
}

fn says(entry: &Entry) -> Option<Says> {
    let intent = |key: &str| Some(Says::Intent(key.to_owned()));
    let done = |key: &str| Some(Says::Result(key.to_owned(), "done".to_owned()));
    match entry {
        Entry::Opened { kind, by, .. } => Some(Says::Both("open".into(), word(kind), by.clone())),
        Entry::Decided {
            decision,
            actor,
            reason,
            ..
        } => Some(Says::Both(
            format!("decision/{}", decision.as_str()),
            "done".into(),
            format!("{actor}: {reason}"),
        )),
        Entry::ClaimIntended { .. } => intent("claim"),
        Entry::Claimed { .. } => done("claim"),
        Entry::StopEvictionIntended { .. } => intent("stop-eviction"),
        Entry::FenceIntended { level, .. } => intent(&format!("fence/{level}")),
        Entry::FenceWithdrawn { .. } => {
            let why = "it never left".to_owned();
            Some(Says::Both("fence-withdrawn".into(), "done".into(), why))
        }
        Entry::Fenced { level, grade, .. } => Some(Says::Result(format!("fence/{level}"), word(grade))),
        Entry::FenceLost { .. } => Some(Says::Both("fence-lost".into(), "lost".into(), String::new())),
        Entry::HoldIntended { .. } => intent("hold"),
        Entry::Held { .. } => done("hold"),
        Entry::DisableIntended {
            forced_down: true, ..
        } => intent("nova-force-down"),
        Entry::DisableIntended { .. } => intent("nova-disable"),
        Entry::ForcedDown { .. } => done("nova-force-down"),
        Entry::ConditionIntended { .. } => intent("condition"),
        Entry::ConditionSet { .. } => done("condition"),
        Entry::SpareIntended { host, .. } => intent(&format!("spare/{host}")),
        Entry::Planned { vms, .. } => Some(Says::Both(
            "plan".into(),
            "done".into(),
            format!("{} guests", vms.len()),
        )),
        Entry::FenceReleaseIntended { .. } => intent("release-fence"),
        Entry::FenceReleased { .. } => done("release-fence"),
        Entry::RestoreIntended { .. } => intent("restore"),
        Entry::Restored { .. } => done("restore"),
        // Told by the guests, or by the state.
        Entry::EvacuateIntended { .. }
        | Entry::VmIntended { .. }
        | Entry::Vm { .. }
        | Entry::VmUnlocked { .. }
        | Entry::Moved { .. }
        | Entry::Led
        | Entry::RestartIntended { .. }
        | Entry::PauseIntended { .. }
        | Entry::Forgotten { .. }
        | Entry::Left { .. } => None,
    }
}

fn steps(records: &[Record]) -> Vec<HaStep> {
    let mut all: Vec<HaStep> = Vec::new();
    for record in records {
        let at = Some(time(record.at));
        match says(&record.entry) {
            None => {}
            Some(Says::Intent(key)) => {
                let step = next_step(&all, key);
                all.push(HaStep {
                    intent_at: at,
                    ..step
                });
            }
            Some(Says::Both(key, result, detail)) => {
                let step = next_step(&all, key);
                all.push(HaStep {
                    intent_at: at.clone(),
                    result_at: at,
                    result,
                    detail: cut(detail),
                    ..step
                });
            }
            Some(Says::Result(key, result)) => {
                let waits = |step: &&mut HaStep| step.key == key && step.result_at.is_none();
                if let Some(step) = all.iter_mut().rev().find(waits) {
                    (step.result_at, step.result) = (at, result);
                } else {
                    let step = next_step(&all, key);
                    all.push(HaStep {
                        result_at: at,
                        result,
                        ..step
                    });
                }
            }
        }
    }
    all.split_off(all.len().saturating_sub(STEPS))
}

fn next_step(all: &[HaStep], key: String) -> HaStep {
    let before = all.iter().filter(|step| step.key == key).count();
    HaStep {
        key,
        attempt: i64::try_from(before + 1).unwrap_or(i64::MAX),
        ..HaStep::default()
    }
}

fn cut(mut text: String) -> String {
    let mut end = DETAIL.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

// --- guests

fn guests(story: &Story) -> Vec<HaVm> {
    let mut ways: BTreeMap<&ServerId, Way> = BTreeMap::new();
    for record in &story.records {
        match &record.entry {
            Entry::EvacuateIntended { server, .. } => {
                let asked = Some(record.at);
                ways.insert(
                    server,
                    Way {
                        asked,
                        migration: None,
                    },
                );
            }
            Entry::Vm {
                server,
                progress: VmProgress::InFlight { migration },
                ..
            } => ways.entry(server).or_default().migration = Some(migration.0),
            _ => {}
        }
    }
    let incident = &story.incident;
    incident
        .vms
        .values()
        .map(|vm| guest(vm, ways.get(&vm.server).copied().unwrap_or_default()))
        .collect()
}

/// When a guest was last asked for, and the record in Nova that came of it.
#[derive(Clone, Copy, Default)]
struct Way {
    asked: Option<Timestamp>,
    migration: Option<u64>,
}

fn guest(vm: &VmRecord, way: Way) -> HaVm {
    let (destination, reason) = match &vm.progress {
        VmProgress::Pending | VmProgress::Requested | VmProgress::InFlight { .. } => (None, String::new()),
        VmProgress::Verifying { destination } | VmProgress::Recovered { destination } => {
            (Some(destination), String::new())
        }
        VmProgress::Failed { reason } => (None, word(reason)),
        VmProgress::Skipped { reason } => (None, word(reason)),
        VmProgress::Blocked { reason } => {
            let said = vm.said.as_deref().map(|said| format!(": {said}"));
            (None, word(reason) + said.as_deref().unwrap_or_default())
        }
        VmProgress::Conflict { seen_on } => (Some(seen_on), "RunsElsewhere".to_owned()),
    };
    HaVm {
        uuid: vm.server.to_string(),
        name: vm.name.clone(),
        priority: vm.priority.into(),
        group: vm.group.clone(),
        original_state: word(&vm.original),
        wanted_power: word(&vm.wanted),
        state: progress_word(&vm.progress).to_owned(),
        attempt: vm.attempt.into(),
        intent_at: way.asked.map(time),
        migration_id: way.migration.map(u64::cast_signed),
        destination: destination.map(ToString::to_string).unwrap_or_default(),
        locked: vm.locked,
        reason,
    }
}

fn progress_word(progress: &VmProgress) -> &'static str {
    match progress {
        VmProgress::Pending => "Pending",
        VmProgress::Requested => "Requested",
        VmProgress::InFlight { .. } => "InFlight",
        VmProgress::Verifying { .. } => "Verifying",
        VmProgress::Recovered { .. } => "Recovered",
        VmProgress::Failed { .. } => "Failed",
        VmProgress::Skipped { .. } => "Skipped",
        VmProgress::Blocked { .. } => "Blocked",
        VmProgress::Conflict { .. } => "Conflict",
    }
}

fn summary(incident: &Incident) -> HaSummary {
    let count = |wanted: &[&str]| {
        let fits = |vm: &&VmRecord| wanted.contains(&progress_word(&vm.progress));
        i64::try_from(incident.vms.values().filter(fits).count()).unwrap_or(i64::MAX)
    };
    let total = i64::try_from(incident.vms.len()).unwrap_or(i64::MAX);
    let recovered = count(&["Recovered"]);
    HaSummary {
        total,
        recovered,
        failed: count(&["Failed"]),
        skipped: count(&["Skipped"]),
        blocked: count(&["Blocked", "Conflict"]),
        done: format!("{recovered}/{total}"),
    }
}

// --- conditions

fn conditions(story: &Story) -> Vec<Condition> {
    let incident = &story.incident;
    let last = |fits: &dyn Fn(&Entry) -> bool| {
        let record = story.records.iter().rev().find(|record| fits(&record.entry));
        record.map_or_else(|| story.opened_at(), |record| record.at)
    };
    let state = format!("{:?}", incident.state);
    let open = incident.state.open();
    let fenced = incident.grade.is_some();
    let recovered = story.records.iter().any(
        |record| matches!(&record.entry, Entry::Moved { state, .. } if *state == IncidentState::Recovered),
    ) && incident.state >= IncidentState::Recovered;
    let (fence_word, fence_words) = match incident.grade {
        Some(Grade::None) => ("Unsafe".to_owned(), UNSAFE),
        Some(grade) => (format!("{grade:?}"), ""),
        None => ("NotVerified".to_owned(), ""),
    };
    let moved =
        |entry: &Entry| matches!(entry, Entry::Moved { state, .. } if *state == IncidentState::Recovered);
    let fence = |entry: &Entry| matches!(entry, Entry::Fenced { .. } | Entry::FenceLost { .. });
    let opened_or_ended = if open {
        story.opened_at()
    } else {
        story.updated_at()
    };
    let fenced_since = last(&fence);
    let recovered_since = if recovered {
        last(&moved)
    } else {
        story.opened_at()
    };
    [
        ("Open", open, state.clone(), "", opened_or_ended),
        ("Fenced", fenced, fence_word, fence_words, fenced_since),
        ("Recovered", recovered, state, "", recovered_since),
    ]
    .into_iter()
    .map(|(type_, holds, reason, words, since)| Condition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason,
        message: words.to_owned(),
        last_transition_time: time(since),
        observed_generation: None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_ha_engine::{Evidence, IncidentId, VERSION, VmState, Wanted};

    use crate::chronicle::Chronicle;

    fn id() -> IncidentId {
        IncidentId {
            epoch: Epoch(7),
            n: 1,
            host: cobaltcore_api::names::HostName::new("n1").unwrap(),
            opened_ms: None,
        }
    }

    fn vm(n: usize) -> VmRecord {
        VmRecord {
            server: ServerId::new(format!("00000000-0000-4000-8000-{n:012}")).unwrap(),
            name: format!("web-{n}"),
            priority: 500,
            group: String::new(),
            anti_affinity: None,
            memory_mib: 1024,
            original: VmState::Active,
            wanted: Wanted::Running,
            progress: VmProgress::Pending,
            attempt: 0,
            known: Vec::new(),
            locked: false,
            losses: Vec::new(),
            said: None,
        }
    }

    fn story(entries: Vec<Entry>) -> Story {
        let records: Vec<Record> = entries
            .into_iter()
            .zip(1..)
            .map(|(entry, seq)| Record {
                version: VERSION,
                seq,
                epoch: Epoch(7),
                at: Timestamp::from_second(1_800_000_000 + i64::try_from(seq).unwrap()).unwrap(),
                entry,
            })
            .collect();
        let chronicle = Chronicle::default();
        chronicle.replace(&records);
        chronicle.story(&id().to_string()).unwrap()
    }

    fn opened() -> Entry {
        Entry::Opened {
            incident: id(),
            kind: IncidentKind::HostDown,
            by: "monitor/host-down".into(),
            boot: None,
            evidence: Box::new(Evidence::default()),
            announced: false,
        }
    }

    #[test]
    fn an_incident_in_which_nothing_was_switched_off_is_labelled_unsafe() {
        let fenced = |grade| {
            let incident = id();
            let entries = vec![
                opened(),
                Entry::Fenced {
                    incident,
                    level: 0,
                    grade,
                    boot: None,
                },
            ];
            let shown = conditions(&story(entries));
            let found = shown.into_iter().find(|condition| condition.type_ == "Fenced");
            found
                .map(|condition| (condition.reason, condition.message))
                .unwrap()
        };
        assert_eq!(fenced(Grade::Power), ("Power".to_owned(), String::new()));
        let (reason, words) = fenced(Grade::None);
        assert_eq!(reason, "Unsafe");
        assert!(words.contains("may run twice"), "{words}");
    }

    #[test]
    fn a_host_that_is_fenced_again_and_again_does_not_outgrow_its_object() {
        let mut entries = vec![opened()];
        for n in 0..500 {
            entries.push(Entry::Fenced {
                incident: id(),
                level: n,
                grade: Grade::Power,
                boot: None,
            });
            entries.push(Entry::FenceLost { incident: id() });
        }
        let (status, _) = status(&story(entries), Epoch(7), &Now::default(), &[]);
        assert_eq!((status.fence.len(), status.steps.len()), (FENCES, STEPS));
        assert_eq!(
            status.fence.last().map(|fence| fence.level),
            Some(499),
            "the latest stay"
        );
    }

    #[test]
    fn an_intent_and_its_result_are_one_step_and_a_second_try_is_another() {
        let incident = id();
        let entries = vec![
            opened(),
            Entry::ClaimIntended {
                incident: incident.clone(),
                previous: cobaltcore_api::Maintenance::Off,
            },
            Entry::Claimed {
                incident: incident.clone(),
            },
            Entry::FenceIntended {
                incident: incident.clone(),
                level: 0,
            },
            Entry::FenceIntended {
                incident: incident.clone(),
                level: 0,
            },
            Entry::Fenced {
                incident,
                level: 0,
                grade: Grade::Power,
                boot: None,
            },
        ];
        let now = Now {
            held: Some(HeldReason::FenceLost),
            hold_checked: Timestamp::from_second(1_800_000_100).ok(),
        };
        let (status, more) = status(&story(entries), Epoch(9), &now, &["redfish".into()]);
        assert!(more.is_empty());
        let steps: Vec<(&str, i64, &str)> = status
            .steps
            .iter()
            .map(|step| (step.key.as_str(), step.attempt, step.result.as_str()))
            .collect();
        assert_eq!(
            steps,
            [
                ("open", 1, "host-down"),
                ("claim", 1, "done"),
                ("fence/0", 1, ""),
                ("fence/0", 2, "power")
            ]
        );
        assert_eq!(status.state, Some(HaIncidentState::Fenced));
        assert_eq!(status.held_reason, Some(HaHeldReason::FenceLost));
        assert_eq!(
            (status.epoch, status.journal_seq),
            (Some(9), Some(6)),
            "the term of whoever writes"
        );
        let fence = status.fence.first().unwrap();
        assert_eq!(
            (fence.driver.as_str(), fence.grade.as_str()),
            ("redfish", "power")
        );
        assert!(fence.hold_checked_at.is_some());
        let told: Vec<(&str, &str)> = status
            .conditions
            .iter()
            .map(|one| (one.type_.as_str(), one.status.as_str()))
            .collect();
        assert_eq!(
            told,
            [("Open", "True"), ("Fenced", "True"), ("Recovered", "False")]
        );
    }

    #[test]
    fn more_guests_than_fit_continue_elsewhere() {
        let planned = Entry::Planned {
            incident: id(),
            vms: (0..1700).map(vm).collect(),
        };
        let (status, more) = status(&story(vec![opened(), planned]), Epoch(7), &Now::default(), &[]);
        let sizes: Vec<usize> = more.iter().map(|part| part.vms.len()).collect();
        assert_eq!((status.vms.len(), sizes), (800, vec![800, 100]));
        assert_eq!(status.summary.unwrap().done, "0/1700");
    }

    #[test]
    fn what_is_over_keeps_its_last_word() {
        let closed = Entry::Moved {
            incident: id(),
            state: IncidentState::Closed,
        };
        let (status, _) = status(&story(vec![opened(), closed]), Epoch(9), &Now::default(), &[]);
        assert_eq!(status.epoch, Some(7));
    }

    #[test]
    fn a_long_detail_is_cut_between_letters() {
        assert_eq!(cut("ä".repeat(300)).len(), 512);
        assert_eq!(cut(format!("a{}", "ä".repeat(300))).len(), 511);
    }

    #[test]
    fn every_word_of_the_engine_is_one_of_the_definition() {
        for held in [
            HeldReason::Paused,
            HeldReason::HaDisabled,
            HeldReason::OperatorCleared,
            HeldReason::VmListIncomplete,
            HeldReason::NotReturned,
            HeldReason::KubernetesRefuses,
        ] {
            assert!(HaHeldReason::WORDS.contains(&format!("{held:?}").as_str()));
        }
        for state in [
            IncidentState::Confirmed,
            IncidentState::Evacuating,
            IncidentState::Closed,
        ] {
            assert!(HaIncidentState::WORDS.contains(&format!("{state:?}").as_str()));
        }
    }
}
