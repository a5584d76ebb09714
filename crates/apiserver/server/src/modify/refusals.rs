// SPDX-License-Identifier: Apache-2.0
//! What a client is told when a change cannot be made: patches that do not apply, results that are no
//! object of the type, envelopes of another type.

use cobaltcore_patch::PatchError;
use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::{Value, json};

use crate::meta;
use crate::options::FieldValidation;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

pub(super) fn envelope_changed(write: &Write<'_>, patched: &Value, old: &Value) -> ApiError {
    let resource = write.resource;
    let (kind, version) = (
        patched["kind"].as_str().unwrap_or_default(),
        patched["apiVersion"].as_str().unwrap_or_default(),
    );
    if resource.as_custom().is_some() {
        if kind.is_empty() {
            let shown = shown_start(patched);
            let why = format!("Object 'Kind' is missing in '{shown}'");
            return undecodable(resource, &shown, &why);
        }
        return other_envelope(resource, meta::name(old), kind, version);
    }
    let why = crate::write::foreign(write.registry, resource, kind, version);
    let why = why
        .message()
        .split_once(&format!(" cannot be handled as a {}: ", resource.kind))
        .map_or(why.message(), |(_, why)| why);
    undecodable(resource, &shown_start(patched), why)
}

/// 422 for a custom resource under the kind or version of another; it is called what it says it is.
pub(crate) fn other_envelope(resource: &Resource, name: &str, kind: &str, version: &str) -> ApiError {
    let expected = resource.api_version();
    let mut errors = Vec::new();
    if kind != &*resource.kind {
        let must = format!("must be {}", resource.kind);
        errors.push(FieldError::invalid("kind", &json!(kind), &must));
    }
    if version != expected {
        let must = format!("must be {expected}");
        errors.push(FieldError::invalid("apiVersion", &json!(version), &must));
    }
    let (group, _) = meta::split_api_version(version);
    ApiError::invalid(group, kind, name, &errors)
}

/// A patched object that does not decode is the patch's fault; which object it was is not said.
pub(super) fn undecodable(resource: &Resource, shown: &str, why: &str) -> ApiError {
    let shown = if resource.is("", "Secret") { "" } else { shown };
    let prefix = format!(
        "{0} in version {1} cannot be handled as a {0}: ",
        resource.kind,
        go::quote(&resource.version)
    );
    let why = why.strip_prefix(&prefix).unwrap_or(why);
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", &json!(shown), why)])
}

/// 400 for a configuration whose result is no object of the type.
pub(super) fn unconvertible(resource: &Resource, config: &Value, error: &ApiError) -> ApiError {
    let kind = &resource.kind;
    let why = error.message();
    let why = why
        .split_once(&format!(" cannot be handled as a {kind}: "))
        .map_or(why, |(_, why)| why);
    let (namespace, name) = (meta::namespace(config), meta::name(config));
    let typed = format!("{}/{}, Kind={kind}", resource.group, resource.version);
    ApiError::bad_request(format!(
        "failed to convert new object ({namespace}/{name}; {typed}) to proper version: unable to convert unstructured object to {typed}: {why}"
    ))
}

/// What is strange about a patch or its result, told or refused as the client asked for it.
pub(super) fn judge(write: &Write<'_>, problems: &[String], shown: &str) -> ApiResult<()> {
    let resource = write.resource;
    write
        .call
        .judge_strictness(
            write.options.validation,
            problems,
            &resource.kind,
            &resource.version,
        )
        .map_err(|_| {
            let why = format!("strict decoding error: {}", problems.join(", "));
            undecodable(resource, shown, &why)
        })
}

/// What is strange about a configuration that could be applied: keys that stand twice. Unknown fields
/// are no matter of strictness, the typed check refuses them in every mode.
pub(crate) fn judge_configuration(write: &Write<'_>, repeated: &[String]) -> ApiResult<()> {
    match write.options.validation {
        FieldValidation::Strict if !repeated.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {}",
            crate::write::unmarshal_errors(repeated)
        ))),
        FieldValidation::Warn => {
            for text in repeated {
                write.call.warn(text.as_str());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// How much of what a client sent an error text shows.
const SHOWN: usize = 64;

/// As much of a value as an error text may show.
pub(crate) fn shown_start(value: &Value) -> String {
    // Nothing beyond what is shown is written: every patch comes by here, few are refused.
    struct Start(Vec<u8>);
    impl std::io::Write for Start {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > SHOWN * 4 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut start = Start(Vec::with_capacity(SHOWN * 5));
    let whole = serde_json::to_writer(&mut start, value).is_ok();
    let text = String::from_utf8_lossy(&start.0);
    if whole && text.len() <= SHOWN {
        return text.into_owned();
    }
    format!("{}...", text.chars().take(SHOWN).collect::<String>())
}

/// As much of a strategic patch as an error text may show; it is told as the reference holds it.
pub(super) fn shown_patch(patch: &Value) -> String {
    let text = go::plain(patch);
    if text.chars().count() <= SHOWN {
        return text;
    }
    format!("{}...", text.chars().take(SHOWN).collect::<String>())
}

/// Why a field of a type cannot be made of a value: the words of the reader of JSON, turned into those
/// of the reader of values that strategic patches go through.
pub(super) fn unrestorable(why: &str) -> String {
    let Some((found, wanted)) = why
        .split_once("json: cannot unmarshal ")
        .and_then(|(_, rest)| rest.split_once(" into "))
        .and_then(|(found, place)| Some((found, place.rsplit_once(" of type ")?.1)))
    else {
        return why.to_owned();
    };
    let kind = match found {
        "number" => "int64",
        "array" => "slice",
        "object" => "map",
        _ if found.starts_with("number ") => "float64",
        other => other,
    };
    match (kind, wanted) {
        (_, list) if list.starts_with("[]") => format!("cannot restore slice from {kind}"),
        (_, map) if map.starts_with("map[") => format!("cannot restore map from {kind}"),
        (_, object) if object.contains('.') => format!("cannot restore struct from: {kind}"),
        ("int64", "string") | ("float64", "int32" | "int64") => format!("cannot convert {kind} to {wanted}"),
        _ => format!("unrecognized type: {wanted}"),
    }
}

/// A patch that does not apply.
pub(super) fn refused(resource: &Resource, object: &Value, error: PatchError) -> ApiError {
    const REJECTED: &str = "the server rejected our request due to an error in our request";
    let name = meta::name(object).to_owned();
    match error {
        PatchError::BadRequest(text) | PatchError::IllTyped(text) => ApiError::bad_request(text),
        // The reference has no status for these, so clients see its fallback: 500 without a reason.
        PatchError::Strategic(text) => ApiError::new(500, "", text),
        PatchError::TooLarge(text) => ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {text}"),
        ),
        PatchError::Operation { .. } => ApiError::new(422, "Invalid", REJECTED).with_cause(
            "FieldValueInvalid",
            &error.to_string(),
            "patch",
        ),
        PatchError::Unprocessable(text) => {
            let cause = FieldError::new(
                cobaltcore_schema::Cause::Invalid,
                "patch",
                format!("Invalid value: {text}"),
            );
            resource.invalid(&name, &[cause])
        }
        PatchError::Conflict(conflicts) => conflicts.0.iter().fold(
            ApiError::new(409, "Conflict", conflicts.to_string()),
            |error, c| error.with_cause("FieldManagerConflict", &c.message(), &c.path),
        ),
    }
}
