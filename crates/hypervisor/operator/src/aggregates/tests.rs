// SPDX-License-Identifier: Apache-2.0
//! Which aggregates a host is in at each stage, and the calls that get it there.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition::{self, Evicting, Onboarding, TraitsUpdated};
use proptest::prelude::*;

use super::{Change, Listed, Snapshot, applied, changes, desired};
use crate::look::condition;

const HOST: &str = "node1";

fn snapshot(mode: Maintenance, said: &[(HypervisorCondition, &str, &str)]) -> Snapshot {
    Snapshot {
        lifecycle: true,
        compute_host: Some(HOST.to_owned()),
        mode,
        zone: Some("z1".to_owned()),
        spec: ["prod", "z1", "prod"].map(str::to_owned).to_vec(),
        applied: Vec::new(),
        conditions: said
            .iter()
            .map(|(type_, status, reason)| condition(type_, status, reason, ""))
            .collect(),
        test_aggregate: "tests".to_owned(),
    }
}

#[test]
fn each_stage_has_its_aggregates() {
    use Maintenance::{Ha, Manual, Off, Termination};
    let handover = (Onboarding, "True", "Handover");
    let done = (Onboarding, "False", "Succeeded");
    let traits = (TraitsUpdated, "True", "Succeeded");
    let spec: Option<&[&str]> = Some(&["prod", "z1"]);
    let test: Option<&[&str]> = Some(&["z1", "tests"]);
    let none: Option<&[&str]> = Some(&[]);
    let as_is: Option<&[&str]> = None;
    type Row<'a> = (
        Maintenance,
        &'a [(HypervisorCondition, &'a str, &'a str)],
        Option<(&'a str, bool, Option<&'a [&'a str]>)>,
    );
    let table: &[Row<'_>] = &[
        (Off, &[], None),
        (Off, &[(Onboarding, "False", "Aborted")], None),
        (Off, &[(Onboarding, "True", "Aborted")], None),
        (
            Off,
            &[(Onboarding, "True", "Initial")],
            Some(("TestAggregates", false, test)),
        ),
        (
            Off,
            &[(Onboarding, "True", "Testing")],
            Some(("TestAggregates", false, test)),
        ),
        (Off, &[handover], Some(("WaitingForTraits", false, test))),
        (
            Off,
            &[handover, (TraitsUpdated, "False", "Failed")],
            Some(("WaitingForTraits", false, test)),
        ),
        (Off, &[handover, traits], Some(("Succeeded", true, spec))),
        (Off, &[done], Some(("Succeeded", true, spec))),
        (Manual, &[done], Some(("Succeeded", true, spec))),
        (Ha, &[done], Some(("Succeeded", true, spec))),
        (Termination, &[done], Some(("EvictionInProgress", false, as_is))),
        (
            Termination,
            &[done, (Evicting, "True", "Running")],
            Some(("EvictionInProgress", false, as_is)),
        ),
        (
            Termination,
            &[done, (Evicting, "True", "Failed")],
            Some(("EvictionInProgress", false, as_is)),
        ),
        (
            Termination,
            &[done, (Evicting, "False", "Succeeded")],
            Some(("Terminating", false, none)),
        ),
    ];
    for (mode, said, wanted) in table {
        let found = desired(&snapshot(mode.clone(), said));
        let found = found.map(|found| (found.reason.as_str().to_owned(), found.final_, found.names));
        let wanted = wanted.map(|(reason, final_, names)| {
            let names = names.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
            (reason.to_owned(), final_, names)
        });
        assert_eq!(found, wanted, "{mode} {said:?}");
    }
}

#[test]
fn nothing_is_said_about_hosts_that_are_not_ours_to_say() {
    let done = [(Onboarding, "False", "Succeeded")];
    let mut unmanaged = snapshot(Maintenance::Off, &done);
    unmanaged.lifecycle = false;
    assert_eq!(desired(&unmanaged), None);
    let mut unknown = snapshot(Maintenance::Off, &done);
    unknown.compute_host = None;
    assert_eq!(desired(&unknown), None);
    let mut nowhere = snapshot(Maintenance::Off, &[(Onboarding, "True", "Initial")]);
    nowhere.zone = None;
    assert_eq!(desired(&nowhere), None, "there is nothing to test in");
}

fn listed(id: u64, name: &str, zone: Option<&str>, member: bool) -> Listed {
    Listed {
        id,
        name: name.to_owned(),
        uuid: format!("uuid-{id}"),
        hosts: member.then(|| HOST.to_owned()).into_iter().collect(),
        metadata: zone
            .map(|zone| ("availability_zone".to_owned(), zone.to_owned()))
            .into_iter()
            .collect(),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn one_missing_aggregate_stops_every_change() {
    let there = [listed(1, "prod", None, false), listed(2, "old", None, true)];
    let missing = changes(&names(&["prod", "gold", "silver"]), HOST, &there);
    assert_eq!(missing, Err(names(&["gold", "silver"])));
}

#[test]
fn a_host_is_added_before_it_is_removed() {
    let there = [
        listed(1, "tests", None, true),
        listed(2, "z1", Some("z1"), true),
        listed(3, "prod", None, false),
        listed(4, "others", None, false),
    ];
    let calls = changes(&names(&["prod", "z1"]), HOST, &there).unwrap();
    assert_eq!(
        calls,
        [Change::Add(3, "prod".into()), Change::Remove(1, "tests".into())]
    );
    assert_eq!(
        changes(&names(&["tests", "z1"]), HOST, &there),
        Ok(Vec::new()),
        "what holds needs no call"
    );
    assert_eq!(
        changes(&[], HOST, &there).unwrap(),
        [Change::Remove(1, "tests".into()), Change::Remove(2, "z1".into())]
    );
}

#[test]
fn the_old_zone_goes_first_only_while_something_else_restricts_the_host() {
    let there = [
        listed(1, "z1", Some("z1"), true),
        listed(2, "z2", Some("z2"), false),
        listed(3, "tests", None, true),
    ];
    assert_eq!(
        changes(&names(&["z2", "tests"]), HOST, &there).unwrap(),
        [Change::Remove(1, "z1".into()), Change::Add(2, "z2".into())],
        "nova refuses a host in two zones"
    );
    assert_eq!(
        changes(&names(&["z2"]), HOST, &there[..2]).unwrap(),
        [Change::Add(2, "z2".into()), Change::Remove(1, "z1".into())],
        "never without an aggregate"
    );
}

#[test]
fn the_status_names_what_nova_says_of_them() {
    let mut gold = listed(7, "gold", None, true);
    gold.metadata.insert("filter_tenant_id".into(), "p".into());
    let found = applied(&names(&["gold", "gone"]), &[gold]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].name.as_str(), found[0].uuid.as_str()),
        ("gold", "uuid-7")
    );
    assert_eq!(found[0].metadata["filter_tenant_id"], "p");
}

proptest! {
    /// Carried out in order, the calls lead exactly to what is wanted, and the host is never in no
    /// aggregate at all on the way from one set to another.
    #[test]
    fn the_calls_lead_there(
        member in prop::collection::vec(any::<bool>(), 6),
        wanted in prop::collection::btree_set(0usize..6, 0..6),
    ) {
        let all = ["a", "b", "c", "d", "z1", "z2"];
        let there: Vec<Listed> = (0u64..).zip(all).zip(&member).map(|((id, name), member)| {
            listed(id, name, name.starts_with('z').then_some(name), *member)
        }).collect();
        let wanted: Vec<String> = wanted.iter().map(|index| all[*index].to_owned()).collect();
        let mut hosts: BTreeSet<String> = there.iter().filter(|one| one.hosts.contains(HOST)).map(|one| one.name.clone()).collect();
        let (began_in_some, ends_in_some) = (!hosts.is_empty(), !wanted.is_empty());
        let by_id: BTreeMap<u64, &str> = there.iter().map(|one| (one.id, one.name.as_str())).collect();
        for call in changes(&wanted, HOST, &there).unwrap() {
            match call {
                Change::Add(id, name) => {
                    prop_assert_eq!(by_id[&id], name.as_str());
                    prop_assert!(hosts.insert(name));
                }
                Change::Remove(_, name) => prop_assert!(hosts.remove(&name)),
            }
            prop_assert!(!(began_in_some && ends_in_some && hosts.is_empty()));
        }
        prop_assert_eq!(hosts, wanted.into_iter().collect::<BTreeSet<_>>());
    }
}
