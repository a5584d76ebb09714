// SPDX-License-Identifier: Apache-2.0
//! ClusterRoles that collect the rules of other ClusterRoles.
//!
//! The server calls [`aggregate`] within the commit that changes a ClusterRole, so a collected
//! rule takes effect together with its source. The result is what the reference's controller
//! settles on: sources by name, rules in order, no rule twice.

use serde_json::Value;
use std::collections::BTreeMap;

/// Whether a label selector selects an object with these labels. An empty selector selects all.
pub fn selector_matches(selector: &Value, labels: Option<&Value>) -> bool {
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    if !wanted
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key).is_some() && label(key) == value.as_str())
    {
        return false;
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    expressions.into_iter().flatten().all(|e| {
        let key = e.get("key").and_then(Value::as_str).unwrap_or_default();
        let values = e.get("values").and_then(Value::as_array);
        let listed = |found: &str| values.is_some_and(|v| v.iter().any(|x| x.as_str() == Some(found)));
        match (e.get("operator").and_then(Value::as_str), label(key)) {
            (Some("In"), Some(found)) => listed(found),
            (Some("NotIn"), Some(found)) => !listed(found),
            (Some("NotIn" | "DoesNotExist"), None) | (Some("Exists"), Some(_)) => true,
            _ => false,
        }
    })
}

fn name_of(role: &Value) -> &str {
    role.pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn rules_of(role: &Value) -> &[Value] {
    role.get("rules")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Collects by reference; `newer` holds the rules of roles that have changed already.
fn collect<'a>(
    role: &Value,
    roles: &[&'a Value],
    newer: &'a BTreeMap<String, Vec<Value>>,
) -> Option<Vec<&'a Value>> {
    let aggregation = role.get("aggregationRule").filter(|rule| rule.is_object())?;
    let selectors = aggregation.get("clusterRoleSelectors").and_then(Value::as_array);
    let mut rules: Vec<&Value> = Vec::new();
    for selector in selectors.into_iter().flatten() {
        for &source in roles {
            let name = name_of(source);
            if name == name_of(role) || !selector_matches(selector, source.pointer("/metadata/labels")) {
                continue;
            }
            for rule in newer.get(name).map_or_else(|| rules_of(source), Vec::as_slice) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    Some(rules)
}

/// The rules that an aggregated ClusterRole collects from `roles`, which must be sorted by name;
/// `None` when the role has no aggregationRule.
pub fn aggregated_rules(role: &Value, roles: &[&Value]) -> Option<Vec<Value>> {
    let newer = BTreeMap::new();
    let found = collect(role, roles, &newer)?;
    Some(found.into_iter().cloned().collect())
}

/// The aggregated ClusterRoles among `roles` whose rules have to change, with their new rules.
///
/// Roles that collect from other aggregated roles are followed until nothing changes any more.
pub fn aggregate<'a>(roles: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, Vec<Value>> {
    let mut roles: Vec<&Value> = roles.into_iter().collect();
    roles.sort_by_key(|role| name_of(role));
    let aggregated: Vec<&Value> = roles
        .iter()
        .copied()
        .filter(|role| role.get("aggregationRule").is_some_and(Value::is_object))
        .collect();
    let mut changed: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    // A chain of aggregation is at most as long as there are aggregated roles.
    for _ in 0..=aggregated.len() {
        let mut settled = true;
        for &role in &aggregated {
            let name = name_of(role);
            let Some(rules) = collect(role, &roles, &changed) else {
                continue;
            };
            let held = changed.get(name).map_or_else(|| rules_of(role), Vec::as_slice);
            if held.iter().eq(rules.iter().copied()) {
                continue;
            }
            settled = false;
            let rules: Vec<Value> = rules.into_iter().cloned().collect();
            changed.insert(name.to_owned(), rules);
        }
        if settled {
            break;
        }
    }
    changed
}
