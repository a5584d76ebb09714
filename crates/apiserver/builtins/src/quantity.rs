// SPDX-License-Identifier: Apache-2.0
//! Resource quantities: parsing, the canonical form the reference writes, comparison and addition.
//! Amounts are exact down to a billionth; smaller parts are rounded away from zero, as there.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Why a quantity does not parse, in the words of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix at all.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number has digits that cannot be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// One quantity. Equality and order look at the amount only, not at how it was written.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Amount in units of 10^scale.
    amount: i128,
    scale: i32,
    format: Format,
    /// The text as written, where the reference would keep it.
    text: Option<Arc<str>>,
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Longest accepted text; the reference has no limit, but nothing sensible is longer.
const MAX_LENGTH: usize = 128;

impl Quantity {
    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() || text.len() > MAX_LENGTH || !text.is_ascii() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let (exponent, format) = interpret(parts.suffix)?;
        if parts.digits_are_missing() {
            return Err(QuantityError::Numeric);
        }
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let fraction = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Numeric)?;
        let number: i128 = digits.parse().map_err(|_| QuantityError::Numeric)?;
        let signed = if parts.negative { -number } else { number };
        let mut quantity = match format {
            Format::BinarySi => {
                let amount = signed
                    .checked_mul(1_i128 << exponent)
                    .ok_or(QuantityError::Numeric)?;
                Self {
                    amount,
                    scale: -fraction,
                    format,
                    text: None,
                }
            }
            _ => Self {
                amount: signed,
                scale: exponent.saturating_sub(fraction),
                format,
                text: None,
            },
        };
        if keeps_text(format, exponent, quantity.scale, &digits, number) {
            quantity.text = Some(Arc::from(text));
        }
        quantity.round_to_nano();
        if format == Format::BinarySi {
            quantity.cap_binary();
        }
        Ok(quantity)
    }

    /// Reads a quantity out of a JSON value; numbers are allowed. `null` is zero.
    pub fn from_value(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null => Ok(Self::from_integer(0)),
            _ => Err(QuantityError::Format),
        }
    }

    /// A plain number.
    pub fn from_integer(number: i64) -> Self {
        Self {
            amount: i128::from(number),
            scale: 0,
            format: Format::DecimalSi,
            text: None,
        }
    }

    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.amount == 0
    }

    /// Whether the amount is below zero.
    pub fn is_negative(&self) -> bool {
        self.amount < 0
    }

    /// Whether the amount has a fraction.
    pub fn is_fractional(&self) -> bool {
        self.scaled(0).1
    }

    /// The amount rounded up to a whole number.
    pub fn value(&self) -> i64 {
        clamp(self.scaled(0).0)
    }

    /// Thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        clamp(self.scaled(-3).0)
    }

    /// The amount rounded up to whole thousandths.
    pub fn round_to_milli(&self) -> Self {
        let (amount, lost) = self.scaled(-3);
        if lost {
            Self {
                amount,
                scale: -3,
                format: self.format,
                text: None,
            }
        } else {
            self.clone()
        }
    }

    /// The sum, written like `self`.
    pub fn add(&self, other: &Self) -> Self {
        if self.is_zero() {
            return other.clone();
        }
        let scale = self.scale.min(other.scale);
        let amount = self.at(scale).saturating_add(other.at(scale));
        Self {
            amount,
            scale,
            format: self.format,
            text: None,
        }
    }

    /// The difference, written like `self`.
    pub fn sub(&self, other: &Self) -> Self {
        self.add(&Self {
            amount: -other.amount,
            text: None,
            ..other.clone()
        })
    }

    /// Amount in units of 10^scale, exact where `scale` is not above ours.
    fn at(&self, scale: i32) -> i128 {
        let shift = u32::try_from(self.scale.saturating_sub(scale)).unwrap_or(0);
        10_i128
            .checked_pow(shift)
            .and_then(|factor| self.amount.checked_mul(factor))
            .unwrap_or(if self.amount < 0 { i128::MIN } else { i128::MAX })
    }

    /// Amount in units of 10^scale rounded away from zero, and whether anything was lost.
    fn scaled(&self, scale: i32) -> (i128, bool) {
        if self.scale >= scale {
            return (self.at(scale), false);
        }
        let shift = u32::try_from(scale.saturating_sub(self.scale)).unwrap_or(u32::MAX);
        let Some(factor) = 10_i128.checked_pow(shift) else {
            return (self.amount.signum(), self.amount != 0);
        };
        let (whole, rest) = (self.amount / factor, self.amount % factor);
        if rest == 0 {
            (whole, false)
        } else {
            (whole + self.amount.signum(), true)
        }
    }

    fn round_to_nano(&mut self) {
        if self.scale < -9 {
            let (amount, lost) = self.scaled(-9);
            self.amount = amount;
            self.scale = -9;
            if lost {
                self.text = None;
            }
        }
    }

    fn cap_binary(&mut self) {
        let limit = i128::from(i64::MAX);
        let (whole, _) = self.scaled(0);
        if whole.abs() > limit {
            self.amount = if self.amount < 0 { -limit } else { limit };
            self.scale = 0;
            self.text = None;
        }
    }

    fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        if self.format == Format::BinarySi {
            let (whole, lost) = self.scaled(0);
            if whole.abs() >= 1024 && !lost {
                return binary_text(whole);
            }
        }
        let (mut amount, mut exponent) = (self.amount, self.scale);
        while amount % 10 == 0 {
            amount /= 10;
            exponent += 1;
        }
        while exponent.rem_euclid(3) != 0 {
            amount = amount.saturating_mul(10);
            exponent -= 1;
        }
        let suffix = DECIMAL
            .iter()
            .find(|(_, power)| *power == exponent)
            .map(|(suffix, _)| *suffix);
        match (self.format, suffix) {
            (Format::DecimalExponent, _) | (_, None) if exponent != 0 => format!("{amount}e{exponent}"),
            (_, suffix) => format!("{amount}{}", suffix.unwrap_or_default()),
        }
    }
}

