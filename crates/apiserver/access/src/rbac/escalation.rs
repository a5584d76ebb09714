// SPDX-License-Identifier: Apache-2.0
//! Nobody hands out rights they do not hold.
//!
//! Writing a role needs every right in it, or the verb `escalate`; writing a binding needs the
//! rights of the bound role, or the verb `bind` on it. The server calls these checks after
//! authorisation and before the write; in always-allow mode it does not call them at all.

use super::index::{Index, RoleKind};
use super::rule::{PolicyRule, compact, covers};
use super::{Attributes, authorize};
use crate::error::Refusal;
use crate::identity::User;
use cobaltcore_text::go;
use serde_json::Value;
use std::fmt::Write as _;

const GROUP: &str = "rbac.authorization.k8s.io";
const NEEDS_ADMIN: &str = "must have cluster-admin privileges to use the aggregationRule";

/// The text that names the rights the user lacks; `None` when they hold all of them.
pub fn missing_rights(index: &Index, user: &User, namespace: &str, rules: &[PolicyRule]) -> Option<String> {
    let (held, unresolved) = index.rules_for(user, namespace);
    let held: Vec<PolicyRule> = held.iter().filter_map(|r| r.rule().cloned()).collect();
    let missing = covers(&held, rules);
    if missing.is_empty() {
        return None;
    }
    let mut lines: Vec<String> = compact(missing).iter().map(PolicyRule::compact_text).collect();
    lines.sort();
    lines.dedup();
    let mut text = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go::quote(&user.name),
        go::quote_list(&user.groups),
        lines.join("\n")
    );
    if !unresolved.is_empty() {
        let _ = write!(text, "; resolution errors: [{}]", go::aggregate(&unresolved));
    }
    Some(text)
}

fn refuse(resource: &str, name: &str, detail: String) -> Refusal {
    Refusal::Forbidden {
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        detail,
    }
}

/// Whether an update touches nothing but what the garbage collector needs.
fn only_collector_fields(old: &Value, new: &Value) -> bool {
    let mut new = new.clone();
    for key in ["ownerReferences", "finalizers", "managedFields"] {
        let kept = old.pointer("/metadata").and_then(|m| m.get(key)).cloned();
        if let Some(meta) = new.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            match kept {
                Some(value) => meta.insert(key.to_owned(), value),
                None => meta.remove(key),
            };
        }
    }
    new == *old
}

fn has_aggregation(role: Option<&Value>) -> bool {
    let selectors = role.and_then(|r| r.pointer("/aggregationRule/clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|s| !s.is_empty())
}

fn full_authority() -> Vec<PolicyRule> {
    let all = || vec!["*".to_owned()];
    vec![
        PolicyRule {
            api_groups: all(),
            resources: all(),
            verbs: all(),
            ..PolicyRule::default()
        },
        PolicyRule {
            non_resource_urls: all(),
            verbs: all(),
            ..PolicyRule::default()
        },
    ]
}

/// Checks a create (`old` is `None`) or change of a Role or ClusterRole.
///
/// `url_name` is the name in the request's path: empty for a create, as the verb `escalate` is
/// then asked for without a name.
pub fn check_role_write(
    index: &Index,
    user: &User,
    kind: RoleKind,
    namespace: &str,
    url_name: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    if user.is_master() {
        return Ok(());
    }
    let namespace = if kind == RoleKind::ClusterRole {
        ""
    } else {
        namespace
    };
    let resource = kind.resource();
    let escalate = Attributes::resource(user, "escalate", GROUP, resource)
        .in_namespace(namespace)
        .named(url_name);
    if authorize(index, &escalate).allowed || old.is_some_and(|old| only_collector_fields(old, new)) {
        return Ok(());
    }
    let name = new
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or(url_name);
    if let Some(text) = missing_rights(index, user, namespace, &PolicyRule::list_of(new)) {
        return Err(refuse(resource, name, text));
    }
    let collects = kind == RoleKind::ClusterRole && (has_aggregation(Some(new)) || has_aggregation(old));
    if collects && missing_rights(index, user, namespace, &full_authority()).is_some() {
        return Err(refuse(resource, name, NEEDS_ADMIN.to_owned()));
    }
    Ok(())
}

/// Checks a create (`old` is `None`) or change of a RoleBinding (with its namespace) or
/// ClusterRoleBinding (with an empty namespace).
pub fn check_binding_write(
    index: &Index,
    user: &User,
    namespace: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    if user.is_master() || old.is_some_and(|old| only_collector_fields(old, new)) {
        return Ok(());
    }
    let text = |pointer: &str| new.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = RoleKind::parse(text("/roleRef/kind")) else {
        let shown = go::quote(text("/roleRef/kind"));
        return Err(Refusal::Internal(format!(
            "unsupported role reference kind: {shown}"
        )));
    };
    let (role_group, role_name) = (text("/roleRef/apiGroup"), text("/roleRef/name"));
    let group = if role_group.is_empty() { GROUP } else { role_group };
    let bind = Attributes::resource(user, "bind", group, kind.resource())
        .in_namespace(namespace)
        .named(role_name);
    if authorize(index, &bind).allowed {
        return Ok(());
    }
    let resource = if namespace.is_empty() {
        "clusterrolebindings"
    } else {
        "rolebindings"
    };
    let Some(role) = index.role(kind, namespace, role_name) else {
        // The reference calls the missing role by the kind of the binding.
        return Err(Refusal::NotFound {
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            name: role_name.to_owned(),
        });
    };
    match missing_rights(index, user, namespace, &role.rules) {
        None => Ok(()),
        Some(missing) => Err(refuse(resource, text("/metadata/name"), missing)),
    }
}
