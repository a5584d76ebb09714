// SPDX-License-Identifier: Apache-2.0
//! What a Hypervisor inherits from its Node, and whether it has it already.

use std::collections::BTreeMap;

use cobaltcore_api::{Hypervisor, Maintenance, annotations, labels};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use crate::ownership::{is_ours, our_labels};
use crate::seen::{node_annotation, node_label};

const LIFECYCLE: &str = "lifecycleEnabled";
const SKIP_TESTS: &str = "skipTests";
const AGGREGATES: &str = "aggregates";
const TRAITS: &str = "customTraits";

/// What a Hypervisor should have from its Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) spec: Map<String, Value>,
    /// Name and UID of the owner, unless the object is to outlive it.
    pub(super) owner: Option<(String, String)>,
}

impl Wanted {
    /// What the Hypervisor of `node` should have; `hypervisor` is what there is.
    pub(super) fn new(
        node: &Node,
        hypervisor: Option<&Hypervisor>,
        inherited: &[String],
        outlive: bool,
    ) -> Self {
        let copy = |key: &String| Some((key.clone(), node_label(node, key)?.to_owned()));
        let name = node.metadata.name.clone().unwrap_or_default();
        let owner = node.metadata.uid.clone().map(|uid| (name, uid));
        Self {
            labels: inherited.iter().filter_map(copy).collect(),
            spec: spec(node, hypervisor),
            owner: owner.filter(|_| !outlive),
        }
    }

    /// Whether the Hypervisor has all of it.
    pub(super) fn is_in(&self, hypervisor: &Hypervisor) -> bool {
        let there = hypervisor.metadata.labels.as_ref();
        let labels = self
            .labels
            .iter()
            .all(|(key, value)| there.is_some_and(|labels| labels.get(key) == Some(value)));
        let current = current(hypervisor);
        let spec = self
            .spec
            .iter()
            .all(|(field, value)| current.get(field) == Some(value));
        let owners = hypervisor.metadata.owner_references.iter().flatten();
        let owned = match &self.owner {
            Some((_, uid)) => owners.into_iter().any(|owner| owner.uid == *uid),
            None => true,
        };
        labels && spec && owned
    }

    /// Labels that came from the Node and are no longer there.
    pub(super) fn stale_labels(&self, hypervisor: &Hypervisor, inherited: &[String]) -> Vec<String> {
        let stale = |key: &String| inherited.contains(key) && !self.labels.contains_key(key);
        our_labels(hypervisor).into_iter().filter(stale).collect()
    }

    /// The object to apply.
    pub(super) fn to_object(&self, name: &str) -> Value {
        let Self { labels, spec, owner } = self;
        let mut metadata = json!({"name": name, "labels": labels});
        if let Some((node, uid)) = owner {
            metadata["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "blockOwnerDeletion": true}
            ]);
        }
        json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": metadata, "spec": spec})
    }
}

/// The inherited fields as they are.
fn current(hypervisor: &Hypervisor) -> Map<String, Value> {
    let spec = &hypervisor.spec;
    [
        (LIFECYCLE, json!(spec.lifecycle_enabled)),
        (SKIP_TESTS, json!(spec.skip_tests)),
        (AGGREGATES, json!(spec.aggregates)),
        (TRAITS, json!(spec.custom_traits)),
    ]
    .into_iter()
    .map(|(field, value)| (field.to_owned(), value))
    .collect()
}

fn spec(node: &Node, hypervisor: Option<&Hypervisor>) -> Map<String, Value> {
    let ours = |field: &str| hypervisor.is_some_and(|hypervisor| is_ours(hypervisor, &["spec", field]));
    // The API refuses any change of the spec in termination; what we own is said again as it is.
    if let Some(hypervisor) = hypervisor.filter(|hv| hv.spec.maintenance == Maintenance::Termination) {
        let mut fields = current(hypervisor);
        fields.retain(|field, _| ours(field));
        return fields;
    }
    let lifecycle = node_label(node, labels::LIFECYCLE);
    let skip = lifecycle.map(|value| value == labels::LIFECYCLE_SKIP_TESTS);
    // Without the label a new Hypervisor is left alone; a later removal takes back only our own word.
    let enabled = match lifecycle {
        Some(_) => Some(true),
        None => (hypervisor.is_none() || ours(LIFECYCLE)).then_some(false),
    };
    let none = |field: &str| ours(field).then(Vec::new);
    let aggregates = node_annotation(node, annotations::AGGREGATES)
        .map(|text| with_zone(list(text), node))
        .or_else(|| none(AGGREGATES));
    let traits = node_annotation(node, annotations::CUSTOM_TRAITS)
        .map(list)
        .or_else(|| none(TRAITS));
    let fields = [
        (LIFECYCLE, enabled.map(Value::from)),
        (
            SKIP_TESTS,
            skip.or_else(|| ours(SKIP_TESTS).then_some(false))
                .map(Value::from),
        ),
        (AGGREGATES, aggregates.map(Value::from)),
        (TRAITS, traits.map(Value::from)),
    ];
    fields
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value?)))
        .collect()
}

/// The items of a comma-separated annotation, each once.
fn list(text: &str) -> Vec<String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.fold(Vec::new(), |mut list, item| {
        if !list.iter().any(|known| known == item) {
            list.push(item.to_owned());
        }
        list
    })
}

fn with_zone(mut aggregates: Vec<String>, node: &Node) -> Vec<String> {
    if let Some(zone) = node_label(node, labels::ZONE)
        && !zone.is_empty()
        && !aggregates.iter().any(|name| name == zone)
    {
        aggregates.push(zone.to_owned());
    }
    aggregates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_trimmed_and_hold_each_item_once() {
        assert_eq!(list(" a, ,b,a ,"), ["a", "b"]);
        assert_eq!(list(""), Vec::<String>::new());
    }
}
