// SPDX-License-Identifier: Apache-2.0
//! Durations as people write them in flags and files: `90s`, `1m30s`, `250ms`, `1.5h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in the notation of Kubernetes.
///
/// ```
/// use cobaltcore_kit::config::HumanDuration;
/// use std::time::Duration;
/// let pause: HumanDuration = "1m30s".parse().unwrap();
/// assert_eq!(pause.0, Duration::from_secs(90));
/// assert_eq!(pause.to_string(), "1m30s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as 90s, 1m30s or 250ms");
        if text == "0" {
            return Ok(Self::default());
        }
        let (mut rest, mut seconds) = (text, 0.0);
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let end = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let factor = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
            seconds += number.parse::<f64>().map_err(|_| wrong())? * factor;
            rest = tail;
        }
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| wrong())
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 && nanos > 0 {
            return match nanos {
                n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
                n if n % 1000 == 0 => write!(f, "{}us", n / 1000),
                n => write!(f, "{n}ns"),
            };
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        let fraction = format!("{nanos:09}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}s", seconds % 60),
            fraction => write!(f, "{}.{fraction}s", seconds % 60),
        }
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for text in [
            "0s", "1s", "1m0s", "1m30s", "1h0m0s", "250ms", "1.5s", "7us", "3ns", "888h0m0s",
        ] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
        for (text, millis) in [
            ("0", 0),
            ("1.5h", 5_400_000),
            ("1h1ms", 3_600_001),
            ("0.25s", 250),
        ] {
            assert_eq!(
                text.parse::<HumanDuration>().unwrap().0,
                Duration::from_millis(millis)
            );
        }
        for text in ["", "5", "5 s", "s", "-1s", "1d", "1..5s", "99999999999999999999h"] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
    }
}
