// SPDX-License-Identifier: Apache-2.0
//! Versions among themselves: which one is newer, and what is said of one that should no longer be
//! used.

use serde_json::Value;

use super::{list, text};

/// Sorts versions as Kubernetes does: stable before beta before alpha, higher numbers first, and
/// names that are no versions last.
pub fn version_priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = (|| {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, tail) = rest.split_at_checked(digits)?;
        let major: u64 = major.parse().ok()?;
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, minor) = if let Some(minor) = tail.strip_prefix("beta") {
            (2, minor)
        } else {
            (1, tail.strip_prefix("alpha")?)
        };
        Some((stage, major, minor.parse().ok()?))
    })();
    let (stage, major, minor) = parsed.unwrap_or((0, 0, 0));
    let name = if stage == 0 {
        version.to_owned()
    } else {
        String::new()
    };
    (stage, major, minor, std::cmp::Reverse(name))
}

/// What is said of a deprecated version that says nothing itself: which newer one to use.
pub(super) fn deprecation(spec: &Value, name: &str, kind: &str) -> String {
    let group = text(spec, "group");
    let flag = |version: &Value, key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
    let newer = list(spec, "versions")
        .iter()
        .filter(|v| flag(v, "served") && !flag(v, "deprecated"))
        .map(|v| text(v, "name"))
        .filter(|other| version_priority(other) > version_priority(name))
        .max_by_key(|other| version_priority(other));
    let advice = newer.map(|newer| format!("; use {group}/{newer} {kind}"));
    format!(
        "{group}/{name} {kind} is deprecated{}",
        advice.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_sorts_them() {
        let mut versions = [
            "v11alpha2",
            "foo1",
            "v3beta1",
            "v12alpha1",
            "v1",
            "foo10",
            "v11beta2",
            "v10beta3",
            "v2",
            "v10",
        ];
        versions.sort_by_key(|v| std::cmp::Reverse(version_priority(v)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
    }
}
