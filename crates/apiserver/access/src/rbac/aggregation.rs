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

/// The rules that an aggregated ClusterRole collects from `roles`, which must be sorted by name;
/// `None` when the role has no aggregationRule.
pub fn aggregated_rules(role: &Value, roles: &[&Value]) -> Option<Vec<Value>> {
    let aggregation = role.get("aggregationRule").filter(|rule| rule.is_object())?;
    let selectors = aggregation.get("clusterRoleSelectors").and_then(Value::as_array);
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors.into_iter().flatten() {
        for &source in roles {
            let labels = source.pointer("/metadata/labels");
            if name_of(source) == name_of(role) || !selector_matches(selector, labels) {
                continue;
            }
            for rule in source
                .get("rules")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

/// The aggregated ClusterRoles among `roles` whose rules have to change, with their new rules.
///
/// Roles that collect from other aggregated roles are followed until nothing changes any more.
pub fn aggregate<'a>(roles: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, Vec<Value>> {
    let mut current: BTreeMap<String, Value> = roles
        .into_iter()
        .map(|role| (name_of(role).to_owned(), role.clone()))
        .collect();
    let aggregated: Vec<String> = current
        .iter()
        .filter(|(_, role)| role.get("aggregationRule").is_some_and(Value::is_object))
        .map(|(name, _)| name.clone())
        .collect();
    let mut changed: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    // A chain of aggregation is at most as long as there are aggregated roles.
    for _ in 0..=aggregated.len() {
        let mut settled = true;
        for name in &aggregated {
            let Some(role) = current.get(name) else { continue };
            let sources: Vec<&Value> = current.values().collect();
            let Some(rules) = aggregated_rules(role, &sources) else {
                continue;
            };
            let held = role
                .get("rules")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            if held == rules {
                continue;
            }
            settled = false;
            if let Some(Value::Object(role)) = current.get_mut(name) {
                role.insert("rules".into(), Value::Array(rules.clone()));
            }
            changed.insert(name.clone(), rules);
        }
        if settled {
            break;
        }
    }
    changed
}
