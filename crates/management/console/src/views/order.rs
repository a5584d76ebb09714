// SPDX-License-Identifier: Apache-2.0
//! Names in the order people count in: `bb2` stands before `bb10`.

use std::cmp::Ordering;

/// A name that compares piece by piece, numbers by their value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted(pub String);

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        counted(&self.0, &other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares two names; those of equal value by their letters, so that the order is total.
pub fn counted(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let ((text, number, rest), (other_text, other_number, other_rest)) = (piece(left), piece(right));
        let order = text.cmp(other_text).then_with(|| value(number, other_number));
        if order.is_ne() || (rest.is_empty() && other_rest.is_empty()) {
            return order.then_with(|| a.cmp(b));
        }
        (left, right) = (rest, other_rest);
    }
}

/// The text before the first number, that number, and what follows.
fn piece(name: &str) -> (&str, &str, &str) {
    let starts = name
        .find(|letter: char| letter.is_ascii_digit())
        .unwrap_or(name.len());
    let (text, rest) = name.split_at(starts);
    let ends = rest
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, rest) = rest.split_at(ends);
    (text, number, rest)
}

/// Numbers of any length, by value: without leading zeros, a longer one is larger.
fn value(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_by_value_and_everything_else_by_letters() {
        let mut names = [
            "bb10",
            "bb1",
            "bb100",
            "bb2",
            "az-b",
            "az-a",
            "node010-bb2",
            "node002-bb10",
            "bb02",
            "bb",
            "7",
            "",
            "bb99999999999999999999999",
        ];
        names.sort_by(|a, b| counted(a, b));
        let right = [
            "",
            "7",
            "az-a",
            "az-b",
            "bb",
            "bb1",
            "bb02",
            "bb2",
            "bb10",
            "bb100",
            "bb99999999999999999999999",
            "node002-bb10",
            "node010-bb2",
        ];
        assert_eq!(names, right);
    }
}
