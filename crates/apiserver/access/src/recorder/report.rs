// SPDX-License-Identifier: Apache-2.0
//! From recorded requests and the roles in force to findings.
//!
//! Three questions: which refused requests need which rules, which granted rights were never
//! used, and which grants are broader than their use. Rights that every authenticated user or
//! ServiceAccount has anyway are left out: no chart grants them.

use super::render;
use super::{Records, Request, UserRecord};
use crate::identity::{AUTHENTICATED, SERVICE_ACCOUNTS, UNAUTHENTICATED, User, split_service_account};
use crate::rbac::{Index, PolicyRule, RuleRef, authorize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A resource the server offers; wildcards are expanded against these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// API group.
    pub group: String,
    /// `pods` or `pods/status`.
    pub resource: String,
    /// Verbs it offers.
    pub verbs: Vec<String>,
}

/// How a report is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportOptions {
    /// Restrict missing rules to the names that were asked for. Right for objects with fixed
    /// names, too narrow for a controller that was only seen with one object.
    pub names: bool,
}

/// Rules that would allow what was refused in one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The namespace; empty for the cluster scope and for paths.
    pub namespace: String,
    /// The smallest rules.
    pub rules: Vec<PolicyRule>,
    /// How often a request was refused.
    pub denied: u64,
    /// Names of single objects that were asked for.
    pub names: BTreeSet<String>,
}

/// Rights that a rule grants and that were never used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused {
    /// The rule, as `ClusterRole/name[0]`.
    pub rule: String,
    /// Where it is granted; empty cluster-wide.
    pub namespace: String,
    /// API group; empty for core and for paths.
    pub group: String,
    /// Resource or path.
    pub resource: String,
    /// The unused verbs.
    pub verbs: Vec<String>,
}

impl Unused {
    /// One line per right, for an allow-list kept with a chart: `delete deployments.apps`.
    pub fn lines(&self) -> Vec<String> {
        let target = if self.group.is_empty() {
            self.resource.clone()
        } else {
            match self.resource.split_once('/') {
                Some((resource, sub)) => format!("{resource}.{}/{sub}", self.group),
                None => format!("{}.{}", self.resource, self.group),
            }
        };
        let scope = if self.namespace.is_empty() {
            String::new()
        } else {
            format!(" in {}", self.namespace)
        };
        self.verbs
            .iter()
            .map(|verb| format!("{verb} {target}{scope}"))
            .collect()
    }
}

/// A grant that is broader than it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broad {
    /// The rule, as `ClusterRole/name[0]`.
    pub rule: String,
    /// Where it is granted; empty cluster-wide.
    pub namespace: String,
    /// What is broad about it.
    pub finding: String,
}

/// The findings about one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The user.
    pub user: String,
    /// What was run while recording.
    pub scenarios: BTreeSet<String>,
    /// Requests that were not noted for lack of room.
    pub dropped: u64,
    /// Refused requests as rules.
    pub missing: Vec<Missing>,
    /// Rights never used.
    pub unused: Vec<Unused>,
    /// Grants broader than their use.
    pub broad: Vec<Broad>,
}

/// Makes the report about one user.
pub fn report(
    records: &Records,
    user: &str,
    index: &Index,
    served: &[ServedResource],
    options: ReportOptions,
) -> Report {
    let empty = UserRecord::default();
    let record = records.users.get(user).unwrap_or(&empty);
    let mut identity = User::new(user, record.groups.iter().cloned());
    if let (true, Some((namespace, _))) = (record.groups.is_empty(), split_service_account(user)) {
        identity.groups = crate::identity::service_account_groups(namespace);
    }
    let held = own_rules(index, &identity);
    Report {
        user: user.to_owned(),
        scenarios: records.scenarios.clone(),
        dropped: records.dropped,
        missing: missing(record, &identity, index, options),
        unused: unused(record, &identity, &held, served),
        broad: broad(record, &identity, &held),
    }
}

struct Held {
    rule: RuleRef,
    /// Empty when the rule holds cluster-wide.
    namespace: String,
}

