// SPDX-License-Identifier: Apache-2.0
//! Quotas: how much of what an object uses, which quotas look at it, and what is said when one
//! would be exceeded. Where the present use comes from is the server's business.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::json::{at, entries, list, strings, text};
use crate::limits::{add, amounts, is_over, pod_amounts};
use crate::prepare::qos_class;
use crate::quantity::Quantity;

/// Amounts by the names quotas use.
pub type Usage = BTreeMap<String, Quantity>;

/// Kinds of the core group that quotas also know by their bare name.
const PLAIN: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// What an object uses.
pub fn quota_usage(group: &str, plural: &str, object: &Value) -> Usage {
    let one = || Quantity::from_integer(1);
    let mut usage = Usage::new();
    let counted = if group.is_empty() {
        format!("count/{plural}")
    } else {
        format!("count/{plural}.{group}")
    };
    usage.insert(counted, one());
    if !group.is_empty() {
        return usage;
    }
    match plural {
        "pods" if is_over(object) => return usage,
        "pods" => usage.extend(pod_usage(object)),
        "services" => usage.extend(service_usage(object)),
        "persistentvolumeclaims" => usage.extend(claim_usage(object)),
        _ => {}
    }
    if PLAIN.contains(&plural) {
        usage.insert(plural.to_owned(), one());
    }
    usage
}

fn pod_usage(pod: &Value) -> Usage {
    let (requests, limits) = pod_amounts(pod);
    compute_names(&requests, &limits)
}

/// Requests and limits under the names quotas have for them.
fn compute_names(requests: &Usage, limits: &Usage) -> Usage {
    let mut usage = Usage::new();
    for (name, amount) in requests {
        let standard =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if standard {
            usage.insert(name.clone(), amount.clone());
        }
        usage.insert(format!("requests.{name}"), amount.clone());
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

fn service_usage(service: &Value) -> Usage {
    let ports = i64::try_from(list(service, "spec.ports").len()).unwrap_or(i64::MAX);
    let allocates = at(service, "spec.allocateLoadBalancerNodePorts") != Some(&json!(false));
    let (balancers, node_ports) = match text(service, "spec.type") {
        "NodePort" => (0, ports),
        "LoadBalancer" if allocates => (1, ports),
        "LoadBalancer" => (
            1,
            list(service, "spec.ports")
                .iter()
                .filter(|port| at(port, "nodePort").and_then(Value::as_i64).unwrap_or(0) != 0)
                .count() as i64,
        ),
        _ => (0, 0),
    };
    Usage::from([
        (
            "services.loadbalancers".to_owned(),
            Quantity::from_integer(balancers),
        ),
        (
            "services.nodeports".to_owned(),
            Quantity::from_integer(node_ports),
        ),
    ])
}

fn claim_usage(claim: &Value) -> Usage {
    const CLASS: &str = "storageclass.storage.k8s.io";
    let mut usage = Usage::new();
    let class = text(claim, "spec.storageClassName");
    if !class.is_empty() {
        usage.insert(
            format!("{class}.{CLASS}/persistentvolumeclaims"),
            Quantity::from_integer(1),
        );
    }
    if let Some(storage) = amounts(claim, "spec.resources.requests").remove("storage") {
        if !class.is_empty() {
            usage.insert(format!("{class}.{CLASS}/requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".to_owned(), storage);
    }
    usage
}

/// Whether a quota looks at an object: one with scopes looks at the pods they describe only.
pub fn quota_covers(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let scopes = strings(quota, "spec.scopes");
    let expressions = list(quota, "spec.scopeSelector.matchExpressions");
    if scopes.is_empty() && expressions.is_empty() {
        return true;
    }
    if !group.is_empty() || plural != "pods" {
        return false;
    }
    scopes.iter().all(|scope| in_scope(object, scope, "Exists", &[]))
        && expressions.iter().all(|expression| {
            in_scope(
                object,
                text(expression, "scopeName"),
                text(expression, "operator"),
                &strings(expression, "values"),
            )
        })
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let terminating = at(pod, "spec.activeDeadlineSeconds").is_some_and(|v| !v.is_null());
    let best_effort = qos_class(pod) == "BestEffort";
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = text(pod, "spec.priorityClassName");
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

/// The names a quota limits.
pub fn quota_limits(quota: &Value) -> Usage {
    amounts(quota, "spec.hard")
}

/// Why a quota refuses an object that needs `more` while `used` is in use; `None` when it fits.
pub fn quota_refusal(
    quota: &Value,
    object: &Value,
    is_pod: bool,
    used: &Usage,
    more: &Usage,
) -> Option<String> {
    let name = text(quota, "metadata.name");
    let hard = quota_limits(quota);
    if is_pod && let Some(missing) = unspecified(object, &hard) {
        return Some(format!("failed quota: {name}: must specify {missing}"));
    }
    let zero = || Quantity::from_integer(0);
    let exceeded: Vec<&String> = hard
        .iter()
        .filter(|(resource, limit)| {
            more.get(*resource).is_some_and(|wanted| {
                let sum = used.get(*resource).cloned().unwrap_or_else(zero).add(wanted);
                !wanted.is_zero() && !wanted.is_negative() && sum > **limit
            })
        })
        .map(|(resource, _)| resource)
        .collect();
    if exceeded.is_empty() {
        return None;
    }
    let shown = |amounts: &Usage| {
        let pairs: Vec<String> = exceeded
            .iter()
            .map(|resource| {
                let amount = amounts.get(*resource).cloned().unwrap_or_else(zero);
                format!("{resource}={amount}")
            })
            .collect();
        pairs.join(",")
    };
    Some(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(more),
        shown(used),
        shown(&hard)
    ))
}

/// Amounts every container must name because the quota limits them, and the containers that do not.
fn unspecified(pod: &Value, hard: &Usage) -> Option<String> {
    const REQUIRED: [&str; 6] = [
        "cpu",
        "limits.cpu",
        "limits.memory",
        "memory",
        "requests.cpu",
        "requests.memory",
    ];
    let required: Vec<&str> = REQUIRED
        .into_iter()
        .filter(|name| hard.contains_key(*name))
        .collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for path in ["spec.containers", "spec.initContainers"] {
        for container in list(pod, path) {
            let usage = compute_names(
                &amounts(container, "resources.requests"),
                &amounts(container, "resources.limits"),
            );
            for name in required.iter().filter(|name| !usage.contains_key(**name)) {
                missing.entry(name).or_default().insert(text(container, "name"));
            }
        }
    }
    let parts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.iter().copied().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What a change adds: the difference of both uses.
pub fn quota_difference(new: &Usage, old: &Usage) -> Usage {
    new.iter()
        .map(|(name, amount)| {
            let before = old
                .get(name)
                .cloned()
                .unwrap_or_else(|| Quantity::from_integer(0));
            (name.clone(), amount.sub(&before))
        })
        .collect()
}

/// Adds the use of one object to a sum.
pub fn quota_add(sum: &mut Usage, more: &Usage) {
    add(sum, more);
}

/// The status of a quota whose objects use `used`.
pub fn quota_status(quota: &Value, used: &Usage) -> Value {
    let hard: serde_json::Map<String, Value> = entries(quota, "spec.hard")
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    let used: serde_json::Map<String, Value> = hard
        .keys()
        .map(|name| {
            let amount = used.get(name).map_or_else(|| "0".to_owned(), ToString::to_string);
            (name.clone(), json!(amount))
        })
        .collect();
    json!({"hard": hard, "used": used})
}
