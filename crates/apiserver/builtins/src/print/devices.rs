// SPDX-License-Identifier: Apache-2.0
//! Rows of devices and of the claims for them.

use serde_json::{Value, json};

use super::Cells;
use crate::json::{at, list, text};

pub(super) fn devices(cells: &Cells<'_>, kind: &str) -> Vec<Value> {
    let object = cells.object;
    match kind {
        "ResourceClaim" => vec![cells.name(), json!(state(object)), cells.age()],
        "ResourceSlice" => vec![
            cells.name(),
            json!(text(object, "spec.nodeName")),
            json!(text(object, "spec.driver")),
            json!(text(object, "spec.pool.name")),
            cells.age(),
        ],
        _ => vec![cells.name(), cells.age()],
    }
}

/// How far a claim has come, in one word or several.
fn state(claim: &Value) -> String {
    let mut states = Vec::new();
    if at(claim, "metadata.deletionTimestamp").is_some() {
        states.push("deleted");
    }
    if at(claim, "status.allocation").is_none() {
        if states.is_empty() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if !list(claim, "status.reservedFor").is_empty() {
            states.push("reserved");
        }
    }
    states.join(",")
}
