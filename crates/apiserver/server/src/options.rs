// SPDX-License-Identifier: Apache-2.0
//! Query options of the verbs, checked the way the reference checks them.

use cobaltcore_schema::{Cause, FieldError};
use cobaltcore_text::go;
use serde_json::{Value, json};

use crate::reqinfo::Query;
use crate::status::{ApiError, ApiResult};

/// What happens with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped.
    Ignore,
    /// Dropped, with a Warning header each.
    Warn,
    /// Refused.
    Strict,
}

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Run everything, store nothing.
    pub dry_run: bool,
    /// Unknown and duplicate fields.
    pub validation: FieldValidation,
    /// The name changes are attributed to, when given.
    pub manager: Option<String>,
    /// Take contested fields (apply only).
    pub force: bool,
}

impl WriteOptions {
    /// Reads the options; `kind` is the options kind named in errors, `apply` whether the request is
    /// a server-side apply.
    pub fn parse(query: &Query, kind: &str, apply: bool) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let manager = query
            .get("fieldManager")
            .filter(|m| !m.is_empty())
            .map(str::to_owned);
        let force = query.maybe_flag("force");
        if kind == "PatchOptions" {
            if apply && manager.is_none() {
                errors.push(FieldError::required(
                    "fieldManager",
                    "is required for apply patch",
                ));
            }
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden(
                    "force",
                    "may not be specified for non-apply patch",
                ));
            }
        }
        check_manager(manager.as_deref(), &mut errors);
        let dry_run = dry_run(query, &mut errors);
        let validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        refuse(kind, &errors)?;
        Ok(Self {
            dry_run,
            validation,
            manager,
            force: force.unwrap_or(false),
        })
    }
}

fn dry_run(query: &Query, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = query.all("dryRun").collect();
    if values.iter().any(|v| *v != "All") {
        errors.push(FieldError::new(
            Cause::NotSupported,
            "dryRun",
            format!("Unsupported value: {}: supported values: \"All\"", json!(values)),
        ));
    }
    !values.is_empty()
}

fn check_manager(manager: Option<&str>, errors: &mut Vec<FieldError>) {
    let Some(manager) = manager else { return };
    if manager.len() > 128 {
        errors.push(FieldError::too_long("fieldManager", 128));
    }
    for (at, c) in manager
        .char_indices()
        .filter(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '))
    {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", &json!(manager), &why));
    }
}

fn refuse(kind: &str, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_options(kind, errors))
    }
}

/// What deletion does with dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose their reference.
    Orphan,
    /// The collector deletes dependents afterwards.
    Background,
    /// Dependents go first.
    Foreground,
}

/// Options of delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Run everything, store nothing.
    pub dry_run: bool,
    /// What happens with dependents; the kind's default when absent.
    pub propagation: Option<Propagation>,
    /// Grace period in seconds.
    pub grace: Option<i64>,
    /// The uid the object must have.
    pub uid: Option<String>,
    /// The revision the object must have.
    pub resource_version: Option<String>,
    /// As given, for admission webhooks.
    pub raw: Value,
}

impl DeleteOptions {
    /// Reads options from the query and, when there is one, the body (which wins).
    pub fn parse(query: &Query, body: Option<&Value>) -> ApiResult<Self> {
        if let Some(body) = body {
            return Self::from_body(body);
        }
        let mut raw = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let dry: Vec<&str> = query.all("dryRun").collect();
        if !dry.is_empty() {
            raw["dryRun"] = json!(dry);
        }
        if let Some(policy) = query.get("propagationPolicy") {
            raw["propagationPolicy"] = json!(policy);
        }
        if let Some(orphan) = query.maybe_flag("orphanDependents") {
            raw["orphanDependents"] = json!(orphan);
        }
        if let Some(grace) = query.get("gracePeriodSeconds") {
            let seconds: i64 = grace
                .parse()
                .map_err(|e| ApiError::bad_request(unreadable("ParseInt", grace, &e)))?;
            raw["gracePeriodSeconds"] = json!(seconds);
        }
        Self::from_value(raw)
    }

