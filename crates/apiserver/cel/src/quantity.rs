// SPDX-License-Identifier: Apache-2.0
//! Kubernetes quantities: exact down to a billionth, as large as 128 bits allow. Whether one
//! counts as an integer depends on how it was written, as in the reference.

use std::fmt;

const NANO: i128 = 1_000_000_000;
const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";

/// A quantity.
#[derive(Debug, Clone)]
pub(crate) struct Quantity {
    nano: i128,
    /// Digits and decimal exponent, where the value was written in a way that keeps them.
    exact: Option<(i64, i32)>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

/// What a suffix multiplies by.
enum Suffix {
    Decimal(i32),
    Binary(u32),
}

impl Quantity {
    /// Parses a quantity such as `1.5Gi`.
    pub(crate) fn parse(text: &str) -> Result<Quantity, String> {
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .into(),
            ),
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end).ok_or(FORMAT_WRONG)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(FORMAT_WRONG.into());
        }
        let suffix = parse_suffix(suffix)?;
        let whole = whole.trim_start_matches('0');
        let digits = format!("{whole}{fraction}");
        let sign = if negative { -1 } else { 1 };
        let exact = exact(&digits, fraction.len(), &suffix).map(|(v, s)| (v * sign, s));
        let nano = nanos(&digits, fraction.len(), &suffix) * i128::from(sign);
        Ok(Quantity { nano, exact })
    }

    /// A whole number.
    pub(crate) fn from_int(value: i64) -> Quantity {
        Quantity {
            nano: i128::from(value) * NANO,
            exact: Some((value, 0)),
        }
    }

    pub(crate) fn sign(&self) -> i64 {
        self.nano.signum() as i64
    }

    pub(crate) fn compare(&self, other: &Quantity) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }

    /// The value, if it was written as an integer that fits.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let (value, scale) = self.exact?;
        let factor = 10_i64.checked_pow(u32::try_from(scale).ok()?)?;
        value.checked_mul(factor)
    }

    pub(crate) fn as_float(&self) -> f64 {
        let whole = self.nano / NANO;
        let rest = self.nano % NANO;
        whole as f64 + rest as f64 / 1e9
    }

    pub(crate) fn add(&self, other: &Quantity) -> Quantity {
        let exact = match (self.exact, other.exact) {
            (Some(a), Some(b)) => add_exact(a, b),
            _ => None,
        };
        Quantity {
            nano: self.nano.saturating_add(other.nano),
            exact,
        }
    }

    pub(crate) fn sub(&self, other: &Quantity) -> Quantity {
        let exact = other.exact.and_then(|(v, s)| Some((v.checked_neg()?, s)));
        self.add(&Quantity {
            nano: -other.nano,
            exact,
        })
    }
}

/// Adds two decimal numbers at the finer of their scales.
fn add_exact(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let scale = a.1.min(b.1);
    let at = |(value, from): (i64, i32)| value.checked_mul(10_i64.checked_pow((from - scale) as u32)?);
    Some((at(a)?.checked_add(at(b)?)?, scale))
}

fn parse_suffix(text: &str) -> Result<Suffix, String> {
    Ok(match text {
        "" => Suffix::Decimal(0),
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        other => {
            let Some(exponent) = other.strip_prefix(['e', 'E']) else {
                let known = other
                    .bytes()
                    .all(|b| b"eEinumkKMGTP".contains(&b) || b.is_ascii_digit() || b"+-".contains(&b));
                return Err(if known { SUFFIX_WRONG } else { FORMAT_WRONG }.into());
            };
            let exponent: i32 = exponent.parse().map_err(|_| SUFFIX_WRONG)?;
            Suffix::Decimal(exponent)
        }
    })
}

/// Digits and scale as the fast path of the reference keeps them.
fn exact(digits: &str, fraction: usize, suffix: &Suffix) -> Option<(i64, i32)> {
    let digits = if digits.is_empty() { "0" } else { digits };
    match suffix {
        Suffix::Decimal(exponent) => {
            let scale = exponent.checked_sub(fraction as i32)?;
            if digits.len() > 18 || scale < -9 {
                return None;
            }
            Some((digits.parse().ok()?, scale))
        }
        Suffix::Binary(bits) => {
            if fraction > 0 {
                return None;
            }
            let value: i64 = digits.parse().ok()?;
            Some((value.checked_mul(1_i64.checked_shl(*bits)?)?, 0))
        }
    }
}

/// Billionths, rounded up; what does not fit is capped.
fn nanos(digits: &str, fraction: usize, suffix: &Suffix) -> i128 {
    let cap = i128::MAX / 4;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let (factor, exponent) = match suffix {
        Suffix::Decimal(exponent) => (1_i128, i64::from(*exponent)),
        Suffix::Binary(bits) => (1_i128 << bits, 0),
    };
    // The digits beyond what fits matter only for rounding up.
    let kept = digits.get(..digits.len().min(19)).unwrap_or(digits);
    let dropped = digits.len() - kept.len();
    let rest_is_zero = digits
        .get(kept.len()..)
        .is_none_or(|r| r.bytes().all(|b| b == b'0'));
    let mantissa: i128 = kept.parse().unwrap_or(cap);
    let Some(value) = mantissa.checked_mul(factor) else {
        return cap;
    };
    let scale = exponent - fraction as i64 + dropped as i64 + 9;
    if scale >= 0 {
        let power = u32::try_from(scale).ok().and_then(|s| 10_i128.checked_pow(s));
        return power
            .and_then(|p| value.checked_mul(p))
            .map_or(cap, |v| v.min(cap));
    }
    match u32::try_from(-scale).ok().and_then(|s| 10_i128.checked_pow(s)) {
        Some(power) => {
            let round_up = value % power != 0 || !rest_is_zero;
            value / power + i128::from(round_up)
        }
        None => 1,
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.nano / NANO, (self.nano % NANO).abs());
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let sign = if self.nano < 0 && whole == 0 { "-" } else { "" };
        let fraction = format!("{rest:09}");
        write!(f, "{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }
}
