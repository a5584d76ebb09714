// SPDX-License-Identifier: Apache-2.0
//! Reads the body of a patch: which kind it is, whether it can be read at all, and what of it is
//! strange enough to be told. What it does to an object is not looked at here.

use serde_json::{Value, json};

use super::locks::check_name;
use super::{Edit, Patch};
use crate::call::{duplicate_field, unknown_field};
use crate::decode::{self, Decoded};
use crate::meta;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;
use crate::written;
use crate::yaml;

/// 400 for a configuration that is no YAML: the reference turns YAML into JSON before it reads it.
pub(crate) fn illegible_configuration(why: &str) -> ApiError {
    let converting = if why.starts_with("yaml: ") {
        "error converting YAML to JSON: "
    } else {
        ""
    };
    ApiError::bad_request(format!("error decoding YAML: {converting}{why}"))
}

/// Reads the body of a patch.
pub(super) fn read_patch(write: &Write<'_>, media: &str) -> ApiResult<Edit> {
    let body = &write.call.body;
    if media == "application/apply-patch+yaml" {
        let decoded = yaml::decode(body).map_err(|e| illegible_configuration(&e))?;
        return read_configuration(write, decoded);
    }
    let strategic = media == "application/strategic-merge-patch+json";
    // A strategic patch is merged by its values, the others as they are written.
    let read = if strategic || write.resource.as_custom().is_some() {
        decode::json
    } else {
        decode::exact_json
    };
    let mut decoded = read(body).map_err(|e| {
        ApiError::bad_request(if strategic {
            e
        } else {
            format!("error decoding patch: {e}")
        })
    })?;
    if decoded.value.is_null() {
        // Nothing is changed by nothing.
        match media {
            "application/strategic-merge-patch+json" => decoded.value = json!({}),
            "application/json-patch+json" => decoded.value = json!([]),
            _ => {}
        }
    }
    let problems = strange_parts(media, body, &decoded);
    let mut patch = decoded.value;
    if media == "application/json-patch+json" {
        written::keep_fractions_of_operations(write.resource, body, &mut patch);
    } else if !strategic {
        written::keep_fractions(write.resource, body, &mut patch);
    }
    let found = decode::json_type(&patch);
    match media {
        "application/json-patch+json" if patch.is_array() => match strange_operation(&patch) {
            None => Ok(Edit::Json(Patch {
                value: patch,
                problems,
            })),
            Some(why) => Err(ApiError::bad_request(format!("error decoding patch: {why}"))),
        },
        "application/json-patch+json" => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        ))),
        "application/strategic-merge-patch+json" if !patch.is_object() => Err(ApiError::bad_request(
            format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"),
        )),
        _ if patch.is_null() => Err(ApiError::bad_request("Invalid JSON Patch")),
        _ if !patch.is_object() => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ))),
        "application/strategic-merge-patch+json" => Ok(Edit::Strategic(Patch {
            value: patch,
            problems,
        })),
        _ => Ok(Edit::Merge(Patch {
            value: patch,
            problems,
        })),
    }
}

/// Why the operations of a JSON patch cannot be read, though they are a list.
fn strange_operation(patch: &Value) -> Option<String> {
    let mut operations = patch.as_array().into_iter().flatten();
    operations.find_map(|operation| match operation {
        Value::Null => None,
        Value::Object(map) => ["op", "path", "from"].into_iter().find_map(|name| {
            let value = map.get(name).filter(|v| !v.is_string() && !v.is_null())?;
            Some(format!(
                "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                decode::json_type(value)
            ))
        }),
        other => Some(format!(
            "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
            decode::json_type(other)
        )),
    })
}

/// What is strange about a patch that can be read: keys that stand twice and, in the operations of a
/// JSON patch, members that mean nothing.
pub(crate) fn strange_parts(media: &str, body: &[u8], decoded: &Decoded) -> Vec<String> {
    if media != "application/json-patch+json" {
        let twice = decoded.duplicates.iter();
        return twice.map(|path| duplicate_field(path)).collect();
    }
    let unknown = strange_members(&decoded.value);
    let mut problems: Vec<(String, String)> = decoded
        .duplicates
        .iter()
        .filter(|path| !unknown.contains(path))
        .map(|path| (path.clone(), duplicate_field(path)))
        .collect();
    problems.extend(unknown.iter().map(|path| (path.clone(), unknown_field(path))));
    if problems.len() > 1 {
        decode::sort_by_place(body, &mut problems);
    }
    let texts = problems.into_iter();
    texts.map(|(_, text)| format!("json patch {text}")).collect()
}

/// Paths of members of operations that mean nothing.
fn strange_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(at, operation)| {
            let members = operation.as_object().into_iter().flat_map(|map| map.keys());
            members
                .filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
                .map(move |name| format!("[{at}].{name}"))
        })
        .collect()
}

/// Reads an apply configuration; its content is left as the client wrote it.
fn read_configuration(write: &Write<'_>, decoded: Decoded) -> ApiResult<Edit> {
    let resource = write.resource;
    let Decoded {
        value: mut config,
        repeated,
        ..
    } = decoded;
    if config.is_null() {
        config = json!({});
    }
    if !config.is_object() {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::json_type(&config)
        )));
    }
    if let Some(Value::String(api_version)) = config.get_mut("apiVersion") {
        *api_version = crate::write::plain_version(std::mem::take(api_version));
    }
    // What is of another kind is told so first, when it is applied.
    let fits = config["kind"] == *resource.kind && config["apiVersion"] == *resource.api_version();
    if fits && !meta::name(&config).is_empty() {
        check_name(write.call, &config)?;
    }
    let namespace = meta::namespace(&config);
    if fits && resource.namespaced && !namespace.is_empty() && namespace != write.call.info.namespace {
        return Err(ApiError::other_namespace());
    }
    Ok(Edit::Apply(Patch {
        value: config,
        problems: repeated,
    }))
}

pub(super) fn unsupported_patch(resource: &Resource) -> ApiError {
    if resource.as_builtin().is_some() {
        return ApiError::unsupported_patch_type();
    }
    let text = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    ApiError::new(415, "UnsupportedMediaType", text)
}
