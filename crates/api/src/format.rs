// SPDX-License-Identifier: Apache-2.0
//! Figures as people read them in `kubectl get migrations`. The texts are part of the
//! contract with dashboards, so rounding is done on exact integers and never on floats.

use std::fmt::Write as _;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes with one decimal and a binary unit.
///
/// ```
/// use cobaltcore_api::format::bytes;
/// assert_eq!(bytes(4_294_967_296), "4.0 GiB");
/// assert_eq!(bytes(0), "0 B");
/// ```
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let mut exponent = 0;
    let mut quotient = count / 1024;
    while quotient >= 1024 {
        quotient /= 1024;
        exponent += 1;
    }
    let tenths = half_even(u128::from(count) * 10, 1u128 << (10 * (exponent + 1)));
    let unit = UNITS.get(exponent).copied().unwrap_or("EiB");
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Bytes per second.
///
/// ```
/// assert_eq!(cobaltcore_api::format::bytes_per_second(17_301_504), "16.5 MiB/s");
/// ```
pub fn bytes_per_second(count: u64) -> String {
    bytes(count) + "/s"
}

/// A plain count per second, as used for dirtied pages.
pub fn per_second(count: u64) -> String {
    format!("{count}/s")
}

/// A percentage.
pub fn percent(value: u64) -> String {
    format!("{value}%")
}

/// A duration given in milliseconds, with hours and minutes only when they say something.
///
/// ```
/// use cobaltcore_api::format::duration_ms;
/// assert_eq!(duration_ms(2755), "2.755s");
/// assert_eq!(duration_ms(61_500), "1m1.5s");
/// ```
pub fn duration_ms(milliseconds: u64) -> String {
    if milliseconds == 0 {
        return "0s".into();
    }
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (seconds, fraction) = (milliseconds / 1000, milliseconds % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{seconds}");
    if fraction > 0 {
        let digits = format!("{fraction:03}");
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text.push('s');
    text
}

/// A version that libvirt packs into one integer.
///
/// ```
/// assert_eq!(cobaltcore_api::format::packed_version(7_002_022), "7.2.22");
/// ```
pub fn packed_version(version: u64) -> String {
    format!(
        "{}.{}.{}",
        version / 1_000_000,
        version / 1000 % 1000,
        version % 1000
    )
}

/// `numerator / denominator`, ties to the even neighbour.
fn half_even(numerator: u128, denominator: u128) -> u128 {
    let (quotient, rest) = (numerator / denominator, numerator % denominator);
    match (rest * 2).cmp(&denominator) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + quotient % 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_the_documents_show_them() {
        let table: &[(u64, &str)] = &[
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1088, "1.1 KiB"),
            (1075, "1.0 KiB"),
            (1_048_575, "1024.0 KiB"),
            (1_048_576, "1.0 MiB"),
            (10_905_190, "10.4 MiB"),
            (417_333_248, "398.0 MiB"),
            (753_716_429, "718.8 MiB"),
            (4_294_967_296, "4.0 GiB"),
            (62_706_522_522, "58.4 GiB"),
            (68_719_476_736, "64.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (count, text) in table {
            assert_eq!(bytes(*count), *text, "{count}");
        }
    }

    #[test]
    fn a_tie_goes_to_the_even_digit() {
        // 1.25 and 1.75 KiB are exactly half way between two tenths.
        assert_eq!(bytes(1280), "1.2 KiB");
        assert_eq!(bytes(1792), "1.8 KiB");
    }

    #[test]
    fn rates_and_percentages() {
        assert_eq!(bytes_per_second(17_301_504), "16.5 MiB/s");
        assert_eq!(bytes_per_second(617_506_406), "588.9 MiB/s");
        assert_eq!(bytes_per_second(0), "0 B/s");
        assert_eq!(per_second(1250), "1250/s");
        assert_eq!(per_second(0), "0/s");
        assert_eq!(percent(20), "20%");
    }

    #[test]
    fn durations_as_the_documents_show_them() {
        let table: &[(u64, &str)] = &[
            (0, "0s"),
            (55, "55ms"),
            (999, "999ms"),
            (1000, "1s"),
            (2755, "2.755s"),
            (2010, "2.01s"),
            (35_078, "35.078s"),
            (60_000, "1m0s"),
            (61_500, "1m1.5s"),
            (3_600_000, "1h0m0s"),
            (3_660_001, "1h1m0.001s"),
        ];
        for (milliseconds, text) in table {
            assert_eq!(duration_ms(*milliseconds), *text, "{milliseconds}");
        }
    }

    #[test]
    fn packed_versions() {
        for (packed, text) in [
            (9_000_000, "9.0.0"),
            (7_002_022, "7.2.22"),
            (50_000_000, "50.0.0"),
            (0, "0.0.0"),
        ] {
            assert_eq!(packed_version(packed), text);
        }
    }
}
