// SPDX-License-Identifier: Apache-2.0
//! Just enough of RFC 3339 to put entries in order: seconds since 1970.

/// The seconds since 1970 of an RFC 3339 time; `None` when it is none.
pub(crate) fn unix_seconds(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let offset = match text.rfind(['+', '-']).filter(|at| *at >= 19) {
        None => 0,
        Some(at) => {
            let seconds = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
            if text.get(at..=at) == Some("-") {
                -seconds
            } else {
                seconds
            }
        }
    };
    // Days of the proleptic Gregorian calendar, years counted from March.
    let (y, m) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::unix_seconds;

    #[test]
    fn times_become_seconds() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-03-01T00:00:00Z", Some(951_868_800)),
            ("2024-02-29T12:30:45Z", Some(1_709_209_845)),
            ("2024-02-29T13:30:45+01:00", Some(1_709_209_845)),
            ("2024-02-29T12:30:45.123456Z", Some(1_709_209_845)),
            ("nonsense", None),
            ("2024-13-01T00:00:00Z", None),
            ("ü024-01-01T00:00:00Z", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(unix_seconds(text), seconds, "{text}");
        }
    }
}
