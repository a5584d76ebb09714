// SPDX-License-Identifier: Apache-2.0
//! What a service answers. Agents read these leniently: a field they do not know is not for them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::command::Command;

/// The media type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The answer 200 to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAnswer {
    /// Every record up to this number is stored here. 0 if there is none.
    pub acked_seq: u64,
    /// The service's clock, for people.
    pub server_time: Timestamp,
    /// The host is in maintenance, fenced, or being released: repair nothing locally.
    #[serde(default)]
    pub hold: bool,
    /// What to do.
    #[serde(default)]
    pub commands: Vec<Command>,
    /// Base URLs of other agents' listeners, to be asked before this one fences itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}

/// The answer to a poll for commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandList {
    /// What to do; empty when the wait ended without anything.
    #[serde(default)]
    pub commands: Vec<Command>,
}

/// An error, as RFC 9457 has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type", default = "blank", skip_serializing_if = "is_blank")]
    pub kind: String,
    /// What it is.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// What exactly, and what to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// With 409 to a batch: the number that must come next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seq: Option<u64>,
}

impl Problem {
    /// A problem with this status.
    pub fn new(status: u16, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: blank(),
            title: title.into(),
            status,
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// The answer 409 to a batch that left records out.
    pub fn expected(seq: u64) -> Self {
        Self {
            expected_seq: Some(seq),
            ..Self::new(
                409,
                "Records are missing",
                format!("send from {seq}, or say that it was dropped"),
            )
        }
    }
}

fn blank() -> String {
    "about:blank".to_owned()
}

fn is_blank(kind: &String) -> bool {
    kind.is_empty() || kind == "about:blank"
}
