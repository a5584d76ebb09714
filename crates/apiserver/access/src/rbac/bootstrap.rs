// SPDX-License-Identifier: Apache-2.0
//! The roles and bindings that every server has from its first start.
//!
//! Names, labels, annotations and rules are those of the reference, kept in a compact table
//! beside this file. [`reconcile`] puts back what was taken from them, unless the object is
//! annotated to be left alone; what was added stays, as in the reference.

use super::aggregation::aggregate;
use super::rule::{PolicyRule, covers};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

const TABLE: &str = include_str!("bootstrap_roles.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Role and the subjects it is bound to cluster-wide: `g` group, `u` user, `s` ServiceAccount.
const BINDINGS: [(&str, &[(char, &str)]); 12] = [
    ("cluster-admin", &[('g', "system:masters")]),
    ("system:basic-user", &[('g', "system:authenticated")]),
    ("system:discovery", &[('g', "system:authenticated")]),
    (
        "system:kube-controller-manager",
        &[('u', "system:kube-controller-manager")],
    ),
    ("system:kube-dns", &[('s', "kube-dns")]),
    ("system:kube-scheduler", &[('u', "system:kube-scheduler")]),
    ("system:monitoring", &[('g', "system:monitoring")]),
    ("system:node", &[]),
    ("system:node-proxier", &[('u', "system:kube-proxy")]),
    (
        "system:public-info-viewer",
        &[('g', "system:authenticated"), ('g', "system:unauthenticated")],
    ),
    (
        "system:service-account-issuer-discovery",
        &[('g', "system:serviceaccounts")],
    ),
    ("system:volume-scheduler", &[('u', "system:kube-scheduler")]),
];

fn metadata(name: &str, namespace: Option<&str>) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert("name".into(), json!(name));
    if let Some(namespace) = namespace {
        meta.insert("namespace".into(), json!(namespace));
    }
    meta.insert(
        "labels".into(),
        json!({"kubernetes.io/bootstrapping": "rbac-defaults"}),
    );
    meta.insert("annotations".into(), json!({AUTOUPDATE: "true"}));
    meta
}

fn words(list: &str) -> Vec<String> {
    list.split(',')
        .map(|w| if w == "-" { String::new() } else { w.to_owned() })
        .collect()
}

/// Reads one rule of the table.
fn read_rule(line: &str) -> Option<Value> {
    if let Some((verbs, urls)) = line.split_once(" > ") {
        let rule = PolicyRule {
            verbs: words(verbs),
            non_resource_urls: words(urls),
            ..PolicyRule::default()
        };
        return Some(rule.to_value());
    }
    let mut parts = line.split(" : ");
    let (verbs, groups, resources) = (parts.next()?, parts.next()?, parts.next()?);
    let rule = PolicyRule {
        verbs: words(verbs),
        api_groups: words(groups),
        resources: words(resources),
        resource_names: parts.next().map(words).unwrap_or_default(),
        ..PolicyRule::default()
    };
    Some(rule.to_value())
}

fn read_role(line: &str) -> Option<Value> {
    let mut parts = line.strip_prefix("role ")?.split(' ');
    let mut role = Map::new();
    let mut meta = metadata(parts.next()?, None);
    for part in parts {
        let (mark, target) = part.split_at_checked(1)?;
        let label = format!("{GROUP}/aggregate-to-{target}");
        if mark == "+" {
            if let Some(Value::Object(labels)) = meta.get_mut("labels") {
                labels.insert(label, json!("true"));
            }
        } else {
            let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
            role.insert("aggregationRule".into(), selectors);
        }
    }
    role.insert("apiVersion".into(), json!(format!("{GROUP}/v1")));
    role.insert("kind".into(), json!("ClusterRole"));
    role.insert("metadata".into(), Value::Object(meta));
    role.insert("rules".into(), json!([]));
    Some(Value::Object(role))
}

fn cluster_roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in TABLE.lines() {
        if let Some(role) = read_role(line) {
            roles.push(role);
        } else if let Some(rules) = roles.last_mut().and_then(|r| r.get_mut("rules")?.as_array_mut()) {
            rules.extend(read_rule(line.trim_start()));
        }
    }
    for (name, rules) in aggregate(&roles) {
        let role = roles
            .iter_mut()
            .find(|r| r.pointer("/metadata/name").and_then(Value::as_str) == Some(&name));
        if let Some(Value::Object(role)) = role {
            role.insert("rules".into(), Value::Array(rules));
        }
    }
    roles
}

fn subject(kind: char, name: &str) -> Value {
    match kind {
        's' => json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}),
        'u' => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        _ => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
    }
}

fn binding(
    kind: &str,
    meta: Map<String, Value>,
    role_kind: &str,
    role: &str,
    subjects: &[(char, &str)],
) -> Value {
    let mut out = Map::new();
    out.insert("apiVersion".into(), json!(format!("{GROUP}/v1")));
    out.insert("kind".into(), json!(kind));
    out.insert("metadata".into(), Value::Object(meta));
    out.insert(
        "roleRef".into(),
        json!({"apiGroup": GROUP, "kind": role_kind, "name": role}),
    );
    if !subjects.is_empty() {
        let subjects: Vec<Value> = subjects.iter().map(|(kind, name)| subject(*kind, name)).collect();
        out.insert("subjects".into(), Value::Array(subjects));
    }
    Value::Object(out)
}

/// Made once per process: a test may start a hundred servers.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(all_objects);

