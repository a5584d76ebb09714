// SPDX-License-Identifier: Apache-2.0
//! Holds the definitions to the contract of the running system. The contract is kept here as
//! bare facts (one line per field, no prose); where the reference definitions are at hand the
//! facts are checked against them too. `UPDATE=1` rewrites facts and generated manifests.

mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cobaltcore_api::crd::differences::{Change, DIFFERENCES};
use cobaltcore_api::crd::document;
use cobaltcore_api::{Eviction, HaIncident, Hypervisor, HypervisorSpec, Migration, crds};
use facts::{Facts, facts_of};
use serde_json::{Value, json};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The definition that the running system does not have.
const ONLY_OURS: &str = "haincidents.kvm.cloud.sap";

fn updating() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// The reference definitions by name, if they are on this machine.
fn reference() -> Option<BTreeMap<String, Value>> {
    let root = std::env::var_os("COBALTCORE_REFERENCE_CRDS")
        .map_or_else(|| workspace().join("../shared/reference/crds"), PathBuf::from);
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("kvm.cloud.sap")).ok()? {
        let text = std::fs::read_to_string(entry.ok()?.path()).ok()?;
        let crd: Value = serde_saphyr::from_str(&text).expect("the reference is YAML");
        found.insert(crd["metadata"]["name"].as_str().expect("a name").to_owned(), crd);
    }
    Some(found)
}

fn ours() -> BTreeMap<String, Value> {
    crds()
        .iter()
        .map(|crd| {
            (
                crd.metadata.name.clone().expect("a name"),
                serde_json::to_value(crd).expect("serialises"),
            )
        })
        .collect()
}

fn facts_file(crd: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/facts")
        .join(format!("{crd}.facts"))
}

fn recorded(crd: &str) -> Facts {
    Facts::parse(&std::fs::read_to_string(facts_file(crd)).expect("the facts are part of the project"))
}

#[test]
fn the_recorded_facts_are_those_of_the_reference() {
    let Some(reference) = reference() else { return };
    assert_eq!(reference.len(), 3);
    for (name, crd) in &reference {
        let facts = facts_of(crd);
        if updating() {
            std::fs::write(facts_file(name), facts.render()).expect("facts can be written");
        }
        assert_eq!(recorded(name), facts, "{name}");
    }
}

#[test]
fn every_fact_of_the_contract_holds() {
    let mut used = BTreeSet::new();
    for (name, crd) in ours() {
        if name == ONLY_OURS {
            continue;
        }
        let have = facts_of(&crd);
        for (path, fact) in &recorded(&name).schema {
            let mut expected = fact.clone();
            if let Some(index) = difference(&name, Change::NotRequired, path) {
                assert_eq!(
                    expected["required"],
                    json!(true),
                    "{name} {path} was never required"
                );
                expected.as_object_mut().expect("a fact").remove("required");
                used.insert(index);
            }
            assert_eq!(have.schema.get(path), Some(&expected), "{name} {path}");
        }
        for (what, fact) in &recorded(&name).general {
            let mut got = have.general.get(what).cloned().unwrap_or_default();
            if what == "shortNames" {
                used.extend(take_listed(&mut got, |short| {
                    difference(&name, Change::ShortName, short)
                }));
                if got == json!([]) {
                    got = Value::Null;
                }
            }
            assert_eq!(&got, fact, "{name} {what}");
        }
        let mut columns = have.columns.clone();
        columns.retain(|column| {
            let index = difference(&name, Change::Column, column["name"].as_str().unwrap_or_default());
            used.extend(index);
            index.is_none()
        });
        let mut expected = recorded(&name).columns;
        for column in &mut expected {
            let title = column["name"].as_str().unwrap_or_default().to_owned();
            if let Some(index) = difference(&name, Change::ShownColumn, &title) {
                let hidden = column
                    .as_object_mut()
                    .and_then(|column| column.remove("priority"));
                assert!(hidden.is_some(), "{name} {title} was never hidden");
                used.insert(index);
            }
        }
        assert_eq!(columns, expected, "{name}");
        used.extend(check_additions(&name, &have));
    }
    let stale: Vec<_> = (0..DIFFERENCES.len())
        .filter(|index| !used.contains(index))
        .map(|i| DIFFERENCES[i].what)
        .collect();
    assert!(stale.is_empty(), "documented but not there: {stale:?}");
}

/// Every field beyond the contract is documented and may be left out.
fn check_additions(name: &str, have: &Facts) -> BTreeSet<usize> {
    let contract = recorded(name).schema;
    let mut used = BTreeSet::new();
    for (path, fact) in have
        .schema
        .iter()
        .filter(|(path, _)| !contract.contains_key(*path))
    {
        let covering = DIFFERENCES.iter().position(|d| {
            let below = path
                .strip_prefix(d.what)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']));
            d.crd == name && d.change == Change::Field && below
        });
        let index = covering.unwrap_or_else(|| panic!("{name} {path} is not documented as an addition"));
        if DIFFERENCES[index].what == path {
            assert_eq!(fact.get("required"), None, "{name} {path} must be optional");
            assert_eq!(
                fact.get("default"),
                None,
                "{name} {path} must not appear in objects that never named it"
            );
            used.insert(index);
        }
    }
    used
}

