// SPDX-License-Identifier: Apache-2.0
//! The XML that libvirt sends, read into types. Documents are walked once, element by element, within bounds; unknown
//! elements are skipped, and a number that is missing or absurd costs that number, never the document.

mod capabilities;
mod domain;
mod domain_capabilities;
mod ids;
mod walk;

pub use capabilities::capabilities;
pub use domain::domain;
pub use domain_capabilities::domain_capabilities;
pub use ids::IdSet;

/// Amounts beyond this are mistakes: no machine has an exbibyte of memory.
const MOST_BYTES: u64 = 1 << 60;

/// Bytes from a number and libvirt's word for the unit; kibibytes when none is given.
fn bytes(number: &str, unit: Option<&str>) -> Result<u64, String> {
    let factor: u64 = match unit.unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1_000,
        "k" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        other => return Err(format!("unknown unit {other:?}")),
    };
    let number = number.trim();
    let amount: u64 = number
        .parse()
        .map_err(|_| format!("{:?} is no amount of memory", shorten(number)))?;
    amount
        .checked_mul(factor)
        .filter(|bytes| *bytes <= MOST_BYTES)
        .ok_or_else(|| {
            format!(
                "{number} {} is more memory than there can be",
                unit.unwrap_or("KiB")
            )
        })
}

/// Enough of a text to recognise it in a message.
fn shorten(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_libvirts() {
        let table = [
            ("1", Some("b"), Ok(1)),
            ("1", Some("KB"), Ok(1000)),
            ("1", None, Ok(1024)),
            (" 25149440 ", Some("KiB"), Ok(25_149_440 << 10)),
            ("2", Some("G"), Ok(2 << 30)),
            ("3", Some("TiB"), Ok(3 << 40)),
        ];
        for (number, unit, wanted) in table {
            assert_eq!(bytes(number, unit), wanted, "{number} {unit:?}");
        }
    }

    #[test]
    fn absurd_amounts_are_refused_with_words() {
        for (number, unit, words) in [
            ("", None, "no amount"),
            ("-4", None, "no amount"),
            (
                "18446744073709551615",
                Some("TiB"),
                "more memory than there can be",
            ),
            ("99999999999999999999999999999999999999999999999", None, "9999..."),
            ("1", Some("parsec"), "unknown unit"),
        ] {
            let error = bytes(number, unit).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
