// SPDX-License-Identifier: Apache-2.0
//! The simulator notices: each deliberate mistake in the engine is caught within a bounded number
//! of seeds or by a row of the failure matrix, and by a promise that names it.
//!
//! The list of mutants in docs/ha-engine.md is what this prints with `--nocapture`.

use cobaltcore_ha_engine::{Engine, Mutation};
use cobaltcore_ha_simulation::{Options, Violation, run_scenario, run_seed, scenarios};

/// Seeds tried before the rows of the failure matrix.
const SEEDS: u64 = 150;
/// Seeds tried after those: worlds that betray mistakes which few worlds betray.
const RARE: [u64; 2] = [175, 1359];

/// One function per mutation, because a run takes a plain function.
macro_rules! breakers {
    ($($mutation:ident),+ $(,)?) => {
        vec![$((Mutation::$mutation, {
            fn prepare(engine: &mut Engine) {
                engine.break_on_purpose(Mutation::$mutation);
            }
            prepare as fn(&mut Engine)
        })),+]
    };
}

/// A mutation and what it does to an engine.
type Mutant = (Mutation, fn(&mut Engine));

fn all() -> Vec<Mutant> {
    breakers![
        SkipFenceVerification,
        AcceptStalePower,
        TrustOneSignal,
        IgnoreAliveVeto,
        MissingIsDead,
        TrustSenderClock,
        NoJournalBeforeEvacuate,
        IgnoreForcedDownFailure,
        IgnoreFenceLoss,
        NoHoldCheck,
        NoStormBrake,
        NoInFlightLimit,
        IgnoreLease,
        IgnoreSelfIsolation,
        NoWarmUp,
        IgnorePause,
        IgnoreMaintenance,
        SkipIdentityCheck,
        ResendBlindly,
        IgnoreGuestElsewhere,
        RebuildLocalDisks,
        StartStopped,
        ReleaseEarly,
        ConditionBeforeClaim,
        InvestigateLate,
        NoSnapshot,
        IgnoreHaDisabled,
        IgnoreOwnHost,
        IgnoreCapacity,
        NoJournalBeforeFence,
        HoldSilently,
        ReleaseSilently,
        IgnoreUnheld,
    ]
}

/// What a mutant breaks and the sound engine does not.
fn caught(
    play: impl Fn(Option<fn(&mut Engine)>) -> Option<Violation>,
    prepare: fn(&mut Engine),
) -> Option<Violation> {
    let violation = play(Some(prepare))?;
    assert_eq!(play(None), None, "the sound engine keeps its promises there");
    Some(violation)
}

/// Who caught it: the promise, and after how many seeds or in which row.
fn hunt(prepare: fn(&mut Engine)) -> Option<(Violation, String)> {
    for seed in (0..SEEDS).chain(RARE) {
        let play = |prepare| {
            run_seed(Options {
                prepare,
                ..Options::new(seed)
            })
            .violation
        };
        if let Some(violation) = caught(play, prepare) {
            return Some((violation, format!("seed {seed}")));
        }
    }
    for row in scenarios() {
        // Rows about leaders depend on the moment.
        let moments = if row.name.starts_with("f54") { 30 } else { 1 };
        for seed in 7..7 + moments {
            let play = |prepare| {
                run_scenario(
                    row.name,
                    Options {
                        prepare,
                        ..Options::new(seed)
                    },
                )
                .and_then(|run| run.violation)
            };
            if let Some(violation) = caught(play, prepare) {
                return Some((violation, row.name.to_owned()));
            }
        }
    }
    None
}

#[test]
fn every_mutant_is_caught() {
    let mutants = all();
    assert_eq!(
        mutants.len(),
        Mutation::ALL.len(),
        "every mutation has its hunter"
    );
    let mut survivors = Vec::new();
    for (mutation, prepare) in mutants {
        match hunt(prepare) {
            Some((violation, place)) => {
                println!(
                    "| {mutation:?} | {} | {place} | {} |",
                    violation.invariant.id(),
                    violation.what
                );
            }
            None => survivors.push(mutation),
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}