    fn from_body(body: &Value) -> ApiResult<Self> {
        let text = |key: &str| match &body[key] {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text.as_str()),
            other => Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{key} of type string",
                crate::decode::json_type(other)
            ))),
        };
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        if version.matches('/').count() > 1 {
            return Err(ApiError::bad_request(format!(
                "unexpected GroupVersion string: {version}"
            )));
        }
        if !kind.is_empty() && kind != "DeleteOptions" {
            let version = if version.is_empty() {
                "meta.k8s.io/v1"
            } else {
                version
            };
            let (group, version) = crate::meta::split_api_version(version);
            let shown = crate::meta::api_version(group, version);
            return Err(ApiError::bad_request(format!(
                "no kind {kind} is registered for version {shown} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
                kind = go::quote(kind),
                shown = go::quote(&shown)
            )));
        }
        Self::from_value(body.clone())
    }

    /// Reads options that are a part of something else, whatever kind they call themselves.
    pub fn from_value(raw: Value) -> ApiResult<Self> {
        let mut errors = Vec::new();
        check_types(&raw)?;
        let dry: Vec<&str> = raw["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if dry.iter().any(|v| *v != "All") {
            errors.push(FieldError::new(
                Cause::NotSupported,
                "dryRun",
                format!("Unsupported value: {}: supported values: \"All\"", json!(dry)),
            ));
        }
        let policy = raw.get("propagationPolicy").filter(|v| !v.is_null());
        let orphan = raw.get("orphanDependents").filter(|v| !v.is_null());
        if policy.is_some() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.unwrap_or(&Value::Null),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match (policy.and_then(Value::as_str), orphan.and_then(Value::as_bool)) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
            (None, None) => None,
        };
        refuse("DeleteOptions", &errors)?;
        let precondition = |key: &str| raw["preconditions"][key].as_str().map(str::to_owned);
        Ok(Self {
            dry_run: !dry.is_empty(),
            propagation,
            grace: raw["gracePeriodSeconds"].as_i64(),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            raw,
        })
    }
}

/// Refuses options whose fields are not of their types. Not reading them would delete more than asked.
fn check_types(raw: &Value) -> ApiResult<()> {
    let wrong = |value: &Value, field: &str, wanted: &str| {
        let found = match value {
            Value::Number(number) if wanted == "int64" => format!("number {number}"),
            other => crate::decode::json_type(other).to_owned(),
        };
        Err(ApiError::bad_request(format!(
            "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
        )))
    };
    let fits = |value: &Value, wanted: &str| match wanted {
        "[]string" => value.is_array(),
        "bool" => value.is_boolean(),
        "int64" => value.is_i64(),
        "v1.Preconditions" => value.is_object(),
        _ => value.is_string(),
    };
    let preconditions = &raw["preconditions"];
    for (value, field, wanted) in [
        (&raw["dryRun"], "DeleteOptions.dryRun", "[]string"),
        (
            &raw["propagationPolicy"],
            "DeleteOptions.propagationPolicy",
            "v1.DeletionPropagation",
        ),
        (&raw["orphanDependents"], "DeleteOptions.orphanDependents", "bool"),
        (
            &raw["gracePeriodSeconds"],
            "DeleteOptions.gracePeriodSeconds",
            "int64",
        ),
        (
            &raw["ignoreStoreReadErrorWithClusterBreakingPotential"],
            "DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
            "bool",
        ),
        (preconditions, "DeleteOptions.preconditions", "v1.Preconditions"),
        (
            &preconditions["uid"],
            "Preconditions.preconditions.uid",
            "types.UID",
        ),
        (
            &preconditions["resourceVersion"],
            "Preconditions.preconditions.resourceVersion",
            "string",
        ),
    ] {
        if !value.is_null() && !fits(value, wanted) {
            return wrong(value, field, wanted);
        }
    }
    let mut named = raw["dryRun"].as_array().into_iter().flatten();
    match named.find(|stage| !stage.is_string() && !stage.is_null()) {
        Some(stage) => wrong(stage, "DeleteOptions.dryRun", "string"),
        None => Ok(()),
    }
}

