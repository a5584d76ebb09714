// SPDX-License-Identifier: Apache-2.0
//! Warnings about volumes, claims and classes: annotations that became fields, sources nobody serves
//! any more, sizes of half a byte.

use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{at, entries, list, map, text};
use crate::quantity::Quantity;
use crate::warnings::{OLD_VOLUMES, old_label};

/// Annotations of volumes that became fields.
const OLD_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        "deprecated since v1.8; use \"storageClassName\" attribute instead",
    ),
    (
        "volume.beta.kubernetes.io/mount-options",
        "deprecated since v1.31; use \"mountOptions\" attribute instead",
    ),
];

fn annotations(object: &Value, known: &[(&str, &str)], warnings: &mut Vec<String>) {
    for (key, why) in known {
        if entries(object, "metadata.annotations").any(|(given, _)| given == key) {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
}

pub(crate) fn volume(object: &Value, warnings: &mut Vec<String>) {
    annotations(object, &OLD_ANNOTATIONS, warnings);
    if text(object, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let terms = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (position, term) in list(object, terms).iter().enumerate() {
        for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(why) = old_label(key) {
                warnings.push(format!(
                    "{terms}[{position}].matchExpressions[{index}].key: {key} is {why}"
                ));
            }
        }
    }
    for source in [
        "cephfs",
        "photonPersistentDisk",
        "scaleIO",
        "storageos",
        "glusterfs",
        "rbd",
    ] {
        let why = OLD_VOLUMES.iter().find(|(known, _)| *known == source);
        if let Some((_, why)) = why.filter(|_| at(object, &format!("spec.{source}")).is_some()) {
            let shown = if source == "storageos" {
                "storageOS"
            } else {
                source
            };
            warnings.push(format!("spec.{shown}: {why}"));
        }
    }
}

pub(crate) fn claim(object: &Value, warnings: &mut Vec<String>) {
    annotations(object, &OLD_ANNOTATIONS[..1], warnings);
    for part in ["requests", "limits"] {
        let path = format!("spec.resources.{part}");
        let amount = map(object, &path).and_then(|amounts| amounts.get("storage"));
        let amount = amount.and_then(|amount| Quantity::from_value(amount).ok());
        if let Some(amount) = amount.filter(Quantity::is_fractional) {
            let shown = go::quote(&amount.to_string());
            warnings.push(format!(
                "{path}[storage]: fractional byte value {shown} is invalid, must be an integer"
            ));
        }
    }
}

pub(crate) fn class(object: &Value, warnings: &mut Vec<String>) {
    for (position, term) in list(object, "allowedTopologies").iter().enumerate() {
        for (index, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
            if let Some(why) = old_label(text(expression, "key")) {
                let path = format!("allowedTopologies[{position}].matchLabelExpressions[{index}].key");
                warnings.push(format!("{path}: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_old_about_storage_is_said() {
        let mut warnings = Vec::new();
        let old = json!({"volume.beta.kubernetes.io/storage-class": "z"});
        volume(
            &json!({"metadata": {"annotations": old}, "spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}}}),
            &mut warnings,
        );
        claim(
            &json!({"metadata": {"annotations": old}, "spec": {"resources": {"requests": {"storage": "500m"}}}}),
            &mut warnings,
        );
        class(
            &json!({"allowedTopologies": [{"matchLabelExpressions": [
                {"key": "failure-domain.beta.kubernetes.io/zone", "values": ["a"]}]}]}),
            &mut warnings,
        );
        let annotation = "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead";
        assert_eq!(
            warnings,
            [
                annotation,
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
                "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
                annotation,
                "spec.resources.requests[storage]: fractional byte value \"500m\" is invalid, must be an integer",
                "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
            ]
        );
    }
}
