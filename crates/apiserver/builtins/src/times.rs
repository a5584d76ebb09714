// SPDX-License-Identifier: Apache-2.0
//! Times as the API writes them: RFC 3339 in UTC with seconds, or with six digits of a second where
//! the type says so. Refusals carry the text of the reference's parser.

use cobaltcore_text::go;
use jiff::Timestamp;
use jiff::tz::Offset;

/// Which of the two forms a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    const fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Writes a time in the form of a field.
pub(crate) fn render(time: Timestamp, precision: Precision) -> String {
    let text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    match precision {
        Precision::Seconds => format!("{text}Z"),
        Precision::Micros => {
            let micros = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
            format!("{text}.{micros:06}Z")
        }
    }
}

/// Reads a time of the API, whatever its precision.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Reads and rewrites a time as a client sent it, or says why it is none.
pub(crate) fn normalise(text: &str, precision: Precision) -> Result<String, String> {
    let mut scan = Scan {
        text,
        at: 0,
        layout: precision.layout(),
    };
    let time = scan.time(precision)?;
    Ok(render(time, precision))
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    layout: &'static str,
}

impl Scan<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fail<T>(&self, element: &str) -> Result<T, String> {
        Err(format!(
            "parsing time {} as {}: cannot parse {} as {}",
            go::quote_time(self.text),
            go::quote_time(self.layout),
            go::quote_time(self.rest()),
            go::quote_time(element)
        ))
    }

    fn out_of_range<T>(&self, what: &str) -> Result<T, String> {
        Err(format!(
            "parsing time {}: {what} out of range",
            go::quote_time(self.text)
        ))
    }

    fn number(&mut self, digits: usize, element: &str) -> Result<i64, String> {
        let found = self
            .rest()
            .get(..digits)
            .filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        match found.and_then(|text| text.parse().ok()) {
            Some(number) => {
                self.at += digits;
                Ok(number)
            }
            None => self.fail(element),
        }
    }

    fn literal(&mut self, expected: &str) -> Result<(), String> {
        if self.rest().starts_with(expected) {
            self.at += expected.len();
            Ok(())
        } else {
            self.fail(expected)
        }
    }

    fn time(&mut self, precision: Precision) -> Result<Timestamp, String> {
        let year = self.number(4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, "01")?;
        if !(1..=12).contains(&month) {
            return self.out_of_range("month");
        }
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        let hour = self.number(2, "15")?;
        if hour > 23 {
            return self.out_of_range("hour");
        }
        self.literal(":")?;
        let minute = self.number(2, "04")?;
        if minute > 59 {
            return self.out_of_range("minute");
        }
        self.literal(":")?;
        let second = self.number(2, "05")?;
        if second > 59 {
            return self.out_of_range("second");
        }
        let nanos = self.fraction(precision)?;
        let offset = self.zone()?;
        if !self.rest().is_empty() {
            return Err(format!(
                "parsing time {}: extra text: {}",
                go::quote_time(self.text),
                go::quote_time(self.rest())
            ));
        }
        let date = jiff::civil::Date::new(year as i16, month as i8, day as i8);
        let Ok(date) = date else {
            return self.out_of_range("day");
        };
        let time = jiff::civil::Time::new(hour as i8, minute as i8, second as i8, nanos);
        let stamp = time.ok().and_then(|time| {
            offset
                .to_timestamp(jiff::civil::DateTime::from_parts(date, time))
                .ok()
        });
        match stamp {
            Some(stamp) => Ok(stamp),
            None => self.out_of_range("day"),
        }
    }

    /// Seconds may carry any fraction where the layout has none; microseconds must be exactly six digits.
    fn fraction(&mut self, precision: Precision) -> Result<i32, String> {
        let digits: String = match self.rest().strip_prefix(['.', ',']) {
            Some(rest) => rest.chars().take_while(char::is_ascii_digit).collect(),
            None => String::new(),
        };
        if precision == Precision::Micros && digits.len() != 6 {
            return self.fail(".000000");
        }
        if digits.is_empty() {
            return Ok(0);
        }
        self.at += 1 + digits.len();
        let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
        Ok(nine.parse().unwrap_or(0))
    }

    fn zone(&mut self) -> Result<Offset, String> {
        if self.rest().starts_with('Z') {
            self.at += 1;
            return Ok(Offset::UTC);
        }
        let sign = match self.rest().bytes().next() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return self.fail("Z07:00"),
        };
        let well_formed = self.rest().get(1..6).is_some_and(|zone| {
            zone.bytes()
                .enumerate()
                .all(|(at, b)| if at == 2 { b == b':' } else { b.is_ascii_digit() })
        });
        if !well_formed {
            return self.fail("Z07:00");
        }
        let hours: i32 = self
            .rest()
            .get(1..3)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let minutes: i32 = self
            .rest()
            .get(4..6)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if hours > 24 || minutes > 59 {
            return self.out_of_range(if hours > 24 {
                "time zone offset hour"
            } else {
                "time zone offset minute"
            });
        }
        self.at += 6;
        match Offset::from_seconds(sign * (hours * 3600 + minutes * 60)) {
            Ok(offset) => Ok(offset),
            Err(_) => self.out_of_range("time zone offset hour"),
        }
    }
}

/// The age between two instants as tables print it: `119s`, `2m5s`, `10m`, `3h4m`, `8h`, `2d3h`,
/// `9d`, `2y3d`, `8y`. A time up to two seconds ahead is `0s`, beyond that `<invalid>`.
pub fn age(from: Timestamp, now: Timestamp) -> String {
    human_duration(now.duration_since(from).as_secs_f64())
}

/// A duration in seconds in the same form.
pub(crate) fn human_duration(exact: f64) -> String {
    let seconds = exact.trunc() as i64;
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let pair = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        pair(hours / 24, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{}d", hours / 24)
    } else if hours < 24 * 365 * 8 {
        let days = hours / 24;
        pair(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_use_the_steps_of_the_reference() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_040, "3h4m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (183_600, "2d3h"),
            (777_600, "9d"),
            (63_072_000, "2y"),
            (63_331_200, "2y3d"),
            (252_288_000, "8y"),
            (-1, "0s"),
            (-3, "<invalid>"),
        ] {
            assert_eq!(human_duration(f64::from(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn times_are_rewritten_in_utc() {
        for (written, precision, expected) in [
            ("2024-05-06T07:08:09Z", Precision::Seconds, "2024-05-06T07:08:09Z"),
            (
                "2024-05-06T07:08:09.999+02:00",
                Precision::Seconds,
                "2024-05-06T05:08:09Z",
            ),
            (
                "2024-05-06T07:08:09.123456Z",
                Precision::Micros,
                "2024-05-06T07:08:09.123456Z",
            ),
        ] {
            assert_eq!(normalise(written, precision).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn refusals_name_the_element() {
        for (written, precision, expected) in [
            (
                "yesterday",
                Precision::Seconds,
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                "2024-05-06T07:08:09Z",
                Precision::Micros,
                r#"parsing time "2024-05-06T07:08:09Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                "2024-13-06T07:08:09Z",
                Precision::Seconds,
                r#"parsing time "2024-13-06T07:08:09Z": month out of range"#,
            ),
            (
                "2024-02-30T07:08:09Z",
                Precision::Seconds,
                r#"parsing time "2024-02-30T07:08:09Z": day out of range"#,
            ),
        ] {
            assert_eq!(normalise(written, precision).err().as_deref(), Some(expected));
        }
    }
}
