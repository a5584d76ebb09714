// SPDX-License-Identifier: Apache-2.0
//! Identities: who a request acts as.
//!
//! A [`User`] is plain data. The helpers build the identities that the server itself knows:
//! the anonymous caller, the administrator, ServiceAccounts and nodes, each with the groups
//! that the reference server gives them.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Name of a caller without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of callers without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of every authenticated caller.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group that is always allowed everything.
pub const MASTERS: &str = "system:masters";
/// Group of all ServiceAccounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Group of all nodes.
pub const NODES: &str = "system:nodes";
/// Name of the administrator that the admin token stands for.
pub const ADMIN: &str = "kubernetes-admin";
/// Key of the extra value that names the token.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Key of the extra value that names the pod a token is bound to.
pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// Key of the extra value with the uid of the pod a token is bound to.
pub const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Key of the extra value that names the node a token is bound to.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Key of the extra value with the uid of the node a token is bound to.
pub const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const NODE_PREFIX: &str = "system:node:";

/// Who a request acts as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The uid, where the kind of user has one.
    pub uid: Option<String>,
    /// Groups, in the order they were given.
    pub groups: Vec<String>,
    /// Further facts about the user or the credentials.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with a name and groups and nothing else.
    pub fn new<S: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The caller without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The administrator: always allowed, through system:masters.
    pub fn admin() -> Self {
        Self::new(ADMIN, [MASTERS, AUTHENTICATED])
    }

    /// A ServiceAccount with its fixed groups, authenticated.
    pub fn service_account(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        let mut user = Self::new(
            service_account_name(namespace, name),
            service_account_groups(namespace),
        );
        user.uid = uid.map(str::to_owned);
        user.authenticated()
    }

    /// The same user as a member of system:authenticated.
    pub fn authenticated(mut self) -> Self {
        let known = |g: &String| g == AUTHENTICATED || g == UNAUTHENTICATED;
        if !self.groups.iter().any(known) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Whether the user is always allowed everything.
    pub fn is_master(&self) -> bool {
        self.in_group(MASTERS)
    }

    /// Whether the user is a member of the group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The `userInfo` form of the reference: username, uid, groups, extra, empty ones left out.
    pub fn to_user_info(&self) -> Value {
        let mut info = Map::new();
        if !self.name.is_empty() {
            info.insert("username".into(), json!(self.name));
        }
        if let Some(uid) = self.uid.as_deref().filter(|u| !u.is_empty()) {
            info.insert("uid".into(), json!(uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// The user name of a ServiceAccount.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups of every ServiceAccount of a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        SERVICE_ACCOUNTS.to_owned(),
        format!("{SERVICE_ACCOUNTS}:{namespace}"),
    ]
}

/// Namespace and name, when the user name is that of a ServiceAccount.
pub fn split_service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

/// The node's name, when the user name is that of a node.
pub fn split_node(username: &str) -> Option<&str> {
    username
        .strip_prefix(NODE_PREFIX)
        .filter(|name| is_dns_subdomain(name))
}

pub(crate) fn is_dns_label(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().copied().is_some_and(edge)
        && bytes.last().copied().is_some_and(edge)
        && bytes.iter().all(|&b| edge(b) || b == b'-')
}

pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().copied().is_some_and(edge)
                && bytes.last().copied().is_some_and(edge)
                && bytes.iter().all(|&b| edge(b) || b == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_names_are_split_only_when_well_formed() {
        for (name, wanted) in [
            (
                "system:serviceaccount:kube-system:agent",
                Some(("kube-system", "agent")),
            ),
            ("system:serviceaccount:a:b.c", Some(("a", "b.c"))),
            ("system:serviceaccount:a:b:c", None),
            ("system:serviceaccount:A:b", None),
            ("system:serviceaccount::b", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount:a.b:c", None),
            ("alice", None),
        ] {
            assert_eq!(split_service_account(name), wanted, "{name}");
        }
    }

    #[test]
    fn everyone_with_credentials_is_authenticated_once() {
        let user = User::service_account("n", "a", Some("u1"));
        assert_eq!(
            user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:n",
                "system:authenticated"
            ]
        );
        assert_eq!(user.clone().authenticated(), user);
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
        assert!(User::admin().is_master() && !User::anonymous().is_master());
    }

    #[test]
    fn user_info_leaves_empty_parts_out() {
        assert_eq!(User::new("", Vec::<String>::new()).to_user_info(), json!({}));
        let info = User::service_account("n", "a", Some("u1")).to_user_info();
        assert_eq!(info["username"], "system:serviceaccount:n:a");
        assert_eq!(info["uid"], "u1");
        assert!(info.get("extra").is_none());
    }
}
