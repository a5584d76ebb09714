// SPDX-License-Identifier: Apache-2.0
//! Status of PodDisruptionBudgets: how many pods there should be, how many are healthy, and how many
//! may go. A pure function of the budget, the pods of its namespace and the scale of their owners.

use std::collections::BTreeMap;

use cobaltcore_text::go;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::json::{at, ensure, entries, flag, list, map, number, text};
use crate::pods::is_ready;
use crate::selector::selector_matches;
use crate::times::{Precision, parse_time, render};

/// How long an eviction may take before its pod counts again.
const EVICTION_GRACE: SignedDuration = SignedDuration::from_mins(2);

/// The controller that owns a pod, as its owner reference names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// apiVersion of the reference.
    pub api_version: String,
    /// Kind of the reference.
    pub kind: String,
    /// Name of the reference.
    pub name: String,
    /// uid of the reference.
    pub uid: String,
}

/// Computes the status of a budget. `pods` are the pods of its namespace; `scale_lookup` answers how
/// many replicas an owner wants (the caller follows ReplicaSets to their Deployment), or nothing when
/// it cannot be found.
pub fn pdb_status(
    budget: &Value,
    pods: &[Value],
    now: Timestamp,
    scale_lookup: impl Fn(&Owner) -> Option<i64>,
) -> Value {
    let matching: Vec<&Value> = pods
        .iter()
        .filter(|pod| selector_matches(at(budget, "spec.selector"), map(pod, "metadata.labels")))
        .collect();
    let disrupted = still_disrupted(budget, &matching, now);
    let (expected, desired) = match expectation(budget, &matching, &scale_lookup) {
        Ok(pair) => pair,
        Err(problem) => return failed(budget, &problem, now),
    };
    let healthy = matching.iter().filter(|pod| counts(pod, &disrupted)).count() as i64;
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let mut result = budget.clone();
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    });
    let fields = ensure(&mut status, "");
    let generation = number(budget, "metadata.generation");
    if generation != 0 {
        fields.insert("observedGeneration".to_owned(), json!(generation));
    }
    if !disrupted.is_empty() {
        fields.insert("disruptedPods".to_owned(), Value::Object(disrupted));
    }
    if let Some(conditions) = at(budget, "status.conditions").cloned() {
        fields.insert("conditions".to_owned(), conditions);
    }
    ensure(&mut result, "").insert("status".to_owned(), status);
    set_disruption_condition(&mut result, allowed, now);
    at(&result, "status").cloned().unwrap_or_default()
}

/// A pod is healthy when it is ready, not being deleted and not already promised away.
fn counts(pod: &Value, disrupted: &Map<String, Value>) -> bool {
    at(pod, "metadata.deletionTimestamp").is_none()
        && !disrupted.contains_key(text(pod, "metadata.name"))
        && is_ready(pod)
}

/// Evicted pods that have not disappeared yet; after two minutes the eviction is taken for failed.
fn still_disrupted(budget: &Value, pods: &[&Value], now: Timestamp) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, time) in entries(budget, "status.disruptedPods") {
        let pod = pods.iter().find(|pod| text(pod, "metadata.name") == name);
        let alive = pod.is_some_and(|pod| at(pod, "metadata.deletionTimestamp").is_none());
        let since = time.as_str().and_then(parse_time);
        let fresh = since.is_some_and(|since| now.duration_since(since) < EVICTION_GRACE);
        if alive && fresh {
            kept.insert(name.clone(), time.clone());
        }
    }
    kept
}

/// Pods expected and pods that must stay healthy.
fn expectation(
    budget: &Value,
    pods: &[&Value],
    scale_lookup: &impl Fn(&Owner) -> Option<i64>,
) -> Result<(i64, i64), String> {
    if let Some(most) = at(budget, "spec.maxUnavailable") {
        let expected = expected_scale(pods, scale_lookup)?;
        let most = resolve(most, expected).ok_or("invalid maxUnavailable")?;
        return Ok((expected, (expected - most).max(0)));
    }
    match at(budget, "spec.minAvailable") {
        Some(least @ Value::String(_)) => {
            let expected = expected_scale(pods, scale_lookup)?;
            Ok((expected, resolve(least, expected).ok_or("invalid minAvailable")?))
        }
        Some(least) => Ok((pods.len() as i64, least.as_i64().unwrap_or(0))),
        None => Ok((0, 0)),
    }
}

fn expected_scale(pods: &[&Value], scale_lookup: &impl Fn(&Owner) -> Option<i64>) -> Result<i64, String> {
    let mut owners: BTreeMap<Owner, i64> = BTreeMap::new();
    for pod in pods {
        let Some(reference) = list(pod, "metadata.ownerReferences")
            .iter()
            .find(|owner| flag(owner, "controller"))
        else {
            // Pods nobody controls are left out of the count.
            continue;
        };
        let owner = Owner {
            api_version: text(reference, "apiVersion").to_owned(),
            kind: text(reference, "kind").to_owned(),
            name: text(reference, "name").to_owned(),
            uid: text(reference, "uid").to_owned(),
        };
        if owners.contains_key(&owner) {
            continue;
        }
        match scale_lookup(&owner) {
            Some(scale) => owners.insert(owner, scale),
            None => {
                return Err(format!(
                    "found no controllers for pod {}",
                    go::quote(text(pod, "metadata.name"))
                ));
            }
        };
    }
    Ok(owners.values().sum())
}

/// A number, or a percentage of a total rounded up.
pub(crate) fn resolve(value: &Value, total: i64) -> Option<i64> {
    match value {
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            Some(percent.saturating_mul(total).saturating_add(99).div_euclid(100))
        }
        other => other.as_i64(),
    }
}

fn failed(budget: &Value, problem: &str, now: Timestamp) -> Value {
    let mut result = budget.clone();
    ensure(&mut result, "status").insert("disruptionsAllowed".to_owned(), json!(0));
    set_condition(&mut result, "False", "SyncFailed", problem, now);
    at(&result, "status").cloned().unwrap_or_default()
}

/// Sets the condition that says whether anything may be disrupted.
pub(crate) fn set_disruption_condition(budget: &mut Value, allowed: i64, now: Timestamp) {
    if allowed > 0 {
        set_condition(budget, "True", "SufficientPods", "", now);
    } else {
        set_condition(budget, "False", "InsufficientPods", "", now);
    }
}

fn set_condition(budget: &mut Value, status: &str, reason: &str, message: &str, now: Timestamp) {
    let generation = number(budget, "metadata.generation");
    let conditions = ensure(budget, "status").entry("conditions").or_insert(json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let before = conditions
        .iter()
        .position(|condition| text(condition, "type") == "DisruptionAllowed");
    let since = before
        .and_then(|position| conditions.get(position))
        .filter(|condition| text(condition, "status") == status)
        .and_then(|condition| at(condition, "lastTransitionTime").cloned())
        .unwrap_or(json!(render(now, Precision::Seconds)));
    let mut condition = json!({
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    });
    if generation != 0 {
        ensure(&mut condition, "").insert("observedGeneration".to_owned(), json!(generation));
    }
    match before.and_then(|position| conditions.get_mut(position)) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
