// SPDX-License-Identifier: Apache-2.0
//! Conditions as writers state them, and how they become entries of a status.

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::error::Error;

const LONGEST_TYPE: usize = 316;
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32_768;

/// Whether an aspect holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as its writer states it; times and generations are filled in on writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    pub(super) type_: String,
    status: ConditionStatus,
    reason: String,
    message: String,
}

impl NewCondition {
    /// A condition with a given status.
    pub fn new(
        type_: impl AsRef<str>,
        status: impl Into<ConditionStatus>,
        reason: impl AsRef<str>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.as_ref().to_owned(),
            status: status.into(),
            reason: reason.as_ref().to_owned(),
            message: message.into(),
        }
    }

    /// The aspect holds.
    pub fn yes(type_: impl AsRef<str>, reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::True, reason, message)
    }

    /// The aspect does not hold.
    pub fn no(type_: impl AsRef<str>, reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::False, reason, message)
    }

    /// It cannot be told whether the aspect holds.
    pub fn unknown(type_: impl AsRef<str>, reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::Unknown, reason, message)
    }

    /// Refuses what the API server would refuse together with the whole status.
    pub(super) fn check(&self, object: &str) -> Result<(), Error> {
        let wrong = |reason: String| {
            Err(Error::Condition {
                object: object.to_owned(),
                type_: self.type_.clone(),
                reason,
            })
        };
        if self.type_.is_empty() || self.type_.len() > LONGEST_TYPE {
            return wrong(format!("the type must have 1 to {LONGEST_TYPE} characters"));
        }
        if !is_reason(&self.reason) {
            return wrong(format!("{:?} is not a valid reason", self.reason));
        }
        Ok(())
    }

    /// The entry to apply, given the conditions as they are.
    pub(super) fn render(&self, before: &Value, generation: Option<i64>, now: Timestamp) -> Value {
        let status = self.status.as_str();
        let same = before
            .as_array()
            .into_iter()
            .flatten()
            .find(|old| old["type"] == self.type_);
        let since = same
            .filter(|old| old["status"] == status)
            .and_then(|old| old["lastTransitionTime"].as_str())
            .map_or_else(|| seconds(now), str::to_owned);
        let mut entry = json!({
            "type": self.type_,
            "status": status,
            "reason": self.reason,
            "message": cut(&self.message),
            "lastTransitionTime": since,
        });
        if let Some(generation) = generation {
            entry["observedGeneration"] = generation.into();
        }
        entry
    }
}

/// The condition of a type among those of an object.
pub fn find(conditions: &[Condition], type_: impl AsRef<str>) -> Option<&Condition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == type_.as_ref())
}

fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= LONGEST_REASON
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || c == ',' || c == ':')
}

/// The API counts characters, not bytes.
fn cut(message: &str) -> &str {
    message
        .char_indices()
        .nth(LONGEST_MESSAGE)
        .map_or(message, |(end, _)| message.get(..end).unwrap_or(message))
}

/// The time as the API keeps it, without fractions.
fn seconds(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_transition_time_follows_the_status_alone() {
        let first = NewCondition::yes("Ready", "Ready", "fine").render(
            &Value::Null,
            Some(1),
            at("2026-01-01T00:00:00.75Z"),
        );
        assert_eq!(first["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let before = json!([first]);
        let reworded = NewCondition::yes("Ready", "Better", "finer").render(
            &before,
            Some(2),
            at("2026-01-02T00:00:00Z"),
        );
        assert_eq!(reworded["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(
            (&reworded["reason"], &reworded["observedGeneration"]),
            (&json!("Better"), &json!(2))
        );
        let turned =
            NewCondition::no("Ready", "Broken", "").render(&before, Some(2), at("2026-01-02T00:00:00Z"));
        assert_eq!(turned["lastTransitionTime"], "2026-01-02T00:00:00Z");
    }

    #[test]
    fn what_the_api_server_would_refuse_is_refused_here() {
        for reason in ["", "9Lives", "has space", "ends:", "dash-ed"] {
            let error = NewCondition::yes("Ready", reason, "")
                .check("Hypervisor node1")
                .unwrap_err()
                .to_string();
            assert_eq!(
                error,
                format!("condition \"Ready\" of Hypervisor node1: {reason:?} is not a valid reason")
            );
        }
        for reason in ["A", "Succeeded", "a_b,c:d1"] {
            NewCondition::yes("libvirtd.service", reason, "")
                .check("x")
                .unwrap();
        }
        assert!(NewCondition::yes("", "Ready", "").check("x").is_err());
    }

    #[test]
    fn a_message_is_cut_at_a_character() {
        let long = "\u{1f7e2}".repeat(LONGEST_MESSAGE + 5);
        assert_eq!(cut(&long).chars().count(), LONGEST_MESSAGE);
        assert_eq!(cut("short"), "short");
    }
}
