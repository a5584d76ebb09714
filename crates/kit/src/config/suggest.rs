// SPDX-License-Identifier: Apache-2.0
//! Helps with misspelled keys.

/// What to say about a key that is not among `fields`.
pub(super) fn unknown(name: &str, fields: &[&str]) -> String {
    let close = fields.iter().map(|field| (distance(name, field), field)).min();
    match close {
        Some((steps, field)) if steps <= 1 + name.len() / 5 => format!("unknown key; did you mean {field}?"),
        _ if fields.is_empty() => "unknown key".into(),
        _ => format!("unknown key; known are {}", fields.join(", ")),
    }
}

/// How many letters must change to turn one name into the other.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (b, cell) in two.iter().zip(row.iter_mut().skip(1)) {
            let cost = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = cost.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
