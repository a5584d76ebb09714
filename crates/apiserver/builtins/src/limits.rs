// SPDX-License-Identifier: Apache-2.0
//! What the LimitRanges of a namespace do to pods and claims: defaults for containers that name no
//! amounts, and bounds that every container, pod and claim has to keep.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::json::{at, ensure, entries, list, list_mut, map, text};
use crate::quantity::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

type Amounts = BTreeMap<String, Quantity>;

/// Fills in what containers do not say, from the ranges of the namespace in their order.
pub fn default_limits(pod: &mut Value, ranges: &[Value]) {
    for range in ranges {
        let (mut limits, mut requests) = (Map::new(), Map::new());
        for item in list(range, "spec.limits") {
            if text(item, "type") == "Container" {
                limits.extend(entries(item, "default").map(|(k, v)| (k.clone(), v.clone())));
                requests.extend(entries(item, "defaultRequest").map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        let mut told = Vec::new();
        for (path, what) in [
            ("spec.containers", "container"),
            ("spec.initContainers", "init container"),
        ] {
            for container in list_mut(pod, path) {
                let name = text(container, "name").to_owned();
                let set_limits = fill(container, "resources.limits", &limits);
                let set_requests = fill(container, "resources.requests", &requests);
                for (set, kind) in [(set_requests, "request"), (set_limits, "limit")] {
                    if !set.is_empty() {
                        told.push(format!("{} {kind} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !told.is_empty() {
            let note = format!("LimitRanger plugin set: {}", told.join("; "));
            ensure(pod, "metadata.annotations").insert(ANNOTATION.to_owned(), json!(note));
        }
    }
}

/// Adds the amounts that are missing and names them, sorted.
fn fill(container: &mut Value, path: &str, amounts: &Map<String, Value>) -> Vec<String> {
    let missing: Vec<(String, Value)> = amounts
        .iter()
        .filter(|(name, _)| map(container, path).is_none_or(|given| !given.contains_key(*name)))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    ensure(container, path).extend(missing);
    names
}

/// Every bound a pod breaks, in the words of the reference.
pub fn pod_limit_errors(pod: &Value, range: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for item in list(range, "spec.limits") {
        match text(item, "type") {
            "Container" => {
                for path in ["spec.containers", "spec.initContainers"] {
                    for container in list(pod, path) {
                        let (requests, limits) = (
                            amounts(container, "resources.requests"),
                            amounts(container, "resources.limits"),
                        );
                        bounds(item, "Container", &requests, &limits, &mut errors);
                    }
                }
            }
            "Pod" => {
                let (requests, limits) = pod_amounts(pod);
                bounds(item, "Pod", &requests, &limits, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

/// Every bound a claim breaks.
pub fn claim_limit_errors(claim: &Value, range: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let requests = amounts(claim, "spec.resources.requests");
    for item in list(range, "spec.limits") {
        if text(item, "type") != "PersistentVolumeClaim" {
            continue;
        }
        for (name, bound) in amounts(item, "min") {
            errors.extend(minimum(
                "PersistentVolumeClaim",
                &name,
                &bound,
                &requests,
                &Amounts::new(),
            ));
        }
        for (name, bound) in amounts(item, "max") {
            // Claims have no limits of their own; what is requested is what counts.
            errors.extend(maximum(
                "PersistentVolumeClaim",
                &name,
                &bound,
                &Amounts::new(),
                &requests,
            ));
        }
    }
    errors
}

fn bounds(item: &Value, kind: &str, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    for (name, bound) in amounts(item, "min") {
        errors.extend(minimum(kind, &name, &bound, requests, limits));
    }
    for (name, bound) in amounts(item, "max") {
        errors.extend(maximum(kind, &name, &bound, requests, limits));
    }
    for (name, bound) in amounts(item, "maxLimitRequestRatio") {
        errors.extend(ratio(kind, &name, &bound, requests, limits));
    }
}

fn minimum(kind: &str, name: &str, bound: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let head = format!("minimum {name} usage per {kind} is {bound}");
    let Some(request) = requests.get(name) else {
        return Some(format!("{head}.  No request is specified"));
    };
    if request < bound {
        return Some(format!("{head}, but request is {request}"));
    }
    let limit = limits.get(name).filter(|limit| *limit < bound)?;
    Some(format!("{head}, but limit is {limit}"))
}

fn maximum(kind: &str, name: &str, bound: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let head = format!("maximum {name} usage per {kind} is {bound}");
    let what = if kind == "PersistentVolumeClaim" {
        "request"
    } else {
        "limit"
    };
    let Some(limit) = limits.get(name) else {
        return Some(format!("{head}.  No {what} is specified"));
    };
    if limit > bound {
        return Some(format!("{head}, but {what} is {limit}"));
    }
    let request = requests.get(name).filter(|request| *request > bound)?;
    Some(format!("{head}, but request is {request}"))
}

fn ratio(kind: &str, name: &str, bound: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let head = format!("{name} max limit to request ratio per {kind} is {bound}");
    let Some(request) = requests.get(name).filter(|r| !r.is_zero()) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limits.get(name).filter(|l| !l.is_zero()) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    let found = limit.milli_value() as f64 / request.milli_value() as f64;
    let allowed = bound.milli_value() as f64 / 1000.0;
    (found > allowed).then(|| format!("{head}, but provided ratio is {found:.6}"))
}

/// Amounts by name; what does not parse was refused long before.
pub(crate) fn amounts(value: &Value, path: &str) -> Amounts {
    entries(value, path)
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// Requests and limits of a whole pod: all containers together, or the largest of those that run
/// before them where that is more; and what the pod itself costs.
pub(crate) fn pod_amounts(pod: &Value) -> (Amounts, Amounts) {
    let total = |path: &str| {
        let mut sum = Amounts::new();
        let restarts = |container: &Value| text(container, "restartPolicy") == "Always";
        let before = list(pod, "spec.initContainers");
        for container in list(pod, "spec.containers")
            .iter()
            .chain(before.iter().filter(|c| restarts(c)))
        {
            add(&mut sum, &amounts(container, path));
        }
        let mut beside = Amounts::new();
        for container in before {
            let own = amounts(container, path);
            if restarts(container) {
                add(&mut beside, &own);
                continue;
            }
            let mut needed = beside.clone();
            add(&mut needed, &own);
            for (name, amount) in needed {
                let known = sum.entry(name).or_insert_with(|| amount.clone());
                if *known < amount {
                    *known = amount;
                }
            }
        }
        sum
    };
    let (mut requests, mut limits) = (total("resources.requests"), total("resources.limits"));
    let overhead = amounts(pod, "spec.overhead");
    add(&mut requests, &overhead);
    for (name, amount) in overhead {
        if let Some(limit) = limits.get_mut(&name) {
            *limit = limit.add(&amount);
        }
    }
    (requests, limits)
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(known) => *known = known.add(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Whether a pod still counts: it has not run to its end, and is not past its grace.
pub(crate) fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Failed" | "Succeeded")
        || at(pod, "metadata.deletionTimestamp").is_some()
            && at(pod, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64) == Some(0)
}
