// SPDX-License-Identifier: Apache-2.0
//! Reading conditions and times of our objects without ceremony. Reading only: whoever writes a
//! condition states it as a [`NewCondition`] and lets the status writer fill in the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_kit::status::{ConditionStatus, Intent, NewCondition, find};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says, or that it is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// `True`.
    Yes,
    /// `False`.
    No,
    /// `Unknown`, or a word Kubernetes does not have.
    Unsure,
    /// There is no such condition.
    Nothing,
}

/// What the condition `type_` says.
pub(crate) fn says(conditions: &[Condition], type_: impl AsRef<str>) -> Says {
    match find(conditions, type_).map(|condition| condition.status.as_str()) {
        Some("True") => Says::Yes,
        Some("False") => Says::No,
        Some(_) => Says::Unsure,
        None => Says::Nothing,
    }
}

/// The reason of the condition `type_`, empty if there is none.
pub(crate) fn reason(conditions: &[Condition], type_: impl AsRef<str>) -> &str {
    find(conditions, type_).map_or("", |condition| &condition.reason)
}

/// The message of the condition `type_`, empty if there is none.
pub(crate) fn message(conditions: &[Condition], type_: impl AsRef<str>) -> &str {
    find(conditions, type_).map_or("", |condition| &condition.message)
}

/// When the condition `type_` last changed its status.
pub(crate) fn since(conditions: &[Condition], type_: impl AsRef<str>) -> Option<Timestamp> {
    find(conditions, type_).map(|condition| condition.last_transition_time.0)
}

/// What one writer states about its conditions. What it stated before and does not take back is
/// stated again, because leaving a condition out gives it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statements(BTreeMap<String, Statement>);

/// One condition as its writer states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Whether the aspect holds.
    pub status: ConditionStatus,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl Statements {
    /// Those of `types` that `conditions` already has.
    pub(crate) fn again<T: AsRef<str>>(conditions: &[Condition], types: &[T]) -> Self {
        let own = |condition: &&Condition| types.iter().any(|own| own.as_ref() == condition.type_);
        let restate = |condition: &Condition| {
            let status = match condition.status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            };
            let (reason, message) = (condition.reason.clone(), condition.message.clone());
            let statement = Statement {
                status,
                reason,
                message,
            };
            (condition.type_.clone(), statement)
        };
        Self(conditions.iter().filter(own).map(restate).collect())
    }

    /// States a condition.
    pub(crate) fn say(
        &mut self,
        type_: impl AsRef<str>,
        status: impl Into<ConditionStatus>,
        reason: impl AsRef<str>,
        message: impl Into<String>,
    ) {
        let statement = Statement {
            status: status.into(),
            reason: reason.as_ref().to_owned(),
            message: message.into(),
        };
        self.0.insert(type_.as_ref().to_owned(), statement);
    }

    /// Takes a condition back.
    pub(crate) fn drop(&mut self, type_: impl AsRef<str>) {
        self.0.remove(type_.as_ref());
    }

    /// What is stated about `type_`.
    pub fn get(&self, type_: impl AsRef<str>) -> Option<&Statement> {
        self.0.get(type_.as_ref())
    }

    /// Adds them to what is to be written.
    pub(crate) fn onto(&self, intent: Intent) -> Intent {
        self.0.iter().fold(intent, |intent, (type_, said)| {
            intent.condition(NewCondition::new(type_, said.status, &said.reason, &said.message))
        })
    }
}

impl Statement {
    /// Whether it says that the aspect holds, or does not, for this reason.
    pub fn is(&self, status: impl Into<ConditionStatus>, reason: impl AsRef<str>) -> bool {
        self.status == status.into() && self.reason == reason.as_ref()
    }
}

/// How long ago `then` was; zero for the future.
pub(crate) fn age(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// `pause` after `then`, or `then` at the end of time.
pub(crate) fn after(then: Timestamp, pause: Duration) -> Timestamp {
    then.checked_add(pause).unwrap_or(then)
}

/// How long it still is until `then`.
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    age(then, now)
}

/// A time as Kubernetes carries it, in whole seconds.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// A condition as the API server holds it, for tests of judgements.
#[cfg(test)]
pub(crate) fn condition(type_: impl AsRef<str>, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.as_ref().to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(noon()),
        observed_generation: None,
    }
}

/// The time at which judgements are tested.
#[cfg(test)]
pub(crate) fn noon() -> Timestamp {
    "2026-03-04T12:00:00Z".parse().unwrap()
}

/// A source of numbers that repeats itself by its seed, for random schedules.
#[cfg(test)]
pub(crate) struct Dice(u64);

#[cfg(test)]
impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}
