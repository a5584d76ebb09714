// SPDX-License-Identifier: Apache-2.0
//! Observe, then act: a leader dies after it wrote down what it is about to do and before it wrote
//! down what came of it, once before it was done and once after. Its successor looks first, does what
//! was not done, and does not do again what was.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use cobaltcore_ha_engine::{Effect, Entry, ServiceChange};
use cobaltcore_ha_simulation::{Act, Crash, Options, run_scenario};

/// One step of a recovery, and what decides whether it was taken.
struct Step {
    name: &'static str,
    scenario: &'static str,
    intent: fn(&Entry) -> bool,
    effect: fn(&Effect) -> bool,
    /// What the successor looks at; nothing where doing it twice is doing it once.
    look: Option<fn(&Effect) -> bool>,
    /// How often it happens in this scenario if nobody dies.
    times: usize,
}

const STEPS: [Step; 16] = [
    Step {
        name: "claim",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::ClaimIntended { .. }),
        effect: |effect| matches!(effect, Effect::Claim { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadMaintenance { .. })),
        times: 1,
    },
    Step {
        name: "fence off",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::FenceIntended { .. }),
        effect: |effect| matches!(effect, Effect::PowerOff { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadPower { .. })),
        times: 1,
    },
    Step {
        name: "hold",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::HoldIntended { .. }),
        effect: |effect| matches!(effect, Effect::Hold { .. }),
        look: None,
        times: 1,
    },
    Step {
        name: "nova update",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::DisableIntended { .. }),
        effect: |effect| {
            let down = ServiceChange::ForceDown;
            matches!(effect, Effect::UpdateService { change, .. } if *change == down)
        },
        look: Some(|effect| matches!(effect, Effect::ReadService { .. })),
        times: 1,
    },
    Step {
        name: "condition",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::ConditionIntended { .. }),
        effect: |effect| matches!(effect, Effect::SetDisabled { .. }),
        look: None,
        times: 1,
    },
    Step {
        name: "spare host",
        scenario: "p5",
        intent: |entry| matches!(entry, Entry::SpareIntended { .. }),
        effect: |effect| {
            let enable = ServiceChange::EnableSpare;
            matches!(effect, Effect::UpdateService { change, .. } if *change == enable)
        },
        look: None,
        times: 1,
    },
    Step {
        name: "lock",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::VmIntended { what, .. } if what == "lock"),
        effect: |effect| matches!(effect, Effect::Lock { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 2,
    },
    Step {
        name: "evacuate",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::EvacuateIntended { .. }),
        effect: |effect| matches!(effect, Effect::Evacuate { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 2,
    },
    Step {
        name: "reset",
        scenario: "f37",
        intent: |entry| matches!(entry, Entry::VmIntended { what, .. } if what == "reset-state"),
        effect: |effect| matches!(effect, Effect::ResetState { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 1,
    },
    Step {
        name: "stop",
        scenario: "f37",
        intent: |entry| matches!(entry, Entry::VmIntended { what, .. } if what == "stop"),
        effect: |effect| matches!(effect, Effect::Stop { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 1,
    },
    Step {
        name: "start of a moved guest",
        scenario: "p46",
        intent: |entry| matches!(entry, Entry::VmIntended { what, .. } if what == "start"),
        effect: |effect| matches!(effect, Effect::Start { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 2,
    },
    Step {
        name: "unlock",
        scenario: "f14",
        intent: |entry| matches!(entry, Entry::VmIntended { what, .. } if what == "unlock"),
        effect: |effect| matches!(effect, Effect::Unlock { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 2,
    },
    Step {
        name: "restart of a guest that crashed",
        scenario: "f45",
        intent: |entry| matches!(entry, Entry::RestartIntended { .. }),
        effect: |effect| matches!(effect, Effect::RebootHard { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 1,
    },
    Step {
        name: "start of a guest that crashed",
        scenario: "p34",
        intent: |entry| matches!(entry, Entry::RestartIntended { .. }),
        effect: |effect| matches!(effect, Effect::Start { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadServer { .. })),
        times: 1,
    },
    Step {
        name: "release of the fence",
        scenario: "f31",
        intent: |entry| matches!(entry, Entry::FenceReleaseIntended { .. }),
        effect: |effect| matches!(effect, Effect::ReleaseFence { .. }),
        // It has several parts, of which power is the last: who only sees that has not seen the others.
        look: None,
        times: 1,
    },
    Step {
        name: "maintenance given back",
        scenario: "f31",
        intent: |entry| matches!(entry, Entry::RestoreIntended { .. }),
        effect: |effect| matches!(effect, Effect::RestoreMaintenance { .. }),
        look: Some(|effect| matches!(effect, Effect::ReadMaintenance { .. })),
        times: 1,
    },
];

/// What leaders did in one world in which one of them died at a step.
fn acts(step: &Step, done: bool, seed: u64) -> Vec<Act> {
    let options = Options {
        crash: Some(Crash {
            at: step.intent,
            done,
        }),
        ..Options::new(seed)
    };
    let run = run_scenario(step.scenario, options).unwrap();
    let when = if done { "after" } else { "before" };
    let what = format!("{}, {when} it was done, seed {seed}", step.name);
    assert!(run.violation.is_none(), "{what}: {}", run.violation.unwrap());
    let intent = run.journal.iter().find(|record| (step.intent)(&record.entry));
    let term = intent
        .unwrap_or_else(|| panic!("{what}: it was never intended"))
        .epoch
        .0;
    assert!(
        run.journal.iter().any(|record| record.epoch.0 > term),
        "{what}: nobody died"
    );
    run.acts
}

/// The guest or the host that something is done to.
fn target(effect: &Effect) -> String {
    match effect {
        Effect::Evacuate { server, .. }
        | Effect::Lock { server }
        | Effect::Unlock { server }
        | Effect::Start { server }
        | Effect::RebootHard { server }
        | Effect::Stop { server }
        | Effect::ResetState { server }
        | Effect::ReadServer { server } => server.to_string(),
        Effect::Claim { host, .. }
        | Effect::PowerOff { host, .. }
        | Effect::Hold { host, .. }
        | Effect::UpdateService { host, .. }
        | Effect::SetDisabled { host }
        | Effect::ReleaseFence { host, .. }
        | Effect::RestoreMaintenance { host, .. }
        | Effect::ReadMaintenance { host }
        | Effect::ReadPower { host, .. }
        | Effect::ReadService { host } => host.to_string(),
        _ => String::new(),
    }
}

#[test]
fn a_successor_looks_first_and_does_what_was_not_done_once() {
    for step in &STEPS {
        for (done, seed) in [false, true]
            .into_iter()
            .flat_map(|done| (1..9).map(move |seed| (done, seed)))
        {
            let acts = acts(step, done, seed);
            let what = format!("{} (done: {done}, seed {seed})", step.name);
            let effects: Vec<&Act> = acts.iter().filter(|act| (step.effect)(&act.effect)).collect();
            let first = acts.first().unwrap().term;
            if let Some(look) = step.look {
                assert_eq!(effects.len(), step.times, "{what}: once for each: {effects:?}");
                for effect in effects.iter().filter(|act| act.term > first) {
                    let looked = acts.iter().any(|act| {
                        act.term == effect.term
                            && act.at_ms <= effect.at_ms
                            && look(&act.effect)
                            && target(&act.effect) == target(&effect.effect)
                    });
                    assert!(looked, "{what}: done without a look: {effect:?}");
                }
            } else {
                let extra = effects.len().checked_sub(step.times);
                assert!(extra.is_some_and(|extra| extra <= 1), "{what}: {effects:?}");
            }
        }
    }
}

/// Whoever only knows that a guest was to be asked for waits ten seconds for a record of it before it asks again.
#[test]
fn a_guest_that_may_have_been_asked_for_is_waited_for() {
    let step = STEPS.iter().find(|step| step.name == "evacuate").unwrap();
    for seed in 1..17 {
        let acts = acts(step, false, seed);
        let asked: Vec<&Act> = acts.iter().filter(|act| (step.effect)(&act.effect)).collect();
        let later = asked.iter().filter(|act| act.term > acts[0].term);
        let mut waited = Vec::new();
        for again in later {
            let first_look = acts.iter().find(|act| {
                let same = target(&act.effect) == target(&again.effect);
                act.term == again.term && same && matches!(act.effect, Effect::ReadServer { .. })
            });
            waited.push(again.at_ms - first_look.unwrap().at_ms);
        }
        assert!(waited.iter().any(|ms| *ms >= 10_000), "seed {seed}: {waited:?}");
    }
}
