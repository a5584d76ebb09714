// SPDX-License-Identifier: Apache-2.0
//! One rule of a role: what it allows, what it covers, how it is shown.
//!
//! Matching answers "does this rule allow this request"; covering answers "does holding this
//! rule include that rule", which the escalation check and the restoring of bootstrap roles need.

use super::Attributes;
use cobaltcore_text::go;
use serde_json::{Map, Value, json};

/// A rule of a Role or ClusterRole.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct PolicyRule {
    /// API groups; `*` is every group.
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/status`, `*/status`, `*`.
    pub resources: Vec<String>,
    /// Verbs; `*` is every verb.
    pub verbs: Vec<String>,
    /// Names; empty means every name.
    pub resource_names: Vec<String>,
    /// Paths: exact, with a trailing `*`, or `*`.
    pub non_resource_urls: Vec<String>,
}

const FIELDS: [&str; 5] = [
    "apiGroups",
    "nonResourceURLs",
    "resourceNames",
    "resources",
    "verbs",
];

impl PolicyRule {
    /// Reads a rule; what is not a list of strings counts as absent, as validation refused it before.
    pub fn from_value(value: &Value) -> Self {
        let list = |key: &str| -> Vec<String> {
            let items = value.get(key).and_then(Value::as_array);
            items
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            api_groups: list("apiGroups"),
            resources: list("resources"),
            verbs: list("verbs"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// All rules of a Role or ClusterRole.
    pub fn list_of(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array);
        rules.into_iter().flatten().map(Self::from_value).collect()
    }

    /// The rule as it stands in an object; empty lists are left out.
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for key in FIELDS {
            let list = self.field(key);
            if !list.is_empty() {
                out.insert(key.to_owned(), json!(list));
            }
        }
        Value::Object(out)
    }

    pub(crate) fn field(&self, key: &str) -> &[String] {
        match key {
            "apiGroups" => &self.api_groups,
            "resources" => &self.resources,
            "verbs" => &self.verbs,
            "resourceNames" => &self.resource_names,
            _ => &self.non_resource_urls,
        }
    }

    /// Whether the rule allows the request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !holds(&self.verbs, attributes.verb) {
            return false;
        }
        if let Some(path) = attributes.path {
            return self.non_resource_urls.iter().any(|url| url_covers(url, path));
        }
        holds(&self.api_groups, attributes.group)
            && self
                .resources
                .iter()
                .any(|r| resource_matches(r, attributes.resource, attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == attributes.name))
    }

    /// Whether holding this rule includes a rule of one verb, one resource, one name.
    fn covers_one(&self, one: &Self) -> bool {
        let names = if one.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty()
                || one.resource_names.iter().all(|n| self.resource_names.contains(n))
        };
        let all_of = |held: &[String], wanted: &[String]| wanted.iter().all(|w| holds(held, w));
        names
            && all_of(&self.verbs, &one.verbs)
            && all_of(&self.api_groups, &one.api_groups)
            && one.resources.iter().all(|r| {
                let (resource, sub) = r.split_once('/').unwrap_or((r, ""));
                self.resources
                    .iter()
                    .any(|held| resource_matches(held, resource, sub))
            })
            && one
                .non_resource_urls
                .iter()
                .all(|u| self.non_resource_urls.iter().any(|h| url_covers(h, u)))
    }

    /// The short form of escalation messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn compact_text(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(key, list)| format!("{key}:{}", go::quote_list(list)))
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|held| held == "*" || held == wanted)
}

/// `held` is the resource of a rule: `*`, `pods`, `pods/status` or `*/status`.
fn resource_matches(held: &str, resource: &str, subresource: &str) -> bool {
    if held == "*" {
        return true;
    }
    if subresource.is_empty() {
        return held == resource;
    }
    match held.split_once('/') {
        Some((before, after)) => after == subresource && (before == "*" || before == resource),
        None => false,
    }
}

fn url_covers(held: &str, path: &str) -> bool {
    held == path || (held.ends_with('*') && path.starts_with(held.trim_end_matches('*')))
}

/// Splits a rule into rules of one verb, one resource and one name (or one path) each.
pub fn breakdown(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut out = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let one = PolicyRule {
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    verbs: vec![verb.clone()],
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    out.push(one);
                    continue;
                }
                for name in &rule.resource_names {
                    out.push(PolicyRule {
                        resource_names: vec![name.clone()],
                        ..one.clone()
                    });
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            out.push(PolicyRule {
                non_resource_urls: vec![url.clone()],
                verbs: vec![verb.clone()],
                ..PolicyRule::default()
            });
        }
    }
    out
}

/// The parts of `wanted` that no rule of `held` includes.
pub fn covers(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let parts = wanted.iter().flat_map(breakdown);
    parts
        .filter(|one| !held.iter().any(|rule| rule.covers_one(one)))
        .collect()
}

/// Joins rules that differ only in their verbs, as the reference does before showing them.
pub fn compact(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut out: Vec<PolicyRule> = Vec::with_capacity(rules.len());
    for rule in rules {
        let simple =
            rule.non_resource_urls.is_empty() && rule.api_groups.len() == 1 && rule.resources.len() == 1;
        let same = |other: &&mut PolicyRule| {
            other.non_resource_urls.is_empty()
                && other.api_groups == rule.api_groups
                && other.resources == rule.resources
                && other.resource_names == rule.resource_names
        };
        match out.iter_mut().find(same) {
            Some(known) if simple && rule.resource_names.len() <= 1 => known.verbs.extend(rule.verbs),
            _ => out.push(rule),
        }
    }
    out
}