fn clamp(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

fn binary_text(mut amount: i128) -> String {
    let mut power = 0;
    while amount % 1024 == 0 && power + 1 < BINARY.len() {
        amount /= 1024;
        power += 1;
    }
    format!("{amount}{}", BINARY.get(power).copied().unwrap_or_default())
}

/// The reference keeps the text of numbers it takes for canonical already.
fn keeps_text(format: Format, exponent: i32, scale: i32, digits: &str, number: i128) -> bool {
    if digits.len() > 18 || scale < -9 || number == 0 {
        return false;
    }
    match format {
        Format::BinarySi => scale == 0 && exponent % 10 == 0 && number & 7 != 0,
        _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    any_digit: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let (whole_all, rest) = take_digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => take_digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let tail = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !tail.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let stripped = whole_all.trim_start_matches('0');
        let whole = if stripped.is_empty() { "0" } else { stripped };
        Ok(Self {
            negative,
            whole,
            fraction,
            suffix,
            any_digit: !whole_all.is_empty() || !fraction.is_empty(),
        })
    }

    /// A lone sign or suffix has the right shape but no number; a lone sign reads as zero.
    fn digits_are_missing(&self) -> bool {
        !self.any_digit && !self.suffix.is_empty()
    }
}

fn take_digits(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn interpret(suffix: &str) -> Result<(i32, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Ok((*power, Format::DecimalSi));
    }
    if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
        return Ok((i32::try_from(at).unwrap_or(0) * 10, Format::BinarySi));
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
        let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
        if exponent.abs() > 1000 {
            return Err(QuantityError::Numeric);
        }
        return Ok((exponent, Format::DecimalExponent));
    }
    Err(QuantityError::Suffix)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.min(other.scale);
        self.at(scale).cmp(&other.at(scale))
    }
}

/// The canonical text of a quantity as a client wrote it.
pub fn canonical(value: &Value) -> Result<String, QuantityError> {
    Quantity::from_value(value).map(|quantity| quantity.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms_are_those_of_the_reference() {
        for (written, expected) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0.5", "500m"),
            ("1073741824", "1073741824"),
            ("1000", "1k"),
            ("100m", "100m"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1000Mi", "1000Mi"),
            ("1500Mi", "1500Mi"),
            ("1e3", "1e3"),
            ("12000e3", "12e6"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1", "-1"),
            ("+2", "+2"),
            ("100Ki", "100Ki"),
            ("2048Ki", "2Mi"),
            ("0.1n", "1n"),
            ("1E", "1E"),
            ("1000k", "1M"),
            ("00012", "00012"),
            ("512", "512"),
            ("1Ki", "1Ki"),
        ] {
            assert_eq!(
                Quantity::parse(written).map(|q| q.to_string()),
                Ok(expected.to_owned()),
                "{written}"
            );
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (written, error) in [
            ("", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("ten", QuantityError::Format),
            ("1K", QuantityError::Suffix),
            ("1mi", QuantityError::Suffix),
            ("1Gi5x", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(written).err(), Some(error), "{written}");
        }
    }

    #[test]
    fn amounts_compare_across_notations() {
        let parse = |text: &str| Quantity::parse(text).ok();
        assert_eq!(parse("1Gi"), parse("1073741824"));
        assert!(parse("1G") < parse("1Gi"));
        assert!(parse("900m") < parse("1"));
        assert_eq!(parse("500m").map(|q| q.value()), Some(1));
        assert_eq!(parse("1.5").map(|q| q.milli_value()), Some(1500));
        assert_eq!(
            parse("1Gi").zip(parse("1Gi")).map(|(a, b)| a.add(&b).to_string()),
            Some("2Gi".to_owned())
        );
    }
}
