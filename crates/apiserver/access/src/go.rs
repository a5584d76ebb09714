// SPDX-License-Identifier: Apache-2.0
//! Quoting as the reference server prints it.
//!
//! Messages of the reference show strings in Go's `%q` form and some values in `%#v` form.
//! Clients compare these texts, so they are rebuilt here exactly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A string in Go's `%q` form.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of strings in Go's `%q` form: `["a" "b"]`.
pub(crate) fn quote_list<S: AsRef<str>>(list: &[S]) -> String {
    let parts: Vec<String> = list.iter().map(|s| quote(s.as_ref())).collect();
    format!("[{}]", parts.join(" "))
}

/// A list of strings in Go's `%#v` form.
pub(crate) fn syntax_list(list: &[String]) -> String {
    if list.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let parts: Vec<String> = list.iter().map(|s| quote(s)).collect();
    format!("[]string{{{}}}", parts.join(", "))
}

/// A map of lists in Go's `%#v` form.
pub(crate) fn syntax_map(map: &BTreeMap<String, Vec<String>>) -> String {
    if map.is_empty() {
        return "map[string][]string(nil)".to_owned();
    }
    let parts: Vec<String> = map
        .iter()
        .map(|(k, v)| format!("{}:{}", quote(k), syntax_list(v)))
        .collect();
    format!("map[string][]string{{{}}}", parts.join(", "))
}

/// Several error texts as the reference joins them: one stays bare, several become `[a, b]`.
pub(crate) fn aggregate(texts: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_str()) {
            seen.push(text);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        for (given, wanted) in [
            ("plain", "\"plain\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("line\nbreak\t", "\"line\\nbreak\\t\""),
            ("\0\u{7f}", "\"\\x00\\x7f\""),
            ("ünïcode 日本", "\"ünïcode 日本\""),
            ("it's", "\"it's\""),
        ] {
            assert_eq!(quote(given), wanted);
        }
    }

    #[test]
    fn one_error_stays_bare_and_duplicates_vanish() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(aggregate(std::slice::from_ref(&a)), "a");
        assert_eq!(aggregate(&[a.clone(), a.clone()]), "a");
        assert_eq!(aggregate(&[a, b]), "[a, b]");
    }
}
