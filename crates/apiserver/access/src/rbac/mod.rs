// SPDX-License-Identifier: Apache-2.0
//! Role based access control, as the reference server evaluates it.
//!
//! An [`Index`] holds roles and bindings by subject; [`authorize`] asks it. There are no deny
//! rules: what no rule allows is refused. Members of system:masters are allowed before any
//! rule is looked at.

mod aggregation;
mod bootstrap;
mod escalation;
mod index;
mod rule;

pub use aggregation::{aggregate, aggregated_rules, selector_matches};
pub use bootstrap::{bootstrap_objects, reconcile};
pub use escalation::{check_binding_write, check_role_write, missing_rights};
pub use index::{Binding, Index, Role, RoleKind, RuleRef};
pub use rule::{PolicyRule, breakdown, compact, covers};

use cobaltcore_text::go;

use crate::error::Refusal;
use crate::identity::User;

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, `create` and so on; for paths the lower-case HTTP method.
    pub verb: &'a str,
    /// API group, empty for core.
    pub group: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Subresource, may be empty.
    pub subresource: &'a str,
    /// Namespace, empty at the cluster scope.
    pub namespace: &'a str,
    /// Name, empty when the request is not about one object.
    pub name: &'a str,
    /// The path of a request that is not about a resource.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// A request about a resource, cluster scope, no name.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self {
            user,
            verb,
            group,
            resource,
            subresource: "",
            namespace: "",
            name: "",
            path: None,
        }
    }

    /// A request about a path.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self {
            path: Some(path),
            ..Self::resource(user, verb, "", "")
        }
    }

    /// The same in a namespace.
    pub fn in_namespace(mut self, namespace: &'a str) -> Self {
        self.namespace = namespace;
        self
    }

    /// The same about one object.
    pub fn named(mut self, name: &'a str) -> Self {
        self.name = name;
        self
    }

    /// The same about a subresource.
    pub fn of_subresource(mut self, subresource: &'a str) -> Self {
        self.subresource = subresource;
        self
    }

    /// `pods` or `pods/status`.
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// The answer of the authoriser.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// The binding and rule that allowed it; absent for system:masters and refusals.
    pub rule: Option<RuleRef>,
    /// Roles that bindings name and that do not exist.
    pub unresolved: Vec<String>,
}

impl Decision {
    /// Allowed without a rule: system:masters and the always-allow mode.
    pub fn allow() -> Self {
        Self {
            allowed: true,
            ..Self::default()
        }
    }

    /// The reason as SubjectAccessReview gives it; empty when there is none.
    pub fn reason(&self) -> String {
        match &self.rule {
            Some(rule) => format!("RBAC: allowed by {}", rule.describe()),
            None if self.allowed || self.unresolved.is_empty() => String::new(),
            None => format!("RBAC: {}", go::aggregate(&self.unresolved)),
        }
    }
}

/// Evaluates a request against roles and bindings.
pub fn authorize(index: &Index, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.is_master() {
        return Decision::allow();
    }
    let mut decision = Decision::default();
    index.visit(attributes.user, attributes.namespace, |found| match found {
        Ok(rule) => {
            if rule.rule().is_some_and(|r| r.allows(attributes)) {
                decision.allowed = true;
                decision.unresolved.clear();
                decision.rule = Some(rule.to_owned());
                return false;
            }
            true
        }
        Err(missing) => {
            decision.unresolved.push(missing);
            true
        }
    });
    decision
}

/// The 403 answer for a refused request; `reason` is that of the decision and may be empty.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Refusal {
    let what = sanitize(&forbidden_text(attributes));
    let detail = if reason.is_empty() {
        what
    } else {
        format!("{what}: {reason}")
    };
    Refusal::Forbidden {
        group: attributes.group.to_owned(),
        resource: attributes.resource.to_owned(),
        name: attributes.name.to_owned(),
        detail,
    }
}

fn forbidden_text(attributes: &Attributes<'_>) -> String {
    let user = go::quote(&attributes.user.name);
    let verb = attributes.verb;
    if let Some(path) = attributes.path {
        return format!("User {user} cannot {verb} path {}", go::quote(path));
    }
    let resource = go::quote(&attributes.combined_resource());
    let group = go::quote(attributes.group);
    if attributes.namespace.is_empty() {
        format!("User {user} cannot {verb} resource {resource} in API group {group} at the cluster scope")
    } else {
        let namespace = go::quote(attributes.namespace);
        format!(
            "User {user} cannot {verb} resource {resource} in API group {group} in the namespace {namespace}"
        )
    }
}

/// Names come from the client; an answer must never look like HTML to a browser.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
