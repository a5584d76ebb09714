// SPDX-License-Identifier: Apache-2.0
//! Kubernetes quantities, reduced to what hosts report: bytes and processor counts. Written
//! in canonical form; read in every form the API accepts, integers included.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// An amount of a resource, such as `64Gi` or `128`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Quantity(String);

const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
const DECIMAL: [(&str, u32); 6] = [("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const SMALL: [(&str, i32); 3] = [("n", -9), ("u", -6), ("m", -3)];

impl Quantity {
    /// Bytes, with the largest binary suffix that divides them exactly.
    ///
    /// ```
    /// use cobaltcore_api::Quantity;
    /// assert_eq!(Quantity::bytes(68_719_476_736).as_str(), "64Gi");
    /// assert_eq!(Quantity::bytes(1_189_999_770_009).as_str(), "1189999770009");
    /// ```
    pub fn bytes(count: u64) -> Self {
        let best = BINARY
            .iter()
            .rev()
            .find(|(_, shift)| count != 0 && count.trailing_zeros() >= *shift);
        Self(best.map_or_else(
            || count.to_string(),
            |(suffix, shift)| format!("{}{suffix}", count >> shift),
        ))
    }

    /// A plain count, with the largest decimal suffix that divides it exactly.
    ///
    /// ```
    /// assert_eq!(cobaltcore_api::Quantity::count(1000).as_str(), "1k");
    /// ```
    pub fn count(count: u64) -> Self {
        let best = DECIMAL
            .iter()
            .rev()
            .find(|(_, power)| count != 0 && count.is_multiple_of(10u64.pow(*power)));
        Self(best.map_or_else(
            || count.to_string(),
            |(suffix, power)| format!("{}{suffix}", count / 10u64.pow(*power)),
        ))
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value rounded up to a whole number, or nothing if the text is not a quantity or
    /// does not fit.
    ///
    /// ```
    /// use cobaltcore_api::Quantity;
    /// assert_eq!(Quantity::from("1500m").value(), Some(2));
    /// assert_eq!(Quantity::from("24560Mi").value(), Some(25_753_026_560));
    /// ```
    pub fn value(&self) -> Option<i128> {
        let text = self.0.as_str();
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        let (binary, power) = scale(suffix)?;
        let scaled = digits.checked_mul(1i128.checked_shl(binary)?)?;
        let rounded = shift_decimal(scaled, power.checked_sub(fraction_digits)?, negative)?;
        Some(if negative { -rounded } else { rounded })
    }
}

/// What a suffix stands for: a power of two and a power of ten.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    if suffix.is_empty() {
        return Some((0, 0));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(text, _)| *text == suffix) {
        return Some((*shift, 0));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Some((0, i32::try_from(*power).ok()?));
    }
    if let Some((_, power)) = SMALL.iter().find(|(text, _)| *text == suffix) {
        return Some((0, *power));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((0, exponent.parse().ok()?))
}

/// `value * 10^power`; a remainder rounds the signed value up.
fn shift_decimal(value: i128, power: i32, negative: bool) -> Option<i128> {
    let factor = |n: u32| 10i128.checked_pow(n);
    if power >= 0 {
        return value.checked_mul(factor(power.unsigned_abs())?);
    }
    let Some(divisor) = factor(power.unsigned_abs()) else {
        return Some(i128::from(value != 0 && !negative));
    };
    let up = i128::from(value % divisor != 0 && !negative);
    Some(value / divisor + up)
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity as text or integer")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_takes_the_largest_binary_suffix_that_fits_exactly() {
        let table: &[(u64, &str)] = &[
            (0, "0"),
            (1023, "1023"),
            (1_056_462_864 * 1024, "1056462864Ki"),
            (25_149_440 * 1024, "24560Mi"),
            (64 << 30, "64Gi"),
            (1_189_999_770_009, "1189999770009"),
            (1 << 60, "1Ei"),
        ];
        for (count, text) in table {
            assert_eq!(Quantity::bytes(*count).as_str(), *text);
            assert_eq!(Quantity::bytes(*count).value(), Some(i128::from(*count)));
        }
    }

    #[test]
    fn processors_take_decimal_suffixes() {
        for (count, text) in [
            (0, "0"),
            (64, "64"),
            (1000, "1k"),
            (1500, "1500"),
            (2_000_000, "2M"),
        ] {
            assert_eq!(Quantity::count(count).as_str(), text);
        }
    }

    #[test]
    fn every_accepted_spelling_is_read() {
        let table: &[(&str, Option<i128>)] = &[
            ("12", Some(12)),
            ("+12", Some(12)),
            ("-12", Some(-12)),
            ("1.5Gi", Some(1_610_612_736)),
            (".5k", Some(500)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("100m", Some(1)),
            ("-100m", Some(0)),
            ("1n", Some(1)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("12KB", None),
            ("1e99", None),
        ];
        for (text, value) in table {
            assert_eq!(Quantity::from(*text).value(), *value, "{text:?}");
        }
        assert_eq!(serde_json::from_str::<Quantity>("64").unwrap().as_str(), "64");
        assert!(serde_json::from_str::<Quantity>("true").is_err());
    }
}