/// The rules granted to the user or to a group of its own.
fn own_rules(index: &Index, user: &User) -> Vec<Held> {
    let mut held = Vec::new();
    let mut scopes = vec![String::new()];
    scopes.extend(index.namespaces_of(user));
    for scope in scopes {
        for rule in index.rules_for(user, &scope).0 {
            let general = rule
                .group_subject()
                .is_some_and(|g| g == AUTHENTICATED || g == UNAUTHENTICATED || g == SERVICE_ACCOUNTS);
            if rule.binding.namespace == scope && !general {
                held.push(Held {
                    rule,
                    namespace: scope.clone(),
                });
            }
        }
    }
    held
}

fn missing(record: &UserRecord, user: &User, index: &Index, options: ReportOptions) -> Vec<Missing> {
    // What the roles in force allow by now is not missing any more.
    let denied: Vec<(&Request, u64)> = record
        .requests
        .iter()
        .filter(|(request, usage)| usage.denied > 0 && !authorize(index, &request.attributes(user)).allowed)
        .map(|(request, usage)| (request, usage.denied))
        .collect();
    // A right needed cluster-wide covers the same right in every namespace.
    let general: Vec<PolicyRule> = denied
        .iter()
        .filter(|(r, _)| r.namespace.is_empty())
        .map(|(r, _)| rule_for(r, options))
        .collect();
    let mut scopes: BTreeMap<&str, Vec<(&Request, u64)>> = BTreeMap::new();
    for (request, count) in denied {
        let covered = !request.namespace.is_empty()
            && general.iter().any(|rule| rule.allows(&request.attributes(user)));
        if !covered {
            scopes
                .entry(&request.namespace)
                .or_default()
                .push((request, count));
        }
    }
    scopes
        .into_iter()
        .map(|(namespace, requests)| Missing {
            namespace: namespace.to_owned(),
            rules: smallest(requests.iter().map(|(r, _)| rule_for(r, options))),
            denied: requests.iter().map(|(_, count)| count).sum(),
            names: requests
                .iter()
                .map(|(r, _)| r.name.clone())
                .filter(|n| !n.is_empty())
                .collect(),
        })
        .collect()
}

fn rule_for(request: &Request, options: ReportOptions) -> PolicyRule {
    let verbs = vec![request.verb.clone()];
    if request.resource.is_empty() {
        return PolicyRule {
            verbs,
            non_resource_urls: vec![request.path.clone()],
            ..PolicyRule::default()
        };
    }
    let names = options.names && !request.name.is_empty();
    PolicyRule {
        verbs,
        api_groups: vec![request.group.clone()],
        resources: vec![request.combined_resource()],
        resource_names: if names {
            vec![request.name.clone()]
        } else {
            Vec::new()
        },
        ..PolicyRule::default()
    }
}

/// Joins single rights into as few rules as possible without granting anything more.
fn smallest(rules: impl Iterator<Item = PolicyRule>) -> Vec<PolicyRule> {
    type Target = (Vec<String>, Vec<String>, Vec<String>, Vec<String>);
    // Verbs by target, then targets that need the same verbs.
    let mut verbs: BTreeMap<Target, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        let target = (
            rule.api_groups,
            rule.resources,
            rule.resource_names,
            rule.non_resource_urls,
        );
        verbs.entry(target).or_default().extend(rule.verbs);
    }
    let mut out: Vec<PolicyRule> = Vec::new();
    for ((api_groups, resources, resource_names, non_resource_urls), verbs) in verbs {
        let verbs = ordered(verbs);
        let same = out.iter_mut().find(|r| {
            r.api_groups == api_groups
                && r.verbs == verbs
                && r.non_resource_urls.is_empty() == non_resource_urls.is_empty()
                && (r.resource_names == resource_names || r.resources == resources)
                && (r.resource_names.is_empty() == resource_names.is_empty())
        });
        match same {
            Some(rule) if rule.resource_names == resource_names => {
                rule.resources.extend(resources);
                rule.non_resource_urls.extend(non_resource_urls);
            }
            Some(rule) if rule.resources == resources => rule.resource_names.extend(resource_names),
            _ => out.push(PolicyRule {
                api_groups,
                resources,
                verbs,
                resource_names,
                non_resource_urls,
            }),
        }
    }
    out
}

