// SPDX-License-Identifier: Apache-2.0
//! Rules of nodes: taints, resources, and the identities that stay once given.

use cobaltcore_text::go;
use std::collections::BTreeSet;

use cobaltcore_schema::Cause;
use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, entries, list, strings, text};
use crate::names;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn node(errors: &mut Errors, object: &Value) {
    taints(errors, object);
    resources(errors, object);
    pod_ranges(errors, object);
}

/// Pods have addresses of at most two ranges, one of each family.
fn pod_ranges(errors: &mut Errors, object: &Value) {
    let ranges = strings(object, "spec.podCIDRs");
    let before = errors.list.len();
    for (position, range) in ranges.iter().enumerate() {
        errors.cidr(range, &format!("spec.podCIDRs[{position}]"), &[]);
    }
    let of_six = ranges.iter().filter(|range| range.contains(':')).count();
    let one_each = ranges.len() <= 2 && of_six <= 1 && ranges.len() - of_six <= 1;
    if errors.list.len() == before && !one_each {
        errors.invalid(
            "spec.podCIDRs",
            json!(ranges),
            "may specify no more than one CIDR for each IP family",
        );
    }
}

/// The reference reports taints under metadata.
fn taints(errors: &mut Errors, object: &Value) {
    let mut seen = BTreeSet::new();
    for (position, taint) in list(object, "spec.taints").iter().enumerate() {
        let path = format!("metadata.taints[{position}]");
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.all(&format!("{path}.key"), key, names::qualified_name(key));
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(format!("{path}.value"), value, &problems.join(";"));
        }
        errors.choice(effect, &format!("{path}.effect"), &EFFECTS);
        if !seen.insert((effect, key)) {
            let json = |text: &str| go::json(&Value::from(text));
            let added = at(taint, "timeAdded").map_or("null".to_owned(), Value::to_string);
            errors.raw(
                Cause::Duplicate,
                path,
                format!(
                    "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}: taints must be unique by key and effect pair",
                    json(key),
                    json(value),
                    json(effect)
                ),
            );
        }
    }
}

fn resources(errors: &mut Errors, object: &Value) {
    for part in ["status.capacity", "status.allocatable"] {
        for (name, amount) in entries(object, part) {
            errors.amount(name, amount, &format!("{part}.{name}"));
        }
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    resources(errors, new);
    let mut seen: Vec<&Value> = Vec::new();
    for (position, address) in list(new, "status.addresses").iter().enumerate() {
        if seen.contains(&address) {
            errors.duplicate(format!("status.addresses[{position}]"), address.clone());
        }
        seen.push(address);
    }
    let (before, after) = (strings(old, "spec.podCIDRs"), strings(new, "spec.podCIDRs"));
    if !before.is_empty() && before != after {
        errors.forbidden(
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    if before != after {
        pod_ranges(errors, new);
    }
    let provider = text(old, "spec.providerID");
    if !provider.is_empty() && provider != text(new, "spec.providerID") {
        errors.forbidden(
            "spec.providerID",
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    taints(errors, new);
    if text(new, "spec.externalID") != text(old, "spec.externalID") {
        errors.forbidden("spec.externalID", "may not be updated");
    }
}
