// SPDX-License-Identifier: Apache-2.0
//! Rules of cron jobs: the schedule's five fields or a descriptor, the time zone, and the job inside.

use cobaltcore_text::go;
use serde_json::Value;

use super::errors::Errors;
use super::job::job_spec;
use crate::json::{at, flag, text};

pub(super) fn create(errors: &mut Errors, object: &Value) {
    spec(errors, object, None);
    let name = text(object, "metadata.name");
    if name.len() > 52 {
        errors.invalid("metadata.name", name, "must be no more than 52 characters");
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    spec(errors, new, Some(old));
}

fn spec(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let schedule = text(object, "spec.schedule");
    if schedule.is_empty() {
        errors.required("spec.schedule", "");
    } else {
        if let Err(problem) = parse(schedule) {
            errors.invalid("spec.schedule", schedule, &problem);
        }
        let tolerated = old.is_some_and(|old| text(old, "spec.schedule").contains("TZ"));
        if schedule.contains("TZ") {
            if !tolerated {
                errors.invalid(
                    "spec.schedule",
                    schedule,
                    "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                );
            } else if at(object, "spec.timeZone").is_some() {
                errors.invalid(
                    "spec.schedule",
                    schedule,
                    "cannot use both timeZone field and TZ or CRON_TZ in schedule",
                );
            }
        }
    }
    errors.non_negative(
        object,
        "spec.startingDeadlineSeconds",
        "spec.startingDeadlineSeconds",
    );
    if old.is_none_or(|old| at(old, "spec.timeZone") != at(object, "spec.timeZone")) {
        time_zone(errors, object);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    errors.choice(
        text(object, "spec.concurrencyPolicy"),
        "spec.concurrencyPolicy",
        &policies,
    );
    job_template(errors, object);
    for name in ["spec.successfulJobsHistoryLimit", "spec.failedJobsHistoryLimit"] {
        errors.non_negative(object, name, name);
    }
}

fn job_template(errors: &mut Errors, object: &Value) {
    const SPEC: &str = "spec.jobTemplate.spec";
    job_spec(errors, object, SPEC);
    if let Some(selector) = at(object, "spec.jobTemplate.spec.selector") {
        errors.invalid(
            "spec.jobTemplate.spec.selector",
            selector.clone(),
            "`selector` will be auto-generated",
        );
    }
    if flag(object, "spec.jobTemplate.spec.manualSelector") {
        errors.not_supported("spec.jobTemplate.spec.manualSelector", true, &["nil", "false"]);
    }
}

fn time_zone(errors: &mut Errors, object: &Value) {
    const FIELD: &str = "spec.timeZone";
    let Some(zone) = at(object, FIELD).and_then(Value::as_str) else {
        return;
    };
    if zone.is_empty() {
        errors.invalid(FIELD, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let odd = |part: &str| {
        part.is_empty()
            || matches!(part, "." | "..")
            || part.starts_with('-')
            || !part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c))
    };
    if zone.split('/').any(odd) {
        errors.invalid(FIELD, zone, &format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("Local") {
        errors.invalid(
            FIELD,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
        return;
    }
    // A machine without any time zones cannot tell a wrong name from a right one.
    let known = jiff::tz::db().get(zone).is_ok() || jiff::tz::db().is_definitively_empty();
    if !known {
        errors.invalid(FIELD, zone, &format!("unknown time zone {zone}"));
    }
}

struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds {
        low: 0,
        high: 59,
        names: &[],
    },
    Bounds {
        low: 0,
        high: 23,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 31,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Bounds {
        low: 0,
        high: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// Whether a schedule parses; otherwise why not.
fn parse(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=") {
        rest = rest.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
    }
    if rest.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => Err(format!(
                "failed to parse duration {text}: time: invalid duration {duration}",
                duration = go::quote(duration)
            )),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// A duration as `1h30m`, with the units ns, us, ms, s, m and h.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let after = rest.get(digits..).unwrap_or_default();
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .filter(|unit| after.starts_with(unit))
            .max_by_key(|unit| unit.len());
        match unit {
            Some(unit) if digits > 0 && rest.get(..digits) != Some(".") => {
                rest = after.get(unit.len()..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}

fn range(part: &str, bounds: &Bounds) -> Result<(), String> {
    let pieces: Vec<&str> = part.split('/').collect();
    let (ends, step) = match pieces.as_slice() {
        [ends] => (*ends, None),
        [ends, step] => (*ends, Some(*step)),
        _ => return Err(format!("too many slashes: {part}")),
    };
    let limits: Vec<&str> = ends.split('-').collect();
    let (start, mut end) = match limits.as_slice() {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [only] => {
            let number = number_or_name(only, bounds)?;
            (number, number)
        }
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step)?;
            if limits.len() == 1 {
                end = bounds.high;
            }
            step
        }
    };
    if start < bounds.low {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {part}",
            bounds.low
        ));
    }
    if end > bounds.high {
        return Err(format!(
            "end of range ({end}) above maximum ({}): {part}",
            bounds.high
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(position) => Ok(bounds.low + u32::try_from(position).unwrap_or(0)),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax",
            quoted = go::quote(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn schedules_parse_or_say_why_not() {
        for good in [
            "* * * * *",
            "*/5 0-3 1,15 jan-mar mon",
            "@daily",
            "@every 1h30m",
            "0 0 31 12 6",
            "5/15 * * * *",
        ] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(parse(bad).err().as_deref(), Some(why), "{bad}");
        }
    }
}
