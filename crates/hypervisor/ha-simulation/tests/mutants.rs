// SPDX-License-Identifier: Apache-2.0
//! The simulator notices: each deliberate mistake in the engine is caught within a bounded number
//! of seeds or by a row of the failure matrix, and by a promise that names it.
//!
//! The list of mutants in docs/ha-engine.md is what this prints with `--nocapture`.

use cobaltcore_ha_engine::{Engine, Mutation};
use cobaltcore_ha_simulation::{
    Mistake, Options, Run, Violation, run_scenario, run_seed, scenarios, smallest,
};

/// Seeds tried before the rows of the failure matrix.
const SEEDS: u64 = 150;
/// Seeds tried after those: worlds that betray mistakes which few worlds betray.
const RARE: [u64; 3] = [281, 299, 1359];

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
        StartUnfenced,
        NoDomainCooldown,
        IgnoreGroups,
        IgnoreGuestPause,
        LetGoAfterwards,
        CallEverySpare,
        AskForNoLists,
        TrustOldSignature,
        PowerIsRelease,
        ForgetStorm,
        ForgetOldWishes,
        FinishOldFence,
        HeedOldBoots,
        TrustOldPlans,
        TrustOldFence,
        TrustOldWatchdog,
        IgnoreCompany,
        AgeAnswersByAsking,
        ResendEarly,
        TrustOldIdentity,
    ]
}

/// How a run is broken.
#[derive(Clone, Copy, Default)]
struct Breakage {
    prepare: Option<fn(&mut Engine)>,
    mistake: Option<Mistake>,
}

impl Breakage {
    fn options(self, seed: u64) -> Options {
        Options {
            prepare: self.prepare,
            mistake: self.mistake,
            ..Options::new(seed)
        }
    }
}

/// What a mutant breaks and the sound plane does not.
fn caught(play: impl Fn(Breakage) -> Option<Violation>, broken: Breakage) -> Option<Violation> {
    let violation = play(broken)?;
    let sound = play(Breakage::default());
    assert_eq!(sound, None, "the sound plane keeps its promises there");
    Some(violation)
}

/// Who caught it: the promise, and after how many seeds or in which row.
fn hunt(broken: Breakage) -> Option<(Violation, String)> {
    for seed in (0..SEEDS).chain(RARE) {
        let play = |broken: Breakage| run_seed(broken.options(seed)).violation;
        if let Some(violation) = caught(play, broken) {
            return Some((violation, format!("seed {seed}")));
        }
    }
    for row in scenarios() {
        // Rows about leaders depend on the moment.
        let about_leaders = ["f54", "p48"].iter().any(|name| row.name.starts_with(name));
        let moments = if about_leaders { 30 } else { 1 };
        for seed in 7..7 + moments {
            let play =
                |broken: Breakage| run_scenario(row.name, broken.options(seed)).and_then(|run| run.violation);
            if let Some(violation) = caught(play, broken) {
                return Some((violation, row.name.to_owned()));
            }
        }
    }
    None
}

/// Says who caught it; whether anybody did.
fn told(name: &str, broken: Breakage) -> bool {
    let found = hunt(broken);
    if let Some((violation, place)) = &found {
        println!(
            "| {name} | {} | {place} | {} |",
            violation.invariant.id(),
            violation.what
        );
    }
    found.is_some()
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
        let broken = Breakage {
            prepare: Some(prepare),
            ..Breakage::default()
        };
        if !told(&format!("{mutation:?}"), broken) {
            survivors.push(mutation);
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

/// Agents and services that lose records, double them or let them wait.
#[test]
fn every_mistake_with_records_is_caught() {
    let broken = |mistake| Breakage {
        mistake: Some(mistake),
        ..Breakage::default()
    };
    let survivors: Vec<Mistake> = Mistake::ALL
        .into_iter()
        .filter(|mistake| !told(&format!("{mistake:?}"), broken(*mistake)))
        .collect();
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

/// What is left of a world that was made smaller breaks the same promise, and all of it is needed.
#[test]
fn a_failing_world_is_made_smaller_until_all_of_it_is_needed() {
    let broken = Breakage {
        prepare: Some(|engine| engine.break_on_purpose(Mutation::ResendBlindly)),
        ..Breakage::default()
    };
    let (seed, whole) = (0..SEEDS)
        .map(|seed| (seed, run_seed(broken.options(seed))))
        .find(|(_, run)| run.violation.is_some())
        .unwrap();
    let promise = |run: &Run| run.violation.as_ref().map(|violation| violation.invariant);
    let found = smallest(&broken.options(seed)).unwrap();
    assert_eq!(promise(&found.run), promise(&whole));
    assert_eq!(found.of, whole.planned.len());
    assert!(
        !found.needs.is_empty() && found.needs.len() < found.of,
        "{} of {}",
        found.needs.len(),
        found.of
    );
    assert!(!found.run.trace.is_empty(), "it has a story");
    let left_out = |needed: &[&String]| -> Vec<usize> {
        let planned = whole.planned.iter().enumerate();
        planned
            .filter(|(_, what)| !needed.contains(what))
            .map(|(n, _)| n)
            .collect()
    };
    for spared in &found.needs {
        let fewer: Vec<&String> = found.needs.iter().filter(|what| *what != spared).collect();
        let run = run_seed(Options {
            without: left_out(&fewer),
            ..broken.options(seed)
        });
        assert_ne!(promise(&run), promise(&whole), "{spared} is not needed");
    }
    assert!(
        smallest(&Options::new(seed)).is_none(),
        "the sound engine breaks nothing there"
    );
}