/// How a list's resource version is to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// At least that revision.
    NotOlderThan,
    /// Exactly that revision.
    Exact,
}

/// Options of list and watch.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Label selector, as sent.
    pub labels: String,
    /// Field selector, as sent.
    pub fields: String,
    /// Resource version, as sent.
    pub resource_version: String,
    /// How to understand it.
    pub version_match: Option<Match>,
    /// Most objects wanted; 0 for all.
    pub limit: usize,
    /// Continue token.
    pub token: String,
    /// Watch: seconds until the stream ends.
    pub timeout: Option<i64>,
    /// Watch: bookmarks wanted.
    pub bookmarks: bool,
    /// Watch: begin with the present state.
    pub initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads and checks the options.
    pub fn parse(query: &Query, watch: bool) -> ApiResult<Self> {
        let number = |key: &str| -> ApiResult<Option<i64>> {
            let text = query.get(key);
            text.map(|text| {
                text.parse()
                    .map_err(|e| ApiError::bad_request(unreadable("ParseInt", text, &e)))
            })
            .transpose()
        };
        let raw_match = query.get("resourceVersionMatch").unwrap_or_default();
        let options = Self {
            labels: query.get("labelSelector").unwrap_or_default().to_owned(),
            fields: query.get("fieldSelector").unwrap_or_default().to_owned(),
            resource_version: query.get("resourceVersion").unwrap_or_default().to_owned(),
            version_match: match raw_match {
                "NotOlderThan" => Some(Match::NotOlderThan),
                "Exact" => Some(Match::Exact),
                _ => None,
            },
            limit: number("limit")?.unwrap_or(0).max(0) as usize,
            token: query.get("continue").unwrap_or_default().to_owned(),
            timeout: number("timeoutSeconds")?,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events: query.maybe_flag("sendInitialEvents"),
        };
        let errors = if watch {
            options.watch_errors(raw_match)
        } else {
            options.list_errors(raw_match)
        };
        refuse("ListOptions", &errors)?;
        Ok(options)
    }

    fn watch_errors(&self, raw_match: &str) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        match self.initial_events {
            Some(_) if self.version_match != Some(Match::NotOlderThan) => errors.push(FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            None if !raw_match.is_empty() => errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            _ => {}
        }
        if !raw_match.is_empty() && self.version_match != Some(Match::NotOlderThan) {
            errors.push(FieldError::not_supported(
                FIELD,
                &json!(raw_match),
                &["NotOlderThan"],
            ));
        }
        // A watch from the beginning asks for its initial events without saying so.
        let from_beginning = matches!(self.resource_version.as_str(), "" | "0");
        if (!raw_match.is_empty() || from_beginning) && !self.token.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }

    fn list_errors(&self, raw_match: &str) -> Vec<FieldError> {
        let mut errors = self.match_errors(raw_match);
        if self.initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    fn match_errors(&self, raw_match: &str) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if raw_match.is_empty() {
            return errors;
        }
        if self.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !self.token.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        match self.version_match {
            None => errors.push(FieldError::not_supported(
                FIELD,
                &json!(raw_match),
                &["Exact", "NotOlderThan", ""],
            )),
            Some(Match::Exact) if self.resource_version == "0" => errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )),
            Some(_) => {}
        }
        errors
    }

    /// The revision a watch asks for; `None` when absent or empty.
    pub fn revision(&self) -> ApiResult<Option<u64>> {
        revision(&self.resource_version).map_err(ApiError::bad_request)
    }

    /// The revision a list asks for, which says more about one that cannot be read.
    pub fn list_revision(&self) -> ApiResult<Option<u64>> {
        revision(&self.resource_version)
            .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))
    }
}

/// The number of a `resourceVersion` parameter; `None` when absent or empty.
pub(crate) fn revision(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|e| {
        format!(
            "resourceVersion: Invalid value: {}: {}",
            go::quote(text),
            unreadable("ParseUint", text, &e)
        )
    })
}

/// Why a number could not be read, in the words of the reference.
fn unreadable(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", go::quote(text))
}
