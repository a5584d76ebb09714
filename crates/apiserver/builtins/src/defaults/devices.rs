// SPDX-License-Identifier: Apache-2.0
//! Defaults of claims for devices: one device, counted exactly, unless something else is said.

use serde_json::Value;

use crate::json::{default, default_text, list_mut, map_mut};

pub(super) fn devices(object: &mut Value, kind: &str) {
    let path = match kind {
        "ResourceClaim" => "spec.devices.requests",
        "ResourceClaimTemplate" => "spec.spec.devices.requests",
        _ => return,
    };
    for request in list_mut(object, path) {
        counted(request, "exactly");
        for alternative in list_mut(request, "firstAvailable") {
            counted(alternative, "");
        }
    }
}

fn counted(request: &mut Value, path: &str) {
    let Some(request) = map_mut(request, path) else {
        return;
    };
    default_text(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").and_then(Value::as_str) == Some("ExactCount") {
        default(request, "count", 1);
    }
}
