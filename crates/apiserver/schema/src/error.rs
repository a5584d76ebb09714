// SPDX-License-Identifier: Apache-2.0
//! Field errors: one wrong place in an object, in the words Kubernetes uses for it.

use std::fmt;

use serde_json::Value;

use cobaltcore_text::go;

/// The reason a field was refused; becomes `details.causes[].reason` of a `Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The field must be present.
    Required,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is not one of a known set.
    NotSupported,
    /// The field may not be set, or not be changed.
    Forbidden,
    /// The value occurs twice where it must be unique.
    Duplicate,
    /// The value is longer than allowed.
    TooLong,
    /// The list or map has more entries than allowed.
    TooMany,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The value refers to something that does not exist.
    NotFound,
    /// Something failed that is not the client's fault.
    InternalError,
}

impl Cause {
    /// The reason as it appears on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::InternalError => "InternalError",
        }
    }
}

/// One refused field. `message` is the text without the field path
/// (`Invalid value: "x": must be no more than 63 bytes`); [`fmt::Display`] puts the path in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Why it was refused.
    pub cause: Cause,
    /// Where: `spec.ports[0].port`, `data[bad key]`, `<nil>` for the root.
    pub field: String,
    /// What is wrong, in the words of the reference.
    pub message: String,
}

impl FieldError {
    /// An error with a complete message of its own.
    pub fn new(cause: Cause, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            cause,
            field: field.into(),
            message: message.into(),
        }
    }

    /// `Required value` or `Required value: detail`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Cause::Required, field, with_detail("Required value", detail))
    }

    /// `Invalid value: "x": detail`.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            Cause::Invalid,
            field,
            with_detail(&format!("Invalid value: {}", quote(value)), detail),
        )
    }

    /// `Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Cause::Forbidden, field, with_detail("Forbidden", detail))
    }

    /// `Duplicate value: "x"`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            Cause::Duplicate,
            field,
            format!("Duplicate value: {}", quote(value)),
        )
    }

    /// `Unsupported value: "x": supported values: "A", "B"` (values in the given order).
    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, supported: &[S]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| go::quote(s.as_ref())).collect();
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", list.join(", "))
        };
        Self::new(
            Cause::NotSupported,
            field,
            with_detail(&format!("Unsupported value: {}", quote(value)), &detail),
        )
    }

    /// `Not found: "x"`.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(Cause::NotFound, field, format!("Not found: {}", quote(value)))
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let noun = if max == 1 { "byte" } else { "bytes" };
        Self::new(
            Cause::TooLong,
            field,
            format!("Too long: may not be more than {max} {noun}"),
        )
    }

    /// `Invalid value: "x": detail` for a value of the wrong JSON type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let head = format!("Invalid value: {}", quote(value));
        Self::new(Cause::TypeInvalid, field, with_detail(&head, detail))
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let noun = if max == 1 { "item" } else { "items" };
        Self::new(
            Cause::TooMany,
            field,
            format!("Too many: {actual}: must have at most {max} {noun}"),
        )
    }
}

/// Why a path or a pattern of a definition cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is no JSONPath.
    #[error("{0}")]
    Path(String),
    /// The path does not fit the object it was evaluated on.
    #[error("{0}")]
    Mismatch(String),
    /// The text is no regular expression.
    #[error("{0}")]
    Pattern(String),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}: {detail}")
    }
}

/// A value as the reference quotes it in messages: strings in double quotes, scalars bare,
/// composite values as compact JSON. Long values are cut so that messages stay readable.
pub fn quote(value: &Value) -> String {
    const MAX: usize = 512;
    let text = go::value(value);
    match text.char_indices().nth(MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}
