// SPDX-License-Identifier: Apache-2.0
//! Failures of this crate, and refusals meant for a client.
//!
//! [`AccessError`] is for the operator: each variant names the file or key and what to do.
//! [`Refusal`] is for the client: it carries the parts of a `Status` answer and renders the
//! message to the letter, so that the server only has to wrap it.

use std::path::PathBuf;

/// What can go wrong with keys, certificates and files of the server itself.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file or directory could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A private file or directory is open to others.
    #[error(
        "{} is accessible to others (mode {mode:04o}); run: chmod {wanted:04o} {}",
        path.display(),
        path.display()
    )]
    TooOpen {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The permission bits it must have.
        wanted: u32,
    },
    /// A path is not what it must be: a symbolic link, a directory, a device.
    #[error("{} is not a {expected}; symbolic links are not followed here", path.display())]
    WrongType {
        /// The path.
        path: PathBuf,
        /// What it has to be.
        expected: &'static str,
    },
    /// A stored key, certificate or token cannot be understood.
    #[error("{} is damaged: {detail}; remove it to have a new one created", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A line of the static token file is wrong.
    #[error("{}:{line}: {detail}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong there.
        detail: String,
    },
    /// A key could not be made, read or used.
    #[error("cannot {action}: {detail}")]
    Crypto {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        detail: String,
    },
    /// A configured name cannot be part of a certificate.
    #[error("{name:?} is neither a host name nor an address and cannot be part of the server certificate")]
    BadName {
        /// The name as configured.
        name: String,
    },
    /// The user's own kubeconfig cannot be extended.
    #[error("cannot merge into {}: {detail}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// Recorded requests that were to be merged cannot be read.
    #[error("not a record of requests: {0}")]
    Record(String),
}

/// One entry of `details.causes` of an Invalid answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldCause {
    /// The cause's reason, for example `FieldValueInvalid`.
    pub reason: &'static str,
    /// The path of the field.
    pub field: String,
    /// The message without the field.
    pub message: String,
}

impl FieldCause {
    /// `Invalid value: <value>: <detail>`; `value` is written as it is given.
    pub fn invalid(field: &str, value: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// `Required value: <detail>`.
    pub fn required(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            field: field.to_owned(),
            message: format!("Required value: {detail}"),
        }
    }
}

/// A request that is understood and refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// 400 BadRequest.
    BadRequest(String),
    /// 403 Forbidden.
    Forbidden {
        /// API group of the resource, empty for core and for paths.
        group: String,
        /// Plural resource, empty for paths.
        resource: String,
        /// Name of the object, may be empty.
        name: String,
        /// What stands after `is forbidden: `.
        detail: String,
    },
    /// 404 NotFound.
    NotFound {
        /// API group.
        group: String,
        /// Plural resource.
        resource: String,
        /// Name of the missing object.
        name: String,
    },
    /// 409 Conflict.
    Conflict {
        /// API group.
        group: String,
        /// Resource (or kind, where the reference uses the kind).
        resource: String,
        /// Name of the object.
        name: String,
        /// What stands after the name.
        detail: String,
    },
    /// 422 Invalid.
    Invalid {
        /// API group of the kind.
        group: String,
        /// Kind, may be empty.
        kind: String,
        /// Name of the object, may be empty.
        name: String,
        /// The causes, in order.
        causes: Vec<FieldCause>,
    },
    /// 500 InternalError.
    Internal(String),
}

fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

impl Refusal {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Forbidden { .. } => 403,
            Self::NotFound { .. } => 404,
            Self::Conflict { .. } => 409,
            Self::Invalid { .. } => 422,
            Self::Internal(_) => 500,
        }
    }

    /// The `reason` of the Status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Invalid { .. } => "Invalid",
            Self::Internal(_) => "InternalError",
        }
    }

    /// The `message` of the Status.
    pub fn message(&self) -> String {
        match self {
            Self::BadRequest(text) => text.clone(),
            Self::Internal(text) => format!("Internal error occurred: {text}"),
            Self::Forbidden {
                group,
                resource,
                name,
                detail,
            } => {
                if resource.is_empty() {
                    format!("forbidden: {detail}")
                } else if name.is_empty() {
                    format!("{} is forbidden: {detail}", qualified(resource, group))
                } else {
                    format!(
                        "{} {} is forbidden: {detail}",
                        qualified(resource, group),
                        cobaltcore_text::go::quote(name)
                    )
                }
            }
            Self::NotFound {
                group,
                resource,
                name,
            } => {
                format!(
                    "{} {} not found",
                    qualified(resource, group),
                    cobaltcore_text::go::quote(name)
                )
            }
            Self::Conflict {
                group,
                resource,
                name,
                detail,
            } => format!(
                "Operation cannot be fulfilled on {} {}: {detail}",
                qualified(resource, group),
                cobaltcore_text::go::quote(name)
            ),
            Self::Invalid {
                group,
                kind,
                name,
                causes,
            } => {
                let mut seen: Vec<String> = Vec::new();
                for cause in causes {
                    let text = format!("{}: {}", cause.field, cause.message);
                    if !seen.contains(&text) {
                        seen.push(text);
                    }
                }
                let list = match seen.as_slice() {
                    [one] => one.clone(),
                    many => format!("[{}]", many.join(", ")),
                };
                format!(
                    "{} {} is invalid: {list}",
                    qualified(kind, group),
                    cobaltcore_text::go::quote(name)
                )
            }
        }
    }
}
