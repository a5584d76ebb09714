// SPDX-License-Identifier: Apache-2.0
//! Which host aggregates a host belongs to, and the calls that make it so. Traits come before
//! production aggregates, because aggregates open a host to tenants and traits restrict what
//! they may place; a host is added before it is removed, so that it is never without the
//! aggregate that restricts it.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::{AggregatesUpdatedReason, OnboardingReason};
use cobaltcore_api::{Aggregate, Maintenance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::look::{Says, reason, says};

/// An aggregate as Nova lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The hosts in it.
    pub hosts: BTreeSet<String>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

impl Listed {
    fn zone(&self) -> Option<&str> {
        self.metadata.get("availability_zone").map(String::as_str)
    }
}

/// What is known of the host.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whether the host is managed at all.
    pub lifecycle: bool,
    /// The name Nova knows it by; absent before it is registered.
    pub compute_host: Option<String>,
    /// The mode.
    pub mode: Maintenance,
    /// Its zone.
    pub zone: Option<String>,
    /// The aggregates it shall be in.
    pub spec: Vec<String>,
    /// The aggregates last applied.
    pub applied: Vec<Aggregate>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The aggregate only tests may use.
    pub test_aggregate: String,
}

/// What the host shall be in, and what is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Names, without repetition; nothing means as they are.
    pub names: Option<Vec<String>>,
    /// Whether these are the aggregates of the spec.
    pub final_: bool,
    /// The reason of the condition.
    pub reason: AggregatesUpdatedReason,
    /// The message of the condition.
    pub message: &'static str,
}

/// What the host shall be in; nothing if it is not ours to say now.
pub fn desired(snapshot: &Snapshot) -> Option<Desired> {
    if !snapshot.lifecycle || snapshot.compute_host.is_none() {
        return None;
    }
    let conditions = &snapshot.conditions;
    let of = |names, final_, reason, message| {
        Some(Desired {
            names,
            final_,
            reason,
            message,
        })
    };
    if snapshot.mode == Maintenance::Termination {
        return if says(conditions, HypervisorCondition::Evicting) == Says::No {
            of(
                Some(Vec::new()),
                false,
                AggregatesUpdatedReason::Terminating,
                "Aggregates cleared due to termination after eviction",
            )
        } else {
            of(
                None,
                false,
                AggregatesUpdatedReason::EvictionInProgress,
                "Aggregates unchanged while terminating and eviction in progress",
            )
        };
    }
    let test = || {
        let zone = snapshot.zone.iter().cloned();
        Some(unique(zone.chain([snapshot.test_aggregate.clone()])))
    };
    let onboarding = says(conditions, HypervisorCondition::Onboarding);
    let stage = OnboardingReason::parse(reason(conditions, HypervisorCondition::Onboarding));
    let traits = says(conditions, HypervisorCondition::TraitsUpdated) == Says::Yes;
    match (onboarding, stage) {
        (Says::Yes, Some(OnboardingReason::Initial | OnboardingReason::Testing)) => {
            // Without a zone there is nothing to test in; onboarding says so.
            snapshot.zone.as_ref()?;
            of(
                test(),
                false,
                AggregatesUpdatedReason::TestAggregates,
                "Test aggregate applied during onboarding instead of spec aggregates",
            )
        }
        (Says::Yes, Some(OnboardingReason::Handover)) if !traits => of(
            test(),
            false,
            AggregatesUpdatedReason::WaitingForTraits,
            "Waiting for traits to be applied before switching to spec aggregates",
        ),
        (Says::Yes, Some(OnboardingReason::Handover)) | (Says::No, Some(OnboardingReason::Succeeded)) => of(
            Some(unique(snapshot.spec.iter().cloned())),
            true,
            AggregatesUpdatedReason::Succeeded,
            "Aggregates from spec applied successfully",
        ),
        // Not onboarded, or aborted: tenants stay out, and what is there stays.
        _ => None,
    }
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names
        .filter(|name| !name.is_empty() && seen.insert(name.clone()))
        .collect()
}

/// One call to Nova.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put the host into the aggregate with this number and name.
    Add(u64, String),
    /// Take the host out of it.
    Remove(u64, String),
}

/// The calls that make `names` true, or the names that Nova does not have.
pub fn changes(names: &[String], host: &str, listed: &[Listed]) -> Result<Vec<Change>, Vec<String>> {
    let by_name: BTreeMap<&str, &Listed> = listed.iter().map(|one| (one.name.as_str(), one)).collect();
    let missing: Vec<String> = names
        .iter()
        .filter(|name| !by_name.contains_key(name.as_str()))
        .cloned()
        .collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let is_member = |one: &&Listed| one.hosts.contains(host);
    let add = |one: &&Listed| Change::Add(one.id, one.name.clone());
    let remove = |one: &&Listed| Change::Remove(one.id, one.name.clone());
    let mut adds: Vec<&Listed> = listed
        .iter()
        .filter(|one| wanted.contains(one.name.as_str()) && !is_member(one))
        .collect();
    let removes: Vec<&Listed> = listed
        .iter()
        .filter(|one| is_member(one) && !wanted.contains(one.name.as_str()))
        .collect();
    // Nova refuses a host in two zones. The old zone goes first, but only while something else
    // restricts who may use the host.
    adds.sort_by_key(|one| one.zone().is_some());
    let new_zone = adds.iter().find_map(|one| one.zone());
    let clashes = |one: &&&Listed| new_zone.is_some() && one.zone().is_some() && one.zone() != new_zone;
    let restricted = listed
        .iter()
        .any(|one| one.zone().is_none() && wanted.contains(one.name.as_str()));
    let early: Vec<&Listed> = removes
        .iter()
        .filter(|one| restricted && clashes(one))
        .copied()
        .collect();
    let late = removes.iter().filter(|one| !(restricted && clashes(one)));
    let (plain, zones): (Vec<&Listed>, Vec<&Listed>) = adds.into_iter().partition(|one| one.zone().is_none());
    Ok(plain
        .iter()
        .map(add)
        .chain(early.iter().map(remove))
        .chain(zones.iter().map(add))
        .chain(late.map(remove))
        .collect())
}

/// What the status says about the aggregates `names`, in that order.
pub fn applied(names: &[String], listed: &[Listed]) -> Vec<Aggregate> {
    let find = |name: &String| listed.iter().find(|one| one.name == *name);
    names
        .iter()
        .filter_map(find)
        .map(|one| Aggregate {
            name: one.name.clone(),
            uuid: one.uuid.clone(),
            metadata: one.metadata.clone(),
        })
        .collect()
}
