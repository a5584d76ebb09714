// SPDX-License-Identifier: Apache-2.0
//! Roles and bindings, indexed by subject.
//!
//! The server keeps one index behind an atomic pointer: for a commit that touches RBAC it
//! clones the index, applies the changes and swaps the pointer, so the next request sees them.
//! Cloning shares everything but the maps of the touched scope.

use super::rule::PolicyRule;
use crate::identity::{User, service_account_name};
use cobaltcore_text::go;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Role or ClusterRole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleKind {
    /// A Role, valid in its namespace.
    Role,
    /// A ClusterRole.
    ClusterRole,
}

impl RoleKind {
    /// The kind as objects spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
        }
    }

    /// The plural resource.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
        }
    }

    /// Reads the kind of a roleRef.
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(Self::Role),
            "ClusterRole" => Some(Self::ClusterRole),
            _ => None,
        }
    }
}

/// A role as the index keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Role or ClusterRole.
    pub kind: RoleKind,
    /// Namespace, empty for ClusterRoles.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The rules, in order.
    pub rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// A binding as the index keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Namespace, empty for ClusterRoleBindings.
    pub namespace: String,
    /// Name.
    pub name: String,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

impl Binding {
    fn from_value(namespace: &str, name: &str, value: &Value) -> Self {
        let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let reference = value.get("roleRef").cloned().unwrap_or_default();
        let subjects = value.get("subjects").and_then(Value::as_array);
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role_kind: text(&reference, "kind"),
            role_name: text(&reference, "name"),
            subjects: subjects
                .into_iter()
                .flatten()
                .map(|s| Subject {
                    kind: text(s, "kind"),
                    name: text(s, "name"),
                    namespace: text(s, "namespace"),
                })
                .collect(),
        }
    }

    /// Kind and name of the role that is bound.
    pub fn role(&self) -> (&str, &str) {
        (&self.role_kind, &self.role_name)
    }

    fn describe(&self, subject: usize) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let to = match self.subjects.get(subject) {
            Some(s) if s.kind == "ServiceAccount" => {
                let namespace = if s.namespace.is_empty() {
                    &self.namespace
                } else {
                    &s.namespace
                };
                format!("ServiceAccount {}", go::quote(&format!("{}/{namespace}", s.name)))
            }
            Some(s) => format!("{} {}", s.kind, go::quote(&s.name)),
            None => String::new(),
        };
        format!(
            "{kind} {} of {} {} to {to}",
            go::quote(&name),
            self.role_kind,
            go::quote(&self.role_name)
        )
    }
}

#[derive(Debug, Clone)]
struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

/// The rule that allowed a request, and the binding through which the user holds it.
#[derive(Debug, Clone)]
pub struct RuleRef {
    /// The role.
    pub role: Arc<Role>,
    /// Which of its rules.
    pub index: usize,
    /// The binding.
    pub binding: Arc<Binding>,
    subject: usize,
}

impl RuleRef {
    /// The rule itself.
    pub fn rule(&self) -> Option<&PolicyRule> {
        self.role.rules.get(self.index)
    }

    /// The rule's address: `ClusterRole/name[0]`, `Role/namespace/name[0]`.
    pub fn id(&self) -> String {
        let Role {
            kind,
            namespace,
            name,
            ..
        } = self.role.as_ref();
        let scope = if namespace.is_empty() {
            String::new()
        } else {
            format!("{namespace}/")
        };
        format!("{}/{scope}{name}[{}]", kind.as_str(), self.index)
    }

    /// The group through which the user is bound, when it is not bound by name.
    pub fn group_subject(&self) -> Option<&str> {
        let subject = self.binding.subjects.get(self.subject)?;
        (subject.kind == "Group").then_some(subject.name.as_str())
    }

    /// `ClusterRoleBinding "x" of ClusterRole "y" to User "z"`.
    pub fn describe(&self) -> String {
        self.binding.describe(self.subject)
    }
}