fn difference(crd: &str, change: Change, what: &str) -> Option<usize> {
    DIFFERENCES
        .iter()
        .position(|d| d.crd == crd && d.change == change && d.what == what)
}

/// Removes the texts of `list` that `find` knows and returns what it found.
fn take_listed(list: &mut Value, find: impl Fn(&str) -> Option<usize>) -> Vec<usize> {
    let mut found = Vec::new();
    if let Some(items) = list.as_array_mut() {
        items.retain(|item| match find(item.as_str().unwrap_or_default()) {
            Some(index) => {
                found.push(index);
                false
            }
            None => true,
        });
    }
    found
}

#[test]
fn descriptions_are_our_own_words() {
    let Some(reference) = reference() else { return };
    let theirs: BTreeSet<String> = reference.values().flat_map(facts::descriptions).collect();
    for (name, crd) in ours() {
        for text in facts::descriptions(&crd) {
            assert!(!theirs.contains(&text), "{name}: {text:?} is copied");
        }
    }
}

#[test]
fn every_field_of_the_schema_survives_a_round_trip_through_the_types() {
    for (name, crd) in ours() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut sample = facts::sample(schema);
        sample["metadata"] = json!({"name": "node001-bb086"});
        let again = match name.split('.').next() {
            Some("hypervisors") => round_trip::<Hypervisor>(&mut sample, "kvm.cloud.sap/v1", "Hypervisor"),
            Some("evictions") => round_trip::<Eviction>(&mut sample, "kvm.cloud.sap/v1", "Eviction"),
            Some("migrations") => round_trip::<Migration>(&mut sample, "kvm.cloud.sap/v1alpha1", "Migration"),
            Some("haincidents") => {
                round_trip::<HaIncident>(&mut sample, "kvm.cloud.sap/v1alpha1", "HaIncident")
            }
            other => panic!("no type for {other:?}"),
        };
        assert_eq!(again, sample, "{name}");
    }
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(
    sample: &mut Value,
    version: &str,
    kind: &str,
) -> Value {
    sample["apiVersion"] = version.into();
    sample["kind"] = kind.into();
    let typed: T = serde_json::from_value(sample.clone()).expect("the type reads what the schema allows");
    serde_json::to_value(typed).expect("serialises")
}

#[test]
fn the_defaults_of_the_type_are_those_of_the_schema() {
    let crd = &ours()["hypervisors.kvm.cloud.sap"];
    let fields =
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone();
    let defaults: BTreeMap<_, _> = fields
        .as_object()
        .expect("an object")
        .iter()
        .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
        .collect();
    assert_eq!(
        serde_json::to_value(HypervisorSpec::default()).expect("serialises"),
        json!(defaults)
    );
    let read: HypervisorSpec = serde_json::from_value(json!({})).expect("every field has a default");
    assert_eq!(read, HypervisorSpec::default());
}

#[test]
fn the_generated_manifests_are_current() {
    let folder = workspace().join("deploy/crds");
    let mut expected = BTreeSet::new();
    for crd in crds() {
        let file = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let path = folder.join(&file);
        let text = format!(
            "# SPDX-License-Identifier: Apache-2.0\n# Generated by `cobaltcore crds`; do not edit.\n{}",
            document(&crd)
        );
        if updating() {
            std::fs::write(&path, &text).expect("manifests can be written");
        }
        let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            on_disk, text,
            "{file} is stale; run the tests of cobaltcore-api with UPDATE=1"
        );
        let read: Value = serde_saphyr::from_str(&on_disk).expect("YAML");
        assert_eq!(
            facts_of(&read),
            facts_of(&serde_json::to_value(&crd).expect("serialises")),
            "{file}"
        );
        expected.insert(file);
    }
    let present: BTreeSet<String> = std::fs::read_dir(&folder)
        .expect("deploy/crds")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.contains('_'))
        .collect();
    assert_eq!(present, expected, "a manifest without a definition");
}

#[test]
fn a_table_of_hypervisors_shows_what_the_documents_show() {
    let crd = &ours()["hypervisors.kvm.cloud.sap"];
    let columns = facts_of(crd).columns;
    let names: Vec<_> = columns
        .iter()
        .filter(|column| column.get("priority").is_none())
        .filter_map(|c| c["name"].as_str())
        .map(str::to_uppercase)
        .collect();
    let wanted = ["NODE", "VERSION", "INSTANCES", "HARDWARE", "KERNEL", "AGE"];
    let shown: Vec<_> = names
        .iter()
        .filter(|name| wanted.contains(&name.as_str()))
        .collect();
    assert_eq!(shown, wanted, "in this order");
}
