// SPDX-License-Identifier: Apache-2.0
//! What is cheap finds what is dear would find: a step is checked by what it touched, and hosts that are well are not
//! judged again, yet a look at everything after every step and every second comes to the same.

#![allow(clippy::unwrap_used)]

use cobaltcore_ha_engine::Engine;
use cobaltcore_ha_simulation::{Day, Options, run_day, run_scenario, run_seed, scenarios};

fn judges_everybody(engine: &mut Engine) {
    engine.judge_everybody();
}

#[test]
fn a_step_is_checked_by_what_it_touched() {
    for seed in 0..6 {
        let run = run_seed(Options {
            audit: true,
            ..Options::new(seed)
        });
        assert_eq!(run.violation, None, "seed {seed}");
    }
    let mut day = Day::new(3, 20);
    (day.guests_per_host, day.hours, day.options.audit) = (4, 2, true);
    assert_eq!(run_day(&day, |_| {}).violation, None);
}

/// The same story to the last word, evidence and ages in the journal included.
#[test]
fn whoever_is_well_need_not_be_judged_again() {
    let told = |prepare| {
        move |seed| Options {
            trace: true,
            prepare,
            ..Options::new(seed)
        }
    };
    let (thrifty, thorough) = (told(None), told(Some(judges_everybody as fn(&mut Engine))));
    for seed in 0..150 {
        let (one, other) = (run_seed(thrifty(seed)), run_seed(thorough(seed)));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.journal, other.journal, "seed {seed}");
    }
    for row in scenarios() {
        let (one, other) = (
            run_scenario(row.name, thrifty(7)).unwrap(),
            run_scenario(row.name, thorough(7)).unwrap(),
        );
        assert_eq!(one.trace, other.trace, "{}", row.name);
    }
}
