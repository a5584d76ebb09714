// SPDX-License-Identifier: Apache-2.0
//! Times as OpenStack writes them: some with a `Z`, some without, all of them UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, de::Error as _};

/// For fields that may be null or left out (with `default`).
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    text.filter(|text| !text.is_empty())
        .map(|text| read(&text).ok_or_else(|| D::Error::custom(format_args!("{text:?} is not a time"))))
        .transpose()
}

fn read(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    let civil: DateTime = text.parse().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// When an answer was given, by the clock of whoever gave it.
pub(crate) fn of_answer(headers: &http::HeaderMap) -> Option<Timestamp> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    let time = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(time.timestamp())
}

/// How Nova wants to be asked for changes.
pub(crate) fn write(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_mean_the_same() {
        let with: Timestamp = read("2026-11-15T05:37:15Z").unwrap();
        assert_eq!(read("2026-11-15T05:37:15.000000"), Some(with));
        assert_eq!(write(with), "2026-11-15T05:37:15Z");
        assert_eq!(read("yesterday"), None);
    }

    #[test]
    fn an_answer_says_when_it_was_given() {
        let dated = |text: &'static str| {
            let value = http::HeaderValue::from_static(text);
            of_answer(&http::HeaderMap::from_iter([(http::header::DATE, value)]))
        };
        let wanted = read("2026-11-15T05:37:15Z");
        assert_eq!(dated("Sun, 15 Nov 2026 05:37:15 GMT"), wanted);
        assert_eq!(dated("a while ago"), None);
        assert_eq!(of_answer(&http::HeaderMap::new()), None);
    }
}
