// SPDX-License-Identifier: Apache-2.0
//! Rules of pod volumes: exactly one source each, and what the common sources need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::container::{FILE_FIELDS, field_reference, no_backsteps, relative_path};
use super::errors::Errors;
use crate::json::{at, int, list, text};
use crate::names;
use crate::quantity::Quantity;

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const ONLY_ONE: &str = "may not specify more than 1 volume type";

/// The order in which the reference looks at sources: the first one given counts, others are refused.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks all volumes and answers those without fault, with whether each can be a block device.
pub(super) fn volumes<'a>(errors: &mut Errors, volumes: &'a [Value], field: &str) -> BTreeMap<&'a str, bool> {
    let mut good = BTreeMap::new();
    for (position, volume) in volumes.iter().enumerate() {
        let path = format!("{field}[{position}]");
        let before = errors.list.len();
        source(errors, volume, &path);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.required(format!("{path}.name"), "");
        } else {
            errors.all(&format!("{path}.name"), name, names::dns1123_label(name));
        }
        if good.contains_key(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        if errors.list.len() == before {
            let block = at(volume, "persistentVolumeClaim").is_some() || at(volume, "ephemeral").is_some();
            good.insert(name, block);
        }
    }
    good
}

fn source(errors: &mut Errors, volume: &Value, path: &str) {
    let mut found = false;
    for name in SOURCES {
        let Some(source) = at(volume, name) else { continue };
        let field = format!("{path}.{name}");
        if std::mem::replace(&mut found, true) {
            errors.forbidden(field, ONLY_ONE);
            continue;
        }
        match name {
            "emptyDir" => {
                let negative = at(source, "sizeLimit")
                    .and_then(|limit| Quantity::from_value(limit).ok())
                    .is_some_and(|limit| limit.is_negative());
                if negative {
                    errors.forbidden(
                        format!("{field}.sizeLimit"),
                        "SizeLimit field must be a valid resource quantity",
                    );
                }
            }
            "hostPath" => host_path(errors, source, &field),
            "secret" => keyed(errors, source, "secretName", &field),
            "configMap" => keyed(errors, source, "name", &field),
            "persistentVolumeClaim" if text(source, "claimName").is_empty() => {
                errors.required(format!("{field}.claimName"), "");
            }
            "nfs" => nfs(errors, source, &field),
            "downwardAPI" => {
                mode(errors, source, "defaultMode", &field);
                for file in list(source, "items") {
                    downward_file(errors, file, &field);
                }
            }
            "projected" => projected(errors, source, &field),
            "csi" => csi_driver(errors, text(source, "driver"), &format!("{field}.driver")),
            "ephemeral" => match at(source, "volumeClaimTemplate") {
                None => errors.required(format!("{field}.volumeClaimTemplate"), ""),
                Some(template) => {
                    let spec = at(template, "spec").unwrap_or(&Value::Null);
                    super::storage::claim_spec(errors, spec, &format!("{field}.volumeClaimTemplate.spec"));
                }
            },
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn mode(errors: &mut Errors, parent: &Value, name: &str, field: &str) {
    if let Some(mode) = int(parent, name).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(format!("{field}.{name}"), mode, MODE);
    }
}

/// A Secret or ConfigMap with its selected keys.
fn keyed(errors: &mut Errors, source: &Value, name: &str, field: &str) {
    if text(source, name).is_empty() {
        errors.required(format!("{field}.{name}"), "");
    }
    mode(errors, source, "defaultMode", field);
    items(errors, source, field);
}

fn items(errors: &mut Errors, source: &Value, field: &str) {
    for (position, item) in list(source, "items").iter().enumerate() {
        let path = format!("{field}.items[{position}]");
        if text(item, "key").is_empty() {
            errors.required(format!("{path}.key"), "");
        }
        if text(item, "path").is_empty() {
            errors.required(format!("{path}.path"), "");
        }
        unreserved_path(errors, text(item, "path"), &format!("{path}.path"));
        mode(errors, item, "mode", &path);
    }
}

fn unreserved_path(errors: &mut Errors, path: &str, field: &str) {
    relative_path(errors, path, field);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(field, path, "must not start with '..'");
    }
}

pub(super) fn host_path(errors: &mut Errors, source: &Value, field: &str) {
    let path = text(source, "path");
    if path.is_empty() {
        errors.required(format!("{field}.path"), "");
        return;
    }
    no_backsteps(errors, path, &format!("{field}.path"));
    errors.optional_choice(
        at(source, "type"),
        &format!("{field}.type"),
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    );
}

pub(super) fn nfs(errors: &mut Errors, source: &Value, field: &str) {
    if text(source, "server").is_empty() {
        errors.required(format!("{field}.server"), "");
    }
    let path = text(source, "path");
    if path.is_empty() {
        errors.required(format!("{field}.path"), "");
    }
    if !path.starts_with('/') {
        errors.invalid(format!("{field}.path"), path, "must be an absolute path");
    }
}

fn downward_file(errors: &mut Errors, file: &Value, field: &str) {
    let path = text(file, "path");
    if path.is_empty() {
        errors.required(format!("{field}.path"), "");
    }
    unreserved_path(errors, path, &format!("{field}.path"));
    match (at(file, "fieldRef"), at(file, "resourceFieldRef")) {
        (Some(reference), other) => {
            field_reference(errors, reference, &format!("{field}.fieldRef"), &FILE_FIELDS);
            if other.is_some() {
                errors.invalid(
                    field,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (None, Some(reference)) => {
            let path = format!("{field}.resourceFieldRef");
            if text(reference, "containerName").is_empty() {
                errors.required(format!("{path}.containerName"), "");
            }
            super::resources::resource_field(errors, reference, &path);
        }
        (None, None) => errors.required(field, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(errors, file, "mode", field);
}

fn projected(errors: &mut Errors, source: &Value, field: &str) {
    mode(errors, source, "defaultMode", field);
    let mut paths = BTreeSet::new();
    for (position, one) in list(source, "sources").iter().enumerate() {
        let path = format!("{field}.sources[{position}]");
        let mut given = 0;
        for name in [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
        ] {
            let Some(part) = at(one, name) else { continue };
            given += 1;
            let at_path = format!("{path}.{name}");
            match name {
                "secret" | "configMap" => {
                    if text(part, "name").is_empty() {
                        errors.required(format!("{at_path}.name"), "");
                    }
                    items(errors, part, &at_path);
                }
                "downwardAPI" => {
                    for file in list(part, "items") {
                        downward_file(errors, file, &at_path);
                    }
                }
                "serviceAccountToken" => token(errors, part, &at_path, field),
                _ => {}
            }
            for item in list(part, "items") {
                let target = text(item, "path");
                if !target.is_empty() && !paths.insert(target) {
                    let shown = if name == "downwardAPI" {
                        target
                    } else {
                        text(part, "name")
                    };
                    errors.invalid(field, shown, "conflicting duplicate paths");
                }
            }
        }
        if given > 1 {
            errors.forbidden(path, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(errors: &mut Errors, token: &Value, path: &str, field: &str) {
    let seconds = int(token, "expirationSeconds").unwrap_or(3600);
    if seconds < 600 {
        errors.invalid(
            format!("{path}.expirationSeconds"),
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        errors.invalid(
            format!("{path}.expirationSeconds"),
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if text(token, "path").is_empty() {
        errors.required(format!("{field}.path"), "");
    } else {
        unreserved_path(errors, text(token, "path"), &format!("{field}.path"));
    }
}

/// The name of a CSI driver.
pub(super) fn csi_driver(errors: &mut Errors, name: &str, field: &str) {
    if name.is_empty() {
        errors.required(field, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(field, 63);
    }
    errors.all(field, name, names::dns1123_subdomain(&name.to_lowercase()));
}
