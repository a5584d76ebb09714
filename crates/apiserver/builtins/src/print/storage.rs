// SPDX-License-Identifier: Apache-2.0
//! Rows of volumes, claims and the storage group.

use serde_json::{Value, json};

use super::network::default_marked;
use super::{Cells, or_none};
use crate::json::{at, entries, flag, list, strings, text};

fn modes(object: &Value, path: &str) -> String {
    let given = strings(object, path);
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| given.contains(mode))
    .map(|(_, short)| *short)
    .collect::<Vec<_>>()
    .join(",")
}

fn class(object: &Value) -> String {
    entries(object, "metadata.annotations")
        .find(|(key, _)| *key == "volume.beta.kubernetes.io/storage-class")
        .and_then(|(_, value)| value.as_str())
        .unwrap_or(text(object, "spec.storageClassName"))
        .to_owned()
}

fn phase(object: &Value) -> &str {
    if at(object, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(object, "status.phase")
    }
}

fn or_unset(object: &Value, path: &str) -> Value {
    at(object, path).cloned().unwrap_or(json!("<unset>"))
}

fn amount(object: &Value, path: &str) -> Value {
    at(object, path).cloned().unwrap_or(json!("0"))
}

pub(super) fn volume(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let claim = at(object, "spec.claimRef")
        .map(|claim| format!("{}/{}", text(claim, "namespace"), text(claim, "name")))
        .unwrap_or_default();
    vec![
        cells.name(),
        amount(object, "spec.capacity.storage"),
        json!(modes(object, "spec.accessModes")),
        json!(text(object, "spec.persistentVolumeReclaimPolicy")),
        json!(phase(object)),
        json!(claim),
        json!(class(object)),
        or_unset(object, "spec.volumeAttributesClassName"),
        json!(text(object, "status.reason")),
        cells.age(),
        or_unset(object, "spec.volumeMode"),
    ]
}

pub(super) fn claim(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let bound = !text(object, "spec.volumeName").is_empty();
    let capacity = if bound {
        amount(object, "status.capacity.storage")
    } else {
        json!("")
    };
    let access = if bound {
        modes(object, "status.accessModes")
    } else {
        String::new()
    };
    vec![
        cells.name(),
        json!(phase(object)),
        json!(text(object, "spec.volumeName")),
        capacity,
        json!(access),
        json!(class(object)),
        or_unset(object, "spec.volumeAttributesClassName"),
        cells.age(),
        or_unset(object, "spec.volumeMode"),
    ]
}

pub(super) fn storage(cells: &Cells<'_>, kind: &str) -> Vec<Value> {
    let object = cells.object;
    match kind {
        "StorageClass" => {
            let mut name = default_marked(object, "storageclass.kubernetes.io/is-default-class");
            if !name.ends_with(" (default)") {
                name = default_marked(object, "storageclass.beta.kubernetes.io/is-default-class");
            }
            vec![
                json!(name),
                json!(text(object, "provisioner")),
                at(object, "reclaimPolicy").cloned().unwrap_or(json!("Delete")),
                at(object, "volumeBindingMode")
                    .cloned()
                    .unwrap_or(json!("Immediate")),
                json!(flag(object, "allowVolumeExpansion")),
                cells.age(),
            ]
        }
        "CSIDriver" => driver(cells),
        "CSINode" => vec![
            cells.name(),
            json!(list(object, "spec.drivers").len()),
            cells.age(),
        ],
        "VolumeAttributesClass" => vec![cells.name(), json!(text(object, "driverName")), cells.age()],
        "CSIStorageCapacity" => vec![cells.name(), json!(text(object, "metadata.creationTimestamp"))],
        _ => vec![
            cells.name(),
            json!(text(object, "spec.attacher")),
            json!(text(object, "spec.source.persistentVolumeName")),
            json!(text(object, "spec.nodeName")),
            json!(flag(object, "status.attached")),
            cells.age(),
        ],
    }
}

fn driver(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let audiences = at(object, "spec.tokenRequests").map_or("<unset>".to_owned(), |_| {
        list(object, "spec.tokenRequests")
            .iter()
            .map(|token| text(token, "audience"))
            .collect::<Vec<_>>()
            .join(",")
    });
    vec![
        cells.name(),
        at(object, "spec.attachRequired").cloned().unwrap_or(json!(true)),
        json!(flag(object, "spec.podInfoOnMount")),
        json!(flag(object, "spec.storageCapacity")),
        json!(audiences),
        json!(flag(object, "spec.requiresRepublish")),
        or_none(&strings(object, "spec.volumeLifecycleModes").join(",")),
        cells.age(),
    ]
}