/// Every bootstrap object: ClusterRoles with their aggregated rules, ClusterRoleBindings, and the
/// Role and RoleBinding in kube-system that extension servers read their configuration with.
///
/// `served` says which API groups exist; rules lose the groups that do not. `|_| true` gives
/// the rules of the reference in full.
pub fn bootstrap_objects(served: impl Fn(&str) -> bool) -> Vec<Value> {
    let kept = |group: &str| group == "*" || served(group);
    let restrict = |rule: &Value| -> Option<Value> {
        let groups = rule.get("apiGroups").and_then(Value::as_array);
        let names = || groups.into_iter().flatten().filter_map(Value::as_str);
        if groups.is_none() || names().all(kept) {
            return Some(rule.clone());
        }
        let left: Vec<&str> = names().filter(|g| kept(g)).collect();
        let mut rule = (!left.is_empty()).then(|| rule.clone())?;
        rule["apiGroups"] = json!(left);
        Some(rule)
    };
    let copy = |object: &Value| match object {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| match (key.as_str(), value) {
                    ("rules", Value::Array(rules)) => (
                        key.clone(),
                        Value::Array(rules.iter().filter_map(restrict).collect()),
                    ),
                    _ => (key.clone(), value.clone()),
                })
                .collect(),
        ),
        other => other.clone(),
    };
    OBJECTS.iter().map(copy).collect()
}

fn all_objects() -> Vec<Value> {
    let mut objects = cluster_roles();
    for (role, subjects) in BINDINGS {
        objects.push(binding(
            "ClusterRoleBinding",
            metadata(role, None),
            "ClusterRole",
            role,
            subjects,
        ));
    }
    let reader = "extension-apiserver-authentication-reader";
    objects.push(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Role",
        "metadata": metadata(reader, Some("kube-system")),
        "rules": [{
            "apiGroups": [""],
            "resourceNames": ["extension-apiserver-authentication"],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch"],
        }],
    }));
    let meta = metadata(&format!("system::{reader}"), Some("kube-system"));
    let users = [
        ('u', "system:kube-controller-manager"),
        ('u', "system:kube-scheduler"),
    ];
    objects.push(binding("RoleBinding", meta, "Role", reader, &users));
    objects
}

/// What a stored bootstrap object has to become; `None` when it stays as it is, because nothing
/// is missing or because it is annotated `rbac.authorization.kubernetes.io/autoupdate: "false"`.
pub fn reconcile(expected: &Value, existing: Option<&Value>) -> Option<Value> {
    let Some(existing) = existing else {
        return Some(expected.clone());
    };
    let protected = existing
        .pointer("/metadata/annotations")
        .and_then(|a| a.get(AUTOUPDATE));
    if protected.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut wanted = existing.clone();
    for key in ["annotations", "labels"] {
        add_missing_entries(&mut wanted, expected, key);
    }
    if expected.get("roleRef").is_some() {
        reconcile_binding(&mut wanted, expected);
    } else {
        reconcile_role(&mut wanted, expected, existing);
    }
    (wanted != *existing).then_some(wanted)
}

fn add_missing_entries(wanted: &mut Value, expected: &Value, key: &str) {
    let Some(entries) = expected
        .pointer("/metadata")
        .and_then(|m| m.get(key))
        .and_then(Value::as_object)
    else {
        return;
    };
    let Some(meta) = wanted.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let held = meta.entry(key).or_insert_with(|| json!({}));
    if !held.is_object() {
        *held = json!({});
    }
    if let Some(held) = held.as_object_mut() {
        for (name, value) in entries {
            held.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn reconcile_binding(wanted: &mut Value, expected: &Value) {
    let Some(object) = wanted.as_object_mut() else {
        return;
    };
    // A binding cannot change its role: the server replaces the object when this differs.
    if let Some(reference) = expected.get("roleRef") {
        object.insert("roleRef".into(), reference.clone());
    }
    let Some(subjects) = expected.get("subjects").and_then(Value::as_array) else {
        return;
    };
    let held = object.entry("subjects").or_insert_with(|| json!([]));
    if !held.is_array() {
        *held = json!([]);
    }
    if let Some(held) = held.as_array_mut() {
        for subject in subjects {
            if !held.contains(subject) {
                held.push(subject.clone());
            }
        }
    }
}

fn reconcile_role(wanted: &mut Value, expected: &Value, existing: &Value) {
    // Aggregated rules are computed, not restored.
    let own = if expected.get("aggregationRule").is_some() {
        Vec::new()
    } else {
        PolicyRule::list_of(expected)
    };
    let missing = covers(&PolicyRule::list_of(existing), &own);
    let Some(object) = wanted.as_object_mut() else {
        return;
    };
    if !missing.is_empty() {
        let held = object.entry("rules").or_insert_with(|| json!([]));
        if !held.is_array() {
            *held = json!([]);
        }
        if let Some(held) = held.as_array_mut() {
            held.extend(missing.iter().map(PolicyRule::to_value));
        }
    }
    let Some(aggregation) = expected.get("aggregationRule") else {
        object.remove("aggregationRule");
        return;
    };
    let selectors = aggregation.get("clusterRoleSelectors").and_then(Value::as_array);
    let held = object
        .entry("aggregationRule")
        .or_insert_with(|| json!({"clusterRoleSelectors": []}));
    let Some(held) = held.get_mut("clusterRoleSelectors").and_then(Value::as_array_mut) else {
        object.insert("aggregationRule".into(), aggregation.clone());
        return;
    };
    for selector in selectors.into_iter().flatten() {
        if !held.contains(selector) {
            held.push(selector.clone());
        }
    }
}
