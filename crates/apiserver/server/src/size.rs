// SPDX-License-Identifier: Apache-2.0
//! How large an object may be. The reference hands every change to etcd as one request of at most
//! 1.5 MiB; what is larger is refused there, and would only fail later on a real cluster if it passed
//! here. Notes about who owns what never cost a client its object: they are dropped when they are what
//! makes it too large, unless they are the very purpose of the request.

use serde_json::{Map, Value};

use crate::meta;
use crate::negotiate;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Draft, Key};
use crate::write::Write;

/// The largest request etcd takes.
const REQUEST_MAX: usize = 1_572_864;
/// The largest message the reference even sends there.
const MESSAGE_MAX: usize = 2_097_152;
/// What stands around key and value in a request.
const FRAME: usize = 40;

/// What is going to be stored, if it is not too large.
pub(crate) fn draft(write: &Write<'_>, key: &Key, object: &mut Value) -> ApiResult<Draft> {
    let schema = write.resource.stored_schema();
    let draft = Draft::new(object, schema);
    let Err(refusal) = check(write.resource, key, object, draft.len()) else {
        return Ok(draft);
    };
    let applies = negotiate::body_type(&write.call.headers) == "application/apply-patch+yaml";
    if applies || object["metadata"]["managedFields"].is_null() {
        return Err(refusal);
    }
    meta::set(object, "managedFields", Value::Null);
    let bare = Draft::new(object, schema);
    check(write.resource, key, object, bare.len()).map(|()| bare)
}

fn check(resource: &Resource, key: &Key, object: &Value, written: usize) -> ApiResult<()> {
    let path = "/registry/".len()
        + resource.group.len()
        + resource.plural.len()
        + key.namespace.len()
        + key.name.len()
        + 3;
    let frame = FRAME + 2 * path;
    if written + frame <= REQUEST_MAX {
        return Ok(());
    }
    // Only custom resources are stored as they are written.
    let size = frame
        + if resource.as_custom().is_some() {
            written
        } else {
            packed(object)
        };
    if size <= REQUEST_MAX {
        Ok(())
    } else if size <= MESSAGE_MAX {
        Err(ApiError::new(500, "", "etcdserver: request is too large"))
    } else {
        Err(ApiError::new(
            500,
            "",
            format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {MESSAGE_MAX})"
            ),
        ))
    }
}

/// About the size of an object of a built-in kind in the binary form it is stored in: fields are
/// numbered there, so that only the keys of maps and what stands in strings count.
fn packed(object: &Value) -> usize {
    match object {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 3,
        Value::String(text) => text.len() + 1,
        Value::Array(items) => items.iter().map(|item| 1 + packed(item)).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| field(name, value)).sum(),
    }
}

fn field(name: &str, value: &Value) -> usize {
    match (name, value) {
        // Kept as the text it is.
        ("fieldsV1", _) => 4 + value.to_string().len(),
        ("data" | "binaryData" | "labels" | "annotations" | "matchLabels", Value::Object(entries)) => {
            map(entries)
        }
        _ => 4 + packed(value),
    }
}

/// Each entry is a block of its own, of a key and a value.
fn map(entries: &Map<String, Value>) -> usize {
    entries
        .iter()
        .map(|(key, value)| 6 + key.len() + packed(value))
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::packed;

    #[test]
    fn names_of_fields_do_not_count_and_keys_of_maps_do() {
        let long = "x".repeat(500);
        let object = json!({"data": {long.clone(): "A"}, "metadata": {"managedFields": [
            {"fieldsV1": {"f:data": {format!("f:{long}"): {}}}}]}});
        let size = packed(&object);
        assert!((1010..1060).contains(&size), "{size}");
        assert!(packed(&json!({"spec": {"aFieldWithALongName": 7}})) < 12);
    }
}
