// SPDX-License-Identifier: Apache-2.0
//! Points in time and lengths of time: the text forms that Go reads and writes, and the parts of
//! a timestamp in a time zone. Years outside 1 to 9999 and overflowing lengths are errors.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const SECOND: i64 = 1_000_000_000;
const MIN_SECOND: i64 = -62_135_596_800;
const MAX_SECOND: i64 = 253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A point in time, and the offset it was written with. The years 1 to 9999 are covered to their
/// ends, which the timestamps of the time library are not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    nanos: i128,
    offset: i32,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Time {
    /// Seconds since 1970, if in range.
    pub(crate) fn from_second(second: i64) -> Option<Time> {
        Self::checked(i128::from(second) * i128::from(SECOND), 0)
    }

    fn checked(nanos: i128, offset: i32) -> Option<Time> {
        let second = i64::try_from(nanos.div_euclid(i128::from(SECOND))).ok()?;
        (MIN_SECOND..=MAX_SECOND)
            .contains(&second)
            .then_some(Time { nanos, offset })
    }

    /// Whole seconds since 1970.
    pub(crate) fn second(self) -> i64 {
        self.nanos.div_euclid(i128::from(SECOND)) as i64
    }

    /// Whether this is the first moment of the year 1, which Go takes for no time at all.
    pub(crate) fn is_zero(self) -> bool {
        self.nanos == i128::from(MIN_SECOND) * i128::from(SECOND)
    }

    /// The order of two points.
    pub(crate) fn order(self, other: Time) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// The time plus nanoseconds.
    pub(crate) fn add(self, nanos: i128) -> Option<Time> {
        Self::checked(self.nanos.checked_add(nanos)?, self.offset)
    }

    /// Nanoseconds from `other` to this.
    pub(crate) fn since(self, other: Time) -> Option<i64> {
        i64::try_from(self.nanos - other.nanos).ok()
    }

    /// RFC 3339 as Go reads it.
    pub(crate) fn parse(text: &str) -> Option<Time> {
        let (civil, rest) = date_time(text)?;
        let offset = match rest {
            "Z" => 0,
            _ => zone_offset(rest)?,
        };
        Self::at_offset(civil, offset)
    }

    /// The forms that schemas accept: a date, or a date and time with or without zone.
    pub(crate) fn parse_schema(text: &str) -> Option<Time> {
        if let Some(time) = Self::parse(text) {
            return Some(time);
        }
        if let Some((civil, "")) = date_time(text) {
            return Self::at_offset(civil, 0);
        }
        if text.len() != 10 {
            return None;
        }
        Self::parse(&format!("{text}T00:00:00Z"))
    }

    fn at_offset(civil: DateTime, offset: i32) -> Option<Time> {
        let nanos = civil.duration_since(EPOCH).as_nanos();
        Self::checked(nanos - i128::from(offset) * i128::from(SECOND), offset)
    }

    /// The date and time at an offset from UTC.
    fn local(self, offset: i32) -> Option<DateTime> {
        let nanos = self.nanos + i128::from(offset) * i128::from(SECOND);
        let second = i64::try_from(nanos.div_euclid(i128::from(SECOND))).ok()?;
        let rest = nanos.rem_euclid(i128::from(SECOND)) as i32;
        EPOCH.checked_add(SignedDuration::new(second, rest)).ok()
    }

    /// RFC 3339 with as many fraction digits as needed.
    pub(crate) fn format(self) -> String {
        let Some(civil) = self.local(self.offset) else {
            return self.second().to_string();
        };
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second()
        );
        let nanos = civil.subsec_nanosecond();
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        if self.offset == 0 {
            text.push('Z');
        } else {
            let sign = if self.offset < 0 { '-' } else { '+' };
            let minutes = self.offset.abs() / 60;
            let zone = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
            text.push_str(&zone);
        }
        text
    }

    /// The local date and time in a zone: an IANA name, or an offset such as `+02:00`.
    pub(crate) fn civil(self, zone: Option<&str>) -> Result<DateTime, String> {
        let offset = match zone {
            None | Some("" | "UTC") => 0,
            Some(name) if name.contains(':') => named_offset(name)?.seconds(),
            Some(name) => {
                let zone = TimeZone::get(name).map_err(|_| format!("unknown time zone {name}"))?;
                let at = Timestamp::from_second(self.second()).unwrap_or(Timestamp::MAX);
                zone.to_offset(at).seconds()
            }
        };
        self.local(offset).ok_or_else(|| "timestamp overflow".into())
    }
}

