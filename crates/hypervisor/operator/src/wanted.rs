// SPDX-License-Identifier: Apache-2.0
//! Where the wanted aggregates and traits of a host stand: in their own lists, or among the typed
//! groups of its spec where the operator is told to read those.

use cobaltcore_api::HypervisorSpec;

use crate::config::GroupsSource;

/// The traits a host shall have.
pub(crate) fn traits(spec: &HypervisorSpec, source: GroupsSource) -> Vec<String> {
    if source == GroupsSource::Lists || spec.groups.is_empty() {
        return spec.custom_traits.clone();
    }
    let groups = spec.groups.iter().filter_map(|group| group.trait_.as_ref());
    groups.map(|group| group.name.clone()).collect()
}

/// The aggregates a host shall be in.
pub(crate) fn aggregates(spec: &HypervisorSpec, source: GroupsSource) -> Vec<String> {
    if source == GroupsSource::Lists || spec.groups.is_empty() {
        return spec.aggregates.clone();
    }
    let groups = spec.groups.iter().filter_map(|group| group.aggregate.as_ref());
    groups.map(|group| group.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_count_only_where_they_are_asked_for_and_there_are_some() {
        let spec: HypervisorSpec = serde_json::from_value(serde_json::json!({
            "customTraits": ["CUSTOM_A"], "aggregates": ["prod"],
            "groups": [{"trait": {"name": "CUSTOM_B"}}, {"aggregate": {"name": "gold", "uuid": "u"}}],
        }))
        .unwrap();
        assert_eq!(traits(&spec, GroupsSource::Lists), ["CUSTOM_A"]);
        assert_eq!(traits(&spec, GroupsSource::Groups), ["CUSTOM_B"]);
        assert_eq!(aggregates(&spec, GroupsSource::Groups), ["gold"]);
        let without = HypervisorSpec {
            groups: Vec::new(),
            ..spec
        };
        assert_eq!(aggregates(&without, GroupsSource::Groups), ["prod"]);
    }
}
