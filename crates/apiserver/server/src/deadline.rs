// SPDX-License-Identifier: Apache-2.0
//! How long a client is willing to wait: the parameter `timeout`. Only webhooks take long enough for it
//! to matter; who waits for events says so otherwise.

use std::time::Duration;

use cobaltcore_text::go;

use crate::reqinfo::Query;
use crate::status::{ApiError, ApiResult};

/// How long a client that names a time waits. None at all stands for the time of the server.
pub(crate) fn of(query: &Query) -> Option<Duration> {
    let text = query.get("timeout").filter(|text| fault(text).is_none())?;
    let mut rest = text.trim_start_matches('+');
    let mut seconds = 0.0;
    while let Some(at) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let (number, after) = rest.split_at(at);
        let ends = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(ends);
        let number: f64 = number.parse().ok()?;
        seconds += number
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                _ => 1e-9,
            };
        rest = next;
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
}

/// Refuses a deadline nobody can read.
pub(crate) fn check(query: &Query) -> ApiResult<()> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    match fault(text) {
        None => Ok(()),
        Some(why) => Err(ApiError::bad_request(format!(
            "invalid timeout specified in the request URL - time: {why} {}",
            go::quote(text)
        ))),
    }
}

/// What is wrong with a duration such as `1m30.5s`, in the words of the reference.
fn fault(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return Some("invalid duration".into());
    }
    while !rest.is_empty() {
        let unit_at = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(unit_at);
        if number.matches('.').count() > 1 || !number.contains(|c: char| c.is_ascii_digit()) {
            return Some("invalid duration".into());
        }
        let ends = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(ends);
        match unit {
            "" => return Some("missing unit in duration".into()),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = next,
            other => return Some(format!("unknown unit {} in duration", go::quote(other))),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_judged_as_the_reference_does() {
        for (text, expected) in [
            ("5s", None),
            ("-1s", None),
            ("0", None),
            ("1h30.5m", None),
            ("x", Some("time: invalid duration \"x\"")),
            ("5", Some("time: missing unit in duration \"5\"")),
            ("5z", Some("time: unknown unit \"z\" in duration \"5z\"")),
            ("1..5s", Some("time: invalid duration \"1..5s\"")),
        ] {
            let answer = check(&Query::parse(&format!("timeout={text}"))).err();
            let expected = expected.map(|e| format!("invalid timeout specified in the request URL - {e}"));
            assert_eq!(answer.map(|e| e.message().to_owned()), expected, "{text}");
        }
        assert!(check(&Query::default()).is_ok());
    }

    #[test]
    fn a_client_waits_as_long_as_it_says() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("1m30.5s", Some(90_500)),
            ("250ms", Some(250)),
            ("0", None),
            ("-1s", None),
            ("x", None),
            ("", None),
        ] {
            let asked = of(&Query::parse(&format!("timeout={text}")));
            assert_eq!(asked, expected.map(Duration::from_millis), "{text}");
        }
    }
}