/// An offset given as a time zone: hours and minutes around a colon.
fn named_offset(name: &str) -> Result<Offset, String> {
    let (hours, minutes) = name.split_once(':').unwrap_or((name, "0"));
    let number = |text: &str| {
        text.parse::<i32>()
            .map_err(|_| format!("strconv.Atoi: parsing \"{text}\": invalid syntax"))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let signed = if name.starts_with('-') {
        -i64::from(minutes)
    } else {
        i64::from(minutes)
    };
    let seconds = (i64::from(hours) * 60 + signed) * 60;
    i32::try_from(seconds)
        .ok()
        .and_then(|s| Offset::from_seconds(s).ok())
        .ok_or_else(|| format!("unknown time zone {name}"))
}

/// `2006-01-02T15:04:05[.999]`, and what follows.
fn date_time(text: &str) -> Option<(DateTime, &str)> {
    let bytes = text.as_bytes();
    let head = bytes.get(..19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(i, c)| head.get(*i) != Some(c)) {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i16> {
        let digits = text.get(from..to)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten()
    };
    let small = |from: usize, to: usize| number(from, to).and_then(|n| i8::try_from(n).ok());
    let mut rest = text.get(19..)?;
    let mut nanos = 0_i32;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let mut padded: String = fraction.get(..digits.min(9))?.to_owned();
        while padded.len() < 9 {
            padded.push('0');
        }
        nanos = padded.parse().ok()?;
        rest = fraction.get(digits..)?;
    }
    let civil = DateTime::new(
        number(0, 4)?,
        small(5, 7)?,
        small(8, 10)?,
        small(11, 13)?,
        small(14, 16)?,
        small(17, 19)?,
        nanos,
    )
    .ok()?;
    Some((civil, rest))
}

/// `+02:00` in seconds.
fn zone_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let two = |t: &str| {
        (t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit()))
            .then(|| t.parse::<i32>().ok())
            .flatten()
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// A Go duration such as `-1h30m0.5s`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (digits, tail) = rest.split_at_checked(number)?;
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, after) = tail.split_at_checked(unit_len)?;
        total = total.checked_add(scaled(digits, unit_nanos(unit)?)?)?;
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A decimal number of units in nanoseconds.
fn scaled(digits: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(i128::from(unit))?;
    let fraction = fraction.get(..fraction.len().min(18))?;
    if !fraction.is_empty() {
        let scale = 10_i128.checked_pow(fraction.len() as u32)?;
        nanos += fraction.parse::<i128>().ok()? * i128::from(unit) / scale;
    }
    Some(nanos)
}

fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

/// What schemas accept as a duration: Go's form, or numbers with units up to weeks.
pub(crate) fn parse_schema_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut total = 0_i64;
    let mut rest = text.trim();
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest.get(..digits)?.parse().ok()?;
        let tail = rest.get(digits..)?.trim_start();
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let unit = long_unit(tail.get(..letters)?)?;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = tail.get(letters..)?.trim_start();
        any = true;
    }
    any.then_some(total)
}

fn long_unit(unit: &str) -> Option<i64> {
    let lower = unit.to_lowercase();
    Some(match lower.as_str() {
        "ns" | "nano" | "nanosecond" | "nanoseconds" => 1,
        "us" | "\u{b5}s" | "micro" | "microsecond" | "microseconds" => 1_000,
        "ms" | "milli" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "wk" | "wks" | "week" | "weeks" => 604_800 * SECOND,
        _ => return None,
    })
}

/// How `string()` shows a duration: seconds.
pub(crate) fn format_duration(nanos: i64) -> String {
    let seconds = nanos / SECOND;
    let rest = nanos % SECOND;
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}

/// One part of a timestamp, by accessor.
pub(crate) fn part(civil: DateTime, accessor: &str) -> Option<i64> {
    Some(match accessor {
        "getFullYear" => i64::from(civil.year()),
        "getMonth" => i64::from(civil.month()) - 1,
        "getDayOfYear" => i64::from(civil.date().day_of_year()) - 1,
        "getDayOfMonth" => i64::from(civil.day()) - 1,
        "getDate" => i64::from(civil.day()),
        "getDayOfWeek" => i64::from(civil.date().weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(civil.hour()),
        "getMinutes" => i64::from(civil.minute()),
        "getSeconds" => i64::from(civil.second()),
        "getMilliseconds" => i64::from(civil.subsec_nanosecond()) / 1_000_000,
        _ => return None,
    })
}

/// One part of a duration, by accessor.
pub(crate) fn duration_part(nanos: i64, accessor: &str) -> Option<i64> {
    Some(match accessor {
        "getHours" => nanos / (3_600 * SECOND),
        "getMinutes" => nanos / (60 * SECOND),
        "getSeconds" => nanos / SECOND,
        "getMilliseconds" => nanos / 1_000_000,
        _ => return None,
    })
}
