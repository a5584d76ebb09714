// SPDX-License-Identifier: Apache-2.0
//! Which traits come and go, by table and for any lists at all.

use std::collections::BTreeSet;

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition;
use proptest::prelude::*;

use super::{Target, due, invalid, target, unproven};
use crate::look::condition;

fn names(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn traits_are_looked_after_from_the_handover_on() {
    let stage = |status, reason| vec![condition(HypervisorCondition::Onboarding, status, reason, "")];
    let table = [
        (vec![], false),
        (stage("True", "Initial"), false),
        (stage("True", "Testing"), false),
        (stage("True", "Handover"), true),
        (stage("True", "Aborted"), false),
        (stage("False", "Succeeded"), true),
        (stage("False", "Aborted"), false),
        (stage("Unknown", "Succeeded"), false),
    ];
    for (conditions, wanted) in table {
        let of = |lifecycle, registered, mode| due(lifecycle, registered, &mode, &conditions);
        assert_eq!(of(true, true, Maintenance::Off), wanted, "{conditions:?}");
        assert_eq!(of(true, true, Maintenance::Manual), wanted, "{conditions:?}");
        assert!(!of(false, true, Maintenance::Off), "not managed");
        assert!(!of(true, false, Maintenance::Off), "not registered");
        assert!(!of(true, true, Maintenance::Termination), "on its way out");
    }
}

#[test]
fn names_that_no_provider_holds_are_told() {
    let standard = BTreeSet::from(["HW_CPU_X86_AVX2".to_owned()]);
    let long = format!("CUSTOM_{}", "A".repeat(249));
    let table = [
        ("CUSTOM_GOLD", true),
        ("CUSTOM_A_1", true),
        ("HW_CPU_X86_AVX2", true),
        ("HW_NOTHING", false),
        ("CUSTOM_", false),
        ("CUSTOM_gold", false),
        ("CUSTOM_Ä", false),
        ("gold", false),
        ("", false),
        (long.as_str(), false),
        (&long[..255], true),
    ];
    for (name, fits) in table {
        assert_eq!(invalid(&[name.to_owned()], &standard).is_empty(), fits, "{name}");
    }
    assert_eq!(unproven(&names("CUSTOM_A HW_B")), ["HW_B"]);
}

#[test]
fn only_what_was_put_there_is_taken_away() {
    // wanted, ours, there -> all, ours then, whether Placement is told
    let table = [
        ("", "", "", "", "", false),
        ("", "", "CUSTOM_F HW_A", "CUSTOM_F HW_A", "", false),
        (
            "CUSTOM_B CUSTOM_A",
            "",
            "",
            "CUSTOM_A CUSTOM_B",
            "CUSTOM_A CUSTOM_B",
            true,
        ),
        ("CUSTOM_A", "CUSTOM_A", "CUSTOM_A", "CUSTOM_A", "CUSTOM_A", false),
        (
            "CUSTOM_A",
            "CUSTOM_A",
            "CUSTOM_F",
            "CUSTOM_A CUSTOM_F",
            "CUSTOM_A",
            true,
        ),
        ("", "CUSTOM_A", "CUSTOM_A CUSTOM_F", "CUSTOM_F", "", true),
        ("", "CUSTOM_A", "CUSTOM_F", "CUSTOM_F", "", false),
        ("CUSTOM_F", "", "CUSTOM_F", "CUSTOM_F", "", false),
        ("", "HW_A", "HW_A HW_B", "HW_B", "", true),
    ];
    for (wanted, ours, there, all, ours_then, changed) in table {
        let found = target(&names(wanted), &names(ours), &names(there));
        let case = format!("wanted {wanted:?}, ours {ours:?}, there {there:?}");
        assert_eq!(found.all, names(all), "{case}");
        assert_eq!(found.managed, names(ours_then), "{case}");
        assert_eq!(found.changed, changed, "{case}");
    }
    let found = target(&names("CUSTOM_A HW_A"), &[], &names("CUSTOM_F"));
    assert_eq!(
        found.create,
        ["CUSTOM_A"],
        "standard traits are Placement's to make"
    );
}

fn some() -> impl Strategy<Value = Vec<String>> {
    let names = prop::sample::select(vec!["CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "HW_A", "HW_B"]);
    prop::collection::vec(names.prop_map(str::to_owned), 0..6)
}

proptest! {
    #[test]
    fn whatever_the_lists_are(wanted in some(), ours in some(), there in some()) {
        let Target { all, managed, changed, create } = target(&wanted, &ours, &there);
        let (had, will) = (set(&there), set(&all));
        prop_assert!(set(&wanted).is_subset(&will), "what is wanted is there");
        prop_assert!(had.difference(&will).all(|gone| ours.contains(gone) && !wanted.contains(gone)));
        prop_assert!(will.difference(&had).all(|new| wanted.contains(new)));
        prop_assert!(managed.iter().all(|own| wanted.contains(own)));
        prop_assert!(create.iter().all(|new| !had.contains(new) && new.starts_with("CUSTOM_")));
        prop_assert_eq!(changed, had != will);
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(&all, &sorted);
        // Done once, there is nothing left to do, in whatever order the spec names them.
        let mut turned = wanted.clone();
        turned.reverse();
        let again = target(&turned, &managed, &all);
        prop_assert!(!again.changed);
        prop_assert_eq!(again.managed, managed);
    }
}

fn set(names: &[String]) -> BTreeSet<String> {
    names.iter().cloned().collect()
}
