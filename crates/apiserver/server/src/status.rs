// SPDX-License-Identifier: Apache-2.0
//! Failures as clients see them: every refusal becomes a `Status` object with the code, reason and
//! text the reference gives. Handlers return [`ApiError`]; only `http` turns it into bytes.

use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::{Map, Value, json};

/// What handlers return.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// A refusal. Boxed inside so that `Result`s stay small on the happy path.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone, PartialEq)]
struct Inner {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// Fields merged into `metadata` (only `continue`, for expired list tokens).
    metadata: Map<String, Value>,
    /// Whether `details` appears though it is empty, as it does where no handler was reached.
    bare_details: bool,
    /// Whether browsers are told not to guess at the type of the body.
    unsniffed: bool,
    /// A body that is no `Status` at all (plain 404 pages, passed-through webhook answers).
    raw: Option<Raw>,
}

#[derive(Debug, Clone, PartialEq)]
enum Raw {
    Text(String),
    Status(Value),
}

impl ApiError {
    /// An error with code, reason and message, without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            metadata: Map::new(),
            bare_details: false,
            unsniffed: false,
            raw: None,
        }))
    }

    /// 400 BadRequest.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 400 for an object that names another namespace than the request.
    pub fn other_namespace() -> Self {
        Self::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )
    }

    /// 404 for an object that does not exist.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!(
                "{} {name} not found",
                qualified(group, plural),
                name = go::quote(name)
            ),
        )
        .about(group, plural, name)
    }

    /// 404 for a resource or version that is not served.
    pub fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .unhandled()
    }

    /// 404 for a path below no known group.
    pub fn no_such_path() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// A plain text answer.
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        let mut error = Self::new(code, "", "");
        error.0.raw = Some(Raw::Text(body.into()));
        error
    }

    /// A complete `Status` object made elsewhere (admission webhooks).
    pub fn passed_through(code: u16, status: Value) -> Self {
        let mut error = Self::new(
            code,
            "",
            status.get("message").and_then(Value::as_str).unwrap_or_default(),
        );
        if let Some(details) = status.get("details").and_then(Value::as_object) {
            error.0.details.clone_from(details);
        }
        error.0.raw = Some(Raw::Status(status));
        error
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .unhandled()
    }

    /// 405 of a custom resource, whose endpoints know what they were asked.
    pub fn method_not_supported(group: &str, plural: &str, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {}",
            go::quote(&qualified(group, plural))
        );
        Self::new(405, "MethodNotAllowed", message).about(group, plural, "")
    }

    /// 415 for a patch in a format built-in kinds do not take.
    pub fn unsupported_patch_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").unhandled()
    }

    /// Marks an answer given before any handler was reached.
    pub(crate) fn unhandled(mut self) -> Self {
        self.0.bare_details = true;
        self
    }

    /// Marks the answer of the authoriser, the only `Status` browsers may not guess about.
    pub(crate) fn unsniffed(mut self) -> Self {
        self.0.unsniffed = true;
        self
    }

    /// Whether browsers are told not to guess at the type of the body.
    pub(crate) fn is_unsniffed(&self) -> bool {
        self.0.unsniffed || self.as_text().is_some()
    }

    /// 409 AlreadyExists.
    pub fn already_exists(group: &str, plural: &str, name: &str, being_deleted: bool) -> Self {
        let prefix = if being_deleted {
            "object is being deleted: "
        } else {
            ""
        };
        Self::new(
            409,
            "AlreadyExists",
            format!(
                "{prefix}{} {name} already exists",
                qualified(group, plural),
                name = go::quote(name)
            ),
        )
        .about(group, plural, name)
    }

    /// 409 Conflict with its own explanation.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name}: {why}",
                qualified(group, resource),
                name = go::quote(name)
            ),
        )
        .about(group, resource, name)
    }

    /// 409 Conflict because the stored object is newer than the one the client saw.
    pub fn stale(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403 Forbidden about an object.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let subject = qualified(group, plural);
        let message = if name.is_empty() {
            format!("{subject} is forbidden: {why}")
        } else {
            format!("{subject} {name} is forbidden: {why}", name = go::quote(name))
        };
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// 422 Invalid: every wrong field as a cause, and all of them in the message.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // The same error found twice is two causes, but said once.
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!(
            "{} {name} is invalid: {list}",
            qualified(group, kind),
            name = go::quote(name)
        );
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        error
            .0
            .details
            .insert("causes".into(), errors.iter().map(cause).collect());
        error
    }

    /// 422 for wrong query options; `kind` is the options kind.
    pub fn invalid_options(kind: &str, errors: &[FieldError]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", errors)
    }

    /// 406.
    pub fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    /// 406 where no route of a built-in kind leads to any of the media types asked for.
    pub fn no_representation(verb: &str) -> Self {
        // The route of a list is that of its watch too.
        let stream = match verb {
            "list" | "watch" => ", application/json;stream=watch",
            _ => "",
        };
        Self::new(
            406,
            "NotAcceptable",
            format!(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml{stream}"
            ),
        )
        .unhandled()
    }

    /// 415 for a body in an unknown format; built-in kinds are also read from protobuf.
    pub fn unsupported_media_type(protobuf: bool) -> Self {
        let also = if protobuf {
            format!(", {}", cobaltcore_protobuf::MEDIA_TYPE)
        } else {
            String::new()
        };
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml{also}"
            ),
        )
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 410 for a resource version whose history is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 504 for a resource version from the future.
    pub fn too_new(asked: u64, current: u64) -> Self {
        let mut error = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        error.0.details.insert(
            "causes".into(),
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
        );
        error
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut error = Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        error
            .0
            .details
            .insert("causes".into(), json!([{"message": message}]));
        error
    }

    /// Names the object in `details`.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = &mut self.0.details;
        if !name.is_empty() {
            details.insert("name".into(), json!(name));
        }
        if !group.is_empty() {
            details.insert("group".into(), json!(group));
        }
        if !kind.is_empty() {
            details.insert("kind".into(), json!(kind));
        }
        self
    }

    /// Adds one cause.
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut entry = Map::new();
        for (key, text) in [("reason", reason), ("message", message), ("field", field)] {
            if !text.is_empty() {
                entry.insert(key.into(), json!(text));
            }
        }
        let causes = self.0.details.entry("causes").or_insert_with(|| json!([]));
        if let Value::Array(list) = causes {
            list.push(Value::Object(entry));
        }
        self
    }

    /// The same refusal in other words.
    pub(crate) fn saying(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    /// Adds `details.retryAfterSeconds`, which also becomes the `Retry-After` header.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.details.insert("retryAfterSeconds".into(), json!(seconds));
        self
    }

    /// Adds a fresh continue token (expired lists).
    pub fn with_continue(mut self, token: String) -> Self {
        self.0.metadata.insert("continue".into(), Value::String(token));
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Seconds for the `Retry-After` header, if any.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The plain text body, where the answer is no `Status`.
    pub fn as_text(&self) -> Option<&str> {
        match &self.0.raw {
            Some(Raw::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let inner = &*self.0;
        if let Some(Raw::Status(status)) = &inner.raw {
            return status.clone();
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": inner.metadata,
            "status": "Failure",
            "message": inner.message,
            "code": inner.code,
        });
        if let Value::Object(map) = &mut status {
            if !inner.reason.is_empty() {
                map.insert("reason".into(), json!(inner.reason));
            }
            if !inner.details.is_empty() || inner.bare_details {
                map.insert("details".into(), Value::Object(inner.details.clone()));
            }
        }
        status
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.0.code, self.0.reason, self.0.message)
    }
}

impl std::error::Error for ApiError {}

fn cause(error: &FieldError) -> Value {
    json!({"reason": error.cause.as_str(), "message": error.message, "field": error.field})
}

/// `plural` for the core group, `plural.group` for all others.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}
