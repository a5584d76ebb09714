// SPDX-License-Identifier: Apache-2.0
//! How documents name things: definitions, operations, tags, group versions. The names are what
//! clients generate code from and what `kubectl explain` looks types up by, so they follow the
//! published documents to the letter.

use crate::registry::{Resource, SubresourceEntry};

/// Where the definitions of API machinery live.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A definition of API machinery.
pub(super) fn meta(kind: &str) -> String {
    format!("{META}{kind}")
}

/// The path of a group version: `api/v1`, `apis/apps/v1`.
pub(super) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// The definition of a custom kind: reversed group, version, kind.
fn custom(group: &str, version: &str, kind: &str) -> String {
    let mut labels: Vec<&str> = group.split('.').collect();
    labels.reverse();
    format!("{}.{version}.{kind}", labels.join("."))
}

/// The definition of a resource's objects.
pub(super) fn definition(resource: &Resource) -> String {
    match resource.as_builtin() {
        Some(kind) => kind.definition.to_owned(),
        None => custom(&resource.group, &resource.version, &resource.kind),
    }
}

/// The definition of a resource's lists.
pub(super) fn list_definition(resource: &Resource) -> String {
    match resource.as_builtin() {
        Some(kind) => format!("{}List", kind.definition),
        None => custom(&resource.group, &resource.version, &resource.list_kind),
    }
}

/// The definition of what a subresource speaks.
pub(super) fn subresource_definition(resource: &Resource, sub: &SubresourceEntry) -> String {
    if sub.version.is_empty() && *sub.kind == *resource.kind {
        return definition(resource);
    }
    let (group, version) = if sub.version.is_empty() {
        (&*resource.group, &*resource.version)
    } else {
        (&*sub.group, &*sub.version)
    };
    let package = group
        .split('.')
        .next()
        .filter(|label| !label.is_empty())
        .unwrap_or("core");
    format!("io.k8s.api.{package}.{version}.{}", sub.kind)
}

/// The words of a group: `rbac.authorization.k8s.io` gives rbac and authorization.
fn words(group: &str) -> impl Iterator<Item = &str> {
    let short = if group.is_empty() {
        "core"
    } else {
        group.trim_end_matches(".k8s.io")
    };
    short.split(['.', '-']).filter(|word| !word.is_empty())
}

/// With a capital first letter.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The tag of a group version, or of a group when `version` is empty: `rbacAuthorization_v1`.
pub(super) fn tag(group: &str, version: &str) -> String {
    let mut tag = String::new();
    for (at, word) in words(group).enumerate() {
        if at == 0 {
            tag.push_str(word);
        } else {
            tag.push_str(&capital(word));
        }
    }
    if !version.is_empty() {
        tag.push('_');
        tag.push_str(version);
    }
    tag
}

/// The middle of operation ids: `RbacAuthorizationV1`.
pub(super) fn camel(group: &str, version: &str) -> String {
    words(group).map(capital).chain([capital(version)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_published_documents() {
        for (group, version, tags, middle, path) in [
            ("", "v1", "core_v1", "CoreV1", "api/v1"),
            ("apps", "v1", "apps_v1", "AppsV1", "apis/apps/v1"),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "rbacAuthorization_v1",
                "RbacAuthorizationV1",
                "apis/rbac.authorization.k8s.io/v1",
            ),
            (
                "kvm.cloud.sap",
                "v1alpha1",
                "kvmCloudSap_v1alpha1",
                "KvmCloudSapV1alpha1",
                "apis/kvm.cloud.sap/v1alpha1",
            ),
        ] {
            assert_eq!(tag(group, version), tags);
            assert_eq!(camel(group, version), middle);
            assert_eq!(group_version(group, version), path);
        }
        assert_eq!(
            custom("kvm.cloud.sap", "v1", "Hypervisor"),
            "sap.cloud.kvm.v1.Hypervisor"
        );
    }
}
