// SPDX-License-Identifier: Apache-2.0
//! Rules of a job's status. Whoever runs jobs reports through it, so it may only tell stories that
//! hold together: a job that ended began, was decided before it ended, and stays ended. A rule is
//! asked only where the change touches what it is about.

use cobaltcore_schema::Cause;
use jiff::Timestamp;
use serde_json::Value;

use super::errors::Errors;
use crate::json::{at, flag, int, list, number, same, text};

/// What of a job's end its conditions say.
#[derive(PartialEq, Eq, Clone, Copy)]
struct End {
    complete: bool,
    failed: bool,
    failing: bool,
    succeeding: bool,
}

impl End {
    fn of(job: &Value) -> Self {
        let is = |kind: &str| holds(job, kind, "True");
        Self {
            complete: is("Complete"),
            failed: is("Failed"),
            failing: is("FailureTarget"),
            succeeding: is("SuccessCriteriaMet"),
        }
    }

    fn finished(self) -> bool {
        self.complete || self.failed
    }
}

fn holds(job: &Value, kind: &str, status: &str) -> bool {
    list(job, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == kind && text(condition, "status") == status)
}

/// The two states of a job, and where they differ.
struct Change<'a> {
    new: &'a Value,
    old: &'a Value,
    now: End,
    was: End,
}

impl Change<'_> {
    fn touches(&self, field: &str) -> bool {
        let path = format!("status.{field}");
        !same(at(self.new, &path), at(self.old, &path))
    }

    /// Whether the job ended, or came back, with this change.
    fn ends(&self) -> bool {
        self.now.finished() != self.was.finished()
    }

    fn completes(&self) -> bool {
        self.now.complete != self.was.complete
    }
}

/// A changed status of a job; its counts have been looked at.
pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let change = Change {
        new,
        old,
        now: End::of(new),
        was: End::of(old),
    };
    contradictions(errors, &change);
    times(errors, &change);
    decisions(errors, &change);
    what_is_left(errors, &change);
    criteria(errors, &change);
    history(errors, &change);
}

fn conditions(errors: &mut Errors, why: &str) {
    errors.raw(
        Cause::Invalid,
        "status.conditions",
        format!("Invalid value: {why}"),
    );
}

fn contradictions(errors: &mut Errors, change: &Change<'_>) {
    let now = change.now;
    if now.complete && now.failed && (change.completes() || now.failed != change.was.failed) {
        conditions(errors, "cannot set Complete=True and Failed=true conditions");
    }
    if now.complete && now.failing && (change.completes() || now.failing != change.was.failing) {
        conditions(
            errors,
            "cannot set Complete=True and FailureTarget=true conditions",
        );
    }
}

fn times(errors: &mut Errors, change: &Change<'_>) {
    const ENDED: &str = "status.completionTime";
    let ended = at(change.new, ENDED);
    if change.completes() || change.touches("completionTime") {
        match ended {
            Some(time) if !change.now.complete => errors.invalid(
                ENDED,
                time.clone(),
                "cannot set completionTime when there is no Complete=True condition",
            ),
            None if change.now.complete => {
                errors.required(ENDED, "completionTime is required for Complete jobs");
            }
            _ => {}
        }
    }
    let instant = |path: &str| text(change.new, path).parse::<Timestamp>().ok();
    if (change.touches("startTime") || change.touches("completionTime"))
        && let (Some(began), Some(over)) = (instant("status.startTime"), instant(ENDED))
        && over < began
    {
        errors.invalid(
            ENDED,
            text(change.new, ENDED),
            "must be equal to or after `startTime`",
        );
    }
}