/// A rule met while visiting; becomes a [`RuleRef`] only when it is kept.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    role: &'a Arc<Role>,
    index: usize,
    grant: &'a Grant,
}

impl Found<'_> {
    pub(super) fn rule(&self) -> Option<&PolicyRule> {
        self.role.rules.get(self.index)
    }

    pub(super) fn to_owned(self) -> RuleRef {
        RuleRef {
            role: Arc::clone(self.role),
            index: self.index,
            binding: Arc::clone(&self.grant.binding),
            subject: self.grant.subject,
        }
    }
}

/// Roles and bindings of one scope: the cluster, or one namespace.
#[derive(Debug, Clone, Default)]
struct Scope {
    roles: HashMap<String, Arc<Role>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    by_user: HashMap<String, Vec<Grant>>,
    by_group: HashMap<String, Vec<Grant>>,
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.bindings.is_empty()
    }

    fn unbind(&mut self, name: &str) {
        let Some(old) = self.bindings.remove(name) else {
            return;
        };
        for (map, key) in old.subjects.iter().filter_map(|s| subject_key(s, &old.namespace)) {
            let map = if map == Key::User {
                &mut self.by_user
            } else {
                &mut self.by_group
            };
            if let Some(grants) = map.get_mut(&key) {
                grants.retain(|g| g.binding.name != name);
                if grants.is_empty() {
                    map.remove(&key);
                }
            }
        }
    }

    fn bind(&mut self, binding: Binding) {
        self.unbind(&binding.name);
        let binding = Arc::new(binding);
        for (position, subject) in binding.subjects.iter().enumerate() {
            let Some((map, key)) = subject_key(subject, &binding.namespace) else {
                continue;
            };
            let map = if map == Key::User {
                &mut self.by_user
            } else {
                &mut self.by_group
            };
            let grants = map.entry(key).or_default();
            // The first subject that applies is the one the reference names in its reason.
            if grants.iter().any(|g| g.binding.name == binding.name) {
                continue;
            }
            let at = grants.partition_point(|g| g.binding.name < binding.name);
            grants.insert(
                at,
                Grant {
                    binding: Arc::clone(&binding),
                    subject: position,
                },
            );
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn grants<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let own = self.by_user.get(&user.name).into_iter().flatten();
        own.chain(user.groups.iter().filter_map(|g| self.by_group.get(g)).flatten())
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Key {
    User,
    Group,
}

fn subject_key(subject: &Subject, binding_namespace: &str) -> Option<(Key, String)> {
    match subject.kind.as_str() {
        "User" => Some((Key::User, subject.name.clone())),
        "Group" => Some((Key::Group, subject.name.clone())),
        "ServiceAccount" => {
            let namespace = if subject.namespace.is_empty() {
                binding_namespace
            } else {
                &subject.namespace
            };
            (!namespace.is_empty()).then(|| (Key::User, service_account_name(namespace, &subject.name)))
        }
        _ => None,
    }
}

/// All roles and bindings of a server.
#[derive(Debug, Clone, Default)]
pub struct Index {
    cluster: Arc<Scope>,
    namespaces: HashMap<Arc<str>, Arc<Scope>>,
}

impl Index {
    /// An index of nothing: only system:masters may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// An index of the given objects; objects of other kinds are passed over.
    pub fn build<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut index = Self::new();
        for object in objects {
            let meta = |key: &str| {
                object
                    .pointer(&format!("/metadata/{key}"))
                    .and_then(Value::as_str)
            };
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let namespace = meta("namespace").unwrap_or_default().to_owned();
            let name = meta("name").unwrap_or_default().to_owned();
            index.upsert(kind, &namespace, &name, object);
        }
        index
    }

    /// Whether objects of this kind belong here.
    pub fn concerns(kind: &str) -> bool {
        matches!(
            kind,
            "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding"
        )
    }

    fn scope_mut(&mut self, namespace: &str) -> &mut Scope {
        if namespace.is_empty() {
            return Arc::make_mut(&mut self.cluster);
        }
        Arc::make_mut(self.namespaces.entry(Arc::from(namespace)).or_default())
    }

    /// Adds or replaces an object.
    pub fn upsert(&mut self, kind: &str, namespace: &str, name: &str, object: &Value) {
        let namespace = if kind.starts_with("Cluster") {
            ""
        } else {
            namespace
        };
        match kind {
            "Role" | "ClusterRole" => {
                let kind = if kind == "Role" {
                    RoleKind::Role
                } else {
                    RoleKind::ClusterRole
                };
                let role = Role {
                    kind,
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    rules: PolicyRule::list_of(object),
                };
                self.scope_mut(namespace)
                    .roles
                    .insert(name.to_owned(), Arc::new(role));
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                self.scope_mut(namespace)
                    .bind(Binding::from_value(namespace, name, object));
            }
            _ => {}
        }
    }

    /// Removes an object; one that is not there is no error.
    pub fn remove(&mut self, kind: &str, namespace: &str, name: &str) {
        let namespace = if kind.starts_with("Cluster") {
            ""
        } else {
            namespace
        };
        if !Self::concerns(kind) || (!namespace.is_empty() && !self.namespaces.contains_key(namespace)) {
            return;
        }
        let scope = self.scope_mut(namespace);
        if kind.ends_with("Binding") {
            scope.unbind(name);
        } else {
            scope.roles.remove(name);
        }
        if !namespace.is_empty() && scope.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// A role, if it exists; `namespace` is ignored for ClusterRoles.
    pub fn role(&self, kind: RoleKind, namespace: &str, name: &str) -> Option<&Arc<Role>> {
        match kind {
            RoleKind::ClusterRole => self.cluster.roles.get(name),
            RoleKind::Role => self.namespaces.get(namespace)?.roles.get(name),
        }
    }

    fn resolve(&self, grant: &Grant) -> Result<&Arc<Role>, String> {
        let binding = &grant.binding;
        let Some(kind) = RoleKind::parse(&binding.role_kind) else {
            return Err(format!(
                "unsupported role reference kind: {}",
                go::quote(&binding.role_kind)
            ));
        };
        let known = match kind {
            RoleKind::Role if binding.namespace.is_empty() => None,
            _ => self.role(kind, &binding.namespace, &binding.role_name),
        };
        known.ok_or_else(|| {
            let kind = if kind == RoleKind::Role {
                "role"
            } else {
                "clusterrole"
            };
            format!(
                "{kind}.rbac.authorization.k8s.io {} not found",
                go::quote(&binding.role_name)
            )
        })
    }

    /// Visits the user's rules, cluster-wide ones first, until `visitor` says false.
    pub(super) fn visit<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
        mut visitor: impl FnMut(Result<Found<'a>, String>) -> bool,
    ) {
        let local = if namespace.is_empty() {
            None
        } else {
            self.namespaces.get(namespace)
        };
        let grants = self
            .cluster
            .grants(user)
            .chain(local.into_iter().flat_map(|scope| scope.grants(user)));
        for grant in grants {
            match self.resolve(grant) {
                Ok(role) => {
                    for index in 0..role.rules.len() {
                        if !visitor(Ok(Found { role, index, grant })) {
                            return;
                        }
                    }
                }
                Err(missing) => {
                    if !visitor(Err(missing)) {
                        return;
                    }
                }
            }
        }
    }

    /// The user's rules in a namespace (cluster-wide ones included), with where they come from,
    /// and a text for every role that is bound but missing.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<RuleRef>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.visit(user, namespace, |found| {
            match found {
                Ok(rule) => rules.push(rule.to_owned()),
                Err(text) => missing.push(text),
            }
            true
        });
        (rules, missing)
    }

    /// Every namespace in which the user holds rules through a RoleBinding.
    pub fn namespaces_of(&self, user: &User) -> Vec<String> {
        let mut names: Vec<String> = self
            .namespaces
            .iter()
            .filter(|(_, scope)| scope.grants(user).next().is_some())
            .map(|(name, _)| name.to_string())
            .collect();
        names.sort();
        names
    }
}
