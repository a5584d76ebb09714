// SPDX-License-Identifier: Apache-2.0
//! Rules of jobs: counts, completion modes, the generated selector, and what stays fixed.

use serde_json::Value;

use super::errors::Errors;
use super::{job_failure, pod};
use crate::json::{at, ensure, flag, int, map, number, same, text};
use crate::names;
use crate::selector::selector_matches;

const MAX_INDEXED: i64 = 100_000;

pub(super) fn create(errors: &mut Errors, object: &Value) {
    generated_selector(errors, object);
    spec_with_selector(errors, object);
    let completions = number(object, "spec.completions");
    if text(object, "spec.completionMode") == "Indexed" && completions > 0 {
        let name = text(object, "metadata.name");
        let longest = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            errors.invalid(
                "metadata.name",
                name,
                &format!("will not able to create pod with invalid DNS label: {longest}"),
            );
        }
    }
}

fn generated_selector(errors: &mut Errors, object: &Value) {
    if flag(object, "spec.manualSelector") || at(object, "spec.selector").is_none() {
        return;
    }
    let (name, uid) = (text(object, "metadata.name"), text(object, "metadata.uid"));
    let labels = map(object, "spec.template.metadata.labels");
    for (key, wanted) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        let found = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        match found {
            None => errors.required(
                format!("spec.template.metadata.labels[{key}]"),
                &format!("must be '{wanted}'"),
            ),
            Some(found) if found != wanted => errors.invalid(
                format!("spec.template.metadata.labels[{key}]"),
                labels.cloned().map_or(Value::Null, Value::Object),
                &format!("must be '{wanted}'"),
            ),
            Some(_) => {}
        }
    }
    let expected = serde_json::json!({
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    });
    let selector = at(object, "spec.selector");
    if !selector_matches(selector, expected.as_object()) {
        errors.invalid(
            "spec.selector",
            selector.cloned().unwrap_or(Value::Null),
            "`selector` not auto-generated",
        );
    }
}

fn spec_with_selector(errors: &mut Errors, object: &Value) {
    job_spec(errors, object, "spec");
    let selector = at(object, "spec.selector");
    match selector {
        None => errors.required("spec.selector", ""),
        given => errors.selector(given, "spec.selector"),
    }
    let labels = map(object, "spec.template.metadata.labels");
    // No selector matches nothing.
    if selector.is_none() || !selector_matches(selector, labels) {
        errors.invalid(
            "spec.template.metadata.labels",
            labels.cloned().map_or(Value::Null, Value::Object),
            "`selector` does not match template `labels`",
        );
    }
}

/// A job's spec at a path, in a Job or in a CronJob.
pub(super) fn job_spec(errors: &mut Errors, object: &Value, field: &str) {
    let spec = at(object, field).unwrap_or(&Value::Null);
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(spec, name, &format!("{field}.{name}"));
    }
    if int(spec, "maxFailedIndexes").is_some() && int(spec, "backoffLimitPerIndex").is_none() {
        errors.required(
            format!("{field}.backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    completion(errors, spec, field);
    replacement(errors, spec, field);
    job_failure::policy(errors, spec, field);
    job_failure::manager(errors, spec, field);
    pod::template(errors, object, &format!("{field}.template"));
    restart(errors, spec, field);
}

fn completion(errors: &mut Errors, spec: &Value, field: &str) {
    let mode = text(spec, "completionMode");
    if !mode.is_empty() && !matches!(mode, "NonIndexed" | "Indexed") {
        errors.not_supported(
            format!("{field}.completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        );
    }
    if mode == "Indexed" {
        if int(spec, "completions").is_none() {
            errors.required(format!("{field}.completions"), "when completion mode is Indexed");
        }
        if let Some(parallel) = int(spec, "parallelism").filter(|parallel| *parallel > MAX_INDEXED) {
            errors.invalid(
                format!("{field}.parallelism"),
                parallel,
                &format!("must be less than or equal to {MAX_INDEXED} when completion mode is Indexed"),
            );
        }
        if let (Some(all), Some(failed)) = (int(spec, "completions"), int(spec, "maxFailedIndexes"))
            && failed > all
        {
            errors.invalid(
                format!("{field}.maxFailedIndexes"),
                failed,
                "must be less than or equal to completions",
            );
        }
        return;
    }
    for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        if let Some(number) = int(spec, name) {
            errors.invalid(
                format!("{field}.{name}"),
                number,
                "requires indexed completion mode",
            );
        }
    }
    if let Some(policy) = at(spec, "successPolicy") {
        errors.invalid(
            format!("{field}.successPolicy"),
            policy.clone(),
            "requires indexed completion mode",
        );
    }
}

fn replacement(errors: &mut Errors, spec: &Value, field: &str) {
    let Some(policy) = at(spec, "podReplacementPolicy").and_then(Value::as_str) else {
        return;
    };
    let supported: &[&str] = if at(spec, "podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if !supported.contains(&policy) {
        errors.not_supported(format!("{field}.podReplacementPolicy"), policy, supported);
    }
}

fn restart(errors: &mut Errors, spec: &Value, field: &str) {
    let path = format!("{field}.template.spec.restartPolicy");
    match text(spec, "template.spec.restartPolicy") {
        "Always" | "" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if at(spec, "podFailurePolicy").is_some() => {
            errors.invalid(
                path,
                "OnFailure",
                "only \"Never\" is supported when podFailurePolicy is specified",
            );
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    spec_with_selector(errors, new);
    completions(errors, new, old);
    errors.immutable("spec.selector", new, old, "spec.selector");
    template(errors, new, old);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        let path = format!("spec.{name}");
        errors.immutable(&path, new, old, &path);
    }
}

fn completions(errors: &mut Errors, new: &Value, old: &Value) {
    const PATH: &str = "spec.completions";
    if text(new, "spec.completionMode") != "Indexed" {
        errors.immutable(PATH, new, old, PATH);
        return;
    }
    if let Some(completions) = int(new, PATH)
        && int(old, PATH) != Some(completions)
        && int(new, "spec.parallelism") != Some(completions)
    {
        errors.invalid(
            PATH,
            completions,
            "can only be modified in tandem with spec.parallelism",
        );
    }
}

/// The template is fixed; a job that is suspended and never ran may still move to other nodes.
fn template(errors: &mut Errors, new: &Value, old: &Value) {
    let mut before = at(old, "spec.template").cloned().unwrap_or_default();
    let after = at(new, "spec.template").cloned().unwrap_or_default();
    let not_started = flag(old, "spec.suspend") && at(old, "status.startTime").is_none();
    if not_started {
        for (path, fields) in [
            ("spec", &["nodeSelector", "tolerations", "schedulingGates"][..]),
            ("metadata", &["annotations", "labels"][..]),
        ] {
            for field in fields {
                let value = at(&after, path).and_then(|part| part.get(*field)).cloned();
                let part = ensure(&mut before, path);
                match value {
                    Some(value) => part.insert((*field).to_owned(), value),
                    None => part.remove(*field),
                };
            }
        }
        let affinity = at(&after, "spec.affinity.nodeAffinity").cloned();
        match affinity {
            Some(affinity) => {
                ensure(&mut before, "spec.affinity").insert("nodeAffinity".to_owned(), affinity);
            }
            None => {
                if at(&before, "spec.affinity").is_some() {
                    ensure(&mut before, "spec.affinity").remove("nodeAffinity");
                }
            }
        }
    }
    if !same(Some(&after), Some(&before)) {
        errors.invalid("spec.template", after, "field is immutable");
    }
}
