// SPDX-License-Identifier: Apache-2.0
//! Taking over from the agent of the running system, which wrote the same fields by plain updates under the name of its
//! program. What it owns becomes ours, so that a field we do not write any more goes away instead of staying for ever
//! in the name of a program that is gone. What others wrote under the same name is left to them.
//!
//! Who owns what can only be changed through the object itself, which an agent may usually not write; its conditions
//! can be removed through the status all the same.

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value, json};

/// The former agent's name among managers.
const FORMER: &str = "manager";
const STATUS: &str = "f:status";
const CONDITIONS: &str = "f:conditions";
/// Says that the element itself is owned, not only something in it.
const ITSELF: &str = ".";

/// The fields of the status that it wrote.
const FIELDS: [&str; 12] = [
    "f:allocation",
    "f:capabilities",
    "f:capacity",
    "f:cells",
    "f:domainCapabilities",
    "f:effectiveCapacity",
    "f:hypervisorVersion",
    "f:instances",
    "f:libVirtVersion",
    "f:numInstances",
    "f:operatingSystem",
    "f:updateStatus",
];

/// Units whose conditions it wrote, whatever ours is told to watch.
const UNITS: [&str; 2] = ["libvirtd.service", "openvswitch-switch.service"];

/// The managers of an object after the takeover; `None` when there is nothing to take over.
pub(super) fn taken_over(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let mut taken = Map::new();
    let mut api_version = None;
    let mut rest = Vec::new();
    for entry in entries {
        let mut entry = entry.clone();
        if is(&entry, FORMER, "Update")
            && let Some(fields) = entry.fields_v1.as_mut()
        {
            let found = take(&mut fields.0);
            if !found.is_empty() {
                api_version = api_version.or_else(|| entry.api_version.clone());
                merge(&mut taken, found);
            }
            if owns_nothing(&fields.0) {
                continue;
            }
        }
        rest.push(entry);
    }
    if taken.is_empty() {
        return None;
    }
    let name = FieldManager::NodeAgent.as_str();
    match rest.iter_mut().find(|entry| is(entry, name, "Apply")) {
        Some(ours) => {
            let fields = ours.fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
            if let Some(all) = fields.0.as_object_mut() {
                merge(
                    all,
                    [(STATUS.to_owned(), Value::Object(taken))].into_iter().collect(),
                );
            }
        }
        None => rest.push(ManagedFieldsEntry {
            manager: Some(name.to_owned()),
            operation: Some("Apply".to_owned()),
            subresource: Some("status".to_owned()),
            api_version,
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(json!({ STATUS: taken }))),
            time: None,
        }),
    }
    Some(rest)
}

/// Conditions that only the former agent still owns: nobody will ever take them back.
pub(super) fn left_behind(entries: &[ManagedFieldsEntry]) -> Vec<&'static str> {
    let owned = |manager: &str, operation: &str, key: &str| {
        let mut entries = entries.iter().filter(|entry| is(entry, manager, operation));
        entries.any(|entry| {
            let fields = entry
                .fields_v1
                .as_ref()
                .map(|fields| &fields.0[STATUS][CONDITIONS]);
            fields.is_some_and(|conditions| conditions.get(key).is_some())
        })
    };
    let ours = FieldManager::NodeAgent.as_str();
    let left = condition_types().filter(|type_| {
        let key = condition_key(type_);
        owned(FORMER, "Update", &key) && !owned(ours, "Apply", &key)
    });
    left.collect()
}

/// The types of conditions that it wrote.
fn condition_types() -> impl Iterator<Item = &'static str> {
    let types = [
        HypervisorCondition::LibVirtConnection.as_str(),
        HypervisorCondition::OperatingSystemUpdate.as_str(),
        HypervisorCondition::TlsCertificateInstalled.as_str(),
    ];
    types.into_iter().chain(UNITS)
}

/// How a condition is called among owned fields.
fn condition_key(type_: &str) -> String {
    format!("k:{}", json!({ "type": type_ }))
}

fn is(entry: &ManagedFieldsEntry, manager: &str, operation: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some(operation)
        && entry.subresource.as_deref() == Some("status")
}