/// Pods are stopped between the decision and the end, so the decision comes first.
fn decisions(errors: &mut Errors, change: &Change<'_>) {
    let (now, was) = (change.now, change.was);
    if now.failed && !now.failing && (now.failed != was.failed || change.touches("failedIndexes")) {
        conditions(
            errors,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
    }
    if now.complete && !now.succeeding && (change.completes() || now.succeeding != was.succeeding) {
        conditions(
            errors,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
}

fn what_is_left(errors: &mut Errors, change: &Change<'_>) {
    let (new, finished) = (change.new, change.now.finished());
    let active = number(new, "status.active");
    if finished && active > 0 && (change.ends() || change.touches("active")) {
        errors.invalid("status.active", active, "active>0 is invalid for finished job");
    }
    let nothing_to_do = flag(new, "spec.suspend") && int(new, "spec.completions") == Some(0);
    if finished
        && at(new, "status.startTime").is_none()
        && (change.ends() || change.touches("startTime"))
        && !nothing_to_do
    {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let uncounted = ["succeeded", "failed"]
        .iter()
        .any(|part| !list(new, &format!("status.uncountedTerminatedPods.{part}")).is_empty());
    if finished && uncounted && (change.ends() || change.touches("uncountedTerminatedPods")) {
        let shown = at(new, "status.uncountedTerminatedPods")
            .cloned()
            .unwrap_or_default();
        errors.invalid(
            "status.uncountedTerminatedPods",
            shown,
            "must be empty for finished job",
        );
    }
    indexes(errors, change);
    let terminating = number(new, "status.terminating");
    if finished && terminating > 0 && (change.ends() || change.touches("terminating")) {
        errors.invalid(
            "status.terminating",
            terminating,
            "terminating>0 is invalid for finished job",
        );
    }
    let ready = number(new, "status.ready");
    if ready > active && (change.touches("ready") || change.touches("active")) {
        errors.invalid("status.ready", ready, "cannot set more ready pods than active");
    }
}

fn indexes(errors: &mut Errors, change: &Change<'_>) {
    let completed = text(change.new, "status.completedIndexes");
    let indexed = text(change.new, "spec.completionMode") == "Indexed";
    if !completed.is_empty() && !indexed && change.touches("completedIndexes") {
        errors.invalid(
            "status.completedIndexes",
            completed,
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    if let Some(failed) = at(change.new, "status.failedIndexes")
        && at(change.new, "spec.backoffLimitPerIndex").is_none()
        && change.touches("failedIndexes")
    {
        errors.invalid(
            "status.failedIndexes",
            failed.clone(),
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        );
    }
}

fn criteria(errors: &mut Errors, change: &Change<'_>) {
    let now = change.now;
    if now.succeeding && now.failed {
        conditions(
            errors,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        );
    }
    if now.succeeding && now.failing {
        conditions(
            errors,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        );
    }
    if at(change.new, "spec.successPolicy").is_some() && !now.succeeding && now.complete {
        conditions(
            errors,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }
}

/// What was said once stays said.
fn history(errors: &mut Errors, change: &Change<'_>) {
    let (new, old) = (change.new, change.old);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind, "True") && !holds(new, kind, "True") {
            conditions(
                errors,
                &format!("cannot disable the terminal {kind}=True condition"),
            );
        }
    }
    let scalable = text(new, "spec.completionMode") == "Indexed"
        && same(at(new, "spec.completions"), at(new, "spec.parallelism"));
    for (name, fixed) in [("failed", true), ("succeeded", !scalable)] {
        let path = format!("status.{name}");
        if fixed && number(new, &path) < number(old, &path) {
            let detail = format!("cannot decrease the {name} counter");
            errors.invalid(path.as_str(), number(new, &path), &detail);
        }
    }
    let both = |path: &str| at(new, path).is_some() && at(old, path).is_some();
    if both("status.completionTime") && change.touches("completionTime") {
        errors.immutable("status.completionTime", new, old, "status.completionTime");
    }
    let resuming = holds(old, "Suspended", "True") && holds(new, "Suspended", "False");
    if at(old, "status.startTime").is_some()
        && change.touches("startTime")
        && !resuming
        && !flag(new, "spec.suspend")
    {
        errors.invalid(
            "status.startTime",
            at(new, "status.startTime").cloned().unwrap_or(Value::Null),
            "field is immutable for unsuspended job once set",
        );
    }
    if change.was.succeeding && !change.now.succeeding {
        conditions(errors, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if change.was.complete && !change.was.succeeding && change.now.succeeding {
        conditions(
            errors,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }
}