/// Verbs in the order people write them.
fn ordered(verbs: BTreeSet<String>) -> Vec<String> {
    const ORDER: [&str; 8] = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ];
    let rank = |verb: &String| ORDER.iter().position(|v| v == verb).unwrap_or(ORDER.len());
    let mut out: Vec<String> = verbs.into_iter().collect();
    out.sort_by_key(rank);
    out
}

fn used<'a>(record: &'a UserRecord, namespace: &'a str) -> impl Iterator<Item = &'a Request> {
    record
        .requests
        .iter()
        .filter(move |(r, u)| u.allowed > 0 && (namespace.is_empty() || r.namespace == namespace))
        .map(|(r, _)| r)
}

fn unused(record: &UserRecord, user: &User, held: &[Held], served: &[ServedResource]) -> Vec<Unused> {
    let mut out = Vec::new();
    for one in held {
        let Some(rule) = one.rule.rule() else { continue };
        let mut targets: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for (group, resource, verb) in expand(rule, served) {
            let narrow = PolicyRule {
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                verbs: vec![verb.clone()],
                resource_names: rule.resource_names.clone(),
                ..PolicyRule::default()
            };
            if !used(record, &one.namespace).any(|r| narrow.allows(&r.attributes(user))) {
                targets.entry((group, resource)).or_default().insert(verb);
            }
        }
        for url in &rule.non_resource_urls {
            for verb in &rule.verbs {
                let narrow = PolicyRule {
                    non_resource_urls: vec![url.clone()],
                    verbs: vec![verb.clone()],
                    ..PolicyRule::default()
                };
                if !used(record, "").any(|r| r.resource.is_empty() && narrow.allows(&r.attributes(user))) {
                    targets
                        .entry((String::new(), url.clone()))
                        .or_default()
                        .insert(verb.clone());
                }
            }
        }
        for ((group, resource), verbs) in targets {
            out.push(Unused {
                rule: one.rule.id(),
                namespace: one.namespace.clone(),
                group,
                resource,
                verbs: ordered(verbs),
            });
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Single rights of a rule, wildcards replaced by what is served.
fn expand(rule: &PolicyRule, served: &[ServedResource]) -> Vec<(String, String, String)> {
    let mut out = BTreeSet::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let wild = group == "*" || resource.contains('*');
            let matches = served.iter().filter(|s| {
                let sub = |r: &str| r.split_once('/').map(|(_, sub)| sub.to_owned());
                (group == "*" || *group == s.group)
                    && (resource == "*"
                        || *resource == s.resource
                        || (resource.starts_with("*/") && sub(resource) == sub(&s.resource)))
            });
            let mut targets: Vec<(&str, &str, &[String])> = matches
                .map(|s| (s.group.as_str(), s.resource.as_str(), s.verbs.as_slice()))
                .collect();
            if targets.is_empty() && !wild {
                targets.push((group, resource, &[]));
            }
            for (group, resource, offered) in targets {
                for verb in &rule.verbs {
                    if verb == "*" && !offered.is_empty() {
                        out.extend(
                            offered
                                .iter()
                                .map(|v| (group.to_owned(), resource.to_owned(), v.clone())),
                        );
                    } else if !wild || offered.contains(verb) {
                        out.insert((group.to_owned(), resource.to_owned(), verb.clone()));
                    }
                }
            }
        }
    }
    out.into_iter().collect()
}

fn broad(record: &UserRecord, user: &User, held: &[Held]) -> Vec<Broad> {
    let mut out = Vec::new();
    for one in held {
        let Some(rule) = one.rule.rule() else { continue };
        let mut find = |finding: String| {
            out.push(Broad {
                rule: one.rule.id(),
                namespace: one.namespace.clone(),
                finding,
            });
        };
        for (what, list) in [
            ("verb", &rule.verbs),
            ("API group", &rule.api_groups),
            ("resource", &rule.resources),
            ("path", &rule.non_resource_urls),
        ] {
            if list.iter().any(|v| v == "*") {
                find(format!("grants every {what} (*)"));
            }
        }
        let reads_secrets = ["get", "list", "watch"].iter().any(|verb| {
            let ask = crate::rbac::Attributes::resource(user, verb, "", "secrets");
            rule.resource_names.is_empty() && rule.allows(&ask)
        });
        if reads_secrets {
            find("lets read every Secret; resourceNames would restrict it".to_owned());
        }
        if one.namespace.is_empty() && !rule.resources.is_empty() {
            let uses =
                used(record, "").filter(|r| !r.resource.is_empty() && rule.allows(&r.attributes(user)));
            let namespaces: BTreeSet<&str> = uses.map(|r| r.namespace.as_str()).collect();
            if let [only] = namespaces.iter().collect::<Vec<_>>().as_slice()
                && !only.is_empty()
            {
                find(format!("granted cluster-wide, used only in namespace {only}"));
            }
        }
    }
    out.sort();
    out.dedup();
    out
}

impl Report {
    /// Manifests that grant what is missing; empty when nothing is.
    pub fn missing_manifests(&self) -> Vec<Value> {
        let base: String = match split_service_account(&self.user) {
            Some((_, name)) => name.to_owned(),
            None => self
                .user
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect(),
        };
        let base = base.trim_matches('-').to_ascii_lowercase();
        self.missing
            .iter()
            .map(|m| {
                let rules: Vec<Value> = m.rules.iter().map(PolicyRule::to_value).collect();
                let mut metadata = json!({"name": format!("{base}-missing")});
                let kind = if m.namespace.is_empty() {
                    "ClusterRole"
                } else {
                    metadata["namespace"] = json!(m.namespace);
                    "Role"
                };
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": kind,
                    "metadata": metadata,
                    "rules": rules,
                })
            })
            .collect()
    }

    /// The same as YAML documents, with the names that were asked for as comments.
    pub fn missing_yaml(&self) -> String {
        let mut out = String::new();
        for (missing, manifest) in self.missing.iter().zip(self.missing_manifests()) {
            out.push_str("---\n");
            if !missing.names.is_empty() {
                let names: Vec<&str> = missing.names.iter().map(String::as_str).collect();
                let _ = writeln!(
                    out,
                    "# asked for by name: {}",
                    names.join(", ").replace('\n', " ")
                );
            }
            out.push_str(&render::to_yaml(&manifest));
        }
        out
    }

    /// Unused rights as lines, without those of an allow-list (blank lines and `#` comments in
    /// the list are ignored).
    pub fn unused_lines(&self, allowed: &str) -> Vec<String> {
        let allowed: BTreeSet<&str> = allowed
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .collect();
        let mut lines: Vec<String> = self.unused.iter().flat_map(Unused::lines).collect();
        lines.retain(|line| !allowed.contains(line.as_str()));
        lines.sort();
        lines.dedup();
        lines
    }

    /// The report as a JSON value.
    pub fn to_value(&self) -> Value {
        let unused: Vec<Value> = self
            .unused
            .iter()
            .map(|u| {
                json!({
                    "rule": u.rule, "namespace": u.namespace, "group": u.group,
                    "resource": u.resource, "verbs": u.verbs,
                })
            })
            .collect();
        let broad: Vec<Value> = self
            .broad
            .iter()
            .map(|b| json!({"rule": b.rule, "namespace": b.namespace, "finding": b.finding}))
            .collect();
        json!({
            "user": self.user,
            "scenarios": self.scenarios,
            "dropped": self.dropped,
            "missing": self.missing_manifests(),
            "unused": unused,
            "broad": broad,
        })
    }

    /// The report as YAML.
    pub fn to_yaml(&self) -> String {
        render::to_yaml(&self.to_value())
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        render::to_text(self)
    }
}