/// Takes what is the agent's out of a set of owned fields.
fn take(fields: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(status) = fields.get_mut(STATUS).and_then(Value::as_object_mut) else {
        return taken;
    };
    for field in FIELDS {
        taken.extend(status.remove_entry(field));
    }
    if let Some(conditions) = status.get_mut(CONDITIONS).and_then(Value::as_object_mut) {
        let keys = condition_types().map(condition_key);
        let found: Map<String, Value> = keys.filter_map(|key| conditions.remove_entry(&key)).collect();
        if !found.is_empty() {
            taken.insert(CONDITIONS.to_owned(), Value::Object(found));
        }
    }
    taken
}

/// Whether nothing is left in a set but the places where something was.
fn owns_nothing(fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else {
        return true;
    };
    fields.iter().all(|(step, below)| match step.as_str() {
        ITSELF => true,
        STATUS | CONDITIONS => owns_nothing(below),
        _ => false,
    })
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (step, below) in from {
        match (into.get_mut(&step), below) {
            (Some(Value::Object(there)), Value::Object(below)) => merge(there, below),
            (_, below) => {
                into.insert(step, below);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(
            json!({"manager": manager, "operation": operation, "subresource": "status",
            "apiVersion": "kvm.cloud.sap/v1", "fieldsType": "FieldsV1", "fieldsV1": fields}),
        )
        .unwrap()
    }

    fn condition(type_: &str) -> String {
        format!("k:{{\"type\":\"{type_}\"}}")
    }

    #[test]
    fn what_the_former_agent_owned_becomes_ours_and_the_rest_stays() {
        let former = json!({STATUS: {ITSELF: {}, "f:cells": {}, "f:traits": {}, CONDITIONS: {
            ITSELF: {}, condition("LibVirtConnection"): {"f:status": {}}, condition("Ready"): {"f:status": {}}}}});
        let ours = json!({STATUS: {"f:agent": {}, "f:cells": {}}});
        let found = taken_over(&[
            entry("manager", "Update", &former),
            entry("kvm-node-agent", "Apply", &ours),
        ]);
        let left = json!({STATUS: {ITSELF: {}, "f:traits": {}, CONDITIONS: {
            ITSELF: {}, condition("Ready"): {"f:status": {}}}}});
        let taken = json!({STATUS: {"f:agent": {}, "f:cells": {}, CONDITIONS: {
            condition("LibVirtConnection"): {"f:status": {}}}}});
        let wanted = vec![
            entry("manager", "Update", &left),
            entry("kvm-node-agent", "Apply", &taken),
        ];
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn an_entry_with_nothing_left_goes_and_ours_begins_with_it() {
        let former = json!({STATUS: {ITSELF: {}, "f:numInstances": {}, CONDITIONS: {
            ITSELF: {}, condition("libvirtd.service"): {}}}});
        let found = taken_over(&[entry("manager", "Update", &former)]).unwrap();
        let taken = json!({STATUS: {"f:numInstances": {}, CONDITIONS: {condition("libvirtd.service"): {}}}});
        assert_eq!(found, [entry("kvm-node-agent", "Apply", &taken)]);
        assert_eq!(taken_over(&found), None, "once is enough");
    }

    #[test]
    fn conditions_that_nobody_writes_any_more_are_left_behind() {
        let owned = |types: &[&str]| {
            let keys: Map<String, Value> = types.iter().map(|type_| (condition(type_), json!({}))).collect();
            json!({STATUS: {CONDITIONS: keys}})
        };
        let former = entry(
            "manager",
            "Update",
            &owned(&["libvirtd.service", "LibVirtConnection", "Ready"]),
        );
        let ours = entry("kvm-node-agent", "Apply", &owned(&["LibVirtConnection"]));
        assert_eq!(left_behind(&[former, ours.clone()]), ["libvirtd.service"]);
        assert!(left_behind(&[ours]).is_empty());
    }

    #[test]
    fn others_are_left_alone() {
        let fields = json!({STATUS: {"f:cells": {}}});
        let spec = ManagedFieldsEntry {
            subresource: None,
            ..entry("manager", "Update", &fields)
        };
        for entry in [
            entry("manager", "Apply", &fields),
            entry("kubectl-edit", "Update", &fields),
            entry("manager", "Update", &json!({STATUS: {"f:traits": {}}})),
            spec,
        ] {
            assert_eq!(taken_over(&[entry]), None);
        }
    }
}
